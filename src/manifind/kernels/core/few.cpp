#include "few.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "candidates.h"
#include "parallel.h"

namespace manifind {
namespace {

constexpr int64_t LEFT_ROWS = 144;        // whole strips of packed rows, that stay in the cache of a core
constexpr int64_t GROUPS_AT_ONCE = 16;    // of which one task marks
constexpr int64_t BLOCK_BYTES = 1 << 18;  // of rows in float32, twice as many of which stay in the cache of a core
constexpr int64_t LINE = 64;              // bytes of a line of a cache
constexpr int64_t OF_ENTRY = sizeof(int32_t) + sizeof(float);
constexpr double FULL_SCALE = 30000;       // the largest estimate: slack and margin have room above
constexpr double MOST_SLACK = 15000;       // estimates that may be further off say nothing

int64_t up_to(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

int64_t stride_of(int64_t room) {
    const int64_t stride = up_to(room, ESTIMATES_AT_ONCE);
    return stride % 2048 == 0 ? stride + ESTIMATES_AT_ONCE : stride;  // else columns fall on the same lines of a cache
}

}  // namespace

std::unique_ptr<FewRows> FewRows::of(const Rows& vectors, int64_t k, int64_t memory, int threads, int32_t* ids,
                                     float* similarities) {
    const int64_t room = up_to(vectors.n, loops().strip);
    const int64_t bytes = room * (stride_of(room) * 2 + 2 * up_to(vectors.d, 64) + stride_of(room) / GROUP);
    if (!loops().few || k < 1 || k >= vectors.n || bytes > memory) return nullptr;
    std::unique_ptr<FewRows> made(new FewRows(vectors, k, threads, ids, similarities));
    made->pack();
    if (!made->bound()) return nullptr;
    made->estimate();
    return made->mark() ? std::move(made) : nullptr;
}

FewRows::FewRows(const Rows& vectors, int64_t k, int threads, int32_t* ids, float* similarities)
    : vectors_(vectors),
      n_(vectors.n),
      d_(vectors.d),
      k_(k),
      threads_(threads),
      ids_(ids),
      similarities_(similarities),
      loops_(*loops().few),
      words_(int(up_to(d_, 64) / 4)),
      room_(up_to(n_, loops().strip)),
      stride_(stride_of(room_)),
      width_(up_to(d_, 16)),
      of_estimates_(up_to(room_ * stride_ * int64_t(sizeof(int16_t)), LINE)),
      of_packed_(room_ * words_ * int64_t(sizeof(uint32_t))),
      memory_(size_t(of_estimates_ + 2 * of_packed_ + room_ / GROUP * stride_)),
      estimates_(reinterpret_cast<int16_t*>(static_cast<char*>(memory_))),
      left_(reinterpret_cast<uint32_t*>(memory_ + of_estimates_)),
      right_(left_ + of_packed_ / int64_t(sizeof(uint32_t))),
      marks_(reinterpret_cast<uint8_t*>(memory_ + of_estimates_ + 2 * of_packed_)),
      scales_(room_),
      errors_(room_),
      lengths_(room_),
      biases_(room_),
      slack_(stride_),
      own_slack_(room_),
      levels_(n_),
      counts_(room_),
      starts_(n_ + 1) {}

void FewRows::pack() {
    const Loops& l = loops();
    const int64_t bytes_of_row = int64_t(words_) * 4;
    parallel(room_ / l.strip, threads_, [&](int64_t strip, int) {
        std::vector<int8_t> bytes(size_t(l.strip * bytes_of_row));
        Aligned own(width_);
        std::vector<const int8_t*> rows(l.strip);
        const int64_t first = strip * l.strip;
        const int present = int(std::min<int64_t>(l.strip, n_ - first));
        for (int r = 0; r < present; ++r) {
            const int64_t row = first + r;
            rows[r] = bytes.data() + r * bytes_of_row;
            l.widen(vectors_, row, own.data());
            l.compress(own.data(), d_, bytes_of_row, bytes.data() + r * bytes_of_row, &scales_[row],
                       &biases_[row], &errors_[row], &lengths_[row]);
            if (!(lengths_[row] <= LONGEST))
                throw std::invalid_argument("vectors has values that are not finite, or huge");
        }
        for (int r = 0; r < l.strip; r += PANEL)
            l.pack_bytes(rows.data() + r, std::clamp(present - r, 0, PANEL), PANEL, words_,
                         right_ + (first + r) * words_);
        for (int r = 0; r < l.strip; r += GROUP)
            l.pack_bytes(rows.data() + r, std::clamp(present - r, 0, GROUP), GROUP, words_, left_ + (first + r) * words_);
    });
}

// x·z − x̂·ẑ = (x − x̂)·z + x̂·(z − ẑ), each at most the product of the lengths. Adding up d products in float32 is off by at
// most d units in the last place. One more is for rounding to whole numbers.
bool FewRows::bound() {
    const double longest = *std::max_element(lengths_.begin(), lengths_.end());
    const double rounded = longest + *std::max_element(errors_.begin(), errors_.end());
    const double unit = FULL_SCALE / std::max(rounded * rounded, 1e-30);
    const double adding = double(d_ + 16) * std::ldexp(1.0, -22) * longest * longest;
    double sum = 0;
    for (int64_t i = 0; i < n_; ++i) {
        const double as_row = std::ceil((errors_[i] * longest + adding) * unit) + 1;
        const double as_column = std::ceil((rounded * errors_[i] + adding) * unit) + 1;
        if (!(as_row <= MOST_SLACK && as_column <= MOST_SLACK)) return false;
        own_slack_[i] = int16_t(as_row);
        slack_[i] = int16_t(as_column);
        sum += as_row + as_column;
    }
    unit_ = float(unit);
    margin_ = int32_t(sum / double(n_) / 8) + 2;  // errors add up to some tenth of what they can, or less
    return true;
}

void FewRows::estimate() {
    const int64_t strip = loops().strip;
    parallel((room_ + LEFT_ROWS - 1) / LEFT_ROWS, threads_, [&](int64_t task, int) {
        const int64_t row = task * LEFT_ROWS, groups = std::min(LEFT_ROWS, room_ - row) / GROUP;
        const Side left{left_ + row * words_, scales_.data() + row, nullptr, nullptr, nullptr};
        for (int64_t column = row; column < room_; column += strip) {
            const Side right{right_ + column * words_, scales_.data() + column, biases_.data() + column, nullptr, nullptr};
            loops_.estimate(words_, int(groups), left, right, unit_, estimates_ + row * stride_ + column,
                            estimates_ + column * stride_ + row, stride_);
        }
    });
}

// The highest level that at least k estimates reach, or one that few more do.
int32_t FewRows::find_level(const int16_t* estimates, int32_t start) const {
    const int64_t enough = k_ + k_ / 32;
    const auto reaching = [&](int32_t level) { return loops_.count(estimates, stride_, int16_t(level)); };
    int32_t low = INT16_MIN + 1, high = INT16_MAX, level = start;
    for (int32_t step = 256;; step *= 2) {
        const int64_t count = reaching(level);
        if (count >= k_) {
            low = level;
            if (count <= enough || high < INT16_MAX) break;
            level = std::min(INT16_MAX, level + step);
        } else {
            high = level;
            if (low > INT16_MIN + 1) break;
            level = std::max(INT16_MIN + 1, level - step);
        }
        if (level == low) break;
    }
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        const int64_t count = reaching(middle);
        (count >= k_ ? low : high) = middle;
        if (count >= k_ && count <= enough) break;
    }
    return low;
}

// Returns whether the lists of what was marked have room where the estimates are.
bool FewRows::mark() {
    const int64_t groups = (n_ + GROUP - 1) / GROUP, tasks = (groups + GROUPS_AT_ONCE - 1) / GROUPS_AT_ONCE;
    parallel(tasks, threads_, [&](int64_t task, int) {
        int32_t level = 0;
        for (int64_t g = task * GROUPS_AT_ONCE; g < std::min(groups, (task + 1) * GROUPS_AT_ONCE); ++g) {
            const int64_t first = g * GROUP;
            const int present = int(std::min<int64_t>(GROUP, n_ - first));
            uint8_t* marks = marks_ + g * stride_;
            int16_t levels[GROUP];
            for (int r = 0; r < present; ++r) {
                const int64_t row = first + r;
                int16_t* own = estimates_ + row * stride_;
                own[row] = NO_ESTIMATE;
                std::fill(own + n_, own + stride_, NO_ESTIMATE);
                level = find_level(own, level);
                levels_[row] = level - margin_;
                levels[r] = int16_t(std::max(INT16_MIN + 1, levels_[row] - own_slack_[row]));
            }
            loops_.mark(estimates_ + first * stride_, stride_, present, stride_, slack_.data(), levels, marks,
                        counts_.data() + first);
            for (int r = 0; r < present; ++r) {  // itself, where all are marked
                counts_[first + r] -= marks[first + r] >> r & 1;
                marks[first + r] &= uint8_t(~(1u << r));
            }
        }
    });
    int64_t total = 0;
    for (int64_t row = 0; row < n_; ++row) {
        starts_[row] = int32_t(total);
        total += counts_[row] + FILLING;
        if (total * OF_ENTRY > of_estimates_) return false;
    }
    starts_[n_] = int32_t(total);
    return true;
}

void FewRows::finish() {
    score();
    write_lists();
}

// Copies the rows of some groups, in float32 and on lines of their own.
void FewRows::widen(int64_t begin, int64_t end, Aligned& to) const {
    for (int64_t row = begin * GROUP; row < std::min(n_, end * GROUP); ++row)
        loops().widen(vectors_, row, to.data() + (row - begin * GROUP) * width_);
}

// A block of rows meets another while both are in the cache.
void FewRows::score() {
    found_ = reinterpret_cast<int32_t*>(estimates_);
    scores_ = reinterpret_cast<float*>(found_ + starts_[n_]);
    std::vector<int32_t> next(starts_.begin(), starts_.end() - 1);
    next.resize(room_);
    const int64_t groups = (n_ + GROUP - 1) / GROUP;
    const int64_t block = std::max<int64_t>(1, BLOCK_BYTES / (GROUP * width_ * int64_t(sizeof(float))));
    parallel((groups + block - 1) / block, threads_, [&](int64_t task, int) {
        const int64_t begin = task * block, end = std::min(groups, begin + block), of_group = GROUP * width_;
        Aligned own(size_t(block * of_group)), others(own);
        widen(begin, end, own);
        for (int64_t first = begin; first < groups; first += block) {
            const int64_t last = std::min(groups, first + block);
            if (first > begin) widen(first, last, others);
            const float* near = first > begin ? others.data() : own.data();
            for (int64_t g = begin; g < end; ++g) {
                const int64_t from = std::max(first, g);
                loops_.score_marked(own.data() + (g - begin) * of_group, near + (from - first) * of_group, d_, width_,
                                    marks_, stride_, g, from, last, threads_ > 1, next.data(), found_, scores_);
            }
        }
    });
}

void FewRows::write_lists() {
    constexpr int64_t ROWS = 256;
    parallel((n_ + ROWS - 1) / ROWS, threads_, [&](int64_t task, int) {
        for (int64_t row = task * ROWS; row < std::min(n_, (task + 1) * ROWS); ++row) {
            write_best(row, scores_ + starts_[row], found_ + starts_[row], counts_[row]);
            const float least = similarities_[row * k_ + k_ - 1];
            if (least * unit_ < float(levels_[row])) search_again(row);
        }
    });
}

// Scores all others of a row.
void FewRows::search_again(int64_t row) {
    ++again_;
    std::vector<int32_t> ids(n_ + FILLING);
    std::vector<float> scores(n_ + FILLING);
    for (int64_t c = 0; c + 1 < n_; ++c) ids[c] = int32_t(c < row ? c : c + 1);
    Aligned own(width_);
    loops().widen(vectors_, row, own.data());
    loops().dots(own.data(), vectors_, ids.data(), n_ - 1, scores.data());
    write_best(row, scores.data(), ids.data(), n_ - 1);
}

void FewRows::write_best(int64_t row, float* scores, int32_t* ids, int64_t count) {
    int32_t* best_ids = ids_ + row * k_;
    float* best_scores = similarities_ + row * k_;
    const int64_t kept = loops_.thin_out(scores, ids, count, k_);
    if (kept <= MOST_RANKED && loops_.rank(scores, ids, kept, k_, best_ids, best_scores)) return;
    std::vector<uint64_t> keys(kept);
    for (int64_t c = 0; c < kept; ++c) keys[c] = key_of(scores[c], ids[c]);
    std::nth_element(keys.begin(), keys.begin() + (k_ - 1), keys.end(), best_first);
    std::sort(keys.begin(), keys.begin() + k_, best_first);
    for (int64_t c = 0; c < k_; ++c) {
        best_ids[c] = id_of(keys[c]);
        best_scores[c] = score_of(keys[c]);
    }
}

}  // namespace manifind
