# SPDX-License-Identifier: BSD-3-Clause
"""Debian's kernel modules, unpacked once on the host: unpacking xz in every guest costs seconds under TCG."""

import gzip
import lzma
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from .paths import VM_BUILD, SetupError, kernel_release, module_tree

# What guest/setup loads before our own modules.
FOR_SETUP = ("ib_uverbs", "rdma_ucm")


def unpacked(image: Path) -> Path:
    """A directory with the modules of FOR_SETUP and what they need, and their load order in the file "order"."""
    release = kernel_release(image)
    out = VM_BUILD / f"modules-{release}"
    order = out / "order"
    if order.exists() and order.stat().st_mtime >= max(image.stat().st_mtime, Path(__file__).stat().st_mtime):
        return out
    out.mkdir(parents=True, exist_ok=True)
    modules = closure(image, FOR_SETUP)
    for name, data in modules:
        (out / name).write_bytes(data)
    order.write_text("".join(f"{name}\n" for name, _ in modules))
    return out


def closure(image: Path, wanted: Iterable[str]) -> list[tuple[str, bytes]]:
    """(file name, contents) of the wanted modules and what they need, in load order."""
    found: dict[str, bytes] = {}
    tree = module_tree(image)
    if not tree.is_dir():  # a kernel that has everything built in
        return []
    index = dict(line.split(":", 1) for line in (tree / "modules.dep").read_text().splitlines())
    by_name = {_stem(path): path for path in index}
    for name in wanted:
        path = by_name.get(name)
        if path is None:  # built in
            continue
        for item in [*reversed(index[path].split()), path]:
            found.setdefault(f"{_stem(item)}.ko", _unpack(tree / item))
    return list(found.items())


def _stem(path: str) -> str:
    return Path(path).name.split(".ko")[0]


def _unpack(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        if not shutil.which("zstd"):
            raise SetupError(f"{path}: needs the zstd program")
        return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data
