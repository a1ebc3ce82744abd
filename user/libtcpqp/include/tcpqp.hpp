// SPDX-License-Identifier: BSD-3-Clause
// tcpqp.h with owners.  Set-up throws tcpqp::Error; the data path returns what
// the C calls return.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "tcpqp.h"

namespace tcpqp {
inline namespace v1 {

// A failed set-up call: code() is the errno, reason() an enum tcpqp_reason.
class Error : public std::system_error {
public:
    Error(int error, uint32_t reason, const std::string& what)
        : std::system_error(
              -error, std::generic_category(),
              reason == TCPQP_REASON_NONE ? what : what + ": " + tcpqp_reason_text(reason)),
          reason_(reason) {}
    [[nodiscard]] uint32_t reason() const noexcept { return reason_; }

private:
    uint32_t reason_;
};

namespace detail {
struct Destroy {
    void operator()(tcpqp_context* c) const noexcept { tcpqp_context_destroy(c); }
    void operator()(tcpqp_mr* m) const noexcept { tcpqp_mr_destroy(m); }
    void operator()(tcpqp_cq* c) const noexcept { tcpqp_cq_destroy(c); }
    void operator()(tcpqp_qp* q) const noexcept { tcpqp_qp_destroy(q); }
    void operator()(tcpqp_conn* c) const noexcept { tcpqp_close(c, TCPQP_TIMEOUT_DEFAULT_MS); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy>;

inline void check(int error, uint32_t reason, const char* what) {
    if (error < 0)
        throw Error(error, reason, what);
}
}  // namespace detail

// Destroy in the order qp, cq, mr, context: declare them the other way round.
class Context {
public:
    explicit Context(tcpqp_context_opts opts = {}) {
        tcpqp_context* c = nullptr;
        uint32_t reason = TCPQP_REASON_NONE;
        opts.size = sizeof(opts);
        const int error = tcpqp_context_create(&opts, &c, &reason);
        detail::check(error, reason, "open an engine");
        handle_.reset(c);
    }
    [[nodiscard]] tcpqp_context* get() const noexcept { return handle_.get(); }
    [[nodiscard]] uint32_t engine() const noexcept { return tcpqp_context_engine(get()); }
    [[nodiscard]] uint32_t reason() const noexcept { return tcpqp_context_reason(get()); }

private:
    detail::Owned<tcpqp_context> handle_;
};

class MemoryRegion {
public:
    MemoryRegion(const Context& context, std::span<std::byte> memory) {
        tcpqp_mr* m = nullptr;
        detail::check(tcpqp_mr_create(context.get(), memory.data(), memory.size(), &m), 0,
                      "register memory");
        handle_.reset(m);
    }
    // Of a dma-buf, which stays the caller's.
    MemoryRegion(const Context& context, int dmabuf, size_t bytes, tcpqp_dmabuf_opts opts = {}) {
        tcpqp_mr* m = nullptr;
        opts.size = sizeof(opts);
        detail::check(tcpqp_mr_create_dmabuf(context.get(), dmabuf, bytes, &opts, &m), 0,
                      "register a dma-buf");
        handle_.reset(m);
    }
    [[nodiscard]] tcpqp_mr* get() const noexcept { return handle_.get(); }

private:
    detail::Owned<tcpqp_mr> handle_;
};

// A lease of the switch's pool, mapped.
class PoolMemory {
public:
    explicit PoolMemory(size_t bytes, tcpqp_pool_opts opts = {}) {
        opts.size = sizeof(opts);
        detail::check(tcpqp_pool_alloc(bytes, &opts, &memory_), 0, "lease memory of the pool");
    }
    PoolMemory(const PoolMemory&) = delete;
    PoolMemory& operator=(const PoolMemory&) = delete;
    ~PoolMemory() { tcpqp_pool_free(&memory_); }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept {
        return {static_cast<std::byte*>(memory_.addr), memory_.bytes};
    }
    [[nodiscard]] MemoryRegion registered(const Context& context) const {
        tcpqp_dmabuf_opts opts{};
        opts.addr = memory_.addr;
        return {context, memory_.dmabuf, memory_.bytes, opts};
    }

private:
    tcpqp_pool_memory memory_{};
};

class Completions {
public:
    explicit Completions(const Context& context, tcpqp_cq_opts opts = {}) {
        tcpqp_cq* c = nullptr;
        opts.size = sizeof(opts);
        detail::check(tcpqp_cq_create(context.get(), &opts, &c), 0, "make a completion queue");
        handle_.reset(c);
    }
    [[nodiscard]] tcpqp_cq* get() const noexcept { return handle_.get(); }
    [[nodiscard]] int fd() const noexcept { return tcpqp_cq_fd(get()); }
    int poll(std::span<tcpqp_completion> out) noexcept {
        return tcpqp_poll(get(), out.data(), out.size());
    }
    int wait(int timeout_ms) noexcept { return tcpqp_wait(get(), timeout_ms); }

private:
    detail::Owned<tcpqp_cq> handle_;
};

class Qp {
public:
    Qp(const Completions& cq, int socket, tcpqp_qp_opts opts = {}) {
        tcpqp_qp* q = nullptr;
        uint32_t reason = TCPQP_REASON_NONE;
        opts.size = sizeof(opts);
        const int error = tcpqp_qp_create(cq.get(), socket, &opts, &q, &reason);
        detail::check(error, reason, "give the socket a queue pair");
        handle_.reset(q);
    }
    [[nodiscard]] tcpqp_qp* get() const noexcept { return handle_.get(); }
    int post_send(std::span<const tcpqp_work> w) noexcept {
        return tcpqp_post_send(get(), w.data(), w.size());
    }
    int post_recv(std::span<const tcpqp_work> w) noexcept {
        return tcpqp_post_recv(get(), w.data(), w.size());
    }
    int cancel() noexcept { return tcpqp_qp_cancel(get()); }
    [[nodiscard]] tcpqp_qp_info info() const noexcept {
        tcpqp_qp_info i{};
        i.size = sizeof(i);
        tcpqp_qp_query(get(), &i);
        return i;
    }

private:
    detail::Owned<tcpqp_qp> handle_;
};

class Connection;

// A message in the connection's memory; released when it goes out of scope.
class View {
public:
    View() = default;
    View(View&& other) noexcept : conn_(std::exchange(other.conn_, nullptr)), view_(other.view_) {}
    View& operator=(View&& other) noexcept {
        std::swap(conn_, other.conn_);
        std::swap(view_, other.view_);
        return *this;
    }
    ~View() {
        if (conn_ != nullptr)
            tcpqp_release(conn_, &view_);
    }
    explicit operator bool() const noexcept { return conn_ != nullptr; }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept {
        return {static_cast<std::byte*>(view_.data), view_.length};
    }
    // What send() will take of it.
    void resize(uint32_t bytes) noexcept { view_.length = bytes; }

private:
    friend class Connection;
    tcpqp_conn* conn_ = nullptr;
    tcpqp_view view_{};
};

class Connection {
public:
    explicit Connection(int socket, tcpqp_conn_opts opts = {}) {
        tcpqp_conn* c = nullptr;
        uint32_t reason = TCPQP_REASON_NONE;
        opts.size = sizeof(opts);
        const int error = tcpqp_open(socket, &opts, &c, &reason);
        detail::check(error, reason, "open a queue pair connection");
        handle_.reset(c);
    }
    [[nodiscard]] tcpqp_conn* get() const noexcept { return handle_.get(); }
    [[nodiscard]] int fd() const noexcept { return tcpqp_conn_fd(get()); }

    int send(std::span<const std::byte> data, int timeout_ms = -1) noexcept {
        return tcpqp_send(get(), data.data(), data.size(), timeout_ms);
    }
    int recv(View& view, int timeout_ms = -1) noexcept {
        return fill(view, &tcpqp_recv, timeout_ms);
    }
    int buffer(View& view, int timeout_ms = -1) noexcept {
        return fill(view, &tcpqp_buffer, timeout_ms);
    }
    // Without a copy; 0: the view is empty afterwards, else it is still the caller's.
    int send(View& view) noexcept {
        const int error = tcpqp_send_view(get(), &view.view_);
        if (error == 0)
            view.conn_ = nullptr;
        return error;
    }
    // As a stream of bytes, as the C calls of these names.
    ssize_t write(std::span<const std::byte> data, int timeout_ms = -1) noexcept {
        return tcpqp_write(get(), data.data(), data.size(), timeout_ms);
    }
    ssize_t read(std::span<std::byte> room, int timeout_ms = -1) noexcept {
        return tcpqp_read(get(), room.data(), room.size(), timeout_ms);
    }
    // @bytes: empty at the end of the stream; good until consume().
    int peek(std::span<const std::byte>& bytes, int timeout_ms = -1) noexcept {
        tcpqp_view v{};
        const ssize_t n = tcpqp_peek(get(), &v, timeout_ms);
        bytes = {static_cast<const std::byte*>(v.data), n > 0 ? static_cast<size_t>(n) : 0};
        return n < 0 ? static_cast<int>(n) : 0;
    }
    int consume(size_t bytes) noexcept { return tcpqp_consume(get(), bytes); }
    int flush(int timeout_ms = -1) noexcept { return tcpqp_flush(get(), timeout_ms); }
    int finish() noexcept { return tcpqp_finish(get()); }
    int ready() noexcept { return tcpqp_ready(get()); }
    int cancel() noexcept { return tcpqp_conn_cancel(get()); }
    [[nodiscard]] tcpqp_qp_info info() const noexcept {
        tcpqp_qp_info i{};
        i.size = sizeof(i);
        tcpqp_conn_query(get(), &i);
        return i;
    }
    // 0 if all sends have completed.
    int close(int timeout_ms) noexcept { return tcpqp_close(handle_.release(), timeout_ms); }

private:
    int fill(View& view, int (*call)(tcpqp_conn*, tcpqp_view*, int), int timeout_ms) noexcept {
        View fresh;
        const int error = call(get(), &fresh.view_, timeout_ms);
        if (error != 0)
            return error;
        fresh.conn_ = get();
        view = std::move(fresh);
        return 0;
    }
    detail::Owned<tcpqp_conn> handle_;
};

}  // namespace v1
}  // namespace tcpqp
