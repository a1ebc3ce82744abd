// SPDX-License-Identifier: BSD-3-Clause
// Completion descriptors in a process that has nothing else of the device: it got one over a
// socket.  Its owner, another process, is killed, or the device goes.
//
//   cq_fd_far                          rings and waits for the owner, then kills it
//   cq_fd_far --told FILE --until FILE waits, writes FILE when the device is gone, and keeps the
//                                      descriptor until the other FILE is there
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "command.hpp"
#include "flushed.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;

struct Told {
    uint32_t number = 0;  // of a queue pair on the queue, with a receive that no doorbell told of
    uint32_t other = 0;   // of one on another queue
};

struct Message {
    Message(void* at, size_t bytes) : data{at, bytes} {
        header.msg_iov = &data;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
    }
    iovec data;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
};

void send_fd(int socket, int fd, Told told) {
    Message m(&told, sizeof told);
    cmsghdr* c = CMSG_FIRSTHDR(&m.header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    expect("sendmsg", ::sendmsg(socket, &m.header, 0), sizeof told);
}

tcpqp::Fd receive_fd(int socket, Told& told) {
    Message m(&told, sizeof told);
    expect("recvmsg", ::recvmsg(socket, &m.header, 0), sizeof told);
    int fd = -1;
    const cmsghdr* c = CMSG_FIRSTHDR(&m.header);
    if (c && c->cmsg_type == SCM_RIGHTS)
        std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return tcpqp::Fd(fd);
}

// Never returns.
void own(int socket) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto context = tcpqp::open_device("nupa0");
    const tcpqp::CompletionQueue cq(*context, 64, tcpqp::Waking::kDescriptor),
        other(*context, 64, tcpqp::Waking::kDescriptor);
    Flushed source(*context, cq), theirs(*context, other);
    source.post(1);
    send_fd(socket, cq.fd(), {source.number(), theirs.number()});
    for (;;)
        ::pause();
}

class Owner {
public:
    Owner() {
        int ends[2];
        expect("socketpair", ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            ::close(ends[0]);
            own(ends[1]);
        }
        ::close(ends[1]);
        socket_.reset(ends[0]);
        fd_ = receive_fd(socket_.get(), told_);
    }
    ~Owner() { kill(); }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;

    void kill() {
        if (pid_ <= 0)
            return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }
    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] const Told& told() const { return told_; }

private:
    pid_t pid_ = 0;
    tcpqp::Fd socket_, fd_;
    Told told_;
};

void foreign() {
    Owner owner;
    const int fd = owner.fd();
    expect("another queue's", call_cq(fd, TCP_QP_CQ_DOORBELL, owner.told().other), ENOENT);
    expect("before the doorbell", polled(fd), 0);
    expect("doorbell and wait",
           call_cq(fd, TCP_QP_CQ_DOORBELL | TCP_QP_CQ_WAIT, owner.told().number), 0);
    expect("polled", polled(fd), POLLIN);
    owner.kill();
    expect("its owner was killed", call_cq(fd, TCP_QP_CQ_WAIT), EIDRM);
}

void killed_under_wait() {
    Owner owner;
    std::atomic<int> result{0};
    std::thread waits([&] { result = call_cq(owner.fd(), TCP_QP_CQ_WAIT); });
    owner.kill();
    waits.join();
    expect("who waited when the owner was killed", result, EIDRM);
}

void keep(const std::string& told, const std::string& until) {
    Owner owner;
    std::ofstream(told + ".waiting") << "yes\n";
    expect("who waited when the device went", call_cq(owner.fd(), TCP_QP_CQ_WAIT), EIDRM);
    std::ofstream(told) << "gone\n";
    while (!std::filesystem::exists(until))
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    expect("polled", polled(owner.fd()), POLLIN | POLLERR | POLLHUP);
}

}  // namespace

int main(int argc, char** argv) {
    std::string told, until;
    return Command("cq_fd_far", "Completion descriptors that came over a socket")
        .option("--told", told)
        .option("--until", until)
        .run(argc, argv, [&] {
            if (told.empty()) {
                foreign();
                killed_under_wait();
            } else {
                keep(told, until);
            }
            return 0;
        });
}
