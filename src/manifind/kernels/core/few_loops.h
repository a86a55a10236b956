// The hot loops of comparing few rows with each other (few.h). Only levels that multiply int8 have them.
#pragma once

#include <cstdint>

#include "loops.h"

namespace manifind {

constexpr int16_t NO_ESTIMATE = INT16_MIN;  // of a row with itself, and of the columns that fill a row up
constexpr int64_t ESTIMATES_AT_ONCE = 64;   // rows of estimates and of marks are filled up to a multiple of this

struct FewLoops {
    // Products of two strips of rows, each times both scales and `unit`, rounded to whole numbers: of row i with column j
    // to tile[i · strip + j].
    void (*estimate)(int words, const Side& a, const Side& b, float unit, int16_t* tile);
    // Copies row i of a tile to out[i · stride] …, or its column i where `columns` says so.
    void (*unfold)(const int16_t* tile, bool columns, int16_t* out, int64_t stride);
    // How many of n estimates reach the level; n is a multiple of ESTIMATES_AT_ONCE.
    int64_t (*count)(const int16_t* estimates, int64_t n, int16_t level);
    // For up to eight rows of estimates: bit r of marks[j] says whether estimate j of row r, plus slack[j], reaches
    // levels[r]. Adds the number of marks of each row to `counts`. n as for `count`.
    void (*mark)(const int16_t* estimates, int64_t stride, int rows, int64_t n, const int16_t* slack,
                 const int16_t* levels, uint8_t* marks, int32_t* counts);
    // Scores the marked pairs of group g of eight rows with the groups from `begin`, which is g or later, to `end`, up to
    // MOST_GROUPS of them. A pair is scored once, if either of its rows marks the other, and is written to the list of
    // each row that does: to lists[next[row]], which is then advanced. An entry is the product, and above it the other row.
    // `rows` are all rows, of d values, `stride` apart; `marks` of a group lie `marks_stride` apart. With `shared`, other
    // threads write to the same lists. Lists have room for one entry more. A product is what `Loops::dots` makes of it, to
    // the last bit.
    void (*score_marked)(const float* rows, int64_t d, int64_t stride, const uint8_t* marks, int64_t marks_stride,
                         int64_t g, int64_t begin, int64_t end, bool shared, int32_t* next, uint64_t* lists);
    // Takes entries of lists apart.
    void (*unzip)(const uint64_t* entries, int64_t count, int32_t* ids, float* scores);
    // Keeps the scores that may be among the k best, and their ids, and returns how many they are: k, or somewhat more
    // where scores are equal or nearly so. There is room for FILLING more of both; `count` is at least k.
    int64_t (*thin_out)(float* scores, int32_t* ids, int64_t count, int64_t k);
    // Writes the k best of `count` scores with their ids, best first and equal ones by id, and returns true; or returns
    // false where many are equal. `count` is at most MOST_RANKED.
    bool (*rank)(const float* scores, const int32_t* ids, int64_t count, int64_t k, int32_t* best_ids, float* best_scores);
};

constexpr int64_t FILLING = 16, MOST_RANKED = 1024, MOST_GROUPS = 64;

extern const FewLoops few_loops;

}  // namespace manifind
