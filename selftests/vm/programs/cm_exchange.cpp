// SPDX-License-Identifier: BSD-3-Clause
// Connections by rdma_cm, and what they promise: private data both ways, with
// an accept and with a reject; a message each way; receives flushed when either
// side disconnects; one end for each beginning.
//
//   cm_exchange --listen PORT [--ports N] | --connect ADDR:PORT  [options]
//
// Prints one JSON object of counters; exit 0 only if all was as it should be.
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "command.hpp"

namespace {

constexpr uint32_t kMessageBytes = 4096;
constexpr int kResolveMs = 5000;
constexpr int kBacklog = 64;

struct Options {
    std::string listen;
    std::string connect;
    uint16_t ports = 1;
    uint32_t count = 1;
    uint32_t private_bytes = 56;
    uint32_t reply_bytes = 33;
    uint8_t depth = 0;
    uint8_t tos = 0;
    bool reject = false;
    bool server_disconnects = false;
    bool hold = false;
    uint32_t unread = 0;
    std::string expect = "RDMA_CM_EVENT_ESTABLISHED";
    uint32_t timeout_s = 60;
};

[[noreturn]] void die(const std::string& what, int err = errno) {
    throw std::runtime_error(what + (err ? std::string(": ") + std::strerror(err) : ""));
}

void must(int rc, const char* what) {
    if (rc)
        die(what);
}

// Byte @i of what side @side says about connections.
uint8_t pattern(int side, uint32_t i) { return static_cast<uint8_t>(i * 31 + 7 + side * 101); }

std::vector<uint8_t> private_data(int side, uint32_t bytes) {
    std::vector<uint8_t> data(bytes);
    for (uint32_t i = 0; i < bytes; i++)
        data[i] = pattern(side, i);
    return data;
}

void check_private(const rdma_cm_event& event, int side, uint32_t bytes) {
    const auto& param = event.param.conn;
    if (param.private_data_len != bytes)
        die("private data: " + std::to_string(param.private_data_len) + " bytes", 0);
    auto data = private_data(side, bytes);
    if (bytes && std::memcmp(param.private_data, data.data(), bytes))
        die("private data differs", 0);
}

struct Close {
    void operator()(rdma_event_channel* c) const { rdma_destroy_event_channel(c); }
    void operator()(rdma_cm_id* id) const { rdma_destroy_id(id); }
    void operator()(rdma_cm_event* e) const { rdma_ack_cm_event(e); }
    void operator()(ibv_mr* mr) const { ibv_dereg_mr(mr); }
    void operator()(addrinfo* a) const { freeaddrinfo(a); }
};
template <class T>
using Own = std::unique_ptr<T, Close>;

Own<rdma_cm_event> next_event(rdma_event_channel* channel) {
    rdma_cm_event* event = nullptr;
    must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    return Own<rdma_cm_event>(event);
}

// An id with its QP and buffers.  The QP goes before the memory, the id last.
class Connection {
public:
    explicit Connection(rdma_cm_id* id) : id_(id) {}
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() {
        if (id_->qp)
            rdma_destroy_qp(id_.get());
    }

    rdma_cm_id* id() { return id_.get(); }

