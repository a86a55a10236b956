// Kernels of conjugate gradient: a batch of columns with directions in bf16, one column, and small systems. For
// kernels.cpp; in an anonymous namespace, as each instruction set has its own.
#pragma once

#include "kernels.h"
#include "simd.h"

namespace manifind {
namespace {

// bf16 is the upper half of a float32. Rounds to nearest, ties to even; the lower half is left to the caller.
inline Floats bf16_low(Words w) { return (Floats)(w << 16); }
inline Floats bf16_high(Words w) { return (Floats)(w & 0xffff0000u); }
inline Words to_bf16(Floats v) {
    Words bits = (Words)v;
    return bits + 0x7fffu + ((bits >> 16) & 1u);
}
inline Words pack_bf16(Floats low, Floats high) { return (to_bf16(low) >> 16) | (to_bf16(high) & 0xffff0000u); }

constexpr int64_t PREFETCH_ENTRIES = 16;          // of S, from whose columns p is prefetched
constexpr int64_t STREAM_PREFETCH_ENTRIES = 256;  // of S itself, where one column makes little use of each

// Stores past the caches: the values are not read again soon.
inline void store_streaming(float* at, Floats value) {
#if HAS_INT8_DOT
    _mm512_stream_ps(at, (__m512)value);
#else
    store(at, value);
#endif
}
inline void fence_streaming() {
#if HAS_INT8_DOT
    _mm_sfence();
#endif
}

// Independent partial sums of a row of S, as an addition waits for the one before. One column and a batch use the same
// number: their results must be the same.
#if defined(__AVX512F__)
constexpr int PARTIAL_SUMS = 4;
#else
constexpr int PARTIAL_SUMS = 2;
#endif

template <class T>
inline T sum_partials(const T (&sums)[PARTIAL_SUMS]) {
    if constexpr (PARTIAL_SUMS == 4)
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    else
        return sums[0] + sums[1];
}

// One row of Sp, for V registers: 2 · V · LANES columns.
template <int V>
inline void spmv_row(const Csr& S, int64_t i, int words, const uint32_t* p, float* out) {
    const int64_t last = S.starts[S.n] - 1;
    Floats lows[V][PARTIAL_SUMS] = {}, highs[V][PARTIAL_SUMS] = {};
    const auto add = [&](int64_t e, int u) {
        const int64_t prefetch_entry = e + PREFETCH_ENTRIES < last ? e + PREFETCH_ENTRIES : last;
        for (int line = 0; line < V * LANES; line += 16)
            __builtin_prefetch(p + int64_t(S.columns[prefetch_entry]) * words + line);
        const uint32_t* from = p + int64_t(S.columns[e]) * words;
        const Floats s = broadcast(S.values[e]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            const Words w = load(from + v * LANES);
            lows[v][u] += s * bf16_low(w);
            highs[v][u] += s * bf16_high(w);
        }
    };
    const int64_t end = S.starts[i + 1];
    int64_t e = S.starts[i];
    for (; e + PARTIAL_SUMS <= end; e += PARTIAL_SUMS)
#pragma GCC unroll 4
        for (int u = 0; u < PARTIAL_SUMS; ++u) add(e + u, u);
#pragma GCC unroll 4
    for (int u = 0; u < PARTIAL_SUMS - 1; ++u)
        if (e + u < end) add(e + u, u);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
        store(out + v * LANES, sum_partials(lows[v]));
        store(out + words + v * LANES, sum_partials(highs[v]));
    }
}

template <int W>  // W words are 2 · W columns
void cg_multiply(const Csr& S, int64_t begin, int64_t end, const char* row_mask, float alpha, const uint32_t* p,
                 float* ap, double* dots) {
    constexpr int V = LANES == 16 ? W / LANES : 16 / LANES;  // registers at a time: more sums do not fit
    for (int64_t block = begin; block < end; block += FLUSH_ROWS) {
        float sums[2 * 2 * W] = {}, product[2 * W];
        for (int64_t i = block; i < (block + FLUSH_ROWS < end ? block + FLUSH_ROWS : end); ++i) {
            if (row_mask && !row_mask[i]) continue;
            for (int c = 0; c < W; c += V * LANES) spmv_row<V>(S, i, W, p + c, product + c);
            for (int c = 0; c < 2 * W; c += LANES) {
                const Words w = load(p + i * W + c % W);
                const Floats p_value = c < W ? bf16_low(w) : bf16_high(w), Ap = p_value - alpha * load(product + c);
                store_streaming(ap + i * 2 * W + c, Ap);
                accumulate(sums + c, p_value * Ap);
                accumulate(sums + 2 * W + c, Ap * Ap);
            }
        }
        for (int c = 0; c < 2 * 2 * W; ++c) dots[c] += sums[c];
    }
    fence_streaming();
}

void cg_multiply_any(const Csr& S, int64_t begin, int64_t end, const char* row_mask, int words, float alpha,
                     const uint32_t* p, float* ap, double* dots) {
    if (words == 16)
        cg_multiply<16>(S, begin, end, row_mask, alpha, p, ap, dots);
    else
        cg_multiply<32>(S, begin, end, row_mask, alpha, p, ap, dots);
}

void cg_update(int64_t begin, int64_t end, int words, const float* step, const float* beta, uint32_t* p,
               const float* ap, float* x, float* r, double* dots) {
    for (int64_t block = begin; block < end; block += FLUSH_ROWS) {
        float sums[2 * 64] = {};
        for (int64_t i = block; i < (block + FLUSH_ROWS < end ? block + FLUSH_ROWS : end); ++i)
            for (int c = 0; c < words; c += LANES) {
                const Words packed = load(p + i * words + c);
                Floats residual[2], direction[2];
                for (int half = 0; half < 2; ++half) {
                    const int column = half * words + c;
                    const int64_t at = i * 2 * words + column;
                    const Floats p_value = half ? bf16_high(packed) : bf16_low(packed);
                    const Floats step_size = load(step + column);
                    store(x + at, load(x + at) + step_size * p_value);
                    residual[half] = load(r + at) - step_size * load(ap + at);
                    store(r + at, residual[half]);
                    accumulate(sums + column, residual[half] * residual[half]);
                    direction[half] = residual[half] + load(beta + column) * p_value;
                }
                const Words rounded = pack_bf16(direction[0], direction[1]);
                store(p + i * words + c, rounded);
                accumulate(sums + 2 * words + c, residual[0] * bf16_low(rounded));
                accumulate(sums + 3 * words + c, residual[1] * bf16_high(rounded));
            }
        for (int c = 0; c < 4 * words; ++c) dots[c] += sums[c];
    }
}

NO_VECTORIZE void spmv_small(const Csr& S, int64_t begin, int64_t end, const float* p, float* out) {
    for (int64_t i = begin; i < end; ++i) {
        // Eight independent sums, as an addition waits for the one before.
        float sums[8] = {};
        int64_t e = S.starts[i];
        for (; e + 8 <= S.starts[i + 1]; e += 8)
            for (int u = 0; u < 8; ++u) sums[u] += S.values[e + u] * p[S.columns[e + u]];
        for (; e < S.starts[i + 1]; ++e) sums[0] += S.values[e] * p[S.columns[e]];
        out[i - begin] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
}

#if defined(__AVX512F__)
// The same sums as below, by gathers of 16 entries.
inline __m128 spmv_row_gather(const Csr& S, int64_t i, const float* p) {
    const int64_t end = S.starts[i + 1];
    __m128 sums = _mm_setzero_ps();
    for (int64_t e = S.starts[i]; e < end; e += 16) {
        __builtin_prefetch(S.columns + e + STREAM_PREFETCH_ENTRIES);
        __builtin_prefetch(S.values + e + STREAM_PREFETCH_ENTRIES);
        const __mmask16 in_row = end - e >= 16 ? 0xffff : __mmask16((1u << (end - e)) - 1);
        const __m512 s = _mm512_maskz_loadu_ps(in_row, S.values + e);
        const __m512i columns = _mm512_maskz_loadu_epi32(in_row, S.columns + e);
        const __m512 x = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), in_row, columns, p, 4);
        sums = _mm_fmadd_ps(_mm512_castps512_ps128(s), _mm512_castps512_ps128(x), sums);
        sums = _mm_fmadd_ps(_mm512_extractf32x4_ps(s, 1), _mm512_extractf32x4_ps(x, 1), sums);
        sums = _mm_fmadd_ps(_mm512_extractf32x4_ps(s, 2), _mm512_extractf32x4_ps(x, 2), sums);
        sums = _mm_fmadd_ps(_mm512_extractf32x4_ps(s, 3), _mm512_extractf32x4_ps(x, 3), sums);
    }
    return sums;
}
inline __m128 spmv_row_loads(const Csr& S, int64_t i, const float* p) {
    const int64_t end = S.starts[i + 1];
    int64_t e = S.starts[i];
    __m128 sums = _mm_setzero_ps();
    for (; e + 4 <= end; e += 4) {
        const int32_t* c = S.columns + e;
        sums = _mm_fmadd_ps(_mm_loadu_ps(S.values + e), _mm_set_ps(p[c[3]], p[c[2]], p[c[1]], p[c[0]]), sums);
    }
    // The last entries without a branch, which would be unpredictable: what follows the row counts as zero. At the end
    // of the matrix nothing follows.
    const __mmask8 in_row = __mmask8((1u << (end - e)) - 1);
    const __m128 s = _mm_maskz_loadu_ps(in_row, S.values + e);
    const int32_t* c = S.columns + e;
    if (end + 3 <= S.starts[S.n]) return _mm_fmadd_ps(s, _mm_set_ps(0, p[c[2]], p[c[1]], p[c[0]]), sums);
    float x[4] = {};
    for (int u = 0; e + u < end; ++u) x[u] = p[c[u]];
    return _mm_fmadd_ps(s, _mm_loadu_ps(x), sums);
}
#endif

