#include "descent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "candidates.h"
#include "parallel.h"

namespace manifind {
namespace {

constexpr int64_t MANY_ROWS = 1024;  // of a task that does little for each

constexpr int64_t CELL = 64;         // rows for each mean
constexpr int64_t CELL_ROWS = 256;   // rows of a task that looks for means
constexpr int64_t NEAR_MEANS = 800;  // that a row is compared with
constexpr int64_t PROBES = 6;        // means that are kept for each row
constexpr int ROUNDS = 2;            // of k-means
constexpr int64_t SAMPLED = 4;       // one row in so many, in all rounds but the last

constexpr int64_t TOGETHER = 64;  // rows of a group
constexpr int64_t WINDOW = 500;   // rows that are taken from one cell at the most
constexpr int64_t ALONE = 700;    // rows of the cells around that a group meets to have lists at all,
constexpr int64_t FIRST = 2000;   // and in all before the first pass; for long lists so many times their length:
constexpr int64_t ALONE_TIMES = 4, FIRST_TIMES = 8;

// More of these finds more, and takes longer.
constexpr int64_t OUTWARD = 64;   // links of a row that are followed
constexpr int64_t ONWARD = 32;    // links that are followed from there
constexpr int64_t BACK = 32;      // links to a row that are kept, of the best so many of each list
constexpr int64_t FRESH = 32;     // new links of a row that are kept
constexpr int64_t PROPOSED = 60;  // rows that a row proposes
constexpr int MOST_PASSES = 10;
constexpr double FEW = 0.001;  // new links, of all, for which another pass is not worth it

constexpr float CLOSE = 24;  // deviations of rounding within which a list is one that eight bits cannot order
constexpr float DOUBT = 4;   // deviations by which a product may be too low, on either side

constexpr int64_t EXTRA = 10;  // entries of a list beyond k: eight bits confuse one or two at its end

constexpr int32_t ID = 0x7fffffff;  // the bits of a link that are the id; the sign says that it is new

// The rows in the order of what `label` says of them, and where each label begins.
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
void release(std::vector<T>& vector) {
    std::vector<T>().swap(vector);
}

}  // namespace

Descent::Descent(const Rows& vectors, int64_t k, uint64_t seed, int threads, int32_t* ids, float* similarities)
    : loops_(loops()),
      vectors_(vectors),
      n_(vectors.n),
      d_(vectors.d),
      k_(k),
      keep_(std::min(n_ - 1, k + EXTRA)),
      seed_(seed),
      threads_(threads),
      ids_(ids),
      similarities_(similarities),
      packing_(packing_of(d_)),
      words_(words_of(packing_, d_)),
      order_(n_),
      means_count_(std::max<int64_t>(1, n_ / CELL)),
      coarse_count_(std::clamp<int64_t>(int64_t(1.5 * std::sqrt(double(means_count_))), 1, means_count_)),
      near_count_(std::min(means_count_, NEAR_MEANS)),
      probes_count_(std::min(near_count_, PROBES)),
      groups_((n_ + TOGETHER - 1) / TOGETHER),
      scratch_(threads) {
    std::iota(order_.begin(), order_.end(), 0);
    start_compressing();
}

// -- stages -----------------------------------------------------------------------------------------------------------

void Descent::start(int64_t tasks, double share, std::function<void(int64_t, Scratch&)> work,
                    std::function<void()> end) {
    share_before_ = stage_.share;
    stage_ = {tasks, share, std::move(work), std::move(end)};
    task_ = 0;
}

int64_t Descent::step() {
    if (finished_) return n_;
    const int64_t batch = std::min<int64_t>(stage_.tasks - task_, 64 * threads_);
    parallel(batch, threads_, [&](int64_t task, int thread) { stage_.work(task_ + task, scratch_[thread]); });
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

void Descent::start_compressing() {
    if (packing_ == Packing::int8) {
        bytes_.resize(size_t(n_ + means_count_) * words_ * 4);
        scales_.resize(n_ + means_count_);
        biases_.resize(n_ + means_count_);
        spread_.resize(n_);
    } else {
        means_.resize(means_count_ * d_);
    }
    start((n_ + MANY_ROWS - 1) / MANY_ROWS, 0.05,
          [this](int64_t task, Scratch& s) {
              s.floats.resize(d_);
              for (int64_t i = task * MANY_ROWS; i < std::min(n_, (task + 1) * MANY_ROWS); ++i) {
                  loops_.widen(vectors_, i, s.floats.data());
                  bool sound = true;  // or products would not be numbers, and lists would stay short
                  for (float value : s.floats) sound &= std::fabs(value) <= LONGEST;
                  if (!sound) throw std::invalid_argument("vectors has values that are not finite, or huge");
                  if (packing_ == Packing::int8) squeeze(s.floats.data(), i);
              }
          },
          [this] { choose_means(); });
}

void Descent::squeeze(const float* row, int64_t place) {
    float error, length;
    loops_.compress(row, d_, words_ * 4, &bytes_[place * words_ * 4], &scales_[place], &biases_[place], &error, &length);
    if (place < n_) spread_[place] = error * length / std::sqrt(float(d_));
}

// Places from n on are means.
void Descent::pack(const int32_t* places, int64_t count, int height, int64_t multiple, Packed& to) const {
    const int64_t room = (count + multiple - 1) / multiple * multiple;
    to.words_of_row = words_;
    to.words.resize(size_t(room) * words_);
    to.thresholds.assign(room, NEVER);
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
            loops_.pack_bytes(rows, present, height, words_, words);
        } else {
            for (int i = 0; i < present; ++i) {
                const int64_t place = places[panel + i];
                float* row = to.floats.data() + i * d_;
                if (place < n_)
                    loops_.widen(vectors_, order_[place], row);
                else
                    std::copy_n(means_.data() + (place - n_) * d_, d_, row);
            }
            loops_.pack(packing_, to.floats.data(), d_, present, height, words_, to.scales.data() + panel, words,
                        to.biases.data() + panel);
        }
    }
}

