# SPDX-License-Identifier: BSD-3-Clause
"""Checks of Markdown documents: relative links lead somewhere, lines fit, C examples fit narrower; README.md leaves nothing out."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

COLUMNS = 100
EXAMPLE_COLUMNS = 80
# ](target) of links and images, and [name]: target of definitions
LINK = re.compile(r"\]\(<?([^()\s<>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)")
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")
CODE_SPAN = re.compile(r"(`+)(?:(?!\1).)+\1")
URL = re.compile(r"\S*https?://\S+")
HEADING = re.compile(r"#{1,6} +(.*?) *#* *$")
FENCE = re.compile(r" *(```+|~~~+) *(\w*)")
# Folders whose own folders README.md names one by one.
DEEP = ("kernel", "tools", "user")


def problems(path: Path, root: Path) -> list[str]:
    """What is wrong with the document, a line each."""
    found = []
    for number, line, language in _lines(path):
        where = f"{path.relative_to(root)}:{number}"
        if language is None:
            found += [f"{where}: {what}" for what in _links(line, path, root)]
        limit = _limit(line, language)
        if limit and len(line) > limit:
            found.append(f"{where}: {len(line)} columns, and not {limit}")
    return found


def unnamed(readme: str, files: list[Path]) -> list[str]:
    """Folders, and pages of docs/, that README.md does not name."""
    folders = {file.parent.parts[: 2 if file.parts[0] in DEEP else 1] for file in files if not str(file).startswith(".")} - {()}
    found = [f"README.md does not name {'/'.join(parts)}/" for parts in sorted(folders) if not _names(readme, parts)]
    pages = [file for file in files if file.parts[0] == "docs" and file.suffix == ".md" and (len(file.parts) == 2 or file.name == "README.md")]
    return found + [f"README.md does not name {page}" for page in pages if f"]({page})" not in readme]


def _names(readme: str, parts: tuple[str, ...]) -> bool:
    """Those of user/ are in its row, without it."""
    return f"`{'/'.join(parts)}/" in readme or (parts[0] == "user" and f"`{parts[-1]}/" in readme)


def _lines(path: Path) -> Iterator[tuple[int, str, str | None]]:
    """Number, text, and the language of the code block that the line is in, or None."""
    fence, language = "", None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark = FENCE.match(line)
        if mark and not fence:
            fence, language = mark[1], mark[2]
        elif mark and mark[1].startswith(fence) and not mark[2]:
            fence, language = "", None
            continue
        yield number, line, language


def _limit(line: str, language: str | None) -> int:
    """Columns that the line may have; 0: any number.  A table's row can't be wrapped, nor can a URL."""
    if language is not None:
        return EXAMPLE_COLUMNS if language == "c" else 0
    return 0 if line.startswith("|") or line.startswith("    ") or URL.search(line) else COLUMNS


def _links(line: str, path: Path, root: Path) -> Iterator[str]:
    for found in LINK.finditer(CODE_SPAN.sub("", line)):
        target = found[1] or found[2]
        if SCHEME.match(target):
            continue
        name, _, anchor = target.partition("#")
        to = (path.parent / name).resolve() if name else path.resolve()
        if not to.is_relative_to(root.resolve()):
            yield f"{target}: outside of the repository"
        elif not to.exists():
            yield f"{target}: no such file"
        elif anchor and to.suffix == ".md" and anchor not in _anchors(to):
            yield f"{target}: no such heading"


@cache
def _anchors(path: Path) -> frozenset[str]:
    """Headings as GitHub names them; a second one of the same name has -1 behind it."""
    anchors: list[str] = []
    for _, line, language in _lines(path):
        heading = HEADING.match(line) if language is None else None
        if heading:
            plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower())
            name = plain.replace(" ", "-")
            again = sum(a == name or re.fullmatch(re.escape(name) + r"-\d+", a) is not None for a in anchors)
            anchors.append(f"{name}-{again}" if again else name)
    return frozenset(anchors)
