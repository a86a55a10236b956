// Nearest neighbours of binary codes by Hamming distance, among the local features of all photos.
//
// Eight rows are interleaved word by word. Where the processor has AVX-512 VPOPCNTDQ, one register holds a word of
// each, and `vpopcntq` counts the bits that differ from a query; elsewhere words are counted one by one, with the same
// result. Few rows come closer than the k-th best so far, so that lists rarely change.
#pragma once

#include <cstdint>

namespace manifind {

constexpr int CODE_WORDS = 4;  // words of 64 bits in a row

// Whether a register of words is counted at once, and whether single words are, by one instruction.
bool has_vector_popcount();
bool counts_bits();
// Leaves the registers aside, for tests; or takes them again, where the processor has them.
void use_vector_popcount(bool use);

// Codes in groups, one group after the other: an inverted file.
struct CodeGroups {
    const uint8_t* codes;
    const int32_t* ids;     // of each code, or null: their places
    const int64_t* starts;  // (count + 1) where each group starts
    int64_t count;
};

// Queries, and the groups that each one visits.
struct GroupQueries {
    const uint8_t* codes;
    int64_t count;
    const int32_t* visited;  // (count, visits), each group once
    int64_t visits;
};

// Writes the k ≤ n rows closest to each of m queries to `ids` and `distances`, (m, k): nearest first, ties by id.
void knn_hamming(const uint8_t* queries, int64_t m, const uint8_t* rows, int64_t n, int64_t k, int threads,
                 int32_t* ids, int32_t* distances);

// The same among the groups that each query visits; -1 where they have fewer than k rows.
void knn_hamming_groups(const GroupQueries& queries, const CodeGroups& groups, int64_t k, int threads, int32_t* ids,
                        int32_t* distances);

// Writes which centre is nearest to each row, the first of equally near ones.
void nearest_hamming(const uint8_t* rows, int64_t n, const uint8_t* centres, int64_t n_centres, int threads,
                     int32_t* nearest);

}  // namespace manifind
