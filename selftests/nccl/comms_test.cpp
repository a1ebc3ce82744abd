// SPDX-License-Identifier: BSD-3-Clause
// Two ends of a comm: eager messages and what ends them, rails that end one after the other, and a
// comm that fails.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "ends.hpp"

namespace tcpqp::nccl {
namespace {

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
