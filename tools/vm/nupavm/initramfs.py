# SPDX-License-Identifier: BSD-3-Clause
"""The guests' initramfs: busybox, guest/init, and the modules that mount the real root."""

import gzip
from pathlib import Path

from .modules import closure
from .paths import GUEST, VM_BUILD, SetupError, kernel_release

WANTED = ("overlay", "9p", "9pnet_virtio")
BUSYBOX = Path("/bin/busybox")


def initramfs(image: Path) -> Path:
    """Path of an up-to-date initramfs for this kernel; built when an input is newer."""
    release = kernel_release(image)
    out = VM_BUILD / f"initramfs-{release}.gz"
    inputs = [BUSYBOX, GUEST / "init", Path(__file__), image]
    if not BUSYBOX.exists():
        raise SetupError("no /bin/busybox: run `make deps` (package busybox-static)")
    if out.exists() and all(p.stat().st_mtime <= out.stat().st_mtime for p in inputs):
        return out
    VM_BUILD.mkdir(parents=True, exist_ok=True)
    modules = closure(image, WANTED)
    entries = [("bin", None), ("modules", None), ("dev", None)]
    entries += [("bin/busybox", BUSYBOX.read_bytes()), ("init", (GUEST / "init").read_bytes())]
    entries += [(f"modules/{name}", data) for name, data in modules]
    entries.append(("modules/order", "".join(f"{name}\n" for name, _ in modules).encode()))
    partial = out.with_suffix(f".{id(entries)}")
    partial.write_bytes(gzip.compress(_cpio(entries), compresslevel=1))
    partial.rename(out)
    return out


def _cpio(entries: list[tuple[str, bytes | None]]) -> bytes:
    """A newc archive; a None body is a directory."""
    out = bytearray()
    device = ("dev/console", 0o020600, (5, 1))
    for number, (name, body) in enumerate(entries, 1):
        mode = 0o040755 if body is None else 0o100755
        out += _member(number, name, mode, body or b"")
    out += _member(len(entries) + 1, device[0], device[1], b"", device[2])
    return bytes(out + _member(0, "TRAILER!!!", 0, b""))


def _member(inode: int, name: str, mode: int, body: bytes, rdev: tuple[int, int] = (0, 0)) -> bytes:
    raw = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(body), 0, 0, *rdev, len(raw), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + raw
    return head + bytes(-len(head) % 4) + body + bytes(-len(body) % 4)
