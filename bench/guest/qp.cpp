// SPDX-License-Identifier: BSD-3-Clause
// TCP-QP: "software", "offload", each with "_v0", "_v1" for the wire and "_write" for WRITEs.
#include <stdexcept>

#include "counters.hpp"
#include "maps.hpp"
#include "socket.hpp"
#include "verbs.hpp"
#include "verbs/attach.hpp"
#include "verbs/device.hpp"

namespace nupa::bench {
namespace {

constexpr uint32_t kAttachLimitMs = 30000;

tcp_qp_attach_req request_of(const std::string& transport) {
    const auto says = [&](const char* word) { return transport.find(word) != std::string::npos; };
    tcp_qp_attach_req r{};
    r.engine = says("offload") ? TCP_QP_ENGINE_OFFLOAD : TCP_QP_ENGINE_SOFTWARE;
    // not waiting: thousands attach one after the other, their sends wait for the peer's
    r.flags = TCP_QP_ATTACH_F_NOWAIT;
    if (says("_v0") && !says("offload"))
        r.flags |= TCP_QP_ATTACH_F_WIRE_V0;
    if (says("_v1"))
        r.flags |= TCP_QP_ATTACH_F_WIRE_V1;
    r.timeout_ms = kAttachLimitMs;
    return r;
}

class Qp : public Verbs {
public:
    explicit Qp(TransportArgs args)
        : Verbs(args, tcpqp::open_device(args.interface), true), sockets_(std::move(args.sockets)) {
        attach();
        (void)args.control.meet("attached");
        if (args.spec.memory)
            memory_ = memory_json();
        exchange_targets(args.control);
    }

    [[nodiscard]] Copies copies() const override {
        Copies c;
        for (const Flow& f : flows()) {
            const tcp_qp_info i = info(f);
            c.copied += i.tx_copied_bytes + i.rx_copied_bytes;
            c.avoided += i.tx_zerocopy_bytes + i.rx_placed_bytes;
        }
        return c;
    }

    [[nodiscard]] std::string facts() const override {
        const tcp_qp_info i = info(flows()[0]);
        return "\"wire\": " + std::to_string(i.wire_version) +
               ", \"mss\": " + std::to_string(i.mss) +
               ", \"segments\": " + std::to_string(i.tx_segments) +
               ", \"credit_waits\": " + std::to_string(i.tx_credit_waits) +
               ", \"stalls\": " + std::to_string(i.rx_stalls) + memory_;
    }

private:
    void attach() {
        const tcp_qp_attach_req request = request_of(spec().transport);
        for (size_t i = 0; i < flows().size(); i++) {
            if (spec().poll)
                busy_poll(sockets_[i].get(), 1000 * kSpinMs);
            const tcpqp::Attached a =
                tcpqp::attach(context(), *flows()[i].qp, sockets_[i].get(), request);
            if (a.error)
                tcpqp::throw_errno(std::string("attach: ") + tcpqp::reason_name(a.response.reason),
                                   a.error);
            if (a.response.engine != request.engine)
                throw std::runtime_error("attach: another engine");
        }
    }

    [[nodiscard]] tcp_qp_info info(const Flow& f) const {
        tcp_qp_info i{};
        if (const int error = tcpqp::query(context(), *f.qp, i); error != 0)
            tcpqp::throw_errno("query the queue pair", error);
        return i;
    }

    // Objects of the kernel for an idle queue pair; its rings apart, its socket was there before.
    [[nodiscard]] std::string memory_json() const {
        const auto rings = static_cast<double>(mapped_ring_kib() - rings_kib());
        const double used = static_cast<double>(unswappable_kib() - kernel_kib()) - rings;
        const auto count = static_cast<double>(flows().size());
        return ", \"kernel_kib_per_qp\": " + std::to_string(used / count) +
               ", \"ring_kib_per_qp\": " + std::to_string(rings / count);
    }

    std::vector<tcpqp::Fd> sockets_;
    std::string memory_;
};

}  // namespace

std::unique_ptr<Transport> make_qp(TransportArgs args) {
    return std::make_unique<Qp>(std::move(args));
}

}  // namespace nupa::bench
