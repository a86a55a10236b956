#include "features/ransac.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace manifind {
namespace {

constexpr double PI = 3.14159265358979323846;
constexpr double MAX_SHARED = 0.7;  // of inliers: hypotheses that share more lead to the same transform
constexpr double BEHIND = std::numeric_limits<double>::quiet_NaN();

using Indices = std::vector<int32_t>;

Point operator-(Point p, Point q) { return {p.x - q.x, p.y - q.y}; }
double cross(Point p, Point q) { return p.x * q.y - p.y * q.x; }
double squared_norm(Point p) { return p.x * p.x + p.y * p.y; }

// NaN for a point that is mapped behind the image plane.
Point apply_transform(const Transform& m, Point p) {
    const double depth = m[6] * p.x + m[7] * p.y + m[8];
    if (!(depth > 1e-9)) return {BEHIND, BEHIND};
    return {(m[0] * p.x + m[1] * p.y + m[2]) / depth, (m[3] * p.x + m[4] * p.y + m[5]) / depth};
}

Transform multiply(const Transform& m, const Transform& n) {
    Transform out{};
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j)
            for (int k = 0; k < 3; ++k) out[3 * i + j] += m[3 * i + k] * n[3 * k + j];
    return out;
}

bool invert(const Transform& m, Transform& out) {
    double largest = 0;
    for (double entry : m) {
        if (!std::isfinite(entry)) return false;
        largest = std::max(largest, std::fabs(entry));
    }
    out = {m[4] * m[8] - m[5] * m[7], m[2] * m[7] - m[1] * m[8], m[1] * m[5] - m[2] * m[4],
           m[5] * m[6] - m[3] * m[8], m[0] * m[8] - m[2] * m[6], m[2] * m[3] - m[0] * m[5],
           m[3] * m[7] - m[4] * m[6], m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]};
    const double determinant = m[0] * out[0] + m[1] * out[3] + m[2] * out[6];
    if (std::fabs(determinant) < 1e-12 * std::max(1e-12, largest * largest * largest)) return false;
    for (double& entry : out) entry /= determinant;
    return true;
}

Point mean(const std::vector<Point>& points, const Indices& subset) {
    Point sum{0, 0};
    for (int32_t i : subset) sum.x += points[i].x, sum.y += points[i].y;
    return {sum.x / double(subset.size()), sum.y / double(subset.size())};
}

bool fit_similarity(const Correspondences& matches, const Indices& subset, Transform& out) {
    const Point a = mean(matches.a, subset), b = mean(matches.b, subset);
    double size = 0, real = 0, imaginary = 0;
    for (int32_t i : subset) {
        const Point p = matches.a[i] - a, q = matches.b[i] - b;
        size += squared_norm(p);
        real += p.x * q.x + p.y * q.y;
        imaginary += cross(p, q);
    }
    if (size < 1e-9) return false;
    real /= size, imaginary /= size;
    // clang-format off
    out = {real, -imaginary, b.x - real * a.x + imaginary * a.y,
           imaginary, real, b.y - imaginary * a.x - real * a.y,
           0, 0, 1};
    // clang-format on
    return true;
}

// Least squares; false where the points lie on a line.
bool fit_affine(const Correspondences& matches, const Indices& subset, Transform& out) {
    const Point a = mean(matches.a, subset), b = mean(matches.b, subset);
    double xx = 0, xy = 0, yy = 0, xu = 0, yu = 0, xv = 0, yv = 0;
    for (int32_t i : subset) {
        const Point p = matches.a[i] - a, q = matches.b[i] - b;
        xx += p.x * p.x, xy += p.x * p.y, yy += p.y * p.y;
        xu += p.x * q.x, yu += p.y * q.x, xv += p.x * q.y, yv += p.y * q.y;
    }
    const double determinant = xx * yy - xy * xy;
    if (subset.size() < 3 || determinant < 1e-6 * (xx + yy) * (xx + yy) + 1e-12) return false;
    // clang-format off
    out = {(yy * xu - xy * yu) / determinant, (xx * yu - xy * xu) / determinant, 0,
           (yy * xv - xy * yv) / determinant, (xx * yv - xy * xv) / determinant, 0,
           0, 0, 1};
    // clang-format on
    out[2] = b.x - out[0] * a.x - out[1] * a.y;
    out[5] = b.y - out[3] * a.x - out[4] * a.y;
    return true;
}

