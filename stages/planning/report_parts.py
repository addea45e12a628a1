"""Parts of the report that need more than its queries: principal components of states, and figures as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stages import DATA
from stages.config.params import Params
from stages.planning import planning
from store.dumps import last_layers, layer_states, layers
from store.files import atomic, check, translate_full_disk
from store.report_queries import load_queries
from tsfmscope.geometry.clusters import choose_clusters
from tsfmscope.report import theory
from tsfmscope.report.page import studies
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots.islands import project
from tsfmscope.report.render import SUFFIXES, convert_svg, draw_svg, stack_charts
from tsfmscope.report.tables import Answer, ReportTables, order_models

if TYPE_CHECKING:
    import pandas as pd

# Tokens of one plot: more would hide each other, and a page contains many plots.
TOKENS = 400
FIGURES = Path(DATA, "figures")


def answer_islands(params: Params, study: str) -> Answer:
    """Return the tokens that a study with plot `islands` draws, and the query for the files that contain them.

    Columns: those of `project`, and `n_tokens`, the number of tokens before sampling. Every cell of the study
    gives a sample of at most TOKENS tokens.
    """
    import pandas as pd

    names = {block: params.expand(study, block) for block in ("models", "datasets", "conditions")}
    layer = params.studies[study].islands_layer
    query = load_queries("study")["islands"].fill(**names, layer=layer, tokens=TOKENS)
    cells = set(planning.cells(params, ["isotropy"]))
    stacks = {name: row["output_stack"] for name, row in planning.checkpoints().items()}
    frames = [
        _cell(row, stacks[row["model"]], layer, params).assign(
            model=row["model"], dataset=row["dataset"], condition=row["condition"]
        )
        for row in planning.dumps("embeddings")
        if planning.Cell(row["model"], row["dataset"], row["condition"]) in cells
        and row["model"] in names["models"]
        and row["dataset"] in names["datasets"]
        and row["condition"] in names["conditions"]
    ]
    rows = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    return Answer(query.title, query.sql, rows)


def _cell(row: dict[str, Any], stack: str, layer_choice: str, params: Params) -> pd.DataFrame:
    """Return the plotted tokens of one activation file at one layer, a seeded sample of at most TOKENS.

    Components and clusters are computed from all rows of the layer, as in the table geometry.
    """
    path = Path(DATA, "embeddings", row["path"])
    check(Path(DATA, "embeddings"), {row["path"]: row["fingerprint"]})
    layer_keys = layers(path)
    ends = {layer_key[0]: layer_key for layer_key in last_layers(layer_keys)}
    stack, layer, normed = ends[stack]
    if layer_choice == "middle":
        layer, normed = (layer + 1) // 2, False
    assert (stack, layer, normed) in layer_keys
    data = layer_states(path, stack, layer, normed)
    labels = choose_clusters(data["states"], params.geometry, seed=params.seed).labels
    points = project(
        data["states"], labels, list(data["series"]), data["position"], {"stack": stack, "layer": layer}
    ).assign(n_tokens=len(labels))
    count = min(TOKENS, len(points))
    rows = np.sort(np.random.default_rng(params.seed).choice(len(points), count, replace=False))
    return points.iloc[rows]


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
    chart, alt = stack_charts([(figure.title, figure.chart) for figure in figures]), " ".join(f.alt for f in figures)
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
