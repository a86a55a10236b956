#include "features/sift.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "features/feature_kernels.h"
#include "parallel.h"

namespace manifind {
namespace {

constexpr int LAYERS = 3;             // scales of an octave that are searched for extrema
constexpr float SIGMA = 1.6f;         // blur of an octave's first scale, in its pixels
constexpr float CAMERA_BLUR = 0.5f;   // blur that a photo has already
constexpr float MAX_EDGE_RATIO = 10;  // ratio of principal curvatures
constexpr float MAX_OFFSET =
    0.6f;  // in samples; more than half, so that an extremum between two samples is found from either
constexpr int BORDER = 5, MAX_LOCALIZE_STEPS = 5, MIN_OCTAVE_SIZE = 12;
constexpr int ORIENTATION_BINS = 36;                              // of 360°
constexpr float MIN_PEAK_RATIO = 0.8f;                            // of an orientation, relative to the strongest
constexpr int DESCRIPTOR_CELLS = 4, DESCRIPTOR_ORIENTATIONS = 8;  // 4 · 4 · 8 = 128
constexpr float CELL_SCALES = 3, DESCRIPTOR_CLIP = 0.2f;
constexpr float PI = 3.14159265358979f;

// Reflects an index beyond the ends of a line.
int64_t reflect(int64_t index, int64_t size) {
    if (size == 1) return 0;
    while (index < 0 || index >= size) index = index < 0 ? -index : 2 * size - 2 - index;
    return index;
}

// The Gaussian of each distance up to a radius along one axis: that of a sample is the product of two.
void fill_gaussian(int64_t radius, float sigma, std::vector<float>& weights) {
    weights.resize(size_t(radius) + 1);
    for (int64_t d = 0; d <= radius; ++d) weights[size_t(d)] = std::exp(-float(d * d) / (2 * sigma * sigma));
}

// Narrows [first, last] to the samples i with |i · slope + offset| < limit, and one more at both ends.
void narrow(float slope, float offset, float limit, int64_t& first, int64_t& last) {
    if (std::fabs(slope) < 1e-6f) return;
    const float a = (-limit - offset) / slope, b = (limit - offset) / slope;
    first = std::max(first, int64_t(std::floor(std::max(std::min(a, b), -1e9f))));
    last = std::min(last, int64_t(std::ceil(std::min(std::max(a, b), 1e9f))));
}

}  // namespace

Sift::Sift(const uint8_t* grey, int64_t height, int64_t width, bool upsample, float contrast_threshold)
    : contrast_threshold_(contrast_threshold / LAYERS), pixel_size_(upsample ? 0.5f : 1) {
    int64_t rows = upsample ? 2 * height - 1 : height, columns = upsample ? 2 * width - 1 : width;
    if (std::min(rows, columns) < MIN_OCTAVE_SIZE) return;
    Stack differences(LAYERS + 2, rows, columns);  // each octave overwrites those of the one before
    octaves_.emplace_back(LAYERS + 3, rows, columns);
    {
        Image& photo = differences.images[0];
        for (int64_t y = 0; y < rows; ++y)
            for (int64_t x = 0; x < columns; ++x) {
                const int64_t up = upsample ? y / 2 : y, left = upsample ? x / 2 : x;
                const int64_t down = upsample ? (y + 1) / 2 : y, right = upsample ? (x + 1) / 2 : x;
                photo.row(y)[x] = (grey[up * width + left] + grey[up * width + right] + grey[down * width + left] +
                                   grey[down * width + right]) /
                                  (4 * 255.f);
            }
        const float camera_sigma = CAMERA_BLUR / pixel_size_;
        gaussian_blur(photo, std::sqrt(std::max(SIGMA * SIGMA - camera_sigma * camera_sigma, 0.01f)),
                      octaves_[0].images[0]);
    }
    for (int octave = 0;; ++octave) {
        check_interrupt();
        std::vector<Image>& scales = octaves_.back().images;
        for (Image& image : differences.images) image.height = rows, image.width = columns;
        for (int layer = 1; layer < LAYERS + 3; ++layer) {
            const float sigma = SIGMA * std::pow(2.f, float(layer - 1) / LAYERS),
                        next_sigma = SIGMA * std::pow(2.f, float(layer) / LAYERS);
            const Image& a = scales[size_t(layer - 1)];
            Image& b = scales[size_t(layer)];
            gaussian_blur(a, std::sqrt(next_sigma * next_sigma - sigma * sigma), b);
            feature_kernels().subtract(b.row(0), a.row(0), rows * columns,
                                       differences.images[size_t(layer - 1)].row(0));
        }
        find_extrema(octave, differences.images);
        const Image last = scales[LAYERS];
        rows /= 2, columns /= 2;
        if (std::min(rows, columns) < MIN_OCTAVE_SIZE) return;
        octaves_.emplace_back(LAYERS + 3, rows, columns);
        Image& base = octaves_.back().images[0];
        for (int64_t y = 0; y < rows; ++y)
            for (int64_t x = 0; x < columns; ++x) base.row(y)[x] = last.row(2 * y)[2 * x];
    }
}

void Sift::gaussian_blur(const Image& from, float sigma, Image& target) {
    const int radius = std::max(1, int(std::ceil(3 * sigma)));
    std::vector<float> weights(size_t(radius) + 1);
    float sum = 0;
    for (int k = 0; k <= radius; ++k) {
        weights[size_t(k)] = std::exp(-0.5f * float(k * k) / (sigma * sigma));
        sum += (k ? 2 : 1) * weights[size_t(k)];
    }
    for (float& one : weights) one /= sum;
    std::vector<float> line(size_t(from.width + 2 * radius));
    float* const padded = line.data() + radius;
    std::vector<const float*> above(weights.size()), below(weights.size());
    for (int64_t y = 0; y < from.height; ++y) {
        for (int k = 0; k <= radius; ++k) {
            above[size_t(k)] = from.row(reflect(y - k, from.height));
            below[size_t(k)] = from.row(reflect(y + k, from.height));
        }
        feature_kernels().blend(above.data(), below.data(), weights.data(), radius, from.width, padded);
        for (int k = 1; k <= radius; ++k) {
            padded[-k] = padded[reflect(-k, from.width)];
            padded[from.width - 1 + k] = padded[reflect(from.width - 1 + k, from.width)];
        }
        for (int k = 0; k <= radius; ++k) above[size_t(k)] = padded - k, below[size_t(k)] = padded + k;
        feature_kernels().blend(above.data(), below.data(), weights.data(), radius, from.width, target.row(y));
    }
}

void Sift::find_extrema(int octave, const std::vector<Image>& differences) {
    const int64_t height = differences[0].height, width = differences[0].width;
    if (width <= 2 * BORDER) return;
    std::vector<uint8_t> marks(size_t(width - 2 * BORDER));
    for (int layer = 1; layer <= LAYERS; ++layer)
        for (int64_t y = BORDER; y < height - BORDER; ++y) {
            const Image& image = differences[size_t(layer)];
            const float* const row = image.row(y);
            const float* const neighbours[] = {image.row(y - 1) + BORDER, image.row(y + 1) + BORDER,
                                               differences[size_t(layer - 1)].row(y) + BORDER,
                                               differences[size_t(layer + 1)].row(y) + BORDER};
            feature_kernels().mark_extrema(row + BORDER, neighbours, contrast_threshold_ / 2, int64_t(marks.size()),
                                           marks.data());
            for (size_t mark = 0; mark < marks.size(); ++mark) {
                const void* const found = std::memchr(marks.data() + mark, 1, marks.size() - mark);
                if (!found) break;
                mark = size_t(static_cast<const uint8_t*>(found) - marks.data());
                const int64_t x = BORDER + int64_t(mark);
                const float sign = row[x] > 0 ? 1.f : -1.f, size = std::fabs(row[x]);
                bool is_extremum = true;
                for (int l = layer - 1; l <= layer + 1 && is_extremum; ++l)
                    for (int64_t v = y - 1; v <= y + 1 && is_extremum; ++v) {
                        const float* const other = differences[size_t(l)].row(v);
                        is_extremum =
                            sign * other[x - 1] <= size && sign * other[x] <= size && sign * other[x + 1] <= size;
                    }
                if (is_extremum) localize(octave, differences, layer, y, x);
            }
        }
}

// Interpolates the position of an extremum; rejects low contrast and edges.
bool Sift::localize(int octave, const std::vector<Image>& differences, int layer, int64_t y, int64_t x) {
    float shift[3] = {0, 0, 0}, slope[3] = {0, 0, 0};
    float xx = 0, yy = 0, xy = 0;
    for (int step = 0;; ++step) {
        if (step == MAX_LOCALIZE_STEPS) return false;
        const Image &lower = differences[size_t(layer - 1)], &center = differences[size_t(layer)],
                    &upper = differences[size_t(layer + 1)];
        const auto value = [&](const Image& one, int64_t dy, int64_t dx) { return one.row(y + dy)[x + dx]; };
        const float value_here = value(center, 0, 0);
        slope[0] = (value(center, 0, 1) - value(center, 0, -1)) / 2;
        slope[1] = (value(center, 1, 0) - value(center, -1, 0)) / 2;
        slope[2] = (value(upper, 0, 0) - value(lower, 0, 0)) / 2;
        xx = value(center, 0, 1) + value(center, 0, -1) - 2 * value_here;
        yy = value(center, 1, 0) + value(center, -1, 0) - 2 * value_here;
        xy = (value(center, 1, 1) - value(center, 1, -1) - value(center, -1, 1) + value(center, -1, -1)) / 4;
        const float ss = value(upper, 0, 0) + value(lower, 0, 0) - 2 * value_here;
        const float xs = (value(upper, 0, 1) - value(upper, 0, -1) - value(lower, 0, 1) + value(lower, 0, -1)) / 4;
        const float ys = (value(upper, 1, 0) - value(upper, -1, 0) - value(lower, 1, 0) + value(lower, -1, 0)) / 4;
        // Cramer's rule for H · shift = −slope.
        const float a = yy * ss - ys * ys, b = xs * ys - xy * ss, c = xy * ys - xs * yy;
        const float determinant = xx * a + xy * b + xs * c;
        if (std::fabs(determinant) < 1e-20f) return false;
        shift[0] = -(a * slope[0] + b * slope[1] + c * slope[2]) / determinant;
        shift[1] = -(b * slope[0] + (xx * ss - xs * xs) * slope[1] + (xs * xy - xx * ys) * slope[2]) / determinant;
        shift[2] = -(c * slope[0] + (xs * xy - xx * ys) * slope[1] + (xx * yy - xy * xy) * slope[2]) / determinant;
        if (std::max({std::fabs(shift[0]), std::fabs(shift[1]), std::fabs(shift[2])}) < MAX_OFFSET) break;
        if (!(std::fabs(shift[0]) < 1e6f && std::fabs(shift[1]) < 1e6f && std::fabs(shift[2]) < 1e6f)) return false;
        x += std::lround(shift[0]);
        y += std::lround(shift[1]);
        layer += int(std::lround(shift[2]));
        if (layer < 1 || layer > LAYERS || x < BORDER || x >= center.width - BORDER || y < BORDER ||
            y >= center.height - BORDER)
            return false;
    }
    const float response = std::fabs(differences[size_t(layer)].row(y)[x] +
                                     0.5f * (slope[0] * shift[0] + slope[1] * shift[1] + slope[2] * shift[2]));
    if (response < contrast_threshold_) return false;
    const float trace = xx + yy, determinant = xx * yy - xy * xy;
    if (determinant <= 0 || trace * trace * MAX_EDGE_RATIO >= (MAX_EDGE_RATIO + 1) * (MAX_EDGE_RATIO + 1) * determinant)
        return false;
    const float scale = SIGMA * std::pow(2.f, (float(layer) + shift[2]) / LAYERS),
                pixel_size = pixel_size_ * float(1 << octave);
    keypoints_.push_back(
        {(float(x) + shift[0]) * pixel_size, (float(y) + shift[1]) * pixel_size, 2 * scale * pixel_size, response});
    positions_.push_back({octave, layer, int(x), int(y), scale});
    return true;
}

Sift::Features Sift::describe(const int32_t* indices, int64_t count) const {
    Features features;
    std::vector<float> orientations;
    Scratch scratch;
    for (int64_t i = 0; i < count; ++i) {
        if (i % 64 == 0) check_interrupt();
        orientations.clear();
        assign_orientations(indices[i], scratch, orientations);
        for (const float angle : orientations) {
            features.keypoint_of.push_back(indices[i]);
            features.orientations.push_back(angle);
            features.descriptors.resize(features.descriptors.size() + DIMENSION);
            compute_descriptor(indices[i], angle, scratch,
                               features.descriptors.data() + features.descriptors.size() - DIMENSION);
        }
    }
    return features;
}

// The orientations of a keypoint: peaks of the histogram of gradient directions around it.
void Sift::assign_orientations(int32_t keypoint, Scratch& scratch, std::vector<float>& orientations) const {
    const Position& position = positions_[size_t(keypoint)];
    const Image& image = octaves_[size_t(position.octave)].images[size_t(position.layer)];
    const float sigma = 1.5f * position.scale;
    const int64_t radius = std::lround(3 * sigma);
    fill_gaussian(radius, sigma, scratch.weights);
    float bins[ORIENTATION_BINS] = {};
    const int64_t left = std::max<int64_t>(1, position.x - radius),
                  right = std::min(image.width - 2, position.x + radius);
    for (int64_t y = std::max<int64_t>(1, position.y - radius); y <= std::min(image.height - 2, position.y + radius);
         ++y) {
        compute_gradients(image, y, left, right, scratch);
        const float weight = scratch.weights[size_t(std::abs(y - position.y))];
        for (int64_t x = left; x <= right; ++x) {
            const int bin = int(scratch.directions[size_t(x - left)] * (ORIENTATION_BINS / (2 * PI)) + 0.5f);
            bins[bin % ORIENTATION_BINS] +=
                weight * scratch.weights[size_t(std::abs(x - position.x))] * scratch.magnitudes[size_t(x - left)];
        }
    }
    float smoothed[ORIENTATION_BINS], maximum = 0;
    for (int i = 0; i < ORIENTATION_BINS; ++i) {
        const auto at = [&](int k) { return bins[(i + k + ORIENTATION_BINS) % ORIENTATION_BINS]; };
        smoothed[i] = (at(-2) + at(2)) / 16 + (at(-1) + at(1)) / 4 + at(0) * 6 / 16;
        maximum = std::max(maximum, smoothed[i]);
    }
    for (int i = 0; i < ORIENTATION_BINS; ++i) {
        const float left = smoothed[(i + ORIENTATION_BINS - 1) % ORIENTATION_BINS], value_here = smoothed[i],
                    right = smoothed[(i + 1) % ORIENTATION_BINS];
        if (value_here > left && value_here >= right && value_here >= MIN_PEAK_RATIO * maximum) {
            const float curvature = left - 2 * value_here + right;  // may be rounded to 0
            const float bin = float(i) + (curvature < 0 ? 0.5f * (left - right) / curvature : 0);
            orientations.push_back(std::fmod(bin + ORIENTATION_BINS, float(ORIENTATION_BINS)) *
                                   (2 * PI / ORIENTATION_BINS));
        }
    }
}

// The gradients of the samples of a line from `left` to `right`.
void Sift::compute_gradients(const Image& image, int64_t y, int64_t left, int64_t right, Scratch& scratch) {
    const size_t n = size_t(std::max<int64_t>(0, right - left + 1));
    if (scratch.magnitudes.size() < n) scratch.magnitudes.resize(n), scratch.directions.resize(n);
    feature_kernels().gradients(image.row(y - 1) + left, image.row(y) + left, image.row(y + 1) + left, int64_t(n),
                                scratch.magnitudes.data(), scratch.directions.data());
}

// Histograms of gradient directions, relative to the orientation, in 4 × 4 cells around the keypoint.
void Sift::compute_descriptor(int32_t keypoint, float angle, Scratch& scratch, float* out) const {
    // Cells are counted from the histogram's margin, so that no rounding lies between the comparison with the last one
    // and the index: beyond it are other variables.
    constexpr float LIMIT = (DESCRIPTOR_CELLS + 1) / 2.f, CENTRE = LIMIT;
    const Position& position = positions_[size_t(keypoint)];
    const Image& image = octaves_[size_t(position.octave)].images[size_t(position.layer)];
    const float cell = CELL_SCALES * position.scale, cosine = std::cos(angle) / cell, sine = std::sin(angle) / cell;
    const int64_t reach = std::lround(cell * 1.4142136f * (DESCRIPTOR_CELLS + 1) * 0.5f);
    const int64_t radius = std::min(reach, image.height + image.width);
    fill_gaussian(radius, cell * 0.5f * DESCRIPTOR_CELLS, scratch.weights);
    float bins[DESCRIPTOR_CELLS + 2][DESCRIPTOR_CELLS + 2][DESCRIPTOR_ORIENTATIONS + 1] = {};
    for (int64_t y = std::max<int64_t>(1, position.y - radius); y <= std::min(image.height - 2, position.y + radius);
         ++y) {
        const float j = float(y - position.y);
        int64_t first = -radius, last = radius;
        narrow(cosine, j * sine, LIMIT, first, last);
        narrow(-sine, j * cosine, LIMIT, first, last);
        const int64_t left = std::max<int64_t>(1, position.x + first),
                      right = std::min(image.width - 2, position.x + last);
        compute_gradients(image, y, left, right, scratch);
        for (int64_t x = left; x <= right; ++x) {
            const float i = float(x - position.x);
            const float column = i * cosine + j * sine + CENTRE, row = j * cosine - i * sine + CENTRE;
            if (!(column > 0 && column < DESCRIPTOR_CELLS + 1 && row > 0 && row < DESCRIPTOR_CELLS + 1)) continue;
            float relative = angle - scratch.directions[size_t(x - left)];  // in OpenCV's direction
            relative += relative < 0 ? 2 * PI : 0;
            const float t =
                std::min(relative * (DESCRIPTOR_ORIENTATIONS / (2 * PI)), float(DESCRIPTOR_ORIENTATIONS) - 1e-4f);
            const float weight = scratch.weights[size_t(std::abs(y - position.y))] *
                                 scratch.weights[size_t(std::abs(x - position.x))] *
                                 scratch.magnitudes[size_t(x - left)];
            const int r = int(row), c = int(column), o = int(t);
            const float dr = row - float(r), dc = column - float(c), fraction = t - float(o);
            const float shares[2][2] = {{(1 - dr) * (1 - dc), (1 - dr) * dc}, {dr * (1 - dc), dr * dc}};
            for (int a = 0; a < 2; ++a)
                for (int b = 0; b < 2; ++b) {
                    bins[r + a][c + b][o] += weight * shares[a][b] * (1 - fraction);
                    bins[r + a][c + b][o + 1] += weight * shares[a][b] * fraction;
                }
        }
    }
    float squares = 0, sum = 0;
    for (int r = 0; r < DESCRIPTOR_CELLS; ++r)
        for (int c = 0; c < DESCRIPTOR_CELLS; ++c)
            for (int o = 0; o < DESCRIPTOR_ORIENTATIONS; ++o) {
                float& target = out[(r * DESCRIPTOR_CELLS + c) * DESCRIPTOR_ORIENTATIONS + o];
                target = bins[r + 1][c + 1][o] + (o == 0 ? bins[r + 1][c + 1][DESCRIPTOR_ORIENTATIONS] : 0);
                squares += target * target;
            }
    const float maximum = DESCRIPTOR_CLIP * std::sqrt(squares);
    for (int k = 0; k < DIMENSION; ++k) sum += out[k] = std::min(out[k], maximum);
    for (int k = 0; k < DIMENSION; ++k) out[k] = std::sqrt(out[k] / std::max(sum, 1e-20f));
}

}  // namespace manifind
