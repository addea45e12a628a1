"""Made-up rows of the tables of ranks, of the shape of a small run, and the studies that a page makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.tasks.report.answers import answer_study
from tsfmscope import store
from tsfmscope.store import catalogue, files
from tsfmscope.tasks.report.tables import StudyTables

Row = dict[str, Any]
SERIES = ("chronos-bolt-nano", "chronos-t5-nano", "moirai-nano")
MODALITIES = dict.fromkeys(SERIES, "series") | {"t5-text-nano": "text", "vit-nano": "image", "tabular-nano": "table"}
DATASETS = {"series": "signals", "text": "topics", "image": "photographs", "table": "tables"}
GRID = {f"bolt-patch-{size}": float(size) for size in (1, 2, 4, 8, 16, 32)}
FLOOR = 1e-6
STUDIES = {  # study -> its picture and the groups of rows that it asks for
    "fig2": ("spectrum", ["first", "planes"]),
    "fig3a": ("spectrum", ["grid"]),
    "fig3b": ("angles", ["angles"]),
    "fig5c": ("constant", ["constant"]),
    "fig9": ("trend", ["grid"]),
    "fig10": ("histogram", ["weights"]),
    "fig11": ("snapshots", ["snapshots"]),
    "fig12": ("angles", ["rows"]),
    "fig13": ("angles", ["angles", "signals"]),
    "fig14": ("plane", ["planes"]),
    "flow": ("growth", ["first", "deeper", "weights"]),
    "nothing": ("growth", []),
}
FIGURES = {"fig2": "ranks Fig. 2", "fig3a": "ranks Fig. 3a", "fig9": "ranks Fig. 9", "fig10": "ranks Fig. 10"}
FIGURES |= {"flow": "ranks section 4", "fig5c": "ranks Fig. 5c", "fig13": "ranks Fig. 13"}


def rank_studies(folder: Path, rename: Callable[[str], str] = str, *, tested: bool = True) -> dict[str, StudyTables]:
    """Study -> its tables, answered by the page's own SQL from a catalogue of made-up rows.

    rename: changes the name of every model; tested: with intervals of all estimates.
    """
    tables = made_up(rename)
    _built(folder / "results.duckdb", folder, tables)
    if tested:
        with store.open(folder / "results.duckdb") as connection:
            estimates = connection.sql("select * from rank_estimates order by all").df().to_dict("records")
        _built(folder / "results.duckdb", folder, {**tables, "inference": [_inferred(row) for row in estimates]})
    with store.open(folder / "results.duckdb") as connection:
        return {
            study: answer_study(connection, study, plot, FIGURES.get(study), f"A study of {plot}")
            for study, (plot, _) in STUDIES.items()
        }


def made_up(rename: Callable[[str], str] = str) -> dict[str, list[Row]]:
    """Table of the store -> rows."""
    rng = np.random.default_rng(11)
    groups: dict[str, list[Row]] = {
        "first": [row for model in MODALITIES for row in _inputs(rename(model), MODALITIES[model], rng, range(1))],
        "deeper": [row for model in MODALITIES for row in _inputs(rename(model), MODALITIES[model], rng, range(1, 5))],
        "weights": [row for model in MODALITIES for row in _weights(rename(model), MODALITIES[model], rng)],
        "snapshots": [row for step in (None, 0, 100, 300, 1000) for row in _snapshot(rename(SERIES[1]), step, rng)],
        "constant": [row for model in SERIES[:2] for row in _constant(rename(model), rng)],
        "signals": [row for model in SERIES[:3] for row in _signals(rename(model), rng)],
        "grid": [row for model, size in GRID.items() for row in _of_grid(rename(model), size, rng)],
    }
    planes = [row for place, model in enumerate(MODALITIES) for row in _plane(rename(model), place, rng)]
    angles = _angles(rename(SERIES[0]), rng)
    heads = [row for model, size in list(GRID.items())[:3] for row in _rows(rename(model), int(2 * size), rng)]
    known = {**MODALITIES, **dict.fromkeys(GRID, "series")}
    checkpoints = [
        {"model": rename(model), "family": "chronos-bolt" if model in GRID else model, "modality": modality}
        | {"input_stack": "encoder", "output_stack": "encoder"}
        | {"source": "committed", "ref": "r", "fingerprint": "0" * 64, "parameters": 10, "bytes": 40}
        for model, modality in known.items()
    ]
    x_axis = json.dumps({rename(model): size for model, size in GRID.items()})
    return {
        "spectra": [{**row, "job_key": name} for name, rows in groups.items() for row in rows],
        "planes": [{**row, "job_key": "planes"} for row in planes],
        "angles": [{**row, "job_key": "angles"} for row in angles] + [{**row, "job_key": "rows"} for row in heads],
        "checkpoints": checkpoints,
        "study_jobs": [
            {"study": s, "stage": "spectra", "job_key": key} for s, (_, keys) in STUDIES.items() for key in keys
        ],
        "studies": [
            {"study": study, "title": study, "figure": FIGURES.get(study), "plot": picture}
            | {"x_axis": x_axis if study in ("fig3a", "fig9", "fig12") else None}
            for study, (picture, _) in STUDIES.items()
        ],
    }


def _built(path: Path, folder: Path, tables: dict[str, list[Row]]) -> None:
    for name, rows in tables.items():
        files.write_rows(folder / name, name, rows)
    catalogue.build(path, {name: [folder / name] for name in tables})


def _inferred(row: Row) -> Row:
    """An interval around the estimate, as stage statistics would make one."""
    middle = None if row["estimate"] != row["estimate"] else row["estimate"]
    wide = {"low": middle - 0.05, "high": middle + 0.05, "p": 0.001} if middle is not None and row["n"] > 1 else {}
    what = {"n_clusters": row["n"], "alpha": 0.05, "seed": 0, "n_tests": 1, "p_smallest": 0.0}
    reason = None if wide else "one unit"
    return {**row, "estimate": middle, **wide, **what, "p_bh": wide.get("p"), "p_by": wide.get("p"), "reason": reason}


def _sigma(count: int, rate: float, rng: np.random.Generator) -> list[float]:
    """So many, descending, falling by 10^-rate each."""
    noise = np.cumsum(rate * rng.uniform(0.4, 1.6, count))
    return (3.0 * 10 ** -(noise - noise[0])).tolist()


def _base(model: str, **more: Any) -> Row:
    return {"model": model, "dtype": "float32", "floor": FLOOR, "stack": "encoder", **more}


def _input(model: str, dataset: str, layer: int, sigma: list[float], tokens: str = "valued") -> Row:
    cell = {"dataset": dataset, "condition": "c", "context": 512, "noise": 0.0, "what": "input", "tokens": tokens}
    shape = {"n_rows": 2048, "n_columns": 64, "layer": layer, "normed": False}
    return _base(model, **cell, **shape, singular_values=sigma, singular_values_centred=sigma)


def _inputs(model: str, modality: str, rng: np.random.Generator, layers: range) -> list[Row]:
    rate = {"series": rng.uniform(0.12, 0.5)}.get(modality, rng.uniform(0.02, 0.05))
    datasets = ["signals", "real"] if modality == "series" and layers.start else [DATASETS[modality]]
    return [_input(model, name, n, _sigma(64, rate / (1 + 0.7 * n), rng)) for name in datasets for n in layers]


def _signals(model: str, rng: np.random.Generator) -> list[Row]:
    return [_input(model, name, 0, _sigma(64, rate, rng)) for name, rate in (("noise", 0.12), ("sinusoid", 0.6))]


def _constant(model: str, rng: np.random.Generator) -> list[Row]:
    special = [_input(model, "constant", n, _sigma(64, 1.2 / (1 + n), rng), "with_special") for n in range(5)]
    both = [*special, *(_input(model, "constant", n, [2.0, *[1e-9] * 63]) for n in range(5))]
    return [row | {"what": "constant"} for row in both]


def _weight(model: str, matrix: str, layer: int, sigma: list[float], **more: Any) -> Row:
    shape = {"n_rows": 128 if matrix == "mlp_in" else 64, "n_columns": 64, "what": "weight", "layer": layer}
    attention = {} if matrix == "mlp_in" else {"attention": "self", "heads": 4}
    return _base(model, **shape, **attention, matrix=matrix, singular_values=sigma, **more)


def _weights(model: str, modality: str, rng: np.random.Generator) -> list[Row]:
    rate = 0.09 if modality == "series" else 0.02
    rates = {"q": rate, "k": rate, "v": rate / 2, "o": rate / 2, "mlp_in": 0.01}
    stacks = ("encoder", "decoder") if "t5" in model else ("encoder",)
    return [
        _weight(model, matrix, layer, _sigma(64, one / (0.6 + 0.4 * layer), rng)) | {"stack": stack}
        for stack in stacks
        for layer in range(1, 5)
        for matrix, one in rates.items()
    ]


def _snapshot(model: str, step: int | None, rng: np.random.Generator) -> list[Row]:
    grown = 1.0 if step is None else (step + 1) / 1200
    return [
        _weight(model, "q", n, (np.array(_sigma(64, 0.02 + 0.05 * grown, rng)) * (0.05 + grown)).tolist(), step=step)
        for n in range(1, 5)
    ]


def _of_grid(model: str, size: float, rng: np.random.Generator) -> list[Row]:
    rate = 0.5 / (1 + size / 4)
    heads = [
        _weight(model, "q", 1, _sigma(16, 2 * rate, rng), head=head) | {"n_rows": 16, "heads": 4} for head in range(4)
    ]
    return [_input(model, "signals", 0, _sigma(64, rate, rng)), _weight(model, "q", 1, _sigma(64, rate, rng)), *heads]


def _plane(model: str, place: int, rng: np.random.Generator) -> list[Row]:
    """A curve that bends more and more, without values a cloud."""
    values, text = np.linspace(-1, 1, 300), place >= len(SERIES)
    x, y = (np.cos(n * np.arccos(values)) for n in (place + 1, place + 2))
    if text:
        x, y = rng.standard_normal((2, 300))
    cell = {"model": model, "dataset": "signals", "condition": "c", "context": 64, "noise": 0.0, "stack": "encoder"}
    value = [None] * 300 if text else values.tolist()
    kinds = [None if place == 5 else int(n) for n in range(300)]
    return [
        {**cell, "token": n, "type": kinds[n], "value": value[n], "x": float(x[n]), "y": float(y[n])}
        for n in range(300)
    ]


def _cosines(vectors: np.ndarray) -> list[list[float]]:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.arccos(np.clip(np.abs(unit @ unit.T), 0, 1)).tolist()


def _angles(model: str, rng: np.random.Generator) -> list[Row]:
    t = np.arange(32)
    wave = np.stack([np.sin(0.7 * t), np.cos(0.7 * t), 0.2 * np.sin(1.4 * t)], axis=1)
    sets = {"noise": rng.standard_normal((32, 16)) @ rng.standard_normal((16, 64)), "sinusoid": wave}
    cell = {"model": model, "condition": "c", "context": 512, "noise": 0.0, "stack": "encoder", "layer": 0}
    out = [
        {**cell, "dataset": name, "what": "tokens", "row": n, "dimension": 64, "angles": row}
        for name, vectors in sets.items()
        for n, row in enumerate(_cosines(vectors))
    ]
    for size in (16, 64):
        for n, row in enumerate(_cosines(rng.standard_normal((32, size)))):
            out.append({"model": f"gaussian-{size}", "what": "gaussian", "row": n, "dimension": size, "angles": row})
    return out


def _rows(model: str, heads: int, rng: np.random.Generator) -> list[Row]:
    each = 48 // heads
    blocks = [rng.standard_normal((each, 3)) @ rng.standard_normal((3, 64)) for _ in range(heads)]
    where = {"model": model, "what": "rows", "matrix": "q", "stack": "encoder", "layer": 1, "dimension": 64}
    return [
        {**where, "row": n, "head": n // each, "angles": row} for n, row in enumerate(_cosines(np.concatenate(blocks)))
    ]
