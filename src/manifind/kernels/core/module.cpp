// The Python module _core: nearest neighbours, graphs and diffusion. Arguments are checked here, once.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "binding.h"
#include "cg_solver.h"
#include "kernels.h"
#include "nn_descent.h"
#include "parallel.h"
#include "quantized_matrix.h"
#include "self_join.h"
#include "simd_levels.h"
#include "sparse_graph.h"
#include "two_level_solver.h"

using namespace nanobind::literals;

namespace manifind {
namespace {

std::vector<const Kernels*> available() {
    std::vector<const Kernels*> tables;
#ifdef MANIFIND_HAS_avx512
    if (runs_avx512()) tables.push_back(&kernels_avx512);
#endif
#ifdef MANIFIND_HAS_avx2
    if (runs_avx2()) tables.push_back(&kernels_avx2);
#endif
    tables.push_back(&kernels_portable);
    return tables;
}

SimdLevels<Kernels> levels{available};

// A checked sparse symmetric matrix. It keeps its arrays alive; they must not change.
class Matrix {
   public:
    Matrix(Array<const int64_t, 1> starts, Array<const int32_t, 1> columns, Array<const float, 1> values)
        : starts_(starts), columns_(columns), values_(values) {
        require(starts.size() >= 1 && starts.size() <= (size_t(1) << 31), "starts is empty, or has too many rows");
        csr = {int64_t(starts.size()) - 1, starts.data(), columns.data(), values.data()};
        const int64_t entries = int64_t(columns.size());
        require(values.size() == columns.size(), "columns and values differ in length");
        require(starts.data()[0] == 0 && starts.data()[csr.n] == entries, "starts does not span the entries");
        const GilRelease released;
        for (int64_t i = 0; i < csr.n; ++i) require(csr.starts[i] <= csr.starts[i + 1], "starts is not ascending");
        bool inside = true;
        constexpr int64_t CHUNK = 1 << 20;
        for (int64_t begin = 0; begin < entries; begin += CHUNK) {
            check_interrupt();
            for (int64_t e = begin; e < std::min(entries, begin + CHUNK); ++e)
                inside &= csr.columns[e] >= 0 && csr.columns[e] < csr.n;
        }
        require(inside, "columns has entries outside the matrix");
    }
    Csr csr;

