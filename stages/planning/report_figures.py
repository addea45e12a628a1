"""Figures of the report as PNG, SVG and PDF files with their captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stages import DATA
from store.files import atomic, translate_full_disk
from tsfmscope.report import theory
from tsfmscope.report.page import studies
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.render import SUFFIXES, convert_svg, draw_svg, stack
from tsfmscope.report.tables import ReportTables, order_models

FIGURES = Path(DATA, "figures")


def write_figures(tables: ReportTables) -> int:
    """Write the plots of every study and section on theory as images with captions, and return their number.

    The folder is made even if there is nothing to draw.
    """
    models = order_models(tables)
    drawn = {study.name: studies.draw_figures(study, models) for study in tables.studies}
    drawn |= {name: (figure,) for name, figure in theory.draw_figures(tables).items()}
    with translate_full_disk(FIGURES):
        FIGURES.mkdir(parents=True, exist_ok=True)
    for name, figures in drawn.items():
        if figures:
            _write(name, figures)
    return sum(map(bool, drawn.values()))


def _write(name: str, figures: Sequence[Figure]) -> None:
    """Write figures as one image in each format, and their captions as text."""
    chart, alt = stack([(figure.title, figure.chart) for figure in figures]), " ".join(f.alt for f in figures)
    svg = draw_svg(chart, alt)
    images = {suffix: convert_svg(svg, suffix) for suffix in SUFFIXES}
    for suffix, data in {**images, ".txt": join_captions(figures).encode()}.items():
        with atomic(FIGURES / f"{name}{suffix}") as temporary:
            temporary.write_bytes(data)


def join_captions(figures: Sequence[Figure]) -> str:
    """Return the captions, one paragraph per figure; each of several figures starts with its title."""
    titled = [f"{figure.title}: " if figure.title and len(figures) > 1 else "" for figure in figures]
    lines = [f"{title}{figure.caption}".strip() for title, figure in zip(titled, figures, strict=True)]
    return "\n\n".join(filter(None, lines)) + "\n"
