"""`compress`: a smaller model, its record, and what it costs on the user's data.

The past of each series, and synthetic series, calibrate the compression. The end of each series measures the costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

import pandas as pd
from pydantic import ValidationError

from tsfmscope import progress
from tsfmscope.compression.budget import PairedSeconds, compare_seconds, forecast_seconds
from tsfmscope.compression.calibration import calibration_windows
from tsfmscope.compression.compress import TIMED, compress_and_record, memory_bytes, save_with_record, sizes
from tsfmscope.compression.export import file_bytes
from tsfmscope.compression.options import (
    METHOD,
    METHODS,
    SHARE,
    WHOLE,
    WINDOWS,
    Bits,
    CalibrateOn,
    Calibration,
    Method,
    MethodName,
    Ranks,
)
from tsfmscope.compression.record import Calibration as SeenSeries
from tsfmscope.defaults import HELD_OUT
from tsfmscope.errors import ArgumentError, DataError, ModelError
from tsfmscope.files import check_new, new_folder
from tsfmscope.functions.arguments import Bounds, Context, Count, Horizon, MaxSeries, Seed, checked
from tsfmscope.functions.certify import CertifyResult, certify_pair, check_forecasters
from tsfmscope.functions.faster import FasterModel, find_faster
from tsfmscope.functions.load import Case, Model, as_model, load_source, make_case
from tsfmscope.functions.smallest import BUNDLED, Rung, find_smallest
from tsfmscope.models.base import Family, Forecaster
from tsfmscope.models.cards import License, license_of
from tsfmscope.report.render import apply_style
from tsfmscope.series.data_sets import Data, NamedSeries, readers
from tsfmscope.series.files.options import reading_of
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import CALIBRATION_SERIES, count_reasons, describe_reasons
from tsfmscope.series.windows import last_windows, spread_windows
from tsfmscope.training.healing import healer

if TYPE_CHECKING:
    from tsfmscope.report.style import Chart

# Number of synthetic data sets, each with as many windows as a data set of the user.
SYNTHETIC = 8
# Outcome of a search without data.
NO_TABLE = "not tested"
# Largest loss, 0.02 for a mean ratio of 1.02.
Loss = Annotated[float | None, Bounds(0, 1, excludes_least=True)]
# Share that is kept.
Kept = Annotated[float | None, Bounds(0, 1, excludes_least=True)]


@dataclass(frozen=True, eq=False, repr=False)
class CompressedModel(Model):
    """A compressed model, in memory.

    Attributes:
        costs: DataFrame with the columns quantity, before, after and ratio, and for the seconds the interval of their
            ratio, ratio_low to ratio_high.
        parts: DataFrame with the rank and relative error of every compressed part of every layer.
        judged: ratios of WQL by data set and the certificate; None for a family that does not forecast.
        windows: data set -> number of calibration windows; empty for a method without data.
        license: licence of the weights, which is that of the base model.
        record: content of recipe.json.
        ladder: sizes that the search for the smallest one tried, from large to small; empty without `certified`.
    """

    costs: pd.DataFrame = field(default_factory=pd.DataFrame)
    parts: pd.DataFrame = field(default_factory=pd.DataFrame)
    judged: CertifyResult | None = None
    windows: Mapping[str, int] = field(default_factory=dict)
    license: License | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    ladder: Sequence[Rung] = ()

    def save(self, folder: str | Path) -> Path:
        """Write the checkpoint to a new or empty folder, which `load` reads; return the folder.

        recipe.json records the base model, its licence, the method and every part; checksums.sha256 covers all files.
        The folder is complete or absent. Raises ArgumentError, a ValueError, if the folder contains files or cannot be
        written.
        """
        target = Path(folder)
        check_new(target)
        with new_folder(target) as temporary:
            save_with_record(self.family, temporary, self.record)
        return target

    def plot(self) -> Chart:
        """Return an Altair chart of the sizes that the search tried: loss against share of the bytes.

        Raises ModelError without a search.
        """
        if not self.ladder:
            raise ModelError(f"{self.name}: no search chose its size; compress with `certified`")
        from tsfmscope.report.certificate import draw_sizes

        return apply_style(draw_sizes(pd.DataFrame(self.ladder), margin=self.record["search"]["margin"]))


@overload
def compress(
    model: Model | str | Path, data: Data | Sequence[Data] | None = None, *, faster: Literal[True],
    budget_seconds: Kept = None, context: Context = None, horizon: Horizon = None, max_series: MaxSeries = 32,
    seed: Seed = 0, **reading: Any,
) -> FasterModel: ...  # fmt: skip


@overload
def compress(
    model: Model | str | Path, data: Data | Sequence[Data] | None = None, *, to: Kept = None, certified: Loss = None,
    method: MethodName = METHOD, windows: Count = WINDOWS, calibrate_on: CalibrateOn = "both", heal: int = 0,
    bits: Bits = 32, context: Context = None, horizon: Horizon = None, max_series: MaxSeries = 32, seed: Seed = 0,
    **reading: Any,
) -> CompressedModel: ...  # fmt: skip


@checked
def compress(
    model: Model | str | Path,
    data: Data | Sequence[Data] | None = None,
    *,
    to: Kept = None,
    certified: Loss = None,
    faster: bool = False,
    budget_seconds: Kept = None,
    method: MethodName = METHOD,
    windows: Count = WINDOWS,
    calibrate_on: CalibrateOn = "both",
    heal: Annotated[int, Bounds(0)] = 0,
    bits: Bits = 32,
    context: Context = None,
    horizon: Horizon = None,
    max_series: MaxSeries = 32,
    seed: Seed = 0,
    **reading: Any,
) -> CompressedModel | FasterModel:
    """Compress a model, or choose the fastest way to run it, and measure what it costs.

    Size, time and accuracy are measured before and after. The method whole-model chooses the bits of every matrix for a
    share of the bytes; the others truncate attention alone. Calibration ends before the last fifth of every series, and
    the scored forecasts lie in that fifth. Seconds are measured on this machine.

    Args:
        model: model, as in `inspect`; it is not changed.
        data: data set as in `inspect`, or a list of them; every file of a folder is a data set. None: only with
            `certified` or `faster`, which read none to choose.
        to: share to keep, of the bytes of the file of weights with whole-model, else of attention's parameters; in
            (0, 1]; None: 0.18.
        certified: instead of `to`: search the smallest file whose mean loss is below this margin, such as 0.02, on
            series that are not yours; then certify it on the data, which are read once.
        faster: instead of `to`: measure the seconds, memory and loss of the ways to run the model (torch, compiled or
            in int8; ONNX in float32, int8, four and few bits; narrower heads), and choose the fastest one that can be
            saved and loses less than 2 % on series that are not yours; then certify it on the data.
        budget_seconds: largest share of torch's seconds, for every measured batch and number of threads, with `faster`,
            which it implies; None: below 1 on average.
        method: compression method of docs/compression.md.
        windows: number of calibration windows per data set.
        calibrate_on: series that calibrate: those of the data (the first 80 % of each), synthetic series, or both.
        heal: steps of training towards the outputs of the original, for example 300; of a rounded model, its scales and
            vectors are trained.
        bits: bits of every stored weight, embeddings included: 32, or 8 with one scale per row of a matrix. For a share
            of the bytes, whole-model chooses 2 to 8 bits for each matrix.
        context: as in `inspect`.
        horizon: steps of the compared forecasts; None: that of each data set.
        max_series: as in `inspect`.
        seed: seed of samples, windows and forecasts.
        reading: as in `inspect`.

    Returns:
        The compressed model. Its `costs` has one row per quantity, before and after: parameters, attention
        parameters, bytes in memory and in files and, for families that forecast, the seconds of a forecast, the
        weighted quantile loss (wql) and the mean absolute scaled error (mase) of the windows of `certify`, as
        geometric means over the data sets. `judged` has one row per data set in `tasks`, and the `certificate`, as in
        `certify`. `save` writes it. With `faster`, a FasterModel with the table `ways`, which `save` writes too.

    Raises:
        ArgumentError: an argument is out of range, the share is too small for rank 1 or the fewest bits, or the model
            does not read the data. It is a ValueError.
        DataError: no series can be read, calibrate or be judged.
        ModelError: the family cannot be compressed, or, without `faster`, `model` was returned by this function.
    """
    faster = faster or budget_seconds is not None
    if search := "certified" if certified is not None else "faster" if faster else None:
        chosen = {"to": to, "heal": heal, "method": method != METHOD, "faster": search == "certified" and faster}
        chosen |= {"bits": bits != 32, "windows": windows != WINDOWS, "calibrate_on": calibrate_on != "both"}
        if given := next((name for name, value in chosen.items() if value), None):
            raise ArgumentError(f"{search}: got {given} too; the search chooses size and method; leave {given} out")
    elif data is None:
        raise ArgumentError("data: expected a data set; only a search with certified or faster needs none")
    steps = _choose_method(method, to, heal, bits)
    rule, share = steps.ranks.rule
    reads = {} if data is None else readers(data, max_series=max_series, seed=seed, reading=reading_of(reading))
    progress.show("loading the model")
    model = as_model(model)
    if faster:
        return find_faster(model, reads, budget_seconds, context=context, horizon=horizon, seed=seed)
    if isinstance(model, CompressedModel):
        raise ModelError(f"{model.name}: already compressed; compress the original, or save this model and load it")
    forecasts = isinstance(model.family, Forecaster)
    if certified is not None:
        return _search(model, reads, certified, context=context, horizon=horizon, seed=seed)
    series = _read_all(reads)
    cases = {
        name: make_case(model, item, context=context, horizon=horizon, seed=seed)
        for name, item in series.items()
        if not isinstance(item, DataError)
    }
    if forecasts:
        _check_judgeable(cases.values())
    arguments, counts = _calibrate(model.family, cases, steps, calibrate_on=calibrate_on, windows=windows)
    progress.show("compressing")
    small = load_source(model.source.with_stored_options(), model.device)
    label = f"{model.name}@{method}-{share:g}"
    try:
        record = compress_and_record(
            small.family, name=label, base_model=model.name,
            heal=healer(small.family, **arguments, watch=progress.with_rate("healing")), **arguments,
        )  # fmt: skip
    # Raised for ranks that are not possible.
    except ValueError as error:
        # Users type the share, not the key of `ranks` that the error names.
        reason = str(error).removeprefix(f"ranks {rule}: ")
        raise ArgumentError(f"to {share:g}, method {method}: {reason}") from None
    calibration = model.calibration.joined(record[CALIBRATION_SERIES])
    judged, seconds = None, None
    if forecasts:
        seconds = _compare_seconds(model.family, small.family, next(iter(cases.values())))
        judged = certify_pair(
            model, label, small.family, calibration, {name: partial(_recall, item) for name, item in series.items()},
            horizons=[horizon], context=context, seed=seed, keeps_calibrated=True,
        )  # fmt: skip
    return _with_record(model, small, label, record, arguments, calibration, judged, seconds, windows=counts)


def _search(
    model: Model, data: Mapping[str, Callable[[], NamedSeries]], loss: float, *, context: int | None,
    horizon: int | None, seed: int,
) -> CompressedModel:  # fmt: skip
    """Return the smallest model that loses less than `loss` on the search series, certified on the data if there are.

    data: name -> function that reads, called once, after the search.
    """
    check_forecasters(model.family)
    if model.family.modality != "series":
        raise ArgumentError(f"certified: family {model.family.name} reads {model.family.modality}, expected series")
    if chose := sorted(set(data) & set(BUNDLED)):
        raise ArgumentError(
            f"data: {chose[0]} is one of the data sets that choose the size; name data that chose nothing"
        )
    label, margin = f"{model.name}@certified-{loss:g}", 1 + loss
    found = find_smallest(model, name=label, margin=margin, context=context, horizon=horizon, seed=seed)
    small, record = found.model, found.record
    seconds = _compare_seconds(model.family, small.family, found.case)
    # What chose the size may not certify it either.
    calibration = model.calibration.joined(found.series)
    judged = None
    if data:
        judged = certify_pair(
            model, label, small.family, calibration, data, horizons=[horizon], context=context, seed=seed, margin=margin
        )
    search = {
        "margin": margin,
        "ladder": [rung._asdict() for rung in found.ladder],
        "outcome": NO_TABLE,
    }
    if judged is not None:
        names = list(dict.fromkeys(row["dataset"] for row in judged.tasks))
        search |= {"outcome": judged.certificate.outcome, "data": names, "fingerprint": judged.fingerprint}
    return _with_record(
        model, small, label, record | {"search": search}, found.arguments, calibration, judged, seconds,
        windows=found.counts, ladder=found.ladder,
    )  # fmt: skip


def _with_record(
    model: Model, small: Model, label: str, record: Mapping[str, Any], arguments: Mapping[str, Any],
    calibration: SeenSeries, judged: CertifyResult | None, seconds: PairedSeconds | None, **others: Any,
) -> CompressedModel:  # fmt: skip
    """Return the compressed model with its costs and the content of recipe.json."""
    license = license_of(model.source.folder, model.source.reference)
    recipe = {"base_model": model.source.reference} | ({"license": license.name} if license.name else {})
    recipe |= {key: arguments[key] and arguments[key].to_dict() for key in ("method", "calibration")}
    return CompressedModel(
        label, small.family, small.source, model.device, calibration,
        costs=pd.DataFrame(_costs(model.family, small.family, judged, seconds)), parts=pd.DataFrame(record["parts"]),
        judged=judged, license=license, record={"recipe": recipe, **record, **calibration.facts}, **others,
    )  # fmt: skip


def _choose_method(method: MethodName, to: float | None, heal: int, bits: Bits) -> Method:
    """Return the method with its rule for the size. Raises ArgumentError for arguments that do not fit together."""
    rule = "bytes" if method == WHOLE else "budget"
    try:
        ranks = Ranks(**{rule: to or SHARE})
        return Method(method=method, ranks=ranks, heal=heal, bits=bits)
    except ValidationError as error:
        messages = (str(one.get("ctx", {}).get("error", one["msg"])) for one in error.errors())
        raise ArgumentError("; ".join(messages)) from None


def _sizes(family: Family) -> dict[str, float]:
    return {**sizes(family), "bytes": memory_bytes(family), "file_bytes": file_bytes(family)}


def _read_all(data: Mapping[str, Callable[[], NamedSeries]]) -> dict[str, NamedSeries | DataError]:
    """Return the series of every data set, or the error that reading it raised; raise the first if all fail."""
    series: dict[str, NamedSeries | DataError] = {}
    for n_done, (name, read) in enumerate(data.items()):
        progress.show(f"reading {name}", n_done, len(data))
        try:
            series[name] = read()
        except DataError as error:
            series[name] = error
    errors = [error for error in series.values() if isinstance(error, DataError)]
    if len(errors) == len(series):
        raise errors[0]
    return series


def _recall(data: NamedSeries | DataError) -> NamedSeries:
    if isinstance(data, DataError):
        raise data
    return data


def _check_judgeable(cases: Iterable[Case]) -> None:
    """Raise DataError, with the reasons, if no series of any data set has a window in its held-out part."""
    reasons: list[str] = []
    for case in cases:
        windows, skipped = last_windows(
            case.data.loaded.series, context=case.context, horizon=case.horizon, min_context=case.min_context,
            held_out=HELD_OUT,
        )  # fmt: skip
        if len(windows):
            return
        reasons.append(f"{case.data.name}: no series can be judged on its last {HELD_OUT:.0%}")
        reasons[-1] += f": {describe_reasons(count_reasons(skipped))}"
    raise DataError(f"{reasons[0]}; shorten the horizon, or give longer series")


def _calibrate(
    model: Family, cases: Mapping[str, Case], method: Method, *, calibrate_on: CalibrateOn, windows: int
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the arguments of `compress_model`, and the number of calibration windows by data set.

    Raises DataError if a method that reads data has no window.
    """
    if calibrate_on == "synthetic" and model.modality != "series":
        raise ArgumentError(f"calibrate_on synthetic: family {model.name} reads {model.modality}; use data")
    first = next(iter(cases.values()))
    tables = {name: series_table(case.data.loaded.series) for name, case in cases.items()}
    calibration = Calibration(
        datasets=() if calibrate_on == "synthetic" else tuple(tables), windows=windows, context=first.context,
        horizon=min(case.horizon for case in cases.values()), held_out=HELD_OUT, seed=first.seed,
        synthetic=0 if calibrate_on == "data" or model.modality != "series" else SYNTHETIC,
    )  # fmt: skip
    counts: dict[str, int] = {}
    if METHODS[method.method].reads_data or method.heal:
        for part in calibration_windows(model, tables, calibration):
            counts[part.dataset] = counts.get(part.dataset, 0) + len(part)
    return {"method": method, "tables": tables, "calibration": calibration if counts else None}, counts


