// Sparse matrices of a graph: reordering, and the part that a shortlist leaves.
#pragma once

#include <cstdint>
#include <vector>

#include "loops.h"

namespace manifind {

// S with its regions in another order: region order[i] becomes i. Columns of a row ascend.
void reorder(const Csr& S, const int32_t* order, int threads, int64_t* starts, int32_t* columns, float* values);

struct Part {
    std::vector<int64_t> starts;
    std::vector<int32_t> columns;
    std::vector<float> values;
};

// The affinity behind S between some ascending rows, normalised anew.
Part restrict_to(const Csr& S, const float* degrees, const int32_t* rows, int64_t count, int threads);

}  // namespace manifind
