// SPDX-License-Identifier: BSD-3-Clause
// Command line and main() of a test program.  CLI11 stays in command.cpp: it costs ten seconds
// of compiler in each file that sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace nupa::programs {

// TCP_QP_ENGINE_* of "auto", "offload" or "software".
[[nodiscard]] uint32_t engine_of(const std::string& name) noexcept;

// Where the other process is, and on what engine to meet it.
struct PeerOptions {
    std::string connect;  // numeric address; empty: listen
    uint16_t port = 0;
    std::string interface = "nupa0";
    std::string engine = "auto";

    [[nodiscard]] bool listens() const noexcept { return connect.empty(); }
    [[nodiscard]] uint32_t engine_id() const noexcept { return engine_of(engine); }
    // A listener, or nothing where we connect.
    [[nodiscard]] tcpqp::Fd listener(int backlog = 1) const;
    // The next connection; @listener as above.
    [[nodiscard]] tcpqp::Fd next_socket(const tcpqp::Fd& listener) const;
    // @count connections in an order that both ends agree on; @control is one more (tcp.hpp).
    [[nodiscard]] std::vector<tcpqp::Fd> sockets(const tcpqp::Fd& listener,
                                                 const tcpqp::Fd& control, size_t count) const;
    // The only connection.
    [[nodiscard]] tcpqp::Fd socket() const { return next_socket(listener()); }
};

struct Range {
    int64_t least, most;
};

// Options are named as CLI11 names them; what is not given keeps its value.
class Command {
public:
    Command(std::string name, const std::string& about);
    ~Command();
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;

    Command& address(PeerOptions& to);  // --connect, --port
    Command& peer(PeerOptions& to);     // these, --interface, --engine
    Command& engine(std::string& to);
    Command& option(const char* flag, std::string& to, const char* help = "");
    Command& option(const char* flag, std::vector<std::string>& to, const char* help = "");
    Command& option(const char* flag, int& to, const char* help = "");
    Command& option(const char* flag, uint8_t& to, const char* help = "");
    Command& option(const char* flag, uint16_t& to, const char* help = "");
    Command& option(const char* flag, uint32_t& to, const char* help = "");
    Command& option(const char* flag, uint64_t& to, const char* help = "");
    Command& option(const char* flag, uint32_t& to, Range range, const char* help = "");
    Command& choice(const char* flag, std::string& to, const std::vector<std::string>& of,
                    const char* help = "");
    Command& flag(const char* flag, bool& to, const char* help = "");

    // Parses, runs @body and returns what the process exits with: @body's answer, 1 with
    // "NAME: FAILED: why" on standard error if it throws, CLI11's code for a wrong command line.
    int run(int argc, char** argv, const std::function<int()>& body);

private:
    struct Parser;
    std::string name_;
    std::unique_ptr<Parser> parser_;
};

}  // namespace nupa::programs
