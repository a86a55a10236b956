// Exact k-NN search of queries among rows quantized to int8.
//
// Rows are quantized once for all searches, or during a search, and multiplied strip by strip. A row is a candidate
// where its product plus the error bound reaches the query's threshold; candidates are rescored in float32 at the end.
// Thresholds are estimated from the rows seen so far, which are a sample. Queries whose estimate was too high are
// scanned again without one: results are exact and do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"
#include "memory.h"

namespace manifind {

// Strips of rows packed for the kernel `scan`, with each row's quantization error.
struct QuantizedStrips {
    std::vector<uint32_t, CacheAligned<uint32_t>> words;
    std::vector<float> scales, errors, lengths;
    std::vector<int32_t> biases;
    void resize(int64_t rows, int64_t row_words);
};

// Queries packed for the kernel `scan` in groups of up to eight, all of one height.
struct PackedQueries {
    int64_t groups = 0;
    int height = 0;
    std::vector<uint32_t, CacheAligned<uint32_t>> words;
    std::vector<float> scales, errors, lengths;  // by slot, GROUP slots a group
    std::vector<int32_t> biases;
    // Packs the `count` queries in `which`, or the first ones where it is null. Throws std::invalid_argument for values
    // that are not finite, or huge.
    void fill(Packing packing, int row_words, const float* queries, int64_t d, const int64_t* which, int64_t count);
    int64_t slot_of(int64_t query) const { return query / height * GROUP + query % height; }
    int64_t query_at(int64_t slot) const { return slot / GROUP * height + slot % GROUP; }

   private:
    std::vector<float> rows_;
    std::vector<int8_t> bytes_;
};

constexpr int64_t DENSE_SCAN_MAX_ROWS = 1 << 14;  // up to which all scores are kept (dense_scan.h)

class QuantizedMatrix {
   public:
    // With `keep` it holds one byte a value (four where the level has no int8 products). Without, searches quantize.
    // Throws std::invalid_argument for values that are not finite, or huge.
    QuantizedMatrix(const Rows& vectors, bool keep, int threads);
    // `vectors` are the rows that were quantized. With ascending `rows`, searches these alone, and ids are indices into
    // them. Candidates take about `memory` bytes.
    void search(const Rows& vectors, const float* queries, int64_t m, const int32_t* rows, int64_t rows_count,
                int64_t k, int64_t memory, int threads, int32_t* ids, float* similarities) const;
    const int64_t n, d;

   private:
    struct Request;
    class ThresholdScan;
    void quantize_all(const Rows& vectors, const int32_t* rows, int64_t count, QuantizedStrips& to, int threads) const;
    void quantize(const Rows& vectors, const int64_t* rows, int count, QuantizedStrips& to, int64_t strip,
                  std::vector<float>& row, std::vector<int8_t>& bytes) const;

    const Packing packing_;
    const int words_;
    const bool keeps_strips_;
    QuantizedStrips strips_;
};

}  // namespace manifind
