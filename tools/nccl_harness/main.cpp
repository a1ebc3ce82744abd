// SPDX-License-Identifier: BSD-3-Clause
// nccl_harness: drives a net plugin of NCCL's as NCCL does, without NCCL, CUDA or a GPU.
//   nccl_harness --plugin libnccl-net-tcpqp.so                    all cases, two processes here
//   nccl_harness --plugin P --listen 7000                         the same between two machines:
//   nccl_harness --plugin P --join 10.0.0.1:7000 --rank 1         ... the other one
//   nccl_harness --plugin P --ranks 4 --measure --most 64M        collectives
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "nccl_harness/collectives.hpp"

namespace tcpqp::harness {
namespace {

constexpr unsigned kCaseLimitS = 300, kLongLimitS = 7200;
constexpr int kUsage = 64;

const Case kCases[] = {
    {"symbols", "tables v8 to v12, init and finalize twice, loaded 100 times", case_symbols},
    {"properties", "each device's properties are sane and stable", case_properties},
    {"connect", "in turns by one thread, many at once, a listener closed or used again",
     case_connect},
    {"strays", "other people's connections, silence, half a magic: the real peer still comes",
     case_strays},
    {"sizes", "0 to 4 MiB (--long: 1 GiB), into equal and larger receives", case_sizes},
    {"outstanding", "32 groups under way, the 33rd is refused, thousands one behind the other",
     case_outstanding},
    {"grouped", "groups of 1 to maxRecvs, tags alike, different, mixed, in any order",
     case_grouped},
    {"order", "sends first, receives first, both ways", case_order},
    {"preset", "whatever *request holds on entry", case_preset},
    {"ends", "closed with requests under way; a peer killed in mid-message; nothing leaks",
     case_ends},
    {"memory", "overlapping registrations; what is deregistered is written no more", case_memory},
    {"threads", "many comms of many threads", case_threads},
    {"random", "seeded messages both ways, each byte checked", case_random},
    {"mixed", "groups, tags, sizes and turns at random, both ways, each byte checked", case_mixed},
    {"polled", "LL and LL128: a flag is never seen before its data", case_polled},
    {"device", "an accelerator's memory by its dma-bufs, each way, and what must be refused",
     case_device},
};

struct Options {
    std::string plugin, join, victim;
    std::vector<std::string> only;
    int api = 0, ranks = 2, rank = 0, device = 0;
    uint16_t listen = 0;
    unsigned sleep_us = 0;
    bool list = false, json = false, thorough = false, measure = false, no_self = false;
    std::string merge, accelerator;
    uint64_t seed = 1;
    double seconds = 0;
    Measure what;
};

struct Outcome {
    std::string name;
    bool ok;
    double seconds;
    std::string problem;
};

Outcome run_case(Env& env, const Case& c, const Options& o) {
    const auto begin = std::chrono::steady_clock::now();
    // nothing may hang, this program included
    ::alarm((o.thorough ? kLongLimitS : kCaseLimitS) + static_cast<unsigned>(o.seconds));
    Outcome outcome{c.name, true, 0, {}};
    try {
        c.run(env);
    } catch (const std::exception& e) {
        outcome.ok = false;
        outcome.problem = fmt::format("rank {}: {}", env.ranks.rank(), e.what());
    }
    outcome.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ::alarm(0);
    return outcome;
}

// After a case that failed the ranks may be anywhere: it is the last.
int run_cases(Env& env, const Options& o) {
    nlohmann::json list = nlohmann::json::array();
    bool ok = true;
    for (const Case& c : kCases) {
        if (!o.only.empty() && std::find(o.only.begin(), o.only.end(), c.name) == o.only.end())
            continue;
        if (c.run == case_device && o.accelerator.empty())
            continue;
        const Outcome r = run_case(env, c, o);
        ok &= r.ok;
        list.push_back(
            {{"name", r.name}, {"ok", r.ok}, {"seconds", r.seconds}, {"problem", r.problem}});
        if (!r.ok)
            fmt::print(stderr, "nccl_harness: {}: {}\n", r.name, r.problem);
        if (env.ranks.rank() == 0 && !o.json)
            fmt::print("{} {:<12} {:6.2f} s  {}\n", r.ok ? "ok    " : "FAILED", r.name, r.seconds,
                       c.what);
        std::fflush(stdout);
        if (!r.ok)
            break;
    }
    if (env.ranks.rank() == 0 && o.json)
        fmt::print("{}\n", nlohmann::json{{"net", env.plugin.name()},
                                          {"api", env.plugin.api()},
                                          {"ranks", env.ranks.size()},
                                          {"seed", env.seed},
                                          {"cases", list}}
                               .dump());
    return ok ? 0 : 1;
}

int run_measure(Env& env, const Options& o) {
    uint64_t wrong = 0;
    nlohmann::json rows = nlohmann::json::array();
    const std::vector<Row> all = measure(env, o.what);
    if (env.ranks.rank() == 0 && !o.json)
        fmt::print("{:<15}{:>12}{:>13}{:>9}{:>9}{:>7}{:>13}\n", "operation", "bytes", "time us",
                   "algbw", "busbw", "wrong", "cpu us");
    for (const Row& r : all) {
        wrong += r.wrong;
        rows.push_back({{"operation", r.operation},
                        {"bytes", r.bytes},
                        {"time_us", r.time_us},
                        {"algbw_gbs", r.algorithm_gbs},
                        {"busbw_gbs", r.bus_gbs},
                        {"wrong", r.wrong},
                        {"cpu_us", r.cpu_us},
                        {"touched_bytes", r.touched_bytes},
                        {"ranks", env.ranks.size()}});
        if (env.ranks.rank() == 0 && !o.json)
            fmt::print("{:<15}{:>12}{:>13.1f}{:>9.3f}{:>9.3f}{:>7}{:>13.1f}\n", r.operation,
                       r.bytes, r.time_us, r.algorithm_gbs, r.bus_gbs, r.wrong, r.cpu_us);
    }
    if (env.ranks.rank() == 0 && o.json)
        fmt::print("{}\n", nlohmann::json{{"net", env.plugin.name()}, {"rows", rows}}.dump());
    return wrong == 0 ? 0 : 1;
}

int device_of(Plugin& plugin, const Options& o) {
    std::vector<int> members;
    std::stringstream words(o.merge);
    for (std::string word; std::getline(words, word, ',');)
        members.push_back(std::stoi(word));
    return members.empty() ? o.device : plugin.make_virtual(members);
}

int run_rank(Ranks ranks, const Options& o, const std::string& program) {
    std::thread([] {}).join();  // a sanitizer's own thread comes with the first one; then count
    Plugin plugin(o.plugin, o.api);
    plugin.init();
    int status = 0;
    {
        const int device = device_of(plugin, o);
        const bool takes_dmabufs = (plugin.properties(device).pointers & nccl::kPointerDmabuf) != 0;
        const auto memory = make_memory(o.accelerator, !takes_dmabufs);
        Env env{plugin, ranks,     device,  o.thorough, !o.no_self,
                o.seed, o.seconds, program, o.merge,    *memory};
        status = o.measure ? run_measure(env, o) : run_cases(env, o);
    }
    plugin.finalize();
    return status;
}

int guarded(Ranks ranks, const Options& o, const std::string& program) {
    try {
        return run_rank(std::move(ranks), o, program);
    } catch (const std::exception& e) {
        fmt::print(stderr, "nccl_harness: {}\n", e.what());
        return 1;
    }
}

// All ranks here: the others are forked before anything has threads.
int run_here(const Options& o, const std::string& program) {
    uint16_t port = 0;
    Fd listener = listen_on(port);
    std::vector<pid_t> others;
    for (int rank = 1; rank < o.ranks; rank++) {
        const pid_t pid = ::fork();
        if (pid < 0)
            throw_errno("fork");
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            listener.reset();
            const int status = guarded(Ranks::join("127.0.0.1", port, rank, o.ranks), o, program);
            std::fflush(nullptr);
            std::exit(status);  // not _exit(): the sanitizers report leaks at exit
        }
        others.push_back(pid);
    }
    int status = guarded(Ranks::lead(std::move(listener), o.ranks), o, program);
    for (const pid_t pid : others) {
        int how = 0;
        ::waitpid(pid, &how, 0);
        status |= WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    }
    return status;
}

int run(const Options& o, const std::string& program) {
    set_sleep_us(o.sleep_us);
    if (o.list) {
        for (const Case& c : kCases)
            fmt::print("{:<12} {}\n", c.name, c.what);
        return 0;
    }
    if (!o.victim.empty()) {
        Plugin plugin(o.plugin, o.api);
        plugin.init();
        be_victim(plugin, device_of(plugin, o), o.victim);
        return 1;  // it should have been killed
    }
    if (o.listen != 0) {
        uint16_t port = o.listen;
        return guarded(Ranks::lead(listen_on(port), o.ranks), o, program);
    }
    if (!o.join.empty()) {
        const size_t colon = o.join.rfind(':');
        check(colon != std::string::npos, "--join takes ADDRESS:PORT");
        const auto port = static_cast<uint16_t>(std::stoi(o.join.substr(colon + 1)));
        return guarded(Ranks::join(o.join.substr(0, colon), port, o.rank, o.ranks), o, program);
    }
    return run_here(o, program);
}

void define(CLI::App& app, Options& o) {
    app.add_flag("--list", o.list, "names the cases");
    app.add_option("--plugin", o.plugin, "the plugin's file");
    app.add_option("--api", o.api, "8 to 12; 0: the newest it has")->check(CLI::Range(0, 12));
    app.add_option("--case", o.only, "only these")->delimiter(',');
    app.add_option("--ranks", o.ranks, "2 to 8")->check(CLI::Range(2, 8));
    app.add_option("--device", o.device, "the plugin's device");
    app.add_option("--merge", o.merge, "make a virtual device of these and use it: 0,1")
        ->check([](const std::string& word) {
            const bool good = word.find_first_not_of("0123456789,") == std::string::npos;
            return good ? std::string() : "devices, with commas between";
        });
    app.add_option("--listen", o.listen, "be rank 0 of a run on several machines, at this port");
    app.add_option("--join", o.join, "be another rank: ADDRESS:PORT of rank 0");
    app.add_option("--rank", o.rank, "with --join: which")->check(CLI::Range(1, 7));
    app.add_option("--seed", o.seed, "of what is random");
    app.add_option("--seconds", o.seconds, "how long the case `polled` goes on")
        ->check(CLI::NonNegativeNumber);
    app.add_flag("--long", o.thorough, "millions of messages, 1 GiB");
    app.add_flag("--no-self", o.no_self,
                 "no comms of a rank to itself: TCPQP_ENGINE forces what loopback has not");
    app.add_flag("--json", o.json, "the result as one line");
    app.add_option("--accelerator", o.accelerator,
                   "its memory and it in a GPU's place: /dev/nupa_accel0; adds the case `device`");
    app.add_option("--sleep-us", o.sleep_us,
                   "sleep so long where NCCL's proxy spins: for ranks that share processors")
        ->check(CLI::Range(0, 10000));
    app.add_flag("--measure", o.measure, "collectives instead of cases");
    app.add_option("--operation", o.what.operations, "only these")
        ->delimiter(',')
        ->check(CLI::IsMember(operations()));
    app.add_option("--least", o.what.least_bytes, "bytes, e.g. 8")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--most", o.what.most_bytes, "bytes, e.g. 64M")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--factor", o.what.factor, "between two sizes")->check(CLI::Range(2, 1024));
    app.add_option("--iterations", o.what.iterations, "of each")->check(CLI::Range(1, 10000));
    app.add_option("--victim", o.victim)->group("");
}

}  // namespace

std::span<const Case> cases() noexcept { return kCases; }

}  // namespace tcpqp::harness

int main(int argc, char** argv) try {
    using namespace tcpqp::harness;
    CLI::App app("Drives a net plugin of NCCL's as NCCL does, without NCCL, CUDA or a GPU.");
    Options o;
    o.what.most_bytes = 4 << 20;
    define(app, o);
    try {
        app.parse(argc, argv);
        if (!o.list && o.plugin.empty())
            throw CLI::RequiredError("--plugin");
    } catch (const CLI::ParseError& e) {
        const int status = app.exit(e);
        return status == 0 ? 0 : kUsage;
    }
    std::array<char, 4096> self{};
    if (::readlink("/proc/self/exe", self.data(), self.size() - 1) <= 0)
        return 1;
    return run(o, self.data());
} catch (const std::exception& e) {
    std::fprintf(stderr, "nccl_harness: %s\n", e.what());
    return 1;
}
