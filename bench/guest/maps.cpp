// SPDX-License-Identifier: BSD-3-Clause
#include "maps.hpp"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

namespace nupa::bench {

uint64_t mapped_ring_kib() {
    std::ifstream file("/proc/self/maps");
    std::string line;
    uint64_t bytes = 0;
    while (std::getline(file, line)) {
        uint64_t begin = 0, end = 0;
        if (line.find("uverbs") != std::string::npos &&
            std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &begin, &end) == 2)
            bytes += end - begin;
    }
    return bytes >> 10;
}

}  // namespace nupa::bench
