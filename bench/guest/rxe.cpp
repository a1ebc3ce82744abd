// SPDX-License-Identifier: BSD-3-Clause
// Soft RoCE on the same netdev: queue pairs connected by number and GID.
#include <cstring>
#include <iterator>
#include <random>
#include <sstream>
#include <stdexcept>

#include "verbs.hpp"

namespace nupa::bench {
namespace {

constexpr const char* kDevice = "rxe0";
constexpr uint8_t kPort = 1;
constexpr uint8_t kTimeout = 12;  // 4.096 us << 12: 17 ms
constexpr uint8_t kRetries = 7;
constexpr uint8_t kRnrTimer = 1;  // 10 us
constexpr uint8_t kHopLimit = 64;

struct FreeList {
    void operator()(ibv_device** list) const noexcept { ibv_free_device_list(list); }
};

std::unique_ptr<tcpqp::Context> open_rxe() {
    int count = 0;
    const std::unique_ptr<ibv_device*, FreeList> list(ibv_get_device_list(&count));
    for (int i = 0; i < count; i++)
        if (!std::strcmp(ibv_get_device_name(list.get()[i]), kDevice))
            return std::make_unique<tcpqp::Context>(list.get()[i]);
    throw std::runtime_error(std::string("there is no ") + kDevice);
}

struct Address {
    uint32_t qpn = 0;
    uint32_t psn = 0;
    ibv_gid gid{};
};

std::string to_text(const Address& a) {
    std::ostringstream out;
    out << a.qpn << ' ' << a.psn;
    for (const uint8_t byte : a.gid.raw)
        out << ' ' << static_cast<unsigned>(byte);
    return out.str();
}

Address from_text(const std::string& text) {
    std::istringstream in(text);
    Address a;
    unsigned byte = 0;
    in >> a.qpn >> a.psn;
    for (uint8_t& raw : a.gid.raw) {
        if (!(in >> byte))
            throw std::runtime_error("rxe: not an address: " + text);
        raw = static_cast<uint8_t>(byte);
    }
    return a;
}

// The entry of the interface's IPv4 address: ::ffff:a.b.c.d.
uint8_t ipv4_gid(ibv_context* context, ibv_gid& gid) {
    static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    for (uint8_t i = 0; i < 16; i++)
        if (!ibv_query_gid(context, kPort, i, &gid) &&
            !std::memcmp(gid.raw, kMapped, sizeof kMapped))
            return i;
    throw std::runtime_error("rxe: no IPv4 GID");
}

class Rxe : public Verbs {
public:
    explicit Rxe(TransportArgs args) : Verbs(args, open_rxe(), false) {
        std::random_device random;
        Address mine;
        const uint8_t index = ipv4_gid(context().get(), mine.gid);
        for (Flow& f : flows()) {
            mine.qpn = f.qp->get()->qp_num;
            mine.psn = random() & 0xffffff;
            const Address peer = from_text(args.control.meet(to_text(mine)));
            ready_to_receive(f.qp->get(), peer, index);
            ready_to_send(f.qp->get(), mine.psn);
        }
        exchange_targets(args.control);
    }

    // At least these: rxe copies into a packet, and out of one.
    [[nodiscard]] Copies copies() const override { return {completed() * spec().bytes, 0}; }

private:
    void ready_to_receive(ibv_qp* qp, const Address& peer, uint8_t gid_index) {
        ibv_port_attr port{};
        if (ibv_query_port(context().get(), kPort, &port))
            tcpqp::throw_errno("rxe: query the port");
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = port.active_mtu;
        a.dest_qp_num = peer.qpn;
        a.rq_psn = peer.psn;
        a.max_dest_rd_atomic = 1;
        a.min_rnr_timer = kRnrTimer;
        a.ah_attr.is_global = 1;
        a.ah_attr.port_num = kPort;
        a.ah_attr.grh.dgid = peer.gid;
        a.ah_attr.grh.sgid_index = gid_index;
        a.ah_attr.grh.hop_limit = kHopLimit;
        if (const int error =
                ibv_modify_qp(qp, &a,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
            error != 0)
            tcpqp::throw_errno("rxe: ready to receive", error);
    }

    static void ready_to_send(ibv_qp* qp, uint32_t psn) {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTS;
        a.sq_psn = psn;
        a.timeout = kTimeout;
        a.retry_cnt = kRetries;
        a.rnr_retry = kRetries;
        a.max_rd_atomic = 1;
        if (const int error =
                ibv_modify_qp(qp, &a,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
            error != 0)
            tcpqp::throw_errno("rxe: ready to send", error);
    }
};

}  // namespace

std::unique_ptr<Transport> make_rxe(TransportArgs args) {
    return std::make_unique<Rxe>(std::move(args));
}

}  // namespace nupa::bench
