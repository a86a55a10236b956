// See loops.h. Vectors are those of GCC and Clang, as wide as the registers of the level.
#include "loops.h"

#include "few_loops.h"
#include "lanes.h"
#include "products.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME_(a) #a
#define NAME(a) NAME_(a)

namespace manifind {
namespace {

// bf16 is the upper half of a float32; rounded to the nearest, ties to even.
inline Floats low(Words w) { return (Floats)(w << 16); }
inline Floats high(Words w) { return (Floats)(w & 0xffff0000u); }
inline Words rounded(Floats v) {
    Words bits = (Words)v;
    return bits + 0x7fffu + ((bits >> 16) & 1u);
}
inline Words joined(Floats low, Floats high) { return (rounded(low) >> 16) | (rounded(high) & 0xffff0000u); }

// -- conjugate gradient -----------------------------------------------------------------------------------------------

constexpr int64_t AHEAD = 16;  // entries of S by which the rows that it gathers are fetched ahead

// Past the caches: what is written is not read again soon, and need not be fetched before.
inline void stream(float* at, Floats value) {
#if LOW_PRECISION
    _mm512_stream_ps(at, (__m512)value);
#else
    store(at, value);
#endif
}
inline void streamed() {
#if LOW_PRECISION
    _mm_sfence();
#endif
}

// Entries of a row of S are added up in so many sums, turn by turn, for every addition waits for the one before: alone
// and in a batch alike, as their answers are to be the same.
#if defined(__AVX512F__)
constexpr int SUMS = 4;
#else
constexpr int SUMS = 2;
#endif

template <class T>
inline T together(const T (&sums)[SUMS]) {
    if constexpr (SUMS == 4)
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    else
        return sums[0] + sums[1];
}

// Sp of one row, for some of the words: V registers, 2 · V · LANES columns.
template <int V>
inline void product_of_row(const Csr& S, int64_t i, int words, const uint32_t* p, float* out) {
    const int64_t last = S.starts[S.n] - 1;
    Floats lows[V][SUMS] = {}, highs[V][SUMS] = {};
    const auto add = [&](int64_t e, int u) {
        const int64_t later = e + AHEAD < last ? e + AHEAD : last;
        for (int line = 0; line < V * LANES; line += 16)
            __builtin_prefetch(p + int64_t(S.columns[later]) * words + line);
        const uint32_t* from = p + int64_t(S.columns[e]) * words;
        const Floats s = all(S.values[e]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            const Words w = load(from + v * LANES);
            lows[v][u] += s * low(w);
            highs[v][u] += s * high(w);
        }
    };
    int64_t e = S.starts[i];
    for (; e + SUMS <= S.starts[i + 1]; e += SUMS)
#pragma GCC unroll 4
        for (int u = 0; u < SUMS; ++u) add(e + u, u);
    for (; e < S.starts[i + 1]; ++e) add(e, 0);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
        store(out + v * LANES, together(lows[v]));
        store(out + words + v * LANES, together(highs[v]));
    }
}

template <int W>  // words: 2 · W columns
void multiply(const Csr& S, int64_t begin, int64_t end, const char* which, float alpha, const uint32_t* p, float* ap,
              double* dots) {
    constexpr int V = LANES == 16 ? W / LANES : 16 / LANES;  // registers at a time: more sums do not fit
    for (int64_t block = begin; block < end; block += FLUSH) {
        float sums[2 * 2 * W] = {}, product[2 * W];
        for (int64_t i = block; i < (block + FLUSH < end ? block + FLUSH : end); ++i) {
            if (which && !which[i]) continue;
            for (int c = 0; c < W; c += V * LANES) product_of_row<V>(S, i, W, p + c, product + c);
            for (int c = 0; c < 2 * W; c += LANES) {
                const Words w = load(p + i * W + c % W);
                const Floats own = c < W ? low(w) : high(w), along = own - alpha * load(product + c);
                stream(ap + i * 2 * W + c, along);
                accumulate(sums + c, own * along);
                accumulate(sums + 2 * W + c, along * along);
            }
        }
        for (int c = 0; c < 2 * 2 * W; ++c) dots[c] += sums[c];
    }
    streamed();
}

void multiply_any(const Csr& S, int64_t begin, int64_t end, const char* which, int words, float alpha,
                  const uint32_t* p, float* ap, double* dots) {
    if (words == 16)
        multiply<16>(S, begin, end, which, alpha, p, ap, dots);
    else
        multiply<32>(S, begin, end, which, alpha, p, ap, dots);
}

void advance(int64_t begin, int64_t end, int words, const float* step, const float* turn, uint32_t* p, const float* ap,
             float* x, float* r, double* dots) {
    for (int64_t block = begin; block < end; block += FLUSH) {
        float sums[2 * 64] = {};
        for (int64_t i = block; i < (block + FLUSH < end ? block + FLUSH : end); ++i)
            for (int c = 0; c < words; c += LANES) {
                const Words before = load(p + i * words + c);
                Floats residual[2], after[2];
                for (int half = 0; half < 2; ++half) {
                    const int column = half * words + c;
                    const int64_t at = i * 2 * words + column;
                    const Floats own = half ? high(before) : low(before);
                    const Floats forward = load(step + column);
                    store(x + at, load(x + at) + forward * own);
                    residual[half] = load(r + at) - forward * load(ap + at);
                    store(r + at, residual[half]);
                    accumulate(sums + column, residual[half] * residual[half]);
                    after[half] = residual[half] + load(turn + column) * own;
                }
                const Words rounded = joined(after[0], after[1]);
                store(p + i * words + c, rounded);
                accumulate(sums + 2 * words + c, residual[0] * low(rounded));
                accumulate(sums + 3 * words + c, residual[1] * high(rounded));
            }
        for (int c = 0; c < 4 * words; ++c) dots[c] += sums[c];
    }
}

// Compilers make gather instructions of this loop, which are slower than loads one by one.
#if defined(__GNUC__) && !defined(__clang__)
#define ONE_BY_ONE __attribute__((optimize("no-tree-vectorize")))
#else
#define ONE_BY_ONE
#endif

ONE_BY_ONE void product_small(const Csr& S, int64_t begin, int64_t end, const float* p, float* out) {
    for (int64_t i = begin; i < end; ++i) {
        // Eight sums of their own: one would make every addition wait for the one before.
        float sums[8] = {};
        int64_t e = S.starts[i];
        for (; e + 8 <= S.starts[i + 1]; e += 8)
            for (int u = 0; u < 8; ++u) sums[u] += S.values[e + u] * p[S.columns[e + u]];
        for (; e < S.starts[i + 1]; ++e) sums[0] += S.values[e] * p[S.columns[e]];
        out[i - begin] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
}

ONE_BY_ONE void multiply_one(const Csr& S, int64_t begin, int64_t end, const char* which, float alpha, const float* p,
                             float* ap, double* dots) {
    for (int64_t block = begin; block < end; block += FLUSH) {
        float own_along = 0, along_along = 0;
        for (int64_t i = block; i < (block + FLUSH < end ? block + FLUSH : end); ++i) {
            if (which && !which[i]) continue;
            float sums[SUMS] = {};
            int64_t e = S.starts[i];
            for (; e + SUMS <= S.starts[i + 1]; e += SUMS)
                for (int u = 0; u < SUMS; ++u) sums[u] += S.values[e + u] * p[S.columns[e + u]];
            for (; e < S.starts[i + 1]; ++e) sums[0] += S.values[e] * p[S.columns[e]];
            float product = sums[0] + sums[1];
            if (SUMS == 4) product += sums[SUMS - 2] + sums[SUMS - 1];
            const float along = ap[i] = p[i] - alpha * product;
            own_along += p[i] * along;
            along_along += along * along;
        }
        dots[0] += own_along;
        dots[1] += along_along;
    }
}

inline float rounded(float value) {
    Bits bits{value};
    bits.word = (bits.word + 0x7fffu + ((bits.word >> 16) & 1u)) & 0xffff0000u;
    return bits.value;
}

ONE_BY_ONE void add_up(int64_t begin, int64_t end, const float* p, const float* r, double* dots) {
    float squared = 0, along = 0;
    for (int64_t i = begin; i < end; ++i) {
        squared += r[i] * r[i];
        along += r[i] * p[i];
    }
    dots[0] += squared;
    dots[1] += along;
}

void advance_one(int64_t begin, int64_t end, float step, float turn, float* p, const float* ap, float* x, float* r,
                 double* dots) {
    for (int64_t block = begin; block < end; block += FLUSH) {
        const int64_t stop = block + FLUSH < end ? block + FLUSH : end;
        int64_t i = block;
        for (; i + LANES <= stop; i += LANES) {
            const Floats own = load(p + i), residual = load(r + i) - step * load(ap + i);
            store(x + i, load(x + i) + step * own);
            store(r + i, residual);
            store(p + i, (Floats)(rounded(residual + turn * own) & 0xffff0000u));
        }
        for (; i < stop; ++i) {
            x[i] += step * p[i];
            r[i] -= step * ap[i];
            p[i] = rounded(r[i] + turn * p[i]);
        }
        add_up(block, stop, p, r, dots);
    }
}

void dots_small(int64_t n, const float* p, const float* r, const float* ap, double* dots) {
    for (int64_t block = 0; block < n; block += FLUSH * LANES) {
        const int64_t stop = block + FLUSH * LANES < n ? block + FLUSH * LANES : n;
        Floats sums[4] = {};
        int64_t i = block;
        for (; i + LANES <= stop; i += LANES) {
            const Floats own = load(p + i), residual = load(r + i), along = load(ap + i);
            sums[0] += own * along;
            sums[1] += residual * own;
            sums[2] += residual * along;
            sums[3] += along * along;
        }
        for (int which = 0; which < 4; ++which) dots[which] += total(sums[which]);
        for (; i < stop; ++i) {
            dots[0] += double(p[i]) * ap[i];
            dots[1] += double(r[i]) * p[i];
            dots[2] += double(r[i]) * ap[i];
            dots[3] += double(ap[i]) * ap[i];
        }
    }
}

void advance_small(int64_t n, float step, float turn, float* p, const float* ap, float* x, float* r, double* rr) {
    for (int64_t block = 0; block < n; block += FLUSH) {
        const int64_t stop = block + FLUSH < n ? block + FLUSH : n;
        Floats sum = {};
        int64_t i = block;
        for (; i + LANES <= stop; i += LANES) {
            const Floats own = load(p + i);
            store(x + i, load(x + i) + step * own);
            const Floats residual = load(r + i) - step * load(ap + i);
            store(r + i, residual);
            store(p + i, residual + turn * own);
            sum += residual * residual;
        }
        double rest = 0;
        for (; i < stop; ++i) {
            x[i] += step * p[i];
            r[i] -= step * ap[i];
            rest += double(r[i]) * r[i];
            p[i] = r[i] + turn * p[i];
        }
        *rr += total(sum) + rest;
    }
}

// -- conjugate gradient in float64 ------------------------------------------------------------------------------------

constexpr int DOUBLES = LANES / 2;  // of a register
typedef double Doubles __attribute__((vector_size(DOUBLES * 8)));
typedef double LooseDoubles __attribute__((vector_size(DOUBLES * 8), aligned(8), may_alias));

inline Doubles load(const double* at) { return *reinterpret_cast<const LooseDoubles*>(at); }
inline void store(double* at, Doubles value) { *reinterpret_cast<LooseDoubles*>(at) = value; }
inline Doubles all(double value) {
#if defined(__AVX512F__)
    return (Doubles)_mm512_set1_pd(value);
#else
    return Doubles{} + value;
#endif
}

template <int V>  // registers: V · DOUBLES columns
void multiply_double(const Csr& S, int64_t begin, int64_t end, const char* which, double alpha, const double* p,
                     double* ap, double* pap) {
    constexpr int W = V * DOUBLES;
    Doubles sums[V] = {};
    for (int64_t i = begin; i < end; ++i) {
        if (which && !which[i]) continue;
        Doubles row[V] = {};
        for (int64_t e = S.starts[i]; e < S.starts[i + 1]; ++e) {
            const double* from = p + int64_t(S.columns[e]) * W;
            const Doubles s = all(double(S.values[e]));
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) row[v] += s * load(from + v * DOUBLES);
        }
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) {
            const Doubles own = load(p + i * W + v * DOUBLES), along = own - alpha * row[v];
            store(ap + i * W + v * DOUBLES, along);
            sums[v] += own * along;
        }
    }
    for (int v = 0; v < V; ++v)
        for (int lane = 0; lane < DOUBLES; ++lane) pap[v * DOUBLES + lane] += sums[v][lane];
}

