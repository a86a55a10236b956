// What searches for the best have in common.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

#include "loops.h"

namespace manifind {

constexpr float NOTHING = -std::numeric_limits<float>::infinity();  // that every score reaches
constexpr float NEVER = std::numeric_limits<float>::infinity();     // that no score reaches
constexpr float LONGEST = 1e15f;      // of a row, or a value: products of longer ones may overflow
constexpr int64_t TILE_ROWS = 64;     // that stay in the cache of a core beside a block of others
constexpr int64_t MOST_BYTES = 1 << 17;  // of a row in int8: more products, or the bias, may not add up in 32 bits

// How rows of d values are multiplied.
inline Packing packing_of(int64_t d) {
    return loops().low_precision && d <= MOST_BYTES ? Packing::int8 : Packing::float32;
}

// The words of such a row; of int8, whole lines of the cache.
inline int words_of(Packing packing, int64_t d) {
    return packing == Packing::int8 ? int((d + 63) / 64 * 16) : int(d);
}

// A score and an id in one number: the larger is the better, and equal scores are ordered by id.
inline uint64_t key_of(float score, int32_t id) {
    score += 0.f;  // of two zeros the one that has no sign
    uint32_t bits;
    std::memcpy(&bits, &score, 4);
    bits ^= (bits >> 31) ? 0xffffffffu : 0x80000000u;  // now in the order of the scores
    return uint64_t(bits) << 32 | (0xffffffffu - uint32_t(id));
}

inline float score_of(uint64_t key) {
    uint32_t bits = uint32_t(key >> 32);
    bits ^= (bits >> 31) ? 0x80000000u : 0xffffffffu;
    float score;
    std::memcpy(&score, &bits, 4);
    return score;
}

inline int32_t id_of(uint64_t key) { return int32_t(0xffffffffu - uint32_t(key)); }

constexpr auto best_first = std::greater<uint64_t>();

// Of the rows that were seen, so many of the best hold all that are among the k best of all rows, hardly ever fewer.
inline int64_t guessed_rank(int64_t k, int64_t seen, int64_t n, double deviations) {
    const double share = double(k) * std::min(1.0, double(seen) / double(n));
    return std::min<int64_t>(k, int64_t(share + deviations * std::sqrt(share)) + 4);
}

}  // namespace manifind
