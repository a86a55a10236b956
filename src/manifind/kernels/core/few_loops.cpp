// See few_loops.h.
#include "few_loops.h"

#include "products.h"

#if LOW_PRECISION

namespace manifind {
namespace {

// Eight rows of sixteen: column c of them to out[c · stride] …
inline void store_columns(const __m256i (&rows)[GROUP], int16_t* out, int64_t stride) {
    __m256i a[GROUP], b[GROUP];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        a[2 * i] = _mm256_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
    }
    // a[2 i + h] has, of the rows 2 i and 2 i + 1, the columns 4 h … 4 h + 3 of each half.
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i)
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
            b[4 * i + 2 * h] = _mm256_unpacklo_epi32(a[4 * i + h], a[4 * i + 2 + h]);
            b[4 * i + 2 * h + 1] = _mm256_unpackhi_epi32(a[4 * i + h], a[4 * i + 2 + h]);
        }
    // b[4 i + q] has, of the rows 4 i … 4 i + 3, the columns 2 q and 2 q + 1 of each half.
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q)
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; ++odd) {
            const __m256i columns =
                odd ? _mm256_unpackhi_epi64(b[q], b[4 + q]) : _mm256_unpacklo_epi64(b[q], b[4 + q]);
            const int column = 2 * q + odd;
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out + column * stride), _mm256_castsi256_si128(columns));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out + (column + 8) * stride),
                             _mm256_extracti128_si256(columns, 1));
        }
}

constexpr int STRIP = PARTS * LANES;

void estimate(int words, const Side& a, const Side& b, float unit, int16_t* tile) {
    for (int first = 0; first < STRIP; first += GROUP) {
        float sums[GROUP][STRIP];
        products<OfInt8, GROUP>(words, a.words + int64_t(first) * words, b.words, sums);
        for (int part = 0; part < PARTS; ++part) {
            const Ints bias = *reinterpret_cast<const LooseInts*>(b.biases + part * LANES);
            const Floats scale = load(b.scales + part * LANES) * unit;
#pragma GCC unroll 8
            for (int i = 0; i < GROUP; ++i) {
                const Floats score =
                    OfInt8::score(load(sums[i] + part * LANES), bias, a.scales[first + i], scale, Floats{});
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(tile + (first + i) * STRIP + part * LANES),
                                    _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32((__m512)score)));
            }
        }
    }
}

inline __m256i sixteen(const int16_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }

void unfold(const int16_t* tile, bool columns, int16_t* out, int64_t stride) {
    if (columns) {
        for (int row = 0; row < STRIP; row += GROUP)
            for (int column = 0; column < STRIP; column += 16) {
                __m256i rows[GROUP];
#pragma GCC unroll 8
                for (int i = 0; i < GROUP; ++i) rows[i] = sixteen(tile + (row + i) * STRIP + column);
                store_columns(rows, out + column * stride + row, stride);
            }
        return;
    }
    for (int row = 0; row < STRIP; ++row)
#pragma GCC unroll 8
        for (int column = 0; column < STRIP; column += 16)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + row * stride + column),
                                sixteen(tile + row * STRIP + column));
}

inline __m512i load(const int16_t* at) { return _mm512_loadu_si512(at); }

int64_t count(const int16_t* estimates, int64_t n, int16_t level) {
    const __m512i least = _mm512_set1_epi16(level);
    int64_t reached = 0;
    for (int64_t j = 0; j < n; j += 64) {
        const uint64_t low = _mm512_cmpge_epi16_mask(load(estimates + j), least);
        const uint64_t high = _mm512_cmpge_epi16_mask(load(estimates + j + 32), least);
        reached += __builtin_popcountll(low | high << 32);
    }
    return reached;
}

void mark(const int16_t* estimates, int64_t stride, int rows, int64_t n, const int16_t* slack, const int16_t* levels,
          uint8_t* marks, int32_t* counts) {
    for (int64_t j = 0; j < n; j += 32) {
        const __m512i off = load(slack + j);
        __m256i marked = _mm256_setzero_si256();
        for (int r = 0; r < rows; ++r) {
            const __m512i most = _mm512_adds_epi16(load(estimates + r * stride + j), off);
            const __mmask32 reached = _mm512_cmpge_epi16_mask(most, _mm512_set1_epi16(levels[r]));
            counts[r] += __builtin_popcount(reached);
            marked = _mm256_mask_add_epi8(marked, reached, marked, _mm256_set1_epi8(int8_t(1u << r)));
        }
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(marks + j), marked);
    }
}

