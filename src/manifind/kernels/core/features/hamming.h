// k nearest neighbours of binary codes by Hamming distance, among the local features of all photos.
//
// Eight rows are interleaved word by word, so that one register holds a word of each, and `vpopcntq` counts the bits
// that differ from a query. Few rows come closer than the k-th best so far, so that lists rarely change.
#pragma once

#include <cstdint>

namespace manifind {

constexpr int CODE_WORDS = 4;  // words of 64 bits in a row

// Whether this machine has AVX-512 VPOPCNTDQ, which `knn_hamming` needs.
bool has_vector_popcount();

// Writes the k ≤ n rows closest to each of m queries to `ids` and `distances`, (m, k): nearest first, ties by id.
void knn_hamming(const uint8_t* queries, int64_t m, const uint8_t* rows, int64_t n, int64_t k, int threads,
                 int32_t* ids, int32_t* distances);

}  // namespace manifind
