#include "two_level_solver.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "parallel.h"

namespace manifind {
namespace {

constexpr int SWEEPS = 5;  // after which few regions change their aggregate

// Visits regions in order and checks for interrupts.
template <class Work>
void for_each_region(const std::vector<int32_t>& order, Work work) {
    for (size_t i = 0; i < order.size(); ++i) {
        if (i % 1024 == 0) check_interrupt();
        work(order[i]);
    }
}

}  // namespace

int64_t aggregate(const Csr& S, int64_t target_size, int64_t max_size, int32_t* aggregate_of) {
    // First a region and its strongest neighbours, where enough of these are free.
    std::vector<int32_t> order(S.n);
    breadth_first(S, order.data());
    std::fill_n(aggregate_of, S.n, -1);
    int32_t n_aggregates = 0;
    std::vector<int64_t> free;
    for_each_region(order, [&](int32_t region) {
        if (aggregate_of[region] >= 0) return;
        free.clear();
        for (int64_t e = S.starts[region]; e < S.starts[region + 1]; ++e)
            if (aggregate_of[S.columns[e]] < 0 && S.columns[e] != region) free.push_back(e);
        if (int64_t(free.size()) < target_size / 3) return;
        const size_t n_joined = std::min(free.size(), size_t(target_size - 1));
        std::partial_sort(free.begin(), free.begin() + n_joined, free.end(), [&](int64_t a, int64_t b) {
            return S.values[a] > S.values[b] || (S.values[a] == S.values[b] && a < b);
        });
        aggregate_of[region] = n_aggregates;
        for (size_t i = 0; i < n_joined; ++i) aggregate_of[S.columns[free[i]]] = n_aggregates;
        ++n_aggregates;
    });
    // Other regions join the aggregate of their strongest neighbour, if not full.
    std::vector<int64_t> counts(n_aggregates, 0);
    for (int64_t i = 0; i < S.n; ++i)
        if (aggregate_of[i] >= 0) ++counts[aggregate_of[i]];
    for_each_region(order, [&](int32_t region) {
        if (aggregate_of[region] >= 0) return;
        float strongest = 0;
        for (int64_t e = S.starts[region]; e < S.starts[region + 1]; ++e) {
            const int32_t other = aggregate_of[S.columns[e]];
            if (other >= 0 && S.values[e] > strongest && counts[other] < max_size) {
                strongest = S.values[e];
                aggregate_of[region] = other;
            }
        }
        if (aggregate_of[region] < 0) {
            aggregate_of[region] = n_aggregates++;
            counts.push_back(0);
        }
        ++counts[aggregate_of[region]];
    });
    // Then regions move to the aggregate with which they have the largest sum of edges.
    std::vector<float> sums(n_aggregates, 0);
    for (int sweep = 0; sweep < SWEEPS; ++sweep)
        for_each_region(order, [&](int32_t region) {
            for (int64_t e = S.starts[region]; e < S.starts[region + 1]; ++e)
                sums[aggregate_of[S.columns[e]]] += S.values[e];
            int32_t best = aggregate_of[region];
            for (int64_t e = S.starts[region]; e < S.starts[region + 1]; ++e) {
                const int32_t other = aggregate_of[S.columns[e]];
                if (sums[other] > sums[best] && counts[other] < max_size) best = other;
            }
            for (int64_t e = S.starts[region]; e < S.starts[region + 1]; ++e) sums[aggregate_of[S.columns[e]]] = 0;
            --counts[aggregate_of[region]];
            ++counts[aggregate_of[region] = best];
        });
    // Renumbers, as some aggregates are empty now.
    std::vector<int32_t> number(n_aggregates);
    int32_t n_left = 0;
    for (int32_t c = 0; c < n_aggregates; ++c) number[c] = counts[c] > 0 ? n_left++ : -1;
    for (int64_t i = 0; i < S.n; ++i) aggregate_of[i] = number[aggregate_of[i]];
    return n_left;
}

TwoLevelSolver::TwoLevelSolver(const Aggregates& aggregates)
    : aggregates_(aggregates),
      m_(aggregates.coarse_matrix.n),
      aggregate_entries_(m_),
      mean_root_(m_),
      is_refined_(m_),
      is_active_(m_),
      place_of_(aggregates.S.n),
      nodes_(aggregates.S.n),
      coupling_(m_, 0) {
    for (int64_t c = 0; c < m_; ++c) {
        const int64_t begin = aggregates.starts[c], end = aggregates.starts[c + 1];
        double sum = 0;
        for (int64_t i = begin; i < end; ++i) {
            nodes_[i] = {int32_t(-1 - c), aggregates.root[i]};
            place_of_[aggregates.order[i]] = int32_t(i);
            sum += aggregates.root[i];
        }
        aggregate_entries_[c] = aggregates.S.starts[end] - aggregates.S.starts[begin];
        mean_root_[c] = float(sum / double(std::max<int64_t>(1, end - begin)));
    }
}

void TwoLevelSolver::refine(int32_t aggregate) {
    is_refined_[aggregate] = 1;
    refined_.push_back(aggregate);
    for (int64_t i = aggregates_.starts[aggregate]; i < aggregates_.starts[aggregate + 1]; ++i) {
        nodes_[i].unknown = int32_t(m_ + int64_t(fine_places_.size()));
        fine_places_.push_back(int32_t(i));
    }
}

// Activates aggregates from those of y outwards, those with the most inflow first.
void TwoLevelSolver::activate_aggregates(int64_t max_aggregates) {
    if (m_ <= max_aggregates) {
        active_list_.resize(m_);
        std::iota(active_list_.begin(), active_list_.end(), 0);
        std::fill(is_active_.begin(), is_active_.end(), 1);
        return;
    }
    std::vector<float>& mass = coupling_;
    for (int32_t c : refined_) {
        for (int64_t i = aggregates_.starts[c]; i < aggregates_.starts[c + 1]; ++i)
            mass[c] += std::fabs(b_[nodes_[i].unknown - m_]) * aggregates_.root[i];
        active_list_.push_back(c);
        is_active_[c] = 1;
    }
    for (size_t begin = 0; begin < active_list_.size() && int64_t(active_list_.size()) < max_aggregates;) {
        const size_t end = active_list_.size();
        std::sort(active_list_.begin() + begin, active_list_.end(),
                  [&](int32_t a, int32_t b) { return mass[a] > mass[b] || (mass[a] == mass[b] && a < b); });
        for (size_t at = begin; at < end && int64_t(active_list_.size()) < max_aggregates; ++at) {
            const int32_t c = active_list_[at];
            for (int64_t e = aggregates_.coarse_matrix.starts[c]; e < aggregates_.coarse_matrix.starts[c + 1]; ++e) {
                const int32_t other = aggregates_.coarse_matrix.columns[e];
                mass[other] += aggregates_.coarse_matrix.values[e] * mass[c];
                if (!is_active_[other]) active_list_.push_back(other);
                is_active_[other] = 1;
            }
        }
        begin = end;
    }
    for (int32_t c : active_list_) mass[c] = 0;
    std::sort(active_list_.begin(), active_list_.end());
}

// Builds the rows of the fine unknowns.
void TwoLevelSolver::build_fine_rows() {
    starts_.assign(1, 0);
    fine_starts_.clear();
    int64_t entries = 0;
    for (int32_t place : fine_places_) entries += aggregates_.S.starts[place + 1] - aggregates_.S.starts[place];
    if (columns_.size() < size_t(entries)) {
        columns_.resize(size_t(entries));
        values_.resize(size_t(entries));
    }
    int64_t at = 0;
    for (int32_t place : fine_places_) {
        // Entries with regions are collected from the row's end, those with aggregates apart, without a branch, which
        // would be unpredictable.
        const int64_t begin = aggregates_.S.starts[place], end = aggregates_.S.starts[place + 1],
                      row_end = at + (end - begin);
        if (coupled_.size() < size_t(end - begin)) {
            coupled_.resize(size_t(end - begin));
            touched_.resize(size_t(end - begin));
        }
        int64_t fine_end = row_end, n_coupled = 0;
        for (int64_t e = begin; e < end; ++e) {
            const Node other = nodes_[aggregates_.S.columns[e]];
            const bool is_fine = other.unknown >= 0;
            columns_[fine_end - 1] = other.unknown;
            values_[fine_end - 1] = aggregates_.S.values[e];
            fine_end -= is_fine;
            coupled_[n_coupled] = {aggregates_.S.values[e] * other.root, -1 - other.unknown};
            n_coupled += !is_fine;
        }
        int64_t n_touched = 0;
        for (int64_t i = 0; i < n_coupled; ++i) {
            const auto [value, c] = coupled_[i];
            touched_[n_touched] = c;
            n_touched += coupling_[c] == 0;
            coupling_[c] += value;
        }
        for (int64_t i = 0; i < n_touched; ++i) {
            const int32_t c = touched_[i];
            if (is_active_[c]) {
                columns_[at] = c;
                values_[at++] = coupling_[c];
            }
            coupling_[c] = 0;
        }
        fine_starts_.push_back(at);
        while (fine_end < row_end) {
            columns_[at] = columns_[fine_end];
            values_[at++] = values_[fine_end++];
        }
        starts_.push_back(at);
    }
}

void TwoLevelSolver::multiply(float alpha, const float* p, float* ap) {
    const Kernels& simd = kernels();
    for (size_t begin = 0, end; begin < active_list_.size(); begin = end) {
        for (end = begin + 1; end < active_list_.size() && active_list_[end] == active_list_[end - 1] + 1;) ++end;
        simd.spmv_small(aggregates_.coarse_matrix, active_list_[begin], active_list_[end - 1] + 1, p,
                        ap + active_list_[begin]);
    }
    const int64_t count = int64_t(fine_places_.size());
    const Csr rows{count, starts_.data(), columns_.data(), values_.data()};
    simd.spmv_small(rows, 0, count, p, ap + m_);
    for (int64_t i = 0; i < count; ++i)
        for (int64_t e = starts_[i]; e < fine_starts_[i]; ++e) ap[columns_[e]] += values_[e] * p[m_ + i];
    for (int32_t c : active_list_) ap[c] = is_refined_[c] ? 0 : p[c] - alpha * ap[c];
    for (int64_t i = m_; i < m_ + count; ++i) ap[i] = p[i] - alpha * ap[i];
}

void TwoLevelSolver::iterate(float alpha, StopRule stop, int until, ColumnState& column) {
    const Kernels& simd = kernels();
    const int64_t size = m_ + int64_t(fine_places_.size());
    p_ = r_;
    ap_.assign(size_t(size), 0);
    for (int iteration = column.iterations + 1; iteration <= until && column.active; ++iteration) {
        check_interrupt();
        multiply(alpha, p_.data(), ap_.data());
        double dots[4] = {}, rr = 0;
        float step, beta;
        simd.cg_dots_small(size, p_.data(), r_.data(), ap_.data(), dots);
        column.choose_step(dots[0], dots[1], dots[2], dots[3], &step, &beta);
        simd.cg_update_small(size, step, beta, p_.data(), ap_.data(), x_.data(), r_.data(), &rr);
        column.update_residual(rr, iteration, stop.tol);
    }
}

TwoLevelResult TwoLevelSolver::solve(const int32_t* rows, const float* values, int64_t count, float alpha,
                                     StopRule stop, int64_t max_entries, int64_t max_aggregates, int refine_after,
                                     float* f) {
    // Resets what the previous solution refined, which may have been interrupted.
    for (int32_t c : refined_)
        for (int64_t i = aggregates_.starts[c]; i < aggregates_.starts[c + 1]; ++i) nodes_[i].unknown = -1 - c;
    fine_places_.clear();
    refined_.clear();
    active_list_.clear();
    std::fill(is_refined_.begin(), is_refined_.end(), 0);
    std::fill(is_active_.begin(), is_active_.end(), 0);
    const bool refine_all = aggregates_.S.starts[aggregates_.S.n] <= max_entries;
    if (refine_all && count)
        for (int32_t c = 0; c < m_; ++c) refine(c);
    for (int64_t i = 0; i < count; ++i)
        if (const int32_t unknown = nodes_[place_of_[rows[i]]].unknown; unknown < 0) refine(-1 - unknown);
    const size_t n_seeded = fine_places_.size();
    b_.assign(n_seeded, 0);
    double squared = 0;
    for (int64_t i = 0; i < count; ++i) {
        const float b = b_[nodes_[place_of_[rows[i]]].unknown - m_] = (1 - alpha) * values[i];
        squared += double(b) * b;
    }
    activate_aggregates(max_aggregates);
    ColumnState column;
    column.start(squared);

    build_fine_rows();
    x_.assign(m_ + n_seeded, 0);
    r_.assign(m_ + n_seeded, 0);
    std::copy(b_.begin(), b_.end(), r_.begin() + m_);
    iterate(alpha, stop, refine_all ? stop.max_iter : std::min(refine_after, stop.max_iter), column);

    // Refines more aggregates and continues from the same scores, with the residual of each region.
    std::vector<std::pair<float, int32_t>> candidates;
    for (int32_t c : active_list_)
        if (!is_refined_[c] && x_[c] != 0) candidates.emplace_back(std::fabs(x_[c]) * mean_root_[c], -c);
    std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a > b; });
    int64_t entries_left = max_entries;
    for (int32_t c : active_list_)
        entries_left -= aggregates_.coarse_matrix.starts[c + 1] - aggregates_.coarse_matrix.starts[c];
    for (int32_t place : fine_places_) entries_left -= aggregates_.S.starts[place + 1] - aggregates_.S.starts[place];
    size_t n_refined = 0;
    while (n_refined < candidates.size() && (entries_left -= aggregate_entries_[-candidates[n_refined].second]) >= 0)
        ++n_refined;
    if (column.active && column.iterations < stop.max_iter) {
        for (size_t i = 0; i < n_refined; ++i) refine(-candidates[i].second);
        build_fine_rows();
        x_.resize(m_ + fine_places_.size());
        for (size_t i = 0; i < n_refined; ++i) {
            const int32_t c = -candidates[i].second;
            for (int64_t place = aggregates_.starts[c]; place < aggregates_.starts[c + 1]; ++place)
                x_[nodes_[place].unknown] = x_[c] * aggregates_.root[place];
            x_[c] = 0;
        }
        ap_.assign(x_.size(), 0);
        multiply(alpha, x_.data(), ap_.data());
        r_.assign(x_.size(), 0);
        std::copy(b_.begin(), b_.end(), r_.begin() + m_);
        double rr = 0;
        for (size_t i = 0; i < r_.size(); ++i) rr += double(r_[i] -= ap_[i]) * r_[i];
        column.update_residual(rr, column.iterations + 1, stop.tol);
        iterate(alpha, stop, stop.max_iter, column);
    }
    std::fill_n(f, aggregates_.S.n, 0.f);
    for (int32_t c : active_list_)
        for (int64_t i = aggregates_.starts[c]; i < aggregates_.starts[c + 1]; ++i)
            f[aggregates_.order[i]] = x_[c] * aggregates_.root[i];
    for (size_t i = 0; i < fine_places_.size(); ++i) f[aggregates_.order[fine_places_[i]]] = x_[m_ + i];
    return {column.iterations, float(column.residual()), int32_t(fine_places_.size())};
}

}  // namespace manifind