ONE_BY_ONE void multiply_one_double(const Csr& S, int64_t begin, int64_t end, const char* which, double alpha,
                                    const double* p, double* ap, double* pap) {
    double total = 0;
    for (int64_t i = begin; i < end; ++i) {
        if (which && !which[i]) continue;
        double sums[8] = {};
        int64_t e = S.starts[i];
        for (; e + 8 <= S.starts[i + 1]; e += 8)
            for (int u = 0; u < 8; ++u) sums[u] += double(S.values[e + u]) * p[S.columns[e + u]];
        for (; e < S.starts[i + 1]; ++e) sums[0] += double(S.values[e]) * p[S.columns[e]];
        const double product = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
        ap[i] = p[i] - alpha * product;
        total += p[i] * ap[i];
    }
    *pap += total;
}

void multiply_double_any(const Csr& S, int64_t begin, int64_t end, const char* which, int columns, double alpha,
                         const double* p, double* ap, double* pap) {
    switch (columns) {
        case 1: return multiply_one_double(S, begin, end, which, alpha, p, ap, pap);
        case 8: return multiply_double<8 / DOUBLES>(S, begin, end, which, alpha, p, ap, pap);
        default: return multiply_double<WIDEST / DOUBLES>(S, begin, end, which, alpha, p, ap, pap);
    }
}

