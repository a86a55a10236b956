// See loops.h. Vectors are those of GCC and Clang, as wide as the registers of the level.
#include "loops.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME_(a) #a
#define NAME(a) NAME_(a)

#if defined(__AVX512BF16__) && defined(__AVX512VNNI__)
#define LOW_PRECISION 1
#include <immintrin.h>
#else
#define LOW_PRECISION 0
#endif

namespace manifind {
namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 8, PANELS = 3;
#elif defined(__AVX2__)
constexpr int LANES = 8, ROWS = 4, PANELS = 1;
#else
constexpr int LANES = 4, ROWS = 2, PANELS = 1;
#endif
// A micro-tile is ROWS × PANELS · 16: its sums fill most of the registers, and each value loaded is used often.

typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef uint32_t Words __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));
// Loads from anywhere: rows of floats need not be aligned.
typedef float LooseFloats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint32_t LooseWords __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t LooseInts __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

inline Floats load(const float* at) { return *reinterpret_cast<const LooseFloats*>(at); }
inline Words load(const uint32_t* at) { return *reinterpret_cast<const LooseWords*>(at); }
inline void store(float* at, Floats value) { *reinterpret_cast<LooseFloats*>(at) = value; }
inline void store(uint32_t* at, Words value) { *reinterpret_cast<LooseWords*>(at) = value; }
inline void accumulate(float* at, Floats value) { store(at, load(at) + value); }
inline Floats all(float value) { return Floats{} + value; }
inline Words all(uint32_t value) { return Words{} + value; }

inline float total(Floats v) {
    float sums[LANES];
    store(sums, v);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    return sums[0];
}

// bf16 is the upper half of a float32; rounded to the nearest, ties to even.
inline Floats low(Words w) { return (Floats)(w << 16); }
inline Floats high(Words w) { return (Floats)(w & 0xffff0000u); }
inline Words rounded(Floats v) {
    Words bits = (Words)v;
    return bits + 0x7fffu + ((bits >> 16) & 1u);
}
inline Words joined(Floats low, Floats high) { return (rounded(low) >> 16) | (rounded(high) & 0xffff0000u); }

// -- conjugate gradient -----------------------------------------------------------------------------------------------

constexpr int64_t AHEAD = 16;  // entries of S by which the rows that it gathers are fetched ahead
constexpr int64_t FLUSH = 64;  // rows whose products are added up in float32 before they go to float64

template <int V>  // registers of words: 2 · V · LANES columns
void multiply(const Csr& S, int64_t begin, int64_t end, float alpha, const uint32_t* p, const float* r, float* ap,
              double* dots) {
    constexpr int W = V * LANES;
    const int64_t last = S.starts[S.n] - 1;
    for (int64_t block = begin; block < end; block += FLUSH) {
        float sums[4 * 2 * W] = {};
        for (int64_t i = block; i < (block + FLUSH < end ? block + FLUSH : end); ++i) {
            Floats lows[V] = {}, highs[V] = {};
            for (int64_t e = S.starts[i]; e < S.starts[i + 1]; ++e) {
                const int64_t later = e + AHEAD < last ? e + AHEAD : last;
                for (int line = 0; line < W; line += 16)
                    __builtin_prefetch(p + int64_t(S.columns[later]) * W + line);
                const uint32_t* from = p + int64_t(S.columns[e]) * W;
                const Floats s = all(S.values[e]);
                for (int v = 0; v < V; ++v) {
                    const Words w = load(from + v * LANES);
                    lows[v] += s * low(w);
                    highs[v] += s * high(w);
                }
            }
            for (int v = 0; v < 2 * V; ++v) {
                const Words w = load(p + i * W + (v % V) * LANES);
                const Floats own = v < V ? low(w) : high(w);
                const Floats along = own - alpha * (v < V ? lows[v] : highs[v - V]);
                const int64_t at = i * 2 * W + v * LANES;
                const Floats residual = load(r + at);
                store(ap + at, along);
                accumulate(sums + 0 * 2 * W + v * LANES, own * along);
                accumulate(sums + 1 * 2 * W + v * LANES, residual * own);
                accumulate(sums + 2 * 2 * W + v * LANES, residual * along);
                accumulate(sums + 3 * 2 * W + v * LANES, along * along);
            }
        }
        for (int c = 0; c < 4 * 2 * W; ++c) dots[c] += sums[c];
    }
}

void multiply_any(const Csr& S, int64_t begin, int64_t end, int words, float alpha, const uint32_t* p, const float* r,
                  float* ap, double* dots) {
    if (words == 16)
        multiply<16 / LANES>(S, begin, end, alpha, p, r, ap, dots);
    else
        multiply<32 / LANES>(S, begin, end, alpha, p, r, ap, dots);
}

