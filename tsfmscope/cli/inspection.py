"""Measurement of every layer of a model on one data set, in this process, for `tsfmscope inspect`.

It measures isotropy, effective dimension and numerical rank with the functions of `tsfmscope/lens.py`. Nothing is
stored, and Ray is not started.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stages.config import Condition, DataSet
from stages.config.params import Params, ParamsError
from stages.planning import planning
from stages.planning.contexts import Observed, longest_context
from stages.planning.model_reference import Source, check_device, load_family, resolve, slug
from stages.planning.named_sets import NamedSeries, find_data_set, load_named_set
from tasks.job import EXECUTION_CONTEXT, ExecutionContext
from tsfmscope.defaults import CONTEXT, HORIZON
from tsfmscope.errors import DataError
from tsfmscope.models.base import NEAR
from tsfmscope.models.common.batches import KINDS
from tsfmscope.series.catalog import CATALOG, modality
from tsfmscope.series.files.columns import UNNAMED, Columns
from tsfmscope.series.files.parquet import LoadedSeries, series_note
from tsfmscope.series.types import count_reasons, describe_reasons

if TYPE_CHECKING:
    from tsfmscope.geometry.options import IsotropyOptions
    from tsfmscope.lens import KeptStates
    from tsfmscope.models.base import Family
    from tsfmscope.models.types import Tokens
    from tsfmscope.series.catalog import Modality

# Logger of what a user should know about the data.
logger = logging.getLogger(__name__)

# Callback for progress: the current step, how much of it is done, and of how much (0: not known).
Watch = Callable[[str, int, int], None]


@dataclass(frozen=True)
class InspectRequest:
    """Request of `inspect`. None takes the value of params.yaml, else that of tsfmscope/defaults.py."""

    model: str
    data: str
    family: str | None = None
    context: int | None = None
    horizon: int | None = None
    noise: float = 0.0
    # Largest number of tokens of a layer.
    rows: int | None = None
    max_series: int | None = None
    seed: int | None = None
    device: str = "cpu"
    # Share of the variance of the effective dimension d(share).
    share: float = 0.8
    # Relative tolerance of the numerical rank.
    epsilon: float = 0.01
    # Precision of products with the model's matrices; None: as the model's options state.
    precision: str | None = None
    # Columns of a file that the user names.
    columns: Columns = UNNAMED


@dataclass(frozen=True)
class InspectResult:
    """Result of `inspect`.

    rows: one per layer: the columns of IDENTITY, and those of `lens.measure_layers`. n_series: number
    of series that gave windows. skipped: reason -> number of series that gave none. observed: steps of context
    that the model reads of the windows. source: checkpoint of the model. notes: as in `TokenizedCase`.
    """

    rows: list[dict[str, Any]]
    n_series: int
    n_windows: int
    skipped: Mapping[str, int]
    observed: Observed
    source: Source
    notes: Sequence[str] = ()


class TokenCounts(NamedTuple):
    """Numbers of tokens per layer: tokenised at least, kept at most, and measured for isotropy at most."""

    tokenized: int
    kept: int
    measured: int


@dataclass(frozen=True)
class LoadedCase:
    """Loaded model and series, and the condition that they are measured under.

    condition: its name, as the column of this name. context, horizon: steps. min_context: fewest observed steps
    of a context. held_out: share at the end of a series in which the future lies; None: the whole series.
    noise: standard deviation of the noise on the context, in standard deviations of the series. batch: windows
    of a forward pass; None: as many as suit the device. options: options of isotropy.
    """

    model: Family
    source: Source
    series: LoadedSeries
    dataset: str
    condition: str
    context: int
    horizon: int
    min_context: int
    held_out: float | None
    noise: float
    counts: TokenCounts
    batch: int | None
    options: IsotropyOptions
    seed: int
    device: str

    @property
    def identity(self) -> dict[str, Any]:
        """Columns that name the model, the data set and the condition."""
        return {
            "model": self.source.name,
            "base_model": self.source.base_model,
            "size_parameter": self.source.size_parameter,
            "size_rule": self.source.size_rule,
            "dataset": self.dataset,
            "condition": self.condition,
            "context": self.context,
            "noise": self.noise,
        }

    @property
    def read_context(self) -> int:
        """Steps of context that the model reads."""
        return min(self.context, self.model.max_context or self.context)

    @property
    def longest_context(self) -> int:
        """Steps that the longest series has before its horizon."""
        return longest_context(self.series.series, self.horizon)


class TokenizedCase(NamedTuple):
    """Tokens of a case's windows.

    skipped: reason -> number of series without a window. notes: sentences on steps that the model does not read, and
    on contexts whose results depend on the unit of the data.
    """

    tokens: Tokens
    skipped: Mapping[str, int]
    observed: Observed
    notes: Sequence[str]


def inspect_layers(
    params: Params, request: InspectRequest, watch: Watch = lambda step, n_done, total: None
) -> InspectResult:
    """Measure every layer and return one row per layer, in the order of the stacks.

    Raises ParamsError for a name or value that is not valid, DataError if the data give no window, ModelError
    if the checkpoint cannot be obtained or read, HealthError if its states are not finite.
    """
    with device_context(request.device):
        return measure_case(load_case(params, request, watch), request, watch)


def measure_case(
    case: LoadedCase, request: InspectRequest, watch: Watch = lambda step, n_done, total: None
) -> InspectResult:
    """Measure every layer of a loaded case. Raises the errors of `inspect_layers`."""
    from tsfmscope.lens import measure_layers

    watch("tokens and hidden states", 0, 0)
    tokens, skipped, observed, notes = tokenize_case(case)
    states = hidden_states(case, tokens)
    layers = list(states.layers)
    measured = measure_layers(
        layers,
        tokens,
        states.rows,
        share=request.share,
        epsilon=request.epsilon,
        dtype=case.source.precision,
        rows=case.counts.measured,
        seed=case.seed,
        options=case.options,
    )
    rows = []
    for n_done, row in enumerate(measured, start=1):
        rows.append(case.identity | {"weights_dtype": case.source.precision} | row | observed.columns)
        watch("measuring layers", n_done, len(layers))
    left_out = count_left_out(case.series, skipped)
    return InspectResult(rows, len(set(tokens.series)), len(tokens), left_out, observed, case.source, notes)


def load_case(params: Params, request: InspectRequest, watch: Watch) -> LoadedCase:
    """Load the requested model and series. Raises the errors of `inspect_layers`."""
    watch("loading the model", 0, 0)
    source = resolve(params, request.model, request.family).running_in(request.precision)
    name, dataset = resolve_data(params, request.data, request.columns)
    kind = modality(dataset.source)
    model = load_family(source, request.device)
    if model.modality != kind:
        raise ParamsError(
            f"{request.data}: {kind} data, but model {request.model} reads {model.modality}; name other data"
        )
    watch("reading the data", 0, 0)
    data = load_series(params, request, name, dataset)
    return build_case(params, request, model, source, data)


def build_case(params: Params, request: InspectRequest, model: Family, source: Source, data: NamedSeries) -> LoadedCase:
    """Return the case of a loaded model and loaded series; what the request leaves open is as in params.yaml."""
    horizon = data.dataset.horizon if request.horizon is None else request.horizon
    dataset = data.dataset.model_copy(update={"horizon": horizon})
    seed = params.seed if request.seed is None else request.seed
    label, condition = _choose_condition(params, request, modality(dataset.source))
    counts = TokenCounts(params.tokens.rows, params.embeddings.rows, params.geometry.rows)
    windows = planning.cut_windows(dataset, condition, params.tokens.min_context, seed)
    return LoadedCase(
        model=model,
        source=source,
        series=data.loaded,
        dataset=data.name,
        condition=label,
        context=condition.context,
        horizon=windows.horizon,
        min_context=windows.min_context,
        held_out=windows.held_out,
        noise=condition.noise,
        counts=counts if request.rows is None else TokenCounts(*[request.rows] * 3),
        batch=params.embeddings.batch,
        options=params.geometry,
        seed=seed,
        device=request.device,
    )


def with_context(case: LoadedCase, params: Params, request: InspectRequest) -> LoadedCase:
    """Return the same model and series under the condition of another request."""
    label, condition = _choose_condition(params, request, case.model.modality)
    least = planning.least_context(case.model.modality, condition, params.tokens.min_context)
    return replace(case, condition=label, context=condition.context, noise=condition.noise, min_context=least)


def tokenize_case(case: LoadedCase) -> TokenizedCase:
    """Tokenise windows of the case's series, and log the notes. Raises DataError if no series gives a window."""
    from tsfmscope.lens import tokenize

    sample = tokenize(
        case.model,
        case.series.series,
        context=case.context,
        horizon=case.horizon,
        rows=case.counts.tokenized,
        seed=case.seed,
        min_context=case.min_context,
        held_out=case.held_out,
        noise=case.noise,
    )
    skipped = count_reasons(sample.skipped)
    if sample.tokens is None:
        raise DataError(
            f"{case.dataset}: no window of {case.context} steps of context and a horizon of {case.horizon}: "
            f"{describe_reasons(skipped)}; shorten the horizon, or give longer series"
        )
    steps = sample.observed
    observed = Observed(case.read_context, int(steps.min()), float(np.median(steps)), case.longest_context)
    notes = [
        *reading_notes(case.source.name, case.model.max_context, case.context),
        *floor_notes(case.model, case.source.name, case.dataset, sample.near_floor, len(steps)),
    ]
    for note in notes:
        logger.warning(note)
    return TokenizedCase(sample.tokens, skipped, observed, notes)


