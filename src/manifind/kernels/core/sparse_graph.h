// Sparse matrices of a graph: built from k-NN lists, reordered, restricted to some rows.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"
#include "memory.h"

namespace manifind {

// k-NN lists in memory: row i starts at i · stride. An id of -1 is no neighbour.
struct Lists {
    int64_t n, width;
    const int32_t* ids;
    int64_t ids_stride;
    const float* similarities;
    int64_t similarities_stride;
};

struct CsrArrays {
    std::vector<int64_t> starts;
    Buffer<int32_t> columns;
    Buffer<float> values;
};

struct Affinity : CsrArrays {
    std::vector<float> degrees;
};

// The affinity max(s, 0)^gamma of mutual neighbours, normalised if asked for. The smaller similarity of a pair counts;
// both may differ by `slack`. Columns of a row ascend. Throws std::invalid_argument for ids that are neither rows nor
// -1.
Affinity mutual_affinity(const Lists& lists, float gamma, float slack, bool normalised, int threads);

// S with its regions reordered: region order[i] becomes i. Columns of a row ascend.
void reorder(const Csr& S, const int32_t* order, int threads, int64_t* starts, int32_t* columns, float* values);

// The affinity behind S, restricted to ascending rows and normalised again.
CsrArrays restrict_matrix(const Csr& S, const float* degrees, const int32_t* rows, int64_t count, int threads);

}  // namespace manifind
