"""Measurement of every layer of a model on one data set, in this process, for `tsfmscope inspect`.

It measures isotropy, effective dimension and numerical rank with the functions of `tasks/lens.py`. Nothing is
stored, and Ray is not started.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope.stages import kernelsynth
from tsfmscope.stages.config import Condition, DataSet, DataSets
from tsfmscope.stages.config.params import Params, ParamsError
from tsfmscope.stages.pipeline import planning
from tsfmscope.stages.pipeline.contexts import Observed, longest_context
from tsfmscope.stages.pipeline.load_series import load_data_set
from tsfmscope.stages.pipeline.model_reference import Source, resolve, slug
from tsfmscope.tasks.defaults import CONTEXT, HORIZON, PRECISION
from tsfmscope.tasks.errors import DataError, ModelError
from tsfmscope.tasks.job import EXECUTION_CONTEXT, ExecutionContext
from tsfmscope.tasks.series.catalog import CATALOG, modality
from tsfmscope.tasks.series.files.parquet import LoadedSeries

if TYPE_CHECKING:
    from tsfmscope.tasks.lens import KeptStates
    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.models.types import Tokens
    from tsfmscope.tasks.series.catalog import Modality

# Logger of what a user should know about the data.
logger = logging.getLogger(__name__)

# Columns of `measure_states` that the result leaves out.
LISTS = ("eigenvalues", "silhouettes")
# Callback for progress: the current step, how much of it is done, and of how much (0: not known).
Watch = Callable[[str, int, int], None]


@dataclass(frozen=True)
class InspectRequest:
    """Request of `inspect`. None takes the value of params.yaml, else the constants above."""

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


@dataclass(frozen=True)
class LayerReport:
    """Result of `inspect`.

    rows: one per layer: the columns of IDENTITY and LAYER, and those of `lens.measure_layer`. n_series: number
    of series that gave windows. skipped: reason -> number of series that gave none. observed: steps of context
    in the windows.
    """

    rows: list[dict[str, Any]]
    n_series: int
    n_windows: int
    skipped: Mapping[str, int]
    observed: Observed


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
    of a forward pass; None: as many as suit the device. options: keyword arguments of `measure_states`.
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
    options: Mapping[str, Any]
    seed: int
    device: str

    @property
    def identity(self) -> dict[str, Any]:
        """Columns that name the model, the data set and the condition."""
        return {
            "model": self.source.name,
            "base_model": self.source.base_model,
            "rank": self.source.rank,
            "dataset": self.dataset,
            "condition": self.condition,
            "context": self.context,
            "noise": self.noise,
        }

    @property
    def weights_dtype(self) -> str:
        """Type in which products with the model's matrices are computed."""
        return str(self.source.options.get(PRECISION, "float32"))

    @property
    def longest_context(self) -> int:
        """Steps that the longest series has before its horizon."""
        return longest_context(self.series.series, self.horizon)


class TokenizedCase(NamedTuple):
    """Tokens of a case's windows. skipped: reason -> number of series without a window."""

    tokens: Tokens
    skipped: Mapping[str, int]
    observed: Observed


def inspect_layers(
    params: Params, request: InspectRequest, watch: Watch = lambda step, n_done, total: None
) -> LayerReport:
    """Measure every layer and return one row per layer, in the order of the stacks.

    Raises ParamsError for a name or value that is not valid, DataError if the data give no window, ModelError
    if the checkpoint cannot be obtained or read, HealthError if its states are not finite.
    """
    from tsfmscope.tasks.lens import measure_layer

    with device_context(request.device):
        case = load_case(params, request, watch)
        watch("tokens and hidden states", 0, 0)
        tokens, skipped, observed = tokenize_case(case)
        states = hidden_states(case, tokens)
        layers = list(states.layers)
        rows = []
        for n_done, layer in enumerate(layers):
            watch("measuring layers", n_done, len(layers))
            token_ids = states.rows[layer.stack]
            measured = measure_layer(
                layer.states,
                token_types(tokens, layer.stack, token_ids),
                share=request.share,
                epsilon=request.epsilon,
                dtype=case.weights_dtype,
                rows=case.counts.measured,
                seed=case.seed,
                **case.options,
            )
            rows.append(
                {
                    **case.identity,
                    "stack": layer.stack,
                    "layer": layer.layer,
                    "normed": layer.normed,
                    "weights_dtype": case.weights_dtype,
                    "n_series": _count_series(tokens, layer.stack, token_ids),
                    **{name: value for name, value in measured.items() if name not in LISTS},
                    **observed.columns,
                }
            )
        watch("measuring layers", len(layers), len(layers))
    return LayerReport(rows, len(set(tokens.series)), len(tokens), count_left_out(case.series, skipped), observed)


