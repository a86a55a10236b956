// Local features of a photo: SIFT (Lowe, IJCV 2004), described only where somebody asks.
//
// Points are extrema of differences of Gaussians over place and scale. A photo has some thousand of them, and most of
// the time of SIFT is in turning and describing them: so `points` gives where they are and how strong, and `describe`
// works on those that were chosen.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace manifind {

class Sift {
   public:
    static constexpr int64_t DIMENSION = 128;

    // In pixels of the photo: the centre of the upper left pixel is (0, 0).
    struct Point {
        float x, y, size, response;
    };
    struct Described {
        std::vector<int32_t> of;        // which point each is of: a point may be turned in several ways
        std::vector<float> angles;      // radians, from the first axis towards the second, which points down
        std::vector<float> descriptors;  // roots of histograms: unit rows
    };

    // Grey values row by row. Doubled, the photo is first enlarged to twice its size, which finds smaller points. Points
    // stand out by `contrast` at least, over all scales of an octave; from black to white is 1.
    Sift(const uint8_t* grey, int64_t height, int64_t width, bool doubled, float contrast);

    const std::vector<Point>& points() const { return points_; }
    Described describe(const int32_t* chosen, int64_t count) const;

   private:
    struct Picture {
        int64_t height = 0, width = 0;
        std::unique_ptr<float[]> values;
        Picture() = default;
        Picture(int64_t h, int64_t w) : height(h), width(w), values(new float[size_t(h * w)]) {}
        float* row(int64_t y) { return values.get() + y * width; }
        const float* row(int64_t y) const { return values.get() + y * width; }
    };
    // Where a point lies in the pyramid.
    struct Place {
        int octave, layer, x, y;
        float scale;  // in pixels of its octave
    };

    static Picture blurred(const Picture& from, float sigma);
    void extrema(int octave, const std::vector<Picture>& differences);
    bool refine(int octave, const std::vector<Picture>& differences, int layer, int64_t y, int64_t x);
    void turn(int32_t point, std::vector<float>& angles) const;
    void histogram(int32_t point, float angle, float* out) const;

    float contrast_;
    float step_;  // how many pixels of the photo one of the first octave is
    std::vector<std::vector<Picture>> octaves_;
    std::vector<Point> points_;
    std::vector<Place> places_;
};

}  // namespace manifind
