// SPDX-License-Identifier: BSD-3-Clause
#include "measure.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <stdexcept>

#include "clock.hpp"
#include "counters.hpp"
#include "lengths.hpp"
#include "link.hpp"
#include "tcp.hpp"
#include "transport.hpp"

namespace nupa::bench {
namespace {

constexpr uint64_t kWarmMessagesMin = 2;
constexpr uint64_t kMessagesMin = 8;
constexpr uint64_t kWarmMessagesMax = 32768;
constexpr uint64_t kMessagesMax = 1 << 22;
constexpr int kBacklog = 4096;

uint16_t port_of(const tcpqp::Fd& listener) {
    sockaddr_in6 at{};
    socklen_t bytes = sizeof at;
    if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &bytes))
        tcpqp::throw_errno("getsockname");
    return ntohs(at.sin6_port);
}

// The data connections: rxe needs none.
std::vector<tcpqp::Fd> connect_all(const Spec& spec, Control& control, const std::string& connect) {
    tcpqp::Fd listener;
    uint16_t port = 0;
    if (connect.empty()) {
        listener = programs::listen_on(0, kBacklog);
        (void)control.meet(std::to_string(port_of(listener)));
    } else {
        port = static_cast<uint16_t>(std::stoul(control.meet("port?")));
    }
    const uint32_t count = spec.transport.starts_with("rxe") ? 0 : spec.flows;
    if (count == 0)
        return {};
    // Both ends must agree which flow is which: shares of messages differ by one.
    if (connect.empty()) {
        const tcpqp::Fd order = programs::accept_from(listener);
        return programs::accept_many(listener, order, count);
    }
    const tcpqp::Fd order = programs::connect_to(connect, port);
    return programs::connect_many(connect, port, order, count);
}

class Measurement {
public:
    Measurement(const Spec& spec, Control& control, bool sender, std::vector<tcpqp::Fd> sockets,
                const std::string& interface)
        : spec_(spec),
          control_(control),
          sender_(sender),
          counters_(interface, spec.calls),
          transport_(make_transport({spec_, sender, std::move(sockets), control, interface})) {}

    std::string run() {
        (void)control_.meet("open");
        const uint64_t messages = agree(warm_up());
        (void)control_.meet("measure");
        const Copies copies = transport_->copies();
        const Counters first = counters_.read(), before = counters_.read();
        phase(messages);
        finished_ns_ = now_ns() - before.wall_ns;
        (void)control_.meet("done");
        const Counters after = counters_.read();
        transport_->check();
        return report(messages, copies,
                      Counters::between(before, after, Counters::busy_between(first, before)));
    }

private:
    void phase(uint64_t messages) {
        rtt_.clear();
        if (spec_.pingpong())
            sender_ ? transport_->ping(messages, rtt_) : transport_->pong(messages);
        else
            sender_ ? transport_->send(messages) : transport_->receive(messages);
    }

    // How many messages pass in spec.ms, by the sender's clock.
    uint64_t warm_up() {
        const uint64_t floor = std::max<uint64_t>(kWarmMessagesMin, spec_.flows);
        const uint64_t warm =
            std::clamp(spec_.warm_bytes / spec_.bytes, floor, std::max(floor, kWarmMessagesMax));
        (void)control_.meet("warm");
        const uint64_t then = now_ns();
        phase(warm);
        (void)control_.meet("warm");
        if (spec_.messages)
            return spec_.messages;
        const double per_ms =
            static_cast<double>(warm) * 1e6 / static_cast<double>(now_ns() - then);
        return std::clamp(static_cast<uint64_t>(per_ms * spec_.ms), std::max(floor, kMessagesMin),
                          kMessagesMax);
    }

    // The sender's word holds.
    uint64_t agree(uint64_t messages) {
        const std::string theirs = control_.meet(std::to_string(messages));
        return sender_ ? messages : std::stoull(theirs);
    }

    std::string report(uint64_t messages, const Copies& before, const std::string& counters) {
        const Copies after = transport_->copies();
        const std::string facts = transport_->facts();
        std::string json = "{\"messages\": " + std::to_string(messages) +
                           ", \"payload\": " + std::to_string(Lengths(spec_).total(messages)) +
                           ", \"phase_ns\": " + std::to_string(finished_ns_) +
                           ", \"passive\": " + (passive() ? "true" : "false") +
                           ", \"copied\": " + std::to_string(after.copied - before.copied) +
                           ", \"avoided\": " + std::to_string(after.avoided - before.avoided) +
                           ", \"counters\": " + counters;
        if (!rtt_.empty())
            json += ", \"rtt_ns\": " + percentiles();
        if (spec_.flows > 1)
            json += ", \"fairness\": " + std::to_string(fairness());
        return json + (facts.empty() ? "" : ", " + facts) + "}";
    }

    [[nodiscard]] bool passive() const { return !sender_ && transport_->receiver_is_passive(); }

    std::string percentiles() {
        std::ranges::sort(rtt_);
        const auto at = [this](double p) {
            const auto index = static_cast<size_t>(p * static_cast<double>(rtt_.size()));
            return std::to_string(rtt_[std::min(index, rtt_.size() - 1)]);
        };
        return "{\"p50\": " + at(0.5) + ", \"p99\": " + at(0.99) + ", \"p999\": " + at(0.999) + "}";
    }

    // Jain's index of what each flow had when the first one was through.
    [[nodiscard]] double fairness() const {
        double sum = 0, squares = 0;
        const Shares shares = transport_->shares();
        for (const uint64_t share : shares) {
            const auto x = static_cast<double>(share);
            sum += x;
            squares += x * x;
        }
        return squares > 0 ? sum * sum / (static_cast<double>(shares.size()) * squares) : 0;
    }

    const Spec& spec_;
    Control& control_;
    bool sender_;
    CounterReader counters_;
    std::unique_ptr<Transport> transport_;
    std::vector<uint64_t> rtt_;
    uint64_t finished_ns_ = 0;
};

}  // namespace

std::string measure(const Spec& spec, Control& control, const std::string& connect,
                    const std::string& interface) {
    const bool sender = !connect.empty();
    if (spec.mtu)
        set_mtu(interface, spec.mtu);
    if (spec.burst)
        set_burst_max(interface, spec.burst);
    if (spec.mtu || spec.burst)
        (void)control.meet("link");
    const int64_t without = spec.memory ? unswappable_kib() : 0;
    std::vector<tcpqp::Fd> sockets = connect_all(spec, control, connect);
    const int64_t with_sockets = spec.memory ? unswappable_kib() : 0;
    Measurement one(spec, control, sender, std::move(sockets), interface);
    std::string mine = one.run();
    if (spec.memory)
        mine.insert(mine.size() - 1, ", \"socket_kib\": " + std::to_string(with_sockets - without));
    const std::string theirs = control.meet(mine);
    return "{\"spec\": " + to_json(spec) + ", \"ok\": true, \"tx\": " + (sender ? mine : theirs) +
           ", \"rx\": " + (sender ? theirs : mine) + "}";
}

}  // namespace nupa::bench