void advance(int64_t begin, int64_t end, int words, const float* step, const float* turn, uint32_t* p, const float* ap,
             float* x, float* r, double* rr) {
    for (int64_t block = begin; block < end; block += FLUSH) {
        float sums[64] = {};
        for (int64_t i = block; i < (block + FLUSH < end ? block + FLUSH : end); ++i)
            for (int c = 0; c < words; c += LANES) {
                const Words before = load(p + i * words + c);
                Floats after[2];
                for (int half = 0; half < 2; ++half) {
                    const int column = half * words + c;
                    const int64_t at = i * 2 * words + column;
                    const Floats own = half ? high(before) : low(before);
                    const Floats forward = load(step + column);
                    store(x + at, load(x + at) + forward * own);
                    const Floats residual = load(r + at) - forward * load(ap + at);
                    store(r + at, residual);
                    accumulate(sums + column, residual * residual);
                    after[half] = residual + load(turn + column) * own;
                }
                store(p + i * words + c, joined(after[0], after[1]));
            }
        for (int c = 0; c < 2 * words; ++c) rr[c] += sums[c];
    }
}

// Compilers make gather instructions of this loop, which are slower than loads one by one.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("no-tree-vectorize")))
#endif
void multiply_one(const Csr& S, int64_t begin, int64_t end, float alpha, const float* p, const float* r, float* ap,
                  double* dots) {
    double own_along = 0, residual_own = 0, residual_along = 0, along_along = 0;
    for (int64_t i = begin; i < end; ++i) {
        // Eight sums of their own: one would make every addition wait for the one before.
        float sums[8] = {};
        int64_t e = S.starts[i];
        for (; e + 8 <= S.starts[i + 1]; e += 8)
            for (int u = 0; u < 8; ++u) sums[u] += S.values[e + u] * p[S.columns[e + u]];
        for (; e < S.starts[i + 1]; ++e) sums[0] += S.values[e] * p[S.columns[e]];
        const float product =
            ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
        const float along = p[i] - alpha * product;
        ap[i] = along;
        own_along += double(p[i]) * along;
        residual_own += double(r[i]) * p[i];
        residual_along += double(r[i]) * along;
        along_along += double(along) * along;
    }
    dots[0] += own_along;
    dots[1] += residual_own;
    dots[2] += residual_along;
    dots[3] += along_along;
}

