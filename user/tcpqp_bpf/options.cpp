// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>

namespace tcpqp::bpf {
namespace {

constexpr int kUsage = 64;
constexpr mode_t kModeMax = 07777;  // what chmod(1) takes; permissions are used of it
constexpr mode_t kPermissions = 0777;

constexpr const char* kHelp =
    "tcpqp-bpf [--cgroup PATH] [--socket PATH] [--mode OCTAL] [--user NAME] [--verbose]\n"
    "Lets programs of this network namespace that use libtcpqp without the module talk to\n"
    "ends with it.  Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and Linux 6.12.\n"
    "  --cgroup  cgroup v2 whose sockets may be admitted (default /sys/fs/cgroup)\n"
    "  --socket  where programs ask (default " TCPQP_BPF_SOCKET_PATH
    ")\n"
    "  --mode    who may ask: permissions of that socket (default 0660)\n"
    "  --user    who to be once the socket is there (started by root, whose word libraries take;\n"
    "            they take another user's for that user's own programs only)\n"
    "  --verbose counters of each connection when it ends\n"
    "A listener that systemd passes (a .socket unit) is taken instead of --socket and --mode.\n";

bool parse_mode(const std::string& text, mode_t& mode) {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, mode, 8);
    if (text.empty() || error != std::errc{} || at != end || mode > kModeMax)
        return false;
    mode &= kPermissions;
    return true;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
    Options o;
    CLI::App app;
    app.set_help_flag("--help");
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.add_option("--cgroup", o.cgroup);
    const CLI::Option* socket = app.add_option("--socket", o.socket);
    const auto* mode = app.add_option_function<std::string>("--mode", [&](const std::string& text) {
        if (!parse_mode(text, o.mode))
            throw CLI::ValidationError("--mode", "takes octal permissions");
    });
    app.add_option("--user", o.user);
    app.add_flag("--verbose", o.verbose);
    try {
        app.parse(argc, argv);
        o.socket_named = *socket || *mode;
        return o;
    } catch (const CLI::CallForHelp&) {
        std::fputs(kHelp, stdout);
        exit_code = 0;
    } catch (const CLI::ParseError& e) {
        std::fprintf(stderr, "tcpqp-bpf: %s\n%s", e.what(), kHelp);
        exit_code = kUsage;
    }
    return std::nullopt;
}

}  // namespace tcpqp::bpf
