# SPDX-License-Identifier: BSD-3-Clause
"""A set of guests on one switch, from boot to the check of their kernel logs."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import accel, accelerator, dmesg, qemu, switch
from .control import Hub
from .initramfs import initramfs
from .kernel import bootable
from .modules import unpacked
from .node import CommandFailed, EmulatorCrashed, MadeUpByEmulator, Job, Node, NodeDead, Result
from .paths import BUILD, REPO, SetupError, VM_BUILD, in_guest, kernel_image, kernel_release, look_for_modules, module_dir, module_tree, slowness
from .process import Children
from .tsc import host_tsc_khz

NODES_MAX = 16
BOOT_S = 60.0
BYE_S = 10.0
RUNS_KEPT = 20
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
RUN_NAME = re.compile(r"-\d{4}-\d{6}-(?P<pid>\d+)(\.\d+)?$")
SHM = Path("/dev/shm")


class TimeLimit(Exception):
    """Something did not happen in its time."""


class Cluster:
    """with Cluster(nodes=2) as c: c.node[0].run("...", check=True)

    Leaving the block powers the guests off and raises KernelComplaint if a kernel log shows a splat or a guest died.

    setup: "auto" loads what is built and brings nupa0 and tcpqp0 up, "full" fails if a module is missing, "none" does nothing.
    disks: raw files by node, seen as /dev/vda and so on.  accelerator_mib: each guest has an accelerator with a BAR of that size.
    pool_mib: the switch is in mode cxl, with a pool of that size; 0: in mode pcie.
    time_limit_s bounds the whole life; job_limit_s is the default for one command.
    """

    def __init__(
        self, nodes: int = 2, *, mem_mb: int = 1024, cpus: int = 1, topology: str = "cxl", with_switch: bool = True,
        setup: str = "auto", mtu: int | None = None, wanted_accel: str = "auto", icount: bool = False, interactive: bool = False,
        time_limit_s: float = 180.0, job_limit_s: float = 60.0, results: Path | str | None = None, name: str = "run",
        append: str = "", disks: dict[int, list[qemu.Disk]] | None = None, switch_args: list[str] | None = None,
        qemu_args: list[str] | None = None, quiet: bool = False, switch_env: dict[str, str] | None = None, accelerator_mib: int = 0,
        pool_mib: int = 0,
    ) -> None:  # fmt: skip
        if not 1 <= nodes <= NODES_MAX:
            raise SetupError(f"nodes must be 1 to {NODES_MAX}")
        if with_switch and mem_mb > qemu.MEM_MAX_MB:
            raise SetupError(f"a guest on the switch has at most {qemu.MEM_MAX_MB} MiB of memory")
        if topology not in qemu.TOPOLOGIES:
            raise SetupError(f"topology must be one of {', '.join(qemu.TOPOLOGIES)}")
        self.mem_mb, self.cpus, self.topology, self.with_switch = mem_mb, cpus, topology, with_switch
        self.setup, self.mtu, self.icount, self.interactive = setup, mtu, icount, interactive
        self.job_limit_s, self.append, self.quiet = job_limit_s, append, quiet
        self.switch_args, self.qemu_args = list(switch_args or []), list(qemu_args or [])
        self.switch_env = dict(switch_env or {})  # added to the switch's environment
        self.disks = disks or {}  # by node
        self.accelerator_mib = accelerator_mib  # of each guest's one; 0: it has none
        self.accelerators: list[accelerator.Accelerator] = []  # by node
        if pool_mib and not with_switch:
            raise SetupError("mode cxl is the switch's: it needs one")
        self.pool_mib = pool_mib
        if setup == "full":
            wanted = {"tcp_qp": True, "nupa_dev": with_switch, "nupa_accel": accelerator_mib or pool_mib}  # what guest/setup loads
            look_for_modules([name for name, is_wanted in wanted.items() if is_wanted])
        self.image = kernel_image()
        self.accel = "tcg" if icount else accel.pick(self.image, wanted_accel, self.say)
        self.results = Path(results) if results else _new_results(name)
        self.slowness = slowness()
        self.deadline = time.monotonic() + time_limit_s * self.slowness
        self.run_dir = SHM / f"nupa-vm.{os.getpid()}.{id(self):x}"
        self.children = Children()
        self.switch: switch.Switch | None = None
        self.hub: Hub | None = None
        self.node = [Node(self, i, self.results / f"node{i}") for i in range(nodes)]

    def say(self, text: str) -> None:
        if not self.quiet:
            print(f"nupa-vm: {text}", file=sys.stderr, flush=True)

    # Life

    def __enter__(self) -> "Cluster":
        try:
            self.boot()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(self, kind, value, trace) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                self.power_off()
        finally:
            self.destroy()
        complaints = self.complaints()
        if complaints and kind is not None:
            self.say(complaints)
        elif complaints:
            raise KernelComplaint(complaints)

    def boot(self) -> None:
        """Starts everything and returns when all guests are set up."""
        began = time.monotonic()
        _sweep_stale_runs()
        self.run_dir.mkdir(mode=0o700)
        self.tsc_khz = host_tsc_khz()
        if self.accelerator_mib:
            self.accelerators = [accelerator.start(self.children, self.run_dir, self.results, f"n{n.index}", self.accelerator_mib) for n in self.node]
        machines = [self._machine(node) for node in self.node]
        self.hub = Hub([m.control_socket for m in machines])
        if self.with_switch:
            self._start_switch()
        what = f"{self.accel}, {self.mem_mb} MiB, {self.topology if self.with_switch else 'no switch'}"
        self.say(f"booting {len(self.node)} nodes ({what}); results in {self.results}")
        for node, machine in zip(self.node, machines):
            with (node.results / "qemu.log").open("wb") as log:
                node.process = self.children.start(qemu.command(machine), stdout=log, stderr=subprocess.STDOUT)
        self.wait(lambda: len(self.hub.ready) == len(self.node), BOOT_S * self.slowness, "boot")
        booted = time.monotonic()
        for index in self.disks:
            self.node[index].run("[ -d /sys/module/virtio_blk ] || modprobe virtio_blk", check=True)
        if self.setup != "none":
            self.run_all(f"sh $REPO/tools/vm/guest/setup {self.setup}", check=True)
        self.say(f"booted in {booted - began:.1f} s, set up in {time.monotonic() - booted:.1f} s")

    def power_off(self) -> None:
        """Lets every guest leave its kernel log and end; one that does not is reported by complaints()."""
        if self.hub is None:
            return
        for node in self.node:
            if node.process and node.process.poll() is None:
                self.hub.send(node.index, "off")
        limit = time.monotonic() + BYE_S * self.slowness
        for node in self.node:
            try:
                if node.process:
                    node.process.wait(max(0.1, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.say(f"{node.name} did not power off")

    def destroy(self) -> None:
        """Ends every process and removes the run's shared memory; never fails."""
        self.children.stop_all()
        if self.hub:
            self.hub.close()
            self.hub = None
        shutil.rmtree(self.run_dir, ignore_errors=True)

    # Use

    def monitor_socket(self, index: int) -> Path:
        """QEMU's own control socket (QMP) of a node."""
        return self.run_dir / f"qmp{index}"

    def stop_switch(self) -> None:
        """Kills the switch: to the guests, the fabric is gone without a word."""
        self.children.stop(self.switch.process, grace_s=0)
        self.switch = None

    def start_switch(self) -> None:
        """A new switch on the same sockets and memory; no guest is on it yet (Monitor.plug_port() does that)."""
        for node in self.node:
            (self.run_dir / f"port{node.index}").unlink(missing_ok=True)
            (self.run_dir / f"pool{node.index}").unlink(missing_ok=True)
        self._start_switch()

    def _start_switch(self) -> None:
        ports = [
            switch.Port(
                self.run_dir / f"port{n.index}", self.run_dir / f"ram{n.index}",
                self.accelerators[n.index].memory if self.accelerators else None, self._pool_socket(n),
            )
            for n in self.node
        ]  # fmt: skip
        mode = ["--mode", "cxl", "--pool-mib", str(self.pool_mib)] if self.pool_mib else []
        self.switch = switch.start(self.children, self.run_dir, self.results, ports, [*mode, *self.switch_args], self.switch_env)

    def _pool_socket(self, node: Node) -> Path | None:
        return self.run_dir / f"pool{node.index}" if self.pool_mib else None

    def run_all(self, command: str, limit_s: float | None = None, check: bool = False) -> list[Result]:
        """The same command on all nodes at once; every result, in the nodes' order."""
        jobs = [node.start(command, limit_s) for node in self.node]
        return [job.wait(check) for job in jobs]

    def wait(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        """Waits until the condition holds for what the guests reported, and notices dead guests and time limits."""
        deadline = min(self.deadline, time.monotonic() + limit_s)
        with self.hub.changed:
            while not condition():
                self._check_alive()
                if time.monotonic() >= deadline:
                    raise TimeLimit(f"{what}: not done in time")
                self.hub.changed.wait(0.1)

    def complaints(self) -> str:
        """What the kernels complained about, and which guests died; empty if all is well.  Meant for after the end."""
        out = []
        for node in self.node:
            if dmesg.splats(node.log()):
                out.append(f"{node.name}: the kernel complained:\n{dmesg.around_first(node.log())}")
            elif node.process and not (node.results / "dmesg").exists():
                out.append(f"{node.name}: ended without leaving its kernel log")
        return "\n".join(out)

    def _check_alive(self) -> None:
        for node in self.node:
            if node.process and node.process.poll() is not None and node.index not in self.hub.gone:
                log = node.log() + _text(node.results / "qemu.log")
                tail = "\n".join([*log.splitlines()[-60:], *dmesg.emulator_fault(log)])
                raise self._death(node, log)(f"{node.name} died (QEMU ended with {node.process.returncode}); last lines:\n{tail}")
        if self.switch and self.switch.process.poll() is not None:
            raise NodeDead(f"nupa_switch ended with {self.switch.process.returncode}:\n{_text(self.switch.log)[-3000:]}")

    @staticmethod
    def _death(node: Node, log: str) -> type[NodeDead]:
        if dmesg.made_up(log):
            return MadeUpByEmulator
        return EmulatorCrashed if -node.process.returncode in CRASHES or dmesg.emulator_fault(log) else NodeDead

    def _machine(self, node: Node) -> qemu.Machine:
        shutil.rmtree(node.results, ignore_errors=True)
        (node.results / "jobs").mkdir(parents=True)
        (node.results / "env").write_text(self._environment(node))
        ram = self.run_dir / f"ram{node.index}"
        with ram.open("wb") as file:
            file.truncate(self.mem_mb << 20)
        return qemu.Machine(
            name=node.name, image=bootable(self.image), initrd=initramfs(self.image), accel=self.accel, mem_mb=self.mem_mb, cpus=self.cpus,
            ram_file=ram, console=node.results / "console", control_socket=self.run_dir / f"ctl{node.index}",
            monitor_socket=self.monitor_socket(node.index),
            results=node.results, topology=self.topology, icount=self.icount, append=self.append, extra=self.qemu_args,
            disks=self.disks.get(node.index, []), tsc_khz=self.tsc_khz,
            accelerators=[self.accelerators[node.index].socket] if self.accelerators else [], pool_socket=self._pool_socket(node),
            port_socket=self.run_dir / f"port{node.index}" if self.with_switch else None,
            shell_socket=self.run_dir / f"shell{node.index}" if self.interactive else None,
        )  # fmt: skip

    def _environment(self, node: Node) -> str:
        peers = [other for other in self.node if other is not node]
        words = {
            "NODE": node.index, "NODES": len(self.node), "IP4": node.ip4, "IP6": node.ip6, "REPO": in_guest(REPO), "BUILD": in_guest(BUILD),
            "HOST_REPO": REPO,
            "PEERS": " ".join(p.ip4 for p in peers), "PEERS6": " ".join(p.ip6 for p in peers), "PEER": peers[0].ip4 if peers else "",
            "PEER6": peers[0].ip6 if peers else "", "FABRIC": "yes" if self.with_switch else "no", "MTU": self.mtu or "",
            "KERNEL_MODULES": in_guest(module_tree(self.image)), "RELEASE": kernel_release(self.image),
            "RESULTS": "/results", "MODULES": in_guest(unpacked(self.image)), "KO": in_guest(module_dir()), "TOPOLOGY": self.topology,
            "ACCELERATOR": "yes" if self.accelerators or self.pool_mib else "no",
        }  # fmt: skip
        return "".join(f"{key}={shlex.quote(str(value))}\n" for key, value in words.items())


class KernelComplaint(Exception):
    """A guest's kernel log has something in it that must not be there."""


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _new_results(name: str) -> Path:
    """A fresh directory for a run; build/vm/last points at it, and old ones go whose run is over."""
    VM_BUILD.mkdir(parents=True, exist_ok=True)
    path = VM_BUILD / f"{name}-{time.strftime('%m%d-%H%M%S')}-{os.getpid()}"
    count = 0
    while path.exists():
        count += 1
        path = path.with_name(f"{path.name.split('.')[0]}.{count}")
    path.mkdir()
    link = VM_BUILD / f".last.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(path.name)
    link.rename(VM_BUILD / "last")
    # Not unpacked modules, which lie there, too: another run may use them.
    runs = sorted((p for p in VM_BUILD.glob("*-*-*-*") if RUN_NAME.search(p.name)), key=lambda p: p.stat().st_mtime)
    for old in runs[:-RUNS_KEPT]:
        pid = RUN_NAME.search(old.name)["pid"]
        if time.time() - old.stat().st_mtime > 3600 and not Path("/proc", pid).exists():
            shutil.rmtree(old, ignore_errors=True)
    return path


def _sweep_stale_runs() -> None:
    """Removes shared memory of runs that were killed before they could."""
    for path in SHM.glob("nupa-vm.*"):
        pid = path.name.split(".")[1]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)


__all__ = ["Cluster", "CommandFailed", "EmulatorCrashed", "MadeUpByEmulator", "Job", "KernelComplaint", "Node", "NodeDead", "Result", "SetupError", "TimeLimit"]
