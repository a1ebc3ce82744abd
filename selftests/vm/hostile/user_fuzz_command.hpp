// SPDX-License-Identifier: BSD-3-Clause
// One write() command of uverbs, now and then damaged.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <array>
#include <cstring>

#include "user_fuzz_world.hpp"

namespace nupa::fuzz {

// 0 or an errno.
int issue(Player& p, int fd, uint32_t command, const void* body, size_t body_bytes,
          size_t response_bytes);

// @body begins with the address of the response.
template <typename Body, typename Response>
int issue(Player& p, int fd, uint32_t command, Body body, Response& response) {
    body.response = reinterpret_cast<uint64_t>(&response);
    return issue(p, fd, command, &body, sizeof body, sizeof response);
}

template <typename Body>
int issue(Player& p, int fd, uint32_t command, const Body& body) {
    return issue(p, fd, command, &body, sizeof body, 0);
}

// What the core answers, and behind it what the driver does.  (In C++ a structure with a flexible
// array can have nothing behind it.)
template <typename Core, typename Driver>
struct Answer {
    alignas(8) std::array<uint8_t, sizeof(Core) + sizeof(Driver)> bytes{};

    [[nodiscard]] uint32_t word(size_t i) const noexcept {
        uint32_t value = 0;
        std::memcpy(&value, &bytes[4 * i], sizeof value);
        return value;
    }
    [[nodiscard]] Driver driver() const noexcept {
        Driver d;
        std::memcpy(&d, &bytes[sizeof(Core)], sizeof d);
        return d;
    }
};

// That of a live object, mostly, though another thread may just have destroyed it.
uint32_t handle_of(Player& p, const std::optional<Object>& object);
int destroy(Player& p, uint32_t command, int fd, uint32_t handle);

}  // namespace nupa::fuzz
