# SPDX-License-Identifier: BSD-3-Clause
"""Starts the fabric switch that the guests hang on."""

import os
import select
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .paths import SetupError, switch_binary
from .process import Children

READY_S = 10.0
POOL_MIB_DEFAULT = 128


@dataclass
class Switch:
    process: subprocess.Popen
    control: Path
    log: Path


@dataclass
class Port:
    socket: Path
    ram: Path
    hbm: Path | None = None  # memory of the node's accelerator
    pool: Path | None = None  # where its window to the pool is plugged (mode cxl)

    def option(self, name: str) -> str:
        more = "".join(f",{key}={path}" for key, path in (("hbm", self.hbm), ("pool", self.pool)) if path)
        return f"name={name},socket={self.socket},ram={self.ram}{more}"


def start(children: Children, run_dir: Path, results: Path, ports: list[Port], extra: list[str],
          env: dict[str, str]) -> Switch:  # fmt: skip
    """ports: of each node, in order; env: added to our own.  Returns when the switch listens."""
    control, log = run_dir / "switch.ctl", results / "switch.log"
    reader, writer = os.pipe()
    argv = [switch_binary(), "--control", control, "--ready-fd", str(writer)]
    for node, port in enumerate(ports):
        argv += ["--port", port.option(f"n{node}")]
    with log.open("wb") as out:
        child = children.start([*argv, *extra], stdout=out, stderr=subprocess.STDOUT, pass_fds=(writer,), env={**os.environ, **env})
    os.close(writer)
    try:
        readable, _, _ = select.select([reader], [], [], READY_S)
        if not readable or not os.read(reader, 1):
            raise SetupError(f"nupa_switch did not become ready:\n{log.read_text(errors='replace')[-2000:]}")
    finally:
        os.close(reader)
    return Switch(child, control, log)
