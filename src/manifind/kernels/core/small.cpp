#include "small.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
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

// What a thread works with.
struct SmallSearch::Scratch {
    std::vector<float> own;
    std::vector<int8_t> bytes;
    std::vector<uint32_t, OnLines<uint32_t>> left;
    std::vector<float> scales, errors, lengths;
    std::vector<int32_t> biases;
    std::vector<float, OnLines<float>> lower;  // bounds of some queries' scores
    std::vector<float> ordered;
    std::vector<uint32_t> histogram;
    std::vector<int32_t> columns, chosen, at, starts;
    std::vector<float> scores;
    std::vector<float, OnLines<float>> block;  // of rows, widened
    std::vector<uint64_t> keys, sorted;
};

void SmallSearch::search(const Rows& queries, int threads, int32_t* ids, float* similarities) const {
    const int64_t share = ((queries.n + threads - 1) / threads + GROUP - 1) / GROUP * GROUP;
    const int64_t tile = std::clamp<int64_t>(share, GROUP, MOST_QUERIES), tiles = (queries.n + tile - 1) / tile;
    std::vector<Scratch> scratch(threads);
    parallel(tiles, threads, [&](int64_t task, int thread) {
        search_tile(queries, task * tile, std::min(queries.n, (task + 1) * tile), scratch[thread], ids, similarities);
    });
}

void SmallSearch::search_tile(const Rows& queries, int64_t begin, int64_t end, Scratch& s, int32_t* ids,
                              float* similarities) const {
    const Loops& l = loops();
    const int64_t m = end - begin, d = vectors.d, width = int64_t(words) * 4;
    // As many groups of eight as are needed, all of one height: the i-th is number i % height of group i / height.
    const int64_t groups = (m + GROUP - 1) / GROUP, room = (count + l.strip - 1) / l.strip * l.strip;
    const int height = int((m + groups - 1) / groups);
    s.own.resize(size_t(groups) * height * d);
    s.bytes.resize(size_t(GROUP) * width);
    s.left.resize(size_t(groups) * GROUP * words);
    s.histogram.resize(BUCKETS);
    for (auto* some : {&s.scales, &s.errors, &s.lengths}) some->assign(groups * GROUP, 0);
    s.biases.assign(groups * GROUP, 0);
    // x·z − x̂·ẑ = (x − x̂)·z + x̂·(z − ẑ), each at most the product of the lengths. Adding up d products in float32, here
    // and when they are scored anew, is off by at most d units in the last place each time.
    const float adding = float(double(d + 16) * std::ldexp(1.0, -22));
    for (int64_t group = 0; group < groups; ++group) {
        const int present = int(std::clamp<int64_t>(m - group * height, 0, height));
        const int8_t* from[GROUP];
        float* own = s.own.data() + group * height * d;
        for (int r = 0; r < present; ++r) {
            const int64_t slot = group * GROUP + r;
            from[r] = s.bytes.data() + r * width;
            l.widen(queries, begin + group * height + r, own + r * d);
            l.compress(own + r * d, d, width, s.bytes.data() + r * width, &s.scales[slot], &s.biases[slot],
                       &s.errors[slot], &s.lengths[slot]);
            if (!(s.lengths[slot] <= LONGEST))
                throw std::invalid_argument("queries has values that are not finite, or huge");
        }
        uint32_t* to = s.left.data() + group * GROUP * words;
        if (packing == Packing::int8)
            l.pack_bytes(from, present, GROUP, words, to);
        else
            l.pack(packing, own, d, present, GROUP, words, s.scales.data() + group * GROUP, to,
                   s.biases.data() + group * GROUP);
        for (int64_t slot = group * GROUP; slot < group * GROUP + present; ++slot) {
            const float length = s.lengths[slot], error = packing == Packing::int8 ? s.errors[slot] : 0;
            s.lengths[slot] = packing == Packing::int8 ? length + error : 0;
            s.errors[slot] = error + adding * length;
        }
    }

    // The rows that may be among the best, of one query after the other.
    const int64_t at_once = std::clamp<int64_t>(SCORES_BYTES / (room * GROUP * 4), 1, groups);
    const Side all{nullptr, nullptr, nullptr, strips.lengths.data(), strips.errors.data()};
    s.lower.resize(size_t(at_once) * GROUP * room);
    s.columns.resize(count);
    s.chosen.clear();
    s.starts.assign(1, 0);
    for (int64_t group = 0; group < groups; group += at_once) {
        const int64_t slot = group * GROUP, some = std::min(at_once, groups - group);
        const Side left{s.left.data() + slot * words, s.scales.data() + slot, s.biases.data() + slot,
                        s.lengths.data() + slot, s.errors.data() + slot};
        for (int64_t first = 0; first < count; first += l.strip) {
            const Side right{strips.words.data() + first * words, strips.scales.data() + first,
                             strips.biases.data() + first, strips.lengths.data() + first,
                             strips.errors.data() + first};
            l.lower_bounds(packing, words, int(some), height, left, right, s.lower.data() + first, room);
        }
        for (int64_t i = group * height; i < std::min(m, (group + some) * height); ++i) {
            const int64_t own = i / height * GROUP + i % height;
            const float* lower = s.lower.data() + (own - slot) * room;
            Level level;
            if (l.level_of(lower, count, k, s.histogram.data(), &level) > k / 2 + 64) {  // not spread at all
                s.ordered.assign(lower, lower + count);
                std::nth_element(s.ordered.begin(), s.ordered.begin() + (k - 1), s.ordered.end(),
                                 std::greater<float>());
                level = {0, 1, s.ordered[k - 1]};
            }
            const int64_t found =
                l.reaching(lower, count, s.lengths[own], s.errors[own], all, level, s.columns.data());
            s.chosen.insert(s.chosen.end(), s.columns.begin(), s.columns.begin() + found);
            s.starts.push_back(int32_t(s.chosen.size()));
        }
    }

    // All queries are scored with a block of rows while it is in the cache.
    // Where a row is scored several times, it is widened once.
    const bool widen = vectors.half && int64_t(s.chosen.size()) > 2 * count;
    const int64_t block = std::max<int64_t>(16, BLOCK_BYTES / (d * (vectors.half && !widen ? 2 : 4)));
    if (widen) s.block.resize(size_t(block) * d);
    s.scores.resize(s.chosen.size());
    std::vector<int32_t>& next = s.columns;  // of each query, the first that is not scored yet
    next.assign(s.starts.begin(), s.starts.end() - 1);
    for (int64_t begin_of = 0; begin_of < count; begin_of += block) {
        const int64_t end_of = std::min(count, begin_of + block);
        for (int64_t j = begin_of; widen && j < end_of; ++j)
            l.widen(vectors, rows ? rows[j] : j, s.block.data() + (j - begin_of) * d);
        // Rows that are few, as those of a block, are not fetched ahead.
        const Rows near{widen ? s.block.data() : vectors.data, 0, d, vectors.half && !widen};
        for (int64_t i = 0; i < m; ++i) {
            const int32_t first = next[i];
            int32_t to = first;
            s.at.clear();
            for (; to < s.starts[i + 1] && s.chosen[to] < end_of; ++to)
                s.at.push_back(widen ? int32_t(s.chosen[to] - begin_of) : rows ? rows[s.chosen[to]] : s.chosen[to]);
            l.dots(s.own.data() + i * d, near, s.at.data(), to - first, s.scores.data() + first);
            next[i] = to;
        }
    }

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
            ids[(begin + i) * k + c] = id_of(s.keys[c]);
            similarities[(begin + i) * k + c] = score_of(s.keys[c]);
        }
    }
}

}  // namespace manifind
