// SPDX-License-Identifier: BSD-3-Clause
// Who else wants the socket while it gets a queue pair: another's TCP_ULP, another queue pair.
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <barrier>
#include <csignal>
#include <thread>

#include "attach_attacks.hpp"

namespace nupa::programs::attach {
namespace {

// setsockopt(TCP_ULP) again and again, by another thread or process.
class Thief {
public:
    Thief(int fd, bool by_process)
        : wins_(static_cast<std::atomic<int>*>(mmap(nullptr, sizeof(std::atomic<int>),
                                                    PROT_READ | PROT_WRITE,
                                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        if (!by_process) {
            thread_ = std::jthread([this, fd](const std::stop_token& stop) {
                while (!stop.stop_requested())
                    steal(fd);
            });
            return;
        }
        child_ = fork();
        while (child_ == 0)
            steal(fd);
    }
    Thief(const Thief&) = delete;
    Thief& operator=(const Thief&) = delete;
    ~Thief() { stop(); }

    // How often the socket was taken.
    int stop() {
        thread_ = std::jthread();
        if (child_ > 0) {
            kill(child_, SIGKILL);
            waitpid(child_, nullptr, 0);
            child_ = 0;
        }
        return wins_->load();
    }

private:
    void steal(int fd) const {
        static constexpr char kName[] = "tcp_qp";
        if (setsockopt(fd, SOL_TCP, TCP_ULP, kName, sizeof kName - 1) == 0)
            wins_->fetch_add(1);
    }

    std::atomic<int>* wins_;
    std::jthread thread_;
    pid_t child_ = 0;
};

}  // namespace

// A conn in the middle of its attach is nobody else's to take.
void steal(const tcpqp::Context& context, const Options& o) {
    for (uint32_t round = 0; round < o.rounds; round++) {
        Link link = link_up();
        End a(context), b(context);
        Thief thief(link.a.get(), round % 2 != 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(round % 3));
        const tcpqp::Attached attached = a.attach(link.a.get(), TCP_QP_ATTACH_F_NOWAIT);
        const int wins = thief.stop();
        require(wins == 0, "a setsockopt took the socket in round " + std::to_string(round));
        require(attached.error == 0, "attach beside a thief: " + error_text(attached.error));
        b.must_attach(link.b.get());
        exchange(a, b, static_cast<uint8_t>(round));
    }
}

// Of two queue pairs at once one gets the socket, and works.
void same_socket(const tcpqp::Context& context, const Options& o) {
    for (uint32_t round = 0; round < o.rounds; round++) {
        Link link = link_up();
        End ends[2]{End(context), End(context)};
        End peer(context);
        int errors[2] = {};
        {
            std::barrier together(2);
            const auto attach = [&](int i) {
                together.arrive_and_wait();
                errors[i] = ends[i].attach(link.a.get(), TCP_QP_ATTACH_F_NOWAIT).error;
            };
            const std::jthread first(attach, 0), second(attach, 1);
        }
        require((errors[0] == 0) != (errors[1] == 0) && (errors[0] + errors[1]) == EBUSY,
                "two attaches: " + error_text(errors[0]) + " and " + error_text(errors[1]));
        peer.must_attach(link.b.get());
        exchange(ends[errors[0] == 0 ? 0 : 1], peer, static_cast<uint8_t>(round));
    }
}

}  // namespace nupa::programs::attach
