#include "solve.h"

#include <algorithm>
#include <cmath>

#include "memory.h"
#include "parallel.h"

namespace manifind {
namespace {

constexpr int NARROW = 16, WIDE = 32;      // words of a block: 32 or 64 columns
constexpr int64_t FEW = 3;                 // columns up to which each is solved by itself
constexpr int64_t SMALL = 16384;           // rows up to which one thread is enough
constexpr int64_t LARGE = int64_t(1) << 20;  // rows from which a block is narrow: it takes 14 bytes an entry
constexpr int64_t PRECISE_ENTRIES = int64_t(1) << 23;  // of a block in float64, at 32 bytes each

// Rows are handled in chunks, whichever thread takes them, and what the chunks add up is added in their order: the
// answer does not depend on the number of threads.
template <class Work>
void over_rows(int64_t n, int threads, int sums, double* totals, Work work) {
    const int64_t blocks = (n + FLUSH - 1) / FLUSH, chunks = std::min<int64_t>(64, n / 1024 + 1);
    std::vector<double> parts(size_t(chunks) * sums);
    parallel(chunks, n < SMALL ? 1 : threads, [&](int64_t chunk, int) {
        const int64_t begin = blocks * chunk / chunks * FLUSH, end = blocks * (chunk + 1) / chunks * FLUSH;
        work(begin, std::min(n, end), parts.data() + chunk * sums);
    });
    std::fill_n(totals, sums, 0.0);
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
        for (int i = 0; i < sums; ++i) totals[i] += parts[chunk * sums + i];
}

// The rows that differ from zero, of which there are few at first: y has few, and a product reaches their neighbours.
class Reached {
   public:
    explicit Reached(const Csr& S) : S_(S), rows_(S.n) {}
    char& operator[](int64_t row) { return rows_[row]; }
    // Goes on to the neighbours; all rows are taken for reached once those before were a good part.
    void spread() {
        int64_t entries = 0;
        for (int64_t i = 0; i < int64_t(rows_.size()); ++i)
            if (rows_[i]) entries += S_.starts[i + 1] - S_.starts[i];
        if (rows_.empty() || 2 * entries > S_.starts[S_.n]) {
            rows_.clear();
            return;
        }
        std::vector<char> further = rows_;
        for (int64_t i = 0; i < S_.n; ++i)
            for (int64_t e = S_.starts[i]; rows_[i] && e < S_.starts[i + 1]; ++e) further[S_.columns[e]] = 1;
        rows_.swap(further);
    }
    // A flag for each row, or null for all.
    const char* rows() const { return rows_.empty() ? nullptr : rows_.data(); }