// Moves points to mean zero and mean distance √2.
bool normalizing_transform(const std::vector<Point>& points, const Indices& subset, Transform& out) {
    const Point center = mean(points, subset);
    double spread = 0;
    for (int32_t i : subset) spread += std::sqrt(squared_norm(points[i] - center));
    spread /= double(subset.size());
    if (spread < 1e-9) return false;
    const double scale = std::sqrt(2.0) / spread;
    out = {scale, 0, -scale * center.x, 0, scale, -scale * center.y, 0, 0, 1};
    return true;
}

// The eigenvector of a symmetric matrix with the smallest eigenvalue, by Jacobi rotations.
Transform least_eigenvector(double (&m)[9][9]) {
    double rotations[9][9] = {};
    for (int i = 0; i < 9; ++i) rotations[i][i] = 1;
    for (int sweep = 0; sweep < 30; ++sweep) {
        double off = 0, on = 0;
        for (int i = 0; i < 9; ++i)
            for (int j = 0; j < 9; ++j) (i == j ? on : off) += m[i][j] * m[i][j];
        if (off <= 1e-30 * on) break;
        for (int p = 0; p < 8; ++p)
            for (int q = p + 1; q < 9; ++q) {
                if (m[p][q] == 0) continue;
                const double ratio = (m[q][q] - m[p][p]) / (2 * m[p][q]);
                const double t = (ratio < 0 ? -1 : 1) / (std::fabs(ratio) + std::sqrt(ratio * ratio + 1));
                const double c = 1 / std::sqrt(t * t + 1), s = t * c;
                for (int k = 0; k < 9; ++k) {
                    const double x = m[k][p], y = m[k][q];
                    m[k][p] = c * x - s * y, m[k][q] = s * x + c * y;
                }
                for (int k = 0; k < 9; ++k) {
                    const double x = m[p][k], y = m[q][k];
                    m[p][k] = c * x - s * y, m[q][k] = s * x + c * y;
                }
                for (int k = 0; k < 9; ++k) {
                    const double x = rotations[k][p], y = rotations[k][q];
                    rotations[k][p] = c * x - s * y, rotations[k][q] = s * x + c * y;
                }
            }
    }
    int smallest = 0;
    for (int i = 1; i < 9; ++i)
        if (m[i][i] < m[smallest][smallest]) smallest = i;
    Transform out;
    for (int k = 0; k < 9; ++k) out[size_t(k)] = rotations[k][smallest];
    return out;
}

// The normalized eight-point way: algebraic error (Hartley, PAMI 1997).
bool fit_homography(const Correspondences& matches, const Indices& subset, Transform& out) {
    Transform from_a, from_b, inverse;
    if (subset.size() < 4 || !normalizing_transform(matches.a, subset, from_a) ||
        !normalizing_transform(matches.b, subset, from_b))
        return false;
    if (!invert(from_b, inverse)) return false;
    double gram[9][9] = {};
    for (int32_t i : subset) {
        const Point p = apply_transform(from_a, matches.a[i]), q = apply_transform(from_b, matches.b[i]);
        const double rows[2][9] = {{p.x, p.y, 1, 0, 0, 0, -q.x * p.x, -q.x * p.y, -q.x},
                                   {0, 0, 0, p.x, p.y, 1, -q.y * p.x, -q.y * p.y, -q.y}};
        for (const auto& row : rows)
            for (int j = 0; j < 9; ++j)
                for (int k = 0; k < 9; ++k) gram[j][k] += row[j] * row[k];
    }
    out = multiply(multiply(inverse, least_eigenvector(gram)), from_a);
    // The sign puts the points in front of the image plane.
    const Point center = mean(matches.a, subset);
    const double depth = center.x * out[6] + center.y * out[7] + out[8];
    if (std::fabs(depth) < 1e-12) return false;
    for (double& entry : out) entry /= depth;
    return true;
}

