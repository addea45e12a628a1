"""Series that break things, the whole way: tokens, embeddings, every measure of the outer layers, forecasts and scores.

Nothing may raise or warn, no number may be NaN or infinite, and whatever is null or missing has its reason.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from store.dumps import layer_states, layers, write_dump
from store.schema import TABLES
from tasks.embeddings import embed
from tasks.forecasts import evaluate
from tasks.geometry import entry
from tasks.job import IDENTITY, Job, Task
from tasks.tokens import tokenize
from tests.tsfmscope.models.families import COMMITTED, FORECASTERS
from tsfmscope.geometry import measures
from tsfmscope.geometry.measures import MEASURES, REPEATED
from tsfmscope.models.base import Forecaster
from tsfmscope.models.registry import family_class
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series

# Families of `make test`; the others take longer, since each reads 96 series.
FAST = {"chronos-t5", "chronos-bolt", "patchtst", "moirai", "lag-llama"}
# Families of networks that read images or find nearest codes: minutes each.
LONG = {"timesfm", "totem", "visionts"}
MARKS = {name: [pytest.mark.slow, pytest.mark.long] if name in LONG else [pytest.mark.slow] for name in FORECASTERS}
FAMILIES = [pytest.param(name, marks=[] if name in FAST else MARKS[name]) for name in FORECASTERS if name in COMMITTED]
LARGEST = float(np.finfo(np.float32).max)
MEASURE = {
    "k_max": 3, "restarts": 1, "min_silhouette": 0.1, "min_cluster": 10, "silhouette_rows": 20_000, "permutations": 3,
    "repeats": 2, "presets": ["isoscore"],
}  # fmt: skip
RNG = np.random.default_rng(0)
WALK = RNG.standard_normal(160).cumsum()
STEP = np.arange(160)
FEW = "fewer than 16 observed steps in the context"
NEVER_EXPLAINED = (  # nor standard deviations: null under two repeats that have the measure
    *("reason", "base_model", "size_parameter", "size_rule", "samples"),
    *(f"{name}_sd" for name in REPEATED),
)
ADJUSTED = tuple(name for one in MEASURES for name in one.columns if name.startswith("zeta_adjusted"))
WORDS: dict[str, tuple[str, ...]] = {  # of a reason -> the column that it speaks of
    "zeta": ("zeta:",),
    "zeta_token": ("zeta:",),
    **dict.fromkeys(("k", "eigenvalues"), ("clusters and eigenvalues:",)),
    "silhouettes": ("silhouettes:", "clusters and eigenvalues:"),
    **dict.fromkeys(ADJUSTED, ("zeta_adjusted:", "clusters and eigenvalues:")),
    **dict.fromkeys(("isoscore", "isoscore_star"), ("isoscore:", "clusters and eigenvalues:")),
    **dict.fromkeys(("cai_k", "cai_cosine", "cai_silhouettes", "cai_cluster_cosine"), ("cai:",)),
    **{name: (f"{name}:",) for name in ("nmse", "nmse_power", "wql_window", "mase")},
    "seasonal_error": ("mase:",),
    "mase_gluonts": ("mase:", "mase_gluonts:"),
}
# Words for a measure that has none above: its own name, or the reason of equal rows.
FALLBACK = {name: (f"{name}:", "clusters and eigenvalues:") for measure in MEASURES for name in measure.columns}
EVERYTHING = ("rows that are not zero", "not forecast", "no observed target")  # reasons for every column at once


@dataclass(frozen=True)
class Case:
    """A data set and how it is cut. skipped: why the first series gives no window; unscored: nor its last steps."""

    values: np.ndarray
    context: int = 96
    horizon: int = 12
    noise: float = 0.0
    skipped: str | None = None
    unscored: str | None = None
    others: int = 0  # ordinary series beside it

    @property
    def series(self) -> list[Series]:
        """The hostile series first."""
        whole = [self.values, *(WALK + n for n in range(self.others))]
        return [Series("d", f"s{n}", np.asarray(v, np.float32), freq="D") for n, v in enumerate(whole)]


def only(*steps: int) -> np.ndarray:
    """A walk of which these steps alone are observed."""
    return np.where(np.isin(STEP, steps), WALK, np.nan)


CASES = {
    "a constant": Case(np.full(160, 3.0)), "a constant that float32 rounds": Case(np.full(160, 0.1)),
    "a huge constant": Case(np.full(160, 1e30)), "all zero": Case(np.zeros(160)),
    "zero but for the future": Case(np.r_[np.zeros(148), np.ones(12)]),
    "constant but for one step": Case(np.where(STEP == 130, 1.0, 0.0)),
    "a jump of the largest float": Case(np.where(STEP < 100, -LARGEST, LARGEST)),
    "the largest float throughout": Case(np.full(160, LARGEST)), "huge": Case(1e30 * WALK),
    "huge of both signs": Case(1e30 * RNG.standard_normal(160)),
    "near the largest float": Case(np.linspace(1, 3e38, 160)),
    "near the largest float, with noise": Case(np.linspace(-3.4e38, 3.4e38, 160), noise=0.5),
    "huge and tiny in turn": Case(np.where(STEP % 2, 1e30, 1e-30) * WALK),
    "one huge step": Case(np.where(STEP == 120, 1e30, WALK)), "tiny": Case(1e-30 * WALK),
    "denormal": Case(1e-42 * WALK), "a huge level with tiny changes": Case(1e8 + WALK),
    "a huge level with changes in the last digit": Case(1e30 * (1 + 1e-7 * (STEP % 2))),
    "negative zero": Case(np.full(160, -0.0)), "NaN at the start": Case(np.where(STEP < 100, np.nan, WALK)),
    "NaN at the end": Case(np.where(STEP >= 100, np.nan, WALK), unscored="nothing is observed in the future"),
    "NaN at the end of the only context": Case(only(*range(20, 36), 159), context=128),
    "NaN in turn": Case(np.where(STEP % 2, np.nan, WALK)),
    "nine of ten are NaN": Case(np.where(STEP % 10, np.nan, WALK), skipped=FEW),
    "all NaN": Case(np.full(160, np.nan), skipped="nothing is observed in the future"),
    "one observed step": Case(only(80), skipped="nothing is observed in the future"),
    "one observed step in the context, one in the future": Case(only(80, 155), skipped=FEW),
    "one infinite step": Case(np.where(STEP == 120, np.inf, WALK), skipped="infinite"),
    "infinite in the future": Case(np.where(STEP == 155, -np.inf, WALK), skipped="infinite"),
    "all infinite": Case(np.full(160, np.inf), skipped="infinite"),
    "shorter than the horizon": Case(WALK[:8], skipped="too short"), "one step": Case(WALK[:1], skipped="too short"),
    "no step": Case(WALK[:0], skipped="too short"), "a single window": Case(WALK[:28], context=16),
    "a single window of a constant": Case(np.full(28, 3.0), context=16), "a horizon of one step": Case(WALK, horizon=1),
    "a future that the context says nothing of": Case(np.where(STEP < 148, 1e-30, 1e30) * WALK),
    "a huge context before a future of zero": Case(np.where(STEP < 148, 1e30, 0.0) * WALK),
    "NaN in all of the future but its last step": Case(only(*range(148), 159)),
    "one window of 16 steps, one to forecast": Case(WALK[:17], context=16, horizon=1),
    "a context of 16": Case(WALK, context=16),
    "a horizon beyond what the model answers at once": Case(WALK, context=32, horizon=100),
    "a constant among others": Case(np.full(160, 3.0), others=2), "huge among others": Case(1e30 * WALK, others=2),
    "near the largest float among others": Case(np.linspace(1, 3e38, 160), others=2),
    "infinite among others": Case(np.where(STEP == 120, np.inf, WALK), others=2, skipped="infinite"),
    "all NaN among others": Case(np.full(160, np.nan), others=2, skipped="nothing is observed in the future"),
    "no step among others": Case(WALK[:0], others=2, skipped="too short"),
}  # fmt: skip


@functools.cache
def model(family: str) -> Forecaster:
    return family_class(family).load(COMMITTED[family])


def job(case: Case, **more: Any) -> Job:
    cell = dict(zip(IDENTITY, ("m", None, None, None, "d", "c", case.context, case.noise), strict=True))
    return Job(Task("t", 1, "m:f"), cell | {"seed": 0} | more)


# The model that a job's spec names; the tests pass it to the entries.
MODEL = {"family": "f", "ref": "r"}


def cut(case: Case) -> dict[str, Any]:
    return {"horizon": case.horizon, "min_context": 16, "held_out": None}


def layers_to_measure(network: Forecaster, stack: str) -> set[int]:
    """The input of a stack, its first and its last layer; all layers together take twice the time."""
    return {0, 1, network.layers[stack]}


def measured(case: Case, family: str, folder: Path) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Counted reasons, and the row of each measured layer: three jobs, with files between them as in the pipeline."""
    network = model(family)
    result = tokenize(job(case, **cut(case), **MODEL, rows=64, format="arrow"), series_table(case.series), network)
    write_dump(folder, "tokens.parquet", result.dump or [])
    data = pq.read_table(folder / "tokens.parquet")
    skipped: dict[str, int] = json.loads((data.schema.metadata or {})[b"skipped"])
    assert result.rows[0]["n_windows"] == len(data)
    if not len(data):
        return skipped, []
    result = embed(job(case, **MODEL, rows=64, batch=16, store_dtype="float16", format="arrow"), data, network)
    write_dump(folder, "states.arrow", result.dump or [])
    rows: list[dict[str, Any]] = []
    for stack, layer, normed in layers(folder / "states.arrow"):
        if layer not in layers_to_measure(network, stack):
            continue
        states = layer_states(folder / "states.arrow", stack, layer, normed)
        location = {"stack": stack, "layer": layer, "normed": normed, "weights_dtype": "float32"}
        # CAI has a clustering of its own, three quarters of the time: it is measured after the last block only.
        with_cai = layer == network.layers[stack] and not normed
        measure = MEASURE | {"presets": ["isoscore", "cai"]} if with_cai else MEASURE
        (row,) = entry(job(case, **location, tokens=64, measure=measure), states, None).rows
        rows.append({name: value for name, value in row.items() if with_cai or not name.startswith("cai")})
    return skipped, rows


