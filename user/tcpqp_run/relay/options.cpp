// SPDX-License-Identifier: BSD-3-Clause
#include "relay/options.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tcpqp::run {
namespace {

constexpr int kUsage = 64;
constexpr const char* kHelp =
    "usage: tcpqp-run [--engine auto|offload|software|stock] [--stats] PROGRAM [ARGUMENT...]\n"
    "Runs PROGRAM with its TCP connections carried by queue pairs, where the peer has one, "
    "too.\n"
    "  --engine E  auto (default): the kernel's; stock: no module, and every peer must be\n"
    "              under tcpqp-run --engine stock\n"
    "  --stats     at the end: connections and bytes of each engine, on standard error\n";

void take_engine(const std::string& word, Options& o) {
    for (uint32_t e = TCPQP_ENGINE_AUTO; e <= TCPQP_ENGINE_STOCK; e++)
        if (word == tcpqp_engine_name(e)) {
            o.engine = e;
            return;
        }
    throw CLI::ValidationError("no engine is called " + word);
}

// How many words of @argv are ours: what begins with the first that is no option is the program's.
int own_words(int argc, char** argv) {
    int i = 1;
    while (i < argc && std::string_view(argv[i]).starts_with("-") &&
           std::string_view(argv[i]) != "--")
        i += std::string_view(argv[i]) == "--engine" ? 2 : 1;
    return i < argc ? i : argc;
}

void parse(int argc, char** argv, Options& o) {
    CLI::App app;
    app.set_help_flag("--help");
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.add_option_function<std::string>("--engine",
                                         [&](const std::string& word) { take_engine(word, o); });
    app.add_flag("--stats", o.stats);
    const char* engine = std::getenv("TCPQP_ENGINE");
    if (engine != nullptr && *engine != '\0')
        take_engine(engine, o);
    int words = own_words(argc, argv);
    app.parse(words, argv);
    if (words < argc && std::string_view(argv[words]) == "--")
        words++;
    if (words == argc)
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
