"""How well a model is chosen by its errors on a data set, by its skill elsewhere, and by both.

    python -m bench.choice [--quick] [--corpus FOLDER] [--losses FOLDER] [--skill] [--report]

The data sets are those of bench/skill.py that guided the recipes, and the group `tune` of the corpus. Each gives at
most 16 evenly spaced series (4 for `SLOW`), context 512, and up to eight windows per series that do not overlap. The
candidates of the tables are the bundled models that forecast and are not in `SLOW`.

A rule chooses a candidate by the windows before a held-out one, and by the skill on other data sets: the mean over
the guided sets, without the set itself and those of the same origin (`SAME_ORIGIN`), of the log WQL over point seasonal
naive. The result is WQL(chosen) / WQL(best) on the held-out window: the last one, or the mean over the last five.
"combine, fitted elsewhere" has the constants of `GRID` with the least mean on the sets of other origins. The numbers
of `tune` are those of unknown data only for checkpoints that were not trained on it.

--losses: folder that keeps the losses of each model; a model with the same weights is not measured again. --skill:
write the stored skill and seconds, tsfmscope/models/skill.csv; --seconds: measure only its seconds again. --report:
look at the group `report` too, with the stored skill, and log the look in docs/results/report_looks.csv. --quick: three
models, four series a set, the last window only.

Last line JSON: the rows of the tables.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from bench.skill import CONTEXT, ROOT, SAMPLES, Part, corpus_parts, guided_parts, load, spread_parts
from tsfmscope.forecasting.baselines import METHODS, Local, seasonal_naive
from tsfmscope.forecasting.scores import quantile_losses
from tsfmscope.forecasting.skill import geometric_mean, sample_seed
from tsfmscope.models.base import QUANTILES
from tsfmscope.models.bundled_skill import COLUMNS, PATH, bundled_skill
from tsfmscope.series.types import Series, Windows
from tsfmscope.series.windows import last_windows
from tsfmscope.statistics.choice import DRIFT, SPREAD, combine, pooled_log_errors

LOOKS = ROOT / "docs" / "results" / "report_looks.csv"
SERIES, ORIGINS, HELD_OUT = 16, 8, 5
# Largest number of series and of windows of forecasters that take long.
SLOW_SERIES, SLOW_ORIGINS = 4, 4
SLOW = ("auto-theta", "auto-ets", "chronos-t5-mini", "lag-llama-mini", "time-moe-mini", "wavetoken-mini")
BASELINES = ("seasonal-naive", "auto-ets", "auto-theta")
# Data sets of the same origin, or with series in common.
SAME_ORIGIN = (
    {"australian_electricity_queensland", "australian_electricity_south_australia", "smart_meters_australia"},
    {"weather_solar", "weather_rain", "weather_sunshine"},
    {"traffic_weekly", "traffic_i94_hourly", "metr_la_week"},
    {"dominick", "dominick_categories"},
    {"tsdl", "r_textbook_series", "sunspots", "co2", "elnino", "nile", "macrodata", "fred_md"},
    {"hospital", "mortality"},
)
# Constants (spread, drift) of `combine` among which the fit chooses.
GRID = tuple(itertools.product((0.1, 0.15, 0.2, 0.3), (0.1, 0.15, 0.2, 0.3, 0.4)))
FITTED = "combine, fitted elsewhere"
# Reference that no rule can use: the least error over all eight windows, the held-out one included.
HINDSIGHT = "all windows, held-out one included"
Rule = Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class Table:
    """Losses of one data set: models [candidate, series, origin], and point seasonal naive [series, origin]."""

    group: str
    losses: np.ndarray
    naive: np.ndarray

    @property
    def log_ratios(self) -> np.ndarray:
        """Log WQL over point seasonal naive, both on the windows of the candidate."""
        naive = np.where(np.isfinite(self.losses), self.naive, 0.0)
        return np.asarray(np.log(np.nansum(self.losses, axis=(1, 2)) / naive.sum(axis=(1, 2))))


def cut_origins(parts: Sequence[Part], series: int, origins: int) -> list[tuple[Part, int, Windows]]:
    """Return the windows of evenly spaced series of each data set, for each origin; 0 is the last one."""
    pairs = [(part, last_windows(part.series, context=CONTEXT, horizon=part.horizon)[0]) for part in parts]
    cut = []
    for part, windows in spread_parts([pair for pair in pairs if len(pair[1])], series):
        names = set(windows.series)
        items = [item for item in part.series if item.series in names]
        for origin in range(origins):
            earlier = origin * part.horizon
            moved, _ = last_windows(items, context=CONTEXT, horizon=part.horizon, earlier=earlier)
            if len(moved):
                cut.append((part, origin, moved))
    return cut


def measure(model: Any, cut: Sequence[tuple[Part, int, Windows]]) -> Iterator[dict[str, Any]]:
    """Yield the loss of each window. A baseline that fails gives the forecast of seasonal naive."""
    for part, origin, windows in cut:
        seeds = [sample_seed(origin, row) for row in range(len(windows))]
        values = np.array(model.forecast(windows, levels=QUANTILES, samples=SAMPLES, seeds=seeds).values, dtype=float)
        naive = seasonal_naive(windows, len(QUANTILES))
        if isinstance(model, Local):
            failed = [row for row, series in enumerate(windows.series) if series in model.failed]
            values[failed] = naive[failed]
            model.failed.clear()
        losses, naive_losses = (
            quantile_losses(windows.future, of, QUANTILES) / len(QUANTILES) for of in (values, naive)
        )
        facts = {"group": part.group, "dataset": part.dataset, "freq": windows.freq, "origin": origin}
        for series, loss, naive_loss in zip(windows.series, losses, naive_losses, strict=True):
            yield facts | {"series": series, "loss": loss, "naive": naive_loss}


def measure_all(names: Sequence[str], parts: Sequence[Part], folder: Path | None, quick: bool) -> pd.DataFrame:
    """Return the losses of the models, from the folder where it has them."""
    fast = cut_origins(parts, 4 if quick else SERIES, 4 if quick else ORIGINS)
    slow = cut_origins(parts, SLOW_SERIES, SLOW_ORIGINS)
    groups, frames = "-".join(dict.fromkeys(part.group for part in parts)), []
    for name in names:
        model, weights = (Local(name), "") if name in METHODS else load(name)
        path = folder / f"{name}-{weights}-{groups}.parquet" if folder else None
        if path and path.is_file():
            frame = pd.read_parquet(path)
        else:
            start = time.process_time()
            frame = pd.DataFrame(measure(model, slow if name in SLOW else fast)).assign(model=name, weights=weights)
            print(f"{name}: {time.process_time() - start:.0f} s", flush=True)
            if path:
                frame.to_parquet(path)
        frames.append(frame)
    return pd.concat(frames)


def tables_of(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, Table]:
    """Return the losses of each data set; those on which seasonal naive has no error are left out."""
    tables = {}
    for dataset, rows in frame[frame.model.isin(names)].groupby("dataset", sort=False):
        keys = pd.factorize(rows.freq + "|" + rows.series)[0]
        losses = np.full((len(names), keys.max() + 1, ORIGINS), np.nan)
        losses[rows.model.map(list(names).index), keys, rows.origin] = rows.loss
        naive = np.full(losses.shape[1:], np.nan)
        naive[keys, rows.origin] = rows.naive
        if np.nansum(naive) > 0:
            tables[str(dataset)] = Table(rows.group.iloc[0], losses, naive)
    return tables


def same_origin(dataset: str) -> set[str]:
    """Return the data set and those of the same origin."""
    return next((group for group in SAME_ORIGIN if dataset in group), {dataset})


def skill_elsewhere(tables: dict[str, Table], dataset: str) -> np.ndarray:
    """Return the mean log ratio on the guided sets of other origins."""
    left_out = same_origin(dataset)
    rows = [table.log_ratios for name, table in tables.items() if table.group == "guided" and name not in left_out]
    return np.asarray(np.mean(rows, axis=0))


def combination(spread: float, drift: float) -> Rule:
    """Return the rule of `combine` with these constants."""
    return lambda errors, covariance, skill, n: (
        combine(errors, covariance, skill, n_windows=n, spread=spread, drift=drift).mean
    )


RULES: dict[str, Rule] = {
    "chance": lambda errors, covariance, skill, n: np.zeros_like(errors),
    "windows alone": lambda errors, covariance, skill, n: errors,
    "skill elsewhere alone": lambda errors, covariance, skill, n: skill,
    "even mix": lambda errors, covariance, skill, n: errors + skill,
    "combine": combination(SPREAD, DRIFT),
}


def regrets(table: Table, skill: np.ndarray, rules: dict[str, Rule], windows: int, held_out: int) -> pd.DataFrame:
    """Return log WQL(chosen) / WQL(best), one row per held-out window and one column per rule.

    The choice is among the candidates' estimates; equal ones are chosen with equal probability. A window without series
    that have it and an earlier one, or on which a candidate has no error, has no row.
    """
    rows = []
    for origin in range(held_out):
        past, future = table.losses[:, :, origin + 1 : origin + 1 + windows], table.losses[:, :, origin]
        usable = np.isfinite(past).all(axis=0).any(axis=1) & np.isfinite(future).all(axis=0)
        past, later = past[:, usable], future[:, usable].sum(axis=1)
        if not usable.any() or not (later > 0).all() or not (np.nansum(past, axis=(1, 2)) > 0).all():
            continue
        errors, covariance = pooled_log_errors(past)
        n_windows = int(np.isfinite(past).any(axis=(0, 1)).sum())
        estimates = {name: rule(errors, covariance, skill, n_windows) for name, rule in rules.items()}
        estimates[HINDSIGHT] = np.nansum(table.losses[:, usable], axis=(1, 2))
        row = {}
        for name, estimate in estimates.items():
            row[name] = np.log(later)[estimate == estimate.min()].mean() - np.log(later).min()
        rows.append(row)
    return pd.DataFrame(rows, columns=[*rules, HINDSIGHT])


def compare(tables: dict[str, Table], windows: int, held_out: int, skill: np.ndarray | None = None) -> pd.DataFrame:
    """Return the mean regrets, one row per data set. skill: that of all sets; None: that of other guided sets."""
    rules = RULES | {str(pair): combination(*pair) for pair in GRID}
    means = {
        dataset: regrets(
            table, skill_elsewhere(tables, dataset) if skill is None else skill, rules, windows, held_out
        ).mean()
        for dataset, table in tables.items()
    }
    return pd.DataFrame(means).T.dropna()


def fitted_elsewhere(frame: pd.DataFrame, criterion: pd.DataFrame) -> pd.Series:
    """Return the regret of the constants with the least mean criterion on the data sets of other origins."""
    grid = [str(pair) for pair in GRID]
    regret = {}
    for name, row in frame.iterrows():
        others = criterion[~criterion.index.isin(list(same_origin(str(name))))]
        regret[name] = row[str(others[grid].mean().idxmin())]
    return pd.Series(regret)


def summarize(frame: pd.DataFrame, groups: pd.Series, **facts: Any) -> list[dict[str, Any]]:
    """Return geometric means over data sets with intervals, and counts of sets below, at and above each rule alone."""
    rows = []
    tie = 1e-9
    for group in [*dict.fromkeys(groups), "all"] if groups.nunique() > 1 else groups.unique():
        part = frame[groups == group] if group != "all" else frame
        for rule in [name for name in part if name in RULES or name in (FITTED, HINDSIGHT)]:
            mean, ends = geometric_mean(np.exp(part[[rule]].to_numpy()), bootstrap=2000, seed=0)
            low, high = (None, None) if ends is None else (round(float(end), 3) for end in ends[:, 0])
            alone = {name: part[rule] - part[f"{name} alone"] for name in ("windows", "skill elsewhere")}
            counts = {
                f"{word} {name}": int(holds.sum())
                for name, gap in alone.items()
                for word, holds in (("below", gap < -tie), ("equal", gap.abs() <= tie), ("above", gap > tie))
            }
            rows.append(
                facts
                | {"group": group, "sets": len(part), "rule": rule, "ratio": round(float(mean[0]), 3)}
                | {"low": low, "high": high}
                | counts
            )
    return rows


def core_seconds(name: str, steps: int = 24, repeats: int = 5) -> str:
    """Return the seconds of one core for a forecast of eight series of CONTEXT steps: the least of the repeats."""
    model = Local(name) if name in METHODS else load(name)[0]
    time_axis = np.arange(CONTEXT + steps)
    waves = [np.sin(time_axis / 4 + phase) + time_axis / 100 for phase in range(8)]
    series = [Series("waves", f"wave-{number}", wave, freq="h") for number, wave in enumerate(waves)]
    windows = last_windows(series, context=CONTEXT, horizon=steps)[0]
    measured = []
    for _ in range(repeats):
        start = time.process_time()
        model.forecast(windows, levels=QUANTILES, samples=SAMPLES, seeds=range(8))
        measured.append(time.process_time() - start)
    return f"{min(measured):.2g}"


def write_skill(rows: Sequence[dict[str, Any]]) -> None:
    """Write tsfmscope/models/skill.csv, with the seconds of today."""
    with PATH.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"seconds": core_seconds(row["model"])} for row in rows)


def skill_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the stored skill: mean and spread of each log ratio over the guided sets."""
    rows = []
    for name, own in frame[frame.group == "guided"].groupby("model", sort=True):
        tables = tables_of(own, [str(name)])
        ratios = np.array([table.log_ratios[0] for table in tables.values()])
        numbers = (f"{ratios.mean():.4f}", f"{ratios.std(ddof=1):.4f}", len(ratios))
        rows.append(dict(zip(COLUMNS, (name, own.weights.iloc[0], *numbers), strict=True)))
    return rows


