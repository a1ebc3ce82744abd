# SPDX-License-Identifier: BSD-3-Clause
"""One line for each stage, as tools/front/stage has them, and everything in build/log/demo.log."""

import sys
import time
from pathlib import Path

NAME_WIDTH = 10


class Progress:
    def __init__(self, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("w", buffering=1)
        self._live = sys.stdout.isatty()
        self._began = time.monotonic()
        self.path = log

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def log(self, text: str) -> None:
        self._log.write(f"[{self.seconds:6.1f} s] {text}\n")

    def now(self, stage: str, text: str) -> None:
        """What happens, on a terminal: the stage's line as it stands."""
        self.log(f"{stage}: {text}")
        if self._live:
            print(f"\r\033[K{stage:<{NAME_WIDTH}} {text}", end="", flush=True)

    def done(self, stage: str, text: str) -> None:
        """How the stage ended; its line stays."""
        self.log(f"{stage}: {text}")
        print(f"{self._clear()}{stage:<{NAME_WIDTH}} {text}", flush=True)

    def failed(self, problem: str) -> None:
        self.log(f"FAIL: {problem}")
        print(f"{self._clear()}demo: FAIL: {problem}\n{self.path} has the rest", file=sys.stderr)

    def _clear(self) -> str:
        return "\r\033[K" if self._live else ""
