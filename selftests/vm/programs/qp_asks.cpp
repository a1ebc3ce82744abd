// SPDX-License-Identifier: BSD-3-Clause
// Asks a stock end for what it does not do: each operation once, on a connection of
// its own.  Prints {"write": "...", ...}: the status that the request completed with.
//
//   qp_asks --port PORT --engine ...
#include <cstdio>
#include <map>

#include "command.hpp"
#include "completion.hpp"
#include "memory.hpp"
#include "rdma_peer.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;

constexpr size_t kBytes = 4096;
constexpr uint32_t kAtomicBytes = 8;
constexpr uint32_t kKey = 0x1234;  // no region's: the request must not get so far

const std::map<std::string, ibv_wr_opcode> kOperations{
    {"write", IBV_WR_RDMA_WRITE},
    {"write_imm", IBV_WR_RDMA_WRITE_WITH_IMM},
    {"read", IBV_WR_RDMA_READ},
    {"fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD},
};

ibv_send_wr request_of(ibv_wr_opcode opcode, ibv_sge& sge) {
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        sge.length = kAtomicBytes;
        wr.wr.atomic.remote_addr = kBytes;
        wr.wr.atomic.rkey = kKey;
    } else {
        wr.wr.rdma.remote_addr = kBytes;
        wr.wr.rdma.rkey = kKey;
    }
    return wr;
}

const char* ask(const tcpqp::Context& context, const tcpqp::Fd& socket, uint32_t engine,
                ibv_wr_opcode opcode) {
    Pages memory(kBytes);
    const tcpqp::Mr mr = memory.registered(context, IBV_ACCESS_LOCAL_WRITE);
    tcpqp::CompletionQueue cq(context, 4);
    tcpqp::QueuePair qp(context, cq, {.sends = 2, .receives = 2, .access = kRemoteAll});
    const tcpqp::Attached attached = tcpqp::attach(
        context, qp, socket.get(), {.engine = engine, .flags = 0, .timeout_ms = 0, .reserved = 0});
    if (attached.error != 0)
        tcpqp::throw_errno("attach", attached.error);
    ibv_sge sge{reinterpret_cast<uint64_t>(memory.bytes().data()), kBytes, mr.lkey()};
    ibv_send_wr wr = request_of(opcode, sge), *bad = nullptr;
    if (const int error = ibv_post_send(qp.get(), &wr, &bad); error != 0)
        tcpqp::throw_errno("post", error);
    return ibv_wc_status_str(next_completion(cq).status);
}

int all(const PeerOptions& o) {
    auto context = tcpqp::open_device(o.interface);
    const tcpqp::Fd listener = o.listener();
    const char* separator = "{";
    for (const auto& [name, opcode] : kOperations) {
        const tcpqp::Fd socket = o.next_socket(listener);
        std::printf("%s\"%s\": \"%s\"", separator, name.c_str(),
                    ask(*context, socket, o.engine_id(), opcode));
        separator = ", ";
    }
    std::puts("}");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    PeerOptions o;
    return Command("qp_asks", "Ask a stock end for what it does not do")
        .peer(o)
        .run(argc, argv, [&] { return all(o); });
}
