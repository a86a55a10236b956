#include "quantized_matrix.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "dense_scan.h"
#include "parallel.h"
#include "topk.h"

namespace manifind {
namespace {

constexpr double STRIP_DEVIATIONS =
    6.0;  // margin of estimated thresholds, in standard deviations; large, as a strip's rows are alike
constexpr int64_t GROUPS_PER_SCAN = 8;   // groups of queries per strip in the cache
constexpr int64_t STRIPS_PER_TASK = 32;  // when quantizing
constexpr int64_t MIN_RESCORE = 512;     // candidates from which they are rescored before the end

// Bounds of a score before it is computed in float32.
struct BoundedScore {
    float upper, lower;
    int32_t id;
};

// The length with a margin for its own rounding.
float rounded_up_length(const float* row, int64_t d) {
    const int32_t first = 0;
    float squared;
    kernels().dots(row, {row, 1, d, false}, &first, 1, &squared);
    return std::sqrt(squared) * 1.0001f;
}

constexpr auto better_lower_bound = [](const BoundedScore& a, const BoundedScore& b) {
    return a.lower > b.lower || (a.lower == b.lower && a.id < b.id);
};

// Candidates of one query in one thread.
struct QueryCandidates {
    std::vector<BoundedScore> candidates;
    size_t prune_at = 0;                     // number of candidates at which they are pruned
    float threshold = NO_THRESHOLD;          // lowest score of a candidate
    float guessed_threshold = NO_THRESHOLD;  // its highest estimate
};

}  // namespace

// Queries, rows and outputs of one search.
struct QuantizedMatrix::Request {
    const Rows& vectors;
    const int32_t* rows;
    int64_t count;  // of rows
    const float* queries;
    int64_t k;
    int threads;
    int32_t* ids;
    float* similarities;
    int64_t row(int64_t place) const { return rows ? rows[place] : place; }
};

void QuantizedStrips::resize(int64_t rows, int64_t row_words) {
    words.resize(size_t(rows * row_words));
    for (auto* values : {&scales, &errors, &lengths}) values->resize(rows);
    biases.resize(rows);
}

void PackedQueries::fill(Packing packing, int row_words, const float* queries, int64_t d, const int64_t* which,
                         int64_t count) {
    const Kernels& simd = kernels();
    const int64_t width = int64_t(row_words) * 4;
    groups = (count + GROUP - 1) / GROUP;
    height = int((count + groups - 1) / groups);
    words.resize(size_t(groups) * GROUP * row_words);
    for (auto* values : {&scales, &errors, &lengths}) values->assign(groups * GROUP, 0);
    biases.assign(groups * GROUP, 0);
    rows_.resize(size_t(GROUP) * d);
    bytes_.resize(size_t(GROUP) * width);
    for (int64_t group = 0; group < groups; ++group) {
        const int present = int(std::clamp<int64_t>(count - group * height, 0, height));
        const int64_t first = group * GROUP;
        const int8_t* from[GROUP];
        for (int r = 0; r < present; ++r) {
            const int64_t query = group * height + r, slot = first + r;
            float* row_values = rows_.data() + r * d;
            from[r] = bytes_.data() + r * width;
            std::copy_n(queries + (which ? which[query] : query) * d, d, row_values);
            simd.quantize(row_values, d, width, bytes_.data() + r * width, &scales[slot], &biases[slot], &errors[slot],
                          &lengths[slot]);
            if (!(lengths[slot] <= MAX_NORM))
                throw std::invalid_argument("queries has values that are not finite, or huge");
        }
        uint32_t* to = words.data() + first * row_words;
        if (packing == Packing::int8)
            simd.pack_int8(from, present, GROUP, row_words, to);
        else
            simd.pack(packing, rows_.data(), d, present, GROUP, row_words, scales.data() + first, to,
                      biases.data() + first);
    }
}

QuantizedMatrix::QuantizedMatrix(const Rows& vectors, bool keep, int threads)
    : n(vectors.n), d(vectors.d), packing_(packing_for(d)), words_(words_per_row(packing_, d)), keeps_strips_(keep) {
    if (keep) quantize_all(vectors, nullptr, n, strips_, threads);
}

// Packs all rows, or those in `which`.
void QuantizedMatrix::quantize_all(const Rows& vectors, const int32_t* which, int64_t rows_count, QuantizedStrips& to,
                                   int threads) const {
    const int64_t strip = kernels().strip, count = (rows_count + strip - 1) / strip, padded_rows = count * strip;
    to.resize(padded_rows, words_);
    parallel((count + STRIPS_PER_TASK - 1) / STRIPS_PER_TASK, threads, [&](int64_t task, int) {
        std::vector<float> row;
        std::vector<int8_t> bytes;
        std::vector<int64_t> rows(strip);
        for (int64_t strip_index = task * STRIPS_PER_TASK; strip_index < std::min(count, (task + 1) * STRIPS_PER_TASK);
             ++strip_index) {
            const int64_t present = std::min(strip, rows_count - strip_index * strip);
            for (int64_t j = 0; j < present; ++j)
                rows[j] = which ? which[strip_index * strip + j] : strip_index * strip + j;
            quantize(vectors, rows.data(), int(present), to, strip_index, row, bytes);
        }
    });
}

// Packs rows as strip number `strip` of `to`.
void QuantizedMatrix::quantize(const Rows& vectors, const int64_t* rows, int count, QuantizedStrips& to, int64_t strip,
                               std::vector<float>& row, std::vector<int8_t>& bytes) const {
    const Kernels& simd = kernels();
    const int64_t width = int64_t(words_) * 4;
    row.resize(size_t(PANEL) * d);
    bytes.resize(size_t(PANEL) * width);
    for (int panel = 0; panel < simd.strip; panel += PANEL) {
        const int64_t at = strip * simd.strip + panel;
        const int present = std::clamp(count - panel, 0, PANEL);
        const int8_t* from[PANEL];
        for (int r = 0; r < PANEL; ++r) {
            to.scales[at + r] = to.errors[at + r] = to.lengths[at + r] = 0;
            to.biases[at + r] = 0;
            if (r >= present) continue;
            float* row_values = row.data() + r * d;
            from[r] = bytes.data() + r * width;
            simd.to_float32(vectors, rows[panel + r], row_values);
            if (packing_ == Packing::int8)
                simd.quantize(row_values, d, width, bytes.data() + r * width, &to.scales[at + r], &to.biases[at + r],
                              &to.errors[at + r], &to.lengths[at + r]);
            else
                to.lengths[at + r] = rounded_up_length(row_values, d);
            if (!(to.lengths[at + r] <= MAX_NORM))
                throw std::invalid_argument("vectors has values that are not finite, or huge");
        }
        uint32_t* words = to.words.data() + at * words_;
        if (packing_ == Packing::int8)
            simd.pack_int8(from, present, PANEL, words_, words);
        else
            simd.pack(packing_, row.data(), d, present, PANEL, words_, to.scales.data() + at, words,
                      to.biases.data() + at);
    }
}

// Scans all strips for some of the queries, with a threshold for each.
class QuantizedMatrix::ThresholdScan {
   public:
    ThresholdScan(const QuantizedMatrix& matrix, const Request& request, const std::vector<int64_t>& which, bool guess);
    // Writes the results; returns the queries whose estimated threshold was too high.
    std::vector<int64_t> run();

