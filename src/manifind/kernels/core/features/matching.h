// Spatial verification of many images against one query: descriptors are matched, then RANSAC estimates a transform.
//
// Descriptors are bytes, codes of 0 … MAX_CODE. Inner products are integers, so every instruction set finds the same
// matches. A factor for each descriptor makes its products cosines.
#pragma once

#include <cstdint>
#include <vector>

#include "features/feature_kernels.h"
#include "features/ransac.h"
#include "memory.h"

namespace manifind {

// Where a keypoint is, how large and how it is rotated.
struct Frame {
    float x, y, scale, orientation;
};

// How features are packed: position in 2 · 2 bytes, scale, orientation, and the descriptor in 32 bytes.
struct PackedLayout {
    static constexpr int GEOMETRY_BYTES = 6, BYTES = 38, CODES_A_BYTE = 4;
    const uint8_t* codes;    // (256, CODES_A_BYTE): of each byte of a descriptor
    const float* scales;     // (256): of each byte, in parts of the image's long side
    float orientation_step;  // in radians
};

class Query {
   public:
    Query(const uint8_t* codes, const Frame* frames, int64_t count);
    int64_t size() const { return int64_t(frames_.size()); }
    int64_t n_tiles() const { return int64_t(factors_.size()) / TILE_QUERIES; }
    const uint8_t* tiles() const { return tiles_.data(); }
    const float* factors() const { return factors_.data(); }
    const Frame& frame(int64_t i) const { return frames_[size_t(i)]; }

   private:
    std::vector<uint8_t, CacheAligned<uint8_t>> tiles_;
    std::vector<float> factors_;
    std::vector<Frame> frames_;
};

// The features of an image: packed rows, or codes with frames.
struct ImageFeatures {
    const uint8_t* rows;
    const Frame* frames;  // null for packed rows
    int64_t count;
    double width, height;
};

struct Match {
    int32_t query, image;
    float cosine;
};

struct ImageMatch {
    RansacResult estimate;
    std::vector<Match> inliers;
};

// Mutual nearest neighbours that pass the ratio test, by ascending number of the image's feature.
std::vector<Match> match_descriptors(const Query& query, const uint8_t* codes, int64_t count, double max_ratio);

// Matches each image and estimates its transform. `config.tolerances[1]` is in parts of the image's long side.
std::vector<ImageMatch> match_images(const Query& query, const std::vector<ImageFeatures>& images,
                                     const PackedLayout& layout, double max_ratio, const RansacConfig& config,
                                     int threads);

}  // namespace manifind
