#include "features/matching.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "parallel.h"

namespace manifind {
namespace {

// 1 / |codes|; 0 for a descriptor without any.
float norm_factor(const uint8_t* codes) {
    int32_t squares = 0;
    for (int k = 0; k < DESCRIPTOR_SIZE; ++k) squares += codes[k] * codes[k];
    return squares ? float(1 / std::sqrt(double(squares))) : 0.f;
}

int64_t round_up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

// What a thread needs for one image after the other.
struct Workspace {
    std::vector<uint8_t, CacheAligned<uint8_t>> codes;
    std::vector<float> factors, query_best;
    std::vector<Nearest> nearest;
};

void unpack_codes(const uint8_t* rows, int64_t count, const PackedLayout& layout, uint8_t* codes) {
    constexpr int DESCRIPTOR_BYTES = PackedLayout::BYTES - PackedLayout::GEOMETRY_BYTES;
    for (int64_t i = 0; i < count; ++i)
        for (int k = 0; k < DESCRIPTOR_BYTES; ++k)
            std::memcpy(codes + i * DESCRIPTOR_SIZE + k * PackedLayout::CODES_A_BYTE,
                        layout.codes + rows[i * PackedLayout::BYTES + PackedLayout::GEOMETRY_BYTES + k] *
                                           PackedLayout::CODES_A_BYTE,
                        PackedLayout::CODES_A_BYTE);
}

Frame unpack_frame(const uint8_t* row, const PackedLayout& layout, double width, double height) {
    const auto position = [&](int at) { return float(row[at] + 256 * row[at + 1]) / 65535.f; };
    return {position(0) * float(width), position(2) * float(height),
            layout.scales[row[4]] * float(std::max(width, height)), float(row[5]) * layout.orientation_step};
}

// Matches descriptors that lie in workspace.codes.
std::vector<Match> match_codes(const Query& query, int64_t count, double max_ratio, Workspace& workspace) {
    std::vector<Match> matches;
    if (!count || !query.size()) return matches;
    const int64_t padded = round_up(count, BLOCK_ROWS);
    std::fill(workspace.codes.begin() + count * DESCRIPTOR_SIZE, workspace.codes.begin() + padded * DESCRIPTOR_SIZE,
              uint8_t(0));
    workspace.factors.assign(size_t(padded), 0.f);
    for (int64_t i = 0; i < count; ++i)
        workspace.factors[size_t(i)] = norm_factor(workspace.codes.data() + i * DESCRIPTOR_SIZE);
    workspace.nearest.resize(size_t(padded));
    workspace.query_best.assign(size_t(query.n_tiles() * TILE_QUERIES), -1.f);
    const FeatureKernels& kernels = feature_kernels();
    for (int64_t row = 0; row < padded; row += BLOCK_ROWS) {
        if (row % (64 * BLOCK_ROWS) == 0) check_interrupt();
        kernels.match_rows(query.tiles(), query.factors(), query.n_tiles(),
                           workspace.codes.data() + row * DESCRIPTOR_SIZE, workspace.factors.data() + row,
                           workspace.nearest.data() + row, workspace.query_best.data());
    }
    const float squared_ratio = float(max_ratio * max_ratio);
    for (int64_t i = 0; i < count; ++i) {
        const Nearest& nearest = workspace.nearest[size_t(i)];
        if (nearest.best != workspace.query_best[size_t(nearest.query)]) continue;
        const float second = query.size() == 1 ? -1.f : nearest.second;
        // The squared distance of unit rows is 2 − 2 s.
        if (1 - nearest.best < squared_ratio * (1 - second))
            matches.push_back({nearest.query, int32_t(i), nearest.best});
    }
    return matches;
}

ImageMatch match_image(const Query& query, const ImageFeatures& image, const PackedLayout& layout, double max_ratio,
                       RansacConfig config, Workspace& workspace) {
    workspace.codes.resize(size_t(round_up(image.count, BLOCK_ROWS) * DESCRIPTOR_SIZE));
    if (image.frames)
        std::copy_n(image.rows, image.count * DESCRIPTOR_SIZE, workspace.codes.begin());
    else
        unpack_codes(image.rows, image.count, layout, workspace.codes.data());
    const std::vector<Match> matches = match_codes(query, image.count, max_ratio, workspace);
    ImageMatch found;
    if (int64_t(matches.size()) < std::max(3, config.min_inliers)) return found;
    Correspondences correspondences;
    for (const Match& match : matches) {
        const Frame& a = query.frame(match.query);
        const Frame b = image.frames ? image.frames[match.image]
                                     : unpack_frame(image.rows + int64_t(match.image) * PackedLayout::BYTES, layout,
                                                    image.width, image.height);
        correspondences.a.push_back({a.x, a.y});
        correspondences.b.push_back({b.x, b.y});
        correspondences.scales.push_back(std::log(double(b.scale) / double(a.scale)));
        correspondences.rotations.push_back(double(b.orientation) - double(a.orientation));
    }
    config.tolerances[1] *= std::max(image.width, image.height);
    found.estimate = estimate_transform(correspondences, config);
    for (int32_t i : found.estimate.inliers) found.inliers.push_back(matches[size_t(i)]);
    return found;
}

}  // namespace

Query::Query(const uint8_t* codes, const Frame* frames, int64_t count)
    : tiles_(size_t(round_up(count, TILE_QUERIES) * DESCRIPTOR_SIZE)),
      factors_(size_t(round_up(count, TILE_QUERIES))),
      frames_(frames, frames + count) {
    for (int64_t i = 0; i < count; ++i) {
        const uint8_t* row = codes + i * DESCRIPTOR_SIZE;
        uint8_t* tile = tiles_.data() + i / TILE_QUERIES * TILE_QUERIES * DESCRIPTOR_SIZE;
        for (int k = 0; k < DESCRIPTOR_SIZE / 4; ++k)
            std::copy_n(row + 4 * k, 4, tile + (k * TILE_QUERIES + i % TILE_QUERIES) * 4);
        factors_[size_t(i)] = norm_factor(row);
    }
}

std::vector<Match> match_descriptors(const Query& query, const uint8_t* codes, int64_t count, double max_ratio) {
    Workspace workspace;
    workspace.codes.resize(size_t(round_up(count, BLOCK_ROWS) * DESCRIPTOR_SIZE));
    std::copy_n(codes, count * DESCRIPTOR_SIZE, workspace.codes.begin());
    return match_codes(query, count, max_ratio, workspace);
}

std::vector<ImageMatch> match_images(const Query& query, const std::vector<ImageFeatures>& images,
                                     const PackedLayout& layout, double max_ratio, const RansacConfig& config,
                                     int threads) {
    std::vector<ImageMatch> found(images.size());
    std::vector<Workspace> workspaces(size_t(std::max(1, threads)));
    parallel(int64_t(images.size()), threads, [&](int64_t i, int thread) {
        found[size_t(i)] = match_image(query, images[size_t(i)], layout, max_ratio, config, workspaces[size_t(thread)]);
    });
    return found;
}

}  // namespace manifind
