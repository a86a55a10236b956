// The kernels (hot loops): a table of functions, compiled once for each instruction set (kernels.cpp).
//
// Kernels take raw pointers and use no library: the linker could merge standard library code compiled here for AVX-512
// with the same code compiled elsewhere, which would then fail on other machines.
#pragma once

#include <cstddef>
#include <cstdint>

namespace manifind {

// A sparse matrix: row i has the entries starts[i] … starts[i + 1].
struct Csr {
    int64_t n;
    const int64_t* starts;
    const int32_t* columns;
    const float* values;
};

// Row-major vectors in single or half precision.
struct Rows {
    const void* data;
    int64_t n, d;
    bool half;
};

// Packed rows: word w of row r of a panel is at [w * height + r]. A panel has PANEL rows on the right-hand side and
// GROUP rows on the left. A word is one float32 or four int8.
constexpr int PANEL = 16, GROUP = 8;

constexpr int FLUSH_ROWS = 64;           // rows that are summed in float32 before float64
constexpr int FLOAT64_MAX_COLUMNS = 16;  // of a block; wider rows are slower to gather

enum class Packing { float32 = 1, int8 = 4 };

// Packed rows for `scan`, with an entry a row.
struct ScanPanel {
    const uint32_t* words;
    const float* thresholds;  // a score that reaches it is a hit; infinity for padding
    const float* offsets;     // error bound, added to the scores of the row
    const float* scales;      // int8: value of one step
    const int32_t* biases;    // int8: 128 times the sum of the row's integers
};

// The same for `lower_bounds`: norms of rows, and bounds of their quantization errors.
struct QuantizedPanel {
    const uint32_t* words;
    const float* scales;
    const int32_t* biases;
    const float* lengths;
    const float* errors;
};

// A threshold in units of a histogram: score x counts if (x − low) · scale reaches level.
struct ScoreLevel {
    float low, scale, level;
};

constexpr int HISTOGRAM_BUCKETS = 2048;  // of the histogram of `find_score_level`

struct Hit {
    uint16_t row, column;
    float score;
};

struct Neighbour {
    int32_t id;
    float similarity;
};

constexpr int64_t MUTUAL_PADDING = 16;  // room beyond the list that `possibly_mutual` needs

struct SmallSelfJoinKernels;

struct Kernels {
    const char* name;
    bool has_int8_dot;  // int8 products are faster than float32
    int strip;          // right-hand rows of a `scan`, a multiple of PANEL

    // Conjugate gradient on rows `begin`, a multiple of FLUSH_ROWS, to `end`; `row_mask` restricts it to nonzero rows.
    // A batch: p is bf16, two columns a word (column c in the low half, column c + words in the high half); ap and r
    // are float32 (n, 2 words), cache-aligned. Writes ap = (I − αS)p; adds, by column, pᵀAp and ApᵀAp to `dots` (2, 2
    // words).
    void (*cg_multiply)(const Csr& S, int64_t begin, int64_t end, const char* row_mask, int words, float alpha,
                        const uint32_t* p, float* ap, double* dots);
    // x += step·p, r −= step·ap, p = r + beta·p; adds, by column, the new rᵀr and rᵀp to `dots` (2, 2 words).
    void (*cg_update)(int64_t begin, int64_t end, int words, const float* step, const float* beta, uint32_t* p,
                      const float* ap, float* x, float* r, double* dots);
    // Bitwise the same for one right-hand side: p is rounded to bf16 but stored in float32. With `gather`, the
    // instructions that gather load p, which some processors do slowly (`gathers_fast`).
    void (*cg_multiply_single)(const Csr& S, int64_t begin, int64_t end, const char* row_mask, bool gather, float alpha,
                               const float* p, float* ap, double* dots);
    void (*cg_update_single)(int64_t begin, int64_t end, float step, float beta, float* p, const float* ap, float* x,
                             float* r, double* dots);
    // For small systems: Sp of some rows to out[0] …; the dot products pᵀAp, rᵀp, rᵀAp and ApᵀAp; the update with p in
    // float32, which adds to rᵀr.
    void (*spmv_small)(const Csr& S, int64_t begin, int64_t end, const float* p, float* out);
    void (*cg_dots_small)(int64_t n, const float* p, const float* r, const float* ap, double* dots);
    void (*cg_update_small)(int64_t n, float step, float beta, float* p, const float* ap, float* x, float* r,
                            double* rr);
    // In float64, with S in float32 and 1, 8 or FLOAT64_MAX_COLUMNS columns: ap = (I − αS)p, adding to pᵀAp by column;
    // r −= step·ap, adding to rᵀr; x += step·p, p = r + beta·p. `gather` as above, for one column.
    void (*cg_multiply_double)(const Csr& S, int64_t begin, int64_t end, const char* row_mask, bool gather, int columns,
                               double alpha, const double* p, double* ap, double* pap);
    void (*cg_update_residual_double)(int64_t begin, int64_t end, int columns, const double* step, const double* ap,
                                      double* r, double* rr);
    void (*cg_update_direction_double)(int64_t begin, int64_t end, int columns, const double* step, const double* beta,
                                       const double* r, double* p, double* x);

