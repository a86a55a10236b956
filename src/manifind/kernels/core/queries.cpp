#include "queries.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "candidates.h"
#include "parallel.h"
#include "small.h"

namespace manifind {
namespace {

constexpr double OF_STRIPS = 6.0;     // deviations allowed for: rows come in strips, and the regions of a photo are alike
constexpr int64_t AT_ONCE = 8;        // groups of queries that are multiplied with a strip while it is in the cache
constexpr int64_t STRIPS_AT_ONCE = 32;  // a task of a thread that compresses
constexpr int64_t FEWEST = 512;       // candidates of a query from which they are scored before the end

// What is known of a score before it is taken in float32.
struct Bounded {
    float most, least;
    int32_t id;
};

// A little more than the length that is found, for that is rounded.
float length_of(const float* row, int64_t d) {
    const int32_t first = 0;
    float squared;
    loops().dots(row, {row, 1, d, false}, &first, 1, &squared);
    return std::sqrt(squared) * 1.0001f;
}

constexpr auto better_bounded = [](const Bounded& a, const Bounded& b) {
    return a.least > b.least || (a.least == b.least && a.id < b.id);
};

// Candidates of one query, as one thread finds them.
struct Found {
    std::vector<Bounded> candidates;
    size_t full = 0;            // how many there may be before they are thinned out
    float reach = NOTHING;      // the least score that is a candidate
    float guessed = NOTHING;    // the highest that it was guessed to be
};

}  // namespace

// What is searched for, and where the answers go.
struct Compressed::Sought {
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

void Strips::resize(int64_t rows, int64_t words_of_row) {
    words.resize(size_t(rows * words_of_row));
    for (auto* some : {&scales, &errors, &lengths}) some->resize(rows);
    biases.resize(rows);
}

void PackedQueries::fill(Packing packing, int words_of_row, const float* queries, int64_t d, const int64_t* which,
                         int64_t count) {
    const Loops& l = loops();
    const int64_t width = int64_t(words_of_row) * 4;
    groups = (count + GROUP - 1) / GROUP;
    height = int((count + groups - 1) / groups);
    words.resize(size_t(groups) * GROUP * words_of_row);
    for (auto* some : {&scales, &errors, &lengths}) some->assign(groups * GROUP, 0);
    biases.assign(groups * GROUP, 0);
    rows_.resize(size_t(GROUP) * d);
    bytes_.resize(size_t(GROUP) * width);
    for (int64_t group = 0; group < groups; ++group) {
        const int present = int(std::clamp<int64_t>(count - group * height, 0, height));
        const int64_t first = group * GROUP;
        const int8_t* from[GROUP];
        for (int r = 0; r < present; ++r) {
            const int64_t query = group * height + r, slot = first + r;
            float* own = rows_.data() + r * d;
            from[r] = bytes_.data() + r * width;
            std::copy_n(queries + (which ? which[query] : query) * d, d, own);
            l.compress(own, d, width, bytes_.data() + r * width, &scales[slot], &biases[slot], &errors[slot],
                       &lengths[slot]);
            if (!(lengths[slot] <= LONGEST)) throw std::invalid_argument("queries has values that are not finite, or huge");
        }
        uint32_t* to = words.data() + first * words_of_row;
        if (packing == Packing::int8)
            l.pack_bytes(from, present, GROUP, words_of_row, to);
        else
            l.pack(packing, rows_.data(), d, present, GROUP, words_of_row, scales.data() + first, to, biases.data() + first);
    }
}

Compressed::Compressed(const Rows& vectors, bool keep, int threads)
    : n(vectors.n),
      d(vectors.d),
      packing_(packing_of(d)),
      words_(words_of(packing_, d)),
      kept_(keep) {
    if (keep) compress_all(vectors, nullptr, n, strips_, threads);
}

// Packs all rows, or the given ones.
void Compressed::compress_all(const Rows& vectors, const int32_t* which, int64_t rows_count, Strips& to,
                              int threads) const {
    const int64_t strip = loops().strip, count = (rows_count + strip - 1) / strip, room = count * strip;
    to.resize(room, words_);
    parallel((count + STRIPS_AT_ONCE - 1) / STRIPS_AT_ONCE, threads, [&](int64_t task, int) {
        std::vector<float> row;
        std::vector<int8_t> bytes;
        std::vector<int64_t> rows(strip);
        for (int64_t at = task * STRIPS_AT_ONCE; at < std::min(count, (task + 1) * STRIPS_AT_ONCE); ++at) {
            const int64_t present = std::min(strip, rows_count - at * strip);
            for (int64_t j = 0; j < present; ++j) rows[j] = which ? which[at * strip + j] : at * strip + j;
            compress(vectors, rows.data(), int(present), to, at, row, bytes);
        }
    });
}

// Packs some rows as the given strip of `to`.
void Compressed::compress(const Rows& vectors, const int64_t* rows, int count, Strips& to, int64_t strip,
                          std::vector<float>& row, std::vector<int8_t>& bytes) const {
    const Loops& l = loops();
    const int64_t width = int64_t(words_) * 4;
    row.resize(size_t(PANEL) * d);
    bytes.resize(size_t(PANEL) * width);
    for (int panel = 0; panel < l.strip; panel += PANEL) {
        const int64_t at = strip * l.strip + panel;
        const int present = std::clamp(count - panel, 0, PANEL);
        const int8_t* from[PANEL];
        for (int r = 0; r < PANEL; ++r) {
            to.scales[at + r] = to.errors[at + r] = to.lengths[at + r] = 0;
            to.biases[at + r] = 0;
            if (r >= present) continue;
            float* own = row.data() + r * d;
            from[r] = bytes.data() + r * width;
            l.widen(vectors, rows[panel + r], own);
            if (packing_ == Packing::int8)
                l.compress(own, d, width, bytes.data() + r * width, &to.scales[at + r], &to.biases[at + r],
                           &to.errors[at + r], &to.lengths[at + r]);
            else
                to.lengths[at + r] = length_of(own, d);
            if (!(to.lengths[at + r] <= LONGEST))
                throw std::invalid_argument("vectors has values that are not finite, or huge");
        }
        uint32_t* words = to.words.data() + at * words_;
        if (packing_ == Packing::int8)
            l.pack_bytes(from, present, PANEL, words_, words);
        else
            l.pack(packing_, row.data(), d, present, PANEL, words_, to.scales.data() + at, words, to.biases.data() + at);
    }
}

// Answers some of the queries.
class Compressed::Attempt {
   public:
    Attempt(const Compressed& compressed, const Sought& sought, const std::vector<int64_t>& which, bool guess);
    // Writes the answers; returns the queries for which a guess was too high.
    std::vector<int64_t> unsure();

