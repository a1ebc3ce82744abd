#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tcpqp_perf's three tests on loopback: the table and the JSON are whole, what it refuses is refused.  No speeds: machines differ."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator

PROGRAM = sys.argv[1]
LIMIT_S = 60


def free_port() -> str:
    with socket.socket() as s:
        s.bind(("", 0))
        return str(s.getsockname()[1])


@contextlib.contextmanager
def serving(port: str, *args: str) -> Iterator[subprocess.Popen]:
    """Ends with the block, however that ends: a client that fails is to say so."""
    with subprocess.Popen([PROGRAM, "-p", port, *args, "-E", "stock"]) as server:
        try:
            yield server
        finally:
            server.kill()


def client_of(port: str, *args: str) -> subprocess.CompletedProcess:
    """One that found its server."""
    for _ in range(200):
        client = subprocess.run([PROGRAM, *args, "-p", port, "-E", "stock", "127.0.0.1"], capture_output=True, text=True, timeout=LIMIT_S)
        if "Connection refused" not in client.stderr:
            break
    return client


def bars() -> None:
    """One line for each; the exit status says whether one was missed."""
    port = free_port()
    with serving(port):
        client = client_of(port, "bars", "-n", "50", "-N", "1")
    rows = [line.split() for line in client.stdout.splitlines()[1:]]
    assert [row[2:4] for row in rows] == [["lat", "64"], ["bw", "65536"], ["bw", "1048576"], ["rate", "64"]], (client.stdout, client.stderr)
    for row in rows:
        value, least, most, bar = (float(row[i]) for i in (-7, -6, -4, -2))
        assert least <= value <= most, row
        near = abs(value - bar) < 0.01  # as printed
        assert near or row[-1] == ("yes" if (value >= bar) == (row[-3] == ">=") else "NO"), row
    assert client.returncode == any(row[-1] == "NO" for row in rows), client


def run(*args: str) -> str:
    """The client's output; the server must end well, too."""
    port = free_port()
    with serving(port, "--once") as server:
        client = client_of(port, *args)
        assert client.returncode == 0, client.stderr
        assert server.wait(timeout=LIMIT_S) == 0
    return client.stdout


for test, size, count in (("bw", 65536, 100), ("lat", 64, 100), ("rate", 64, 5000)):
    (row,) = json.loads(run(test, "-s", str(size), "-n", str(count), "-N", "3", "--out_json"))
    assert (row["test"], row["bytes"], row["messages"], row["engine"]) == (test, size, count, "stock"), row
    assert row["tcp"]["seconds"] > 0 and row["queue_pair"]["seconds"] > 0 and row["speed_to_tcp"] > 0, row
    assert row["server_copied_bytes"] >= 3 * size * count and row["server_placed_bytes"] == 0, row
    assert len(row["tcp"]["rounds_s"]) == len(row["queue_pair"]["rounds_s"]) == 3, row
    assert (test == "lat") == ("typical_us" in row["tcp"]), row

bars()
table = run("bw", "-a", "-n", "20", "-N", "1").splitlines()
assert table[0].split()[:2] == ["#bytes", "#iterations"], table
assert [int(line.split()[0]) for line in table[1::2]] == [2**i for i in range(1, 24)], table
for wrong in (["sideways", "localhost"], ["bw"], ["-s", "0"], ["-n", "many"], ["-E", "warp"], ["-p", "70000"]):
    refused = subprocess.run([PROGRAM, *wrong], capture_output=True, text=True, timeout=LIMIT_S)
    assert refused.returncode == 64 and "usage:" in refused.stderr, (wrong, refused)
