// Threads of one call, started and joined within it: there is no pool that a fork could break.
//
// The calling thread can interrupt the work: it calls `check_interrupt` regularly.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace manifind {

// Thrown to end a call; the hook knows why.
struct Interrupted : std::exception {
    const char* what() const noexcept override { return "interrupted"; }
};

// Throws `Interrupted` to end the work of the calling thread; null in other threads.
inline thread_local void (*interrupt_hook)() = nullptr;

inline void check_interrupt() {
    if (interrupt_hook) interrupt_hook();
}

// Calls work(task, thread) for every task of 0 … tasks, on up to `threads` threads; rethrows the first exception.
template <class Work>
void parallel(int64_t tasks, int threads, Work work) {
    std::atomic<int64_t> next{0};
    std::exception_ptr failure;
    std::mutex guard;
    auto run = [&](int thread) {
        try {
            for (int64_t task; (task = next.fetch_add(1)) < tasks;) {
                check_interrupt();
                work(task, thread);
            }
        } catch (...) {
            const std::lock_guard<std::mutex> held(guard);
            if (!failure) failure = std::current_exception();
            next = tasks;
        }
    };
    const int helpers = int(threads < tasks ? threads : tasks) - 1;
    std::vector<std::thread> started;
    try {
        started.reserve(size_t(std::max(0, helpers)));
        for (int thread = 1; thread <= helpers; ++thread) started.emplace_back(run, thread);
    } catch (const std::exception&) {
        // No more threads or no memory: the threads that exist share the tasks.
    }
    run(0);
    for (std::thread& one : started) one.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace manifind
