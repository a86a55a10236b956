#include "agreement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace manifind {
namespace {

constexpr double PI = 3.14159265358979323846;
constexpr double ALIKE = 0.7;  // guesses that share more of their votes are refined to the same map
constexpr double NOWHERE = std::numeric_limits<double>::quiet_NaN();

using Places = std::vector<int32_t>;

Point operator-(Point p, Point q) { return {p.x - q.x, p.y - q.y}; }
double cross(Point p, Point q) { return p.x * q.y - p.y * q.x; }
double square(Point p) { return p.x * p.x + p.y * p.y; }

// NaN for a point that the map takes behind the photo.
Point apply(const Map& m, Point p) {
    const double depth = m[6] * p.x + m[7] * p.y + m[8];
    if (!(depth > 1e-9)) return {NOWHERE, NOWHERE};
    return {(m[0] * p.x + m[1] * p.y + m[2]) / depth, (m[3] * p.x + m[4] * p.y + m[5]) / depth};
}

Map times(const Map& m, const Map& n) {
    Map out{};
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j)
            for (int k = 0; k < 3; ++k) out[3 * i + j] += m[3 * i + k] * n[3 * k + j];
    return out;
}

bool invert(const Map& m, Map& out) {
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

Point mean(const std::vector<Point>& points, const Places& some) {
    Point sum{0, 0};
    for (int32_t i : some) sum.x += points[i].x, sum.y += points[i].y;
    return {sum.x / double(some.size()), sum.y / double(some.size())};
}

bool similarity(const Pairs& pairs, const Places& some, Map& out) {
    const Point a = mean(pairs.a, some), b = mean(pairs.b, some);
    double size = 0, real = 0, imaginary = 0;
    for (int32_t i : some) {
        const Point p = pairs.a[i] - a, q = pairs.b[i] - b;
        size += square(p);
        real += p.x * q.x + p.y * q.y;
        imaginary += cross(p, q);
    }
    if (size < 1e-9) return false;
    real /= size, imaginary /= size;
    out = {real, -imaginary, b.x - real * a.x + imaginary * a.y,
           imaginary, real, b.y - imaginary * a.x - real * a.y, 0, 0, 1};
    return true;
}

// The least squares of all pairs; none where the points lie on a line.
bool affine(const Pairs& pairs, const Places& some, Map& out) {
    const Point a = mean(pairs.a, some), b = mean(pairs.b, some);
    double xx = 0, xy = 0, yy = 0, xu = 0, yu = 0, xv = 0, yv = 0;
    for (int32_t i : some) {
        const Point p = pairs.a[i] - a, q = pairs.b[i] - b;
        xx += p.x * p.x, xy += p.x * p.y, yy += p.y * p.y;
        xu += p.x * q.x, yu += p.y * q.x, xv += p.x * q.y, yv += p.y * q.y;
    }
    const double determinant = xx * yy - xy * xy;
    if (some.size() < 3 || determinant < 1e-6 * (xx + yy) * (xx + yy) + 1e-12) return false;
    out = {(yy * xu - xy * yu) / determinant, (xx * yu - xy * xu) / determinant, 0,
           (yy * xv - xy * yv) / determinant, (xx * yv - xy * xv) / determinant, 0, 0, 0, 1};
    out[2] = b.x - out[0] * a.x - out[1] * a.y;
    out[5] = b.y - out[3] * a.x - out[4] * a.y;
    return true;
}

// To mean zero and mean distance √2.
bool normalising(const std::vector<Point>& points, const Places& some, Map& out) {
    const Point middle = mean(points, some);
    double spread = 0;
    for (int32_t i : some) spread += std::sqrt(square(points[i] - middle));
    spread /= double(some.size());
    if (spread < 1e-9) return false;
    const double by = std::sqrt(2.0) / spread;
    out = {by, 0, -by * middle.x, 0, by, -by * middle.y, 0, 0, 1};
    return true;
}

// The eigenvector of a symmetric matrix that has the least eigenvalue, by Jacobi's turns.
Map least_eigenvector(double (&m)[9][9]) {
    double turns[9][9] = {};
    for (int i = 0; i < 9; ++i) turns[i][i] = 1;
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
                    const double x = turns[k][p], y = turns[k][q];
                    turns[k][p] = c * x - s * y, turns[k][q] = s * x + c * y;
                }
            }
    }
    int least = 0;
    for (int i = 1; i < 9; ++i)
        if (m[i][i] < m[least][least]) least = i;
    Map out;
    for (int k = 0; k < 9; ++k) out[size_t(k)] = turns[k][least];
    return out;
}

