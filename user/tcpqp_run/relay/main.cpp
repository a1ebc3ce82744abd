// SPDX-License-Identifier: BSD-3-Clause
// tcpqp-run: an unmodified program's TCP connections by queue pairs.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "relay/directory.hpp"
#include "relay/options.hpp"
#include "relay/relay.hpp"

using namespace tcpqp;
using namespace tcpqp::run;

namespace {

constexpr int kNotStarted = 127;
constexpr const char* kLibrary = "libtcpqp-preload.so";

// Beside the program, or where it is installed.
std::string find_library() {
    const std::filesystem::path here =
        std::filesystem::read_symlink("/proc/self/exe").parent_path();
    for (const auto& directory : {here, here / TCPQP_LIBRARY_FROM_BIN})
        if (std::filesystem::exists(directory / kLibrary))
            return std::filesystem::canonical(directory / kLibrary);
    throw_errno(kLibrary, ENOENT);
}

void relay_for(const Options& o) {
    const std::string library = find_library();
    Fd front = become_relay();
    const Directory directory;
    Relay relay(o.engine, directory.socket());
    Program program(o.program, directory.preloadable(library), directory.socket(),
                    std::move(front));
    ::unsetenv("TCPQP_ENGINE");  // the relay asks for what it wants
    relay.run(program, o.stats);
}

}  // namespace

int main(int argc, char** argv) {
    int exit_code = 0;
    const auto options = parse_options(argc, argv, exit_code);
    if (!options)
        return exit_code;
    try {
        relay_for(*options);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tcpqp-run: %s\n", e.what());
        return kNotStarted;
    }
}
