# SPDX-License-Identifier: BSD-3-Clause
"""The guests' first process, tools/vm/guest/agent, and where they have the checkout."""

import pytest

from harness.guests import Guests
from harness.needs import Needs

from nupavm.paths import REPO

NEEDS = Needs(switch=False, nodes=1, setup="none")
pytestmark = pytest.mark.needs(NEEDS)
WEEKS_S = 60 * 24 * 3600  # more milliseconds than poll() takes


def test_a_job_may_last_for_weeks(t: Guests) -> None:
    """An interactive shell is one, times NUPA_SLOWNESS."""
    job = t.start(0, "echo here; exec sleep 1000", WEEKS_S)
    t.wait_output(job, "here")
    t.run(0, "true")
    job.kill()
    t.check(job.wait().status >= 128, "the job was not killed")


def test_the_checkout_has_two_names(t: Guests) -> None:
    """One needs no quotes, the other is the host's; what is written in one is in both, and not on the host."""
    t.equal(t.run(0, 'echo "$HOST_REPO"').strip(), str(REPO), "HOST_REPO")
    t.run(0, 'echo x >$REPO/.from-a-guest && cmp "$HOST_REPO/.from-a-guest" $REPO/.from-a-guest && cmp "$HOST_REPO/Makefile" $REPO/Makefile')
    t.run(0, "case $REPO$BUILD$KO$MODULES in *[!A-Za-z0-9/._+-]*) exit 1 ;; esac")
    t.check(not (REPO / ".from-a-guest").exists(), "a guest wrote on the host")