   private:
    const Csr& S_;
    std::vector<char> rows_;
};

void solve_block(const Csr& S, const int32_t* order, const float* y, int64_t columns, int64_t first, int64_t count,
                 int words, float alpha, Stop stop, int threads, float* f, int32_t* iterations, float* residuals) {
    const int width = 2 * words;
    const Loops& l = loops();
    Zeroed<uint32_t> p(size_t(S.n) * words);
    Zeroed<float> r(size_t(S.n) * width), x(size_t(S.n) * width), ap(size_t(S.n) * width);
    std::vector<Column> column(width);
    std::vector<double> rr(width), along(2 * width), after(2 * width);
    std::vector<float> step(width), turn(width);

    Reached reached(S);
    over_rows(S.n, threads, width, rr.data(), [&](int64_t begin, int64_t end, double* sums) {
        for (int64_t i = begin; i < end; ++i) {
            const float* from = y + int64_t(order ? order[i] : i) * columns + first;
            reached[i] = std::any_of(from, from + count, [](float one) { return one != 0; });
            if (!reached[i]) continue;
            float* to = r + i * width;
            for (int64_t c = 0; c < count; ++c) {
                to[c] = (1 - alpha) * from[c];
                sums[c] += double(to[c]) * to[c];
            }
        }
    });
    for (int c = 0; c < width; ++c) column[c].start(rr[c]);
    const auto advance = [&](int64_t begin, int64_t end, double* sums) {
        l.advance(begin, end, words, step.data(), turn.data(), p, ap, x, r, sums);
    };
    over_rows(S.n, threads, 2 * width, after.data(), advance);  // p = r: a step of no length

    auto any = [&] { return std::any_of(column.begin(), column.end(), [](const Column& one) { return one.live; }); };
    for (int iteration = 1; iteration <= stop.max_iter && any(); ++iteration) {
        reached.spread();
        over_rows(S.n, threads, 2 * width, along.data(), [&](int64_t begin, int64_t end, double* sums) {
            l.multiply(S, begin, end, reached.rows(), words, alpha, p, ap, sums);
        });
        for (int c = 0; c < width; ++c)
            column[c].choose_rounded(along[c], after[width + c], along[width + c], &step[c], &turn[c]);
        over_rows(S.n, threads, 2 * width, after.data(), advance);
        for (int c = 0; c < width; ++c) column[c].reach(after[c], iteration, stop.tol);
    }
    for (int64_t i = 0; i < S.n; ++i)
        std::copy_n(x + i * width, count, f + int64_t(order ? order[i] : i) * columns + first);
    for (int64_t c = 0; c < count; ++c) {
        iterations[first + c] = column[c].iterations;
        residuals[first + c] = float(column[c].residual());
    }
}

// One column, step by step as in a block: its answer is that of a block to the last bit.
void solve_alone(const Csr& S, const int32_t* order, const float* y, int64_t columns, int64_t which, float alpha,
                 Stop stop, int threads, float* f, int32_t* iterations, float* residuals) {
    const Loops& l = loops();
    std::vector<float> p(S.n), ap(S.n), r(S.n), x(S.n);
    Column column;
    double along[2], after[2];
    float step = 0, turn = 0;

    Reached reached(S);
    over_rows(S.n, 1, 1, after, [&](int64_t begin, int64_t end, double* sum) {
        for (int64_t i = begin; i < end; ++i) {
            r[i] = (1 - alpha) * y[int64_t(order ? order[i] : i) * columns + which];
            reached[i] = r[i] != 0;
            *sum += double(r[i]) * r[i];
        }
    });
    column.start(after[0]);
    const auto advance = [&](int64_t begin, int64_t end, double* sums) {
        l.advance_one(begin, end, step, turn, p.data(), ap.data(), x.data(), r.data(), sums);
    };
    over_rows(S.n, 1, 2, after, advance);
    for (int iteration = 1; iteration <= stop.max_iter && column.live; ++iteration) {
        reached.spread();
        over_rows(S.n, threads, 2, along, [&](int64_t begin, int64_t end, double* sums) {
            l.multiply_one(S, begin, end, reached.rows(), alpha, p.data(), ap.data(), sums);
        });
        column.choose_rounded(along[0], after[1], along[1], &step, &turn);
        over_rows(S.n, 1, 2, after, advance);
        column.reach(after[0], iteration, stop.tol);
    }
    for (int64_t i = 0; i < S.n; ++i) f[int64_t(order ? order[i] : i) * columns + which] = x[i];
    iterations[which] = column.iterations;
    residuals[which] = float(column.residual());
}

// Some columns in float64, up to WIDEST.
void solve_precisely(const Csr& S, const int32_t* order, const float* y, int64_t columns, int64_t first, int64_t count,
                     double alpha, Stop stop, int threads, float* f, int32_t* iterations, float* residuals) {
    const int width = count == 1 ? 1 : int((count + 7) / 8 * 8);
    const Loops& l = loops();
    Zeroed<double> p(size_t(S.n) * width), r(size_t(S.n) * width), x(size_t(S.n) * width), ap(size_t(S.n) * width);
    std::vector<Column> column(width);
    std::vector<double> rr(width), pap(width), step(width), turn(width);

    Reached reached(S);
    over_rows(S.n, threads, width, rr.data(), [&](int64_t begin, int64_t end, double* sums) {
        for (int64_t i = begin; i < end; ++i) {
            const float* from = y + int64_t(order ? order[i] : i) * columns + first;
            reached[i] = std::any_of(from, from + count, [](float one) { return one != 0; });
            for (int64_t c = 0; c < count && reached[i]; ++c) {
                const double b = p[i * width + c] = r[i * width + c] = (1 - alpha) * from[c];
                sums[c] += b * b;
            }
        }
    });
    for (int c = 0; c < width; ++c) column[c].start(rr[c]);
    auto any = [&] { return std::any_of(column.begin(), column.end(), [](const Column& one) { return one.live; }); };
    for (int iteration = 1; iteration <= stop.max_iter && any(); ++iteration) {
        pulse();
        reached.spread();
        over_rows(S.n, threads, width, pap.data(), [&](int64_t begin, int64_t end, double* sums) {
            l.multiply_double(S, begin, end, reached.rows(), width, alpha, p, ap, sums);
        });
        for (int c = 0; c < width; ++c) step[c] = column[c].live && pap[c] > 0 ? column[c].rr / pap[c] : 0;
        over_rows(S.n, threads, width, rr.data(), [&](int64_t begin, int64_t end, double* sums) {
            l.descend_double(begin, end, width, step.data(), ap, r, sums);
        });
        for (int c = 0; c < width; ++c) {
            turn[c] = column[c].live ? rr[c] / column[c].rr : 0;
            column[c].reach(rr[c], iteration, stop.tol);
        }
        over_rows(S.n, threads, 0, nullptr, [&](int64_t begin, int64_t end, double*) {
            l.turn_double(begin, end, width, step.data(), turn.data(), r, p, x);
        });
    }
    for (int64_t i = 0; i < S.n; ++i)
        for (int64_t c = 0; c < count; ++c) f[int64_t(order ? order[i] : i) * columns + first + c] = float(x[i * width + c]);
    for (int64_t c = 0; c < count; ++c) {
        iterations[first + c] = column[c].iterations;
        residuals[first + c] = float(column[c].residual());
    }
}

}  // namespace

void solve(const Csr& S, const int32_t* order, const float* y, int64_t columns, double alpha, Stop stop, bool precise,
           int threads, float* f, int32_t* iterations, float* residuals) {
    if (precise) {
        // Threads have columns of their own where there are few rows: there is nothing to wait for then.
        const bool few = S.n < SMALL;
        const int64_t room = std::max<int64_t>(1, PRECISE_ENTRIES / std::max<int64_t>(1, S.n));
        const int64_t share = few ? (columns + threads - 1) / threads : columns;
        const int64_t width = std::clamp<int64_t>(std::min((share + 7) / 8 * 8, room / 8 * 8), 8, WIDEST);
        parallel((columns + width - 1) / width, few ? threads : 1, [&](int64_t block, int) {
            const int64_t first = block * width, count = std::min(width, columns - first);
            solve_precisely(S, order, y, columns, first, count, alpha, stop, few ? 1 : threads, f, iterations,
                            residuals);
        });
        return;
    }
    for (int64_t first = 0; first < columns;) {
        const int64_t left = columns - first;
        if (left <= FEW) {
            solve_alone(S, order, y, columns, first, float(alpha), stop, threads, f, iterations, residuals);
            ++first;
            continue;
        }
        const int words = left > 2 * NARROW && S.n <= LARGE ? WIDE : NARROW;
        const int64_t count = std::min<int64_t>(left, 2 * words);
        solve_block(S, order, y, columns, first, count, words, float(alpha), stop, threads, f, iterations, residuals);
        first += count;
    }
}

void breadth_first(const Csr& S, int32_t* order) {
    std::vector<bool> seen(S.n, false);
    int64_t placed = 0;
    for (int64_t root = 0, done = 0; root < S.n; ++root) {
        if (root % 1024 == 0) pulse();
        if (seen[root]) continue;
        seen[root] = true;
        order[placed++] = int32_t(root);
        for (; done < placed; ++done) {
            if (done % 1024 == 0) pulse();
            for (int64_t e = S.starts[order[done]]; e < S.starts[order[done] + 1]; ++e)
                if (!seen[S.columns[e]]) {
                    seen[S.columns[e]] = true;
                    order[placed++] = S.columns[e];
                }
        }
    }
}

}  // namespace manifind
