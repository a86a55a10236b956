// Kernels that prepare rows for products: transpose into panels, convert to float32, quantize to int8. For kernels.cpp;
// in an anonymous namespace, as each instruction set has its own.
#pragma once

#include "kernels.h"
#include "micro_kernel.h"
#include "simd.h"

namespace manifind {
namespace {

#if defined(__AVX2__)
// Transposes 8 × 8 floats: value j of row i goes to out[j · stride + i].
inline void store_transposed(const float* rows, int64_t d, float* out, int64_t stride) {
    __m256 a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(rows + i * d);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {  // four rows, two values of each half
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        _mm256_storeu_ps(out + j * stride, _mm256_permute2f128_ps(a[j], a[4 + j], 0x20));
        _mm256_storeu_ps(out + (4 + j) * stride, _mm256_permute2f128_ps(a[j], a[4 + j], 0x31));
    }
}
#endif

void pack(Packing packing, const float* rows, int64_t d, int count, int height, int words, const float* scales,
          uint32_t* panel, int32_t* biases) {
    int packed = 0;  // rows packed so far, in eights
#if defined(__AVX2__)
    if (packing == Packing::float32 && words == d && d % 8 == 0)
        for (; packed + 8 <= count; packed += 8)
            for (int64_t w = 0; w < d; w += 8)
                store_transposed(rows + packed * d + w, d, reinterpret_cast<float*>(panel) + w * height + packed,
                                 height);
#endif
    for (int r = packed; r < height; ++r) {
        const float* source = rows + r * d;
        if (r >= count) {
            for (int w = 0; w < words; ++w) panel[w * height + r] = 0;
        } else if (packing == Packing::float32) {
            for (int w = 0; w < words; ++w) panel[w * height + r] = Bits{source[w]}.word;
        } else {
            const float inverse = scales[r] > 0 ? 1 / scales[r] : 0;
            const uint32_t flip = height == GROUP ? 0x80808080u : 0;
            int32_t sum = 0;
            constexpr int CHUNK_WORDS = 256;  // words quantized at a time
            for (int first = 0; first < words; first += CHUNK_WORDS) {
                const int chunk_words = words - first < CHUNK_WORDS ? words - first : CHUNK_WORDS;
                const int64_t at = int64_t(first) * 4, stop = d - at < chunk_words * 4 ? d - at : chunk_words * 4;
                int32_t rounded[4 * CHUNK_WORDS];
                for (int64_t j = 0; j < stop; ++j) {
                    const float scaled = source[at + j] * inverse;
                    rounded[j] = int32_t(scaled + (scaled < 0 ? -0.5f : 0.5f));
                    sum += rounded[j];
                }
                for (int64_t j = stop; j < chunk_words * 4; ++j) rounded[j] = 0;
                for (int w = 0; w < chunk_words; ++w) {
                    const uint32_t word = uint32_t(rounded[4 * w] & 0xff) | uint32_t(rounded[4 * w + 1] & 0xff) << 8 |
                                          uint32_t(rounded[4 * w + 2] & 0xff) << 16 |
                                          uint32_t(rounded[4 * w + 3]) << 24;
                    panel[(first + w) * height + r] = word ^ flip;
                }
            }
            biases[r] = 128 * sum;
        }
    }
}

void to_float32(const Rows& rows, int64_t row, float* out) {
    if (!rows.half) {
        const float* source = static_cast<const float*>(rows.data) + row * rows.d;
        for (int64_t j = 0; j < rows.d; ++j) out[j] = source[j];
        return;
    }
    const uint16_t* source = static_cast<const uint16_t*>(rows.data) + row * rows.d;
    int64_t j = 0;
    for (; j + LANES <= rows.d; j += LANES) store(out + j, load(source + j));
    for (; j < rows.d; ++j) out[j] = load_scalar(source + j);
}

// The largest absolute value; infinite or NaN where a value is.
inline float max_abs(const float* row, int64_t d) {
    Floats lane_maxima = {}, nan_lanes = {};
    int64_t j = 0;
    for (; j + LANES <= d; j += LANES) {
        const Floats size = (Floats)((Words)load(row + j) & 0x7fffffffu);
        lane_maxima = size > lane_maxima ? size : lane_maxima;
        nan_lanes += size * 0.f;
    }
    float largest = 0, nan_or_zero = horizontal_sum(nan_lanes);
    for (int lane = 0; lane < LANES; ++lane) largest = lane_maxima[lane] > largest ? lane_maxima[lane] : largest;
    for (; j < d; ++j) {
        const float size = row[j] < 0 ? -row[j] : row[j];
        largest = size > largest ? size : largest;
        nan_or_zero += size * 0.f;
    }
    return largest + nan_or_zero;
}

void quantize(const float* row, int64_t d, int64_t bytes, int8_t* out, float* scale, int32_t* bias, float* error,
              float* length) {
    const float largest = max_abs(row, d), root = __builtin_sqrtf(float(d));
    for (int64_t j = largest > 1e-30f ? d : 0; j < bytes; ++j) out[j] = 0;
    *scale = 0;
    *bias = 0;
    *error = *length = largest * root;
    if (!(largest > 1e-30f && largest < 1e30f)) return;  // denormal rows count as zero
    const float inverse = 127 / largest;
    Ints lane_sums = {};
    Floats error_squared = {}, squared = {};
    int32_t sum = 0;
    float error_squared_tail = 0, squared_tail = 0;
    int64_t j = 0;
    for (; j + LANES <= d; j += LANES) {
        const Floats scaled = load(row + j) * inverse;
#if defined(__AVX512F__)
        const Ints rounded = (Ints)_mm512_cvtps_epi32((__m512)scaled);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + j), _mm512_cvtepi32_epi8((__m512i)rounded));
#else
        const Ints rounded = __builtin_convertvector(scaled + (scaled < 0 ? broadcast(-0.5f) : broadcast(0.5f)), Ints);
        for (int lane = 0; lane < LANES; ++lane) out[j + lane] = int8_t(rounded[lane]);
#endif
        const Floats difference = scaled - __builtin_convertvector(rounded, Floats);
        lane_sums += rounded;
        error_squared += difference * difference;
        squared += scaled * scaled;
    }
    for (; j < d; ++j) {
        const float scaled = row[j] * inverse;
        const int32_t rounded = int32_t(scaled + (scaled < 0 ? -0.5f : 0.5f));
        out[j] = int8_t(rounded);
        sum += rounded;
        error_squared_tail += (scaled - float(rounded)) * (scaled - float(rounded));
        squared_tail += scaled * scaled;
    }
    for (int lane = 0; lane < LANES; ++lane) sum += lane_sums[lane];
    *scale = largest / 127;
    *bias = int32_t(128u * uint32_t(sum));  // unsigned, as rows too wide for int8 are quantized for their errors
    // With a margin for the rounding of these sums.
    *error = *scale * (__builtin_sqrtf(horizontal_sum(error_squared) + error_squared_tail) * 1.0001f + 2e-5f * root);
    *length = *scale * __builtin_sqrtf(horizontal_sum(squared) + squared_tail) * 1.0001f;
}

