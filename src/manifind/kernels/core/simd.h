// SIMD vectors by the extensions of GCC and Clang, as wide as the registers of the instruction set of a compilation.
//
// In an anonymous namespace, as each instruction set has its own.
#pragma once

#include <cstdint>

#if defined(__AVX512VNNI__)
#define HAS_INT8_DOT 1
#else
#define HAS_INT8_DOT 0
#endif
#if defined(__F16C__) || defined(__AVX2__)
#include <immintrin.h>
#endif

// For loops that compilers would vectorize with gathers, which are slower than scalar loads.
#if defined(__GNUC__) && !defined(__clang__)
#define NO_VECTORIZE __attribute__((optimize("no-tree-vectorize")))
#else
#define NO_VECTORIZE
#endif

namespace manifind {
namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, MICRO_ROWS = 8, PANELS = 3;
#elif defined(__AVX2__)
constexpr int LANES = 8, MICRO_ROWS = 4, PANELS = 1;
#else
constexpr int LANES = 4, MICRO_ROWS = 2, PANELS = 1;
#endif
// A micro-tile is MICRO_ROWS × PANELS · 16: its sums fill most of the registers.

typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef uint32_t Words __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));
// For unaligned loads.
typedef float UnalignedFloats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint32_t UnalignedWords __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t UnalignedInts __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

inline Floats load(const float* at) { return *reinterpret_cast<const UnalignedFloats*>(at); }
inline Words load(const uint32_t* at) { return *reinterpret_cast<const UnalignedWords*>(at); }
inline void store(float* at, Floats value) { *reinterpret_cast<UnalignedFloats*>(at) = value; }
inline void store(uint32_t* at, Words value) { *reinterpret_cast<UnalignedWords*>(at) = value; }
inline void accumulate(float* at, Floats value) { store(at, load(at) + value); }
inline Floats broadcast(float value) {
#if defined(__AVX512F__)  // adding to zero would be an instruction, as zeros have signs
    return (Floats)_mm512_set1_ps(value);
#else
    return Floats{} + value;
#endif
}
inline Words broadcast(uint32_t value) { return Words{} + value; }

// Adds the upper half to the lower, until one value is left.
inline float horizontal_sum(Floats v) {
#if defined(__AVX512F__) || defined(__AVX2__)
#if defined(__AVX512F__)
    const __m256 v8 = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#else
    const __m256 v8 = (__m256)v;
#endif
    const __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    const __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
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
// Moves exponent and mantissa to their places in a float32, whose exponent bias is 127 instead of 15.
inline float half_to_float(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000u) << 16, magnitude = uint32_t(half & 0x7fffu) << 13;
    if (magnitude >= 0x0f800000u) {  // infinity or NaN
        Bits special;
        special.word = sign | 0x70000000u | magnitude;
        return special.value;
    }
    Bits moved, power;
    moved.word = magnitude;
    power.word = (254u - 15u) << 23;  // 2^112: the multiplication also converts denormals
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
    for (int lane = 0; lane < LANES; ++lane) out[lane] = half_to_float(at[lane]);
    return out;
#endif
}

inline float load_scalar(const float* at) { return *at; }
inline float load_scalar(const uint16_t* at) {
#if defined(__F16C__)
    return _cvtsh_ss(*at);
#else
    return half_to_float(*at);
#endif
}

// Inner products of x with R rows. The order of summation does not depend on R, nor on which of the two rows is x.
template <int R, class T>
inline void dot_rows(const float* x, const T* const* rows, int64_t d, float* out) {
    constexpr int SUMS = 4;
    Floats sums[R][SUMS] = {};
    int64_t at = 0;
    for (; at + SUMS * LANES <= d; at += SUMS * LANES)
#pragma GCC unroll 4
        for (int u = 0; u < SUMS; ++u) {
            const Floats x_values = load(x + at + u * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) sums[r][u] += x_values * load(rows[r] + at + u * LANES);
        }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        float tail = 0;
        for (int64_t j = at; j < d; ++j) tail += x[j] * load_scalar(rows[r] + j);
        out[r] = horizontal_sum((sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3])) + tail;
    }
}

}  // namespace
}  // namespace manifind
