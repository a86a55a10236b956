// See small_self_join_kernels.h.
#include "small_self_join_kernels.h"

#include "micro_kernel.h"

#if HAS_INT8_DOT

namespace manifind {
namespace {

// Transposes eight rows of sixteen: column c goes to out[c · stride] …
inline void store_columns(const __m256i (&rows)[GROUP], int16_t* out, int64_t stride) {
    __m256i a[GROUP], b[GROUP];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        a[2 * i] = _mm256_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
    }
    // a[2 i + h] has columns 4 h … 4 h + 3 of each half of rows 2 i and 2 i + 1.
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i)
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
            b[4 * i + 2 * h] = _mm256_unpacklo_epi32(a[4 * i + h], a[4 * i + 2 + h]);
            b[4 * i + 2 * h + 1] = _mm256_unpackhi_epi32(a[4 * i + h], a[4 * i + 2 + h]);
        }
    // b[4 i + q] has columns 2 q and 2 q + 1 of each half of rows 4 i … 4 i + 3.
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q)
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; ++odd) {
            const __m256i columns = odd ? _mm256_unpackhi_epi64(b[q], b[4 + q]) : _mm256_unpacklo_epi64(b[q], b[4 + q]);
            const int column = 2 * q + odd;
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out + column * stride), _mm256_castsi256_si128(columns));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out + (column + 8) * stride),
                             _mm256_extracti128_si256(columns, 1));
        }
}

constexpr int STRIP = STRIP_REGISTERS * LANES;

void estimate(int words, const QuantizedPanel& a, const QuantizedPanel& b, float unit, int16_t* tile) {
    for (int first = 0; first < STRIP; first += GROUP) {
        float sums[GROUP][STRIP];
        micro_kernel<Int8Products, GROUP>(words, a.words + int64_t(first) * words, b.words, sums);
        for (int r = 0; r < STRIP_REGISTERS; ++r) {
            const Ints bias = *reinterpret_cast<const UnalignedInts*>(b.biases + r * LANES);
            const Floats scale = load(b.scales + r * LANES) * unit;
#pragma GCC unroll 8
            for (int i = 0; i < GROUP; ++i) {
                const Floats score =
                    Int8Products::score(load(sums[i] + r * LANES), bias, a.scales[first + i], scale, Floats{});
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(tile + (first + i) * STRIP + r * LANES),
                                    _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32((__m512)score)));
            }
        }
    }
}

inline __m256i load16(const int16_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

void unfold(const int16_t* tile, bool transposed, int16_t* out, int64_t stride) {
    if (transposed) {
        for (int row = 0; row < STRIP; row += GROUP)
            for (int column = 0; column < STRIP; column += 16) {
                __m256i rows[GROUP];
#pragma GCC unroll 8
                for (int i = 0; i < GROUP; ++i) rows[i] = load16(tile + (row + i) * STRIP + column);
                store_columns(rows, out + column * stride + row, stride);
            }
        return;
    }
    for (int row = 0; row < STRIP; ++row)
#pragma GCC unroll 8
        for (int column = 0; column < STRIP; column += 16)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + row * stride + column),
                                load16(tile + row * STRIP + column));
}

inline __m512i load(const int16_t* from) { return _mm512_loadu_si512(from); }

int64_t count(const int16_t* estimates, int64_t n, int16_t level) {
    const __m512i threshold = _mm512_set1_epi16(level);
    int64_t reached = 0;
    for (int64_t j = 0; j < n; j += 64) {
        const uint64_t low = _mm512_cmpge_epi16_mask(load(estimates + j), threshold);
        const uint64_t high = _mm512_cmpge_epi16_mask(load(estimates + j + 32), threshold);
        reached += __builtin_popcountll(low | high << 32);
    }
    return reached;
}

