// Kernels of conjugate gradient in float64. For kernels.cpp; in an anonymous namespace, as each instruction set has its
// own.
#pragma once

#include "kernels.h"
#include "simd.h"

namespace manifind {
namespace {

constexpr int DOUBLES = LANES / 2;  // in a register
typedef double Doubles __attribute__((vector_size(DOUBLES * 8)));
typedef double UnalignedDoubles __attribute__((vector_size(DOUBLES * 8), aligned(8), may_alias));

inline Doubles load(const double* at) { return *reinterpret_cast<const UnalignedDoubles*>(at); }
inline void store(double* at, Doubles value) { *reinterpret_cast<UnalignedDoubles*>(at) = value; }
inline Doubles broadcast(double value) {
#if defined(__AVX512F__)
    return (Doubles)_mm512_set1_pd(value);
#else
    return Doubles{} + value;
#endif
}

template <int V>  // V registers are V · DOUBLES columns
void cg_multiply_double(const Csr& S, int64_t begin, int64_t end, const char* row_mask, double alpha, const double* p,
                        double* ap, double* pap) {
    constexpr int W = V * DOUBLES;
    Doubles sums[V] = {};
    for (int64_t i = begin; i < end; ++i) {
        if (row_mask && !row_mask[i]) continue;
        Doubles row[V] = {};
        for (int64_t e = S.starts[i]; e < S.starts[i + 1]; ++e) {
            const double* from = p + int64_t(S.columns[e]) * W;
            const Doubles s = broadcast(double(S.values[e]));
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) row[v] += s * load(from + v * DOUBLES);
        }
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) {
            const Doubles p_value = load(p + i * W + v * DOUBLES), Ap = p_value - alpha * row[v];
            store(ap + i * W + v * DOUBLES, Ap);
            sums[v] += p_value * Ap;
        }
    }
    for (int v = 0; v < V; ++v)
        for (int lane = 0; lane < DOUBLES; ++lane) pap[v * DOUBLES + lane] += sums[v][lane];
}

template <bool GATHER>
NO_VECTORIZE void cg_multiply_single_double(const Csr& S, int64_t begin, int64_t end, const char* row_mask,
                                            double alpha, const double* p, double* ap, double* pap) {
    double pAp = 0;
    for (int64_t i = begin; i < end; ++i) {
        if (row_mask && !row_mask[i]) continue;
        double sums[8] = {};
        int64_t e = S.starts[i];
#if defined(__AVX512F__)
        if constexpr (GATHER) {
            __m512d eight = _mm512_setzero_pd();
            for (; e < S.starts[i + 1]; e += 8) {
                __builtin_prefetch(S.columns + e + STREAM_PREFETCH_ENTRIES);
                __builtin_prefetch(S.values + e + STREAM_PREFETCH_ENTRIES);
                const int64_t left = S.starts[i + 1] - e;
                const __mmask8 in_row = left >= 8 ? 0xff : __mmask8((1u << left) - 1);
                const __m256i columns = _mm256_maskz_loadu_epi32(in_row, S.columns + e);
                const __m512d s = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(in_row, S.values + e));
                eight = _mm512_fmadd_pd(s, _mm512_mask_i32gather_pd(_mm512_setzero_pd(), in_row, columns, p, 8), eight);
            }
            _mm512_storeu_pd(sums, eight);
            e = S.starts[i + 1];
        }
        __m256d low = _mm256_setzero_pd(), high = low;
        for (; e + 8 <= S.starts[i + 1]; e += 8) {
            const int32_t* c = S.columns + e;
            low = _mm256_fmadd_pd(_mm256_cvtps_pd(_mm_loadu_ps(S.values + e)),
                                  _mm256_set_pd(p[c[3]], p[c[2]], p[c[1]], p[c[0]]), low);
            high = _mm256_fmadd_pd(_mm256_cvtps_pd(_mm_loadu_ps(S.values + e + 4)),
                                   _mm256_set_pd(p[c[7]], p[c[6]], p[c[5]], p[c[4]]), high);
        }
        if constexpr (!GATHER) {
            _mm256_storeu_pd(sums, low);
            _mm256_storeu_pd(sums + 4, high);
        }
#else
        for (; e + 8 <= S.starts[i + 1]; e += 8)
            for (int u = 0; u < 8; ++u) sums[u] += double(S.values[e + u]) * p[S.columns[e + u]];
#endif
        for (int u = 0; e < S.starts[i + 1]; ++e, ++u) sums[u] += double(S.values[e]) * p[S.columns[e]];
        const double product =
            ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
        ap[i] = p[i] - alpha * product;
        pAp += p[i] * ap[i];
    }
    *pap += pAp;
}

void cg_multiply_double_any(const Csr& S, int64_t begin, int64_t end, const char* row_mask, bool gather, int columns,
                            double alpha, const double* p, double* ap, double* pap) {
    switch (columns) {
        case 1:
            return gather ? cg_multiply_single_double<true>(S, begin, end, row_mask, alpha, p, ap, pap)
                          : cg_multiply_single_double<false>(S, begin, end, row_mask, alpha, p, ap, pap);
        case 8: return cg_multiply_double<8 / DOUBLES>(S, begin, end, row_mask, alpha, p, ap, pap);
        default: return cg_multiply_double<FLOAT64_MAX_COLUMNS / DOUBLES>(S, begin, end, row_mask, alpha, p, ap, pap);
    }
}

// One column is treated as rows of eight columns: eight entries at a time.
void cg_update_residual_double(int64_t begin, int64_t end, int columns, const double* step, const double* ap, double* r,
                               double* rr) {
    const int width = columns == 1 ? 8 : columns;
    const int64_t stop = end * columns;
    double sums[FLOAT64_MAX_COLUMNS] = {}, steps[FLOAT64_MAX_COLUMNS];
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

void cg_update_direction_double(int64_t begin, int64_t end, int columns, const double* step, const double* beta,
                                const double* r, double* p, double* x) {
    const int width = columns == 1 ? 8 : columns;
    const int64_t stop = end * columns;
    double steps[FLOAT64_MAX_COLUMNS], betas[FLOAT64_MAX_COLUMNS];
    for (int c = 0; c < width; ++c) {
        steps[c] = step[columns == 1 ? 0 : c];
        betas[c] = beta[columns == 1 ? 0 : c];
    }
    int64_t at = begin * columns;
    for (; at + width <= stop; at += width)
        for (int c = 0; c < width; c += DOUBLES) {
            const Doubles p_value = load(p + at + c);
            store(x + at + c, load(x + at + c) + load(steps + c) * p_value);
            store(p + at + c, load(r + at + c) + load(betas + c) * p_value);
        }
    for (; at < stop; ++at) {
        x[at] += step[0] * p[at];
        p[at] = r[at] + beta[0] * p[at];
    }
}

}  // namespace
}  // namespace manifind
