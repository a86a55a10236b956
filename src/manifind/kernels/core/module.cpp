// What Python sees. Arguments are checked here, once; the work runs without the interpreter's lock.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "agreement.h"
#include "bits.h"
#include "descent.h"
#include "graph.h"
#include "local.h"
#include "loops.h"
#include "neighbours.h"
#include "parallel.h"
#include "queries.h"
#include "sift.h"
#include "solve.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace manifind {
namespace {

template <class T, int dimensions>
using Array = nb::ndarray<T, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;

std::vector<const Loops*> levels() {
    std::vector<const Loops*> found;
#ifdef MANIFIND_HAS_avx512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        found.push_back(&loops_avx512);
#endif
#ifdef MANIFIND_HAS_avx2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        found.push_back(&loops_avx2);
#endif
    found.push_back(&loops_portable);
    return found;
}

std::atomic<const Loops*> chosen{nullptr};

void demand(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

// While it lives the interpreter's lock is free for others. Signals are looked at now and then by the thread that made
// the call; where a handler raised, Ctrl-C say, the work ends by `Interrupted` and the error is there for Python.
class Working {
   public:
    Working() : before_(ask) {
        next_ = Clock::now() + EVERY;
        ask = [] {
            if (Clock::now() < next_) return;
            const nb::gil_scoped_acquire held;
            if (PyErr_CheckSignals()) throw Interrupted();
            next_ = Clock::now() + EVERY;
        };
    }
    ~Working() { ask = before_; }
    Working(const Working&) = delete;

   private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds EVERY{50};
    static thread_local Clock::time_point next_;
    void (*before_)();
    const nb::gil_scoped_release release_;
};

thread_local Working::Clock::time_point Working::next_;

// A sparse symmetric matrix whose arrays were checked; it keeps them alive and must not see them change.
class Matrix {
   public:
    Matrix(Array<const int64_t, 1> starts, Array<const int32_t, 1> columns, Array<const float, 1> values)
        : starts_(starts), columns_(columns), values_(values) {
        demand(starts.size() >= 1 && starts.size() <= (size_t(1) << 31), "starts is empty, or has too many rows");
        csr = {int64_t(starts.size()) - 1, starts.data(), columns.data(), values.data()};
        const int64_t entries = int64_t(columns.size());
        demand(values.size() == columns.size(), "columns and values differ in length");
        demand(starts.data()[0] == 0 && starts.data()[csr.n] == entries, "starts does not span the entries");
        const Working working;
        for (int64_t i = 0; i < csr.n; ++i) demand(csr.starts[i] <= csr.starts[i + 1], "starts is not ascending");
        bool inside = true;
        constexpr int64_t MANY = 1 << 20;
        for (int64_t begin = 0; begin < entries; begin += MANY) {
            pulse();
            for (int64_t e = begin; e < std::min(entries, begin + MANY); ++e)
                inside &= csr.columns[e] >= 0 && csr.columns[e] < csr.n;
        }
        demand(inside, "columns has entries outside the matrix");
    }
    Csr csr;

   private:
    Array<const int64_t, 1> starts_;
    Array<const int32_t, 1> columns_;
    Array<const float, 1> values_;
};

void check_stop(double alpha, int max_iter, int threads) {
    demand(alpha > 0 && alpha < 1, "alpha is not in (0, 1)");
    demand(max_iter >= 0, "max_iter is negative");
    demand(threads >= 1, "threads is less than 1");
}

void check_order(const int32_t* order, size_t size, int64_t n) {
    demand(int64_t(size) == n, "order has not as many entries as S has rows");
    std::vector<bool> seen(n, false);
    for (int64_t i = 0; i < n; ++i) {
        demand(order[i] >= 0 && order[i] < n && !seen[order[i]], "order is not a permutation");
        seen[order[i]] = true;
    }
}

void check_rows(const Array<const int32_t, 1>& rows, int64_t n) {
    for (size_t i = 0; i < rows.size(); ++i) {
        const int32_t row = rows.data()[i];
        demand(row >= 0 && row < n && (i == 0 || rows.data()[i - 1] < row), "rows are not ascending rows of S");
    }
}

void solve_(const Matrix& S, std::optional<Array<const int32_t, 1>> order, Array<const float, 2> y, double alpha,
            int max_iter, double tol, int threads, Array<float, 2> f, Array<int32_t, 1> iterations,
            Array<float, 1> residuals, bool precise) {
    const int64_t n = S.csr.n, columns = int64_t(y.shape(1));
    demand(int64_t(y.shape(0)) == n, "y has not as many rows as S");
    demand(f.shape(0) == y.shape(0) && f.shape(1) == y.shape(1), "f is not of the shape of y");
    demand(int64_t(iterations.size()) == columns && int64_t(residuals.size()) == columns,
           "iterations and residuals do not have an entry for each column");
    check_stop(alpha, max_iter, threads);
    if (order) check_order(order->data(), order->size(), n);
    const Working working;
    solve(S.csr, order ? order->data() : nullptr, y.data(), columns, alpha, {max_iter, tol}, precise, threads,
          f.data(), iterations.data(), residuals.data());
}

int64_t divide_(const Matrix& S, int64_t size, int64_t most, Array<int32_t, 1> part) {
    demand(int64_t(part.size()) == S.csr.n, "part has not as many entries as S has rows");
    demand(size >= 1 && most >= size, "size is less than 1, or more than most");
    const Working working;
    return divide(S.csr, size, most, part.data());
}

// Keeps what it works on alive; one call at a time.
class LocalSolver {
   public:
    LocalSolver(const Matrix& S, Array<const int32_t, 1> order, Array<const int64_t, 1> starts,
                Array<const float, 1> root, const Matrix& flow)
        : order_(order), starts_(starts), root_(root), n_(S.csr.n) {
        const int64_t parts = flow.csr.n;
        check_order(order.data(), order.size(), n_);
        demand(int64_t(root.size()) == n_, "root does not have an entry for each row of S");
        demand(int64_t(starts.size()) == parts + 1 && starts.data()[0] == 0 && starts.data()[parts] == n_,
               "starts does not span the parts");
        for (int64_t c = 0; c < parts; ++c) demand(starts.data()[c] <= starts.data()[c + 1], "starts is not ascending");
        local_ = std::make_unique<Local>(Parts{S.csr, order.data(), starts.data(), root.data(), flow.csr});
    }
    nb::tuple solve(Array<const int32_t, 1> rows, Array<const float, 1> values, double alpha, int max_iter, double tol,
                    int64_t budget, int64_t most, int first, Array<float, 1> f) {
        demand(rows.size() == values.size(), "rows and values differ in length");
        demand(int64_t(f.size()) == n_, "f does not have an entry for each row of S");
        demand(budget >= 1 && most >= 1 && first >= 0, "budget or most is less than 1, or first than 0");
        check_stop(alpha, max_iter, 1);
        check_rows(rows, n_);
        Reach reach;
        {
            const Working working;
            const std::lock_guard<std::mutex> held(guard_);
            reach = local_->solve(rows.data(), values.data(), int64_t(rows.size()), float(alpha), {max_iter, tol},
                                  budget, most, first, f.data());
        }
        return nb::make_tuple(reach.iterations, reach.residual, reach.regions);
    }

   private:
    Array<const int32_t, 1> order_;
    Array<const int64_t, 1> starts_;
    Array<const float, 1> root_;
    int64_t n_;
    std::unique_ptr<Local> local_;
    std::mutex guard_;
};

void breadth_first_(const Matrix& S, Array<int32_t, 1> order) {
    demand(int64_t(order.size()) == S.csr.n, "order has not as many entries as S has rows");
    const Working working;
    breadth_first(S.csr, order.data());
}

void reorder_(const Matrix& S, Array<const int32_t, 1> order, int threads, Array<int64_t, 1> starts,
              Array<int32_t, 1> columns, Array<float, 1> values) {
    demand(threads >= 1, "threads is less than 1");
    check_order(order.data(), order.size(), S.csr.n);
    const size_t entries = size_t(S.csr.starts[S.csr.n]);
    demand(int64_t(starts.size()) == S.csr.n + 1 && columns.size() == entries && values.size() == entries,
           "starts, columns and values are not of the sizes of those of S");
    const Working working;
    reorder(S.csr, order.data(), threads, starts.data(), columns.data(), values.data());
}

// Vectors in single or half precision.
using AnyRows = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Rows rows_of(const AnyRows& vectors) {
    const bool half = vectors.dtype() == nb::dlpack::dtype{uint8_t(nb::dlpack::dtype_code::Float), 16, 1};
    demand(half || vectors.dtype() == nb::dtype<float>(), "vectors is not of float32 or float16");
    demand(vectors.shape(0) >= 1 && vectors.shape(0) < (size_t(1) << 31), "vectors has no rows, or too many");
    demand(vectors.shape(1) >= 1 && vectors.shape(1) < (size_t(1) << 27), "vectors has no columns, or too many");
    return {vectors.data(), int64_t(vectors.shape(0)), int64_t(vectors.shape(1)), half};
}

// A search that fills lists step by step; it keeps the arrays that it works on alive.
template <class Search>
class Stepwise {
   public:
    int64_t step() {
        const Working working;
        const std::lock_guard<std::mutex> held(guard_);
        demand(!ended_, "the search was interrupted; begin a new one");
        ended_ = true;  // unless the step is done to its end
        const int64_t done = search_->step();
        ended_ = false;
        return done;
    }

   protected:
    Stepwise(AnyRows vectors, int threads, Array<int32_t, 2> ids, Array<float, 2> similarities)
        : rows_(rows_of(vectors)), k_(int64_t(ids.shape(1))), vectors_(vectors), ids_(ids), similarities_(similarities) {
        demand(k_ >= 1 && k_ < rows_.n, "k is not between 1 and the number of other rows");
        demand(int64_t(ids.shape(0)) == rows_.n && similarities.shape(0) == ids.shape(0) &&
                   similarities.shape(1) == ids.shape(1),
               "ids and similarities do not have a row for each of vectors");
        demand(threads >= 1, "threads is less than 1");
    }
    const Rows rows_;
    const int64_t k_;
    std::unique_ptr<Search> search_;

   private:
    AnyRows vectors_;
    Array<int32_t, 2> ids_;
    Array<float, 2> similarities_;
    std::mutex guard_;
    bool ended_ = false;
};

class NeighbourSearch : public Stepwise<Neighbours> {
   public:
    NeighbourSearch(AnyRows vectors, int64_t memory, int threads, Array<int32_t, 2> ids, Array<float, 2> similarities)
        : Stepwise(vectors, threads, ids, similarities) {
        demand(memory >= 0, "memory is negative");
        const Working working;
        search_ = std::make_unique<Neighbours>(rows_, k_, memory, threads, ids.data(), similarities.data());
    }
    int64_t searched_again() const { return search_->searched_again(); }
};

class NeighbourDescent : public Stepwise<Descent> {
   public:
    NeighbourDescent(AnyRows vectors, uint64_t seed, int threads, Array<int32_t, 2> ids, Array<float, 2> similarities)
        : Stepwise(vectors, threads, ids, similarities) {
        const Working working;
        search_ = std::make_unique<Descent>(rows_, k_, seed, threads, ids.data(), similarities.data());
    }
};

using MaybeRows = std::optional<Array<const int32_t, 1>>;

void search_rows(const Compressed& compressed, const Rows& vectors, const Array<const float, 2>& queries,
                 const MaybeRows& rows, int64_t memory, int threads, const Array<int32_t, 2>& ids,
                 const Array<float, 2>& similarities) {
    const int64_t k = int64_t(ids.shape(1)), count = rows ? int64_t(rows->size()) : vectors.n;
    demand(int64_t(queries.shape(1)) == vectors.d, "queries and vectors differ in their columns");
    if (rows) check_rows(*rows, vectors.n);
    demand(k >= 1 && k <= count, "k is not between 1 and the number of rows");
    demand(ids.shape(0) == queries.shape(0) && similarities.shape(0) == queries.shape(0) &&
               similarities.shape(1) == ids.shape(1),
           "ids and similarities do not have a row for each query");
    demand(memory >= 0, "memory is negative");
    demand(threads >= 1, "threads is less than 1");
    const Working working;
    compressed.search(vectors, queries.data(), int64_t(queries.shape(0)), rows ? rows->data() : nullptr, count, k, memory,
                      threads, ids.data(), similarities.data());
}

class CompressedRows {
   public:
    CompressedRows(AnyRows vectors, int threads) {
        demand(threads >= 1, "threads is less than 1");
        const Rows rows = rows_of(vectors);
        const Working working;
        rows_ = std::make_unique<Compressed>(rows, true, threads);
    }
    void search(AnyRows vectors, Array<const float, 2> queries, MaybeRows rows, int64_t memory, int threads,
                Array<int32_t, 2> ids, Array<float, 2> similarities) const {
        const Rows all = rows_of(vectors);
        demand(all.n == rows_->n && all.d == rows_->d, "vectors are not those that were compressed");
        search_rows(*rows_, all, queries, rows, memory, threads, ids, similarities);
    }

   private:
    std::unique_ptr<Compressed> rows_;
};

void nearest_(AnyRows vectors, Array<const float, 2> queries, MaybeRows rows, int64_t memory, int threads,
              Array<int32_t, 2> ids, Array<float, 2> similarities) {
    const Rows all = rows_of(vectors);
    search_rows(Compressed(all, false, 1), all, queries, rows, memory, threads, ids, similarities);
}

// Hands a vector over to NumPy without copying.
template <class T>
auto handed(std::vector<T> vector) {
    auto* kept = new std::vector<T>(std::move(vector));
    nb::capsule owner(kept, [](void* one) noexcept { delete static_cast<std::vector<T>*>(one); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner);
}

template <class T>
auto handed(Buffer<T> buffer) {
    const size_t size = size_t(buffer.size());
    T* kept = buffer.release();
    nb::capsule owner(kept, [](void* one) noexcept { std::free(one); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept, {size}, owner);
}

// Rows may lie apart, as those of lists that were cut shorter do.
template <class T>
using Strided = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

nb::tuple mutual_affinity_(Strided<const int32_t> ids, Strided<const float> similarities, double gamma, double slack,
                           bool normalised, int threads) {
    const int64_t n = int64_t(ids.shape(0)), width = int64_t(ids.shape(1));
    demand(n < (int64_t(1) << 31), "ids has more rows than int32 can number");
    demand(similarities.shape(0) == ids.shape(0) && similarities.shape(1) == ids.shape(1),
           "similarities is not of the shape of ids");
    demand(width < 2 || (ids.stride(1) == 1 && similarities.stride(1) == 1), "the entries of a list lie apart");
    demand(gamma > 0, "gamma is not positive");
    demand(slack >= 0, "slack is negative");
    demand(threads >= 1, "threads is less than 1");
    Affinity affinity;
    {
        const Working working;
        affinity = mutual_affinity({n, width, ids.data(), ids.stride(0), similarities.data(), similarities.stride(0)},
                                   float(gamma), float(slack), normalised, threads);
    }
    return nb::make_tuple(handed(std::move(affinity.starts)), handed(std::move(affinity.columns)),
                          handed(std::move(affinity.values)), handed(std::move(affinity.degrees)));
}

nb::tuple restrict_(const Matrix& S, Array<const float, 1> degrees, Array<const int32_t, 1> rows, int threads) {
    demand(int64_t(degrees.size()) == S.csr.n, "degrees does not have an entry for each row of S");
    demand(threads >= 1, "threads is less than 1");
    check_rows(rows, S.csr.n);
    Part part;
    {
        const Working working;
        part = restrict_to(S.csr, degrees.data(), rows.data(), int64_t(rows.size()), threads);
    }
    return nb::make_tuple(handed(std::move(part.starts)), handed(std::move(part.columns)),
                          handed(std::move(part.values)));
}

template <class T>
auto table(std::vector<T> vector, size_t columns) {
    auto* kept = new std::vector<T>(std::move(vector));
    nb::capsule owner(kept, [](void* one) noexcept { delete static_cast<std::vector<T>*>(one); });
    return nb::ndarray<nb::numpy, T, nb::ndim<2>>(kept->data(), {kept->size() / columns, columns}, owner);
}

constexpr int64_t LARGEST_SIDE = 1 << 14;

class LocalFeatures {
   public:
    LocalFeatures(Array<const uint8_t, 2> grey, bool doubled, double contrast) {
        const int64_t height = int64_t(grey.shape(0)), width = int64_t(grey.shape(1));
        demand(height >= 1 && width >= 1, "grey has no pixels");
        demand(contrast > 0, "contrast is not positive");
        demand(height <= LARGEST_SIDE && width <= LARGEST_SIDE, "grey is too large; reduce it");
        const Working working;
        sift_ = std::make_unique<Sift>(grey.data(), height, width, doubled, float(contrast));
    }
    auto points() const {
        std::vector<float> rows;
        rows.reserve(4 * sift_->points().size());
        for (const Sift::Point& one : sift_->points()) rows.insert(rows.end(), {one.x, one.y, one.size, one.response});
        return table(std::move(rows), 4);
    }
    nb::tuple describe(Array<const int32_t, 1> chosen) const {
        for (size_t i = 0; i < chosen.size(); ++i)
            demand(chosen.data()[i] >= 0 && size_t(chosen.data()[i]) < sift_->points().size(), "chosen has no such point");
        Sift::Described found;
        {
            const Working working;
            found = sift_->describe(chosen.data(), int64_t(chosen.size()));
        }
        return nb::make_tuple(handed(std::move(found.of)), handed(std::move(found.angles)),
                              table(std::move(found.descriptors), size_t(Sift::DIMENSION)));
    }

   private:
    std::unique_ptr<Sift> sift_;
};

// Rows of `pairs` are x and y in the query and in the photo, and, where there are six columns, how much larger the pair is
// in the photo, as a logarithm, and how far turned. Rows of `guesses` are the real and the imaginary part of a factor.
nb::object agreement_(Array<const double, 2> pairs, Array<const int64_t, 1> anchors, Array<const double, 2> guesses,
                      std::array<double, 4> box, std::array<double, 2> tolerances, double loose, double turned,
                      double scaled, int refined, int homography, int rounds, double stretch, double enlarged,
                      int least) {
    const int64_t m = int64_t(pairs.shape(0)), columns = int64_t(pairs.shape(1));
    demand(columns == 4 || columns == 6, "pairs have neither 4 columns nor 6");
    demand(m < (int64_t(1) << 31), "there are more pairs than int32 can number");
    demand(guesses.shape(1) == 2 && guesses.shape(0) == anchors.size(), "guesses has not two numbers for each anchor");
    for (size_t i = 0; i < pairs.size(); ++i) demand(std::isfinite(pairs.data()[i]), "pairs has NaN or infinity");
    for (size_t i = 0; i < anchors.size(); ++i)
        demand(anchors.data()[i] >= 0 && anchors.data()[i] < m, "anchors has no such pair");
    Agreement found;
    {
        const Working working;
        Pairs given;
        for (int64_t i = 0; i < m; ++i) {
            const double* row = pairs.data() + i * columns;
            given.a.push_back({row[0], row[1]});
            given.b.push_back({row[2], row[3]});
            if (columns == 6) given.scales.push_back(row[4]), given.turns.push_back(row[5]);
        }
        std::vector<Guess> guessed;
        for (size_t i = 0; i < anchors.size(); ++i)
            guessed.push_back({int32_t(anchors.data()[i]), guesses.data()[2 * i], guesses.data()[2 * i + 1]});
        found = agreement(given, guessed,
                          {{box[0], box[1], box[2], box[3]}, {tolerances[0], tolerances[1]}, loose, turned, scaled,
                           refined, homography, rounds, stretch, enlarged, least});
    }
    if (!found.distinct) return nb::none();
    return nb::make_tuple(table(std::vector<double>(found.map.begin(), found.map.end()), 3),
                          handed(std::move(found.inliers)), found.distinct);
}

nb::tuple nearest_bits_(Array<const uint8_t, 2> queries, Array<const uint8_t, 2> rows, int64_t k, int threads) {
    constexpr size_t WIDTH = 8 * CODE_WORDS;
    demand(queries.shape(1) == WIDTH && rows.shape(1) == WIDTH, "rows and queries have not 32 bytes");
    const int64_t m = int64_t(queries.shape(0)), n = int64_t(rows.shape(0));
    demand(n < (int64_t(1) << 31), "there are more rows than int32 can number");
    demand(k >= 1 && k <= n, "k is not between 1 and the number of rows");
    demand(threads >= 1, "threads is below 1");
    std::vector<int32_t> ids(size_t(m * k)), apart(size_t(m * k));
    {
        const Working working;
        nearest_bits(queries.data(), m, rows.data(), n, k, threads, ids.data(), apart.data());
    }
    return nb::make_tuple(table(std::move(ids), size_t(k)), table(std::move(apart), size_t(k)));
}

}  // namespace

const Loops& loops() {
    const Loops* level = chosen.load();
    if (!level) chosen = level = levels().front();
    return *level;
}

}  // namespace manifind

NB_MODULE(_core, m) {
#ifdef NDEBUG
    // What a program still holds when it ends is freed with it: no reason to frighten its user.
    nb::set_leak_warnings(false);
#endif
    using namespace manifind;
    nb::register_exception_translator([](const std::exception_ptr& one, void*) {
        try {
            std::rethrow_exception(one);
        } catch (const Interrupted&) {  // the error of the handler is set
        }
    });
    m.def("level", [] { return loops().name; });
    m.def("low_precision", [] { return loops().low_precision; });
    m.def("levels", [] {
        nb::list names;
        for (const Loops* one : levels()) names.append(one->name);
        return names;
    });
    m.def(
        "use_level",
        [](const std::string& name) {
            for (const Loops* one : levels())
                if (name == one->name) {
                    chosen = one;
                    return;
                }
            throw std::invalid_argument("this machine cannot run that level");
        },
        "name"_a);
    nb::class_<Matrix>(m, "Matrix")
        .def(nb::init<Array<const int64_t, 1>, Array<const int32_t, 1>, Array<const float, 1>>(),
             "starts"_a.noconvert(), "columns"_a.noconvert(), "values"_a.noconvert());
    nb::class_<LocalSolver>(m, "LocalSolver")
        .def(nb::init<const Matrix&, Array<const int32_t, 1>, Array<const int64_t, 1>, Array<const float, 1>,
                      const Matrix&>(),
             "S"_a, "order"_a.noconvert(), "starts"_a.noconvert(), "root"_a.noconvert(), "flow"_a,
             nb::keep_alive<1, 2>(), nb::keep_alive<1, 6>())
        .def("solve", &LocalSolver::solve, "rows"_a.noconvert(), "values"_a.noconvert(), "alpha"_a, "max_iter"_a,
             "tol"_a, "budget"_a, "most"_a, "first"_a, "f"_a.noconvert());
    nb::class_<NeighbourSearch>(m, "NeighbourSearch")
        .def(nb::init<AnyRows, int64_t, int, Array<int32_t, 2>, Array<float, 2>>(), "vectors"_a.noconvert(), "memory"_a,
             "threads"_a, "ids"_a.noconvert(), "similarities"_a.noconvert())
        .def("step", &NeighbourSearch::step)
        .def_prop_ro("searched_again", &NeighbourSearch::searched_again);
    nb::class_<NeighbourDescent>(m, "NeighbourDescent")
        .def(nb::init<AnyRows, uint64_t, int, Array<int32_t, 2>, Array<float, 2>>(), "vectors"_a.noconvert(), "seed"_a,
             "threads"_a, "ids"_a.noconvert(), "similarities"_a.noconvert())
        .def("step", &NeighbourDescent::step);
    nb::class_<CompressedRows>(m, "CompressedRows")
        .def(nb::init<AnyRows, int>(), "vectors"_a.noconvert(), "threads"_a)
        .def("search", &CompressedRows::search, "vectors"_a.noconvert(), "queries"_a.noconvert(),
             "rows"_a.none().noconvert(), "memory"_a, "threads"_a, "ids"_a.noconvert(), "similarities"_a.noconvert());
    m.def("nearest", nearest_, "vectors"_a.noconvert(), "queries"_a.noconvert(), "rows"_a.none().noconvert(),
          "memory"_a, "threads"_a, "ids"_a.noconvert(), "similarities"_a.noconvert());
    m.def("solve", solve_, "S"_a, "order"_a.none().noconvert(), "y"_a.noconvert(), "alpha"_a, "max_iter"_a, "tol"_a,
          "threads"_a, "f"_a.noconvert(), "iterations"_a.noconvert(), "residuals"_a.noconvert(),
          "precise"_a = false);
    m.def("divide", divide_, "S"_a, "size"_a, "most"_a, "part"_a.noconvert());
    m.def("mutual_affinity", mutual_affinity_, "ids"_a.noconvert(), "similarities"_a.noconvert(), "gamma"_a, "slack"_a,
          "normalised"_a, "threads"_a);
    m.def("reorder", reorder_, "S"_a, "order"_a.noconvert(), "threads"_a, "starts"_a.noconvert(), "columns"_a.noconvert(),
          "values"_a.noconvert());
    m.def("restrict", restrict_, "S"_a, "degrees"_a.noconvert(), "rows"_a.noconvert(), "threads"_a);
    nb::class_<LocalFeatures>(m, "LocalFeatures")
        .def(nb::init<Array<const uint8_t, 2>, bool, double>(), "grey"_a.noconvert(), "doubled"_a, "contrast"_a)
        .def("points", &LocalFeatures::points)
        .def("describe", &LocalFeatures::describe, "chosen"_a.noconvert());
    m.def("agreement", agreement_, "pairs"_a.noconvert(), "anchors"_a.noconvert(), "guesses"_a.noconvert(), "box"_a,
          "tolerances"_a, "loose"_a, "turned"_a, "scaled"_a, "refined"_a, "homography"_a, "rounds"_a, "stretch"_a,
          "enlarged"_a, "least"_a);
    m.def("counts_bits", counts_bits);
    m.def("nearest_bits", nearest_bits_, "queries"_a.noconvert(), "rows"_a.noconvert(), "k"_a, "threads"_a);
    m.def("breadth_first", breadth_first_, "S"_a, "order"_a.noconvert());
}
