"""Comparison of the ways to run a model, and the choice of the fastest one that can be saved.

Every way is timed in turn with torch on the same windows, and scored on the search series, which are no user's. The
user's data are opened once, for the certificate of the chosen way.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from tsfmscope import progress
from tsfmscope.compression import ways
from tsfmscope.compression.compress import compress_and_record, save_with_record
from tsfmscope.compression.options import SHARE, WHOLE, Method, Ranks
from tsfmscope.compression.ways import Measured, Runtime, Way, WayProcess
from tsfmscope.errors import ArgumentError, HealthError, ModelError, TsfmscopeError
from tsfmscope.files import check_new, new_folder
from tsfmscope.forecasting.scores import ScoredWindows
from tsfmscope.functions.certify import CertifyResult, certify_pair, check_forecasters, forecast_windows
from tsfmscope.functions.export import export_onnx
from tsfmscope.functions.load import Case, Model, as_forecaster, load_source, make_case, n_bytes
from tsfmscope.functions.smallest import BUNDLED, TIMED, assess_search, search_series, synthetic_calibration
from tsfmscope.models.base import Forecaster
from tsfmscope.models.cards import License, license_of
from tsfmscope.models.types import ForecastGraph
from tsfmscope.series.data_sets import NamedSeries
from tsfmscope.series.types import CALIBRATION_SERIES, digests
from tsfmscope.series.windows import spread_windows
from tsfmscope.statistics.noninferiority import MARGIN, to_ratio

logger = logging.getLogger("tsfmscope")

# Share of attention that narrower heads keep.
HEADS = 0.25
# Names of ways.
TORCH, PACKAGE, SAMPLER = "torch", "package chronos", "shared-cache sampler"


@dataclass(frozen=True, eq=False)
class FasterModel:
    """Ways to run a model, and the chosen one.

    Attributes:
        name: name of the model.
        base: name of the way that the ratios are relative to.
        ways: DataFrame with one row per way: ratio, low, high (seconds over the base's, geometric mean over the
            settings, and its interval), start_seconds (loading, and the first forecast), memory_bytes (peak of its
            process), file_bytes, wql_ratio and wql_limit (WQL over torch's on the search series, and the upper 95 %
            limit of the mean), passes (whether it passes the certificate there), fits (whether the interval of every
            setting is within the budget), close (whether its seconds cannot be distinguished from those of the chosen
            way), usage (what a user runs; None: `tsfmscope forecast` of the saved folder), reason (why it was not
            measured; else None).
        seconds: DataFrame with one row per way and setting: way, threads, batch, seconds (median of a forecast), ratio,
            low, high, rounds.
        chosen: name of the way that `save` writes; None if no way that can be saved is faster and passes.
        judged: certificate of the chosen way on the data; None without data.
        license: licence of the weights.
    """

    name: str
    base: str
    ways: pd.DataFrame
    seconds: pd.DataFrame
    chosen: str | None
    judged: CertifyResult | None
    license: License
    _folder: Path | None

    def save(self, folder: str | Path) -> Path:
        """Write the chosen way to a new or empty folder, which `tsfmscope forecast` runs; return the folder.

        seconds.json contains the measurements. Raises ModelError if no way was chosen, ArgumentError, a ValueError, if
        the folder contains files or cannot be written.
        """
        target = Path(folder)
        check_new(target)
        if self._folder is None:
            raise ModelError(
                f"{self.name}: no way that can be saved takes fewer seconds than {self.base} within the budget and "
                "passes the test on the search series; nothing was written"
            )
        with new_folder(target) as temporary:
            shutil.copytree(self._folder, temporary, dirs_exist_ok=True)
            rows = self.seconds.to_dict("records")
            (temporary / "seconds.json").write_text(json.dumps(rows, indent=1) + "\n")
        return target


class Scores(NamedTuple):
    """Mean ratio of WQL over the search series, its upper limit, and whether the certificate's conditions hold."""

    ratio: float
    limit: float
    passes: bool


