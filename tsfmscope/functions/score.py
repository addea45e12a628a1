"""`score`: errors of many models and baselines on the last windows of the user's data, and the choice among them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd

from tsfmscope import layer_states, progress
from tsfmscope.compression.onnx_forecaster import is_onnx
from tsfmscope.defaults import HELD_OUT, MAX_CONTEXT, MIN_CONTEXT
from tsfmscope.errors import KNOWN, ArgumentError, DataError
from tsfmscope.files import TABLES, save_as, table_writers
from tsfmscope.forecasting import rolling
from tsfmscope.forecasting.baselines import Local, seasonal_naive
from tsfmscope.forecasting.rolling import Errors, Targets
from tsfmscope.forecasting.scores import window_seed
from tsfmscope.functions.arguments import Bounds, Count, Horizon, Seed, checked
from tsfmscope.functions.load import LoadedForecaster, Model, as_forecaster, reading_notes
from tsfmscope.models.base import QUANTILES, Family, Forecaster
from tsfmscope.models.bundled_skill import bundled_skill
from tsfmscope.models.references import load_catalog, resolve
from tsfmscope.models.registry import family_class
from tsfmscope.models.types import Forecast
from tsfmscope.report import render
from tsfmscope.report.render import apply_style, image_writers
from tsfmscope.series.catalog import modality
from tsfmscope.series.data_sets import Data, NamedSeries, usable_series
from tsfmscope.series.files.options import reading_of
from tsfmscope.series.types import Series, Windows, count_reasons, describe_reasons
from tsfmscope.series.windows import gather_windows, longest_context, rolling_origins
from tsfmscope.statistics.choice import combine, pooled_log_errors

if TYPE_CHECKING:
    from tsfmscope.report.style import Chart

logger = logging.getLogger("tsfmscope")

SUFFIXES = (".html", *render.SUFFIXES, *TABLES)
BASELINES = ("seasonal-naive", "auto-ets", "auto-theta")
# Context where none is given, unless the longest history is shorter: what most bundled models read.
USUAL_CONTEXT = 512
# Largest numbers of series that are scored, and forecast by each baseline, unless all are asked for.
MAX_SERIES, BASELINE_SERIES = 1_000, 300
# Seconds that a baseline may take, and that a bundled model which nobody named may be expected to take.
TIME_LIMIT = 60.0
# Windows per call of a model, of the call that its time is predicted from, and per call of point seasonal naive.
BATCH, PROBE, LARGE_BATCH = 64, 8, 4096
# Sample paths, for models that draw them.
SAMPLES = 20
# Tokens whose isotropy is measured.
TOKENS = 1024
# Largest ratio to the best's estimate that counts as near it.
NEAR = 1.02
ISOTROPY = (
    "isoscore: IsoScore of the last layer. It says nothing about the error: choosing by isotropy was no better than "
    "chance (docs/findings/advice.md)."
)
Reference = LoadedForecaster | Model | str | Path
Contexts = Annotated[int | Sequence[int] | None, Bounds(MIN_CONTEXT, MAX_CONTEXT)]


@dataclass(frozen=True, eq=False)
class ScoreResult:
    """Scores of all candidates on the same windows, ordered by the estimate.

    `print` shows the main columns, and a notebook shows them as a table.

    Attributes:
        rows: one row per candidate. candidate, model, context (steps), is_baseline; estimate: expected WQL on further
            windows over that of point seasonal naive, from these windows and the skill on other data sets; ratio: WQL
            over that of point seasonal naive on the same windows; wql; mase; coverage of the 80 % interval (share);
            ratio, wql and over_best (WQL over that of the best) with the columns _low and _high of a 95 % interval;
            is_undecided: not shown to be worse than the best; is_point: one value at all quantiles; seconds per 1,000
            forecasts of one series; n_bytes of the weights; license; n_windows; n_series; isoscore, if asked for.
        losses: one row per candidate and window: candidate, series, origin (index of the first step that is forecast),
            loss (twice the pinball loss, summed over levels and steps), naive_loss (of point seasonal naive),
            target_abs (sum of |y|).
        best: candidate with the least estimate.
        smallest: model with the fewest bytes of weights among those within 2 % of the best's estimate; the best, if
            that is a baseline and no model is so near.
        data: name of the data.
        horizon: steps.
        season: steps of the season of seasonal naive and of MASE; 1: none.
        n_series: number of series with a window.
        n_windows: number of windows per series, at most.
        left_out: series or candidate, with the reason.
        missing: candidates that were not finished when the work was interrupted.
        notes: sentences about the data and the candidates.
    """

    rows: pd.DataFrame
    losses: pd.DataFrame
    best: str
    smallest: str
    data: str
    horizon: int
    season: int
    n_series: int
    n_windows: int
    left_out: Mapping[str, str]
    missing: list[str]
    notes: list[str]

    @property
    def title(self) -> str:
        """Data, horizon and number of windows in words."""
        return f"{self.data}, horizon {self.horizon}: {len(self.losses['candidate'].unique())} candidates"

    def sentences(self) -> Iterator[str]:
        """Yield sentences about the windows, the candidates that are left out, and the choice, which is the last."""
        yield from self.notes
        for name, reason in self.left_out.items():
            yield f"left out: {name}: {reason}."
        if points := self.rows.loc[self.rows["is_point"], "candidate"].tolist():
            yield (
                f"° {', '.join(points)}: one value at every quantile, so that the WQL is the absolute error over the "
                "sum of |y|, and an 80 % interval has no width."
            )
        if "isoscore" in self.rows:
            yield ISOTROPY
        season = f"season {self.season}" if self.season > 1 else "no season: the last value"
        yield (
            f"ratio: WQL over that of point seasonal naive ({season}) on the same windows; estimate: the ratio to "
            "expect on further windows, from these windows and from the model's skill on other data sets, weighed by "
            "how certain each is; [ ]: 95 % intervals over series and origins."
        )
        if self.missing:
            yield f"interrupted: not finished: {', '.join(self.missing)}."
        yield self.describe_choice()

    def describe_choice(self) -> str:
        """Return one sentence: the best, the smallest near it, and what the data cannot decide."""
        rows = {row["candidate"]: row for row in self.rows.to_dict("records")}
        best, small = rows[self.best], rows[self.smallest]
        text = f"best: {_with_estimate(best)}"
        model = next((row for row in rows.values() if not row["is_baseline"]), None)
        if best["is_baseline"] and model is not None:
            text += f", a baseline; the best model: {_with_estimate(model)}"
        if small is not best:
            text += f"; the smallest model within 2 % of the best: {self.smallest} ({small['n_bytes'] / 1e6:.2f} MB)"
        elif best["is_baseline"]:
            text += "; no model is within 2 % of it"
        else:
            text += "; no smaller model is within 2 % of it"
        undecided = [name for name, row in rows.items() if row["is_undecided"] and name != self.best]
        windows = f"{best['n_windows']:,} windows of {best['n_series']:,} series"
        if not undecided:
            return f"{text}; on the {windows}, every other candidate is worse (95 % intervals, each alone)."
        shown = ", ".join(undecided[:6]) + (f" and {len(undecided) - 6} more" if len(undecided) > 6 else "")
        return f"{text}; the {windows} cannot tell the best from {shown}: more series or windows could."

    def table(self) -> pd.DataFrame:
        """Return the table for people, one row per candidate: rounded numbers, with their intervals, as text."""
        lines = []
        for number, row in enumerate(self.rows.to_dict("records"), start=1):
            mark = "best" if row["candidate"] == self.best else "≈ best" if row["is_undecided"] else ""
            lines.append({
                "#": number, "candidate": f"{row['candidate']}{'°' if row['is_point'] else ''}", "choice": mark,
                "estimate": _text(row["estimate"]), "ratio": _with_ends(row, "ratio"), "WQL": _with_ends(row, "wql"),
                "MASE": _text(row["mase"]), "80 % covers": _text(row["coverage"], "{:.0%}"),
                "s/1,000": _text(row["seconds"], "{:.3g}"),
                "MB": f"{row['n_bytes'] / 1e6:.2f}" if row["n_bytes"] else "–",
                "licence": row["license"] or "–", "windows": f"{row['n_windows']:,}",
            } | ({"isoscore": _text(row["isoscore"])} if "isoscore" in self.rows else {}))  # fmt: skip
        return pd.DataFrame(lines)

    def facts(self) -> dict[str, Any]:
        """Return the JSON document; unknown numbers are None."""
        rows = self.rows.astype(object).where(self.rows.notna(), None)
        return {
            "data": self.data, "horizon": self.horizon, "season": self.season, "n_series": self.n_series,
            "n_windows": self.n_windows, "best": self.best, "smallest": self.smallest,
            "choice": self.describe_choice(), "candidates": rows.to_dict("records"), "left_out": dict(self.left_out),
            "missing": self.missing, "notes": self.notes,
        }  # fmt: skip

    def plot(self) -> Chart:
        """Return an Altair chart of the error against the seconds, one mark per candidate with its interval."""
        return apply_style(self._draw())

    def save(self, path: str | Path) -> Path:
        """Write a page (.html), the plot (.png, .svg, .pdf) or the rows (.csv, .parquet); return the path.

        The file is written completely or not at all. Raises ValueError for another suffix, OSError if the file cannot
        be written.
        """
        return save_as(path, {".html": self._write_page, **image_writers(self._draw), **table_writers(self.rows)})

    def _write_page(self, path: Path) -> None:
        from tsfmscope.report.candidates import render_candidates

        page = render_candidates(self.title, self.rows, list(self.sentences()), self.table())
        path.write_text(page, encoding="utf-8")

    def _draw(self) -> Chart:
        from tsfmscope.report.candidates import draw_candidates

        return draw_candidates(self.rows)

    def __repr__(self) -> str:
        return f"{self.title}\n{self.table().to_string(index=False)}\n{self.describe_choice()}"

    def _repr_html_(self) -> str:
        from html import escape

        return (
            f"<p>{escape(self.title)}</p>\n{self.table().to_html(index=False)}\n<p>{escape(self.describe_choice())}</p>"
        )


def _text(value: float, form: str = "{:.3f}") -> str:
    return "–" if pd.isna(value) else form.format(value)


def _with_estimate(row: Mapping[Any, Any]) -> str:
    return str(row["candidate"]) + ("" if pd.isna(row["estimate"]) else f" (estimate {row['estimate']:.3f})")


def _with_ends(row: Mapping[Any, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return _text(row[name]) + ("" if pd.isna(low) else f" [{_text(low)}, {_text(high)}]")


@checked
def score(
    data: Data,
    *,
    models: Sequence[Reference] | None = None,
    hub: Sequence[str] | None = None,
    contexts: Contexts = None,
    horizon: Horizon = None,
    windows: Count = 3,
    all: bool = False,
    isotropy: bool = False,
    device: str = "cpu",
    seed: Seed = 0,
    **reading: Any,
) -> ScoreResult:
    """Score models and baselines on the last windows of your data, and choose one.

    Every model with every context, and the baselines seasonal naive, AutoETS and AutoTheta, forecast the same windows:
    the last ones of each series, a horizon apart. The order is that of the estimate, which combines the error on these
    windows with the skill on other data sets (docs/forecasting.md). Ctrl-C keeps the candidates that are finished.

    Args:
        data: as in `inspect`.
        models: names of bundled models, folders (also those that `export` wrote with onnx), FAMILY:FOLDER or
            hub:ORG/NAME, with commas; None: all bundled models that forecast, but those that would take more than 60
            seconds; in Python a list, also of models that `load` returned.
        hub: names ORG/NAME of further models of the Hugging Face hub, with commas; in Python a list.
        contexts: steps of context, one number or several, 16 to 32,768; None: 512, or the longest history if that is
            shorter.
        horizon: steps to forecast; None: the data set's, or 24.
        windows: largest number of windows per series.
        all: score all series; without it, a seeded sample of at most 1,000, of which baselines forecast 300 at most,
            for 60 seconds each at most.
        isotropy: measure IsoScore of each model's last layer too.
        device: torch device that runs the models, such as cpu or cuda:0.
        seed: seed of the samples of series and forecasts, and of the intervals.
        reading: as in `inspect`.

    Returns:
        `rows` has one row per candidate, `losses` one per candidate and window. `best` and `smallest` are names of
        candidates. `sentences()` states what the data cannot decide.

    Raises:
        DataError: the data contain no series, or no series is long enough.
        ArgumentError: a name is unknown, an argument is out of range, or a model does not forecast time series. It is
            a ValueError.
    """
    named = _named_models(models, hub)
    progress.show("reading the data")
    series = usable_series(data, max_series=None if all else MAX_SERIES, seed=seed, reading=reading_of(reading))
    if (kind := modality(series.dataset.source)) != "series":
        raise ArgumentError(f"{series.name}: {kind} data, expected time series; name other data")
    task = _plan(series, contexts, horizon or series.dataset.horizon, windows, is_sampled=not all, seed=seed)
    jobs = [
        *(partial(_score_model, task, model, context, device=device, may_be_slow=models is not None or is_hub,
                  with_isotropy=isotropy)
          for model, is_hub in named for context in task.contexts),
        *(partial(_score_baseline, task, name) for name in BASELINES),
    ]  # fmt: skip
    names = [task.label(_name_of(model), context) for model, _ in named for context in task.contexts] + [*BASELINES]
    candidates: list[_Candidate] = []
    left_out: dict[str, str] = {}
    missing: list[str] = []
    clock = _Clock(len(jobs))
    try:
        for name, job in zip(names, jobs, strict=True):
            missing = names[names.index(name) :]
            try:
                candidates.append(job(show=partial(clock.show, name)))
            except KNOWN as error:
                # A named package or checkpoint that is missing must not cost the scores of the others.
                left_out[name] = str(error).rstrip(".")
            clock.n_done += 1
        missing = []
    except KeyboardInterrupt:
        if not candidates:
            raise
    if not candidates:
        raise DataError(f"{series.name}: no candidate gave a forecast: {'; '.join(left_out.values())}")
    return _rank(task, candidates, left_out, missing, with_isotropy=isotropy)


def _named_models(models: Sequence[Reference] | None, hub: Sequence[str] | None) -> list[tuple[Reference, bool]]:
    """Return the models, and whether each is of the hub.

    Raises ArgumentError for a name that is unknown, twice there, or that of a model which does not forecast series.
    """
    if isinstance(models, str | Path | Model | LoadedForecaster):
        models = [models]
    if models is None:
        catalog = load_catalog()["models"]
        named: list[tuple[Reference, bool]] = [(name, False) for name in bundled_skill() if name in catalog]
    elif not len(models):
        raise ArgumentError("models: got an empty list, expected a model; leave it out for all bundled ones")
    else:
        named = [(model, False) for model in models]
    named += [(f"hub:{name.removeprefix('hub:')}", True) for name in hub or ()]
    names = [_name_of(model) for model, _ in named]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ArgumentError(f"models: got {min(twice)} twice; name it once, or rename one of two folders")
    for model, is_hub in named:
        # A name that is wrong must not be found after minutes of work; those of the hub are looked up in their turn.
        is_checkpoint = isinstance(model, str | Path) and not is_onnx(model)
        if models is not None and not is_hub and is_checkpoint:
            family = family_class(resolve(model).family)
            if not issubclass(family, Forecaster):
                raise ArgumentError(
                    f"models: {model} reads {family.modality} and does not forecast; name a model of time series"
                )
    return named


def _name_of(model: Reference) -> str:
    if isinstance(model, Model | LoadedForecaster):
        return model.name
    return Path(model).name if str(model).count("/") and not str(model).startswith("hub:") else str(model)


@dataclass(frozen=True, eq=False)
class _Task:
    """Windows that all candidates forecast.

    picks: index of the series and origin of each window. cells: row and column of each window in grids of `shape`.
    reach: steps that the baselines read. notes: sentences.
    """

    name: str
    series: list[Series]
    picks: list[tuple[int, int]]
    cells: list[tuple[int, int]]
    shape: tuple[int, int]
    contexts: list[int]
    reach: int
    horizon: int
    season: int
    held_out: float | None
    targets: Targets
    naive: Errors
    baseline_windows: list[int]
    time_limit: float
    seed: int
    notes: list[str]

    def label(self, model: str, context: int) -> str:
        """Return the name of a candidate."""
        return model if len(self.contexts) == 1 else f"{model}, context {context}"

    def gather(self, at: Sequence[int], steps: int) -> Windows:
        """Return the windows at these positions with so many steps of context."""
        return gather_windows(self.series, [self.picks[index] for index in at], steps, self.horizon)

    def forecast(self, model: Any, windows: Windows) -> Forecast:
        """Return the forecast of windows, with the same seeds for every model."""
        seeds = [window_seed(str(self.seed), name) for name in windows.series]
        forecast: Forecast = model.forecast(windows, levels=QUANTILES, samples=SAMPLES, seeds=seeds)
        return forecast


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Scores of one candidate. seconds: of the forecasts alone. skill: stored log ratio on other data; NaN: none."""

    label: str
    model: str
    context: int
    errors: Errors
    seconds: float
    is_point: bool
    skill: float
    n_bytes: int = 0
    license: str | None = None
    isoscore: float | None = None
    notes: list[str] = field(default_factory=list)