// One row of Sp for one column, with the sums of `spmv_row`.
template <bool GATHER>
NO_VECTORIZE inline float spmv_row_single(const Csr& S, int64_t i, const float* p) {
    float sums[PARTIAL_SUMS] = {};
#if defined(__AVX512F__)
    _mm_storeu_ps(sums, GATHER ? spmv_row_gather(S, i, p) : spmv_row_loads(S, i, p));
#else
    const int64_t end = S.starts[i + 1];
    int64_t e = S.starts[i];
    for (; e + PARTIAL_SUMS <= end; e += PARTIAL_SUMS)
        for (int u = 0; u < PARTIAL_SUMS; ++u) sums[u] += S.values[e + u] * p[S.columns[e + u]];
    for (int u = 0; e < end; ++e, ++u) sums[u] += S.values[e] * p[S.columns[e]];
#endif
    return sum_partials(sums);
}

template <bool GATHER>
NO_VECTORIZE void cg_multiply_single(const Csr& S, int64_t begin, int64_t end, const char* row_mask, float alpha,
                                     const float* p, float* ap, double* dots) {
    for (int64_t block = begin; block < end; block += FLUSH_ROWS) {
        float pAp = 0, ApAp = 0;
        for (int64_t i = block; i < (block + FLUSH_ROWS < end ? block + FLUSH_ROWS : end); ++i) {
            if (row_mask && !row_mask[i]) continue;
            const float Ap = ap[i] = p[i] - alpha * spmv_row_single<GATHER>(S, i, p);
            pAp += p[i] * Ap;
            ApAp += Ap * Ap;
        }
        dots[0] += pAp;
        dots[1] += ApAp;
    }
}