// The vectors of one column are gone through eight entries at a time, as if these were rows of eight columns.
void descend_double(int64_t begin, int64_t end, int columns, const double* step, const double* ap, double* r,
                    double* rr) {
    const int width = columns == 1 ? 8 : columns;
    const int64_t stop = end * columns;
    double sums[WIDEST] = {}, steps[WIDEST];
    for (int c = 0; c < width; ++c) steps[c] = step[columns == 1 ? 0 : c];
    int64_t at = begin * columns;
    for (; at + width <= stop; at += width)
        for (int c = 0; c < width; c += DOUBLES) {
            const Doubles residual = load(r + at + c) - load(steps + c) * load(ap + at + c);
            store(r + at + c, residual);
            store(sums + c, load(sums + c) + residual * residual);
        }
    for (; at < stop; ++at) {
        r[at] -= step[0] * ap[at];
        sums[0] += r[at] * r[at];
    }
    for (int c = 0; c < width; ++c) rr[columns == 1 ? 0 : c] += sums[c];
}

void turn_double(int64_t begin, int64_t end, int columns, const double* step, const double* turn, const double* r,
                 double* p, double* x) {
    const int width = columns == 1 ? 8 : columns;
    const int64_t stop = end * columns;
    double steps[WIDEST], turns[WIDEST];
    for (int c = 0; c < width; ++c) {
        steps[c] = step[columns == 1 ? 0 : c];
        turns[c] = turn[columns == 1 ? 0 : c];
    }
    int64_t at = begin * columns;
    for (; at + width <= stop; at += width)
        for (int c = 0; c < width; c += DOUBLES) {
            const Doubles own = load(p + at + c);
            store(x + at + c, load(x + at + c) + load(steps + c) * own);
            store(p + at + c, load(r + at + c) + load(turns + c) * own);
        }
    for (; at < stop; ++at) {
        x[at] += step[0] * p[at];
        p[at] = r[at] + turn[0] * p[at];
    }
}

