#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The examples, both ends on loopback, as a newcomer would run them: examples.py DIRECTORY NAME."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DIRECTORY, NAME = Path(sys.argv[1]), sys.argv[2]
LIMIT_S = 60


def both(name: str, listener: list, connector) -> tuple[str, str]:
    """What both ends printed; both must succeed.  @connector makes the other's arguments of the port."""
    program = DIRECTORY / f"tcpqp_{name}"
    with subprocess.Popen([program, *listener], stdout=subprocess.PIPE, text=True) as server:
        port = server.stdout.readline().split()[-1]
        client = subprocess.run([program, *connector(port)], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True)
        said = server.stdout.read()
        print(client.stdout, said)
        assert server.wait(timeout=LIMIT_S) == 0
    return said, client.stdout


def echo() -> None:
    count, size = 100, 50001
    for text in both("echo", ["0"], lambda port: ["127.0.0.1", port, str(count), str(size)]):
        words = re.search(r"done \(\w+\): stock, (\d+) bytes received, 0 placed by the switch, (\d+) copied", text)
        assert words, text
        assert int(words[1]) == int(words[2]) == count * size, text


def copy() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        there, here = Path(scratch) / "there", Path(scratch) / "here"
        for size in (0, 1, 9_000_001):
            here.write_bytes(os.urandom(size))
            for text in both("copy", ["0", there], lambda port: [here, "127.0.0.1", port]):
                assert f"done: stock, {size} bytes" in text, text
            assert there.read_bytes() == here.read_bytes(), size


def pingpong() -> None:
    said, asked = both("pingpong", ["0"], lambda port: ["127.0.0.1", port, "500"])
    assert re.search(r"500 round trips of 64 bytes, [\d.]+ us each\ndone: stock", asked), asked
    assert said == "done: stock\n", said


def stream() -> None:
    said, sent = both("stream", ["0", "500"], lambda port: ["127.0.0.1", port, "600"])
    assert said == "received 600 messages, in order\n", said
    assert sent == "sent 600 messages, was stopped now and then\n", sent


def pipe() -> None:
    """Different bytes each way; the shorter direction ends long before the other."""
    program, sent = DIRECTORY / "tcpqp_pipe", (os.urandom(3_000_007), os.urandom(11))
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as sink:
        source.write(sent[0])
        source.seek(0)
        with subprocess.Popen([program, "0"], stdin=source, stdout=sink, stderr=subprocess.PIPE, text=True) as server:
            port = server.stderr.readline().split()[-1]
            client = subprocess.run([program, "127.0.0.1", port], input=sent[1], capture_output=True, timeout=LIMIT_S, check=True)
            said = server.stderr.read()
            assert server.wait(timeout=LIMIT_S) == 0
        sink.seek(0)
        assert client.stdout == sent[0] and sink.read() == sent[1]
    assert said == "done: stock, 11 bytes received, 11 copied\n", said


{"echo": echo, "copy": copy, "pingpong": pingpong, "stream": stream, "pipe": pipe}[NAME]()
