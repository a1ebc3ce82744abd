# SPDX-License-Identifier: BSD-3-Clause
"""Boots guests on a NUPA switch and runs commands in them; see tools/vm/README.md."""

from .cluster import (
    Cluster, CommandFailed, EmulatorCrashed, Job, KernelComplaint, MadeUpByEmulator, Node, NodeDead, Result, SetupError, TimeLimit,
)  # fmt: skip
from .monitor import Monitor, MonitorError
from .qemu import Disk

__all__ = [
    "Cluster", "CommandFailed", "Disk", "EmulatorCrashed", "Job", "KernelComplaint", "MadeUpByEmulator", "Monitor", "MonitorError", "Node", "NodeDead",
    "Result", "SetupError", "TimeLimit",
]  # fmt: skip