void mark(const int16_t* estimates, int64_t stride, int rows, int64_t n, const int16_t* slack, const int16_t* levels,
          uint8_t* marks, int32_t* counts) {
    for (int64_t j = 0; j < n; j += 32) {
        const __m512i bound = load(slack + j);
        __m256i marked = _mm256_setzero_si256();
        for (int r = 0; r < rows; ++r) {
            const __m512i upper = _mm512_adds_epi16(load(estimates + r * stride + j), bound);
            const __mmask32 reached = _mm512_cmpge_epi16_mask(upper, _mm512_set1_epi16(levels[r]));
            counts[r] += __builtin_popcount(reached);
            marked = _mm256_mask_add_epi8(marked, reached, marked, _mm256_set1_epi8(int8_t(1u << r)));
        }
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(marks + j), marked);
    }
}

// Transposes 8 × 8 bits: bit c of byte r becomes bit r of byte c.
inline uint64_t transpose_bits(uint64_t bits) {
    uint64_t swap = (bits ^ (bits >> 7)) & 0x00aa00aa00aa00aau;
    bits ^= swap ^ (swap << 7);
    swap = (bits ^ (bits >> 14)) & 0x0000cccc0000ccccu;
    bits ^= swap ^ (swap << 14);
    swap = (bits ^ (bits >> 28)) & 0x00000000f0f0f0f0u;
    return bits ^ swap ^ (swap << 28);
}

// The number of set bits in each byte.
inline uint64_t byte_popcounts(uint64_t bits) {
    bits -= (bits >> 1) & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + ((bits >> 2) & 0x3333333333333333u);
    return (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
}

constexpr int64_t MAX_OTHERS = MAX_GROUPS * GROUP;

// Marks between a group of eight rows and other rows.
struct MarkedPairs {
    // By other row: which of the eight mark it, which it marks, and either.
    uint8_t marked_by_us[MAX_OTHERS], marking_us[MAX_OTHERS], marked_pairs[MAX_OTHERS];
    // The other rows, sorted by how many of the eight they are scored with: the loops become predictable.
    uint16_t sorted[GROUP + 1][MAX_OTHERS];
    int32_t counts[GROUP + 1];
};

// Reserves `count` slots in a row's list; SHARED if other threads write to it.
template <bool SHARED>
inline int32_t reserve_slots(int32_t* next, int32_t count) {
    if constexpr (SHARED) return count ? __atomic_fetch_add(next, count, __ATOMIC_RELAXED) : 0;
    const int32_t slot = *next;
    *next += count;
    return slot;
}

// Writes an entry if `keep`. A list that is not shared is written without a branch: the next entry overwrites it.
template <bool SHARED>
inline void write_entry(uint64_t* slot, uint32_t keep, int32_t id, float score) {
    if (SHARED && !keep) return;
    Bits bits;
    bits.value = score;
    *slot = uint64_t(uint32_t(id)) << 32 | bits.word;
}

void split_entries(const uint64_t* entries, int64_t count, int32_t* ids, float* scores) {
    for (int64_t c = 0; c < count; ++c) {
        Bits bits;
        bits.word = uint32_t(entries[c]);
        ids[c] = int32_t(entries[c] >> 32);
        scores[c] = bits.value;
    }
}

// Scores the other rows that are paired with R of the eight, then writes the lists: separate loops stall less.
template <int R, bool SHARED>
void score_sorted(const MarkedPairs& m, const float* rows, int64_t d, int64_t stride, int32_t first,
                  int32_t first_other, int32_t* next, uint64_t* lists) {
    constexpr int32_t BATCH = 64;
    const float* own_rows = rows + first * stride;
    for (int32_t begin = 0; begin < m.counts[R]; begin += BATCH) {
        const int32_t count = m.counts[R] - begin < BATCH ? m.counts[R] - begin : BATCH;
        const uint16_t* others = m.sorted[R] + begin;
        float products[BATCH][R];
        for (int32_t c = 0; c < count; ++c) {
            const float* other = rows + (first_other + others[c]) * stride;
            uint32_t bits = m.marked_pairs[others[c]];
            const float* row_pointers[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r, bits &= bits - 1) row_pointers[r] = own_rows + __builtin_ctz(bits) * stride;
            if constexpr (R == GROUP) {  // more sums do not fit in registers
                dot_rows<GROUP / 2>(other, row_pointers, d, products[c]);
                dot_rows<GROUP / 2>(other, row_pointers + GROUP / 2, d, products[c] + GROUP / 2);
            } else {
                dot_rows<R>(other, row_pointers, d, products[c]);
            }
        }
        for (int32_t c = 0; c < count; ++c) {
            const int32_t j = first_other + others[c];
            const uint32_t marked_by_us = m.marked_by_us[others[c]], marking_us = m.marking_us[others[c]];
            uint32_t bits = m.marked_pairs[others[c]];
            int32_t slot = reserve_slots<SHARED>(next + j, __builtin_popcount(marking_us));
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r, bits &= bits - 1) {
                const int bit_index = __builtin_ctz(bits);
                const uint32_t listed_by_us = marked_by_us >> bit_index & 1,
                               listed_by_other = marking_us >> bit_index & 1;
                write_entry<SHARED>(lists + reserve_slots<SHARED>(next + first + bit_index, int32_t(listed_by_us)),
                                    listed_by_us, j, products[c][r]);
                write_entry<SHARED>(lists + slot, listed_by_other, first + bit_index, products[c][r]);
                slot += int32_t(listed_by_other);
            }
        }
    }
}

