"""Made-up rows of a run with compressed models of known ratios to the original, and what a page makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from tests.tasks.report.answers import answer_study
from tsfmscope.stages.pipeline.inference import _rank_rows as of_units
from tsfmscope.store import catalogue, files
from tsfmscope.tasks.report.tables import StudyTables
from tsfmscope.tasks.statistics.study import Options

Row = dict[str, Any]
Cell = tuple[str, list[Row], float]  # key of a job, its rows, its seconds
LOCAL = ("seasonal-naive", "auto-ets", "auto-theta", "auto-arima")
DATASETS = {"hospital": 5, "exchange": 3, "weekly": 4, "daily": 4}  # windows of each
FAMILIES = {"t5": "chronos-t5", "bolt": "chronos-bolt"}
CUT = {  # model -> method, share of the attention that is left
    "t5@svd-25": ("svd", 0.25),
    "t5@svd-50": ("svd", 0.5),
    "t5@joint-25": ("joint", 0.25),
    "bolt@joint-25": ("joint", 0.251),
    "bolt-bf16@joint-25": ("joint", 0.251),
}
FACTORS = {  # of WQL and MASE, and of time, to the family's dense model, for baselines to t5
    "t5": (1.0, 1.0), "t5@svd-25": (1.3, 0.6), "t5@svd-50": (1.1, 0.8), "t5@joint-25": (1.02, 0.5), "bolt": (1.0, 1.0),
    "bolt@joint-25": (1.01, 0.7), "seasonal-naive": (1.6, 0.01), "auto-ets": (1.2, 0.3), "auto-theta": (1.15, 0.1),
    "auto-arima": (1.1, 4.0),
}  # fmt: skip
READ = {  # in bfloat16, and cut from that: model -> its base
    "bolt-bf16": "bolt",
    "bolt-bf16@joint-25": "bolt-bf16",
}
PRETRAINED = {  # line -> size, schedule, factor of the dense model's WQL
    "net-flow": (0.25, '{"factors": "head", "flow": {"first": 5.0}}', 1.02),
    "net-flat": (0.25, '{"factors": "head", "flat": 8}', 1.1),
}
SEEDS = 5
OPTIONS = Options(permutations=999, resamples=100, seed=1)
ADJUSTED = {"alpha": 0.05, "seed": 1, "n_tests": 1}
PICTURES = {"frontier": "frontier", "table2": "compressed", "table3": "pretrained", "nothing": "frontier"}
QUESTIONS = {"frontier": "ranks section 5", "table2": "ranks Table 2", "table3": "ranks Table 3", "nothing": None}


@dataclass(frozen=True)
class Made:
    """What is changed in the made-up run."""

    factors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    spread: float = 0.01  # of the logarithm of a factor over data sets and seeds
    rename: str = ""  # stands behind every model's name
    without: tuple[str, ...] = ()  # models that are not there
    read: bool = False  # whether bolt is also read in bfloat16, faster than all baselines and more accurate
    device: str = "cpu"  # of models; baselines are always fitted on the processor
    later: tuple[str, ...] = ()  # models whose forecasts are of a later run
    unscored: tuple[str, ...] = ("auto-arima/hospital/s1",)  # windows without a forecast


def compression_studies(folder: Path, made: Made = Made()) -> dict[str, StudyTables]:
    """Study -> its tables, answered by the page's own SQL, with the intervals that the stage statistics gives."""
    tables = rows(made)
    for name, lines in tables.items():
        files.write_rows(folder / f"{name}.parquet", name, lines)
    with duckdb.connect() as connection:  # without the checks, which take most of the time
        catalogue._fill(connection, {name: [folder / f"{name}.parquet"] for name in tables}, 0)
        catalogue._create_views(connection, catalogue.resources("tsfmscope.store") / "sql")
        inferred = files.to_arrow("inference", [{**row, **ADJUSTED} for row in of_units(connection, OPTIONS)])
        connection.register("inferred", inferred)
        connection.execute("insert into inference by name select * from inferred")
        return {
            study: answer_study(connection, study, plot, QUESTIONS[study], study) for study, plot in PICTURES.items()
        }


