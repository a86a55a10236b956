// Exact k-NN self-join: the k most similar other rows of each row, by all inner products, each pair once.
//
// Products are computed in low precision, tile by tile. A pair is rescored in float32 where its product plus the error
// bound reaches the threshold of one of its rows, while both rows are in the cache. So no neighbour is lost. Rows are
// visited in random order: the rows seen so far are a sample, from which thresholds are estimated early. The end checks
// every estimate; rows whose estimate was too high are scanned again without one. Ties are ordered by id, so lists do
// not depend on the number of threads.
//
// Few rows keep the products of all pairs until the top k are selected (small_self_join.h).
//
// Where more than k rows are identical, one of them is searched for all.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "kernels.h"
#include "memory.h"
#include "small_self_join.h"

namespace manifind {

struct Candidate {
    float score;
    int32_t id;
};

// The quantization scale of each row, and its error bound.
struct QuantizationErrors {
    std::vector<float> scales;
    // The error of a product is at most the sum of both rows' offsets.
    std::vector<float> offsets;
    QuantizationErrors(Packing packing, const Rows& vectors, int threads);
};

// Rows packed for the kernel `scan`.
struct PackedRows {
    std::vector<uint32_t, CacheAligned<uint32_t>> words;
    std::vector<float> thresholds, offsets, scales;
    std::vector<int32_t> biases;
    std::vector<float, CacheAligned<float>> floats;  // the rows in float32, if kept
    int row_words = 0;
    // Packs rows in panels of `height` rows, of which `used_height` are filled, and pads to a multiple of `multiple`
    // rows. The height is GROUP on the left-hand side and PANEL on the right.
    void fill(Packing packing, const Rows& vectors, const int64_t* rows, int64_t count, int height, int used_height,
              int64_t multiple, const QuantizationErrors& errors, bool keep, int threads);
    ScanPanel from(int64_t row) const;
};

// Groups of identical rows, if one has more than `max_copies`; otherwise each row is its own group.
struct DuplicateRows {
    std::vector<int32_t> representatives;  // the first row of each group, ascending
    std::vector<int32_t> group_of;         // by row; empty where each row is its own group
    std::vector<int64_t> group_starts;     // rows of a group: group_members[group_starts[group]] …, ascending
    std::vector<int32_t> group_members;
    DuplicateRows(const Rows& vectors, int64_t max_copies, int threads);
};

class SelfJoin {
   public:
    SelfJoin(const Rows& vectors, int64_t k, int64_t memory, int threads, int32_t* ids, float* similarities);
    // Does a part of the work and returns how many rows are done.
    int64_t step();
    // How many rows were scanned twice.
    int64_t rescanned_rows() const { return rescanned_rows_; }

   private:
    // Buffers of one thread.
    struct ThreadState {
        PackedRows right;
        std::vector<Hit> hits;
        std::vector<Candidate> row_candidates;
        std::vector<uint64_t> keys;            // candidates of one row
        std::vector<int32_t> matches, counts;  // right-hand rows to score with each row of a tile
        std::vector<float> scores, row_thresholds;
        // Candidates of the right-hand rows, pushed in batches.
        std::vector<Candidate> pending;
        std::vector<int32_t> pending_counts;
    };
    void start_band();
    void finish_band();
    void search(const std::vector<int32_t>& places, bool first_pass);
    void scan_block(const std::vector<int32_t>& places, int64_t begin, int64_t end, bool both, bool guess, int64_t seen,
                    ThreadState& state);
    void push_candidates(int64_t place, const Candidate* candidates, int64_t count, int64_t rank, ThreadState& state);
    void compact(int64_t place, int64_t rank, ThreadState& state);
    void load(int64_t place, std::vector<uint64_t>& to) const;
    void save(int64_t place, const std::vector<uint64_t>& from);
    bool finish_row(int64_t place, ThreadState& state);
    void copy_to_duplicates();

    // A row of the band. Its first k candidates are in the output lists, the others in `overflow_`.
    struct RowState {
        std::atomic<float> threshold{-std::numeric_limits<float>::infinity()};
        int32_t last = std::numeric_limits<int32_t>::max();  // the last id that counts among ties with the threshold
        uint64_t guessed_key = 0;                            // the key that the estimated threshold stands for
        int32_t count = 0;
        std::atomic_flag lock = ATOMIC_FLAG_INIT;
    };

    const Rows vectors_;
    const DuplicateRows duplicates_;
    const int64_t width_;      // of the output lists
    const int64_t n_, d_, k_;  // distinct rows, which are joined
    const Packing packing_;
    int threads_;
    int32_t* ids_;
    float* similarities_;
    const std::unique_ptr<SmallSelfJoin> small_join_;  // null for many rows
    QuantizationErrors errors_;
    std::vector<int64_t> order_;  // place -> row
    bool duplicates_copied_ = false;
    // A band is the range of the order whose candidates are in memory; places count from its start.
    int64_t band_begin_ = 0, band_end_ = 0, band_size_ = 0, next_place_ = 0, overflow_size_ = 0, block_ = 0,
            rescanned_rows_ = 0;
    std::vector<Candidate> overflow_;
    std::unique_ptr<RowState[]> row_states_;
    PackedRows left_;
    std::vector<ThreadState> thread_states_;
};

}  // namespace manifind
