// Solvers of (I − αS) f = (1 − α) y on a graph, whole or part.
#pragma once

#include <cstdint>
#include <vector>

#include "loops.h"

namespace manifind {

struct Stop {
    int max_iter;
    double tol;
};

// Right-hand sides and answers are (n, columns) row-major; row i of S is row order[i] of both (i itself where `order`
// is null). Rows are shared among the threads.
void solve(const Csr& S, const int32_t* order, const float* y, int64_t columns, float alpha, Stop stop, int threads,
           float* f, int32_t* iterations, float* residuals);

struct Reach {
    int32_t iterations;
    float residual;  // of the whole system, not of the part that was solved
    int32_t regions;
};

// Solves on the neighbourhood of y, at most `budget` regions, those that the most of y reaches; f is zero elsewhere.
// `place` is scratch of n entries, all −1, and is left so.
Reach solve_locally(const Csr& S, const int32_t* rows, const float* values, int64_t count, float alpha, Stop stop,
                    int64_t budget, int32_t* place, float* f);

// Breadth-first order of the regions: order[place] = region. Neighbours come to lie near each other in memory.
void breadth_first(const Csr& S, int32_t* order);

}  // namespace manifind
