// What searches for the best have in common.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace manifind {

constexpr float NOTHING = -std::numeric_limits<float>::infinity();  // that every score reaches
constexpr float NEVER = std::numeric_limits<float>::infinity();     // that no score reaches
constexpr float LONGEST = 1e15f;      // of a row, or a value: products of longer ones may overflow
constexpr int64_t TILE_ROWS = 64;     // that stay in the cache of a core beside a block of others

// Of the rows that were seen, so many of the best hold all that are among the k best of all rows, hardly ever fewer.
inline int64_t guessed_rank(int64_t k, int64_t seen, int64_t n, double deviations) {
    const double share = double(k) * std::min(1.0, double(seen) / double(n));
    return std::min<int64_t>(k, int64_t(share + deviations * std::sqrt(share)) + 4);
}

}  // namespace manifind
