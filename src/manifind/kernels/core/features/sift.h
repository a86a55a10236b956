// SIFT (Lowe, IJCV 2004): keypoints of a photo, and descriptors of the selected ones.
//
// Keypoints are extrema of differences of Gaussians over position and scale. A photo has some thousand of them, and
// orientations and descriptors take most of the time. So detection and description are two calls.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.h"

namespace manifind {

class Sift {
   public:
    static constexpr int64_t DIMENSION = 128;

    // In pixels of the photo; the center of the upper left pixel is (0, 0).
    struct Keypoint {
        float x, y, size, response;
    };
    struct Features {
        std::vector<int32_t> keypoint_of;  // a keypoint may have several orientations
        std::vector<float> orientations;   // radians, from the x axis towards the y axis, which points down
        std::vector<float> descriptors;    // RootSIFT: unit rows
    };

    // Detects keypoints in a grey photo, row by row. `upsample` doubles the photo first, which finds smaller keypoints.
    // The contrast threshold holds for all scales of an octave together; from black to white is 1.
    Sift(const uint8_t* grey, int64_t height, int64_t width, bool upsample, float contrast_threshold);

    const std::vector<Keypoint>& keypoints() const { return keypoints_; }
    Features describe(const int32_t* indices, int64_t count) const;

   private:
    // A view of rows in a larger piece of memory.
    struct Image {
        int64_t height, width;
        float* values;
        float* row(int64_t y) { return values + y * width; }
        const float* row(int64_t y) const { return values + y * width; }
    };
    // Images of one size in one piece of memory: the larger the piece, the fewer pages a thread touches first.
    struct Stack {
        Buffer<float> values;
        std::vector<Image> images;
        Stack(int count, int64_t height, int64_t width) : values(count * height * width) {
            for (int i = 0; i < count; ++i) images.push_back({height, width, values.data() + i * height * width});
        }
    };
    // A keypoint's sample in the pyramid.
    struct Position {
        int octave, layer, x, y;
        float scale;  // in pixels of its octave
    };

    static void gaussian_blur(const Image& from, float sigma, Image& target);
    void find_extrema(int octave, const std::vector<Image>& differences);
    bool localize(int octave, const std::vector<Image>& differences, int layer, int64_t y, int64_t x);
    // Of the samples of a line: reused from keypoint to keypoint.
    struct Scratch {
        std::vector<float> magnitudes, directions, weights;
    };
    static void compute_gradients(const Image& image, int64_t y, int64_t left, int64_t right, Scratch& scratch);
    void assign_orientations(int32_t keypoint, Scratch& scratch, std::vector<float>& orientations) const;
    void compute_descriptor(int32_t keypoint, float angle, Scratch& scratch, float* out) const;

    float contrast_threshold_;
    float pixel_size_;  // of the first octave, in pixels of the photo
    std::vector<Stack> octaves_;
    std::vector<Keypoint> keypoints_;
    std::vector<Position> positions_;
};

}  // namespace manifind
