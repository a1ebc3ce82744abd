// SPDX-License-Identifier: BSD-3-Clause
// What a size's rounds came to, as a table or as JSON.
#pragma once

#include <string>
#include <vector>

#include "round.hpp"

namespace perf {

// Of one size: one sample of each transport for each round.
struct Result {
    Round round;
    std::vector<Sample> plain, queue;
    tcpqp_qp_info client{}, server{};  // of the queue pair, this size's share
};

double median(std::vector<double> values);
// The queue pair's to plain TCP's: each round with its neighbour, so that a busy
// machine slows both.
double speed_to_tcp(const Result& result);
void print_header(Test test);
void print_row(const Result& result);
void print_json(const std::vector<Result>& results);

}  // namespace perf
