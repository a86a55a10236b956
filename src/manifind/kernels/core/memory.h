// Memory for the hot loops: on lines of the cache, so that a load of a register touches one line and not two, and in
// large pages where there are any, as rows are gathered from all over it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace manifind {

template <class T>
struct OnLines {
    using value_type = T;
    OnLines() = default;
    template <class Other>
    OnLines(const OnLines<Other>&) {}

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
    friend bool operator==(const OnLines&, const OnLines&) { return true; }
    friend bool operator!=(const OnLines&, const OnLines&) { return false; }
};

// Zeroed memory of that kind. Large pages come zeroed from the system, and are not written twice.
template <class T>
class Zeroed {
   public:
    explicit Zeroed(size_t count) : size_(std::max<size_t>(1, count) * sizeof(T)) {
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
        data_ = OnLines<T>().allocate(std::max<size_t>(1, count));
        std::fill_n(data_, count, T(0));
    }
    ~Zeroed() {
#ifdef __linux__
        if (base_) {
            munmap(base_, size_);
            return;
        }
#endif
        std::free(data_);
    }
    Zeroed(const Zeroed&) = delete;
    Zeroed& operator=(const Zeroed&) = delete;
    operator T*() { return data_; }

   private:
    size_t size_;
    void* base_ = nullptr;  // of what was mapped
    T* data_ = nullptr;
};

}  // namespace manifind
