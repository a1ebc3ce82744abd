# SPDX-License-Identifier: BSD-3-Clause
"""bench.json, and the tables on the terminal."""

import json
import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

from .bars import Bar
from .cases import KIB, MIB, MIDDLE_SIZES, MIXED_BYTES, PLAIN, Case
from .figures import Book, Row

COLUMNS = ("", "Gb/s", "spread", "tx instr/B", "rx instr/B", "copies tx", "copies rx", "calls/MiB tx", "rx", "irq/MiB tx", "rx", "packets/MiB rx")


def size(count: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


def label(case: Case) -> str:
    parts = [case.transport, f"{'up to ' if case.mixed else ''}{size(case.bytes)}"]
    if case.flows > 1:
        parts.append(f"{case.flows} flows")
    if case.mtu != 1500:
        parts.append(f"MTU {case.mtu}")
    if not case.big:
        parts.append("64 KB bursts")
    if case.short:
        parts.append("short buffers")
    if case.fresh:
        parts.append("fresh")
    if case.pool:
        parts.append("buffers in the pool")
    if case.watch:
        parts.append("rings watched")
    if case.loss:
        parts.append(f"loss {case.loss:.1%}")
    if case.scattered:
        parts.append("scattered")
    if case.mode != "stream":
        parts.append("polling" if case.poll else "sleeping")
    if case.defer:
        parts.append("interrupts deferred")
    return ", ".join(parts)


def cell(value: float | None, form: str = ".3g") -> str:
    return "-" if value is None else f"{value:{form}}"


def grid(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _together(book: Book) -> dict[str, list[Row]]:
    """Rows that differ only in how they were counted belong to one line."""
    lines: dict[str, list[Row]] = {}
    for case, row in book.rows.items():
        lines.setdefault(label(case), []).append(row)
    return lines


def _first(rows: list[Row], figure: str) -> float | None:
    return next((value for row in rows if (value := row.median(figure)) is not None), None)


def _spread(rows: list[Row]) -> str:
    values = [turn["gbps"] for row in rows for turn in row.turns if "gbps" in turn]
    return f"{min(values):.2g}-{max(values):.2g}" if values else "-"


def stream_table(book: Book) -> str:
    out = [COLUMNS]
    for name, rows in _together(book).items():
        if rows[0].case.mode != "stream":
            continue
        if not any(row.turns for row in rows):
            out.append((name, "FAILED", *[""] * (len(COLUMNS) - 2)))
            continue
        words = ("instructions_per_byte", "copies_per_byte", "calls_per_mib", "interrupts_per_mib")
        counts = [cell(_first(rows, f"{end}_{word}")) for word in words for end in ("tx", "rx")]
        out.append((name, cell(_first(rows, "gbps")), _spread(rows), *counts, cell(_first(rows, "rx_packets_per_mib"))))
    return grid(out)


def beside(case: Case) -> tuple:
    """What plain TCP must share with a row to stand beside it."""
    return case.bytes, case.mixed, case.scattered, case.flows, case.mtu, case.big, case.short, case.fresh, case.loss, case.mode, case.poll, case.clock


def best_tcp(book: Book, case: Case, figure: str, better: Callable = min) -> tuple[str, float] | None:
    """Plain TCP at its best beside @case, by name."""
    there = [(c.transport, value) for c, row in book.rows.items()
             if c.transport in PLAIN and beside(c) == beside(case) and (value := row.median(figure)) is not None]  # fmt: skip
    return better(there, key=lambda one: one[1]) if there else None


def over_best(book: Book, case: Case, figure: str, better: Callable = min) -> str:
    """The row's figure over plain TCP's at its best, which is named."""
    mine, best = book.rows[case].median(figure), best_tcp(book, case, figure, better)
    return "-" if mine is None or best is None or not best[1] else f"{mine / best[1]:.2f} {best[0]}"


def message_table(book: Book) -> str:
    """By message, each beside the best of plain TCP: instructions where they were counted, Gb/s where it was timed."""
    out = [("by message", "Gb/s", "over best", "tx instr", "over best", "rx instr", "over best")]
    for name, rows in _together(book).items():
        if rows[0].case.mode != "stream" or rows[0].case.bytes not in (*MIDDLE_SIZES, MIXED_BYTES) or not any(row.turns for row in rows):
            continue
        cells: dict[str, tuple[str, str]] = {}
        for figure, better in (("gbps", max), ("tx_instructions_per_message", min), ("rx_instructions_per_message", min)):
            row = next((row for row in rows if row.median(figure) is not None), None)
            form = ".4g" if figure == "gbps" else ",.0f"
            cells[figure] = ("-", "-") if row is None else (cell(row.median(figure), form), over_best(book, row.case, figure, better))
        out.append((name, *(text for pair in cells.values() for text in pair)))
    return grid(out)


def latency_table(book: Book) -> str:
    out = [("round trip", "p50 us", "p99 us", "p99.9 us", "tx instr", "rx instr")]
    for name, rows in _together(book).items():
        if rows[0].case.mode == "pingpong":
            times = [cell(_first(rows, f"rtt_{p}_us"), ".4g") for p in ("p50", "p99", "p999")]
            out.append((name, *times, *(cell(_first(rows, f"{end}_instructions_per_message"), ".5g") for end in ("tx", "rx"))))
    return grid(out)


def other_table(book: Book) -> str:
    lines = []
    for row in book.more:
        kind = next(iter(row))
        facts = ", ".join(f"{key} {value}" for key, value in row.items() if key != kind)
        lines.append(f"{kind} {row[kind]}: {facts}")
    return "\n".join(lines)


def bars_table(bars: list[Bar]) -> str:
    rows = [("bar", "value", "bound", "")]
    rows += [(f"{b.what}, {b.sense}", cell(b.value), f"{b.bound:.3g}", "holds" if b.ok else "DOES NOT HOLD") for b in bars]
    return grid(rows)


def commit(repo: Path) -> str:
    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", repo, *args], capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "HEAD") + (" with changes" if git("status", "--porcelain", "-uno") else "")


def machine(accel: str) -> str:
    models = (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    model = next(models, platform.machine())
    return f"{model}, {os.cpu_count()} CPUs, load {os.getloadavg()[1]:.1f}; guests: QEMU {accel}, 1 CPU each"


def write(path: Path, repo: Path, kernel: str, accel: str, command: str, rows: list[dict], bars: list[Bar]) -> None:
    report = {
        "commit": commit(repo), "kernel": kernel, "command": command, "machine": machine(accel), "rows": rows, "bars": [b.json() for b in bars],
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