// In the algebraic sense (Hartley, PAMI 1997).
bool homography(const Pairs& pairs, const Places& some, Map& out) {
    Map from_a, from_b, back;
    if (some.size() < 4 || !normalising(pairs.a, some, from_a) || !normalising(pairs.b, some, from_b)) return false;
    if (!invert(from_b, back)) return false;
    double gram[9][9] = {};
    for (int32_t i : some) {
        const Point p = apply(from_a, pairs.a[i]), q = apply(from_b, pairs.b[i]);
        const double rows[2][9] = {{p.x, p.y, 1, 0, 0, 0, -q.x * p.x, -q.x * p.y, -q.x},
                                   {0, 0, 0, p.x, p.y, 1, -q.y * p.x, -q.y * p.y, -q.y}};
        for (const auto& row : rows)
            for (int j = 0; j < 9; ++j)
                for (int k = 0; k < 9; ++k) gram[j][k] += row[j] * row[k];
    }
    out = times(times(back, least_eigenvector(gram)), from_a);
    // The sign is such that the points lie before the photo.
    const Point middle = mean(pairs.a, some);
    const double depth = middle.x * out[6] + middle.y * out[7] + out[8];
    if (std::fabs(depth) < 1e-12) return false;
    for (double& entry : out) entry /= depth;
    return true;
}

// Whether a map does to the box what no view of an object does: to mirror, to fold, to take a corner behind the photo, to
// stretch too much, or to enlarge or reduce too much.
bool absurd(const Map& m, const Rules& rules) {
    const double* box = rules.box;
    const Point corners[4] = {{box[0], box[1]}, {box[2], box[1]}, {box[2], box[3]}, {box[0], box[3]}};
    Point outline[4];
    for (int i = 0; i < 4; ++i) {
        const Point at = outline[i] = apply(m, corners[i]);
        if (!std::isfinite(at.x) || !std::isfinite(at.y)) return true;
        const double depth = m[6] * corners[i].x + m[7] * corners[i].y + m[8];
        const double a = (m[0] - at.x * m[6]) / depth, b = (m[1] - at.x * m[7]) / depth;
        const double c = (m[3] - at.y * m[6]) / depth, d = (m[4] - at.y * m[7]) / depth;
        // The singular values of a 2 × 2 matrix are the sum and the difference of those of its two conformal parts.
        const double keeping = std::hypot(a + d, c - b) / 2, mirroring = std::hypot(a - d, c + b) / 2;
        const double larger = keeping + mirroring, smaller = keeping - mirroring;
        if (smaller * rules.stretch < larger) return true;
        const double enlarged = std::sqrt(larger * smaller);
        if (!(enlarged > 1 / rules.enlarged && enlarged < rules.enlarged)) return true;
    }
    // A convex outline turns the same way at each corner.
    for (int i = 0; i < 4; ++i) {
        const Point side = outline[(i + 1) % 4] - outline[i], next = outline[(i + 2) % 4] - outline[(i + 1) % 4];
        if (cross(side, next) <= 0) return true;
    }
    return false;
}

bool alike(const Pairs& pairs, int32_t i, double scale, double turn, const Rules& rules) {
    if (pairs.scales.empty()) return true;
    if (!(std::fabs(pairs.scales[i] - scale) < rules.scaled)) return false;
    const double apart = pairs.turns[i] - turn;
    return std::fabs(apart - 2 * PI * std::rint(apart / (2 * PI))) < rules.turned;
}

Places agreeing(const Pairs& pairs, const Map& to, double loose, const Rules& rules) {
    Places near;
    Map back;
    if (!invert(to, back)) return near;
    const double in_query = rules.tolerances[0] * loose, in_photo = rules.tolerances[1] * loose;
    for (int32_t i = 0; i < pairs.size(); ++i)
        if (square(apply(to, pairs.a[i]) - pairs.b[i]) <= in_photo * in_photo &&
            square(apply(back, pairs.b[i]) - pairs.a[i]) <= in_query * in_query)
            near.push_back(i);
    if (pairs.scales.empty() || near.empty()) return near;
    // What the map does around the middle of those who agree stands for what it does everywhere.
    const Point middle = mean(pairs.a, near);
    const double depth = to[6] * middle.x + to[7] * middle.y + to[8];
    const Point at = apply(to, middle);
    const double a = (to[0] - at.x * to[6]) / depth, b = (to[1] - at.x * to[7]) / depth;
    const double c = (to[3] - at.y * to[6]) / depth, d = (to[4] - at.y * to[7]) / depth;
    const double scale = std::log(std::sqrt(std::max(1e-12, a * d - b * c))), turn = std::atan2(c - b, a + d);
    near.erase(std::remove_if(near.begin(), near.end(),
                              [&](int32_t i) { return !alike(pairs, i, scale, turn, rules); }),
               near.end());
    return near;
}

