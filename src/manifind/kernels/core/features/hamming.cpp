#include "features/hamming.h"

#include <algorithm>
#include <bitset>
#include <cstring>
#include <utility>
#include <vector>

#include "memory.h"
#include "parallel.h"

#if (defined(__x86_64__) || defined(_M_X64)) && defined(__GNUC__)
#include <immintrin.h>
#define VECTOR_POPCNT __attribute__((target("avx512f,avx512vpopcntdq")))
#define SCALAR_POPCNT __attribute__((target("popcnt")))
#else
#define SCALAR_POPCNT
#endif

namespace manifind {
namespace {

constexpr int LANES = 8;  // words in a register
constexpr int CODE_BYTES = 8 * CODE_WORDS;
constexpr int MAX_DISTANCE = 8 * CODE_BYTES;
constexpr int64_t CHUNK = 1024;  // rows that stay in the L1 cache while all queries pass

using Entry = std::pair<int32_t, int32_t>;  // distance and row
using Words = std::vector<uint64_t, CacheAligned<uint64_t>>;

// The k nearest rows of a query so far: a heap with the farthest at the front.
struct TopK {
    std::vector<Entry> heap;
    Entry threshold{MAX_DISTANCE + 1, 0};  // an entry from which on a row is too far

    void insert(Entry entry, size_t k) {
        if (heap.size() == k) {
            std::pop_heap(heap.begin(), heap.end());
            heap.back() = entry;
        } else {
            heap.push_back(entry);
        }
        std::push_heap(heap.begin(), heap.end());
        if (heap.size() == k) threshold = heap.front();
    }
};

// Interleaves rows: word w of row 8 t + i goes to words[(t · CODE_WORDS + w) · 8 + i]. The last ones may be no rows.
void interleave(const uint8_t* rows, int64_t count, uint64_t* words) {
    for (int64_t row = 0; row < count; ++row)
        for (int w = 0; w < CODE_WORDS; ++w)
            std::memcpy(words + (row / LANES * CODE_WORDS + w) * LANES + row % LANES, rows + row * CODE_BYTES + 8 * w,
                        8);
}

// The distances of eight interleaved rows to a query.
SCALAR_POPCNT void distances_of(const uint64_t* query, const uint64_t* words, int64_t* distances) {
    for (int lane = 0; lane < LANES; ++lane) {
        int64_t sum = 0;
        for (int w = 0; w < CODE_WORDS; ++w)
            sum += int64_t(std::bitset<64>(query[w] ^ words[w * LANES + lane]).count());
        distances[lane] = sum;
    }
}

// Interleaved rows: `first` is the number of the first one, or `ids` has their numbers.
struct Rows {
    const uint64_t* words;
    int64_t count, first;
    const int32_t* ids;
    int32_t id(int64_t row) const { return ids ? ids[row] : int32_t(first + row); }
};

// Takes over the rows among eight whose bits are set in `closer`.
void insert_closer(unsigned closer, const int64_t* distances, const Rows& rows, int64_t begin, size_t k, TopK& topk) {
    for (; closer; closer &= closer - 1) {
        int lane = 0;
        while (!(closer >> lane & 1)) ++lane;
        const Entry entry{int32_t(distances[lane]), rows.id(begin + lane)};
        if (entry < topk.threshold) topk.insert(entry, k);
    }
}

unsigned last_lanes(int64_t count) { return count >= LANES ? (1u << LANES) - 1 : (1u << count) - 1; }

void scan_scalar(const uint64_t* query, const Rows& rows, size_t k, TopK& topk) {
    const uint64_t* words = rows.words;
    for (int64_t begin = 0; begin < rows.count; begin += LANES, words += CODE_WORDS * LANES) {
        int64_t distances[LANES];
        distances_of(query, words, distances);
        unsigned closer = 0;
        for (int lane = 0; lane < LANES; ++lane) closer |= unsigned(distances[lane] <= topk.threshold.first) << lane;
        insert_closer(closer & last_lanes(rows.count - begin), distances, rows, begin, k, topk);
    }
}

void nearest_scalar(const Words& queries, int64_t n_queries, const uint64_t* words, int32_t* nearest) {
    int64_t best[LANES], distances[LANES];
    std::fill_n(best, LANES, MAX_DISTANCE + 1);
    for (int64_t q = 0; q < n_queries; ++q) {
        distances_of(queries.data() + q * CODE_WORDS, words, distances);
        for (int lane = 0; lane < LANES; ++lane)
            if (distances[lane] < best[lane]) best[lane] = distances[lane], nearest[lane] = int32_t(q);
    }
}

#ifdef VECTOR_POPCNT

VECTOR_POPCNT inline __m512i vector_distances(const __m512i* query, const uint64_t* words) {
    __m512i distances = _mm512_setzero_si512();
    for (int w = 0; w < CODE_WORDS; ++w) {
        const __m512i different = _mm512_xor_si512(query[w], _mm512_load_si512(words + w * LANES));
        distances = _mm512_add_epi64(distances, _mm512_popcnt_epi64(different));
    }
    return distances;
}

VECTOR_POPCNT void scan_vector(const uint64_t* query, const Rows& rows, size_t k, TopK& topk) {
    __m512i query_words[CODE_WORDS];
    for (int w = 0; w < CODE_WORDS; ++w) query_words[w] = _mm512_set1_epi64(int64_t(query[w]));
    __m512i threshold = _mm512_set1_epi64(topk.threshold.first);
    const uint64_t* words = rows.words;
    for (int64_t begin = 0; begin < rows.count; begin += LANES, words += CODE_WORDS * LANES) {
        const __m512i distances = vector_distances(query_words, words);
        const unsigned closer = _mm512_cmple_epi64_mask(distances, threshold) & last_lanes(rows.count - begin);
        if (!closer) continue;
        alignas(64) int64_t found[LANES];
        _mm512_store_si512(found, distances);
        insert_closer(closer, found, rows, begin, k, topk);
        threshold = _mm512_set1_epi64(topk.threshold.first);
    }
}

VECTOR_POPCNT void nearest_vector(const Words& queries, int64_t n_queries, const uint64_t* words, int32_t* nearest) {
    __m512i best = _mm512_set1_epi64(MAX_DISTANCE + 1), of = _mm512_setzero_si512();
    for (int64_t q = 0; q < n_queries; ++q) {
        const uint64_t* query = queries.data() + q * CODE_WORDS;
        __m512i query_words[CODE_WORDS];
        for (int w = 0; w < CODE_WORDS; ++w) query_words[w] = _mm512_set1_epi64(int64_t(query[w]));
        const __m512i distances = vector_distances(query_words, words);
        const __mmask8 closer = _mm512_cmplt_epi64_mask(distances, best);
        best = _mm512_mask_mov_epi64(best, closer, distances);
        of = _mm512_mask_set1_epi64(of, closer, q);
    }
    alignas(64) int64_t numbers[LANES];
    _mm512_store_si512(numbers, of);
    std::copy_n(numbers, LANES, nearest);
}

bool vector_popcount() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vpopcntdq"); }
bool scalar_popcount() { return __builtin_cpu_supports("popcnt"); }

#else

constexpr auto scan_vector = scan_scalar;
constexpr auto nearest_vector = nearest_scalar;
bool vector_popcount() { return false; }
bool scalar_popcount() { return true; }

#endif

bool by_registers = vector_popcount();

Words copy_words(const uint8_t* codes, int64_t count) {
    Words words(size_t(count) * CODE_WORDS);
    if (count) std::memcpy(words.data(), codes, size_t(count) * CODE_BYTES);
    return words;
}

// The lists of each thread, of the queries that it met.
using Lists = std::vector<std::vector<TopK>>;

// Writes the k nearest of each query, -1 where there are no more rows.
void merge(const Lists& lists, int64_t m, int64_t k, int32_t* ids, int32_t* distances) {
    std::vector<Entry> merged;
    for (int64_t q = 0; q < m; ++q) {
        merged.clear();
        for (const std::vector<TopK>& of_thread : lists)
            merged.insert(merged.end(), of_thread[q].heap.begin(), of_thread[q].heap.end());
        const int64_t found = std::min<int64_t>(k, int64_t(merged.size()));
        std::partial_sort(merged.begin(), merged.begin() + found, merged.end());
        for (int64_t i = 0; i < k; ++i) {
            const Entry entry = i < found ? merged[i] : Entry{-1, -1};
            distances[q * k + i] = entry.first, ids[q * k + i] = entry.second;
        }
    }
}

}  // namespace

bool has_vector_popcount() { return by_registers; }

bool counts_bits() { return by_registers || scalar_popcount(); }

void use_vector_popcount(bool use) { by_registers = use && vector_popcount(); }

void knn_hamming(const uint8_t* queries, int64_t m, const uint8_t* rows, int64_t n, int64_t k, int threads,
                 int32_t* ids, int32_t* distances) {
    const std::vector<int64_t> starts{0, n};
    std::vector<int32_t> all(size_t(m), 0);
    knn_hamming_groups({queries, m, all.data(), 1}, {rows, nullptr, starts.data(), 1}, k, threads, ids, distances);
}

void knn_hamming_groups(const GroupQueries& queries, const CodeGroups& groups, int64_t k, int threads, int32_t* ids,
                        int32_t* distances) {
    if (!queries.count) return;
    const Words query_words = copy_words(queries.codes, queries.count);
    std::vector<std::vector<int32_t>> visitors(size_t(groups.count));
    for (int64_t q = 0; q < queries.count; ++q)
        for (int64_t i = 0; i < queries.visits; ++i)
            visitors[size_t(queries.visited[q * queries.visits + i])].push_back(int32_t(q));
    struct Task {
        int64_t group, first, count;
    };
    std::vector<Task> tasks;
    for (int64_t group = 0; group < groups.count; ++group) {
        const int64_t end = visitors[size_t(group)].empty() ? groups.starts[group] : groups.starts[group + 1];
        for (int64_t first = groups.starts[group]; first < end; first += CHUNK)
            tasks.push_back({group, first, std::min(CHUNK, end - first)});
    }
    const int n_threads = int(std::max<int64_t>(1, std::min<int64_t>(threads, int64_t(tasks.size()))));
    Lists lists(size_t(n_threads), std::vector<TopK>(size_t(queries.count)));
    std::vector<Words> buffers(size_t(n_threads), Words(CHUNK * CODE_WORDS));
    const auto scan = by_registers ? scan_vector : scan_scalar;
    parallel(int64_t(tasks.size()), n_threads, [&](int64_t number, int thread) {
        const Task& task = tasks[size_t(number)];
        interleave(groups.codes + task.first * CODE_BYTES, task.count, buffers[thread].data());
        const Rows rows{buffers[thread].data(), task.count, task.first, groups.ids ? groups.ids + task.first : nullptr};
        for (const int32_t q : visitors[size_t(task.group)])
            scan(query_words.data() + size_t(q) * CODE_WORDS, rows, size_t(k), lists[thread][size_t(q)]);
    });
    merge(lists, queries.count, k, ids, distances);
}

void nearest_hamming(const uint8_t* rows, int64_t n, const uint8_t* centres, int64_t n_centres, int threads,
                     int32_t* nearest) {
    const Words words = copy_words(centres, n_centres);
    const auto find = by_registers ? nearest_vector : nearest_scalar;
    parallel((n + CHUNK - 1) / CHUNK, threads, [&](int64_t chunk, int) {
        alignas(64) uint64_t eight[CODE_WORDS * LANES] = {};
        const int64_t end = std::min(n, (chunk + 1) * CHUNK);
        for (int64_t first = chunk * CHUNK; first < end; first += LANES) {
            const int64_t count = std::min<int64_t>(LANES, end - first);
            int32_t found[LANES];
            interleave(rows + first * CODE_BYTES, count, eight);
            find(words, n_centres, eight, found);
            std::copy_n(found, count, nearest + first);
        }
    });
}

}  // namespace manifind
