// SPDX-License-Identifier: BSD-3-Clause
#include "base/pool.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>

namespace tcpqp {

Pool::Pool(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    if (!fd_)
        throw_errno(path);
}

Fd Pool::allocate(uint64_t bytes) const {
    nupa_pool_alloc alloc{.bytes = bytes, .reserved = 0};
    Fd lease(::ioctl(fd_.get(), NUPA_POOL_IOC_ALLOC, &alloc));
    if (!lease)
        throw_errno("lease memory of the pool");
    return lease;
}

uint64_t Pool::offer(const Fd& lease) const {
    nupa_pool_offer offer{.fd = lease.get(), .reserved = 0, .token = 0};
    if (::ioctl(fd_.get(), NUPA_POOL_IOC_OFFER, &offer) < 0)
        throw_errno("offer a lease");
    return offer.token;
}

Fd Pool::take(uint64_t token, uint64_t bytes) const {
    nupa_pool_take take{.token = token, .bytes = bytes};
    Fd lease(::ioctl(fd_.get(), NUPA_POOL_IOC_TAKE, &take));
    if (!lease)
        throw_errno("take a lease");
    return lease;
}

nupa_pool_info Pool::info() const {
    nupa_pool_info info{};
    if (::ioctl(fd_.get(), NUPA_POOL_IOC_INFO, &info) < 0)
        throw_errno("ask the pool");
    return info;
}

}  // namespace tcpqp
