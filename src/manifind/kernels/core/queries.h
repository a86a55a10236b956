// The k most similar rows of some queries, exactly.
//
// Rows are compressed to int8, once and for all searches or as a search comes to them, and multiplied in strips. A row
// whose product, plus the most that rounding can be off, reaches the threshold of a query is a candidate; candidates are
// scored in float32 at the end. Thresholds are guessed from the rows seen so far, which are a sample, and queries for
// which a guess was too high are searched again without: nothing depends on luck, nor on the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "loops.h"
#include "memory.h"

namespace manifind {

// Strips of rows, packed for `scan`, with what rounding did to each.
struct Strips {
    std::vector<uint32_t, OnLines<uint32_t>> words;
    std::vector<float> scales, errors, lengths;
    std::vector<int32_t> biases;
    void resize(int64_t rows, int64_t words_of_row);
};

// Queries packed for `scan`, in as many groups of eight as are needed, all of one height.
struct PackedQueries {
    int64_t groups = 0;
    int height = 0;
    std::vector<uint32_t, OnLines<uint32_t>> words;
    std::vector<float> scales, errors, lengths;  // an entry a slot, GROUP of them a group
    std::vector<int32_t> biases;
    // Packs `count` of the queries: those that `which` says, or the first ones where it is null. Throws
    // std::invalid_argument where values are not finite, or huge.
    void fill(Packing packing, int words_of_row, const float* queries, int64_t d, const int64_t* which, int64_t count);
    int64_t slot_of(int64_t query) const { return query / height * GROUP + query % height; }
    int64_t query_at(int64_t slot) const { return slot / GROUP * height + slot % GROUP; }

   private:
    std::vector<float> rows_;
    std::vector<int8_t> bytes_;
};

constexpr int64_t FEW_ROWS = 1 << 14;  // of which every score can be kept, until the best are chosen

class Compressed {
   public:
    // With `keep` it holds a byte a value (four where the level has no products of int8), so that a search need not
    // compress; it throws std::invalid_argument where values are not finite, or huge.
    Compressed(const Rows& vectors, bool keep, int threads);
    // `vectors` are the rows that it was made from: they are not kept. Searches among `rows`, which ascend, if they are
    // given; ids are then places in them. Candidates take about `memory` bytes.
    void search(const Rows& vectors, const float* queries, int64_t m, const int32_t* rows, int64_t rows_count, int64_t k,
                int64_t memory, int threads, int32_t* ids, float* similarities) const;
    const int64_t n, d;

   private:
    struct Sought;
    class Attempt;
    void compress_all(const Rows& vectors, const int32_t* rows, int64_t count, Strips& to, int threads) const;
    void compress(const Rows& vectors, const int64_t* rows, int count, Strips& to, int64_t strip,
                  std::vector<float>& row, std::vector<int8_t>& bytes) const;

    const Packing packing_;
    const int words_;
    const bool kept_;
    Strips strips_;
};

}  // namespace manifind
