// Kernels of SmallSelfJoin. Only levels with int8 products have them.
#pragma once

#include <cstdint>

#include "kernels.h"

namespace manifind {

constexpr int16_t NO_ESTIMATE = INT16_MIN;  // of a row with itself, and of padding
constexpr int64_t ESTIMATE_ALIGNMENT = 64;  // rows of estimates and of marks are padded to a multiple

struct SmallSelfJoinKernels {
    // Estimates of two strips of rows: products times both scales and `unit`, rounded. Row i, column j goes to tile[i ·
    // strip + j].
    void (*estimate)(int words, const QuantizedPanel& a, const QuantizedPanel& b, float unit, int16_t* tile);
    // Copies row i of a tile, or column i if `transposed`, to out[i · stride] …
    void (*unfold)(const int16_t* tile, bool transposed, int16_t* out, int64_t stride);
    // How many of n estimates reach the level; n is a multiple of ESTIMATE_ALIGNMENT.
    int64_t (*count)(const int16_t* estimates, int64_t n, int16_t level);
    // For up to eight rows of estimates: bit r of marks[j] is whether estimate j of row r plus slack[j] reaches
    // levels[r]. Adds each row's number of marks to `counts`. n as for `count`.
    void (*mark)(const int16_t* estimates, int64_t stride, int rows, int64_t n, const int16_t* slack,
                 const int16_t* levels, uint8_t* marks, int32_t* counts);
    // Scores the marked pairs of group g of eight rows with groups begin ≥ g … end, at most MAX_GROUPS of them. A pair
    // that either row marks is scored once and written to the list of each row that marks the other: to
    // lists[next[row]++]. An entry has the other row in its upper half and the product in its lower. `rows` has all
    // rows of d values, `stride` apart; the marks of groups lie `marks_stride` apart. With `shared`, other threads
    // write to the same lists. Lists have room for one entry more. Products are bitwise those of `Kernels::dots`.
    void (*score_marked)(const float* rows, int64_t d, int64_t stride, const uint8_t* marks, int64_t marks_stride,
                         int64_t g, int64_t begin, int64_t end, bool shared, int32_t* next, uint64_t* lists);
    // Splits entries into ids and scores.
    void (*split_entries)(const uint64_t* entries, int64_t count, int32_t* ids, float* scores);
    // Keeps the scores that may be among the top k, and their ids; returns how many: k, or somewhat more among near
    // ties. Both arrays are padded by TOPK_PADDING; `count` is at least k.
    int64_t (*keep_topk_candidates)(float* scores, int32_t* ids, int64_t count, int64_t k);
    // Writes the top k of `count` ≤ MAX_RANKED scores with ids, best first, ties by id; returns false where there are
    // many ties.
    bool (*sort_topk)(const float* scores, const int32_t* ids, int64_t count, int64_t k, int32_t* best_ids,
                      float* best_scores);
};

constexpr int64_t TOPK_PADDING = 16, MAX_RANKED = 1024, MAX_GROUPS = 64;

extern const SmallSelfJoinKernels small_self_join_kernels;

}  // namespace manifind
