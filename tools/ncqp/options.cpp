// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <fmt/core.h>
#include <net/if.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <map>

namespace ncqp {
namespace {

const std::map<std::string, Engine> kEngines = {{"auto", Engine::kAuto},
                                                {"offload", Engine::kOffload},
                                                {"software", Engine::kSoftware},
                                                {"tcp", Engine::kTcp}};
const std::map<std::string, TcpSend> kTcpSends = {{"copy", TcpSend::kCopy},
                                                  {"sendfile", TcpSend::kSendfile}};

const std::map<std::string, DeviceKind> kDevices = {
    {"hbm", DeviceKind::kHbm}, {"udmabuf", DeviceKind::kUdmabuf}, {"pool", DeviceKind::kPool}};

constexpr const char* kAbout =
    "ncqp: netcat for queue pairs on TCP.\n"
    "Sends standard input to the peer's standard output; whoever connects sends.\n"
    "  ncqp -l -p 5000 > copy          ncqp -s 192.0.2.1 -p 5000 < file";
constexpr const char* kFooter =
    "Exit status: 0 transferred and verified, 1 failure, 64 wrong usage.";

struct Flags {
    bool pool = false;
    bool four = false, six = false, send = false, receive = false;
};

void add_address_options(CLI::App& app, Options& o, Flags& f) {
    const char* group = "Addresses";
    app.add_flag("-l,--listen", o.listen, "wait for one connection")->group(group);
    app.add_option("-s,--server", o.server, "server address: where to connect, or to listen")
        ->group(group);
    app.add_option("-c,--client", o.client, "client address: bind to it, or accept only it")
        ->group(group);
    app.add_option("-p,--port", o.port, "TCP port (with -l, 0 picks one)")
        ->required()
        ->group(group);
    app.add_option("-f,--ifname", o.ifname, "network interface (default: the route's)")
        ->group(group);
    app.add_flag("-4", f.four, "IPv4 only")->group(group);
    app.add_flag("-6", f.six, "IPv6 only")->group(group);
    app.add_option("--timeout", o.timeout_s,
                   "seconds without progress before giving up (default: 10 to connect and "
                   "attach, else none)")
        ->check(CLI::Range(0.001, static_cast<double>(kTimeoutMax_s)))
        ->group(group);
}

void add_engine_options(CLI::App& app, Options& o) {
    const char* group = "Engine";
    app.add_option("--engine", o.engine, "auto (offload, else software), offload, software or tcp")
        ->transform(CLI::CheckedTransformer(kEngines, CLI::ignore_case))
        ->default_str("auto")
        ->group(group);
    app.add_option("--wire", o.wire, "version of the tcp_bth option on sent segments (0 or 1)")
        ->check(CLI::Range(0, 1))
        ->group(group);
    app.add_option("--depth", o.depth, "messages in flight")
        ->check(CLI::Range(1u, kDepthMax))
        ->capture_default_str()
        ->group(group);
    app.add_option("--msg-size", o.msg_bytes, "bytes of a message; K, M suffixes (default 1M)")
        ->transform(CLI::AsSizeValue(false))
        ->group(group);
    app.add_option("--tcp-send", o.tcp_send, "engine tcp, from a file: sendfile, or copy (send)")
        ->transform(CLI::CheckedTransformer(kTcpSends, CLI::ignore_case))
        ->default_str("sendfile")
        ->group(group);
    app.add_option("--sockbuf", o.sockbuf_bytes, "fixed socket buffers (default: the kernel tunes)")
        ->transform(CLI::AsSizeValue(false))
        ->group(group);
}

void add_data_options(CLI::App& app, Options& o, Flags& f) {
    const char* group = "Data";
    app.add_flag("--send", f.send, "send, also when listening")->group(group);
    app.add_flag("--receive", f.receive, "receive, also when connecting")->group(group);
    app.add_option("-n,--bytes", o.bytes,
                   "send generated traffic of this size; receiver: expect exactly this size")
        ->transform(CLI::AsSizeValue(false))
        ->group(group);
    app.add_option("-v,--validate", o.period,
                   "pattern period N: bytes 1, 2 .. N-1, 0, 1 ..; the receiver checks each")
        ->check(CLI::Range(kPeriodMin, kPeriodMax))
        ->group(group);
    app.add_option(
           "-d,--device-memory", o.device,
           "hbm, pool or udmabuf: the data stay in memory of /dev/nupa_accel0, which checks "
           "them with -v, in a lease of the switch's pool (/dev/nupa_pool0), or in a dma-buf "
           "of pages; hbm needs -n at the sender, and keeps nothing at the receiver")
        ->transform(CLI::CheckedTransformer(kDevices, CLI::ignore_case))
        ->default_str("none")
        ->group(group);
    app.add_flag("--pool", f.pool, "the same as -d pool")->excludes("-d")->group(group);
}

void add_report_options(CLI::App& app, Options& o) {
    const char* group = "Report";
    app.add_option("--json", o.json, "write one JSON object to this file")->group(group);
    app.add_flag("-q,--quiet", o.quiet, "only errors on standard error")->group(group);
}

// An empty answer: usable.
std::string complaint(const Options& o, const Flags& f) {
    if (!o.listen && o.server.empty())
        return "-s ADDRESS is needed to connect (or -l to listen)";
    if (f.four && f.six)
        return "-4 and -6 exclude each other";
    if (f.send && f.receive)
        return "--send and --receive exclude each other";
    if (o.ifname.size() >= IFNAMSIZ)
        return fmt::format("-f: '{}' is too long", o.ifname);
    if (o.msg_bytes < kMessageMinBytes || o.msg_bytes > kMessageMaxBytes)
        return fmt::format("--msg-size must be {} to {}", kMessageMinBytes, kMessageMaxBytes);
    if (o.sockbuf_bytes > kGiB)
        return "--sockbuf must be at most 1G";
    if (o.bytes && *o.bytes > INT64_MAX)
        return "-n is too large";
    if (o.engine == Engine::kTcp && o.wire)
        return "--wire has no meaning with --engine tcp";
    if (o.device != DeviceKind::kNone && o.engine == Engine::kTcp)
        return "-d needs a queue pair: it has no meaning with --engine tcp";
    if (o.device == DeviceKind::kHbm && o.sends && !o.bytes)
        return "-d hbm at the sender needs -n BYTES (standard input is not read into a device)";
    if (o.sends && o.period != 0 && !o.bytes)
        return "-v at the sender needs -n BYTES (standard input is sent as it is)";
    size_t end = 0;
    unsigned long port = 65536;
    try {
        port = std::stoul(o.port, &end);
    } catch (const std::exception&) {
    }
    if (end != o.port.size() || port > 65535 || (port == 0 && !o.listen))
        return fmt::format("-p: '{}' is no port", o.port);
    return {};
}

}  // namespace

const char* engine_name(Engine engine) noexcept {
    switch (engine) {
        case Engine::kOffload:
            return "offload";
        case Engine::kSoftware:
            return "software";
        case Engine::kTcp:
            return "tcp";
        case Engine::kAuto:
            break;
    }
    return "auto";
}

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
    Options o;
    Flags f;
    CLI::App app{kAbout, "ncqp"};
    app.footer(kFooter);
    app.get_formatter()->column_width(28);
    add_address_options(app, o, f);
    add_data_options(app, o, f);
    add_engine_options(app, o);
    add_report_options(app, o);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        exit_code = app.exit(e) == 0 ? kExitOk : kExitUsage;
        return std::nullopt;
    }
    if (f.pool)
        o.device = DeviceKind::kPool;
    o.family = f.four ? AF_INET : f.six ? AF_INET6 : AF_UNSPEC;
    o.sends = f.send || (!o.listen && !f.receive);
    if (std::string text = complaint(o, f); !text.empty()) {
        fmt::print(stderr, "ncqp: {}\nncqp --help lists all options\n", text);
        exit_code = kExitUsage;
        return std::nullopt;
    }
    return o;
}

}  // namespace ncqp
