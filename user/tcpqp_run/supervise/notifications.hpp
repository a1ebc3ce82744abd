// SPDX-License-Identifier: BSD-3-Clause
// The supervisor's work: a notification for each call, answered with "go on".
#pragma once

namespace tcpqp::run {

// Returns when nobody is left who could make a call.  @notify: the filter's descriptor.
void answer_all(int notify) noexcept;

}  // namespace tcpqp::run
