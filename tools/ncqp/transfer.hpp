// SPDX-License-Identifier: BSD-3-Clause
// One transfer over one connection, by one of four engines' two roles.
#pragma once

#include "input.hpp"
#include "net.hpp"
#include "options.hpp"
#include "output.hpp"
#include "report.hpp"
#include "status.hpp"

namespace ncqp {

// What every role has at hand.
struct Job {
    const Options& options;
    Connection& connection;
    Report& report;
    Meter& meter;
    Progress& progress;
};

Status tcp_send(Job& job, Input& input);
Status tcp_receive(Job& job, Output& output, Verifier& verifier);
// How much of an output file the tcp engine maps at a time.
[[nodiscard]] uint64_t tcp_window_bytes(uint64_t total) noexcept;
// What can be known before there is a connection: told before a peer is kept waiting.
Status qp_precheck(const Options& options);
Status qp_send(Job& job, Input& input);
Status qp_receive(Job& job, Output& output, Verifier& verifier);

// Everything from the parsed command line to the exit status.
int run(const Options& options);

}  // namespace ncqp
