// The inner loop of all searches: products of a few packed rows with a strip of others, summed in registers.
//
// In an anonymous namespace, as each instruction set has its own.
#pragma once

#include "kernels.h"
#include "simd.h"

namespace manifind {
namespace {

struct Float32Products {
    static Floats add(Floats sum, Words a, Words b) { return sum + (Floats)a * (Floats)b; }
    static Floats score(Floats sum, Ints, float, Floats, Floats offset) { return sum + offset; }
};

#if HAS_INT8_DOT
// Left-hand integers are stored with 128 added, as the instruction takes one side unsigned.
struct Int8Products {
    static Floats add(Floats sum, Words a, Words b) {
        return (Floats)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
    }
    static Floats score(Floats sum, Ints bias, float row_scale, Floats scale, Floats offset) {
        // Unsigned, as the sum may overflow where its difference to the bias does not. Scales are multiplied first: a
        // pair has the same score whichever row is on the left.
        return (Floats)_mm512_cvtepi32_ps((__m512i)((Words)sum - (Words)bias)) * (row_scale * scale) + offset;
    }
};
#endif

constexpr int STRIP_REGISTERS = PANELS * PANEL / LANES;  // registers across a strip

// The sums of a micro-tile of R rows. Loops are unrolled so that sums stay in registers.
template <class Products, int R>
inline void micro_kernel(int words, const uint32_t* left, const uint32_t* right,
                         float (&out)[R][STRIP_REGISTERS * LANES]) {
    Floats sums[R][STRIP_REGISTERS] = {};
    for (int w = 0; w < words; ++w) {
        Words b[STRIP_REGISTERS];
#pragma GCC unroll 8
        for (int r = 0; r < STRIP_REGISTERS; ++r)
            b[r] = load(right + (int64_t(r * LANES / PANEL) * words + w) * PANEL + r * LANES % PANEL);
#pragma GCC unroll 8
        for (int i = 0; i < R; ++i) {
            const Words a = broadcast(left[w * GROUP + i]);
#pragma GCC unroll 8
            for (int r = 0; r < STRIP_REGISTERS; ++r) sums[i][r] = Products::add(sums[i][r], a, b[r]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
        for (int r = 0; r < STRIP_REGISTERS; ++r) store(out[i] + r * LANES, sums[i][r]);
}

}  // namespace
}  // namespace manifind