def main() -> None:
    """Measure, compare the rules, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three models, four series a set, the last window only")
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="folder of the corpus")
    parser.add_argument("--losses", type=Path, help="folder that keeps the losses of each model")
    parser.add_argument("--skill", action="store_true", help="write the stored skill of all bundled forecasters")
    parser.add_argument("--report", action="store_true", help="look at the group `report` too, and log the look")
    parser.add_argument("--seconds", action="store_true", help="measure only the seconds of the stored skill again")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.seconds:
        with PATH.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        write_skill(rows)
        print(json.dumps({name: stored.seconds for name, stored in bundled_skill().items()}))
        return
    minis = sorted(folder.name for folder in (ROOT / "tsfmscope" / "checkpoints").glob("*-mini"))
    names = minis[:3] if options.quick else [name for name in minis if name not in SLOW]
    parts = [*guided_parts(), *corpus_parts(options.corpus, "tune")]
    frame = measure_all(names, parts, options.losses, options.quick)
    tables, rows = tables_of(frame, names), []
    groups = pd.Series({name: table.group for name, table in tables.items()})
    spans = (1,) if options.quick else (1, HELD_OUT)
    results = {(n, span): compare(tables, n, span) for n in (1, 3) for span in spans}
    criterion = (results[1, spans[-1]] + results[3, spans[-1]]) / 2
    print("constants:", np.exp(criterion[[str(pair) for pair in GRID]].mean()).round(3).to_dict())
    for (n, span), result in results.items():
        result[FITTED] = fitted_elsewhere(result, criterion)
        rows += summarize(result, groups[result.index], windows=n, held_out=span)
    if options.skill:
        everyone = [*BASELINES, *minis]
        measured = measure_all(everyone, [*guided_parts()], options.losses, options.quick)
        write_skill(skill_rows(measured))
    if options.report:
        looked = measure_all(names, [*corpus_parts(options.corpus, "report")], options.losses, options.quick)
        stored, report_tables = bundled_skill(), tables_of(looked, names)
        skill = np.array([stored[name].log_ratio for name in names])
        weights = ";".join(f"{name}={stored[name].weights}" for name in names)
        for n in (1, 3):
            result = compare(report_tables, n, 1, skill)
            new = summarize(result, pd.Series("report", result.index), windows=n, held_out=1)
            rows += new
            ratios = "; ".join(f"{row['rule']} {row['ratio']} [{row['low']}, {row['high']}]" for row in new)
            with LOOKS.open("a", encoding="utf-8", newline="") as file:
                look = (datetime.now(UTC).date(), f"bench/choice.py, {n} windows, {len(result)} sets", weights, ratios)
                csv.writer(file, lineterminator="\n").writerow(look)
    print(pd.DataFrame(rows).to_string(index=False))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
