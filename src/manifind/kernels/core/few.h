// The k most similar other rows of each of few rows, exactly.
//
// Each pair is multiplied once, in int8, and all products are kept as estimates of 16 bits: few rows alone have room for
// that. Estimates lie in tiles of a strip of rows by a strip of rows, of which only the upper triangle is kept: a tile below
// the diagonal is the one across it, turned. The k best estimates of a row set its level. The rows whose estimates may reach
// the level, given how far rounding can be off, are marked and scored in float32, a pair once for both of its rows. A margin
// below the level allows for the rounding of the k best themselves. The k-th best score then proves that the margin was
// wide enough, as it nearly always is. A row for which it was not is scored with all others: no neighbour is lost. Equal
// scores are ordered by id.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "few_loops.h"
#include "memory.h"

namespace manifind {

class FewRows {
   public:
    // Multiplies all pairs and marks those to be scored. Returns null where another way is better: where this machine does
    // not multiply int8, where what it holds would take more than `memory` bytes, where rows are so unlike in length that
    // estimates say nothing, or so alike that most pairs would be scored. Throws std::invalid_argument where values are
    // not finite, or huge.
    static std::unique_ptr<FewRows> of(const Rows& vectors, int64_t k, int64_t memory, int threads, int32_t* ids,
                                       float* similarities);
    // Scores what was marked and writes the lists.
    void finish();
    // Of the rows, those that were scored with all others.
    int64_t searched_again() const { return again_; }

   private:
    using Aligned = std::vector<float, OnLines<float>>;
    FewRows(const Rows& vectors, int64_t k, int64_t memory, int threads, int32_t* ids, float* similarities);
    int16_t* tile(int64_t row, int64_t column) const;
    void pack();
    bool bound();
    void estimate();
    bool mark();
    int32_t find_level(const int16_t* estimates, int32_t start) const;
    bool make_room();
    void score();
    void write_lists();
    void search_again(int64_t row);
    void write_best(int64_t row, float* scores, int32_t* ids, int64_t count);

    const Rows vectors_;
    const int64_t n_, d_, k_, most_bytes_;
    const int threads_;
    int32_t* ids_;
    float* similarities_;
    const FewLoops& loops_;
    const int words_;       // of a packed row
    const int64_t strip_, strips_;  // rows of a strip, and how many strips all rows fill
    const int64_t room_;    // rows, filled up to whole strips
    const int64_t stride_;  // of the estimates of a row, and of the marks of a group
    const int64_t width_;   // of a row in float32
    const int64_t of_tiles_, of_packed_, of_marks_;  // bytes
    Zeroed<char> memory_;                            // for all of these, one after the other
    int16_t* const tiles_;
    uint32_t* const left_;
    uint32_t* const right_;
    uint8_t* const marks_;
    std::vector<float> scales_, errors_, lengths_;
    std::vector<int32_t> biases_;
    float unit_ = 0;                          // what a score of one is as an estimate
    std::vector<int16_t> slack_, own_slack_;  // the most by which rounding a row changes estimates, as column and as row
    int32_t margin_ = 0;                      // by which the k-th best estimate may be above the k-th best score
    std::vector<int32_t> levels_, counts_;    // of each row: what its marks reach, and how many they are
    std::vector<int32_t> starts_;             // of the list of each row
    std::atomic<int64_t> again_{0};
    // The rows in float32, and the lists: where the tiles and the packed rows were, or, as far
    // as there is no room, in memory of their own.
    std::unique_ptr<Zeroed<char>> more_memory_;
    float* rows_ = nullptr;
    uint64_t* lists_ = nullptr;
};

}  // namespace manifind
