#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""clang-tidy over C++ that is built, and of that only what changed since it was clean.

A file is clean under a key: its text, that of every file of ours it includes, its compiler command, the checks and the tool's
version.  Keys of clean files are kept in build/lint/tidy; remove it, and all are looked at again.
"""

import fnmatch
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from harness import unity
from harness.report import Report

REPO = Path(__file__).resolve().parent.parent.parent
# The fuzzers have a build of their own, by clang.
BUILDS = (REPO / "build/cmake", REPO / "build/cmake/selftests/fuzz/build")
KEYS = REPO / "build/lint/tidy"


def run(report: Report) -> None:
    if not (BUILDS[0] / "compile_commands.json").is_file():
        report.skipped("lint/clang-tidy", "nothing is built: run `make all`")
        return
    found = problems(["*"])
    if found:
        report.failed("lint/clang-tidy", f"{len(found)} files\n" + "\n".join(found))
    else:
        report.passed("lint/clang-tidy")


def problems(patterns: list[str]) -> list[str]:
    sources = {file: unit for file, unit in units().items() if any(fnmatch.fnmatch(file, pattern) for pattern in patterns)}
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return [text for text in pool.map(lambda item: _look(*item), sorted(sources.items())) if text]


def units() -> dict[str, tuple[str, list[str]]]:
    """Of each source of ours: the compiler's command, and what of ours it includes."""
    tracked = set(subprocess.run(["git", "ls-files", "*.cpp", "*.cc"], cwd=REPO, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines())
    found: dict[str, tuple[str, list[str]]] = {}
    for build in BUILDS:
        if not (build / "compile_commands.json").is_file():
            continue
        included = _included(build)
        for entry in json.loads((build / "compile_commands.json").read_text()):
            for source in _sources(entry["file"]):
                file = os.path.relpath(source, REPO)
                if file in tracked and file not in found:
                    found[file] = (entry["command"].replace(entry["file"], source), included.get(entry.get("output", ""), []))
    return found


def _sources(compiled: str) -> list[str]:
    """Of what the compiler is given: itself, or the files that it joins (CMake's unity builds)."""
    if Path(compiled).parent.name != "Unity":
        return [compiled]
    return unity.sources(Path(compiled))


def _options(command: str) -> list[str]:
    """Of a compiler's command: what it says about the language, and where headers are."""
    words = shlex.split(command)
    headers = [part for option, path in zip(words, words[1:]) if option in ("-isystem", "-include") for part in (option, path)]
    return [word for word in words if re.match(r"-[IDUWfO]|-std=", word)] + headers


def _included(build: Path) -> dict[str, list[str]]:
    """What ninja knows of each object: "OBJECT: #deps ...", then a file on each line."""
    listing = subprocess.run(["ninja", "-C", build, "-t", "deps"], stdout=subprocess.PIPE, text=True, check=False).stdout
    found: dict[str, list[str]] = {}
    files: list[str] = []
    for line in listing.splitlines():
        if line.startswith(" "):
            path = os.path.normpath(build / line.strip())
            if path.startswith(f"{REPO}/"):
                files.append(path)
        elif ": #deps" in line:
            files = found.setdefault(line.split(": #deps")[0], [])
    return found


@cache
def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return "gone"


@cache
def _tool() -> str:
    return subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout + _digest(str(REPO / ".clang-tidy"))


def _look(file: str, unit: tuple[str, list[str]]) -> str:
    command, included = unit
    parts = [_tool(), command, _digest(str(REPO / file)), *(f"{path} {_digest(path)}" for path in sorted(included))]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    kept = KEYS / file.replace("/", "%")
    if kept.is_file() and kept.read_text() == key:
        return ""
    argv = ["clang-tidy", "--quiet", file, "--", *_options(command)]
    done = subprocess.run(argv, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    if done.returncode:
        kept.unlink(missing_ok=True)
        return done.stdout
    KEYS.mkdir(parents=True, exist_ok=True)
    kept.write_text(key)
    return ""


def main() -> int:
    """tidy.py [PATTERN ...]: of all files, or those that match one."""
    found = problems(sys.argv[1:] or ["*"])
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
