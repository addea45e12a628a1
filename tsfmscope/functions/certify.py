"""`certify`: the test of a small model against its base.

A task is one data set at one horizon. Both models forecast the same windows with the same seeds: the last one of every
series, and for a certificate of one table earlier ones too. The unit of the test is a source of data or, for one table,
a series or a group of series.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from tsfmscope import progress
from tsfmscope.compression.onnx_forecaster import OnnxForecaster, is_onnx
from tsfmscope.compression.record import Calibration
from tsfmscope.defaults import HELD_OUT
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.files import save_as
from tsfmscope.forecasting.options import ScoreOptions
from tsfmscope.forecasting.scores import HIGH, LOW, ScoredWindows, count_covered, score_forecasts, window_seed
from tsfmscope.functions.arguments import Bounds, Context, MaxSeries, Seed, checked
from tsfmscope.functions.load import Case, Model, as_forecaster, as_model, floor_notes, load, make_case, reading_notes
from tsfmscope.models.base import QUANTILES, Family, Forecaster
from tsfmscope.report.render import apply_style, image_writers
from tsfmscope.series.data_sets import Data, NamedSeries, readers
from tsfmscope.series.files.options import reading_of
from tsfmscope.series.types import Skip, describe_reasons, digests, name_sources
from tsfmscope.series.windows import last_windows
from tsfmscope.statistics import noninferiority
from tsfmscope.statistics.noninferiority import MARGIN, WORST, Certificate, Losses, log_ratio, pool, to_ratio

if TYPE_CHECKING:
    from tsfmscope.models.types import ForecastModel
    from tsfmscope.report.style import Chart

logger = logging.getLogger("tsfmscope")

# Largest number of windows per series for a certificate of one table, each a horizon before the next one.
ORIGINS = 5
SCORES = ScoreOptions(levels=QUANTILES, samples=20, batch=64, keep_quantiles=True)
# Reasons why a series of a table is no unit.
REPEATED = "the values of another series"
NO_LOSS = "the small model has no loss, so the log ratio is minus infinity"
CALIBRATED = "it calibrated or healed the small model"
# Limit of a ratio.
Limit = Annotated[float, Bounds(1, excludes_least=True)]
Horizons = Annotated[int | Sequence[int] | None, Bounds(1, 1024)]


class ScoredTask(NamedTuple):
    """Row of one task, and the losses of both models by series."""

    row: dict[str, Any]
    losses: dict[str, Losses]


@dataclass(frozen=True)
class CertifyResult:
    """Result of the test.

    Attributes:
        base: name of the base.
        small: name of the small model.
        tasks: one row per task: data, dataset, source, horizon, context, n_series, sample_of (usable series, where
            only a sample of them was read; else None), season (of mase), n_values (observed
            targets), wql_base, wql_small, ratio, mase_base, mase_small (None where it is undefined), coverage_base,
            coverage_small, skipped (reason -> number of series).
        left_out: data, horizon and reason of what was not tested.
        certificate: the conditions and the outcome.
        table: name of the data, if the certificate is for one table; None: general.
        units: unit and ratio (the mean over horizons).
        parts: name, horizon and ratio of the tasks, or of the groups of units of a table.
        calibrated: names of the tested data that calibrated or healed the small model.
        margin: largest mean ratio.
        worst: largest ratio of a part.
        fingerprint: digest of all usable series of the data that were read.
    """

    base: str
    small: str
    tasks: list[dict[str, Any]]
    left_out: list[dict[str, Any]]
    certificate: Certificate
    table: str | None
    units: list[dict[str, Any]]
    parts: list[dict[str, Any]]
    calibrated: list[str]
    margin: float
    worst: float
    fingerprint: str

    @property
    def skipped(self) -> dict[str, int]:
        """Reason -> number of series that were left out of the scored tasks."""
        return dict(sum((Counter(row["skipped"]) for row in self.tasks), Counter()))

    def describe_scope(self) -> str:
        """Return one sentence with the scope of the certificate, which is its first line."""
        seen = f"; these calibrated or healed the small model: {', '.join(self.calibrated)}" if self.calibrated else ""
        if self.table is None:
            return f"scope: general; {self.count_units()}, data sets told apart by their values{seen}"
        of_series = f" of {self._n_series} series" if self._is_grouped else ""
        if sample_of := self.tasks[0]["sample_of"]:
            of_series += f", a seeded sample of {sample_of} series"
        return f"scope: series like those of {self.table}, and nothing else; {self.count_units()}{of_series}{seen}"

    def describe_outcome(self) -> str:
        """Return one sentence with the outcome and its reason."""
        certificate = self.certificate
        limit, *_, enough = certificate.conditions
        failed = [condition.name for condition in certificate.conditions if not condition.is_met]
        if certificate.outcome == "certified":
            scope = "" if self.table is None else f" on series like those of {self.table}"
            return (
                f"certified: with 95 % confidence, the WQL of {self.small} is on average below {limit.limit:g} times "
                f"that of {self.base}{scope}; mean ratio {to_ratio(certificate.mean):.3f} over {self.count_units()}."
            )
        if certificate.outcome == "not certified":
            return f"not certified: {self.small} against {self.base} fails: {'; '.join(failed)}."
        needed = certificate.needed if enough.is_met else int(enough.limit)
        more = needed - len(self.units)
        advice = f"Name data sets of {more} more sources" if self.table is None else f"Give {more} more series"
        if self.table is not None and self.tasks[0]["sample_of"]:
            advice = f"Read {more} more series: max_series is too small"
        return (
            f"too few tasks: {self.count_units()}, needed {needed} or more for {self.small} against {self.base}; this "
            f"is neither pass nor fail. {advice}."
        )

    def describe_exclusion(self) -> str:
        """Return one sentence with the share of units above the limit, and the largest that they cannot exclude."""
        n, worst = len(self.units), self.certificate.conditions[1].limit
        bad = {unit["unit"] for unit in self.units if unit["ratio"] > worst}
        if self.table is None:
            bad |= {task["source"] for task in self.tasks if task["ratio"] > worst}
        sentence = (
            f"{len(bad)} of {self.count_units()} with a ratio above {worst:g}: with 95 % confidence, at most "
            f"{100 * noninferiority.largest_share(len(bad), n):.1f} % of all such {self._name_units(2)} are above it"
        )
        if self.table is None and n < noninferiority.RELEASE_UNITS:
            sentence += f"; a certificate for a release needs {noninferiority.RELEASE_UNITS} sources or more"
        return sentence

    def notes(self) -> Iterator[str]:
        """Yield one sentence per task that was left out, per reason of series left out, and per repeated source."""
        for task in self.left_out:
            horizon = "" if task["horizon"] is None else f", horizon {task['horizon']}"
            yield f"left out: task {task['data']}{horizon}: {task['reason']}"
        for reason, n in self.skipped.items():
            yield f"left out: {n} series: {reason}"
        for name, source in {row["data"]: row["source"] for row in self.tasks}.items():
            if name != source:
                yield f"note: {name} has a series of {source}; they are one source"

    def facts(self) -> dict[str, Any]:
        """Return the JSON document; infinite and unknown numbers are None."""
        certificate = self.certificate
        facts = {
            "base": self.base, "small": self.small, "scope": self.describe_scope(), "outcome": certificate.outcome,
            "verdict": self.describe_outcome(), "exclusion": self.describe_exclusion(), "n_units": certificate.n_units,
            "needed_units": certificate.needed, "mean_ratio": to_ratio(certificate.mean),
            "log_ratio_sd": certificate.sd, "t_limit": to_ratio(certificate.t_limit),
            "bootstrap_limit": to_ratio(certificate.bootstrap_limit), "bootstrap_method": certificate.bootstrap_method,
            "conditions": [condition._asdict() for condition in certificate.conditions], "tasks": self.tasks,
            "units": self.units, "parts": self.parts, "calibrated": self.calibrated, "left_out": self.left_out,
            "fingerprint": self.fingerprint,
        }  # fmt: skip
        return {name: _finite(value) for name, value in facts.items()}

    def plot(self) -> Chart:
        """Return an Altair chart of the ratios of all tasks, or groups of series, with the mean and its limit."""
        return apply_style(self._chart())

    def _chart(self) -> Chart:
        from tsfmscope.report.certificate import draw_certificate

        certificate = self.certificate
        return draw_certificate(
            pd.DataFrame(self.parts), mean=to_ratio(certificate.mean), upper=to_ratio(certificate.upper_limit),
            margin=self.margin, worst=self.worst, units=self.count_units(),
        )  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write the figure (.png, .svg, .pdf), completely or not at all; return the path.

        Raises ValueError for another suffix, OSError if the file cannot be written.
        """
        return save_as(path, image_writers(self._chart))

    def count_units(self) -> str:
        """Return the number of units, in words."""
        return f"{len(self.units)} {self._name_units(len(self.units))}"

    @property
    def _n_series(self) -> int:
        """Number of series of a table that were scored."""
        return max(int(row["n_series"]) for row in self.tasks)

    @property
    def _is_grouped(self) -> bool:
        return self._n_series > noninferiority.MOST_SERIES

    def _name_units(self, count: int) -> str:
        if self.table is None:
            return "source" if count == 1 else "sources"
        return "groups" if self._is_grouped else "series"


