// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_harness/socket_plugin/streams.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace tcpqp::socket_plugin {

ssize_t move(int socket, bool sends, void* at, size_t bytes) noexcept {
    const ssize_t n = sends ? ::send(socket, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                            : ::recv(socket, at, bytes, MSG_DONTWAIT);
    if (n > 0)
        return n;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

Streams::Streams(std::vector<Fd> sockets, bool sends, int threads) : sends_(sends) {
    for (Fd& socket : sockets)
        lanes_.push_back({std::move(socket), {}});
    for (int i = 0; i < threads; i++)
        workers_.push_back(std::make_unique<Worker>());
    for (size_t i = 0; i < workers_.size(); i++)
        workers_[i]->thread = std::thread([this, i] { serve(i); });
}

Streams::~Streams() {
    stop_ = true;
    for (auto& worker : workers_) {
        { const std::lock_guard guard(worker->lock); }
        worker->wake.notify_one();
        worker->thread.join();
    }
}

void Streams::add(size_t stream, Task task) {
    if (workers_.empty()) {
        lanes_[stream].tasks.push_back(task);
        return;
    }
    Worker& worker = *workers_[stream % workers_.size()];
    {
        const std::lock_guard guard(worker.lock);
        lanes_[stream].tasks.push_back(task);
    }
    worker.wake.notify_one();
}

bool Streams::step(Lane& lane) noexcept {
    if (lane.tasks.empty() || ended_)
        return false;
    Task& task = lane.tasks.front();
    const ssize_t n = move(lane.socket.get(), sends_, task.at, task.left);
    if (n < 0)
        ended_ = true;
    if (n <= 0)
        return false;
    task.at += n;
    task.left -= static_cast<size_t>(n);
    if (task.left == 0) {
        task.pending->fetch_sub(1, std::memory_order_release);
        lane.tasks.pop_front();
    }
    return true;
}

bool Streams::progress() noexcept {
    if (workers_.empty())
        for (Lane& lane : lanes_)
            while (step(lane)) {
            }
    return !ended_;
}

void Streams::serve(size_t index) noexcept {
    Worker& worker = *workers_[index];
    std::unique_lock guard(worker.lock);
    while (!stop_) {
        size_t waiting = 0;
        for (size_t i = index; i < lanes_.size(); i += workers_.size()) {
            step(lanes_[i]);
            waiting += lanes_[i].tasks.size();
        }
        if (waiting == 0 || ended_) {
            worker.wake.wait(guard, [&] {
                bool any = stop_;
                for (size_t i = index; i < lanes_.size(); i += workers_.size())
                    any |= !ended_ && !lanes_[i].tasks.empty();
                return any;
            });
            continue;
        }
        guard.unlock();
        guard.lock();
    }
}

}  // namespace tcpqp::socket_plugin
