// SPDX-License-Identifier: BSD-3-Clause
// Where the relay's socket is, and a name for the preload library if its own is one that ld.so
// does not take.  Its lock says that the relay lives: the kernel gives it back
// however that ends, and the next relay of this user removes what is left.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace tcpqp::run {

class Directory {
public:
    // Throws std::system_error.
    Directory();
    ~Directory();
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    [[nodiscard]] std::string socket() const;
    // @library by a path that LD_PRELOAD can hold: it is split at spaces and colons.  Only this
    // user can change what the path leads to, as with the socket.  Throws.
    [[nodiscard]] std::string preloadable(const std::string& library) const;

private:
    std::string path_;
    Fd lock_;
};

}  // namespace tcpqp::run
