// Two-level solver of (I − αS) f = (1 − α) y: fine near y, coarse elsewhere, at a cost that does not grow with the
// graph.
//
// The regions are aggregated once for a graph. Scores within an aggregate are taken as a multiple of `root`, the
// eigenvector of S for eigenvalue 1 (the root of the degrees): one unknown. The aggregates that matter are refined:
// their regions are unknowns of their own. The system is the Galerkin projection of the whole one, so that what
// diffuses out of refined aggregates is not lost.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cg_solver.h"
#include "kernels.h"

namespace manifind {

// Aggregates strongly connected regions, about `target_size` and at most `max_size` in each. Writes the aggregate of
// each region and returns how many there are.
int64_t aggregate(const Csr& S, int64_t target_size, int64_t max_size, int32_t* aggregate_of);

// A graph whose regions are ordered by aggregate.
struct Aggregates {
    Csr S;
    const int32_t* order;   // place i has region order[i]
    const int64_t* starts;  // aggregate c has places starts[c] … starts[c + 1]
    const float* root;      // by place: the entry of C
    Csr coarse_matrix;      // CᵀSC; column c of C is `root` on aggregate c, of unit norm
};

struct TwoLevelResult {
    int32_t iterations;
    float residual;           // of the projected system
    int32_t refined_regions;  // unknowns of their own
};

// Reuses its memory from one solution to the next; each thread needs its own.
class TwoLevelSolver {
   public:
    explicit TwoLevelSolver(const Aggregates& aggregates);
    // y is `values` at `rows`, and its aggregates are refined. After `refine_after` iterations so are those with the
    // largest mean scores, while the system has at most `max_entries` entries; all are, where S has no more. About
    // `max_aggregates` aggregates are active, from those of y outwards; scores of the others are zero.
    TwoLevelResult solve(const int32_t* rows, const float* values, int64_t count, float alpha, StopRule stop,
                         int64_t max_entries, int64_t max_aggregates, int refine_after, float* f);

   private:
    void activate_aggregates(int64_t max_aggregates);
    void refine(int32_t aggregate);
    void build_fine_rows();
    void multiply(float alpha, const float* p, float* ap);
    void iterate(float alpha, StopRule stop, int until, ColumnState& column);

    const Aggregates aggregates_;
    const int64_t m_;
    std::vector<int64_t> aggregate_entries_;  // of each aggregate's rows
    std::vector<float> mean_root_;            // mean of C over each aggregate
    std::vector<uint8_t> is_refined_, is_active_;
    std::vector<int32_t> refined_;      // in the order of their unknowns
    std::vector<int32_t> active_list_;  // active aggregates
    std::vector<int32_t> fine_places_;  // places of the fine unknowns m_, m_ + 1, …
    std::vector<int32_t> place_of_;     // by region
    struct Node {
        int32_t unknown;  // number of its fine unknown, or −1 − its aggregate
        float root;
    };
    std::vector<Node> nodes_;  // one array, as lookups are all over the graph
    // Rows of the fine unknowns: entries with aggregates from starts_, with regions from fine_starts_.
    std::vector<int64_t> starts_, fine_starts_;
    std::vector<int32_t> columns_;
    std::vector<float> values_;
    std::vector<float> x_, r_, p_, ap_, coupling_, b_;
    std::vector<int32_t> touched_;
    std::vector<std::pair<float, int32_t>> coupled_;
};

}  // namespace manifind
