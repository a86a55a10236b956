// Threads of one call: started when it begins, joined before it ends. There is no pool to own or to fork.
//
// A call may be ended before its time: its own thread asks now and then, by `pulse`, whether it should go on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace manifind {

// Thrown where a call should not go on. Who asked knows why.
struct Interrupted : std::exception {
    const char* what() const noexcept override { return "interrupted"; }
};

// What the thread that made the call asks; null where nobody does, as in the threads that it started.
inline thread_local void (*ask)() = nullptr;

inline void pulse() {
    if (ask) ask();
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
                pulse();
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
        // The system gives no more of them, or no memory: those that there are share the tasks.
    }
    run(0);
    for (std::thread& one : started) one.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace manifind
