// SPDX-License-Identifier: BSD-3-Clause
// Ends of comms: both ours, or one that says what it likes.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "eventually.hpp"
#include "nccl/plugin/connector.hpp"
#include "nccl/plugin/listener.hpp"

namespace tcpqp::nccl {

inline std::vector<Interface> loopback() { return find_interfaces("lo", "AF_INET"); }

inline Fd dial(const Handle& handle, size_t rail) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(handle.at[rail].port);
    std::memcpy(&to.sin_addr, &handle.at[rail].address[12], 4);
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    return fd;
}

inline Hello hello_to(const Handle& handle, uint8_t rail, uint64_t comm) {
    Hello hello{};
    hello.magic = kMagic;
    hello.version = kProtocolVersion;
    hello.rail = rail;
    hello.rails = handle.rails;
    hello.nonce = handle.nonce;
    hello.comm = comm;
    return hello;
}

template <typename T>
void say(const Fd& fd, const T& what) {
    EXPECT_EQ(::send(fd.get(), &what, sizeof(what), MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof(what)));
}

class Hostile : public ::testing::Test {
protected:
    Hostile() : interfaces_(loopback()) {
        EXPECT_FALSE(interfaces_.empty());
        one_ = {&interfaces_[0]};
        two_ = {&interfaces_[0], &interfaces_[0]};
    }
    std::vector<Interface> interfaces_;
    std::vector<const Interface*> one_, two_;
};

// A receiving end, and whom it takes sends from.
class Announcer {
public:
    explicit Announcer(const std::vector<const Interface*>& rails)
        : listener_(rails, kConnectLimitDefaultMs), connector_(listener_.handle(), rails, 10000) {}

    std::unique_ptr<SendComm> connect() {
        std::unique_ptr<SendComm> comm;
        EXPECT_TRUE(eventually([&] {
            if (!peer_)
                peer_ = listener_.accept();
            if (!comm && connector_.step() == kSuccess)
                comm = connector_.finish();
            return comm && peer_;
        }));
        return comm;
    }
    ReceiveComm& peer() { return *peer_; }
    void close_peer() {
        peer_->close();
        peer_.reset();
    }

private:
    Listener listener_;
    Connector connector_;
    std::unique_ptr<ReceiveComm> peer_;
};

// A receiver whose sender is ours to misuse: it says what it likes on a queue pair of the stock
// engine, after as many short messages as earn it a grant.
class HostileSender {
public:
    HostileSender(const std::vector<const Interface*>& to, bool earn)
        : listener_(to, kConnectLimitDefaultMs) {
        std::vector<Fd> sockets;
        for (uint8_t i = 0; i < to.size(); i++) {
            sockets.push_back(dial(listener_.handle(), i));
            nccl::say(sockets.back(), hello_to(listener_.handle(), i, 3));
        }
        EXPECT_TRUE(eventually([&] { return (comm_ = listener_.accept()) != nullptr; }));
        for (Fd& fd : sockets) {
            Reply reply;
            EXPECT_EQ(::recv(fd.get(), &reply, sizeof(reply), MSG_WAITALL), ssize_t{sizeof(reply)});
            Rail& rail = *rails_.emplace_back(std::make_unique<Rail>(std::move(fd), "hostile"));
            EXPECT_EQ(rail.probe(), 0);
            EXPECT_EQ(rail.open(Carrier::kStock, {.sends = 64, .receives = 64}), 0);
        }
        buffer_.assign(kRoom, std::byte{0x11});
        EXPECT_EQ(comm_->register_memory(buffer_.data(), buffer_.size(), &memory_), kSuccess);
        for (auto& said : said_)
            heard(said);
        for (uint32_t i = 0; earn && i < kEagerAfter; i++) {
            receive();
            send(4, TCPQP_F_IMM, immediate_of(i, 0));
            EXPECT_EQ(wait(), kSuccess);
        }
    }
    Request* receive() {
        const Receive receive{buffer_.data(), kRoom, 0, memory_};
        EXPECT_EQ(comm_->receive({&receive, 1}, false, &request_), kSuccess);
        return request_;
    }
    void send(uint32_t bytes, uint32_t flags, uint32_t imm, size_t rail = 0) {
        tcpqp_work work{};
        work.addr = out_.data();
        work.length = bytes;
        work.flags = flags;
        work.imm = imm;
        EXPECT_EQ(tcpqp_post_send(rails_[rail]->qp(), &work, 1), 1);
    }
    void close(size_t rail) { rails_[rail]->finish(); }
    // Of a receive, or the last one: done, or what the comm says.
    Result wait() { return wait(request_); }
    Result wait(Request* request) {
        Result result = kSuccess;
        int done = 0;
        EXPECT_TRUE(eventually([&] {
            result = test(request, done);
            return done != 0 || result != kSuccess;
        }));
        return result;
    }
    Result test(Request* request, int& done) {
        for (const auto& rail : rails_)
            rail->poll(completions_);
        return comm_->test(*request, &done, &bytes_);
    }
    [[nodiscard]] int bytes() const { return bytes_; }
    [[nodiscard]] bool untouched(size_t from) const {
        return std::all_of(buffer_.begin() + static_cast<ptrdiff_t>(from), buffer_.end(),
                           [](std::byte b) { return b == std::byte{0x11}; });
    }

private:
    static constexpr size_t kRoom = 100;
    void heard(Announce& into) {
        tcpqp_work work{};
        work.addr = &into;
        work.length = sizeof(into);
        EXPECT_EQ(tcpqp_post_recv(rails_[0]->qp(), &work, 1), 1);
    }
    Listener listener_;
    std::array<Announce, 32> said_;
    std::array<tcpqp_completion, 32> completions_;
    std::vector<std::byte> buffer_, out_ = std::vector<std::byte>(8192, std::byte{0x77});
    std::vector<std::unique_ptr<Rail>> rails_;
    std::unique_ptr<ReceiveComm> comm_;
    Memory* memory_ = nullptr;
    Request* request_ = nullptr;
    int bytes_ = 0;
};

