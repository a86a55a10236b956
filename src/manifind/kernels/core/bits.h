// The rows of bits that differ least from others: codes of local features, of all photos at once.
//
// Eight rows lie side by side, word by word, so that one register takes a word of each: their differences from a query are
// counted by `vpopcntq`. Few rows come nearer than the k-th best so far, so that lists are rarely touched.
#pragma once

#include <cstdint>

namespace manifind {

constexpr int CODE_WORDS = 4;  // of 64 bits: what a row has

// Whether this machine counts the bits of a whole register at once. Where it does not, `nearest_bits` may not be called.
bool counts_bits();

// For each of m queries, the k of n rows that differ in the fewest bits: nearest first, and equal ones in their order.
// k is at most n; rows are CODE_WORDS words of bytes, one after the other. Writes (m, k) to `ids` and to `apart`.
void nearest_bits(const uint8_t* queries, int64_t m, const uint8_t* rows, int64_t n, int64_t k, int threads, int32_t* ids,
                  int32_t* apart);

}  // namespace manifind
