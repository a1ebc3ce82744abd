// SPDX-License-Identifier: BSD-3-Clause
#include <sys/socket.h>

#include <cerrno>
#include <stdexcept>
#include <vector>

#include "devmem/netdev.hpp"
#include "devmem/receive.hpp"
#include "queue.hpp"
#include "ways.hpp"

namespace nupa::bench {
namespace {

constexpr size_t kLandingBytes = 32 << 20;  // what devmem TCP may have under way
constexpr uint32_t kBoundQueue = 1;

class TcpReceiving final : public Receiving {
public:
    TcpReceiving(tcpqp::Fd socket, Place& place)
        : socket_(std::move(socket)), place_(place), host_(kMessageBytes) {}

    void receive(uint64_t messages) override {
        const uint64_t end = at_ + messages * kMessageBytes;
        while (at_ < end) {
            const uint64_t room = Place::room(at_, std::min<uint64_t>(end - at_, host_.size()));
            const ssize_t n = ::recv(socket_.get(), host_.data(), room, 0);
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                tcpqp::throw_errno("recv", n ? errno : ECONNRESET);
            place_.write(at_, {host_.data(), static_cast<size_t>(n)});
            at_ += static_cast<uint64_t>(n);
        }
    }
    [[nodiscard]] Spent spent() const override { return {.host_bytes = at_}; }

private:
    tcpqp::Fd socket_;
    Place& place_;
    std::vector<std::byte> host_;
    uint64_t at_ = 0;  // of the stream
};

class Devmem final : public Receiving {
public:
    Devmem(tcpqp::Fd socket, const std::string& interface, Place& place)
        : socket_(std::move(socket)),
          place_(place),
          landing_(tcpqp::devmem::MemoryKind::kHbm, kLandingBytes),
          binding_(interface, {kBoundQueue}, landing_.dma_buf()),
          steering_(interface, socket_.get(), kBoundQueue),
          receiver_(socket_.get(), landing_, binding_.id()) {}

    void receive(uint64_t messages) override {
        const uint64_t end = at_ + messages * kMessageBytes;
        while (at_ < end) {
            if (!receiver_.receive(Place::room(at_, std::min(end - at_, kMessageBytes))))
                tcpqp::throw_errno("recvmsg", ECONNRESET);
            for (const auto& piece : receiver_.pieces())
                put(piece);
            place_.flush();  // before the pieces are the port's again
            receiver_.give_back();
        }
    }
    [[nodiscard]] Spent spent() const override {
        return {.host_bytes = receiver_.counts().host_bytes, .cmsgs = receiver_.counts().messages};
    }

private:
    void put(std::span<const std::byte> piece) {
        const std::span<std::byte> all = landing_.bytes();
        if (piece.data() >= all.data() && piece.data() < all.data() + all.size())
            place_.copy(at_, landing_.dma_buf(), static_cast<uint64_t>(piece.data() - all.data()),
                        piece.size());
        else
            place_.write(at_, piece);
        at_ += piece.size();
    }

    tcpqp::Fd socket_;
    Place& place_;
    tcpqp::devmem::Memory landing_;
    tcpqp::devmem::Binding binding_;
    tcpqp::devmem::Steering steering_;
    tcpqp::devmem::Receiver receiver_;
    uint64_t at_ = 0;
};

// Message n goes to slot n, round and round.
class QpReceiving final : public Receiving {
public:
    QpReceiving(tcpqp::Fd socket, const std::string& interface, Place& place)
        : queue_(interface, kSlots),
          place_(place.mapped()),
          region_(queue_.context(), place.dma_buf(), 0, kPlaceBytes,
                  reinterpret_cast<uint64_t>(place.mapped()), IBV_ACCESS_LOCAL_WRITE) {
        if (!region_)
            tcpqp::throw_errno("register the accelerator's memory");
        post(kSlots);
        queue_.attach(std::move(socket));
    }

    void receive(uint64_t messages) override {
        bool posted = false;
        while (messages) {
            const uint32_t n = queue_.completions(posted);
            messages -= n;
            post(n);
            posted = true;
        }
        if (const int error = queue_.qp().ring_doorbell(); error != 0)
            tcpqp::throw_errno("ring the doorbell", error);
    }
    [[nodiscard]] Spent spent() const override {
        return {.host_bytes = queue_.info().rx_copied_bytes};
    }

private:
    void post(uint64_t count) {
        tcpqp::Work works[kSlots];
        for (uint64_t i = 0; i < count; i++)
            works[i] = {.address = place_ + posted_++ % kSlots * kMessageBytes,
                        .bytes = kMessageBytes,
                        .lkey = region_.lkey()};
        if (const int error = queue_.qp().post_receives({works, count}); error != 0)
            tcpqp::throw_errno("post receives", error);
    }

    Queue queue_;
    std::byte* place_;
    tcpqp::Mr region_;
    uint64_t posted_ = 0;
};

}  // namespace

std::unique_ptr<Receiving> make_receiving(const std::string& way, tcpqp::Fd socket,
                                          const std::string& interface, Place& place) {
    if (way == "tcp")
        return std::make_unique<TcpReceiving>(std::move(socket), place);
    if (way == "devmem")
        return std::make_unique<Devmem>(std::move(socket), interface, place);
    if (way == "qp")
        return std::make_unique<QpReceiving>(std::move(socket), interface, place);
    throw std::invalid_argument("there is no way '" + way + "'");
}

}  // namespace nupa::bench
