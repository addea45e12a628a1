"""Figures of the report as PNG and SVG files with their captions, drawn by several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from stages import DATA
from store.files import atomic, translate_full_disk
from tsfmscope.report import theory
from tsfmscope.report.page import studies
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.quantize_png import quantize
from tsfmscope.report.render import mpl_render
from tsfmscope.report.tables import ReportTables, StudyTables, order_models

FIGURES = Path(DATA, "figures")


def write_figures(tables: ReportTables) -> dict[str, bytes]:
    """Write the plots of every study and section on theory as PNG, SVG and caption, and return name -> PNG.

    The folder is made even if there is nothing to draw.
    """
    with translate_full_disk(FIGURES):
        FIGURES.mkdir(parents=True, exist_ok=True)
    # Spawn, because forked processes would inherit the state of this process' threads.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        pngs = pool.map(partial(_write_study, models=order_models(tables)), tables.studies)
        theory_pngs = {name: _write(name, [figure]) for name, figure in theory.draw_figures(tables).items()}
        study_pngs = {study.name: png for study, png in zip(tables.studies, pngs, strict=True) if png is not None}
    return study_pngs | theory_pngs


def _write_study(study: StudyTables, models: list[str]) -> bytes | None:
    """Write a study's plots and return their PNG, or None if there is nothing to draw.

    Runs in a process of a pool. models: every model, since a model's colour depends on all of them.
    """
    figures = studies.draw_figures(study, models)
    return _write(study.name, figures) if figures else None


def _write(name: str, figures: Sequence[Figure]) -> bytes:
    """Write figures as one PNG and one SVG with their captions as text; return the PNG reduced to few colours."""
    files = mpl_render.render([(figure.title, figure.figure) for figure in figures])
    titles = [f"{figure.title}: " if figure.title and len(figures) > 1 else "" for figure in figures]
    captions = [f"{title}{figure.caption}".strip() for title, figure in zip(titles, figures, strict=True)]
    text = "\n\n".join(filter(None, captions)) + "\n"
    for suffix, data in {**files, "txt": text.encode()}.items():
        with atomic(FIGURES / f"{name}.{suffix}") as temporary:
            temporary.write_bytes(data)
    return quantize(files["png"])
