// RANSAC without random sampling: the transform with the most inliers among matching keypoints.
//
// Each hypothesis is scored by all correspondences. The best are refined: a similarity is fitted to the inliers of the
// hypothesis, then affine transforms to the inliers of the fit before, then a homography where inliers suffice.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace manifind {

struct Point {
    double x, y;
};

// A 3 × 3 matrix, row by row: (x, y, 1) of the query to (x, y, 1) of the image, up to a factor.
using Transform = std::array<double, 9>;

// Matching keypoints. Each is a hypothesis: a similarity with its scale ratio and its rotation.
struct Correspondences {
    std::vector<Point> a, b;                // in the query and in the image
    std::vector<double> scales, rotations;  // log scale ratio and rotation from query to image
    int32_t size() const { return int32_t(a.size()); }
};

struct RansacConfig {
    double box[4];                // of the query, which the transform must map sensibly: x0, y0, x1, y1
    double tolerances[2];         // distance of an inlier in the query and in the image, in pixels
    double hypothesis_tolerance;  // of an inlier of a hypothesis, in tolerances
    double max_rotation_error, max_log_scale_error;  // between a correspondence and the transform
    int max_refined;                                 // hypotheses
    int min_homography_inliers;
    int affine_rounds;
    double max_anisotropy, max_scale;  // of the transform on the box
    int min_inliers;
};

struct RansacResult {
    Transform transform;
    std::vector<int32_t> inliers;
    int32_t distinct = 0;  // inliers at distinct places in both images; 0 without a transform
};

RansacResult estimate_transform(const Correspondences& matches, const RansacConfig& config);

}  // namespace manifind
