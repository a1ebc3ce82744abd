# SPDX-License-Identifier: BSD-3-Clause
"""Starts the accelerators of guests: a process each, and a file that the switch maps, too."""

import os
import select
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .paths import SetupError, accelerator_binary
from .process import Children

READY_S = 10.0
MIB_DEFAULT = 256


@dataclass
class Accelerator:
    process: subprocess.Popen
    socket: Path
    memory: Path


def start(children: Children, run_dir: Path, results: Path, name: str, mib: int) -> Accelerator:
    """Returns when it listens."""
    socket, memory = run_dir / f"{name}.accel", run_dir / f"{name}.hbm"
    reader, writer = os.pipe()
    argv = [accelerator_binary(), "--socket", socket, "--memory", memory, "--mib", str(mib), "--ready-fd", str(writer)]
    with (results / f"{name}.accel.log").open("wb") as out:
        child = children.start(argv, stdout=out, stderr=subprocess.STDOUT, pass_fds=(writer,))
    os.close(writer)
    try:
        readable, _, _ = select.select([reader], [], [], READY_S)
        if not readable or not os.read(reader, 1):
            raise SetupError(f"nupa_accel did not become ready: {(results / f'{name}.accel.log').read_text(errors='replace')[-2000:]}")
    finally:
        os.close(reader)
    return Accelerator(child, socket, memory)
