// SPDX-License-Identifier: BSD-3-Clause
// A client that means well and has ULP tcp_qp_stream: sends of every size and kind, on a socket
// and from memory of its own, amid threads that do what they like with theirs.  The honest side
// compares each byte.
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <thread>

#include "user_fuzz_loyal.hpp"
#include "user_fuzz_world.hpp"

namespace nupa::fuzz {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr uint64_t kTotalBytes = 12 << 20;
constexpr int kReaderMs = 3000, kTries = 60, kLookMs = 5;

// Of one client alone.  What it has sent from with MSG_ZEROCOPY is on its way until the kernel says
// otherwise, also when nobody waits for that any more: the pages are then the packets' alone, and
// no later client writes there.
class Room {
public:
    explicit Room(World& world) {
        for (int i = 0; !at_ && i < kTries; i++) {
            if (i)
                poll(nullptr, 0, kLookMs);
            if (const Layout layout(world.layout); layout)
                map();
        }
    }
    ~Room() {
        if (at_)
            munmap(at_, kBytes);
    }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    [[nodiscard]] uint8_t* at() const noexcept { return at_; }

private:
    static constexpr size_t kBytes = kMostBytes + kWordBytes;
    void map() {
        void* got = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        at_ = got == MAP_FAILED ? nullptr : static_cast<uint8_t*>(got);
    }
    uint8_t* at_ = nullptr;
};

class Streamer {
public:
    Streamer(Player& p, int fd, uint8_t* room)
        : p_(p), fd_(fd), room_(room), file_(memfd_create("stream", MFD_CLOEXEC)) {}

    // 0, or what ended it: an end that the kernel made has been wrong to nobody.
    int run() {
        const int on = 1;
        setsockopt(fd_, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
        while (at_ < kTotalBytes && !p_.dice.one_in(200)) {
            const size_t bytes = 1 + p_.dice.below(p_.dice.one_in(3) ? kMostBytes : 100000);
            prepare(bytes);
            if (!(p_.dice.one_in(8) ? send_file(bytes) : send_memory(bytes)))
                return errno ? errno : EIO;
            disturb();
        }
        return 0;
    }

private:
    void prepare(size_t bytes) {
        programs::fill({room_, bytes + at_ % kWordBytes},
                       kStreamKey + at_ / kWordBytes * kWordBytes);
        from_ = room_ + at_ % kWordBytes;
    }
    // What went; waits for a reader who is slow, and who may be gone.
    bool went(ssize_t sent, size_t& left) {
        if (sent > 0) {
            at_ += static_cast<uint64_t>(sent), left -= static_cast<size_t>(sent);
            return true;
        }
        if (sent == 0 || (errno != EAGAIN && errno != EINTR && errno != ENOBUFS))
            return false;
        pollfd room{fd_, POLLOUT, 0};
        int ready = 0;
        while ((ready = poll(&room, 1, kReaderMs)) < 0 && errno == EINTR) {
        }
        errno = ETIMEDOUT;
        return ready > 0;
    }
    bool send_memory(size_t left) {
        static constexpr int kFlags[] = {0, 0, MSG_MORE, MSG_EOR, MSG_DONTWAIT, MSG_ZEROCOPY};
        const int flags = p_.dice.of(kFlags) | MSG_NOSIGNAL;
        for (const uint8_t* from = from_; left;) {
            const ssize_t sent = send(fd_, from, left, flags);
            if (!went(sent, left))
                return false;
            if (sent > 0)
                from += sent;
            if (sent > 0 && flags & MSG_ZEROCOPY && (leaves() || !released()))
                return false;
        }
        return true;
    }
    // Some do not wait for the kernel to be done with their memory.
    bool leaves() {
        errno = ECANCELED;
        return p_.dice.one_in(4);
    }
    // The memory is ours again when the kernel says so.
    bool released() {
        for (int i = 0; i < kReaderMs / kLookMs; i++) {
            alignas(cmsghdr) std::array<uint8_t, 256> control{};
            msghdr m{};
            m.msg_control = control.data(), m.msg_controllen = control.size();
            if (recvmsg(fd_, &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0)
                return true;
            if (errno != EAGAIN && errno != EINTR)
                return false;
            poll(nullptr, 0, kLookMs);
        }
        errno = ETIMEDOUT;
        return false;
    }
    // Its pages may be on their way for long, so the next one is of another file.
    bool send_file(size_t left) {
        if (pwrite(file_.get(), from_, left, 0) != static_cast<ssize_t>(left))
            return false;
        for (off_t from = 0; left;)
            if (!went(sendfile(fd_, file_.get(), &from, left), left))
                return false;
        file_.reset(memfd_create("stream", MFD_CLOEXEC));
        return true;
    }
    void disturb() {
        static constexpr const char* kNames[] = {kStreamUlp, "tcp_qp", "tcp_qpx", "mptcp"};
        const timeval limit{0, static_cast<suseconds_t>(p_.dice.below(5000))};
        const int bytes = static_cast<int>(p_.dice.below(kMostBytes));
        switch (p_.dice.below(8)) {
            case 0:
            case 1:
                (void)set_ulp(fd_, p_.dice.of(kNames));
                return;
            case 2:
                setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
                return;
            case 3:
                setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
                return;
            default:
                return;
        }
    }

    Player& p_;
    int fd_;
    uint8_t* room_;
    const uint8_t* from_ = nullptr;
    tcpqp::Fd file_;
    uint64_t at_ = 0;
};

// By which the honest side names the stream.
int port_of(int fd) {
    sockaddr_in at{};
    socklen_t bytes = sizeof at;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&at), &bytes))
        return 0;
    return ntohs(at.sin_port);  // at the same place in an address of IPv6
}

// With descriptors that no other thread has: a call on a number that was free before would reach
// the socket, and its bytes would be the stream's.
int stream_apart(Player& p) {
    if (unshare(CLONE_FILES) != 0)
        return errno;
    close_range(STDERR_FILENO + 1, ~0U, 0);
    const tcpqp::Fd fd(connected_to(p.world.o.peer, p.world.o.port));
    if (!fd)
        return errno;
    const int flags = fcntl(fd.get(), F_GETFL);
    fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK);
    const Room room(p.world);
    if (!room.at())
        return ENOMEM;
    p.note(port_of(fd.get()));
    (void)set_ulp(fd.get(), kStreamUlp);
    if (send(fd.get(), &kStreamToken, sizeof kStreamToken, MSG_NOSIGNAL) != sizeof kStreamToken)
        return errno;
    return Streamer(p, fd.get(), room.at()).run();
}

int op_stream(Player& p) {
    static std::atomic_flag taken;
    if (p.child || !p.world.o.port || taken.test_and_set())
        return kNothing;
    struct Turn {
        ~Turn() { taken.clear(); }
    } const turn;
    int error = 0;
    try {
        std::thread([&] { error = stream_apart(p); }).join();
    } catch (const std::system_error& e) {
        return e.code().value();
    }
    return error;
}

constexpr Op kOps[] = {{"loyal_stream", 2, op_stream}};

}  // namespace

std::span<const Op> loyal_stream_ops() { return kOps; }

}  // namespace nupa::fuzz
