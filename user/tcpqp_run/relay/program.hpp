// SPDX-License-Identifier: BSD-3-Clause
// The program, the process that its caller waits for (front), and how the one's end becomes the
// other's.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace tcpqp::run {

// Forks: the caller goes on as the relay, its parent stays as the front and never returns.
// The relay's end of what they talk by.  Throws std::system_error.
Fd become_relay();

class Program {
public:
    // Starts @argv with the preload library and the relay's socket in its environment.
    // Throws std::system_error: it can't be started.
    Program(char** argv, const std::string& preload, const std::string& socket, Fd front);

    // Readable: a child ended.
    [[nodiscard]] int fd() const noexcept { return children_.get(); }
    void reap() noexcept;
    [[nodiscard]] bool has_ended() const noexcept { return ended_; }
    [[nodiscard]] bool anyone_left() const noexcept { return anyone_; }
    // Once: the front ends as the program did.
    void tell_front() noexcept;

private:
    Fd front_;
    Fd children_;
    int pid_ = -1;
    int status_ = 0;
    bool ended_ = false;
    bool anyone_ = true;
};

}  // namespace tcpqp::run
