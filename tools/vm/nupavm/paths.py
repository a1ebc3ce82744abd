# SPDX-License-Identifier: BSD-3-Clause
"""Where things are on the host."""

import os
import struct
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
BUILD = REPO / "build"
VM_BUILD = BUILD / "vm"
GUEST = REPO / "tools" / "vm" / "guest"
REPO_IN_GUEST = Path("/run/nupa/repo")  # guest/init mounts it there, too: a path that needs no quotes
SWITCH_CANDIDATES = (
    BUILD / "cmake/tools/nupa_switch/daemon/nupa_switch",
    BUILD / "cmake/tools/nupa_switch/nupa_switch",
)

KERNEL_HEAD_BYTES = 64 << 10
KERNEL_VERSION = 0x20E


class SetupError(Exception):
    """The machine lacks something that a run needs."""


def kernel_image() -> Path:
    """The newest Debian 6.12 kernel; NUPA_KERNEL names another image."""
    chosen = os.environ.get("NUPA_KERNEL")
    if chosen:
        return Path(chosen)
    images = sorted(Path("/boot").glob("vmlinuz-6.12.*"), key=_version)
    if not images:
        raise SetupError("no /boot/vmlinuz-6.12*: run `make deps` (package linux-image-6.12-amd64)")
    return images[-1]


def kernel_release(image: Path) -> str:
    """What `uname -r` will say, from the boot header (Documentation/arch/x86/boot.rst, kernel_version)."""
    with image.open("rb") as file:
        head = file.read(KERNEL_HEAD_BYTES)
    (at,) = struct.unpack_from("<H", head, KERNEL_VERSION)
    return head[at + 0x200 :].split(b"\0")[0].split()[0].decode()


def module_tree(image: Path) -> Path:
    """Where that kernel's own modules are: beside it if its package was only unpacked, else this machine's."""
    release = kernel_release(image)
    beside = image.parent.parent / "usr/lib/modules" / release
    return beside if beside.is_dir() else Path("/lib/modules") / release


def module_dir() -> Path:
    """Where our own modules are, built for that kernel; NUPA_MODULES names another place."""
    return Path(os.environ.get("NUPA_MODULES", BUILD / "kernel"))


def look_for_modules(names: list[str]) -> None:
    for path in (module_dir() / name / f"{name}.ko" for name in names):
        if not path.is_file():
            raise SetupError(f"{path} is not built: run `make kernel`, or use --setup auto")


def in_guest(path: Path) -> Path:
    """Where a guest has what is there on the host."""
    return REPO_IN_GUEST / path.relative_to(REPO) if path.is_relative_to(REPO) else path


def slowness() -> float:
    """How much longer everything may take than on Debian's kernel: NUPA_SLOWNESS."""
    return float(os.environ.get("NUPA_SLOWNESS", 1))


def switch_binary() -> Path:
    chosen = os.environ.get("NUPA_SWITCH")
    for path in (Path(chosen),) if chosen else SWITCH_CANDIDATES:
        if path.is_file():
            return path
    raise SetupError("nupa_switch is not built: run `make all`, or use --no-switch")


def accelerator_binary() -> Path:
    path = BUILD / "cmake/tools/nupa_accel/nupa_accel"
    if not path.is_file():
        raise SetupError("nupa_accel is not built: run `make all`")
    return path


def _version(path: Path) -> list[int]:
    digits = "".join(c if c.isdigit() else " " for c in path.name.split("+")[0])
    return [int(word) for word in digits.split()]