   private:
    // Buffers of one thread.
    struct ThreadState {
        std::vector<QueryCandidates>& candidates_by_query;  // this thread's
        std::vector<BoundedScore> scratch;
        std::vector<float> row;
        std::vector<int8_t> bytes;
        QuantizedStrips temporary;
        std::vector<int64_t> rows;
        std::vector<int32_t> places;  // a strip's rows as indices into the request's, or -1
        std::vector<float> threshold, query_error, row_error, unreachable;
        std::vector<Hit> hits;
    };
    void scan_part(int64_t part);
    int64_t find_request_rows(int64_t strip_index, ThreadState& state) const;
    void scan(const QuantizedStrips& strips, int64_t first, int64_t rank, ThreadState& state) const;
    void prune(int64_t i, int64_t rank, QueryCandidates& of_query, std::vector<BoundedScore>& scratch) const;
    void rescore(int64_t i, std::vector<BoundedScore>& candidates) const;
    bool write_topk(int64_t i) const;
    const float* query(int64_t i) const { return request_.queries + which_[i] * matrix_.d; }
    int64_t strip_at(int64_t place) const { return is_subset_ ? subset_strips_[place] : place; }

    const QuantizedMatrix& matrix_;
    const Request& request_;
    const std::vector<int64_t>& which_;
    const bool guess_;
    const int64_t m_, k_, strip_;
    const bool is_subset_;  // a search of some rows among kept strips
    PackedQueries queries_;
    float max_length_, max_error_, sum_error_;
    std::vector<int32_t> subset_strips_;  // the strips that have rows of the subset
    int64_t strips_;
    std::vector<std::vector<QueryCandidates>> candidates_;  // [thread][query]
};

QuantizedMatrix::ThresholdScan::ThresholdScan(const QuantizedMatrix& matrix, const Request& request,
                                              const std::vector<int64_t>& which, bool guess)
    : matrix_(matrix),
      request_(request),
      which_(which),
      guess_(guess),
      m_(int64_t(which.size())),
      k_(request.k),
      strip_(kernels().strip),
      is_subset_(matrix.keeps_strips_ && request.rows) {
    const int64_t d = matrix.d;
    queries_.fill(matrix.packing_, matrix.words_, request.queries, d, which.data(), m_);
    // Error bound of a product: see topk.h.
    max_length_ = *std::max_element(queries_.lengths.begin(), queries_.lengths.end());
    if (matrix.packing_ == Packing::float32) std::fill(queries_.errors.begin(), queries_.errors.end(), 0.f);
    max_error_ = *std::max_element(queries_.errors.begin(), queries_.errors.end());
    sum_error_ = float(accumulation_error(d)) * max_length_;
    for (int64_t place = 0; is_subset_ && place < request.count; ++place) {
        const int32_t strip_index = int32_t(request.rows[place] / strip_);
        if (subset_strips_.empty() || subset_strips_.back() != strip_index) subset_strips_.push_back(strip_index);
    }
    strips_ = is_subset_ ? int64_t(subset_strips_.size()) : (request.count + strip_ - 1) / strip_;
    candidates_.assign(std::min<int64_t>(request.threads, strips_), std::vector<QueryCandidates>(m_));
}

std::vector<int64_t> QuantizedMatrix::ThresholdScan::run() {
    parallel(int64_t(candidates_.size()), request_.threads, [&](int64_t part, int) { scan_part(part); });
    std::vector<char> exact(m_, 0);
    parallel(m_, request_.threads, [&](int64_t i, int) { exact[i] = write_topk(i); });
    std::vector<int64_t> inexact;
    for (int64_t i = 0; i < m_; ++i)
        if (!exact[i]) inexact.push_back(which_[i]);
    return inexact;
}

// Each thread scans a part of the strips, with candidates of its own. It visits strips in strides: neighbouring rows
// are alike, and the rows seen so far should be a sample.
void QuantizedMatrix::ThresholdScan::scan_part(int64_t part) {
    const int64_t slots = queries_.groups * GROUP, words = matrix_.words_, parts = int64_t(candidates_.size());
    ThreadState state{candidates_[part],
                      {},
                      {},
                      {},
                      {},
                      std::vector<int64_t>(strip_),
                      std::vector<int32_t>(strip_),
                      std::vector<float>(slots, UNREACHABLE),
                      std::vector<float>(slots),
                      std::vector<float>(strip_),
                      std::vector<float>(strip_, UNREACHABLE),
                      std::vector<Hit>(GROUPS_PER_SCAN * GROUP * strip_)};
    if (!matrix_.keeps_strips_) state.temporary.resize(strip_, words);
    for (int64_t i = 0; i < m_; ++i) state.threshold[queries_.slot_of(i)] = NO_THRESHOLD;
    const int64_t begin = strips_ * part / parts, count = strips_ * (part + 1) / parts - begin;
    int64_t stride = count * 618 / 1000 + 1;
    while (std::gcd(stride, count) != 1) ++stride;
    int64_t seen = 0;
    for (int64_t visit_index = 0; visit_index < count; ++visit_index) {
        if (visit_index % 64 == 0) check_interrupt();
        const int64_t strip_index = strip_at(begin + visit_index * stride % count);
        const int64_t present = find_request_rows(strip_index, state);
        if (!matrix_.keeps_strips_) {
            for (int64_t j = 0; j < present; ++j) state.rows[j] = request_.row(strip_index * strip_ + j);
            matrix_.quantize(request_.vectors, state.rows.data(), int(present), state.temporary, 0, state.row,
                             state.bytes);
        } else {
            // Prefetches the next strip while this one is scanned.
            const int64_t next_strip = strip_at(begin + (visit_index + 1) * stride % count);
            const uint32_t* next = matrix_.strips_.words.data() + next_strip * strip_ * words;
            for (int64_t w = 0; w < strip_ * words; w += 16) __builtin_prefetch(next + w, 0, 2);
        }
        seen += present;
        const int64_t rank = guess_ ? sample_rank(k_, seen, request_.count, STRIP_DEVIATIONS) : k_;
        scan(matrix_.keeps_strips_ ? matrix_.strips_ : state.temporary,
             matrix_.keeps_strips_ ? strip_index * strip_ : 0, rank, state);
    }
}

// Finds the rows of a strip that the request has; returns how many.
int64_t QuantizedMatrix::ThresholdScan::find_request_rows(int64_t strip_index, ThreadState& state) const {
    std::fill(state.places.begin(), state.places.end(), -1);
    if (!is_subset_) {
        const int64_t present = std::min(strip_, request_.count - strip_index * strip_);
        std::iota(state.places.begin(), state.places.begin() + present, int32_t(strip_index * strip_));
        return present;
    }
    const int32_t *const end = request_.rows + request_.count,
                         *from = std::lower_bound(request_.rows, end, int32_t(strip_index * strip_));
    int64_t present = 0;
    for (; from < end && *from < (strip_index + 1) * strip_; ++from, ++present)
        state.places[*from - strip_index * strip_] = int32_t(from - request_.rows);
    return present;
}

// Scores all queries with the strip that begins at row `first` of `strips`.
void QuantizedMatrix::ThresholdScan::scan(const QuantizedStrips& strips, int64_t first, int64_t rank,
                                          ThreadState& state) const {
    const int64_t words = matrix_.words_, groups = queries_.groups;
    float max_row_length = 0;
    for (int64_t j = 0; j < strip_; ++j) {
        max_row_length = std::max(max_row_length, strips.lengths[first + j]);
        state.row_error[j] =
            (max_length_ + max_error_) * strips.errors[first + j] + sum_error_ * strips.lengths[first + j];
    }
    for (int64_t slot = 0; slot < groups * GROUP; ++slot)
        state.query_error[slot] = queries_.errors[slot] * max_row_length;
    const ScanPanel right{strips.words.data() + first * words, state.unreachable.data(), state.row_error.data(),
                          strips.scales.data() + first, strips.biases.data() + first};
    for (int64_t group = 0; group < groups; group += GROUPS_PER_SCAN) {
        const int64_t slot = group * GROUP;
        const ScanPanel left{queries_.words.data() + slot * words, state.threshold.data() + slot,
                             state.query_error.data() + slot, queries_.scales.data() + slot,
                             queries_.biases.data() + slot};
        const size_t n_hits =
            kernels().scan(matrix_.packing_, int(words), int(std::min(groups - group, GROUPS_PER_SCAN)),
                           queries_.height, left, right, state.hits.data());
        for (size_t h = 0; h < n_hits; ++h) {
            const Hit& hit = state.hits[h];
            const int64_t hit_slot = slot + hit.row, j = hit.column;
            if (state.places[j] < 0 || hit.score < state.threshold[hit_slot]) continue;
            const int64_t i = queries_.query_at(hit_slot);
            QueryCandidates& of_query = state.candidates_by_query[i];
            of_query.candidates.push_back(
                {hit.score, hit.score - 2 * (state.query_error[hit_slot] + state.row_error[j]), state.places[j]});
            if (of_query.candidates.size() < std::max<size_t>(of_query.prune_at, size_t(2 * rank + 16))) continue;
            prune(i, rank, of_query, state.scratch);
            state.threshold[hit_slot] = of_query.threshold;
        }
    }
}

void QuantizedMatrix::ThresholdScan::prune(int64_t i, int64_t rank, QueryCandidates& of_query,
                                           std::vector<BoundedScore>& scratch) const {
    // A score below the `rank`-th best lower bound cannot be among the `rank` best.
    const auto raise_threshold = [&] {
        scratch = of_query.candidates;
        std::nth_element(scratch.begin(), scratch.begin() + (rank - 1), scratch.end(), better_lower_bound);
        of_query.threshold = std::max(of_query.threshold, scratch[rank - 1].lower);
        if (rank < k_) of_query.guessed_threshold = of_query.threshold;
    };
    raise_threshold();
    const auto is_below = [&](const BoundedScore& c) { return c.upper < of_query.threshold; };
    of_query.candidates.erase(std::remove_if(of_query.candidates.begin(), of_query.candidates.end(), is_below),
                              of_query.candidates.end());
    const int64_t max_candidates = std::max(MIN_RESCORE, 4 * rank);
    if (int64_t(of_query.candidates.size()) > max_candidates) {  // rows that differ by less than the quantization error
        rescore(i, of_query.candidates);
        raise_threshold();
        scratch.resize(rank);
        of_query.candidates.swap(scratch);
    }
    of_query.prune_at = 2 * of_query.candidates.size();
}

void QuantizedMatrix::ThresholdScan::rescore(int64_t i, std::vector<BoundedScore>& candidates) const {
    std::vector<int32_t> rows(candidates.size());
    std::vector<float> scores(candidates.size());
    for (size_t c = 0; c < candidates.size(); ++c) rows[c] = int32_t(request_.row(candidates[c].id));
    kernels().dots(query(i), request_.vectors, rows.data(), int64_t(rows.size()), scores.data());
    for (size_t c = 0; c < candidates.size(); ++c) candidates[c].upper = candidates[c].lower = scores[c];
}

// Writes the top k of all threads' candidates; returns false where an estimated threshold may have been too high.
bool QuantizedMatrix::ThresholdScan::write_topk(int64_t i) const {
    std::vector<BoundedScore> candidates, scratch;
    float guessed_threshold = NO_THRESHOLD;
    for (const std::vector<QueryCandidates>& part : candidates_) {
        candidates.insert(candidates.end(), part[i].candidates.begin(), part[i].candidates.end());
        guessed_threshold = std::max(guessed_threshold, part[i].guessed_threshold);
    }
    if (int64_t(candidates.size()) < k_) return false;
    scratch = candidates;
    std::nth_element(scratch.begin(), scratch.begin() + (k_ - 1), scratch.end(), better_lower_bound);
    const float lower = scratch[k_ - 1].lower;
    const auto is_below = [&](const BoundedScore& c) { return c.upper < lower; };
    candidates.erase(std::remove_if(candidates.begin(), candidates.end(), is_below), candidates.end());
    rescore(i, candidates);
    std::nth_element(candidates.begin(), candidates.begin() + (k_ - 1), candidates.end(), better_lower_bound);
    std::sort(candidates.begin(), candidates.begin() + k_, better_lower_bound);
    for (int64_t c = 0; c < k_; ++c) {
        request_.ids[which_[i] * k_ + c] = candidates[c].id;
        request_.similarities[which_[i] * k_ + c] = candidates[c].lower;
    }
    return !guess_ || candidates[k_ - 1].lower > guessed_threshold;
}

void QuantizedMatrix::search(const Rows& vectors, const float* queries, int64_t m, const int32_t* rows,
                             int64_t rows_count, int64_t k, int64_t memory, int threads, int32_t* ids,
                             float* similarities) const {
    const int64_t count = rows ? rows_count : n;
    if (count <= DENSE_SCAN_MAX_ROWS && k <= count && !(keeps_strips_ && rows) &&
        (keeps_strips_ || count * words_ * int64_t(sizeof(uint32_t)) <= memory)) {
        QuantizedStrips temporary;
        if (!keeps_strips_) quantize_all(vectors, rows, count, temporary, threads);
        const DenseScan scan{packing_, words_, keeps_strips_ ? strips_ : temporary, vectors, rows, count, k};
        return scan.search(queries, m, threads, ids, similarities);
    }
    // About the most candidates of a query in all threads.
    const int64_t bytes_per_query =
        std::min(count, 2 * std::max(MIN_RESCORE, 4 * k)) * int64_t(sizeof(BoundedScore)) * threads;
    const int64_t batch_size = std::max<int64_t>(GROUP, memory / std::max<int64_t>(1, bytes_per_query) / GROUP * GROUP);
    for (int64_t first = 0; first < m; first += batch_size) {
        const int64_t batch = std::min(batch_size, m - first);
        const Request request{vectors, rows,    count,           queries + first * d,
                              k,       threads, ids + first * k, similarities + first * k};
        std::vector<int64_t> all(batch);
        std::iota(all.begin(), all.end(), int64_t(0));
        const std::vector<int64_t> inexact = ThresholdScan(*this, request, all, true).run();
        if (!inexact.empty()) ThresholdScan(*this, request, inexact, false).run();
    }
}

}  // namespace manifind
