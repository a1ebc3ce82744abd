# SPDX-License-Identifier: BSD-3-Clause
"""QEMU command lines."""

import os
from dataclasses import dataclass, field
from pathlib import Path

NUPA_VECTORS = 17  # include/tcp_qp/nupa_hw.h
ACCEL_VECTORS = 2  # include/tcp_qp/nupa_accel_hw.h; of a window to the pool, too
MEM_MAX_MB = 2560  # RAM stays below the PCI hole, so a guest address is an offset in the RAM file
DISKS_MAX = 8
TOPOLOGIES = ("cxl", "slot", "plain")  # below a CXL switch; in a root port, which can be unplugged; on the root bus
CMDLINE = (
    "console=ttyS0 quiet loglevel=4 log_buf_len=4M panic=-1 oops=panic panic_on_warn=1 clearcpuid=erms,fsrm "
    "tsc=reliable no_timer_check nokaslr rcupdate.rcu_expedited=1 net.ifnames=0 audit=0 apparmor=0 cryptomgr.notests=1 mitigations=off "
    "transparent_hugepage=madvise rdinit=/init"
)
PORT_BUS = "ds1"
CXL_SWITCH = (
    "-device", "pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1",
    "-device", "cxl-rp,port=0,bus=cxl.1,id=rp0,chassis=0,slot=2",
    "-device", "cxl-upstream,bus=rp0,id=us0",
    "-device", "cxl-downstream,port=1,bus=us0,id=ds1,chassis=0,slot=5",
    "-M", "cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G",
)  # fmt: skip


@dataclass(frozen=True)
class Disk:
    """A raw file that a guest sees as /dev/vda, /dev/vdb ...: the fastest way to move much data in or out."""

    path: Path
    writable: bool = False


@dataclass
class Machine:
    """What one guest is made of."""

    name: str
    image: Path
    initrd: Path
    accel: str  # kvm or tcg
    mem_mb: int
    cpus: int
    ram_file: Path
    console: Path
    control_socket: Path
    monitor_socket: Path
    results: Path
    topology: str = "cxl"
    port_socket: Path | None = None  # the switch's, None without a switch
    shell_socket: Path | None = None
    icount: bool = False
    tsc_khz: int | None = None
    append: str = ""
    disks: list[Disk] = field(default_factory=list)
    accelerators: list[Path] = field(default_factory=list)  # their sockets
    pool_socket: Path | None = None  # of the window to the switch's pool (mode cxl)
    extra: list[str] = field(default_factory=list)


def command(m: Machine) -> list[str]:
    return [
        "qemu-system-x86_64", "-name", m.name, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        *_processor(m), *_memory(m), *_boot(m), *_channels(m), *_shares(m), *_fabric(m), *_accelerators(m), *_pool(m), *_disks(m), *m.extra,
    ]  # fmt: skip


def _processor(m: Machine) -> list[str]:
    if m.accel == "kvm":
        return ["-accel", "kvm", "-cpu", "host", "-smp", str(m.cpus)]
    if m.icount:  # one instruction is one nanosecond of guest time
        return ["-accel", "tcg,thread=single", "-icount", "shift=0", "-cpu", "max", "-smp", "1"]
    # With room for no second CPU, TCG leaves the guest's memory barriers out: fine between a guest's own CPUs, but the switch is another
    # process.  Its doorbells and the guest's interrupts were lost that way, and the interface was dead.
    # QEMU 7.2's cmpxchg16b leaves garbage in the flags (docs/known-faults.md), and Linux takes it for each piece of memory.
    return ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max,-cx16", "-smp", f"{m.cpus},maxcpus={max(2, m.cpus)}"]


def _memory(m: Machine) -> list[str]:
    backend = f"memory-backend-file,id=ram,size={m.mem_mb}M,mem-path={m.ram_file},share=on"
    cxl = ",cxl=on" if m.port_socket and m.topology == "cxl" else ""
    return ["-M", f"q35,memory-backend=ram{cxl}", "-m", f"{m.mem_mb}M", "-object", backend]


def _boot(m: Machine) -> list[str]:
    tsc = f"tsc_early_khz={m.tsc_khz} " if m.tsc_khz and m.accel == "tcg" and not m.icount else ""
    append = f"{CMDLINE} {tsc}{m.append} {os.environ.get('NUPA_APPEND', '')}".strip()
    return ["-kernel", str(m.image), "-initrd", str(m.initrd), "-append", append]


def _in_option(path: Path) -> str:
    """A path as part of an option's list of values."""
    return str(path).replace(",", ",,")


def _channels(m: Machine) -> list[str]:
    args = ["-chardev", f"file,id=console,path={_in_option(m.console)}", "-serial", "chardev:console", "-device", "virtio-serial-pci,id=ser"]
    args += ["-chardev", f"socket,id=ctl,path={m.control_socket}", "-device", "virtserialport,chardev=ctl,name=nupa.ctl"]
    args += ["-qmp", f"unix:{m.monitor_socket},server=on,wait=off"]
    if m.shell_socket:
        args += ["-chardev", f"socket,id=shell,path={m.shell_socket},server=on,wait=off", "-device", "virtconsole,chardev=shell"]
    return args


def _shares(m: Machine) -> list[str]:
    common = "security_model=none,multidevs=remap"
    return [
        "-fsdev", f"local,id=root,path=/,readonly=on,{common}", "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
        "-fsdev", f"local,id=results,path={_in_option(m.results)},{common}", "-device", "virtio-9p-pci,fsdev=results,mount_tag=results",
    ]  # fmt: skip


def _fabric(m: Machine) -> list[str]:
    if not m.port_socket:
        return []
    args = ["-chardev", f"socket,path={m.port_socket},id=port"]
    device = f"ivshmem-doorbell,id=nupa,vectors={NUPA_VECTORS},chardev=port"
    if m.topology == "cxl":
        return [*args, *CXL_SWITCH, "-device", f"{device},bus={PORT_BUS}"]
    if m.topology == "slot":
        return [*args, "-device", f"pcie-root-port,id={PORT_BUS},chassis=0,slot=5", "-device", f"{device},bus={PORT_BUS}"]
    return [*args, "-device", device]


def _accelerators(m: Machine) -> list[str]:
    args = []
    for n, socket in enumerate(m.accelerators):
        args += ["-chardev", f"socket,path={socket},id=accel-port{n}", "-device", f"pcie-root-port,id=accel-slot{n},bus=pcie.0,chassis=1,slot={n}"]
        args += ["-device", f"ivshmem-doorbell,id=accel{n},vectors={ACCEL_VECTORS},chardev=accel-port{n},bus=accel-slot{n}"]
    return args


def _pool(m: Machine) -> list[str]:
    if not m.pool_socket:
        return []
    return [
        "-chardev", f"socket,path={m.pool_socket},id=pool-port", "-device", "pcie-root-port,id=pool-slot,bus=pcie.0,chassis=2,slot=0",
        "-device", f"ivshmem-doorbell,id=pool,vectors={ACCEL_VECTORS},chardev=pool-port,bus=pool-slot",
    ]  # fmt: skip


def _disks(m: Machine) -> list[str]:
    args = []
    for n, disk in enumerate(m.disks):
        access = "readonly=off" if disk.writable else "readonly=on"
        args += ["-drive", f"if=none,id=disk{n},format=raw,cache=writeback,{access},file={_in_option(disk.path)}"]
        args += ["-device", f"virtio-blk-pci,drive=disk{n},bus=pcie.0"]
    return args