#if HAS_INT8_DOT
// Transposes 16 × 16 words.
inline void transpose(__m512i (&r)[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // Quarter q of r[4 b + j] has word 4 q + j of rows 4 b … 4 b + 3.
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m512i low01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x44);
        const __m512i high01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xee);
        const __m512i low23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x44);
        const __m512i high23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xee);
        t[j] = _mm512_shuffle_i32x4(low01, low23, 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
        t[8 + j] = _mm512_shuffle_i32x4(high01, high23, 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// A right-hand panel; missing rows are zeros.
inline void pack_panel(const int8_t* const* rows, int count, int words, uint32_t* panel) {
    for (int w = 0; w < words; w += 16) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) r[i] = i < count ? _mm512_loadu_si512(rows[i] + 4 * w) : _mm512_setzero_si512();
        transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) _mm512_storeu_si512(panel + (w + i) * PANEL, r[i]);
    }
}
#endif

void pack_int8(const int8_t* const* rows, int count, int height, int words, uint32_t* panel) {
#if HAS_INT8_DOT
    if (height == PANEL) return pack_panel(rows, count, words, panel);
#endif
    const uint32_t flip = height == GROUP ? 0x80808080u : 0;
    for (int r = 0; r < height; ++r)
        for (int w = 0; w < words; ++w) {
            uint32_t word = 0;
            if (r < count) __builtin_memcpy(&word, rows[r] + 4 * w, 4);
            panel[w * height + r] = word ^ flip;
        }
}

}  // namespace
}  // namespace manifind
