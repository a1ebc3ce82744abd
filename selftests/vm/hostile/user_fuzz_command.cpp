// SPDX-License-Identifier: BSD-3-Clause
#include "user_fuzz_command.hpp"

#include <unistd.h>

#include <cerrno>

namespace nupa::fuzz {
namespace {

constexpr uint32_t kDamagedOneIn = 24;
constexpr size_t kBodyMaxBytes = 512;

struct Command {
    ib_uverbs_cmd_hdr header;
    std::array<uint32_t, kBodyMaxBytes / 4> body;
};

void damage(Player& p, Command& c, size_t& bytes) {
    switch (p.dice.below(5)) {
        case 0:
            c.header.in_words = static_cast<uint16_t>(c.header.in_words + p.dice.below(9) - 4);
            return;
        case 1:
            c.header.out_words = static_cast<uint16_t>(p.dice.wild());
            return;
        case 2:
            c.header.command ^= 1u << p.dice.below(32);
            return;
        case 3:
            bytes = p.dice.below(bytes + 1);
            return;
        default:
            c.body[p.dice.below(bytes / 4)] = static_cast<uint32_t>(p.dice.wild());
    }
}

}  // namespace

int issue(Player& p, int fd, uint32_t command, const void* body, size_t body_bytes,
          size_t response_bytes) {
    Command c{};
    size_t bytes = sizeof c.header + body_bytes;
    c.header = {command, static_cast<uint16_t>(bytes / 4),
                static_cast<uint16_t>(response_bytes / 4)};
    std::memcpy(c.body.data(), body, body_bytes);
    if (p.dice.one_in(kDamagedOneIn))
        damage(p, c, bytes);
    return result(write(fd, &c, bytes));
}

uint32_t handle_of(Player& p, const std::optional<Object>& object) {
    return object && !p.dice.one_in(32) ? object->handle : p.dice.below(16);
}

int destroy(Player& p, uint32_t command, int fd, uint32_t handle) {
    p.note(fd, handle);
    uint64_t response[2] = {};
    if (command == IB_USER_VERBS_CMD_DEREG_MR || command == IB_USER_VERBS_CMD_DEALLOC_PD ||
        command == IB_USER_VERBS_CMD_DEALLOC_MW)
        return issue(p, fd, command, handle);
    ib_uverbs_destroy_qp body{};  // those of CQ and SRQ are alike
    body.qp_handle = handle;
    return issue(p, fd, command, body, response);
}

}  // namespace nupa::fuzz
