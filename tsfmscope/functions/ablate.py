"""`ablate`: what the forecast of a model loses without each of its parts, and what each part costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tsfmscope import progress
from tsfmscope.compression.onnx_forecaster import is_onnx
from tsfmscope.compression.outputs import loss_batches
from tsfmscope.defaults import HELD_OUT, MIN_CONTEXT
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.files import TABLES, save_as, table_writers
from tsfmscope.forecasting import ablation
from tsfmscope.forecasting.ablation import KINDS, WAYS, Calls, Part
from tsfmscope.functions.arguments import Bounds, Context, Horizon, MaxSeries, Seed, checked
from tsfmscope.functions.load import Model, as_forecaster, as_model, make_case, reading_notes
from tsfmscope.models.base import BlockFamily
from tsfmscope.report import render
from tsfmscope.report.render import apply_style, image_writers
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.data_sets import Data, NamedSeries, readers
from tsfmscope.series.files.options import reading_of
from tsfmscope.series.types import Windows, count_reasons, describe_reasons
from tsfmscope.series.windows import gather_windows, longest_context, rolling_origins
from tsfmscope.statistics import means, noninferiority
from tsfmscope.statistics.noninferiority import FEWEST_UNITS, MARGIN, WORST, CoverageChange, log_ratio, to_ratio

if TYPE_CHECKING:
    from tsfmscope.report.style import Chart

SUFFIXES = (*render.SUFFIXES, *TABLES)
# Kind of the rows of early exits, next to those of parts.
EXIT = "exit"
# Names of the bundled data sets of series.
BUNDLED = tuple(name for name, entry in CATALOG.items() if entry.source == "bundled")
# Steps of context where none are given, unless the longest history is shorter.
USUAL_CONTEXT = 512
# Windows per series where no number is given, and those of families that draw sample paths, which take longer.
WINDOWS, FEW_WINDOWS = 3, 1
# Least log ratio, for a unit without any loss after the ablation.
LEAST = math.log(np.finfo(float).tiny)
# Sample paths, for models that draw them.
SAMPLES = 20
NOUNS = {"layer": "layers", "attention": "attentions", "mlp": "MLPs", "head": "heads", "directions": "directions"}
VERDICTS = {"certified": "can go", "not certified": "–", "too few tasks": "too few units"}
SHARES = ("bytes_share", "products_share")
MEANING = (
    "ratio: WQL without the part over that of the intact model on the same windows, geometric mean over units [95 % "
    "interval]; can go: the certificate of docs/compression.md holds for this part alone, so that the upper 95 % limit "
    f"is below {MARGIN:g}; bytes: share of the model's; products: share of the multiply-adds of all Linears."
)


@dataclass(frozen=True, eq=False)
class Ablation:
    """Forecast errors of one model without each of its parts, and the cost of each part.

    `print` shows the main columns, and a notebook shows them as a table.

    Attributes:
        parts: one row per part and way, and one per early exit. stack; layer; kind (layer, attention, mlp, head,
            directions; exit: all layers after this one are skipped); name; way (skip, mean, resample); ratio, low,
            high (of the 95 % interval; NaN without spread); upper (one-sided 95 % limit of the certificate); outcome
            of the certificate; can_go; bytes_share and products_share (NaN for directions, and where no Linear runs).
        title: model and data in words.
        n_windows: number of windows.
        units: number and kind of the units of intervals, in words.
        notes: sentences about the data and what is left out.
    """

    parts: pd.DataFrame
    title: str
    n_windows: int
    units: str
    notes: list[str]

    @property
    def depths(self) -> dict[str, int]:
        """First layer of each stack from which on every early exit has an upper limit below 1.1.

        The number of layers, where the last layer is needed. Empty without early exits.
        """
        exits = self.parts[self.parts["kind"] == EXIT]
        worse = exits[~(exits["upper"] < WORST)].groupby("stack")["layer"].max()
        return {stack: int(worse.get(stack, -1)) + 1 for stack in exits["stack"].unique()}

    def sentences(self) -> Iterator[str]:
        """Yield sentences about the windows, the parts that can go, the depth of the forecast, and what is left out."""
        yield f"{self.n_windows} windows; the units of intervals are {self.units}."
        for note in self.notes:
            yield f"{note}."
        for way, rows in self.parts[self.parts["kind"] != EXIT].groupby("way", sort=False):
            counts = rows.groupby("kind", sort=False)["can_go"].agg(["sum", "size"])
            kinds = [f"{n_good} of {n_all} {NOUNS[str(kind)]}" for kind, n_good, n_all in counts.itertuples()]
            yield f"{way}: can go within {MARGIN - 1:.0%}, each alone: {', '.join(kinds)}."
        for stack, depth in self.depths.items():
            yield (
                f"{stack}: the forecast is formed at layer {depth}, the first from which on the upper limit of the "
                f"ratio stays below {WORST:g} when the head reads that layer."
            )

    def table(self) -> pd.DataFrame:
        """Return the table for people: rounded numbers as text."""
        lines = []
        for row in self.parts.to_dict("records"):
            ends = "" if math.isnan(row["low"]) else f" [{row['low']:.3f}, {row['high']:.3f}]"
            shares = ["–" if math.isnan(value := row[name]) else f"{value:.1%}" for name in SHARES]
            own = [row[name] for name in ("stack", "layer", "name", "way")]
            lines.append([*own, f"{row['ratio']:.3f}{ends}", VERDICTS[row["outcome"]], *shares])
        return pd.DataFrame(lines, columns=["stack", "layer", "part", "way", "ratio", "verdict", "bytes", "products"])

    def plot(self) -> Chart:
        """Return an Altair heat map of the ratios: one row per part, one column per layer, one panel per way."""
        return apply_style(self._draw())

    def save(self, path: str | Path) -> Path:
        """Write the heat map (.png, .svg, .pdf) or the parts (.csv, .parquet); return the path.

        The file is written completely or not at all. Raises ValueError for another suffix, OSError if the file cannot
        be written.
        """
        return save_as(path, {**image_writers(self._draw, self.title), **table_writers(self.parts)})

    def _draw(self) -> Chart:
        from tsfmscope.report.ablation import draw_parts

        return draw_parts(self.parts)

    def __repr__(self) -> str:
        return f"{self.title}: {next(self.sentences())}\n{self.table().to_string(index=False)}"

    def _repr_html_(self) -> str:
        return f"<p>{self.title}: {next(self.sentences())}</p>\n{self.table().to_html(index=False)}"


@checked
def ablate(
    model: Model | str | Path, data: Data | Sequence[Data] | None = None, *, parts: Sequence[str] | None = None,
    ways: Sequence[str] | None = None, windows: Annotated[int | None, Bounds(1)] = None, context: Context = None,
    horizon: Horizon = None, max_series: MaxSeries = 32, seed: Seed = 0, **reading: Any,
) -> Ablation:  # fmt: skip
    """Measure what the forecast of a model loses without each of its parts.

    Every layer, attention, MLP, head and group of directions is ablated alone, and the head reads every layer. Windows
    are the last ones of each series, inside its last fifth. With ten data sets or more, a data set is the unit of
    intervals and certificates; with fewer, a series is, and the result holds for series like these.

    Args:
        model: as in `inspect`.
        data: data set as in `inspect`, or a list of them; None: the bundled data sets of real series.
        parts: kinds of parts, with commas: layer, attention, mlp, head, directions, exit; None: all.
        ways: ways to ablate, with commas: skip (zero), mean (mean over the windows of a data set), resample (from
            another window of the data set); None: skip, which is what removing the part does.
        windows: largest number of windows per series; None: 3, or 1 for a family that draws sample paths.
        context: steps of context that the model sees, 16 to 32,768; None: 512, or the longest history if that is
            shorter.
        horizon: as in `score`.
        max_series: as in `inspect`.
        seed: seed of the samples of series, forecasts and directions, of resampling and of the bootstrap.
        reading: as in `inspect`.

    Returns:
        `parts` has one row per part and way. `depths` has the layer at which the forecast is formed.

    Raises:
        DataError: the data contain no series, or fewer than two series have a window.
        ArgumentError: a name is unknown, an argument is out of range, or the model does not forecast. It is a
            ValueError.
        HealthError: a forecast is not finite.
    """
    kinds, ways = _check_names("parts", parts or (*KINDS, EXIT)), _check_names("ways", ways or ("skip",))
    progress.show("loading the model")
    if is_onnx(model) or not isinstance((model := as_model(model)).family, BlockFamily):
        raise ArgumentError(f"model: got {model}, whose parts cannot be separated; name a checkpoint with layers")
    # Raises ArgumentError for a model that does not forecast.
    as_forecaster(model)
    family: Any = model.family
    progress.show("reading the data")
    count, notes = windows or (WINDOWS if family.direct_quantiles else FEW_WINDOWS), []
    if windows is None and not family.direct_quantiles:
        notes.append(f"{model.name} draws sample paths: {FEW_WINDOWS} window per series, not {WINDOWS}")
    read = readers([*BUNDLED] if data is None else data, max_series=max_series, seed=seed, reading=reading_of(reading))
    items = []
    for label, reader in read.items():
        try:
            item, left_out = _read_windows(model, reader(), count, context, horizon, seed)
        except DataError as error:
            notes.append(f"left out: {label}: {str(error).removeprefix(f'{label}: ')}")
            continue
        items.append(item)
        notes += [f"left out of {label}: {n} series: {reason}" for reason, n in left_out.items()]
    steps = max((item.context.shape[1] for item in items), default=0)
    notes += reading_notes(model.name, family.max_context, steps)
    return ablate_windows(model, items, parts=kinds, ways=ways, seed=seed, notes=notes)


def ablate_windows(
    model: Model, items: Sequence[Windows], *, parts: Sequence[str], ways: Sequence[str], seed: int, notes: list[str],
) -> Ablation:  # fmt: skip
    """Measure what the forecasts of these windows lose without each part; one item per data set.

    parts, ways, seed, errors: as in `ablate`. notes: sentences about the data, to which others are added.
    """
    family: Any = model.family
    frame, units = _list_windows(items, notes, seed)
    progress.show("forecasting with the intact model")
    calls: Calls = {}
    forecast = partial(ablation.forecast_errors, family, items, samples=SAMPLES, seed=seed)
    intact = forecast(make_context=partial(ablation.record_calls, family, calls))
    tokens = [family.tokenize(item) for item in items] if "directions" in parts else []
    listed = list(ablation.list_parts(family, KINDS, calls, ablation.directions(family, tokens, seed)))
    trials = list(_list_trials(family, listed, parts, ways, calls, notes))
    # One pass of the loss runs all Linears as modules, also where the sampler does not.
    batch = next(loss_batches(family, [items[0].take(slice(0, 1))], 1))
    products = ablation.count_products(family.network, lambda: family.loss(*batch))
    sizes = [lambda module: _count_bytes(module.parameters(recurse=False)), lambda module: products.get(module, 0)]
    wholes = [_count_bytes(family.network.parameters()), sum(products.values())]
    show, rows = progress.with_rate("ablating parts"), []
    for number, (columns, together, way) in enumerate(trials):
        show(number, len(trials))
        errors = forecast(make_context=partial(ablation.without, together, way, calls))
        costs = [sum(part.count(size) for part in together) / whole for size, whole in zip(sizes, wholes, strict=True)]
        rows.append(columns | _compare(frame, intact, errors, seed) | dict(zip(SHARES, costs, strict=True)))
    names = ", ".join(item.dataset for item in items) if len(items) <= 5 else f"{len(items)} data sets"
    return Ablation(pd.DataFrame(rows), f"{model.name} on {names}", len(frame), units, notes)


def _count_bytes(tensors: Iterable[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _check_names(name: str, values: str | Sequence[str]) -> tuple[str, ...]:
    """Return the given names in the order of the known ones. Raises ArgumentError for others."""
    known, names = (*KINDS, EXIT) if name == "parts" else WAYS, [values] if isinstance(values, str) else values
    if unknown := [item for item in names if item not in known]:
        raise ArgumentError(f"{name}: got {unknown[0]!r}, expected some of {', '.join(known)}")
    return tuple(item for item in known if item in names)


def _read_windows(
    model: Model, data: NamedSeries, count: int, context: int | None, horizon: int | None, seed: int
) -> tuple[Windows, dict[str, int]]:
    """Return the last windows of the series of a data set, and reason -> number of series without one.

    Raises DataError if there is none.
    """
    case, series = make_case(model, data, context=context, horizon=horizon, seed=seed), data.loaded.series
    steps = context or max(MIN_CONTEXT, min(USUAL_CONTEXT, longest_context(series, case.horizon)))
    picks, skips = rolling_origins(series, context=steps, horizon=case.horizon, count=count, held_out=HELD_OUT)
    if not any(picks):
        raise DataError(f"no window at horizon {case.horizon}: {describe_reasons(count_reasons(skips))}")
    windows = gather_windows(series, [pick for own in picks for pick in own], steps, case.horizon)
    return windows, data.count_left_out(count_reasons(skips))


def _list_windows(items: Sequence[Windows], notes: Sequence[str], seed: int) -> tuple[pd.DataFrame, str]:
    """Return a row per window, and the units in words. Raises DataError for windows of fewer than two series.

    Columns: set, unit and group (of units, whose largest ratio is limited), as in a certificate; scale: mean size of
    the targets of its data set, so that losses of one set do not hide those of another; n_values: observed targets.
    """
    parts = [
        pd.DataFrame({
            "set": f"{number}", "label": [f"{number}, {name}" for name in item.series],
            "n_values": np.isfinite(item.future).sum(axis=1), "scale": float(np.nanmean(np.abs(item.future))) or 1.0,
        })
        for number, item in enumerate(items)
    ]  # fmt: skip
    labels = sorted({label for part in parts for label in part["label"]})
    if len(labels) < 2:
        reasons = f"; {'; '.join(notes)}" if notes else ""
        raise DataError(
            f"data: expected windows of two series or more, got {len(labels)}; name more data sets{reasons}"
        )
    frame = pd.concat(parts, ignore_index=True)
    if len(items) >= FEWEST_UNITS:
        return frame.assign(unit=frame["set"], group=frame["set"]), f"{len(items)} data sets"
    unit_of, group_of = noninferiority.split_table(labels, seed)
    units = frame["label"].map(unit_of)
    words = "series" if units.nunique() == len(labels) else "groups of series"
    return frame.assign(unit=units, group=units.map(group_of)), f"{units.nunique()} {words}"


def _compare(
    frame: pd.DataFrame, intact: Float[np.ndarray, "error window"], changed: Float[np.ndarray, "error window"],
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Return ratio, low, high, upper, outcome and can_go of a changed model. intact, changed: as in `window_errors`."""
    losses = frame.assign(base=intact[0] / frame["scale"], changed=changed[0] / frame["scale"])
    pooled = (losses.groupby(key)[["base", "changed"]].sum() for key in ("unit", "group"))
    ratios, of_groups = ([max(log_ratio(pair[1:]), LEAST) for pair in sums.itertuples()] for sums in pooled)
    counts = frame.assign(inside=changed[2] - intact[2]).groupby("set")[["inside", "n_values"]].sum()
    changes = [CoverageChange(inside / n_values, int(n_values)) for _, inside, n_values in counts.itertuples()]
    certificate, interval = noninferiority.assess(ratios, of_groups, changes, seed=seed), means.mean(np.array(ratios))
    logs = {"ratio": certificate.mean, "low": interval.low, "high": interval.high, "upper": certificate.upper_limit}
    outcome = certificate.outcome
    return {name: to_ratio(log) for name, log in logs.items()} | {"outcome": outcome, "can_go": outcome == "certified"}


