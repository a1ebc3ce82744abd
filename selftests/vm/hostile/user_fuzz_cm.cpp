// SPDX-License-Identifier: BSD-3-Clause
// rdma_cm, as librdmacm writes it to its character device.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "user_fuzz_world.hpp"

namespace nupa::fuzz {
namespace {

constexpr uint32_t kDamagedOneIn = 24;
constexpr uint16_t kFirstPort = 18500, kPorts = 6;  // few: listeners are met
constexpr size_t kBodyMaxBytes = 512;

// iw_cm ends in BUG() for an id that connects, is told to accept or reject,
// and is then disconnected or destroyed, and rdma_ucm in a null pointer for one that is asked for
// attributes while its binding fails (docs/known-faults.md).  So these three are said to requests
// alone, once and undamaged, and nothing else becomes one of them.
constexpr bool to_requests_only(uint32_t command) {
    return command == RDMA_USER_CM_CMD_ACCEPT || command == RDMA_USER_CM_CMD_REJECT ||
           command == RDMA_USER_CM_CMD_INIT_QP_ATTR;
}

int issue(Player& p, int fd, uint32_t command, const void* body, size_t bytes,
          size_t response_bytes) {
    struct {
        rdma_ucm_cmd_hdr header;
        std::array<uint8_t, kBodyMaxBytes> body;
    } c{};
    c.header = {command, static_cast<uint16_t>(bytes), static_cast<uint16_t>(response_bytes)};
    std::memcpy(c.body.data(), body, bytes);
    if (!to_requests_only(command) && p.dice.one_in(kDamagedOneIn)) {
        if (p.dice.one_in(4))
            c.header.in = static_cast<uint16_t>(p.dice.below(bytes + 64));
        else if (const uint32_t other = p.dice.below(28);
                 p.dice.one_in(4) && !to_requests_only(other))
            c.header.cmd = other;
        else
            c.body[p.dice.below(bytes)] ^= static_cast<uint8_t>(1 << p.dice.below(8));
    }
    return result(write(fd, &c, sizeof c.header + bytes));
}

template <typename Body>
int issue(Player& p, int fd, uint32_t command, const Body& body, size_t response_bytes = 0) {
    return issue(p, fd, command, &body, sizeof body, response_bytes);
}

sockaddr_in address(Player& p, bool of_peer) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(kFirstPort + p.dice.below(kPorts)));
    const std::string& text = of_peer && p.dice.one_in(3) ? p.world.o.peer : p.world.o.local;
    inet_pton(AF_INET, text.c_str(), &at.sin_addr);
    return at;
}

int op_open(Player& p) {
    const int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno;
    if (const auto old = p.world.cm_channels.put(p.dice, fd)) {
        p.world.cm_requests.forget(*old);
        close(*old);
    }
    return 0;
}

int op_create(Player& p) {
    const auto channel = p.pick(p.world.cm_channels);
    if (!channel)
        return op_open(p);
    rdma_ucm_create_id_resp answer{};
    rdma_ucm_create_id body{};
    body.uid = p.dice.next();
    body.response = reinterpret_cast<uint64_t>(&answer);
    body.ps = static_cast<uint16_t>(p.dice.one_in(16) ? p.dice.wild() : uint64_t{RDMA_PS_TCP});
    body.qp_type = 2;
    if (const int error = issue(p, *channel, RDMA_USER_CM_CMD_CREATE_ID, body, sizeof answer))
        return error;
    p.world.cm_ids.put(p.dice, {*channel, answer.id});
    return 0;
}

int op_destroy(Player& p) {
    const auto id = p.pick(p.world.cm_ids);
    if (!id)
        return kNothing;
    rdma_ucm_destroy_id_resp answer{};
    const rdma_ucm_destroy_id body{reinterpret_cast<uint64_t>(&answer), id->id, 0};
    return issue(p, id->fd, RDMA_USER_CM_CMD_DESTROY_ID, body, sizeof answer);
}

int bind_to(Player& p, const CmId& id) {
    rdma_ucm_bind body{};
    const sockaddr_in at = address(p, false);
    body.id = id.id;
    body.addr_size = p.dice.one_in(16) ? static_cast<uint16_t>(p.dice.below(200))
                                       : static_cast<uint16_t>(sizeof at);
    std::memcpy(&body.addr, &at, sizeof at);
    return issue(p, id.fd, RDMA_USER_CM_CMD_BIND, body);
}