void Descent::fetch(const int32_t* places, int64_t count) const {
    if (packing_ != Packing::int8) return;
    for (int64_t i = 0; i < count; ++i)
        for (int64_t at = 0; at < words_ * 4; at += 64)
            __builtin_prefetch(bytes_.data() + int64_t(places[i]) * words_ * 4 + at, 0, 2);
}

// -- the best of what some rows meet ----------------------------------------------------------------------------------

void Descent::begin(const int32_t* places, int64_t count, int64_t keep, Scratch& s) const {
    pack(places, count, GROUP, TILE_ROWS, s.left);
    s.rows = count;
    s.keep = keep;
    s.room = keep + std::max<int64_t>(keep, 64);
    s.best.resize(count * s.room);
    s.counts.assign(count, 0);
    s.least.assign(count, 0);
    std::fill_n(s.left.thresholds.begin(), count, NOTHING);
}

// Meets the rows at `places`, which are known by their labels; a row whose own place is among them passes it over.
void Descent::meet(const int32_t* places, const int32_t* labels, int64_t count, const int32_t* own, Scratch& s) const {
    const int64_t strip = loops_.strip;
    s.hits.resize(TILE_ROWS * strip);
    for (int64_t at = 0; at < count; at += strip) {
        const int64_t present = std::min(strip, count - at);
        fetch(places + at + present, std::min(strip, count - at - present));
        pack(places + at, present, PANEL, strip, s.right);
        for (int64_t tile = 0; tile < s.rows; tile += TILE_ROWS) {
            const int groups = int((std::min(s.rows - tile, TILE_ROWS) + GROUP - 1) / GROUP);
            const size_t found = loops_.scan(packing_, words_, groups, GROUP, s.left.from(tile), s.right.from(0),
                                             s.hits.data());
            for (size_t h = 0; h < found; ++h) {
                const int64_t row = tile + s.hits[h].row, j = s.hits[h].column;
                if (row >= s.rows || j >= present || (own && places[at + j] == own[row])) continue;
                const Key key = key_of(s.hits[h].score, labels[at + j]);
                if (key <= s.least[row]) continue;
                if (s.counts[row] == s.room) compact(row, s);
                s.best[row * s.room + s.counts[row]++] = key;
            }
        }
    }
    for (int64_t row = 0; row < s.rows; ++row) compact(row, s);
}

