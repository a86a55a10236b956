// NN-Descent: nearly the k most similar other rows of each row, by comparing rows with neighbours of neighbours.
//
// After Dong, Charikar and Li (WWW 2011), arranged so that nearly all the work is matrix products in int8:
//
//  1. Rows are quantized once to int8 (without int8 products, float32 rows are read in place).
//  2. A rough k-means with many means orders the rows, so that similar rows are adjacent. From then on a row is known
//     by its place in that order, and 64 consecutive rows are a group.
//  3. Each group is joined with the rows of the cells around it, which gives the first lists. A row whose list spans
//     less than the quantization error (a frame of a video, say) is ambiguous: its scores are rescored in float32 where
//     rounding leaves doubt.
//  4. In each pass a row votes for the rows two links away, in either direction, and proposes those with the most
//     votes; its group is joined with the proposals of its rows. Only paths with a new link count, and a group is
//     joined with a row once. A pair may enter the lists of both its rows.
//  5. When few links are new, the lists, which are a little longer than k, are rescored in float32 and truncated.
//
// A pass proposes by the lists at its start, and a list does not depend on the order of insertions: the result does not
// depend on the number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels.h"
#include "memory.h"
#include "self_join.h"

namespace manifind {

class NNDescent {
   public:
    NNDescent(const Rows& vectors, int64_t k, uint64_t seed, int threads, int32_t* ids, float* similarities);
    // Does a part of the work and returns how much is done, as a number of rows: n when the lists are complete.
    int64_t step();

   private:
    // A score and an id in one number (topk.h).
    using Key = uint64_t;

    // Buffers of one thread.
    struct ThreadState {
        PackedRows left, right;
        std::vector<Hit> hits;
        // The best candidates of each left-hand row: `counts` of them, with `capacity` places each.
        std::vector<Key> best, kth_keys;
        std::vector<int64_t> counts;
        int64_t rows = 0, keep = 0, capacity = 0;
        std::vector<int32_t> group, proposed, hop_links, touched;
        std::vector<uint16_t> votes;
        std::vector<float> floats, sums;
        std::vector<int32_t> doubtful;  // places to rescore with one place
    };

    // A stage has tasks, of which a step does some; `end` starts the next stage.
    struct Stage {
        int64_t tasks;
        double share;  // of all work, done when the stage ends
        std::function<void(int64_t, ThreadState&)> work;
        std::function<void()> end;
    };
    void start(int64_t tasks, double share, std::function<void(int64_t, ThreadState&)> work, std::function<void()> end);

    void start_quantizing();
    void quantize_row(const float* row, int64_t place);
    void start_rescoring();
    void rescore_exact(int64_t place, ThreadState& state);
    void score_doubtful(int32_t place, ThreadState& state) const;
    void choose_means();
    void set_mean(int64_t mean, const float* row);
    void start_coarse(int round);
    void start_cells(int round);
    void start_averaging(int round);
    void order_rows();
    void start_initial_lists();
    void initialize_group(int64_t group, ThreadState& state);
    int64_t initial_count(int64_t group) const;
    void start_pass();
    int64_t snapshot_links();
    void propose(ThreadState& state) const;
    void start_final_scoring();
    void score_group(int64_t group, ThreadState& state);

    int64_t fill_group(int64_t group, ThreadState& state) const;
    void pack_rows(const int32_t* places, int64_t count, int height, int64_t multiple, PackedRows& to) const;
    void prefetch_rows(const int32_t* places, int64_t count) const;
    void begin_tile(const int32_t* places, int64_t count, int64_t keep, ThreadState& state) const;
    void score_tile(const int32_t* places, const int32_t* labels, int64_t count, const int32_t* own_places,
                    ThreadState& state) const;
    void compact(int64_t row, ThreadState& state) const;
    void join_group(const std::vector<int32_t>& group, const int32_t* others, int64_t count, ThreadState& state);
    void try_insert(int64_t place, float score, int32_t id);

    const Kernels& kernels_;
    const Rows vectors_;
    int64_t n_, d_, k_, keep_;
    uint64_t seed_;
    int threads_;
    int32_t* ids_;
    float* similarities_;
    Packing packing_;
    int words_;

    // Rows in int8, followed by the means; in float32 the means alone.
    std::vector<int8_t, CacheAligned<int8_t>> bytes_;
    std::vector<float> scales_, means_;
    std::vector<int32_t> biases_;
    std::vector<int32_t> order_;  // place -> row
    // Standard deviation of a product's quantization error, between similar rows.
    std::vector<float> rounding_deviation_;
    std::vector<char> ambiguous_;  // rows that int8 cannot tell from their neighbours
    std::atomic<bool> any_ambiguous_{false};

    // Each row's nearest means, found among those near its nearest coarse mean.
    int64_t means_count_, coarse_count_, near_count_, probes_count_;
    std::vector<int32_t> numbers_, rows_, coarse_of_, near_, probes_;
    std::vector<int64_t> cells_;  // start of each mean's places

    // The lists, best first: at the start of the pass, and current.
    std::vector<int32_t> previous_, current_;
    std::vector<float> scores_;
    struct RowState {
        std::atomic<float> threshold{0};
        std::atomic_flag lock = ATOMIC_FLAG_INIT;
    };
    std::unique_ptr<RowState[]> row_states_;
    // Reverse links of each row, and new links from or to it: the strongest, up to a maximum.
    std::vector<int32_t> reverse_links_, reverse_counts_, new_links_, new_counts_;
    std::vector<std::vector<int32_t>> compared_;  // by group
    int64_t groups_;
    int passes_ = 0;

    Stage stage_{};
    int64_t task_ = 0;
    double share_before_ = 0;
    bool finished_ = false;
    std::vector<ThreadState> thread_states_;
};

}  // namespace manifind
