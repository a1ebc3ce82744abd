// SPDX-License-Identifier: BSD-3-Clause
#include "conn/handover.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <tcp_qp/nupa_pool.h>
#include <tcpqp.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "provider/pool.hpp"

namespace tcpqp {
namespace {

constexpr size_t kReferenceMinBytes = 16384;  // below it the copy costs less than a lease's way

// The rest of the lease has to be cleared, and goes along.
bool is_worth_a_lease(uint64_t length, uint64_t lease_bytes) noexcept {
    return length >= kReferenceMinBytes && length >= lease_bytes / 2;
}

// The head as it lies on the wire.
struct WireHead {
    uint8_t kind;
    uint8_t reserved[3];
    uint32_t flags, imm, length;
    uint64_t number, lease_bytes;
};
static_assert(sizeof(WireHead) == kHeadBytes && std::endian::native == std::endian::little);

bool is_sound(const Head& head, size_t behind) noexcept {
    if ((head.flags & ~uint32_t{TCPQP_F_IMM}) != 0)
        return false;
    switch (head.kind) {
        case HeadKind::kInline:
            return head.length == behind;
        case HeadKind::kReference:
            return behind == 0 && head.number != 0 &&
                   head.lease_bytes % NUPA_POOL_PAGE_BYTES == 0 &&
                   head.length <= head.lease_bytes && head.lease_bytes <= TCPQP_BUFFERS_MAX_BYTES &&
                   is_worth_a_lease(head.length, head.lease_bytes);
        case HeadKind::kHello:
        case HeadKind::kTaken:
            return behind == 0 && head.length == 0;
    }
    return false;
}

}  // namespace

void write_head(const Head& head, std::byte* to) noexcept {
    const WireHead wire{static_cast<uint8_t>(head.kind),
                        {},
                        head.flags,
                        head.imm,
                        head.length,
                        head.number,
                        head.lease_bytes};
    std::memcpy(to, &wire, sizeof(wire));
}

std::optional<Head> read_head(const std::byte* from, size_t behind) noexcept {
    WireHead wire;
    std::memcpy(&wire, from, sizeof(wire));
    const Head head{static_cast<HeadKind>(wire.kind),
                    wire.flags,
                    wire.imm,
                    wire.length,
                    wire.number,
                    wire.lease_bytes};
    return is_sound(head, behind) ? std::optional(head) : std::nullopt;
}

// ---- a lease ----

bool MappedLease::map() noexcept {
    void* const at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (at == MAP_FAILED)
        return false;
    at_ = static_cast<std::byte*>(at);
    return true;
}

MappedLease::~MappedLease() {
    if (at_ != nullptr)
        ::munmap(at_, bytes_);
    if (fd_ >= 0)
        ::close(fd_);
}

int MappedLease::unmap() noexcept {
    ::munmap(std::exchange(at_, nullptr), bytes_);
    return std::exchange(fd_, -1);
}

void MappedLease::replace(int fd) noexcept {
    constexpr int kRights = PROT_READ | PROT_WRITE;
    ::close(std::exchange(fd_, fd));
    if (fd_ >= 0 && ::mmap(at_, bytes_, kRights, MAP_SHARED | MAP_FIXED, fd_, 0) != MAP_FAILED)
        return;
    if (fd_ >= 0)
        ::close(std::exchange(fd_, -1));
    (void)::mmap(at_, bytes_, kRights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

void MappedLease::swap(MappedLease& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
    std::swap(fd_, other.fd_);
}

// ---- a connection's ----

Handover::Handover(size_t buffer_bytes, uint32_t spare)
    : lease_bytes_(whole_pages(buffer_bytes)), spare_max_(spare) {
    spare_.reserve(spare);
    device_ = ::open(kPoolPath, O_RDWR | O_CLOEXEC);
    nupa_pool_info info{};
    if (device_ >= 0 && ::ioctl(device_, NUPA_POOL_IOC_INFO, &info) == 0)
        pool_ = info.pool;
}

Handover::~Handover() {
    for (const int fd : offered_)
        ::close(fd);
    if (device_ >= 0)
        ::close(device_);
}

void Handover::hear(const Head& hello) noexcept {
    heard_ = true;
    same_pool_ = pool_ != 0 && hello.number == pool_;
}

MappedLease Handover::obtain() noexcept {
    if (!same_pool_ || lease_bytes_ < kReferenceMinBytes)
        return {};
    if (!spare_.empty()) {
        MappedLease lease = std::move(spare_.back());
        spare_.pop_back();
        return lease;
    }
    nupa_pool_alloc request{.bytes = lease_bytes_, .reserved = 0};
    const int fd = ::ioctl(device_, NUPA_POOL_IOC_ALLOC, &request);
    MappedLease lease(fd, lease_bytes_);
    return fd < 0 || !lease.map() ? MappedLease() : std::move(lease);
}

bool Handover::pays(const MappedLease& lease, size_t length) const noexcept {
    return same_pool_ && !lease.is_lost() && is_worth_a_lease(length, lease.bytes());
}

bool Handover::offer(MappedLease& lease, Head& head) noexcept try {
    offered_.push_back(lease.fd());  // may throw, so first
    std::memset(lease.data() + head.length, 0, lease.bytes() - head.length);
    nupa_pool_offer request{.fd = lease.fd(), .reserved = 0, .token = 0};
    if (::ioctl(device_, NUPA_POOL_IOC_OFFER, &request) < 0) {
        offered_.pop_back();
        if (errno != EBUSY)  // the window has gone, or nobody knows where the lease is
            lease.replace(-1);
        return false;
    }
    head.kind = HeadKind::kReference;
    head.number = request.token;
    head.lease_bytes = lease.bytes();
    tx_bytes_ += head.length;
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

void Handover::leave(MappedLease& lease) noexcept { (void)lease.unmap(); }

// Nobody else knows its token.
void Handover::withdraw(MappedLease& lease, const Head& head) noexcept {
    offered_.pop_back();
    tx_bytes_ -= head.length;
    nupa_pool_take request{.token = head.number, .bytes = head.lease_bytes};
    lease.replace(::ioctl(device_, NUPA_POOL_IOC_TAKE, &request));
}

int Handover::take(const Head& head, MappedLease& lease) noexcept {
    if (device_ < 0)
        return -ENOENT;
    if (lease.fd() < 0) {  // else only mapping it has failed
        nupa_pool_take request{.token = head.number, .bytes = head.lease_bytes};
        int fd = ::ioctl(device_, NUPA_POOL_IOC_TAKE, &request);
        if (fd < 0 && errno != ENOENT && !spare_.empty()) {  // of what we keep there may be room
            spare_.clear();
            fd = ::ioctl(device_, NUPA_POOL_IOC_TAKE, &request);
        }
        if (fd < 0)
            return -errno;
        lease = MappedLease(fd, head.lease_bytes);
    }
    if (!lease.map())
        return -errno;
    taken_++;
    rx_bytes_ += head.length;
    return 0;
}

void Handover::keep(MappedLease lease) noexcept {
    if (lease && !lease.is_lost() && lease.bytes() == lease_bytes_ && spare_.size() < spare_max_)
        spare_.push_back(std::move(lease));
}

bool Handover::peer_took(uint64_t count) noexcept {
    if (count - peer_took_ > offered_.size())
        return false;
    for (; peer_took_ != count; peer_took_++) {
        ::close(offered_.front());
        offered_.pop_front();
    }
    return true;
}

}  // namespace tcpqp
