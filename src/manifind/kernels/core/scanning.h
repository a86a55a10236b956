// Products of packed rows, tile by tile: those that reach a threshold, and lower bounds of them, from which the k best are
// picked. For loops.cpp alone; in an anonymous namespace, as the same names mean other code at another level.
#pragma once

#include "lanes.h"
#include "loops.h"
#include "products.h"

namespace manifind {
namespace {

// A bit for each lane in which `score` reaches `least`.
inline uint32_t reached(Floats score, Floats least) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)score, (__m512)least, _CMP_GE_OQ);
#elif defined(__AVX2__)
    return uint32_t(_mm256_movemask_ps((__m256)(score >= least)));
#else
    const Ints which = score >= least;
    uint32_t mask = 0;
    for (int lane = 0; lane < LANES; ++lane) mask |= uint32_t(which[lane] & 1) << lane;
    return mask;
#endif
}

template <class Of, int R>
size_t scan_rows(int words, int group, int first, const Block& a, const Block& b, Hit* hits) {
    float sums[R][PARTS * LANES];
    products<Of, R>(words, a.words + int64_t(group) * words * GROUP + first, b.words, sums);
    // What belongs to the columns stays in registers.
    Ints bias[PARTS];
    Floats scale[PARTS], offset[PARTS], threshold[PARTS];
#pragma GCC unroll 8
    for (int part = 0; part < PARTS; ++part) {
        bias[part] = *reinterpret_cast<const LooseInts*>(b.biases + part * LANES);
        scale[part] = load(b.scales + part * LANES);
        offset[part] = load(b.offsets + part * LANES);
        threshold[part] = load(b.thresholds + part * LANES);
    }
    size_t found = 0;
#pragma GCC unroll 1
    for (int i = 0; i < R; ++i) {
        const int row = group * GROUP + first + i;
        const Floats own = all(a.offsets[row]), least = all(a.thresholds[row]);
        uint64_t mask = 0;
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; ++part) {
            const Floats score =
                Of::score(load(sums[i] + part * LANES), bias[part], a.scales[row], scale[part], offset[part]) + own;
            store(sums[i] + part * LANES, score);
            mask |= uint64_t(reached(score, threshold[part] < least ? threshold[part] : least)) << (part * LANES);
        }
        for (; mask; mask &= mask - 1) {
            const int column = __builtin_ctzll(mask);
            hits[found++] = Hit{uint16_t(row), uint16_t(column), sums[i][column]};
        }
    }
    return found;
}

template <class Of, int R>
void lower_bounds_of_rows(int words, int group, int first, const Side& a, const Side& b, float* out, int64_t stride) {
    float sums[R][PARTS * LANES];
    products<Of, R>(words, a.words + int64_t(group) * words * GROUP + first, b.words, sums);
    Ints bias[PARTS];
    Floats scale[PARTS], length[PARTS], error[PARTS];
#pragma GCC unroll 8
    for (int part = 0; part < PARTS; ++part) {
        bias[part] = *reinterpret_cast<const LooseInts*>(b.biases + part * LANES);
        scale[part] = load(b.scales + part * LANES);
        length[part] = load(b.lengths + part * LANES);
        error[part] = load(b.errors + part * LANES);
    }
#pragma GCC unroll 1  // else the compiler writes the sums to memory with every step of the products
    for (int i = 0; i < R; ++i) {
        const int row = group * GROUP + first + i;
        const Floats own_length = all(a.lengths[row]), own_error = all(a.errors[row]);
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; ++part) {
            const Floats bound = own_error * length[part] + own_length * error[part];
            store(out + row * stride + part * LANES,
                  Of::score(load(sums[i] + part * LANES), bias[part], a.scales[row], scale[part], -bound));
        }
    }
}

template <int R>
struct Height {
    static constexpr int rows = R;
};

// Calls work(Height, group, first row) for the micro-tiles of all groups.
template <class Work>
inline void by_micro_tiles(int groups, int height, Work work) {
    for (int group = 0; group < groups; ++group) {
        if constexpr (ROWS == GROUP) {  // a micro-tile of its own for each height: 21 rows are three of seven
            switch (height) {
                case 8: work(Height<8>(), group, 0); break;
                case 7: work(Height<7>(), group, 0); break;
                case 6: work(Height<6>(), group, 0); break;
                case 5: work(Height<5>(), group, 0); break;
                default: work(Height<4>(), group, 0);
            }
        } else {
            for (int first = 0; first < height; first += ROWS) work(Height<ROWS>(), group, first);
        }
    }
}