def rows(made: Made = Made()) -> dict[str, list[Row]]:
    """Table of the store -> rows."""
    rng = np.random.default_rng(4)
    asked = FACTORS | (dict.fromkeys(READ, (0.5, 0.005)) if made.read else {}) | dict(made.factors)
    factors = {name: pair for name, pair in asked.items() if name not in made.without}
    cells = [
        _cell(name, dataset, pair, made, rng)
        for name, pair in factors.items()
        if name not in PRETRAINED
        for dataset in DATASETS
    ]
    cells += _pretrained(made, rng)
    names = {name + made.rename for name in factors if name not in LOCAL and name not in PRETRAINED}
    roots = {name: name.partition("@")[0].removesuffix(made.rename).removesuffix("-bf16") for name in names}
    checkpoints = [_checkpoint(name, FAMILIES[root]) for name, root in roots.items()]
    nets = sorted({str(part[0]["model"]) for _, part, _ in cells if "net" in part[0]["model"]})
    for model in nets:
        line = next((name for name in PRETRAINED if model.startswith(name)), None)
        checkpoints.append(_checkpoint(model, "moirai", PRETRAINED[line][1] if line else None))
    timing = {"stage": "forecasts", "load_seconds": 0.0, "actor": "a", "node": "n", "device": "cpu", "started": 1e9}
    run = {"stage": "forecasts", "started": 0, "seconds": 2e3, "jobs": 1, "done": 1, "reused": 0, "failed": 0}
    run |= {"commit": "c", "versions": "{}", "hardware": "h", "cpus": 1, "gpus": 0, "seed": 0, "host": "h"}
    studies = []
    for key, part, _ in cells:
        asked = ["table3"] if part[0]["model"] in nets else ["frontier"]
        asked += ["table2"] if part[0]["model"].startswith("t5") else []
        studies += [{"study": study, "stage": "forecasts", "job_key": key} for study in asked]
    fidelity = [one for one in _fidelity(made, rng) if one["model"].startswith("t5")]
    studies += [{"study": "table2", "stage": "compression", "job_key": one["job_key"]} for one in fidelity]
    x_axis = json.dumps({model: int(model.removesuffix(made.rename).rpartition("-")[2]) + 1 for model in nets})
    return {
        "forecasts": [row for _, part, _ in cells for row in part],
        "timings": [
            {**timing, "key": key, "seconds": seconds, "started": 3.1e9 if part[0]["model"] in made.later else 1e9}
            | {"device": "cpu" if part[0]["model"] in LOCAL else made.device}
            for key, part, seconds in cells
        ],
        "runs": [run, {**run, "started": 3e9}],  # microseconds
        "checkpoints": checkpoints,
        "compression": [_compression(name, made) for name in CUT if name in factors],
        "fidelity": fidelity,
        "study_jobs": studies,
        "studies": [
            {"study": study, "title": study, "figure": QUESTIONS[study], "plot": picture}
            | {"x_axis": x_axis if study == "table3" else None}
            for study, picture in PICTURES.items()
        ],
    }


def _cell(name: str, dataset: str, pair: tuple[float, float], made: Made, rng: np.random.Generator) -> Cell:
    """The rows of one model on one data set, and the seconds of its job."""
    family = name.partition("@")[0].removesuffix("-bf16")
    own = 1.0 if name in ("t5", "bolt") else float(np.exp(made.spread * rng.standard_normal()))
    scale = pair[0] * own * (0.9 if family == "bolt" else 1.0)
    model = name if name in LOCAL else name + made.rename
    base = READ.get(name, family if "@" in name else None)
    base = base and base + made.rename
    out = []
    for n in range(DATASETS[dataset]):
        none = f"{name}/{dataset}/s{n}" in made.unscored
        loss = (3.0 + n) * len(dataset) * scale
        out.append(_forecast(model, base, None, dataset, f"s{n}", None if none else loss, f"{model}-{dataset}"))
    seconds = 2.0 * pair[1] * DATASETS[dataset] * (0.5 if family == "bolt" else 1.0)
    return f"{model}-{dataset}", out, seconds


