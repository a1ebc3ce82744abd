// SPDX-License-Identifier: BSD-3-Clause
// One request of generic netlink and its answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace tcpqp::devmem {

// Attributes, one behind another.
class Attributes {
public:
    void put_u8(uint16_t type, uint8_t value) { put(type, &value, sizeof(value)); }
    void put_u32(uint16_t type, uint32_t value) { put(type, &value, sizeof(value)); }
    void put_text(uint16_t type, const std::string& value);
    void put_nest(uint16_t type, const Attributes& inner);
    [[nodiscard]] const std::vector<char>& bytes() const noexcept { return bytes_; }

private:
    void put(uint16_t type, const void* value, size_t bytes);

    std::vector<char> bytes_;
};

class Genetlink {
public:
    // Throws std::system_error, with the kernel's own words where it has some.
    explicit Genetlink(const std::string& family);
    // Returns when the request is done: the attributes of the answer, if there is one.
    std::vector<char> request(uint8_t command, const Attributes& attributes);
    // Keeps what belongs to the socket until @this ends.
    [[nodiscard]] int fd() const noexcept { return socket_.get(); }

private:
    std::vector<char> exchange(uint16_t type, uint8_t command, uint8_t version,
                               const Attributes& attributes);

    Fd socket_;
    uint16_t family_ = 0;
    uint32_t seq_ = 0;
};

// The first attribute of this type as an integer of @bytes.
[[nodiscard]] std::optional<uint32_t> find_attribute(const std::vector<char>& attributes,
                                                     uint16_t type, size_t bytes);

}  // namespace tcpqp::devmem
