# SPDX-License-Identifier: BSD-3-Clause
"""Includes between folders of tools/ and of user/ are the arrows that ARCHITECTURE.md draws, and they go round in no circle."""

import re
from pathlib import Path

from harness.report import Report

# Where the compiler looks for what is included by a name in quotes, after the file's own folder.
ROOTS = {
    "tools/nupa_switch": ("tools/nupa_switch/daemon", "tools/nupa_switch", "user", "include"),
    "tools": ("tools/nupa_switch/daemon", "tools", "user/libtcpqp/include", "user", "include"),
    "user": ("user/libtcpqp/src", "user/libtcpqp/include", "user/tcpqp_run", "user", "include"),
}
# Not part of the picture of the tree that they are in.
APART = (
    "user/libtcpqp/examples",  # they are an application's: the installed header and nothing else
    "tools/nupa_switch",  # has a picture of its own
)

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
ARROW = re.compile(r"^ {2}(\S+) +-> ?(.*(?:\n {4}.*)*)$", re.M)  # its targets may go on in lines that are indented more


def run(report: Report, repo: Path, wanted) -> None:
    for tree, roots in ROOTS.items():
        name = f"arrows/{tree.split('/')[-1]} includes"
        if wanted(name):
            problems = check(repo, tree, roots)
            if problems:
                report.failed(name, "\n".join(problems))
            else:
                report.passed(name)


def check(repo: Path, tree: str, roots: tuple[str, ...]) -> list[str]:
    drawn = picture((repo / "ARCHITECTURE.md").read_text(), tree)
    found, problems = arrows(repo, tree, roots)
    for source in sorted(found.keys() | drawn.keys()):
        if source not in drawn:
            problems.append(f"{source} is not in the picture of ARCHITECTURE.md")
            continue
        if source not in found:
            problems.append(f"{source} is in the picture of ARCHITECTURE.md, and no folder with C++")
            continue
        for target in sorted(found[source].keys() - drawn[source]):
            problems.append(f"{found[source][target]} includes a file of {target}: {source} has no such arrow in ARCHITECTURE.md")
        for target in sorted(drawn[source] - found[source].keys()):
            problems.append(f"{source} -> {target} in ARCHITECTURE.md: nothing is included that way any more")
    return problems + circles(found)


def picture(text: str, tree: str) -> dict[str, set[str]]:
    """The block of ARCHITECTURE.md whose first line names @tree; folders are relative to it, or begin with a slash."""
    block = re.search(rf"^arrows of {re.escape(tree)}:\n(.*?)^```", text, re.M | re.S)
    if not block:
        return {}

    def folder(word: str) -> str:
        return word[1:] if word.startswith("/") else f"{tree}/{word}"

    return {folder(source): {folder(word) for word in targets.split()} for source, targets in ARROW.findall(block[1])}


def arrows(repo: Path, tree: str, roots: tuple[str, ...]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Of each folder, the others that it includes, each with one file that does; and what is included that is nowhere."""
    found: dict[str, dict[str, str]] = {}
    problems = []
    for path in sorted(p for p in (repo / tree).rglob("*") if p.suffix in (".cpp", ".hpp", ".c", ".h")):
        file = path.relative_to(repo)
        source = str(file.parent)
        if any(apart != tree and file.is_relative_to(apart) for apart in APART):
            continue
        targets = found.setdefault(source, {})
        for name in INCLUDE.findall(path.read_text()):
            at = next((root for root in (source, *roots) if (repo / root / name).is_file()), None)
            if at is None:
                problems.append(f"{file}: {name} is nowhere below {', '.join(roots)}")
                continue
            target = str((Path(at) / name).parent)
            if target != source and not target.startswith("include/"):
                targets.setdefault(target, str(file))
    return found, problems


def circles(found: dict[str, dict[str, str]]) -> list[str]:
    """Takes away what includes nothing that is left, again and again; what stays goes round."""
    left = {source: set(targets) for source, targets in found.items()}
    while ends := [folder for folder, targets in left.items() if not targets & left.keys()]:
        for folder in ends:
            del left[folder]
    return [f"these include each other in a circle: {', '.join(sorted(left))}"] if left else []
