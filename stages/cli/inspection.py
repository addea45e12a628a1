"""Measurement of every layer of a model on one data set, in this process, for `tsfmscope inspect`.

It measures isotropy, effective dimension and rank. The jobs are those of the stages tokens, embeddings,
geometry and spectra, run one after the other without Ray and without a store. On a cell of params.yaml,
windows, tokens and numbers are the same as in the pipeline, except for clusters and so for ζ′: their seed
comes from the job that reads a dump, and here there is no dump.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.stages import embeddings, geometry, kernelsynth, spectra, tokens
from tsfmscope.stages.config import Condition, DataSet, DataSets, Model
from tsfmscope.stages.config.params import Params, ParamsError
from tsfmscope.stages.pipeline import planning
from tsfmscope.stages.pipeline.contexts import Observed, longest_context
from tsfmscope.stages.pipeline.load_series import load_data_set
from tsfmscope.stages.pipeline.model_reference import Source, resolve, slug
from tsfmscope.store.dumps import LayerKey, batch_states
from tsfmscope.tasks.errors import DataError, ModelError
from tsfmscope.tasks.job import EXECUTION_CONTEXT, ExecutionContext, Job
from tsfmscope.tasks.series.catalog import CATALOG, modality
from tsfmscope.tasks.series.files.parquet import Loaded

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.series.catalog import Modality

# Logger of what a user should know about the data.
logger = logging.getLogger(__name__)

# Steps after the context in a user's own data, if none are requested; stacks that read the future
# see them.
HORIZON = 24
# Steps of context, if no condition of params.yaml states them.
CONTEXT = 500
# Columns of the table `geometry` that the result leaves out.
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
    # Share of the variance, the ε of the effective dimension d(ε).
    share: float = 0.8
    # Relative tolerance of the numerical rank.
    epsilon: float = 0.01
    # Precision of products with the model's matrices; None: as the model's options state.
    precision: str | None = None


@dataclass(frozen=True)
class LayerReport:
    """Result of `inspect`.

    rows: one per layer, with columns of the table `geometry` and with width, share, effective_dimension,
    epsilon, numerical_rank and below_noise_floor (whether epsilon is below the rounding error). n_series: number of
    series that gave windows. skipped: reason -> number of series that gave none. observed: steps of context
    in the windows.
    """

    rows: list[dict[str, Any]]
    n_series: int
    n_windows: int
    skipped: Mapping[str, int]
    observed: Observed


def inspect_layers(params: Params, asked: InspectRequest, watch: Watch = lambda what, done, total: None) -> LayerReport:
    """Measure every layer and return one row per layer, in the order of the stacks.

    Raises ParamsError for a name or value that is not valid, DataError if the data give no window, ModelError
    if the checkpoint cannot be obtained or read, HealthError if its states are not finite.
    """
    with placed(asked.device):
        it = at_hand(params, asked, watch)
        watch("tokens and hidden states", 0, 0)
        table, skipped, observed = token_dump(it)
        tables = list(states(it, table))
        rows = []
        for done, one in enumerate(tables):
            watch("measuring layers", done, len(tables))
            rows.append(_measured(it, one, asked) | observed.columns)
        watch("measuring layers", len(tables), len(tables))
    n_series = len(table["series"].unique())
    return LayerReport(rows, n_series, len(table), left_out(it.series, skipped), observed)


@dataclass(frozen=True)
class LoadedCase:
    """Loaded model and series.

    params: the params of this cell alone. row: the model's row of the table `checkpoints`.
    """

    params: Params
    cell: planning.Cell
    row: Mapping[str, Any]
    source: Source
    model: Family
    series: Loaded


def at_hand(params: Params, asked: InspectRequest, watch: Watch) -> LoadedCase:
    """Load the requested model and series. Raises the errors of `inspect`."""
    watch("loading the model", 0, 0)
    source = resolve(params, asked.model, asked.family).running_in(asked.precision)
    name, dataset = _data(params, asked)
    kind = modality(dataset.source)
    params, cell, row = _as_params(params, asked, source, name, dataset)
    model = load_model(source, asked.device)
    if model.modality != kind:
        raise ParamsError(f"{asked.data}: {kind} data, but model {asked.model} reads {model.modality}; name other data")
    watch("reading the data", 0, 0)
    return LoadedCase(params, cell, row, source, model, _series(params, asked, name, dataset))


def under(it: LoadedCase, params: Params, asked: InspectRequest) -> LoadedCase:
    """Return the same model and series under the condition of `asked`. params: as given to `at_hand`."""
    dataset = it.params.datasets.sets[it.cell.dataset]
    own, cell, row = _as_params(params, asked, it.source, it.cell.dataset, dataset)
    return replace(it, params=own, cell=cell, row=row)


def _data(params: Params, asked: InspectRequest) -> tuple[str, DataSet]:
    """Return the name and the data set that the request names.

    It is a data set of params.yaml or of catalog.yaml, or the user's own file or folder. Raises ParamsError
    otherwise.
    """
    text, known = asked.data, params.datasets.sets
    if text in known or text in CATALOG:
        dataset = known.get(text) or DataSets.model_validate({"sets": {text: {}}}).sets[text]
        return text, dataset.model_copy(update={} if asked.horizon is None else {"horizon": asked.horizon})
    if not Path(text).expanduser().exists():
        near = difflib.get_close_matches(text, {**CATALOG, **known}, 2)
        mend = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known or CATALOG)}"
        raise ParamsError(f"DATA: got {text!r}, which is no file, no folder and no data set; {mend}")
    name = slug(Path(text).resolve().name.partition(".")[0]) or "data"
    return name, DataSet(source="folder", file=text, horizon=asked.horizon or HORIZON)


def _as_params(
    params: Params, asked: InspectRequest, source: Source, name: str, dataset: DataSet
) -> tuple[Params, planning.Cell, dict[str, Any]]:
    """Return the params of this request alone, its cell, and the model's row of `checkpoints`.

    The specs of the stages' jobs are built from these.
    """
    label, condition = _condition(params, asked, modality(dataset.source))
    model = Model(family=source.family, ref=source.reference, options=dict(source.options))
    model = model.model_copy(update={"base_model": source.base_model, "rank": source.rank})
    rows = {} if asked.rows is None else {"rows": asked.rows}
    sets = {"sets": {name: dataset}} | ({} if asked.max_series is None else {"max_series": asked.max_series})
    changed = {
        "seed": params.seed if asked.seed is None else asked.seed,
        "models": {source.name: model},
        "datasets": params.datasets.model_copy(update=sets),
        "conditions": {label: condition},
        "tokens": params.tokens.model_copy(update=rows),
        "embeddings": params.embeddings.model_copy(update=rows),
        "geometry": params.geometry.model_copy(update=rows | {"cai": "none"}),
    }
    options = json.dumps(dict(source.options), sort_keys=True) if source.options else None
    row = {"model": source.name, "family": source.family, "ref": source.reference, "options": options}
    return params.model_copy(update=changed), planning.Cell(source.name, name, label), row


def _condition(params: Params, asked: InspectRequest, kind: Modality) -> tuple[str, Condition]:
    """Return the name of a condition and the condition.

    It is the first condition of params.yaml for this modality, without a history, that has the requested
    noise and context; else a new one.
    """
    fitting = {name: one for name, one in params.conditions.items() if one.modality == kind and not one.history}
    for name, one in fitting.items():
        if one.noise == asked.noise and asked.context in (None, one.context):
            return name, one
    first = next(iter(fitting.values()), None)
    context = asked.context or (first.context if first else CONTEXT)
    noise = f"-noise-{asked.noise:g}" if asked.noise else ""
    return f"context-{context}{noise}", Condition(context=context, noise=asked.noise, modality=kind)


@contextlib.contextmanager
def placed(device: str) -> Iterator[None]:
    """Set the jobs' device inside the context, as on an actor. Raises ParamsError for an unknown device."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise ParamsError(
            f"--device {device}: {why}; `tsfmscope doctor` lists the devices, cpu is always one"
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
        what = " ".join(str(error).split())[:300]
        raise ModelError(f"{source.folder}: no checkpoint of family {source.family} can be read ({what})") from error


