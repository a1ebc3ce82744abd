// SPDX-License-Identifier: BSD-3-Clause
// Collectives as NCCL's proxy and kernels do them: slots, a CPU or an
// accelerator in the GPU's place, checked values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nccl_harness/cases.hpp"

namespace tcpqp::harness {

struct Row {
    std::string operation;
    size_t bytes;
    double time_us;        // of one, median of the iterations; the slowest rank's
    double algorithm_gbs;  // GB/s, as nccl-tests has them
    double bus_gbs;
    uint64_t wrong;
    double cpu_us;           // of one, all threads of a rank, mean of the ranks
    uint64_t touched_bytes;  // of accelerators' memory, by CPUs, all ranks and iterations
};

struct Measure {
    std::vector<std::string> operations;  // empty: all
    size_t least_bytes = 8, most_bytes = 0;
    size_t factor = 8;
    int iterations = 5;
};

const std::vector<std::string>& operations();
std::vector<Row> measure(Env& env, const Measure& what);

}  // namespace tcpqp::harness