def _forecast(
    model: str, base: str | None, rank: float | None, dataset: str, series: str, loss: float | None, key: str
) -> Row:
    cell = {"model": model, "base_model": base, "rank": rank, "dataset": dataset, "condition": "c", "context": 64}
    there = loss is not None
    sums = {"squared_error": 1.0, "nmse_denominator": 2.0, "quantile_loss": loss or 0.0, "target_abs": 10.0 * there}
    ratios = {"nmse": 0.5, "nmse_power": 0.4, "wql_window": (loss or 0) / 90, "mase": loss, "seasonal_error": 1.0}
    return {
        **cell, "noise": 0.0, "series": series, "origin": 64, "horizon": 8, "n_context": 64, "n_future": 8, **sums,
        **(ratios if there else dict.fromkeys(ratios)), "reason": None if there else "not forecast: made so",
        "levels": [n / 10 for n in range(1, 10)], "batch": 8, "job_key": key,
    }  # fmt: skip


def _pretrained(made: Made, rng: np.random.Generator) -> list[Cell]:
    out = []
    for seed in range(SEEDS):
        for line, (size, _, factor) in {**PRETRAINED, "net-dense": (None, None, 1.0)}.items():
            wide = "" if size is None else f"{100 * size:g}"
            model, base = f"{line}{wide}-{seed}{made.rename}", f"net-dense-{seed}{made.rename}" if size else None
            own = made.factors.get(line, (factor, 1.0))[0] * (
                np.exp(made.spread * rng.standard_normal()) if size else 1
            )
            for dataset in DATASETS:
                key = f"{model}-{dataset}"
                out.append((key, [_forecast(model, base, size, dataset, "s0", 5.0 * own * (1 + seed), key)], 1.0))
    return out


def _checkpoint(model: str, family: str, heads: str | None = None) -> Row:
    where = {"source": "trained", "ref": model, "fingerprint": "0" * 64, "parameters": 10, "bytes": 40, "recipe": "r"}
    stacks = {"input_stack": "encoder", "output_stack": "encoder"}
    return {"model": model, "family": family, "modality": "series", **stacks, **where, "heads": heads}


def _compression(name: str, made: Made) -> Row:
    method, share = CUT[name]
    sizes = {"parameters": 80, "base_parameters": 100, "attention_parameters": int(40 * share)}
    return {
        "model": name + made.rename, "base_model": name.partition("@")[0] + made.rename, "rank": None,
        "method": method, "ranks": "{}", **sizes, "base_attention_parameters": 40, "size_ratio": 0.8,
        "attention_ratio": share, "rank_ratio": share / 2 if method == "svd" else share, "error": 0.1,
        "job_key": f"c-{name}",
    }  # fmt: skip


def _fidelity(made: Made, rng: np.random.Generator) -> list[Row]:
    out = []
    for name, (_, share) in CUT.items():
        if name in READ:
            continue
        overlap = 0.9 + 0.2 * np.log2(share) + 0.01 * rng.standard_normal()
        cell = {"model": name + made.rename, "base_model": name.partition("@")[0] + made.rename, "rank": None}
        cell |= {"dataset": "hospital", "condition": "c", "context": 64, "noise": 0.0, "n_windows": 4}
        out.append({**cell, "n_positions": 99, "top": 10, "overlap": overlap, "log_ppl": 2.0, "base_log_ppl": 1.0}
                   | {"lppl": 2.0, "state_error": 0.1, "reason": None, "job_key": f"f-{name}"})  # fmt: skip
    return out
