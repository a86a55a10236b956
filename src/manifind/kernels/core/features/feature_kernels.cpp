// See feature_kernels.h.
#include "features/feature_kernels.h"

#include <cmath>
#include <cstring>

#include "level_names.h"
#include "simd.h"

namespace manifind {
namespace {

void blend(const float* const* before, const float* const* after, const float* weights, int radius, int64_t n,
           float* out) {
    // In registers by hand: GCC 12 joins two turns of a plain loop over k and leaves them scalar.
    int64_t x = 0;
    for (; x + 2 * LANES <= n; x += 2 * LANES) {
        Floats weight = broadcast(weights[0]);
        Floats first = weight * load(before[0] + x), second = weight * load(before[0] + x + LANES);
        for (int k = 1; k <= radius; ++k) {
            const float *a = before[k] + x, *b = after[k] + x;
            weight = broadcast(weights[k]);
            first += weight * (load(a) + load(b));
            second += weight * (load(a + LANES) + load(b + LANES));
        }
        store(out + x, first);
        store(out + x + LANES, second);
    }
    for (; x < n; ++x) {
        float sum = weights[0] * before[0][x];
        for (int k = 1; k <= radius; ++k) sum += weights[k] * (before[k][x] + after[k][x]);
        out[x] = sum;
    }
}

void subtract(const float* after, const float* before, int64_t n, float* target) {
    for (int64_t i = 0; i < n; ++i) target[i] = after[i] - before[i];
}

void mark_extrema(const float* line, const float* const* neighbours, float threshold, int64_t n, uint8_t* marks) {
    const float *a = neighbours[0], *b = neighbours[1], *c = neighbours[2], *d = neighbours[3];
    for (int64_t i = 0; i < n; ++i) {
        const float value = line[i], left = line[i - 1], right = line[i + 1];
        const bool maximum = (value > threshold) & (value >= left) & (value >= right) & (value >= a[i]) &
                             (value >= b[i]) & (value >= c[i]) & (value >= d[i]);
        const bool minimum = (value < -threshold) & (value <= left) & (value <= right) & (value <= a[i]) &
                             (value <= b[i]) & (value <= c[i]) & (value <= d[i]);
        marks[i] = maximum | minimum;
    }
}

void gradients(const float* above, const float* line, const float* below, int64_t n, float* magnitudes,
               float* directions) {
    constexpr float PI = 3.14159265358979f;
    for (int64_t i = 0; i < n; ++i) {
        const float x = line[i + 1] - line[i - 1], y = below[i] - above[i];
        const float ax = std::fabs(x), ay = std::fabs(y);
        const float smaller = ay < ax ? ay : ax, larger = ay < ax ? ax : ay;
        const float t = smaller / (larger + 1e-20f), s = t * t;
        float angle = t * (0.9998660f + s * (-0.3302995f + s * (0.1801410f + s * (-0.0851330f + s * 0.0208351f))));
        angle = ay > ax ? PI / 2 - angle : angle;
        angle = x < 0 ? PI - angle : angle;
        directions[i] = y < 0 ? 2 * PI - angle : angle;
        magnitudes[i] = std::sqrt(x * x + y * y);
    }
}

// Products of BLOCK_ROWS rows and the queries of a tile.
inline void multiply_tile(const uint8_t* tile, const uint8_t* rows, int32_t (*products)[TILE_QUERIES]) {
    constexpr int QUADS = DESCRIPTOR_SIZE / 4, QUAD_BYTES = 4 * TILE_QUERIES;
    const auto quad = [&](int row, int k) {
        int32_t codes;
        std::memcpy(&codes, rows + row * DESCRIPTOR_SIZE + 4 * k, 4);
        return codes;
    };
#if defined(__AVX512VNNI__)
    __m512i sums[BLOCK_ROWS];
    for (__m512i& sum : sums) sum = _mm512_setzero_si512();
    for (int k = 0; k < QUADS; ++k) {
        const __m512i queries = _mm512_loadu_si512(tile + k * QUAD_BYTES);
        for (int row = 0; row < BLOCK_ROWS; ++row)
            sums[row] = _mm512_dpbusd_epi32(sums[row], queries, _mm512_set1_epi32(quad(row, k)));
    }
    for (int row = 0; row < BLOCK_ROWS; ++row) _mm512_storeu_si512(products[row], sums[row]);
#elif defined(__AVX2__)
    __m256i sums[BLOCK_ROWS][2];
    for (auto& sum : sums) sum[0] = sum[1] = _mm256_setzero_si256();
    const __m256i ones = _mm256_set1_epi16(1);
    for (int k = 0; k < QUADS; ++k)
        for (int half = 0; half < 2; ++half) {
            const __m256i queries =
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile + k * QUAD_BYTES + half * QUAD_BYTES / 2));
            for (int row = 0; row < BLOCK_ROWS; ++row) {
                const __m256i pairs = _mm256_maddubs_epi16(queries, _mm256_set1_epi32(quad(row, k)));
                sums[row][half] = _mm256_add_epi32(sums[row][half], _mm256_madd_epi16(pairs, ones));
            }
        }
    for (int row = 0; row < BLOCK_ROWS; ++row)
        for (int half = 0; half < 2; ++half)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(products[row] + half * TILE_QUERIES / 2), sums[row][half]);
