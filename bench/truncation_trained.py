"""Forecast error of an externally trained Chronos-Bolt after truncation, on data sets not used for calibration.

    python -m bench.truncation_trained [--quick]

The model is `chronos-bolt-350k` in the folder TSFMSCOPE_WEIGHTS. The series are those of the folder
TSFMSCOPE_DATA: the last windows of up to 32 series of every file. A number in the table is the geometric
mean, over the data sets that were not used for calibration, of the pooled WQL (sum of quantile losses over
the sum of absolute targets) divided by the dense model's. Its 95 % interval, in brackets, is Student's t over
data sets. `size` is the share of attention parameters that is left; `none` has every attention matrix set to
zero. Only the methods that read data depend on the calibration sets. The calibration set "synthetic" stands for the
synthetic sets of `tsfmscope compress`.

Last line JSON: the numbers by calibration, size and method, and `worst_candidate`: the largest lower limit
of the interval of the error of activation-aware-2step or -refit over the error of one of its own candidates.
Above 1, it is significantly worse than that candidate.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tsfmscope.compression import two_step
from tsfmscope.compression.calibration import calibration_tokens, gather
from tsfmscope.compression.compress import compress_model
from tsfmscope.compression.options import Calibration, Method
from tsfmscope.compression.refit import fit_outputs
from tsfmscope.models.base import QUANTILES, Forecaster
from tsfmscope.models.registry import family_class
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.files.sources import load_parquet, select
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Windows
from tsfmscope.series.windows import last_windows
from tsfmscope.statistics import means

SETS = ["australian_electricity", "car_parts", "covid_deaths", "dominick", "dominick_categories", "exchange_rate"]
SETS += ["fred_md", "hospital", "metr_la_week", "nn5_weekly", "pedestrian", "solar_weekly", "traffic_i94_hourly"]
SETS += ["traffic_weekly", "weather_rain", "weather_solar", "weather_sunshine"]
# Number of synthetic sets, as in `tsfmscope compress`, and the name that stands for them.
SYNTHETIC = 8
SYNTHETIC_SETS = "synthetic"
CALIBRATIONS = [["hospital"], ["pedestrian"], ["exchange_rate"], ["covid_deaths", "nn5_weekly", "pedestrian"]]
CALIBRATIONS += [[SYNTHETIC_SETS], [SYNTHETIC_SETS, "pedestrian"], [SYNTHETIC_SETS, "dominick", "fred_md"]]
CALIBRATIONS += [["dominick", "fred_md"], ["hospital", "metr_la_week", "solar_weekly", "weather_sunshine"]]
SIZES = (0.5, 0.25, 0.1)
METHODS = ("svd", "activation-aware-svd", "activation-aware", "activation-aware-2step", two_step.REFIT)
SERIES, CONTEXT = 32, 512
CALIBRATION = {"windows": 32, "context": CONTEXT, "horizon": 24, "held_out": 0.2, "seed": 0}


def log_wql(model: Forecaster, windows: Windows) -> float:
    """Return the logarithm of the pooled WQL of a data set's windows."""
    forecast = model.forecast(windows, levels=QUANTILES, seeds=[0] * len(windows)).values
    error, levels = windows.future[:, None] - forecast, np.array(QUANTILES)[:, None]
    loss = np.nansum(2 * np.maximum(levels * error, (levels - 1) * error)) / len(QUANTILES)
    return float(np.log(loss / np.nansum(np.abs(windows.future))))


def without_attention(model: Forecaster) -> Forecaster:
    """Return a copy whose attention matrices are zero."""
    empty = copy.deepcopy(model)
    for layer in empty.attentions():
        for matrix in "qkvo":
            torch.nn.init.zeros_(layer.linear(matrix).weight)
    return empty


def ratio(logs: np.ndarray) -> tuple[float, float, float]:
    """Return the geometric mean and its 95 % interval of ratios given as logarithms."""
    interval = means.mean(logs)
    estimate, low, high = np.exp([interval.estimate, interval.low, interval.high])
    return float(estimate), float(low), float(high)


