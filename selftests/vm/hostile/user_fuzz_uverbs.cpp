// SPDX-License-Identifier: BSD-3-Clause
// The write() commands of uverbs: contexts, domains, regions, windows, channels; and junk.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "user_fuzz_command.hpp"

namespace nupa::fuzz {
namespace {

constexpr uint32_t kDevicesMax = 4;

int op_context(Player& p) { return open_context(p); }

int op_close_context(Player& p) {
    const auto old = p.take(p.world.contexts);
    if (!old)
        return kNothing;
    p.note(old->fd);
    if (!p.dice.one_in(4))
        p.world.forget_context(old->fd);
    if (p.dice.one_in(2))
        close(old->events);
    return result(close(old->fd));
}

int op_query(Player& p) {
    const auto c = p.pick(p.world.contexts);
    if (!c)
        return kNothing;
    struct {
        uint64_t response;
        uint8_t port, reserved[7];
    } body{0, p.dice.one_in(8) ? static_cast<uint8_t>(p.dice.below(256)) : uint8_t{1}, {}};
    if (p.dice.one_in(2)) {
        ib_uverbs_query_port_resp answer{};
        return issue(p, c->fd, IB_USER_VERBS_CMD_QUERY_PORT, body, answer);
    }
    ib_uverbs_query_device_resp answer{};
    ib_uverbs_query_device device{};
    return issue(p, c->fd, IB_USER_VERBS_CMD_QUERY_DEVICE, device, answer);
}

int op_pd(Player& p) {
    const auto c = p.pick(p.world.contexts);
    if (!c)
        return kNothing;
    ib_uverbs_alloc_pd_resp answer{};
    if (const int error = issue(p, c->fd, IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}, answer))
        return error;
    p.world.pds.put(p.dice, {c->fd, answer.pd_handle});
    return 0;
}

int op_dealloc_pd(Player& p) {
    const auto pd = p.drop(p.world.pds);
    return pd ? destroy(p, IB_USER_VERBS_CMD_DEALLOC_PD, pd->fd, handle_of(p, pd)) : kNothing;
}

int op_region(Player& p) {
    const auto pd = p.pick(p.world.pds);
    return pd ? make_region(p, *pd) : kNothing;
}

int op_dereg(Player& p) {
    const auto r = p.drop(p.world.regions);
    return r ? destroy(p, IB_USER_VERBS_CMD_DEREG_MR, r->fd, r->handle) : kNothing;
}

int op_rereg(Player& p) {
    const auto r = p.pick(p.world.regions);
    if (!r)
        return kNothing;
    ib_uverbs_rereg_mr body{};
    body.mr_handle = r->handle;
    body.flags = p.dice.below(8);
    body.start = reinterpret_cast<uint64_t>(p.world.memory.slot(p.dice.below(8)));
    body.length = p.dice.below(p.world.memory.slot_bytes());
    body.hca_va = body.start;
    body.access_flags = p.dice.flags(8);
    if (const auto pd = p.pick(p.world.pds, r->fd))
        body.pd_handle = pd->handle;
    ib_uverbs_rereg_mr_resp answer{};
    return issue(p, r->fd, IB_USER_VERBS_CMD_REREG_MR, body, answer);
}

int op_window(Player& p) {
    const auto pd = p.pick(p.world.pds);
    if (!pd)
        return kNothing;
    ib_uverbs_alloc_mw body{};
    body.pd_handle = handle_of(p, pd);
    body.mw_type =
        static_cast<uint8_t>(p.dice.one_in(16) ? p.dice.below(256) : 1 + p.dice.below(2));
    ib_uverbs_alloc_mw_resp answer{};
    if (const int error = issue(p, pd->fd, IB_USER_VERBS_CMD_ALLOC_MW, body, answer))
        return error;
    const auto old = p.world.windows.put(p.dice, Object{pd->fd, answer.mw_handle, answer.rkey});
    return old ? destroy(p, IB_USER_VERBS_CMD_DEALLOC_MW, old->fd, old->handle) : 0;
}

int op_dealloc_window(Player& p) {
    const auto w = p.drop(p.world.windows);
    return w ? destroy(p, IB_USER_VERBS_CMD_DEALLOC_MW, w->fd, handle_of(p, w)) : kNothing;
}

int op_channel(Player& p) {
    const auto c = p.pick(p.world.contexts);
    if (!c)
        return kNothing;
    ib_uverbs_create_comp_channel_resp answer{};
    if (const int error = issue(p, c->fd, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
                                ib_uverbs_create_comp_channel{}, answer))
        return error;
    fcntl(static_cast<int>(answer.fd), F_SETFL, O_NONBLOCK);
    if (const auto old = p.world.channels.put(p.dice, static_cast<int>(answer.fd)))
        close(*old);
    return 0;
}

int op_read_events(Player& p) {
    uint64_t events[8];
    const auto channel = p.pick(p.world.channels);
    const auto c = p.pick(p.world.contexts);
    const int fd = p.dice.one_in(2) && channel ? *channel : c ? c->events : -1;
    return fd < 0 ? kNothing : result(read(fd, events, 1 + p.dice.below(sizeof events)));
}

int op_ah(Player& p) {
    const auto pd = p.pick(p.world.pds);
    if (!pd)
        return kNothing;
    ib_uverbs_create_ah body{};
    body.pd_handle = handle_of(p, pd);
    body.attr.is_global = 1;
    body.attr.port_num = 1;
    uint64_t answer[4] = {};
    return issue(p, pd->fd, IB_USER_VERBS_CMD_CREATE_AH, body, answer);
}

// Any command, any words.
int op_junk(Player& p) {
    const auto c = p.pick(p.world.contexts);
    if (!c)
        return kNothing;
    std::array<uint32_t, 40> body{};
    uint64_t response[64];
    const uint64_t at = reinterpret_cast<uint64_t>(response);
    for (uint32_t& word : body)
        word = p.dice.one_in(2) ? p.dice.below(16) : static_cast<uint32_t>(p.dice.wild());
    std::memcpy(body.data(), &at, sizeof at);
    const uint32_t command =
        p.dice.below(110) | (p.dice.one_in(4) ? IB_USER_VERBS_CMD_FLAG_EXTENDED : 0);
    p.note(c->fd, command);
    return issue(p, c->fd, command, body.data(), size_t{4} * (2 + p.dice.below(38)),
                 size_t{4} * p.dice.below(64));
}

constexpr Op kOps[] = {
    {"uverbs_open", 3, op_context},          {"uverbs_close", 1, op_close_context},
    {"uverbs_query", 1, op_query},           {"uverbs_alloc_pd", 6, op_pd},
    {"uverbs_dealloc_pd", 1, op_dealloc_pd}, {"uverbs_reg_mr", 12, op_region},
    {"uverbs_dereg_mr", 5, op_dereg},        {"uverbs_rereg_mr", 1, op_rereg},
    {"uverbs_alloc_mw", 4, op_window},       {"uverbs_dealloc_mw", 2, op_dealloc_window},
    {"uverbs_comp_channel", 2, op_channel},  {"uverbs_read_events", 4, op_read_events},
    {"uverbs_create_ah", 1, op_ah},          {"uverbs_junk", 4, op_junk},
};

}  // namespace