def load_case(params: Params, request: InspectRequest, watch: Watch) -> LoadedCase:
    """Load the requested model and series. Raises the errors of `inspect_layers`."""
    watch("loading the model", 0, 0)
    source = resolve(params, request.model, request.family).running_in(request.precision)
    name, dataset = _resolve_data(params, request)
    kind = modality(dataset.source)
    model = load_model(source, request.device)
    if model.modality != kind:
        raise ParamsError(
            f"{request.data}: {kind} data, but model {request.model} reads {model.modality}; name other data"
        )
    watch("reading the data", 0, 0)
    seed = params.seed if request.seed is None else request.seed
    label, condition = _choose_condition(params, request, kind)
    counts = TokenCounts(params.tokens.rows, params.embeddings.rows, params.geometry.rows)
    windows = planning.cut_windows(dataset, condition, params.tokens.min_context, seed)
    return LoadedCase(
        model=model,
        source=source,
        series=_load_series(params, request, name, dataset),
        dataset=name,
        condition=label,
        context=condition.context,
        horizon=windows.horizon,
        min_context=windows.min_context,
        held_out=windows.held_out,
        noise=condition.noise,
        counts=counts if request.rows is None else TokenCounts(*[request.rows] * 3),
        batch=params.embeddings.batch,
        options=params.geometry.model_dump(exclude={"rows", "cai"}),
        seed=seed,
        device=request.device,
    )


def with_context(case: LoadedCase, params: Params, request: InspectRequest) -> LoadedCase:
    """Return the same model and series under the condition of another request."""
    kind = case.model.modality
    label, condition = _choose_condition(params, request, kind)
    # The one window of an image or a table is the whole item.
    least = condition.context if kind in ("image", "table") else params.tokens.min_context
    return replace(case, condition=label, context=condition.context, noise=condition.noise, min_context=least)


def tokenize_case(case: LoadedCase) -> TokenizedCase:
    """Tokenise windows of the case's series. Raises DataError if no series gives a window."""
    from tsfmscope.tasks.lens import tokenize

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
    skipped = dict(Counter(series.reason for series in sample.skipped))
    if sample.tokens is None:
        raise DataError(
            f"{case.dataset}: no window of {case.context} steps of context and a horizon of {case.horizon}: "
            f"{_list_reasons(skipped)}; shorten --horizon, or give longer series"
        )
    steps = sample.observed
    observed = Observed(case.context, int(steps.min()), float(np.median(steps)), case.longest_context)
    return TokenizedCase(sample.tokens, skipped, observed)


def hidden_states(case: LoadedCase, tokens: Tokens) -> KeptStates:
    """Return the hidden states of a sample of the tokens, layer by layer."""
    from tsfmscope.tasks import lens

    return lens.hidden_states(
        case.model, tokens, rows=case.counts.kept, seed=case.seed, batch=case.batch, device=case.device
    )


def token_types(tokens: Tokens, stack: str, token_ids: np.ndarray) -> np.ndarray | None:
    """Return the ids of some tokens in the vocabulary; None for a stack without one."""
    types = tokens.types.get(stack)
    return None if types is None else types.reshape(-1)[token_ids]