void Descent::compact(int64_t row, Scratch& s) const {
    Key* keys = s.best.data() + row * s.room;
    if (s.counts[row] < s.keep) return;
    std::nth_element(keys, keys + s.keep - 1, keys + s.counts[row], best_first);
    s.counts[row] = s.keep;
    s.least[row] = keys[s.keep - 1];
    s.left.thresholds[row] = score_of(s.least[row]);
}

// -- the order --------------------------------------------------------------------------------------------------------

void Descent::set_mean(int64_t mean, const float* row) {
    const int64_t place = n_ + mean;
    if (packing_ == Packing::int8)
        squeeze(row, place);
    else
        std::copy_n(row, d_, &means_[mean * d_]);
}

// Rows drawn at random, to begin with. The first of them are the coarse ones.
void Descent::choose_means() {
    numbers_.resize(n_ + means_count_);
    std::iota(numbers_.begin(), numbers_.end(), 0);
    std::vector<int32_t> drawn(numbers_.begin(), numbers_.begin() + n_);
    std::mt19937_64 random(seed_);
    std::vector<float> row(d_);
    for (int64_t mean = 0; mean < means_count_; ++mean) {
        std::swap(drawn[mean], drawn[mean + int64_t(random() % uint64_t(n_ - mean))]);
        loops_.widen(vectors_, drawn[mean], row.data());
        set_mean(mean, row.data());
    }
    coarse_of_.resize(n_ + means_count_);
    near_.resize(coarse_count_ * near_count_);
    probes_.resize(n_ * probes_count_);
    start_coarse(1);
}

// The means near each coarse mean; and the coarse mean nearest to each row, and to each mean.
void Descent::start_coarse(int round) {
    rows_.clear();
    for (int64_t i = round < ROUNDS ? round % SAMPLED : 0; i < n_; i += round < ROUNDS ? SAMPLED : 1)
        rows_.push_back(int32_t(i));
    const int64_t sampled = int64_t(rows_.size());
    for (int64_t i = 0; i < means_count_; ++i) rows_.push_back(int32_t(n_ + i));
    const int64_t before = (coarse_count_ + CELL_ROWS - 1) / CELL_ROWS;
    const auto work = [this, before](int64_t task, Scratch& s) {
        const int32_t* means = numbers_.data() + n_;
        if (task < before) {
            const int64_t from = task * CELL_ROWS, count = std::min(CELL_ROWS, coarse_count_ - from);
            begin(means + from, count, near_count_, s);
            meet(means, numbers_.data(), means_count_, nullptr, s);
            for (int64_t i = 0; i < count; ++i)
                for (int64_t j = 0; j < near_count_; ++j)
                    near_[(from + i) * near_count_ + j] = id_of(s.best[i * s.room + j]);
        } else {
            const int64_t from = (task - before) * CELL_ROWS;
            const int64_t count = std::min(CELL_ROWS, int64_t(rows_.size()) - from);
            begin(rows_.data() + from, count, 1, s);
            meet(means, numbers_.data(), coarse_count_, nullptr, s);
            for (int64_t i = 0; i < count; ++i) coarse_of_[rows_[from + i]] = id_of(s.best[i * s.room]);
        }
    };
    start(before + (int64_t(rows_.size()) + CELL_ROWS - 1) / CELL_ROWS, 0.05 + 0.04 * round, work,
          [this, round, sampled] {
              rows_.resize(sampled);
              start_cells(round);
          });
}

