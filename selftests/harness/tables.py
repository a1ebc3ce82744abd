# SPDX-License-Identifier: BSD-3-Clause
"""Tables of documents have a row for all that is in the sources, and for nothing else."""

import re
from collections.abc import Callable
from pathlib import Path

from harness.report import Report

PARAMETER = re.compile(r"^module_param(?:_named)?\((\w+),", re.M)
DESCRIBED = re.compile(r"^MODULE_PARM_DESC\((\w+),", re.M)
PARAMETERS_HEADING = "\n## Module parameters\n"
PARAMETER_ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \|", re.M)
NAME = re.compile(r"`(\w+)`")


def run(report: Report, repo: Path, wanted: Callable[[str], bool]) -> None:
    for name, problems in (("tables/module parameters", parameter_problems), ("tables/guest tests", guest_test_problems)):
        if not wanted(name):
            continue
        if found := problems(repo):
            report.failed(name, "\n".join(found))
        else:
            report.passed(name)


def parameter_problems(repo: Path) -> list[str]:
    """Those of the modules beside docs/observing.md."""
    page = (repo / "docs/observing.md").read_text().partition(PARAMETERS_HEADING)[2].partition("\n## ")[0]
    said, there, described = set(PARAMETER_ROW.findall(page)), set(), set()
    for source in sorted((repo / "kernel").glob("*/**/*.c")):
        module, text = source.relative_to(repo / "kernel").parts[0], source.read_text()
        there |= {(module, name) for name in PARAMETER.findall(text)}
        described |= {(module, name) for name in DESCRIBED.findall(text)}
    found = [f"{module}: no MODULE_PARM_DESC of {name}" for module, name in sorted(there - described)]
    return found + _differences("docs/observing.md", {".".join(row) for row in said}, {".".join(pair) for pair in there})


def guest_test_problems(repo: Path) -> list[str]:
    """Files of selftests/vm beside the last column of its README.md."""
    rows = [line for line in (repo / "selftests/vm/README.md").read_text().splitlines() if line.startswith("| ")][1:]
    said = {name for row in rows for name in NAME.findall(row.rstrip(" |").rpartition("|")[2])}
    there = {path.stem for path in (repo / "selftests/vm").glob("*.py") if path.stem != "__init__"}
    return _differences("selftests/vm/README.md", said, there)


def _differences(page: str, said: set[str], there: set[str]) -> list[str]:
    return [f"{page} lacks {name}" for name in sorted(there - said)] + [f"{page} has {name}, which is not there" for name in sorted(said - there)]
