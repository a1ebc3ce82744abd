# SPDX-License-Identifier: BSD-3-Clause
"""The outcome as bars: build/results/demo.svg, and lines of text for a terminal."""

from html import escape

from .transfer import GIB, POOL, Outcome

BAR_CELLS = 40
BAR_PX, ROW_PX, LABEL_PX, VALUE_PX, PAD_PX = 420, 26, 110, 90, 16
COLOURS = {"offload": "#1a7f5a", POOL: "#1a7f5a", "software": "#5b8fd6"}
PLAIN_COLOUR = "#9aa3ad"
INK = "#222831"

Chart = tuple[str, list[tuple[str, float]]]


def charts(outcomes: list[Outcome]) -> list[Chart]:
    """(title, bar of each engine): rate and what it costs the receiver."""
    good = [(o.engine, o.row()) for o in outcomes if o.row()["bytes"]]
    return [
        ("Gb/s: more is better", [(name, row["gbps"]) for name, row in good]),
        ("the receiver's CPU seconds for each GiB: less is better", [(name, row["cpu_s_rx"] / (row["bytes"] / GIB)) for name, row in good]),
    ]


def bars(outcomes: list[Outcome], unicode: bool) -> str:
    block = "█" if unicode else "#"
    lines = []
    for title, rows in charts(outcomes):
        most = max((value for _, value in rows), default=0) or 1
        lines += [title, *(f"  {name:<13} {block * max(1, round(BAR_CELLS * value / most))} {value:.2f}" for name, value in rows), ""]
    return "\n".join(lines).rstrip()


def svg(outcomes: list[Outcome], sentence: str) -> str:
    parts, y = [], PAD_PX
    for title, rows in charts(outcomes):
        most = max((value for _, value in rows), default=0) or 1
        y += ROW_PX
        parts.append(_text(PAD_PX, y - 8, title, "font-weight='600'"))
        for name, value in rows:
            width = max(2, round(BAR_PX * value / most))
            parts.append(_text(PAD_PX, y + 17, name))
            parts.append(f"<rect x='{PAD_PX + LABEL_PX}' y='{y + 4}' width='{width}' height='{ROW_PX - 8}' rx='2' fill='{COLOURS.get(name, PLAIN_COLOUR)}'/>")
            parts.append(_text(PAD_PX + LABEL_PX + width + 8, y + 17, f"{value:.2f}"))
            y += ROW_PX
        y += PAD_PX
    width = 2 * PAD_PX + LABEL_PX + BAR_PX + VALUE_PX
    for line in _wrapped(sentence, 92):
        y += 18
        parts.append(_text(PAD_PX, y, line, "font-size='12'"))
    height = y + PAD_PX
    head = f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}' font-family='sans-serif' font-size='13'>"
    return "\n".join([head, f"<rect width='{width}' height='{height}' fill='#ffffff'/>", *parts, "</svg>", ""])


def _text(x: int, y: int, text: str, more: str = "") -> str:
    return f"<text x='{x}' y='{y}' fill='{INK}' {more}>{escape(text)}</text>"


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
