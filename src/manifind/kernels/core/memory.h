// Memory for kernels: cache-aligned, so that loads touch one line, and in huge pages where available, as rows are
// gathered from everywhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace manifind {

template <class T>
struct CacheAligned {
    using value_type = T;
    CacheAligned() = default;
    template <class Other>
    CacheAligned(const CacheAligned<Other>&) {}

    T* allocate(size_t count) {
        constexpr size_t LINE = 64, LARGE_PAGE = size_t(1) << 21;
        const size_t wanted = count * sizeof(T), align = wanted >= LARGE_PAGE ? LARGE_PAGE : LINE;
        const size_t size = (wanted + align - 1) / align * align;
        void* at = std::aligned_alloc(align, size);
        if (!at) throw std::bad_alloc();
#ifdef __linux__
        if (align == LARGE_PAGE) madvise(at, size, MADV_HUGEPAGE);
#endif
        return static_cast<T*>(at);
    }
    void deallocate(T* at, size_t) { std::free(at); }
    friend bool operator==(const CacheAligned&, const CacheAligned&) { return true; }
    friend bool operator!=(const CacheAligned&, const CacheAligned&) { return false; }
};

// Zeroed memory of that kind. The system hands out huge pages zeroed; they are not written twice.
template <class T>
class ZeroedArray {
   public:
    explicit ZeroedArray(size_t count) : size_(std::max<size_t>(1, count) * sizeof(T)) {
#ifdef __linux__
        constexpr size_t LARGE_PAGE = size_t(1) << 21;
        if (size_ >= LARGE_PAGE) {
            size_ += LARGE_PAGE;
            base_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (base_ == MAP_FAILED) throw std::bad_alloc();
            madvise(base_, size_, MADV_HUGEPAGE);
            data_ = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(base_) + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1));
            return;
        }
#endif
        data_ = CacheAligned<T>().allocate(std::max<size_t>(1, count));
        std::fill_n(data_, count, T(0));
    }
    ~ZeroedArray() {
#ifdef __linux__
        if (base_) {
            munmap(base_, size_);
            return;
        }
#endif
        std::free(data_);
    }
    ZeroedArray(const ZeroedArray&) = delete;
    ZeroedArray& operator=(const ZeroedArray&) = delete;
    operator T*() { return data_; }

   private:
    size_t size_;
    void* base_ = nullptr;  // of the mapping
    T* data_ = nullptr;
};

// Uninitialized memory; `shrink` returns the rest to the system.
template <class T>
class Buffer {
   public:
    explicit Buffer(int64_t size = 0)
        : data_(CacheAligned<T>().allocate(size_t(std::max<int64_t>(1, size)))), size_(size) {}
    void shrink(int64_t size) {
        if (auto* moved = static_cast<T*>(std::realloc(data_.get(), size_t(std::max<int64_t>(1, size)) * sizeof(T)))) {
            (void)data_.release();  // realloc took it
            data_.reset(moved);
        }
        size_ = size;
    }
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    T& operator[](int64_t i) { return data_.get()[i]; }
    int64_t size() const { return size_; }
    T* release() { return data_.release(); }  // the caller frees it by std::free

   private:
    struct Free {
        void operator()(T* one) const { std::free(one); }
    };
    std::unique_ptr<T, Free> data_;
    int64_t size_;
};

}  // namespace manifind