def _series(params: Params, asked: InspectRequest, name: str, dataset: DataSet) -> Loaded:
    """Return the usable series. Raises DataError, with the reasons, if there is none."""
    if dataset.source == "kernelsynth":
        drawn = kernelsynth.drawn(name, dataset, params)
        return Loaded(drawn, [], len(drawn))
    if dataset.file == asked.data and dataset.source == "folder":
        from tsfmscope.tasks.series.files.time_grid import missing_times
        from tsfmscope.tasks.series.files.user_files import load_own

        sample = (params.datasets.max_series, params.seed)
        found = load_own(Path(asked.data).expanduser(), name=name, min_length=params.datasets.min_length, sample=sample)
        for line in found.notes:
            logger.warning(line)
        if found.missing:
            logger.warning(missing_times(found.missing))
    else:
        found = load_data_set(name, dataset, params)
        if len(found.series) < found.available:
            logger.warning(
                f"{name}: {len(found.series)} of {found.available} series, a seeded sample; --max-series takes more"
            )
    if not found.series:
        raise DataError(f"{asked.data}: no usable series: {_counted(Counter(one.reason for one in found.skipped))}")
    return found


def left_out(series: Loaded, without_window: Mapping[str, int]) -> dict[str, int]:
    """Return reason -> number of series that cannot be used at all, or that gave no window."""
    return dict(Counter(one.reason for one in series.skipped) + Counter(without_window))


