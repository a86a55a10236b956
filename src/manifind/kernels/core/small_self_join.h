// Exact k-NN self-join of few rows, which keeps an estimate of every product.
//
// Each pair is multiplied once in int8, and its product is kept as an estimate of 16 bits. Estimates lie in tiles of
// strip by strip, of which the upper triangle is stored; a tile below the diagonal is the transposed one above. The k
// best estimates of a row set its level. Pairs whose estimates may reach the level, given the error bound, are marked
// and scored in float32, once for both rows. A margin below the level allows for the rounding of the top k themselves.
// The k-th best score proves afterwards that the margin sufficed, as it nearly always does. Otherwise the row is scored
// with all others: no neighbour is lost. Ties are ordered by id.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "memory.h"
#include "small_self_join_kernels.h"

namespace manifind {

class SmallSelfJoin {
   public:
    // Multiplies all pairs and marks those to score. Returns null where SelfJoin is better: without int8 products, with
    // more than `memory` bytes, or where rows are so unequal in length, or so similar, that estimates do not help.
    // Throws std::invalid_argument for values that are not finite, or huge.
    static std::unique_ptr<SmallSelfJoin> create(const Rows& vectors, int64_t k, int64_t memory, int threads,
                                                 int32_t* ids, float* similarities);
    // Scores the marked pairs and writes the lists.
    void finish();
    // How many rows were scored with all others.
    int64_t rescanned_rows() const { return rescanned_rows_; }

   private:
    using Aligned = std::vector<float, CacheAligned<float>>;
    SmallSelfJoin(const Rows& vectors, int64_t k, int64_t memory, int threads, int32_t* ids, float* similarities);
    int16_t* tile(int64_t row, int64_t column) const;
    void pack_rows();
    bool bound_errors();
    void estimate_products();
    bool mark_candidates();
    int32_t find_level(const int16_t* estimates, int32_t start) const;
    bool allocate_lists();
    void score_marked_pairs();
    void write_lists();
    void rescan_row(int64_t row);
    void write_topk(int64_t row, float* scores, int32_t* ids, int64_t count);

    const Rows vectors_;
    const int64_t n_, d_, k_, max_bytes_;
    const int threads_;
    int32_t* ids_;
    float* similarities_;
    const SmallSelfJoinKernels& kernels_;
    const int words_;               // in a packed row
    const int64_t strip_, strips_;  // rows in a strip; number of strips
    const int64_t padded_rows_;
    const int64_t stride_;                                    // of a row of estimates and of a group of marks
    const int64_t float_stride_;                              // of a row in float32, padded
    const int64_t tiles_bytes_, packed_bytes_, marks_bytes_;  // bytes
    ZeroedArray<char> memory_;                                // for all of these
    int16_t* const tiles_;
    uint32_t* const left_;
    uint32_t* const right_;
    uint8_t* const marks_;
    std::vector<float> scales_, errors_, lengths_;
    std::vector<int32_t> biases_;
    float unit_ = 0;  // the estimate of a score of 1
    std::vector<int16_t> column_slack_,
        row_slack_;                         // most by which quantizing a row changes estimates
    int32_t margin_ = 0;                    // allowed excess of the k-th best estimate over the k-th best score
    std::vector<int32_t> levels_, counts_;  // by row: lowest marked level, number of marks
    std::vector<int32_t> starts_;           // of each row's list
    std::atomic<int64_t> rescanned_rows_{0};
    // The rows in float32 and the lists. They reuse the memory of tiles and packed rows, as far as that suffices.
    std::unique_ptr<ZeroedArray<char>> extra_memory_;
    float* rows_ = nullptr;
    uint64_t* lists_ = nullptr;
};

}  // namespace manifind
