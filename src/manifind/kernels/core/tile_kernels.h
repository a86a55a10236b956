// Kernels on tiles of products: hits that reach a threshold, and lower bounds from which the top k are selected. For
// kernels.cpp; in an anonymous namespace, as each instruction set has its own.
#pragma once

#include "kernels.h"
#include "micro_kernel.h"
#include "simd.h"

namespace manifind {
namespace {

// A bit for each lane in which `score` reaches `threshold`.
inline uint32_t ge_mask(Floats score, Floats threshold) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)score, (__m512)threshold, _CMP_GE_OQ);
#elif defined(__AVX2__)
    return uint32_t(_mm256_movemask_ps((__m256)(score >= threshold)));
#else
    const Ints which = score >= threshold;
    uint32_t mask = 0;
    for (int lane = 0; lane < LANES; ++lane) mask |= uint32_t(which[lane] & 1) << lane;
    return mask;
#endif
}

template <class Products, int R>
size_t scan_rows(int words, int group, int first, const ScanPanel& a, const ScanPanel& b, Hit* hits) {
    float sums[R][STRIP_REGISTERS * LANES];
    micro_kernel<Products, R>(words, a.words + int64_t(group) * words * GROUP + first, b.words, sums);
    // Values of the columns stay in registers.
    Ints bias[STRIP_REGISTERS];
    Floats scale[STRIP_REGISTERS], offset[STRIP_REGISTERS], threshold[STRIP_REGISTERS];
#pragma GCC unroll 8
    for (int r = 0; r < STRIP_REGISTERS; ++r) {
        bias[r] = *reinterpret_cast<const UnalignedInts*>(b.biases + r * LANES);
        scale[r] = load(b.scales + r * LANES);
        offset[r] = load(b.offsets + r * LANES);
        threshold[r] = load(b.thresholds + r * LANES);
    }
    size_t count = 0;
#pragma GCC unroll 1
    for (int i = 0; i < R; ++i) {
        const int row = group * GROUP + first + i;
        const Floats row_offset = broadcast(a.offsets[row]), row_threshold = broadcast(a.thresholds[row]);
        uint64_t mask = 0;
#pragma GCC unroll 8
        for (int r = 0; r < STRIP_REGISTERS; ++r) {
            const Floats score =
                Products::score(load(sums[i] + r * LANES), bias[r], a.scales[row], scale[r], offset[r]) + row_offset;
            store(sums[i] + r * LANES, score);
            mask |= uint64_t(ge_mask(score, threshold[r] < row_threshold ? threshold[r] : row_threshold))
                    << (r * LANES);
        }
        for (; mask; mask &= mask - 1) {
            const int column = __builtin_ctzll(mask);
            hits[count++] = Hit{uint16_t(row), uint16_t(column), sums[i][column]};
        }
    }
    return count;
}

template <class Products, int R>
void lower_bounds_of_rows(int words, int group, int first, const QuantizedPanel& a, const QuantizedPanel& b, float* out,
                          int64_t stride) {
    float sums[R][STRIP_REGISTERS * LANES];
    micro_kernel<Products, R>(words, a.words + int64_t(group) * words * GROUP + first, b.words, sums);
    Ints bias[STRIP_REGISTERS];
    Floats scale[STRIP_REGISTERS], length[STRIP_REGISTERS], error[STRIP_REGISTERS];
#pragma GCC unroll 8
    for (int r = 0; r < STRIP_REGISTERS; ++r) {
        bias[r] = *reinterpret_cast<const UnalignedInts*>(b.biases + r * LANES);
        scale[r] = load(b.scales + r * LANES);
        length[r] = load(b.lengths + r * LANES);
        error[r] = load(b.errors + r * LANES);
    }
#pragma GCC unroll 1  // otherwise GCC spills the sums in every step of the micro-kernel
    for (int i = 0; i < R; ++i) {
        const int row = group * GROUP + first + i;
        const Floats row_length = broadcast(a.lengths[row]), row_error = broadcast(a.errors[row]);
#pragma GCC unroll 8
        for (int r = 0; r < STRIP_REGISTERS; ++r) {
            const Floats bound = row_error * length[r] + row_length * error[r];
            store(out + row * stride + r * LANES,
                  Products::score(load(sums[i] + r * LANES), bias[r], a.scales[row], scale[r], -bound));
        }
    }
}

template <int R>
struct Height {
    static constexpr int rows = R;
};

// Calls work(Height, group, first row) for the micro-tiles of all groups.
template <class Work>
inline void for_micro_tiles(int groups, int height, Work work) {
    for (int group = 0; group < groups; ++group) {
        if constexpr (MICRO_ROWS == GROUP) {  // a micro-kernel for each height: 21 rows are three tiles of seven
            switch (height) {
                case 8: work(Height<8>(), group, 0); break;
                case 7: work(Height<7>(), group, 0); break;
                case 6: work(Height<6>(), group, 0); break;
                case 5: work(Height<5>(), group, 0); break;
                default: work(Height<4>(), group, 0);
            }
        } else {
            for (int first = 0; first < height; first += MICRO_ROWS) work(Height<MICRO_ROWS>(), group, first);
        }
    }
}

