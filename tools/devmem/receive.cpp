// SPDX-License-Identifier: BSD-3-Clause
#include "devmem/receive.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "devmem/uapi.hpp"

namespace tcpqp::devmem {
namespace {

constexpr size_t kTokensMax = 128;          // of one SO_DEVMEM_DONTNEED
constexpr size_t kControlBytes = 64 << 10;  // 1,600 control messages

struct Fragment {  // struct dmabuf_cmsg
    uint64_t offset;
    uint32_t bytes, token, dmabuf_id, flags;
};

}  // namespace

Receiver::Receiver(int socket, const Memory& memory, uint32_t dmabuf_id)
    : socket_(socket),
      memory_(memory),
      dmabuf_id_(dmabuf_id),
      host_(kCallMaxBytes),
      control_(kControlBytes) {}

size_t Receiver::receive(size_t room) {
    iovec part{.iov_base = host_.data(), .iov_len = std::min(room, host_.size())};
    msghdr got{};
    got.msg_iov = &part;
    got.msg_iovlen = 1;
    got.msg_control = control_.data();
    got.msg_controllen = control_.size();
    ssize_t n = 0;
    do {
        counts_.calls++;
        n = ::recvmsg(socket_, &got, kMsgSockDevmem);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        throw_errno("recvmsg");
    take(got);
    size_t told = 0;
    for (const auto& piece : pieces_)
        told += piece.size();
    // What came to another queue, before the rule, is in host memory, and has no control messages:
    // the kernel never returns both kinds at once.
    if (told == 0 && n > 0) {
        told = static_cast<size_t>(n);
        pieces_.emplace_back(host_.data(), told);
        counts_.host_bytes += told;
    }
    if (told != static_cast<size_t>(n))
        throw std::runtime_error("control messages do not account for what was received");
    counts_.bytes += told;
    return told;
}

void Receiver::take(msghdr& got) {
    size_t host_at = 0;
    pieces_.clear();
    for (const cmsghdr* m = CMSG_FIRSTHDR(&got); m; m = CMSG_NXTHDR(&got, const_cast<cmsghdr*>(m)))
        if (m->cmsg_level == SOL_SOCKET)
            take_one(*m, host_at);
}

void Receiver::take_one(const cmsghdr& message, size_t& host_at) {
    Fragment f{};
    if (message.cmsg_type != kScmLinear && message.cmsg_type != kScmDmabuf)
        return;
    if (message.cmsg_len < CMSG_LEN(sizeof(f)))
        throw std::runtime_error("short control message");
    std::memcpy(&f, CMSG_DATA(&message), sizeof(f));
    counts_.messages++;
    if (message.cmsg_type == kScmLinear) {
        pieces_.emplace_back(host_.data() + host_at, f.bytes);
        host_at += f.bytes;
        counts_.host_bytes += f.bytes;
        return;
    }
    if (f.dmabuf_id != dmabuf_id_ || f.offset + f.bytes > memory_.bytes().size())
        throw std::runtime_error("payload in another's dma-buf");
    pieces_.push_back(memory_.bytes().subspan(f.offset, f.bytes));
    if (!tokens_.empty() && tokens_.back().first + tokens_.back().count == f.token)
        tokens_.back().count++;
    else
        tokens_.push_back({f.token, 1});
}

void Receiver::give_back() {
    for (size_t at = 0; at < tokens_.size(); at += kTokensMax) {
        const size_t n = std::min(kTokensMax, tokens_.size() - at);
        counts_.calls++;
        // It returns how many fragments it took, which setsockopt(2) of others never does.
        if (::setsockopt(socket_, SOL_SOCKET, kSoDontNeed, &tokens_[at],
                         static_cast<socklen_t>(n * sizeof(Tokens))) < 0)
            throw_errno("SO_DEVMEM_DONTNEED");
    }
    tokens_.clear();
    pieces_.clear();
}

}  // namespace tcpqp::devmem
