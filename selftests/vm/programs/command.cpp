// SPDX-License-Identifier: BSD-3-Clause
#include "command.hpp"

#include <tcp_qp/tcp_qp.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tcp.hpp"

namespace nupa::programs {

uint32_t engine_of(const std::string& name) noexcept {
    return name == "offload"    ? TCP_QP_ENGINE_OFFLOAD
           : name == "software" ? TCP_QP_ENGINE_SOFTWARE
                                : TCP_QP_ENGINE_AUTO;
}

tcpqp::Fd PeerOptions::listener(int backlog) const {
    return listens() ? listen_on(port, backlog) : tcpqp::Fd();
}

tcpqp::Fd PeerOptions::next_socket(const tcpqp::Fd& listener) const {
    return listens() ? accept_from(listener) : connect_to(connect, port);
}

std::vector<tcpqp::Fd> PeerOptions::sockets(const tcpqp::Fd& listener, const tcpqp::Fd& control,
                                            size_t count) const {
    return listens() ? accept_many(listener, control, count)
                     : connect_many(connect, port, control, count);
}

struct Command::Parser {
    explicit Parser(const std::string& about) : app(about) {}
    CLI::App app;
};

Command::Command(std::string name, const std::string& about)
    : name_(std::move(name)), parser_(std::make_unique<Parser>(about)) {}

Command::~Command() = default;

Command& Command::address(PeerOptions& to) {
    option("--connect", to.connect, "numeric address; without: listen");
    parser_->app.add_option("--port", to.port)->required();
    return *this;
}

Command& Command::peer(PeerOptions& to) {
    return address(to).option("--interface", to.interface).engine(to.engine);
}

Command& Command::engine(std::string& to) {
    return choice("--engine", to, {"auto", "offload", "software"});
}

Command& Command::option(const char* flag, std::string& to, const char* help) {
    parser_->app.add_option(flag, to, help);
    return *this;
}

Command& Command::option(const char* flag, std::vector<std::string>& to, const char* help) {
    parser_->app.add_option(flag, to, help);
    return *this;
}

Command& Command::option(const char* flag, int& to, const char* help) {
    parser_->app.add_option(flag, to, help);
    return *this;
}

Command& Command::option(const char* flag, uint8_t& to, const char* help) {
    parser_->app.add_option(flag, to, help);
    return *this;
}

Command& Command::option(const char* flag, uint16_t& to, const char* help) {
    parser_->app.add_option(flag, to, help);
    return *this;
}

Command& Command::option(const char* flag, uint32_t& to, const char* help) {
    parser_->app.add_option(flag, to, help);
    return *this;
}

Command& Command::option(const char* flag, uint64_t& to, const char* help) {
    parser_->app.add_option(flag, to, help);
    return *this;
}

Command& Command::option(const char* flag, uint32_t& to, Range range, const char* help) {
    parser_->app.add_option(flag, to, help)->check(CLI::Range(range.least, range.most));
    return *this;
}

Command& Command::choice(const char* flag, std::string& to, const std::vector<std::string>& of,
                         const char* help) {
    parser_->app.add_option(flag, to, help)->check(CLI::IsMember(of));
    return *this;
}

Command& Command::flag(const char* flag, bool& to, const char* help) {
    parser_->app.add_flag(flag, to, help);
    return *this;
}

int Command::run(int argc, char** argv, const std::function<int()>& body) {
    CLI11_PARSE(parser_->app, argc, argv);
    try {
        return body();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: FAILED: %s\n", name_.c_str(), e.what());
        return 1;
    }
}

}  // namespace nupa::programs
