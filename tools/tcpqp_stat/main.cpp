// SPDX-License-Identifier: BSD-3-Clause
// tcpqp-stat: this host's queue pairs, and what TCP says of their connections.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

#include "report.hpp"

namespace {

constexpr const char* kClear = "\033[H\033[2J";

struct Options {
    tcpqp::stat::Choice choice;
    bool json = false;
    double watch_s = 0;  // 0: once
};

bool show(const Options& o) {
    const auto lines = tcpqp::stat::look(o.choice);
    if (o.watch_s > 0 && !o.json && ::isatty(STDOUT_FILENO))
        std::fputs(kClear, stdout);
    fmt::print("{}", o.json ? tcpqp::stat::as_json(lines) : tcpqp::stat::as_table(lines));
    return std::fflush(stdout) == 0;
}

int run(int argc, char** argv) {
    Options o;
    bool no_stock = false;
    CLI::App app{"queue pairs of this host, and what TCP says of their connections"};
    app.add_flag("-a,--all", o.choice.unconnected, "queue pairs without a connection, too");
    app.add_flag("--no-stock", no_stock, "without a look for programs that use libtcpqp");
    app.add_flag("-j,--json", o.json, "print JSON");
    app.add_option("-w,--watch", o.watch_s, "again, each so many seconds (1)")
        ->expected(0, 1)
        ->default_str("1")
        ->check(CLI::Range(0.1, 3600.0));
    CLI11_PARSE(app, argc, argv);
    o.choice.stock = !no_stock;
    while (show(o) && o.watch_s > 0)
        std::this_thread::sleep_for(std::chrono::duration<double>(o.watch_s));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& e) {
        fmt::print(stderr, "tcpqp-stat: {}\n", e.what());
        return 1;
    }
}
