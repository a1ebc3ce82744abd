#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""NCCL's plugin on the stock engine, driven by nccl_harness.  cases.py BUILD TEST"""

import json
import os
import subprocess
import sys
from pathlib import Path

BUILD = Path(sys.argv[1])
HARNESS = BUILD / "tools/nccl_harness/nccl_harness"
PLUGIN = BUILD / "user/nccl/libnccl-net-tcpqp.so"
BASELINE = BUILD / "tools/nccl_harness/libnccl-net-socketlike.so"
ALL = [
    "symbols", "properties", "connect", "strays", "sizes", "outstanding", "grouped", "order", "preset", "ends", "memory", "threads", "random",
    "mixed", "polled",
]  # fmt: skip
# it takes no group, has one table, and deregisters nothing; its memcpy() of short messages keeps no order, so no LL128
OF_BASELINE = [name for name in ALL if name not in ("symbols", "ends", "memory")]
LIMIT_S = 100
SKIPPED = 77
RAIL = "ip link add r$i type veth peer name q$i && ip link set q$i up && ip addr add 10.99.$i.1/24 dev r$i && ip link set r$i up"
TWO_RAILS = f"ip link set lo up && for i in 1 2; do {RAIL}; done && "


def run(*options: str, plugin: Path = PLUGIN, prefix: tuple[str, ...] = (), fails: bool = False, **environment: str) -> tuple[dict, str]:
    """What it printed as JSON, and what it logged."""
    command = [*prefix, str(HARNESS), "--plugin", str(plugin), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, "NCCL_DEBUG": "INFO", **environment})
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr[-4000:]}")
    return json.loads(done.stdout) if done.stdout else {}, done.stderr


def expect(what: str, got, wanted) -> None:
    if got != wanted:
        sys.exit(f"{what}: {got!r}, not {wanted!r}")


def passed(result: dict) -> list[str]:
    return [case["name"] for case in result["cases"] if case["ok"]]


def cases() -> None:
    result, log = run("--ranks", "2")
    expect("cases that passed", passed(result), ALL)
    expect("newest table", result["api"], 12)
    for said in ("engine stock", "placed by the switch", "was dropped: it is no connection of this communicator"):
        expect(f"the log says {said!r}", said in log, True)


def versions() -> None:
    for api in ("8", "9", "10", "11"):
        result, log = run("--api", api, "--case", "connect,sizes,outstanding,grouped,random,polled")
        expect(f"api {api}", (result["api"], len(passed(result))), (int(api), 6))
        expect(f"api {api}: the plugin forbids LL128", "NCCL_PROTO=^LL128 is set" in log, api == "8")


def baseline() -> None:
    for threads, each in (("0", "1"), ("4", "1"), ("2", "8")):
        wanted = [name for name in OF_BASELINE if threads == "0" or name != "mixed"]
        result, _ = run("--case", ",".join(wanted), plugin=BASELINE, NCCL_PROTO="^LL128", NCCL_SOCKET_NTHREADS=threads, NCCL_NSOCKS_PERTHREAD=each)
        expect(f"{threads} threads of {each} sockets", passed(result), wanted)


def rails() -> None:
    """A virtual device of two interfaces: long messages go over both."""
    space = ("unshare", "-Urn") if os.geteuid() else ("unshare", "-n")
    if subprocess.run([*space, "sh", "-c", TWO_RAILS + "true"], capture_output=True).returncode != 0:
        print("skipped: no network namespace with veth interfaces can be made here")
        sys.exit(SKIPPED)
    names = "connect,strays,sizes,outstanding,grouped,order,ends,memory,threads,random,mixed,polled"
    inside = (*space, "sh", "-c", TWO_RAILS + 'exec "$@"', "sh")
    for threads in ("0", "2"):
        result, log = run("--merge", "0,1", "--case", names, prefix=inside, NCCL_SOCKET_IFNAME="r", TCPQP_THREADS=threads)
        expect(f"cases on two rails, {threads} threads", ",".join(passed(result)), names)
        for rail in ("r1 to 10.99.1.1", "r2 to 10.99.2.1"):
            expect(f"{rail} was used", rail in log, True)


def workers() -> None:
    """Long messages copied by threads of the plugin's: all cases; a thread for many connections, and threads that have none."""
    for threads in ("1", "3", "32"):
        result, log = run("--ranks", "2", TCPQP_THREADS=threads)
        expect(f"cases that passed with {threads} threads", passed(result), ALL)
        expect("they are said", f"{threads} threads copy messages" in log, True)
    _, log = run("--case", "connect", TCPQP_THREADS="65")
    expect("a warning", "TCPQP_THREADS=65 is no number of 0 to 64" in log, True)


def collectives() -> None:
    for plugin, threads in ((PLUGIN, "0"), (PLUGIN, "2"), (BASELINE, "0")):
        for ranks in ("2", "3"):
            what = ("--measure", "--ranks", ranks, "--factor", "256", "--most", "4M", "--iterations", "1")
            result, _ = run(*what, plugin=plugin, TCPQP_THREADS=threads)
            expect("wrong values", [row for row in result["rows"] if row["wrong"]], [])
            expect("operations", len({row["operation"] for row in result["rows"]}), 5)
    for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive"):
        what = ("--measure", "--operation", operation, "--least", "4M", "--most", "4M", "--iterations", "2")
        result, _ = run(*what, plugin=BASELINE, fails=True, SOCKETLIKE_LOSES="1")
        expect(f"{operation} whose messages are lost has wrong values", [row["wrong"] != 0 for row in result["rows"]], [True])


def forced() -> None:
    """Nothing falls back in silence: an engine that is not there is an error that says so."""
    _, log = run("--case", "connect", fails=True, TCPQP_ENGINE="offload")
    expect("the reason", "lo is left out" in log and "no interface can be used" in log, True)
    _, log = run("--case", "connect", fails=True, NCCL_SOCKET_IFNAME="nosuch")
    expect("the reason", "NCCL_SOCKET_IFNAME" in log, True)


def attacks() -> None:
    """More silent connections than are kept, at a listener that a real peer looks for; many seeds of it."""
    for seed in range(3):
        result, _ = run("--case", "strays,ends,random", "--seed", str(100 + seed))
        expect(f"seed {100 + seed}", len(passed(result)), 3)


if __name__ == "__main__":
    globals()[sys.argv[2]]()