// -- inner products ---------------------------------------------------------------------------------------------------

// A bit for each lane in which `score` reaches `least`.
inline uint32_t reached(Floats score, Floats least) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)score, (__m512)least, _CMP_GE_OQ);
#elif defined(__AVX2__)
    return uint32_t(_mm256_movemask_ps((__m256)(score >= least)));
#else
    const Ints which = score >= least;
    uint32_t mask = 0;
    for (int lane = 0; lane < LANES; ++lane) mask |= uint32_t(which[lane] & 1) << lane;
    return mask;
#endif
}

template <class Of, int R>
size_t scan_rows(int words, int group, int first, const Block& a, const Block& b, Hit* hits) {
    float sums[R][PARTS * LANES];
    products<Of, R>(words, a.words + int64_t(group) * words * GROUP + first, b.words, sums);
    // What belongs to the columns stays in registers.
    Ints bias[PARTS];
    Floats scale[PARTS], offset[PARTS], threshold[PARTS];
#pragma GCC unroll 8
    for (int part = 0; part < PARTS; ++part) {
        bias[part] = *reinterpret_cast<const LooseInts*>(b.biases + part * LANES);
        scale[part] = load(b.scales + part * LANES);
        offset[part] = load(b.offsets + part * LANES);
        threshold[part] = load(b.thresholds + part * LANES);
    }
    size_t found = 0;
#pragma GCC unroll 1
    for (int i = 0; i < R; ++i) {
        const int row = group * GROUP + first + i;
        const Floats own = all(a.offsets[row]), least = all(a.thresholds[row]);
        uint64_t mask = 0;
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; ++part) {
            const Floats score =
                Of::score(load(sums[i] + part * LANES), bias[part], a.scales[row], scale[part], offset[part]) + own;
            store(sums[i] + part * LANES, score);
            mask |= uint64_t(reached(score, threshold[part] < least ? threshold[part] : least)) << (part * LANES);
        }
        for (; mask; mask &= mask - 1) {
            const int column = __builtin_ctzll(mask);
            hits[found++] = Hit{uint16_t(row), uint16_t(column), sums[i][column]};
        }
    }
    return found;
}