def find_faster(
    model: Model, data: Mapping[str, Callable[[], NamedSeries]], budget: float | None, *, context: int | None,
    horizon: int | None, seed: int,
) -> FasterModel:  # fmt: skip
    """Measure the ways to run a model, and choose the fastest one that can be saved and passes.

    Of ways whose seconds cannot be distinguished, the one with the least loss is chosen.

    data: name -> function that reads, called once, after the choice. budget: largest share of the base's seconds, for
    every number of threads and batch; None: below 1. Raises the errors of `check_forecasters`.
    """
    check_forecasters(model.family)
    if model.family.modality != "series":
        raise ArgumentError(f"faster: family {model.family.name} reads {model.family.modality}, expected series")
    if model.device != "cpu":
        raise ArgumentError(
            f"faster: expected a model on the cpu, where all ways run; got {model.name} on {model.device}"
        )
    if chose := sorted(set(data) & set(BUNDLED)):
        raise ArgumentError(
            f"data: {chose[0]} is one of the data sets that choose the way; name data that chose nothing"
        )
    cases = [
        make_case(model, item, context=context, horizon=horizon, seed=seed) for item in search_series(horizon, seed)
    ]
    timed = next(case for case in cases if case.data.name == TIMED)
    seen = frozenset[str]().union(*(digests(case.data.loaded.usable) for case in cases))
    files = Path(tempfile.mkdtemp(prefix="tsfmscope-"))
    try:
        writer = _Writer(model, timed, horizon, files)
        processes, reasons = _start_ways(writer)
        try:
            n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            threads = [count for count in ways.THREADS if count <= n_cores]
            measured, failed = ways.measure_ways(processes, threads, progress.with_rate("timing forecasts"))
            reasons |= failed
            processes = [process for process in processes if process.name not in failed]
            progress.show("forecasting the search series")
            scored = [(case, forecast_windows(case, model.family)) for case in cases]
            scores: dict[str, Scores | None] = {}
            for process in processes:
                progress.show(f"scoring {process.name}", len(scores), len(processes))
                scores[process.name] = _score(process, scored, seed)
        finally:
            for process in processes:
                process.close()
        table, folder, judged = _ways_table(processes, measured, scores, budget), None, None
        if (chosen := _choose(table, measured)) is not None:
            table["close"] = [_is_close(measured, name, chosen) for name in table["way"]]
            folder = next(process.way.folder for process in processes if process.name == chosen)
        if data and folder is not None:
            other = as_forecaster(folder)
            # What chose the way may not certify it.
            judged = certify_pair(
                model, f"{model.name} by {chosen}", other.model, other.calibration.joined(seen), data,
                horizons=[horizon], context=context, seed=seed,
            )  # fmt: skip
        rows = [*table.to_dict("records"), *({"way": name, "reason": reason} for name, reason in reasons.items())]
        base = processes[0].name
        result = FasterModel(
            model.name, base, pd.DataFrame(rows), _seconds_table(measured, base), chosen, judged,
            license_of(model.source.folder, model.source.reference), folder,
        )  # fmt: skip
    except BaseException:
        shutil.rmtree(files, ignore_errors=True)
        raise
    weakref.finalize(result, shutil.rmtree, files, ignore_errors=True)
    return result


def _start_ways(writer: _Writer) -> tuple[list[WayProcess], dict[str, str]]:
    """Start the process of every way; return them, the base first, and the reasons of those that failed, by name.

    Raises ModelError if the base fails.
    """
    case = writer.case
    windows, _ = spread_windows(
        case.data.loaded.series, context=case.context, horizon=case.horizon, count=max(ways.BATCHES),
        min_context=case.min_context,
    )  # fmt: skip
    reasons: dict[str, str] = {}
    processes: list[WayProcess] = []
    try:
        for name, write in writer.ways().items():
            progress.show(f"starting {name}")
            try:
                processes.append(WayProcess(write(), windows))
            # Also what numpy and torch raise for a model that cannot be compressed.
            except (TsfmscopeError, ValueError, RuntimeError, ModuleNotFoundError) as error:
                if not processes:
                    raise ModelError(f"{writer.model.name} by {name}: {error}") from error
                reasons[name] = str(error)
    except BaseException:
        for process in processes:
            process.close()
        raise
    return processes, reasons