// The means nearest to each row, among those near its coarse one.
void Descent::start_cells(int round) {
    const std::vector<int64_t> starts =
        sort_by(rows_, coarse_count_, [this](int32_t row) { return coarse_of_[row]; });
    std::vector<std::pair<int64_t, int64_t>> parts;
    for (int64_t coarse = 0; coarse < coarse_count_; ++coarse)
        for (int64_t from = starts[coarse]; from < starts[coarse + 1]; from += CELL_ROWS)
            parts.push_back({from, std::min(starts[coarse + 1], from + CELL_ROWS)});
    const int64_t tasks = int64_t(parts.size()), keep = round < ROUNDS ? 1 : probes_count_;
    const auto work = [this, parts = std::move(parts), keep](int64_t task, Scratch& s) {
        const int32_t* rows = rows_.data() + parts[task].first;
        const int64_t count = parts[task].second - parts[task].first;
        const int32_t* near = near_.data() + coarse_of_[rows[0]] * near_count_;
        s.others.resize(near_count_);
        for (int64_t j = 0; j < near_count_; ++j) s.others[j] = int32_t(n_ + near[j]);
        begin(rows, count, keep, s);
        meet(s.others.data(), near, near_count_, nullptr, s);
        for (int64_t i = 0; i < count; ++i) {
            Key* best = s.best.data() + i * s.room;
            std::sort(best, best + keep, best_first);
            for (int64_t j = 0; j < keep; ++j) probes_[rows[i] * probes_count_ + j] = id_of(best[j]);
        }
    };
    start(tasks, 0.07 + 0.04 * round, work, [this, round] { round < ROUNDS ? start_averaging(round) : arrange(); });
}

void Descent::start_averaging(int round) {
    cells_ = sort_by(rows_, means_count_, [this](int32_t row) { return probes_[row * probes_count_]; });
    const auto work = [this](int64_t mean, Scratch& s) {
        s.floats.resize(d_);
        s.sums.assign(d_, 0);
        for (int64_t c = cells_[mean]; c < cells_[mean + 1]; ++c) {
            const int64_t row = rows_[c];
            if (packing_ == Packing::int8) {
                const int8_t* bytes = bytes_.data() + row * words_ * 4;
                for (int64_t j = 0; j < d_; ++j) s.sums[j] += scales_[row] * float(bytes[j]);
            } else {
                loops_.widen(vectors_, row, s.floats.data());
                for (int64_t j = 0; j < d_; ++j) s.sums[j] += s.floats[j];
            }
        }
        double squared = 0;
        for (float sum : s.sums) squared += double(sum) * sum;
        if (squared == 0) return;  // nobody there: it stays what it is
        for (float& sum : s.sums) sum = float(sum / std::sqrt(squared));
        set_mean(mean, s.sums.data());
    };
    start(means_count_, 0.08 + 0.04 * round, work, [this, round] { start_coarse(round + 1); });
}

// Puts the rows in the order of the means nearest to them: like rows side by side, and cells of like means too.
void Descent::arrange() {
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
    std::vector<float> scales(scales_.size()), spread(spread_.size());
    std::vector<int8_t, OnLines<int8_t>> bytes(packing_ == Packing::int8 ? size_t(n_) * words_ * 4 : 0);
    parallel((n_ + MANY_ROWS - 1) / MANY_ROWS, threads_, [&](int64_t task, int) {
        for (int64_t i = task * MANY_ROWS; i < std::min(n_, (task + 1) * MANY_ROWS); ++i) {
            const int64_t from = order_[i];
            std::copy_n(&probes_[from * probes_count_], probes_count_, &probes[i * probes_count_]);
            if (packing_ != Packing::int8) continue;
            std::copy_n(&bytes_[from * words_ * 4], words_ * 4, &bytes[i * words_ * 4]);
            scales[i] = scales_[from];
            biases[i] = biases_[from];
            spread[i] = spread_[from];
        }
    });
    probes_ = std::move(probes);
    bytes_ = std::move(bytes);
    scales_ = std::move(scales);
    biases_ = std::move(biases);
    spread_ = std::move(spread);
    release(numbers_);
    release(rows_);
    release(coarse_of_);
    release(near_);
    release(means_);
    start_opening();
}

// -- the first lists --------------------------------------------------------------------------------------------------

int64_t Descent::fill_group(int64_t group, Scratch& s) const {
    const int64_t from = group * TOGETHER;
    s.group.resize(std::min(TOGETHER, n_ - from));
    std::iota(s.group.begin(), s.group.end(), int32_t(from));
    return from;
}

void Descent::start_opening() {
    now_.resize(n_ * keep_);
    scores_.resize(n_ * keep_);
    states_.reset(new State[n_]);
    close_.assign(n_, 0);
    met_.resize(groups_);
    for (Scratch& s : scratch_) s.votes.assign(n_, 0);
    start(groups_, 0.25, [this](int64_t group, Scratch& s) { open(group, s); },
          [this] {
              release(probes_);
              start_telling_apart();
          });
}

