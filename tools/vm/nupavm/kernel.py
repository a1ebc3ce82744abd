# SPDX-License-Identifier: BSD-3-Clause
"""The kernel that guests boot: Debian's, unpacked once, since unpacking it in every guest costs a second under TCG."""

import gzip
import lzma
import shutil
import struct
import subprocess
from pathlib import Path

from .paths import VM_BUILD

# Offsets in the boot header, Documentation/arch/x86/boot.rst
SETUP_SECTORS = 0x1F1
MAGIC = 0x202
PAYLOAD = 0x248
SECTOR_BYTES = 512


def bootable(image: Path) -> Path:
    """Path of the bare ELF kernel inside the image, or the image itself if it can't be unpacked here."""
    out = VM_BUILD / f"vmlinux-{image.name}"
    if out.exists() and out.stat().st_mtime >= image.stat().st_mtime:
        return out
    kernel = _unpack(image.read_bytes())
    if not kernel.startswith(b"\x7fELF"):
        return image
    VM_BUILD.mkdir(parents=True, exist_ok=True)
    partial = out.with_suffix(f".{id(kernel)}")
    partial.write_bytes(kernel)
    partial.rename(out)
    return out


def _unpack(image: bytes) -> bytes:
    if image[MAGIC : MAGIC + 4] != b"HdrS":
        return b""
    start, length = struct.unpack_from("<II", image, PAYLOAD)
    start += (image[SETUP_SECTORS] + 1) * SECTOR_BYTES
    payload = image[start : start + length]
    if payload.startswith(b"\x28\xb5\x2f\xfd") and shutil.which("zstd"):
        packed = payload[:-4]  # the kernel's build appends the unpacked size
        return subprocess.run(["zstd", "-dcq"], input=packed, stdout=subprocess.PIPE, check=False).stdout
    if payload.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return gzip.decompress(payload)  # whose own trailer is the size
    return b""
