// SPDX-License-Identifier: BSD-3-Clause
// A pool of memory in this process, in place of /dev/nupa_pool0: the library's open(), ioctl() and
// mmap() are wrapped.  Its leases are memory files, and an offered one can't be touched any more.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stock_test {

// For as long as it lives there is a pool, of which both ends are hosts.  One at a time.
class FakePool {
public:
    FakePool();
    ~FakePool();
    FakePool(const FakePool&) = delete;
    FakePool& operator=(const FakePool&) = delete;

    // The next @count takes fail by @error, and the offers stand.
    void fail_takes(int error, unsigned count) noexcept;
    // The next offer fails by @error; but for EBUSY its memory is gone.
    void fail_offer(int error) noexcept;
    // The next @count files can't be mapped.
    void fail_maps(unsigned count) noexcept;
    // Of who is gone.
    void drop_offers() noexcept;
    // Descriptors of leases that somebody has.
    [[nodiscard]] static size_t leases();
};

}  // namespace stock_test