    void make_qp() {
        ibv_qp_init_attr attr{};
        attr.cap = {.max_send_wr = 4,
                    .max_recv_wr = 4,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
        attr.qp_type = IBV_QPT_RC;
        attr.sq_sig_all = 1;
        must(rdma_create_qp(id(), nullptr, &attr), "rdma_create_qp");
        mr_.reset(rdma_reg_msgs(id(), buffer_.data(), buffer_.size()));
        if (!mr_)
            die("rdma_reg_msgs");
        // the second is never used: it must come back flushed
        for (int i = 0; i < 2; i++)
            must(rdma_post_recv(id(), nullptr, receive(), kMessageBytes, mr_.get()),
                 "rdma_post_recv");
    }

    void send(int side) {
        for (uint32_t i = 0; i < kMessageBytes; i++)
            buffer_[i] = pattern(side, i);
        must(rdma_post_send(id(), nullptr, buffer_.data(), kMessageBytes, mr_.get(), 0),
             "rdma_post_send");
        expect(rdma_get_send_comp, IBV_WC_SUCCESS, "send");
    }

    // More than there are receives for: nobody waits for them.
    void send_unread(uint32_t count) {
        for (uint32_t i = 0; i < count; i++)
            must(rdma_post_send(id(), nullptr, buffer_.data(), kMessageBytes, mr_.get(), 0),
                 "rdma_post_send");
    }

    void receive_from(int side) {
        expect(rdma_get_recv_comp, IBV_WC_SUCCESS, "receive");
        for (uint32_t i = 0; i < kMessageBytes; i++)
            if (receive()[i] != pattern(side, i))
                die("message differs at byte " + std::to_string(i), 0);
    }

    void expect_flushed() { expect(rdma_get_recv_comp, IBV_WC_WR_FLUSH_ERR, "unused receive"); }

private:
    uint8_t* receive() { return buffer_.data() + kMessageBytes; }

    void expect(int (*get)(rdma_cm_id*, ibv_wc*), ibv_wc_status status, const char* what) {
        ibv_wc wc{};
        if (get(id(), &wc) != 1)
            die(what);
        if (wc.status != status)
            die(std::string(what) + ": " + ibv_wc_status_str(wc.status), 0);
    }

    Own<rdma_cm_id> id_;
    std::array<uint8_t, 2 * kMessageBytes> buffer_{};
    Own<ibv_mr> mr_;
};

rdma_conn_param param_of(const Options& o, const std::vector<uint8_t>& data) {
    rdma_conn_param param{};
    param.private_data = data.data();
    param.private_data_len = static_cast<uint8_t>(data.size());
    param.initiator_depth = o.depth;
    param.responder_resources = o.depth;
    return param;
}

Own<addrinfo> address(const std::string& where, bool passive) {
    auto colon = where.rfind(':');
    std::string host = colon == std::string::npos ? "" : where.substr(0, colon);
    std::string port = colon == std::string::npos ? where : where.substr(colon + 1);
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
    int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
    if (rc)
        die(where + ": " + gai_strerror(rc), 0);
    return Own<addrinfo>(found);
}

void add_to_port(sockaddr* where, uint16_t more) {
    auto* port = where->sa_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(where)->sin6_port
                                              : &reinterpret_cast<sockaddr_in*>(where)->sin_port;
    *port = htons(static_cast<uint16_t>(ntohs(*port) + more));
}

// ---- server ----

class Server {
public:
    explicit Server(const Options& o) : o_(o), channel_(rdma_create_event_channel()) {
        if (!channel_)
            die("rdma_create_event_channel");
        for (uint16_t i = 0; i < o.ports; i++)
            listen(i);
        std::fprintf(stderr, "listening\n");
    }

