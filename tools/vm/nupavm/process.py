# SPDX-License-Identifier: BSD-3-Clause
"""Child processes that never outlive the run that started them."""

import ctypes
import os
import signal
import subprocess

PR_SET_PDEATHSIG = 1
STOP_GRACE_S = 2.0

_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Children:
    """Starts processes, each leader of a group of its own, and ends those groups.

    Start them from a thread that lives as long as the run: the kernel kills a child when the thread that forked it ends.
    """

    def __init__(self) -> None:
        self._running: list[subprocess.Popen] = []

    def start(self, argv: list, **kwargs) -> subprocess.Popen:
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        child = subprocess.Popen([str(a) for a in argv], start_new_session=True, preexec_fn=_die_with_parent, **kwargs)
        self._running.append(child)
        return child

    def stop(self, child: subprocess.Popen, grace_s: float = STOP_GRACE_S) -> None:
        if child in self._running:
            self._running.remove(child)
        if child.poll() is None:
            _signal_group(child, signal.SIGTERM)
            try:
                child.wait(grace_s)
            except subprocess.TimeoutExpired:
                pass
        _signal_group(child, signal.SIGKILL)
        child.wait()

    def stop_all(self) -> None:
        for child in reversed(list(self._running)):
            self.stop(child)


def _signal_group(child: subprocess.Popen, number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        pass
