# SPDX-License-Identifier: BSD-3-Clause
"""The guests of a run: booted once for all tests of equal needs, and looked at after each test.

No pytest scope says how long guests live.  It ends with the tests that need them, after a failure (nobody knows what state they are
in then), and after some time.  So a fixture of the whole session has them, and is told what comes next.
"""

import time
from collections import Counter

from harness import leak_check
from harness.guests import Failed, Guests
from harness.needs import Needs, on_debug_kernel

from nupavm import Cluster, CommandFailed, KernelComplaint, NodeDead, SetupError, TimeLimit
from nupavm.dmesg import around_first, splats

BOOT_LIFE_S = 3600.0  # no set of guests lives longer
BOOT_STALE_S = 600.0  # after this much the next test gets fresh ones
BOOTS_FAILED_MAX = 2  # of guests with the same needs; then their tests fail without another try
LEAKS_S = 60
LEAKS = "k=/sys/kernel/debug/kmemleak; echo scan >$k; [ -s $k ] || exit 0; sleep 6; echo scan >$k; head -c 6000 $k; echo clear >$k"
MACHINE_TROUBLE = (NodeDead, TimeLimit, SetupError, CommandFailed)


class LeftBehind(Exception):
    """A test ended, and something of it was left, or a kernel complained."""


class Boots:
    """One set of guests at a time."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._key: tuple = ()
        self._stale = 0.0
        self._failed: Counter[tuple] = Counter()
        self.results = None  # of the newest guests: where their logs are

    def cluster(self, needs: Needs, tests: int) -> Cluster:
        """Guests that are running, or booted now for so many tests."""
        if self._cluster and self._key != needs.boot():
            self._power_off()
        if not self._cluster:
            self._boot(needs, tests)
        return self._cluster

    def after_test(self, problem: BaseException | None, following: tuple | None) -> None:
        """Looks at the guests, and ends them unless they are fit for what needs `following`.  Raises LeftBehind."""
        if not self._cluster:
            return
        left = "" if isinstance(problem, MACHINE_TROUBLE) else self._left_behind()
        fit = not problem and not left and following == self._key and time.monotonic() < self._stale
        late = "" if fit else self._power_off()
        if left or (late and not problem):
            raise LeftBehind(left or f"kernel log at power-off\n{late}")

    def destroy(self) -> None:
        """At once, as when the run is interrupted."""
        cluster, self._cluster = self._cluster, None
        if cluster:
            cluster.destroy()

    def _boot(self, needs: Needs, tests: int) -> None:
        key = needs.boot()
        if self._failed[key] >= BOOTS_FAILED_MAX:
            raise SetupError("guests with these needs did not boot before: see the first tests that wanted them")
        print(f"# booting {needs.nodes} guests for {tests} tests", flush=True)
        cluster = Cluster(
            needs.nodes, mem_mb=needs.mem_mb, cpus=needs.processors(), with_switch=needs.switch, topology=needs.place(), setup=needs.setup,
            append=needs.append, switch_args=list(needs.switch_args), switch_env={"NUPA_COPY": needs.copy} if needs.copy else {},
            accelerator_mib=needs.accelerator_mib, pool_mib=needs.pool_mib, time_limit_s=BOOT_LIFE_S, name="check", quiet=True,
        )  # fmt: skip
        self.results = cluster.results
        try:
            cluster.boot()
        except BaseException as problem:
            cluster.destroy()
            self._failed[key] += isinstance(problem, Exception)
            raise
        self._failed[key] = 0
        self._cluster, self._key, self._stale = cluster, key, time.monotonic() + BOOT_STALE_S * cluster.slowness

    def _power_off(self) -> str:
        """What the kernels complained of that was not seen right after a test: a late consequence, which must not be lost."""
        cluster, self._cluster = self._cluster, None
        try:
            cluster.__exit__(None, None, None)
        except (KernelComplaint, *MACHINE_TROUBLE, OSError) as problem:
            return str(problem)
        return ""

    def _left_behind(self) -> str:
        return "\n".join(filter(None, (self._leaks(), self._kernel_trouble())))

    def _leaks(self) -> str:
        try:
            return leak_check.trouble(Guests(self._cluster)) or (self._memory_leaks() if on_debug_kernel() else "")
        except (*MACHINE_TROUBLE, Failed, OSError) as trouble:
            return str(trouble)

    def _memory_leaks(self) -> str:
        """What kmemleak suspects twice: once alone is often a pointer on its way."""
        shown = self._cluster.run_all(LEAKS, LEAKS_S)
        return "\n".join(f"{node.name}: {result.stdout}" for node, result in zip(self._cluster.node, shown) if result.stdout.strip())

    def _kernel_trouble(self) -> str:
        """A splat on any guest's console so far; what the kernel says at lower levels is looked at when the guests end."""
        for node in self._cluster.node:
            log = node.console()
            if splats(log):
                return f"{node.name}: the kernel complained:\n{around_first(log)}"
        return ""
