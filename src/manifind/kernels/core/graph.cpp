#include "graph.h"

#include <algorithm>
#include <cmath>

#include "parallel.h"

namespace manifind {

constexpr int64_t ROWS = 1024;  // a task of a thread

void reorder(const Csr& S, const int32_t* order, int threads, int64_t* starts, int32_t* columns, float* values) {
    std::vector<int32_t> place(S.n);
    starts[0] = 0;
    for (int64_t i = 0; i < S.n; ++i) {
        place[order[i]] = int32_t(i);
        starts[i + 1] = starts[i] + S.starts[order[i] + 1] - S.starts[order[i]];
    }
    parallel((S.n + ROWS - 1) / ROWS, threads, [&](int64_t task, int) {
        std::vector<std::pair<int32_t, float>> row;
        for (int64_t i = task * ROWS; i < std::min(S.n, (task + 1) * ROWS); ++i) {
            row.clear();
            for (int64_t e = S.starts[order[i]]; e < S.starts[order[i] + 1]; ++e)
                row.emplace_back(place[S.columns[e]], S.values[e]);
            std::sort(row.begin(), row.end());
            for (size_t at = 0; at < row.size(); ++at) {
                columns[starts[i] + int64_t(at)] = row[at].first;
                values[starts[i] + int64_t(at)] = row[at].second;
            }
        }
    });
}

Part restrict_to(const Csr& S, const float* degrees, const int32_t* rows, int64_t count, int threads) {
    std::vector<int32_t> place(S.n, -1);
    for (int64_t i = 0; i < count; ++i) place[rows[i]] = int32_t(i);
    const int64_t tasks = (count + ROWS - 1) / ROWS;
    const auto each_row = [&](auto work) {
        parallel(tasks, threads, [&](int64_t task, int) {
            for (int64_t i = task * ROWS; i < std::min(count, (task + 1) * ROWS); ++i) work(i);
        });
    };
    // What stays of a row's affinity: a_ij = s_ij · √d_i · √d_j, and 1/√ of its sum scales it anew.
    Part part;
    part.starts.assign(count + 1, 0);
    std::vector<double> root(S.n), scale(count);
    for (int64_t i = 0; i < count; ++i) root[rows[i]] = std::sqrt(double(degrees[rows[i]]));
    each_row([&](int64_t i) {
        double degree = 0;
        int64_t kept = 0;
        for (int64_t e = S.starts[rows[i]]; e < S.starts[rows[i] + 1]; ++e)
            if (place[S.columns[e]] >= 0) {
                ++kept;
                degree += S.values[e] * root[S.columns[e]];
            }
        degree *= root[rows[i]];
        part.starts[i + 1] = kept;
        scale[i] = degree > 0 ? root[rows[i]] / std::sqrt(degree) : 0;
    });
    for (int64_t i = 0; i < count; ++i) part.starts[i + 1] += part.starts[i];
    part.columns.resize(part.starts[count]);
    part.values.resize(part.starts[count]);
    each_row([&](int64_t i) {
        int64_t to = part.starts[i];
        for (int64_t e = S.starts[rows[i]]; e < S.starts[rows[i] + 1]; ++e)
            if (const int32_t at = place[S.columns[e]]; at >= 0) {
                part.columns[to] = at;
                part.values[to++] = float(S.values[e] * (scale[i] * scale[at]));
            }
    });
    return part;
}

}  // namespace manifind
