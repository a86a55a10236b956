// The hot loops, each compiled once for every instruction set (loops.cpp) and reached through a table.
//
// They work on raw pointers and use no library: code of the standard library that was compiled here for AVX-512 could
// be merged with the same code compiled elsewhere, and would then run on machines without it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace manifind {

// Rows of a sparse matrix: the entries of row i are starts[i] … starts[i + 1].
struct Csr {
    int64_t n;
    const int64_t* starts;
    const int32_t* columns;
    const float* values;
};

// Vectors as they are given, row by row, in single or half precision.
struct Rows {
    const void* data;
    int64_t n, d;
    bool half;
};

// For `scan` rows are packed: word w of row r of a panel is at [w * height + r], where a panel has PANEL rows on the
// right-hand side and GROUP rows on the left. A word is 32 bits: one float32, or four int8.
constexpr int PANEL = 16, GROUP = 8;

constexpr int FLUSH = 64;   // rows whose products are added up in float32 before they go to float64
constexpr int WIDEST = 16;  // columns of a block in float64: rows of more are slower to gather

enum class Packing { float32 = 1, int8 = 4 };

// How the rows of a packed block are to be read, an entry a row.
struct Block {
    const uint32_t* words;
    const float* thresholds;  // a score that reaches it is a hit; infinity for rows that only fill a panel up
    const float* offsets;     // added to the scores of the row: the most that they can be too low
    const float* scales;      // int8: what one step of the integers is worth
    const int32_t* biases;    // int8: 128 times the sum of the row's integers
};

// The same for `lower_bounds`: how long a row is, and how far the rounded row is from the row at the most.
struct Side {
    const uint32_t* words;
    const float* scales;
    const int32_t* biases;
    const float* lengths;
    const float* errors;
};

// Where the best of many scores begin: a score x counts if (x − low) · scale reaches level.
struct Level {
    float low, scale, level;
};

constexpr int BUCKETS = 2048;  // of the histogram by which `level_of` finds it

struct Hit {
    uint16_t row, column;
    float score;
};

struct Neighbour {
    int32_t id;
    float similarity;
};

constexpr int64_t MORE_NEIGHBOURS = 16;  // that `possible` needs room for

struct FewLoops;

struct Loops {
    const char* name;
    bool low_precision;  // products of int8 are faster than those of float32
    int strip;           // rows of the right-hand block that `scan` takes, a multiple of PANEL

    // Conjugate gradient. Rows from `begin`, a multiple of FLUSH, to `end`; with `which`, a flag for each row of S, of these
    // only those that have it set, where the others of p and of ap are zero. A batch: p is bf16, two columns a word (the
    // low half is column c, the high half is column c + words); ap and r are float32 (n, 2 words), on lines of 64 bytes.
    // Writes ap = (I − αS)p and adds up, by column, pᵀap and apᵀap in `dots` (2, 2 words).
    void (*multiply)(const Csr& S, int64_t begin, int64_t end, const char* which, int words, float alpha,
                     const uint32_t* p, float* ap, double* dots);
    // x += step·p, r −= step·ap, p = r + turn·p; adds up, by column, rᵀr and rᵀp, the new ones, in `dots` (2, 2 words).
    void (*advance)(int64_t begin, int64_t end, int words, const float* step, const float* turn, uint32_t* p,
                    const float* ap, float* x, float* r, double* dots);
    // The same for one right-hand side, to the last bit: p is rounded to bf16 and stays in float32.
    void (*multiply_one)(const Csr& S, int64_t begin, int64_t end, const char* which, float alpha, const float* p,
                         float* ap, double* dots);
    void (*advance_one)(int64_t begin, int64_t end, float step, float turn, float* p, const float* ap, float* x,
                        float* r, double* dots);
    // For systems that are small: the product alone, Sp of some rows to out[0] …; the sums pᵀap, rᵀp, rᵀap and apᵀap;
    // and the step, p in float32, adding up rᵀr.
    void (*product_small)(const Csr& S, int64_t begin, int64_t end, const float* p, float* out);
    void (*dots_small)(int64_t n, const float* p, const float* r, const float* ap, double* dots);
    void (*advance_small)(int64_t n, float step, float turn, float* p, const float* ap, float* x, float* r, double* rr);
    // The same in float64, `columns` are 1, 8 or WIDEST; S alone is float32. Writes ap = (I − αS)p for
    // some rows and adds up pᵀap by column; then r −= step·ap, adding up rᵀr; then x += step·p, p = r + turn·p.
    void (*multiply_double)(const Csr& S, int64_t begin, int64_t end, const char* which, int columns, double alpha,
                            const double* p, double* ap, double* pap);
    void (*descend_double)(int64_t begin, int64_t end, int columns, const double* step, const double* ap, double* r,
                           double* rr);
    void (*turn_double)(int64_t begin, int64_t end, int columns, const double* step, const double* turn,
                        const double* r, double* p, double* x);

