// Threads of one call, started and joined within it: there is no pool that a fork could break.
//
// The calling thread can interrupt the work: it calls `check_interrupt` regularly.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
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

// Threads that run one loop after another. They start with the first loop that has work for them and wait between two
// loops; the calling thread is one of them.
class ThreadTeam {
   public:
    explicit ThreadTeam(int threads) : threads_(threads) {}
    ~ThreadTeam() {
        {
            const std::lock_guard<std::mutex> held(guard_);
            ended_ = true;
        }
        begun_.notify_all();
        for (std::thread& one : helpers_) one.join();
    }
    ThreadTeam(const ThreadTeam&) = delete;

    // Calls work(task, thread) for every task of 0 … tasks; rethrows the first exception.
    template <class Work>
    void run(int64_t tasks, Work work) {
        std::atomic<int64_t> next{0};
        std::exception_ptr failure;
        const auto loop = [&](int thread) {
            try {
                for (int64_t task; (task = next.fetch_add(1)) < tasks;) {
                    check_interrupt();
                    work(task, thread);
                }
            } catch (...) {
                const std::lock_guard<std::mutex> held(guard_);
                if (!failure) failure = std::current_exception();
                next = tasks;
            }
        };
        start_helpers(std::min<int64_t>(threads_, tasks) - 1);
        if (helpers_.empty()) {
            loop(0);
        } else {
            begin(loop);
            loop(0);
            wait();
        }
        if (failure) std::rethrow_exception(failure);
    }

   private:
    void start_helpers(int64_t count) {
        try {
            while (int64_t(helpers_.size()) < count) {
                const int thread = int(helpers_.size()) + 1;
                helpers_.emplace_back([this, thread, seen = loops_] { help(thread, seen); });
            }
        } catch (const std::exception&) {
            // No more threads or no memory: the threads that exist share the tasks.
        }
    }
    void begin(std::function<void(int)> loop) {
        {
            const std::lock_guard<std::mutex> held(guard_);
            loop_ = std::move(loop);
            busy_ = helpers_.size();
            ++loops_;
        }
        begun_.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> held(guard_);
        done_.wait(held, [this] { return busy_ == 0; });
    }
    // What a helper does: every loop that begins after the loop number `seen`.
    void help(int thread, int64_t seen) {
        std::unique_lock<std::mutex> held(guard_);
        for (;;) {
            begun_.wait(held, [&] { return ended_ || loops_ != seen; });
            if (ended_) return;
            seen = loops_;
            held.unlock();
            loop_(thread);
            held.lock();
            if (--busy_ == 0) done_.notify_one();
        }
    }

    const int threads_;
    std::mutex guard_;
    std::condition_variable begun_, done_;
    std::function<void(int)> loop_;
    size_t busy_ = 0;
    int64_t loops_ = 0;
    bool ended_ = false;
    std::vector<std::thread> helpers_;
};

// Calls work(task, thread) for every task of 0 … tasks, on up to `threads` threads; rethrows the first exception.
template <class Work>
void parallel(int64_t tasks, int threads, Work work) {
    ThreadTeam(threads).run(tasks, work);
}

}  // namespace manifind
