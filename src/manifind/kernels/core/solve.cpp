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
constexpr double FLOOR = 1e-10;            // a relative residual that float32 cannot tell from zero

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

// Step sizes of conjugate gradient for one column. The direction is rounded to bf16 *before* it is multiplied, and the
// same rounded direction moves x: so r stays the residual of x, whatever the rounding; what is lost is a little of the
// conjugacy. The step is the exact minimum along that direction, and rᵀr after the step, which the next direction
// needs, follows from products that are there before it: one pass over the vectors less.
struct Column {
    double norm = 0, rr = 0;  // of the right-hand side; of the residual, squared
    bool live = false;
    int32_t iterations = 0;

    void start(double squared) {
        rr = squared;
        norm = std::sqrt(squared);
        live = norm > 0;
    }
    void choose(double pap, double rp, double rap, double apap, float* step, float* turn) const {
        *step = *turn = 0;
        if (!live || !(pap > 0)) return;
        const double forward = rp / pap;
        const double after = rr - 2 * forward * rap + forward * forward * apap;
        *step = float(forward);
        *turn = float(std::max(after, 0.0) / rr);
    }
    void reach(double squared, int iteration, double tol) {
        if (!live) return;
        rr = squared;
        iterations = iteration;
        live = residual() > std::max(tol, FLOOR);
    }
    double residual() const { return norm > 0 ? std::sqrt(rr) / norm : 0; }
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
    std::vector<double> rr(width), dots(4 * width);
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
    over_rows(S.n, threads, width, rr.data(), advance);  // p = r: a step of no length

    auto any = [&] { return std::any_of(column.begin(), column.end(), [](const Column& one) { return one.live; }); };
    for (int iteration = 1; iteration <= stop.max_iter && any(); ++iteration) {
        over_rows(S.n, threads, 4 * width, dots.data(), [&](int64_t begin, int64_t end, double* sums) {
            l.multiply(S, begin, end, words, alpha, p, r, ap, sums);
        });
        for (int c = 0; c < width; ++c)
            column[c].choose(dots[c], dots[width + c], dots[2 * width + c], dots[3 * width + c], &step[c], &turn[c]);
        over_rows(S.n, threads, width, rr.data(), advance);
        for (int c = 0; c < width; ++c) column[c].reach(rr[c], iteration, stop.tol);
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

Reach solve_locally(const Csr& S, const int32_t* rows, const float* values, int64_t count, float alpha, Stop stop,
                    int64_t budget, int32_t* place, float* f) {
    // Grow: hop by hop, each region passes on what reached it, those that the most reached first, until twice as many
    // as are wanted were met.
    std::vector<int32_t> region(rows, rows + count);
    std::vector<float> mass(count), b(count);
    double norm = 0;
    for (int64_t i = 0; i < count; ++i) {
        place[rows[i]] = int32_t(i);
        mass[i] = b[i] = (1 - alpha) * values[i];
        norm += double(b[i]) * b[i];
    }
    norm = std::sqrt(norm);
    const auto more = [&](int32_t i, int32_t j) {
        const float a = std::fabs(mass[i]), b = std::fabs(mass[j]);
        return a > b || (a == b && i < j);
    };
    std::vector<int32_t> chosen;
    const auto met = [&] { return int64_t(region.size()); };
    for (int64_t begin = 0, end = count; begin < end && met() < 2 * budget; begin = end, end = met()) {
        chosen.resize(end - begin);
        for (int64_t i = begin; i < end; ++i) chosen[i - begin] = int32_t(i);
        std::sort(chosen.begin(), chosen.end(), more);
        for (size_t at = 0; at < chosen.size() && met() < 2 * budget; ++at) {
            const int32_t one = chosen[at];
            const float passed = alpha * mass[one];
            for (int64_t e = S.starts[region[one]]; e < S.starts[region[one] + 1]; ++e) {
                int32_t& to = place[S.columns[e]];
                if (to < 0) {
                    to = int32_t(region.size());
                    region.push_back(S.columns[e]);
                    mass.push_back(0);
                }
                mass[to] += passed * S.values[e];
            }
        }
    }
    // Keep those that the most reached; the seeds stay.
    const int64_t kept = std::max(count, std::min(met(), budget));
    chosen.resize(met() - count);
    for (int64_t i = count; i < met(); ++i) chosen[i - count] = int32_t(i);
    if (kept < met()) std::nth_element(chosen.begin(), chosen.begin() + (kept - count), chosen.end(), more);
    for (int32_t one : region) place[one] = -1;
    std::vector<int32_t> inside(rows, rows + count);
    for (int64_t i = 0; i < kept - count; ++i) inside.push_back(region[chosen[i]]);
    std::sort(inside.begin(), inside.end());
    for (int64_t i = 0; i < kept; ++i) place[inside[i]] = int32_t(i);

    // Take out the part of S between them, and the edges that leave it, to regions numbered as they are met.
    std::vector<int64_t> starts{0}, leave_starts{0};
    std::vector<int32_t> columns, leave_columns, outside;
    std::vector<float> weights, leave_weights;
    for (int32_t one : inside) {
        for (int64_t e = S.starts[one]; e < S.starts[one + 1]; ++e) {
            int32_t& at = place[S.columns[e]];
            if (at == -1) {
                at = -2 - int32_t(outside.size());
                outside.push_back(S.columns[e]);
            }
            const bool in = at >= 0;
            (in ? columns : leave_columns).push_back(in ? at : -2 - at);
            (in ? weights : leave_weights).push_back(S.values[e]);
        }
        starts.push_back(int64_t(columns.size()));
        leave_starts.push_back(int64_t(leave_columns.size()));
    }
    const Csr part{kept, starts.data(), columns.data(), weights.data()};
    std::vector<float> p(kept), ap(kept), r(kept), x(kept), leaves(outside.size());
    for (int64_t i = 0; i < count; ++i) r[place[rows[i]]] = b[i];
    const Column column = solve_one(part, alpha, stop, 1, p.data(), ap.data(), r.data(), x.data());

    // What leaves the part is residual outside of it.
    for (int64_t i = 0; i < kept; ++i) {
        f[inside[i]] = x[i];
        for (int64_t e = leave_starts[i]; e < leave_starts[i + 1]; ++e) leaves[leave_columns[e]] += leave_weights[e] * x[i];
    }
    double left = column.rr;
    for (float one : leaves) left += double(alpha) * one * alpha * one;
    for (int32_t one : inside) place[one] = -1;
    for (int32_t one : outside) place[one] = -1;
    return {column.iterations, float(norm > 0 ? std::sqrt(left) / norm : 0), int32_t(kept)};
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
