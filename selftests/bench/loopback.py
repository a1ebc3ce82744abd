#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""nupa_bench over loopback: every transport that needs no device, its counts, and what it refuses."""

import errno
import json
import socket
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop()
LIMIT_S = 60
MESSAGES = 40


def bench(*specs: str) -> tuple[int, list[dict]]:
    argv = [PROGRAM, "--loopback", "--interface", "lo", *specs]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=LIMIT_S, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def io_uring_here() -> bool:
    """Some machines forbid it (seccomp, kernel.io_uring_disabled)."""
    import ctypes

    libc, setup, params = ctypes.CDLL(None, use_errno=True), 425, ctypes.create_string_buffer(120)
    fd = libc.syscall(setup, 1, params)
    if fd >= 0:
        socket.close(fd)
    return fd >= 0 or ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM)


class Streams(unittest.TestCase):
    def check(self, transport: str, size: int, flows: int = 1) -> None:
        status, results = bench(f"transport={transport},bytes={size},flows={flows},messages={MESSAGES},warm_bytes=65536")
        self.assertEqual(status, 0, results)
        (result,) = results
        self.assertTrue(result["ok"])
        for end in ("tx", "rx"):
            self.assertEqual(result[end]["messages"], MESSAGES)
            self.assertGreater(result[end]["counters"]["wall_ns"], 0)
            self.assertGreaterEqual(result[end]["counters"]["wall_ns"], result[end]["phase_ns"] // 2)
        self.assertEqual(result["rx"]["copied"], MESSAGES * size)
        self.assertEqual(result["tx"]["copied"] + result["tx"]["avoided"], MESSAGES * size)
        if flows > 1:
            self.assertTrue(0 < result["rx"]["fairness"] <= 1.000001, result)

    def test_tcp(self) -> None:
        for size, flows in ((1, 1), (65537, 1), (1 << 20, 1), (30000, 4), (30000, 7)):
            with self.subTest(size=size, flows=flows):
                self.check("tcp", size, flows)

    def test_zerocopy(self) -> None:
        self.check("zerocopy", 100000)

    @unittest.skipUnless(io_uring_here(), "no io_uring on this machine")
    def test_uring(self) -> None:
        for transport in ("uring", "uring_zc"):
            for size in (64, 300000):
                with self.subTest(transport=transport, size=size):
                    self.check(transport, size)


class Trips(unittest.TestCase):
    def test_round_trips(self) -> None:
        status, (result,) = bench(f"transport=tcp,mode=pingpong,bytes=64,messages={MESSAGES}")
        self.assertEqual(status, 0)
        rtt = result["tx"]["rtt_ns"]
        self.assertTrue(0 < rtt["p50"] <= rtt["p99"] <= rtt["p999"], rtt)
        self.assertEqual(result["tx"]["copied"], 2 * 64 * MESSAGES)


class Refusals(unittest.TestCase):
    """One failure is told and does not harm the next measurement."""

    def test_unknown_transport(self) -> None:
        status, results = bench("transport=pigeon", f"transport=tcp,messages={MESSAGES}")
        self.assertEqual(status, 1)
        self.assertEqual([r["ok"] for r in results], [False, True])
        self.assertIn("pigeon", results[0]["problem"])

    def test_no_device(self) -> None:
        status, (result,) = bench("transport=offload")
        self.assertEqual((status, result["ok"]), (1, False))

    def test_bad_specs(self) -> None:
        for spec in ("bytes=0", "bytes=-1", "bytes=1e6", "flows=0", "nonsense", "speed=3", "mode=warp", "mode=pingpong,flows=2"):
            with self.subTest(spec=spec):
                self.assertEqual(bench(spec), (1, []))


unittest.main()