def _counted(reasons: Mapping[str, int]) -> str:
    return "; ".join(f"{n} {reason}" for reason, n in reasons.items()) or "there are none"


def longest_of(it: LoadedCase) -> int:
    """Return the steps that the longest series has before its horizon."""
    return longest_context(it.series.series, it.params.datasets.sets[it.cell.dataset].horizon)


def token_dump(it: LoadedCase) -> tuple[pa.Table, dict[str, int], Observed]:
    """Return the token dump, the number of series without a window by reason, and the observed context.

    Raises DataError if no series gives a window.
    """
    from tsfmscope.tasks.entries.tokens import tokenize
    from tsfmscope.tasks.series.tables import series_table

    params, cell = it.params, it.cell
    result = tokenize(Job(tokens.TASK, tokens.spec(params, cell, it.row)), series_table(it.series.series), it.model)
    assert result.dump is not None
    (table,) = result.dump
    skipped: dict[str, int] = json.loads(table.schema.metadata[b"skipped"])
    if not len(table):
        condition, horizon = params.conditions[cell.condition], params.datasets.sets[cell.dataset].horizon
        raise DataError(
            f"{cell.dataset}: no window of {condition.context} steps of context and a horizon of {horizon}: "
            f"{_counted(skipped)}; shorten --horizon, or give longer series"
        )
    (row,) = result.rows
    context = params.conditions[cell.condition].context
    return table, skipped, Observed(context, row["n_context_min"], row["n_context_median"], longest_of(it))


def states(it: LoadedCase, table: pa.Table) -> Iterator[pa.Table]:
    """Return an iterator over the tables of the embedding dump, one per layer."""
    from tsfmscope.tasks.entries.embeddings import embed

    spec = embeddings.spec(it.params, planning.identity(it.params, it.cell), {it.cell.model: it.row})
    result = embed(Job(embeddings.TASK, spec), table, it.model)
    assert result.dump is not None
    return iter(result.dump)


def place_of(batch: pa.RecordBatch) -> LayerKey:
    """Return the layer (stack, layer, normed) that a record batch of an embedding dump contains."""
    stack, layer, normed = (batch[name][0].as_py() for name in ("stack", "layer", "normed"))
    return stack, layer, normed


def isotropy(params: Params, cell: planning.Cell, table: pa.Table) -> dict[str, Any]:
    """Return the row of one layer, computed as in the stage geometry."""
    from tsfmscope.tasks.entries.geometry import entry

    (batch,) = table.combine_chunks().to_batches()
    spec = geometry.spec(params, planning.identity(params, cell), place_of(batch), is_last=False)
    (row,) = entry(Job(geometry.TASK, spec), batch_states(batch), None).rows
    return {name: value for name, value in row.items() if name != "job_key"}


def _measured(it: LoadedCase, table: pa.Table, asked: InspectRequest) -> dict[str, Any]:
    """Return the row of one layer: columns of `geometry`, d(ε), and the numerical rank of its tokens."""
    from tsfmscope.tasks.entries.state_spectra import input_spectrum
    from tsfmscope.tasks.geometry.dimension import effective_dimension
    from tsfmscope.tasks.geometry.repeats import EPSILON
    from tsfmscope.tasks.ranks.spectrum import numerical_rank

    (batch,) = table.combine_chunks().to_batches()
    row = isotropy(it.params, it.cell, table)
    where = zip(("stack", "layer", "normed"), place_of(batch), strict=True)
    spec = planning.identity(it.params, it.cell) | dict(where) | planning.rounding(it.params, it.cell.model)
    (spectrum,) = input_spectrum(Job(spectra.INPUT, spec), batch_states(batch)).rows
    variances = row["eigenvalues"]
    found = {name: value for name, value in row.items() if name not in LISTS}
    return found | {
        "width": spectrum["n_columns"],
        "share": asked.share,
        "effective_dimension": effective_dimension(variances, asked.share) if any(variances) else None,
        "effective_dimension_sd": row["effective_dimension_sd"] if asked.share == EPSILON else None,
        "epsilon": asked.epsilon,
        "numerical_rank": numerical_rank(spectrum["singular_values"], asked.epsilon),
        "below_noise_floor": asked.epsilon < spectrum["floor"],
    }
