// SPDX-License-Identifier: BSD-3-Clause
// Hostile ends: who knows the nonce and says half of it all, or nonsense after it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>

#include "eventually.hpp"
#include "nccl/plugin/connector.hpp"
#include "nccl/plugin/listener.hpp"

namespace tcpqp::nccl {
namespace {

std::vector<Interface> loopback() { return find_interfaces("lo", "AF_INET"); }

Fd dial(const Handle& handle, size_t rail) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(handle.at[rail].port);
    std::memcpy(&to.sin_addr, &handle.at[rail].address[12], 4);
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    return fd;
}

Hello hello_to(const Handle& handle, uint8_t rail, uint64_t comm) {
    Hello hello{};
    hello.magic = kMagic;
    hello.version = kProtocolVersion;
    hello.rail = rail;
    hello.rails = handle.rails;
    hello.nonce = handle.nonce;
    hello.comm = comm;
    return hello;
}

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

// A peer of libtcpqp's that announces what no receiver would.
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

bool is_done(Comm& comm, Request* request) {
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

// As many as there are credits, and nobody waits for one; then the peer goes.
TEST_F(Hostile, EagerMessagesOutliveTheirSender) {
    Couple pair(one_);
    pair.earn_grant(5);
    uint32_t early = 0;
    while (Request* sent = pair.try_send(5, static_cast<std::byte>(early))) {
        ASSERT_TRUE(eventually([&] { return is_done(pair.sender(), sent); }));
        early++;
    }
    EXPECT_GE(early, kEagerCredits - 1);  // one has been used
    EXPECT_LE(early, kEagerCredits);
    pair.close_sender();
    for (uint32_t i = 0; i < early; i++)
        pair.expect(pair.receive(5), static_cast<std::byte>(i));
    Request* request = nullptr;
    EXPECT_TRUE(eventually([&] {
        int done = 0;
        if (request == nullptr && pair.try_receive(5, &request) == kRemoteError)
            return true;
        return pair.receiver().test(*request, &done, nullptr) == kRemoteError;
    }));
}

// The receiver wants another tag first, and as much of it as would earn a grant.
TEST_F(Hostile, HeldMessagesKeepTheirTag) {
    Couple pair(one_);
    pair.earn_grant(5);
    pair.send(5, std::byte{7});
    pair.send(5, std::byte{8});
    for (uint32_t i = 0; i < 2 * kEagerAfter; i++)
        pair.exchange(6, static_cast<std::byte>(100 + i));
    pair.expect(pair.receive(5), std::byte{7});
    pair.expect(pair.receive(5), std::byte{8});
    pair.exchange(5, std::byte{9});
    pair.earn_grant(6);
}

// The sender hears a grant and its recall while a receive of before both waits for its sends.
TEST_F(Hostile, ARecallLeavesAnnouncedReceivesTheirSends) {
    Couple pair(one_);
    std::vector<Request*> ahead;
    for (uint32_t i = 0; i < kEagerAfter; i++)
        ahead.push_back(pair.receive(5));
    Request* group = pair.receive_group(5);
    for (uint32_t i = 0; i < kEagerAfter; i++) {
        pair.send(5, static_cast<std::byte>(i));
        pair.expect(ahead[i], static_cast<std::byte>(i));
    }
    Request* other = pair.receive(6);
    Request* first = nullptr;
    ASSERT_TRUE(eventually([&] { return (first = pair.try_send(5, std::byte{20})) != nullptr; }));
    for (int i = 0; i < 1000; i++) {  // both go on, and no event tells that the recall was heard
        ASSERT_FALSE(is_done(pair.sender(), first));
        ASSERT_FALSE(is_done(pair.receiver(), group));
        ASSERT_FALSE(HasFailure());
    }
    pair.send(5, std::byte{21});
    ASSERT_TRUE(eventually([&] { return is_done(pair.sender(), first); }));
    pair.expect(group, std::byte{21});
    pair.send(6, std::byte{22}, other);
    pair.expect(other, std::byte{22});
    pair.earn_grant(6);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need their own
// This process gets no more than so much, until it goes.
class AddressSpace {
public:
    explicit AddressSpace(size_t more) {
        size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        EXPECT_EQ(::getrlimit(RLIMIT_AS, &before_), 0);
        const rlimit now{pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE)) + more,
                         before_.rlim_max};
        EXPECT_EQ(::setrlimit(RLIMIT_AS, &now), 0);
    }
    AddressSpace(const AddressSpace&) = delete;
    ~AddressSpace() { EXPECT_EQ(::setrlimit(RLIMIT_AS, &before_), 0); }

private:
    rlimit before_{};
};

// Its buffer is made when the sender's stop has come, where nothing may be thrown.
TEST_F(Hostile, APolledReceiveWithoutMemoryEndsTheComm) {
    Couple pair(one_);
    pair.earn_grant(5);
    void* at = ::mmap(nullptr, kMessageMaxBytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    Memory* memory = nullptr;
    ASSERT_EQ(pair.receiver().register_memory(at, kMessageMaxBytes, &memory), kSuccess);
    {
        const AddressSpace limited(kMessageMaxBytes / 4);
        const Receive polled{at, kMessageMaxBytes, 6, memory};
        Request* request = nullptr;
        ASSERT_EQ(pair.receiver().receive({&polled, 1}, true, &request), kSuccess);
        EXPECT_EQ(pair.try_send(6, std::byte{1}), nullptr);  // it says stop
        EXPECT_TRUE(eventually([&] {
            int done = 0;
            return pair.receiver().test(*request, &done, nullptr) == kSystemError;
        }));
    }
    EXPECT_EQ(::munmap(at, kMessageMaxBytes), 0);
}
#endif

// The receiver has all and leaves: one rail has ended before the other one's completions are taken.
TEST_F(Hostile, SendsThatCameAreDoneAfterTheReceiverHasLeft) {
    constexpr size_t kBytes = 1000;
    Announcer announcer(two_);
    const auto comm = announcer.connect();
    std::vector<std::byte> in(kSendsMax * kBytes), out(kBytes);
    Memory *there = nullptr, *here = nullptr;
    ASSERT_EQ(announcer.peer().register_memory(in.data(), in.size(), &there), kSuccess);
    ASSERT_EQ(comm->register_memory(out.data(), out.size(), &here), kSuccess);
    std::vector<Request*> received, sent;
    std::vector<int> tags;
    for (uint32_t i = 0; i < kGroupsMax; i++) {  // one rail has the short groups, one the long
        std::vector<Receive> group;
        for (int tag = 0; tag < (i % 2 == 0 ? 1 : int{kGroupMax}); tag++) {
            group.push_back({in.data() + tags.size() * kBytes, kBytes, tag, there});
            tags.push_back(tag);
        }
        received.push_back(nullptr);
        ASSERT_EQ(announcer.peer().receive(group, false, &received.back()), kSuccess);
    }
    for (const int tag : tags) {
        sent.push_back(nullptr);
        ASSERT_TRUE(eventually([&] {
            EXPECT_EQ(comm->send(out.data(), kBytes, tag, here, &sent.back()), kSuccess);
            return sent.back() != nullptr;
        }));
    }
    for (Request* request : received)
        ASSERT_TRUE(eventually([&] { return is_done(announcer.peer(), request); }));
    announcer.close_peer();
    for (Request* request : sent) {
        ASSERT_TRUE(eventually([&] { return is_done(*comm, request) || HasFailure(); }));
        ASSERT_FALSE(HasFailure());
    }
}

// The rails of a sender that leaves end one after the other, and what it sent before may be late.
TEST_F(Hostile, AMessageMayComeAfterTheOtherRailHasEnded) {
    HostileSender sender(two_, false);
    std::vector<Request*> requests;
    for (uint32_t i = 0; i < kEagerAfter + 2; i++)  // the last one comes by the second rail
        requests.push_back(sender.receive());
    for (uint32_t i = 0; i + 1 < requests.size(); i++) {
        sender.send(4, TCPQP_F_IMM, immediate_of(i, 0), i % 2);
        ASSERT_EQ(sender.wait(requests[i]), kSuccess);
    }
    sender.close(0);  // on which eager messages are granted
    int done = 0;
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(sender.test(requests.back(), done), kSuccess);
    EXPECT_EQ(done, 0);
    sender.send(4, TCPQP_F_IMM, immediate_of(kEagerAfter + 1, 0), 1);
    EXPECT_EQ(sender.wait(requests.back()), kSuccess);
}

// It is kept until NCCL closes it, which may be much later.
TEST_F(Hostile, ACommThatFailedHangsUp) {
    Announcer announcer(one_);
    const auto comm = announcer.connect();
    std::byte in{}, out{};
    Memory *there = nullptr, *here = nullptr;
    ASSERT_EQ(announcer.peer().register_memory(&in, 1, &there), kSuccess);
    ASSERT_EQ(comm->register_memory(&out, 1, &here), kSuccess);
    const Receive receive{&in, 1, 0, there};
    Request* request = nullptr;
    ASSERT_EQ(announcer.peer().receive({&receive, 1}, false, &request), kSuccess);
    ASSERT_EQ(announcer.peer().deregister(there), kSuccess);  // under what is posted
    EXPECT_TRUE(eventually([&] {
        request = nullptr;
        return comm->send(&out, 1, 0, here, &request) == kRemoteError;
    }));
}

// One of two rails is gone for good, with a message that was to come by it.
TEST_F(Hostile, AMessageThatTheLostRailHadEndsTheComm) {
    for (const uint32_t lost : {0u, 1u}) {
        HostileSender sender(two_, false);
        Request* requests[2] = {sender.receive(), sender.receive()};
        sender.close(lost);
        EXPECT_EQ(sender.wait(requests[lost]), kRemoteError);
    }
}

}  // namespace
}  // namespace tcpqp::nccl