   private:
    Array<const int64_t, 1> starts_;
    Array<const int32_t, 1> columns_;
    Array<const float, 1> values_;
};

void check_stop_rule(double alpha, int max_iter, int threads) {
    require(alpha > 0 && alpha < 1, "alpha is not in (0, 1)");
    require(max_iter >= 0, "max_iter is negative");
    require(threads >= 1, "threads is less than 1");
}

void check_order(const int32_t* order, size_t size, int64_t n) {
    require(int64_t(size) == n, "order has not as many entries as S has rows");
    std::vector<bool> seen(n, false);
    for (int64_t i = 0; i < n; ++i) {
        require(order[i] >= 0 && order[i] < n && !seen[order[i]], "order is not a permutation");
        seen[order[i]] = true;
    }
}

void check_rows(const Array<const int32_t, 1>& rows, int64_t n) {
    for (size_t i = 0; i < rows.size(); ++i) {
        const int32_t row = rows.data()[i];
        require(row >= 0 && row < n && (i == 0 || rows.data()[i - 1] < row), "rows are not ascending rows of S");
    }
}

Csr csr_of(const Matrix& S) { return S.csr; }
Csr csr_of(const OrderedMatrix& S) { return S.csr(); }
const int32_t* order_of(const Matrix&) { return nullptr; }
const int32_t* order_of(const OrderedMatrix& S) { return S.order(); }

template <class AnyMatrix>
void solve_(const AnyMatrix& S, Array<const float, 2> y, double alpha, int max_iter, double tol, int threads,
            Array<float, 2> f, Array<int32_t, 1> iterations, Array<float, 1> residuals, bool use_float64) {
    const Csr csr = csr_of(S);
    const int64_t columns = int64_t(y.shape(1));
    require(int64_t(y.shape(0)) == csr.n, "y has not as many rows as S");
    require(f.shape(0) == y.shape(0) && f.shape(1) == y.shape(1), "f is not of the shape of y");
    require(int64_t(iterations.size()) == columns && int64_t(residuals.size()) == columns,
            "iterations and residuals do not have an entry for each column");
    require(!(use_float64 && order_of(S)), "an ordered matrix is for float32");
    check_stop_rule(alpha, max_iter, threads);
    const GilRelease released;
    solve(csr, order_of(S), y.data(), columns, alpha, {max_iter, tol}, use_float64, threads, f.data(),
          iterations.data(), residuals.data());
}

template <class AnyMatrix>
void def_solve(nb::module_& m) {
    m.def("solve", solve_<AnyMatrix>, "S"_a, "y"_a.noconvert(), "alpha"_a, "max_iter"_a, "tol"_a, "threads"_a,
          "f"_a.noconvert(), "iterations"_a.noconvert(), "residuals"_a.noconvert(), "use_float64"_a = false);
}

int64_t aggregate_(const Matrix& S, int64_t target_size, int64_t max_size, Array<int32_t, 1> aggregate_of) {
    require(int64_t(aggregate_of.size()) == S.csr.n, "aggregate_of has not as many entries as S has rows");
    require(target_size >= 1 && max_size >= target_size, "target_size is less than 1, or more than max_size");
    const GilRelease released;
    return aggregate(S.csr, target_size, max_size, aggregate_of.data());
}

// Keeps its arrays alive; one call at a time.
class PyTwoLevelSolver {
   public:
    PyTwoLevelSolver(const Matrix& S, Array<const int32_t, 1> order, Array<const int64_t, 1> starts,
                     Array<const float, 1> root, const Matrix& coarse_matrix)
        : order_(order), starts_(starts), root_(root), n_(S.csr.n) {
        const int64_t n_aggregates = coarse_matrix.csr.n;
        check_order(order.data(), order.size(), n_);
        require(int64_t(root.size()) == n_, "root does not have an entry for each row of S");
        require(
            int64_t(starts.size()) == n_aggregates + 1 && starts.data()[0] == 0 && starts.data()[n_aggregates] == n_,
            "starts does not span the aggregates");
        for (int64_t c = 0; c < n_aggregates; ++c)
            require(starts.data()[c] <= starts.data()[c + 1], "starts is not ascending");
        solver_ = std::make_unique<TwoLevelSolver>(
            Aggregates{S.csr, order.data(), starts.data(), root.data(), coarse_matrix.csr});
    }
    nb::tuple solve(Array<const int32_t, 1> rows, Array<const float, 1> values, double alpha, int max_iter, double tol,
                    int64_t max_entries, int64_t max_aggregates, int refine_after, Array<float, 1> f) {
        require(rows.size() == values.size(), "rows and values differ in length");
        require(int64_t(f.size()) == n_, "f does not have an entry for each row of S");
        require(max_entries >= 1 && max_aggregates >= 1 && refine_after >= 0,
                "max_entries or max_aggregates is less than 1, or refine_after than 0");
        check_stop_rule(alpha, max_iter, 1);
        check_rows(rows, n_);
        TwoLevelResult result;
        {
            const GilRelease released;
            const std::lock_guard<std::mutex> held(guard_);
            result = solver_->solve(rows.data(), values.data(), int64_t(rows.size()), float(alpha), {max_iter, tol},
                                    max_entries, max_aggregates, refine_after, f.data());
        }
        return nb::make_tuple(result.iterations, result.residual, result.refined_regions);
    }

