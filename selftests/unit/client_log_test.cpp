// SPDX-License-Identifier: BSD-3-Clause
// A client that comes and goes, or breaks the ABI each time, does not fill the log.
#include "event/client_log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "switch/stderr_to.hpp"

namespace {

using nupa::daemon::ClientLog;
using nupa::daemon::kClientLinePeriodNs;
using nupa::daemon::kClientLinesAtOnce;
using nupa::testing::stderr_of;
using Lines = std::vector<std::string>;

uint64_t now_ns;

struct ClientLogs : testing::Test {
    ClientLogs() { now_ns = 5 * kClientLinePeriodNs / 2; }
    Lines say(unsigned times) {
        return stderr_of([&] {
            for (unsigned i = 0; i < times; i++)
                log.line("event {}", said++);
        });
    }

    unsigned said = 0;
    ClientLog log{"n0", +[]() noexcept { return now_ns; }};
};

TEST_F(ClientLogs, SaysWhoAndWhat) { EXPECT_EQ(say(1), Lines{"n0: event 0"}); }

TEST_F(ClientLogs, StopsAndLaterSaysHowManyLinesItLeftOut) {
    EXPECT_EQ(say(1000).size(), kClientLinesAtOnce);
    now_ns += kClientLinePeriodNs - 1;
    EXPECT_EQ(say(1), Lines{});
    now_ns += 1;
    EXPECT_EQ(say(2),
              (Lines{fmt::format("n0: {} lines were left out here", 1001 - kClientLinesAtOnce),
                     "n0: event 1001"}));
    now_ns += kClientLinePeriodNs;
    EXPECT_EQ(say(1), (Lines{"n0: 1 lines were left out here", "n0: event 1003"}));
}

TEST_F(ClientLogs, ALongSilenceDoesNotMakeMoreRoomThanThereWas) {
    say(1000);
    now_ns += 1000 * kClientLinePeriodNs;
    EXPECT_EQ(say(1000).size(), kClientLinesAtOnce + 1);
    EXPECT_EQ(say(1000), Lines{});
}

}  // namespace
