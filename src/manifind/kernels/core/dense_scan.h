// Exact k-NN search of queries among few rows: all scores of a query are kept until the top k are selected.
//
// Scores are computed in low precision. A histogram gives a lower bound of the k-th best score. Rows whose score may
// reach it, given the error bound, are rescored in float32.
#pragma once

#include <cstdint>

#include "kernels.h"
#include "quantized_matrix.h"

namespace manifind {

struct DenseScan {
    Packing packing;
    int words;                      // in a packed row
    const QuantizedStrips& strips;  // the rows, packed
    const Rows& vectors;            // the vectors that have the rows
    const int32_t* rows;            // indices of the packed rows; null for all vectors in order
    int64_t count;                  // packed rows
    int64_t k;

    // Writes k ids and scores for each query.
    void search(const float* queries, int64_t m, int threads, int32_t* ids, float* similarities) const;

   private:
    struct ThreadState;
    void select_candidates(int64_t m, ThreadState& state) const;
    void score_candidates(const float* queries, int64_t m, ThreadState& state) const;
    void write_topk(int64_t m, ThreadState& state, int32_t* ids, float* similarities) const;
};

}  // namespace manifind
