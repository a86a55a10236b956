// Solvers of (I − αS) f = (1 − α) y on a graph, whole or part.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "loops.h"

namespace manifind {

struct Stop {
    int max_iter;
    double tol;
};

// Right-hand sides and answers are (n, columns) row-major; row i of S is row order[i] of both (i itself where `order`
// is null). Rows are shared among the threads, or columns where there are few rows.
//
// Where it is `precise`, vectors are float64: on a few hundred regions 20 steps nearly exhaust the Krylov space, and
// rounding grows. Otherwise they are float32 and directions are rounded to bf16, whether a column is alone or in a batch:
// its answer is the same to the last bit. (Rounding of directions shows in the scores, by 0.1 % of the best: after 20
// steps the residual is still some percent. So a column alone must take the same steps; being more exact would differ.)
void solve(const Csr& S, const int32_t* order, const float* y, int64_t columns, double alpha, Stop stop, bool precise,
           int threads, float* f, int32_t* iterations, float* residuals);

constexpr double FLOOR = 1e-10;  // a relative residual that float32 cannot tell from zero

// Step sizes of conjugate gradient for one column. The direction is rounded to bf16 *before* it is multiplied, and the
// same rounded direction moves x: so r stays the residual of x, whatever the rounding; what is lost is a little of the
// conjugacy. The step is the exact minimum along that direction, and rᵀr after the step, which the next direction
// needs, follows from products that are there before it: one pass over the vectors less.
struct Column {
    double norm = 0, rr = 0;  // of the right-hand side; of the residual, squared
    bool live = false;
    int32_t iterations = 0;

    void start(double squared) {
        rr = squared;
        norm = std::sqrt(squared);
        live = norm > 0;
    }
    void choose(double pap, double rp, double rap, double apap, float* step, float* turn) const {
        *step = *turn = 0;
        if (!live || !(pap > 0)) return;
        const double forward = rp / pap;
        const double after = rr - 2 * forward * rap + forward * forward * apap;
        *step = float(forward);
        *turn = float(std::max(after, 0.0) / rr);
    }
    // The same for a rounded direction, whose rᵀap is pᵀap: p is r and a multiple of the direction before, to which ap is
    // orthogonal, but for the rounding, which a direction can bear. So rᵀp is about rᵀr, until a residual that falls to
    // what rounding leaves makes p a multiple of the direction before and little else: then it begins anew from r. It
    // would grow from step to step without bounds.
    void choose_rounded(double pap, double rp, double apap, float* step, float* turn) const {
        *step = *turn = 0;
        if (rp > rr / 2) choose(pap, rp, pap, apap, step, turn);
    }
    void reach(double squared, int iteration, double tol) {
        if (!live) return;
        rr = squared;
        iterations = iteration;
        live = residual() > std::max(tol, FLOOR);
    }
    double residual() const { return norm > 0 ? std::sqrt(rr) / norm : 0; }
};

// Breadth-first order of the regions: order[place] = region. Neighbours come to lie near each other in memory.
void breadth_first(const Csr& S, int32_t* order);

}  // namespace manifind
