// SPDX-License-Identifier: BSD-3-Clause
// Keeps the locks of sockets for as long as it likes, as any process can: each in a system call
// that reads a page which nobody has given yet.
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

#include "base/fd.hpp"

namespace nupa::programs {

class LockKeeper {
public:
    // Of @most sockets.  Wants vm.unprivileged_userfaultfd, or privilege.  Throws
    // std::system_error.
    explicit LockKeeper(size_t most);
    ~LockKeeper();
    LockKeeper(const LockKeeper&) = delete;
    LockKeeper& operator=(const LockKeeper&) = delete;

    // Returns once the lock is kept.
    void keep(const tcpqp::Fd& socket);
    // Of all, for good; returns when they are free.
    void let_go() noexcept;

private:
    size_t page_bytes_, bytes_;
    unsigned char* pages_ = nullptr;
    tcpqp::Fd faults_;
    std::vector<std::thread> threads_;
};

}  // namespace nupa::programs
