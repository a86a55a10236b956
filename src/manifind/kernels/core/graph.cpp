#include "graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "parallel.h"

namespace manifind {
namespace {

constexpr int64_t ROWS = 1024;  // a task of a thread
constexpr int64_t PARTS = 16;   // most parts of the lists that are turned round at a time, each with n cursors

template <class Work>
void by_rows(int64_t n, int threads, Work work) {
    parallel((n + ROWS - 1) / ROWS, threads,
             [&](int64_t task, int) { work(task * ROWS, std::min(n, (task + 1) * ROWS)); });
}

// Each task of `by_rows` left its rows side by side, from where there was `room` for them; `starts` has the length of row
// i at i + 1. Moves all together and makes of the lengths where they start.
void close_gaps(const std::vector<int64_t>& room, std::vector<int64_t>& starts, Buffer<int32_t>& columns,
                Buffer<float>& values) {
    const int64_t n = int64_t(starts.size()) - 1;
    for (int64_t i = 0; i < n; ++i) starts[i + 1] += starts[i];
    for (int64_t begin = 0; begin < n; begin += ROWS) {
        const int64_t to = starts[begin], from = room[begin], count = starts[std::min(n, begin + ROWS)] - to;
        if (to == from) continue;
        std::memmove(columns.data() + to, columns.data() + from, size_t(count) * sizeof(int32_t));
        std::memmove(values.data() + to, values.data() + from, size_t(count) * sizeof(float));
    }
    columns.shrink(starts[n]);
    values.shrink(starts[n]);
}

// The least similarity of each list, less the slack; ids are looked at on the way.
std::vector<float> lowest(const Lists& lists, float slack, int threads) {
    std::vector<float> limits(lists.n);
    by_rows(lists.n, threads, [&](int64_t begin, int64_t end) {
        const int32_t n = int32_t(lists.n);
        bool inside = true;
        for (int64_t i = begin; i < end; ++i) {
            const int32_t* ids = lists.ids + i * lists.ids_stride;
            const float* similarities = lists.similarities + i * lists.similarities_stride;
            float least = std::numeric_limits<float>::infinity();
            for (int64_t e = 0; e < lists.width; ++e) {
                inside &= ids[e] >= -1 && ids[e] < n;
                least = similarities[e] < least ? similarities[e] : least;
            }
            limits[i] = least - slack;
        }
        if (!inside) throw std::invalid_argument("ids has entries that are neither rows nor -1");
    });
    return limits;
}

// Those of a list whose own lists can have the row too.
int64_t possible(const Lists& lists, const std::vector<float>& limits, int64_t i, Neighbour* out) {
    return loops().possible(lists.ids + i * lists.ids_stride, lists.similarities + i * lists.similarities_stride,
                            lists.width, limits.data(), int32_t(i), out);
}

// The similarities of a list by id, in a table that stays in the nearest cache. Ids are in the low half of a slot, each
// with its list in the high half, so that there is nothing to clear.
class Table {
   public:
    explicit Table(int64_t most) {
        while ((int64_t(1) << bits_) < 4 * most) ++bits_;
        keys_.assign(size_t(1) << bits_, -1);
        similarities_.resize(keys_.size());
    }
    void fill(int64_t list, const Neighbour* neighbours, int64_t count) {
        list_ = list << 32;
        for (int64_t e = 0; e < count; ++e) {
            const size_t slot = at(neighbours[e].id);
            const bool again = keys_[slot] == (list_ | neighbours[e].id);  // of a duplicate, the lesser counts
            if (again && similarities_[slot] <= neighbours[e].similarity) continue;
            keys_[slot] = list_ | neighbours[e].id;
            similarities_[slot] = neighbours[e].similarity;
        }
    }
    // The similarity of an id, or -1.
    float operator[](int32_t id) const {
        const size_t slot = at(id);
        return keys_[slot] == (list_ | id) ? similarities_[slot] : -1;
    }

