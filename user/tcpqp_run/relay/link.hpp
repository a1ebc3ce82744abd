// SPDX-License-Identifier: BSD-3-Clause
// One relayed connection: the program's socket pair on one side, a carrier on the other.
//
//   connecting -> opening -> carrying -> over
//        \-> refused: the program may still ask why
#pragma once

#include <chrono>

#include "relay/carrier.hpp"
#include "relay/opener.hpp"

namespace tcpqp::run {

// The kernel's number of a socket, which no other has or had; 0: it has none.
[[nodiscard]] uint64_t cookie_of(int socket) noexcept;
// Is it one of a pair that this process made?
[[nodiscard]] bool is_of_our_making(int socket) noexcept;

class Link {
public:
    enum class State : uint8_t { kConnecting, kOpening, kCarrying, kOver };

    // The socket pair; while connect() is under way filled, so that the program's end is not
    // writable yet.  Throws std::system_error.
    Link(Fd tcp, Ask how);

    // The cookie of the program's end.
    [[nodiscard]] uint64_t id() const noexcept { return id_; }

    // The program's end, once.
    [[nodiscard]] Fd take_program_end() noexcept { return std::move(theirs_); }
    [[nodiscard]] State state() const noexcept { return state_; }
    [[nodiscard]] bool was_accepted() const noexcept { return how_ == Ask::kAccepted; }
    [[nodiscard]] int tcp() const noexcept { return tcp_.get(); }
    [[nodiscard]] int program() const noexcept { return ours_.get(); }
    [[nodiscard]] int carrier_fd() noexcept { return carrier_->fd(); }

    // The TCP socket of a connection under way is writable: 0, or the errno that the program gets.
    [[nodiscard]] int connected() noexcept;
    void opening() noexcept { state_ = State::kOpening; }
    void carry(std::unique_ptr<Carrier> carrier) noexcept;
    // Moves what can be moved.  True: there is more, and it is another's turn.
    [[nodiscard]] bool pump() noexcept;
    // The peer must not take it for an end, nor must the program.
    void break_off() noexcept;
    void close() noexcept;
    // The program has gone, but bytes of its are still to be sent.
    [[nodiscard]] bool is_leaving() noexcept;
    // It waits for TCP's acknowledgements, and is to be pumped each kLingerStep.
    [[nodiscard]] bool lingers() const noexcept { return lingers_; }

private:
    bool step_up() noexcept;
    bool step_down() noexcept;
    void end_up() noexcept;
    void drop_filler() noexcept;
    void look_for_close() noexcept;
    [[nodiscard]] bool may_close() noexcept;
    [[nodiscard]] bool program_closed() const noexcept;
    [[nodiscard]] bool wants_reset() const noexcept;

    uint64_t id_ = 0;
    const Ask how_;
    Fd tcp_;
    Fd ours_, theirs_;
    ino_t their_inode_ = 0;
    size_t filler_ = 0;  // bytes in our queue that are nobody's
    State state_;
    bool up_ended_ = false;
    bool down_ended_ = false;
    bool lingers_ = false;
    std::chrono::steady_clock::time_point linger_until_;  // if lingers_
    std::unique_ptr<Carrier> carrier_;
};

}  // namespace tcpqp::run