int32_t cells(const std::vector<Point>& points, const Places& some, double size) {
    std::vector<std::pair<double, double>> found;
    found.reserve(some.size());
    for (int32_t i : some) found.emplace_back(std::floor(points[i].x / size), std::floor(points[i].y / size));
    std::sort(found.begin(), found.end());
    return int32_t(std::unique(found.begin(), found.end()) - found.begin());
}

// Several pairs at one spot are one witness.
int32_t distinct(const Pairs& pairs, const Places& some, const Rules& rules) {
    return std::min(cells(pairs.a, some, std::max(rules.tolerances[0], 1e-6)),
                    cells(pairs.b, some, std::max(rules.tolerances[1], 1e-6)));
}

// Maps are fitted to those who agree, and those who agree with them are found, until the rounds are over.
Agreement refine(const Pairs& pairs, Places inliers, const Rules& rules) {
    Agreement best;
    for (int turn = 0; turn < rules.rounds + 2; ++turn) {
        const bool last = turn > rules.rounds;
        if (int64_t(inliers.size()) < (last ? std::max(3, rules.homography) : 3)) break;
        Map to;
        const bool fitted = turn == 0 ? similarity(pairs, inliers, to)
                            : last    ? homography(pairs, inliers, to)
                                      : affine(pairs, inliers, to);
        if (!fitted || absurd(to, rules)) break;
        const double loose = turn == 0 ? rules.loose : turn == 1 ? 1.5 : 1.0;
        inliers = agreeing(pairs, to, loose, rules);
        if (loose > 1) continue;
        const int32_t now = distinct(pairs, inliers, rules);
        if (inliers.size() >= 3 && now >= best.distinct) best = {to, inliers, now};
    }
    return best;
}

// Who agrees with each guess, roughly.
std::vector<Places> votes(const Pairs& pairs, const std::vector<Guess>& guesses, const Rules& rules) {
    std::vector<Places> found;
    found.reserve(guesses.size());
    for (const Guess& one : guesses) {
        const double size = std::hypot(one.real, one.imaginary);
        if (!(size > 1 / rules.enlarged && size < rules.enlarged)) continue;
        // A miss in the photo is so much smaller in the query.
        const double allowed = rules.loose * std::min(rules.tolerances[1], rules.tolerances[0] * size);
        const double scale = std::log(size), turn = std::atan2(one.imaginary, one.real);
        const Point a = pairs.a[one.anchor], b = pairs.b[one.anchor];
        Places who;
        for (int32_t i = 0; i < pairs.size(); ++i) {
            const Point p = pairs.a[i] - a, q = pairs.b[i] - b;
            const Point missed{one.real * p.x - one.imaginary * p.y - q.x, one.imaginary * p.x + one.real * p.y - q.y};
            if (square(missed) < allowed * allowed && alike(pairs, i, scale, turn, rules)) who.push_back(i);
        }
        found.push_back(std::move(who));
    }
    return found;
}

size_t shared(const Places& some, const Places& others) {
    size_t count = 0;
    for (size_t i = 0, j = 0; i < some.size() && j < others.size();) {
        count += some[i] == others[j];
        const bool further = some[i] <= others[j];
        j += others[j] <= some[i];
        i += further;
    }
    return count;
}

}  // namespace

Agreement agreement(const Pairs& pairs, const std::vector<Guess>& guesses, const Rules& rules) {
    std::vector<Places> who = votes(pairs, guesses, rules);
    std::stable_sort(who.begin(), who.end(), [](const Places& p, const Places& q) { return p.size() > q.size(); });
    // A rough guess may miss some of those who agree with the map that it leads to.
    const size_t least = size_t(std::max(3, rules.least / 2));
    std::vector<const Places*> tried;
    Agreement best;
    for (const Places& one : who) {
        if (one.size() < least || int(tried.size()) == rules.refined) break;
        if (int64_t(one.size()) < best.distinct) break;
        const bool known = std::any_of(tried.begin(), tried.end(), [&](const Places* other) {
            return double(shared(one, *other)) > ALIKE * double(one.size());
        });
        if (known) continue;
        tried.push_back(&one);
        Agreement found = refine(pairs, one, rules);
        if (found.distinct > best.distinct) best = std::move(found);
    }
    return best;
}

}  // namespace manifind
