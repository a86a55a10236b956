#include "dense_scan.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "parallel.h"
#include "topk.h"

namespace manifind {
namespace {

constexpr int64_t MAX_QUERIES = 128;       // in a tile: they share the rows to rescore
constexpr int64_t SCORES_BYTES = 1 << 19;  // these stay in the cache of a core
constexpr int64_t BLOCK_BYTES = 1 << 18;   // of rows that all queries of a tile rescore

// Sorts the top k to the front: a bucket sort where scores are spread, a full sort elsewhere.
void sort_topk_keys(std::vector<uint64_t>& keys, int64_t k, float low, float high, std::vector<uint64_t>& sorted) {
    constexpr int N_BUCKETS = 512, MAX_BUCKET = 48;
    const auto sort_all = [&] {
        std::nth_element(keys.begin(), keys.begin() + (k - 1), keys.end(), descending);
        std::sort(keys.begin(), keys.begin() + k, descending);
    };
    const float scale = (N_BUCKETS - 1) / (high - low);
    if (!(scale < 1e30f)) return sort_all();
    const auto bucket = [&](uint64_t key) { return std::min(N_BUCKETS - 1, int((high - key_score(key)) * scale)); };
    int32_t starts[N_BUCKETS + 1] = {};
    for (uint64_t key : keys) ++starts[bucket(key) + 1];
    int last_bucket = 0;  // the bucket of the k-th best
    for (; starts[last_bucket + 1] + starts[last_bucket] < k; ++last_bucket) {
        if (starts[last_bucket + 1] > MAX_BUCKET) return sort_all();
        starts[last_bucket + 1] += starts[last_bucket];
    }
    if (starts[last_bucket + 1] > MAX_BUCKET) return sort_all();
    sorted.resize(starts[last_bucket] + starts[last_bucket + 1]);
    for (uint64_t key : keys) {
        const int b = bucket(key);
        if (b <= last_bucket) sorted[starts[b]++] = key;
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

// Buffers of one thread: a tile of queries, and the candidates of each.
struct DenseScan::ThreadState {
    PackedQueries queries;
    std::vector<float, CacheAligned<float>> lower;  // lower bounds of scores
    std::vector<float> ordered;
    std::vector<uint32_t> histogram;
    std::vector<int32_t> columns;
    std::vector<int32_t> candidates, starts;  // query i has candidates[starts[i]] …, ascending
    std::vector<float> scores;                // of the candidates
    std::vector<int32_t> row_ids, next_candidate;
    std::vector<float, CacheAligned<float>> block;  // rows in float32
    std::vector<uint64_t> keys, sorted;
};

void DenseScan::search(const float* queries, int64_t m, int threads, int32_t* ids, float* similarities) const {
    const int64_t per_thread = ((m + threads - 1) / threads + GROUP - 1) / GROUP * GROUP;
    const int64_t tile = std::clamp<int64_t>(per_thread, GROUP, MAX_QUERIES), tiles = (m + tile - 1) / tile;
    std::vector<ThreadState> states(threads);
    parallel(tiles, threads, [&](int64_t task, int thread) {
        const int64_t begin = task * tile, n_queries = std::min(tile, m - begin);
        ThreadState& state = states[thread];
        state.queries.fill(packing, words, queries + begin * vectors.d, vectors.d, nullptr, n_queries);
        select_candidates(n_queries, state);
        score_candidates(queries + begin * vectors.d, n_queries, state);
        write_topk(n_queries, state, ids + begin * k, similarities + begin * k);
    });
}

// Selects the rows that may be among the top k, query by query.
void DenseScan::select_candidates(int64_t m, ThreadState& state) const {
    const Kernels& simd = kernels();
    PackedQueries& packed = state.queries;
    // Error bound of a product: see topk.h.
    const float sum_error = float(accumulation_error(vectors.d));
    for (int64_t slot = 0; slot < packed.groups * GROUP; ++slot) {
        const float length = packed.lengths[slot], error = packing == Packing::int8 ? packed.errors[slot] : 0;
        packed.lengths[slot] = packing == Packing::int8 ? length + error : 0;
        packed.errors[slot] = error + sum_error * length;
    }
    const int64_t padded_rows = (count + simd.strip - 1) / simd.strip * simd.strip;
    const int64_t batch_groups = std::clamp<int64_t>(SCORES_BYTES / (padded_rows * GROUP * 4), 1, packed.groups);
    const QuantizedPanel all{nullptr, nullptr, nullptr, strips.lengths.data(), strips.errors.data()};
    state.histogram.resize(HISTOGRAM_BUCKETS);
    state.lower.resize(size_t(batch_groups) * GROUP * padded_rows);
    state.columns.resize(count);
    state.candidates.clear();
    state.starts.assign(1, 0);
    for (int64_t group = 0; group < packed.groups; group += batch_groups) {
        const int64_t first_slot = group * GROUP, n_groups = std::min(batch_groups, packed.groups - group);
        const QuantizedPanel left{packed.words.data() + first_slot * words, packed.scales.data() + first_slot,
                                  packed.biases.data() + first_slot, packed.lengths.data() + first_slot,
                                  packed.errors.data() + first_slot};
        for (int64_t first = 0; first < count; first += simd.strip) {
            const QuantizedPanel right{strips.words.data() + first * words, strips.scales.data() + first,
                                       strips.biases.data() + first, strips.lengths.data() + first,
                                       strips.errors.data() + first};
            simd.lower_bounds(packing, words, int(n_groups), packed.height, left, right, state.lower.data() + first,
                              padded_rows);
        }
        for (int64_t i = group * packed.height; i < std::min(m, (group + n_groups) * packed.height); ++i) {
            const int64_t slot = packed.slot_of(i);
            const float* lower = state.lower.data() + (slot - first_slot) * padded_rows;
            ScoreLevel level;
            if (simd.find_score_level(lower, count, k, state.histogram.data(), &level) > k / 2 + 64) {
                // The scores are not spread: takes the exact k-th lower bound.
                state.ordered.assign(lower, lower + count);
                std::nth_element(state.ordered.begin(), state.ordered.begin() + (k - 1), state.ordered.end(),
                                 std::greater<float>());
                level = {0, 1, state.ordered[k - 1]};
            }
            const int64_t n_reached = simd.columns_reaching(lower, count, packed.lengths[slot], packed.errors[slot],
                                                            all, level, state.columns.data());
            state.candidates.insert(state.candidates.end(), state.columns.begin(), state.columns.begin() + n_reached);
            state.starts.push_back(int32_t(state.candidates.size()));
        }
    }
}

// Rescores the candidates of all queries, one block of rows in the cache after the other.
void DenseScan::score_candidates(const float* queries, int64_t m, ThreadState& state) const {
    const Kernels& simd = kernels();
    const int64_t d = vectors.d;
    // Rows with several uses are converted once.
    const bool convert = vectors.half && int64_t(state.candidates.size()) > 2 * count;
    const int64_t block = std::max<int64_t>(16, BLOCK_BYTES / (d * (vectors.half && !convert ? 2 : 4)));
    if (convert) state.block.resize(size_t(block) * d);
    state.scores.resize(state.candidates.size());
    // By query, the first candidate without a score.
    state.next_candidate.assign(state.starts.begin(), state.starts.end() - 1);
    for (int64_t begin = 0; begin < count; begin += block) {
        const int64_t end = std::min(count, begin + block);
        for (int64_t j = begin; convert && j < end; ++j)
            simd.to_float32(vectors, rows ? rows[j] : j, state.block.data() + (j - begin) * d);
        // n = 0: a block of few rows needs no prefetching.
        const Rows row_source{convert ? state.block.data() : vectors.data, 0, d, vectors.half && !convert};
        for (int64_t i = 0; i < m; ++i) {
            const int32_t first = state.next_candidate[i];
            int32_t end_candidate = first;
            state.row_ids.clear();
            for (; end_candidate < state.starts[i + 1] && state.candidates[end_candidate] < end; ++end_candidate)
                state.row_ids.push_back(convert ? int32_t(state.candidates[end_candidate] - begin)
                                        : rows  ? rows[state.candidates[end_candidate]]
                                                : state.candidates[end_candidate]);
            simd.dots(queries + i * d, row_source, state.row_ids.data(), end_candidate - first,
                      state.scores.data() + first);
            state.next_candidate[i] = end_candidate;
        }
    }
}

void DenseScan::write_topk(int64_t m, ThreadState& state, int32_t* ids, float* similarities) const {
    for (int64_t i = 0; i < m; ++i) {
        state.keys.resize(state.starts[i + 1] - state.starts[i]);
        float low = UNREACHABLE, high = NO_THRESHOLD;
        for (int32_t c = state.starts[i]; c < state.starts[i + 1]; ++c) {
            low = std::min(low, state.scores[c]);
            high = std::max(high, state.scores[c]);
            state.keys[c - state.starts[i]] = make_key(state.scores[c], state.candidates[c]);
        }
        sort_topk_keys(state.keys, k, low, high, state.sorted);
        for (int64_t c = 0; c < k; ++c) {
            ids[i * k + c] = key_id(state.keys[c]);
            similarities[i * k + c] = key_score(state.keys[c]);
        }
    }
}

}  // namespace manifind