int open_context(Player& p) {
    char path[64];
    std::snprintf(path, sizeof path, "/dev/infiniband/uverbs%u",
                  p.dice.one_in(3) ? p.dice.below(kDevicesMax) : 0);
    const int fd = open(path, O_RDWR | (p.dice.one_in(4) ? 0 : O_CLOEXEC));
    if (fd < 0)
        return errno;
    struct {
        uint32_t events, vectors;
    } answer{};
    ib_uverbs_get_context body{};
    if (const int error = issue(p, fd, IB_USER_VERBS_CMD_GET_CONTEXT, body, answer)) {
        close(fd);
        return error;
    }
    fcntl(static_cast<int>(answer.events), F_SETFL, O_NONBLOCK);
    p.note(fd, answer.events);
    if (const auto old = p.world.contexts.put(p.dice, {fd, static_cast<int>(answer.events)})) {
        close(old->events);
        close(old->fd);
        p.world.forget_context(old->fd);
    }
    (void)op_pd(p);
    return 0;
}

int make_region(Player& p, const Object& pd) {
    const Arena& memory = p.world.memory;
    ib_uverbs_reg_mr body{};
    const uint64_t slot = reinterpret_cast<uint64_t>(memory.slot(p.dice.below(memory.slots())));
    const uint64_t at = p.dice.one_in(2) ? 0 : p.dice.below(memory.slot_bytes());
    body.start = p.dice.one_in(32) ? p.dice.wild() : slot + at;
    body.length = p.dice.one_in(32) ? p.dice.wild() : 1 + p.dice.below(memory.slot_bytes() - at);
    body.hca_va = p.dice.one_in(8) ? p.dice.wild() : body.start;
    if ((body.hca_va ^ body.start) & 4095 && !p.dice.one_in(8))
        body.hca_va = (body.hca_va & ~uint64_t{4095}) | (body.start & 4095);
    body.pd_handle = handle_of(p, pd);
    body.access_flags = p.dice.one_in(2) ? 0xf : p.dice.flags(22);
    p.note(static_cast<int64_t>(body.start), static_cast<int64_t>(body.length), body.access_flags);
    ib_uverbs_reg_mr_resp answer{};
    if (const int error = issue(p, pd.fd, IB_USER_VERBS_CMD_REG_MR, body, answer))
        return error;
    const auto old = p.world.regions.put(p.dice, Region{pd.fd, answer.mr_handle, answer.lkey,
                                                        answer.rkey, body.hca_va, body.length});
    return old ? destroy(p, IB_USER_VERBS_CMD_DEREG_MR, old->fd, old->handle) : 0;
}

std::span<const Op> uverbs_ops() { return kOps; }

}  // namespace nupa::fuzz
