// The one map of the plane that most matching pairs of points agree with, found without chance.
//
// Guesses of the map are voted on by all pairs. Those with most votes are refined: a similarity is fitted to who voted,
// then affine maps to who agrees with the one before, then a homography where there are enough pairs to carry one.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace manifind {

struct Point {
    double x, y;
};

// Row by row: takes (x, y, 1) of the query to (x, y, 1) of the photo, up to a factor.
using Map = std::array<double, 9>;

struct Pairs {
    std::vector<Point> a, b;  // of the query and of the photo
    // How much larger each is in the photo, as a logarithm, and how far turned; empty where features do not know.
    std::vector<double> scales, turns;
    int32_t size() const { return int32_t(a.size()); }
};

// b ≈ b[anchor] + factor · (a − a[anchor]), where points are complex numbers.
struct Guess {
    int32_t anchor;
    double real, imaginary;
};

struct Rules {
    double box[4];         // what of the query the map is to carry: x0, y0, x1, y1
    double tolerances[2];  // how far a pair may lie from the map in the query and in the photo
    double loose;          // how many tolerances a pair may miss a guess by
    double turned, scaled; // how far the turn and the logarithm of the scale of a pair may be from the map's
    int refined;           // how many guesses are refined
    int homography;        // how many pairs must agree before a homography is fitted
    int rounds;            // how many affine maps are fitted
    double stretch, enlarged;  // the most that a map may stretch and enlarge
    int least;             // a map that fewer agree with is of no use
};

struct Agreement {
    Map map;
    std::vector<int32_t> inliers;
    int32_t distinct = 0;  // inliers at places of their own in both photos; 0 where there is no map
};

Agreement agreement(const Pairs& pairs, const std::vector<Guess>& guesses, const Rules& rules);

}  // namespace manifind
