#include "sift.h"

#include <algorithm>
#include <cmath>

#include "loops.h"
#include "parallel.h"

namespace manifind {
namespace {

constexpr int LAYERS = 3;            // scales of an octave at which points are looked for
constexpr float SIGMA = 1.6f;        // of the first scale, in pixels of its octave
constexpr float CAMERA = 0.5f;       // how blurred a photo is as it comes
constexpr float EDGE = 10;           // how much longer than wide what a point lies on may be
constexpr float HALF = 0.6f;          // of a sample and a little: an extremum between two is found from either
constexpr int BORDER = 5, STEPS = 5, SMALLEST = 12;
constexpr int BINS = 36;             // of the histogram that says how a point is turned
constexpr float ALSO = 0.8f;         // a turn counts if it has so much of the strongest
constexpr int CELLS = 4, TURNS = 8;  // of the descriptor
constexpr float CELL = 3, MOST = 0.2f;
constexpr float PI = 3.14159265358979f;

// Where a line is read beyond its ends.
int64_t mirrored(int64_t at, int64_t size) {
    if (size == 1) return 0;
    while (at < 0 || at >= size) at = at < 0 ? -at : 2 * size - 2 - at;
    return at;
}

// Within 1e-4 of atan2, from 0 to 2π.
inline float direction(float y, float x) {
    const float ax = std::fabs(x), ay = std::fabs(y);
    const float t = std::min(ax, ay) / (std::max(ax, ay) + 1e-20f), s = t * t;
    float angle = t * (0.9998660f + s * (-0.3302995f + s * (0.1801410f + s * (-0.0851330f + s * 0.0208351f))));
    if (ay > ax) angle = PI / 2 - angle;
    if (x < 0) angle = PI - angle;
    return y < 0 ? 2 * PI - angle : angle;
}

}  // namespace

Sift::Sift(const uint8_t* grey, int64_t height, int64_t width, bool doubled, float contrast)
    : contrast_(contrast / LAYERS), step_(doubled ? 0.5f : 1) {
    Picture first(doubled ? 2 * height - 1 : height, doubled ? 2 * width - 1 : width);
    for (int64_t y = 0; y < first.height; ++y)
        for (int64_t x = 0; x < first.width; ++x) {
            const int64_t up = doubled ? y / 2 : y, left = doubled ? x / 2 : x;
            const int64_t down = doubled ? (y + 1) / 2 : y, right = doubled ? (x + 1) / 2 : x;
            first.row(y)[x] = (grey[up * width + left] + grey[up * width + right] + grey[down * width + left] +
                               grey[down * width + right]) / (4 * 255.f);
        }
    const float before = CAMERA / step_;
    first = blurred(first, std::sqrt(std::max(SIGMA * SIGMA - before * before, 0.01f)));
    for (int octave = 0; std::min(first.height, first.width) >= SMALLEST; ++octave) {
        pulse();
        std::vector<Picture> scales, differences;
        scales.push_back(std::move(first));
        for (int layer = 1; layer < LAYERS + 3; ++layer) {
            const float near = SIGMA * std::pow(2.f, float(layer - 1) / LAYERS), far = SIGMA * std::pow(2.f, float(layer) / LAYERS);
            scales.push_back(blurred(scales.back(), std::sqrt(far * far - near * near)));
            const Picture &a = scales[size_t(layer - 1)], &b = scales[size_t(layer)];
            differences.emplace_back(a.height, a.width);
            float* to = differences.back().values.get();
            for (int64_t i = 0; i < a.height * a.width; ++i) to[i] = b.values[size_t(i)] - a.values[size_t(i)];
        }
        extrema(octave, differences);
        const Picture& last = scales[LAYERS];
        first = Picture(last.height / 2, last.width / 2);
        for (int64_t y = 0; y < first.height; ++y)
            for (int64_t x = 0; x < first.width; ++x) first.row(y)[x] = last.row(2 * y)[2 * x];
        octaves_.push_back(std::move(scales));
    }
}

Sift::Picture Sift::blurred(const Picture& from, float sigma) {
    const int radius = std::max(1, int(std::ceil(3 * sigma)));
    std::vector<float> weights(size_t(radius) + 1);
    float sum = 0;
    for (int k = 0; k <= radius; ++k) {
        weights[size_t(k)] = std::exp(-0.5f * float(k * k) / (sigma * sigma));
        sum += (k ? 2 : 1) * weights[size_t(k)];
    }
    for (float& one : weights) one /= sum;
    Picture to(from.height, from.width);
    std::vector<float> line(size_t(from.width + 2 * radius));
    float* const middle = line.data() + radius;
    std::vector<const float*> before(weights.size()), after(weights.size());
    for (int64_t y = 0; y < from.height; ++y) {
        for (int k = 0; k <= radius; ++k) {
            before[size_t(k)] = from.row(mirrored(y - k, from.height));
            after[size_t(k)] = from.row(mirrored(y + k, from.height));
        }
        loops().blend(before.data(), after.data(), weights.data(), radius, from.width, middle);
        for (int k = 1; k <= radius; ++k) {
            middle[-k] = middle[mirrored(-k, from.width)];
            middle[from.width - 1 + k] = middle[mirrored(from.width - 1 + k, from.width)];
        }
        for (int k = 0; k <= radius; ++k) before[size_t(k)] = middle - k, after[size_t(k)] = middle + k;
        loops().blend(before.data(), after.data(), weights.data(), radius, from.width, to.row(y));
    }
    return to;
}

void Sift::extrema(int octave, const std::vector<Picture>& differences) {
    const int64_t height = differences[0].height, width = differences[0].width;
    for (int layer = 1; layer <= LAYERS; ++layer)
        for (int64_t y = BORDER; y < height - BORDER; ++y) {
            const float* const row = differences[size_t(layer)].row(y);
            for (int64_t x = BORDER; x < width - BORDER; ++x) {
                const float value = row[x];
                if (std::fabs(value) <= contrast_ / 2) continue;
                const float sign = value > 0 ? 1.f : -1.f, size = std::fabs(value);
                // Most fall at the first look, at their own line.
                if (sign * row[x - 1] > size || sign * row[x + 1] > size) continue;
                bool most = true;
                for (int l = layer - 1; l <= layer + 1 && most; ++l)
                    for (int64_t v = y - 1; v <= y + 1 && most; ++v) {
                        const float* const other = differences[size_t(l)].row(v);
                        most = sign * other[x - 1] <= size && sign * other[x] <= size && sign * other[x + 1] <= size;
                    }
                if (most) refine(octave, differences, layer, y, x);
            }
        }
}

// Finds where between the samples the extremum is; refuses what is faint or lies on an edge.
bool Sift::refine(int octave, const std::vector<Picture>& differences, int layer, int64_t y, int64_t x) {
    float shift[3] = {0, 0, 0}, slope[3] = {0, 0, 0};
    float xx = 0, yy = 0, xy = 0;
    for (int step = 0;; ++step) {
        if (step == STEPS) return false;
        const Picture &under = differences[size_t(layer - 1)], &at = differences[size_t(layer)],
                      &over = differences[size_t(layer + 1)];
        const auto value = [&](const Picture& one, int64_t down, int64_t across) {
            return one.row(y + down)[x + across];
        };
        const float here = value(at, 0, 0);
        slope[0] = (value(at, 0, 1) - value(at, 0, -1)) / 2;
        slope[1] = (value(at, 1, 0) - value(at, -1, 0)) / 2;
        slope[2] = (value(over, 0, 0) - value(under, 0, 0)) / 2;
        xx = value(at, 0, 1) + value(at, 0, -1) - 2 * here;
        yy = value(at, 1, 0) + value(at, -1, 0) - 2 * here;
        xy = (value(at, 1, 1) - value(at, 1, -1) - value(at, -1, 1) + value(at, -1, -1)) / 4;
        const float ss = value(over, 0, 0) + value(under, 0, 0) - 2 * here;
        const float xs = (value(over, 0, 1) - value(over, 0, -1) - value(under, 0, 1) + value(under, 0, -1)) / 4;
        const float ys = (value(over, 1, 0) - value(over, -1, 0) - value(under, 1, 0) + value(under, -1, 0)) / 4;
        // Cramer's rule for H · shift = −slope.
        const float a = yy * ss - ys * ys, b = xs * ys - xy * ss, c = xy * ys - xs * yy;
        const float determinant = xx * a + xy * b + xs * c;
        if (std::fabs(determinant) < 1e-20f) return false;
        shift[0] = -(a * slope[0] + b * slope[1] + c * slope[2]) / determinant;
        shift[1] = -(b * slope[0] + (xx * ss - xs * xs) * slope[1] + (xs * xy - xx * ys) * slope[2]) / determinant;
        shift[2] = -(c * slope[0] + (xs * xy - xx * ys) * slope[1] + (xx * yy - xy * xy) * slope[2]) / determinant;
        if (std::max({std::fabs(shift[0]), std::fabs(shift[1]), std::fabs(shift[2])}) < HALF) break;
        if (!(std::fabs(shift[0]) < 1e6f && std::fabs(shift[1]) < 1e6f && std::fabs(shift[2]) < 1e6f)) return false;
        x += std::lround(shift[0]);
        y += std::lround(shift[1]);
        layer += int(std::lround(shift[2]));
        if (layer < 1 || layer > LAYERS || x < BORDER || x >= at.width - BORDER || y < BORDER || y >= at.height - BORDER)
            return false;
    }
    const float response = std::fabs(differences[size_t(layer)].row(y)[x] +
                                     0.5f * (slope[0] * shift[0] + slope[1] * shift[1] + slope[2] * shift[2]));
    if (response < contrast_) return false;
    const float trace = xx + yy, determinant = xx * yy - xy * xy;
    if (determinant <= 0 || trace * trace * EDGE >= (EDGE + 1) * (EDGE + 1) * determinant) return false;
    const float scale = SIGMA * std::pow(2.f, (float(layer) + shift[2]) / LAYERS), by = step_ * float(1 << octave);
    points_.push_back({(float(x) + shift[0]) * by, (float(y) + shift[1]) * by, 2 * scale * by, response});
    places_.push_back({octave, layer, int(x), int(y), scale});
    return true;
}

Sift::Described Sift::describe(const int32_t* chosen, int64_t count) const {
    Described found;
    std::vector<float> angles;
    for (int64_t i = 0; i < count; ++i) {
        if (i % 64 == 0) pulse();
        angles.clear();
        turn(chosen[i], angles);
        for (const float angle : angles) {
            found.of.push_back(chosen[i]);
            found.angles.push_back(angle);
            found.descriptors.resize(found.descriptors.size() + DIMENSION);
            histogram(chosen[i], angle, found.descriptors.data() + found.descriptors.size() - DIMENSION);
        }
    }
    return found;
}

// Which ways a point is turned: the peaks of the histogram of directions around it.
void Sift::turn(int32_t point, std::vector<float>& angles) const {
    const Place& place = places_[size_t(point)];
    const Picture& picture = octaves_[size_t(place.octave)][size_t(place.layer)];
    const float sigma = 1.5f * place.scale;
    const int64_t radius = std::lround(3 * sigma);
    float bins[BINS] = {};
    for (int64_t y = std::max<int64_t>(1, place.y - radius); y <= std::min(picture.height - 2, place.y + radius); ++y)
        for (int64_t x = std::max<int64_t>(1, place.x - radius); x <= std::min(picture.width - 2, place.x + radius); ++x) {
            const float across = picture.row(y)[x + 1] - picture.row(y)[x - 1];
            const float down = picture.row(y + 1)[x] - picture.row(y - 1)[x];
            const float far = float((y - place.y) * (y - place.y) + (x - place.x) * (x - place.x));
            const int bin = int(direction(down, across) * (BINS / (2 * PI)) + 0.5f) % BINS;
            bins[bin] += std::exp(-far / (2 * sigma * sigma)) * std::sqrt(across * across + down * down);
        }
    float smooth[BINS], most = 0;
    for (int i = 0; i < BINS; ++i) {
        const auto at = [&](int k) { return bins[(i + k + BINS) % BINS]; };
        smooth[i] = (at(-2) + at(2)) / 16 + (at(-1) + at(1)) / 4 + at(0) * 6 / 16;
        most = std::max(most, smooth[i]);
    }
    for (int i = 0; i < BINS; ++i) {
        const float left = smooth[(i + BINS - 1) % BINS], here = smooth[i], right = smooth[(i + 1) % BINS];
        if (here > left && here >= right && here >= ALSO * most) {
            const float bin = float(i) + 0.5f * (left - right) / (left - 2 * here + right);
            angles.push_back(std::fmod(bin + BINS, float(BINS)) * (2 * PI / BINS));
        }
    }
}

// Histograms of directions, relative to the point's own, in 4 × 4 cells around it.
void Sift::histogram(int32_t point, float angle, float* out) const {
    const Place& place = places_[size_t(point)];
    const Picture& picture = octaves_[size_t(place.octave)][size_t(place.layer)];
    const float cell = CELL * place.scale, cosine = std::cos(angle) / cell, sine = std::sin(angle) / cell;
    const int64_t reach = std::lround(cell * 1.4142136f * (CELLS + 1) * 0.5f);
    const int64_t radius = std::min(reach, picture.height + picture.width);
    float bins[CELLS + 2][CELLS + 2][TURNS + 1] = {};
    for (int64_t y = std::max<int64_t>(1, place.y - radius); y <= std::min(picture.height - 2, place.y + radius); ++y)
        for (int64_t x = std::max<int64_t>(1, place.x - radius); x <= std::min(picture.width - 2, place.x + radius); ++x) {
            const float i = float(x - place.x), j = float(y - place.y);
            const float u = i * cosine + j * sine, v = j * cosine - i * sine;
            const float column = u + CELLS / 2 - 0.5f, row = v + CELLS / 2 - 0.5f;
            if (!(column > -1 && column < CELLS && row > -1 && row < CELLS)) continue;
            const float across = picture.row(y)[x + 1] - picture.row(y)[x - 1];
            const float down = picture.row(y + 1)[x] - picture.row(y - 1)[x];
            float turned = angle - direction(down, across);  // as OpenCV counts them
            turned += turned < 0 ? 2 * PI : 0;
            const float t = std::min(turned * (TURNS / (2 * PI)), float(TURNS) - 1e-4f);
            const float weight = std::exp(-(u * u + v * v) / (0.5f * CELLS * CELLS)) * std::sqrt(across * across + down * down);
            const int r = int(row + 1), c = int(column + 1), o = int(t);
            const float dr = row + 1 - float(r), dc = column + 1 - float(c), turn = t - float(o);
            const float shares[2][2] = {{(1 - dr) * (1 - dc), (1 - dr) * dc}, {dr * (1 - dc), dr * dc}};
            for (int a = 0; a < 2; ++a)
                for (int b = 0; b < 2; ++b) {
                    bins[r + a][c + b][o] += weight * shares[a][b] * (1 - turn);
                    bins[r + a][c + b][o + 1] += weight * shares[a][b] * turn;
                }
        }
    float squares = 0, sum = 0;
    for (int r = 0; r < CELLS; ++r)
        for (int c = 0; c < CELLS; ++c)
            for (int o = 0; o < TURNS; ++o) {
                float& to = out[(r * CELLS + c) * TURNS + o];
                to = bins[r + 1][c + 1][o] + (o == 0 ? bins[r + 1][c + 1][TURNS] : 0);
                squares += to * to;
            }
    const float most = MOST * std::sqrt(squares);
    for (int k = 0; k < DIMENSION; ++k) sum += out[k] = std::min(out[k], most);
    for (int k = 0; k < DIMENSION; ++k) out[k] = std::sqrt(out[k] / std::max(sum, 1e-20f));
}

}  // namespace manifind