// Eight bytes of eight bits: bit c of byte r becomes bit r of byte c.
inline uint64_t transposed(uint64_t bits) {
    uint64_t swap = (bits ^ (bits >> 7)) & 0x00aa00aa00aa00aau;
    bits ^= swap ^ (swap << 7);
    swap = (bits ^ (bits >> 14)) & 0x0000cccc0000ccccu;
    bits ^= swap ^ (swap << 14);
    swap = (bits ^ (bits >> 28)) & 0x00000000f0f0f0f0u;
    return bits ^ swap ^ (swap << 28);
}

// How many bits of each byte are set.
inline uint64_t counts_of(uint64_t bits) {
    bits -= (bits >> 1) & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + ((bits >> 2) & 0x3333333333333333u);
    return (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
}

constexpr int64_t MOST_OTHERS = MOST_GROUPS * GROUP;

// The marks between a group of eight rows and others.
struct Marked {
    // Of each other row: which of the eight mark it, which of the eight it marks, and either.
    uint8_t theirs[MOST_OTHERS], ours[MOST_OTHERS], either[MOST_OTHERS];
    // The other rows that are to be scored with so many of the eight. Sorted that way, the processor can foresee the loops.
    uint16_t sorted[GROUP + 1][MOST_OTHERS];
    int32_t counts[GROUP + 1];
};

// Places in the lists of a row, where others write too or not: `taken` of them are taken.
template <bool SHARED>
inline int32_t take(int32_t* next, int32_t taken) {
    if constexpr (SHARED) return taken ? __atomic_fetch_add(next, taken, __ATOMIC_RELAXED) : 0;
    const int32_t at = *next;
    *next += taken;
    return at;
}

// Writes an entry if `wanted` is 1 and not if it is 0; where the list is ours alone, it is written either way.
template <bool SHARED>
inline void write(uint64_t* at, uint32_t wanted, int32_t id, float score) {
    if (SHARED && !wanted) return;
    Bits bits;
    bits.value = score;
    *at = uint64_t(uint32_t(id)) << 32 | bits.word;
}

void unzip(const uint64_t* entries, int64_t count, int32_t* ids, float* scores) {
    for (int64_t c = 0; c < count; ++c) {
        Bits bits;
        bits.word = uint32_t(entries[c]);
        ids[c] = int32_t(entries[c] >> 32);
        scores[c] = bits.value;
    }
}

// The products of each of the others that are to meet R of the eight rows with those, and then the lists: products wait
// less where lists are not written in between.
template <int R, bool SHARED>
void score_sorted(const Marked& m, const float* rows, int64_t d, int64_t stride, int32_t first, int32_t first_other,
                  int32_t* next, uint64_t* lists) {
    constexpr int32_t AT_ONCE = 64;
    const float* own = rows + first * stride;
    for (int32_t begin = 0; begin < m.counts[R]; begin += AT_ONCE) {
        const int32_t count = m.counts[R] - begin < AT_ONCE ? m.counts[R] - begin : AT_ONCE;
        const uint16_t* places = m.sorted[R] + begin;
        float products[AT_ONCE][R];
        for (int32_t c = 0; c < count; ++c) {
            const float* other = rows + (first_other + places[c]) * stride;
            uint32_t bits = m.either[places[c]];
            const float* some[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r, bits &= bits - 1) some[r] = own + __builtin_ctz(bits) * stride;
            if constexpr (R == GROUP) {  // more sums than that would not stay in registers
                dots_of<GROUP / 2>(other, some, d, products[c]);
                dots_of<GROUP / 2>(other, some + GROUP / 2, d, products[c] + GROUP / 2);
            } else {
                dots_of<R>(other, some, d, products[c]);
            }
        }
        for (int32_t c = 0; c < count; ++c) {
            const int32_t j = first_other + places[c];
            const uint32_t theirs = m.theirs[places[c]], ours = m.ours[places[c]];
            uint32_t bits = m.either[places[c]];
            int32_t to = take<SHARED>(next + j, __builtin_popcount(ours));
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r, bits &= bits - 1) {
                const int at = __builtin_ctz(bits);
                const uint32_t by_own = theirs >> at & 1, by_other = ours >> at & 1;
                write<SHARED>(lists + take<SHARED>(next + first + at, int32_t(by_own)), by_own, j, products[c][r]);
                write<SHARED>(lists + to, by_other, first + at, products[c][r]);
                to += int32_t(by_other);
            }
        }
    }
}

