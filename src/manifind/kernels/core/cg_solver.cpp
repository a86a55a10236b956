#include "cg_solver.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>

#include "memory.h"
#include "parallel.h"
#include "sparse_graph.h"

namespace manifind {
namespace {

constexpr int NARROW_WORDS = 16, WIDE_WORDS = 32;            // words of a block: 32 or 64 columns
constexpr int64_t MAX_SINGLE_COLUMNS = 3;                    // more are solved as a block
constexpr int64_t SINGLE_THREAD_MAX_ROWS = 16384;            // fewer rows are not worth threads
constexpr int64_t NARROW_MIN_ROWS = int64_t(1) << 20;        // above, blocks are narrow: they take 14 bytes an entry
constexpr int64_t FLOAT64_BLOCK_ENTRIES = int64_t(1) << 23;  // at 32 bytes each

// Calls work(begin, end, sums) on chunks of rows and adds up the chunks' sums in order: totals do not depend on the
// number of threads.
template <class Work>
void reduce_over_rows(int64_t n, ThreadTeam& team, int sums, double* totals, Work work) {
    const int64_t blocks = (n + FLUSH_ROWS - 1) / FLUSH_ROWS, chunks = std::min<int64_t>(64, n / 1024 + 1);
    std::vector<double> parts(size_t(chunks) * sums);
    team.run(chunks, [&](int64_t chunk, int) {
        const int64_t begin = blocks * chunk / chunks * FLUSH_ROWS, end = blocks * (chunk + 1) / chunks * FLUSH_ROWS;
        work(begin, std::min(n, end), parts.data() + chunk * sums);
    });
    std::fill_n(totals, sums, 0.0);
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
        for (int i = 0; i < sums; ++i) totals[i] += parts[chunk * sums + i];
}

enum Gather { MEASURED = -1, NEVER = 0, ALWAYS = 1 };
std::atomic<int> gather_choice{MEASURED};

// Whether this processor gathers faster than it loads one value after the other: measured once, in a tenth of a
// millisecond.
bool gathers_fast() {
    const int choice = gather_choice.load();
    if (choice != MEASURED) return choice == ALWAYS;
    static const bool fast = [] {
        constexpr int N = 512, WIDTH = 32;
        std::vector<int64_t> starts(N + 1);
        std::vector<int32_t> columns(N * WIDTH);
        std::vector<float> values(N * WIDTH, 0.5f), p(N, 0.5f), ap(N);
        for (int i = 0; i <= N; ++i) starts[size_t(i)] = i * WIDTH;
        for (int e = 0; e < N * WIDTH; ++e) columns[size_t(e)] = e * 181 % N;
        const Csr S{N, starts.data(), columns.data(), values.data()};
        double dots[2] = {}, seconds[2] = {1, 1};
        for (int round = 0; round < 6; ++round)
            for (int gather = 0; gather < 2; ++gather) {
                const auto began = std::chrono::steady_clock::now();
                kernels().cg_multiply_single(S, 0, N, nullptr, gather != 0, 0.5f, p.data(), ap.data(), dots);
                const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began;
                seconds[gather] = std::min(seconds[gather], taken.count());
            }
        return seconds[1] < seconds[0];
    }();
    return fast;
}

// The nonzero rows: those of y at first; each product adds their neighbours.
class NonzeroRows {
   public:
    explicit NonzeroRows(const Csr& S) : S_(S), rows_(S.n) {}
    char& operator[](int64_t row) { return rows_[row]; }
    // Adds the neighbours. Once rows with half of the entries are nonzero, all count as such.
    void expand() {
        int64_t entries = 0;
        for (int64_t i = 0; i < int64_t(rows_.size()); ++i)
            if (rows_[i]) entries += S_.starts[i + 1] - S_.starts[i];
        if (rows_.empty() || 2 * entries > S_.starts[S_.n]) {
            rows_.clear();
            return;
        }
        std::vector<char> expanded = rows_;
        for (int64_t i = 0; i < S_.n; ++i)
            for (int64_t e = S_.starts[i]; rows_[i] && e < S_.starts[i + 1]; ++e) expanded[S_.columns[e]] = 1;
        rows_.swap(expanded);
    }
    // A flag for each row, or null for all.
    const char* rows() const { return rows_.empty() ? nullptr : rows_.data(); }