   private:
    size_t at(int32_t id) const {
        size_t slot = size_t(uint32_t(id) * 2654435769u) >> (32 - bits_);
        while (keys_[slot] >= list_ && keys_[slot] != (list_ | id)) slot = (slot + 1) & (keys_.size() - 1);
        return slot;
    }
    int bits_ = 1;
    int64_t list_ = 0;
    std::vector<int64_t> keys_;
    std::vector<float> similarities_;
};

float kernel(float similarity, float gamma) {
    if (gamma == 3) return similarity * similarity * similarity;  // a general power is many times as slow
    return gamma == 1 ? similarity : std::pow(similarity, gamma);
}

// Who lists each row, ascending, with what similarity, in place of the result; returns where those of each row start.
// The lists are gone through twice, in parts: to count, which sets each part's cursors, and to write.
std::vector<int64_t> turn_round(const Lists& lists, const std::vector<float>& limits, int threads, Affinity& result) {
    const int64_t n = lists.n, parts = std::max<int64_t>(1, std::min({n, PARTS, int64_t(threads)}));
    std::vector<std::vector<int64_t>> cursors(parts);
    const auto each_list = [&](auto work) {
        parallel(parts, threads, [&](int64_t part, int) {
            std::vector<Neighbour> list(lists.width + MORE_NEIGHBOURS);
            cursors[part].resize(n);
            for (int64_t i = n * part / parts; i < n * (part + 1) / parts; ++i)
                work(cursors[part].data(), int32_t(i), list.data(), possible(lists, limits, i, list.data()));
        });
    };
    each_list([](int64_t* cursor, int32_t, const Neighbour* list, int64_t count) {
        for (int64_t e = 0; e < count; ++e) ++cursor[list[e].id];
    });
    std::vector<int64_t> listed(n + 1, 0);
    for (int64_t i = 0, at = 0; i < n; ++i) {
        for (auto& cursor : cursors) {
            const int64_t count = cursor[i];
            cursor[i] = at;
            at += count;
        }
        listed[i + 1] = at;
    }
    Buffer<int32_t>& columns = result.columns = Buffer<int32_t>(listed[n]);
    Buffer<float>& values = result.values = Buffer<float>(listed[n]);
    each_list([&](int64_t* cursor, int32_t i, const Neighbour* list, int64_t count) {
        // Written here and there, each would wait for the memory of the one before.
        for (int64_t e = 0; e < count; ++e) {
            __builtin_prefetch(columns.data() + cursor[list[e].id]);
            __builtin_prefetch(values.data() + cursor[list[e].id]);
        }
        for (int64_t e = 0; e < count; ++e) {
            const int64_t to = cursor[list[e].id]++;
            columns[to] = i;
            values[to] = list[e].similarity;
        }
    });
    return listed;
}

}  // namespace

// The lists turned round take hardly more room than the result, and become it: what a row does not list in its turn is
// struck out in place.
Affinity mutual_affinity(const Lists& lists, float gamma, float slack, bool normalised, int threads) {
    const int64_t n = lists.n;
    const std::vector<float> limits = lowest(lists, slack, threads);
    Affinity result;
    const std::vector<int64_t> listed = turn_round(lists, limits, threads, result);
    std::vector<int64_t>& starts = result.starts;
    Buffer<int32_t>& columns = result.columns;
    Buffer<float>& values = result.values;
    starts.assign(n + 1, 0);
    std::vector<double> degrees(n);
    by_rows(n, threads, [&](int64_t begin, int64_t end) {
        std::vector<Neighbour> list(lists.width + MORE_NEIGHBOURS);
        Table table(lists.width);
        int64_t to = listed[begin];
        for (int64_t i = begin; i < end; ++i) {
            table.fill(i, list.data(), possible(lists, limits, i, list.data()));
            const int64_t from = to;
            for (int64_t e = listed[i]; e < listed[i + 1];) {
                const int32_t column = columns[e];
                float similarity = values[e];
                while (++e < listed[i + 1] && columns[e] == column) similarity = std::min(similarity, values[e]);
                similarity = std::min(similarity, table[column]);
                if (similarity < 0) continue;
                const float value = kernel(similarity, gamma);
                if (!(value > 0)) continue;
                columns[to] = column;
                values[to++] = value;
                degrees[i] += value;
            }
            starts[i + 1] = to - from;
        }
    });
    close_gaps(listed, starts, columns, values);
    result.degrees.assign(degrees.begin(), degrees.end());
    if (!normalised) return result;
    for (double& one : degrees) one = one > 0 ? 1 / std::sqrt(one) : 0;
    by_rows(n, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            for (int64_t e = starts[i]; e < starts[i + 1]; ++e)
                values[e] = float(values[e] * (degrees[i] * degrees[columns[e]]));
    });
    return result;
}

void reorder(const Csr& S, const int32_t* order, int threads, int64_t* starts, int32_t* columns, float* values) {
    std::vector<int32_t> place(S.n);
    starts[0] = 0;
    for (int64_t i = 0; i < S.n; ++i) {
        place[order[i]] = int32_t(i);
        starts[i + 1] = starts[i] + S.starts[order[i] + 1] - S.starts[order[i]];
    }
    by_rows(S.n, threads, [&](int64_t begin, int64_t end) {
        std::vector<std::pair<int32_t, float>> row;
        for (int64_t i = begin; i < end; ++i) {
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
    // The new number of those that stay and the root of their degree: side by side, as they are asked for here and there.
    struct Node {
        int32_t place = -1;
        float root = 0;
    };
    std::vector<Node> nodes(S.n);
    std::vector<int64_t> room(count + 1, 0);
    for (int64_t i = 0; i < count; ++i) {
        nodes[rows[i]] = {int32_t(i), std::sqrt(degrees[rows[i]])};
        room[i + 1] = room[i] + S.starts[rows[i] + 1] - S.starts[rows[i]];
    }
    // What stays of a row's affinity: a_ij = s_ij · √d_i · √d_j, and 1/√ of its sum scales it anew. There is room for all
    // entries, and those that stay are kept; no branch, for none could be foretold.
    Part part{std::vector<int64_t>(count + 1, 0), Buffer<int32_t>(room[count] + 1), Buffer<float>(room[count] + 1)};
    std::vector<double> scale(count);
    by_rows(count, threads, [&](int64_t begin, int64_t end) {
        int32_t* columns = part.columns.data();
        float* values = part.values.data();
        int64_t to = room[begin];
        for (int64_t i = begin; i < end; ++i) {
            const int64_t from = to;
            double degree = 0;
            for (int64_t e = S.starts[rows[i]]; e < S.starts[rows[i] + 1]; ++e) {
                const Node node = nodes[S.columns[e]];
                columns[to] = node.place;
                values[to] = S.values[e];
                to += node.place >= 0;
                degree += double(S.values[e]) * node.root;
            }
            const double root = nodes[rows[i]].root;
            part.starts[i + 1] = to - from;
            scale[i] = degree * root > 0 ? root / std::sqrt(degree * root) : 0;
        }
    });
    close_gaps(room, part.starts, part.columns, part.values);
    by_rows(count, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            for (int64_t e = part.starts[i]; e < part.starts[i + 1]; ++e)
                part.values[e] = float(part.values[e] * (scale[i] * scale[part.columns[e]]));
    });
    return part;
}

}  // namespace manifind
