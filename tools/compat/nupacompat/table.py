# SPDX-License-Identifier: BSD-3-Clause
"""How outcomes are shown."""

from .pair import Outcome


def table(outcomes: list[Outcome]) -> str:
    """A line for each command, the engines side by side."""
    engines = list(dict.fromkeys(o.engine for o in outcomes))
    cells: dict[str, dict[str, str]] = {}
    for o in outcomes:
        cells.setdefault(o.command, {})[o.engine] = o.figure if o.ok else "FAILED"
    rows = [("command", *engines), *((command, *(by.get(e, "") for e in engines)) for command, by in cells.items())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(engines) + 1)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
