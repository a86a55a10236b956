// Conjugate gradient in float64: the loops over rows of S. For loops.cpp alone; in an anonymous namespace, as the same
// names mean other code at another level.
#pragma once

#include "lanes.h"
#include "loops.h"

namespace manifind {
namespace {

constexpr int DOUBLES = LANES / 2;  // of a register
typedef double Doubles __attribute__((vector_size(DOUBLES * 8)));
typedef double LooseDoubles __attribute__((vector_size(DOUBLES * 8), aligned(8), may_alias));

inline Doubles load(const double* at) { return *reinterpret_cast<const LooseDoubles*>(at); }
inline void store(double* at, Doubles value) { *reinterpret_cast<LooseDoubles*>(at) = value; }
inline Doubles all(double value) {
#if defined(__AVX512F__)
    return (Doubles)_mm512_set1_pd(value);
#else
    return Doubles{} + value;
#endif
}

template <int V>  // registers: V · DOUBLES columns
void multiply_double(const Csr& S, int64_t begin, int64_t end, const char* which, double alpha, const double* p,
                     double* ap, double* pap) {
    constexpr int W = V * DOUBLES;
    Doubles sums[V] = {};
    for (int64_t i = begin; i < end; ++i) {
        if (which && !which[i]) continue;
        Doubles row[V] = {};
        for (int64_t e = S.starts[i]; e < S.starts[i + 1]; ++e) {
            const double* from = p + int64_t(S.columns[e]) * W;
            const Doubles s = all(double(S.values[e]));
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) row[v] += s * load(from + v * DOUBLES);
        }
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) {
            const Doubles own = load(p + i * W + v * DOUBLES), along = own - alpha * row[v];
            store(ap + i * W + v * DOUBLES, along);
            sums[v] += own * along;
        }
    }
    for (int v = 0; v < V; ++v)
        for (int lane = 0; lane < DOUBLES; ++lane) pap[v * DOUBLES + lane] += sums[v][lane];
}

ONE_BY_ONE void multiply_one_double(const Csr& S, int64_t begin, int64_t end, const char* which, double alpha,
                                    const double* p, double* ap, double* pap) {
    double total = 0;
    for (int64_t i = begin; i < end; ++i) {
        if (which && !which[i]) continue;
        double sums[8] = {};
        int64_t e = S.starts[i];
        for (; e + 8 <= S.starts[i + 1]; e += 8)
            for (int u = 0; u < 8; ++u) sums[u] += double(S.values[e + u]) * p[S.columns[e + u]];
        for (; e < S.starts[i + 1]; ++e) sums[0] += double(S.values[e]) * p[S.columns[e]];
        const double product = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
        ap[i] = p[i] - alpha * product;
        total += p[i] * ap[i];
    }
    *pap += total;
}

void multiply_double_any(const Csr& S, int64_t begin, int64_t end, const char* which, int columns, double alpha,
                         const double* p, double* ap, double* pap) {
    switch (columns) {
        case 1: return multiply_one_double(S, begin, end, which, alpha, p, ap, pap);
        case 8: return multiply_double<8 / DOUBLES>(S, begin, end, which, alpha, p, ap, pap);
        default: return multiply_double<WIDEST / DOUBLES>(S, begin, end, which, alpha, p, ap, pap);
    }
}

// The vectors of one column are gone through eight entries at a time, as if these were rows of eight columns.
void descend_double(int64_t begin, int64_t end, int columns, const double* step, const double* ap, double* r,
                    double* rr) {
    const int width = columns == 1 ? 8 : columns;
    const int64_t stop = end * columns;
    double sums[WIDEST] = {}, steps[WIDEST];
    for (int c = 0; c < width; ++c) steps[c] = step[columns == 1 ? 0 : c];
    int64_t at = begin * columns;
    for (; at + width <= stop; at += width)
        for (int c = 0; c < width; c += DOUBLES) {
            const Doubles residual = load(r + at + c) - load(steps + c) * load(ap + at + c);
            store(r + at + c, residual);
            store(sums + c, load(sums + c) + residual * residual);
        }
    for (; at < stop; ++at) {
        r[at] -= step[0] * ap[at];
        sums[0] += r[at] * r[at];
    }
    for (int c = 0; c < width; ++c) rr[columns == 1 ? 0 : c] += sums[c];
}

void turn_double(int64_t begin, int64_t end, int columns, const double* step, const double* turn, const double* r,
                 double* p, double* x) {
    const int width = columns == 1 ? 8 : columns;
    const int64_t stop = end * columns;
    double steps[WIDEST], turns[WIDEST];
    for (int c = 0; c < width; ++c) {
        steps[c] = step[columns == 1 ? 0 : c];
        turns[c] = turn[columns == 1 ? 0 : c];
    }
    int64_t at = begin * columns;
    for (; at + width <= stop; at += width)
        for (int c = 0; c < width; c += DOUBLES) {
            const Doubles own = load(p + at + c);
            store(x + at + c, load(x + at + c) + load(steps + c) * own);
            store(p + at + c, load(r + at + c) + load(turns + c) * own);
        }
    for (; at < stop; ++at) {
        x[at] += step[0] * p[at];
        p[at] = r[at] + turn[0] * p[at];
    }
}

}  // namespace
}  // namespace manifind