def reading_notes(name: str, max_context: int | None, context: int) -> Iterator[str]:
    """Yield a sentence if the model of this name reads only the last `max_context` steps of a context."""
    if max_context is not None and context > max_context:
        yield f"context {context}: {name} reads the last {max_context} steps"


def floor_notes(model: Family, name: str, dataset: str, n_near: int, n_contexts: int) -> Iterator[str]:
    """Yield a sentence if some contexts of a data set vary by little more than the family's floor."""
    if n_near:
        yield (
            f"{dataset}: {n_near} of {n_contexts} contexts have a standard deviation of at most "
            f"{NEAR * model.deviation_floor:.2g}, where results of {name} depend on the unit of the data; multiply the "
            "values, for example by 1000 (docs/models.md)"
        )


def hidden_states(case: LoadedCase, tokens: Tokens, kinds: Sequence[str] = KINDS) -> KeptStates:
    """Return the hidden states of a sample of the tokens, layer by layer. kinds: names of TokenKind."""
    from tsfmscope import lens

    return lens.hidden_states(
        case.model, tokens, rows=case.counts.kept, seed=case.seed, kinds=kinds, batch=case.batch, device=case.device
    )


def resolve_data(params: Params, text: str, columns: Columns = UNNAMED) -> tuple[str, DataSet]:
    """Return the name and the data set that a user names.

    It is a data set of params.yaml or of catalog.yaml, or the user's own file or folder. Raises ParamsError
    otherwise.
    """
    known = params.datasets.sets
    if (dataset := find_data_set(text, params)) is not None:
        if columns != UNNAMED:
            raise ParamsError(f"names of columns: expected a file, got the data set {text!r}")
        return text, dataset
    if not os.path.exists(os.path.expanduser(text)):
        near = difflib.get_close_matches(text, {**CATALOG, **known}, 2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known or CATALOG)}"
        raise ParamsError(f"DATA: got {text!r}, which is no file, no folder and no data set; {hint}")
    name = slug(Path(text).expanduser().resolve().name.partition(".")[0]) or "data"
    return name, DataSet(source="folder", file=text, horizon=HORIZON)


