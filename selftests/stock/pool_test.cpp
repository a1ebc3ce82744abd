// SPDX-License-Identifier: BSD-3-Clause
// Messages by reference, with a pool in this process: who has a message's memory when a call fails,
// the peer goes, or the pool has no room.  With the switch's pool: selftests/vm/pool.py.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>

#include "conn_pair.hpp"
#include "fake_pool.hpp"

namespace stock_test {
namespace {

constexpr uint32_t kLongBytes = 40000;  // ten pages are its lease
constexpr uint32_t kShortBytes = 100;

tcpqp_conn_opts by_reference(uint32_t bytes = kLongBytes) {
    tcpqp_conn_opts o = small(4, bytes);
    o.flags = TCPQP_CONN_F_REFERENCES;
    return o;
}

class Pool : public testing::Test {
protected:
    ~Pool() override {
        p_.a.reset();
        p_.b.reset();
        pool_.drop_offers();
        EXPECT_EQ(pool_.leases(), 0u) << "leases that nobody has any more";
    }

    // A buffer with a message in it.
    static tcpqp_view written(Connection& by, uint32_t bytes, uint32_t seed) {
        tcpqp_view view{};
        EXPECT_EQ(tcpqp_buffer(by.get(), &view, kLimit_ms), 0);
        view.length = bytes;
        const auto message = pattern(bytes, seed);
        std::memcpy(view.data, message.data(), bytes);
        return view;
    }
    static void send(Connection& by, uint32_t bytes, uint32_t seed) {
        tcpqp_view view = written(by, bytes, seed);
        ASSERT_EQ(tcpqp_send_view(by.get(), &view), 0);
    }
    static bool is(const tcpqp_view& view, uint32_t bytes, uint32_t seed) {
        const auto message = pattern(bytes, seed);
        return view.length == bytes && std::memcmp(view.data, message.data(), bytes) == 0;
    }

