// SPDX-License-Identifier: BSD-3-Clause
// tcpqp-cgroup PATH on|off: what `tcpqp-run --cgroup` becomes.  A program of its own, so that no
// other run of tcpqp-run loads libbpf.
#include <cstdio>
#include <cstring>
#include <exception>

#include "cgroup/cgroup.hpp"

using namespace tcpqp::run;

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fputs("tcpqp-cgroup: is for tcpqp-run --cgroup\n", stderr);
        return 64;
    }
    try {
        if (std::strcmp(argv[2], "off") == 0)
            leave_cgroup(argv[1]);
        else
            serve_cgroup(argv[1]);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tcpqp-run: %s: %s\n", argv[1], e.what());
        return 1;
    }
}