def _list_trials(
    family: Any, listed: Sequence[Part], kinds: Sequence[str], ways: Sequence[str], calls: Calls, notes: list[str]
) -> Iterator[tuple[dict[str, Any], list[Part], str]]:
    """Yield the columns, the parts and the way of each ablation; add notes on what is left out."""
    for stack in family.blocks:
        own = [part for part in listed if part.stack == stack]
        if missing := [NOUNS[kind] for kind in kinds if kind != EXIT and all(part.kind != kind for part in own)]:
            notes.append(f"{stack}: left out: {', '.join(missing)}: its blocks have none that can be separated")
        for way in ways:
            wanted = [part for part in own if part.kind in kinds]
            usable = [part for part in wanted if ablation.can_ablate(part, way, calls)]
            if unusable := dict.fromkeys(NOUNS[part.kind] for part in wanted if part not in usable):
                notes.append(f"{stack}: left out: {way} of {', '.join(unusable)}: no one module runs it on all windows")
            for part in usable:
                names = {"layer": part.layer, "kind": part.kind, "name": part.name, "way": way}
                yield {"stack": stack, **names}, [part], way
        layers = [part for part in own if part.kind == "layer"] if EXIT in kinds else []
        for layer in range(len(layers)):
            names = {"layer": layer, "kind": EXIT, "name": "early exit", "way": WAYS[0]}
            yield {"stack": stack, **names}, layers[layer:], WAYS[0]