def worst_lower_limit(
    base: Any,
    method: str,
    size: float,
    parts: Sequence[Any],
    chosen_errors: np.ndarray,
    errors: Callable[[Forecaster], np.ndarray],
) -> float:
    """Return the largest lower limit of the chosen model's error over a candidate's, at least 0."""
    spec = Method.model_validate({"method": method, "ranks": {"budget": size}})
    moments, limits = gather(base, *parts), [0.0]
    for heads in two_step.splits(base, size):
        candidate = copy.deepcopy(base)
        two_step.apply_split(candidate, spec, heads, moments, parts)
        if method == two_step.REFIT:
            fit_outputs(base, candidate, parts)
        difference = chosen_errors - errors(candidate)
        if difference.any():
            limits.append(ratio(difference)[1])
    return max(limits)


def load_series() -> dict[str, list[Any]]:
    """Return a sample of the series of every data set."""
    folder = Path(os.environ["TSFMSCOPE_DATA"])
    return {
        name: select(load_parquet(folder / f"{name}.parquet", dataset=name), sample=(SERIES, 0)).series for name in SETS
    }


def score_windows(series: dict[str, list[Any]]) -> dict[str, Windows]:
    """Return the scored windows, the last of every series, by data set."""
    horizons = {name: CATALOG[name].horizon if name in CATALOG else 48 for name in series}
    return {name: last_windows(series[name], context=CONTEXT, horizon=horizons[name])[0] for name in series}


class Benchmark:
    """Dense model, scored windows of every data set, and the dense model's errors on them."""

    def __init__(self, base: Any, series: dict[str, list[Any]]) -> None:
        self.base, self.series, self.windows = base, series, score_windows(series)
        self.dense = {name: log_wql(base, windows) for name, windows in self.windows.items()}

    @classmethod
    def load(cls) -> Benchmark:
        """Return the benchmark of `chronos-bolt-350k`, from TSFMSCOPE_WEIGHTS and TSFMSCOPE_DATA."""
        folder = Path(os.environ["TSFMSCOPE_WEIGHTS"], "chronos-bolt-350k")
        return cls(family_class("chronos-bolt").load(folder), load_series())

    def errors(self, model: Forecaster, names: Sequence[str]) -> np.ndarray:
        """Return the logarithms of the model's errors over the dense model's, on the named data sets."""
        return np.array([log_wql(model, self.windows[name]) - self.dense[name] for name in names])

    def compare_methods(self, calibration: list[str], size: float) -> tuple[dict[str, Any], float]:
        """Print a line of the table.

        Returns the line's numbers, and the largest lower limit of a two-step method's error over a candidate's.
        """
        real = [name for name in calibration if name != SYNTHETIC_SETS]
        tables = {name: series_table(self.series[name]) for name in real}
        synthetic = SYNTHETIC if len(real) < len(calibration) else 0
        settings = Calibration(**CALIBRATION | {"datasets": real, "synthetic": synthetic})
        unseen = [name for name in SETS if name not in calibration]
        errors: dict[str, np.ndarray] = {}
        for method in METHODS:
            model, spec = copy.deepcopy(self.base), Method.model_validate({"method": method, "ranks": {"budget": size}})
            compress_model(model, spec, base_model=self.base.name, tables=tables, calibration=settings)
            errors[method] = self.errors(model, unseen)
        ratios = {method: ratio(logs) for method, logs in errors.items()}
        line = " ".join(f"{estimate:7.3f} [{low:5.3f}, {high:5.3f}]" for estimate, low, high in ratios.values())
        print(f"{size:5.2f} {line}  {', '.join(calibration)}", flush=True)
        parts = calibration_tokens(self.base, tables, settings)
        worst = max(
            worst_lower_limit(self.base, method, size, parts, errors[method], lambda model: self.errors(model, unseen))
            for method in METHODS[3:]
        )
        estimates = {method: round(estimate, 4) for method, (estimate, _, _) in ratios.items()}
        return {"calibration": calibration, "size": size, **estimates}, worst


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one calibration set and the quarter alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    benchmark = Benchmark.load()
    print(f"none: {ratio(benchmark.errors(without_attention(benchmark.base), SETS))[0]:.2f}")
    print(f"{'size':>5s} " + " ".join(f"{name:>22s}" for name in METHODS) + "  calibrated on")
    lines = [
        benchmark.compare_methods(calibration, size)
        for calibration in (CALIBRATIONS[:1] if options.quick else CALIBRATIONS)
        for size in (SIZES[1:2] if options.quick else SIZES)
    ]
    rows, limits = zip(*lines, strict=True)
    print(json.dumps({"rows": rows, "worst_candidate": round(max(limits), 4)}))


if __name__ == "__main__":
    main()
