// The k most similar rows of queries among few rows: every score of a query is kept until the best are chosen.
//
// Scores are taken in low precision. A histogram finds the level that the k best reach at the least; the rows that may
// reach it, given how far low precision can be off, are scored anew in float32. No guess is made and no row is lost.
#pragma once

#include <cstdint>

#include "loops.h"
#include "queries.h"

namespace manifind {

struct SmallSearch {
    Packing packing;
    int words;             // of a packed row
    const Strips& strips;  // the rows, packed
    const Rows& vectors;   // among which the rows are
    const int32_t* rows;   // which of the vectors the packed rows are; null where they are all, in order
    int64_t count;         // of packed rows
    int64_t k;

    // Writes k ids and scores of each query.
    void search(const float* queries, int64_t m, int threads, int32_t* ids, float* similarities) const;

   private:
    struct Scratch;
    void choose(int64_t m, Scratch& scratch) const;
    void score(const float* queries, int64_t m, Scratch& scratch) const;
    void write(int64_t m, Scratch& scratch, int32_t* ids, float* similarities) const;
};

}  // namespace manifind
