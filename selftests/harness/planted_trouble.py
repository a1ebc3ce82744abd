# SPDX-License-Identifier: BSD-3-Clause
"""The harness itself: a test tool that can't see trouble would pass everything."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from harness import leak_check
from harness.report import Report
from nupavm import Cluster, KernelComplaint, Node, NodeDead, TimeLimit, cluster
from nupavm.cli import EXIT_SETUP
from nupavm.dmesg import emulator_fault, made_up, splats

TROUBLE = (
    "[    1.0] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1 x+0x1/0x2",
    "[    1.0] BUG: KASAN: use-after-free in x",
    "[    1.0] BUG: unable to handle page fault for address: 0000",
    "[    1.0] kernel BUG at net/ipv4/tcp_input.c:5979!",
    "[    1.0] UBSAN: array-index-out-of-bounds in x.c:1:2",
    "[    1.0] WARNING: possible circular locking dependency detected",
    "[    1.0] INFO: task ncqp:12 blocked for more than 40 seconds.",
    "[    1.0] refcount_t: underflow; use-after-free.",
    "[    1.0] page_pool_release_retry() stalled pool shutdown: id 1, 4 inflight 60 sec",
    "[    1.0] unregister_netdevice: waiting for nupa0 to become free. Usage count = 2",
    "[    1.0] watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
    "[    1.0] Kernel panic - not syncing: Fatal exception",
    "[    1.0] list_del corruption. prev->next should be x",
    "[    1.0] ncqp[12]: segfault at 0 ip 0 sp 0 error 4 in ncqp[1000+2000]",
)
# KCSAN's reports, by whose code they go through.
RACE = """[    1.0] ==================================================================
[    1.0] BUG: KCSAN: data-race in {first} / tcp_ack
[    1.0] write to 0xffff888003a5e0b0 of 4 bytes by task 61 on cpu 0:
[    1.0]  {first}+0x10/0x20{second}
[    1.0] read to 0xffff888003a5e0b0 of 4 bytes by interrupt on cpu 1:
[    1.0]  tcp_ack+0x1/0x2
[    1.0] Reported by Kernel Concurrency Sanitizer on:
[    1.0] ==================================================================
"""
RACE_OF_OURS = RACE.format(first="tcp_sendmsg", second="\n[    1.0]  tqp_tx_run+0x1/0x2 [tcp_qp]")
RACE_OF_OTHERS = RACE.format(first="tcp_sendmsg", second="")
# The thread works for us, but what races is the work queue's own.
RACE_AROUND_US = RACE_OF_OTHERS.replace("Sanitizer on:\n", "Sanitizer on:\n[    1.0] Workqueue: tcp_qp tqp_number_work [tcp_qp]\n")
AFTER = "[    1.1] tqp_tx_run+0x1/0x2 [tcp_qp]"
# What the agent asked to be shown is no complaint; what comes in between or after is.
SHOWN = "[    1.0] agent: blocked tasks, asked for\n[    1.1] task:sleep           state:D\n[    1.2] Call Trace:\n"
SHOWN_END = "[    1.3] agent: end of blocked tasks\n"
LOUD_LOGS = (SHOWN + SHOWN_END + "[    1.4] Call Trace:", SHOWN + "[    1.2] WARNING: CPU: 0 PID: 1 at x\n" + SHOWN_END)
QUIET_LOGS = (SHOWN + SHOWN_END, SHOWN + SHOWN_END + SHOWN)
QUIET = (
    "[    0.0] Kernel command line: console=ttyS0 oops=panic panic_on_warn=1 clearcpuid=erms,fsrm",
    "[    0.1] tcp_qp: loading out-of-tree module taints kernel.",
    "[    0.1] nupa_dev 0000:0f:00.0: debug features on",
    "[    0.1] kcsan: non-strict mode configured - use CONFIG_KCSAN_STRICT=y to see all data races",
)

FLAGS_LOST = "[    1.0] RSP: 0018:ffffc90000003ea0 EFLAGS: 0740a483"
FLAGS_RIGHT = "[    1.0] RSP: 0018:ffffc90000003ea0 EFLAGS: 00010286\n[    1.1] RSP: 002b:00007ffd EFLAGS: 00250a97"

INT3_GONE = "[   64.8] Oops: int3: 0000 [#1]\n[   64.8] RIP: 0010:x+0x6/0x10\n[   64.8] Code: 90 66 90 0f <1f> 44 00 00"
INT3_THERE = INT3_GONE.replace("0f <1f>", "cc <1f>")

SELFTESTS = Path(__file__).resolve().parents[1]
NO_PID = 1 << 22  # PID_MAX_LIMIT
HANG_S = 1.0  # then the host gives up

NOTHING_LEFT = "0: tcpqp0: qp 0 cq 0 pd 0 mr 0 cm_id 0 ctx 0 srq 0\nmodule tcp_qp 0\nmodule nupa_dev 0\nbytes 10 4 6"
LEFT = (
    "0: tcpqp0: qp 0 cq 1 pd 0 mr 0 cm_id 0 ctx 0 srq 0",
    "module tcp_qp 1",
    "bytes 10 4 5",
)


def run(report: Report, wanted: Callable[[str], bool]) -> None:
    for test in (
        splat_lines, emulator_faults, left_overs, results_of_a_run_stay, module_not_built, outcomes_of_tests, warning_is_a_failure, panic_is_a_failure,
        silence_is_a_failure,
    ):  # fmt: skip
        name = f"harness/{test.__name__}"
        if wanted(name):
            problem = test()
            if problem:
                report.failed(name, problem)
            else:
                report.passed(name)


def splat_lines() -> str:
    missed = [log for log in (*TROUBLE, *LOUD_LOGS, RACE_OF_OURS, RACE_OF_OTHERS + RACE_OF_OURS) if not splats(log)]
    false = [log for log in (*QUIET, *QUIET_LOGS, RACE_OF_OTHERS, RACE_AROUND_US, RACE_OF_OTHERS + AFTER) if splats(log)]
    return "\n".join([*(f"missed: {line}" for line in missed), *(f"false alarm: {line}" for line in false)])


def emulator_faults() -> str:
    if not emulator_fault("[   64.8] Oops: int3: 0000 [#2] PREEMPT SMP NOPTI"):
        return "a breakpoint that is gone is not told"
    if not made_up(INT3_GONE) or made_up(INT3_THERE):
        return "a breakpoint that is gone: not told from one that is there"
    return "" if emulator_fault(FLAGS_LOST) and not emulator_fault(FLAGS_RIGHT) else "lost flags: not told from others"


def left_overs() -> str:
    missed = [line for line in LEFT if not leak_check.complaints("node0", line)]
    return "\n".join([*(f"missed: {line}" for line in missed), *leak_check.complaints("node0", NOTHING_LEFT)])


def results_of_a_run_stay() -> str:
    """However many runs there were meanwhile; those of a run that is over go."""
    with tempfile.TemporaryDirectory() as results, mock.patch.object(cluster, "VM_BUILD", Path(results)):
        ours, over = Path(results, f"run-0101-000000-{os.getpid()}.1"), Path(results, f"run-0101-000000-{NO_PID}")
        for path in (ours, over, *(Path(results, f"run-0102-{n:06}-{NO_PID}") for n in range(cluster.RUNS_KEPT))):
            path.mkdir()
            os.utime(path, (0, 0 if path in (ours, over) else 1))
        cluster._new_results("run")
        return "" if ours.exists() and not over.exists() else f"left: {sorted(path.name for path in Path(results).iterdir())}"


def module_not_built() -> str:
    """Something is missing on this machine, which no guest need find out."""
    with tempfile.TemporaryDirectory() as nothing:
        argv = [SELFTESTS.parent / "tools/vm/nupa-vm", "--no-switch", "--nodes", "1", "--setup", "full", "--modules", nothing, "--", "true"]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return "" if done.returncode == EXIT_SETUP and "tcp_qp.ko is not built" in done.stdout else f"ended with {done.returncode}: {done.stdout}"


def outcomes_of_tests() -> str:
    """In a process of its own: pytest is not made to run twice in one."""
    argv = [sys.executable, "-m", "harness.planted_outcomes"]
    return subprocess.run(argv, cwd=SELFTESTS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def warning_is_a_failure() -> str:
    return _expect(KernelComplaint, lambda node: node.run("echo 'WARNING: planted by the harness test' >/dev/kmsg"))


def panic_is_a_failure() -> str:
    return _expect(NodeDead, lambda node: node.run("echo c >/proc/sysrq-trigger"))


def silence_is_a_failure() -> str:
    """A guest that hangs is given up on."""

    def hang(node: Node) -> None:
        node.process.send_signal(signal.SIGSTOP)
        node.cluster.deadline = time.monotonic() + HANG_S
        try:
            node.run("true")
        finally:
            node.process.kill()

    return _expect(TimeLimit, hang)


def _expect(kind: type[Exception], trouble: Callable[[Node], None]) -> str:
    try:
        with Cluster(1, with_switch=False, setup="none", quiet=True, name="harness") as cluster:
            trouble(cluster.node[0])
    except kind:
        return ""
    except Exception as other:
        return f"expected {kind.__name__}, got {type(other).__name__}: {other}"
    return f"expected {kind.__name__}, nothing was raised"