class _Clock:
    """Progress over all candidates, with the time left."""

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs, self.n_done, self.start = n_jobs, 0, time.monotonic()

    def show(self, name: str, n_done: int, total: int) -> None:
        """Show the work on one candidate. n_done: of its windows."""
        share = (self.n_done + n_done / total) / self.n_jobs
        left = (time.monotonic() - self.start) * (1 / share - 1) if share else 0.0
        text = f", {timedelta(seconds=round(left))} left" if share else ""
        progress.show(f"{name}, candidate {self.n_done + 1} of {self.n_jobs}{text}", n_done, total)


def _plan(
    data: NamedSeries, contexts: int | Sequence[int] | None, horizon: int, count: int, *, is_sampled: bool, seed: int
) -> _Task:
    """Return the windows of the data. Raises DataError if no series has one."""
    series = data.loaded.series
    longest = longest_context(series, horizon)
    if contexts is None:
        contexts = max(MIN_CONTEXT, min(USUAL_CONTEXT, longest))
    steps = sorted({contexts} if isinstance(contexts, int) else set(contexts))
    if not steps:
        raise ArgumentError("contexts: got an empty list, expected steps of context")
    held_out = HELD_OUT if data.dataset.source == "bundled" else None
    picks, skips = rolling_origins(series, context=steps[0], horizon=horizon, count=count, held_out=held_out)
    left_out = data.count_left_out(count_reasons(skips))
    if not any(picks):
        raise DataError(
            f"{data.name}: no series has a window: {describe_reasons(left_out)}; shorten the horizon, or give longer "
            "series"
        )
    used = [number for number, own in enumerate(picks) if own]
    rows = {index: row for row, index in enumerate(sorted({index for own in picks for index, _ in own}))}
    flat = [pick for own in picks for pick in own]
    cells = [(rows[index], column) for column, number in enumerate(used) for index, _ in picks[number]]
    shape = (len(rows), len(used))
    season = gather_windows(series, flat[:1], 1, horizon).season
    reach = max(steps[-1], 2 * season)
    parts, targets = [], []
    for first in range(0, len(flat), LARGE_BATCH):
        batch = flat[first : first + LARGE_BATCH]
        gathered = gather_windows(series, batch, reach, horizon)
        parts.append(rolling.window_errors(gathered, seasonal_naive(gathered, len(QUANTILES)), QUANTILES))
        pasts = [series[index].values[:origin] for index, origin in batch]
        targets.append(rolling.window_targets(gathered, pasts))
    notes = [_describe_windows(data, len(flat), shape, horizon, left_out)]
    order = np.random.default_rng([seed, 1]).permutation(len(rows))
    order = order[: BASELINE_SERIES if is_sampled else None]
    of_row: dict[int, list[int]] = {}
    for position, (row, _) in enumerate(cells):
        of_row.setdefault(row, []).append(position)
    return _Task(
        data.name, series, flat, cells, shape, steps, reach, horizon, season, held_out,
        Targets(*rolling.fill_grids(targets, cells, shape)), Errors(*rolling.fill_grids(parts, cells, shape)),
        [position for row in order.tolist() for position in of_row[row]],
        TIME_LIMIT if is_sampled else math.inf, seed, notes,
    )  # fmt: skip