template <bool SHARED>
void score_marked(const float* rows, int64_t d, int64_t stride, const uint8_t* marks, int64_t marks_stride, int64_t g,
                  int64_t begin, int64_t end, int32_t* next, uint64_t* lists) {
    MarkedPairs m;
    for (int r = 0; r <= GROUP; ++r) m.counts[r] = 0;
    for (int64_t other = begin; other < end; ++other) {
        // Byte j, bit i: row i of the group marks row j of the other; and the reverse.
        uint64_t marked_by_us, marking_us;
        __builtin_memcpy(&marked_by_us, marks + g * marks_stride + other * GROUP, 8);
        __builtin_memcpy(&marking_us, marks + other * marks_stride + g * GROUP, 8);
        marking_us = transpose_bits(marking_us);
        const uint64_t pair_mask = other == g ? 0x7f3f1f0f07030100u : ~uint64_t(0);  // each pair once: i < j
        marked_by_us &= pair_mask;
        marking_us &= pair_mask;
        const uint64_t marked_pairs = marked_by_us | marking_us;
        if (!marked_pairs) continue;
        const int64_t at = (other - begin) * GROUP;
        __builtin_memcpy(m.marked_by_us + at, &marked_by_us, 8);
        __builtin_memcpy(m.marking_us + at, &marking_us, 8);
        __builtin_memcpy(m.marked_pairs + at, &marked_pairs, 8);
        const uint64_t counts = byte_popcounts(marked_pairs);
#pragma GCC unroll 8
        for (int j = 0; j < GROUP; ++j) {
            const int bits = int(counts >> (8 * j)) & 0xff;
            m.sorted[bits][m.counts[bits]++] = uint16_t(at + j);
        }
    }
    const int32_t first = int32_t(g * GROUP), first_other = int32_t(begin * GROUP);
    score_sorted<1, SHARED>(m, rows, d, stride, first, first_other, next, lists);
    score_sorted<2, SHARED>(m, rows, d, stride, first, first_other, next, lists);
    score_sorted<3, SHARED>(m, rows, d, stride, first, first_other, next, lists);
    score_sorted<4, SHARED>(m, rows, d, stride, first, first_other, next, lists);
    score_sorted<5, SHARED>(m, rows, d, stride, first, first_other, next, lists);
    score_sorted<6, SHARED>(m, rows, d, stride, first, first_other, next, lists);
    score_sorted<7, SHARED>(m, rows, d, stride, first, first_other, next, lists);
    score_sorted<8, SHARED>(m, rows, d, stride, first, first_other, next, lists);
}

void score_marked_any(const float* rows, int64_t d, int64_t stride, const uint8_t* marks, int64_t marks_stride,
                      int64_t g, int64_t begin, int64_t end, bool shared, int32_t* next, uint64_t* lists) {
    const auto work = shared ? score_marked<true> : score_marked<false>;
    work(rows, d, stride, marks, marks_stride, g, begin, end, next, lists);
}

void pad_scores(float* scores, int64_t count) {
    for (int64_t c = count; c < count + TOPK_PADDING; ++c) scores[c] = -__builtin_inff();
}

