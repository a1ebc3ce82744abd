// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

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
    "Plain send() and recv() run in turn with the queue pair, over a connection of their own.\n"
    "Latencies are half of a round trip, as perftest has them.  Give -s, -a, -r to both ends "
    "alike.\n";

constexpr uint32_t kRounds = 5;
constexpr uint32_t kAllFrom = 2, kAllTo = 8 << 20;

[[noreturn]] void refuse(const std::string& why) {
    std::fprintf(stderr, "tcpqp_perf: %s\n%s", why.c_str(), kUsage);
    std::exit(64);
}

uint64_t number(const char* text, uint64_t least, uint64_t most, char flag) {
    char* end = nullptr;
    const uint64_t n = std::strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || n < least || n > most)
        refuse(std::string("-") + flag + " takes " + std::to_string(least) + " to " +
               std::to_string(most));
    return n;
}

uint32_t engine_by_name(const char* word) {
    for (uint32_t e = TCPQP_ENGINE_AUTO; e <= TCPQP_ENGINE_STOCK; e++)
        if (std::string_view(word) == tcpqp_engine_name(e))
            return e;
    refuse(std::string("no engine is called ") + word);
}

void take(Options& o, int flag, const char* value) {
    const auto f = static_cast<char>(flag);
    constexpr uint64_t kCount = uint64_t{1} << 40;
    switch (flag) {
        case 's':
            o.sizes = {static_cast<uint32_t>(number(value, 1, TCPQP_MESSAGE_MAX_BYTES, f))};
            break;
        case 'a':
            o.sizes.clear();
            for (uint32_t s = kAllFrom; s <= kAllTo; s *= 2)
                o.sizes.push_back(s);
            break;
        case 'n':
            o.messages = number(value, 1, kCount, f);
            break;
        case 'N':
            o.rounds = static_cast<uint32_t>(number(value, 1, 10000, f));
            break;
        case 't':
            o.depth.sends = static_cast<uint32_t>(number(value, 1, TCPQP_DEPTH_MAX, f));
            break;
        case 'r':
            o.depth.receives = static_cast<uint32_t>(number(value, 1, TCPQP_DEPTH_MAX, f));
            break;
        case 'l':
            o.batch = static_cast<uint32_t>(number(value, 1, TCPQP_DEPTH_MAX, f));
            break;
        case 'p':
            o.port = static_cast<uint16_t>(number(value, 1, 65535, f));
            break;
        case 'E':
            o.engine = engine_by_name(value);
            break;
        case 'e':
            o.events = true;
            break;
        case 'O':
            o.once = true;
            break;
        case 'J':
            o.json = true;
            break;
        case 'h':
            std::fputs(kUsage, stdout);
            std::exit(0);
        default:
            refuse("no such option");
    }
}

Test test_by_name(std::string_view word) {
    for (Test t : {Test::kBandwidth, Test::kLatency, Test::kRate})
        if (word == name(t))
            return t;
    refuse("the tests are bw, lat and rate, or bars for all");
}

}  // namespace

const char* name(Test test) noexcept {
    return test == Test::kBandwidth ? "bw" : test == Test::kLatency ? "lat" : "rate";
}

uint32_t default_batch(Test test) noexcept { return test == Test::kRate ? 64 : 1; }

Options parse(int argc, char** argv) {
    const option known[] = {
        {"out_json", 0, nullptr, 'J'}, {"once", 0, nullptr, 'O'}, {"help", 0, nullptr, 'h'}, {}};
    Options o;
    for (int f = 0; (f = ::getopt_long(argc, argv, "s:an:N:t:r:l:p:E:eh", known, nullptr)) != -1;)
        take(o, f, optarg);
    const int words = argc - optind;
    if (words != 0 && words != 2)
        refuse("a client is given a test and a host, a server neither");
    if (words == 2) {
        o.bars = argv[optind] == std::string_view("bars");
        if (!o.bars)
            o.test = test_by_name(argv[optind]);
        o.host = argv[optind + 1];
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
