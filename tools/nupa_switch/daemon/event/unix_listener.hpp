// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "event/fd.hpp"

namespace nupa::daemon {

// A UNIX stream socket that listens at a path and removes the path when it goes.
class UnixListener {
public:
    // Replaces a stale socket at @path; throws when another process listens there.
    explicit UnixListener(std::string path);
    UnixListener(UnixListener&&) = default;
    UnixListener& operator=(UnixListener&&) = delete;
    ~UnixListener();

    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    Fd accept() noexcept;  // empty when nobody waits

private:
    std::string path_;
    Fd fd_;
};

}  // namespace nupa::daemon