   private:
    Array<const int32_t, 1> order_;
    Array<const int64_t, 1> starts_;
    Array<const float, 1> root_;
    int64_t n_;
    std::unique_ptr<TwoLevelSolver> solver_;
    std::mutex guard_;
};

void reorder_(const Matrix& S, Array<const int32_t, 1> order, int threads, Array<int64_t, 1> starts,
              Array<int32_t, 1> columns, Array<float, 1> values) {
    require(threads >= 1, "threads is less than 1");
    check_order(order.data(), order.size(), S.csr.n);
    const size_t entries = size_t(S.csr.starts[S.csr.n]);
    require(int64_t(starts.size()) == S.csr.n + 1 && columns.size() == entries && values.size() == entries,
            "starts, columns and values are not of the sizes of those of S");
    const GilRelease released;
    reorder(S.csr, order.data(), threads, starts.data(), columns.data(), values.data());
}

// Vectors in single or half precision.
using VectorArray = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Rows as_rows(const VectorArray& vectors) {
    const bool half = vectors.dtype() == nb::dlpack::dtype{uint8_t(nb::dlpack::dtype_code::Float), 16, 1};
    require(half || vectors.dtype() == nb::dtype<float>(), "vectors is not of float32 or float16");
    require(vectors.shape(0) >= 1 && vectors.shape(0) < (size_t(1) << 31), "vectors has no rows, or too many");
    require(vectors.shape(1) >= 1 && vectors.shape(1) < (size_t(1) << 27), "vectors has no columns, or too many");
    return {vectors.data(), int64_t(vectors.shape(0)), int64_t(vectors.shape(1)), half};
}

// A search that fills k-NN lists step by step. It keeps its arrays alive.
template <class Search>
class StepwiseSearch {
   public:
    int64_t step() {
        const GilRelease released;
        const std::lock_guard<std::mutex> held(guard_);
        require(!broken_, "the search was interrupted; begin a new one");
        broken_ = true;  // unless the step completes
        const int64_t done = search_->step();
        broken_ = false;
        return done;
    }

   protected:
    StepwiseSearch(VectorArray vectors, int threads, Array<int32_t, 2> ids, Array<float, 2> similarities)
        : rows_(as_rows(vectors)),
          k_(int64_t(ids.shape(1))),
          vectors_(vectors),
          ids_(ids),
          similarities_(similarities) {
        require(k_ >= 1 && k_ < rows_.n, "k is not between 1 and the number of other rows");
        require(int64_t(ids.shape(0)) == rows_.n && similarities.shape(0) == ids.shape(0) &&
                    similarities.shape(1) == ids.shape(1),
                "ids and similarities do not have a row for each of vectors");
        require(threads >= 1, "threads is less than 1");
    }
    const Rows rows_;
    const int64_t k_;
    std::unique_ptr<Search> search_;

   private:
    VectorArray vectors_;
    Array<int32_t, 2> ids_;
    Array<float, 2> similarities_;
    std::mutex guard_;
    bool broken_ = false;
};

class PySelfJoin : public StepwiseSearch<SelfJoin> {
   public:
    PySelfJoin(VectorArray vectors, int64_t memory, int threads, Array<int32_t, 2> ids, Array<float, 2> similarities)
        : StepwiseSearch(vectors, threads, ids, similarities) {
        require(memory >= 0, "memory is negative");
        const GilRelease released;
        search_ = std::make_unique<SelfJoin>(rows_, k_, memory, threads, ids.data(), similarities.data());
    }
    int64_t rescanned_rows() const { return search_->rescanned_rows(); }
};

class PyNNDescent : public StepwiseSearch<NNDescent> {
   public:
    PyNNDescent(VectorArray vectors, uint64_t seed, int threads, Array<int32_t, 2> ids, Array<float, 2> similarities)
        : StepwiseSearch(vectors, threads, ids, similarities) {
        const GilRelease released;
        search_ = std::make_unique<NNDescent>(rows_, k_, seed, threads, ids.data(), similarities.data());
    }
};

using OptionalRows = std::optional<Array<const int32_t, 1>>;

void search_rows(const QuantizedMatrix& matrix, const Rows& vectors, const Array<const float, 2>& queries,
                 const OptionalRows& rows, int64_t memory, int threads, const Array<int32_t, 2>& ids,
                 const Array<float, 2>& similarities) {
    const int64_t k = int64_t(ids.shape(1)), count = rows ? int64_t(rows->size()) : vectors.n;
    require(int64_t(queries.shape(1)) == vectors.d, "queries and vectors differ in their columns");
    if (rows) check_rows(*rows, vectors.n);
    require(k >= 1 && k <= count, "k is not between 1 and the number of rows");
    require(ids.shape(0) == queries.shape(0) && similarities.shape(0) == queries.shape(0) &&
                similarities.shape(1) == ids.shape(1),
            "ids and similarities do not have a row for each query");
    require(memory >= 0, "memory is negative");
    require(threads >= 1, "threads is less than 1");
    const GilRelease released;
    matrix.search(vectors, queries.data(), int64_t(queries.shape(0)), rows ? rows->data() : nullptr, count, k, memory,
                  threads, ids.data(), similarities.data());
}

class PyQuantizedMatrix {
   public:
    PyQuantizedMatrix(VectorArray vectors, int threads) {
        require(threads >= 1, "threads is less than 1");
        const Rows rows = as_rows(vectors);
        const GilRelease released;
        rows_ = std::make_unique<QuantizedMatrix>(rows, true, threads);
    }
    void search(VectorArray vectors, Array<const float, 2> queries, OptionalRows rows, int64_t memory, int threads,
                Array<int32_t, 2> ids, Array<float, 2> similarities) const {
        const Rows all = as_rows(vectors);
        require(all.n == rows_->n && all.d == rows_->d, "vectors are not those that were quantized");
        search_rows(*rows_, all, queries, rows, memory, threads, ids, similarities);
    }

