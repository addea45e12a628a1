"""Sweep entry of stage compression: compress a model, save it, and report its sizes and errors."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.tasks.compression import two_step
from tsfmscope.tasks.compression.calibration import gather
from tsfmscope.tasks.compression.candidates import NEEDS_MOMENTS, inert_matrices
from tsfmscope.tasks.compression.export import save
from tsfmscope.tasks.compression.timing import forecast_seconds, measure
from tsfmscope.tasks.compression.truncation import compress as truncate
from tsfmscope.tasks.compression.truncation import refuse_factors
from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.job import Job, Result
from tsfmscope.tasks.models.common.attention import NAMES
from tsfmscope.tasks.models.common.checksums import write_recipe
from tsfmscope.tasks.models.types import Tokens
from tsfmscope.tasks.series.tables import table_series
from tsfmscope.tasks.series.windows import MIN_CONTEXT, spread_windows

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.series.types import Series, Windows

# number of windows that are forecast together when forecasts are timed, as in bench/compression.py
TIMED = 4


def compress(job: Job, data: Mapping[str, Any], model: Family) -> Result:
    """Compress a model in place, save it, and return its `compression` row.

    data: `folder`, the target folder, and `series`, tables of calibration series by data set.
    job.spec: model, base_model, rank and method (a mapping that `truncation.compress` takes). A method that
    reads data or measures time also needs calibration; forecasts of TIMED windows of its first data set are
    timed. recipe.json, with the job's key, is written last: a folder that has it is complete. It also
    contains the row, and as `parts` the rows of table `compressed_heads`.
    """
    spec, folder = job.spec, Path(data["folder"])
    before = sizes(model)
    idle = inert_matrices(model, univariate=spec["method"].get("univariate", False))
    parts = cut(model, spec, data["series"])
    identity = {name: spec[name] for name in ("model", "base_model", "rank")}
    row = {**identity, **described(spec["method"]), **compared(before, sizes(model)), **summed(parts, idle)}
    named = [{"model": spec["model"], "base_model": spec["base_model"], **part} for part in parts]
    # A run that was stopped may have left an incomplete folder.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save(model, folder)
    write_recipe(folder, {"key": job.key, "recipe": dict(spec), "row": row, "parts": named})
    return Result([row])


def cut(model: Family, spec: Mapping[str, Any], series: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
    """Compress a model in place; return one row per layer and part.

    spec: base_model, method and calibration, as in `compress`. ModelError, before any calibration, for a
    model that contains thin factors.
    """
    refuse_factors(model.attentions(), spec["base_model"])
    method, moments, saved = spec["method"], None, None
    if method["method"] == two_step.METHOD:
        return two_step.compress(model, method, calibration_tokens(model, series, spec["calibration"]))
    if method["method"] in NEEDS_MOMENTS:
        moments = gather(model, *calibration_tokens(model, series, spec["calibration"]))
    if "time" in method["ranks"]:
        windows = calibration_windows(model, series, spec["calibration"] | {"windows": TIMED})[0]
        saved = measure(model, forecast_seconds(windows))
    return truncate(model, method, moments, saved)


def sizes(model: Family) -> dict[str, int]:
    """Return the numbers of parameters of the network (shared ones once) and of its attention layers."""
    attention = [layer.linear(what) for layer in model.attentions() for what in NAMES]
    return {
        "parameters": sum(one.numel() for one in model.network.parameters()),
        "attention_parameters": sum(one.numel() for linear in attention for one in linear.parameters()),
    }


def described(method: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns `method` and `ranks` (as JSON)."""
    return {"method": method["method"], "ranks": json.dumps(method["ranks"], sort_keys=True)}


def compared(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Any]:
    """Return the columns of sizes: after, before, and their ratios."""
    return {
        **after,
        **{f"base_{name}": count for name, count in before.items()},
        "size_ratio": after["parameters"] / before["parameters"],
        "attention_ratio": after["attention_parameters"] / before["attention_parameters"],
    }


def summed(parts: Sequence[Mapping[str, Any]], idle: Container[tuple[str, str, str]]) -> dict[str, float]:
    """Return the mean of rank over full width, and the root mean square of relative errors, over parts.

    idle: matrices without effect, as `choices.inert` lists them; their errors do not count. The error is 0 if
    all are idle.
    """
    ranks = [part["rank"] / part["full_width"] for part in parts]
    seen = [one for one in parts if any((one["stack"], one["attention"], what) not in idle for what in one["part"])]
    errors = np.array([part["relative_error"] for part in seen])
    return {"rank_ratio": float(np.mean(ranks)), "error": float(np.sqrt(np.mean(errors**2))) if seen else 0.0}


def calibration_tokens(model: Family, tables: Mapping[str, pa.Table], spec: Mapping[str, Any]) -> list[Tokens]:
    """Return the tokens of `calibration_windows`, one item per data set."""
    model, _ = model.under(spec["context"], 0)
    return [model.tokenize(windows) for windows in calibration_windows(model, tables, spec)]


def calibration_windows(model: Family, tables: Mapping[str, pa.Table], spec: Mapping[str, Any]) -> list[Windows]:
    """Return calibration windows, one item per data set that has any, outside the `held_out` share.

    Series are tried in a seeded random order, until the number of series that yield a window equals the
    number of windows. spec: datasets, windows (at most, per data set), context, horizon, held_out, seed.
    DataError, with the reasons why series were skipped, if no series yields a window.
    """
    _, context = model.under(spec["context"], 0)
    spread = partial(spread_windows, context=context, horizon=spec["horizon"], min_context=MIN_CONTEXT)
    found, passed = [], Counter[str]()
    for dataset in spec["datasets"]:
        whole = table_series(tables[dataset])
        usable: dict[int, Series] = {}
        for index in np.random.default_rng(spec["seed"]).permutation(len(whole)):
            one = _before(whole[index], spec["held_out"])
            if skipped := spread([one], count=1)[1]:
                passed.update(skip.reason for skip in skipped)
                continue
            usable[index] = one
            if len(usable) == spec["windows"]:
                break
        if usable:
            found.append(spread([usable[index] for index in sorted(usable)], count=spec["windows"])[0])
    if not found:
        why = ", ".join(f"{reason} ({count} series)" for reason, count in passed.most_common()) or "they hold no series"
        raise DataError(
            f"calibration: data sets {spec['datasets']} give no window before the last {spec['held_out']:.0%} of their "
            f"series: {why}; name others, or a shorter horizon"
        )
    return found


def _before(one: Series, held_out: float) -> Series:
    return replace(one, values=one.values[: int(len(one.values) * (1 - held_out))])