class _Writer:
    """Writes what the ways to run a model load, each to a folder of its own."""

    def __init__(self, model: Model, case: Case, horizon: int | None, folder: Path) -> None:
        """horizon: steps of an ONNX model; None: the most of one pass."""
        self.model, self.case, self.horizon, self.folder = model, case, horizon, folder
        # Name of a compressed model -> what recipe.json records of it.
        self.records: dict[str, dict[str, Any]] = {}

    def ways(self) -> dict[str, Callable[[], Way]]:
        """Return name -> function that writes a way; the first one is the base."""
        model, in_python = self.model, "in Python: model = tsfmscope.load(…).family; "
        int8 = "model.network = torch.ao.quantization.quantize_dynamic(model.network, {torch.nn.Linear}, torch.qint8)"
        found: dict[str, Callable[[], Way]] = {}
        if model.family.name == "chronos-t5":
            found[PACKAGE] = partial(self._torch, PACKAGE, "package", "the pipeline of the package chronos")
            found[SAMPLER] = partial(self._torch, SAMPLER)
        else:
            found[TORCH] = partial(self._torch, TORCH, "torch", f"tsfmscope forecast {model.name}")
        found |= {
            "torch.compile": partial(self._torch, "torch.compile", "compiled", f"{in_python}model.network.compile()"),
            "torch int8": partial(self._torch, "torch int8", "int8", in_python + int8),
            "ONNX": lambda: self._onnx("ONNX", model),
            "ONNX int8": lambda: self._onnx("ONNX int8", model, bits=8),
            "ONNX 4 bits": lambda: self._onnx("ONNX 4 bits", model, bits=4),
        }
        if model.family.compression is None:
            found["narrower heads"] = lambda: self._torch("narrower heads", model=self.narrower_heads)
            if self._graph(model) is not None:
                found["ONNX few bits"] = lambda: self._onnx("ONNX few bits", self.few_bits)
                found["ONNX narrower heads"] = lambda: self._onnx("ONNX narrower heads", self.narrower_heads)
        return found

    @cached_property
    def few_bits(self) -> Model:
        """The model in few bits."""
        return self._compress(Method(method=WHOLE, ranks=Ranks(bytes=SHARE)))

    @cached_property
    def narrower_heads(self) -> Model:
        """The model with narrower heads."""
        return self._compress(Method(method="activation-aware-refit", ranks=Ranks(budget=HEADS)))

    def _compress(self, method: Method) -> Model:
        """Return the model compressed by a method, without data of a user."""
        small = load_source(self.model.source.with_stored_options(), self.model.device)
        calibration = synthetic_calibration(self.case)
        name = f"{self.model.name}@{method.method}"
        record = compress_and_record(
            small.family, name=name, base_model=self.model.name, method=method, tables={}, calibration=calibration
        )
        seen = small.calibration.joined(record[CALIBRATION_SERIES])
        self.records[name] = record
        return Model(name, small.family, small.source, small.device, seen)

    def _torch(
        self, name: str, runtime: Runtime = "torch", usage: str | None = None, model: Model | None = None
    ) -> Way:
        model = model or self.model
        folder = self.folder / "checkpoints" / model.name
        if not folder.exists():
            base = self.model.source
            license = license_of(base.folder, base.reference)
            recipe = {"base_model": base.reference} | ({"license": license.name} if license.name else {})
            record = self.records.get(model.name, {})
            save_with_record(model.family, folder, {"recipe": recipe, **record, **model.calibration.facts})
        return Way(name, runtime, folder, usage)

    def _onnx(self, name: str, model: Model, bits: Literal[4, 8, 32] = 32) -> Way:
        """Export the forecast; the longest context of the graph, but no more than that of the timed forecasts."""
        graph = self._graph(model)
        context = None if graph is None else min(self.case.context, graph.context)
        return Way(name, "onnx", export_onnx(model, self.folder / name, context, self.horizon, bits).folder)

    def _graph(self, model: Model) -> ForecastGraph | None:
        return model.family.forecast_graph() if isinstance(model.family, Forecaster) else None


def _score(process: WayProcess, scored: Sequence[tuple[Case, ScoredWindows]], seed: int) -> Scores | None:
    """Return the scores on the search series; None for other samples (a package's pipeline) or no finite ones."""
    if process.way.runtime == "package":
        return None
    try:
        certificate = assess_search(scored, process, MARGIN, seed)
    except HealthError as error:
        logger.warning(str(error))
        return None
    return Scores(to_ratio(certificate.mean), to_ratio(certificate.upper_limit), certificate.outcome == "certified")


def _ways_table(
    processes: Sequence[WayProcess], measured: Measured, scores: Mapping[str, Scores | None], budget: float | None
) -> pd.DataFrame:
    """Return one row per measured way."""
    base, rows = processes[0].name, []
    for process in processes:
        name, score = process.name, scores[process.name]
        highest = max(measured.ratio(name, base, *setting).high for setting in measured.settings())
        rows.append({
            "way": name, **measured.mean_ratio(name, base)._asdict(), "start_seconds": process.start_seconds,
            "memory_bytes": process.peak_bytes, "file_bytes": n_bytes(process.way.folder),
            "wql_ratio": score and score.ratio, "wql_limit": score and score.limit,
            "passes": score is not None and score.passes,
            "fits": highest <= budget if budget is not None else measured.mean_ratio(name, base).high < 1,
            "close": False, "usage": process.way.usage, "reason": None,
        })  # fmt: skip
    return pd.DataFrame(rows)


def _seconds_table(measured: Measured, base: str) -> pd.DataFrame:
    """Return one row per way and setting."""
    return pd.DataFrame([
        {
            "way": way, "threads": threads, "batch": batch, "seconds": float(np.median(rounds)),
            **measured.ratio(way, base, threads, batch)._asdict(), "rounds": len(rounds),
        }
        for (way, threads, batch), rounds in measured.seconds.items()
    ])  # fmt: skip


def _choose(table: pd.DataFrame, measured: Measured) -> str | None:
    """Return the way with the least loss among the fastest ones with a file that fit and pass; None without."""
    usable = table[table["usage"].isna() & table["fits"] & table["passes"]]
    if usable.empty:
        return None
    fastest = str(usable.sort_values("ratio")["way"].iloc[0])
    close = usable[[_is_close(measured, name, fastest) for name in usable["way"]]]
    return str(close.sort_values(["wql_limit", "ratio"])["way"].iloc[0])


def _is_close(measured: Measured, way: str, reference: str) -> bool:
    """Whether the interval of the ratio of two ways contains 1."""
    ratio = measured.mean_ratio(way, reference)
    return ratio.low <= 1 <= ratio.high
