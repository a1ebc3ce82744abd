// SPDX-License-Identifier: BSD-3-Clause
// Processor time: of the whole system, so that softirq work counts, and of this process.
#pragma once

namespace ncqp {

struct CpuTimes {
    double system_s = 0;   // user, nice, system, irq, softirq of all CPUs since boot
    double process_s = 0;  // user and system of this process

    [[nodiscard]] static CpuTimes now() noexcept;
};

}  // namespace ncqp
