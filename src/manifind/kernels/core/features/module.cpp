// The Python module _features: SIFT, transform estimation and Hamming search. Arguments are checked here, once.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "binding.h"
#include "features/blur_kernel.h"
#include "features/hamming.h"
#include "features/ransac.h"
#include "features/sift.h"
#include "simd_levels.h"

using namespace nanobind::literals;

namespace manifind {
namespace {

std::vector<const BlurKernels*> available() {
    std::vector<const BlurKernels*> tables;
#ifdef MANIFIND_HAS_avx512
    if (runs_avx512()) tables.push_back(&blur_kernels_avx512);
#endif
#ifdef MANIFIND_HAS_avx2
    if (runs_avx2()) tables.push_back(&blur_kernels_avx2);
#endif
    tables.push_back(&blur_kernels_portable);
    return tables;
}

SimdLevels<BlurKernels> levels{available};

constexpr int64_t MAX_SIDE = 1 << 14;  // of a photo, in pixels

class PySift {
   public:
    PySift(Array<const uint8_t, 2> grey, bool upsample, double contrast_threshold) {
        const int64_t height = int64_t(grey.shape(0)), width = int64_t(grey.shape(1));
        require(height >= 1 && width >= 1, "grey has no pixels");
        require(contrast_threshold > 0, "contrast_threshold is not positive");
        require(height <= MAX_SIDE && width <= MAX_SIDE, "grey is too large; reduce it");
        const GilRelease released;
        sift_ = std::make_unique<Sift>(grey.data(), height, width, upsample, float(contrast_threshold));
    }
    auto keypoints() const {
        std::vector<float> rows;
        rows.reserve(4 * sift_->keypoints().size());
        for (const Sift::Keypoint& keypoint : sift_->keypoints())
            rows.insert(rows.end(), {keypoint.x, keypoint.y, keypoint.size, keypoint.response});
        return to_numpy(std::move(rows), 4);
    }
    nb::tuple describe(Array<const int32_t, 1> indices) const {
        for (size_t i = 0; i < indices.size(); ++i)
            require(indices.data()[i] >= 0 && size_t(indices.data()[i]) < sift_->keypoints().size(),
                    "indices has no such keypoint");
        Sift::Features features;
        {
            const GilRelease released;
            features = sift_->describe(indices.data(), int64_t(indices.size()));
        }
        return nb::make_tuple(to_numpy(std::move(features.keypoint_of)), to_numpy(std::move(features.orientations)),
                              to_numpy(std::move(features.descriptors), size_t(Sift::DIMENSION)));
    }

   private:
    std::unique_ptr<Sift> sift_;
};

// Rows of `matches` are x and y in the query and in the image and, with six columns, the log scale ratio and the
// rotation. Rows of `factors` are the real and the imaginary part of a hypothesis.
nb::object estimate_transform_(Array<const double, 2> matches, Array<const int64_t, 1> anchors,
                               Array<const double, 2> factors, std::array<double, 4> box,
                               std::array<double, 2> tolerances, double hypothesis_tolerance, double max_rotation_error,
                               double max_log_scale_error, int max_refined, int min_homography_inliers,
                               int affine_rounds, double max_anisotropy, double max_scale, int min_inliers) {
    const int64_t m = int64_t(matches.shape(0)), columns = int64_t(matches.shape(1));
    require(columns == 4 || columns == 6, "matches have neither 4 columns nor 6");
    require(m < (int64_t(1) << 31), "there are more matches than int32 can number");
    require(factors.shape(1) == 2 && factors.shape(0) == anchors.size(), "factors has not two numbers for each anchor");
    for (size_t i = 0; i < matches.size(); ++i)
        require(std::isfinite(matches.data()[i]), "matches has NaN or infinity");
    for (size_t i = 0; i < anchors.size(); ++i)
        require(anchors.data()[i] >= 0 && anchors.data()[i] < m, "anchors has no such match");
    RansacResult result;
    {
        const GilRelease released;
        Correspondences correspondences;
        for (int64_t i = 0; i < m; ++i) {
            const double* row = matches.data() + i * columns;
            correspondences.a.push_back({row[0], row[1]});
            correspondences.b.push_back({row[2], row[3]});
            if (columns == 6) correspondences.scales.push_back(row[4]), correspondences.rotations.push_back(row[5]);
        }
        std::vector<Hypothesis> hypotheses;
        for (size_t i = 0; i < anchors.size(); ++i)
            hypotheses.push_back({int32_t(anchors.data()[i]), factors.data()[2 * i], factors.data()[2 * i + 1]});
        result = estimate_transform(correspondences, hypotheses,
                                    {{box[0], box[1], box[2], box[3]},
                                     {tolerances[0], tolerances[1]},
                                     hypothesis_tolerance,
                                     max_rotation_error,
                                     max_log_scale_error,
                                     max_refined,
                                     min_homography_inliers,
                                     affine_rounds,
                                     max_anisotropy,
                                     max_scale,
                                     min_inliers});
    }
    if (!result.distinct) return nb::none();
    return nb::make_tuple(to_numpy(std::vector<double>(result.transform.begin(), result.transform.end()), 3),
                          to_numpy(std::move(result.inliers)), result.distinct);
}

nb::tuple knn_hamming_(Array<const uint8_t, 2> queries, Array<const uint8_t, 2> rows, int64_t k, int threads) {
    constexpr size_t WIDTH = 8 * CODE_WORDS;
    require(queries.shape(1) == WIDTH && rows.shape(1) == WIDTH, "rows and queries have not 32 bytes");
    const int64_t m = int64_t(queries.shape(0)), n = int64_t(rows.shape(0));
    require(n < (int64_t(1) << 31), "there are more rows than int32 can number");
    require(k >= 1 && k <= n, "k is not between 1 and the number of rows");
    require(threads >= 1, "threads is below 1");
    std::vector<int32_t> ids(size_t(m * k)), distances(size_t(m * k));
    {
        const GilRelease released;
        knn_hamming(queries.data(), m, rows.data(), n, k, threads, ids.data(), distances.data());
    }
    return nb::make_tuple(to_numpy(std::move(ids), size_t(k)), to_numpy(std::move(distances), size_t(k)));
}

}  // namespace

const BlurKernels& blur_kernels() { return levels.current(); }

}  // namespace manifind

NB_MODULE(_features, m) {
    using namespace manifind;
    initialize_module();
    levels.bind(m);
    nb::class_<PySift>(m, "Sift")
        .def(nb::init<Array<const uint8_t, 2>, bool, double>(), "grey"_a.noconvert(), "upsample"_a,
             "contrast_threshold"_a)
        .def("keypoints", &PySift::keypoints)
        .def("describe", &PySift::describe, "indices"_a.noconvert());
    m.def("estimate_transform", estimate_transform_, "matches"_a.noconvert(), "anchors"_a.noconvert(),
          "factors"_a.noconvert(), "box"_a, "tolerances"_a, "hypothesis_tolerance"_a, "max_rotation_error"_a,
          "max_log_scale_error"_a, "max_refined"_a, "min_homography_inliers"_a, "affine_rounds"_a, "max_anisotropy"_a,
          "max_scale"_a, "min_inliers"_a);
    m.def("has_vector_popcount", has_vector_popcount);
    m.def("knn_hamming", knn_hamming_, "queries"_a.noconvert(), "rows"_a.noconvert(), "k"_a, "threads"_a);
}
