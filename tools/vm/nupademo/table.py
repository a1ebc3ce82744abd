# SPDX-License-Identifier: BSD-3-Clause
"""How the outcome is shown."""

from .transfer import GIB, POOL, Outcome

COLUMNS = ("engine", "Gb/s", "CPU s/GiB tx", "CPU s/GiB rx", "placed by switch", "copied by CPU rx", "segments", "retrans", "SHA-256")


def table(outcomes: list[Outcome]) -> str:
    rows = [COLUMNS, *(_cells(o) for o in outcomes)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _cells(o: Outcome) -> tuple[str, ...]:
    row = o.row()
    if not row["bytes"]:
        return (o.engine, *["-"] * (len(COLUMNS) - 2), "FAIL")
    gib = row["bytes"] / GIB
    return (
        o.engine, f"{row['gbps']:.2f}", f"{row['cpu_s_tx'] / gib:.2f}", f"{row['cpu_s_rx'] / gib:.2f}", f"{row['placed_bytes']:,}",
        f"{row['copied_bytes']:,}", f"{row['segments']:,}", str(row["retrans"]), "equal" if row["sha256_ok"] else "DIFFERS",
    )  # fmt: skip


def sentence(outcomes: list[Outcome]) -> str:
    """What the table says; nothing if an engine of the comparison is not in it."""
    rows = {o.engine: o.row() for o in outcomes if not o.problem}
    offload, tcp = rows.get("offload"), rows.get("tcp")
    if not offload or not tcp:
        return ""
    faster = offload["gbps"] / tcp["gbps"]
    pace = f"{faster:.1f} times as fast as" if faster >= 1.05 else "as fast as" if faster > 0.95 else f"at {faster:.2f} of the rate of"
    cost = f"{100 * offload['cpu_s_rx'] / tcp['cpu_s_rx']:.0f} % of its receiver's CPU time" if tcp["cpu_s_rx"] else "its receiver's CPU time not measured"
    copied = "none" if not offload["copied_bytes"] else f"{offload['copied_bytes']:,}"
    return (
        f"With offload the switch put {offload['placed_bytes']:,} bytes straight into the buffer they were for and the receiver's CPU copied {copied}: "
        f"{pace} plain TCP through send() and recv(), for {cost}.{_pool(rows)}"
    )


def _pool(rows: dict[str, dict]) -> str:
    return " With offload-pool a processor reads the file into the lease at one end, and writes it from there at the other." if POOL in rows else ""
