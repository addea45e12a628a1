"""Charts as images and as SVG for a page, without a browser: Vega's own code, which vl-convert contains."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from tsfmscope.files import Writer

if TYPE_CHECKING:
    from tsfmscope.report.style import Chart

SUFFIXES = (".png", ".svg", ".pdf")
# Pixels of the PNG per pixel of the chart.
SCALE = 2


def stack_charts(charts: Sequence[tuple[str, Chart]]) -> Chart:
    """Return one chart of several, one below another; the title of a single one is not shown."""
    import altair as alt

    if len(charts) == 1:
        return charts[0][1]
    titled = [chart.properties(title=alt.Title(title, fontSize=13, offset=12)) for title, chart in charts]
    channels = ("color", "stroke", "fill", "shape", "strokeDash", "strokeWidth")
    together: Chart = alt.vconcat(*titled, spacing=36)
    return together.resolve_scale(**dict.fromkeys(channels, "independent"))


def apply_style(chart: Chart) -> Chart:
    """Return the chart in the common style, as a notebook shows it."""
    from tsfmscope.report.style import CONFIG

    styled = chart.copy(deep=False)
    styled.config = CONFIG
    return styled


def draw_svg(chart: Chart, description: str = "") -> str:
    """Draw a chart with all its rows as SVG. The same chart gives the same text.

    description: alternative text, which the SVG contains as its title.
    """
    import altair as alt
    import vl_convert

    with alt.data_transformers.enable("default", max_rows=None):
        svg = vl_convert.vegalite_to_svg(apply_style(chart).to_dict())
    return svg.replace(">", f' role="img"><title>{escape(description)}</title>', 1) if description else svg


def convert_svg(svg: str, suffix: str) -> bytes:
    """Return an SVG of `draw_svg` as the content of a file with one of SUFFIXES."""
    import vl_convert

    if suffix not in SUFFIXES:
        raise ValueError(f"suffix: got {suffix!r}, expected one of {', '.join(SUFFIXES)}")
    if suffix == ".svg":
        return svg.encode()
    return vl_convert.svg_to_pdf(svg) if suffix == ".pdf" else vl_convert.svg_to_png(svg, scale=SCALE)


def image_writers(draw: Callable[[], Chart], description: str = "") -> dict[str, Writer]:
    """Return the writers of a chart as an image, by suffix: SUFFIXES. draw: returns the chart.

    description: alternative text, as in `draw_svg`.
    """

    def write(path: Path) -> None:
        path.write_bytes(convert_svg(draw_svg(draw(), description), path.suffix))

    return dict.fromkeys(SUFFIXES, write)


def draw_inline(chart: Chart, name: str) -> str:
    """Draw a chart as an SVG element for a page, in the page's colours.

    name: of the figure in the page; it makes the identifiers inside the element unique.
    """
    from tsfmscope.report.style import GRID, INK, LINE, PAPER, SOFT

    svg = draw_svg(chart)
    for colour, variable in ((INK, "ink"), (SOFT, "soft"), (LINE, "line"), (GRID, "grid"), (PAPER, "raised")):
        svg = svg.replace(f'"{colour}"', f'"var(--{variable})"')
    return re.sub(r'(\bid="|url\(#)', rf"\g<1>{name}-", svg)