@checked
def certify(
    base: Model | str | Path,
    small: Model | str | Path,
    data: Data | Sequence[Data],
    *,
    margin: Limit = MARGIN,
    worst: Limit = WORST,
    context: Context = None,
    horizon: Horizons = None,
    max_series: MaxSeries = 32,
    seed: Seed = 0,
    **reading: Any,
) -> CertifyResult:
    """Test that a small model is as good as its base.

    With several data sets, the unit of the test is the source: data sets that share a series with the same values are
    one source, and those that calibrated the small model are left out. With one data set, the certificate is for
    series like its own, and the unit is the series. Both models forecast the same windows, inside the last fifth of
    every series, with the same seeds. The conditions are those of docs/compression.md.

    Args:
        base: model, as in `inspect`.
        small: compressed or other small model, likewise, or a folder that `export` wrote with onnx.
        data: data set as in `inspect`, or a list of them; every file of a folder is a data set.
        margin: largest mean ratio of WQL, small model over base, above 1; fix it before you look at scores.
        worst: largest ratio of WQL of a task or, for one data set, of a group of series; above 1.
        context: as in `inspect`.
        horizon: steps to forecast, one number or several; None: that of each data set.
        max_series: as in `inspect`.
        seed: seed of the samples of series and forecasts, and of the bootstrap.
        reading: as in `inspect`.

    Returns:
        `tasks` has one row per data set and horizon, `left_out` the others with their reasons, such as data that
        calibrated the small model. `units` has the ratio of each source or series. `certificate` has the
        `conditions` of docs/compression.md and the `outcome`: certified, not certified or too few tasks.

    Raises:
        ArgumentError: an argument is out of range, a model does not forecast or does not read the data, both are the
            same, or no data set can be scored. It is a ValueError.
        HealthError: a forecast is not finite.
    """
    progress.show("loading the models")
    base = as_model(base)
    if not is_onnx(small):
        small = small if isinstance(small, Model) else load(small, device=base.device)
        sources = [(one.source.folder.resolve(), one.source.options, one.family.compression) for one in (base, small)]
        if sources[0] == sources[1]:
            raise ArgumentError(f"small: expected another model than the base, got the same checkpoint, {base.name}")
    other = as_forecaster(small)
    horizons: list[int | None] = [*horizon] if isinstance(horizon, Sequence) else [horizon]
    read = readers(data, max_series=max_series, seed=seed, reading=reading_of(reading))
    return certify_pair(
        base, other.name, other.model, other.calibration, read,
        horizons=horizons, context=context, seed=seed, margin=margin, worst=worst,
    )  # fmt: skip


