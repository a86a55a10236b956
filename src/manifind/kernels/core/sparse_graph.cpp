#include "sparse_graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "parallel.h"

namespace manifind {
namespace {

constexpr int64_t ROWS_PER_TASK = 1024;
constexpr int64_t MAX_TRANSPOSE_PARTS = 16;  // each has n cursors

template <class Work>
void for_row_ranges(int64_t n, int threads, Work work) {
    parallel((n + ROWS_PER_TASK - 1) / ROWS_PER_TASK, threads,
             [&](int64_t task, int) { work(task * ROWS_PER_TASK, std::min(n, (task + 1) * ROWS_PER_TASK)); });
}

// Each task of `for_row_ranges` wrote its rows contiguously from offsets[first row]; starts[i + 1] has the length of
// row i. Moves all rows together and turns the lengths into starts.
void compact_rows(const std::vector<int64_t>& offsets, std::vector<int64_t>& starts, Buffer<int32_t>& columns,
                  Buffer<float>& values) {
    const int64_t n = int64_t(starts.size()) - 1;
    for (int64_t i = 0; i < n; ++i) starts[i + 1] += starts[i];
    for (int64_t begin = 0; begin < n; begin += ROWS_PER_TASK) {
        const int64_t to = starts[begin], from = offsets[begin],
                      count = starts[std::min(n, begin + ROWS_PER_TASK)] - to;
        if (to == from) continue;
        std::memmove(columns.data() + to, columns.data() + from, size_t(count) * sizeof(int32_t));
        std::memmove(values.data() + to, values.data() + from, size_t(count) * sizeof(float));
    }
    columns.shrink(starts[n]);
    values.shrink(starts[n]);
}

// The smallest similarity of each list less the slack. Checks the ids.
std::vector<float> list_minima(const Lists& lists, float slack, int threads) {
    std::vector<float> limits(lists.n);
    for_row_ranges(lists.n, threads, [&](int64_t begin, int64_t end) {
        const int32_t n = int32_t(lists.n);
        bool valid = true;
        for (int64_t i = begin; i < end; ++i) {
            const int32_t* ids = lists.ids + i * lists.ids_stride;
            const float* similarities = lists.similarities + i * lists.similarities_stride;
            float minimum = std::numeric_limits<float>::infinity();
            for (int64_t e = 0; e < lists.width; ++e) {
                valid &= ids[e] >= -1 && ids[e] < n;
                minimum = similarities[e] < minimum ? similarities[e] : minimum;
            }
            limits[i] = minimum - slack;
        }
        if (!valid) throw std::invalid_argument("ids has entries that are neither rows nor -1");
    });
    return limits;
}

// The neighbours in list i whose lists may contain i.
int64_t possibly_mutual(const Lists& lists, const std::vector<float>& limits, int64_t i, Neighbour* out) {
    return kernels().possibly_mutual(lists.ids + i * lists.ids_stride,
                                     lists.similarities + i * lists.similarities_stride, lists.width, limits.data(),
                                     int32_t(i), out);
}

// A hash table of a list's similarities by id, which stays in the L1 cache. Keys have the list in the high half: lists
// need no clearing.
class SimilarityTable {
   public:
    explicit SimilarityTable(int64_t max_size) {
        while ((int64_t(1) << bits_) < 4 * max_size) ++bits_;
        keys_.assign(size_t(1) << bits_, -1);
        similarities_.resize(keys_.size());
    }
    void fill(int64_t list, const Neighbour* neighbours, int64_t count) {
        list_ = list << 32;
        for (int64_t e = 0; e < count; ++e) {
            const size_t slot = slot_of(neighbours[e].id);
            const bool is_duplicate = keys_[slot] == (list_ | neighbours[e].id);  // the smaller of duplicates counts
            if (is_duplicate && similarities_[slot] <= neighbours[e].similarity) continue;
            keys_[slot] = list_ | neighbours[e].id;
            similarities_[slot] = neighbours[e].similarity;
        }
    }
    // The similarity of an id, or -1.
    float operator[](int32_t id) const {
        const size_t slot = slot_of(id);
        return keys_[slot] == (list_ | id) ? similarities_[slot] : -1;
    }