// Whether no view of an object maps the box like that: mirrored, folded, behind the image plane, stretched too much,
// or scaled too much.
bool is_degenerate(const Transform& m, const RansacConfig& config) {
    const double* box = config.box;
    const Point corners[4] = {{box[0], box[1]}, {box[2], box[1]}, {box[2], box[3]}, {box[0], box[3]}};
    Point outline[4];
    for (int i = 0; i < 4; ++i) {
        const Point point = outline[i] = apply_transform(m, corners[i]);
        if (!std::isfinite(point.x) || !std::isfinite(point.y)) return true;
        const double depth = m[6] * corners[i].x + m[7] * corners[i].y + m[8];
        const double a = (m[0] - point.x * m[6]) / depth, b = (m[1] - point.x * m[7]) / depth;
        const double c = (m[3] - point.y * m[6]) / depth, d = (m[4] - point.y * m[7]) / depth;
        // The singular values of a 2 × 2 matrix are the sum and the difference of those of its two conformal parts.
        const double conformal = std::hypot(a + d, c - b) / 2, reflecting = std::hypot(a - d, c + b) / 2;
        const double major = conformal + reflecting, minor = conformal - reflecting;
        if (minor * config.max_anisotropy < major) return true;
        const double scale = std::sqrt(major * minor);
        if (!(scale > 1 / config.max_scale && scale < config.max_scale)) return true;
    }
    // A convex outline turns the same way at each corner.
    for (int i = 0; i < 4; ++i) {
        const Point side = outline[(i + 1) % 4] - outline[i], next = outline[(i + 2) % 4] - outline[(i + 1) % 4];
        if (cross(side, next) <= 0) return true;
    }
    return false;
}

bool is_consistent(const Correspondences& matches, int32_t i, double scale, double rotation,
                   const RansacConfig& config) {
    if (!(std::fabs(matches.scales[i] - scale) < config.max_log_scale_error)) return false;
    const double difference = matches.rotations[i] - rotation;
    return std::fabs(difference - 2 * PI * std::rint(difference / (2 * PI))) < config.max_rotation_error;
}

Indices find_inliers(const Correspondences& matches, const Transform& to, double tolerance_factor,
                     const RansacConfig& config) {
    Indices inliers;
    Transform inverse;
    if (!invert(to, inverse)) return inliers;
    const double in_query = config.tolerances[0] * tolerance_factor, in_photo = config.tolerances[1] * tolerance_factor;
    for (int32_t i = 0; i < matches.size(); ++i)
        if (squared_norm(apply_transform(to, matches.a[i]) - matches.b[i]) <= in_photo * in_photo &&
            squared_norm(apply_transform(inverse, matches.b[i]) - matches.a[i]) <= in_query * in_query)
            inliers.push_back(i);
    if (inliers.empty()) return inliers;
    // The transform's scale and rotation at the inliers' center stand for those everywhere.
    const Point center = mean(matches.a, inliers);
    const double depth = to[6] * center.x + to[7] * center.y + to[8];
    const Point point = apply_transform(to, center);
    const double a = (to[0] - point.x * to[6]) / depth, b = (to[1] - point.x * to[7]) / depth;
    const double c = (to[3] - point.y * to[6]) / depth, d = (to[4] - point.y * to[7]) / depth;
    const double scale = std::log(std::sqrt(std::max(1e-12, a * d - b * c))), rotation = std::atan2(c - b, a + d);
    inliers.erase(std::remove_if(inliers.begin(), inliers.end(),
                                 [&](int32_t i) { return !is_consistent(matches, i, scale, rotation, config); }),
                  inliers.end());
    return inliers;
}

int32_t count_cells(const std::vector<Point>& points, const Indices& subset, double size) {
    std::vector<std::pair<double, double>> found;
    found.reserve(subset.size());
    for (int32_t i : subset) found.emplace_back(std::floor(points[i].x / size), std::floor(points[i].y / size));
    std::sort(found.begin(), found.end());
    return int32_t(std::unique(found.begin(), found.end()) - found.begin());
}

// Several inliers at one spot count once.
int32_t count_distinct(const Correspondences& matches, const Indices& subset, const RansacConfig& config) {
    return std::min(count_cells(matches.a, subset, std::max(config.tolerances[0], 1e-6)),
                    count_cells(matches.b, subset, std::max(config.tolerances[1], 1e-6)));
}

