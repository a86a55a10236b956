#include "bits.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "memory.h"
#include "parallel.h"

#if (defined(__x86_64__) || defined(_M_X64)) && defined(__GNUC__)
#include <immintrin.h>
#define COUNTING __attribute__((target("avx512f,avx512vpopcntdq")))
#endif

namespace manifind {

#ifdef COUNTING
namespace {

constexpr int LANES = 8;                    // words of a register
constexpr int CODE_BYTES = 8 * CODE_WORDS;
constexpr int64_t CHUNK = 1024;             // rows that stay in the first cache while all queries pass

using Entry = std::pair<int32_t, int32_t>;  // bits that differ, and the row

// The k nearest of a query so far, the farthest of them at the front of a heap.
struct Nearest {
    std::vector<Entry> heap;
    int64_t level = 8 * CODE_BYTES + 1;  // rows that differ in so many bits, or more, are too far

    void add(Entry entry, size_t k) {
        if (heap.size() == k) {
            std::pop_heap(heap.begin(), heap.end());
            heap.back() = entry;
        } else {
            heap.push_back(entry);
        }
        std::push_heap(heap.begin(), heap.end());
        if (heap.size() == k) level = heap.front().first;
    }
};

// Lays rows out: word w of row 8 t + i to words[(t · CODE_WORDS + w) · 8 + i].
void lay_out(const uint8_t* rows, int64_t count, uint64_t* words) {
    for (int64_t row = 0; row < count; ++row)
        for (int w = 0; w < CODE_WORDS; ++w)
            std::memcpy(words + (row / LANES * CODE_WORDS + w) * LANES + row % LANES, rows + row * CODE_BYTES + 8 * w, 8);
}

COUNTING void compare(const uint64_t* query, const uint64_t* words, int64_t first, int64_t count, size_t k,
                      Nearest& nearest) {
    __m512i asked[CODE_WORDS];
    for (int w = 0; w < CODE_WORDS; ++w) asked[w] = _mm512_set1_epi64(int64_t(query[w]));
    __m512i level = _mm512_set1_epi64(nearest.level);
    for (int64_t begin = 0; begin < count; begin += LANES, words += CODE_WORDS * LANES) {
        __m512i apart = _mm512_setzero_si512();
        for (int w = 0; w < CODE_WORDS; ++w) {
            const __m512i differ = _mm512_xor_si512(asked[w], _mm512_load_si512(words + w * LANES));
            apart = _mm512_add_epi64(apart, _mm512_popcnt_epi64(differ));
        }
        unsigned near = _mm512_cmplt_epi64_mask(apart, level);
        if (begin + LANES > count) near &= (1u << (count - begin)) - 1;
        if (!near) continue;
        alignas(64) int64_t found[LANES];
        _mm512_store_si512(found, apart);
        for (; near; near &= near - 1) {
            const int lane = __builtin_ctz(near);
            if (found[lane] < nearest.level) nearest.add({int32_t(found[lane]), int32_t(first + begin + lane)}, k);
        }
        level = _mm512_set1_epi64(nearest.level);
    }
}

}  // namespace

bool counts_bits() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vpopcntdq"); }

void nearest_bits(const uint8_t* queries, int64_t m, const uint8_t* rows, int64_t n, int64_t k, int threads, int32_t* ids,
                  int32_t* apart) {
    if (!m) return;
    const int64_t chunks = (n + CHUNK - 1) / CHUNK;
    const int used = int(std::max<int64_t>(1, std::min<int64_t>(threads, chunks)));
    std::vector<uint64_t> asked(size_t(m) * CODE_WORDS);
    std::memcpy(asked.data(), queries, size_t(m) * CODE_BYTES);
    std::vector<std::vector<Nearest>> lists(used, std::vector<Nearest>(size_t(m)));
    std::vector<std::vector<uint64_t, OnLines<uint64_t>>> room(
        used, std::vector<uint64_t, OnLines<uint64_t>>(CHUNK * CODE_WORDS));
    // A thread's chunks are ascending, so that of rows equally near it keeps the first.
    parallel(chunks, used, [&](int64_t chunk, int thread) {
        const int64_t first = chunk * CHUNK, count = std::min(CHUNK, n - first);
        lay_out(rows + first * CODE_BYTES, count, room[thread].data());
        for (int64_t q = 0; q < m; ++q)
            compare(asked.data() + q * CODE_WORDS, room[thread].data(), first, count, size_t(k), lists[thread][q]);
    });
    std::vector<Entry> all;
    for (int64_t q = 0; q < m; ++q) {
        all.clear();
        for (const std::vector<Nearest>& of : lists) all.insert(all.end(), of[q].heap.begin(), of[q].heap.end());
        std::partial_sort(all.begin(), all.begin() + k, all.end());
        for (int64_t i = 0; i < k; ++i) apart[q * k + i] = all[i].first, ids[q * k + i] = all[i].second;
    }
}

#else

bool counts_bits() { return false; }

void nearest_bits(const uint8_t*, int64_t, const uint8_t*, int64_t, int64_t, int, int32_t*, int32_t*) {
    throw std::invalid_argument("this machine does not count the bits of a register");
}

#endif

}  // namespace manifind
