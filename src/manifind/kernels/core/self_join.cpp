#include "self_join.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "parallel.h"
#include "topk.h"

namespace manifind {
namespace {

constexpr int64_t LEFT_ROWS = 4096;  // packed once, then joined with all others
// Up to this many rows, SmallSelfJoin keeps all products. Relative to the banded join it takes 0.5 to 0.7 of the time
// at 7,000 rows, 0.6 to 0.8 at 9,000, 0.6 to 1.1 at 11,000 (k = 50 and 200; Oxford5k regions with d = 512, clusters
// with d = 256).
constexpr int64_t DENSE_JOIN_MAX_ROWS = 10 << 10;
constexpr int64_t BLOCK_BYTES = 5 << 17;  // a block of right-hand rows in float32 stays in the cache of a core
constexpr int64_t MAX_STRIPS = 8;         // of a block
constexpr int64_t MAX_PENDING = 32;       // candidates of a row before they are pushed

// Ties by id: the result does not depend on the order of arrival.
constexpr auto better_candidate = [](const Candidate& a, const Candidate& b) {
    return a.score > b.score || (a.score == b.score && a.id < b.id);
};

uint64_t nth_key(std::vector<uint64_t>& keys, int64_t rank) {
    std::nth_element(keys.begin(), keys.begin() + (rank - 1), keys.end(), descending);
    return keys[rank - 1];
}

constexpr double ROW_DEVIATIONS = 2.0;  // safety margin of estimated thresholds, in standard deviations

}  // namespace

QuantizationErrors::QuantizationErrors(Packing packing, const Rows& vectors, int threads)
    : scales(vectors.n), offsets(vectors.n) {
    constexpr int64_t ROWS = 1024;
    const int64_t n = vectors.n, d = vectors.d;
    std::vector<float> lengths(n), errors(n);
    parallel((n + ROWS - 1) / ROWS, threads, [&](int64_t task, int) {
        std::vector<float> row(d);
        std::vector<int8_t> bytes(d);
        for (int64_t i = task * ROWS; i < std::min(n, (task + 1) * ROWS); ++i) {
            int32_t bias;
            kernels().to_float32(vectors, i, row.data());
            kernels().quantize(row.data(), d, d, bytes.data(), &scales[i], &bias, &errors[i], &lengths[i]);
        }
    });
    if (!std::all_of(lengths.begin(), lengths.end(), [](float one) { return one <= MAX_NORM; }))
        throw std::invalid_argument("vectors has values that are not finite, or huge");
    const double max_length = n ? *std::max_element(lengths.begin(), lengths.end()) : 0;
    const double max_error = n && packing == Packing::int8 ? *std::max_element(errors.begin(), errors.end()) : 0;
    // Error bound of a product: see topk.h.
    const double sum_error = accumulation_error(d) / 2 * max_length * max_length;
    for (int64_t i = 0; i < n; ++i)
        offsets[i] = float((max_error > 0 ? errors[i] : 0) * (max_length + max_error) + sum_error);
}

void PackedRows::fill(Packing packing, const Rows& vectors, const int64_t* rows, int64_t count, int height,
                      int used_height, int64_t multiple, const QuantizationErrors& errors, bool keep, int threads) {
    const int values = int(packing);
    const int64_t d = vectors.d;
    const int64_t padded_rows = ((count + used_height - 1) / used_height * height + multiple - 1) / multiple * multiple;
    row_words = int((d + values - 1) / values);
    words.resize(size_t(padded_rows) * row_words);
    thresholds.assign(padded_rows, UNREACHABLE);
    offsets.assign(padded_rows, 0);
    scales.assign(padded_rows, 0);
    biases.assign(padded_rows, 0);
    floats.resize(size_t(keep ? padded_rows : int64_t(threads) * height) * d);
    parallel(padded_rows / height, threads, [&](int64_t panel, int thread) {
        const int64_t first = panel * used_height, to = panel * height;
        const int present = int(std::clamp<int64_t>(count - first, 0, used_height));
        float* row_values = floats.data() + (keep ? to : int64_t(thread) * height) * d;
        for (int r = 0; r < present; ++r) {
            const int64_t row = rows[first + r];
            kernels().to_float32(vectors, row, row_values + r * d);
            offsets[to + r] = errors.offsets[row];
            scales[to + r] = errors.scales[row];
        }
        kernels().pack(packing, row_values, d, present, height, row_words, scales.data() + to,
                       words.data() + to * row_words, biases.data() + to);
    });
}

ScanPanel PackedRows::from(int64_t row) const {
    return {words.data() + row * row_words, thresholds.data() + row, offsets.data() + row, scales.data() + row,
            biases.data() + row};
}

// -- identical rows ---------------------------------------------------------------------------------------------------

// Whether more than `max_copies` rows may share a hash. Counting the hashes' last bits is faster than sorting them.
static bool may_exceed_copies(const std::vector<std::pair<uint64_t, int32_t>>& hashes, int64_t max_copies) {
    size_t kinds = 1;
    while (kinds < hashes.size()) kinds *= 2;
    std::vector<int32_t> counts(kinds);
    int32_t max_count = 0;
    for (const auto& [hash, row] : hashes) max_count = std::max(max_count, ++counts[hash & (kinds - 1)]);
    return max_count > max_copies;
}

DuplicateRows::DuplicateRows(const Rows& vectors, int64_t max_copies, int threads) {
    constexpr int64_t ROWS = 1024;
    const int64_t n = vectors.n, bytes = vectors.d * (vectors.half ? 2 : 4);
    const char* data = static_cast<const char*>(vectors.data);
    std::vector<std::pair<uint64_t, int32_t>> hashes(n);
    parallel((n + ROWS - 1) / ROWS, threads, [&](int64_t task, int) {
        for (int64_t i = task * ROWS; i < std::min(n, (task + 1) * ROWS); ++i) {
            constexpr uint64_t ODD = 0x9e3779b97f4a7c15u;
            uint64_t sums[4] = {1, 2, 3, 4};  // four independent chains, or each product would wait for the one before
            int64_t at = 0;
            for (; at + 32 <= bytes; at += 32)
                for (int u = 0; u < 4; ++u) {
                    uint64_t word;
                    std::memcpy(&word, data + i * bytes + at + 8 * u, 8);
                    sums[u] = (sums[u] ^ word) * ODD;
                    sums[u] ^= sums[u] >> 29;
                }
            for (; at < bytes; ++at) sums[0] = (sums[0] ^ uint8_t(data[i * bytes + at])) * ODD;
            hashes[i] = {((sums[0] * ODD ^ sums[1]) * ODD ^ sums[2]) * ODD ^ sums[3], int32_t(i)};
        }
    });
    representatives.resize(n);
    std::iota(representatives.begin(), representatives.end(), 0);
    if (!may_exceed_copies(hashes, max_copies)) return;
    std::sort(hashes.begin(), hashes.end());
    int64_t max_count = 0;
    for (int64_t i = 0, begin = 0; i < n; ++i) {
        if (hashes[i].first != hashes[begin].first) begin = i;
        max_count = std::max(max_count, i - begin + 1);
    }
    if (max_count <= max_copies) return;
    // Rows of one hash join the first row that they equal.
    std::vector<int32_t> duplicate_of(representatives);
    for (int64_t begin = 0, end; begin < n; begin = end) {
        std::vector<int32_t> kinds;
        for (end = begin; end < n && hashes[end].first == hashes[begin].first; ++end) {
            const int64_t row = hashes[end].second;
            const auto same = [&](int32_t other) {
                return std::memcmp(data + row * bytes, data + other * bytes, size_t(bytes)) == 0;
            };
            const auto found = std::find_if(kinds.begin(), kinds.end(), same);
            if (found == kinds.end())
                kinds.push_back(int32_t(row));
            else
                duplicate_of[row] = *found;
        }
    }
    representatives.clear();
    group_of.resize(n);
    for (int64_t i = 0; i < n; ++i) {
        if (duplicate_of[i] == i) representatives.push_back(int32_t(i));
        group_of[i] = duplicate_of[i] == i ? int32_t(representatives.size()) - 1 : group_of[duplicate_of[i]];
    }
    group_starts.assign(representatives.size() + 1, 0);
    for (int32_t one : group_of) ++group_starts[one + 1];
    std::partial_sum(group_starts.begin(), group_starts.end(), group_starts.begin());
    group_members.resize(n);
    std::vector<int64_t> at(group_starts.begin(), group_starts.end() - 1);
    for (int64_t i = 0; i < n; ++i) group_members[at[group_of[i]]++] = int32_t(i);
}

// Expands the lists of representatives to the lists of all rows.
void SelfJoin::copy_to_duplicates() {
    if (duplicates_.group_of.empty()) return;
    parallel(n_, threads_, [&](int64_t group, int) {
        const int64_t first = duplicates_.representatives[group], begin = duplicates_.group_starts[group],
                      end = duplicates_.group_starts[group + 1];
        std::vector<float> row_values(d_);
        float itself;
        const int32_t one = int32_t(first);
        kernels().to_float32(vectors_, first, row_values.data());
        kernels().dots(row_values.data(), vectors_, &one, 1, &itself);
        std::vector<Candidate> kinds{{itself, one}}, all;
        for (int64_t e = 0; e < k_; ++e) kinds.push_back({similarities_[first * width_ + e], ids_[first * width_ + e]});
        std::sort(kinds.begin(), kinds.end(), better_candidate);
        for (const Candidate& candidate : kinds) {
            if (int64_t(all.size()) > width_ && candidate.score < all.back().score) break;
            const int64_t from = duplicates_.group_starts[duplicates_.group_of[candidate.id]],
                          to = duplicates_.group_starts[duplicates_.group_of[candidate.id] + 1];
            for (int64_t e = from; e < std::min(to, from + width_ + 1); ++e)
                all.push_back({candidate.score, duplicates_.group_members[e]});
        }
        std::sort(all.begin(), all.end(), better_candidate);
        for (int64_t member = begin; member < end; ++member) {
            const int32_t row = duplicates_.group_members[member];
            int64_t to = row * width_;
            for (size_t c = 0; c < all.size() && to < (row + 1) * width_; ++c) {
                if (all[c].id == row) continue;
                ids_[to] = all[c].id;
                similarities_[to++] = all[c].score;
            }
        }
    });
}

// -- the join ---------------------------------------------------------------------------------------------------------

SelfJoin::SelfJoin(const Rows& vectors, int64_t k, int64_t memory, int threads, int32_t* ids, float* similarities)
    : vectors_(vectors),
      duplicates_(vectors, k, threads),
      width_(k),
      n_(int64_t(duplicates_.representatives.size())),
      d_(vectors.d),
      k_(std::min(k, n_ - 1)),
      packing_(packing_for(d_)),
      threads_(threads),
      ids_(ids),
      similarities_(similarities),
      small_join_(n_ == vectors.n && n_ <= DENSE_JOIN_MAX_ROWS
                      ? SmallSelfJoin::create(vectors, k, memory, threads, ids, similarities)
                      : nullptr),
      errors_(packing_, small_join_ ? Rows{vectors.data, 0, d_, vectors.half} : vectors, threads),
      order_(duplicates_.representatives.begin(), duplicates_.representatives.end()),
      overflow_size_(std::max<int64_t>(64, k / 2)),
      thread_states_(threads) {
    std::shuffle(order_.begin(), order_.end(), std::mt19937_64(0));
    const int64_t row_bytes = overflow_size_ * int64_t(sizeof(Candidate)) + 16;
    band_size_ = std::clamp<int64_t>(memory / row_bytes, std::min(n_, LEFT_ROWS), n_);
    band_size_ =
        (n_ + (n_ + band_size_ - 1) / band_size_ - 1) / ((n_ + band_size_ - 1) / band_size_);  // bands of equal size
    const int64_t strip = kernels().strip;
    block_ = strip * std::clamp<int64_t>(BLOCK_BYTES / (strip * d_ * int64_t(sizeof(float))), 1, MAX_STRIPS);
}

int64_t SelfJoin::step() {
    if (next_place_ >= n_ || k_ == 0) {
        if (!duplicates_copied_) copy_to_duplicates();
        duplicates_copied_ = true;
        return vectors_.n;
    }
    if (small_join_) {
        small_join_->finish();
        rescanned_rows_ = small_join_->rescanned_rows();
        next_place_ = n_;
        return step();
    }
    if (next_place_ == band_end_) start_band();
    std::vector<int32_t> places(std::min(band_end_ - next_place_, LEFT_ROWS));
    std::iota(places.begin(), places.end(), int32_t(next_place_ - band_begin_));
    search(places, true);
    next_place_ += int64_t(places.size());
    if (next_place_ == band_end_) finish_band();
    if (next_place_ < n_) return next_place_;
    return step();
}

void SelfJoin::start_band() {
    band_begin_ = next_place_;
    band_end_ = std::min(n_, band_begin_ + band_size_);
    overflow_.resize(size_t(band_end_ - band_begin_) * overflow_size_);
    row_states_.reset(new RowState[band_end_ - band_begin_]);
}

// Joins the rows at these places with all others. In the first pass earlier places of the band are done already, and a
// pair within the band is a candidate for both rows.
void SelfJoin::search(const std::vector<int32_t>& places, bool first_pass) {
    std::vector<int64_t> rows(places.size());
    for (size_t i = 0; i < places.size(); ++i) rows[i] = order_[band_begin_ + places[i]];
    left_.fill(packing_, vectors_, rows.data(), int64_t(rows.size()), GROUP, GROUP, GROUP, errors_, true, threads_);
    struct Range {
        int64_t begin, end;
        bool both;
    };
    std::vector<Range> ranges;
    const auto cut = [&](int64_t begin, int64_t end, bool both) {
        for (; begin < end; begin += block_) ranges.push_back({begin, std::min(end, begin + block_), both});
    };
    if (first_pass) cut(band_begin_ + places[0], band_end_, true);
    if (!first_pass) cut(band_begin_, band_end_, false);
    cut(0, band_begin_, false);
    cut(band_end_, n_, false);
    parallel(int64_t(ranges.size()), threads_, [&](int64_t task, int thread) {
        const Range& range = ranges[task];
        scan_block(places, range.begin, range.end, range.both, first_pass, places[0] + (task + 1) * block_,
                   thread_states_[thread]);
    });
}

void SelfJoin::scan_block(const std::vector<int32_t>& places, int64_t begin, int64_t end, bool both, bool guess,
                          int64_t seen, ThreadState& state) {
    const Kernels& simd = kernels();
    state.right.fill(packing_, vectors_, order_.data() + begin, end - begin, PANEL, PANEL, simd.strip, errors_, true,
                     1);
    const Rows others{state.right.floats.data(), end - begin, d_, false};
    state.hits.resize(TILE_ROWS * simd.strip);
    state.row_thresholds.assign(TILE_ROWS, UNREACHABLE);
    state.matches.resize(TILE_ROWS * block_);
    state.scores.resize(block_);
    state.pending.resize(block_ * MAX_PENDING);
    state.pending_counts.assign(block_, 0);
    const int64_t count = int64_t(places.size());
    const int64_t row_rank = guess ? sample_rank(k_, seen, n_, ROW_DEVIATIONS) : k_;
    int64_t column_rank = k_;
    const auto flush = [&](int64_t j) {
        int32_t& count = state.pending_counts[j];
        push_candidates(begin + j - band_begin_, state.pending.data() + j * MAX_PENDING, count, column_rank, state);
        count = 0;
    };
    const auto threshold = [&](int64_t place) { return row_states_[place].threshold.load(std::memory_order_relaxed); };
    for (int64_t tile = 0; tile < count; tile += TILE_ROWS) {
        const int64_t tile_end = std::min(count, tile + TILE_ROWS);
        if (guess) column_rank = sample_rank(k_, places[0] + tile_end, n_, ROW_DEVIATIONS);
        if (both && band_begin_ + places[tile] >= end) break;  // the other orientation covers these pairs
        for (int64_t i = tile; i < tile + TILE_ROWS; ++i)
            state.row_thresholds[i - tile] = i < tile_end ? threshold(places[i]) : UNREACHABLE;
        for (int64_t j = begin; j < end && both; ++j) state.right.thresholds[j - begin] = threshold(j - band_begin_);
        ScanPanel left = left_.from(tile);
        left.thresholds = state.row_thresholds.data();
        state.counts.assign(TILE_ROWS, 0);
        // Prefetches the rows to rescore while the tile is scanned.
        for (int64_t at = tile * d_; at < tile_end * d_; at += 16) __builtin_prefetch(left_.floats.data() + at, 0, 2);
        for (int64_t strip = 0; strip < end - begin; strip += simd.strip) {
            const int groups = int((tile_end - tile + GROUP - 1) / GROUP);
            const size_t found = simd.scan(packing_, state.right.row_words, groups, GROUP, left,
                                           state.right.from(strip), state.hits.data());
            for (size_t h = 0; h < found; ++h) {
                const int64_t row = state.hits[h].row, j = strip + state.hits[h].column;
                if (tile + row >= count || begin + j >= end) continue;
                const int64_t row_place = band_begin_ + places[tile + row];
                if (row_place == begin + j || (both && begin + j < row_place)) continue;
                state.matches[row * block_ + state.counts[row]++] = int32_t(j);
            }
        }
        for (int64_t i = tile; i < tile_end; ++i) {
            const int32_t* matches = state.matches.data() + (i - tile) * block_;
            const int64_t found = state.counts[i - tile];
            if (found == 0) continue;
            const int32_t id = int32_t(order_[band_begin_ + places[i]]);
            simd.dots(left_.floats.data() + i * d_, others, matches, found, state.scores.data());
            state.row_candidates.clear();
            for (int64_t c = 0; c < found; ++c) {
                const float score = state.scores[c];
                const int64_t j = matches[c];
                if (score >= state.row_thresholds[i - tile])
                    state.row_candidates.push_back({score, int32_t(order_[begin + j])});
                if (both && score >= state.right.thresholds[j]) {
                    state.pending[j * MAX_PENDING + state.pending_counts[j]++] = {score, id};
                    if (state.pending_counts[j] == MAX_PENDING) flush(j);
                }
            }
            push_candidates(places[i], state.row_candidates.data(), int64_t(state.row_candidates.size()), row_rank,
                            state);
        }
    }
    for (int64_t j = 0; j < end - begin; ++j) flush(j);
}

void SelfJoin::push_candidates(int64_t place, const Candidate* candidates, int64_t count, int64_t rank,
                               ThreadState& state) {
    if (count == 0) return;
    RowState& row_state = row_states_[place];
    const int64_t row = order_[band_begin_ + place];
    const int64_t max_count = rank < k_ ? std::min(2 * rank + 16, k_ + overflow_size_) : k_ + overflow_size_;
    while (row_state.lock.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
    struct Held {
        std::atomic_flag& lock;
        ~Held() { lock.clear(std::memory_order_release); }
    } held{row_state.lock};
    const auto is_better = [&](const Candidate& candidate) {
        const float threshold = row_state.threshold.load(std::memory_order_relaxed);
        return candidate.score > threshold || (candidate.score == threshold && candidate.id <= row_state.last);
    };
    for (const Candidate* candidate = candidates; candidate < candidates + count; ++candidate) {
        if (!is_better(*candidate)) continue;
        if (row_state.count >= max_count) {
            compact(place, rank, state);
            if (!is_better(*candidate)) continue;
        }
        const int64_t at = row_state.count++;
        if (at < k_) {
            ids_[row * width_ + at] = candidate->id;
            similarities_[row * width_ + at] = candidate->score;
        } else {
            overflow_[place * overflow_size_ + at - k_] = *candidate;
        }
    }
}

// Keeps the best `rank` candidates: k, or fewer where the rank is estimated from the rows seen so far.
void SelfJoin::compact(int64_t place, int64_t rank, ThreadState& state) {
    RowState& row_state = row_states_[place];
    std::vector<uint64_t>& keys = state.keys;
    load(place, keys);
    const uint64_t last = nth_key(keys, rank);
    keys.resize(rank);
    row_state.threshold.store(key_score(last), std::memory_order_relaxed);
    row_state.last = key_id(last);
    if (rank < k_) row_state.guessed_key = last;
    save(place, keys);
}

void SelfJoin::load(int64_t place, std::vector<uint64_t>& to) const {
    const int64_t row = order_[band_begin_ + place], count = row_states_[place].count;
    to.resize(count);
    for (int64_t c = 0; c < std::min(count, k_); ++c)
        to[c] = make_key(similarities_[row * width_ + c], ids_[row * width_ + c]);
    for (int64_t c = k_; c < count; ++c) {
        const Candidate& one = overflow_[place * overflow_size_ + c - k_];
        to[c] = make_key(one.score, one.id);
    }
}

void SelfJoin::save(int64_t place, const std::vector<uint64_t>& from) {
    const int64_t row = order_[band_begin_ + place], count = int64_t(from.size());
    row_states_[place].count = int32_t(count);
    for (int64_t c = 0; c < std::min(count, k_); ++c) {
        ids_[row * width_ + c] = key_id(from[c]);
        similarities_[row * width_ + c] = key_score(from[c]);
    }
    for (int64_t c = k_; c < count; ++c)
        overflow_[place * overflow_size_ + c - k_] = {key_score(from[c]), key_id(from[c])};
}

// Sorts the top k of a row; returns false where an estimated threshold was too high.
bool SelfJoin::finish_row(int64_t place, ThreadState& state) {
    std::vector<uint64_t>& keys = state.keys;
    const RowState& row_state = row_states_[place];
    if (row_state.count < k_) return false;
    load(place, keys);
    const uint64_t last = nth_key(keys, k_);
    keys.resize(k_);
    std::sort(keys.begin(), keys.end(), descending);
    save(place, keys);
    return last >= row_state.guessed_key;
}

void SelfJoin::finish_band() {
    const int64_t rows = band_end_ - band_begin_;
    std::vector<char> exact(rows, 0);
    const auto finish = [&] {
        constexpr int64_t ROWS = 256;
        parallel((rows + ROWS - 1) / ROWS, threads_, [&](int64_t task, int thread) {
            for (int64_t place = task * ROWS; place < std::min(rows, (task + 1) * ROWS); ++place)
                if (!exact[place]) exact[place] = finish_row(place, thread_states_[thread]);
        });
    };
    finish();
    // Rescans the rows whose estimate was too high, without estimates.
    std::vector<int32_t> rescan;
    for (int64_t place = 0; place < rows; ++place) {
        if (exact[place]) continue;
        rescan.push_back(int32_t(place));
        RowState& row_state = row_states_[place];
        row_state.count = 0;
        row_state.last = std::numeric_limits<int32_t>::max();
        row_state.guessed_key = 0;
        row_state.threshold.store(NO_THRESHOLD, std::memory_order_relaxed);
    }
    rescanned_rows_ += int64_t(rescan.size());
    for (size_t first = 0; first < rescan.size(); first += LEFT_ROWS)
        search({rescan.begin() + first, rescan.begin() + std::min(rescan.size(), first + LEFT_ROWS)}, false);
    if (!rescan.empty()) finish();
}

}  // namespace manifind
