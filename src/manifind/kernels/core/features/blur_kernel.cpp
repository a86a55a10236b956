// See blur_kernel.h.
#include "features/blur_kernel.h"

#include "level_names.h"

namespace manifind {
namespace {

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

}  // namespace

extern const BlurKernels LEVEL_NAME(blur_kernels);
const BlurKernels LEVEL_NAME(blur_kernels) = {LEVEL_STRING, blend};

}  // namespace manifind
