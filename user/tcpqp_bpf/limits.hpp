// SPDX-License-Identifier: BSD-3-Clause
// Every bound of tcpqp-bpf, but for those that its program and the library know: base/bpf_abi.h.
#pragma once

#include <sys/time.h>

#include <chrono>
#include <cstddef>

namespace tcpqp::bpf {

constexpr size_t kShare = 4;            // of the slots that others leave a user has one of so many
constexpr size_t kDesksMax = 64;        // users that are served at a time
constexpr size_t kClientsPerDesk = 32;  // of one user, at a time; further ones are sent away
constexpr std::chrono::milliseconds kClientLimit{1000};     // for a client's request
constexpr std::chrono::milliseconds kComplaintsApart{100};  // refusals that are logged
constexpr int kBacklog = 256;
constexpr timeval kCloseLimit{0, 500};    // of what a client that is sent away has sent
constexpr int kShortPauseMs = 50;         // descriptors or memory are short
constexpr size_t kDescriptorsSpare = 64;  // besides slots' and clients'

}  // namespace tcpqp::bpf
