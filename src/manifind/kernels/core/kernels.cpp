// See kernels.h.
#include "kernels.h"

#include "cg_kernels.h"
#include "cg_kernels_double.h"
#include "level_names.h"
#include "packing_kernels.h"
#include "simd.h"
#include "small_self_join_kernels.h"
#include "tile_kernels.h"

namespace manifind {
namespace {

template <class T>
void dots_any(const float* x, const T* vectors, int64_t d, bool far, const int32_t* ids, int64_t count, float* out) {
    constexpr int R = LANES == 16 ? 4 : 1;  // more sums do not fit in registers
    constexpr int64_t LINE = 64 / sizeof(T);
    const T* rows[R];
    int64_t c = 0;
    for (; c + R <= count; c += R) {
        for (int r = 0; r < R; ++r) rows[r] = vectors + ids[c + r] * d;
        for (int64_t ahead = c + R; far && ahead < count && ahead < c + 2 * R; ++ahead)
            for (int64_t j = 0; j < d; j += LINE) __builtin_prefetch(vectors + ids[ahead] * d + j);
        dot_rows<R>(x, rows, d, out + c);
    }
    for (int r = 0; c + r < count; ++r) rows[r] = vectors + ids[c + r] * d;
    if constexpr (R == 4) {
        if (count - c == 3) return dot_rows<3>(x, rows, d, out + c);
        if (count - c == 2) return dot_rows<2>(x, rows, d, out + c);
    }
    if (c < count) dot_rows<1>(x, rows, d, out + c);
}

void dots(const float* x, const Rows& rows, const int32_t* ids, int64_t count, float* out) {
    const bool far = rows.n * rows.d > 1 << 18;  // too much for the cache: prefetch
    if (rows.half)
        dots_any(x, static_cast<const uint16_t*>(rows.data), rows.d, far, ids, count, out);
    else
        dots_any(x, static_cast<const float*>(rows.data), rows.d, far, ids, count, out);
}

int64_t possibly_mutual(const int32_t* ids, const float* similarities, int64_t width, const float* limits, int32_t own,
                        Neighbour* out) {
    int64_t count = 0, e = 0;
#if defined(__AVX512F__)
    // Interleaves ids and similarities of sixteen entries.
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
    for (; e < width; ++e) {  // without a branch, which would be unpredictable
        const int32_t id = ids[e];
        const float similarity = similarities[e];
        out[count] = {id, similarity};
        count += (id >= 0) & (id != own) & (similarity > 0) & (similarity >= limits[id < 0 ? 0 : id]);
    }
    return count;
}

}  // namespace

extern const Kernels LEVEL_NAME(kernels);
const Kernels LEVEL_NAME(kernels) = {
    LEVEL_STRING,
    HAS_INT8_DOT != 0,
    PANELS * PANEL,
    cg_multiply_any,
    cg_update,
    cg_multiply_single_any,
    cg_update_single,
    spmv_small,
    cg_dots_small,
    cg_update_small,
    cg_multiply_double_any,
    cg_update_residual_double,
    cg_update_direction_double,
    scan_any,
    lower_bounds_any,
    find_score_level,
    columns_reaching,
    pack,
    to_float32,
    dots,
    quantize,
    pack_int8,
    possibly_mutual,
#if HAS_INT8_DOT
    &small_self_join_kernels,
#else
    nullptr,
#endif
};

}  // namespace manifind
