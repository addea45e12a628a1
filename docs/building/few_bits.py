"""Draw README's picture, docs/assets/few_bits.svg, from the table of few bits in docs/findings/compression.md.

    python -m docs.building.few_bits

The picture has the size of a model against its error, both as shares of the original's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE, PICTURE = ROOT / "docs/findings/compression.md", ROOT / "docs/assets/few_bits.svg"
MODEL = "chronos-bolt-mini"
SIZE = re.compile(r"\b0\.\d+")
CELL = re.compile(r"([\d.]+) \[([\d.]+), ([\d.]+)\], [\d.]+, (\*\*certified\*\*|no)$")
# Megabytes of the checkpoint's model.safetensors.
MEGABYTES = (ROOT / "tsfmscope/checkpoints" / MODEL / "model.safetensors").stat().st_size / 1e6
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 600, 440, 66, 566, 108, 372
LOWEST, HIGHEST, MARGIN = -4.0, 8.0, 2.0
GREEN, ORANGE, GREY, INK = "#00734d", "#c24e00", "#8a8a8a", "#1f2328"


class Point(NamedTuple):
    """Share of the bytes, ratio of WQL with its interval, and the outcome of the certificate."""

    model: str
    share: float
    ratio: float
    low: float
    high: float
    is_certified: bool


def read_points() -> list[Point]:
    """Return the cells of the first table of the section on few bits.

    ValueError: the page has no such table.
    """
    section = PAGE.read_text("utf-8").partition("\n## Few bits\n")[2].partition("\n## ")[0]
    lines = [line for line in section.split("\n\n*")[0].splitlines() if line.startswith("|")]
    shares = [float(text) for text in SIZE.findall(lines[0])] if lines else []
    points = []
    for line in lines[2:]:
        model, *cells = (cell.strip(" `") for cell in line.strip("|").split("|"))
        for share, cell in zip(shares, cells, strict=True):
            found = CELL.match(cell)
            if found is None:
                raise ValueError(f"expected 'ratio [low, high], largest, outcome', got {cell!r} in {PAGE.name}")
            ratio, low, high = (float(text) for text in found.groups()[:3])
            points.append(Point(model, share, ratio, low, high, is_certified=found[4] != "no"))
    if MODEL not in {point.model for point in points}:
        raise ValueError(f"expected a table of few bits with a row of {MODEL} in {PAGE.name}; restore it")
    return points


def across(share: float) -> float:
    """Return the horizontal place of a share of the bytes."""
    return LEFT + share * (RIGHT - LEFT)


def down(ratio: float) -> float:
    """Return the vertical place of a ratio of errors."""
    return BOTTOM - (100 * (ratio - 1) - LOWEST) / (HIGHEST - LOWEST) * (BOTTOM - TOP)


def text(x: float, y: float, words: str, *, size: int = 19, colour: str = INK, more: str = "") -> str:
    """Return a line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" {more}>{words}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    """Return a straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {more}/>'


def axes() -> Iterator[str]:
    """Yield the band within the margin, ticks and titles."""
    top = down(1 + MARGIN / 100)
    yield f'<rect x="{LEFT}" y="{top:.1f}" width="{RIGHT - LEFT}" height="{BOTTOM - top:.1f}" fill="#e3f3ec"/>'
    yield text(RIGHT - 8, top + 22, "less than 2 % worse", colour=GREEN, more='text-anchor="end"')
    yield line(LEFT, down(1), RIGHT, down(1), INK, 'stroke-dasharray="5 5"')
    for percent in (-4, 0, 4, 8):
        label = "0 %" if not percent else f"{'+' if percent > 0 else '−'}{abs(percent)} %"
        yield text(LEFT - 8, down(1 + percent / 100) + 6, label, more='text-anchor="end"')
    for percent in (0, 25, 50, 75, 100):
        yield text(across(percent / 100), BOTTOM + 24, f"{percent} %", more='text-anchor="middle"')
        yield line(across(percent / 100), BOTTOM, across(percent / 100), BOTTOM + 6, INK)
    yield line(LEFT, BOTTOM, RIGHT, BOTTOM, INK)
    middle = (LEFT + RIGHT) / 2
    yield text(middle, BOTTOM + 54, "size of the file, share of the original's", more='text-anchor="middle"')
    yield text(14, 74, f"forecast error of {MODEL}, against the original's")


def marks(points: list[Point]) -> Iterator[str]:
    """Yield the other models as dots, and MODEL with intervals and outcomes."""
    for point in points:
        if point.model != MODEL:
            x, y = across(point.share), down(point.ratio)
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{GREY}" opacity="0.6"/>'
    own = [point for point in points if point.model == MODEL]
    smallest = min((point for point in own if point.is_certified), key=lambda point: point.share)
    path = [Point(MODEL, 1, 1, 1, 1, is_certified=True), *sorted(own, key=lambda point: -point.share)]
    for start, end in itertools.pairwise(path):
        colour = GREEN if end.is_certified else ORANGE
        places = across(start.share), down(start.ratio), across(end.share), down(end.ratio)
        yield line(*places, colour, 'stroke-width="2.5"')
    for point in own:
        colour = GREEN if point.is_certified else ORANGE
        x, y, radius = across(point.share), down(point.ratio), 11 if point == smallest else 7
        yield line(x, down(point.low), x, down(point.high), colour, 'stroke-width="2.5"')
        if point.is_certified:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>'
        else:
            for way in (1, -1):
                yield line(x - 7, y - 7 * way, x + 7, y + 7 * way, colour, 'stroke-width="4"')
    yield f'<circle cx="{across(1):.1f}" cy="{down(1):.1f}" r="8" fill="{INK}"/>'
    yield text(RIGHT - 8, down(1) + 32, f"original, {MEGABYTES:.1f} MB", more='text-anchor="end"')
    megabytes = f"{smallest.share * MEGABYTES:.1f} MB"
    x, y = across(smallest.share), down(smallest.ratio)
    yield line(x + 8, y + 9, x + 30, y + 46, GREEN, 'stroke-width="1.5"')
    bold = 'font-weight="bold"'
    yield text(
        x + 34, y + 62, f"certified: {smallest.share:.0%}, {megabytes}".replace("%", " %"), colour=GREEN, more=bold
    )
    refused = max(point.high for point in own)
    yield text(across(0.15) + 8, down(refused) + 4, "too small: not certified", colour=ORANGE, more=bold)


def draw() -> str:
    """Return the picture as SVG."""
    points = read_points()
    smallest = min(point.share for point in points if point.model == MODEL and point.is_certified)
    title = f"{100 * smallest:.0f} % of the bytes, the same error"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#ffffff"/>',
        text(14, 38, title, size=28, more='font-weight="bold"'),
        *axes(), *marks(points), "</svg>\n",
    ])  # fmt: skip


if __name__ == "__main__":
    PICTURE.write_text(draw(), "utf-8")
