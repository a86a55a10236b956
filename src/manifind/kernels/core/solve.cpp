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

// Rows are handled in chunks, whichever thread takes them, and what the chunks add up is added in their order: the
// answer does not depend on the number of threads.
template <class Work>
void over_rows(int64_t n, int threads, int sums, double* totals, Work work) {
    const int64_t chunks = std::min<int64_t>(64, n / 1024 + 1);
    std::vector<double> parts(size_t(chunks) * sums);
    parallel(chunks, n < SMALL ? 1 : threads, [&](int64_t chunk, int) {
        work(n * chunk / chunks, n * (chunk + 1) / chunks, parts.data() + chunk * sums);
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
    // Calls work(begin, end) for the runs of rows that were reached.
    template <class Work>
    void runs(int64_t begin, int64_t end, Work work) const {
        if (rows_.empty()) return work(begin, end);
        for (int64_t stop; begin < end; begin = stop) {
            while (begin < end && !rows_[begin]) ++begin;
            for (stop = begin; stop < end && rows_[stop];) ++stop;
            if (begin < stop) work(begin, stop);
        }
    }

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
            reached.runs(begin, end,
                         [&](int64_t from, int64_t to) { l.multiply(S, from, to, words, alpha, p, ap, sums); });
        });
        // rᵀap is pᵀap, as p is r and a multiple of the direction before, to which ap is orthogonal; but for the
        // rounding of p, which a direction can bear.
        for (int c = 0; c < width; ++c)
            column[c].choose(along[c], after[width + c], along[c], along[width + c], &step[c], &turn[c]);
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

// One column in float32; r holds the right-hand side and x the answer.
Column solve_one(const Csr& S, float alpha, Stop stop, int threads, float* p, float* ap, float* r, float* x) {
    const Loops& l = loops();
    Column column;
    Reached reached(S);
    double squared = 0;
    for (int64_t i = 0; i < S.n; ++i) {
        squared += double(r[i]) * r[i];
        reached[i] = r[i] != 0;
    }
    std::copy_n(r, S.n, p);
    column.start(squared);
    for (int iteration = 1; iteration <= stop.max_iter && column.live; ++iteration) {
        double dots[4], rr;
        float step, turn;
        reached.spread();
        over_rows(S.n, threads, 4, dots, [&](int64_t begin, int64_t end, double* sums) {
            reached.runs(begin, end,
                         [&](int64_t from, int64_t to) { l.multiply_one(S, from, to, alpha, p, r, ap, sums); });
        });
        column.choose(dots[0], dots[1], dots[2], dots[3], &step, &turn);
        over_rows(S.n, 1, 1, &rr, [&](int64_t begin, int64_t end, double* sums) {
            l.advance_one(begin, end, step, turn, p, ap, x, r, sums);
        });
        column.reach(rr, iteration, stop.tol);
    }
    return column;
}

void solve_alone(const Csr& S, const int32_t* order, const float* y, int64_t columns, int64_t which, float alpha,
                 Stop stop, int threads, float* f, int32_t* iterations, float* residuals) {
    std::vector<float> p(S.n), ap(S.n), r(S.n), x(S.n);
    for (int64_t i = 0; i < S.n; ++i) r[i] = (1 - alpha) * y[int64_t(order ? order[i] : i) * columns + which];
    const Column column = solve_one(S, alpha, stop, threads, p.data(), ap.data(), r.data(), x.data());
    for (int64_t i = 0; i < S.n; ++i) f[int64_t(order ? order[i] : i) * columns + which] = x[i];
    iterations[which] = column.iterations;
    residuals[which] = float(column.residual());
}

}  // namespace

void solve(const Csr& S, const int32_t* order, const float* y, int64_t columns, float alpha, Stop stop, int threads,
           float* f, int32_t* iterations, float* residuals) {
    for (int64_t first = 0; first < columns;) {
        const int64_t left = columns - first;
        if (left <= FEW) {
            solve_alone(S, order, y, columns, first, alpha, stop, threads, f, iterations, residuals);
            ++first;
            continue;
        }
        const int words = left > 2 * NARROW && S.n <= LARGE ? WIDE : NARROW;
        const int64_t count = std::min<int64_t>(left, 2 * words);
        solve_block(S, order, y, columns, first, count, words, alpha, stop, threads, f, iterations, residuals);
        first += count;
    }
}

void breadth_first(const Csr& S, int32_t* order) {
    std::vector<bool> seen(S.n, false);
    int64_t placed = 0;
    for (int64_t root = 0, done = 0; root < S.n; ++root) {
        if (seen[root]) continue;
        seen[root] = true;
        order[placed++] = int32_t(root);
        for (; done < placed; ++done)
            for (int64_t e = S.starts[order[done]]; e < S.starts[order[done] + 1]; ++e)
                if (!seen[S.columns[e]]) {
                    seen[S.columns[e]] = true;
                    order[placed++] = S.columns[e];
                }
    }
}

}  // namespace manifind
