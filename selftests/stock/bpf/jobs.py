# SPDX-License-Identifier: BSD-3-Clause
"""Processes at both ends that are told what to do, and say what they did, line by line."""

import json
import select
import subprocess
import time
from collections.abc import Callable

from ends import ADDRESSES, LIMIT_S, Ends


class Job:
    """A process that is talked to line by line."""

    def __init__(self, t: Ends, end: int, framing: str, *argv) -> None:
        self.process = t.launch(end, framing, *argv, stdin=subprocess.PIPE, bufsize=0)
        t.cleanup.callback(self.kill)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def tell(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n".encode())

    def hear(self, limit_s: float = LIMIT_S) -> str:
        assert select.select([self.process.stdout], [], [], limit_s)[0], f"{self.process.args}: silence"
        return self.process.stdout.readline().decode().strip()

    def expect(self, *lines: str) -> None:
        for line in lines:
            assert (heard := self.hear()) == line, f"{self.process.args}: {line} was expected, not {heard!r}"

    def ask(self, line: str):
        self.tell(line)
        return json.loads(self.hear())

    def end(self) -> None:
        self.process.stdin.close()
        assert self.process.wait(LIMIT_S) == 0, self.process.args


def until(what: str, true: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < limit, f"in vain: {what}"
        time.sleep(0.02)


def pair(t: Ends, framing: str, listener: tuple, connector: tuple) -> tuple[Job, Job]:
    """Both connected; in each command line PORT stands for the port."""
    t.port += 1
    commands = [[t.port if word == "PORT" else word for word in argv] for argv in (listener, connector)]
    first = Job(t, 0, framing, *commands[0])
    t.listening()
    return first, Job(t, 1, framing, *commands[1], "--connect", ADDRESSES[0])
