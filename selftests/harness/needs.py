# SPDX-License-Identifier: BSD-3-Clause
"""What the guests of a test must have: the argument of the marker `needs`."""

import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nupavm.paths import REPO, module_dir, switch_binary


KASAN, KCSAN = "kasan", "kcsan"  # flavours of the debug kernel
DEBUG_KERNELS = {KASAN: ("build/debug-kernel", "build/kernel-debug"), KCSAN: ("build/kcsan-kernel", "build/kernel-kcsan")}


def debug_flavour() -> str:
    """Which debug kernel the guests have; empty: none."""
    return os.environ.get("NUPA_DEBUG_KERNEL", "")


def on_debug_kernel() -> bool:
    return bool(debug_flavour())


def debug_config() -> str:
    return (REPO / DEBUG_KERNELS[debug_flavour()][0] / "obj/.config").read_text()


COPIES = ("sse2", "avx2", "avx512")


def by_each_copy(needs: "Needs"):
    """A test once for each way in which the switch can copy, where the processor can.  `make check` has time for the one that no switch takes by itself."""

    def marks(way: str) -> list[pytest.MarkDecorator]:
        return [pytest.mark.needs(replace(needs, copy=way)), *([] if way == COPIES[0] else [pytest.mark.long])]

    return pytest.mark.parametrize("copy", [pytest.param(way, marks=marks(way)) for way in COPIES])


def _copy_refused(way: str) -> str:
    """Why the switch can't copy this way on this processor, or nothing."""
    asked = subprocess.run([switch_binary(), "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "NUPA_COPY": way})
    return asked.stderr.strip() if asked.returncode else ""


@dataclass(frozen=True)
class Needs:
    """What the guests must have; frozen so that equal needs share a boot."""

    modules: tuple[str, ...] = ()  # of ours: folders of build/kernel, named as what is in them
    programs: tuple[str, ...] = ()  # paths below build/cmake
    nodes: int = 2
    mem_mb: int = 1024
    cpus: int = 1
    switch: bool = True
    topology: str = "cxl"
    setup: str = "auto"
    append: str = ""
    switch_args: tuple[str, ...] = ()  # further arguments of the switch: ports, rates
    copy: str = ""  # how the switch copies (NUPA_COPY); empty: the best way there is
    accelerator_mib: int = 0  # of BAR of an accelerator in each guest; 0: none
    pool_mib: int = 0  # of the switch's pool (mode cxl); 0: mode pcie
    tap: str = ""  # an interface that the switch makes on this host

    def missing(self) -> str:
        """Why the test can't run here, or nothing."""
        kernel = module_dir()
        if self.tap and os.geteuid() != 0:
            return "needs root: the switch makes a TAP interface here"
        if self.tap and not os.access("/dev/net/tun", os.W_OK):
            return "no TAP can be made here: /dev/net/tun"
        if self.copy and (refused := _copy_refused(self.copy)):
            return refused
        for name in self.modules:
            if not (kernel / name / f"{Path(name).name}.ko").is_file():
                return f"{name}.ko is not built"
        for name in self.programs:
            if not (REPO / "build/cmake" / name).is_file():
                return f"{name} is not built"
        return ""

    def place(self) -> str:
        """The topology, but on the debug kernel no CXL bridge: there its ACPI methods run into the interpreter's 30 s limit."""
        return "plain" if on_debug_kernel() and self.topology == "cxl" else self.topology

    def processors(self) -> int:
        """Of each guest; where data races are looked for there are two: on one alone little runs at the same time."""
        return max(self.cpus, 2) if debug_flavour() == KCSAN else self.cpus

    def boot(self) -> tuple:
        """What decides whether two tests may share guests."""
        machine = (self.nodes, self.mem_mb, self.processors(), self.place(), self.accelerator_mib, self.pool_mib)
        return (*machine, self.switch, self.setup, self.append, self.switch_args, self.copy)
