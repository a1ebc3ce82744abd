# SPDX-License-Identifier: BSD-3-Clause
"""Boots guests on a NUPA switch and runs commands in them; see tools/vm/README.md."""

from .cluster import Cluster, CommandFailed, EmulatorCrashed, ImpossibleFlags, Job, KernelComplaint, Node, NodeDead, Result, SetupError, TimeLimit
from .monitor import Monitor, MonitorError
from .qemu import Disk

__all__ = [
    "Cluster", "CommandFailed", "Disk", "EmulatorCrashed", "ImpossibleFlags", "Job", "KernelComplaint", "Monitor", "MonitorError", "Node", "NodeDead", "Result",
    "SetupError", "TimeLimit",
]  # fmt: skip