template <class Products>
size_t scan(int words, int groups, int height, const ScanPanel& a, const ScanPanel& b, Hit* hits) {
    size_t count = 0;
    for_micro_tiles(groups, height, [&](auto tile, int group, int first) {
        count += scan_rows<Products, decltype(tile)::rows>(words, group, first, a, b, hits + count);
    });
    return count;
}

size_t scan_any(Packing packing, int words, int groups, int height, const ScanPanel& a, const ScanPanel& b, Hit* hits) {
#if HAS_INT8_DOT
    if (packing == Packing::int8) return scan<Int8Products>(words, groups, height, a, b, hits);
#endif
    (void)packing;
    return scan<Float32Products>(words, groups, height, a, b, hits);
}

template <class Products>
void lower_bounds(int words, int groups, int height, const QuantizedPanel& a, const QuantizedPanel& b, float* out,
                  int64_t stride) {
    for_micro_tiles(groups, height, [&](auto tile, int group, int first) {
        lower_bounds_of_rows<Products, decltype(tile)::rows>(words, group, first, a, b, out, stride);
    });
}

void lower_bounds_any(Packing packing, int words, int groups, int height, const QuantizedPanel& a,
                      const QuantizedPanel& b, float* out, int64_t stride) {
#if HAS_INT8_DOT
    if (packing == Packing::int8) return lower_bounds<Int8Products>(words, groups, height, a, b, out, stride);
#endif
    (void)packing;
    lower_bounds<Float32Products>(words, groups, height, a, b, out, stride);
}

int64_t find_score_level(const float* scores, int64_t n, int64_t k, uint32_t* histogram, ScoreLevel* level) {
    const int64_t vector_end = n / LANES * LANES;
    float low = scores[0], high = scores[0];
    Floats min_values = broadcast(low), max_values = min_values;
    for (int64_t j = 0; j < vector_end; j += LANES) {
        const Floats values = load(scores + j);
        min_values = values < min_values ? values : min_values;
        max_values = values > max_values ? values : max_values;
    }
    for (int lane = 0; lane < LANES; ++lane) {
        low = min_values[lane] < low ? min_values[lane] : low;
        high = max_values[lane] > high ? max_values[lane] : high;
    }
    for (int64_t j = vector_end; j < n; ++j) {
        low = scores[j] < low ? scores[j] : low;
        high = scores[j] > high ? scores[j] : high;
    }
    float scale = (HISTOGRAM_BUCKETS - 1) / (high - low);
    if (!(scale < 1e30f)) scale = 0;  // all scores are equal
    for (int b = 0; b < HISTOGRAM_BUCKETS; ++b) histogram[b] = 0;
    const auto bucket = [&](float score) {
        const int index = int((score - low) * scale);
        return index < HISTOGRAM_BUCKETS - 1 ? index : HISTOGRAM_BUCKETS - 1;
    };
    for (int64_t j = 0; j < vector_end; j += LANES) {
        Ints indices = __builtin_convertvector((load(scores + j) - low) * scale, Ints);
        indices = indices < HISTOGRAM_BUCKETS - 1 ? indices : Ints{} + (HISTOGRAM_BUCKETS - 1);
        int32_t buckets[LANES];
        *reinterpret_cast<UnalignedInts*>(buckets) = indices;
#pragma GCC unroll 16
        for (int lane = 0; lane < LANES; ++lane) ++histogram[buckets[lane]];
    }
    for (int64_t j = vector_end; j < n; ++j) ++histogram[bucket(scores[j])];
    int64_t reached_count = 0;
    int bucket_index = HISTOGRAM_BUCKETS;
    while (reached_count < k) reached_count += histogram[--bucket_index];
    *level = ScoreLevel{low, scale, float(bucket_index)};
    return histogram[bucket_index];
}

int64_t columns_reaching(const float* lower, int64_t n, float length, float error, const QuantizedPanel& b,
                         const ScoreLevel& level, int32_t* columns) {
    const Floats threshold = broadcast(level.level);
    int64_t count = 0;
    for (int64_t j = 0; j < n; j += LANES) {
        const Floats bound = error * load(b.lengths + j) + length * load(b.errors + j);
        const Floats upper = load(lower + j) + 2 * bound;
        uint32_t mask = ge_mask((upper - level.low) * level.scale, threshold);
        if (n - j < LANES) mask &= (1u << (n - j)) - 1;
        for (; mask; mask &= mask - 1) columns[count++] = int32_t(j) + __builtin_ctz(mask);
    }
    return count;
}

}  // namespace
}  // namespace manifind