void advance_one(int64_t begin, int64_t end, float step, float turn, float* p, const float* ap, float* x, float* r,
                 double* rr) {
    for (int64_t block = begin; block < end; block += FLUSH) {
        const int64_t stop = block + FLUSH < end ? block + FLUSH : end;
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

// -- inner products ---------------------------------------------------------------------------------------------------

struct OfFloats {
    static Floats add(Floats sum, Words a, Words b) { return sum + (Floats)a * (Floats)b; }
    static Floats score(Floats sum, const Block&, int, const Block&, int) { return sum; }
};

#if LOW_PRECISION
struct OfBf16 {
    static Floats add(Floats sum, Words a, Words b) {
        return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
    }
    static Floats score(Floats sum, const Block&, int, const Block&, int) { return sum; }
};

// The left-hand integers are stored with 128 added, as the instruction takes one side unsigned.
struct OfInt8 {
    static Floats add(Floats sum, Words a, Words b) {
        return (Floats)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
    }
    static Floats score(Floats sum, const Block& a, int row, const Block& b, int column) {
        const Ints exact = (Ints)sum - *reinterpret_cast<const LooseInts*>(b.biases + column);
        return (Floats)_mm512_cvtepi32_ps((__m512i)exact) * a.scales[row] * load(b.scales + column);
    }
};
#endif

constexpr int PARTS = PANELS * PANEL / LANES;  // registers across the strip

// The sums of a micro-tile. Its loops are unrolled, or the sums would not stay in registers.
template <class Of>
inline void products(int words, const uint32_t* left, const uint32_t* right, float (&out)[ROWS][PARTS * LANES]) {
    Floats sums[ROWS][PARTS] = {};
    for (int w = 0; w < words; ++w) {
        Words b[PARTS];
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; ++part)
            b[part] = load(right + (int64_t(part * LANES / PANEL) * words + w) * PANEL + part * LANES % PANEL);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            const Words a = all(left[w * PANEL + i]);
#pragma GCC unroll 8
            for (int part = 0; part < PARTS; ++part) sums[i][part] = Of::add(sums[i][part], a, b[part]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; ++part) store(out[i] + part * LANES, sums[i][part]);
}

template <class Of>
size_t scan(int words, int halves, const Block& a, const Block& b, Hit* hits) {
    size_t found = 0;
    for (int row = 0; row < 8 * halves; row += ROWS) {
        float sums[ROWS][PARTS * LANES];
        products<Of>(words, a.words + int64_t(row / PANEL) * words * PANEL + row % PANEL, b.words, sums);
        for (int i = 0; i < ROWS; ++i)
            for (int column = 0; column < PARTS * LANES; column += LANES) {
                const Floats score = Of::score(load(sums[i] + column), a, row + i, b, column) +
                                     (load(b.offsets + column) + a.offsets[row + i]);
                const Ints reached = (score >= all(a.thresholds[row + i])) | (score >= load(b.thresholds + column));
#if defined(__AVX512F__)
                uint32_t mask = _mm512_movepi32_mask((__m512i)reached);
#else
                uint32_t mask = 0;
                for (int lane = 0; lane < LANES; ++lane) mask |= uint32_t(reached[lane] != 0) << lane;
#endif
                if (mask == 0) continue;
                float scores[LANES];
                store(scores, score);
                for (; mask; mask &= mask - 1) {
                    const int lane = __builtin_ctz(mask);
                    hits[found++] = Hit{uint16_t(row + i), uint16_t(column + lane), scores[lane]};
                }
            }
    }
    return found;
}

size_t scan_any(Packing packing, int words, int halves, const Block& a, const Block& b, Hit* hits) {
#if LOW_PRECISION
    if (packing == Packing::bf16) return scan<OfBf16>(words, halves, a, b, hits);
    if (packing == Packing::int8) return scan<OfInt8>(words, halves, a, b, hits);
#endif
    (void)packing;
    return scan<OfFloats>(words, halves, a, b, hits);
}

void pack(Packing packing, const float* vectors, int64_t d, const int64_t* rows, int count, int words,
          const float* scales, uint32_t* panel) {
    const int values = int(packing);  // a word
    for (int r = 0; r < PANEL; ++r) {
        const float* from = r < count ? vectors + rows[r] * d : nullptr;
        const float inverse = packing == Packing::int8 && from && scales[r] > 0 ? 1 / scales[r] : 0;
        for (int w = 0; w < words; ++w) {
            uint32_t word = 0;
            for (int v = 0; v < values && from; ++v) {
                const int64_t at = int64_t(w) * values + v;
                if (at >= d) break;
                union {
                    float value;
                    uint32_t bits;
                } one = {from[at]};
                if (packing == Packing::float32) {
                    word = one.bits;
                } else if (packing == Packing::bf16) {
                    word |= ((one.bits + 0x7fffu + ((one.bits >> 16) & 1u)) >> 16) << (16 * v);
                } else {
                    const float scaled = one.value * inverse;
                    const int32_t whole = int32_t(scaled + (scaled < 0 ? -0.5f : 0.5f));
                    word |= uint32_t(whole & 0xff) << (8 * v);
                }
            }
            panel[w * PANEL + r] = word;
        }
    }
}

// In the same order whichever of the two comes first: a pair has one score.
inline float dot(const float* x, const float* z, int64_t d) {
    Floats sums[4] = {};
    int64_t at = 0;
    for (; at + 4 * LANES <= d; at += 4 * LANES)
#pragma GCC unroll 4
        for (int u = 0; u < 4; ++u) sums[u] += load(x + at + u * LANES) * load(z + at + u * LANES);
    float rest = 0;
    for (; at < d; ++at) rest += x[at] * z[at];
    return total((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

inline void prefetch(const float* row, int64_t d) {
    for (int64_t at = 0; at < d; at += 16) __builtin_prefetch(row + at);
}

void dots(const float* x, const float* vectors, int64_t d, const int32_t* ids, int64_t count, float* out) {
    for (int64_t c = 0; c < count; ++c) {
        if (c + 2 < count) prefetch(vectors + int64_t(ids[c + 2]) * d, d);
        out[c] = dot(x, vectors + int64_t(ids[c]) * d, d);
    }
}

void pair_dots(const float* vectors, int64_t d, const Pair* pairs, int64_t count, float* out) {
    for (int64_t c = 0; c < count; ++c) {
        if (c + 1 < count) {
            prefetch(vectors + int64_t(pairs[c + 1].left) * d, d);
            prefetch(vectors + int64_t(pairs[c + 1].right) * d, d);
        }
        out[c] = dot(vectors + int64_t(pairs[c].left) * d, vectors + int64_t(pairs[c].right) * d, d);
    }
}

}  // namespace

extern const Loops JOIN(loops_, MANIFIND_LEVEL);
const Loops JOIN(loops_, MANIFIND_LEVEL) = {
    NAME(MANIFIND_LEVEL), LOW_PRECISION != 0, PANELS * PANEL, multiply_any, advance, multiply_one, advance_one,
    scan_any,             pack,               dots,             pair_dots,
};

}  // namespace manifind
