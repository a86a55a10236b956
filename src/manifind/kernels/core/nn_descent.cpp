#include "nn_descent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "parallel.h"
#include "topk.h"

namespace manifind {
namespace {

constexpr int64_t ROWS_PER_TASK = 1024;

constexpr int64_t ROWS_PER_MEAN = 64;
constexpr int64_t KMEANS_ROWS_PER_TASK = 256;
constexpr int64_t MAX_NEAR_MEANS = 800;  // compared with each row
constexpr int64_t MAX_PROBES = 6;        // means kept for each row
constexpr int KMEANS_ROUNDS = 2;
constexpr int64_t KMEANS_SAMPLING = 4;  // one row in 4, in all rounds but the last

constexpr int64_t GROUP_ROWS = 64;
constexpr int64_t MAX_CELL_ROWS = 500;
constexpr int64_t MIN_INITIAL_ROWS = 700;  // rows of cells that a group is joined with for initial lists,
constexpr int64_t MIN_FIRST_ROWS = 2000;   // and before the first pass in all; for long lists, times their length:
constexpr int64_t INITIAL_TIMES = 4, FIRST_TIMES = 8;

// Larger limits find more and take longer.
constexpr int64_t MAX_FIRST_HOP = 64;   // links of a row that are followed
constexpr int64_t MAX_SECOND_HOP = 32;  // links followed from there
constexpr int64_t MAX_REVERSE = 32;     // reverse links kept, of the best entries of each list
constexpr int64_t MAX_NEW = 32;         // new links kept for a row
constexpr int64_t MAX_PROPOSED = 60;    // by each row
constexpr int MAX_PASSES = 10;
constexpr double MIN_NEW_SHARE = 0.001;  // share of new links below which passes end

constexpr float AMBIGUITY_DEVIATIONS = 24;  // span of an ambiguous list, in deviations of rounding
constexpr float DOUBT_DEVIATIONS = 4;       // margin of ambiguous products for each row, in deviations of rounding

constexpr int64_t EXTRA_ENTRIES = 10;  // entries beyond k, as int8 confuses one or two at the end

constexpr int32_t ID_BITS = 0x7fffffff;  // bits of a link with the id; the sign bit marks new links

// Sorts rows by label (stable); returns the start of each label.
template <class Label>
std::vector<int64_t> sort_by(std::vector<int32_t>& rows, int64_t labels, Label label) {
    std::vector<int64_t> starts(labels + 1, 0);
    for (int32_t row : rows) ++starts[label(row) + 1];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    std::vector<int64_t> at(starts.begin(), starts.end() - 1);
    std::vector<int32_t> sorted(rows.size());
    for (int32_t row : rows) sorted[at[label(row)]++] = row;
    rows = std::move(sorted);
    return starts;
}

template <class T>
void free_vector(std::vector<T>& vector) {
    std::vector<T>().swap(vector);
}

}  // namespace

NNDescent::NNDescent(const Rows& vectors, int64_t k, uint64_t seed, int threads, int32_t* ids, float* similarities)
    : kernels_(kernels()),
      vectors_(vectors),
      n_(vectors.n),
      d_(vectors.d),
      k_(k),
      keep_(std::min(n_ - 1, k + EXTRA_ENTRIES)),
      seed_(seed),
      threads_(threads),
      ids_(ids),
      similarities_(similarities),
      packing_(packing_for(d_)),
      words_(words_per_row(packing_, d_)),
      order_(n_),
      means_count_(std::max<int64_t>(1, n_ / ROWS_PER_MEAN)),
      coarse_count_(std::clamp<int64_t>(int64_t(1.5 * std::sqrt(double(means_count_))), 1, means_count_)),
      near_count_(std::min(means_count_, MAX_NEAR_MEANS)),
      probes_count_(std::min(near_count_, MAX_PROBES)),
      groups_((n_ + GROUP_ROWS - 1) / GROUP_ROWS),
      thread_states_(threads) {
    std::iota(order_.begin(), order_.end(), 0);
    start_quantizing();
}

// -- stages -----------------------------------------------------------------------------------------------------------

void NNDescent::start(int64_t tasks, double share, std::function<void(int64_t, ThreadState&)> work,
                      std::function<void()> end) {
    share_before_ = stage_.share;
    stage_ = {tasks, share, std::move(work), std::move(end)};
    task_ = 0;
}

int64_t NNDescent::step() {
    if (finished_) return n_;
    const int64_t batch = std::min<int64_t>(stage_.tasks - task_, 64 * threads_);
    parallel(batch, threads_, [&](int64_t task, int thread) { stage_.work(task_ + task, thread_states_[thread]); });
    task_ += batch;
    const double part = double(task_) / double(std::max<int64_t>(1, stage_.tasks));
    const double share = share_before_ + (stage_.share - share_before_) * part;
    if (task_ == stage_.tasks) {
        const std::function<void()> end = std::move(stage_.end);  // it replaces the stage
        end();
    }
    return finished_ ? n_ : std::min(n_ - 1, int64_t(share * double(n_)));
}

// -- rows -------------------------------------------------------------------------------------------------------------

void NNDescent::start_quantizing() {
    if (packing_ == Packing::int8) {
        bytes_.resize(size_t(n_ + means_count_) * words_ * 4);
        scales_.resize(n_ + means_count_);
        biases_.resize(n_ + means_count_);
        rounding_deviation_.resize(n_);
    } else {
        means_.resize(means_count_ * d_);
    }
    start((n_ + ROWS_PER_TASK - 1) / ROWS_PER_TASK, 0.05,
          [this](int64_t task, ThreadState& state) {
              state.floats.resize(d_);
              for (int64_t i = task * ROWS_PER_TASK; i < std::min(n_, (task + 1) * ROWS_PER_TASK); ++i) {
                  kernels_.to_float32(vectors_, i, state.floats.data());
                  bool finite = true;  // otherwise products are NaN, and lists stay short
                  for (float value : state.floats) finite &= std::fabs(value) <= MAX_NORM;
                  if (!finite) throw std::invalid_argument("vectors has values that are not finite, or huge");
                  if (packing_ == Packing::int8) quantize_row(state.floats.data(), i);
              }
          },
          [this] { choose_means(); });
}

void NNDescent::quantize_row(const float* row, int64_t place) {
    float error, length;
    kernels_.quantize(row, d_, words_ * 4, &bytes_[place * words_ * 4], &scales_[place], &biases_[place], &error,
                      &length);
    if (place < n_) rounding_deviation_[place] = error * length / std::sqrt(float(d_));
}

// Packs rows; places from n on are means.
void NNDescent::pack_rows(const int32_t* places, int64_t count, int height, int64_t multiple, PackedRows& to) const {
    const int64_t room = (count + multiple - 1) / multiple * multiple;
    to.row_words = words_;
    to.words.resize(size_t(room) * words_);
    to.thresholds.assign(room, UNREACHABLE);
    to.offsets.assign(room, 0);
    to.scales.assign(room, 0);
    to.biases.assign(room, 0);
    if (packing_ == Packing::float32) to.floats.resize(height * d_);
    for (int64_t panel = 0; panel < room; panel += height) {
        const int present = int(std::clamp<int64_t>(count - panel, 0, height));
        uint32_t* words = to.words.data() + panel * words_;
        if (packing_ == Packing::int8) {
            const int8_t* rows[PANEL];
            for (int i = 0; i < present; ++i) {
                const int64_t place = places[panel + i];
                rows[i] = bytes_.data() + place * words_ * 4;
                to.scales[panel + i] = scales_[place];
                to.biases[panel + i] = biases_[place];
            }
            kernels_.pack_int8(rows, present, height, words_, words);
        } else {
            for (int i = 0; i < present; ++i) {
                const int64_t place = places[panel + i];
                float* row = to.floats.data() + i * d_;
                if (place < n_)
                    kernels_.to_float32(vectors_, order_[place], row);
                else
                    std::copy_n(means_.data() + (place - n_) * d_, d_, row);
            }
            kernels_.pack(packing_, to.floats.data(), d_, present, height, words_, to.scales.data() + panel, words,
                          to.biases.data() + panel);
        }
    }
}

void NNDescent::prefetch_rows(const int32_t* places, int64_t count) const {
    if (packing_ != Packing::int8) return;
    for (int64_t i = 0; i < count; ++i)
        for (int64_t at = 0; at < words_ * 4; at += 64)
            __builtin_prefetch(bytes_.data() + int64_t(places[i]) * words_ * 4 + at, 0, 2);
}

// -- top candidates of a tile -----------------------------------------------------------------------------------------

void NNDescent::begin_tile(const int32_t* places, int64_t count, int64_t keep, ThreadState& state) const {
    pack_rows(places, count, GROUP, TILE_ROWS, state.left);
    state.rows = count;
    state.keep = keep;
    state.capacity = keep + std::max<int64_t>(keep, 64);
    state.best.resize(count * state.capacity);
    state.counts.assign(count, 0);
    state.kth_keys.assign(count, 0);
    std::fill_n(state.left.thresholds.begin(), count, NO_THRESHOLD);
}

// Scores the left-hand rows with those at `places`, which enter lists by their labels. A row is not scored with itself.
void NNDescent::score_tile(const int32_t* places, const int32_t* labels, int64_t count, const int32_t* own,
                           ThreadState& state) const {
    const int64_t strip = kernels_.strip;
    state.hits.resize(TILE_ROWS * strip);
    for (int64_t at = 0; at < count; at += strip) {
        const int64_t present = std::min(strip, count - at);
        prefetch_rows(places + at + present, std::min(strip, count - at - present));
        pack_rows(places + at, present, PANEL, strip, state.right);
        for (int64_t tile = 0; tile < state.rows; tile += TILE_ROWS) {
            const int groups = int((std::min(state.rows - tile, TILE_ROWS) + GROUP - 1) / GROUP);
            const size_t found = kernels_.scan(packing_, words_, groups, GROUP, state.left.from(tile),
                                               state.right.from(0), state.hits.data());
            for (size_t h = 0; h < found; ++h) {
                const int64_t row = tile + state.hits[h].row, j = state.hits[h].column;
                if (row >= state.rows || j >= present || (own && places[at + j] == own[row])) continue;
                const Key key = make_key(state.hits[h].score, labels[at + j]);
                if (key <= state.kth_keys[row]) continue;
                if (state.counts[row] == state.capacity) compact(row, state);
                state.best[row * state.capacity + state.counts[row]++] = key;
            }
        }
    }
    for (int64_t row = 0; row < state.rows; ++row) compact(row, state);
}

void NNDescent::compact(int64_t row, ThreadState& state) const {
    Key* keys = state.best.data() + row * state.capacity;
    if (state.counts[row] < state.keep) return;
    std::nth_element(keys, keys + state.keep - 1, keys + state.counts[row], descending);
    state.counts[row] = state.keep;
    state.kth_keys[row] = keys[state.keep - 1];
    state.left.thresholds[row] = key_score(state.kth_keys[row]);
}

// -- the order --------------------------------------------------------------------------------------------------------

void NNDescent::set_mean(int64_t mean, const float* row) {
    const int64_t place = n_ + mean;
    if (packing_ == Packing::int8)
        quantize_row(row, place);
    else
        std::copy_n(row, d_, &means_[mean * d_]);
}

// Draws rows at random as initial means. The first of these are the coarse means.
void NNDescent::choose_means() {
    numbers_.resize(n_ + means_count_);
    std::iota(numbers_.begin(), numbers_.end(), 0);
    std::vector<int32_t> drawn(numbers_.begin(), numbers_.begin() + n_);
    std::mt19937_64 random(seed_);
    std::vector<float> row(d_);
    for (int64_t mean = 0; mean < means_count_; ++mean) {
        std::swap(drawn[mean], drawn[mean + int64_t(random() % uint64_t(n_ - mean))]);
        kernels_.to_float32(vectors_, drawn[mean], row.data());
        set_mean(mean, row.data());
    }
    coarse_of_.resize(n_ + means_count_);
    near_.resize(coarse_count_ * near_count_);
    probes_.resize(n_ * probes_count_);
    start_coarse(1);
}

// Finds the means near each coarse mean, and the coarse mean nearest to each row and each mean.
void NNDescent::start_coarse(int round) {
    rows_.clear();
    for (int64_t i = round < KMEANS_ROUNDS ? round % KMEANS_SAMPLING : 0; i < n_;
         i += round < KMEANS_ROUNDS ? KMEANS_SAMPLING : 1)
        rows_.push_back(int32_t(i));
    const int64_t sampled = int64_t(rows_.size());
    for (int64_t i = 0; i < means_count_; ++i) rows_.push_back(int32_t(n_ + i));
    const int64_t before = (coarse_count_ + KMEANS_ROWS_PER_TASK - 1) / KMEANS_ROWS_PER_TASK;
    const auto work = [this, before](int64_t task, ThreadState& state) {
        const int32_t* means = numbers_.data() + n_;
        if (task < before) {
            const int64_t from = task * KMEANS_ROWS_PER_TASK,
                          count = std::min(KMEANS_ROWS_PER_TASK, coarse_count_ - from);
            begin_tile(means + from, count, near_count_, state);
            score_tile(means, numbers_.data(), means_count_, nullptr, state);
            for (int64_t i = 0; i < count; ++i)
                for (int64_t j = 0; j < near_count_; ++j)
                    near_[(from + i) * near_count_ + j] = key_id(state.best[i * state.capacity + j]);
        } else {
            const int64_t from = (task - before) * KMEANS_ROWS_PER_TASK;
            const int64_t count = std::min(KMEANS_ROWS_PER_TASK, int64_t(rows_.size()) - from);
            begin_tile(rows_.data() + from, count, 1, state);
            score_tile(means, numbers_.data(), coarse_count_, nullptr, state);
            for (int64_t i = 0; i < count; ++i) coarse_of_[rows_[from + i]] = key_id(state.best[i * state.capacity]);
        }
    };
    start(before + (int64_t(rows_.size()) + KMEANS_ROWS_PER_TASK - 1) / KMEANS_ROWS_PER_TASK, 0.05 + 0.04 * round, work,
          [this, round, sampled] {
              rows_.resize(sampled);
              start_cells(round);
          });
}

// Finds the means nearest to each row, among those near its coarse mean.
void NNDescent::start_cells(int round) {
    const std::vector<int64_t> starts = sort_by(rows_, coarse_count_, [this](int32_t row) { return coarse_of_[row]; });
    std::vector<std::pair<int64_t, int64_t>> parts;
    for (int64_t coarse = 0; coarse < coarse_count_; ++coarse)
        for (int64_t from = starts[coarse]; from < starts[coarse + 1]; from += KMEANS_ROWS_PER_TASK)
            parts.push_back({from, std::min(starts[coarse + 1], from + KMEANS_ROWS_PER_TASK)});
    const int64_t tasks = int64_t(parts.size()), keep = round < KMEANS_ROUNDS ? 1 : probes_count_;
    const auto work = [this, parts = std::move(parts), keep](int64_t task, ThreadState& state) {
        const int32_t* rows = rows_.data() + parts[task].first;
        const int64_t count = parts[task].second - parts[task].first;
        const int32_t* near = near_.data() + coarse_of_[rows[0]] * near_count_;
        state.proposed.resize(near_count_);
        for (int64_t j = 0; j < near_count_; ++j) state.proposed[j] = int32_t(n_ + near[j]);
        begin_tile(rows, count, keep, state);
        score_tile(state.proposed.data(), near, near_count_, nullptr, state);
        for (int64_t i = 0; i < count; ++i) {
            Key* best = state.best.data() + i * state.capacity;
            std::sort(best, best + keep, descending);
            for (int64_t j = 0; j < keep; ++j) probes_[rows[i] * probes_count_ + j] = key_id(best[j]);
        }
    };
    start(tasks, 0.07 + 0.04 * round, work,
          [this, round] { round < KMEANS_ROUNDS ? start_averaging(round) : order_rows(); });
}

void NNDescent::start_averaging(int round) {
    cells_ = sort_by(rows_, means_count_, [this](int32_t row) { return probes_[row * probes_count_]; });
    const auto work = [this](int64_t mean, ThreadState& state) {
        state.floats.resize(d_);
        state.sums.assign(d_, 0);
        for (int64_t c = cells_[mean]; c < cells_[mean + 1]; ++c) {
            const int64_t row = rows_[c];
            if (packing_ == Packing::int8) {
                const int8_t* bytes = bytes_.data() + row * words_ * 4;
                for (int64_t j = 0; j < d_; ++j) state.sums[j] += scales_[row] * float(bytes[j]);
            } else {
                kernels_.to_float32(vectors_, row, state.floats.data());
                for (int64_t j = 0; j < d_; ++j) state.sums[j] += state.floats[j];
            }
        }
        double squared = 0;
        for (float sum : state.sums) squared += double(sum) * sum;
        if (squared == 0) return;  // an empty cell keeps its mean
        for (float& sum : state.sums) sum = float(sum / std::sqrt(squared));
        set_mean(mean, state.sums.data());
    };
    start(means_count_, 0.08 + 0.04 * round, work, [this, round] { start_coarse(round + 1); });
}

// Orders rows by their nearest means: similar rows are adjacent, and so are cells of similar means.
void NNDescent::order_rows() {
    std::vector<int32_t> means(numbers_.begin(), numbers_.begin() + means_count_);
    sort_by(means, coarse_count_, [this](int32_t mean) { return coarse_of_[n_ + mean]; });
    std::vector<int32_t> rank(means_count_);
    for (int64_t i = 0; i < means_count_; ++i) rank[means[i]] = int32_t(i);
    for (int32_t& probe : probes_) probe = rank[probe];
    const int64_t second = std::min<int64_t>(1, probes_count_ - 1);
    sort_by(order_, means_count_, [&](int32_t row) { return probes_[row * probes_count_ + second]; });
    cells_ = sort_by(order_, means_count_, [&](int32_t row) { return probes_[row * probes_count_]; });

    // From here on rows are known by their places.
    std::vector<int32_t> probes(probes_.size()), biases(biases_.size());
    std::vector<float> scales(scales_.size()), spread(rounding_deviation_.size());
    std::vector<int8_t, CacheAligned<int8_t>> bytes(packing_ == Packing::int8 ? size_t(n_) * words_ * 4 : 0);
    parallel((n_ + ROWS_PER_TASK - 1) / ROWS_PER_TASK, threads_, [&](int64_t task, int) {
        for (int64_t i = task * ROWS_PER_TASK; i < std::min(n_, (task + 1) * ROWS_PER_TASK); ++i) {
            const int64_t from = order_[i];
            std::copy_n(&probes_[from * probes_count_], probes_count_, &probes[i * probes_count_]);
            if (packing_ != Packing::int8) continue;
            std::copy_n(&bytes_[from * words_ * 4], words_ * 4, &bytes[i * words_ * 4]);
            scales[i] = scales_[from];
            biases[i] = biases_[from];
            spread[i] = rounding_deviation_[from];
        }
    });
    probes_ = std::move(probes);
    bytes_ = std::move(bytes);
    scales_ = std::move(scales);
    biases_ = std::move(biases);
    rounding_deviation_ = std::move(spread);
    free_vector(numbers_);
    free_vector(rows_);
    free_vector(coarse_of_);
    free_vector(near_);
    free_vector(means_);
    start_initial_lists();
}

// -- the first lists --------------------------------------------------------------------------------------------------

int64_t NNDescent::fill_group(int64_t group, ThreadState& state) const {
    const int64_t from = group * GROUP_ROWS;
    state.group.resize(std::min(GROUP_ROWS, n_ - from));
    std::iota(state.group.begin(), state.group.end(), int32_t(from));
    return from;
}

void NNDescent::start_initial_lists() {
    current_.resize(n_ * keep_);
    scores_.resize(n_ * keep_);
    row_states_.reset(new RowState[n_]);
    ambiguous_.assign(n_, 0);
    compared_.resize(groups_);
    for (ThreadState& state : thread_states_) state.votes.assign(n_, 0);
    start(
        groups_, 0.25, [this](int64_t group, ThreadState& state) { initialize_group(group, state); },
        [this] {
            free_vector(probes_);
            start_rescoring();
        });
}

// Rescores the lists of ambiguous rows and of those that list them, then joins their groups again.
void NNDescent::start_rescoring() {
    const auto begin_passes = [this] {
        start(
            groups_, 0.4,
            [this](int64_t group, ThreadState& state) {
                fill_group(group, state);
                const std::vector<int32_t>& compared = compared_[group];
                const bool has_ambiguous =
                    std::any_of(state.group.begin(), state.group.end(), [this](int32_t i) { return ambiguous_[i]; });
                const int64_t initial = has_ambiguous ? 0 : initial_count(group);
                join_group(state.group, compared.data() + initial, int64_t(compared.size()) - initial, state);
            },
            [this] { start_pass(); });
    };
    if (!any_ambiguous_) return begin_passes();
    start(
        groups_, 0.26,
        [this](int64_t group, ThreadState& state) {
            fill_group(group, state);
            for (int32_t place : state.group) rescore_exact(place, state);
        },
        begin_passes);
}

// Writes the exact scores of a place with the doubtful places to `sums`.
void NNDescent::score_doubtful(int32_t place, ThreadState& state) const {
    state.floats.resize(d_);
    state.sums.resize(std::max(state.sums.size(), state.doubtful.size()));
    for (int32_t& one : state.doubtful) one = order_[one];
    kernels_.to_float32(vectors_, order_[place], state.floats.data());
    kernels_.dots(state.floats.data(), vectors_, state.doubtful.data(), int64_t(state.doubtful.size()),
                  state.sums.data());
}

void NNDescent::rescore_exact(int64_t place, ThreadState& state) {
    int32_t* ids = &current_[place * keep_];
    float* scores = &scores_[place * keep_];
    state.doubtful.clear();
    for (int64_t j = 0; j < keep_; ++j)
        if (ambiguous_[place] || ambiguous_[ids[j]]) state.doubtful.push_back(ids[j]);
    if (state.doubtful.empty()) return;
    score_doubtful(int32_t(place), state);
    state.best.resize(std::max<size_t>(state.best.size(), keep_));
    for (int64_t j = 0, at = 0; j < keep_; ++j)
        state.best[j] = make_key(ambiguous_[place] || ambiguous_[ids[j]] ? state.sums[at++] : scores[j], ids[j]);
    std::sort(state.best.begin(), state.best.begin() + keep_, descending);
    for (int64_t j = 0; j < keep_; ++j) {
        ids[j] = key_id(state.best[j]);
        scores[j] = key_score(state.best[j]);
    }
    row_states_[place].threshold.store(scores[keep_ - 1], std::memory_order_relaxed);
}

// How many of the rows that a group is joined with first enter its own lists alone.
int64_t NNDescent::initial_count(int64_t group) const {
    return std::min(int64_t(compared_[group].size()), std::max(MIN_INITIAL_ROWS, INITIAL_TIMES * keep_));
}

void NNDescent::initialize_group(int64_t group, ThreadState& state) {
    const int64_t from = fill_group(group, state), to = from + int64_t(state.group.size());
    // The cells of its rows, then the second nearest cell of each row, and so on.
    const int64_t n_wanted = std::min(n_, std::max(MIN_FIRST_ROWS, FIRST_TIMES * keep_));
    std::vector<int32_t>& compared = compared_[group];
    compared = state.group;
    state.hop_links.clear();
    if (n_wanted == n_)  // few enough: all rows
        for (int64_t i = 0; i < n_; ++i)
            if (i < from || i >= to) compared.push_back(int32_t(i));
    for (int64_t probe = 0; probe < probes_count_; ++probe)
        for (int64_t i = from; i < to; ++i) {
            const int32_t cell = probes_[i * probes_count_ + probe];
            if (state.votes[cell] || int64_t(compared.size()) >= n_wanted) continue;
            state.votes[cell] = 1;
            state.hop_links.push_back(cell);
            // Of a large cell, the rows nearest in the order.
            const int64_t room = std::min(MAX_CELL_ROWS, n_wanted - int64_t(compared.size()));
            int64_t begin = cells_[cell], end = cells_[cell + 1];
            if (end - begin > room) begin = std::clamp((from + to - room) / 2, begin, end - room), end = begin + room;
            for (int64_t place = begin; place < end; ++place)
                if (place < from || place >= to) compared.push_back(int32_t(place));
        }
    for (int32_t cell : state.hop_links) state.votes[cell] = 0;
    if (int64_t(compared.size()) <= keep_) {  // small cells: more rows nearby in the order
        std::sort(compared.begin() + int64_t(state.group.size()), compared.end());
        const std::vector<int32_t> others(compared.begin() + int64_t(state.group.size()), compared.end());
        for (int64_t i = 0; i < n_ && int64_t(compared.size()) <= 2 * keep_; ++i) {
            const int32_t place = int32_t((to + i) % n_);
            if ((place < from || place >= to) && !std::binary_search(others.begin(), others.end(), place))
                compared.push_back(place);
        }
    }
    begin_tile(state.group.data(), int64_t(state.group.size()), keep_, state);
    score_tile(compared.data(), compared.data(), initial_count(group), state.group.data(), state);
    for (int64_t i = from; i < to; ++i) {
        Key* best = state.best.data() + (i - from) * state.capacity;
        std::sort(best, best + keep_, descending);
        for (int64_t j = 0; j < keep_; ++j) {
            current_[i * keep_ + j] = key_id(best[j]);
            scores_[i * keep_ + j] = key_score(best[j]);
        }
        row_states_[i].threshold.store(key_score(best[keep_ - 1]), std::memory_order_relaxed);
        if (packing_ != Packing::int8) continue;
        ambiguous_[i] = key_score(best[0]) - key_score(best[keep_ - 1]) < AMBIGUITY_DEVIATIONS * rounding_deviation_[i];
        if (ambiguous_[i]) any_ambiguous_ = true;
    }
}

// -- passes -----------------------------------------------------------------------------------------------------------

// Scores all pairs of the group with others and inserts each into both lists.
void NNDescent::join_group(const std::vector<int32_t>& group, const int32_t* others, int64_t count,
                           ThreadState& state) {
    const int64_t strip = kernels_.strip, rows = int64_t(group.size());
    const auto threshold = [&](int64_t place) { return row_states_[place].threshold.load(std::memory_order_relaxed); };
    const auto doubt_of = [&](int64_t place) {
        return ambiguous_[place] ? DOUBT_DEVIATIONS * rounding_deviation_[place] : 0;
    };
    const auto try_insert_both = [&](int32_t one, int32_t other, float score) {
        try_insert(one, score, other);
        try_insert(other, score, one);
    };
    pack_rows(group.data(), rows, GROUP, GROUP, state.left);
    state.hits.resize(GROUP_ROWS * strip);
    for (int64_t i = 0; any_ambiguous_ && i < rows; ++i) state.left.offsets[i] = doubt_of(group[i]);
    for (int64_t at = 0; at < count; at += strip) {
        const int64_t present = std::min(strip, count - at);
        prefetch_rows(others + at + present, std::min(strip, count - at - present));
        pack_rows(others + at, present, PANEL, strip, state.right);
        for (int64_t i = 0; i < rows; ++i) state.left.thresholds[i] = threshold(group[i]);
        for (int64_t j = 0; j < present; ++j) state.right.thresholds[j] = threshold(others[at + j]);
        for (int64_t j = 0; any_ambiguous_ && j < present; ++j) state.right.offsets[j] = doubt_of(others[at + j]);
        const int groups = int((rows + GROUP - 1) / GROUP);
        const size_t found =
            kernels_.scan(packing_, words_, groups, GROUP, state.left.from(0), state.right.from(0), state.hits.data());
        state.doubtful.clear();
        std::vector<int32_t>& doubtful = state.hop_links;  // places of the doubtful pairs
        doubtful.clear();
        for (size_t h = 0; h < found; ++h) {
            const int64_t i = state.hits[h].row, j = state.hits[h].column;
            const bool real = i < rows && j < present && group[i] != others[at + j];
            if (real && (ambiguous_[group[i]] || ambiguous_[others[at + j]]))
                doubtful.push_back(others[at + j]);
            else if (real)
                try_insert_both(group[i], others[at + j], state.hits[h].score);
            if (doubtful.empty() || (h + 1 < found && state.hits[h + 1].row == i)) continue;
            state.doubtful = doubtful;
            score_doubtful(group[i], state);
            for (size_t c = 0; c < doubtful.size(); ++c) try_insert_both(group[i], doubtful[c], state.sums[c]);
            doubtful.clear();
        }
    }
}

void NNDescent::try_insert(int64_t place, float score, int32_t id) {
    RowState& row_state = row_states_[place];
    if (score < row_state.threshold.load(std::memory_order_relaxed)) return;
    while (row_state.lock.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
    int32_t* ids = &current_[place * keep_];
    float* scores = &scores_[place * keep_];
    const Key key = make_key(score, id);
    int64_t at = 0, end = keep_;  // binary search for the first worse entry
    while (at < end) {
        const int64_t middle = (at + end) / 2;
        if (make_key(scores[middle], ids[middle] & ID_BITS) >= key)
            at = middle + 1;
        else
            end = middle;
    }
    // A pair has one score: if already listed, it is here.
    const bool is_listed = at > 0 && (ids[at - 1] & ID_BITS) == id;
    if (at < keep_ && !is_listed) {
        std::copy_backward(ids + at, ids + keep_ - 1, ids + keep_);
        std::copy_backward(scores + at, scores + keep_ - 1, scores + keep_);
        ids[at] = id | ~ID_BITS;
        scores[at] = score;
        row_state.threshold.store(scores[keep_ - 1], std::memory_order_relaxed);
    }
    row_state.lock.clear(std::memory_order_release);
}

void NNDescent::start_pass() {
    const int64_t n_new = snapshot_links();
    if (passes_ > 0 && (passes_ == MAX_PASSES || double(n_new) < MIN_NEW_SHARE * double(n_ * k_)))
        return start_final_scoring();
    ++passes_;
    // Each pass takes about half as long as the one before.
    start(
        groups_, 0.95 - 0.55 * std::pow(0.5, passes_),
        [this](int64_t group, ThreadState& state) {
            fill_group(group, state);
            propose(state);
            std::vector<int32_t>& compared = compared_[group];
            join_group(state.group, state.proposed.data(), int64_t(state.proposed.size()), state);
            compared.reserve(compared.size() + state.proposed.size());
            compared.insert(compared.end(), state.proposed.begin(), state.proposed.end());
        },
        [this] { start_pass(); });
}

// Copies the lists at the start of a pass, with reverse and new links; returns the number of new links.
int64_t NNDescent::snapshot_links() {
    previous_.resize(n_ * keep_);
    reverse_links_.resize(n_ * MAX_REVERSE);
    new_links_.resize(n_ * MAX_NEW);
    reverse_counts_.assign(n_, 0);
    new_counts_.assign(n_, 0);
    std::vector<int32_t> outgoing(n_, 0);
    std::atomic<int64_t> n_new{0};
    parallel((n_ + ROWS_PER_TASK - 1) / ROWS_PER_TASK, threads_, [&](int64_t task, int) {
        int64_t found = 0;
        for (int64_t i = task * ROWS_PER_TASK; i < std::min(n_, (task + 1) * ROWS_PER_TASK); ++i) {
            for (int64_t j = 0; j < keep_; ++j) {
                const int64_t at = i * keep_ + j;
                if (current_[at] < 0) {
                    current_[at] &= ID_BITS;
                    ++found;
                    if (outgoing[i] < MAX_NEW) new_links_[i * MAX_NEW + outgoing[i]++] = current_[at];
                }
                previous_[at] = current_[at];
            }
            new_counts_[i] = outgoing[i];
        }
        n_new += found;
    });
    // Reverse links. Each thread has the links to a range of rows: the order does not depend on the number of threads.
    const int64_t depth = std::min(MAX_REVERSE, keep_), rotation = n_ / 7 * passes_ % n_;
    parallel(threads_, threads_, [&](int64_t part, int) {
        const int64_t begin = n_ * part / threads_, end = n_ * (part + 1) / threads_;
        const auto add = [&](int64_t to, int64_t from, std::vector<int32_t>& links, std::vector<int32_t>& counts,
                             int64_t max_links) {
            if (to >= begin && to < end && counts[to] < max_links) links[to * max_links + counts[to]++] = int32_t(from);
        };
        for (int64_t i = 0; i < n_; ++i)
            for (int64_t j = 0; j < outgoing[i]; ++j)
                add(new_links_[i * MAX_NEW + j], i, new_links_, new_counts_, MAX_NEW);
        constexpr int64_t TIER = 8;  // strong links first; in each pass another row comes first among equals
        for (int64_t tier = 0; tier < depth; tier += TIER)
            for (int64_t i = 0; i < n_; ++i) {
                const int64_t from = i + rotation < n_ ? i + rotation : i + rotation - n_;
                for (int64_t j = tier; j < std::min(depth, tier + TIER); ++j)
                    add(previous_[from * keep_ + j], from, reverse_links_, reverse_counts_, MAX_REVERSE);
            }
    });
    return n_new;
}

// Finds the rows with the most two-link paths from each row of the group, except those already compared.
void NNDescent::propose(ThreadState& state) const {
    constexpr uint16_t COMPARED = 0x8000;
    constexpr int64_t MAX_VOTES = 256;
    const int64_t first_hop = std::min(MAX_FIRST_HOP, keep_), second_hop = std::min(MAX_SECOND_HOP, keep_);
    const bool all = passes_ == 1;
    uint16_t* votes = state.votes.data();
    const std::vector<int32_t>& compared = compared_[state.group[0] / GROUP_ROWS];
    for (int32_t one : compared) votes[one] = COMPARED;
    state.touched.resize(n_ + 1);
    int32_t* touched = state.touched.data();
    state.proposed.clear();
    for (const int64_t i : state.group) {
        int64_t count = 0;
        const auto vote = [&](int32_t one) {
            touched[count] = one;
            count += votes[one] == 0;
            ++votes[one];
        };
        const auto vote_for = [&](const int32_t* links, int64_t number) {
            for (int64_t j = 0; j < number; ++j) vote(links[j]);
        };
        state.hop_links.clear();
        state.hop_links.insert(state.hop_links.end(), &previous_[i * keep_], &previous_[i * keep_] + first_hop);
        state.hop_links.insert(state.hop_links.end(), &reverse_links_[i * MAX_REVERSE],
                               &reverse_links_[i * MAX_REVERSE] + reverse_counts_[i]);
        const int64_t n_old = all ? 0 : int64_t(state.hop_links.size());
        if (!all)
            state.hop_links.insert(state.hop_links.end(), &new_links_[i * MAX_NEW],
                                   &new_links_[i * MAX_NEW] + new_counts_[i]);
        for (int64_t h = 0; h < int64_t(state.hop_links.size()); ++h) {
            const int64_t one = state.hop_links[h];
            if (h + 4 < int64_t(state.hop_links.size())) {
                const int64_t later = state.hop_links[h + 4];
                if (h + 4 < n_old) {
                    __builtin_prefetch(&new_links_[later * MAX_NEW]);
                } else {
                    for (int64_t j = 0; j < second_hop; j += 16) __builtin_prefetch(&previous_[later * keep_ + j]);
                    for (int64_t j = 0; j < MAX_REVERSE; j += 16)
                        __builtin_prefetch(&reverse_links_[later * MAX_REVERSE + j]);
                }
            }
            if (h < n_old) {
                vote_for(&new_links_[one * MAX_NEW], new_counts_[one]);
                continue;
            }
            vote(int32_t(one));
            vote(int32_t(one));
            vote_for(&previous_[one * keep_], second_hop);
            vote_for(&reverse_links_[one * MAX_REVERSE], reverse_counts_[one]);
        }
        int32_t histogram[MAX_VOTES] = {};
        for (int64_t t = 0; t < count; ++t) ++histogram[std::min<int64_t>(MAX_VOTES - 1, votes[touched[t]])];
        int64_t min_votes = MAX_VOTES - 1, n_free = MAX_PROPOSED;
        while (min_votes > 0 && histogram[min_votes] <= n_free) n_free -= histogram[min_votes--];
        for (int64_t t = 0; t < count; ++t) {
            const int64_t n_votes = std::min<int64_t>(MAX_VOTES - 1, votes[touched[t]]);
            const bool accepted = n_votes > min_votes || (n_votes == min_votes && n_free-- > 0);
            if (accepted) state.proposed.push_back(touched[t]);
            votes[touched[t]] = accepted ? COMPARED : 0;  // the group's next row need not propose it again
        }
    }
    for (int32_t one : state.proposed) votes[one] = 0;
    for (int32_t one : compared) votes[one] = 0;
}

// -- the end ----------------------------------------------------------------------------------------------------------

void NNDescent::start_final_scoring() {
    free_vector(previous_);
    free_vector(reverse_links_);
    free_vector(new_links_);
    free_vector(scores_);
    free_vector(compared_);
    bytes_.clear();
    bytes_.shrink_to_fit();
    start(
        groups_, 1, [this](int64_t group, ThreadState& state) { score_group(group, state); },
        [this] { finished_ = true; });
}

void NNDescent::score_group(int64_t group, ThreadState& state) {
    fill_group(group, state);
    state.floats.resize(d_);
    state.proposed.resize(keep_);
    state.sums.resize(keep_);
    state.best.resize(std::max<size_t>(state.best.size(), keep_));
    for (const int64_t i : state.group) {
        const int64_t row = order_[i];
        for (int64_t j = 0; j < keep_; ++j) state.proposed[j] = order_[current_[i * keep_ + j]];
        kernels_.to_float32(vectors_, row, state.floats.data());
        kernels_.dots(state.floats.data(), vectors_, state.proposed.data(), keep_, state.sums.data());
        for (int64_t j = 0; j < keep_; ++j) state.best[j] = make_key(state.sums[j], state.proposed[j]);
        std::sort(state.best.begin(), state.best.begin() + keep_, descending);
        for (int64_t j = 0; j < k_; ++j) {
            ids_[row * k_ + j] = key_id(state.best[j]);
            similarities_[row * k_ + j] = key_score(state.best[j]);
        }
    }
}

}  // namespace manifind