template <class Of, int R>
void lower_bounds_of_rows(int words, int group, int first, const Side& a, const Side& b, float* out, int64_t stride) {
    float sums[R][PARTS * LANES];
    products<Of, R>(words, a.words + int64_t(group) * words * GROUP + first, b.words, sums);
    Ints bias[PARTS];
    Floats scale[PARTS], length[PARTS], error[PARTS];
#pragma GCC unroll 8
    for (int part = 0; part < PARTS; ++part) {
        bias[part] = *reinterpret_cast<const LooseInts*>(b.biases + part * LANES);
        scale[part] = load(b.scales + part * LANES);
        length[part] = load(b.lengths + part * LANES);
        error[part] = load(b.errors + part * LANES);
    }
#pragma GCC unroll 1  // else the compiler writes the sums to memory with every step of the products
    for (int i = 0; i < R; ++i) {
        const int row = group * GROUP + first + i;
        const Floats own_length = all(a.lengths[row]), own_error = all(a.errors[row]);
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; ++part) {
            const Floats bound = own_error * length[part] + own_length * error[part];
            store(out + row * stride + part * LANES,
                  Of::score(load(sums[i] + part * LANES), bias[part], a.scales[row], scale[part], -bound));
        }
    }
}

template <int R>
struct Height {
    static constexpr int rows = R;
};

// Calls work(Height, group, first row) for the micro-tiles of all groups.
template <class Work>
inline void by_micro_tiles(int groups, int height, Work work) {
    for (int group = 0; group < groups; ++group) {
        if constexpr (ROWS == GROUP) {  // a micro-tile of its own for each height: 21 rows are three of seven
            switch (height) {
                case 8: work(Height<8>(), group, 0); break;
                case 7: work(Height<7>(), group, 0); break;
                case 6: work(Height<6>(), group, 0); break;
                case 5: work(Height<5>(), group, 0); break;
                default: work(Height<4>(), group, 0);
            }
        } else {
            for (int first = 0; first < height; first += ROWS) work(Height<ROWS>(), group, first);
        }
    }
}

template <class Of>
size_t scan(int words, int groups, int height, const Block& a, const Block& b, Hit* hits) {
    size_t found = 0;
    by_micro_tiles(groups, height, [&](auto tile, int group, int first) {
        found += scan_rows<Of, decltype(tile)::rows>(words, group, first, a, b, hits + found);
    });
    return found;
}

size_t scan_any(Packing packing, int words, int groups, int height, const Block& a, const Block& b, Hit* hits) {
#if LOW_PRECISION
    if (packing == Packing::int8) return scan<OfInt8>(words, groups, height, a, b, hits);
#endif
    (void)packing;
    return scan<OfFloats>(words, groups, height, a, b, hits);
}

template <class Of>
void lower_bounds(int words, int groups, int height, const Side& a, const Side& b, float* out, int64_t stride) {
    by_micro_tiles(groups, height, [&](auto tile, int group, int first) {
        lower_bounds_of_rows<Of, decltype(tile)::rows>(words, group, first, a, b, out, stride);
    });
}

void lower_bounds_any(Packing packing, int words, int groups, int height, const Side& a, const Side& b, float* out,
                      int64_t stride) {
#if LOW_PRECISION
    if (packing == Packing::int8) return lower_bounds<OfInt8>(words, groups, height, a, b, out, stride);
#endif
    (void)packing;
    lower_bounds<OfFloats>(words, groups, height, a, b, out, stride);
}

int64_t level_of(const float* scores, int64_t n, int64_t k, uint32_t* histogram, Level* level) {
    const int64_t whole = n / LANES * LANES;
    float low = scores[0], top = scores[0];
    Floats lows = all(low), tops = lows;
    for (int64_t j = 0; j < whole; j += LANES) {
        const Floats some = load(scores + j);
        lows = some < lows ? some : lows;
        tops = some > tops ? some : tops;
    }
    for (int lane = 0; lane < LANES; ++lane) {
        low = lows[lane] < low ? lows[lane] : low;
        top = tops[lane] > top ? tops[lane] : top;
    }
    for (int64_t j = whole; j < n; ++j) {
        low = scores[j] < low ? scores[j] : low;
        top = scores[j] > top ? scores[j] : top;
    }
    float scale = (BUCKETS - 1) / (top - low);
    if (!(scale < 1e30f)) scale = 0;  // they are all the same
    for (int b = 0; b < BUCKETS; ++b) histogram[b] = 0;
    const auto bucket = [&](float score) {
        const int at = int((score - low) * scale);
        return at < BUCKETS - 1 ? at : BUCKETS - 1;
    };
    for (int64_t j = 0; j < whole; j += LANES) {
        Ints at = __builtin_convertvector((load(scores + j) - low) * scale, Ints);
        at = at < BUCKETS - 1 ? at : Ints{} + (BUCKETS - 1);
        int32_t buckets[LANES];
        *reinterpret_cast<LooseInts*>(buckets) = at;
#pragma GCC unroll 16
        for (int lane = 0; lane < LANES; ++lane) ++histogram[buckets[lane]];
    }
    for (int64_t j = whole; j < n; ++j) ++histogram[bucket(scores[j])];
    int64_t more = 0;
    int last = BUCKETS;
    while (more < k) more += histogram[--last];
    *level = Level{low, scale, float(last)};
    return histogram[last];
}