// Alternates between fitting to the inliers and finding the inliers of the fit.
RansacResult refine(const Correspondences& matches, Indices inliers, const RansacConfig& config) {
    RansacResult best;
    for (int round = 0; round < config.affine_rounds + 2; ++round) {
        const bool last = round > config.affine_rounds;
        if (int64_t(inliers.size()) < (last ? std::max(3, config.min_homography_inliers) : 3)) break;
        Transform to;
        const bool fitted = round == 0 ? fit_similarity(matches, inliers, to)
                            : last     ? fit_homography(matches, inliers, to)
                                       : fit_affine(matches, inliers, to);
        if (!fitted || is_degenerate(to, config)) break;
        const double tolerance_factor = round == 0 ? config.hypothesis_tolerance : round == 1 ? 1.5 : 1.0;
        inliers = find_inliers(matches, to, tolerance_factor, config);
        if (tolerance_factor > 1) continue;
        const int32_t n_distinct = count_distinct(matches, inliers, config);
        if (inliers.size() >= 3 && n_distinct >= best.distinct) best = {to, inliers, n_distinct};
    }
    return best;
}

// The inliers of each hypothesis, with its wider tolerance.
std::vector<Indices> hypothesis_inliers(const Correspondences& matches, const RansacConfig& config) {
    std::vector<Indices> found;
    found.reserve(size_t(matches.size()));
    for (int32_t anchor = 0; anchor < matches.size(); ++anchor) {
        const double scale = matches.scales[anchor], size = std::exp(scale), rotation = matches.rotations[anchor];
        if (!(size > 1 / config.max_scale && size < config.max_scale)) continue;
        const double real = size * std::cos(rotation), imaginary = size * std::sin(rotation);
        // A distance in the image is smaller in the query by the hypothesis's scale.
        const double tolerance =
            config.hypothesis_tolerance * std::min(config.tolerances[1], config.tolerances[0] * size);
        const Point a = matches.a[anchor], b = matches.b[anchor];
        Indices supporters;
        for (int32_t i = 0; i < matches.size(); ++i) {
            const Point p = matches.a[i] - a, q = matches.b[i] - b;
            const Point residual{real * p.x - imaginary * p.y - q.x, imaginary * p.x + real * p.y - q.y};
            if (squared_norm(residual) < tolerance * tolerance && is_consistent(matches, i, scale, rotation, config))
                supporters.push_back(i);
        }
        found.push_back(std::move(supporters));
    }
    return found;
}

size_t count_shared(const Indices& subset, const Indices& others) {
    size_t count = 0;
    for (size_t i = 0, j = 0; i < subset.size() && j < others.size();) {
        count += subset[i] == others[j];
        const bool advance = subset[i] <= others[j];
        j += others[j] <= subset[i];
        i += advance;
    }
    return count;
}

}  // namespace

RansacResult estimate_transform(const Correspondences& matches, const RansacConfig& config) {
    std::vector<Indices> supporters = hypothesis_inliers(matches, config);
    std::stable_sort(supporters.begin(), supporters.end(),
                     [](const Indices& p, const Indices& q) { return p.size() > q.size(); });
    // A hypothesis is rough: it may miss half of the inliers of its refined transform.
    const size_t min_inliers = size_t(std::max(3, config.min_inliers / 2));
    std::vector<const Indices*> refined;
    RansacResult best;
    for (const Indices& hypothesis : supporters) {
        if (hypothesis.size() < min_inliers || int(refined.size()) == config.max_refined) break;
        if (int64_t(hypothesis.size()) < best.distinct) break;
        const bool is_covered = std::any_of(refined.begin(), refined.end(), [&](const Indices* other) {
            return double(count_shared(hypothesis, *other)) > MAX_SHARED * double(hypothesis.size());
        });
        if (is_covered) continue;
        refined.push_back(&hypothesis);
        RansacResult found = refine(matches, hypothesis, config);
        if (found.distinct > best.distinct) best = std::move(found);
    }
    return best;
}

}  // namespace manifind
