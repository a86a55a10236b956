#include "few.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "candidates.h"
#include "parallel.h"

namespace manifind {
namespace {

constexpr int64_t LEFT_STRIPS = 3;        // of packed rows, that stay in the cache of a core
constexpr int64_t BLOCK_BYTES = 1 << 19;  // of rows in float32, that stay in the cache of a core
constexpr int64_t LINE = 64;              // bytes of a line of a cache
constexpr double FULL_SCALE = 30000;       // the largest estimate: slack and margin have room above
constexpr double MOST_SLACK = 15000;       // estimates that may be further off say nothing

using Estimates = std::vector<int16_t, OnLines<int16_t>>;

int64_t up_to(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

int64_t stride_of(int64_t room) {
    const int64_t stride = up_to(room, ESTIMATES_AT_ONCE);
    return stride % 2048 == 0 ? stride + ESTIMATES_AT_ONCE : stride;  // else columns fall on the same lines of a cache
}

}  // namespace

std::unique_ptr<FewRows> FewRows::of(const Rows& vectors, int64_t k, int64_t memory, int threads, int32_t* ids,
                                     float* similarities) {
    const int64_t room = up_to(vectors.n, loops().strip);
    const int64_t bytes = room * (room + loops().strip + 2 * up_to(vectors.d, 64) + stride_of(room) / GROUP);
    if (packing_of(vectors.d) != Packing::int8 || k < 1 || k >= vectors.n || bytes > memory) return nullptr;
    std::unique_ptr<FewRows> made(new FewRows(vectors, k, memory, threads, ids, similarities));
    made->pack();
    if (!made->bound()) return nullptr;
    made->estimate();
    return made->mark() && made->make_room() ? std::move(made) : nullptr;
}

FewRows::FewRows(const Rows& vectors, int64_t k, int64_t memory, int threads, int32_t* ids, float* similarities)
    : vectors_(vectors),
      n_(vectors.n),
      d_(vectors.d),
      k_(k),
      most_bytes_(memory),
      threads_(threads),
      ids_(ids),
      similarities_(similarities),
      loops_(*loops().few),
      words_(words_of(Packing::int8, d_)),
      strip_(loops().strip),
      strips_((n_ + strip_ - 1) / strip_),
      room_(strips_ * strip_),
      stride_(stride_of(room_)),
      width_(up_to(d_, 16)),
      of_tiles_(up_to(strips_ * (strips_ + 1) / 2 * strip_ * strip_ * int64_t(sizeof(int16_t)), LINE)),
      of_packed_(room_ * words_ * int64_t(sizeof(uint32_t))),
      of_marks_(room_ / GROUP * stride_),
      memory_(size_t(of_tiles_ + 2 * of_packed_ + of_marks_)),
      tiles_(reinterpret_cast<int16_t*>(static_cast<char*>(memory_))),
      left_(reinterpret_cast<uint32_t*>(memory_ + of_tiles_)),
      right_(left_ + of_packed_ / int64_t(sizeof(uint32_t))),
      marks_(reinterpret_cast<uint8_t*>(memory_ + of_tiles_ + 2 * of_packed_)),
      scales_(room_),
      errors_(room_),
      lengths_(room_),
      biases_(room_),
      slack_(stride_),
      own_slack_(room_),
      levels_(n_),
      counts_(room_),
      starts_(n_ + 1) {}

// The estimates of a strip of rows with a strip of columns that is not before it.
int16_t* FewRows::tile(int64_t row, int64_t column) const {
    return tiles_ + (row * strips_ - row * (row - 1) / 2 + column - row) * strip_ * strip_;
}

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
    parallel((strips_ + LEFT_STRIPS - 1) / LEFT_STRIPS, threads_, [&](int64_t task, int) {
        const int64_t begin = task * LEFT_STRIPS, end = std::min(strips_, begin + LEFT_STRIPS);
        for (int64_t column = begin; column < strips_; ++column) {
            const int64_t to = column * strip_;
            const Side right{right_ + to * words_, scales_.data() + to, biases_.data() + to, nullptr, nullptr};
            for (int64_t row = begin; row < std::min(end, column + 1); ++row) {
                const int64_t from = row * strip_;
                const Side left{left_ + from * words_, scales_.data() + from, nullptr, nullptr, nullptr};
                loops_.estimate(words_, left, right, unit_, tile(row, column));
            }
        }
    });
}

// The highest level that at least k estimates reach, or one that few more do. Between a level that too many reach and one
// that too few reach, the next that is tried lies where their number would be right if it fell exponentially.
int32_t FewRows::find_level(const int16_t* estimates, int32_t start) const {
    const int64_t enough = k_ + k_ / 32;
    const double aim = std::log(double(k_) + double(k_) / 64);
    int32_t low = INT16_MIN + 1, high = INT16_MAX, level = start, step = 256;
    int64_t above = 0, below = 0;  // how many reach `low`, and how many reach `high`; 0 where that was not looked at
    for (int turn = 0; high - low > 1; ++turn) {
        const int64_t count = loops_.count(estimates, stride_, int16_t(level));
        if (count >= k_ && count <= enough) return level;
        (count >= k_ ? low : high) = level;
        (count >= k_ ? above : below) = count;
        if (above > 0 && high < INT16_MAX) {
            const double many = std::log(double(above)), few = std::log(double(below) + 0.5);
            // Where numbers do not fall like that, as among equal estimates, halves come to an end.
            const double part = turn % 4 == 3 ? 0.5 : (many - aim) / (many - few);
            level = low + int32_t(double(high - low) * part);
            level = std::clamp(level, low + 1, high - 1);
        } else {
            level = count >= k_ ? std::min(INT16_MAX - 1, level + step) : std::max(INT16_MIN + 1, level - step);
            step *= 2;
            if (level == low) break;
        }
    }
    return low;
}

// Returns whether few enough were marked that scoring them is worth it.
bool FewRows::mark() {
    std::vector<Estimates> estimates(threads_);
    parallel(strips_, threads_, [&](int64_t strip, int thread) {
        Estimates& all = estimates[thread];
        all.resize(size_t(strip_ * stride_));
        for (int64_t other = 0; other < strips_; ++other)
            loops_.unfold(other < strip ? tile(other, strip) : tile(strip, other), other < strip,
                          all.data() + other * strip_, stride_);
        int32_t level = 0;
        for (int64_t first = strip * strip_; first < std::min(n_, (strip + 1) * strip_); first += GROUP) {
            const int present = int(std::min<int64_t>(GROUP, n_ - first));
            int16_t* some = all.data() + (first - strip * strip_) * stride_;
            uint8_t* marks = marks_ + first / GROUP * stride_;
            int16_t levels[GROUP];
            for (int r = 0; r < present; ++r) {
                const int64_t row = first + r;
                int16_t* own = some + r * stride_;
                own[row] = NO_ESTIMATE;
                std::fill(own + n_, own + stride_, NO_ESTIMATE);
                level = find_level(own, level);
                levels_[row] = level - margin_;
                levels[r] = int16_t(std::max(INT16_MIN + 1, levels_[row] - own_slack_[row]));
            }
            loops_.mark(some, stride_, present, stride_, slack_.data(), levels, marks, counts_.data() + first);
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
    }
    starts_[n_] = int32_t(total);
    return total <= room_ * stride_ / 4;
}

// Finds room for what scoring takes; returns whether there is.
bool FewRows::make_room() {
    const int64_t of_rows = up_to(n_ * width_ * int64_t(sizeof(float)), LINE);
    const int64_t of_lists = starts_[n_] * int64_t(sizeof(uint64_t));
    const int64_t free = of_tiles_ + 2 * of_packed_;
    const bool lists_fit = of_lists <= free, both_fit = of_rows + of_lists <= free;
    const int64_t more = (both_fit ? 0 : of_rows) + (lists_fit ? 0 : of_lists);
    if (free + of_marks_ + more > most_bytes_) return false;
    char* at = memory_;
    char* beside = nullptr;
    if (more) {
        more_memory_ = std::make_unique<Zeroed<char>>(size_t(more));
        beside = *more_memory_;
    }
    rows_ = reinterpret_cast<float*>(both_fit ? at : beside);
    char* lists = both_fit ? at + of_rows : lists_fit ? at : beside + of_rows;
    lists_ = reinterpret_cast<uint64_t*>(lists);
    return true;
}

void FewRows::finish() {
    score();
    write_lists();
}

// A block of rows stays in the cache of a core and meets all that are not after it.
void FewRows::score() {
    constexpr int64_t ROWS = 256;
    parallel((n_ + ROWS - 1) / ROWS, threads_, [&](int64_t task, int) {
        for (int64_t row = task * ROWS; row < std::min(n_, (task + 1) * ROWS); ++row)
            loops().widen(vectors_, row, rows_ + row * width_);
    });
    std::vector<int32_t> next(starts_.begin(), starts_.end() - 1);
    next.resize(room_);
    const int64_t groups = (n_ + GROUP - 1) / GROUP;
    const int64_t block =
        std::clamp<int64_t>(BLOCK_BYTES / (GROUP * width_ * int64_t(sizeof(float))), 1, MOST_GROUPS);
    const int64_t blocks = (groups + block - 1) / block;
    parallel(blocks, threads_, [&](int64_t task, int) {
        const int64_t begin = (blocks - 1 - task) * block, end = std::min(groups, begin + block);  // the longest first
        for (int64_t g = 0; g < end; ++g)
            loops_.score_marked(rows_, d_, width_, marks_, stride_, g, std::max(begin, g), end, threads_ > 1, next.data(),
                                lists_);
    });
}

void FewRows::write_lists() {
    constexpr int64_t ROWS = 256;
    parallel((n_ + ROWS - 1) / ROWS, threads_, [&](int64_t task, int) {
        std::vector<int32_t> ids;
        std::vector<float> scores;
        for (int64_t row = task * ROWS; row < std::min(n_, (task + 1) * ROWS); ++row) {
            ids.resize(std::max<size_t>(ids.size(), counts_[row] + FILLING));
            scores.resize(ids.size());
            loops_.unzip(lists_ + starts_[row], counts_[row], ids.data(), scores.data());
            write_best(row, scores.data(), ids.data(), counts_[row]);
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
