// SPDX-License-Identifier: BSD-3-Clause
// tcpqp-run: an unmodified program's TCP connections by queue pairs.
#include <getopt.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "directory.hpp"
#include "relay.hpp"

using namespace tcpqp;
using namespace tcpqp::run;

namespace {

constexpr int kUsage = 64;
constexpr int kNotStarted = 127;
constexpr const char* kLibrary = "libtcpqp-preload.so";

struct Options {
    uint32_t engine = TCPQP_ENGINE_AUTO;
    bool stats = false;
};

void usage(std::FILE* out) {
    std::fputs(
        "usage: tcpqp-run [--engine auto|offload|software|stock] [--stats] PROGRAM [ARGUMENT...]\n"
        "Runs PROGRAM with its TCP connections carried by queue pairs, where the peer has one, "
        "too.\n"
        "  --engine E  auto (default): the kernel's; stock: no module, and every peer must be\n"
        "              under tcpqp-run --engine stock\n"
        "  --stats     at the end: connections and bytes of each engine, on standard error\n",
        out);
}

bool engine_of(std::string_view word, uint32_t& engine) {
    for (uint32_t e = TCPQP_ENGINE_AUTO; e <= TCPQP_ENGINE_STOCK; e++) {
        if (word != tcpqp_engine_name(e))
            continue;
        engine = e;
        return true;
    }
    return false;
}

bool parse(int argc, char** argv, Options& o) {
    const option known[] = {
        {"engine", 1, nullptr, 'e'}, {"stats", 0, nullptr, 's'}, {"help", 0, nullptr, 'h'}, {}};
    const char* engine = std::getenv("TCPQP_ENGINE");
    if (engine != nullptr && *engine != '\0' && !engine_of(engine, o.engine))
        return false;
    for (int c = 0; (c = ::getopt_long(argc, argv, "+", known, nullptr)) != -1;) {
        if (c == 'h') {
            usage(stdout);
            std::exit(0);
        }
        if (c == 's')
            o.stats = true;
        else if (c != 'e' || !engine_of(optarg, o.engine))
            return false;
    }
    return optind < argc;
}

// Beside the program, or where it is installed.
std::string find_library() {
    const std::filesystem::path here =
        std::filesystem::read_symlink("/proc/self/exe").parent_path();
    for (const auto& directory : {here, here / TCPQP_LIBRARY_FROM_BIN})
        if (std::filesystem::exists(directory / kLibrary))
            return std::filesystem::canonical(directory / kLibrary);
    throw_errno(kLibrary, ENOENT);
}

void relay_for(char** argv, const Options& o) {
    const std::string library = find_library();
    Fd front = become_relay();
    const Directory directory;
    Relay relay(o.engine, directory.socket());
    Program program(argv, directory.preloadable(library), directory.socket(), std::move(front));
    ::unsetenv("TCPQP_ENGINE");  // the relay asks for what it wants
    relay.run(program, o.stats);
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    if (!parse(argc, argv, o)) {
        usage(stderr);
        return kUsage;
    }
    try {
        relay_for(argv + optind, o);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tcpqp-run: %s\n", e.what());
        return kNotStarted;
    }
}