def _choose_condition(params: Params, request: InspectRequest, kind: Modality) -> tuple[str, Condition]:
    """Return the name of a condition and the condition.

    It is the first condition of params.yaml for this modality, without a history, that has the requested
    noise and context; else a new one.
    """
    matching = {
        name: condition
        for name, condition in params.conditions.items()
        if condition.modality == kind and not condition.history
    }
    for name, condition in matching.items():
        if condition.noise == request.noise and request.context in (None, condition.context):
            return name, condition
    first = next(iter(matching.values()), None)
    context = request.context or (first.context if first else CONTEXT)
    noise = f"-noise-{request.noise:g}" if request.noise else ""
    return f"context-{context}{noise}", Condition(context=context, noise=request.noise, modality=kind)


@contextlib.contextmanager
def device_context(device: str) -> Iterator[None]:
    """Set the device of the work inside the context, as on an actor. Raises ParamsError for an unknown device."""
    try:
        check_device(device)
    except ValueError as error:
        raise ParamsError(f"--{error}") from None
    token = EXECUTION_CONTEXT.set(ExecutionContext(device))
    try:
        yield
    finally:
        EXECUTION_CONTEXT.reset(token)


def load_series(params: Params, request: InspectRequest, name: str, dataset: DataSet) -> NamedSeries:
    """Return the usable series of a resolved data set. Raises DataError, with the reasons, if there is none."""
    seed = params.seed if request.seed is None else request.seed
    max_series = params.datasets.max_series if request.max_series is None else request.max_series
    return read_series(params, request.data, name, dataset, request.columns, max_series, seed)


def read_series(
    params: Params,
    text: str,
    name: str,
    dataset: DataSet,
    columns: Columns,
    max_series: int | None,
    seed: int,
    *,
    takes_any: bool = False,
) -> NamedSeries:
    """Return the usable series of a data set that `resolve_data` returned for a text, and log what was read.

    takes_any: short and constant series are usable too. Raises DataError, with the reasons, if there is none.
    """
    if dataset.file == text and dataset.source == "folder":
        from tsfmscope.series.files.user_files import load_own

        path, sample = Path(os.path.expanduser(text)), None if max_series is None else (max_series, seed)
        min_length = None if takes_any else params.datasets.min_length
        loaded = load_own(path, name=name, columns=columns, min_length=min_length, sample=sample)
        log_series(text, loaded)
    else:
        loaded = load_named_set(name, dataset, params, max_series=max_series, seed=seed, takes_any=takes_any)
        if not loaded.series or len(loaded.series) < loaded.available:
            log_series(text, loaded)
    return NamedSeries(name, dataset, loaded)


def log_series(label: str, loaded: LoadedSeries) -> None:
    """Log what was read. Raises DataError, with the reasons, if no series is usable."""
    from tsfmscope.series.files.time_grid import missing_times

    for line in loaded.notes:
        logger.warning(line)
    if not loaded.series:
        raise DataError(f"{label}: no usable series: {describe_reasons(count_reasons(loaded.skipped))}")
    logger.warning(series_note(label, loaded))
    if loaded.missing:
        logger.warning(missing_times(loaded.missing))


def count_left_out(series: LoadedSeries, without_window: Mapping[str, int]) -> dict[str, int]:
    """Return reason -> number of series that cannot be used at all, or that gave no window."""
    return dict(Counter(count_reasons(series.skipped)) + Counter(without_window))