   private:
    // What a thread works with.
    struct Hand {
        std::vector<Found>& found;  // its own, of each query
        std::vector<Bounded> scratch;
        std::vector<float> row;
        std::vector<int8_t> bytes;
        Strips made;
        std::vector<int64_t> rows;
        std::vector<int32_t> places;  // of the rows of a strip among those that are sought, or -1
        std::vector<float> reach, far, off, never;
        std::vector<Hit> hits;
    };
    void visit(int64_t part);
    int64_t find_places(int64_t at, Hand& hand) const;
    void scan(const Strips& strips, int64_t first, int64_t rank, Hand& hand) const;
    void thin_out(int64_t i, int64_t rank, Found& one, std::vector<Bounded>& scratch) const;
    void score(int64_t i, std::vector<Bounded>& candidates) const;
    bool answer(int64_t i) const;
    const float* query(int64_t i) const { return sought_.queries + which_[i] * compressed_.d; }
    int64_t strip_at(int64_t place) const { return picked_ ? visited_[place] : place; }

    const Compressed& compressed_;
    const Sought& sought_;
    const std::vector<int64_t>& which_;
    const bool guess_;
    const int64_t m_, k_, strip_;
    const bool picked_;  // strips are kept, and of these some rows are sought
    PackedQueries queries_;
    float longest_, worst_, adding_;
    std::vector<int32_t> visited_;  // the strips that have rows that are sought, where these are picked
    int64_t strips_;
    std::vector<std::vector<Found>> found_;  // by each thread, of each query
};

Compressed::Attempt::Attempt(const Compressed& compressed, const Sought& sought, const std::vector<int64_t>& which,
                             bool guess)
    : compressed_(compressed),
      sought_(sought),
      which_(which),
      guess_(guess),
      m_(int64_t(which.size())),
      k_(sought.k),
      strip_(loops().strip),
      picked_(compressed.kept_ && sought.rows) {
    const int64_t d = compressed.d;
    queries_.fill(compressed.packing_, compressed.words_, sought.queries, d, which.data(), m_);
    // x·z − x̂·ẑ = (x − x̂)·z + x̂·(z − ẑ), each at most the product of the lengths. Adding up d products in float32, here
    // and when they are scored anew, is off by at most d units in the last place each time.
    longest_ = *std::max_element(queries_.lengths.begin(), queries_.lengths.end());
    if (compressed.packing_ == Packing::float32) std::fill(queries_.errors.begin(), queries_.errors.end(), 0.f);
    worst_ = *std::max_element(queries_.errors.begin(), queries_.errors.end());
    adding_ = float(double(d + 16) * std::ldexp(1.0, -22)) * longest_;
    for (int64_t place = 0; picked_ && place < sought.count; ++place) {
        const int32_t at = int32_t(sought.rows[place] / strip_);
        if (visited_.empty() || visited_.back() != at) visited_.push_back(at);
    }
    strips_ = picked_ ? int64_t(visited_.size()) : (sought.count + strip_ - 1) / strip_;
    found_.assign(std::min<int64_t>(sought.threads, strips_), std::vector<Found>(m_));
}

std::vector<int64_t> Compressed::Attempt::unsure() {
    parallel(int64_t(found_.size()), sought_.threads, [&](int64_t part, int) { visit(part); });
    std::vector<char> sure(m_, 0);
    parallel(m_, sought_.threads, [&](int64_t i, int) { sure[i] = answer(i); });
    std::vector<int64_t> unsure;
    for (int64_t i = 0; i < m_; ++i)
        if (!sure[i]) unsure.push_back(which_[i]);
    return unsure;
}

// Each thread has a part of the strips, and candidates of its own. It visits them in strides, as rows that lie together are
// alike and what was seen is to be a sample.
void Compressed::Attempt::visit(int64_t part) {
    const int64_t slots = queries_.groups * GROUP, words = compressed_.words_, parts = int64_t(found_.size());
    Hand hand{found_[part], {}, {}, {}, {}, std::vector<int64_t>(strip_), std::vector<int32_t>(strip_),
              std::vector<float>(slots, NEVER), std::vector<float>(slots), std::vector<float>(strip_),
              std::vector<float>(strip_, NEVER), std::vector<Hit>(AT_ONCE * GROUP * strip_)};
    if (!compressed_.kept_) hand.made.resize(strip_, words);
    for (int64_t i = 0; i < m_; ++i) hand.reach[queries_.slot_of(i)] = NOTHING;
    const int64_t begin = strips_ * part / parts, count = strips_ * (part + 1) / parts - begin;
    int64_t stride = count * 618 / 1000 + 1;
    while (std::gcd(stride, count) != 1) ++stride;
    int64_t seen = 0;
    for (int64_t turn = 0; turn < count; ++turn) {
        if (turn % 64 == 0) pulse();
        const int64_t at = strip_at(begin + turn * stride % count);
        const int64_t present = find_places(at, hand);
        if (!compressed_.kept_) {
            for (int64_t j = 0; j < present; ++j) hand.rows[j] = sought_.row(at * strip_ + j);
            compressed_.compress(sought_.vectors, hand.rows.data(), int(present), hand.made, 0, hand.row, hand.bytes);
        } else {
            // The next strip is fetched while this one is scanned.
            const int64_t later = strip_at(begin + (turn + 1) * stride % count);
            const uint32_t* next = compressed_.strips_.words.data() + later * strip_ * words;
            for (int64_t w = 0; w < strip_ * words; w += 16) __builtin_prefetch(next + w, 0, 2);
        }
        seen += present;
        const int64_t rank = guess_ ? guessed_rank(k_, seen, sought_.count, OF_STRIPS) : k_;
        scan(compressed_.kept_ ? compressed_.strips_ : hand.made, compressed_.kept_ ? at * strip_ : 0, rank, hand);
    }
}

// Returns how many rows of a strip are sought.
int64_t Compressed::Attempt::find_places(int64_t at, Hand& hand) const {
    std::fill(hand.places.begin(), hand.places.end(), -1);
    if (!picked_) {
        const int64_t present = std::min(strip_, sought_.count - at * strip_);
        std::iota(hand.places.begin(), hand.places.begin() + present, int32_t(at * strip_));
        return present;
    }
    const int32_t *const end = sought_.rows + sought_.count, *from = std::lower_bound(sought_.rows, end, int32_t(at * strip_));
    int64_t present = 0;
    for (; from < end && *from < (at + 1) * strip_; ++from, ++present)
        hand.places[*from - at * strip_] = int32_t(from - sought_.rows);
    return present;
}

// All queries with the strip that begins at row `first` of `strips`.
void Compressed::Attempt::scan(const Strips& strips, int64_t first, int64_t rank, Hand& hand) const {
    const int64_t words = compressed_.words_, groups = queries_.groups;
    float tallest = 0;
    for (int64_t j = 0; j < strip_; ++j) {
        tallest = std::max(tallest, strips.lengths[first + j]);
        hand.off[j] = (longest_ + worst_) * strips.errors[first + j] + adding_ * strips.lengths[first + j];
    }
    for (int64_t slot = 0; slot < groups * GROUP; ++slot) hand.far[slot] = queries_.errors[slot] * tallest;
    const Block right{strips.words.data() + first * words, hand.never.data(), hand.off.data(),
                      strips.scales.data() + first, strips.biases.data() + first};
    for (int64_t group = 0; group < groups; group += AT_ONCE) {
        const int64_t slot = group * GROUP;
        const Block left{queries_.words.data() + slot * words, hand.reach.data() + slot, hand.far.data() + slot,
                         queries_.scales.data() + slot, queries_.biases.data() + slot};
        const size_t met = loops().scan(compressed_.packing_, int(words), int(std::min(groups - group, AT_ONCE)),
                                        queries_.height, left, right, hand.hits.data());
        for (size_t h = 0; h < met; ++h) {
            const Hit& hit = hand.hits[h];
            const int64_t own = slot + hit.row, j = hit.column;
            if (hand.places[j] < 0 || hit.score < hand.reach[own]) continue;
            const int64_t i = queries_.query_at(own);
            Found& one = hand.found[i];
            one.candidates.push_back({hit.score, hit.score - 2 * (hand.far[own] + hand.off[j]), hand.places[j]});
            if (one.candidates.size() < std::max<size_t>(one.full, size_t(2 * rank + 16))) continue;
            thin_out(i, rank, one, hand.scratch);
            hand.reach[own] = one.reach;
        }
    }
}

void Compressed::Attempt::thin_out(int64_t i, int64_t rank, Found& one, std::vector<Bounded>& scratch) const {
    // Nothing below the `rank`-th best of what the candidates are at least can be among the `rank` best.
    const auto cut = [&] {
        scratch = one.candidates;
        std::nth_element(scratch.begin(), scratch.begin() + (rank - 1), scratch.end(), better_bounded);
        one.reach = std::max(one.reach, scratch[rank - 1].least);
        if (rank < k_) one.guessed = one.reach;
    };
    cut();
    const auto gone = [&](const Bounded& c) { return c.most < one.reach; };
    one.candidates.erase(std::remove_if(one.candidates.begin(), one.candidates.end(), gone), one.candidates.end());
    const int64_t enough = std::max(FEWEST, 4 * rank);
    if (int64_t(one.candidates.size()) > enough) {  // rows that rounding cannot tell apart
        score(i, one.candidates);
        cut();
        scratch.resize(rank);
        one.candidates.swap(scratch);
    }
    one.full = 2 * one.candidates.size();
}

void Compressed::Attempt::score(int64_t i, std::vector<Bounded>& candidates) const {
    std::vector<int32_t> rows(candidates.size());
    std::vector<float> scores(candidates.size());
    for (size_t c = 0; c < candidates.size(); ++c) rows[c] = int32_t(sought_.row(candidates[c].id));
    loops().dots(query(i), sought_.vectors, rows.data(), int64_t(rows.size()), scores.data());
    for (size_t c = 0; c < candidates.size(); ++c) candidates[c].most = candidates[c].least = scores[c];
}

// Writes the k best of what all threads found; returns whether they are, which they may not be if a guess was too high.
bool Compressed::Attempt::answer(int64_t i) const {
    std::vector<Bounded> candidates, scratch;
    float guessed = NOTHING;
    for (const std::vector<Found>& part : found_) {
        candidates.insert(candidates.end(), part[i].candidates.begin(), part[i].candidates.end());
        guessed = std::max(guessed, part[i].guessed);
    }
    if (int64_t(candidates.size()) < k_) return false;
    scratch = candidates;
    std::nth_element(scratch.begin(), scratch.begin() + (k_ - 1), scratch.end(), better_bounded);
    const float least = scratch[k_ - 1].least;
    const auto gone = [&](const Bounded& c) { return c.most < least; };
    candidates.erase(std::remove_if(candidates.begin(), candidates.end(), gone), candidates.end());
    score(i, candidates);
    std::nth_element(candidates.begin(), candidates.begin() + (k_ - 1), candidates.end(), better_bounded);
    std::sort(candidates.begin(), candidates.begin() + k_, better_bounded);
    for (int64_t c = 0; c < k_; ++c) {
        sought_.ids[which_[i] * k_ + c] = candidates[c].id;
        sought_.similarities[which_[i] * k_ + c] = candidates[c].least;
    }
    return !guess_ || candidates[k_ - 1].least > guessed;
}

void Compressed::search(const Rows& vectors, const float* queries, int64_t m, const int32_t* rows, int64_t rows_count,
                        int64_t k, int64_t memory, int threads, int32_t* ids, float* similarities) const {
    const int64_t count = rows ? rows_count : n;
    if (count <= FEW_ROWS && k <= count && !(kept_ && rows) &&
        (kept_ || count * words_ * int64_t(sizeof(uint32_t)) <= memory)) {
        Strips made;
        if (!kept_) compress_all(vectors, rows, count, made, threads);
        const SmallSearch small{packing_, words_, kept_ ? strips_ : made, vectors, rows, count, k};
        return small.search(queries, m, threads, ids, similarities);
    }
    // About as many candidates as a query may have at a time, in each thread.
    const int64_t each = std::min(count, 2 * std::max(FEWEST, 4 * k)) * int64_t(sizeof(Bounded)) * threads;
    const int64_t step = std::max<int64_t>(GROUP, memory / std::max<int64_t>(1, each) / GROUP * GROUP);
    for (int64_t first = 0; first < m; first += step) {
        const int64_t some = std::min(step, m - first);
        const Sought sought{vectors, rows, count, queries + first * d, k, threads, ids + first * k,
                            similarities + first * k};
        std::vector<int64_t> all(some);
        std::iota(all.begin(), all.end(), int64_t(0));
        const std::vector<int64_t> unsure = Attempt(*this, sought, all, true).unsure();
        if (!unsure.empty()) Attempt(*this, sought, unsure, false).unsure();
    }
}

}  // namespace manifind
