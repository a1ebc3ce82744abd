// SPDX-License-Identifier: BSD-3-Clause
// Listens for unix messages at a path.
#pragma once

#include <sys/stat.h>

#include <string>
#include <utility>

#include "base/fd.hpp"

namespace tcpqp {

// The path goes with the object, unless it has become somebody else's.
class UnixListener {
public:
    // Open to @mode.  Throws, also if somebody listens at @path: only a socket that nobody listens
    // at any more is replaced.
    UnixListener(std::string path, mode_t mode, int backlog);
    UnixListener(const UnixListener&) = delete;
    UnixListener& operator=(const UnixListener&) = delete;
    ~UnixListener() { remove_path(); }

    [[nodiscard]] Fd take() noexcept { return std::move(fd_); }

private:
    void remove_path() noexcept;

    std::string path_;
    Fd fd_;
    struct stat bound_ {};  // what is at the path if it is ours
};

}  // namespace tcpqp
