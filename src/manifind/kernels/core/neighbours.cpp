#include "neighbours.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "candidates.h"
#include "parallel.h"

namespace manifind {
namespace {

constexpr int64_t LEFT_ROWS = 4096;       // packed once and met by all others
// Of up to so many rows all products are kept. Measured for k = 50 and 200 on regions of Oxford5k (d = 512) and on clusters
// (d = 256): at 7,000 rows it takes 0.5 to 0.7 of the time of the other way, at 9,000 0.6 to 0.8, at 11,000 0.6 to 1.1.
constexpr int64_t FEWER_ROWS = 10 << 10;
constexpr int64_t BLOCK_BYTES = 5 << 17;  // of a block of the others, in float32: it stays in the cache of a core
constexpr int64_t MOST_STRIPS = 8;        // of a block
constexpr int64_t WAITING = 32;           // candidates of a row of a block that wait to be pushed

// Equal scores by id: of those that were kept the same are first, whoever came first.
constexpr auto better = [](const Candidate& a, const Candidate& b) {
    return a.score > b.score || (a.score == b.score && a.id < b.id);
};

uint64_t at_rank(std::vector<uint64_t>& keys, int64_t rank) {
    std::nth_element(keys.begin(), keys.begin() + (rank - 1), keys.end(), best_first);
    return keys[rank - 1];
}

constexpr double OF_ROWS = 2.0;  // deviations allowed for where rows come one by one in random order

}  // namespace

Rounding::Rounding(Packing packing, const Rows& vectors, int threads)
    : scales(vectors.n), offsets(vectors.n) {
    constexpr int64_t ROWS = 1024;
    const int64_t n = vectors.n, d = vectors.d;
    std::vector<float> lengths(n), errors(n);
    parallel((n + ROWS - 1) / ROWS, threads, [&](int64_t task, int) {
        std::vector<float> row(d);
        std::vector<int8_t> bytes(d);
        for (int64_t i = task * ROWS; i < std::min(n, (task + 1) * ROWS); ++i) {
            int32_t bias;
            loops().widen(vectors, i, row.data());
            loops().compress(row.data(), d, d, bytes.data(), &scales[i], &bias, &errors[i], &lengths[i]);
        }
    });
    if (!std::all_of(lengths.begin(), lengths.end(), [](float one) { return one <= LONGEST; }))
        throw std::invalid_argument("vectors has values that are not finite, or huge");
    const double longest = n ? *std::max_element(lengths.begin(), lengths.end()) : 0;
    const double worst = n && packing == Packing::int8 ? *std::max_element(errors.begin(), errors.end()) : 0;
    // x·z − x̂·ẑ = (x − x̂)·z + x̂·(z − ẑ), each at most the product of the lengths. Adding up d products in float32, here
    // and when they are scored anew, is off by at most d units in the last place each time.
    const double adding = double(d + 16) * std::ldexp(1.0, -23) * longest * longest;
    for (int64_t i = 0; i < n; ++i) offsets[i] = float((worst > 0 ? errors[i] : 0) * (longest + worst) + adding);
}

void Packed::fill(Packing packing, const Rows& vectors, const int64_t* rows, int64_t count, int height, int used,
                  int64_t multiple, const Rounding& rounding, bool keep, int threads) {
    const int values = int(packing);
    const int64_t d = vectors.d;
    const int64_t room = ((count + used - 1) / used * height + multiple - 1) / multiple * multiple;
    words_of_row = int((d + values - 1) / values);
    words.resize(size_t(room) * words_of_row);
    thresholds.assign(room, NEVER);
    offsets.assign(room, 0);
    scales.assign(room, 0);
    biases.assign(room, 0);
    floats.resize(size_t(keep ? room : int64_t(threads) * height) * d);
    parallel(room / height, threads, [&](int64_t panel, int thread) {
        const int64_t first = panel * used, to = panel * height;
        const int present = int(std::clamp<int64_t>(count - first, 0, used));
        float* own = floats.data() + (keep ? to : int64_t(thread) * height) * d;
        for (int r = 0; r < present; ++r) {
            const int64_t row = rows[first + r];
            loops().widen(vectors, row, own + r * d);
            offsets[to + r] = rounding.offsets[row];
            scales[to + r] = rounding.scales[row];
        }
        loops().pack(packing, own, d, present, height, words_of_row, scales.data() + to,
                     words.data() + to * words_of_row, biases.data() + to);
    });
}

Block Packed::from(int64_t row) const {
    return {words.data() + row * words_of_row, thresholds.data() + row, offsets.data() + row, scales.data() + row,
            biases.data() + row};
}

// -- rows that are the same -------------------------------------------------------------------------------------------

// Whether more than `many` may have one hash. Hashes are counted by their last bits, which takes less time than sorting.
static bool may_have_more(const std::vector<std::pair<uint64_t, int32_t>>& hashes, int64_t many) {
    size_t kinds = 1;
    while (kinds < hashes.size()) kinds *= 2;
    std::vector<int32_t> counts(kinds);
    int32_t most = 0;
    for (const auto& [hash, row] : hashes) most = std::max(most, ++counts[hash & (kinds - 1)]);
    return most > many;
}

Equals::Equals(const Rows& vectors, int64_t many, int threads) {
    constexpr int64_t ROWS = 1024;
    const int64_t n = vectors.n, bytes = vectors.d * (vectors.half ? 2 : 4);
    const char* data = static_cast<const char*>(vectors.data);
    std::vector<std::pair<uint64_t, int32_t>> hashes(n);
    parallel((n + ROWS - 1) / ROWS, threads, [&](int64_t task, int) {
        for (int64_t i = task * ROWS; i < std::min(n, (task + 1) * ROWS); ++i) {
            constexpr uint64_t ODD = 0x9e3779b97f4a7c15u;
            uint64_t sums[4] = {1, 2, 3, 4};  // of their own: one would make every product wait for the one before
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
    first.resize(n);
    std::iota(first.begin(), first.end(), 0);
    if (!may_have_more(hashes, many)) return;
    std::sort(hashes.begin(), hashes.end());
    int64_t most = 0;
    for (int64_t i = 0, begin = 0; i < n; ++i) {
        if (hashes[i].first != hashes[begin].first) begin = i;
        most = std::max(most, i - begin + 1);
    }
    if (most <= many) return;
    // Of one hash, those that are the same as an earlier one join it.
    std::vector<int32_t> joins(first);
    for (int64_t begin = 0, end; begin < n; begin = end) {
        std::vector<int32_t> kinds;
        for (end = begin; end < n && hashes[end].first == hashes[begin].first; ++end) {
            const int64_t row = hashes[end].second;
            const auto same = [&](int32_t other) {
                return std::memcmp(data + row * bytes, data + other * bytes, size_t(bytes)) == 0;
            };
            const auto found = std::find_if(kinds.begin(), kinds.end(), same);
            if (found == kinds.end()) kinds.push_back(int32_t(row));
            else joins[row] = *found;
        }
    }
    first.clear();
    kind.resize(n);
    for (int64_t i = 0; i < n; ++i) {
        if (joins[i] == i) first.push_back(int32_t(i));
        kind[i] = joins[i] == i ? int32_t(first.size()) - 1 : kind[joins[i]];
    }
    starts.assign(first.size() + 1, 0);
    for (int32_t one : kind) ++starts[one + 1];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    members.resize(n);
    std::vector<int64_t> at(starts.begin(), starts.end() - 1);
    for (int64_t i = 0; i < n; ++i) members[at[kind[i]]++] = int32_t(i);
}

// The lists of the rows that were searched have one row of each kind: makes of them the lists of all rows.
void Neighbours::give_to_equals() {
    if (equals_.kind.empty()) return;
    parallel(n_, threads_, [&](int64_t kind, int) {
        const int64_t first = equals_.first[kind], begin = equals_.starts[kind], end = equals_.starts[kind + 1];
        std::vector<float> own(d_);
        float itself;
        const int32_t one = int32_t(first);
        loops().widen(vectors_, first, own.data());
        loops().dots(own.data(), vectors_, &one, 1, &itself);
        std::vector<Candidate> kinds{{itself, one}}, all;
        for (int64_t e = 0; e < k_; ++e)
            kinds.push_back({similarities_[first * width_ + e], ids_[first * width_ + e]});
        std::sort(kinds.begin(), kinds.end(), better);
        for (const Candidate& some : kinds) {
            if (int64_t(all.size()) > width_ && some.score < all.back().score) break;
            const int64_t from = equals_.starts[equals_.kind[some.id]], to = equals_.starts[equals_.kind[some.id] + 1];
            for (int64_t e = from; e < std::min(to, from + width_ + 1); ++e) all.push_back({some.score, equals_.members[e]});
        }
        std::sort(all.begin(), all.end(), better);
        for (int64_t member = begin; member < end; ++member) {
            const int32_t row = equals_.members[member];
            int64_t to = row * width_;
            for (size_t c = 0; c < all.size() && to < (row + 1) * width_; ++c) {
                if (all[c].id == row) continue;
                ids_[to] = all[c].id;
                similarities_[to++] = all[c].score;
            }
        }
    });
}

// -- all rows against all ---------------------------------------------------------------------------------------------

Neighbours::Neighbours(const Rows& vectors, int64_t k, int64_t memory, int threads, int32_t* ids, float* similarities)
    : vectors_(vectors),
      equals_(vectors, k, threads),
      width_(k),
      n_(int64_t(equals_.first.size())),
      d_(vectors.d),
      k_(std::min(k, n_ - 1)),
      packing_(packing_of(d_)),
      threads_(threads),
      ids_(ids),
      similarities_(similarities),
      few_(n_ == vectors.n && n_ <= FEWER_ROWS ? FewRows::of(vectors, k, memory, threads, ids, similarities) : nullptr),
      rounding_(packing_, few_ ? Rows{vectors.data, 0, d_, vectors.half} : vectors, threads),
      order_(equals_.first.begin(), equals_.first.end()),
      spare_size_(std::max<int64_t>(64, k / 2)),
      scratch_(threads) {
    std::shuffle(order_.begin(), order_.end(), std::mt19937_64(0));
    const int64_t row_bytes = spare_size_ * int64_t(sizeof(Candidate)) + 16;
    band_ = std::clamp<int64_t>(memory / row_bytes, std::min(n_, LEFT_ROWS), n_);
    band_ = (n_ + (n_ + band_ - 1) / band_ - 1) / ((n_ + band_ - 1) / band_);  // bands of one size
    const int64_t strip = loops().strip;
    block_ = strip * std::clamp<int64_t>(BLOCK_BYTES / (strip * d_ * int64_t(sizeof(float))), 1, MOST_STRIPS);
}

int64_t Neighbours::step() {
    if (at_ >= n_ || k_ == 0) {
        if (!given_) give_to_equals();
        given_ = true;
        return vectors_.n;
    }
    if (few_) {
        few_->finish();
        again_total_ = few_->searched_again();
        at_ = n_;
        return step();
    }
    if (at_ == band_end_) start_band();
    std::vector<int32_t> places(std::min(band_end_ - at_, LEFT_ROWS));
    std::iota(places.begin(), places.end(), int32_t(at_ - band_begin_));
    search(places, true);
    at_ += int64_t(places.size());
    if (at_ == band_end_) finish_band();
    if (at_ < n_) return at_;
    return step();
}

void Neighbours::start_band() {
    band_begin_ = at_;
    band_end_ = std::min(n_, band_begin_ + band_);
    spare_.resize(size_t(band_end_ - band_begin_) * spare_size_);
    states_.reset(new State[band_end_ - band_begin_]);
}

// Meets the rows at these places with all others. Where it is their turn, those of the band that come before were met
// already, and a pair within the band is a candidate for both.
void Neighbours::search(const std::vector<int32_t>& places, bool turn) {
    std::vector<int64_t> rows(places.size());
    for (size_t i = 0; i < places.size(); ++i) rows[i] = order_[band_begin_ + places[i]];
    left_.fill(packing_, vectors_, rows.data(), int64_t(rows.size()), GROUP, GROUP, GROUP, rounding_, true,
               threads_);
    struct Range {
        int64_t begin, end;
        bool both;
    };
    std::vector<Range> ranges;
    const auto cut = [&](int64_t begin, int64_t end, bool both) {
        for (; begin < end; begin += block_) ranges.push_back({begin, std::min(end, begin + block_), both});
    };
    if (turn) cut(band_begin_ + places[0], band_end_, true);
    if (!turn) cut(band_begin_, band_end_, false);
    cut(0, band_begin_, false);
    cut(band_end_, n_, false);
    parallel(int64_t(ranges.size()), threads_, [&](int64_t task, int thread) {
        const Range& range = ranges[task];
        scan_block(places, range.begin, range.end, range.both, turn, places[0] + (task + 1) * block_,
                   scratch_[thread]);
    });
}

void Neighbours::scan_block(const std::vector<int32_t>& places, int64_t begin, int64_t end, bool both, bool guess,
                            int64_t seen, Scratch& scratch) {
    const Loops& l = loops();
    scratch.right.fill(packing_, vectors_, order_.data() + begin, end - begin, PANEL, PANEL, l.strip, rounding_, true,
                       1);
    const Rows others{scratch.right.floats.data(), end - begin, d_, false};
    scratch.hits.resize(TILE_ROWS * l.strip);
    scratch.row_thresholds.assign(TILE_ROWS, NEVER);
    scratch.met.resize(TILE_ROWS * block_);
    scratch.scores.resize(block_);
    scratch.waiting.resize(block_ * WAITING);
    scratch.waiting_counts.assign(block_, 0);
    const int64_t count = int64_t(places.size());
    const int64_t row_rank = guess ? guessed_rank(k_, seen, n_, OF_ROWS) : k_;
    int64_t column_rank = k_;
    const auto flush = [&](int64_t j) {
        int32_t& count = scratch.waiting_counts[j];
        push(begin + j - band_begin_, scratch.waiting.data() + j * WAITING, count, column_rank, scratch);
        count = 0;
    };
    const auto threshold = [&](int64_t place) { return states_[place].threshold.load(std::memory_order_relaxed); };
    for (int64_t tile = 0; tile < count; tile += TILE_ROWS) {
        const int64_t tile_end = std::min(count, tile + TILE_ROWS);
        if (guess) column_rank = guessed_rank(k_, places[0] + tile_end, n_, OF_ROWS);
        if (both && band_begin_ + places[tile] >= end) break;  // these pairs come the other way round
        for (int64_t i = tile; i < tile + TILE_ROWS; ++i)
            scratch.row_thresholds[i - tile] = i < tile_end ? threshold(places[i]) : NEVER;
        for (int64_t j = begin; j < end && both; ++j) scratch.right.thresholds[j - begin] = threshold(j - band_begin_);
        Block left = left_.from(tile);
        left.thresholds = scratch.row_thresholds.data();
        scratch.counts.assign(TILE_ROWS, 0);
        // What will be scored anew is fetched while the tile is scanned.
        for (int64_t at = tile * d_; at < tile_end * d_; at += 16) __builtin_prefetch(left_.floats.data() + at, 0, 2);
        for (int64_t strip = 0; strip < end - begin; strip += l.strip) {
            const int groups = int((tile_end - tile + GROUP - 1) / GROUP);
            const size_t found = l.scan(packing_, scratch.right.words_of_row, groups, GROUP, left,
                                        scratch.right.from(strip), scratch.hits.data());
            for (size_t h = 0; h < found; ++h) {
                const int64_t row = scratch.hits[h].row, j = strip + scratch.hits[h].column;
                if (tile + row >= count || begin + j >= end) continue;
                const int64_t row_place = band_begin_ + places[tile + row];
                if (row_place == begin + j || (both && begin + j < row_place)) continue;
                scratch.met[row * block_ + scratch.counts[row]++] = int32_t(j);
            }
        }
        for (int64_t i = tile; i < tile_end; ++i) {
            const int32_t* met = scratch.met.data() + (i - tile) * block_;
            const int64_t found = scratch.counts[i - tile];
            if (found == 0) continue;
            const int32_t id = int32_t(order_[band_begin_ + places[i]]);
            l.dots(left_.floats.data() + i * d_, others, met, found, scratch.scores.data());
            scratch.row_candidates.clear();
            for (int64_t c = 0; c < found; ++c) {
                const float score = scratch.scores[c];
                const int64_t j = met[c];
                if (score >= scratch.row_thresholds[i - tile])
                    scratch.row_candidates.push_back({score, int32_t(order_[begin + j])});
                if (both && score >= scratch.right.thresholds[j]) {
                    scratch.waiting[j * WAITING + scratch.waiting_counts[j]++] = {score, id};
                    if (scratch.waiting_counts[j] == WAITING) flush(j);
                }
            }
            push(places[i], scratch.row_candidates.data(), int64_t(scratch.row_candidates.size()), row_rank, scratch);
        }
    }
    for (int64_t j = 0; j < end - begin; ++j) flush(j);
}

void Neighbours::push(int64_t place, const Candidate* some, int64_t count, int64_t rank, Scratch& scratch) {
    if (count == 0) return;
    State& state = states_[place];
    const int64_t row = order_[band_begin_ + place];
    const int64_t most = rank < k_ ? std::min(2 * rank + 16, k_ + spare_size_) : k_ + spare_size_;
    while (state.lock.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
    struct Held {
        std::atomic_flag& lock;
        ~Held() { lock.clear(std::memory_order_release); }
    } held{state.lock};
    const auto counts = [&](const Candidate& one) {
        const float threshold = state.threshold.load(std::memory_order_relaxed);
        return one.score > threshold || (one.score == threshold && one.id <= state.last);
    };
    for (const Candidate* one = some; one < some + count; ++one) {
        if (!counts(*one)) continue;
        if (state.count >= most) {
            compact(place, rank, scratch);
            if (!counts(*one)) continue;
        }
        const int64_t at = state.count++;
        if (at < k_) {
            ids_[row * width_ + at] = one->id;
            similarities_[row * width_ + at] = one->score;
        } else {
            spare_[place * spare_size_ + at - k_] = *one;
        }
    }
}

// Keeps the best `rank` candidates: k of them, or as many as are guessed to hold those of the k best that were seen.
void Neighbours::compact(int64_t place, int64_t rank, Scratch& scratch) {
    State& state = states_[place];
    std::vector<uint64_t>& keys = scratch.keys;
    load(place, keys);
    const uint64_t last = at_rank(keys, rank);
    keys.resize(rank);
    state.threshold.store(score_of(last), std::memory_order_relaxed);
    state.last = id_of(last);
    if (rank < k_) state.guess = last;
    save(place, keys);
}

void Neighbours::load(int64_t place, std::vector<uint64_t>& to) const {
    const int64_t row = order_[band_begin_ + place], count = states_[place].count;
    to.resize(count);
    for (int64_t c = 0; c < std::min(count, k_); ++c)
        to[c] = key_of(similarities_[row * width_ + c], ids_[row * width_ + c]);
    for (int64_t c = k_; c < count; ++c) {
        const Candidate& one = spare_[place * spare_size_ + c - k_];
        to[c] = key_of(one.score, one.id);
    }
}

void Neighbours::save(int64_t place, const std::vector<uint64_t>& from) {
    const int64_t row = order_[band_begin_ + place], count = int64_t(from.size());
    states_[place].count = int32_t(count);
    for (int64_t c = 0; c < std::min(count, k_); ++c) {
        ids_[row * width_ + c] = id_of(from[c]);
        similarities_[row * width_ + c] = score_of(from[c]);
    }
    for (int64_t c = k_; c < count; ++c) spare_[place * spare_size_ + c - k_] = {score_of(from[c]), id_of(from[c])};
}

// Leaves the k best of a row in order; returns whether they are, which they are not if a guess was too high.
bool Neighbours::finish_row(int64_t place, Scratch& scratch) {
    std::vector<uint64_t>& keys = scratch.keys;
    const State& state = states_[place];
    if (state.count < k_) return false;
    load(place, keys);
    const uint64_t last = at_rank(keys, k_);
    keys.resize(k_);
    std::sort(keys.begin(), keys.end(), best_first);
    save(place, keys);
    return last >= state.guess;
}

void Neighbours::finish_band() {
    const int64_t rows = band_end_ - band_begin_;
    std::vector<char> sure(rows, 0);
    const auto finish = [&] {
        constexpr int64_t ROWS = 256;
        parallel((rows + ROWS - 1) / ROWS, threads_, [&](int64_t task, int thread) {
            for (int64_t place = task * ROWS; place < std::min(rows, (task + 1) * ROWS); ++place)
                if (!sure[place]) sure[place] = finish_row(place, scratch_[thread]);
        });
    };
    finish();
    // Those whose guesses were too high all over again, without.
    std::vector<int32_t> again;
    for (int64_t place = 0; place < rows; ++place) {
        if (sure[place]) continue;
        again.push_back(int32_t(place));
        State& state = states_[place];
        state.count = 0;
        state.last = std::numeric_limits<int32_t>::max();
        state.guess = 0;
        state.threshold.store(NOTHING, std::memory_order_relaxed);
    }
    again_total_ += int64_t(again.size());
    for (size_t first = 0; first < again.size(); first += LEFT_ROWS)
        search({again.begin() + first, again.begin() + std::min(again.size(), first + LEFT_ROWS)}, false);
    if (!again.empty()) finish();
}

}  // namespace manifind
