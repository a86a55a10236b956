// The inner loop of all comparisons: the products of a few packed rows with a strip of others, in registers.
//
// In an anonymous namespace, as `lanes.h`: each level has its own.
#pragma once

#include "lanes.h"
#include "loops.h"

namespace manifind {
namespace {

struct OfFloats {
    static Floats add(Floats sum, Words a, Words b) { return sum + (Floats)a * (Floats)b; }
    static Floats score(Floats sum, Ints, float, Floats, Floats offset) { return sum + offset; }
};

#if LOW_PRECISION
// The left-hand integers are stored with 128 added, as the instruction takes one side unsigned.
struct OfInt8 {
    static Floats add(Floats sum, Words a, Words b) {
        return (Floats)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
    }
    static Floats score(Floats sum, Ints bias, float own, Floats scale, Floats offset) {
        // Unsigned, as the sum may run over where its difference to the bias does not. The scales first: a pair has the
        // same score whichever of its rows is on the left.
        return (Floats)_mm512_cvtepi32_ps((__m512i)((Words)sum - (Words)bias)) * (own * scale) + offset;
    }
};
#endif

constexpr int PARTS = PANELS * PANEL / LANES;  // registers across the strip

// The sums of a micro-tile of R rows. Its loops are unrolled, or the sums would not stay in registers.
template <class Of, int R>
inline void products(int words, const uint32_t* left, const uint32_t* right, float (&out)[R][PARTS * LANES]) {
    Floats sums[R][PARTS] = {};
    for (int w = 0; w < words; ++w) {
        Words b[PARTS];
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; ++part)
            b[part] = load(right + (int64_t(part * LANES / PANEL) * words + w) * PANEL + part * LANES % PANEL);
#pragma GCC unroll 8
        for (int i = 0; i < R; ++i) {
            const Words a = all(left[w * GROUP + i]);
#pragma GCC unroll 8
            for (int part = 0; part < PARTS; ++part) sums[i][part] = Of::add(sums[i][part], a, b[part]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; ++part) store(out[i] + part * LANES, sums[i][part]);
}

}  // namespace
}  // namespace manifind
