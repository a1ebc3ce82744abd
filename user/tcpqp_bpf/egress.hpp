// SPDX-License-Identifier: BSD-3-Clause
// The program's tc part, on each interface that an admitted connection leaves by.
#pragma once

#include <string>
#include <vector>

namespace tcpqp::bpf {

class Egress {
public:
    explicit Egress(int program) noexcept : program_(program) {}
    ~Egress();
    Egress(const Egress&) = delete;
    Egress& operator=(const Egress&) = delete;

    // 0 or a negative errno; once for an interface.
    [[nodiscard]] int cover(const std::string& ifname) noexcept;

private:
    struct Interface {
        int index;
        bool made_qdisc;  // clsact is ours to remove
    };

    int program_;
    std::vector<Interface> covered_;
};

}  // namespace tcpqp::bpf