// Finds a level that between `min_count` and `max_count` scores reach, or more among ties; returns how many reach it.
int64_t find_level(const float* scores, int64_t count, int64_t min_count, int64_t max_count, float* level) {
    __m512 min_values = _mm512_set1_ps(scores[0]), max_values = min_values;
    for (int64_t c = 0; c < count; c += LANES) {
        const __mmask16 there = count - c < LANES ? __mmask16((1u << (count - c)) - 1) : __mmask16(0xffff);
        min_values = _mm512_mask_min_ps(min_values, there, min_values, _mm512_loadu_ps(scores + c));
        max_values = _mm512_mask_max_ps(max_values, there, max_values, _mm512_loadu_ps(scores + c));
    }
    float low = _mm512_reduce_min_ps(min_values), high = _mm512_reduce_max_ps(max_values);
    int64_t reached = count;
    for (int attempt = 0; attempt < 24 && reached > max_count; ++attempt) {
        const float middle = 0.5f * low + 0.5f * high;
        int64_t reached_count = 0;
        for (int64_t c = 0; c < count; c += LANES)
            reached_count +=
                __builtin_popcount(_mm512_cmp_ps_mask(_mm512_loadu_ps(scores + c), _mm512_set1_ps(middle), _CMP_GE_OQ));
        if (reached_count >= min_count) {
            low = middle;
            reached = reached_count;
        } else {
            high = middle;
        }
    }
    *level = low;
    return reached;
}

// Moves the scores that reach a level to the front, in order, and the others to `rest`, if given.
void partition_scores(float* scores, int32_t* ids, int64_t count, float level, float* rest, int32_t* rest_ids) {
    const __m512 threshold = _mm512_set1_ps(level);
    int64_t n_kept = 0, n_rest = 0;
    for (int64_t c = 0; c < count; c += LANES) {
        const __m512 values = _mm512_loadu_ps(scores + c);
        const __m512i value_ids = _mm512_loadu_si512(ids + c);
        const __mmask16 there = count - c < LANES ? __mmask16((1u << (count - c)) - 1) : __mmask16(0xffff);
        const __mmask16 mask = _mm512_mask_cmp_ps_mask(there, values, threshold, _CMP_GE_OQ), under = there & ~mask;
        _mm512_storeu_ps(scores + n_kept, _mm512_maskz_compress_ps(mask, values));
        _mm512_storeu_si512(ids + n_kept, _mm512_maskz_compress_epi32(mask, value_ids));
        n_kept += __builtin_popcount(mask);
        if (!rest) continue;
        _mm512_storeu_ps(rest + n_rest, _mm512_maskz_compress_ps(under, values));
        _mm512_storeu_si512(rest_ids + n_rest, _mm512_maskz_compress_epi32(under, value_ids));
        n_rest += __builtin_popcount(under);
    }
}

int64_t keep_topk_candidates(float* scores, int32_t* ids, int64_t count, int64_t k) {
    pad_scores(scores, count);
    float level;
    const int64_t n_kept = find_level(scores, count, k, k + k / 32, &level);
    if (n_kept < count) partition_scores(scores, ids, count, level, nullptr, nullptr);
    return n_kept;
}

// Ranks by counting larger scores. Returns how many were written: ties overwrite each other.
int64_t sort_by_counting(float* scores, const int32_t* ids, int64_t count, int64_t k, int32_t* best_ids,
                         float* best_scores) {
    pad_scores(scores, count);
    const __m512i one = _mm512_set1_epi32(1);
    int64_t written = 0;
    for (int64_t first = 0; first < count; first += LANES) {
        const __m512 values = _mm512_loadu_ps(scores + first);
        __m512i before = _mm512_setzero_si512(), before_odd = before;
        for (int64_t j = 0; j < count; j += 2) {  // the last may be padding, which is larger than none
            const __mmask16 even_above = _mm512_cmp_ps_mask(_mm512_set1_ps(scores[j]), values, _CMP_GT_OQ);
            const __mmask16 odd_above = _mm512_cmp_ps_mask(_mm512_set1_ps(scores[j + 1]), values, _CMP_GT_OQ);
            before = _mm512_mask_add_epi32(before, even_above, before, one);
            before_odd = _mm512_mask_add_epi32(before_odd, odd_above, before_odd, one);
        }
        int32_t ranks[LANES];
        _mm512_storeu_si512(ranks, _mm512_add_epi32(before, before_odd));
        const int64_t stop = first + LANES < count ? first + LANES : count;
        for (int64_t c = first; c < stop; ++c) {
            if (ranks[c - first] >= k) continue;
            best_ids[ranks[c - first]] = ids[c];
            best_scores[ranks[c - first]] = scores[c];
            ++written;
        }
    }
    return written;
}

