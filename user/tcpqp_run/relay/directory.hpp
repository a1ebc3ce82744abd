// SPDX-License-Identifier: BSD-3-Clause
// Where the relay's socket is.  Its lock says that the relay lives: the kernel gives it back
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

private:
    std::string path_;
    Fd lock_;
};

}  // namespace tcpqp::run