   private:
    size_t slot_of(int32_t id) const {
        size_t slot = size_t(uint32_t(id) * 2654435769u) >> (32 - bits_);
        while (keys_[slot] >= list_ && keys_[slot] != (list_ | id)) slot = (slot + 1) & (keys_.size() - 1);
        return slot;
    }
    int bits_ = 1;
    int64_t list_ = 0;
    std::vector<int64_t> keys_;
    std::vector<float> similarities_;
};

float affinity_kernel(float similarity, float gamma) {
    if (gamma == 3) return similarity * similarity * similarity;  // pow is many times as slow
    return gamma == 1 ? similarity : std::pow(similarity, gamma);
}

// Writes the transposed lists (who lists each row, ascending, and how similar) to `result`; returns their starts. Two
// passes over the lists, in parts: count, which sets each part's cursors, then write.
std::vector<int64_t> transpose_lists(const Lists& lists, const std::vector<float>& limits, int threads,
                                     Affinity& result) {
    const int64_t n = lists.n, parts = std::max<int64_t>(1, std::min({n, MAX_TRANSPOSE_PARTS, int64_t(threads)}));
    std::vector<std::vector<int64_t>> cursors(parts);
    const auto each_list = [&](auto work) {
        parallel(parts, threads, [&](int64_t part, int) {
            std::vector<Neighbour> list(lists.width + MUTUAL_PADDING);
            cursors[part].resize(n);
            for (int64_t i = n * part / parts; i < n * (part + 1) / parts; ++i)
                work(cursors[part].data(), int32_t(i), list.data(), possibly_mutual(lists, limits, i, list.data()));
        });
    };
    each_list([](int64_t* cursor, int32_t, const Neighbour* list, int64_t count) {
        for (int64_t e = 0; e < count; ++e) ++cursor[list[e].id];
    });
    std::vector<int64_t> transposed_starts(n + 1, 0);
    for (int64_t i = 0, end = 0; i < n; ++i) {
        for (auto& cursor : cursors) {
            const int64_t count = cursor[i];
            cursor[i] = end;
            end += count;
        }
        transposed_starts[i + 1] = end;
    }
    Buffer<int32_t>& columns = result.columns = Buffer<int32_t>(transposed_starts[n]);
    Buffer<float>& values = result.values = Buffer<float>(transposed_starts[n]);
    each_list([&](int64_t* cursor, int32_t i, const Neighbour* list, int64_t count) {
        // Scattered writes would each wait for memory.
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
    return transposed_starts;
}

}  // namespace

// The transposed lists take hardly more memory than the result and become it: pairs that are not mutual are removed in
// place.
Affinity mutual_affinity(const Lists& lists, float gamma, float slack, bool normalised, int threads) {
    const int64_t n = lists.n;
    const std::vector<float> limits = list_minima(lists, slack, threads);
    Affinity result;
    const std::vector<int64_t> transposed_starts = transpose_lists(lists, limits, threads, result);
    std::vector<int64_t>& starts = result.starts;
    Buffer<int32_t>& columns = result.columns;
    Buffer<float>& values = result.values;
    starts.assign(n + 1, 0);
    std::vector<double> degrees(n);
    for_row_ranges(n, threads, [&](int64_t begin, int64_t end) {
        std::vector<Neighbour> list(lists.width + MUTUAL_PADDING);
        SimilarityTable table(lists.width);
        int64_t to = transposed_starts[begin];
        for (int64_t i = begin; i < end; ++i) {
            table.fill(i, list.data(), possibly_mutual(lists, limits, i, list.data()));
            const int64_t from = to;
            for (int64_t e = transposed_starts[i]; e < transposed_starts[i + 1];) {
                const int32_t column = columns[e];
                float similarity = values[e];
                while (++e < transposed_starts[i + 1] && columns[e] == column)
                    similarity = std::min(similarity, values[e]);
                similarity = std::min(similarity, table[column]);
                if (similarity < 0) continue;
                const float value = affinity_kernel(similarity, gamma);
                if (!(value > 0)) continue;
                columns[to] = column;
                values[to++] = value;
                degrees[i] += value;
            }
            starts[i + 1] = to - from;
        }
    });
    compact_rows(transposed_starts, starts, columns, values);
    result.degrees.assign(degrees.begin(), degrees.end());
    if (!normalised) return result;
    for (double& degree : degrees) degree = degree > 0 ? 1 / std::sqrt(degree) : 0;
    for_row_ranges(n, threads, [&](int64_t begin, int64_t end) {
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
    for_row_ranges(S.n, threads, [&](int64_t begin, int64_t end) {
        std::vector<std::pair<int32_t, float>> row;
        for (int64_t i = begin; i < end; ++i) {
            row.clear();
            for (int64_t e = S.starts[order[i]]; e < S.starts[order[i] + 1]; ++e)
                row.emplace_back(place[S.columns[e]], S.values[e]);
            std::sort(row.begin(), row.end());
            for (size_t e = 0; e < row.size(); ++e) {
                columns[starts[i] + int64_t(e)] = row[e].first;
                values[starts[i] + int64_t(e)] = row[e].second;
            }
        }
    });
}

CsrArrays restrict_matrix(const Csr& S, const float* degrees, const int32_t* rows, int64_t count, int threads) {
    // New index and root of the degree, side by side for scattered lookups.
    struct Node {
        int32_t place = -1;
        float root = 0;
    };
    std::vector<Node> nodes(S.n);
    std::vector<int64_t> offsets(count + 1, 0);
    for (int64_t i = 0; i < count; ++i) {
        nodes[rows[i]] = {int32_t(i), std::sqrt(degrees[rows[i]])};
        offsets[i + 1] = offsets[i] + S.starts[rows[i] + 1] - S.starts[rows[i]];
    }
    // The affinity is a_ij = s_ij · √d_i · √d_j, and 1/√ of its row sums normalises again. Every entry is written and
    // those to keep advance `to`: no branch, which would be unpredictable.
    CsrArrays submatrix{std::vector<int64_t>(count + 1, 0), Buffer<int32_t>(offsets[count] + 1),
                        Buffer<float>(offsets[count] + 1)};
    std::vector<double> scale(count);
    for_row_ranges(count, threads, [&](int64_t begin, int64_t end) {
        int32_t* columns = submatrix.columns.data();
        float* values = submatrix.values.data();
        int64_t to = offsets[begin];
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
            submatrix.starts[i + 1] = to - from;
            scale[i] = degree * root > 0 ? root / std::sqrt(degree * root) : 0;
        }
    });
    compact_rows(offsets, submatrix.starts, submatrix.columns, submatrix.values);
    for_row_ranges(count, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            for (int64_t e = submatrix.starts[i]; e < submatrix.starts[i + 1]; ++e)
                submatrix.values[e] = float(submatrix.values[e] * (scale[i] * scale[submatrix.columns[e]]));
    });
    return submatrix;
}

}  // namespace manifind
