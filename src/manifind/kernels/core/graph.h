// Sparse matrices of a graph: from neighbour lists, reordered, and the part that a shortlist leaves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "loops.h"
#include "memory.h"

namespace manifind {

// Neighbour lists as they lie in memory: that of row i starts at i · stride. An id of -1 is nobody.
struct Lists {
    int64_t n, width;
    const int32_t* ids;
    int64_t ids_stride;
    const float* similarities;
    int64_t similarities_stride;
};

// Memory as it comes, not zeroed; what is cut off its end goes back to the system.
template <class T>
class Buffer {
   public:
    explicit Buffer(int64_t size = 0) : data_(OnLines<T>().allocate(size_t(std::max<int64_t>(1, size)))), size_(size) {}
    void shrink(int64_t size) {
        if (auto* moved = static_cast<T*>(std::realloc(data_.get(), size_t(std::max<int64_t>(1, size)) * sizeof(T)))) {
            (void)data_.release();  // it is what moved
            data_.reset(moved);
        }
        size_ = size;
    }
    T* data() { return data_.get(); }
    T& operator[](int64_t i) { return data_.get()[i]; }
    int64_t size() const { return size_; }
    T* release() { return data_.release(); }  // to be freed by std::free

   private:
    struct Free {
        void operator()(T* one) const { std::free(one); }
    };
    std::unique_ptr<T, Free> data_;
    int64_t size_;
};

struct Affinity {
    std::vector<int64_t> starts;
    Buffer<int32_t> columns;
    Buffer<float> values;
    std::vector<float> degrees;
};

// The affinity max(s, 0)^gamma of the pairs that are in each other's lists, normalised if asked for; a pair that
// differs in its two lists has the lesser. Columns of a row ascend. Similarities of a pair may be `slack` apart.
// Throws std::invalid_argument where an id is neither a row nor -1.
Affinity mutual_affinity(const Lists& lists, float gamma, float slack, bool normalised, int threads);

// S with its regions in another order: region order[i] becomes i. Columns of a row ascend.
void reorder(const Csr& S, const int32_t* order, int threads, int64_t* starts, int32_t* columns, float* values);

struct Part {
    std::vector<int64_t> starts;
    Buffer<int32_t> columns;
    Buffer<float> values;
};

// The affinity behind S between some ascending rows, normalised anew.
Part restrict_to(const Csr& S, const float* degrees, const int32_t* rows, int64_t count, int threads);

}  // namespace manifind
