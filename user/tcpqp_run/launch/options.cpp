// SPDX-License-Identifier: BSD-3-Clause
#include "launch/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string_view>

namespace tcpqp::run {
namespace {

constexpr int kUsage = 64;
constexpr const char* kHelp =
    "usage: tcpqp-run [--stats] [--supervise] PROGRAM [ARGUMENT...]\n"
    "       tcpqp-run --verbs PROGRAM [ARGUMENT...]\n"
    "       tcpqp-run --cgroup PATH [--off]\n"
    "Runs PROGRAM with the tcp_qp module's ULP on its TCP sockets: they stay what they are, large\n"
    "sends cost less, and on a port of the switch large receives with MSG_WAITALL need no copy.\n"
    "Without the module, PROGRAM runs as it is.\n"
    "  --stats     when a process ends: how many sockets got it, or why none, on standard error\n"
    "  --supervise also reach children that make system calls by themselves (static and Go "
    "programs),\n"
    "              by a small process beside PROGRAM; without it where PROGRAM itself is such a "
    "one\n"
    "  --verbs     instead, for programs of RDMA verbs: posts to the module's queue pairs need no\n"
    "              system call each\n"
    "  --cgroup    every TCP socket that programs of this cgroup (v2) make from now on, until the\n"
    "              cgroup goes; for root\n"
    "  --off       not any more; sockets that have it keep it\n";

// How many words of @argv are ours: what begins with the first that is no option is the program's.
int own_words(int argc, char** argv) {
    int i = 1;
    while (i < argc && std::string_view(argv[i]).starts_with("-") &&
           std::string_view(argv[i]) != "--")
        i += std::string_view(argv[i]) == "--cgroup" ? 2 : 1;
    return std::min(i, argc);
}

void parse(int argc, char** argv, Options& o) {
    CLI::App app;
    app.set_help_flag("--help");
    app.add_flag("--stats", o.stats);
    app.add_flag("--supervise", o.supervise);
    app.add_flag("--verbs", o.verbs)->excludes("--stats")->excludes("--supervise");
    auto* cgroup = app.add_option("--cgroup", o.cgroup);
    cgroup->excludes("--stats")->excludes("--supervise")->excludes("--verbs");
    app.add_flag("--off", o.off)->needs(cgroup);
    int words = own_words(argc, argv);
    app.parse(words, argv);
    if (words < argc && std::string_view(argv[words]) == "--")
        words++;
    if (!o.cgroup.empty() && words < argc)
        throw CLI::ExtrasError("--cgroup", {argv[words]});
    if (o.cgroup.empty() && words >= argc)
        throw CLI::RequiredError("PROGRAM");
    o.program = argv + words;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
    Options o;
    try {
        parse(argc, argv, o);
        return o;
    } catch (const CLI::CallForHelp&) {
        std::fputs(kHelp, stdout);
        exit_code = 0;
    } catch (const CLI::ParseError& e) {
        std::fprintf(stderr, "tcpqp-run: %s\n%s", e.what(), kHelp);
        exit_code = kUsage;
    }
    return std::nullopt;
}

}  // namespace tcpqp::run