int64_t reaching(const float* lower, int64_t n, float length, float error, const Side& b, const Level& level,
                 int32_t* columns) {
    const Floats least = all(level.level);
    int64_t found = 0;
    for (int64_t j = 0; j < n; j += LANES) {
        const Floats bound = error * load(b.lengths + j) + length * load(b.errors + j);
        const Floats upper = load(lower + j) + 2 * bound;
        uint32_t mask = reached((upper - level.low) * level.scale, least);
        if (n - j < LANES) mask &= (1u << (n - j)) - 1;
        for (; mask; mask &= mask - 1) columns[found++] = int32_t(j) + __builtin_ctz(mask);
    }
    return found;
}

#if defined(__AVX2__)
// Eight rows of eight floats: value j of row i to out[j · stride + i].
inline void store_turned(const float* rows, int64_t d, float* out, int64_t stride) {
    __m256 a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(rows + i * d);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {  // four rows, two values of each half
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        _mm256_storeu_ps(out + j * stride, _mm256_permute2f128_ps(a[j], a[4 + j], 0x20));
        _mm256_storeu_ps(out + (4 + j) * stride, _mm256_permute2f128_ps(a[j], a[4 + j], 0x31));
    }
}
#endif

void pack(Packing packing, const float* rows, int64_t d, int count, int height, int words, const float* scales,
          uint32_t* panel, int32_t* biases) {
    int packed = 0;  // rows that are packed already, in eights
#if defined(__AVX2__)
    if (packing == Packing::float32 && words == d && d % 8 == 0)
        for (; packed + 8 <= count; packed += 8)
            for (int64_t w = 0; w < d; w += 8)
                store_turned(rows + packed * d + w, d, reinterpret_cast<float*>(panel) + w * height + packed, height);
#endif
    for (int r = packed; r < height; ++r) {
        const float* from = rows + r * d;
        if (r >= count) {
            for (int w = 0; w < words; ++w) panel[w * height + r] = 0;
        } else if (packing == Packing::float32) {
            for (int w = 0; w < words; ++w) panel[w * height + r] = Bits{from[w]}.word;
        } else {
            const float inverse = scales[r] > 0 ? 1 / scales[r] : 0;
            const uint32_t flip = height == GROUP ? 0x80808080u : 0;
            int32_t sum = 0;
            constexpr int MANY = 256;  // words quantised at a time
            for (int first = 0; first < words; first += MANY) {
                const int more = words - first < MANY ? words - first : MANY;
                const int64_t at = int64_t(first) * 4, stop = d - at < more * 4 ? d - at : more * 4;
                int32_t whole[4 * MANY];
                for (int64_t j = 0; j < stop; ++j) {
                    const float scaled = from[at + j] * inverse;
                    whole[j] = int32_t(scaled + (scaled < 0 ? -0.5f : 0.5f));
                    sum += whole[j];
                }
                for (int64_t j = stop; j < more * 4; ++j) whole[j] = 0;
                for (int w = 0; w < more; ++w) {
                    const uint32_t word = uint32_t(whole[4 * w] & 0xff) | uint32_t(whole[4 * w + 1] & 0xff) << 8 |
                                          uint32_t(whole[4 * w + 2] & 0xff) << 16 | uint32_t(whole[4 * w + 3]) << 24;
                    panel[(first + w) * height + r] = word ^ flip;
                }
            }
            biases[r] = 128 * sum;
        }
    }
}

void widen(const Rows& rows, int64_t row, float* out) {
    if (!rows.half) {
        const float* from = static_cast<const float*>(rows.data) + row * rows.d;
        for (int64_t j = 0; j < rows.d; ++j) out[j] = from[j];
        return;
    }
    const uint16_t* from = static_cast<const uint16_t*>(rows.data) + row * rows.d;
    int64_t j = 0;
    for (; j + LANES <= rows.d; j += LANES) store(out + j, load(from + j));
    for (; j < rows.d; ++j) out[j] = one(from + j);
}

