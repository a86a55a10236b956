#include "features/hamming.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "memory.h"
#include "parallel.h"

#if (defined(__x86_64__) || defined(_M_X64)) && defined(__GNUC__)
#include <immintrin.h>
#define POPCNT_TARGET __attribute__((target("avx512f,avx512vpopcntdq")))
#endif

namespace manifind {

#ifdef POPCNT_TARGET
namespace {

constexpr int LANES = 8;  // words in a register
constexpr int CODE_BYTES = 8 * CODE_WORDS;
constexpr int64_t CHUNK = 1024;  // rows that stay in the L1 cache while all queries pass

using Entry = std::pair<int32_t, int32_t>;  // distance and row

// The k nearest rows of a query so far: a heap with the farthest at the front.
struct TopK {
    std::vector<Entry> heap;
    int64_t threshold = 8 * CODE_BYTES + 1;  // distance from which a row is too far

    void insert(Entry entry, size_t k) {
        if (heap.size() == k) {
            std::pop_heap(heap.begin(), heap.end());
            heap.back() = entry;
        } else {
            heap.push_back(entry);
        }
        std::push_heap(heap.begin(), heap.end());
        if (heap.size() == k) threshold = heap.front().first;
    }
};

// Interleaves rows: word w of row 8 t + i goes to words[(t · CODE_WORDS + w) · 8 + i].
void interleave(const uint8_t* rows, int64_t count, uint64_t* words) {
    for (int64_t row = 0; row < count; ++row)
        for (int w = 0; w < CODE_WORDS; ++w)
            std::memcpy(words + (row / LANES * CODE_WORDS + w) * LANES + row % LANES, rows + row * CODE_BYTES + 8 * w,
                        8);
}

POPCNT_TARGET void scan_chunk(const uint64_t* query, const uint64_t* words, int64_t first, int64_t count, size_t k,
                              TopK& topk) {
    __m512i query_words[CODE_WORDS];
    for (int w = 0; w < CODE_WORDS; ++w) query_words[w] = _mm512_set1_epi64(int64_t(query[w]));
    __m512i threshold = _mm512_set1_epi64(topk.threshold);
    for (int64_t begin = 0; begin < count; begin += LANES, words += CODE_WORDS * LANES) {
        __m512i distances = _mm512_setzero_si512();
        for (int w = 0; w < CODE_WORDS; ++w) {
            const __m512i different = _mm512_xor_si512(query_words[w], _mm512_load_si512(words + w * LANES));
            distances = _mm512_add_epi64(distances, _mm512_popcnt_epi64(different));
        }
        unsigned closer = _mm512_cmplt_epi64_mask(distances, threshold);
        if (begin + LANES > count) closer &= (1u << (count - begin)) - 1;
        if (!closer) continue;
        alignas(64) int64_t found[LANES];
        _mm512_store_si512(found, distances);
        for (; closer; closer &= closer - 1) {
            const int lane = __builtin_ctz(closer);
            if (found[lane] < topk.threshold) topk.insert({int32_t(found[lane]), int32_t(first + begin + lane)}, k);
        }
        threshold = _mm512_set1_epi64(topk.threshold);
    }
}

}  // namespace

bool has_vector_popcount() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vpopcntdq"); }

void knn_hamming(const uint8_t* queries, int64_t m, const uint8_t* rows, int64_t n, int64_t k, int threads,
                 int32_t* ids, int32_t* distances) {
    if (!m) return;
    const int64_t chunks = (n + CHUNK - 1) / CHUNK;
    const int n_threads = int(std::max<int64_t>(1, std::min<int64_t>(threads, chunks)));
    std::vector<uint64_t> query_words(size_t(m) * CODE_WORDS);
    std::memcpy(query_words.data(), queries, size_t(m) * CODE_BYTES);
    std::vector<std::vector<TopK>> topks(n_threads, std::vector<TopK>(size_t(m)));
    std::vector<std::vector<uint64_t, CacheAligned<uint64_t>>> buffers(
        n_threads, std::vector<uint64_t, CacheAligned<uint64_t>>(CHUNK * CODE_WORDS));
    // A thread's chunks ascend, so that of equally near rows the first stays.
    parallel(chunks, n_threads, [&](int64_t chunk, int thread) {
        const int64_t first = chunk * CHUNK, count = std::min(CHUNK, n - first);
        interleave(rows + first * CODE_BYTES, count, buffers[thread].data());
        for (int64_t q = 0; q < m; ++q)
            scan_chunk(query_words.data() + q * CODE_WORDS, buffers[thread].data(), first, count, size_t(k),
                       topks[thread][q]);
    });
    std::vector<Entry> merged;
    for (int64_t q = 0; q < m; ++q) {
        merged.clear();
        for (const std::vector<TopK>& topk_of_thread : topks)
            merged.insert(merged.end(), topk_of_thread[q].heap.begin(), topk_of_thread[q].heap.end());
        std::partial_sort(merged.begin(), merged.begin() + k, merged.end());
        for (int64_t i = 0; i < k; ++i) distances[q * k + i] = merged[i].first, ids[q * k + i] = merged[i].second;
    }
}

#else

bool has_vector_popcount() { return false; }

void knn_hamming(const uint8_t*, int64_t, const uint8_t*, int64_t, int64_t, int, int32_t*, int32_t*) {
    throw std::invalid_argument("this machine does not count the bits of a register");
}

#endif

}  // namespace manifind
