// What top-k searches share: keys of candidates, thresholds, error bounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

#include "kernels.h"

namespace manifind {

constexpr float NO_THRESHOLD = -std::numeric_limits<float>::infinity();  // every score reaches it
constexpr float UNREACHABLE = std::numeric_limits<float>::infinity();    // no score reaches it
constexpr float MAX_NORM = 1e15f;          // of a row or a value; products of larger ones may overflow
constexpr int64_t TILE_ROWS = 64;          // these stay in the cache of a core beside a block of others
constexpr int64_t INT8_MAX_DIM = 1 << 17;  // above, sums of products or the bias may exceed 32 bits

// The packing for rows of d values.
inline Packing packing_for(int64_t d) {
    return kernels().has_int8_dot && d <= INT8_MAX_DIM ? Packing::int8 : Packing::float32;
}

// Words in a packed row; int8 fills whole cache lines.
inline int words_per_row(Packing packing, int64_t d) {
    return packing == Packing::int8 ? int((d + 63) / 64 * 16) : int(d);
}

// A score and an id in one number: larger is better, ties by id.
inline uint64_t make_key(float score, int32_t id) {
    score += 0.f;  // −0 becomes 0
    uint32_t bits;
    std::memcpy(&bits, &score, 4);
    bits ^= (bits >> 31) ? 0xffffffffu : 0x80000000u;  // now ordered as the scores
    return uint64_t(bits) << 32 | (0xffffffffu - uint32_t(id));
}

inline float key_score(uint64_t key) {
    uint32_t bits = uint32_t(key >> 32);
    bits ^= (bits >> 31) ? 0x80000000u : 0xffffffffu;
    float score;
    std::memcpy(&score, &bits, 4);
    return score;
}

inline int32_t key_id(uint64_t key) { return int32_t(0xffffffffu - uint32_t(key)); }

constexpr auto descending = std::greater<uint64_t>();

// Error bounds of products. x·z − x̂·ẑ = (x − x̂)·z + x̂·(z − ẑ), each at most the product of the norms. Adding up d
// products in float32 is off by at most d units in the last place; this is twice that, relative to the product of the
// norms: once for the estimate, once for rescoring.
inline double accumulation_error(int64_t d) { return double(d + 16) * std::ldexp(1.0, -22); }

// How many of the best rows seen so far contain, almost surely, all of them that are among the top k of all n.
inline int64_t sample_rank(int64_t k, int64_t seen, int64_t n, double deviations) {
    const double share = double(k) * std::min(1.0, double(seen) / double(n));
    return std::min<int64_t>(k, int64_t(share + deviations * std::sqrt(share)) + 4);
}

}  // namespace manifind
