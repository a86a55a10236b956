// The Python module _features: SIFT, matching, transform estimation and Hamming search. Arguments are checked here,
// once.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "binding.h"
#include "features/feature_kernels.h"
#include "features/hamming.h"
#include "features/matching.h"
#include "features/ransac.h"
#include "features/sift.h"
#include "simd_levels.h"

using namespace nanobind::literals;

namespace manifind {
namespace {

std::vector<const FeatureKernels*> available() {
    std::vector<const FeatureKernels*> tables;
#ifdef MANIFIND_HAS_avx512
    if (runs_avx512()) tables.push_back(&feature_kernels_avx512);
#endif
#ifdef MANIFIND_HAS_avx2
    if (runs_avx2()) tables.push_back(&feature_kernels_avx2);
#endif
    tables.push_back(&feature_kernels_portable);
    return tables;
}

SimdLevels<FeatureKernels> levels{available};

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

RansacConfig make_config(std::array<double, 4> box, std::array<double, 2> tolerances, const nb::dict& fields) {
    const auto number = [&](const char* name) { return nb::cast<double>(fields[name]); };
    const auto count = [&](const char* name) { return nb::cast<int>(fields[name]); };
    return {{box[0], box[1], box[2], box[3]},
            {tolerances[0], tolerances[1]},
            number("hypothesis_tolerance"),
            number("max_rotation_error"),
            number("max_log_scale_error"),
            count("max_refined"),
            count("min_homography_inliers"),
            count("affine_rounds"),
            number("max_anisotropy"),
            number("max_scale"),
            count("min_inliers")};
}

auto to_matrix(const Transform& transform) {
    return to_numpy(std::vector<double>(transform.begin(), transform.end()), 3);
}

void require_codes(Array<const uint8_t, 2> codes) {
    for (size_t i = 0; i < codes.size(); ++i) require(codes.data()[i] <= MAX_CODE, "codes are above 127");
}

// Rows of `matches` are x and y in the query and in the image, the log scale ratio and the rotation.
nb::object estimate_transform_(Array<const double, 2> matches, std::array<double, 4> box,
                               std::array<double, 2> tolerances, const nb::dict& config) {
    const int64_t m = int64_t(matches.shape(0));
    require(matches.shape(1) == 6, "matches have not 6 columns");
    require(m < (int64_t(1) << 31), "there are more matches than int32 can number");
    for (size_t i = 0; i < matches.size(); ++i)
        require(std::isfinite(matches.data()[i]), "matches has NaN or infinity");
    const RansacConfig ransac_config = make_config(box, tolerances, config);
    RansacResult result;
    {
        const GilRelease released;
        Correspondences correspondences;
        for (int64_t i = 0; i < m; ++i) {
            const double* row = matches.data() + i * 6;
            correspondences.a.push_back({row[0], row[1]});
            correspondences.b.push_back({row[2], row[3]});
            correspondences.scales.push_back(row[4]), correspondences.rotations.push_back(row[5]);
        }
        result = estimate_transform(correspondences, ransac_config);
    }
    if (!result.distinct) return nb::none();
    return nb::make_tuple(to_matrix(result.transform), to_numpy(std::move(result.inliers)), result.distinct);
}

// Rows of `frames` are x, y, scale and orientation.
Query make_query(Array<const uint8_t, 2> codes, Array<const float, 2> frames) {
    require(codes.shape(1) == DESCRIPTOR_SIZE, "codes have not 128 columns");
    require(frames.shape(0) == codes.shape(0) && frames.shape(1) == 4, "frames has not four numbers for each feature");
    require(codes.shape(0) < (size_t(1) << 31), "there are more features than int32 can number");
    require_codes(codes);
    return Query(codes.data(), reinterpret_cast<const Frame*>(frames.data()), int64_t(codes.shape(0)));
}

auto to_rows(const std::vector<Match>& matches) {
    std::vector<int32_t> numbers;
    for (const Match& match : matches) numbers.insert(numbers.end(), {match.query, match.image});
    return to_numpy(std::move(numbers), 2);
}

auto match_descriptors_(Array<const uint8_t, 2> query, Array<const uint8_t, 2> image, double max_ratio) {
    require(query.shape(1) == DESCRIPTOR_SIZE && image.shape(1) == DESCRIPTOR_SIZE, "codes have not 128 columns");
    require_codes(query), require_codes(image);
    const std::vector<Frame> frames(query.shape(0));
    std::vector<Match> matches;
    {
        const GilRelease released;
        matches = match_descriptors(Query(query.data(), frames.data(), int64_t(query.shape(0))), image.data(),
                                    int64_t(image.shape(0)), max_ratio);
    }
    return to_rows(matches);
}

// An image is (rows, frames, width, height): packed features and None, or codes and their frames.
nb::list match_images_(Array<const uint8_t, 2> codes, Array<const float, 2> frames, const nb::list& images,
                       Array<const uint8_t, 2> packed_codes, Array<const float, 1> packed_scales, double max_ratio,
                       std::array<double, 4> box, std::array<double, 2> tolerances, const nb::dict& config,
                       int threads) {
    require(threads >= 1, "threads is below 1");
    require(packed_codes.shape(0) == 256 && packed_codes.shape(1) == PackedLayout::CODES_A_BYTE,
            "packed_codes is not (256, 4)");
    require(packed_scales.size() == 256, "packed_scales has not 256 numbers");
    require_codes(packed_codes);
    const Query query = make_query(codes, frames);
    const PackedLayout layout{packed_codes.data(), packed_scales.data(), float(2 * 3.14159265358979323846 / 256)};
    const RansacConfig ransac_config = make_config(box, tolerances, config);
    std::vector<ImageFeatures> features;
    std::vector<Array<const uint8_t, 2>> kept_rows;  // arrays of a list that another thread may change
    std::vector<Array<const float, 2>> kept_frames;
    for (const nb::handle& item : images) {
        const auto image = nb::cast<nb::tuple>(item);
        require(image.size() == 4, "an image is not (rows, frames, width, height)");
        const auto rows = nb::cast<Array<const uint8_t, 2>>(image[0], false);
        ImageFeatures one{rows.data(), nullptr, int64_t(rows.shape(0)), nb::cast<double>(image[2]),
                          nb::cast<double>(image[3])};
        require(rows.shape(0) < (size_t(1) << 31), "there are more features than int32 can number");
        if (image[1].is_none()) {
            require(rows.shape(1) == PackedLayout::BYTES, "packed features have not 38 bytes");
        } else {
            const auto of_image = nb::cast<Array<const float, 2>>(image[1], false);
            require(rows.shape(1) == DESCRIPTOR_SIZE, "codes have not 128 columns");
            require(of_image.shape(0) == rows.shape(0) && of_image.shape(1) == 4,
                    "frames has not four numbers for each feature");
            require_codes(rows);
            one.frames = reinterpret_cast<const Frame*>(of_image.data());
            kept_frames.push_back(of_image);
        }
        kept_rows.push_back(rows);
        features.push_back(one);
    }
    std::vector<ImageMatch> found;
    {
        const GilRelease released;
        found = match_images(query, features, layout, max_ratio, ransac_config, threads);
    }
    nb::list results;
    for (const ImageMatch& one : found) {
        if (!one.estimate.distinct) {
            results.append(nb::none());
            continue;
        }
        std::vector<float> cosines;
        for (const Match& match : one.inliers) cosines.push_back(match.cosine);
        results.append(nb::make_tuple(to_matrix(one.estimate.transform), to_rows(one.inliers),
                                      to_numpy(std::move(cosines)), one.estimate.distinct));
    }
    return results;
}

constexpr size_t CODE_BYTES = 8 * CODE_WORDS;
constexpr int64_t MAX_ROWS = int64_t(1) << 31;
constexpr int64_t MAX_K = 1000;

nb::tuple knn_hamming_(Array<const uint8_t, 2> queries, Array<const uint8_t, 2> rows, int64_t k, int threads) {
    require(queries.shape(1) == CODE_BYTES && rows.shape(1) == CODE_BYTES, "rows and queries have not 32 bytes");
    const int64_t m = int64_t(queries.shape(0)), n = int64_t(rows.shape(0));
    require(n < MAX_ROWS, "there are more rows than int32 can number");
    require(k >= 1 && k <= n, "k is not between 1 and the number of rows");
    require(threads >= 1, "threads is below 1");
    std::vector<int32_t> ids(size_t(m * k)), distances(size_t(m * k));
    {
        const GilRelease released;
        knn_hamming(queries.data(), m, rows.data(), n, k, threads, ids.data(), distances.data());
    }
    return nb::make_tuple(to_numpy(std::move(ids), size_t(k)), to_numpy(std::move(distances), size_t(k)));
}

nb::tuple knn_hamming_groups_(Array<const uint8_t, 2> queries, Array<const int32_t, 2> visited,
                              Array<const uint8_t, 2> codes, Array<const int32_t, 1> numbers,
                              Array<const int64_t, 1> starts, int64_t k, int threads) {
    require(queries.shape(1) == CODE_BYTES && codes.shape(1) == CODE_BYTES, "rows and queries have not 32 bytes");
    const int64_t m = int64_t(queries.shape(0)), n = int64_t(codes.shape(0)), groups = int64_t(starts.shape(0)) - 1;
    require(n < MAX_ROWS && int64_t(numbers.shape(0)) == n, "numbers is not one for each row");
    require(groups >= 1 && starts.data()[0] == 0 && starts.data()[groups] == n, "starts does not divide the rows");
    for (int64_t group = 0; group < groups; ++group)
        require(starts.data()[group] <= starts.data()[group + 1], "starts does not divide the rows");
    require(int64_t(visited.shape(0)) == m, "visited has not a row for each query");
    for (size_t i = 0; i < visited.size(); ++i)
        require(visited.data()[i] >= 0 && visited.data()[i] < groups, "visited names no group");
    require(k >= 1 && k <= MAX_K, "k is not between 1 and 1,000");
    require(threads >= 1, "threads is below 1");
    std::vector<int32_t> ids(size_t(m * k)), distances(size_t(m * k));
    {
        const GilRelease released;
        knn_hamming_groups({queries.data(), m, visited.data(), int64_t(visited.shape(1))},
                           {codes.data(), numbers.data(), starts.data(), groups}, k, threads, ids.data(),
                           distances.data());
    }
    return nb::make_tuple(to_numpy(std::move(ids), size_t(k)), to_numpy(std::move(distances), size_t(k)));
}

auto nearest_hamming_(Array<const uint8_t, 2> rows, Array<const uint8_t, 2> centres, int threads) {
    require(rows.shape(1) == CODE_BYTES && centres.shape(1) == CODE_BYTES, "rows and centres have not 32 bytes");
    const int64_t n = int64_t(rows.shape(0)), n_centres = int64_t(centres.shape(0));
    require(n < MAX_ROWS && n_centres < MAX_ROWS, "there are more rows than int32 can number");
    require(n_centres >= 1, "there is no centre");
    require(threads >= 1, "threads is below 1");
    std::vector<int32_t> nearest(static_cast<size_t>(n));
    {
        const GilRelease released;
        nearest_hamming(rows.data(), n, centres.data(), n_centres, threads, nearest.data());
    }
    return to_numpy(std::move(nearest));
}

}  // namespace

const FeatureKernels& feature_kernels() { return levels.current(); }

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
    m.def("estimate_transform", estimate_transform_, "matches"_a.noconvert(), "box"_a, "tolerances"_a, "config"_a);
    m.def("match_descriptors", match_descriptors_, "query"_a.noconvert(), "image"_a.noconvert(), "max_ratio"_a);
    m.def("match_images", match_images_, "codes"_a.noconvert(), "frames"_a.noconvert(), "images"_a,
          "packed_codes"_a.noconvert(), "packed_scales"_a.noconvert(), "max_ratio"_a, "box"_a, "tolerances"_a,
          "config"_a, "threads"_a);
    m.def("has_vector_popcount", has_vector_popcount);
    m.def("counts_bits", counts_bits);
    m.def("use_vector_popcount", use_vector_popcount, "use"_a);
    m.def("knn_hamming", knn_hamming_, "queries"_a.noconvert(), "rows"_a.noconvert(), "k"_a, "threads"_a);
    m.def("knn_hamming_groups", knn_hamming_groups_, "queries"_a.noconvert(), "visited"_a.noconvert(),
          "codes"_a.noconvert(), "numbers"_a.noconvert(), "starts"_a.noconvert(), "k"_a, "threads"_a);
    m.def("nearest_hamming", nearest_hamming_, "rows"_a.noconvert(), "centres"_a.noconvert(), "threads"_a);
}