def certify_pair(
    base: Model, name: str, small: Family | OnnxForecaster, calibration: Calibration,
    data: Mapping[str, Callable[[], NamedSeries]], *, horizons: Sequence[int | None], context: int | None, seed: int,
    margin: float = MARGIN, worst: float = WORST, keeps_calibrated: bool = False,
) -> CertifyResult:  # fmt: skip
    """Score both models on every task and test the small one.

    name: that of the small model. calibration: series that calibrated it. data: name of the data -> function that
    reads them, called once; data that cannot be used are left out with their reason. keeps_calibrated: whether sources
    that calibrated the small model are tested too; a single table is in any case. Raises ArgumentError for models that
    do not forecast or read other data, or if no task is left; HealthError if a forecast is not finite.
    """
    check_forecasters(base.family, small)
    table = next(iter(data)) if len(data) == 1 else None
    n_origins = ORIGINS if table else 1
    scored: list[ScoredTask] = []
    left_out: list[dict[str, Any]] = []
    contents: dict[str, frozenset[str]] = {}
    calibrated: list[str] = []
    notes: dict[str, None] = {}
    for n_done, (label, read) in enumerate(data.items()):
        progress.show(f"forecasting {label}", n_done, len(data))
        try:
            series = read()
        except DataError as error:
            left_out.append({"data": label, "horizon": None, "reason": str(error)})
            continue
        contents[label] = digests(series.loaded.usable)
        sample_of = series.loaded.available if len(series.loaded.series) < series.loaded.available else None
        if calibration.contains(contents[label], label, series.name):
            if not keeps_calibrated and table is None:
                left_out.append({"data": label, "horizon": None, "reason": CALIBRATED})
                continue
            calibrated.append(label)
        if table is not None:
            series = _without_repeats(series)
        for steps in dict.fromkeys(horizons):
            try:
                case = make_case(base, series, context=context, horizon=steps, seed=seed)
                task = score_task(case, *(forecast_windows(case, one, n_origins) for one in (base.family, small)))
                notes |= dict.fromkeys(_reading_notes(case, small))
            except DataError as error:
                left_out.append({"data": label, "horizon": steps, "reason": str(error)})
            else:
                scored.append(task._replace(row={"data": label, **task.row, "sample_of": sample_of}))
    if not scored:
        first = f"{left_out[0]['data']}: {left_out[0]['reason']}" if left_out else "no data"
        raise ArgumentError(
            f"data: expected at least one task, {len(left_out)} were left out: {first}; name other data or a shorter "
            "horizon"
        )
    for note in notes:
        logger.warning(note)
    source_of = name_sources(contents)
    tasks = [{**task.row, "source": source_of[task.row["data"]]} for task in scored]
    by_unit, parts = _general_ratios(tasks) if table is None else _table_ratios(scored, seed)
    units: list[dict[str, Any]] = [
        {"unit": name, "log_ratio": math.fsum(ratios) / len(ratios)} for name, ratios in by_unit.items()
    ]
    changes = [
        noninferiority.CoverageChange(row["coverage_small"] - row["coverage_base"], row["n_values"]) for row in tasks
    ]
    certificate = noninferiority.assess(
        [unit["log_ratio"] for unit in units], [part["log_ratio"] for part in parts], changes,
        margin=margin, worst=worst, seed=seed,
    )  # fmt: skip
    for row in (*units, *parts):
        row["ratio"] = to_ratio(row.pop("log_ratio"))
    values = sorted(frozenset[str]().union(*contents.values()))
    return CertifyResult(
        base.name, name, tasks, left_out, certificate, table, units, parts, calibrated, margin, worst,
        fingerprint=hashlib.sha256("".join(values).encode()).hexdigest(),
    )  # fmt: skip