def _describe_windows(
    data: NamedSeries, n_windows: int, shape: tuple[int, int], horizon: int, left_out: Mapping[str, int]
) -> str:
    sample = ""
    if len(data.loaded.series) < data.loaded.available:
        sample = f", a seeded sample of {data.loaded.available:,} series (--all takes all)"
    few = shape[0] * shape[1] - n_windows
    skipped = "".join(f"; {n} series left out: {reason}" for reason, n in left_out.items())
    return (
        f"{n_windows:,} windows of {shape[0]:,} series{sample}: the last {shape[1]} of each, {horizon} steps apart, "
        f"the same for all candidates{f' ({few} fewer, of series that are short)' if few else ''}{skipped}."
    )


def _score_model(
    task: _Task, model: Reference, context: int, *, device: str, may_be_slow: bool, with_isotropy: bool,
    show: Callable[[int, int], None],
) -> _Candidate:  # fmt: skip
    """Forecast all windows with a model. Raises DataError for a bundled one that would take too long."""
    show(0, len(task.picks))
    is_named = isinstance(model, str | Path)
    loaded = as_forecaster(model, device=device) if is_named and device != "cpu" else as_forecaster(model)
    forecaster, steps = loaded.model.with_condition(context, 0)
    n_windows, n_probed = len(task.picks), min(PROBE, len(task.picks))
    probe = task.gather(range(n_probed), steps)
    task.forecast(forecaster, probe.take(slice(0, 1)))
    start = time.perf_counter()
    quantiles = task.forecast(forecaster, probe).values
    expected = (time.perf_counter() - start) * n_windows / n_probed
    if expected > TIME_LIMIT and not may_be_slow:
        raise DataError(f"expected to take {expected:.0f} seconds; name it to score it")
    is_point = float(np.ptp(quantiles, axis=1).max()) == 0
    parts, seconds = [], 0.0
    for first in range(0, n_windows, BATCH):
        show(first, n_windows)
        at = range(first, min(first + BATCH, n_windows))
        windows = task.gather(at, steps)
        start = time.perf_counter()
        quantiles = task.forecast(forecaster, windows).values
        seconds += time.perf_counter() - start
        parts.append(rolling.window_errors(windows, quantiles, QUANTILES))
    return _Candidate(
        task.label(_name_of(model), context), _name_of(model), context,
        Errors(*rolling.fill_grids(parts, task.cells, task.shape)), seconds, is_point, _skill_of(model),
        n_bytes=loaded.n_bytes, license=loaded.license.name,
        isoscore=_isoscore(task, loaded.model, context, device) if with_isotropy else None,
        notes=[f"{note}." for note in reading_notes(loaded.name, loaded.max_context, context)],
    )  # fmt: skip