    // Inner products of a, of whose groups the first `height` rows count, with a strip of b, plus the offsets of both
    // rows. Writes the hits, which reach the threshold of their row or column, and returns how many. `hits` has room
    // for all.
    size_t (*scan)(Packing packing, int words, int groups, int height, const ScanPanel& a, const ScanPanel& b,
                   Hit* hits);
    // The same products less their error bound, a.errors[i] · b.lengths[j] + a.lengths[i] · b.errors[j]: row i, column
    // j goes to out[i · stride + j].
    void (*lower_bounds)(Packing packing, int words, int groups, int height, const QuantizedPanel& a,
                         const QuantizedPanel& b, float* out, int64_t stride);
    // Finds a level that the k largest of n scores reach; returns the size of the histogram's last bucket, which bounds
    // how many others do. The histogram has HISTOGRAM_BUCKETS counts.
    int64_t (*find_score_level)(const float* scores, int64_t n, int64_t k, uint32_t* histogram, ScoreLevel* level);
    // The columns whose scores may reach the level, given lower bounds and the row's length and error.
    int64_t (*columns_reaching)(const float* lower, int64_t n, float length, float error, const QuantizedPanel& b,
                                const ScoreLevel& level, int32_t* columns);
    // Packs `count` rows of d floats into one panel; int8 by `scales`, with 128 added on the left-hand side.
    void (*pack)(Packing packing, const float* rows, int64_t d, int count, int height, int words, const float* scales,
                 uint32_t* panel, int32_t* biases);
    // Converts one row to float32.
    void (*to_float32)(const Rows& rows, int64_t row, float* out);
    // Inner products of x with the given rows. x·z and z·x are bitwise equal.
    void (*dots)(const float* x, const Rows& rows, const int32_t* ids, int64_t count, float* out);

    // Quantizes one row to int8, padded to `bytes` with zeros; also its scale, its bias as in `ScanPanel`, a bound of
    // its quantization error, and its length.
    void (*quantize)(const float* row, int64_t d, int64_t bytes, int8_t* to, float* scale, int32_t* bias, float* error,
                     float* length);
    // Packs `count` such rows into one panel; `words` is a multiple of 16.
    void (*pack_int8)(const int8_t* const* rows, int count, int height, int words, uint32_t* panel);

    // Writes the neighbours of row `own` whose lists may contain it, and returns how many. A pair less similar than
    // limits[id], the last of the other's list, is not mutual. About half of an exact graph remains, hardly more than
    // is mutual. Negative ids are skipped.
    int64_t (*possibly_mutual)(const int32_t* ids, const float* similarities, int64_t width, const float* limits,
                               int32_t own, Neighbour* out);

    const SmallSelfJoinKernels* small_self_join;  // null without int8 products
};

#ifdef MANIFIND_HAS_avx512
extern const Kernels kernels_avx512;
#endif
#ifdef MANIFIND_HAS_avx2
extern const Kernels kernels_avx2;
#endif
extern const Kernels kernels_portable;

// The best that this machine can run, or that `use_level` chose.
const Kernels& kernels();

}  // namespace manifind
