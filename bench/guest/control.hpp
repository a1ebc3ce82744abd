// SPDX-License-Identifier: BSD-3-Clause
// The connection by which both ends agree on what is next: lines of text.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace nupa::bench {

inline constexpr int kStepLimitS = 240;  // for the other end to come to the same place

class Control {
public:
    explicit Control(tcpqp::Fd socket);

    // Throws std::system_error, or std::runtime_error when the other end is gone.
    void send(const std::string& line);
    [[nodiscard]] std::string receive();
    // Sends @line and returns what the other end sends here.  Throws if that is an error.
    [[nodiscard]] std::string meet(const std::string& line);
    // What meet() of the other end throws.
    void send_error(const std::string& what) noexcept;
    [[nodiscard]] bool closed() const noexcept { return closed_; }

private:
    tcpqp::Fd socket_;
    std::string pending_;
    bool closed_ = false;
};

}  // namespace nupa::bench
