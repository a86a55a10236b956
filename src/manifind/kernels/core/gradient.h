// Conjugate gradient: the loops over rows of S, of many queries in bf16 and of one in float32. For loops.cpp alone; in an
// anonymous namespace, as the same names mean other code at another level.
#pragma once

#include "lanes.h"
#include "loops.h"

namespace manifind {
namespace {

// bf16 is the upper half of a float32; rounded to the nearest, ties to even.
inline Floats low(Words w) { return (Floats)(w << 16); }
inline Floats high(Words w) { return (Floats)(w & 0xffff0000u); }
inline Words rounded(Floats v) {
    Words bits = (Words)v;
    return bits + 0x7fffu + ((bits >> 16) & 1u);
}
inline Words joined(Floats low, Floats high) { return (rounded(low) >> 16) | (rounded(high) & 0xffff0000u); }

constexpr int64_t AHEAD = 16;  // entries of S by which the rows that it gathers are fetched ahead

// Past the caches: what is written is not read again soon, and need not be fetched before.
inline void stream(float* at, Floats value) {
#if LOW_PRECISION
    _mm512_stream_ps(at, (__m512)value);
#else
    store(at, value);
#endif
}
inline void streamed() {
#if LOW_PRECISION
    _mm_sfence();
#endif
}

// Entries of a row of S are added up in so many sums, turn by turn, for every addition waits for the one before: alone
// and in a batch alike, as their answers are to be the same.
#if defined(__AVX512F__)
constexpr int SUMS = 4;
#else
constexpr int SUMS = 2;
#endif

template <class T>
inline T together(const T (&sums)[SUMS]) {
    if constexpr (SUMS == 4)
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    else
        return sums[0] + sums[1];
}

// Sp of one row, for some of the words: V registers, 2 · V · LANES columns.
template <int V>
inline void product_of_row(const Csr& S, int64_t i, int words, const uint32_t* p, float* out) {
    const int64_t last = S.starts[S.n] - 1;
    Floats lows[V][SUMS] = {}, highs[V][SUMS] = {};
    const auto add = [&](int64_t e, int u) {
        const int64_t later = e + AHEAD < last ? e + AHEAD : last;
        for (int line = 0; line < V * LANES; line += 16)
            __builtin_prefetch(p + int64_t(S.columns[later]) * words + line);
        const uint32_t* from = p + int64_t(S.columns[e]) * words;
        const Floats s = all(S.values[e]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            const Words w = load(from + v * LANES);
            lows[v][u] += s * low(w);
            highs[v][u] += s * high(w);
        }
    };
    int64_t e = S.starts[i];
    for (; e + SUMS <= S.starts[i + 1]; e += SUMS)
#pragma GCC unroll 4
        for (int u = 0; u < SUMS; ++u) add(e + u, u);
    for (; e < S.starts[i + 1]; ++e) add(e, 0);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
        store(out + v * LANES, together(lows[v]));
        store(out + words + v * LANES, together(highs[v]));
    }
}

template <int W>  // words: 2 · W columns
void multiply(const Csr& S, int64_t begin, int64_t end, const char* which, float alpha, const uint32_t* p, float* ap,
              double* dots) {
    constexpr int V = LANES == 16 ? W / LANES : 16 / LANES;  // registers at a time: more sums do not fit
    for (int64_t block = begin; block < end; block += FLUSH) {
        float sums[2 * 2 * W] = {}, product[2 * W];
        for (int64_t i = block; i < (block + FLUSH < end ? block + FLUSH : end); ++i) {
            if (which && !which[i]) continue;
            for (int c = 0; c < W; c += V * LANES) product_of_row<V>(S, i, W, p + c, product + c);
            for (int c = 0; c < 2 * W; c += LANES) {
                const Words w = load(p + i * W + c % W);
                const Floats own = c < W ? low(w) : high(w), along = own - alpha * load(product + c);
                stream(ap + i * 2 * W + c, along);
                accumulate(sums + c, own * along);
                accumulate(sums + 2 * W + c, along * along);
            }
        }
        for (int c = 0; c < 2 * 2 * W; ++c) dots[c] += sums[c];
    }
    streamed();
}

void multiply_any(const Csr& S, int64_t begin, int64_t end, const char* which, int words, float alpha,
                  const uint32_t* p, float* ap, double* dots) {
    if (words == 16)
        multiply<16>(S, begin, end, which, alpha, p, ap, dots);
    else
        multiply<32>(S, begin, end, which, alpha, p, ap, dots);
}

void advance(int64_t begin, int64_t end, int words, const float* step, const float* turn, uint32_t* p, const float* ap,
             float* x, float* r, double* dots) {
    for (int64_t block = begin; block < end; block += FLUSH) {
        float sums[2 * 64] = {};
        for (int64_t i = block; i < (block + FLUSH < end ? block + FLUSH : end); ++i)
            for (int c = 0; c < words; c += LANES) {
                const Words before = load(p + i * words + c);
                Floats residual[2], after[2];
                for (int half = 0; half < 2; ++half) {
                    const int column = half * words + c;
                    const int64_t at = i * 2 * words + column;
                    const Floats own = half ? high(before) : low(before);
                    const Floats forward = load(step + column);
                    store(x + at, load(x + at) + forward * own);
                    residual[half] = load(r + at) - forward * load(ap + at);
                    store(r + at, residual[half]);
                    accumulate(sums + column, residual[half] * residual[half]);
                    after[half] = residual[half] + load(turn + column) * own;
                }
                const Words rounded = joined(after[0], after[1]);
                store(p + i * words + c, rounded);
                accumulate(sums + 2 * words + c, residual[0] * low(rounded));
                accumulate(sums + 3 * words + c, residual[1] * high(rounded));
            }
        for (int c = 0; c < 4 * words; ++c) dots[c] += sums[c];
    }
}

ONE_BY_ONE void product_small(const Csr& S, int64_t begin, int64_t end, const float* p, float* out) {
    for (int64_t i = begin; i < end; ++i) {
        // Eight sums of their own: one would make every addition wait for the one before.
        float sums[8] = {};
        int64_t e = S.starts[i];
        for (; e + 8 <= S.starts[i + 1]; e += 8)
            for (int u = 0; u < 8; ++u) sums[u] += S.values[e + u] * p[S.columns[e + u]];
        for (; e < S.starts[i + 1]; ++e) sums[0] += S.values[e] * p[S.columns[e]];
        out[i - begin] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
}

ONE_BY_ONE void multiply_one(const Csr& S, int64_t begin, int64_t end, const char* which, float alpha, const float* p,
                             float* ap, double* dots) {
    for (int64_t block = begin; block < end; block += FLUSH) {
        float own_along = 0, along_along = 0;
        for (int64_t i = block; i < (block + FLUSH < end ? block + FLUSH : end); ++i) {
            if (which && !which[i]) continue;
            float sums[SUMS] = {};
            int64_t e = S.starts[i];
            for (; e + SUMS <= S.starts[i + 1]; e += SUMS)
                for (int u = 0; u < SUMS; ++u) sums[u] += S.values[e + u] * p[S.columns[e + u]];
            for (; e < S.starts[i + 1]; ++e) sums[0] += S.values[e] * p[S.columns[e]];
            float product = sums[0] + sums[1];
            if (SUMS == 4) product += sums[SUMS - 2] + sums[SUMS - 1];
            const float along = ap[i] = p[i] - alpha * product;
            own_along += p[i] * along;
            along_along += along * along;
        }
        dots[0] += own_along;
        dots[1] += along_along;
    }
}

inline float rounded(float value) {
    Bits bits{value};
    bits.word = (bits.word + 0x7fffu + ((bits.word >> 16) & 1u)) & 0xffff0000u;
    return bits.value;
}

ONE_BY_ONE void add_up(int64_t begin, int64_t end, const float* p, const float* r, double* dots) {
    float squared = 0, along = 0;
    for (int64_t i = begin; i < end; ++i) {
        squared += r[i] * r[i];
        along += r[i] * p[i];
    }
    dots[0] += squared;
    dots[1] += along;
}

void advance_one(int64_t begin, int64_t end, float step, float turn, float* p, const float* ap, float* x, float* r,
                 double* dots) {
    for (int64_t block = begin; block < end; block += FLUSH) {
        const int64_t stop = block + FLUSH < end ? block + FLUSH : end;
        int64_t i = block;
        for (; i + LANES <= stop; i += LANES) {
            const Floats own = load(p + i), residual = load(r + i) - step * load(ap + i);
            store(x + i, load(x + i) + step * own);
            store(r + i, residual);
            store(p + i, (Floats)(rounded(residual + turn * own) & 0xffff0000u));
        }
        for (; i < stop; ++i) {
            x[i] += step * p[i];
            r[i] -= step * ap[i];
            p[i] = rounded(r[i] + turn * p[i]);
        }
        add_up(block, stop, p, r, dots);
    }
}

void dots_small(int64_t n, const float* p, const float* r, const float* ap, double* dots) {
    for (int64_t block = 0; block < n; block += FLUSH * LANES) {
        const int64_t stop = block + FLUSH * LANES < n ? block + FLUSH * LANES : n;
        Floats sums[4] = {};
        int64_t i = block;
        for (; i + LANES <= stop; i += LANES) {
            const Floats own = load(p + i), residual = load(r + i), along = load(ap + i);
            sums[0] += own * along;
            sums[1] += residual * own;
            sums[2] += residual * along;
            sums[3] += along * along;
        }
        for (int which = 0; which < 4; ++which) dots[which] += total(sums[which]);
        for (; i < stop; ++i) {
            dots[0] += double(p[i]) * ap[i];
            dots[1] += double(r[i]) * p[i];
            dots[2] += double(r[i]) * ap[i];
            dots[3] += double(ap[i]) * ap[i];
        }
    }
}

void advance_small(int64_t n, float step, float turn, float* p, const float* ap, float* x, float* r, double* rr) {
    for (int64_t block = 0; block < n; block += FLUSH) {
        const int64_t stop = block + FLUSH < n ? block + FLUSH : n;
        Floats sum = {};
        int64_t i = block;
        for (; i + LANES <= stop; i += LANES) {
            const Floats own = load(p + i);
            store(x + i, load(x + i) + step * own);
            const Floats residual = load(r + i) - step * load(ap + i);
            store(r + i, residual);
            store(p + i, residual + turn * own);
            sum += residual * residual;
        }
        double rest = 0;
        for (; i < stop; ++i) {
            x[i] += step * p[i];
            r[i] -= step * ap[i];
            rest += double(r[i]) * r[i];
            p[i] = r[i] + turn * p[i];
        }
        *rr += total(sum) + rest;
    }
}

}  // namespace
}  // namespace manifind
