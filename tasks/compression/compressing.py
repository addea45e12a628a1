"""The sweep's entry of stage compression: a model in, the same with narrower heads in a folder, and what it lost."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.compression import both
from tasks.compression.calibration import gather
from tasks.compression.choices import WEIGHED
from tasks.compression.clock import forecast_seconds, measure
from tasks.compression.export import save
from tasks.compression.truncation import compress as truncate
from tasks.compression.truncation import refuse_factors
from tasks.errors import DataError
from tasks.models.attention import NAMES
from tasks.models.types import Tokens
from tasks.series.tables import table_series
from tasks.series.windows import MIN_CONTEXT, spread_windows
from tasks.sweep.jobs import Job, Result

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.models.base import Family
    from tasks.series.types import Series, Windows

TIMED = 4  # windows that are forecast together, as in bench/compression.py


def compress(job: Job, data: Mapping[str, Any], model: Family) -> Result:
    """The `compression` row of a model that is compressed, in place, and saved.

    data: `folder`, where it goes, and `series`, tables of calibration series by data set. job.spec: model, base_model,
    rank, method (a mapping that `truncation.compress` takes) and, for one that looks at data or is timed on them,
    calibration; forecasts of TIMED windows of its first data set are timed. recipe.json,
    with the job's key, comes last: a folder that has it is whole. It holds the row and `parts`, those of
    `compressed_heads`, too.
    """
    spec, folder = job.spec, Path(data["folder"])
    before = sizes(model)
    parts = cut(model, spec, data["series"])
    identity = {name: spec[name] for name in ("model", "base_model", "rank")}
    row = {**identity, **described(spec["method"]), **compared(before, sizes(model)), **summed(parts)}
    named = [{"model": spec["model"], "base_model": spec["base_model"], **part} for part in parts]
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
    folder.mkdir(parents=True)
    save(model, folder)
    said = {"key": job.key, "recipe": dict(spec), "row": row, "parts": named}
    (folder / "recipe.json").write_text(json.dumps(said, indent=2) + "\n")
    return Result([row])


def cut(model: Family, spec: Mapping[str, Any], series: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
    """Rows of the parts of a model that is compressed in place. spec: base_model, method, calibration of `compress`.

    ModelError, before anything is gathered, for a model that holds thin factors.
    """
    refuse_factors(model.attentions(), spec["base_model"])
    method, moments, saved = spec["method"], None, None
    if method["method"] == both.METHOD:
        return both.compress(model, method["ranks"]["budget"], calibration_tokens(model, series, spec["calibration"]))
    if method["method"] in WEIGHED:
        moments = gather(model, *calibration_tokens(model, series, spec["calibration"]))
    if "time" in method["ranks"]:
        windows = calibration_windows(model, series, spec["calibration"] | {"windows": TIMED})[0]
        saved = measure(model, forecast_seconds(windows))
    return truncate(model, method, moments, saved)


def sizes(model: Family) -> dict[str, int]:
    """Parameters of the network, those that it shares counted once, and of its attention layers."""
    attention = [layer.linear(what) for layer in model.attentions() for what in NAMES]
    return {
        "parameters": sum(one.numel() for one in model.network.parameters()),
        "attention_parameters": sum(one.numel() for linear in attention for one in linear.parameters()),
    }


def described(method: Mapping[str, Any]) -> dict[str, str]:
    """Columns that say how: method, and ranks as JSON."""
    return {"method": method["method"], "ranks": json.dumps(method["ranks"], sort_keys=True)}


def compared(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Any]:
    """Columns of sizes: after, before, and their ratios."""
    return {
        **after,
        **{f"base_{name}": count for name, count in before.items()},
        "size_ratio": after["parameters"] / before["parameters"],
        "attention_ratio": after["attention_parameters"] / before["attention_parameters"],
    }


def summed(parts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Columns over all parts: mean of rank over full width, and root mean square of the relative errors."""
    ranks = [part["rank"] / part["full_width"] for part in parts]
    errors = np.array([part["relative_error"] for part in parts])
    return {"rank_ratio": float(np.mean(ranks)), "error": float(np.sqrt(np.mean(errors**2)))}


def calibration_tokens(model: Family, tables: Mapping[str, pa.Table], spec: Mapping[str, Any]) -> list[Tokens]:
    """Tokens of `calibration_windows`."""
    model, _ = model.under(spec["context"], 0)
    return [model.tokenize(windows) for windows in calibration_windows(model, tables, spec)]


def calibration_windows(model: Family, tables: Mapping[str, pa.Table], spec: Mapping[str, Any]) -> list[Windows]:
    """Windows of seeded series, of every data set that gives any; futures end before the `held_out` share.

    Series are taken in a seeded order until there are as many that give a window as there are to be windows.
    spec: windows (of each data set, at most), context, horizon, held_out, seed. DataError, with why series were passed
    over, where none gives one.
    """
    _, context = model.under(spec["context"], 0)
    spread = partial(spread_windows, context=context, horizon=spec["horizon"], min_context=MIN_CONTEXT)
    found, passed = [], Counter[str]()
    for dataset in spec["datasets"]:
        whole = table_series(tables[dataset])
        usable: dict[int, Series] = {}
        for index in np.random.default_rng(spec["seed"]).permutation(len(whole)):
            one = _before(whole[index], spec["held_out"])
            if skipped := spread([one], count=1, season=1)[1]:
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