int op_bind(Player& p) {
    const auto id = p.pick(p.world.cm_ids);
    return id ? bind_to(p, *id) : kNothing;
}

int op_listen(Player& p) {
    const auto id = p.pick(p.world.cm_ids);
    if (!id)
        return kNothing;
    if (!p.dice.one_in(4))
        (void)bind_to(p, *id);
    return issue(p, id->fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id->id, p.dice.below(8)});
}

int op_resolve(Player& p) {
    const auto id = p.pick(p.world.cm_ids);
    if (!id)
        return kNothing;
    rdma_ucm_resolve_addr body{};
    const sockaddr_in to = address(p, true);
    body.id = id->id;
    body.timeout_ms = 1 + p.dice.below(2000);
    body.dst_size = sizeof to;
    std::memcpy(&body.dst_addr, &to, sizeof to);
    return issue(p, id->fd, RDMA_USER_CM_CMD_RESOLVE_ADDR, body);
}

int op_route(Player& p) {
    const auto id = p.pick(p.world.cm_ids);
    if (!id)
        return kNothing;
    const rdma_ucm_resolve_route body{id->id, 1 + p.dice.below(2000)};
    return issue(p, id->fd, RDMA_USER_CM_CMD_RESOLVE_ROUTE, body);
}

rdma_ucm_conn_param parameters(Player& p) {
    rdma_ucm_conn_param c{};
    const auto qp = p.pick(p.world.qps);
    c.qp_num = qp && !p.dice.one_in(16) ? qp->number : p.dice.below(256);
    c.private_data_len = static_cast<uint8_t>(p.dice.one_in(4) ? p.dice.below(256) : 0);
    c.responder_resources = static_cast<uint8_t>(p.dice.below(20));
    c.initiator_depth = static_cast<uint8_t>(p.dice.below(20));
    c.valid = 1;
    return c;
}

int op_connect(Player& p) {
    const auto id = p.pick(p.world.cm_ids);
    if (!id)
        return kNothing;
    rdma_ucm_connect body{};
    body.conn_param = parameters(p);
    body.id = id->id;
    p.note(id->id, body.conn_param.qp_num);
    return issue(p, id->fd, RDMA_USER_CM_CMD_CONNECT, body);
}

int accept_on(Player& p, int fd, uint32_t id) {
    rdma_ucm_accept body{};
    body.uid = p.dice.next();
    body.conn_param = parameters(p);
    body.id = id;
    p.note(id, body.conn_param.qp_num);
    return issue(p, fd, RDMA_USER_CM_CMD_ACCEPT, body);
}

// A request that has waited: its peer may be gone.  Accepted, it is an id as others.
int op_accept(Player& p) {
    const auto id = p.take(p.world.cm_requests);
    if (!id)
        return kNothing;
    const int error = accept_on(p, id->fd, id->id);
    p.world.cm_ids.put(p.dice, *id);
    return error;
}

int op_reject(Player& p) {
    const auto id = p.take(p.world.cm_requests);
    if (!id)
        return kNothing;
    rdma_ucm_reject body{};
    body.id = id->id;
    body.private_data_len = static_cast<uint8_t>(p.dice.below(256));
    return issue(p, id->fd, RDMA_USER_CM_CMD_REJECT, body);
}

int op_disconnect(Player& p) {
    const auto id = p.pick(p.world.cm_ids);
    return id ? issue(p, id->fd, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id->id})
              : kNothing;
}

int op_init_attr(Player& p) {
    const auto id = p.take(p.world.cm_requests);
    if (!id)
        return kNothing;
    std::array<uint64_t, 40> answer{};
    const rdma_ucm_init_qp_attr body{reinterpret_cast<uint64_t>(answer.data()), id->id,
                                     p.dice.below(8)};
    const int error = issue(p, id->fd, RDMA_USER_CM_CMD_INIT_QP_ATTR, body, sizeof answer);
    p.world.cm_requests.put(p.dice, *id);
    return error;
}

