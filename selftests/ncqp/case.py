# SPDX-License-Identifier: BSD-3-Clause
"""What every ncqp test uses: two ends, started, waited for, and their reports."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

NCQP = os.environ.get("NCQP", "ncqp")
LIMIT_S = 30
LISTENING = re.compile(r"listening on (\S+) port (\d+)")
MIB = 1 << 20


def noise(size: int, seed: str = "ncqp") -> bytes:
    """Bytes that look random and are the same in every run."""
    return hashlib.shake_128(seed.encode()).digest(size)


def pattern(period: int, size: int) -> bytes:
    one = bytes((i + 1) % period for i in range(period))
    return (one * (size // period + 1))[:size]


class End:
    """One ncqp process."""

    def __init__(self, *args: str, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, tcp: bool = True, **popen) -> None:
        engine = ["--engine", "tcp"] if tcp else []
        argv = [NCQP, *engine, *map(str, args)]
        self.process = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, **popen)
        self.said = ""

    def wait_listening(self) -> int:
        """The port, as the program says it."""
        while True:
            line = self.process.stderr.readline().decode()
            if not line:
                raise AssertionError(f"ended instead of listening: {self.said}")
            self.said += line
            if found := LISTENING.search(line):
                return int(found[2])

    def wait(self) -> int:
        try:
            self.said += self.process.stderr.read().decode(errors="replace")
            return self.process.wait(LIMIT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="ncqp-test."))
        self.addCleanup(shutil.rmtree, self.dir)

    def end(self, *args, **kw) -> End:
        one = End(*args, **kw)
        self.addCleanup(one.kill)
        return one

    def program_for_all(self) -> Path:
        """A copy of ncqp that any user may start: the repository may lie where only its owner may go, as in /root."""
        self.dir.chmod(0o755)
        return Path(shutil.copy(shutil.which(NCQP) or NCQP, self.dir))

    def path(self, name: str, content: bytes | None = None) -> Path:
        path = self.dir / name
        if content is not None:
            path.write_bytes(content)
        return path

    def listen(self, *args, **kw) -> tuple[End, int]:
        one = self.end("-l", "-s", "127.0.0.1", "-p", 0, *args, **kw)
        return one, one.wait_listening()

    def connect(self, port: int, *args, **kw) -> End:
        return self.end("-s", "127.0.0.1", "-p", port, *args, **kw)

    def report(self, name: str) -> dict:
        return json.loads((self.dir / name).read_text())

    def expect(self, end: End, status: int, *words: str) -> None:
        """It ends with this status, having said these words."""
        got = end.wait()
        self.assertEqual(got, status, end.said)
        for word in words:
            self.assertIn(word, end.said)

    def copy(self, data: bytes, *, receiver=(), sender=(), name="out") -> bytes:
        """File to file; both ends must be content."""
        source, target = self.path("in", data), self.path(name)
        with source.open("rb") as i, target.open("wb") as o:
            r, port = self.listen("--json", self.dir / "r.json", *receiver, stdout=o)
            s = self.connect(port, "--json", self.dir / "s.json", *sender, stdin=i)
        self.expect(s, 0)
        self.expect(r, 0)
        return target.read_bytes()


def main() -> None:
    unittest.main(verbosity=2)
