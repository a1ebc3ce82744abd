# SPDX-License-Identifier: BSD-3-Clause
"""The engine's own parts, native on this host, by Google Benchmark."""

import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from .figures import rounded

LIMIT_S = 600


def run(program: Path, min_time_s: float, repetitions: int) -> list[dict]:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "engine.json"
        argv = [
            program, f"--benchmark_min_time={min_time_s}", f"--benchmark_repetitions={repetitions}", "--benchmark_enable_random_interleaving=true",
            f"--benchmark_out={out}", "--benchmark_out_format=json",
        ]  # fmt: skip
        subprocess.run([str(a) for a in argv], check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return rows(json.loads(out.read_text()))


def rows(report: dict) -> list[dict]:
    """One a benchmark: nanoseconds of CPU for one turn, of all repetitions."""
    runs: dict[str, list[dict]] = {}
    for one in report["benchmarks"]:
        if one.get("error_occurred"):
            raise RuntimeError(f"engine: {one['name']}: {one.get('error_message')}")
        if one.get("run_type") == "iteration":
            runs.setdefault(one["run_name"], []).append(one)
    out = []
    for name, all_of_it in runs.items():
        times = [one["cpu_time"] for one in all_of_it]
        row = {"engine": name, "n": len(times), "ns": rounded(statistics.median(times)), "ns_min": rounded(min(times)), "ns_max": rounded(max(times))}
        if "bytes_per_second" in all_of_it[0]:
            row["gbytes_per_s"] = rounded(statistics.median(one["bytes_per_second"] for one in all_of_it) / 1e9)
        if "switch_ns_per_frame" in all_of_it[0]:
            row["switch_ns_per_frame"] = rounded(statistics.median(one["switch_ns_per_frame"] for one in all_of_it))
        if "items_per_second" in all_of_it[0]:
            row["ns_per_item"] = rounded(1e9 / statistics.median(one["items_per_second"] for one in all_of_it))
        out.append(row)
    return out
