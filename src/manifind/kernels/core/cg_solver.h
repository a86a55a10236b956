// Conjugate gradient for (I − αS) f = (1 − α) y.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels.h"
#include "memory.h"

namespace manifind {

struct StopRule {
    int max_iter;
    double tol;
};

// Right-hand sides and solutions are (n, columns), row-major. Row i of S is row order[i] of both, or row i where
// `order` is null. The threads of one team share the rows, or the columns where there are few rows.
//
// With `use_float64` vectors are float64: on a few hundred regions 20 steps nearly exhaust the Krylov space, and
// rounding grows. Otherwise vectors are float32 and directions bf16. A column has bitwise the same solution alone and
// in a batch. (Rounding directions changes scores by 0.1 % of the best, as the residual after 20 steps is still some
// percent. So a single column rounds too.)
void solve(const Csr& S, const int32_t* order, const float* y, int64_t columns, double alpha, StopRule stop,
           bool use_float64, int threads, float* f, int32_t* iterations, float* residuals);

// Says how one column loads p, for tests: null is the faster way on this processor, which is measured once. The results
// are the same.
void use_gather(std::optional<bool> choice);

constexpr double MIN_RESIDUAL = 1e-10;  // relative; float32 resolves no smaller one

// Conjugate gradient of one column: step sizes and convergence. The direction is rounded to bf16 *before* it is
// multiplied, and the rounded direction moves x: r stays the residual of x, and only some conjugacy is lost. The step
// minimizes exactly along that direction. rᵀr after the step follows from dot products before it, which saves a pass
// over the vectors.
struct ColumnState {
    double norm = 0, rr = 0;  // norm of the right-hand side; squared norm of the residual
    bool active = false;
    int32_t iterations = 0;

    void start(double squared) {
        rr = squared;
        norm = std::sqrt(squared);
        active = norm > 0;
    }
    void choose_step(double pap, double rp, double rap, double apap, float* step, float* beta) const {
        *step = *beta = 0;
        if (!active || !(pap > 0)) return;
        const double step_size = rp / pap;
        const double next_rr = rr - 2 * step_size * rap + step_size * step_size * apap;
        *step = float(step_size);
        *beta = float(std::max(next_rr, 0.0) / rr);
    }
    // For a rounded direction rᵀAp is pᵀAp: p is r plus a multiple of the previous direction, to which Ap is orthogonal
    // up to rounding. So rᵀp is about rᵀr, until the residual falls to the rounding error and p is mostly the previous
    // direction. Then the iteration restarts from r, or p would grow without bounds.
    void choose_step_bf16(double pap, double rp, double apap, float* step, float* beta) const {
        *step = *beta = 0;
        if (rp > rr / 2) choose_step(pap, rp, pap, apap, step, beta);
    }
    void update_residual(double squared, int iteration, double tol) {
        if (!active) return;
        rr = squared;
        iterations = iteration;
        active = residual() > std::max(tol, MIN_RESIDUAL);
    }
    double residual() const { return norm > 0 ? std::sqrt(rr) / norm : 0; }
};

// Writes the breadth-first order of the regions, order[place] = region, in which neighbours lie near each other in
// memory.
void breadth_first(const Csr& S, int32_t* order);

// A copy of a matrix for many solutions, in breadth-first order.
class OrderedMatrix {
   public:
    OrderedMatrix(const Csr& S, int threads);
    Csr csr() const { return {int64_t(order_.size()), starts_.data(), columns_.data(), values_.data()}; }
    const int32_t* order() const { return order_.data(); }

   private:
    std::vector<int32_t> order_;
    std::vector<int64_t> starts_;
    std::vector<int32_t, CacheAligned<int32_t>> columns_;
    std::vector<float, CacheAligned<float>> values_;
};

}  // namespace manifind