def _skill_of(model: Reference) -> float:
    """Return the stored skill of a bundled model; NaN for another, also for a folder of the same name."""
    name = model.source.reference if isinstance(model, Model) else str(model)
    stored = bundled_skill().get(name) if name in load_catalog()["models"] else None
    return math.nan if stored is None else stored.log_ratio


def _isoscore(task: _Task, family: Any, context: int, device: str) -> float | None:
    """Return IsoScore of the last layer's states; None for an ONNX model, which has none."""
    if not isinstance(family, Family):
        return None
    sample = layer_states.tokenize(
        family, task.series, context=context, horizon=task.horizon, rows=TOKENS, seed=task.seed,
        min_context=MIN_CONTEXT, held_out=task.held_out, noise=0.0,
    )  # fmt: skip
    assert sample.tokens is not None
    states = layer_states.hidden_states(family, sample.tokens, rows=TOKENS, seed=task.seed, device=device)
    *_, last = states.layers
    value = layer_states.measure_layer(last.states, seed=task.seed)["isoscore"]
    return None if value is None else float(value)


def _score_baseline(task: _Task, name: str, *, show: Callable[[int, int], None]) -> _Candidate:
    """Forecast windows with a baseline, for a limited time; where its fit fails, with point seasonal naive."""
    show(0, len(task.baseline_windows))
    # The first fit compiles code.
    task.forecast(Local(name), task.gather(task.baseline_windows[:1], task.reach))
    parts, seconds = [], 0.0
    failed: list[str] = []
    for done, position in enumerate(task.baseline_windows):
        if seconds > task.time_limit:
            break
        show(done, len(task.baseline_windows))
        windows, local = task.gather([position], task.reach), Local(name)
        start = time.perf_counter()
        quantiles = task.forecast(local, windows).values
        seconds += time.perf_counter() - start
        if local.failed:
            failed += local.failed.values()
            quantiles = seasonal_naive(windows, len(QUANTILES))
        parts.append(rolling.window_errors(windows, quantiles, QUANTILES))
    notes = []
    if len(parts) < len(task.picks):
        limit = " in the time limit" if len(parts) < len(task.baseline_windows) else ""
        notes.append(f"{name}: {len(parts):,} of {len(task.picks):,} windows{limit}, its ratio is over these.")
    if failed:
        notes.append(f"{name}: point seasonal naive in {len(failed):,} windows without a fit: {failed[0]}.")
    cells = [task.cells[position] for position in task.baseline_windows[: len(parts)]]
    errors = Errors(*rolling.fill_grids(parts, cells, task.shape))
    return _Candidate(name, name, task.reach, errors, seconds, False, bundled_skill()[name].log_ratio, notes=notes)