// Lists of rows that are close to others, and of those that list them, get exact scores, and what they were chosen from
// is met again.
void Descent::start_telling_apart() {
    const auto begin_passes = [this] {
        start(groups_, 0.4,
              [this](int64_t group, Scratch& s) {
                  fill_group(group, s);
                  const std::vector<int32_t>& met = met_[group];
                  const bool close = std::any_of(s.group.begin(), s.group.end(), [this](int32_t i) { return close_[i]; });
                  const int64_t alone = close ? 0 : alone_count(group);
                  exchange(s.group, met.data() + alone, int64_t(met.size()) - alone, s);
              },
              [this] { start_pass(); });
    };
    if (!any_close_) return begin_passes();
    start(groups_, 0.26,
          [this](int64_t group, Scratch& s) {
              fill_group(group, s);
              for (int32_t place : s.group) tell_apart(place, s);
          },
          begin_passes);
}

// The exact scores of a place with those that are doubtful, in `sums`.
void Descent::score_exactly(int32_t place, Scratch& s) const {
    s.floats.resize(d_);
    s.sums.resize(std::max(s.sums.size(), s.doubtful.size()));
    for (int32_t& one : s.doubtful) one = order_[one];
    loops_.widen(vectors_, order_[place], s.floats.data());
    loops_.dots(s.floats.data(), vectors_, s.doubtful.data(), int64_t(s.doubtful.size()), s.sums.data());
}

void Descent::tell_apart(int64_t place, Scratch& s) {
    int32_t* ids = &now_[place * keep_];
    float* scores = &scores_[place * keep_];
    s.doubtful.clear();
    for (int64_t j = 0; j < keep_; ++j)
        if (close_[place] || close_[ids[j]]) s.doubtful.push_back(ids[j]);
    if (s.doubtful.empty()) return;
    score_exactly(int32_t(place), s);
    s.best.resize(std::max<size_t>(s.best.size(), keep_));
    for (int64_t j = 0, at = 0; j < keep_; ++j)
        s.best[j] = key_of(close_[place] || close_[ids[j]] ? s.sums[at++] : scores[j], ids[j]);
    std::sort(s.best.begin(), s.best.begin() + keep_, best_first);
    for (int64_t j = 0; j < keep_; ++j) {
        ids[j] = id_of(s.best[j]);
        scores[j] = score_of(s.best[j]);
    }
    states_[place].threshold.store(scores[keep_ - 1], std::memory_order_relaxed);
}

// How many of those that a group meets first it meets alone, to have lists at all.
int64_t Descent::alone_count(int64_t group) const {
    return std::min(int64_t(met_[group].size()), std::max(ALONE, ALONE_TIMES * keep_));
}

void Descent::open(int64_t group, Scratch& s) {
    const int64_t from = fill_group(group, s), to = from + int64_t(s.group.size());
    // The cells that its rows are in, then the second nearest of each, and so on.
    const int64_t wanted = std::min(n_, std::max(FIRST, FIRST_TIMES * keep_));
    std::vector<int32_t>& met = met_[group];
    met = s.group;
    s.hop.clear();
    if (wanted == n_)  // few enough: all
        for (int64_t i = 0; i < n_; ++i)
            if (i < from || i >= to) met.push_back(int32_t(i));
    for (int64_t probe = 0; probe < probes_count_; ++probe)
        for (int64_t i = from; i < to; ++i) {
            const int32_t cell = probes_[i * probes_count_ + probe];
            if (s.votes[cell] || int64_t(met.size()) >= wanted) continue;
            s.votes[cell] = 1;
            s.hop.push_back(cell);
            // Of a large cell those that are nearest in the order.
            const int64_t room = std::min(WINDOW, wanted - int64_t(met.size()));
            int64_t begin = cells_[cell], end = cells_[cell + 1];
            if (end - begin > room) begin = std::clamp((from + to - room) / 2, begin, end - room), end = begin + room;
            for (int64_t place = begin; place < end; ++place)
                if (place < from || place >= to) met.push_back(int32_t(place));
        }
    for (int32_t cell : s.hop) s.votes[cell] = 0;
    if (int64_t(met.size()) <= keep_) {  // small cells: more of those around in the order
        std::sort(met.begin() + int64_t(s.group.size()), met.end());
        const std::vector<int32_t> others(met.begin() + int64_t(s.group.size()), met.end());
        for (int64_t i = 0; i < n_ && int64_t(met.size()) <= 2 * keep_; ++i) {
            const int32_t place = int32_t((to + i) % n_);
            if ((place < from || place >= to) && !std::binary_search(others.begin(), others.end(), place))
                met.push_back(place);
        }
    }
    begin(s.group.data(), int64_t(s.group.size()), keep_, s);
    meet(met.data(), met.data(), alone_count(group), s.group.data(), s);
    for (int64_t i = from; i < to; ++i) {
        Key* best = s.best.data() + (i - from) * s.room;
        std::sort(best, best + keep_, best_first);
        for (int64_t j = 0; j < keep_; ++j) {
            now_[i * keep_ + j] = id_of(best[j]);
            scores_[i * keep_ + j] = score_of(best[j]);
        }
        states_[i].threshold.store(score_of(best[keep_ - 1]), std::memory_order_relaxed);
        if (packing_ != Packing::int8) continue;
        close_[i] = score_of(best[0]) - score_of(best[keep_ - 1]) < CLOSE * spread_[i];
        if (close_[i]) any_close_ = true;
    }
}