    FakePool pool_;
    ConnPair p_{by_reference()};
};

TEST_F(Pool, LongMessagesGoByReference) {
    for (uint32_t i = 0; i < 20; i++) {
        const uint32_t bytes = i % 4 == 3 ? kShortBytes : kLongBytes;
        send(*p_.a, bytes, i);
        tcpqp_view in{};
        ASSERT_EQ(tcpqp_recv(p_.b->get(), &in, kLimit_ms), 0);
        ASSERT_TRUE(is(in, bytes, i));
        ASSERT_EQ(tcpqp_send_view(p_.b->get(), &in), 0) << "back, as it lies";
        ASSERT_EQ(tcpqp_recv(p_.a->get(), &in, kLimit_ms), 0);
        ASSERT_TRUE(is(in, bytes, i));
        ASSERT_EQ(tcpqp_release(p_.a->get(), &in), 0);
    }
    EXPECT_EQ(p_.a->info().tx_reference_bytes, 15u * kLongBytes);
    EXPECT_EQ(p_.a->info().rx_reference_bytes, 15u * kLongBytes);
    EXPECT_EQ(p_.a->close(kLimit_ms), 0);
}

// "-ENOTCONN: ended; the view is still yours", and so is what was written to it.
TEST_F(Pool, AViewWhoseSendFailedIsTheCallers) {
    tcpqp_view longer = written(*p_.a, kLongBytes, 1), shorter = written(*p_.a, kShortBytes, 2);
    ASSERT_EQ(p_.a->cancel(), 0);
    EXPECT_EQ(tcpqp_send_view(p_.a->get(), &longer), -ENOTCONN);
    EXPECT_TRUE(is(longer, kLongBytes, 1));
    EXPECT_EQ(tcpqp_send_view(p_.a->get(), &shorter), -ENOTCONN);
    tcpqp_view another{};
    if (tcpqp_buffer(p_.a->get(), &another, 0) == 0)  // it may say that all has ended
        std::memset(another.data, 0xff, another.length);
    EXPECT_TRUE(is(shorter, kShortBytes, 2)) << "another view has its memory";
    EXPECT_TRUE(is(longer, kLongBytes, 1));
    EXPECT_EQ(p_.a->info().tx_reference_bytes, 0u) << "none was sent";
    EXPECT_EQ(tcpqp_release(p_.a->get(), &longer), 0);
    EXPECT_EQ(tcpqp_release(p_.a->get(), &shorter), 0);
}

// Nobody can take the message, nor say so.
TEST_F(Pool, CloseDoesNotWaitForWhoIsGone) {
    send(*p_.a, kLongBytes, 1);
    p_.b.reset();
    p_.sockets[1].reset();
    EXPECT_EQ(p_.a->close(3000), 0);
}

TEST_F(Pool, CloseWaitsForWhoIsSlow) {
    send(*p_.a, kLongBytes, 1);
    EXPECT_EQ(p_.a->close(100), -ETIMEDOUT);
}

// The sender need not wait for the receiver's next call.
TEST_F(Pool, WhatWasReceivedIsToldOfAtOnce) {
    for (uint32_t i = 0; i < 3; i++)
        send(*p_.a, kLongBytes, i);
    std::array<tcpqp_view, 3> in{};
    for (uint32_t i = 0; i < 3; i++) {
        ASSERT_EQ(tcpqp_recv(p_.b->get(), &in.at(i), kLimit_ms), 0);
        ASSERT_TRUE(is(in.at(i), kLongBytes, i));
    }
    EXPECT_EQ(p_.a->close(3000), 0);
}

// The offer stands: it is received when there is room.
TEST_F(Pool, AMessageThatFindsNoRoomIsNotLost) {
    send(*p_.a, kLongBytes, 1);
    send(*p_.a, kShortBytes, 2);
    tcpqp_view in{};
    for (const int error : {EDQUOT, ENOSPC, EMFILE, ENOMEM}) {
        pool_.fail_takes(error, 2);
        EXPECT_EQ(tcpqp_recv(p_.b->get(), &in, kLimit_ms), -error);
        pool_.fail_takes(0, 0);
    }
    ASSERT_EQ(tcpqp_recv(p_.b->get(), &in, kLimit_ms), 0);
    EXPECT_TRUE(is(in, kLongBytes, 1));
    tcpqp_view next{};
    ASSERT_EQ(tcpqp_recv(p_.b->get(), &next, kLimit_ms), 0);
    EXPECT_TRUE(is(next, kShortBytes, 2));
    EXPECT_EQ(p_.a->close(kLimit_ms), 0);
}

// It was taken, and is nobody else's to give again.
TEST_F(Pool, AMessageThatCannotBeMappedIsNotLost) {
    send(*p_.a, kLongBytes, 1);
    tcpqp_view in{};
    pool_.fail_maps(2);
    EXPECT_EQ(tcpqp_recv(p_.b->get(), &in, kLimit_ms), -ENOMEM);
    EXPECT_EQ(tcpqp_recv(p_.b->get(), &in, kLimit_ms), -ENOMEM);
    ASSERT_EQ(tcpqp_recv(p_.b->get(), &in, kLimit_ms), 0);
    EXPECT_TRUE(is(in, kLongBytes, 1));
    EXPECT_EQ(p_.a->close(kLimit_ms), 0);
}

TEST_F(Pool, WhatItDoesNotTakeGoesInline) {
    tcpqp_view out = written(*p_.a, kLongBytes, 1), in{};
    pool_.fail_offer(EBUSY);
    ASSERT_EQ(tcpqp_send_view(p_.a->get(), &out), 0);
    ASSERT_EQ(tcpqp_recv(p_.b->get(), &in, kLimit_ms), 0);
    EXPECT_TRUE(is(in, kLongBytes, 1));
    EXPECT_EQ(p_.b->info().rx_reference_bytes, 0u);
}

// "-EIO": no other bytes are sent in its place, nor is its memory another message's later.
TEST_F(Pool, AMessageWhoseMemoryHasGoneIsNotSent) {
    tcpqp_view out = written(*p_.a, kLongBytes, 1), in{};
    pool_.fail_offer(ENODEV);
    EXPECT_EQ(tcpqp_send_view(p_.a->get(), &out), -EIO);
    out.length = kShortBytes;
    EXPECT_EQ(tcpqp_send_view(p_.a->get(), &out), -EIO);
    std::memset(out.data, 1, kLongBytes);  // no SIGBUS
    ASSERT_EQ(tcpqp_release(p_.a->get(), &out), 0);
    send(*p_.a, kLongBytes, 2);
    ASSERT_EQ(tcpqp_recv(p_.b->get(), &in, kLimit_ms), 0);
    EXPECT_TRUE(is(in, kLongBytes, 2));
    EXPECT_EQ(p_.a->close(kLimit_ms), 0);
}

// Of its own, which it keeps for later messages, none stands in the way of one that is there.
TEST_F(Pool, WhatIsKeptMakesRoom) {
    send(*p_.a, kLongBytes, 1);
    tcpqp_view kept = written(*p_.b, kLongBytes, 3), in{};
    ASSERT_EQ(tcpqp_release(p_.b->get(), &kept), 0);
    const size_t before = FakePool::leases();
    pool_.fail_takes(EDQUOT, 1);
    ASSERT_EQ(tcpqp_recv(p_.b->get(), &in, kLimit_ms), 0);
    EXPECT_TRUE(is(in, kLongBytes, 1));
    EXPECT_EQ(FakePool::leases(), before - 1) << "the one that was kept";
}

TEST_F(Pool, AMessageThatIsGoneEndsTheConnection) {
    send(*p_.a, kLongBytes, 1);
    pool_.fail_takes(ENOENT, 1);
    tcpqp_view in{};
    EXPECT_EQ(tcpqp_recv(p_.b->get(), &in, kLimit_ms), -ENOTCONN);
    EXPECT_EQ(tcpqp_recv(p_.b->get(), &in, kLimit_ms), -ENOTCONN);
}

// Whose buffers are longer than the peer's has less room in what it received.
TEST(PoolOfTwo, AViewHasTheRoomOfItsLease) {
    const FakePool pool;
    std::array<Fd, 2> sockets = tcp_pair();
    auto other = std::async(std::launch::async, [&] {
        return std::make_unique<Connection>(sockets[1].get(),
                                            OddPair::stock(by_reference(kLongBytes)));
    });
    Connection longer(sockets[0].get(), OddPair::stock(by_reference(2 * kLongBytes)));
    const auto shorter = other.get();
    View out;
    ASSERT_EQ(shorter->buffer(out, kLimit_ms), 0);
    ASSERT_EQ(shorter->send(out), 0);
    tcpqp_view in{};
    ASSERT_EQ(tcpqp_recv(longer.get(), &in, kLimit_ms), 0);
    EXPECT_EQ(longer.info().rx_reference_bytes, kLongBytes);
    in.length = 2 * kLongBytes;
    EXPECT_EQ(tcpqp_send_view(longer.get(), &in), -EMSGSIZE);
    in.length = kLongBytes;
    EXPECT_EQ(tcpqp_send_view(longer.get(), &in), 0);
    EXPECT_EQ(tcpqp_recv(shorter->get(), &in, kLimit_ms), 0) << "else closing waits for it";
}

}  // namespace
}  // namespace stock_test
