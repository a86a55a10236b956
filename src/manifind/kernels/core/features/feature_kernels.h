// The inner loops of local features, compiled once for each instruction set (feature_kernels.cpp).
#pragma once

#include <cstdint>

namespace manifind {

constexpr int DESCRIPTOR_SIZE = 128;  // codes of a descriptor, one byte each
constexpr int MAX_CODE = 127;         // two products of codes fit in 16 bits, which AVX2 adds with saturation
constexpr int TILE_QUERIES = 16;      // descriptors of the query that are interleaved, four codes of each in turn
constexpr int BLOCK_ROWS = 4;         // descriptors of the image that meet a tile together

// The query's descriptors that are nearest to one of the image's: cosines, and the number of the nearest.
struct Nearest {
    float best, second;
    int32_t query;
};

struct FeatureKernels {
    const char* name;
    // weights[0] · before[0] + Σ weights[k] · (before[k] + after[k]) for k = 1 … radius, of lines of n floats.
    void (*blend)(const float* const* before, const float* const* after, const float* weights, int radius, int64_t n,
                  float* out);
    // target[i] = after[i] − before[i], of n floats.
    void (*subtract)(const float* after, const float* before, int64_t n, float* target);
    // Marks those of n samples of a line that are above the threshold, or below minus it, and no smaller, or no larger,
    // than the next samples in all six directions; `neighbours` are the lines above, below, and of the scales on both
    // sides. The line has a sample more at both ends.
    void (*mark_extrema)(const float* line, const float* const* neighbours, float threshold, int64_t n, uint8_t* marks);
    // Gradients of n samples of a line by central differences, between the lines above and below: magnitudes, and
    // directions from 0 to 2π, within 1e-4. The line has a sample more at both ends.
    void (*gradients)(const float* above, const float* line, const float* below, int64_t n, float* magnitudes,
                      float* directions);
    // Finds the nearest of all queries for BLOCK_ROWS rows, and raises the best cosine of each query in `query_best`.
    // A cosine is an integer product of codes times a factor of the row, and then one of the query.
    void (*match_rows)(const uint8_t* tiles, const float* query_factors, int64_t n_tiles, const uint8_t* rows,
                       const float* row_factors, Nearest* nearest, float* query_best);
};

#ifdef MANIFIND_HAS_avx512
extern const FeatureKernels feature_kernels_avx512;
#endif
#ifdef MANIFIND_HAS_avx2
extern const FeatureKernels feature_kernels_avx2;
#endif
extern const FeatureKernels feature_kernels_portable;

// The best that this machine can run, or that `use_level` chose.
const FeatureKernels& feature_kernels();

}  // namespace manifind