template <class T>
void dots_any(const float* x, const T* vectors, int64_t d, bool far, const int32_t* ids, int64_t count, float* out) {
    constexpr int R = LANES == 16 ? 4 : 1;  // sums of more would not fit in the registers
    constexpr int64_t LINE = 64 / sizeof(T);
    const T* rows[R];
    int64_t c = 0;
    for (; c + R <= count; c += R) {
        for (int r = 0; r < R; ++r) rows[r] = vectors + ids[c + r] * d;
        for (int64_t ahead = c + R; far && ahead < count && ahead < c + 2 * R; ++ahead)
            for (int64_t j = 0; j < d; j += LINE) __builtin_prefetch(vectors + ids[ahead] * d + j);
        dots_of<R>(x, rows, d, out + c);
    }
    for (int r = 0; c + r < count; ++r) rows[r] = vectors + ids[c + r] * d;
    if constexpr (R == 4) {
        if (count - c == 3) return dots_of<3>(x, rows, d, out + c);
        if (count - c == 2) return dots_of<2>(x, rows, d, out + c);
    }
    if (c < count) dots_of<1>(x, rows, d, out + c);
}

void dots(const float* x, const Rows& rows, const int32_t* ids, int64_t count, float* out) {
    const bool far = rows.n * rows.d > 1 << 18;  // too much to be in the cache: rows are fetched ahead
    if (rows.half)
        dots_any(x, static_cast<const uint16_t*>(rows.data), rows.d, far, ids, count, out);
    else
        dots_any(x, static_cast<const float*>(rows.data), rows.d, far, ids, count, out);
}

// -- rows in bytes ----------------------------------------------------------------------------------------------------

// Infinite or not a number where a value is: then so is the length.
inline float largest_of(const float* row, int64_t d) {
    Floats largest = {}, sums = {};
    int64_t j = 0;
    for (; j + LANES <= d; j += LANES) {
        const Floats size = (Floats)((Words)load(row + j) & 0x7fffffffu);
        largest = size > largest ? size : largest;
        sums += size * 0.f;
    }
    float most = 0, rest = total(sums);
    for (int lane = 0; lane < LANES; ++lane) most = largest[lane] > most ? largest[lane] : most;
    for (; j < d; ++j) {
        const float size = row[j] < 0 ? -row[j] : row[j];
        most = size > most ? size : most;
        rest += size * 0.f;
    }
    return most + rest;
}

void compress(const float* row, int64_t d, int64_t bytes, int8_t* to, float* scale, int32_t* bias, float* error,
              float* length) {
    const float largest = largest_of(row, d), root = __builtin_sqrtf(float(d));
    for (int64_t j = largest > 1e-30f ? d : 0; j < bytes; ++j) to[j] = 0;
    *scale = 0;
    *bias = 0;
    *error = *length = largest * root;
    if (!(largest > 1e-30f && largest < 1e30f)) return;  // what is next to nothing is taken for nothing
    const float inverse = 127 / largest;
    Ints total_sum = {};
    Floats off = {}, squared = {};
    int32_t sum = 0;
    float off_rest = 0, squared_rest = 0;
    int64_t j = 0;
    for (; j + LANES <= d; j += LANES) {
        const Floats scaled = load(row + j) * inverse;
#if defined(__AVX512F__)
        const Ints whole = (Ints)_mm512_cvtps_epi32((__m512)scaled);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + j), _mm512_cvtepi32_epi8((__m512i)whole));
#else
        const Ints whole = __builtin_convertvector(scaled + (scaled < 0 ? all(-0.5f) : all(0.5f)), Ints);
        for (int lane = 0; lane < LANES; ++lane) to[j + lane] = int8_t(whole[lane]);
#endif
        const Floats rest = scaled - __builtin_convertvector(whole, Floats);
        total_sum += whole;
        off += rest * rest;
        squared += scaled * scaled;
    }
    for (; j < d; ++j) {
        const float scaled = row[j] * inverse;
        const int32_t whole = int32_t(scaled + (scaled < 0 ? -0.5f : 0.5f));
        to[j] = int8_t(whole);
        sum += whole;
        off_rest += (scaled - float(whole)) * (scaled - float(whole));
        squared_rest += scaled * scaled;
    }
    for (int lane = 0; lane < LANES; ++lane) sum += total_sum[lane];
    *scale = largest / 127;
    *bias = int32_t(128u * uint32_t(sum));  // unsigned: rows too wide for int8 are rounded too, to be measured
    // A little more than it was found to be, for this was rounded too.
    *error = *scale * (__builtin_sqrtf(total(off) + off_rest) * 1.0001f + 2e-5f * root);
    *length = *scale * __builtin_sqrtf(total(squared) + squared_rest) * 1.0001f;
}

