# SPDX-License-Identifier: BSD-3-Clause
"""Calls and includes between the rooms of kernel/tcp_qp point down, from what is built on something to that something."""

import re
import subprocess
from pathlib import Path

from harness.report import Report

# From the bottom to the top: a room uses those before it.  ARCHITECTURE.md draws them from the top.
ROOMS = ("wire", "object", "conn", "memory", "offload", "stream", "tx", "handshake", "rx", "ud", "socket", "control", "hello", "cm", "number", "device")

# What still points up: (symbol, from, to).  An entry that is not needed any more is a failure, too.
KNOWN_CALLS: set[tuple[str, str, str]] = set()

# The same of includes: (file, header).
KNOWN_INCLUDES: set[tuple[str, str]] = set()

DEFINED = "TDBRVWAGSC"  # nm(1): a symbol that others may use
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z_]+)/([^"]+)"', re.M)
PICTURE = re.compile(r"^rooms of kernel/tcp_qp:\n(.*?)^```", re.M | re.S)
DRAWN = re.compile(r"^ {2}([a-z]\S*) ", re.M)


def run(report: Report, repo: Path, wanted) -> None:
    sources, built = repo / "kernel/tcp_qp", repo / "build/kernel/tcp_qp"
    if wanted("arrows/kernel includes"):
        _tell(report, "arrows/kernel includes", strangers(sources) + include_problems(sources))
    if wanted("arrows/kernel picture"):
        _tell(report, "arrows/kernel picture", picture_problems((repo / "ARCHITECTURE.md").read_text()))
    if not wanted("arrows/kernel calls"):
        return
    if not (built / "tcp_qp.o").is_file():
        report.skipped("arrows/kernel calls", "no objects in build/kernel: run `make kernel`")
    else:
        _tell(report, "arrows/kernel calls", call_problems(sources, built))


def _tell(report: Report, name: str, problems: list[str]) -> None:
    if problems:
        report.failed(name, "\n".join(problems))
    else:
        report.passed(name)


def up(source: str, target: str) -> bool:
    return ROOMS.index(target) > ROOMS.index(source)


def strangers(sources: Path) -> list[str]:
    """Files that are in no room of ours."""
    files = sorted(p.relative_to(sources) for p in sources.rglob("*.[ch]"))
    return [f"{file}: in no room that arrows.py knows" for file in files if len(file.parts) != 2 or file.parts[0] not in ROOMS]


def picture_problems(text: str) -> list[str]:
    block = PICTURE.search(text)
    drawn, rooms = tuple(DRAWN.findall(block[1])) if block else (), ROOMS[::-1]
    return [] if drawn == rooms else [f"ARCHITECTURE.md draws {' '.join(drawn)}, and the rooms are {' '.join(rooms)}"]


def include_problems(sources: Path) -> list[str]:
    found = set()
    for room in ROOMS:
        for path in sorted((sources / room).glob("*.[ch]")):
            for target, header in INCLUDE.findall(path.read_text()):
                if target in ROOMS and up(room, target):
                    found.add((f"{room}/{path.name}", f"{target}/{header}"))
    return [f"{file} includes {header}, which is above it" for file, header in sorted(found - KNOWN_INCLUDES)] + [
        f"{file} does not include {header} any more: take that out of KNOWN_INCLUDES" for file, header in sorted(KNOWN_INCLUDES - found)
    ]


def call_problems(sources: Path, built: Path) -> list[str]:
    owners, uses, problems = {}, [], []
    for room in ROOMS:
        for source in sorted((sources / room).glob("*.c")):
            made = built / room / f"{source.stem}.o"
            if not made.is_file() or made.stat().st_mtime < source.stat().st_mtime:
                problems.append(f"{room}/{source.name} is not built as it is now: run `make kernel`")
                continue
            for symbol, kind in _symbols(made):
                if kind == "U":
                    uses.append((symbol, room, source.name))
                elif kind in DEFINED:
                    owners[symbol] = room
    found = {}
    for symbol, room, name in uses:
        if symbol in owners and up(room, owners[symbol]):
            found.setdefault((symbol, room, owners[symbol]), name)
    problems += [f"{edge[1]}/{found[edge]} uses {edge[0]} of {edge[2]}/, which is above it" for edge in sorted(found.keys() - KNOWN_CALLS)]
    if not problems:
        problems = [f"{a}/ does not use {symbol} of {b}/ any more: take that out of KNOWN_CALLS" for symbol, a, b in sorted(KNOWN_CALLS - found.keys())]
    return problems


def _symbols(made: Path) -> list[tuple[str, str]]:
    listing = subprocess.run(["nm", "-P", made], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [(words[0], words[1]) for words in map(str.split, listing.splitlines()) if len(words) > 1]