def _compare_seconds(base: Family, small: Family, case: Case) -> PairedSeconds:
    """Return the seconds of a forecast of both models, of TIMED windows of a data set."""
    windows, _ = spread_windows(
        case.data.loaded.series, context=case.context, horizon=case.horizon, count=TIMED, min_context=case.min_context
    )
    return compare_seconds(forecast_seconds(windows), base, small)


def _costs(
    base: Family, small: Family, judged: CertifyResult | None, seconds: PairedSeconds | None
) -> list[dict[str, Any]]:
    """Return one row per quantity. The ratio of seconds is that of the pairs, and has an interval."""
    before, after = _sizes(base), _sizes(small)
    if seconds is not None:
        before["seconds"], after["seconds"] = seconds.base, seconds.small
    for name in ("wql", "mase"):
        pairs = [(row[f"{name}_base"], row[f"{name}_small"]) for row in (judged.tasks if judged else ())]
        # A data set that one of both forecasts without an error has no ratio.
        if defined := [pair for pair in pairs if all(pair)]:
            before[name], after[name] = map(geometric_mean, zip(*defined, strict=True))
    rows = []
    for name in [name for name in before if name in after]:
        ratio = after[name] / before[name] if before[name] else None
        row = {"quantity": name, "before": before[name], "after": after[name], "ratio": ratio}
        row |= {"ratio_low": None, "ratio_high": None}
        if seconds is not None and name == "seconds":
            row |= {"ratio": seconds.ratio, "ratio_low": seconds.low, "ratio_high": seconds.high}
        rows.append(row)
    return rows
