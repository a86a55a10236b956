#include "small_self_join.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "parallel.h"
#include "topk.h"

namespace manifind {
namespace {

constexpr int64_t LEFT_STRIPS = 3;        // of packed rows; these stay in the cache of a core
constexpr int64_t BLOCK_BYTES = 1 << 19;  // of rows in float32; these stay in the cache of a core
constexpr int64_t LINE = 64;              // bytes of a cache line
constexpr double FULL_SCALE = 30000;      // the largest estimate, with room above for slack and margin
constexpr double MAX_SLACK = 15000;       // estimates with larger errors are useless

using Estimates = std::vector<int16_t, CacheAligned<int16_t>>;

int64_t round_up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

int64_t estimate_stride(int64_t padded_rows) {
    const int64_t stride = round_up(padded_rows, ESTIMATE_ALIGNMENT);
    return stride % 2048 == 0 ? stride + ESTIMATE_ALIGNMENT : stride;  // otherwise columns share cache sets
}

}  // namespace

std::unique_ptr<SmallSelfJoin> SmallSelfJoin::create(const Rows& vectors, int64_t k, int64_t memory, int threads,
                                                     int32_t* ids, float* similarities) {
    const int64_t padded_rows = round_up(vectors.n, kernels().strip);
    const int64_t bytes = padded_rows * (padded_rows + kernels().strip + 2 * round_up(vectors.d, 64) +
                                         estimate_stride(padded_rows) / GROUP);
    if (packing_for(vectors.d) != Packing::int8 || k < 1 || k >= vectors.n || bytes > memory) return nullptr;
    std::unique_ptr<SmallSelfJoin> join(new SmallSelfJoin(vectors, k, memory, threads, ids, similarities));
    join->pack_rows();
    if (!join->bound_errors()) return nullptr;
    join->estimate_products();
    return join->mark_candidates() && join->allocate_lists() ? std::move(join) : nullptr;
}

SmallSelfJoin::SmallSelfJoin(const Rows& vectors, int64_t k, int64_t memory, int threads, int32_t* ids,
                             float* similarities)
    : vectors_(vectors),
      n_(vectors.n),
      d_(vectors.d),
      k_(k),
      max_bytes_(memory),
      threads_(threads),
      ids_(ids),
      similarities_(similarities),
      kernels_(*kernels().small_self_join),
      words_(words_per_row(Packing::int8, d_)),
      strip_(kernels().strip),
      strips_((n_ + strip_ - 1) / strip_),
      padded_rows_(strips_ * strip_),
      stride_(estimate_stride(padded_rows_)),
      float_stride_(round_up(d_, 16)),
      tiles_bytes_(round_up(strips_ * (strips_ + 1) / 2 * strip_ * strip_ * int64_t(sizeof(int16_t)), LINE)),
      packed_bytes_(padded_rows_ * words_ * int64_t(sizeof(uint32_t))),
      marks_bytes_(padded_rows_ / GROUP * stride_),
      memory_(size_t(tiles_bytes_ + 2 * packed_bytes_ + marks_bytes_)),
      tiles_(reinterpret_cast<int16_t*>(static_cast<char*>(memory_))),
      left_(reinterpret_cast<uint32_t*>(memory_ + tiles_bytes_)),
      right_(left_ + packed_bytes_ / int64_t(sizeof(uint32_t))),
      marks_(reinterpret_cast<uint8_t*>(memory_ + tiles_bytes_ + 2 * packed_bytes_)),
      scales_(padded_rows_),
      errors_(padded_rows_),
      lengths_(padded_rows_),
      biases_(padded_rows_),
      column_slack_(stride_),
      row_slack_(padded_rows_),
      levels_(n_),
      counts_(padded_rows_),
      starts_(n_ + 1) {}

// The estimates of a strip of rows with a strip of columns, row ≤ column.
int16_t* SmallSelfJoin::tile(int64_t row, int64_t column) const {
    return tiles_ + (row * strips_ - row * (row - 1) / 2 + column - row) * strip_ * strip_;
}

void SmallSelfJoin::pack_rows() {
    const Kernels& simd = kernels();
    const int64_t bytes_of_row = int64_t(words_) * 4;
    parallel(padded_rows_ / simd.strip, threads_, [&](int64_t strip, int) {
        std::vector<int8_t> bytes(size_t(simd.strip * bytes_of_row));
        Aligned row_values(float_stride_);
        std::vector<const int8_t*> rows(simd.strip);
        const int64_t first = strip * simd.strip;
        const int present = int(std::min<int64_t>(simd.strip, n_ - first));
        for (int r = 0; r < present; ++r) {
            const int64_t row = first + r;
            rows[r] = bytes.data() + r * bytes_of_row;
            simd.to_float32(vectors_, row, row_values.data());
            simd.quantize(row_values.data(), d_, bytes_of_row, bytes.data() + r * bytes_of_row, &scales_[row],
                          &biases_[row], &errors_[row], &lengths_[row]);
            if (!(lengths_[row] <= MAX_NORM))
                throw std::invalid_argument("vectors has values that are not finite, or huge");
        }
        for (int r = 0; r < simd.strip; r += PANEL)
            simd.pack_int8(rows.data() + r, std::clamp(present - r, 0, PANEL), PANEL, words_,
                           right_ + (first + r) * words_);
        for (int r = 0; r < simd.strip; r += GROUP)
            simd.pack_int8(rows.data() + r, std::clamp(present - r, 0, GROUP), GROUP, words_,
                           left_ + (first + r) * words_);
    });
}

// Error bounds as in topk.h; one unit more is for rounding to integers. Returns false where they are too large.
bool SmallSelfJoin::bound_errors() {
    const double longest = *std::max_element(lengths_.begin(), lengths_.end());
    const double rounded = longest + *std::max_element(errors_.begin(), errors_.end());
    const double unit = FULL_SCALE / std::max(rounded * rounded, 1e-30);
    const double sum_error = accumulation_error(d_) * longest * longest;
    double sum = 0;
    for (int64_t i = 0; i < n_; ++i) {
        const double row_bound = std::ceil((errors_[i] * longest + sum_error) * unit) + 1;
        const double column_bound = std::ceil((rounded * errors_[i] + sum_error) * unit) + 1;
        if (!(row_bound <= MAX_SLACK && column_bound <= MAX_SLACK)) return false;
        row_slack_[i] = int16_t(row_bound);
        column_slack_[i] = int16_t(column_bound);
        sum += row_bound + column_bound;
    }
    unit_ = float(unit);
    margin_ = int32_t(sum / double(n_) / 8) + 2;  // actual errors are a tenth of the bound, or less
    return true;
}

void SmallSelfJoin::estimate_products() {
    parallel((strips_ + LEFT_STRIPS - 1) / LEFT_STRIPS, threads_, [&](int64_t task, int) {
        const int64_t begin = task * LEFT_STRIPS, end = std::min(strips_, begin + LEFT_STRIPS);
        for (int64_t column = begin; column < strips_; ++column) {
            const int64_t to = column * strip_;
            const QuantizedPanel right{right_ + to * words_, scales_.data() + to, biases_.data() + to, nullptr,
                                       nullptr};
            for (int64_t row = begin; row < std::min(end, column + 1); ++row) {
                const int64_t from = row * strip_;
                const QuantizedPanel left{left_ + from * words_, scales_.data() + from, nullptr, nullptr, nullptr};
                kernels_.estimate(words_, left, right, unit_, tile(row, column));
            }
        }
    });
}

// The highest level that k estimates reach, or one that few more do: a search that interpolates as if the number of
// estimates fell exponentially with the level.
int32_t SmallSelfJoin::find_level(const int16_t* estimates, int32_t start_level) const {
    const int64_t max_count = k_ + k_ / 32;
    const double log_target = std::log(double(k_) + double(k_) / 64);
    int32_t low = INT16_MIN + 1, high = INT16_MAX, level = start_level, step = 256;
    int64_t count_low = 0, count_high = 0;  // estimates that reach `low` and `high`; 0 where not counted
    for (int attempt = 0; high - low > 1; ++attempt) {
        const int64_t count = kernels_.count(estimates, stride_, int16_t(level));
        if (count >= k_ && count <= max_count) return level;
        (count >= k_ ? low : high) = level;
        (count >= k_ ? count_low : count_high) = count;
        if (count_low > 0 && high < INT16_MAX) {
            const double log_low = std::log(double(count_low)), log_high = std::log(double(count_high) + 0.5);
            // Bisection terminates where numbers do not fall like that, as among ties.
            const double fraction = attempt % 4 == 3 ? 0.5 : (log_low - log_target) / (log_low - log_high);
            level = low + int32_t(double(high - low) * fraction);
            level = std::clamp(level, low + 1, high - 1);
        } else {
            level = count >= k_ ? std::min(INT16_MAX - 1, level + step) : std::max(INT16_MIN + 1, level - step);
            step *= 2;
            if (level == low) break;
        }
    }
    return low;
}

// Returns whether few enough pairs are marked for scoring to pay.
bool SmallSelfJoin::mark_candidates() {
    std::vector<Estimates> estimates(threads_);
    parallel(strips_, threads_, [&](int64_t strip, int thread) {
        Estimates& strip_estimates = estimates[thread];
        strip_estimates.resize(size_t(strip_ * stride_));
        for (int64_t other_strip = 0; other_strip < strips_; ++other_strip)
            kernels_.unfold(other_strip < strip ? tile(other_strip, strip) : tile(strip, other_strip),
                            other_strip < strip, strip_estimates.data() + other_strip * strip_, stride_);
        int32_t level = 0;
        for (int64_t first = strip * strip_; first < std::min(n_, (strip + 1) * strip_); first += GROUP) {
            const int present = int(std::min<int64_t>(GROUP, n_ - first));
            int16_t* group = strip_estimates.data() + (first - strip * strip_) * stride_;
            uint8_t* marks = marks_ + first / GROUP * stride_;
            int16_t levels[GROUP];
            for (int r = 0; r < present; ++r) {
                const int64_t row = first + r;
                int16_t* row_values = group + r * stride_;
                row_values[row] = NO_ESTIMATE;
                std::fill(row_values + n_, row_values + stride_, NO_ESTIMATE);
                level = find_level(row_values, level);
                levels_[row] = level - margin_;
                levels[r] = int16_t(std::max(INT16_MIN + 1, levels_[row] - row_slack_[row]));
            }
            kernels_.mark(group, stride_, present, stride_, column_slack_.data(), levels, marks,
                          counts_.data() + first);
            for (int r = 0; r < present; ++r) {  // the row itself, where all are marked
                counts_[first + r] -= marks[first + r] >> r & 1;
                marks[first + r] &= uint8_t(~(1u << r));
            }
        }
    });
    int64_t total = 0;
    for (int64_t row = 0; row < n_; ++row) {
        starts_[row] = int32_t(total);
        total += counts_[row] + TOPK_PADDING;
    }
    starts_[n_] = int32_t(total);
    return total <= padded_rows_ * stride_ / 4;
}

// Allocates what scoring takes; returns false where `memory` does not suffice.
bool SmallSelfJoin::allocate_lists() {
    const int64_t rows_bytes = round_up(n_ * float_stride_ * int64_t(sizeof(float)), LINE);
    const int64_t lists_bytes = starts_[n_] * int64_t(sizeof(uint64_t));
    const int64_t free_bytes = tiles_bytes_ + 2 * packed_bytes_;
    const bool lists_fit = lists_bytes <= free_bytes, both_fit = rows_bytes + lists_bytes <= free_bytes;
    const int64_t extra_bytes = (both_fit ? 0 : rows_bytes) + (lists_fit ? 0 : lists_bytes);
    if (free_bytes + marks_bytes_ + extra_bytes > max_bytes_) return false;
    char* base = memory_;
    char* extra = nullptr;
    if (extra_bytes) {
        extra_memory_ = std::make_unique<ZeroedArray<char>>(size_t(extra_bytes));
        extra = *extra_memory_;
    }
    rows_ = reinterpret_cast<float*>(both_fit ? base : extra);
    char* lists = both_fit ? base + rows_bytes : lists_fit ? base : extra + rows_bytes;
    lists_ = reinterpret_cast<uint64_t*>(lists);
    return true;
}

void SmallSelfJoin::finish() {
    score_marked_pairs();
    write_lists();
}

// A block of rows stays in the cache of a core and is scored with all rows up to it.
void SmallSelfJoin::score_marked_pairs() {
    constexpr int64_t ROWS = 256;
    parallel((n_ + ROWS - 1) / ROWS, threads_, [&](int64_t task, int) {
        for (int64_t row = task * ROWS; row < std::min(n_, (task + 1) * ROWS); ++row)
            kernels().to_float32(vectors_, row, rows_ + row * float_stride_);
    });
    std::vector<int32_t> next(starts_.begin(), starts_.end() - 1);
    next.resize(padded_rows_);
    const int64_t groups = (n_ + GROUP - 1) / GROUP;
    const int64_t block =
        std::clamp<int64_t>(BLOCK_BYTES / (GROUP * float_stride_ * int64_t(sizeof(float))), 1, MAX_GROUPS);
    const int64_t blocks = (groups + block - 1) / block;
    parallel(blocks, threads_, [&](int64_t task, int) {
        // Longest tasks first.
        const int64_t begin = (blocks - 1 - task) * block, end = std::min(groups, begin + block);
        for (int64_t g = 0; g < end; ++g)
            kernels_.score_marked(rows_, d_, float_stride_, marks_, stride_, g, std::max(begin, g), end, threads_ > 1,
                                  next.data(), lists_);
    });
}

void SmallSelfJoin::write_lists() {
    constexpr int64_t ROWS = 256;
    parallel((n_ + ROWS - 1) / ROWS, threads_, [&](int64_t task, int) {
        std::vector<int32_t> ids;
        std::vector<float> scores;
        for (int64_t row = task * ROWS; row < std::min(n_, (task + 1) * ROWS); ++row) {
            ids.resize(std::max<size_t>(ids.size(), counts_[row] + TOPK_PADDING));
            scores.resize(ids.size());
            kernels_.split_entries(lists_ + starts_[row], counts_[row], ids.data(), scores.data());
            write_topk(row, scores.data(), ids.data(), counts_[row]);
            const float kth_score = similarities_[row * k_ + k_ - 1];
            if (kth_score * unit_ < float(levels_[row])) rescan_row(row);
        }
    });
}

// Scores a row with all others.
void SmallSelfJoin::rescan_row(int64_t row) {
    ++rescanned_rows_;
    std::vector<int32_t> ids(n_ + TOPK_PADDING);
    std::vector<float> scores(n_ + TOPK_PADDING);
    for (int64_t c = 0; c + 1 < n_; ++c) ids[c] = int32_t(c < row ? c : c + 1);
    Aligned row_values(float_stride_);
    kernels().to_float32(vectors_, row, row_values.data());
    kernels().dots(row_values.data(), vectors_, ids.data(), n_ - 1, scores.data());
    write_topk(row, scores.data(), ids.data(), n_ - 1);
}

void SmallSelfJoin::write_topk(int64_t row, float* scores, int32_t* ids, int64_t count) {
    int32_t* best_ids = ids_ + row * k_;
    float* best_scores = similarities_ + row * k_;
    const int64_t n_kept = kernels_.keep_topk_candidates(scores, ids, count, k_);
    if (n_kept <= MAX_RANKED && kernels_.sort_topk(scores, ids, n_kept, k_, best_ids, best_scores)) return;
    std::vector<uint64_t> keys(n_kept);
    for (int64_t c = 0; c < n_kept; ++c) keys[c] = make_key(scores[c], ids[c]);
    std::nth_element(keys.begin(), keys.begin() + (k_ - 1), keys.end(), descending);
    std::sort(keys.begin(), keys.begin() + k_, descending);
    for (int64_t c = 0; c < k_; ++c) {
        best_ids[c] = key_id(keys[c]);
        best_scores[c] = key_score(keys[c]);
    }
}

}  // namespace manifind
