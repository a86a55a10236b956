// Memory for the hot loops: on lines of the cache, so that a load of a register touches one line and not two, and in
// large pages where there are any, as rows are gathered from all over it.
#pragma once

#include <cstddef>
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

}  // namespace manifind