template <bool SHARED>
void score_marked(const float* rows, int64_t d, int64_t stride, const uint8_t* marks, int64_t marks_stride, int64_t g,
                  int64_t begin, int64_t end, int32_t* next, uint64_t* lists) {
    Marked m;
    for (int r = 0; r <= GROUP; ++r) m.counts[r] = 0;
    for (int64_t other = begin; other < end; ++other) {
        uint64_t theirs, ours;  // byte j, bit i: whether row i of the group marks row j of the other, and the reverse
        __builtin_memcpy(&theirs, marks + g * marks_stride + other * GROUP, 8);
        __builtin_memcpy(&ours, marks + other * marks_stride + g * GROUP, 8);
        ours = transposed(ours);
        const uint64_t once = other == g ? 0x7f3f1f0f07030100u : ~uint64_t(0);  // each pair once: i before j
        theirs &= once;
        ours &= once;
        const uint64_t either = theirs | ours;
        if (!either) continue;
        const int64_t at = (other - begin) * GROUP;
        __builtin_memcpy(m.theirs + at, &theirs, 8);
        __builtin_memcpy(m.ours + at, &ours, 8);
        __builtin_memcpy(m.either + at, &either, 8);
        const uint64_t counts = counts_of(either);
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

void fill_up(float* scores, int64_t count) {
    for (int64_t c = count; c < count + FILLING; ++c) scores[c] = -__builtin_inff();
}

// Finds a level that at least `least` and at most `most` scores reach, or, where equal scores forbid it, one that more
// than these do; returns how many reach it.
int64_t find_level(const float* scores, int64_t count, int64_t least, int64_t most, float* level) {
    __m512 lows = _mm512_set1_ps(scores[0]), tops = lows;
    for (int64_t c = 0; c < count; c += LANES) {
        const __mmask16 there = count - c < LANES ? __mmask16((1u << (count - c)) - 1) : __mmask16(0xffff);
        lows = _mm512_mask_min_ps(lows, there, lows, _mm512_loadu_ps(scores + c));
        tops = _mm512_mask_max_ps(tops, there, tops, _mm512_loadu_ps(scores + c));
    }
    float low = _mm512_reduce_min_ps(lows), high = _mm512_reduce_max_ps(tops);
    int64_t reached = count;
    for (int turn = 0; turn < 24 && reached > most; ++turn) {
        const float middle = 0.5f * low + 0.5f * high;
        int64_t now = 0;
        for (int64_t c = 0; c < count; c += LANES)
            now += __builtin_popcount(
                _mm512_cmp_ps_mask(_mm512_loadu_ps(scores + c), _mm512_set1_ps(middle), _CMP_GE_OQ));
        if (now >= least) {
            low = middle;
            reached = now;
        } else {
            high = middle;
        }
    }
    *level = low;
    return reached;
}

// Moves the scores that reach a level to the front, in their order, and the others to `rest`, if that is given.
void split(float* scores, int32_t* ids, int64_t count, float level, float* rest, int32_t* rest_ids) {
    const __m512 least = _mm512_set1_ps(level);
    int64_t kept = 0, other = 0;
    for (int64_t c = 0; c < count; c += LANES) {
        const __m512 some = _mm512_loadu_ps(scores + c);
        const __m512i theirs = _mm512_loadu_si512(ids + c);
        const __mmask16 there = count - c < LANES ? __mmask16((1u << (count - c)) - 1) : __mmask16(0xffff);
        const __mmask16 mask = _mm512_mask_cmp_ps_mask(there, some, least, _CMP_GE_OQ), under = there & ~mask;
        _mm512_storeu_ps(scores + kept, _mm512_maskz_compress_ps(mask, some));
        _mm512_storeu_si512(ids + kept, _mm512_maskz_compress_epi32(mask, theirs));
        kept += __builtin_popcount(mask);
        if (!rest) continue;
        _mm512_storeu_ps(rest + other, _mm512_maskz_compress_ps(under, some));
        _mm512_storeu_si512(rest_ids + other, _mm512_maskz_compress_epi32(under, theirs));
        other += __builtin_popcount(under);
    }
}

int64_t thin_out(float* scores, int32_t* ids, int64_t count, int64_t k) {
    fill_up(scores, count);
    float level;
    const int64_t kept = find_level(scores, count, k, k + k / 32, &level);
    if (kept < count) split(scores, ids, count, level, nullptr, nullptr);
    return kept;
}

// Compares each score with each. Returns how many were written: of equal scores, one takes the place of another.
int64_t rank_all(float* scores, const int32_t* ids, int64_t count, int64_t k, int32_t* best_ids, float* best_scores) {
    fill_up(scores, count);
    const __m512i one = _mm512_set1_epi32(1);
    int64_t written = 0;
    for (int64_t first = 0; first < count; first += LANES) {
        const __m512 own = _mm512_loadu_ps(scores + first);
        __m512i before = _mm512_setzero_si512(), more = before;
        for (int64_t j = 0; j < count; j += 2) {  // the last may be one that fills up, which is above none
            const __mmask16 above = _mm512_cmp_ps_mask(_mm512_set1_ps(scores[j]), own, _CMP_GT_OQ);
            const __mmask16 also = _mm512_cmp_ps_mask(_mm512_set1_ps(scores[j + 1]), own, _CMP_GT_OQ);
            before = _mm512_mask_add_epi32(before, above, before, one);
            more = _mm512_mask_add_epi32(more, also, more, one);
        }
        int32_t ranks[LANES];
        _mm512_storeu_si512(ranks, _mm512_add_epi32(before, more));
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

// Halves are ranked by themselves, down to some length.
int64_t rank_parts(float* scores, int32_t* ids, int64_t count, int64_t k, int32_t* best_ids, float* best_scores) {
    constexpr int64_t SHORT = 64;
    if (count > SHORT) {
        fill_up(scores, count);
        float level, rest[MOST_RANKED + FILLING];
        int32_t rest_ids[MOST_RANKED + FILLING];
        const int64_t upper = find_level(scores, count, count * 3 / 8, count * 5 / 8, &level);
        if (upper < count * 7 / 8) {
            split(scores, ids, count, level, rest, rest_ids);
            const int64_t written = rank_parts(scores, ids, upper, k, best_ids, best_scores);
            if (upper >= k) return written;
            return written + rank_parts(rest, rest_ids, count - upper, k - upper, best_ids + upper, best_scores + upper);
        }
    }
    return rank_all(scores, ids, count, k, best_ids, best_scores);
}

// Of equal scores one was written where the first of them belongs: writes all of them there, by id, and returns how many
// they are; or writes none and returns 0, where they are many.
int64_t write_equals(const float* scores, const int32_t* ids, int64_t count, int64_t k, int64_t place, int32_t* best_ids,
                     float* best_scores) {
    const float score = best_scores[place];
    constexpr int64_t MANY = 64;
    int32_t equal[MANY];
    int64_t some = 0;
    for (int64_t c = 0; c < count; ++c) {
        if (scores[c] != score) continue;
        if (some == MANY) return 0;
        int64_t at = some++;
        for (; at > 0 && equal[at - 1] > ids[c]; --at) equal[at] = equal[at - 1];
        equal[at] = ids[c];
    }
    for (int64_t e = 0; e < some && place + e < k; ++e) {
        best_ids[place + e] = equal[e];
        best_scores[place + e] = score;
    }
    return some;
}

bool rank(const float* scores, const int32_t* ids, int64_t count, int64_t k, int32_t* best_ids, float* best_scores) {
    constexpr int32_t NOBODY = -1;
    float own[MOST_RANKED + FILLING];
    int32_t own_ids[MOST_RANKED + FILLING];
    for (int64_t c = 0; c < count; ++c) own[c] = scores[c];
    for (int64_t c = 0; c < count; ++c) own_ids[c] = ids[c];
    for (int64_t c = 0; c < k; ++c) best_ids[c] = NOBODY;
    bool equals = rank_parts(own, own_ids, count, k, best_ids, best_scores) != k;  // where the last ones are
    for (int64_t c = 0; c < k; ++c) equals |= best_ids[c] == NOBODY;
    for (int64_t c = 0, some; equals && c < k; c += some) {
        const bool alone = c + 1 < k && best_ids[c + 1] != NOBODY;
        some = alone ? 1 : write_equals(scores, ids, count, k, c, best_ids, best_scores);
        if (!some) return false;
    }
    return true;
}

}  // namespace

const FewLoops few_loops = {estimate, unfold, count, mark, score_marked_any, unzip, thin_out, rank};

}  // namespace manifind

#endif
