// Solves (I − αS) f = (1 − α) y in full detail near y alone, at a cost that does not grow with the graph.
//
// The regions are divided into parts, once for a graph. The scores within a part are taken to be a multiple of `root`,
// the vector that S leaves as it is (the root of the degrees), which makes one unknown of the part; the parts that
// matter are resolved: their regions are unknowns of their own. The system is the projection of the whole one on such
// scores (Galerkin's), so that nothing that diffuses out of the resolved parts is lost.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "loops.h"
#include "solve.h"

namespace manifind {

// Divides the regions into parts of neighbours that exchange much, each of about `size` and at most `most`; returns how
// many there are. part[region] = part.
int64_t divide(const Csr& S, int64_t size, int64_t most, int32_t* part);

// A graph whose regions are in the order of their parts.
struct Parts {
    Csr S;
    const int32_t* order;   // region order[i] is at place i
    const int64_t* starts;  // the places of part c: starts[c] … starts[c + 1]
    const float* root;      // by place: what C has there
    Csr flow;               // between parts: CᵀSC, where column c of C is `root` on part c, of unit norm
};

struct Reach {
    int32_t iterations;
    float residual;   // of the projected system
    int32_t regions;  // that were resolved
};

// Memory is kept from one solution to the next: one of these for each thread.
class Local {
   public:
    explicit Local(const Parts& parts);
    // y is `values` at `rows`. Its parts are resolved; after `first` iterations also those where the scores are largest on
    // average by then, as long as the system has no more than `budget` entries. All are where S itself has no more.
    // At most about `most` parts take part, from those of y outwards; the scores of the others are zero.
    Reach solve(const int32_t* rows, const float* values, int64_t count, float alpha, Stop stop, int64_t budget,
                int64_t most, int first, float* f);

   private:
    void take_part(int64_t most);
    void resolve(int32_t part);
    void build();
    void multiply(float alpha, const float* p, float* ap);
    void iterate(float alpha, Stop stop, int until, Column& column);

    const Parts parts_;
    const int64_t m_;
    std::vector<int64_t> entries_;  // of the rows of each part
    std::vector<float> mean_;       // of C over each part
    std::vector<uint8_t> resolved_, active_;
    std::vector<int32_t> opened_;   // the parts that are resolved, in the order of their unknowns
    std::vector<int32_t> taking_;   // the parts that take part
    std::vector<int32_t> fine_;     // the places that are unknowns, m_ … by number
    std::vector<int32_t> place_;    // of each region
    struct Place {
        int32_t unknown;  // its number among the unknowns, or −1 − its part where it has none of its own
        float root;
    };
    std::vector<Place> places_;     // beside each other, as they are looked up all over the graph
    // Their rows: entries with parts from starts_ to middles_, with regions from there.
    std::vector<int64_t> starts_, middles_;
    std::vector<int32_t> columns_;
    std::vector<float> values_;
    std::vector<float> x_, r_, p_, ap_, passes_, b_;
    std::vector<int32_t> meets_;
    std::vector<std::pair<float, int32_t>> leaves_;
};

}  // namespace manifind