    // Inner products of a, of whose groups the first `height` rows count, with a strip of b, `words` words long, plus the
    // offsets of both rows; returns the hits, those that reach the threshold of their row or of their column. There is
    // room in `hits` for all.
    size_t (*scan)(Packing packing, int words, int groups, int height, const Block& a, const Block& b, Hit* hits);
    // The same products, less the most that they can be too high: of row i with column j to out[i · stride + j]. They can
    // be off by a.errors[i] · b.lengths[j] + a.lengths[i] · b.errors[j].
    void (*lower_bounds)(Packing packing, int words, int groups, int height, const Side& a, const Side& b, float* out,
                         int64_t stride);
    // A level that the k largest of n scores reach, and how many others may reach it: those of the last bucket of a
    // histogram, which has room for BUCKETS counts.
    int64_t (*level_of)(const float* scores, int64_t n, int64_t k, uint32_t* histogram, Level* level);
    // The columns whose scores may reach the level, given the lower bounds of a row that is so long and so far off.
    int64_t (*reaching)(const float* lower, int64_t n, float length, float error, const Side& b, const Level& level,
                        int32_t* columns);
    // Pack `count` rows of d floats into one panel; int8 by `scales`. The integers of the left-hand side get 128 added.
    void (*pack)(Packing packing, const float* rows, int64_t d, int count, int height, int words, const float* scales,
                 uint32_t* panel, int32_t* biases);
    // One row in single precision.
    void (*widen)(const Rows& rows, int64_t row, float* out);
    // Inner products of x with the given rows. Those of x and z are the same as those of z and x.
    void (*dots)(const float* x, const Rows& rows, const int32_t* ids, int64_t count, float* out);

    // Rows that are packed again and again, now with these and now with those. One row in int8, filled up to `bytes`
    // with zeros; its scale, its bias as in `Block`, how far the rounded row is from the row at the most, and its length.
    void (*compress)(const float* row, int64_t d, int64_t bytes, int8_t* to, float* scale, int32_t* bias, float* error,
                     float* length);
    // Pack `count` such rows, which lie where `rows` says, into one panel; `words` is a multiple of 16.
    void (*pack_bytes)(const int8_t* const* rows, int count, int height, int words, uint32_t* panel);

    // weights[0] · before[0] + Σ weights[k] · (before[k] + after[k]) for k = 1 … radius, of lines of n floats.
    void (*blend)(const float* const* before, const float* const* after, const float* weights, int radius, int64_t n,
                  float* out);

    // Writes those of a list of row `own` whose own lists can have the row too, and returns how many they are. A pair that is
    // less similar than limits[id], the last of the other's list, cannot be there. About half are left of an exact graph,
    // hardly more than are mutual. A negative id is nobody.
    int64_t (*possible)(const int32_t* ids, const float* similarities, int64_t width, const float* limits, int32_t own,
                        Neighbour* out);

    const FewLoops* few;  // null where there are no products of int8 (few_loops.h)
};

#ifdef MANIFIND_HAS_avx512
extern const Loops loops_avx512;
#endif
#ifdef MANIFIND_HAS_avx2
extern const Loops loops_avx2;
#endif
extern const Loops loops_portable;

// The best that this machine can run, or that `use_level` chose.
const Loops& loops();

}  // namespace manifind
