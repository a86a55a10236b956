// What both extensions need to meet Python: arrays, checks, the interpreter's lock, interrupts.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#include "memory.h"
#include "parallel.h"

namespace manifind {

namespace nb = nanobind;

template <class T, int dimensions>
using Array = nb::ndarray<T, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;

inline void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

// Releases the interpreter's lock while it lives. The calling thread checks for signals every 50 ms: where a handler
// raises (Ctrl-C), the work ends by `Interrupted`, and Python has the handler's error.
class GilRelease {
   public:
    GilRelease() : previous_hook_(interrupt_hook) {
        next_check_ = Clock::now() + INTERVAL;
        interrupt_hook = [] {
            if (Clock::now() < next_check_) return;
            const nb::gil_scoped_acquire held;
            if (PyErr_CheckSignals()) throw Interrupted();
            next_check_ = Clock::now() + INTERVAL;
        };
    }
    ~GilRelease() { interrupt_hook = previous_hook_; }
    GilRelease(const GilRelease&) = delete;

   private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds INTERVAL{50};
    inline static thread_local Clock::time_point next_check_;
    void (*previous_hook_)();
    const nb::gil_scoped_release release_;
};

// Hands a vector over to NumPy without copying; with `columns`, as rows of so many.
template <class T>
auto to_numpy(std::vector<T> vector) {
    auto* owned = new std::vector<T>(std::move(vector));
    nb::capsule owner(owned, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner);
}

template <class T>
auto to_numpy(std::vector<T> vector, size_t columns) {
    auto* owned = new std::vector<T>(std::move(vector));
    nb::capsule owner(owned, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
    return nb::ndarray<nb::numpy, T, nb::ndim<2>>(owned->data(), {owned->size() / columns, columns}, owner);
}

template <class T>
auto to_numpy(Buffer<T> buffer) {
    const size_t size = size_t(buffer.size());
    T* data = buffer.release();
    nb::capsule owner(data, [](void* pointer) noexcept { std::free(pointer); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner);
}

// Settings of every extension: no leak warnings in releases, and the error of a signal's handler passes through.
inline void initialize_module() {
#ifdef NDEBUG
    // What a program still holds when it ends is freed with it: no reason to warn its user.
    nb::set_leak_warnings(false);
#endif
    nb::register_exception_translator([](const std::exception_ptr& error, void*) {
        try {
            std::rethrow_exception(error);
        } catch (const Interrupted&) {  // the handler's error is set
        }
    });
}

}  // namespace manifind
