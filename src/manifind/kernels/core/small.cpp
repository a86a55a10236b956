#include "small.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "candidates.h"
#include "parallel.h"

namespace manifind {
namespace {

constexpr int64_t MOST_QUERIES = 128;      // of a tile: they share the rows that are scored anew
constexpr int64_t SCORES_BYTES = 1 << 19;  // that stay in the cache of a core
constexpr int64_t BLOCK_BYTES = 1 << 18;   // of rows that are scored anew, by all queries of a tile

// Puts the k best in order at the beginning: by buckets of about equal scores, where the scores are spread.
void sort_best(std::vector<uint64_t>& keys, int64_t k, float low, float top, std::vector<uint64_t>& sorted) {
    constexpr int COUNT = 512, CROWDED = 48;
    const auto sort_all = [&] {
        std::nth_element(keys.begin(), keys.begin() + (k - 1), keys.end(), best_first);
        std::sort(keys.begin(), keys.begin() + k, best_first);
    };
    const float scale = (COUNT - 1) / (top - low);
    if (!(scale < 1e30f)) return sort_all();
    const auto bucket = [&](uint64_t key) { return std::min(COUNT - 1, int((top - score_of(key)) * scale)); };
    int32_t starts[COUNT + 1] = {};
    for (uint64_t key : keys) ++starts[bucket(key) + 1];
    int last = 0;  // the bucket that has the k-th best
    for (; starts[last + 1] + starts[last] < k; ++last) {
        if (starts[last + 1] > CROWDED) return sort_all();
        starts[last + 1] += starts[last];
    }
    if (starts[last + 1] > CROWDED) return sort_all();
    sorted.resize(starts[last] + starts[last + 1]);
    for (uint64_t key : keys) {
        const int b = bucket(key);
        if (b <= last) sorted[starts[b]++] = key;
    }
    for (size_t i = 1; i < sorted.size(); ++i) {
        const uint64_t key = sorted[i];
        size_t at = i;
        for (; at > 0 && sorted[at - 1] < key; --at) sorted[at] = sorted[at - 1];
        sorted[at] = key;
    }
    keys.swap(sorted);
}

}  // namespace

// What a thread works with: some queries, and the rows that may be among the best of each.
struct SmallSearch::Scratch {
    PackedQueries queries;
    std::vector<float, OnLines<float>> lower;  // bounds of some queries' scores
    std::vector<float> ordered;
    std::vector<uint32_t> histogram;
    std::vector<int32_t> columns;
    std::vector<int32_t> chosen, starts;  // of query i: chosen[starts[i]] …, ascending
    std::vector<float> scores;            // of what was chosen
    std::vector<int32_t> at, next;
    std::vector<float, OnLines<float>> block;  // of rows, widened
    std::vector<uint64_t> keys, sorted;
};

void SmallSearch::search(const float* queries, int64_t m, int threads, int32_t* ids, float* similarities) const {
    const int64_t share = ((m + threads - 1) / threads + GROUP - 1) / GROUP * GROUP;
    const int64_t tile = std::clamp<int64_t>(share, GROUP, MOST_QUERIES), tiles = (m + tile - 1) / tile;
    std::vector<Scratch> scratch(threads);
    parallel(tiles, threads, [&](int64_t task, int thread) {
        const int64_t begin = task * tile, some = std::min(tile, m - begin);
        Scratch& s = scratch[thread];
        s.queries.fill(packing, words, queries + begin * vectors.d, vectors.d, nullptr, some);
        choose(some, s);
        score(queries + begin * vectors.d, some, s);
        write(some, s, ids + begin * k, similarities + begin * k);
    });
}

// The rows that may be among the best, of one query after the other.
void SmallSearch::choose(int64_t m, Scratch& s) const {
    const Loops& l = loops();
    PackedQueries& own = s.queries;
    // x·z − x̂·ẑ = (x − x̂)·z + x̂·(z − ẑ), each at most the product of the lengths. Adding up d products in float32, here
    // and when they are scored anew, is off by at most d units in the last place each time.
    const float adding = float(double(vectors.d + 16) * std::ldexp(1.0, -22));
    for (int64_t slot = 0; slot < own.groups * GROUP; ++slot) {
        const float length = own.lengths[slot], error = packing == Packing::int8 ? own.errors[slot] : 0;
        own.lengths[slot] = packing == Packing::int8 ? length + error : 0;
        own.errors[slot] = error + adding * length;
    }
    const int64_t room = (count + l.strip - 1) / l.strip * l.strip;
    const int64_t at_once = std::clamp<int64_t>(SCORES_BYTES / (room * GROUP * 4), 1, own.groups);
    const Side all{nullptr, nullptr, nullptr, strips.lengths.data(), strips.errors.data()};
    s.histogram.resize(BUCKETS);
    s.lower.resize(size_t(at_once) * GROUP * room);
    s.columns.resize(count);
    s.chosen.clear();
    s.starts.assign(1, 0);
    for (int64_t group = 0; group < own.groups; group += at_once) {
        const int64_t first_slot = group * GROUP, some = std::min(at_once, own.groups - group);
        const Side left{own.words.data() + first_slot * words, own.scales.data() + first_slot,
                        own.biases.data() + first_slot, own.lengths.data() + first_slot, own.errors.data() + first_slot};
        for (int64_t first = 0; first < count; first += l.strip) {
            const Side right{strips.words.data() + first * words, strips.scales.data() + first,
                             strips.biases.data() + first, strips.lengths.data() + first,
                             strips.errors.data() + first};
            l.lower_bounds(packing, words, int(some), own.height, left, right, s.lower.data() + first, room);
        }
        for (int64_t i = group * own.height; i < std::min(m, (group + some) * own.height); ++i) {
            const int64_t slot = own.slot_of(i);
            const float* lower = s.lower.data() + (slot - first_slot) * room;
            Level level;
            if (l.level_of(lower, count, k, s.histogram.data(), &level) > k / 2 + 64) {  // not spread at all
                s.ordered.assign(lower, lower + count);
                std::nth_element(s.ordered.begin(), s.ordered.begin() + (k - 1), s.ordered.end(),
                                 std::greater<float>());
                level = {0, 1, s.ordered[k - 1]};
            }
            const int64_t found =
                l.reaching(lower, count, own.lengths[slot], own.errors[slot], all, level, s.columns.data());
            s.chosen.insert(s.chosen.end(), s.columns.begin(), s.columns.begin() + found);
            s.starts.push_back(int32_t(s.chosen.size()));
        }
    }
}

// All queries are scored with a block of rows while it is in the cache.
void SmallSearch::score(const float* queries, int64_t m, Scratch& s) const {
    const Loops& l = loops();
    const int64_t d = vectors.d;
    // Where a row is scored several times, it is widened once.
    const bool widen = vectors.half && int64_t(s.chosen.size()) > 2 * count;
    const int64_t block = std::max<int64_t>(16, BLOCK_BYTES / (d * (vectors.half && !widen ? 2 : 4)));
    if (widen) s.block.resize(size_t(block) * d);
    s.scores.resize(s.chosen.size());
    s.next.assign(s.starts.begin(), s.starts.end() - 1);  // of each query, the first that is not scored yet
    for (int64_t begin = 0; begin < count; begin += block) {
        const int64_t end = std::min(count, begin + block);
        for (int64_t j = begin; widen && j < end; ++j)
            l.widen(vectors, rows ? rows[j] : j, s.block.data() + (j - begin) * d);
        // Rows that are few, as those of a block, are not fetched ahead.
        const Rows near{widen ? s.block.data() : vectors.data, 0, d, vectors.half && !widen};
        for (int64_t i = 0; i < m; ++i) {
            const int32_t first = s.next[i];
            int32_t to = first;
            s.at.clear();
            for (; to < s.starts[i + 1] && s.chosen[to] < end; ++to)
                s.at.push_back(widen ? int32_t(s.chosen[to] - begin) : rows ? rows[s.chosen[to]] : s.chosen[to]);
            l.dots(queries + i * d, near, s.at.data(), to - first, s.scores.data() + first);
            s.next[i] = to;
        }
    }
}

void SmallSearch::write(int64_t m, Scratch& s, int32_t* ids, float* similarities) const {
    for (int64_t i = 0; i < m; ++i) {
        s.keys.resize(s.starts[i + 1] - s.starts[i]);
        float low = NEVER, top = NOTHING;
        for (int32_t c = s.starts[i]; c < s.starts[i + 1]; ++c) {
            low = std::min(low, s.scores[c]);
            top = std::max(top, s.scores[c]);
            s.keys[c - s.starts[i]] = key_of(s.scores[c], s.chosen[c]);
        }
        sort_best(s.keys, k, low, top, s.sorted);
        for (int64_t c = 0; c < k; ++c) {
            ids[i * k + c] = id_of(s.keys[c]);
            similarities[i * k + c] = score_of(s.keys[c]);
        }
    }
}

}  // namespace manifind