   private:
    std::unique_ptr<QuantizedMatrix> rows_;
};

void knn_search_(VectorArray vectors, Array<const float, 2> queries, OptionalRows rows, int64_t memory, int threads,
                 Array<int32_t, 2> ids, Array<float, 2> similarities) {
    const Rows all = as_rows(vectors);
    search_rows(QuantizedMatrix(all, false, 1), all, queries, rows, memory, threads, ids, similarities);
}

// Rows may be strided, as rows of truncated lists are.
template <class T>
using Strided = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

nb::tuple mutual_affinity_(Strided<const int32_t> ids, Strided<const float> similarities, double gamma, double slack,
                           bool normalised, int threads) {
    const int64_t n = int64_t(ids.shape(0)), width = int64_t(ids.shape(1));
    require(n < (int64_t(1) << 31), "ids has more rows than int32 can number");
    require(similarities.shape(0) == ids.shape(0) && similarities.shape(1) == ids.shape(1),
            "similarities is not of the shape of ids");
    require(width < 2 || (ids.stride(1) == 1 && similarities.stride(1) == 1), "the entries of a list lie apart");
    require(gamma > 0, "gamma is not positive");
    require(slack >= 0, "slack is negative");
    require(threads >= 1, "threads is less than 1");
    Affinity affinity;
    {
        const GilRelease released;
        affinity = mutual_affinity({n, width, ids.data(), ids.stride(0), similarities.data(), similarities.stride(0)},
                                   float(gamma), float(slack), normalised, threads);
    }
    return nb::make_tuple(to_numpy(std::move(affinity.starts)), to_numpy(std::move(affinity.columns)),
                          to_numpy(std::move(affinity.values)), to_numpy(std::move(affinity.degrees)));
}

nb::tuple restrict_(const Matrix& S, Array<const float, 1> degrees, Array<const int32_t, 1> rows, int threads) {
    require(int64_t(degrees.size()) == S.csr.n, "degrees does not have an entry for each row of S");
    require(threads >= 1, "threads is less than 1");
    check_rows(rows, S.csr.n);
    CsrArrays submatrix;
    {
        const GilRelease released;
        submatrix = restrict_matrix(S.csr, degrees.data(), rows.data(), int64_t(rows.size()), threads);
    }
    return nb::make_tuple(to_numpy(std::move(submatrix.starts)), to_numpy(std::move(submatrix.columns)),
                          to_numpy(std::move(submatrix.values)));
}

}  // namespace

const Kernels& kernels() { return levels.current(); }

}  // namespace manifind

