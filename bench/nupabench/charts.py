# SPDX-License-Identifier: BSD-3-Clause
"""bench.json as SVG, by gnuplot: `bench/charts`."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from .cases import MIB

LIMIT_S = 60
STYLE = "set terminal svg size 800,420 font 'sans,12' background rgb 'white'; set key outside right; set grid ytics; "


def plot(target: Path, commands: str, data: str) -> None:
    """@data: gnuplot's $data block."""
    script = f"{STYLE}set output '{target}'\n$data << EOD\n{data}EOD\n{commands}\n"
    subprocess.run(["gnuplot"], input=script, text=True, check=True, timeout=LIMIT_S)


def median(row: dict, figure: str) -> float | None:
    return row["figures"][figure]["median"] if figure in row.get("figures", {}) else None


def default_point(rows: list[dict], clock: str) -> list[dict]:
    wanted = {"mode": "stream", "bytes": MIB, "flows": 1, "mtu": 1500, "loss": 0, "clock": clock}
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def name(row: dict) -> str:
    return row["transport"] + ("" if row["big_tcp"] else " 64K") + (" short" if row.get("short_buffers") else "")


def bars_of(rows: list[dict], figures: tuple[str, ...]) -> str:
    lines = []
    for row in rows:
        values = [median(row, figure) for figure in figures]
        if None not in values:
            lines.append(f'"{name(row)}" ' + " ".join(str(value) for value in values))
    return "\n".join(lines) + "\n"


def instructions(rows: list[dict], target: Path) -> None:
    data = bars_of(default_point(rows, "icount"), ("tx_instructions_per_byte", "rx_instructions_per_byte"))
    plot(target, "set title 'Guest instructions for a byte, 1 MiB messages'; set logscale y; set style data histograms; set style fill solid 0.8; "
                 "set xtics noenhanced rotate by -35; plot $data using 2:xtic(1) title 'send', '' using 3 title 'receive'", data)  # fmt: skip


def throughput(rows: list[dict], target: Path) -> None:
    data = bars_of(default_point(rows, "wall"), ("gbps",))
    plot(target, "set title 'Throughput, 1 MiB messages, Gb/s (emulated: compare, do not quote)'; set style data histograms; set style fill solid 0.8; "
                 "set xtics noenhanced rotate by -35; unset key; plot $data using 2:xtic(1)", data)  # fmt: skip


def lines(rows: list[dict], axis: str, figure: str, matches: Callable[[dict], bool]) -> tuple[str, list[str]]:
    """A column for each transport, a line for each value of the axis."""
    usual = [row for row in rows if "transport" in row and row["big_tcp"] and not row.get("short_buffers") and not row.get("fresh")]
    chosen = [row for row in usual if matches(row) and median(row, figure) is not None]
    counts: dict[str, set] = {}
    for row in chosen:
        counts.setdefault(row["transport"], set()).add(row[axis])
    names = [transport for transport, values in counts.items() if len(values) > 1]
    table = {(row["transport"], row[axis]): median(row, figure) for row in chosen}
    values = sorted({row[axis] for row in chosen})
    text = "".join(" ".join([str(v), *(str(table.get((n, v), "NaN")) for n in names)]) + "\n" for v in values)
    return text, names


def curves(rows: list[dict], target: Path, title: str, axis: str, figure: str, log: str, **fixed) -> None:
    wanted = {"mode": "stream", "bytes": MIB, "flows": 1, "mtu": 1500, "loss": 0, "clock": "wall"} | fixed
    del wanted[axis]
    data, names = lines(rows, axis, figure, lambda row: all(row[key] == value for key, value in wanted.items()))
    if not names:
        return
    series = ", ".join(f"$data using 1:{i + 2} title '{n}' noenhanced with linespoints" for i, n in enumerate(names))
    plot(target, f"set title '{title}'; set logscale {log}; set xlabel '{axis}'; plot {series}", data)


def draw(report: dict, directory: Path) -> list[Path]:
    """All charts that the rows allow."""
    rows = [row for row in report["rows"] if "transport" in row]
    directory.mkdir(parents=True, exist_ok=True)
    if default_point(rows, "icount"):
        instructions(rows, directory / "instructions.svg")
    if default_point(rows, "wall"):
        throughput(rows, directory / "throughput.svg")
    curves(rows, directory / "sizes.svg", "Throughput by message size, Gb/s", "bytes", "gbps", "xy")
    curves(rows, directory / "flows.svg", "Throughput by number of flows, Gb/s", "flows", "gbps", "x 2")
    curves(rows, directory / "loss.svg", "Throughput by loss, Gb/s", "loss", "gbps", "y")
    curves(rows, directory / "size_instructions.svg", "Receive instructions a byte by message size", "bytes", "rx_instructions_per_byte", "xy", clock="icount")
    return sorted(directory.glob("*.svg"))
