# SPDX-License-Identifier: BSD-3-Clause
"""What a program that works for minutes says meanwhile."""

import time

BEGAN = time.monotonic()


def say(text: str) -> None:
    """A line, with the seconds since the program began."""
    print(f"[{time.monotonic() - BEGAN:4.0f} s] {text}", flush=True)