def _without_repeats(data: NamedSeries) -> NamedSeries:
    """Return the data without series whose values another one has: a copy is no unit of its own."""
    unique = {next(iter(digests([item]))): item for item in reversed(data.loaded.series)}
    kept = {item.series for item in unique.values()}
    series = [item for item in data.loaded.series if item.series in kept]
    skipped = [Skip(item.series, REPEATED) for item in data.loaded.series if item.series not in kept]
    return data._replace(loaded=replace(data.loaded, series=series, skipped=[*data.loaded.skipped, *skipped]))


def _finite(value: Any) -> Any:
    """Return a document with None for each number that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_forecasters(*models: Family | OnnxForecaster) -> None:
    """Raise ArgumentError for models that cannot be compared."""
    for model in models:
        if not isinstance(model, Forecaster | OnnxForecaster):
            raise ArgumentError(f"expected models that forecast; family {model.name} does not")
    if len({model.modality for model in models}) > 1:
        reads = ", ".join(f"family {model.name} reads {model.modality}" for model in models)
        raise ArgumentError(f"expected models that read the same data; {reads}")


def _general_ratios(tasks: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[float]], list[dict[str, Any]]]:
    """Return the log ratios of the tasks of each source, and a row with the log ratio of each task."""
    parts = [
        {"name": row["dataset"], "horizon": row["horizon"], "log_ratio": log_ratio((row["wql_base"], row["wql_small"]))}
        for row in tasks
    ]
    by_source: dict[str, list[float]] = {}
    for row, part in zip(tasks, parts, strict=True):
        by_source.setdefault(row["source"], []).append(part["log_ratio"])
    return by_source, parts


def _table_ratios(scored: Sequence[ScoredTask], seed: int) -> tuple[dict[str, list[float]], list[dict[str, Any]]]:
    """Return the log ratios of each unit of a table, and a row with the log ratio of each group.

    Series whose small model has no loss at all are left out, since their log ratio is minus infinity.
    """
    unit_of, group_of = noninferiority.split_table(sorted({name for task in scored for name in task.losses}), seed)
    by_unit: dict[str, list[float]] = {}
    parts = []
    for task in scored:
        units = pool(task.losses, unit_of)
        for unit, losses in units.items():
            if (ratio := log_ratio(losses)) > -math.inf:
                by_unit.setdefault(unit, []).append(ratio)
            else:
                task.row["skipped"][NO_LOSS] = task.row["skipped"].get(NO_LOSS, 0) + 1
        for group, losses in sorted(pool(units, group_of).items()):
            if (ratio := log_ratio(losses)) > -math.inf:
                parts.append({"name": group, "horizon": task.row["horizon"], "log_ratio": ratio})
    return by_unit, parts


def _reading_notes(case: Case, small: Family | OnnxForecaster) -> Iterator[str]:
    """Yield what a user should know about the contexts that the models read of one task."""
    windows, _ = last_windows(
        case.data.loaded.series, context=case.context, horizon=case.horizon, min_context=case.min_context,
        held_out=HELD_OUT,
    )  # fmt: skip
    for model in (case.model.family, small):
        if isinstance(model, OnnxForecaster):
            yield from reading_notes(f"{model.name} in ONNX", model.context, case.context)
        else:
            yield from reading_notes(model.name, model.max_context, case.context)
            near = model.count_near_floor(windows.context)
            yield from floor_notes(model, model.name, case.data.name, near, len(windows))


def score_task(case: Case, of_base: ScoredWindows, of_small: ScoredWindows) -> ScoredTask:
    """Return the row of one task and the losses by series, pooled over origins.

    of_base, of_small: the same windows of the case as both models forecast them. Raises DataError with the reason if
    there is no ratio of two WQL.
    """
    assert of_base.rows.keys() == of_small.rows.keys()
    usable = {row["series"] for row in of_base.rows.values() if row["n_future"]}
    reasons = {row["series"]: row["reason"] for row in of_base.rows.values()}
    reasons |= {skip.series: skip.reason for skip in of_base.skipped}
    left_out = case.data.count_left_out(Counter(reason for name, reason in reasons.items() if name not in usable))
    if not usable:
        raise DataError(f"no series has a window at horizon {case.horizon}: {describe_reasons(left_out)}")
    base, after = (scored.accuracy(len(QUANTILES)) for scored in (of_base, of_small))
    if "wql" not in base or "wql" not in after:
        raise DataError("WQL is undefined: all targets are 0")
    ratio = log_ratio((base["wql"], after["wql"]))
    if ratio == -math.inf:
        raise DataError(f"the ratio of WQL is undefined: base {base['wql']:g}, small model 0")
    of_windows = {
        window: (row["quantile_loss"], of_small.rows[window]["quantile_loss"])
        for window, row in of_base.rows.items()
        if row["series"] in usable
    }
    coverage_base, n_values = _coverage(case, of_base)
    row = {
        "dataset": case.data.name, "horizon": case.horizon, "context": case.context, "n_series": len(usable),
        "season": max(row["season"] for row in of_base.rows.values()), "n_values": n_values, "wql_base": base["wql"],
        "wql_small": after["wql"], "ratio": to_ratio(ratio), "mase_base": base.get("mase"),
        "mase_small": after.get("mase"), "coverage_base": coverage_base, "coverage_small": _coverage(case, of_small)[0],
        "skipped": left_out,
    }  # fmt: skip
    return ScoredTask(row, pool(of_windows, {window: row["series"] for window, row in of_base.rows.items()}))


def forecast_windows(case: Case, model: Family | ForecastModel, origins: int = 1) -> ScoredWindows:
    """Forecast and score the last windows of every series, with any model that forecasts data of the case's modality.

    origins: largest number of windows per series, each a horizon before the next one, inside the held-out part.
    The rows have the keys "SERIES, ORIGIN", and the column `series`. skipped: series without a last window.
    """
    assert isinstance(model, Forecaster) or not isinstance(model, Family)
    pooled = ScoredWindows({}, [])
    for number in range(origins):
        scored = score_forecasts(
            model, case.data.loaded.series, SCORES, context=case.context, horizon=case.horizon,
            seed_of=lambda series: window_seed(str(case.seed), series), seed=case.seed, min_context=case.min_context,
            held_out=HELD_OUT, noise=case.noise, earlier=number * case.horizon,
        )  # fmt: skip
        pooled.rows.update({f"{name}, {row['origin']}": {"series": name} | row for name, row in scored.rows.items()})
        if not number:
            pooled.skipped.extend(scored.skipped)
        if not scored.rows:
            break
    return pooled


def _coverage(case: Case, scored: ScoredWindows) -> tuple[float, int]:
    """Return the share of observed targets inside the 80 % interval, and the number of observed targets."""
    values = {series.series: series.values for series in case.data.loaded.series}
    n_inside = n_values = 0
    for row in scored.rows.values():
        quantiles = np.asarray(row["quantiles"])
        target = values[row["series"]][row["origin"] : row["origin"] + case.horizon]
        inside, observed = count_covered(target, quantiles[QUANTILES.index(LOW)], quantiles[QUANTILES.index(HIGH)])
        n_inside, n_values = n_inside + int(inside), n_values + int(observed)
    return n_inside / n_values, n_values
