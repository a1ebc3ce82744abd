# SPDX-License-Identifier: BSD-3-Clause
"""Files that are compiled together (CMake's unity builds) mean by a constant's name what they mean alone.

Most names that two files have are an error of the compiler.  One is not: a constant of one file's unnamed namespace, and in another
file the same name of a header.  There, an unnamed namespace of its own finds the first file's.
"""

import re
from pathlib import Path

from harness.report import Report

NAME = "arrows/constants of files compiled together"
DECLARATION = re.compile(r"^(?:constexpr|const)\b[^;]*;", re.M)  # at the beginning of a line: no class's, no function's
DECLARED = re.compile(r"\b(k[A-Z]\w*)\s*[={[]")
USED = re.compile(r"(?<![\w.:>])k[A-Z]\w*")
COMMENT = re.compile(r"//.*")


def run(report: Report, build: Path, wanted) -> None:
    together = sorted(build.rglob("Unity/unity_*.cxx"))
    if not wanted(NAME) or not together:
        return
    found = [problem for unity in together for problem in problems({path: _code(path) for path in sources(unity)})]
    if found:
        report.failed(NAME, "\n".join(found))
    else:
        report.passed(NAME)


def sources(unity: Path) -> list[str]:
    """The files that one of CMake's joins."""
    return re.findall(r'#include "([^"]+)"', unity.read_text())


def problems(texts: dict[str, str]) -> list[str]:
    declared = {path: _declared(text) for path, text in texts.items()}
    # A name that a file declares anywhere is its own there.
    borrowed = {path: set(USED.findall(text)) - set(DECLARED.findall(text)) for path, text in texts.items()}
    return [
        f"{name} of {one} is what {other} finds, too: give it another name"
        for one in texts for other in texts if one != other for name in sorted(declared[one] & borrowed[other])
    ]  # fmt: skip


def _code(path: str) -> str:
    return COMMENT.sub("", Path(path).read_text())


def _declared(text: str) -> set[str]:
    return {name for declaration in DECLARATION.findall(text) for name in DECLARED.findall(declaration)}
