#include "solve.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "parallel.h"

namespace manifind {
namespace {

constexpr int NARROW = 16, WIDE = 32;      // words of a block: 32 or 64 columns
constexpr int64_t FEW = 3;                 // columns up to which each is solved by itself
constexpr int64_t SMALL = 16384;           // rows up to which one thread is enough
constexpr int64_t LARGE = int64_t(1) << 20;  // rows from which a block is narrow: it takes 14 bytes an entry

// Zeroed memory on lines of 64 bytes, so that a row of a block is one line or two; in large pages where there are any,
// as rows are gathered from all over it.
template <class T>
class Aligned {
   public:
    explicit Aligned(size_t count) : data_(nullptr) {
        const size_t size = count * sizeof(T) + 64, align = size >= LARGE_PAGE ? LARGE_PAGE : 64;
        data_ = static_cast<T*>(std::aligned_alloc(align, (size + align - 1) / align * align));
        if (!data_) throw std::bad_alloc();
#ifdef __linux__
        if (align == LARGE_PAGE) madvise(data_, (size + align - 1) / align * align, MADV_HUGEPAGE);
#endif
        std::fill_n(data_, count, T(0));
    }
    ~Aligned() { std::free(data_); }
    Aligned(const Aligned&) = delete;
    Aligned& operator=(const Aligned&) = delete;
    operator T*() { return data_; }

   private:
    static constexpr size_t LARGE_PAGE = size_t(1) << 21;
    T* data_;
};

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

void solve_block(const Csr& S, const int32_t* order, const float* y, int64_t columns, int64_t first, int64_t count,
                 int words, float alpha, Stop stop, int threads, float* f, int32_t* iterations, float* residuals) {
    const int width = 2 * words;
    const Loops& l = loops();
    Aligned<uint32_t> p(size_t(S.n) * words);
    Aligned<float> r(size_t(S.n) * width), x(size_t(S.n) * width), ap(size_t(S.n) * width);
    std::vector<Column> column(width);
    std::vector<double> rr(width), along(2 * width), after(2 * width);
    std::vector<float> step(width), turn(width);

    over_rows(S.n, threads, width, rr.data(), [&](int64_t begin, int64_t end, double* sums) {
        for (int64_t i = begin; i < end; ++i) {
            const float* from = y + int64_t(order ? order[i] : i) * columns + first;
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
        over_rows(S.n, threads, 2 * width, along.data(), [&](int64_t begin, int64_t end, double* sums) {
            l.multiply(S, begin, end, words, alpha, p, ap, sums);
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
    double squared = 0;
    for (int64_t i = 0; i < S.n; ++i) squared += double(r[i]) * r[i];
    std::copy_n(r, S.n, p);
    column.start(squared);
    for (int iteration = 1; iteration <= stop.max_iter && column.live; ++iteration) {
        double dots[4], rr;
        float step, turn;
        over_rows(S.n, threads, 4, dots, [&](int64_t begin, int64_t end, double* sums) {
            l.multiply_one(S, begin, end, alpha, p, r, ap, sums);
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