template <class Of>
size_t scan(int words, int groups, int height, const Block& a, const Block& b, Hit* hits) {
    size_t found = 0;
    by_micro_tiles(groups, height, [&](auto tile, int group, int first) {
        found += scan_rows<Of, decltype(tile)::rows>(words, group, first, a, b, hits + found);
    });
    return found;
}

size_t scan_any(Packing packing, int words, int groups, int height, const Block& a, const Block& b, Hit* hits) {
#if LOW_PRECISION
    if (packing == Packing::int8) return scan<OfInt8>(words, groups, height, a, b, hits);
#endif
    (void)packing;
    return scan<OfFloats>(words, groups, height, a, b, hits);
}

template <class Of>
void lower_bounds(int words, int groups, int height, const Side& a, const Side& b, float* out, int64_t stride) {
    by_micro_tiles(groups, height, [&](auto tile, int group, int first) {
        lower_bounds_of_rows<Of, decltype(tile)::rows>(words, group, first, a, b, out, stride);
    });
}

void lower_bounds_any(Packing packing, int words, int groups, int height, const Side& a, const Side& b, float* out,
                      int64_t stride) {
#if LOW_PRECISION
    if (packing == Packing::int8) return lower_bounds<OfInt8>(words, groups, height, a, b, out, stride);
#endif
    (void)packing;
    lower_bounds<OfFloats>(words, groups, height, a, b, out, stride);
}

int64_t level_of(const float* scores, int64_t n, int64_t k, uint32_t* histogram, Level* level) {
    const int64_t whole = n / LANES * LANES;
    float low = scores[0], top = scores[0];
    Floats lows = all(low), tops = lows;
    for (int64_t j = 0; j < whole; j += LANES) {
        const Floats some = load(scores + j);
        lows = some < lows ? some : lows;
        tops = some > tops ? some : tops;
    }
    for (int lane = 0; lane < LANES; ++lane) {
        low = lows[lane] < low ? lows[lane] : low;
        top = tops[lane] > top ? tops[lane] : top;
    }
    for (int64_t j = whole; j < n; ++j) {
        low = scores[j] < low ? scores[j] : low;
        top = scores[j] > top ? scores[j] : top;
    }
    float scale = (BUCKETS - 1) / (top - low);
    if (!(scale < 1e30f)) scale = 0;  // they are all the same
    for (int b = 0; b < BUCKETS; ++b) histogram[b] = 0;
    const auto bucket = [&](float score) {
        const int at = int((score - low) * scale);
        return at < BUCKETS - 1 ? at : BUCKETS - 1;
    };
    for (int64_t j = 0; j < whole; j += LANES) {
        Ints at = __builtin_convertvector((load(scores + j) - low) * scale, Ints);
        at = at < BUCKETS - 1 ? at : Ints{} + (BUCKETS - 1);
        int32_t buckets[LANES];
        *reinterpret_cast<LooseInts*>(buckets) = at;
#pragma GCC unroll 16
        for (int lane = 0; lane < LANES; ++lane) ++histogram[buckets[lane]];
    }
    for (int64_t j = whole; j < n; ++j) ++histogram[bucket(scores[j])];
    int64_t more = 0;
    int last = BUCKETS;
    while (more < k) more += histogram[--last];
    *level = Level{low, scale, float(last)};
    return histogram[last];
}

int64_t reaching(const float* lower, int64_t n, float length, float error, const Side& b, const Level& level,
                 int32_t* columns) {
    const Floats least = all(level.level);
    int64_t found = 0;
    for (int64_t j = 0; j < n; j += LANES) {
        const Floats bound = error * load(b.lengths + j) + length * load(b.errors + j);
        const Floats upper = load(lower + j) + 2 * bound;
        uint32_t mask = reached((upper - level.low) * level.scale, least);
        if (n - j < LANES) mask &= (1u << (n - j)) - 1;
        for (; mask; mask &= mask - 1) columns[found++] = int32_t(j) + __builtin_ctz(mask);
    }
    return found;
}

}  // namespace
}  // namespace manifind
