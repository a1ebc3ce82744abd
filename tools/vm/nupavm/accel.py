# SPDX-License-Identifier: BSD-3-Clause
"""Finds out whether KVM really runs a kernel here: a /dev/kvm that opens may still hang one."""

import json
import os
import subprocess
import time
from pathlib import Path

from .initramfs import initramfs
from .kernel import bootable
from .paths import VM_BUILD
from .process import Children

PROBE_S = 8.0
KVM = Path("/dev/kvm")


def pick(image: Path, wanted: str, say) -> str:
    """The accelerator to use: "kvm" or "tcg"; wanted may also be "auto"."""
    if wanted != "auto":
        return wanted
    if not os.access(KVM, os.R_OK | os.W_OK):
        return "tcg"
    return "kvm" if _cached_probe(image, say) else "tcg"


def _cached_probe(image: Path, say) -> bool:
    cache = VM_BUILD / "kvm.json"
    key = [str(image), image.stat().st_mtime, Path("/proc/sys/kernel/random/boot_id").read_text().strip()]
    try:
        known = json.loads(cache.read_text())
        if known["key"] == key:
            return known["usable"]
    except (OSError, ValueError, KeyError):
        pass
    say("probing KVM with a short boot (once)")
    usable = _probe(image)
    say("KVM works" if usable else "KVM does not run a guest here: using TCG")
    cache.write_text(json.dumps({"key": key, "usable": usable}))
    return usable


def _probe(image: Path) -> bool:
    children = Children()
    argv = ["qemu-system-x86_64", "-M", "q35", "-accel", "kvm", "-cpu", "host", "-m", "256M", "-nodefaults", "-display", "none"]
    argv += ["-no-reboot", "-serial", "stdio", "-kernel", bootable(image), "-initrd", initramfs(image)]
    argv += ["-append", "console=ttyS0 panic=-1 rdinit=/init nupa.probe"]
    try:
        child = children.start(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return _says_ok(child, time.monotonic() + PROBE_S)
    except OSError:
        return False
    finally:
        children.stop_all()


def _says_ok(child: subprocess.Popen, deadline: float) -> bool:
    os.set_blocking(child.stdout.fileno(), False)
    seen = b""
    while time.monotonic() < deadline:
        chunk = child.stdout.read()
        if chunk == b"":
            return False
        seen += chunk or b""
        if b"nupa-init: probe ok" in seen:
            return True
        time.sleep(0.05)
    return False
