// SPDX-License-Identifier: BSD-3-Clause
// Hostile ends: who knows the nonce and says half of it all, or nonsense after it.
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <optional>
#include <utility>

#include "ends.hpp"

namespace tcpqp::nccl {
namespace {

// A listening socket on loopback that is no Listener.
Fd open_door(uint16_t& port) {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(at);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&at), length), 0);
    EXPECT_EQ(::listen(fd.get(), 1), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &length), 0);
    port = ntohs(at.sin_port);
    return fd;
}

// A connector that believes in a handle of ours, and the connection on which it waits for a reply.
struct Lured {
    std::unique_ptr<Connector> connector;
    Fd fd;
};
Lured lure(const std::vector<const Interface*>& from) {
    uint16_t port = 0;
    const Fd door = open_door(port);
    Handle handle = Listener(from, kConnectLimitDefaultMs).handle();
    handle.at[0].port = port;
    auto connector = std::make_unique<Connector>(handle, from, 10000);
    EXPECT_EQ(connector->step(), kInProgress);
    return {std::move(connector), Fd(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

TEST_F(Hostile, EachWrongFieldOfAHelloIsDropped) {
    Listener listener(one_, kConnectLimitDefaultMs);
    const Handle handle = listener.handle();
    const std::function<void(Hello&)> wrong[] = {
        [](Hello& h) { h.magic ^= 1; },     [](Hello& h) { h.version++; },
        [](Hello& h) { h.rail = 1; },       [](Hello& h) { h.rails = 2; },
        [](Hello& h) { h.nonce[15] ^= 1; }, [](Hello& h) { h.nonce[0] ^= 0x80; },
    };
    std::vector<Fd> kept;
    for (const auto& change : wrong) {
        Hello hello = hello_to(handle, 0, 1);
        change(hello);
        kept.push_back(dial(handle, 0));
        say(kept.back(), hello);
    }
    EXPECT_TRUE(eventually([&] {
        EXPECT_EQ(listener.accept(), nullptr);
        return listener.dropped() == std::size(wrong);
    }));
}

TEST_F(Hostile, HalfOfTheRailsIsNoComm) {
    Listener listener(two_, 50);
    const Handle handle = listener.handle();
    const Fd first = dial(handle, 0), again = dial(handle, 0);
    say(first, hello_to(handle, 0, 7));
    say(again, hello_to(handle, 0, 7));  // the same rail twice
    // the second of them, then the one rail that waited for its sister in vain
    EXPECT_TRUE(eventually([&] {
        EXPECT_EQ(listener.accept(), nullptr);
        return listener.dropped() == 2;
    }));
}

TEST_F(Hostile, SilentOnesBeyondTheBoundGoOldestFirst) {
    Listener listener(one_, kConnectLimitDefaultMs);
    const Handle handle = listener.handle();
    std::vector<Fd> silent;
    for (size_t i = 0; i < kStrangersMax + 10; i++) {
        silent.push_back(dial(handle, 0));
        EXPECT_EQ(listener.accept(), nullptr);
    }
    EXPECT_TRUE(eventually([&] {
        EXPECT_EQ(listener.accept(), nullptr);
        return listener.dropped() == 10;
    }));
    pollfd oldest{silent.front().get(), POLLIN, 0};
    EXPECT_EQ(::poll(&oldest, 1, 1000), 1);
    Connector real(handle, one_, 10000);
    std::unique_ptr<ReceiveComm> accepted;
    EXPECT_TRUE(eventually([&] {
        const Result result = real.step();
        EXPECT_TRUE(result == kSuccess || result == kInProgress);
        if (!accepted)
            accepted = listener.accept();
        return result == kSuccess && accepted != nullptr;
    }));
}

// It has the nonce, and then speaks no stock frames.
TEST_F(Hostile, NonsenseAfterAGoodHelloEndsTheComm) {
    Listener listener(one_, kConnectLimitDefaultMs);
    const Fd fd = dial(listener.handle(), 0);
    say(fd, hello_to(listener.handle(), 0, 3));
    std::unique_ptr<ReceiveComm> comm;
    ASSERT_TRUE(eventually([&] {
        comm = listener.accept();
        return comm != nullptr;
    }));
    std::vector<std::byte> buffer(4096, std::byte{0x11});
    Memory* memory = nullptr;
    ASSERT_EQ(comm->register_memory(buffer.data(), buffer.size(), &memory), kSuccess);
    const Receive receive{buffer.data(), buffer.size(), 0, memory};
    Request* request = nullptr;
    ASSERT_EQ(comm->receive({&receive, 1}, false, &request), kSuccess);
    ASSERT_NE(request, nullptr);
    const std::vector<std::byte> noise(1000, std::byte{0x5a});
    EXPECT_EQ(::send(fd.get(), noise.data(), noise.size(), MSG_NOSIGNAL), 1000);
    int done = 0;
    EXPECT_TRUE(eventually([&] { return comm->test(*request, &done, nullptr) == kRemoteError; }));
    EXPECT_EQ(done, 0);
    for (const std::byte b : buffer)
        EXPECT_EQ(b, std::byte{0x11});
}

TEST_F(Hostile, AReplyOfNonsenseIsAnError) {
    for (const bool known_carrier : {false, true}) {
        const Lured lured = lure(one_);
        Reply reply{kMagic, kProtocolVersion, Answer::kYes, static_cast<Carrier>(77)};
        if (known_carrier)
            reply = {kMagic, kProtocolVersion, static_cast<Answer>(9), Carrier::kStock};
        say(lured.fd, reply);
        EXPECT_TRUE(eventually([&] { return lured.connector->step() == kRemoteError; }));
    }
}

TEST_F(Hostile, ASendOutsideItsMemoryIsRefused) {
    Announcer announcer(one_);
    const auto comm = announcer.connect();
    std::vector<std::byte> in(100), out(100);
    Memory *there = nullptr, *here = nullptr;
    ASSERT_EQ(announcer.peer().register_memory(in.data(), in.size(), &there), kSuccess);
    ASSERT_EQ(comm->register_memory(out.data(), out.size(), &here), kSuccess);
    const Receive beyond{in.data() + 1, in.size(), 0, there};
    Request* request = nullptr;
    EXPECT_EQ(announcer.peer().receive({&beyond, 1}, false, &request), kInvalidUsage);
    const Receive good{in.data(), in.size(), 0, there};
    ASSERT_EQ(announcer.peer().receive({&good, 1}, false, &request), kSuccess);
    Request* sent = nullptr;
    Result result = kSuccess;
    EXPECT_TRUE(eventually([&] {
        result = comm->send(out.data() + 50, 51, 0, here, &sent);
        return result != kSuccess;
    }));
    EXPECT_EQ(result, kInvalidUsage);
    EXPECT_EQ(sent, nullptr);
    EXPECT_EQ(comm->send(out.data(), 10, 0, there, &sent), kInvalidUsage);  // another comm's
    ASSERT_EQ(comm->send(out.data() + 50, 50, 0, here, &sent), kSuccess);
    ASSERT_NE(sent, nullptr);
    int done = 0;
    EXPECT_TRUE(eventually(
        [&] { return announcer.peer().test(*request, &done, nullptr) == kSuccess && done != 0; }));
}

// Who says to a sender, by libtcpqp, what no receiver would.
class HostileReceiver {
public:
    explicit HostileReceiver(const std::vector<const Interface*>& one) {
        Lured victim = lure(one);
        EXPECT_TRUE(eventually([&] {
            static_cast<void>(victim.connector->step());
            Hello hello;
            return ::recv(victim.fd.get(), &hello, sizeof(hello), MSG_DONTWAIT) == sizeof(hello);
        }));
        nccl::say(victim.fd, Reply{kMagic, kProtocolVersion, Answer::kYes, Carrier::kStock});
        rail_.emplace(std::move(victim.fd), "hostile");
        EXPECT_EQ(rail_->probe(), 0);
        EXPECT_EQ(rail_->open(Carrier::kStock, {.sends = 8, .receives = 8}), 0);
        EXPECT_TRUE(eventually([&] { return victim.connector->step() == kSuccess; }));
        comm_ = victim.connector->finish();
        EXPECT_NE(comm_, nullptr);
        EXPECT_EQ(comm_->register_memory(&byte_, 1, &memory_), kSuccess);
    }
    void say(const Announce& announce, size_t bytes) {
        said_.push_back(std::make_unique<Announce>(announce));
        tcpqp_work work{};
        work.addr = said_.back().get();
        work.length = static_cast<uint32_t>(bytes);
        EXPECT_EQ(tcpqp_post_send(rail_->qp(), &work, 1), 1);
    }
    // What the victim's sends say, once they do not say kSuccess.
    Result result(int tag) {
        Result result = kSuccess;
        Request* request = nullptr;
        EXPECT_TRUE(eventually([&] {
            rail_->poll(completions_);
            result = comm_->send(&byte_, 1, tag, memory_, &request);
            int done = 0;
            if (result == kSuccess && request != nullptr)
                result = comm_->test(*std::exchange(request, nullptr), &done, nullptr);
            return result != kSuccess;
        }));
        return result;
    }

private:
    std::vector<std::unique_ptr<Announce>> said_;
    std::optional<Rail> rail_;
    std::unique_ptr<SendComm> comm_;
    std::array<tcpqp_completion, 8> completions_;
    std::byte byte_{};
    Memory* memory_ = nullptr;
};

TEST_F(Hostile, AnnouncementsOfNonsenseEndTheComm) {
    struct Said {
        uint32_t sequence;
        Kind kind;
        uint8_t count, taken, skips;
        uint32_t bytes;
        size_t length;
    };
    const auto announce = Kind::kAnnounce, grant = Kind::kGrant, credit = Kind::kCredit;
    const auto one = announce_bytes(1), none = announce_bytes(0);
    const std::vector<Said> all[] = {
        {{1, announce, 1, 0, 0, 8, one}},
        {{0, announce, 0, 0, 0, 8, none}},
        {{0, announce, 9, 0, 0, 8, announce_bytes(8)}},
        {{0, announce, 255, 0, 0, 8, announce_bytes(8)}},
        {{0, announce, 2, 0, 0, 8, one}},
        {{0, announce, 1, 0, 0, 8, announce_bytes(2)}},
        {{0, announce, 1, 0, 0, (1u << 30) + 1, one}},
        {{0, announce, 1, 0, 0, 8, 3}},
        {{0, static_cast<Kind>(4), 0, 0, 0, 0, none}},
        {{0, static_cast<Kind>(255), 1, 0, 0, 1, one}},
        {{0, announce, 1, 1, 0, 8, one}},                // all of it taken
        {{0, announce, 2, 4, 0, 8, announce_bytes(2)}},  // one that there is not
        {{0, announce, 1, 0, 1, 8, one}},                // nothing was stopped
        {{0, grant, 0, 0, 0, 0, none}},
        {{0, grant, 1, 0, 0, 0, one}},
        {{0, grant, 1, 0, 0, kEagerCredits + 1, one}},
        {{0, grant, 1, 0, 0, ~0u, one}},
        {{0, grant, 1, 0, 0, 8, one}, {1, grant, 1, 0, 0, 8, one}},
        {{0, grant, 1, 0, 0, 8, one}, {1, announce, 1, 0, 0, 8, one}},
        {{0, grant, 1, 0, 0, kEagerCredits, one}, {1, credit, 1, 0, 0, kEagerCredits, one}},
        {{0, grant, 1, 0, 0, 8, one}, {1, Kind::kRecall, 1, 0, 0, 0, one}},
        {{0, grant, 1, 0, 0, 8, one},
         {1, Kind::kRecall, 0, 0, 0, 0, none},
         {2, grant, 1, 0, 0, 8, one}},
        {{0, grant, 1, 0, 0, 8, one},
         {1, Kind::kRecall, 0, 0, 0, 0, none},
         {2, announce, 1, 0, kEagerBuffers + 1, 8, one}},
        // the recall is not answered before the send that was announced for
        {{0, announce, 1, 0, 0, 8, one},
         {1, grant, 1, 0, 0, 8, one},
         {2, Kind::kRecall, 0, 0, 0, 0, none},
         {3, announce, 1, 0, 0, 8, one}},
        {{0, announce, 1, 0, 0, 8, one},
         {1, grant, 1, 0, 0, 8, one},
         {2, Kind::kRecall, 0, 0, 0, 0, none},
         {3, grant, 1, 0, 0, 8, one}},
    };
    for (size_t i = 0; i < std::size(all); i++) {
        HostileReceiver hostile(one_);
        for (const Said& said : all[i]) {
            Announce a{said.sequence, said.kind, said.count, said.taken, said.skips, {}};
            a.receives[0] = {said.bytes, 7};
            hostile.say(a, said.length);
        }
        EXPECT_EQ(hostile.result(8), kRemoteError) << i;
    }
}

TEST_F(Hostile, EagerMessagesOfNonsenseEndTheComm) {
    struct Bad {
        uint32_t bytes, flags, imm, copies;
        size_t touched;  // what the first of them may write
    };
    const Bad all[] = {
        {4, TCPQP_F_IMM, immediate_of(1, 0), 1, 0},                // out of order
        {4, TCPQP_F_IMM, immediate_of(0, 1), 1, 0},                // of a group
        {4, 0, 0, 1, 0},                                           // an end with bytes in it
        {kEagerBytes + 1, TCPQP_F_IMM, immediate_of(0, 0), 1, 0},  // longer than may be
        {0, 0, 0, kEagerBuffers + 2, 0},                           // more ends than buffers
    };
    for (const Bad& bad : all) {
        HostileSender hostile(one_, true);
        hostile.receive();
        for (uint32_t i = 0; i < bad.copies; i++)
            hostile.send(bad.bytes, bad.flags, bad.imm);
        EXPECT_EQ(hostile.wait(), kRemoteError) << bad.bytes << " " << bad.flags << " " << bad.imm;
        EXPECT_TRUE(hostile.untouched(4)) << bad.bytes;  // 4: the ones that earned the grant
    }
}

TEST_F(Hostile, EagerMessagesAreCutToTheirReceives) {
    HostileSender sender(one_, true);
    sender.receive();
    sender.send(200, TCPQP_F_IMM, immediate_of(0, 0));
    EXPECT_EQ(sender.wait(), kSuccess);
    EXPECT_EQ(sender.bytes(), 100);
}

}  // namespace
}  // namespace tcpqp::nccl