void cg_multiply_single_any(const Csr& S, int64_t begin, int64_t end, const char* row_mask, bool gather, float alpha,
                            const float* p, float* ap, double* dots) {
    if (gather)
        cg_multiply_single<true>(S, begin, end, row_mask, alpha, p, ap, dots);
    else
        cg_multiply_single<false>(S, begin, end, row_mask, alpha, p, ap, dots);
}

inline float to_bf16(float value) {
    Bits bits{value};
    bits.word = (bits.word + 0x7fffu + ((bits.word >> 16) & 1u)) & 0xffff0000u;
    return bits.value;
}

NO_VECTORIZE void add_dots(int64_t begin, int64_t end, const float* p, const float* r, double* dots) {
    float rr = 0, rp = 0;
    for (int64_t i = begin; i < end; ++i) {
        rr += r[i] * r[i];
        rp += r[i] * p[i];
    }
    dots[0] += rr;
    dots[1] += rp;
}

void cg_update_single(int64_t begin, int64_t end, float step, float beta, float* p, const float* ap, float* x, float* r,
                      double* dots) {
    for (int64_t block = begin; block < end; block += FLUSH_ROWS) {
        const int64_t block_end = block + FLUSH_ROWS < end ? block + FLUSH_ROWS : end;
        int64_t i = block;
        for (; i + LANES <= block_end; i += LANES) {
            const Floats p_value = load(p + i), residual = load(r + i) - step * load(ap + i);
            store(x + i, load(x + i) + step * p_value);
            store(r + i, residual);
            store(p + i, (Floats)(to_bf16(residual + beta * p_value) & 0xffff0000u));
        }
        for (; i < block_end; ++i) {
            x[i] += step * p[i];
            r[i] -= step * ap[i];
            p[i] = to_bf16(r[i] + beta * p[i]);
        }
        add_dots(block, block_end, p, r, dots);
    }
}