def _rank(
    task: _Task, candidates: list[_Candidate], left_out: dict[str, str], missing: list[str], *, with_isotropy: bool
) -> ScoreResult:
    """Return the result, with the candidates in the order of the estimate."""
    losses = np.stack([scored.errors.loss for scored in candidates])
    skill = np.array([scored.skill for scored in candidates])
    log_errors, covariance = pooled_log_errors(losses)
    estimates = combine(log_errors, covariance, skill, n_windows=task.shape[1]).mean
    order = np.argsort(estimates, kind="stable").tolist()
    best = candidates[order[0]]
    resamples = rolling.draw_resamples(*task.shape, seed=task.seed)
    with np.errstate(divide="ignore"):
        log_naive = np.log(np.nansum(task.naive.loss))
    rows, losses_of = [], []
    at = tuple(np.array(task.cells).T)
    windows = pd.DataFrame(
        {
            "series": [task.series[index].series for index, _ in task.picks],
            "origin": [origin for _, origin in task.picks],
        }
    )
    for position in order:
        scored = candidates[position]
        scores = rolling.pool_scores(scored.errors, task.naive, task.targets, len(QUANTILES))
        intervals = {
            "ratio": rolling.ratio_interval(scored.errors.loss, task.naive.loss, resamples),
            "wql": rolling.ratio_interval(scored.errors.loss, len(QUANTILES) * task.targets.size, resamples),
            "over_best": rolling.ratio_interval(scored.errors.loss, best.errors.loss, resamples),
        }
        both = scored.errors.is_scored & best.errors.is_scored
        best_loss = float(best.errors.loss[both].sum())
        scores["over_best"] = float(scored.errors.loss[both].sum()) / best_loss if best_loss else None
        low = intervals["over_best"].low
        columns: dict[str, Any] = {"candidate": scored.label, "model": scored.model, "context": scored.context}
        columns |= {"is_baseline": scored.model in BASELINES}
        columns |= {"estimate": float(np.exp(estimates[position] - log_naive)) if np.isfinite(log_naive) else None}
        for name in ("ratio", "wql", "over_best"):
            columns |= {name: scores[name], f"{name}_low": intervals[name].low, f"{name}_high": intervals[name].high}
        columns |= {"mase": scores["mase"], "coverage": scores["coverage"]}
        columns |= {"is_undecided": scored is best or low is None or low <= 1, "is_point": scored.is_point}
        columns |= {"seconds": 1_000 * scored.seconds / scores["n_windows"], "n_bytes": scored.n_bytes}
        columns |= {"license": scored.license, "n_windows": scores["n_windows"], "n_series": scores["n_series"]}
        rows.append(columns | ({"isoscore": scored.isoscore} if with_isotropy else {}))
        columns = {"loss": scored.errors.loss, "naive_loss": task.naive.loss, "target_abs": task.targets.size}
        own = windows.assign(candidate=scored.label, **{name: grid[at] for name, grid in columns.items()})
        losses_of.append(own[scored.errors.is_scored[at]])
    near = [position for position in order if estimates[position] <= estimates[order[0]] + math.log(NEAR)]
    names = ["candidate", "series", "origin", "loss", "naive_loss", "target_abs"]
    notes = [*task.notes, *dict.fromkeys(note for scored in candidates for note in scored.notes)]
    numbers = [name for name in rows[0] if name.startswith(("estimate", "ratio", "wql", "over_best"))]
    frame = pd.DataFrame(rows).astype(
        dict.fromkeys([*numbers, "mase", "coverage", *(["isoscore"] if with_isotropy else [])], float)
    )
    models = [candidates[position] for position in near if candidates[position].n_bytes]
    smallest = min(models or [best], key=lambda scored: scored.n_bytes)
    return ScoreResult(
        frame, pd.concat(losses_of, ignore_index=True)[names], best.label, smallest.label, task.name, task.horizon,
        task.season, *task.shape, left_out, missing, notes,
    )  # fmt: skip