// Splits into halves by score, down to MAX_COUNTED scores.
int64_t sort_by_halves(float* scores, int32_t* ids, int64_t count, int64_t k, int32_t* best_ids, float* best_scores) {
    constexpr int64_t MAX_COUNTED = 64;
    if (count > MAX_COUNTED) {
        pad_scores(scores, count);
        float level, rest[MAX_RANKED + TOPK_PADDING];
        int32_t rest_ids[MAX_RANKED + TOPK_PADDING];
        const int64_t upper = find_level(scores, count, count * 3 / 8, count * 5 / 8, &level);
        if (upper < count * 7 / 8) {
            partition_scores(scores, ids, count, level, rest, rest_ids);
            const int64_t written = sort_by_halves(scores, ids, upper, k, best_ids, best_scores);
            if (upper >= k) return written;
            return written +
                   sort_by_halves(rest, rest_ids, count - upper, k - upper, best_ids + upper, best_scores + upper);
        }
    }
    return sort_by_counting(scores, ids, count, k, best_ids, best_scores);
}

// One of several ties was written at `place`: writes all of them there, by id, and returns how many; or 0 where they
// are too many.
int64_t write_ties(const float* scores, const int32_t* ids, int64_t count, int64_t k, int64_t place, int32_t* best_ids,
                   float* best_scores) {
    const float score = best_scores[place];
    constexpr int64_t MAX_TIES = 64;
    int32_t tied_ids[MAX_TIES];
    int64_t n_ties = 0;
    for (int64_t c = 0; c < count; ++c) {
        if (scores[c] != score) continue;
        if (n_ties == MAX_TIES) return 0;
        int64_t at = n_ties++;
        for (; at > 0 && tied_ids[at - 1] > ids[c]; --at) tied_ids[at] = tied_ids[at - 1];
        tied_ids[at] = ids[c];
    }
    for (int64_t e = 0; e < n_ties && place + e < k; ++e) {
        best_ids[place + e] = tied_ids[e];
        best_scores[place + e] = score;
    }
    return n_ties;
}

bool sort_topk(const float* scores, const int32_t* ids, int64_t count, int64_t k, int32_t* best_ids,
               float* best_scores) {
    constexpr int32_t EMPTY = -1;
    float copied_scores[MAX_RANKED + TOPK_PADDING];
    int32_t copied_ids[MAX_RANKED + TOPK_PADDING];
    for (int64_t c = 0; c < count; ++c) copied_scores[c] = scores[c];
    for (int64_t c = 0; c < count; ++c) copied_ids[c] = ids[c];
    for (int64_t c = 0; c < k; ++c) best_ids[c] = EMPTY;
    bool has_ties = sort_by_halves(copied_scores, copied_ids, count, k, best_ids, best_scores) != k;  // ties at the end
    for (int64_t c = 0; c < k; ++c) has_ties |= best_ids[c] == EMPTY;
    for (int64_t c = 0, n_written; has_ties && c < k; c += n_written) {
        const bool alone = c + 1 < k && best_ids[c + 1] != EMPTY;
        n_written = alone ? 1 : write_ties(scores, ids, count, k, c, best_ids, best_scores);
        if (!n_written) return false;
    }
    return true;
}

}  // namespace

const SmallSelfJoinKernels small_self_join_kernels = {
    estimate, unfold, count, mark, score_marked_any, split_entries, keep_topk_candidates, sort_topk};

}  // namespace manifind

#endif