// -- passes -----------------------------------------------------------------------------------------------------------

// All pairs of the group with others, each offered to both its rows.
void Descent::exchange(const std::vector<int32_t>& group, const int32_t* others, int64_t count, Scratch& s) {
    const int64_t strip = loops_.strip, rows = int64_t(group.size());
    const auto threshold = [&](int64_t place) { return states_[place].threshold.load(std::memory_order_relaxed); };
    const auto doubt = [&](int64_t place) { return close_[place] ? DOUBT * spread_[place] : 0; };
    const auto offer_both = [&](int32_t one, int32_t other, float score) {
        offer(one, score, other);
        offer(other, score, one);
    };
    pack(group.data(), rows, GROUP, GROUP, s.left);
    s.hits.resize(TOGETHER * strip);
    for (int64_t i = 0; any_close_ && i < rows; ++i) s.left.offsets[i] = doubt(group[i]);
    for (int64_t at = 0; at < count; at += strip) {
        const int64_t present = std::min(strip, count - at);
        fetch(others + at + present, std::min(strip, count - at - present));
        pack(others + at, present, PANEL, strip, s.right);
        for (int64_t i = 0; i < rows; ++i) s.left.thresholds[i] = threshold(group[i]);
        for (int64_t j = 0; j < present; ++j) s.right.thresholds[j] = threshold(others[at + j]);
        for (int64_t j = 0; any_close_ && j < present; ++j) s.right.offsets[j] = doubt(others[at + j]);
        const int groups = int((rows + GROUP - 1) / GROUP);
        const size_t found =
            loops_.scan(packing_, words_, groups, GROUP, s.left.from(0), s.right.from(0), s.hits.data());
        s.doubtful.clear();
        std::vector<int32_t>& hop = s.hop;  // the doubtful by their places
        hop.clear();
        for (size_t h = 0; h < found; ++h) {
            const int64_t i = s.hits[h].row, j = s.hits[h].column;
            const bool real = i < rows && j < present && group[i] != others[at + j];
            if (real && (close_[group[i]] || close_[others[at + j]]))
                hop.push_back(others[at + j]);
            else if (real)
                offer_both(group[i], others[at + j], s.hits[h].score);
            if (hop.empty() || (h + 1 < found && s.hits[h + 1].row == i)) continue;
            s.doubtful = hop;
            score_exactly(group[i], s);
            for (size_t c = 0; c < hop.size(); ++c) offer_both(group[i], hop[c], s.sums[c]);
            hop.clear();
        }
    }
}

