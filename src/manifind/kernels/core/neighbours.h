// The k most similar other rows of each row, by all inner products, each pair once.
//
// Products are taken in low precision, tile by tile. A pair whose product, plus the most that low precision can be off,
// reaches the threshold of one of its rows is scored anew in float32, at once, while both rows are in the cache, and
// becomes a candidate if the true score reaches it. No neighbour is lost that way: exactness does not depend on luck.
// Rows are visited in random order, so that what was seen so far is a sample: from it a threshold is guessed that lets
// few through from the beginning. At the end it is checked that no guess was too high; rows for which one was are
// searched again without guessing. Equal scores are ordered by id, so that lists do not depend on the number of threads.
//
// Of few rows the products of all pairs are kept until the best are chosen (few.h).
//
// Where more than k rows are the same, bit for bit, one of them is searched for all.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "few.h"
#include "loops.h"
#include "memory.h"

namespace manifind {

struct Candidate {
    float score;
    int32_t id;
};

// What low precision makes of rows: the scale of their integers, and how far the rounded row is from the row.
struct Rounding {
    std::vector<float> scales;
    // Of each row; the product of two rows is off by the sum of theirs at most.
    std::vector<float> offsets;
    Rounding(Packing packing, const Rows& vectors, int threads);
};

// Rows packed for `scan`, with what goes with them.
struct Packed {
    std::vector<uint32_t, OnLines<uint32_t>> words;
    std::vector<float> thresholds, offsets, scales;
    std::vector<int32_t> biases;
    std::vector<float, OnLines<float>> floats;  // the rows themselves, if they are kept
    int words_of_row = 0;
    // Packs the given rows, filled up to a multiple of `multiple`, in panels of so many rows: GROUP on the left-hand
    // side, of which the first `used` are taken, PANEL on the right.
    void fill(Packing packing, const Rows& vectors, const int64_t* rows, int64_t count, int height, int used,
              int64_t multiple, const Rounding& rounding, bool keep, int threads);
    Block from(int64_t row) const;
};

// Rows that are the same, if there are more than `many` of them anywhere; else every row is by itself.
struct Equals {
    std::vector<int32_t> first;     // of each kind the first row, ascending
    std::vector<int32_t> kind;      // of each row; empty where every row is by itself
    std::vector<int64_t> starts;    // the rows of a kind: members[starts[kind]] …, ascending
    std::vector<int32_t> members;
    Equals(const Rows& vectors, int64_t many, int threads);
};

class Neighbours {
   public:
    Neighbours(const Rows& vectors, int64_t k, int64_t memory, int threads, int32_t* ids, float* similarities);
    // Does a part of the work; returns how many rows are done.
    int64_t step();
    // Of the rows, those that were searched a second time.
    int64_t searched_again() const { return again_total_; }

   private:
    // What a thread works with.
    struct Scratch {
        Packed right;
        std::vector<Hit> hits;
        std::vector<Candidate> row_candidates;
        std::vector<uint64_t> keys;  // of the candidates of one row
        std::vector<int32_t> met, counts;  // the rows of the right that each row of a tile is scored with
        std::vector<float> scores, row_thresholds;
        // Candidates of the rows of the right, some of each, until they are pushed together.
        std::vector<Candidate> waiting;
        std::vector<int32_t> waiting_counts;
    };
    void start_band();
    void finish_band();
    void search(const std::vector<int32_t>& places, bool turn);
    void scan_block(const std::vector<int32_t>& places, int64_t begin, int64_t end, bool both, bool guess,
                    int64_t seen, Scratch& scratch);
    void push(int64_t place, const Candidate* some, int64_t count, int64_t rank, Scratch& scratch);
    void compact(int64_t place, int64_t rank, Scratch& scratch);
    void load(int64_t place, std::vector<uint64_t>& to) const;
    void save(int64_t place, const std::vector<uint64_t>& from);
    bool finish_row(int64_t place, Scratch& scratch);
    void give_to_equals();

    // A row of the band. Its candidates: the first k in the lists that are returned, the others in `spare_`.
    struct State {
        std::atomic<float> threshold{-std::numeric_limits<float>::infinity()};
        int32_t last = std::numeric_limits<int32_t>::max();  // of those that score as the threshold, the last id that counts
        uint64_t guess = 0;  // the key of the last that was guessed to count
        int32_t count = 0;
        std::atomic_flag lock = ATOMIC_FLAG_INIT;
    };

    const Rows vectors_;
    const Equals equals_;
    const int64_t width_;      // of the lists that are returned
    const int64_t n_, d_, k_;  // rows that are searched, by each other
    const Packing packing_;
    int threads_;
    int32_t* ids_;
    float* similarities_;
    const std::unique_ptr<FewRows> few_;  // what searches them, where they are few
    Rounding rounding_;
    std::vector<int64_t> order_;  // place -> row
    bool given_ = false;          // to the equals
    // Rows whose candidates are held at a time are a band of the order; places count from its beginning.
    int64_t band_begin_ = 0, band_end_ = 0, band_ = 0, at_ = 0, spare_size_ = 0, block_ = 0, again_total_ = 0;
    std::vector<Candidate> spare_;
    std::unique_ptr<State[]> states_;
    Packed left_;
    std::vector<Scratch> scratch_;
};

}  // namespace manifind
