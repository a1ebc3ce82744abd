// SPDX-License-Identifier: BSD-3-Clause
#include "nupa_accel/memory_file.hpp"

#include <fcntl.h>

namespace nupa::accel {

tcpqp::Fd make_memory_file(const std::string& path, uint64_t bytes) {
    // Whoever has mapped an older file of this name keeps that one, and its size.
    if (::unlink(path.c_str()) < 0 && errno != ENOENT)
        tcpqp::throw_errno(path);
    tcpqp::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) < 0)
        tcpqp::throw_errno(path);
    return fd;
}

}  // namespace nupa::accel