def _count_series(tokens: Tokens, stack: str, token_ids: np.ndarray) -> int:
    """Count the series that some tokens of a stack belong to."""
    windows = token_ids // tokens.kinds[stack].shape[1]
    return len({tokens.series[window] for window in np.unique(windows)})


def _resolve_data(params: Params, request: InspectRequest) -> tuple[str, DataSet]:
    """Return the name and the data set that the request names.

    It is a data set of params.yaml or of catalog.yaml, or the user's own file or folder. Raises ParamsError
    otherwise.
    """
    text, known = request.data, params.datasets.sets
    if text in known or text in CATALOG:
        dataset = known.get(text) or DataSets.model_validate({"sets": {text: {}}}).sets[text]
        return text, dataset.model_copy(update={} if request.horizon is None else {"horizon": request.horizon})
    if not Path(text).expanduser().exists():
        near = difflib.get_close_matches(text, {**CATALOG, **known}, 2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known or CATALOG)}"
        raise ParamsError(f"DATA: got {text!r}, which is no file, no folder and no data set; {hint}")
    name = slug(Path(text).resolve().name.partition(".")[0]) or "data"
    return name, DataSet(source="folder", file=text, horizon=request.horizon or HORIZON)


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
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ParamsError(
            f"--device {device}: {reason}; `tsfmscope doctor` lists the devices, cpu is always one"
        ) from None
    token = EXECUTION_CONTEXT.set(ExecutionContext(device))
    try:
        yield
    finally:
        EXECUTION_CONTEXT.reset(token)


def load_model(source: Source, device: str) -> Family:
    """Return the model of a checkpoint. Raises ModelError if its family cannot read it."""
    from tsfmscope.tasks.models import registry

    registry.check_options(source.family, source.options, f"models.{source.name}.options")
    try:
        return registry.load(source.family, source.folder, device=device, options=source.options)
    except (ValueError, KeyError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"{source.folder}: no checkpoint of family {source.family} can be read ({reason})") from error


def _load_series(params: Params, request: InspectRequest, name: str, dataset: DataSet) -> LoadedSeries:
    """Return the usable series. Raises DataError, with the reasons, if there is none."""
    params = _with_sampling(params, request)
    if dataset.source == "kernelsynth":
        series = kernelsynth.draw_data_set(name, dataset, params)
        return LoadedSeries(series, [], len(series))
    if dataset.file == request.data and dataset.source == "folder":
        from tsfmscope.tasks.series.files.time_grid import missing_times
        from tsfmscope.tasks.series.files.user_files import load_own

        sample = (params.datasets.max_series, params.seed)
        path = Path(request.data).expanduser()
        loaded = load_own(path, name=name, min_length=params.datasets.min_length, sample=sample)
        for line in loaded.notes:
            logger.warning(line)
        if loaded.missing:
            logger.warning(missing_times(loaded.missing))
    else:
        loaded = load_data_set(name, dataset, params)
        if len(loaded.series) < loaded.available:
            logger.warning(
                f"{name}: {len(loaded.series)} of {loaded.available} series, a seeded sample; --max-series takes more"
            )
    if not loaded.series:
        reasons = Counter(series.reason for series in loaded.skipped)
        raise DataError(f"{request.data}: no usable series: {_list_reasons(reasons)}")
    return loaded


def _with_sampling(params: Params, request: InspectRequest) -> Params:
    """Return the params with the seed and the number of series that the request asks for."""
    updates: dict[str, Any] = {} if request.seed is None else {"seed": request.seed}
    if request.max_series is not None:
        updates["datasets"] = params.datasets.model_copy(update={"max_series": request.max_series})
    return params.model_copy(update=updates)


def count_left_out(series: LoadedSeries, without_window: Mapping[str, int]) -> dict[str, int]:
    """Return reason -> number of series that cannot be used at all, or that gave no window."""
    return dict(Counter(skip.reason for skip in series.skipped) + Counter(without_window))


def _list_reasons(reasons: Mapping[str, int]) -> str:
    return "; ".join(f"{n} {reason}" for reason, n in reasons.items()) or "there are none"