#if LOW_PRECISION
// Sixteen rows of sixteen words, the rows made columns.
inline void transpose(__m512i (&r)[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // Now r[4 b + j] has, in its quarter q, word 4 q + j of the rows 4 b … 4 b + 3.
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m512i low01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x44);
        const __m512i high01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xee);
        const __m512i low23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x44);
        const __m512i high23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xee);
        t[j] = _mm512_shuffle_i32x4(low01, low23, 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
        t[8 + j] = _mm512_shuffle_i32x4(high01, high23, 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// A panel of the right-hand side that is full or nearly so; what is missing is zeros.
inline void pack_panel(const int8_t* const* rows, int count, int words, uint32_t* panel) {
    for (int w = 0; w < words; w += 16) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) r[i] = i < count ? _mm512_loadu_si512(rows[i] + 4 * w) : _mm512_setzero_si512();
        transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) _mm512_storeu_si512(panel + (w + i) * PANEL, r[i]);
    }
}
#endif

void pack_bytes(const int8_t* const* rows, int count, int height, int words, uint32_t* panel) {
#if LOW_PRECISION
    if (height == PANEL) return pack_panel(rows, count, words, panel);
#endif
    const uint32_t flip = height == GROUP ? 0x80808080u : 0;
    for (int r = 0; r < height; ++r)
        for (int w = 0; w < words; ++w) {
            uint32_t word = 0;
            if (r < count) __builtin_memcpy(&word, rows[r] + 4 * w, 4);
            panel[w * height + r] = word ^ flip;
        }
}

void blend(const float* const* before, const float* const* after, const float* weights, int radius, int64_t n,
           float* out) {
    constexpr int WIDTH = 32;
    int64_t x = 0;
    for (; x + WIDTH <= n; x += WIDTH) {
        float sums[WIDTH];
        for (int i = 0; i < WIDTH; ++i) sums[i] = weights[0] * before[0][x + i];
        for (int k = 1; k <= radius; ++k) {
            const float *a = before[k] + x, *b = after[k] + x;
            const float weight = weights[k];
            for (int i = 0; i < WIDTH; ++i) sums[i] += weight * (a[i] + b[i]);
        }
        for (int i = 0; i < WIDTH; ++i) out[x + i] = sums[i];
    }
    for (; x < n; ++x) {
        float sum = weights[0] * before[0][x];
        for (int k = 1; k <= radius; ++k) sum += weights[k] * (before[k][x] + after[k][x]);
        out[x] = sum;
    }
}

int64_t possible(const int32_t* ids, const float* similarities, int64_t width, const float* limits, int32_t own,
                 Neighbour* out) {
    int64_t count = 0, e = 0;
#if defined(__AVX512F__)
    // Of sixteen, id and similarity side by side.
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i second = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    for (; e + 16 <= width; e += 16) {
        const __m512i some = _mm512_loadu_si512(ids + e);
        const __m512 near = _mm512_loadu_ps(similarities + e);
        __mmask16 kept = _mm512_cmpge_epi32_mask(some, _mm512_setzero_si512());
        kept = _mm512_mask_cmpneq_epi32_mask(kept, some, _mm512_set1_epi32(own));
        kept = _mm512_mask_cmp_ps_mask(kept, near, _mm512_setzero_ps(), _CMP_GT_OQ);
        const __m512 least = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), kept, some, limits, 4);
        kept = _mm512_mask_cmp_ps_mask(kept, near, least, _CMP_GE_OQ);
        const __m512i kept_ids = _mm512_maskz_compress_epi32(kept, some);
        const __m512i kept_near = _mm512_castps_si512(_mm512_maskz_compress_ps(kept, near));
        _mm512_storeu_si512(out + count, _mm512_permutex2var_epi32(kept_ids, first, kept_near));
        _mm512_storeu_si512(out + count + 8, _mm512_permutex2var_epi32(kept_ids, second, kept_near));
        count += __builtin_popcount(kept);
    }
#endif
    for (; e < width; ++e) {  // without a branch, for none could be foretold
        const int32_t id = ids[e];
        const float similarity = similarities[e];
        out[count] = {id, similarity};
        count += (id >= 0) & (id != own) & (similarity > 0) & (similarity >= limits[id < 0 ? 0 : id]);
    }
    return count;
}

}  // namespace

extern const Loops JOIN(loops_, MANIFIND_LEVEL);
const Loops JOIN(loops_, MANIFIND_LEVEL) = {
    NAME(MANIFIND_LEVEL), LOW_PRECISION != 0, PANELS * PANEL, multiply_any, advance, multiply_one, advance_one,
    product_small, dots_small, advance_small, multiply_double_any, descend_double, turn_double, scan_any, lower_bounds_any,
    level_of, reaching, pack, widen, dots, compress, pack_bytes, blend, possible,
#if LOW_PRECISION
    &few_loops,
#else
    nullptr,
#endif
};

}  // namespace manifind
