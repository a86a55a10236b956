// The inner loop of Gaussian blur, compiled once for each instruction set (blur_kernel.cpp).
#pragma once

#include <cstdint>

namespace manifind {

struct BlurKernels {
    const char* name;
    // weights[0] · before[0] + Σ weights[k] · (before[k] + after[k]) for k = 1 … radius, of lines of n floats.
    void (*blend)(const float* const* before, const float* const* after, const float* weights, int radius, int64_t n,
                  float* out);
};

#ifdef MANIFIND_HAS_avx512
extern const BlurKernels blur_kernels_avx512;
#endif
#ifdef MANIFIND_HAS_avx2
extern const BlurKernels blur_kernels_avx2;
#endif
extern const BlurKernels blur_kernels_portable;

// The best that this machine can run, or that `use_level` chose.
const BlurKernels& blur_kernels();

}  // namespace manifind