void cg_dots_small(int64_t n, const float* p, const float* r, const float* ap, double* dots) {
    for (int64_t block = 0; block < n; block += FLUSH_ROWS * LANES) {
        const int64_t block_end = block + FLUSH_ROWS * LANES < n ? block + FLUSH_ROWS * LANES : n;
        Floats sums[4] = {};
        int64_t i = block;
        for (; i + LANES <= block_end; i += LANES) {
            const Floats p_value = load(p + i), residual = load(r + i), Ap = load(ap + i);
            sums[0] += p_value * Ap;
            sums[1] += residual * p_value;
            sums[2] += residual * Ap;
            sums[3] += Ap * Ap;
        }
        for (int dot = 0; dot < 4; ++dot) dots[dot] += horizontal_sum(sums[dot]);
        for (; i < block_end; ++i) {
            dots[0] += double(p[i]) * ap[i];
            dots[1] += double(r[i]) * p[i];
            dots[2] += double(r[i]) * ap[i];
            dots[3] += double(ap[i]) * ap[i];
        }
    }
}

void cg_update_small(int64_t n, float step, float beta, float* p, const float* ap, float* x, float* r, double* rr) {
    for (int64_t block = 0; block < n; block += FLUSH_ROWS) {
        const int64_t block_end = block + FLUSH_ROWS < n ? block + FLUSH_ROWS : n;
        Floats sum = {};
        int64_t i = block;
        for (; i + LANES <= block_end; i += LANES) {
            const Floats p_value = load(p + i);
            store(x + i, load(x + i) + step * p_value);
            const Floats residual = load(r + i) - step * load(ap + i);
            store(r + i, residual);
            store(p + i, residual + beta * p_value);
            sum += residual * residual;
        }
        double tail = 0;
        for (; i < block_end; ++i) {
            x[i] += step * p[i];
            r[i] -= step * ap[i];
            tail += double(r[i]) * r[i];
            p[i] = r[i] + beta * p[i];
        }
        *rr += horizontal_sum(sum) + tail;
    }
}

}  // namespace
}  // namespace manifind
