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

Compressed::Compressed(const Rows& vectors, bool keep, int threads)
    : n(vectors.n),
      d(vectors.d),
      packing_(loops().low_precision ? Packing::int8 : Packing::float32),
      words_(packing_ == Packing::int8 ? int((d + 63) / 64 * 16) : int(d)),
      kept_(keep) {
    if (keep) compress_all(vectors, nullptr, n, strips_, threads);
}

// Packs all rows, or the given ones.
void Compressed::compress_all(const Rows& vectors, const int32_t* which, int64_t rows_count, Strips& to,
                              int threads) const {
    const int64_t strip = loops().strip, count = (rows_count + strip - 1) / strip, room = count * strip;
    to.words.resize(size_t(room) * words_);
    to.scales.resize(room);
    to.errors.resize(room);
    to.lengths.resize(room);
    to.biases.resize(room);
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

void Compressed::search(const Rows& vectors, const float* queries, int64_t m, const int32_t* rows, int64_t rows_count,
                        int64_t k, int64_t memory, int threads, int32_t* ids, float* similarities) const {
    const int64_t count = rows ? rows_count : n;
    if (count <= FEW_ROWS && k <= count && !(kept_ && rows) &&
        (kept_ || count * words_ * int64_t(sizeof(uint32_t)) <= memory)) {
        Strips made;
        if (!kept_) compress_all(vectors, rows, count, made, threads);
        const SmallSearch small{packing_, words_, kept_ ? strips_ : made, vectors, rows, count, k};
        return small.search({queries, m, d, false}, threads, ids, similarities);
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
        const std::vector<int64_t> unsure = attempt(sought, all, true);
        if (!unsure.empty()) attempt(sought, unsure, false);
    }
}

std::vector<int64_t> Compressed::attempt(const Sought& sought, const std::vector<int64_t>& which, bool guess) const {
    const Loops& l = loops();
    const int64_t k = sought.k, strip = l.strip;
    // As many groups of eight as are needed, all of one height: the i-th is number i % height of group i / height.
    const int64_t m = int64_t(which.size()), groups = (m + GROUP - 1) / GROUP, width = int64_t(words_) * 4;
    const int height = int((m + groups - 1) / groups);
    const auto slot_of = [&](int64_t i) { return i / height * GROUP + i % height; };
    const auto query = [&](int64_t i) { return sought.queries + which[i] * d; };
    std::vector<uint32_t, OnLines<uint32_t>> left(size_t(groups) * GROUP * words_);
    std::vector<float> scales(groups * GROUP), errors(groups * GROUP), lengths(groups * GROUP);
    std::vector<int32_t> biases(groups * GROUP);
    std::vector<int8_t> bytes(size_t(GROUP) * width);
    std::vector<float> own(size_t(GROUP) * d);
    for (int64_t group = 0; group < groups; ++group) {
        const int present = int(std::min<int64_t>(height, m - group * height));
        const int8_t* from[GROUP];
        for (int r = 0; r < present; ++r) {
            const int64_t slot = group * GROUP + r;
            from[r] = bytes.data() + r * width;
            std::copy_n(query(group * height + r), d, own.data() + r * d);
            l.compress(own.data() + r * d, d, width, bytes.data() + r * width, &scales[slot], &biases[slot],
                       &errors[slot], &lengths[slot]);
            if (!(lengths[slot] <= LONGEST)) throw std::invalid_argument("queries has values that are not finite, or huge");
        }
        uint32_t* words = left.data() + group * GROUP * words_;
        if (packing_ == Packing::int8)
            l.pack_bytes(from, present, GROUP, words_, words);
        else
            l.pack(packing_, own.data(), d, present, GROUP, words_, scales.data() + group * GROUP, words,
                   biases.data() + group * GROUP);
    }
    // x·z − x̂·ẑ = (x − x̂)·z + x̂·(z − ẑ), each at most the product of the lengths. Adding up d products in float32, here
    // and when they are scored anew, is off by at most d units in the last place each time.
    const bool rounds = packing_ == Packing::int8;
    const float longest = *std::max_element(lengths.begin(), lengths.end());
    const float worst = rounds ? *std::max_element(errors.begin(), errors.end()) : 0;
    const float adding = float(double(d + 16) * std::ldexp(1.0, -22)) * longest;

    // The strips that have rows that are sought. Where none are kept, those rows are compressed, strip by strip.
    std::vector<int32_t> visited;
    const bool picked = kept_ && sought.rows;
    if (picked)
        for (int64_t place = 0; place < sought.count; ++place) {
            const int32_t at = int32_t(sought.rows[place] / strip);
            if (visited.empty() || visited.back() != at) visited.push_back(at);
        }
    const int64_t strips = picked ? int64_t(visited.size()) : (sought.count + strip - 1) / strip;

    // Each thread has a part of the strips, and candidates of its own. It visits them in strides, as rows that lie
    // together are alike and what was seen is to be a sample.
    const int64_t parts = std::min<int64_t>(sought.threads, strips);
    std::vector<std::vector<Found>> found(parts, std::vector<Found>(m));
    const auto score = [&](int64_t i, std::vector<Bounded>& candidates) {
        std::vector<int32_t> rows(candidates.size());
        std::vector<float> scores(candidates.size());
        for (size_t c = 0; c < candidates.size(); ++c) rows[c] = int32_t(sought.row(candidates[c].id));
        l.dots(query(i), sought.vectors, rows.data(), int64_t(rows.size()), scores.data());
        for (size_t c = 0; c < candidates.size(); ++c) candidates[c].most = candidates[c].least = scores[c];
    };
    const auto thin_out = [&](int64_t i, int64_t rank, Found& one, std::vector<Bounded>& scratch) {
        // Nothing below the `rank`-th best of what the candidates are at least can be among the `rank` best.
        const auto cut = [&] {
            scratch = one.candidates;
            std::nth_element(scratch.begin(), scratch.begin() + (rank - 1), scratch.end(), better_bounded);
            one.reach = std::max(one.reach, scratch[rank - 1].least);
            if (rank < k) one.guessed = one.reach;
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
    };
    parallel(parts, sought.threads, [&](int64_t part, int) {
        std::vector<Found>& mine = found[part];
        std::vector<Bounded> scratch;
        std::vector<float> row;
        std::vector<int8_t> packed;
        Strips made;
        if (!kept_) {
            made.words.resize(size_t(strip) * words_);
            made.scales.resize(strip);
            made.errors.resize(strip);
            made.lengths.resize(strip);
            made.biases.resize(strip);
        }
        std::vector<int64_t> rows(strip);
        std::vector<int32_t> places(strip);
        std::vector<float> reach(groups * GROUP, NEVER), far(groups * GROUP), off(strip);
        const std::vector<float> never(strip, NEVER);
        std::vector<Hit> hits(AT_ONCE * GROUP * strip);
        for (int64_t i = 0; i < m; ++i) reach[slot_of(i)] = NOTHING;
        const int64_t begin = strips * part / parts, count = strips * (part + 1) / parts - begin;
        int64_t stride = count * 618 / 1000 + 1;
        while (std::gcd(stride, count) != 1) ++stride;
        int64_t seen = 0;
        for (int64_t turn = 0; turn < count; ++turn) {
            if (turn % 64 == 0) pulse();
            const int64_t here = begin + turn * stride % count, at = picked ? visited[here] : here;
            const Strips& some = kept_ ? strips_ : made;
            const int64_t first = kept_ ? at * strip : 0;
            int64_t present;
            if (picked) {
                std::fill(places.begin(), places.end(), -1);
                const int32_t* from = std::lower_bound(sought.rows, sought.rows + sought.count, int32_t(at * strip));
                for (present = 0; from < sought.rows + sought.count && *from < (at + 1) * strip; ++from, ++present)
                    places[*from - at * strip] = int32_t(from - sought.rows);
            } else {
                present = std::min(strip, sought.count - at * strip);
                for (int64_t j = 0; j < strip; ++j) places[j] = j < present ? int32_t(at * strip + j) : -1;
            }
            if (!kept_) {
                for (int64_t j = 0; j < present; ++j) rows[j] = sought.row(at * strip + j);
                compress(sought.vectors, rows.data(), int(present), made, 0, row, packed);
            } else {
                // The next strip is fetched while this one is scanned.
                const int64_t later = begin + (turn + 1) * stride % count;
                const uint32_t* next = strips_.words.data() + (picked ? visited[later] : later) * strip * words_;
                for (int64_t w = 0; w < strip * words_; w += 16) __builtin_prefetch(next + w, 0, 2);
            }
            seen += present;
            const int64_t rank = guess ? guessed_rank(k, seen, sought.count, OF_STRIPS) : k;
            float tallest = 0;
            for (int64_t j = 0; j < strip; ++j) {
                tallest = std::max(tallest, some.lengths[first + j]);
                off[j] = (rounds ? (longest + worst) * some.errors[first + j] : 0) + adding * some.lengths[first + j];
            }
            for (int64_t slot = 0; slot < groups * GROUP; ++slot) far[slot] = rounds ? errors[slot] * tallest : 0;
            const Block right{some.words.data() + first * words_, never.data(), off.data(), some.scales.data() + first,
                              some.biases.data() + first};
            for (int64_t group = 0; group < groups; group += AT_ONCE) {
                const int64_t slot = group * GROUP;
                const Block block{left.data() + slot * words_, reach.data() + slot, far.data() + slot,
                                  scales.data() + slot, biases.data() + slot};
                const int taken = int(std::min(groups - group, AT_ONCE));
                const size_t met = l.scan(packing_, words_, taken, height, block, right, hits.data());
                for (size_t h = 0; h < met; ++h) {
                    const int64_t own = slot + hits[h].row, j = hits[h].column;
                    if (places[j] < 0 || hits[h].score < reach[own]) continue;
                    const int64_t i = own / GROUP * height + own % GROUP;
                    Found& one = mine[i];
                    one.candidates.push_back({hits[h].score, hits[h].score - 2 * (far[own] + off[j]), places[j]});
                    if (one.candidates.size() < std::max<size_t>(one.full, size_t(2 * rank + 16))) continue;
                    thin_out(i, rank, one, scratch);
                    reach[own] = one.reach;
                }
            }
        }
    });

    std::vector<char> sure(m, 0);
    parallel(m, sought.threads, [&](int64_t i, int) {
        std::vector<Bounded> candidates, scratch;
        float guessed = NOTHING;
        for (int64_t part = 0; part < parts; ++part) {
            const Found& one = found[part][i];
            candidates.insert(candidates.end(), one.candidates.begin(), one.candidates.end());
            guessed = std::max(guessed, one.guessed);
        }
        if (int64_t(candidates.size()) < k) return;
        scratch = candidates;
        std::nth_element(scratch.begin(), scratch.begin() + (k - 1), scratch.end(), better_bounded);
        const float least = scratch[k - 1].least;
        const auto gone = [&](const Bounded& c) { return c.most < least; };
        candidates.erase(std::remove_if(candidates.begin(), candidates.end(), gone), candidates.end());
        score(i, candidates);
        std::nth_element(candidates.begin(), candidates.begin() + (k - 1), candidates.end(), better_bounded);
        std::sort(candidates.begin(), candidates.begin() + k, better_bounded);
        sure[i] = !guess || candidates[k - 1].least > guessed;
        for (int64_t c = 0; c < k; ++c) {
            sought.ids[which[i] * k + c] = candidates[c].id;
            sought.similarities[which[i] * k + c] = candidates[c].least;
        }
    });
    std::vector<int64_t> unsure;
    for (int64_t i = 0; i < m; ++i)
        if (!sure[i]) unsure.push_back(which[i]);
    return unsure;
}

}  // namespace manifind
