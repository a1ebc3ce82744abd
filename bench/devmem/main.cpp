// SPDX-License-Identifier: BSD-3-Clause
// devmem_bench: what it takes a receiver to have payload in its accelerator, by each way
// (ways.hpp).
//
//   devmem_bench --port PORT                        serves until it is killed
//   devmem_bench --connect ADDRESS --port PORT --way WAY --messages N [--calls]
//                                                   one JSON line: the receiver's counts
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <sstream>
#include <stdexcept>

#include "clock.hpp"
#include "command.hpp"
#include "control.hpp"
#include "counters.hpp"
#include "tcp.hpp"
#include "ways.hpp"

namespace {

using namespace nupa::bench;

constexpr uint64_t kWarmMessagesMin = kSlots;
constexpr uint64_t kMessagesMax = 1 << 16;

struct Options {
    std::string connect;
    uint16_t port = 0;
    std::string interface = "nupa0";
    std::string way = "tcp";
    uint32_t messages = 64;
    uint32_t warm = 32;
    bool calls = false;
};

uint16_t port_of(const tcpqp::Fd& listener) {
    sockaddr_in6 at{};
    socklen_t bytes = sizeof at;
    if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &bytes))
        tcpqp::throw_errno("getsockname");
    return ntohs(at.sin6_port);
}

std::string field(const char* name, uint64_t value) {
    return std::string("\"") + name + "\": " + std::to_string(value) + ", ";
}

// What a stretch of messages took; the accelerator's own counts say what touched its memory.
class Stretch {
public:
    Stretch(const Receiving& receiving, const Place& place, CounterReader& counters)
        : receiving_(receiving),
          place_(place),
          counters_(counters),
          spent_(receiving.spent()),
          info_(place.info()),
          copied_(place.copied_bytes()),
          first_(counters.read()),
          before_(counters.read()) {}

    void moved() { moved_ns_ = now_ns() - before_.wall_ns; }
    std::string end(uint64_t messages) {
        const Counters after = counters_.read();
        const uint64_t commands = place_.info().commands - info_.commands;
        const uint64_t mapped = place_.info().cpu_mapped_bytes - info_.cpu_mapped_bytes;
        const Spent spent = receiving_.spent();
        return "{\"ok\": true, " + field("payload", messages * kMessageBytes) +
               field("phase_ns", moved_ns_) +
               field("host_bytes", spent.host_bytes - spent_.host_bytes) +
               field("cmsgs", spent.cmsgs - spent_.cmsgs) + field("commands", commands) +
               field("cpu_mapped_bytes", mapped) +
               field("accelerator_bytes", place_.copied_bytes() - copied_) + "\"counters\": " +
               Counters::between(before_, after, Counters::busy_between(first_, before_)) + "}";
    }

private:
    const Receiving& receiving_;
    const Place& place_;
    CounterReader& counters_;
    Spent spent_;
    nupa_accel_info info_;
    uint64_t copied_;
    Counters first_, before_;
    uint64_t moved_ns_ = 0;
};

// The peer's words are checked: it asks for buffers and time of ours.
Options asked(Control& control, Options o) {
    std::istringstream words(control.receive());
    if (!(words >> o.way >> o.messages >> o.warm >> o.calls) || o.messages < kSlots ||
        o.warm < kWarmMessagesMin || o.messages > kMessagesMax || o.warm > kMessagesMax)
        throw std::invalid_argument("what is asked for?");
    return o;
}

void receive(Control& control, const Options& o) {
    tcpqp::Fd listener = nupa::programs::listen_on(0, 1);
    (void)control.meet(std::to_string(port_of(listener)));
    tcpqp::Fd socket = nupa::programs::accept_from(listener);
    CounterReader counters(o.interface, o.calls);
    Place place;
    const auto receiving = make_receiving(o.way, std::move(socket), o.interface, place);
    (void)control.meet("ready");
    receiving->receive(o.warm);
    place.clear();
    Stretch stretch(*receiving, place, counters);
    (void)control.meet("measure");
    receiving->receive(o.messages);
    stretch.moved();
    (void)control.meet("done");
    const std::string said = stretch.end(o.messages);
    place.check();
    (void)control.meet(said);
}

std::string send(Control& control, const Options& o) {
    std::ostringstream words;
    words << o.way << ' ' << o.messages << ' ' << o.warm << ' ' << o.calls;
    control.send(words.str());
    const std::string port = control.meet("port?");
    const auto sending = make_sending(
        o.way, nupa::programs::connect_to(o.connect, static_cast<uint16_t>(std::stoul(port))),
        o.interface);
    (void)control.meet("ready");
    sending->send(o.warm);
    (void)control.meet("measure");
    sending->send(o.messages);
    (void)control.meet("done");
    return control.meet("said?");
}

int serve(const Options& o) {
    const tcpqp::Fd listener = nupa::programs::listen_on(o.port, 1);
    for (;;) {
        try {
            Control control(nupa::programs::accept_from(listener));
            try {
                receive(control, asked(control, o));
            } catch (const std::exception& e) {
                std::fprintf(stderr, "devmem_bench: %s\n", e.what());
                control.send_error(e.what());
            }
        } catch (const std::exception& e) {
            std::fprintf(stderr, "devmem_bench: %s\n", e.what());
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    nupa::programs::Command command("devmem_bench", "payload into an accelerator, counted");
    command.option("--connect", o.connect).option("--port", o.port);
    command.option("--interface", o.interface);
    command.choice("--way", o.way, {"tcp", "devmem", "qp"});
    command.option("--messages", o.messages, "of 1 MiB").option("--warm", o.warm, "before these");
    command.flag("--calls", o.calls, "count system calls, which costs a little itself");
    return command.run(argc, argv, [&o] {
        if (o.connect.empty())
            return serve(o);
        Control control(nupa::programs::connect_to(o.connect, o.port));
        std::printf("%s\n", send(control, o).c_str());
        return 0;
    });
}
