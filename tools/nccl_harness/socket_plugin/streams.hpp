// SPDX-License-Identifier: BSD-3-Clause
// What NCCL's socket transport moves bytes by: non-blocking sockets, each with a queue of tasks,
// served by the caller or by helper threads that spin while there are any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.hpp"

namespace tcpqp::socket_plugin {

struct Task {
    char* at;
    size_t left;
    std::atomic<int>* pending;  // of its request; one less when this is through
};

// Bytes moved, 0: none now, -1: the connection has ended.
ssize_t move(int socket, bool sends, void* at, size_t bytes) noexcept;

class Streams {
public:
    Streams(std::vector<Fd> sockets, bool sends, int threads);
    Streams(const Streams&) = delete;
    Streams& operator=(const Streams&) = delete;
    ~Streams();

    [[nodiscard]] size_t count() const noexcept { return lanes_.size(); }
    void add(size_t stream, Task task);
    // Without helper threads it is the caller that goes on.  False: a connection has ended.
    bool progress() noexcept;

private:
    struct Lane {
        Fd socket;
        std::deque<Task> tasks;
    };
    struct Worker {
        std::mutex lock;
        std::condition_variable wake;
        std::thread thread;
    };
    // Whether anything moved.
    bool step(Lane& lane) noexcept;
    void serve(size_t worker) noexcept;

    const bool sends_;
    std::vector<Lane> lanes_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::atomic<bool> stop_ = false, ended_ = false;
};

}  // namespace tcpqp::socket_plugin