def scored(case: Case, family: str) -> list[dict[str, Any]]:
    """The row of every series."""
    how = {"levels": [0.1, 0.5, 0.9], "samples": 4, "batch": 8, "keep_quantiles": True}
    result = evaluate(job(case, **cut(case), **MODEL, **how), series_table(case.series), model(family))
    return [dict(row) for row in result.rows]


def numbers(value: Any) -> list[float]:
    """Every number of a value, and infinity for a list's null."""
    if isinstance(value, list):
        return [number for one in value for number in ([math.inf] if one is None else numbers(one))]
    return [value] if isinstance(value, int | float) else []


def unexplained(row: Mapping[str, Any], table: str) -> list[str]:
    """Columns that are not finite, null where none may be, or null or empty without a word in `reason` about them."""
    columns = {column.name: column for column in TABLES[table].columns}
    wrong = []
    for name, value in row.items():
        if name in NEVER_EXPLAINED:
            continue
        nothing = value is None or value == []
        said = columns[name].nullable and any(
            word in (row["reason"] or "") for word in WORDS.get(name, FALLBACK.get(name, ())) + EVERYTHING
        )
        if (nothing and not said) or not all(map(math.isfinite, numbers(value))):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", CASES)
def test_states_are_measured_or_the_row_says_why_not(
    name: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ten starts for each of 14 numbers of clusters take half the time, and no reason depends on how many there are.
    monkeypatch.setattr(measures, "CAI_OPTIONS", measures.CAI_OPTIONS.model_copy(update={"restarts": 1, "k_max": 5}))
    case, network = CASES[name], model(family)
    skipped, rows = measured(case, family, tmp_path)
    assert {(row["stack"], row["layer"]): bad for row in rows if (bad := unexplained(row, "geometry"))} == {}
    if case.skipped:
        assert [n for reason, n in skipped.items() if case.skipped in reason] == [1]
    for stack in network.stacks:
        got = sum(row["stack"] == stack for row in rows)
        without = case.skipped and not case.others
        if not without and f"no token of stack {stack} stands for a value" not in skipped:
            assert got == len(layers_to_measure(network, stack)) + network.final_norm, stack
        else:
            assert got == 0, stack


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", CASES)
def test_every_forecast_is_scored_or_says_why_not(name: str, family: str) -> None:
    case = CASES[name]
    rows = scored(case, family)
    assert [row["series"] for row in rows] == [one.series for one in case.series]
    assert {row["series"]: bad for row in rows if (bad := unexplained(row, "forecasts"))} == {}
    why = case.skipped or case.unscored
    assert (rows[0]["n_future"] == 0) == (why is not None)
    assert f"not forecast: {why}" in rows[0]["reason"] if why else rows[0]["nmse"] is not None or rows[0]["reason"]
