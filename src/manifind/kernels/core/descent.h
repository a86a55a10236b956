// Nearly the k most similar other rows of each row, by comparing rows with the neighbours of their neighbours.
//
// After Dong, Charikar and Li (WWW 2011), arranged so that nearly all the work is products of matrices in eight bits:
//
//  1. Rows are compressed once to int8 (where the level has no products of them, the float32 rows are read in place).
//  2. A rough k-means with many means orders the rows, so that like ones lie side by side. From here on a row is known
//     by its place in that order, and 64 consecutive ones are a group.
//  3. Each group meets the rows of the cells around it: those are the first lists. A row whose list lies within what
//     eight bits can tell apart, a frame among frames of a video say, is close to others: from here on what it meets is
//     scored in float32 wherever the rounding leaves a doubt.
//  4. Pass by pass, each row looks along the links to it and from it, two steps far, and proposes the rows that most of
//     these ways lead to; its group meets what its rows propose. Only ways with a link that is new since the pass
//     before count, and a group meets nobody twice. A pair that meets is offered to the lists of both its rows.
//  5. When few links are new, the lists, a little longer than k, are scored anew in float32 and cut.
//
// A pass proposes by the lists as they were at its beginning, and what a list keeps of what it is offered does not
// depend on the order of the offers: the answer is the same however many threads work.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "loops.h"
#include "memory.h"
#include "neighbours.h"

namespace manifind {

class Descent {
   public:
    Descent(const Rows& vectors, int64_t k, uint64_t seed, int threads, int32_t* ids, float* similarities);
    // Does a part of the work; returns how much of it is done, as a number of rows: n when the lists are complete.
    int64_t step();

   private:
    // A score and an id in one number: the larger is the better, and equal scores are ordered by id.
    using Key = uint64_t;

    // What a thread works with.
    struct Scratch {
        Packed left, right;
        std::vector<Hit> hits;
        // The best of what each row on the left has met: `counts` of them, in `room` places each.
        std::vector<Key> best, least;
        std::vector<int64_t> counts;
        int64_t rows = 0, keep = 0, room = 0;
        std::vector<int32_t> group, others, hop, touched;
        std::vector<uint16_t> votes;
        std::vector<float> floats, sums;
        std::vector<int32_t> doubtful;  // places to be scored exactly with one place
    };

    // Stages are cut into tasks, of which a step does some; `end` starts the next stage.
    struct Stage {
        int64_t tasks;
        double share;  // of all the work, that is done when it ends
        std::function<void(int64_t, Scratch&)> work;
        std::function<void()> end;
    };
    void start(int64_t tasks, double share, std::function<void(int64_t, Scratch&)> work, std::function<void()> end);

    void start_compressing();
    void squeeze(const float* row, int64_t place);
    void start_telling_apart();
    void tell_apart(int64_t place, Scratch& s);
    void score_exactly(int32_t place, Scratch& s) const;
    void choose_means();
    void set_mean(int64_t mean, const float* row);
    void start_coarse(int round);
    void start_cells(int round);
    void start_averaging(int round);
    void arrange();
    void start_opening();
    void open(int64_t group, Scratch& s);
    int64_t alone_count(int64_t group) const;
    void start_pass();
    int64_t link();
    void propose(Scratch& s) const;
    void start_scoring();
    void score(int64_t group, Scratch& s);

    int64_t fill_group(int64_t group, Scratch& s) const;
    void pack(const int32_t* places, int64_t count, int height, int64_t multiple, Packed& to) const;
    void fetch(const int32_t* places, int64_t count) const;
    void begin(const int32_t* places, int64_t count, int64_t keep, Scratch& s) const;
    void meet(const int32_t* places, const int32_t* labels, int64_t count, const int32_t* own, Scratch& s) const;
    void compact(int64_t row, Scratch& s) const;
    void exchange(const std::vector<int32_t>& group, const int32_t* others, int64_t count, Scratch& s);
    void offer(int64_t place, float score, int32_t id);

    const Loops& loops_;
    const Rows vectors_;
    int64_t n_, d_, k_, keep_;
    uint64_t seed_;
    int threads_;
    int32_t* ids_;
    float* similarities_;
    Packing packing_;
    int words_;

    // Rows in int8, and the means after them; in float32 only the means are held.
    std::vector<int8_t, OnLines<int8_t>> bytes_;
    std::vector<float> scales_, means_;
    std::vector<int32_t> biases_;
    std::vector<int32_t> order_;  // place -> row
    std::vector<float> spread_;   // what rounding does to the product of a row with one like it: a standard deviation
    std::vector<char> close_;     // rows that eight bits cannot tell from their neighbours
    std::atomic<bool> any_close_{false};

    // Each row is near some means, found among those near the coarse mean that it is nearest to.
    int64_t means_count_, coarse_count_, near_count_, probes_count_;
    std::vector<int32_t> numbers_, rows_, coarse_of_, near_, probes_;
    std::vector<int64_t> cells_;  // the places that have a mean as their nearest begin here

    // The lists, best first: as they were when the pass began, and as they are.
    std::vector<int32_t> before_, now_;
    std::vector<float> scores_;
    struct State {
        std::atomic<float> threshold{0};
        std::atomic_flag lock = ATOMIC_FLAG_INIT;
    };
    std::unique_ptr<State[]> states_;
    // Links to each row, and links to or from it that are new: some of them, the strongest first.
    std::vector<int32_t> back_, back_counts_, fresh_, fresh_counts_;
    std::vector<std::vector<int32_t>> met_;  // by each group
    int64_t groups_;
    int passes_ = 0;

    Stage stage_{};
    int64_t task_ = 0;
    double share_before_ = 0;
    bool finished_ = false;
    std::vector<Scratch> scratch_;
};

}  // namespace manifind
