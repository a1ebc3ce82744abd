// SPDX-License-Identifier: BSD-3-Clause
// Threads that copy long messages: whose rail it is, what comes when the other end goes, when they
// sleep and end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

#include "eventually.hpp"
#include "nccl/plugin/connector.hpp"
#include "nccl/plugin/listener.hpp"

namespace tcpqp::nccl {
namespace {

constexpr size_t kBytes = size_t{256} * 1024;
constexpr int kTag = 5;

struct Tasks {
    unsigned count = 0;
    long ticks = 0;  // of CPU, 1/sysconf(_SC_CLK_TCK) s
};

Tasks workers_there() {
    Tasks found;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name, stat;
        std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
        if (name != "tcpqp-nccl")
            continue;
        found.count++;
        std::getline(std::ifstream(task.path() / "stat"), stat);
        std::istringstream fields(stat.substr(stat.rfind(')') + 1));
        std::string skipped;
        for (int i = 0; i < 11; i++)
            fields >> skipped;
        long user = 0, system = 0;
        fields >> user >> system;
        found.ticks += user + system;
    }
    return found;
}

// Both ends of a comm in this process.
class Ends {
public:
    explicit Ends(size_t messages)
        : interfaces_(find_interfaces("lo", "AF_INET")),
          listener_({&interfaces_[0]}, kConnectLimitDefaultMs),
          in_(messages * kBytes),
          out_(messages * kBytes) {
        const std::vector<const Interface*> from{&interfaces_[0]};
        Connector connector(listener_.handle(), from, 10'000);
        EXPECT_TRUE(eventually([&] {
            if (!receiver)
                receiver = listener_.accept();
            return connector.step() == kSuccess && receiver;
        }));
        sender = connector.finish();
        EXPECT_EQ(receiver->register_memory(in_.data(), in_.size(), &there_), kSuccess);
        EXPECT_EQ(sender->register_memory(out_.data(), out_.size(), &here_), kSuccess);
    }

    Request* receive(size_t at, size_t bytes = kBytes) {
        Request* request = nullptr;
        const Receive room{in_.data() + at * kBytes, bytes, kTag, there_};
        EXPECT_EQ(receiver->receive({&room, 1}, false, &request), kSuccess);
        return request;
    }
    Request* send(size_t at, size_t bytes = kBytes) {
        Request* request = nullptr;
        EXPECT_TRUE(eventually([&] {
            EXPECT_EQ(sender->send(out_.data() + at * kBytes, bytes, kTag, here_, &request),
                      kSuccess);
            return request != nullptr;
        }));
        return request;
    }
    static void finish(Comm& comm, Request* request) {
        EXPECT_TRUE(eventually([&] {
            int done = 0;
            EXPECT_EQ(comm.test(*request, &done, nullptr), kSuccess);
            return done != 0;
        }));
    }
    void exchange(size_t at, size_t bytes = kBytes) {
        Request* received = receive(at, bytes);
        Request* sent = send(at, bytes);
        finish(*sender, sent);
        finish(*receiver, received);
    }
    void fill(uint64_t seed) {
        std::mt19937_64 random(seed);
        for (size_t i = 0; i + 8 <= out_.size(); i += 8) {
            const uint64_t word = random();
            std::memcpy(out_.data() + i, &word, 8);
        }
    }
    [[nodiscard]] bool arrived(size_t at, size_t bytes = kBytes) const {
        return std::memcmp(in_.data() + at * kBytes, out_.data() + at * kBytes, bytes) == 0;
    }

private:
    std::vector<Interface> interfaces_;
    Listener listener_;
    std::vector<std::byte> in_, out_;
    Memory *there_ = nullptr, *here_ = nullptr;

public:
    std::unique_ptr<SendComm> sender;  // before the memory
    std::unique_ptr<ReceiveComm> receiver;
};

class WithWorkers : public ::testing::Test {
protected:
    WithWorkers() { ::setenv("TCPQP_THREADS", "2", 1); }
    ~WithWorkers() override {
        EXPECT_EQ(workers_there().count, 0u);
        ::unsetenv("TCPQP_THREADS");
    }
};

TEST_F(WithWorkers, BeginWithTheFirstCommAndEndWithTheLast) {
    auto first = std::make_unique<Ends>(1);
    EXPECT_EQ(workers_there().count, 2u);
    auto second = std::make_unique<Ends>(1);
    EXPECT_EQ(workers_there().count, 2u);
    first.reset();
    second->exchange(0);
    EXPECT_EQ(workers_there().count, 2u);
}

TEST_F(WithWorkers, AreAsManyAsWereAskedFor) {
    ::setenv("TCPQP_THREADS", "0", 1);
    {
        Ends none(1);
        none.exchange(0);
        EXPECT_EQ(workers_there().count, 0u);
    }
    ::setenv("TCPQP_THREADS", "-1", 1);
    const unsigned usual = workers_wanted();
    ::setenv("TCPQP_THREADS", "", 1);
    EXPECT_EQ(workers_wanted(), usual);
    EXPECT_LE(usual, kWorkersDefaultMax);
}

// Lengths on both sides of what a worker takes: the rail changes its driver all the time.
TEST_F(WithWorkers, LongAndShortMessagesArriveInOrder) {
    constexpr size_t kRoom = 8;
    Ends ends(kRoom);
    std::mt19937 random(7);
    for (uint64_t round = 0; round < 200; round++) {
        ends.fill(round);
        std::array<size_t, kRoom> bytes;
        std::array<Request*, kRoom> received, sent;
        for (size_t i = 0; i < kRoom; i++)
            bytes[i] = random() % 2 != 0 ? 1 + random() % 20'000
                                         : kLongBytes - 2 + random() % (kBytes - kLongBytes);
        for (size_t i = 0; i < kRoom; i++)
            received[i] = ends.receive(i, random() % 2 != 0 ? kBytes : bytes[i]);
        for (size_t i = 0; i < kRoom; i++) {
            int done = 0;
            EXPECT_EQ(ends.receiver->test(*received[kRoom - 1], &done, nullptr), kSuccess);
            sent[i] = ends.send(i, bytes[i]);
        }
        for (size_t i = 0; i < kRoom; i++) {
            Ends::finish(*ends.sender, sent[i]);
            Ends::finish(*ends.receiver, received[i]);
            ASSERT_TRUE(ends.arrived(i, bytes[i])) << "round " << round << ", message " << i;
        }
    }
}

TEST_F(WithWorkers, WhatCameBeforeThePeerWentIsGood) {
    for (int turn = 0; turn < 20; turn++) {
        Ends ends(4);
        ends.fill(1);
        ends.exchange(0);
        std::array<Request*, 4> received;
        for (size_t i = 0; i < received.size(); i++)
            received[i] = ends.receive(i);
        std::array<Request*, 2> sent{ends.send(0), ends.send(1)};
        for (Request* one : sent)
            Ends::finish(*ends.sender, one);
        ends.sender->close();
        ends.sender.reset();
        for (size_t i = 0; i < sent.size(); i++) {
            Ends::finish(*ends.receiver, received[i]);
            ASSERT_TRUE(ends.arrived(i));
        }
        EXPECT_TRUE(eventually([&] {
            int done = 0;
            return ends.receiver->test(*received[2], &done, nullptr) == kRemoteError;
        }));
    }
}

// Either end, or both, in any step of the workers.
TEST_F(WithWorkers, CommsEndUnderLongMessages) {
    std::mt19937 random(3);
    for (int turn = 0; turn < 60; turn++) {
        Ends ends(8);
        ends.exchange(0);
        for (size_t i = 0; i < 8; i++)
            static_cast<void>(ends.receive(i));
        for (size_t i = 0; i < 8; i++)
            static_cast<void>(ends.send(i));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        if (turn % 3 == 0)
            ends.sender.reset();
        else if (turn % 3 == 1)
            ends.receiver.reset();
    }
}

TEST_F(WithWorkers, SleepWhenThereIsNothingToCopy) {
    Ends ends(4);
    for (size_t i = 0; i < 4; i++)
        ends.exchange(i);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const long before = workers_there().ticks;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    EXPECT_EQ(workers_there().ticks - before, 0);
    // for a receive to which nothing comes it looks a thousand times a second
    static_cast<void>(ends.receive(0));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const long waiting = workers_there().ticks;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    EXPECT_LE(workers_there().ticks - waiting, ::sysconf(_SC_CLK_TCK) / 10);
    ends.send(0);
}

}  // namespace
}  // namespace tcpqp::nccl