    void run() {
        while (ended_ + rejected_ < o_.count && !removed_)
            handle(next_event(channel_.get()));
        std::printf(
            "{\"accepted\": %u, \"rejected\": %u, \"ended\": %u, \"vanished\": %u, \"removed\": "
            "%d}\n",
            accepted_, rejected_, ended_, vanished_, removed_);
    }

private:
    void listen(uint16_t more) {
        rdma_cm_id* id = nullptr;
        must(rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
        listeners_.emplace_back(id);
        auto where = address(o_.listen, true);
        add_to_port(where->ai_addr, more);
        must(rdma_bind_addr(id, where->ai_addr), "rdma_bind_addr");
        must(rdma_listen(id, kBacklog), "rdma_listen");
    }

    void handle(Own<rdma_cm_event> event) {
        rdma_cm_id* id = event->id;
        switch (event->event) {
            case RDMA_CM_EVENT_CONNECT_REQUEST:
                check_private(*event, 0, o_.private_bytes);
                event.reset();
                requested(std::make_unique<Connection>(id));
                break;
            case RDMA_CM_EVENT_ESTABLISHED:
                established(*open_.at(id));
                break;
            case RDMA_CM_EVENT_DISCONNECTED: {
                event.reset();
                auto node = open_.extract(id);
                if (!o_.server_disconnects)
                    rdma_disconnect(id);
                node.mapped()->expect_flushed();
                ended_++;
                break;
            }
            case RDMA_CM_EVENT_DEVICE_REMOVAL:
                removed_ = true;
                break;
            default:
                die(std::string("unexpected ") + rdma_event_str(event->event), -event->status);
        }
    }

    void requested(std::unique_ptr<Connection> connection) {
        auto data = private_data(1, o_.reply_bytes);
        if (o_.reject) {
            must(rdma_reject(connection->id(), data.data(), static_cast<uint8_t>(data.size())),
                 "rdma_reject");
            rejected_++;
            return;
        }
        connection->make_qp();
        auto param = param_of(o_, data);
        if (rdma_accept(connection->id(), &param)) {
            if (errno != ECONNRESET)
                die("rdma_accept");
            vanished_++;
            return;
        }
        accepted_++;
        open_[connection->id()] = std::move(connection);
    }

    void established(Connection& connection) {
        if (o_.hold)
            return;
        connection.receive_from(0);
        connection.send(1);
        if (o_.server_disconnects)
            must(rdma_disconnect(connection.id()), "rdma_disconnect");
    }

    const Options& o_;
    Own<rdma_event_channel> channel_;
    std::vector<Own<rdma_cm_id>> listeners_;
    std::map<rdma_cm_id*, std::unique_ptr<Connection>> open_;
    uint32_t accepted_ = 0, rejected_ = 0, ended_ = 0, vanished_ = 0;
    bool removed_ = false;
};

// ---- client ----

void wait_for(rdma_event_channel* channel, rdma_cm_event_type type) {
    auto event = next_event(channel);
    if (event->event != type)
        die(std::string("instead of ") + rdma_event_str(type) + ": " + rdma_event_str(event->event),
            -event->status);
}

// What became of it; the QP is connected if that was ESTABLISHED.
std::string start(const Options& o, rdma_event_channel* channel, Connection& connection,
                  uint16_t more) {
    auto where = address(o.connect, false);
    add_to_port(where->ai_addr, more);
    must(rdma_resolve_addr(connection.id(), nullptr, where->ai_addr, kResolveMs),
         "rdma_resolve_addr");
    wait_for(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    must(rdma_resolve_route(connection.id(), kResolveMs), "rdma_resolve_route");
    wait_for(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    connection.make_qp();
    auto data = private_data(0, o.private_bytes);
    auto param = param_of(o, data);
    must(rdma_connect(connection.id(), &param), "rdma_connect");
    auto event = next_event(channel);
    if (event->event == RDMA_CM_EVENT_ESTABLISHED || o.reject)
        check_private(*event, 1, o.reply_bytes);
    return rdma_event_str(event->event);
}

void one_connection(const Options& o, rdma_event_channel* channel, uint16_t more) {
    rdma_cm_id* id = nullptr;
    must(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
    Connection connection(id);
    uint8_t tos = o.tos;
    if (tos)
        must(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos),
             "rdma_set_option");
    std::string became = start(o, channel, connection, more);
    if (became != o.expect)
        die("instead of " + o.expect + ": " + became, 0);
    if (became != "RDMA_CM_EVENT_ESTABLISHED")
        return;
    if (o.hold) {
        connection.send_unread(o.unread);
        std::fprintf(stderr, "connected\n");
    } else {
        connection.send(0);
        connection.receive_from(1);
        if (!o.server_disconnects)
            must(rdma_disconnect(id), "rdma_disconnect");
    }
    wait_for(channel, RDMA_CM_EVENT_DISCONNECTED);
    connection.expect_flushed();
    if (o.server_disconnects)
        rdma_disconnect(id);
}

void run_client(const Options& o) {
    Own<rdma_event_channel> channel(rdma_create_event_channel());
    if (!channel)
        die("rdma_create_event_channel");
    auto began = std::chrono::steady_clock::now();
    for (uint32_t i = 0; i < o.count; i++)
        one_connection(o, channel.get(), static_cast<uint16_t>(i % o.ports));
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    std::printf("{\"connections\": %u, \"seconds\": %.3f}\n", o.count, took.count());
}

int run(const Options& o) {
    if (o.listen.empty() == o.connect.empty())
        die("one of --listen and --connect", 0);
    alarm(o.timeout_s);
    if (o.connect.empty())
        Server(o).run();
    else
        run_client(o);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return nupa::programs::Command("cm_exchange", "connections by rdma_cm, checked")
        .option("--listen", o.listen, "[ADDR:]PORT")
        .option("--connect", o.connect, "ADDR:PORT")
        .option("--ports", o.ports, "as many ports from PORT on")
        .option("--count", o.count, "connections (server: to end or reject)")
        .option("--private-bytes", o.private_bytes, {0, 255}, "of the request")
        .option("--reply-bytes", o.reply_bytes, {0, 255}, "of the answer")
        .option("--depth", o.depth, "initiator depth and responder resources")
        .option("--tos", o.tos, "type of service, or traffic class, of the client")
        .flag("--reject", o.reject, "the server rejects")
        .flag("--server-disconnects", o.server_disconnects, "else the client does")
        .flag("--hold", o.hold, "say nothing, wait for the other to disconnect")
        .option("--unread", o.unread,
                "with --hold: messages of the client, of which two are received")
        .option("--expect", o.expect, "event that ends a connect")
        .option("--timeout", o.timeout_s, "seconds")
        .run(argc, argv, [&] { return run(o); });
}