void Descent::offer(int64_t place, float score, int32_t id) {
    State& state = states_[place];
    if (score < state.threshold.load(std::memory_order_relaxed)) return;
    while (state.lock.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
    int32_t* ids = &now_[place * keep_];
    float* scores = &scores_[place * keep_];
    const Key key = key_of(score, id);
    int64_t at = 0, end = keep_;  // where it belongs: before the first that is worse
    while (at < end) {
        const int64_t middle = (at + end) / 2;
        if (key_of(scores[middle], ids[middle] & ID) >= key)
            at = middle + 1;
        else
            end = middle;
    }
    // A pair has one score: if it is in the list already, it is here.
    const bool known = at > 0 && (ids[at - 1] & ID) == id;
    if (at < keep_ && !known) {
        std::copy_backward(ids + at, ids + keep_ - 1, ids + keep_);
        std::copy_backward(scores + at, scores + keep_ - 1, scores + keep_);
        ids[at] = id | ~ID;
        scores[at] = score;
        state.threshold.store(scores[keep_ - 1], std::memory_order_relaxed);
    }
    state.lock.clear(std::memory_order_release);
}

void Descent::start_pass() {
    const int64_t fresh = link();
    if (passes_ > 0 && (passes_ == MOST_PASSES || double(fresh) < FEW * double(n_ * k_))) return start_scoring();
    ++passes_;
    // Each takes about half as long as the one before.
    start(groups_, 0.95 - 0.55 * std::pow(0.5, passes_),
          [this](int64_t group, Scratch& s) {
              fill_group(group, s);
              propose(s);
              std::vector<int32_t>& met = met_[group];
              exchange(s.group, s.others.data(), int64_t(s.others.size()), s);
              met.reserve(met.size() + s.others.size());
              met.insert(met.end(), s.others.begin(), s.others.end());
          },
          [this] { start_pass(); });
}

// Notes what the lists are when a pass begins; returns how many of their links are new.
int64_t Descent::link() {
    before_.resize(n_ * keep_);
    back_.resize(n_ * BACK);
    fresh_.resize(n_ * FRESH);
    back_counts_.assign(n_, 0);
    fresh_counts_.assign(n_, 0);
    std::vector<int32_t> own(n_, 0);
    std::atomic<int64_t> fresh{0};
    parallel((n_ + MANY_ROWS - 1) / MANY_ROWS, threads_, [&](int64_t task, int) {
        int64_t found = 0;
        for (int64_t i = task * MANY_ROWS; i < std::min(n_, (task + 1) * MANY_ROWS); ++i) {
            for (int64_t j = 0; j < keep_; ++j) {
                const int64_t at = i * keep_ + j;
                if (now_[at] < 0) {
                    now_[at] &= ID;
                    ++found;
                    if (own[i] < FRESH) fresh_[i * FRESH + own[i]++] = now_[at];
                }
                before_[at] = now_[at];
            }
            fresh_counts_[i] = own[i];
        }
        fresh += found;
    });
    // Links back. Each thread has the links to some of the rows: who comes first does not depend on their number.
    const int64_t depth = std::min(BACK, keep_), turn = n_ / 7 * passes_ % n_;
    parallel(threads_, threads_, [&](int64_t part, int) {
        const int64_t begin = n_ * part / threads_, end = n_ * (part + 1) / threads_;
        const auto add = [&](int64_t to, int64_t from, std::vector<int32_t>& links, std::vector<int32_t>& counts,
                             int64_t most) {
            if (to >= begin && to < end && counts[to] < most) links[to * most + counts[to]++] = int32_t(from);
        };
        for (int64_t i = 0; i < n_; ++i)
            for (int64_t j = 0; j < own[i]; ++j) add(fresh_[i * FRESH + j], i, fresh_, fresh_counts_, FRESH);
        constexpr int64_t TIER = 8;  // strong links first, and among equals other rows first in each pass
        for (int64_t tier = 0; tier < depth; tier += TIER)
            for (int64_t i = 0; i < n_; ++i) {
                const int64_t from = i + turn < n_ ? i + turn : i + turn - n_;
                for (int64_t j = tier; j < std::min(depth, tier + TIER); ++j)
                    add(before_[from * keep_ + j], from, back_, back_counts_, BACK);
            }
    });
    return fresh;
}

// Finds those that most ways of two links lead to from the rows of the group, of those that it has not met.
void Descent::propose(Scratch& s) const {
    constexpr uint16_t MET = 0x8000;
    constexpr int64_t MOST = 256;
    const int64_t outward = std::min(OUTWARD, keep_), onward = std::min(ONWARD, keep_);
    const bool all = passes_ == 1;
    uint16_t* votes = s.votes.data();
    const std::vector<int32_t>& met = met_[s.group[0] / TOGETHER];
    for (int32_t one : met) votes[one] = MET;
    s.touched.resize(n_ + 1);
    int32_t* touched = s.touched.data();
    s.others.clear();
    for (const int64_t i : s.group) {
        int64_t count = 0;
        const auto vote = [&](int32_t one) {
            touched[count] = one;
            count += votes[one] == 0;
            ++votes[one];
        };
        const auto vote_for = [&](const int32_t* links, int64_t number) {
            for (int64_t j = 0; j < number; ++j) vote(links[j]);
        };
        s.hop.clear();
        s.hop.insert(s.hop.end(), &before_[i * keep_], &before_[i * keep_] + outward);
        s.hop.insert(s.hop.end(), &back_[i * BACK], &back_[i * BACK] + back_counts_[i]);
        const int64_t old = all ? 0 : int64_t(s.hop.size());
        if (!all) s.hop.insert(s.hop.end(), &fresh_[i * FRESH], &fresh_[i * FRESH] + fresh_counts_[i]);
        for (int64_t h = 0; h < int64_t(s.hop.size()); ++h) {
            const int64_t one = s.hop[h];
            if (h + 4 < int64_t(s.hop.size())) {
                const int64_t later = s.hop[h + 4];
                if (h + 4 < old) {
                    __builtin_prefetch(&fresh_[later * FRESH]);
                } else {
                    for (int64_t j = 0; j < onward; j += 16) __builtin_prefetch(&before_[later * keep_ + j]);
                    for (int64_t j = 0; j < BACK; j += 16) __builtin_prefetch(&back_[later * BACK + j]);
                }
            }
            if (h < old) {
                vote_for(&fresh_[one * FRESH], fresh_counts_[one]);
                continue;
            }
            vote(int32_t(one));
            vote(int32_t(one));
            vote_for(&before_[one * keep_], onward);
            vote_for(&back_[one * BACK], back_counts_[one]);
        }
        int32_t shares[MOST] = {};
        for (int64_t t = 0; t < count; ++t) ++shares[std::min<int64_t>(MOST - 1, votes[touched[t]])];
        int64_t least = MOST - 1, room = PROPOSED;
        while (least > 0 && shares[least] <= room) room -= shares[least--];
        for (int64_t t = 0; t < count; ++t) {
            const int64_t got = std::min<int64_t>(MOST - 1, votes[touched[t]]);
            const bool taken = got > least || (got == least && room-- > 0);
            if (taken) s.others.push_back(touched[t]);
            votes[touched[t]] = taken ? MET : 0;  // the next row of the group need not propose it again
        }
    }
    for (int32_t one : s.others) votes[one] = 0;
    for (int32_t one : met) votes[one] = 0;
}

// -- the end ----------------------------------------------------------------------------------------------------------

void Descent::start_scoring() {
    release(before_);
    release(back_);
    release(fresh_);
    release(scores_);
    release(met_);
    bytes_.clear();
    bytes_.shrink_to_fit();
    start(groups_, 1, [this](int64_t group, Scratch& s) { score(group, s); }, [this] { finished_ = true; });
}

void Descent::score(int64_t group, Scratch& s) {
    fill_group(group, s);
    s.floats.resize(d_);
    s.others.resize(keep_);
    s.sums.resize(keep_);
    s.best.resize(std::max<size_t>(s.best.size(), keep_));
    for (const int64_t i : s.group) {
        const int64_t row = order_[i];
        for (int64_t j = 0; j < keep_; ++j) s.others[j] = order_[now_[i * keep_ + j]];
        loops_.widen(vectors_, row, s.floats.data());
        loops_.dots(s.floats.data(), vectors_, s.others.data(), keep_, s.sums.data());
        for (int64_t j = 0; j < keep_; ++j) s.best[j] = key_of(s.sums[j], s.others[j]);
        std::sort(s.best.begin(), s.best.begin() + keep_, best_first);
        for (int64_t j = 0; j < k_; ++j) {
            ids_[row * k_ + j] = id_of(s.best[j]);
            similarities_[row * k_ + j] = score_of(s.best[j]);
        }
    }
}

}  // namespace manifind
