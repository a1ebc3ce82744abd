# SPDX-License-Identifier: BSD-3-Clause
"""QEMU's monitor (QMP): the hands that pull a device out of a running machine and put another in."""

import itertools
import json
import os
import socket
from pathlib import Path

from .qemu import PORT_BUS, NUPA_VECTORS

REPLY_S = 20.0
STALE_DESCRIPTORS = 4 * NUPA_VECTORS  # as many as an ivshmem device had, and some


class MonitorError(Exception):
    """QEMU refused a command."""


class Monitor:
    """with Monitor(path) as m: m.command("query-status")"""

    _numbers = itertools.count(1)

    def __init__(self, path: Path) -> None:
        self._link = socket.socket(socket.AF_UNIX)
        self._link.settimeout(REPLY_S)
        self._link.connect(str(path))
        self._lines = self._link.makefile()
        self._lines.readline()  # the greeting
        self.command("qmp_capabilities")

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, *_) -> None:
        self._lines.close()
        self._link.close()

    def command(self, name: str, **arguments) -> dict:
        self._link.sendall(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")
        return self._reply(name)

    def _reply(self, name: str) -> dict:
        while True:
            reply = json.loads(self._lines.readline())
            if "error" in reply:
                raise MonitorError(f"{name}: {reply['error']['desc']}")
            if "return" in reply:
                return reply["return"]

    def wait_event(self, name: str) -> None:
        """Returns when QEMU reports the event; TimeoutError if it does not in time."""
        while json.loads(self._lines.readline()).get("event") != name:
            pass

    def unplug(self, device: str = "nupa") -> None:
        """Asks the guest to let the device go, and returns when it has."""
        self.command("device_del", id=device)
        self.wait_event("DEVICE_DELETED")
        self._occupy_stale_descriptors()

    def _occupy_stale_descriptors(self) -> None:
        """QEMU 7.2's ivshmem closes its eventfds, but leaves their handlers with freed memory: whatever gets such a number and becomes
        readable ends QEMU by SIGSEGV.  An eventfd that nobody writes takes each of them."""
        quiet = os.eventfd(0)
        try:
            for _ in range(STALE_DESCRIPTORS):
                request = {"execute": "getfd", "arguments": {"fdname": f"stale-{next(self._numbers)}"}}
                socket.send_fds(self._link, [json.dumps(request).encode() + b"\n"], [quiet])
                self._reply("getfd")
        finally:
            os.close(quiet)

    def plug_port(self, port_socket: Path) -> str:
        """Connects to a switch's port and puts a new NUPA device into the slot; its id."""
        number = next(self._numbers)
        chardev, device = f"port-{number}", f"nupa-{number}"
        address = {"type": "unix", "data": {"path": str(port_socket)}}
        self.command("chardev-add", id=chardev, backend={"type": "socket", "data": {"addr": address, "server": False}})
        self.command("device_add", driver="ivshmem-doorbell", id=device, vectors=NUPA_VECTORS, chardev=chardev, bus=PORT_BUS)
        return device
