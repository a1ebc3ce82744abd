// SPDX-License-Identifier: BSD-3-Clause
// The threads that copy long messages of the stock engine, so that NCCL's proxy, one thread for all
// channels, copies none of them.  They are all comms', made with the first and joined with the
// last.
//
// A worker sleeps while none of its lanes is handed to it.  While one is, NCCL's own thread asks
// for completions all the time; a worker that finds nothing asks more and more rarely.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tcpqp::nccl {

class Lane;

class Workers {
public:
    class Worker {
    public:
        Worker();
        ~Worker();
        Worker(const Worker&) = delete;
        Worker& operator=(const Worker&) = delete;
        // There is something for it.
        void wake() noexcept;

    private:
        friend class Workers;
        // The lanes, between two rounds of its steps.
        template <typename Change>
        void visit(Change change) {
            visitors_++;
            const std::lock_guard guard(lanes_lock_);
            visitors_--;
            change(lanes_);
        }
        void run() noexcept;
        bool step_all(bool& any_handed) noexcept;
        void sleep(bool any_handed, int64_t idle_us) noexcept;

        std::mutex lanes_lock_;              // held while it steps them
        std::atomic<unsigned> visitors_{0};  // who wants that lock, and goes first
        std::vector<Lane*> lanes_;
        std::mutex lock_;
        std::condition_variable called_;
        bool was_called_ = false;
        bool stop_ = false;
        std::atomic<bool> asleep_{false};
        std::thread thread_;
    };

    // NULL: there are none to be (TCPQP_THREADS).  May throw std::system_error.
    static std::shared_ptr<Workers> get();

    explicit Workers(unsigned count);
    // The one with the fewest lanes.
    Worker* add(Lane& lane);
    // It is in no step of @lane any more.
    void remove(Worker& worker, Lane& lane) noexcept;

private:
    std::mutex lock_;
    std::vector<std::unique_ptr<Worker>> workers_;
};

// TCPQP_THREADS, or a quarter of the processors that this process may run on, at most
// kWorkersDefaultMax.
unsigned workers_wanted() noexcept;

}  // namespace tcpqp::nccl
