// See loops.h. Vectors are those of GCC and Clang, as wide as the registers of the level.
#include "loops.h"

#include "few_loops.h"
#include "gradient.h"
#include "gradient_double.h"
#include "lanes.h"
#include "packing.h"
#include "scanning.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME_(a) #a
#define NAME(a) NAME_(a)

namespace manifind {
namespace {

template <class T>
void dots_any(const float* x, const T* vectors, int64_t d, bool far, const int32_t* ids, int64_t count, float* out) {
    constexpr int R = LANES == 16 ? 4 : 1;  // sums of more would not fit in the registers
    constexpr int64_t LINE = 64 / sizeof(T);
    const T* rows[R];
    int64_t c = 0;
    for (; c + R <= count; c += R) {
        for (int r = 0; r < R; ++r) rows[r] = vectors + ids[c + r] * d;
        for (int64_t ahead = c + R; far && ahead < count && ahead < c + 2 * R; ++ahead)
            for (int64_t j = 0; j < d; j += LINE) __builtin_prefetch(vectors + ids[ahead] * d + j);
        dots_of<R>(x, rows, d, out + c);
    }
    for (int r = 0; c + r < count; ++r) rows[r] = vectors + ids[c + r] * d;
    if constexpr (R == 4) {
        if (count - c == 3) return dots_of<3>(x, rows, d, out + c);
        if (count - c == 2) return dots_of<2>(x, rows, d, out + c);
    }
    if (c < count) dots_of<1>(x, rows, d, out + c);
}

void dots(const float* x, const Rows& rows, const int32_t* ids, int64_t count, float* out) {
    const bool far = rows.n * rows.d > 1 << 18;  // too much to be in the cache: rows are fetched ahead
    if (rows.half)
        dots_any(x, static_cast<const uint16_t*>(rows.data), rows.d, far, ids, count, out);
    else
        dots_any(x, static_cast<const float*>(rows.data), rows.d, far, ids, count, out);
}

void blend(const float* const* before, const float* const* after, const float* weights, int radius, int64_t n,
           float* out) {
    constexpr int WIDTH = 32;
    int64_t x = 0;
    for (; x + WIDTH <= n; x += WIDTH) {
        float sums[WIDTH];
        for (int i = 0; i < WIDTH; ++i) sums[i] = weights[0] * before[0][x + i];
        for (int k = 1; k <= radius; ++k) {
            const float *a = before[k] + x, *b = after[k] + x;
            const float weight = weights[k];
            for (int i = 0; i < WIDTH; ++i) sums[i] += weight * (a[i] + b[i]);
        }
        for (int i = 0; i < WIDTH; ++i) out[x + i] = sums[i];
    }
    for (; x < n; ++x) {
        float sum = weights[0] * before[0][x];
        for (int k = 1; k <= radius; ++k) sum += weights[k] * (before[k][x] + after[k][x]);
        out[x] = sum;
    }
}

int64_t possible(const int32_t* ids, const float* similarities, int64_t width, const float* limits, int32_t own,
                 Neighbour* out) {
    int64_t count = 0, e = 0;
#if defined(__AVX512F__)
    // Of sixteen, id and similarity side by side.
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i second = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    for (; e + 16 <= width; e += 16) {
        const __m512i some = _mm512_loadu_si512(ids + e);
        const __m512 near = _mm512_loadu_ps(similarities + e);
        __mmask16 kept = _mm512_cmpge_epi32_mask(some, _mm512_setzero_si512());
        kept = _mm512_mask_cmpneq_epi32_mask(kept, some, _mm512_set1_epi32(own));
        kept = _mm512_mask_cmp_ps_mask(kept, near, _mm512_setzero_ps(), _CMP_GT_OQ);
        const __m512 least = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), kept, some, limits, 4);
        kept = _mm512_mask_cmp_ps_mask(kept, near, least, _CMP_GE_OQ);
        const __m512i kept_ids = _mm512_maskz_compress_epi32(kept, some);
        const __m512i kept_near = _mm512_castps_si512(_mm512_maskz_compress_ps(kept, near));
        _mm512_storeu_si512(out + count, _mm512_permutex2var_epi32(kept_ids, first, kept_near));
        _mm512_storeu_si512(out + count + 8, _mm512_permutex2var_epi32(kept_ids, second, kept_near));
        count += __builtin_popcount(kept);
    }
#endif
    for (; e < width; ++e) {  // without a branch, for none could be foretold
        const int32_t id = ids[e];
        const float similarity = similarities[e];
        out[count] = {id, similarity};
        count += (id >= 0) & (id != own) & (similarity > 0) & (similarity >= limits[id < 0 ? 0 : id]);
    }
    return count;
}

}  // namespace

extern const Loops JOIN(loops_, MANIFIND_LEVEL);
const Loops JOIN(loops_, MANIFIND_LEVEL) = {
    NAME(MANIFIND_LEVEL), LOW_PRECISION != 0, PANELS * PANEL, multiply_any, advance, multiply_one, advance_one,
    product_small, dots_small, advance_small, multiply_double_any, descend_double, turn_double, scan_any, lower_bounds_any,
    level_of, reaching, pack, widen, dots, compress, pack_bytes, blend, possible,
#if LOW_PRECISION
    &few_loops,
#else
    nullptr,
#endif
};

}  // namespace manifind
