#include "local.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "parallel.h"

namespace manifind {
namespace {

constexpr int SWEEPS = 5;  // after which few regions change their part

// Regions one after the other, asking now and then whether to go on.
template <class Work>
void each(const std::vector<int32_t>& order, Work work) {
    for (size_t i = 0; i < order.size(); ++i) {
        if (i % 1024 == 0) pulse();
        work(order[i]);
    }
}

}  // namespace

int64_t divide(const Csr& S, int64_t size, int64_t most, int32_t* part) {
    // A region and its strongest neighbours, where enough of them are still free.
    std::vector<int32_t> order(S.n);
    breadth_first(S, order.data());
    std::fill_n(part, S.n, -1);
    int32_t parts = 0;
    std::vector<int64_t> free;
    each(order, [&](int32_t region) {
        if (part[region] >= 0) return;
        free.clear();
        for (int64_t e = S.starts[region]; e < S.starts[region + 1]; ++e)
            if (part[S.columns[e]] < 0 && S.columns[e] != region) free.push_back(e);
        if (int64_t(free.size()) < size / 3) return;
        const size_t taken = std::min(free.size(), size_t(size - 1));
        std::partial_sort(free.begin(), free.begin() + taken, free.end(), [&](int64_t a, int64_t b) {
            return S.values[a] > S.values[b] || (S.values[a] == S.values[b] && a < b);
        });
        part[region] = parts;
        for (size_t i = 0; i < taken; ++i) part[S.columns[free[i]]] = parts;
        ++parts;
    });
    // The others go to the part of their strongest neighbour that has one with room.
    std::vector<int64_t> counts(parts, 0);
    for (int64_t i = 0; i < S.n; ++i)
        if (part[i] >= 0) ++counts[part[i]];
    each(order, [&](int32_t region) {
        if (part[region] >= 0) return;
        float strongest = 0;
        for (int64_t e = S.starts[region]; e < S.starts[region + 1]; ++e) {
            const int32_t other = part[S.columns[e]];
            if (other >= 0 && S.values[e] > strongest && counts[other] < most) {
                strongest = S.values[e];
                part[region] = other;
            }
        }
        if (part[region] < 0) {
            part[region] = parts++;
            counts.push_back(0);
        }
        ++counts[part[region]];
    });
    // Then each goes where the most of its edges lead.
    std::vector<float> sums(parts, 0);
    for (int sweep = 0; sweep < SWEEPS; ++sweep)
        each(order, [&](int32_t region) {
            for (int64_t e = S.starts[region]; e < S.starts[region + 1]; ++e) sums[part[S.columns[e]]] += S.values[e];
            int32_t best = part[region];
            for (int64_t e = S.starts[region]; e < S.starts[region + 1]; ++e) {
                const int32_t other = part[S.columns[e]];
                if (sums[other] > sums[best] && counts[other] < most) best = other;
            }
            for (int64_t e = S.starts[region]; e < S.starts[region + 1]; ++e) sums[part[S.columns[e]]] = 0;
            --counts[part[region]];
            ++counts[part[region] = best];
        });
    // Some are empty by now.
    std::vector<int32_t> number(parts);
    int32_t left = 0;
    for (int32_t c = 0; c < parts; ++c) number[c] = counts[c] > 0 ? left++ : -1;
    for (int64_t i = 0; i < S.n; ++i) part[i] = number[part[i]];
    return left;
}

Local::Local(const Parts& parts)
    : parts_(parts), m_(parts.flow.n), entries_(m_), mean_(m_), resolved_(m_), active_(m_), place_(parts.S.n),
      places_(parts.S.n), passes_(m_, 0) {
    for (int64_t c = 0; c < m_; ++c) {
        const int64_t begin = parts.starts[c], end = parts.starts[c + 1];
        double sum = 0;
        for (int64_t i = begin; i < end; ++i) {
            places_[i] = {int32_t(-1 - c), parts.root[i]};
            place_[parts.order[i]] = int32_t(i);
            sum += parts.root[i];
        }
        entries_[c] = parts.S.starts[end] - parts.S.starts[begin];
        mean_[c] = float(sum / double(std::max<int64_t>(1, end - begin)));
    }
}

void Local::resolve(int32_t part) {
    resolved_[part] = 1;
    opened_.push_back(part);
    for (int64_t i = parts_.starts[part]; i < parts_.starts[part + 1]; ++i) {
        places_[i].unknown = int32_t(m_ + int64_t(fine_.size()));
        fine_.push_back(int32_t(i));
    }
}

// Chooses the parts that take part: from those of y outwards, those first that the most flows to.
void Local::take_part(int64_t most) {
    if (m_ <= most) {
        taking_.resize(m_);
        std::iota(taking_.begin(), taking_.end(), 0);
        std::fill(active_.begin(), active_.end(), 1);
        return;
    }
    std::vector<float>& mass = passes_;
    for (int32_t c : opened_) {
        for (int64_t i = parts_.starts[c]; i < parts_.starts[c + 1]; ++i)
            mass[c] += std::fabs(b_[places_[i].unknown - m_]) * parts_.root[i];
        taking_.push_back(c);
        active_[c] = 1;
    }
    for (size_t begin = 0; begin < taking_.size() && int64_t(taking_.size()) < most;) {
        const size_t end = taking_.size();
        std::sort(taking_.begin() + begin, taking_.end(),
                  [&](int32_t a, int32_t b) { return mass[a] > mass[b] || (mass[a] == mass[b] && a < b); });
        for (size_t at = begin; at < end && int64_t(taking_.size()) < most; ++at) {
            const int32_t c = taking_[at];
            for (int64_t e = parts_.flow.starts[c]; e < parts_.flow.starts[c + 1]; ++e) {
                const int32_t other = parts_.flow.columns[e];
                mass[other] += parts_.flow.values[e] * mass[c];
                if (!active_[other]) taking_.push_back(other);
                active_[other] = 1;
            }
        }
        begin = end;
    }
    for (int32_t c : taking_) mass[c] = 0;
    std::sort(taking_.begin(), taking_.end());
}

// The rows of the regions that are unknowns.
void Local::build() {
    starts_.assign(1, 0);
    middles_.clear();
    int64_t entries = 0;
    for (int32_t place : fine_) entries += parts_.S.starts[place + 1] - parts_.S.starts[place];
    if (columns_.size() < size_t(entries)) {
        columns_.resize(size_t(entries));
        values_.resize(size_t(entries));
    }
    int64_t at = 0;
    for (int32_t place : fine_) {
        // Entries with regions are collected from the end of the row's room, those with parts apart, without a branch:
        // which it is cannot be foreseen.
        const int64_t begin = parts_.S.starts[place], end = parts_.S.starts[place + 1], room = at + (end - begin);
        if (leaves_.size() < size_t(end - begin)) {
            leaves_.resize(size_t(end - begin));
            meets_.resize(size_t(end - begin));
        }
        int64_t back = room, leaving = 0;
        for (int64_t e = begin; e < end; ++e) {
            const Place other = places_[parts_.S.columns[e]];
            const bool own = other.unknown >= 0;
            columns_[back - 1] = other.unknown;
            values_[back - 1] = parts_.S.values[e];
            back -= own;
            leaves_[leaving] = {parts_.S.values[e] * other.root, -1 - other.unknown};
            leaving += !own;
        }
        int64_t met = 0;
        for (int64_t i = 0; i < leaving; ++i) {
            const auto [passed, c] = leaves_[i];
            meets_[met] = c;
            met += passes_[c] == 0;
            passes_[c] += passed;
        }
        for (int64_t i = 0; i < met; ++i) {
            const int32_t c = meets_[i];
            if (active_[c]) {
                columns_[at] = c;
                values_[at++] = passes_[c];
            }
            passes_[c] = 0;
        }
        middles_.push_back(at);
        while (back < room) {
            columns_[at] = columns_[back];
            values_[at++] = values_[back++];
        }
        starts_.push_back(at);
    }
}

void Local::multiply(float alpha, const float* p, float* ap) {
    const Loops& l = loops();
    for (size_t begin = 0, end; begin < taking_.size(); begin = end) {
        for (end = begin + 1; end < taking_.size() && taking_[end] == taking_[end - 1] + 1;) ++end;
        l.product_small(parts_.flow, taking_[begin], taking_[end - 1] + 1, p, ap + taking_[begin]);
    }
    const int64_t count = int64_t(fine_.size());
    const Csr rows{count, starts_.data(), columns_.data(), values_.data()};
    l.product_small(rows, 0, count, p, ap + m_);
    for (int64_t i = 0; i < count; ++i)
        for (int64_t e = starts_[i]; e < middles_[i]; ++e) ap[columns_[e]] += values_[e] * p[m_ + i];
    for (int32_t c : taking_) ap[c] = resolved_[c] ? 0 : p[c] - alpha * ap[c];
    for (int64_t i = m_; i < m_ + count; ++i) ap[i] = p[i] - alpha * ap[i];
}

void Local::iterate(float alpha, Stop stop, int until, Column& column) {
    const Loops& l = loops();
    const int64_t size = m_ + int64_t(fine_.size());
    p_ = r_;
    ap_.assign(size_t(size), 0);
    for (int iteration = column.iterations + 1; iteration <= until && column.live; ++iteration) {
        pulse();
        multiply(alpha, p_.data(), ap_.data());
        double dots[4] = {}, rr = 0;
        float step, turn;
        l.dots_small(size, p_.data(), r_.data(), ap_.data(), dots);
        column.choose(dots[0], dots[1], dots[2], dots[3], &step, &turn);
        l.advance_small(size, step, turn, p_.data(), ap_.data(), x_.data(), r_.data(), &rr);
        column.reach(rr, iteration, stop.tol);
    }
}

Reach Local::solve(const int32_t* rows, const float* values, int64_t count, float alpha, Stop stop, int64_t budget,
                   int64_t most, int first, float* f) {
    // What the solution before this one opened, which may have been ended before its time.
    for (int32_t c : opened_)
        for (int64_t i = parts_.starts[c]; i < parts_.starts[c + 1]; ++i) places_[i].unknown = -1 - c;
    fine_.clear();
    opened_.clear();
    taking_.clear();
    std::fill(resolved_.begin(), resolved_.end(), 0);
    std::fill(active_.begin(), active_.end(), 0);
    const bool all = parts_.S.starts[parts_.S.n] <= budget;
    if (all && count)
        for (int32_t c = 0; c < m_; ++c) resolve(c);
    for (int64_t i = 0; i < count; ++i)
        if (const int32_t one = places_[place_[rows[i]]].unknown; one < 0) resolve(-1 - one);
    const size_t seeded = fine_.size();
    b_.assign(seeded, 0);
    double squared = 0;
    for (int64_t i = 0; i < count; ++i) {
        const float b = b_[places_[place_[rows[i]]].unknown - m_] = (1 - alpha) * values[i];
        squared += double(b) * b;
    }
    take_part(most);
    Column column;
    column.start(squared);

    build();
    x_.assign(m_ + seeded, 0);
    r_.assign(m_ + seeded, 0);
    std::copy(b_.begin(), b_.end(), r_.begin() + m_);
    iterate(alpha, stop, all ? stop.max_iter : std::min(first, stop.max_iter), column);

    // Resolve more, and go on from there: the same scores, now with the residual of each region.
    std::vector<std::pair<float, int32_t>> more;
    for (int32_t c : taking_)
        if (!resolved_[c] && x_[c] != 0) more.emplace_back(std::fabs(x_[c]) * mean_[c], -c);
    std::sort(more.begin(), more.end(), [](const auto& a, const auto& b) { return a > b; });
    int64_t room = budget;
    for (int32_t c : taking_) room -= parts_.flow.starts[c + 1] - parts_.flow.starts[c];
    for (int32_t place : fine_) room -= parts_.S.starts[place + 1] - parts_.S.starts[place];
    size_t chosen = 0;
    while (chosen < more.size() && (room -= entries_[-more[chosen].second]) >= 0) ++chosen;
    if (column.live && column.iterations < stop.max_iter) {
        for (size_t i = 0; i < chosen; ++i) resolve(-more[i].second);
        build();
        x_.resize(m_ + fine_.size());
        for (size_t i = 0; i < chosen; ++i) {
            const int32_t c = -more[i].second;
            for (int64_t place = parts_.starts[c]; place < parts_.starts[c + 1]; ++place)
                x_[places_[place].unknown] = x_[c] * parts_.root[place];
            x_[c] = 0;
        }
        ap_.assign(x_.size(), 0);
        multiply(alpha, x_.data(), ap_.data());
        r_.assign(x_.size(), 0);
        std::copy(b_.begin(), b_.end(), r_.begin() + m_);
        double rr = 0;
        for (size_t i = 0; i < r_.size(); ++i) rr += double(r_[i] -= ap_[i]) * r_[i];
        column.reach(rr, column.iterations + 1, stop.tol);
        iterate(alpha, stop, stop.max_iter, column);
    }
    std::fill_n(f, parts_.S.n, 0.f);
    for (int32_t c : taking_)
        for (int64_t i = parts_.starts[c]; i < parts_.starts[c + 1]; ++i)
            f[parts_.order[i]] = x_[c] * parts_.root[i];
    for (size_t i = 0; i < fine_.size(); ++i) f[parts_.order[fine_[i]]] = x_[m_ + i];
    return {column.iterations, float(column.residual()), int32_t(fine_.size())};
}

}  // namespace manifind
