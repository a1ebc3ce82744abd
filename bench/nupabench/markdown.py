# SPDX-License-Identifier: BSD-3-Clause
"""bench.json as a page."""

import textwrap
from pathlib import Path

from .report import size

BULK = ("gbps", "tx_instructions_per_byte", "rx_instructions_per_byte", "tx_copies_per_byte", "rx_copies_per_byte", "tx_calls_per_mib", "rx_calls_per_mib",
        "tx_interrupts_per_mib", "rx_interrupts_per_mib", "tx_doorbells_per_mib", "rx_packets_per_mib")  # fmt: skip
LOSSY = ("gbps", "tx_sent_again_percent")
TRIPS = ("rtt_p50_us", "rtt_p99_us", "rtt_p999_us", "tx_instructions_per_message", "rx_instructions_per_message")


COLUMNS = 100  # as in every document


def wrapped(text: str) -> str:
    """A paragraph, or a point of a list, in lines that fit."""
    point = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, COLUMNS, subsequent_indent=point, break_long_words=False, break_on_hyphens=False) + "\n"


def table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [" | ".join(head), " | ".join(["---"] * len(head)), *(" | ".join(row) for row in rows)]
    return "".join(f"| {line} |\n" for line in lines)


def name(row: dict) -> str:
    parts = [row["transport"], f"{'up to ' if row.get('mixed') else ''}{size(row['bytes'])}"]
    parts += [f"{row['flows']} flows"] if row["flows"] > 1 else []
    parts += [f"MTU {row['mtu']}"] if row["mtu"] != 1500 else []
    parts += ["64 KB bursts"] if not row["big_tcp"] else []
    parts += ["short buffers"] if row.get("short_buffers") else []
    parts += [f"loss {row['loss']:.1%}"] if row["loss"] else []
    parts += ["scattered"] if row.get("scattered") else []
    parts += ["polling"] if row["poll"] else []
    parts += ["interrupts deferred"] if row.get("defer") else []
    return ", ".join(parts)


def joined(rows: list[dict], mode: str) -> dict[str, dict]:
    """What was timed and what was counted, in one line each."""
    lines: dict[str, dict] = {}
    for row in rows:
        if row.get("mode") == mode:
            lines.setdefault(name(row), {}).update(row["figures"])
    return lines


def cells(figures: dict, wanted: tuple[str, ...]) -> list[str]:
    out = []
    for figure in wanted:
        value = figures.get(figure)
        spread = f" ({value['min']:.2g} to {value['max']:.2g})" if value and figure in ("gbps", "rtt_p50_us") else ""
        out.append("-" if value is None else f"{value['median']:.3g}{spread}")
    return out


def words(figures: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(figure.replace("_", " ") for figure in figures)


def other(rows: list[dict]) -> str:
    lines = []
    for row in rows:
        if "transport" not in row:
            kind = next(iter(row))
            figures = ", ".join(f"{key} {value}" for key, value in row.items() if key != kind)
            lines.append(wrapped(f"- {kind} `{row[kind]}`: {figures}"))
    return "".join(lines)


def results(report: dict, drawn: list[Path]) -> str:
    rows = report["rows"]
    bars = [[bar["name"], f"{bar['value']:.3g}", f"{bar['bound']:.3g}", "yes" if bar["ok"] else "**no**"] for bar in report["bars"]]
    streams = joined(rows, "stream")
    bulk = [[line, *cells(figures, BULK)] for line, figures in streams.items() if LOSSY[1] not in figures]
    lossy = [[line, *cells(figures, LOSSY)] for line, figures in streams.items() if LOSSY[1] in figures]
    trips = [[line, *cells(figures, TRIPS)] for line, figures in joined(rows, "pingpong").items()]
    made = (
        f"`{report['command']}` on commit {report['commit'][:12]}, kernel {report['kernel']}; {report['machine']}. "
        "Made by `bench/charts` from `build/results/bench.json`; how, and what it means: [README.md](README.md)."
    )
    return "\n".join([
        "# Results\n", wrapped(made),
        "## Bars", table(("", "value", "bound", "holds"), bars), "".join(f"![{path.stem}]({path.name})\n" for path in drawn),
        "## Streams", table(("", *words(BULK)), bulk), "## Loss", table(("", *words(LOSSY)), lossy),
        "## Round trips", table(("", *words(TRIPS)), trips), "## Engine, growth, idle", other(rows),
    ])  # fmt: skip