NB_MODULE(_core, m) {
    using namespace manifind;
    initialize_module();
    levels.bind(m);
    m.def("use_gather", use_gather, "choice"_a.none());
    m.def("has_int8_dot", [] { return kernels().has_int8_dot; });
    nb::class_<Matrix>(m, "Matrix")
        .def(nb::init<Array<const int64_t, 1>, Array<const int32_t, 1>, Array<const float, 1>>(),
             "starts"_a.noconvert(), "columns"_a.noconvert(), "values"_a.noconvert());
    nb::class_<OrderedMatrix>(m, "OrderedMatrix")
        .def(
            "__init__",
            [](OrderedMatrix* self, const Matrix& S, int threads) {
                require(threads >= 1, "threads is less than 1");
                const GilRelease released;
                new (self) OrderedMatrix(S.csr, threads);
            },
            "S"_a, "threads"_a);
    nb::class_<PyTwoLevelSolver>(m, "TwoLevelSolver")
        .def(nb::init<const Matrix&, Array<const int32_t, 1>, Array<const int64_t, 1>, Array<const float, 1>,
                      const Matrix&>(),
             "S"_a, "order"_a.noconvert(), "starts"_a.noconvert(), "root"_a.noconvert(), "coarse_matrix"_a,
             nb::keep_alive<1, 2>(), nb::keep_alive<1, 6>())
        .def("solve", &PyTwoLevelSolver::solve, "rows"_a.noconvert(), "values"_a.noconvert(), "alpha"_a, "max_iter"_a,
             "tol"_a, "max_entries"_a, "max_aggregates"_a, "refine_after"_a, "f"_a.noconvert());
    nb::class_<PySelfJoin>(m, "SelfJoin")
        .def(nb::init<VectorArray, int64_t, int, Array<int32_t, 2>, Array<float, 2>>(), "vectors"_a.noconvert(),
             "memory"_a, "threads"_a, "ids"_a.noconvert(), "similarities"_a.noconvert())
        .def("step", &PySelfJoin::step)
        .def_prop_ro("rescanned_rows", &PySelfJoin::rescanned_rows);
    nb::class_<PyNNDescent>(m, "NNDescent")
        .def(nb::init<VectorArray, uint64_t, int, Array<int32_t, 2>, Array<float, 2>>(), "vectors"_a.noconvert(),
             "seed"_a, "threads"_a, "ids"_a.noconvert(), "similarities"_a.noconvert())
        .def("step", &PyNNDescent::step);
    nb::class_<PyQuantizedMatrix>(m, "QuantizedMatrix")
        .def(nb::init<VectorArray, int>(), "vectors"_a.noconvert(), "threads"_a)
        .def("search", &PyQuantizedMatrix::search, "vectors"_a.noconvert(), "queries"_a.noconvert(),
             "rows"_a.none().noconvert(), "memory"_a, "threads"_a, "ids"_a.noconvert(), "similarities"_a.noconvert());
    m.def("knn_search", knn_search_, "vectors"_a.noconvert(), "queries"_a.noconvert(), "rows"_a.none().noconvert(),
          "memory"_a, "threads"_a, "ids"_a.noconvert(), "similarities"_a.noconvert());
    def_solve<Matrix>(m);
    def_solve<OrderedMatrix>(m);
    m.def("aggregate", aggregate_, "S"_a, "target_size"_a, "max_size"_a, "aggregate_of"_a.noconvert());
    m.def("mutual_affinity", mutual_affinity_, "ids"_a.noconvert(), "similarities"_a.noconvert(), "gamma"_a, "slack"_a,
          "normalised"_a, "threads"_a);
    m.def("reorder", reorder_, "S"_a, "order"_a.noconvert(), "threads"_a, "starts"_a.noconvert(),
          "columns"_a.noconvert(), "values"_a.noconvert());
    m.def("restrict", restrict_, "S"_a, "degrees"_a.noconvert(), "rows"_a.noconvert(), "threads"_a);
}