inline bool is_done(Comm& comm, Request* request) {
    int done = 0;
    EXPECT_EQ(comm.test(*request, &done, nullptr), kSuccess);
    return done != 0;
}

// Both ends of a comm, and short messages from one to the other.
class Couple {
public:
    explicit Couple(const std::vector<const Interface*>& rails)
        : announcer_(rails), comm_(announcer_.connect()) {
        EXPECT_EQ(announcer_.peer().register_memory(in_.data(), in_.size(), &there_), kSuccess);
        EXPECT_EQ(comm_->register_memory(out_.data(), out_.size(), &here_), kSuccess);
    }
    ReceiveComm& receiver() { return announcer_.peer(); }
    SendComm& sender() { return *comm_; }
    Result try_receive(int tag, Request** out) {
        const Receive room{in_.data(), in_.size(), tag, there_};
        return receiver().receive({&room, 1}, false, out);
    }
    Request* receive(int tag) {
        Request* request = nullptr;
        EXPECT_EQ(try_receive(tag, &request), kSuccess);
        return request;
    }
    // Two at once.
    Request* receive_group(int tag) {
        const Receive room{in_.data(), in_.size(), tag, there_};
        const std::array<Receive, 2> both{room, room};
        Request* request = nullptr;
        EXPECT_EQ(receiver().receive(both, false, &request), kSuccess);
        return request;
    }
    Request* try_send(int tag, std::byte content) {
        Request* request = nullptr;
        std::fill(out_.begin(), out_.end(), content);
        EXPECT_EQ(comm_->send(out_.data(), 10, tag, here_, &request), kSuccess);
        return request;
    }
    // Its receive has been posted, or there is a grant.  The receiver hears a stop meanwhile.
    void send(int tag, std::byte content, Request* received = nullptr) {
        Request* sent = nullptr;
        ASSERT_TRUE(eventually([&] {
            if (received != nullptr) {
                EXPECT_FALSE(is_done(receiver(), received));
            }
            return (sent = try_send(tag, content)) != nullptr;
        }));
        ASSERT_TRUE(eventually([&] { return is_done(*comm_, sent); }));
    }
    void exchange(int tag, std::byte content) {
        Request* received = receive(tag);
        send(tag, content, received);
        expect(received, content);
    }
    void expect(Request* received, std::byte content) {
        ASSERT_TRUE(eventually([&] { return is_done(receiver(), received); }));
        EXPECT_EQ(in_[9], content);
    }
    void earn_grant(int tag) {
        for (uint32_t i = 0; i < kEagerAfter; i++)
            exchange(tag, std::byte{1});
        ASSERT_TRUE(eventually([&] {
            Request* early = try_send(tag, std::byte{2});
            return early != nullptr && eventually([&] { return is_done(*comm_, early); });
        }));
        expect(receive(tag), std::byte{2});
    }
    void close_sender() {
        comm_->close();
        comm_.reset();
    }

private:
    std::vector<std::byte> in_ = std::vector<std::byte>(100), out_ = std::vector<std::byte>(100);
    Memory *there_ = nullptr, *here_ = nullptr;
    Announcer announcer_;
    std::unique_ptr<SendComm> comm_;
};

}  // namespace tcpqp::nccl