#else
    (void)quad;
    for (int row = 0; row < BLOCK_ROWS; ++row) {
        int32_t sums[TILE_QUERIES] = {};
        for (int k = 0; k < QUADS; ++k) {
            const uint8_t* queries = tile + k * QUAD_BYTES;
            const uint8_t* codes = rows + row * DESCRIPTOR_SIZE + 4 * k;
            for (int i = 0; i < TILE_QUERIES; ++i)
                sums[i] += queries[4 * i] * codes[0] + queries[4 * i + 1] * codes[1] + queries[4 * i + 2] * codes[2] +
                           queries[4 * i + 3] * codes[3];
        }
        std::memcpy(products[row], sums, sizeof sums);
    }
#endif
}

void match_rows(const uint8_t* tiles, const float* query_factors, int64_t n_tiles, const uint8_t* rows,
                const float* row_factors, Nearest* nearest, float* query_best) {
    // For each of the lanes, the best and the second best cosine, and the tile of the best.
    float best[BLOCK_ROWS][TILE_QUERIES], second[BLOCK_ROWS][TILE_QUERIES];
    int32_t tile_of[BLOCK_ROWS][TILE_QUERIES];
    for (int row = 0; row < BLOCK_ROWS; ++row)
        for (int i = 0; i < TILE_QUERIES; ++i) best[row][i] = second[row][i] = -1, tile_of[row][i] = 0;
    for (int64_t tile = 0; tile < n_tiles; ++tile) {
        int32_t products[BLOCK_ROWS][TILE_QUERIES];
        multiply_tile(tiles + tile * TILE_QUERIES * DESCRIPTOR_SIZE, rows, products);
        const float* factors = query_factors + tile * TILE_QUERIES;
        float* highest = query_best + tile * TILE_QUERIES;
        for (int row = 0; row < BLOCK_ROWS; ++row)
            for (int i = 0; i < TILE_QUERIES; ++i) {
                const float cosine = float(products[row][i]) * row_factors[row] * factors[i], known = best[row][i];
                const bool better = cosine > known;
                const float lower = better ? known : cosine;
                second[row][i] = lower > second[row][i] ? lower : second[row][i];
                best[row][i] = better ? cosine : known;
                tile_of[row][i] = better ? int32_t(tile) : tile_of[row][i];
                highest[i] = cosine > highest[i] ? cosine : highest[i];
            }
    }
    for (int row = 0; row < BLOCK_ROWS; ++row) {
        Nearest found{best[row][0], -1, tile_of[row][0] * TILE_QUERIES};
        int lane = 0;
        for (int i = 1; i < TILE_QUERIES; ++i) {
            const int32_t query = tile_of[row][i] * TILE_QUERIES + i;
            if (best[row][i] > found.best || (best[row][i] == found.best && query < found.query))
                found.best = best[row][i], found.query = query, lane = i;
        }
        for (int i = 0; i < TILE_QUERIES; ++i) {
            const float other = i == lane ? second[row][i] : best[row][i];
            if (other > found.second) found.second = other;
        }
        nearest[row] = found;
    }
}

}  // namespace

extern const FeatureKernels LEVEL_NAME(feature_kernels);
const FeatureKernels LEVEL_NAME(feature_kernels) = {LEVEL_STRING, blend, subtract, mark_extrema, gradients, match_rows};

}  // namespace manifind
