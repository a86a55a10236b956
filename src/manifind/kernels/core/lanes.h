// Vectors of GCC and Clang, as wide as the registers of the level that a file is compiled for, and what is done with them.
//
// All of it is in an anonymous namespace: the same names mean other code at another level.
#pragma once

#include <cstdint>

#if defined(__AVX512VNNI__)
#define LOW_PRECISION 1
#else
#define LOW_PRECISION 0
#endif
#if defined(__F16C__) || defined(__AVX2__)
#include <immintrin.h>
#endif

// For a loop of which compilers would make gather instructions, which are slower than loads one by one.
#if defined(__GNUC__) && !defined(__clang__)
#define ONE_BY_ONE __attribute__((optimize("no-tree-vectorize")))
#else
#define ONE_BY_ONE
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
inline Floats all(float value) {
#if defined(__AVX512F__)  // a sum with zero is an instruction of its own, for zeros have signs
    return (Floats)_mm512_set1_ps(value);
#else
    return Floats{} + value;
#endif
}
inline Words all(uint32_t value) { return Words{} + value; }

// The upper half is added to the lower half, until one is left.
inline float total(Floats v) {
#if defined(__AVX512F__) || defined(__AVX2__)
#if defined(__AVX512F__)
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#else
    const __m256 eight = (__m256)v;
#endif
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
    float sums[LANES];
    store(sums, v);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    return sums[0];
#endif
}

union Bits {
    float value;
    uint32_t word;
};

#if !defined(__F16C__)
// Exponent and mantissa are moved to their places in a float32; its exponent counts from 127 rather than from 15.
inline float single(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000u) << 16, rest = uint32_t(half & 0x7fffu) << 13;
    if (rest >= 0x0f800000u) {  // infinite, or not a number
        Bits special;
        special.word = sign | 0x70000000u | rest;
        return special.value;
    }
    Bits moved, power;
    moved.word = rest;
    power.word = (254u - 15u) << 23;  // 2^112: the multiplication also makes denormals what they stand for
    moved.value *= power.value;
    moved.word |= sign;
    return moved.value;
}
#endif

inline Floats load(const uint16_t* at) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
#elif defined(__F16C__)
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
#else
    Floats out;
    for (int lane = 0; lane < LANES; ++lane) out[lane] = single(at[lane]);
    return out;
#endif
}

inline float one(const float* at) { return *at; }
inline float one(const uint16_t* at) {
#if defined(__F16C__)
    return _cvtsh_ss(*at);
#else
    return single(*at);
#endif
}

// Inner products with R rows at once, which share the loads of x. Each is added up in the same order whatever R, and
// whichever of the two rows is x.
template <int R, class T>
inline void dots_of(const float* x, const T* const* rows, int64_t d, float* out) {
    constexpr int SUMS = 4;
    Floats sums[R][SUMS] = {};
    int64_t at = 0;
    for (; at + SUMS * LANES <= d; at += SUMS * LANES)
#pragma GCC unroll 4
        for (int u = 0; u < SUMS; ++u) {
            const Floats own = load(x + at + u * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) sums[r][u] += own * load(rows[r] + at + u * LANES);
        }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        float rest = 0;
        for (int64_t j = at; j < d; ++j) rest += x[j] * one(rows[r] + j);
        out[r] = total((sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3])) + rest;
    }
}

}  // namespace
}  // namespace manifind