   private:
    const Csr& S_;
    std::vector<char> rows_;
};

void solve_block(const Csr& S, const int32_t* order, const float* y, int64_t columns, int64_t first, int64_t count,
                 int words, float alpha, StopRule stop, ThreadTeam& team, float* f, int32_t* iterations,
                 float* residuals) {
    const int width = 2 * words;
    const Kernels& simd = kernels();
    ZeroedArray<uint32_t> p(size_t(S.n) * words);
    ZeroedArray<float> r(size_t(S.n) * width), x(size_t(S.n) * width), ap(size_t(S.n) * width);
    std::vector<ColumnState> states(width);
    std::vector<double> rr(width), dots(2 * width), updated_dots(2 * width);
    std::vector<float> step(width), beta(width);

    NonzeroRows nonzero(S);
    reduce_over_rows(S.n, team, width, rr.data(), [&](int64_t begin, int64_t end, double* sums) {
        for (int64_t i = begin; i < end; ++i) {
            const float* source = y + int64_t(order ? order[i] : i) * columns + first;
            nonzero[i] = std::any_of(source, source + count, [](float value) { return value != 0; });
            if (!nonzero[i]) continue;
            float* target = r + i * width;
            for (int64_t c = 0; c < count; ++c) {
                target[c] = (1 - alpha) * source[c];
                sums[c] += double(target[c]) * target[c];
            }
        }
    });
    for (int c = 0; c < width; ++c) states[c].start(rr[c]);
    const auto cg_update = [&](int64_t begin, int64_t end, double* sums) {
        simd.cg_update(begin, end, words, step.data(), beta.data(), p, ap, x, r, sums);
    };
    reduce_over_rows(S.n, team, 2 * width, updated_dots.data(), cg_update);  // a step of size 0 sets p = r

    auto any_active = [&] {
        return std::any_of(states.begin(), states.end(), [](const ColumnState& state) { return state.active; });
    };
    for (int iteration = 1; iteration <= stop.max_iter && any_active(); ++iteration) {
        nonzero.expand();
        reduce_over_rows(S.n, team, 2 * width, dots.data(), [&](int64_t begin, int64_t end, double* sums) {
            simd.cg_multiply(S, begin, end, nonzero.rows(), words, alpha, p, ap, sums);
        });
        for (int c = 0; c < width; ++c)
            states[c].choose_step_bf16(dots[c], updated_dots[width + c], dots[width + c], &step[c], &beta[c]);
        reduce_over_rows(S.n, team, 2 * width, updated_dots.data(), cg_update);
        for (int c = 0; c < width; ++c) states[c].update_residual(updated_dots[c], iteration, stop.tol);
    }
    for (int64_t i = 0; i < S.n; ++i)
        std::copy_n(x + i * width, count, f + int64_t(order ? order[i] : i) * columns + first);
    for (int64_t c = 0; c < count; ++c) {
        iterations[first + c] = states[c].iterations;
        residuals[first + c] = float(states[c].residual());
    }
}

// One column, with bitwise the same steps as in a block.
void solve_single(const Csr& S, const int32_t* order, const float* y, int64_t columns, int64_t column, float alpha,
                  StopRule stop, ThreadTeam& team, float* f, int32_t* iterations, float* residuals) {
    const Kernels& simd = kernels();
    const bool gather = gathers_fast();
    ThreadTeam alone(1);  // the updates are over before threads wake up
    std::vector<float> p(S.n), ap(S.n), r(S.n), x(S.n);
    ColumnState state;
    double dots[2], updated_dots[2];
    float step = 0, beta = 0;

    NonzeroRows nonzero(S);
    reduce_over_rows(S.n, alone, 1, updated_dots, [&](int64_t begin, int64_t end, double* sum) {
        for (int64_t i = begin; i < end; ++i) {
            r[i] = (1 - alpha) * y[int64_t(order ? order[i] : i) * columns + column];
            nonzero[i] = r[i] != 0;
            *sum += double(r[i]) * r[i];
        }
    });
    state.start(updated_dots[0]);
    const auto cg_update = [&](int64_t begin, int64_t end, double* sums) {
        simd.cg_update_single(begin, end, step, beta, p.data(), ap.data(), x.data(), r.data(), sums);
    };
    reduce_over_rows(S.n, alone, 2, updated_dots, cg_update);
    for (int iteration = 1; iteration <= stop.max_iter && state.active; ++iteration) {
        nonzero.expand();
        reduce_over_rows(S.n, team, 2, dots, [&](int64_t begin, int64_t end, double* sums) {
            simd.cg_multiply_single(S, begin, end, nonzero.rows(), gather, alpha, p.data(), ap.data(), sums);
        });
        state.choose_step_bf16(dots[0], updated_dots[1], dots[1], &step, &beta);
        reduce_over_rows(S.n, alone, 2, updated_dots, cg_update);
        state.update_residual(updated_dots[0], iteration, stop.tol);
    }
    for (int64_t i = 0; i < S.n; ++i) f[int64_t(order ? order[i] : i) * columns + column] = x[i];
    iterations[column] = state.iterations;
    residuals[column] = float(state.residual());
}

// Up to FLOAT64_MAX_COLUMNS columns in float64.
void solve_block_float64(const Csr& S, const int32_t* order, const float* y, int64_t columns, int64_t first,
                         int64_t count, double alpha, StopRule stop, ThreadTeam& team, float* f, int32_t* iterations,
                         float* residuals) {
    const int width = count == 1 ? 1 : int((count + 7) / 8 * 8);
    const Kernels& simd = kernels();
    const bool gather = gathers_fast();
    ZeroedArray<double> p(size_t(S.n) * width), r(size_t(S.n) * width), x(size_t(S.n) * width), ap(size_t(S.n) * width);
    std::vector<ColumnState> states(width);
    std::vector<double> rr(width), pap(width), step(width), beta(width);

    NonzeroRows nonzero(S);
    reduce_over_rows(S.n, team, width, rr.data(), [&](int64_t begin, int64_t end, double* sums) {
        for (int64_t i = begin; i < end; ++i) {
            const float* source = y + int64_t(order ? order[i] : i) * columns + first;
            nonzero[i] = std::any_of(source, source + count, [](float value) { return value != 0; });
            for (int64_t c = 0; c < count && nonzero[i]; ++c) {
                const double b = p[i * width + c] = r[i * width + c] = (1 - alpha) * source[c];
                sums[c] += b * b;
            }
        }
    });
    for (int c = 0; c < width; ++c) states[c].start(rr[c]);
    auto any_active = [&] {
        return std::any_of(states.begin(), states.end(), [](const ColumnState& state) { return state.active; });
    };
    for (int iteration = 1; iteration <= stop.max_iter && any_active(); ++iteration) {
        check_interrupt();
        nonzero.expand();
        reduce_over_rows(S.n, team, width, pap.data(), [&](int64_t begin, int64_t end, double* sums) {
            simd.cg_multiply_double(S, begin, end, nonzero.rows(), gather, width, alpha, p, ap, sums);
        });
        for (int c = 0; c < width; ++c) step[c] = states[c].active && pap[c] > 0 ? states[c].rr / pap[c] : 0;
        reduce_over_rows(S.n, team, width, rr.data(), [&](int64_t begin, int64_t end, double* sums) {
            simd.cg_update_residual_double(begin, end, width, step.data(), ap, r, sums);
        });
        for (int c = 0; c < width; ++c) {
            beta[c] = states[c].active ? rr[c] / states[c].rr : 0;
            states[c].update_residual(rr[c], iteration, stop.tol);
        }
        reduce_over_rows(S.n, team, 0, nullptr, [&](int64_t begin, int64_t end, double*) {
            simd.cg_update_direction_double(begin, end, width, step.data(), beta.data(), r, p, x);
        });
    }
    for (int64_t i = 0; i < S.n; ++i)
        for (int64_t c = 0; c < count; ++c)
            f[int64_t(order ? order[i] : i) * columns + first + c] = float(x[i * width + c]);
    for (int64_t c = 0; c < count; ++c) {
        iterations[first + c] = states[c].iterations;
        residuals[first + c] = float(states[c].residual());
    }
}

}  // namespace

void use_gather(std::optional<bool> choice) { gather_choice = !choice ? MEASURED : *choice ? ALWAYS : NEVER; }

void solve(const Csr& S, const int32_t* order, const float* y, int64_t columns, double alpha, StopRule stop,
           bool use_float64, int threads, float* f, int32_t* iterations, float* residuals) {
    if (use_float64) {
        // With few rows, threads share the columns: no thread waits for another.
        const bool is_small = S.n < SINGLE_THREAD_MAX_ROWS;
        const int64_t max_columns = std::max<int64_t>(1, FLOAT64_BLOCK_ENTRIES / std::max<int64_t>(1, S.n));
        const int64_t columns_per_thread = is_small ? (columns + threads - 1) / threads : columns;
        const int64_t width = std::clamp<int64_t>(std::min((columns_per_thread + 7) / 8 * 8, max_columns / 8 * 8), 8,
                                                  FLOAT64_MAX_COLUMNS);
        ThreadTeam over_columns(is_small ? threads : 1);
        over_columns.run((columns + width - 1) / width, [&](int64_t block, int) {
            const int64_t first = block * width, count = std::min(width, columns - first);
            ThreadTeam over_rows(is_small ? 1 : threads);
            solve_block_float64(S, order, y, columns, first, count, alpha, stop, over_rows, f, iterations, residuals);
        });
        return;
    }
    ThreadTeam team(S.n < SINGLE_THREAD_MAX_ROWS ? 1 : threads);
    for (int64_t first = 0; first < columns;) {
        const int64_t n_left = columns - first;
        if (n_left <= MAX_SINGLE_COLUMNS) {
            solve_single(S, order, y, columns, first, float(alpha), stop, team, f, iterations, residuals);
            ++first;
            continue;
        }
        const int words = n_left > 2 * NARROW_WORDS && S.n <= NARROW_MIN_ROWS ? WIDE_WORDS : NARROW_WORDS;
        const int64_t count = std::min<int64_t>(n_left, 2 * words);
        solve_block(S, order, y, columns, first, count, words, float(alpha), stop, team, f, iterations, residuals);
        first += count;
    }
}

void breadth_first(const Csr& S, int32_t* order) {
    std::vector<bool> seen(S.n, false);
    int64_t placed = 0;
    for (int64_t root = 0, done = 0; root < S.n; ++root) {
        if (root % 1024 == 0) check_interrupt();
        if (seen[root]) continue;
        seen[root] = true;
        order[placed++] = int32_t(root);
        for (; done < placed; ++done) {
            if (done % 1024 == 0) check_interrupt();
            for (int64_t e = S.starts[order[done]]; e < S.starts[order[done] + 1]; ++e)
                if (!seen[S.columns[e]]) {
                    seen[S.columns[e]] = true;
                    order[placed++] = S.columns[e];
                }
        }
    }
}

OrderedMatrix::OrderedMatrix(const Csr& S, int threads)
    : order_(S.n), starts_(S.n + 1), columns_(S.starts[S.n]), values_(S.starts[S.n]) {
    breadth_first(S, order_.data());
    reorder(S, order_.data(), threads, starts_.data(), columns_.data(), values_.data());
}

}  // namespace manifind
