// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

namespace perf {
namespace {

constexpr const char* kUsage =
    "usage: tcpqp_perf [options]                  the server\n"
    "       tcpqp_perf bw|lat|rate [options] HOST  the client, which says what is measured\n"
    "       tcpqp_perf bars [options] HOST         each engine's bars, met or not; exits with 1 if "
    "not\n"
    "  -s BYTES   message size (65536; lat and rate: 64)    -a         all sizes from 2 to 8 MiB\n"
    "  -n COUNT   messages of a round                       -N COUNT   rounds; medians are shown "
    "(5)\n"
    "  -t DEPTH   sends under way (128)                     -r DEPTH   receives posted (512)\n"
    "  -l COUNT   messages posted by one call (rate: 64)    -p PORT    (18515)\n"
    "  -E ENGINE  auto, offload, software or stock, as TCPQP_ENGINE, which wins\n"
    "  -e         lat: sleep for the answer; without, the module's engines poll, as perftest does\n"
    "  --once     the server ends after one client          --out_json JSON instead of the table\n"
    "  --pool     buffers in a lease of the switch's pool (/dev/nupa_pool0)\n"
    "Plain send() and recv() run in turn with the queue pair, over a connection of their own, and "
    "sleep.\n"
    "Latencies are half of a round trip, as perftest has them.  Give -r to both ends alike.\n";

constexpr uint32_t kRounds = 5;
constexpr int kUsageStatus = 64;
constexpr uint64_t kCountMax = uint64_t{1} << 40;
constexpr uint32_t kAllFrom = 2, kAllTo = 8 << 20;

uint32_t engine_by_name(const std::string& word) {
    for (uint32_t e = TCPQP_ENGINE_AUTO; e <= TCPQP_ENGINE_STOCK; e++)
        if (word == tcpqp_engine_name(e))
            return e;
    throw CLI::ValidationError("no engine is called " + word);
}

Test test_by_name(const std::string& word) {
    for (Test t : {Test::kBandwidth, Test::kLatency, Test::kRate})
        if (word == name(t))
            return t;
    throw CLI::ValidationError("the tests are bw, lat and rate, or bars for all");
}

// A decimal number of @least to @most.
template <typename T>
void add_number(CLI::App& app, const char* flag, T& to, uint64_t least, uint64_t most) {
    app.add_option(flag, to)->check(CLI::Range(least, most));
}

void add_options(CLI::App& app, Options& o) {
    app.set_help_flag("-h,--help");
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    // The later of both counts.
    app.add_option_function<uint32_t>("-s", [&](uint32_t bytes) { o.sizes = {bytes}; })
        ->check(CLI::Range(uint64_t{1}, uint64_t{TCPQP_MESSAGE_MAX_BYTES}))
        ->trigger_on_parse();
    app.add_flag_callback("-a",
                          [&] {
                              o.sizes.clear();
                              for (uint32_t s = kAllFrom; s <= kAllTo; s *= 2)
                                  o.sizes.push_back(s);
                          })
        ->trigger_on_parse();
    add_number(app, "-n", o.messages, 1, kCountMax);
    add_number(app, "-N", o.rounds, 1, 10000);
    add_number(app, "-t", o.depth.sends, 1, TCPQP_DEPTH_MAX);
    add_number(app, "-r", o.depth.receives, 1, TCPQP_DEPTH_MAX);
    add_number(app, "-l", o.batch, 1, TCPQP_DEPTH_MAX);
    add_number(app, "-p", o.port, 1, 65535);
    app.add_option_function<std::string>(
        "-E", [&](const std::string& word) { o.engine = engine_by_name(word); });
    app.add_flag("-e", o.events);
    app.add_flag("--pool", o.pool);
    app.add_flag("--once", o.once);
    app.add_flag("--out_json", o.json);
}

void parse_into(Options& o, int argc, char** argv) {
    CLI::App app;
    std::vector<std::string> words;
    add_options(app, o);
    app.add_option("words", words)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
    app.parse(argc, argv);
    if (words.empty())
        return;
    if (words.size() != 2)
        throw CLI::ValidationError("a client is given a test and a host, a server neither");
    o.bars = words[0] == "bars";
    if (!o.bars)
        o.test = test_by_name(words[0]);
    o.host = words[1];
}

}  // namespace

const char* name(Test test) noexcept {
    return test == Test::kBandwidth ? "bw" : test == Test::kLatency ? "lat" : "rate";
}

uint32_t default_batch(Test test) noexcept { return test == Test::kRate ? 64 : 1; }

Options parse(int argc, char** argv) {
    Options o;
    try {
        parse_into(o, argc, argv);
    } catch (const CLI::CallForHelp&) {
        std::fputs(kUsage, stdout);
        std::exit(0);
    } catch (const CLI::ParseError& e) {
        std::fprintf(stderr, "tcpqp_perf: %s\n%s", e.what(), kUsage);
        std::exit(kUsageStatus);
    }
    if (o.sizes.empty())
        o.sizes = {o.test == Test::kBandwidth ? 65536u : 64u};
    if (o.batch == 0)
        o.batch = default_batch(o.test);
    if (o.rounds == 0 && !o.bars)
        o.rounds = kRounds;
    return o;
}

}  // namespace perf
