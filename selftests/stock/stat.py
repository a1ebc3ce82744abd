#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tcpqp-stat without a module: connections of programs that use libtcpqp, as TCP knows them.  stat BUILD"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

BUILD = Path(sys.argv[1]).resolve()
STAT = BUILD / "tools/tcpqp_stat/tcpqp-stat"
HARNESS, PLUGIN = BUILD / "tools/nccl_harness/nccl_harness", BUILD / "user/nccl/libnccl-net-tcpqp.so"
PROGRAM = BUILD / "selftests/vm/programs/lib_exchange"
LIMIT_S = 30
FOREVER = "100000000"


def lines(port: int, *options: str) -> list[dict]:
    said = json.loads(subprocess.run([STAT, "--json", *options], stdout=subprocess.PIPE, timeout=LIMIT_S, check=True).stdout)
    return [line for line in said if line.get("local", "").endswith(f":{port}")]


def until(what: str, found):
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.05)
    raise AssertionError(f"waited for {what}")


def start(*argv: str) -> subprocess.Popen:
    env = {**os.environ, "TCPQP_ENGINE": "stock", "TCPQP_FRAMING": "stream"}
    return subprocess.Popen([PROGRAM, *argv, "--messages", FOREVER], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as it:
        return it.getsockname()[1]


def test_a_connection() -> None:
    port = free_port()
    with start("--port", str(port)) as listener:
        try:
            until("the listener", lambda: subprocess.run(["ss", "-Hltn", f"sport = :{port}"], stdout=subprocess.PIPE, check=True).stdout)
            with start("--port", str(port), "--connect", "127.0.0.1") as connector:
                try:
                    line = until("bytes", lambda: next((one for one in lines(port) if one["rx_copied_bytes"] > 100000), None))
                    assert (line["engine"], line["rx_placed_bytes"], line["pid"], line["process"]) == ("stock?", 0, listener.pid, "lib_exchange"), line
                    assert line["local"] == f"127.0.0.1:{port}" and line["cwnd"] > 0 and "qpn" not in line, line
                    assert lines(port, "--no-stock") == []
                    table = subprocess.run([STAT], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True).stdout.splitlines()
                    row = next(row.split() for row in table if row.split()[3] == f"127.0.0.1:{port}")
                    assert row[5] == "stock?" and row[-1] == f"lib_exchange({listener.pid})", row
                finally:
                    connector.send_signal(signal.SIGKILL)
        finally:
            listener.send_signal(signal.SIGKILL)
    assert lines(port) == [], "a connection that is over"


def test_nccls_plugin() -> None:
    """It has the library in itself, and maps no libtcpqp."""
    env = {**os.environ, "TCPQP_ENGINE": "stock", "TCPQP_FRAMING": "stream", "NCCL_SOCKET_IFNAME": "lo", "NCCL_SOCKET_FAMILY": "AF_INET"}
    argv = [HARNESS, "--plugin", PLUGIN, "--case", "polled", "--seconds", str(2 * LIMIT_S)]

    def shown() -> set[int]:
        said = json.loads(subprocess.run([STAT, "--json"], stdout=subprocess.PIPE, timeout=LIMIT_S, check=True).stdout)
        return {line["pid"] for line in said if (line["engine"], line.get("process")) == ("stock?", "nccl_harness")} & ranks()

    def ranks() -> set[int]:
        return set(map(int, Path(f"/proc/{harness.pid}/task/{harness.pid}/children").read_text().split())) | {harness.pid}

    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as harness:
        try:
            until("a connection of each rank", lambda: len(shown()) == 2)
        finally:
            os.killpg(harness.pid, signal.SIGKILL)


def test_options() -> None:
    watched = subprocess.run(["timeout", "2", STAT, "--watch", "0.2"], stdout=subprocess.PIPE, text=True, check=False).stdout
    assert watched.count("DEVICE") >= 2, watched
    for wrong in ("--watch=0", "--watch=soon", "--what"):
        assert subprocess.run([STAT, wrong], capture_output=True, check=False).returncode != 0, wrong


test_a_connection()
test_nccls_plugin()
test_options()