// As a program does: what comes next follows from the event.
int op_event(Player& p) {
    const auto channel = p.pick(p.world.cm_channels);
    if (!channel)
        return kNothing;
    rdma_ucm_event_resp event{};
    const rdma_ucm_get_event body{reinterpret_cast<uint64_t>(&event)};
    if (const int error = issue(p, *channel, RDMA_USER_CM_CMD_GET_EVENT, body, sizeof event))
        return error;
    p.note(event.id, event.event, static_cast<int32_t>(event.status));
    if (p.dice.one_in(4))
        return 0;
    switch (event.event) {
        case 0:  // ADDR_RESOLVED
            return issue(p, *channel, RDMA_USER_CM_CMD_RESOLVE_ROUTE,
                         rdma_ucm_resolve_route{event.id, 1000});
        case 2: {  // ROUTE_RESOLVED
            rdma_ucm_connect connect{};
            connect.conn_param = parameters(p);
            connect.id = event.id;
            return issue(p, *channel, RDMA_USER_CM_CMD_CONNECT, connect);
        }
        case 4: {  // CONNECT_REQUEST
            if (p.dice.one_in(3)) {
                p.world.cm_requests.put(p.dice, {*channel, event.id});
                return 0;
            }
            const int error = accept_on(p, *channel, event.id);
            p.world.cm_ids.put(p.dice, {*channel, event.id});
            return error;
        }
        default:
            return 0;
    }
}

int op_option(Player& p) {
    const auto id = p.pick(p.world.cm_ids);
    if (!id)
        return kNothing;
    uint32_t value[4] = {p.dice.below(256), 0, 0, 0};
    const rdma_ucm_set_option body{reinterpret_cast<uint64_t>(value), id->id, p.dice.below(3),
                                   p.dice.below(6), p.dice.one_in(4) ? p.dice.below(17) : 4};
    return issue(p, id->fd, RDMA_USER_CM_CMD_SET_OPTION, body);
}

int op_migrate(Player& p) {
    const auto id = p.pick(p.world.cm_ids);
    const auto to = p.pick(p.world.cm_channels);
    if (!id || !to)
        return kNothing;
    rdma_ucm_migrate_resp answer{};
    const rdma_ucm_migrate_id body{reinterpret_cast<uint64_t>(&answer), id->id,
                                   static_cast<uint32_t>(id->fd)};
    const int error = issue(p, *to, RDMA_USER_CM_CMD_MIGRATE_ID, body, sizeof answer);
    if (!error)
        p.world.cm_ids.put(p.dice, {*to, id->id});
    return error;
}

int op_query(Player& p) {
    const auto id = p.pick(p.world.cm_ids);
    if (!id)
        return kNothing;
    std::array<uint64_t, 64> answer{};
    const rdma_ucm_query body{reinterpret_cast<uint64_t>(answer.data()), id->id, p.dice.below(4)};
    return issue(p, id->fd,
                 p.dice.one_in(2) ? RDMA_USER_CM_CMD_QUERY : RDMA_USER_CM_CMD_QUERY_ROUTE, body,
                 sizeof answer);
}

int op_junk(Player& p) {
    const auto channel = p.pick(p.world.cm_channels);
    if (!channel)
        return kNothing;
    std::array<uint32_t, 100> body{};
    std::array<uint8_t, 512> answer{};
    for (uint32_t& word : body)
        word = p.dice.below(4) ? p.dice.below(8) : static_cast<uint32_t>(p.dice.wild());
    const uint64_t at = reinterpret_cast<uint64_t>(answer.data());
    std::memcpy(body.data() + (p.dice.one_in(2) ? 0 : 2), &at, sizeof at);
    const uint32_t command = p.dice.below(26);
    if (to_requests_only(command))
        return kNothing;
    p.note(*channel, command);
    return issue(p, *channel, command, body.data(), p.dice.below(sizeof body), sizeof answer);
}

constexpr Op kOps[] = {
    {"cm_open", 2, op_open},
    {"cm_create", 4, op_create},
    {"cm_destroy", 2, op_destroy},
    {"cm_bind", 1, op_bind},
    {"cm_listen", 3, op_listen},
    {"cm_resolve", 4, op_resolve},
    {"cm_route", 1, op_route},
    {"cm_connect", 2, op_connect},
    {"cm_accept", 1, op_accept},
    {"cm_reject", 1, op_reject},
    {"cm_disconnect", 2, op_disconnect},
    {"cm_init_qp_attr", 1, op_init_attr},
    {"cm_event", 14, op_event},
    {"cm_option", 1, op_option},
    {"cm_migrate", 1, op_migrate},
    {"cm_query", 1, op_query},
    {"cm_junk", 1, op_junk},
};

}  // namespace

std::span<const Op> cm_ops() { return kOps; }

}  // namespace nupa::fuzz
