"""Figures of the report as PNG and SVG files."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tsfmscope.stages import DATA
from tsfmscope.store.files import atomic, space
from tsfmscope.tasks.report import theory
from tsfmscope.tasks.report.page import studies
from tsfmscope.tasks.report.page.page import models
from tsfmscope.tasks.report.quantize_png import light
from tsfmscope.tasks.report.render.mpl_render import render as still
from tsfmscope.tasks.report.tables import ReportTables, StudyTables

if TYPE_CHECKING:
    import plotly.graph_objects as go

FIGURES = Path(DATA, "figures")


def draw_figures(tables: ReportTables) -> dict[str, bytes]:
    """Write the plots of every study and section on theory as PNG and SVG, and return name -> PNG.

    The folder is made even if there is nothing to draw.
    """
    with space(FIGURES):
        FIGURES.mkdir(parents=True, exist_ok=True)
    # Spawn, because forked processes would inherit the state of this process' threads.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        made = pool.map(partial(_still, named=models(tables)), tables.studies)
        proved = {name: _write(name, [(one.title, one.figure)]) for name, one in theory.drawn(tables).items()}
        stills = {study.name: png for study, png in zip(tables.studies, made, strict=True) if png is not None}
    return stills | proved


def _still(study: StudyTables, named: list[str]) -> bytes | None:
    """Write a study's plots and return their PNG, or None if there is nothing to draw.

    Runs in a process of a pool. named: every model, since a model's colour depends on all of them.
    """
    figures = studies.draw_figures(study, named)
    return _write(study.name, [(figure.title, figure.figure) for figure in figures]) if figures else None


def _write(name: str, figures: list[tuple[str, go.Figure]]) -> bytes:
    """Write figures as one PNG and one SVG, and return the PNG reduced to few colours."""
    made = still(figures)
    for suffix, data in made.items():
        with atomic(FIGURES / f"{name}.{suffix}") as temporary:
            temporary.write_bytes(data)
    return light(made["png"])
