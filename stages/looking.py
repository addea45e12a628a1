"""`tsfm-lens look`: isotropy, effective dimension and rank of every layer of a model on one data set, in this process.

The jobs are those of the stages tokens, embeddings, geometry and spectra, run one after the other without Ray or store:
on a cell of params.yaml the same windows and tokens are looked at, and the numbers are the pipeline's. Clusters, and so
ζ′, are drawn anew: their seed is of the job that reads a dump, and here is none.
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

from stages import embeddings, geometry, kernelsynth, planning, spectra, tokens
from stages.blocks import Condition, DataSet, DataSets, Model
from stages.datasets import loaded
from stages.naming import Source, find, plain
from stages.params import Params, ParamsError
from store.dumps import Place as LayerPlace
from store.dumps import batch_states
from tasks.errors import DataError, ModelError
from tasks.series.catalog import CATALOG, modality
from tasks.series.loading import Loaded
from tasks.sweep.jobs import PLACE, Job, Place

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.models.base import Family
    from tasks.series.catalog import Modality

logger = logging.getLogger(__name__)  # of what a user should know of his data

HORIZON = 24  # steps after a context of one's own data, where none is named: stacks that read the future see them
CONTEXT = 500  # steps, where no condition of params.yaml says so
STUDY = {"look": {"title": "look", "measures": ["weights"], "models": "all"}}
BARE: Mapping[str, Any] = {  # what stands for params.yaml in a folder without one
    "models": {}, "datasets": {"sets": {}}, "conditions": {}, "studies": STUDY, "report": {"study": "look"},
}  # fmt: skip
LISTS = ("eigenvalues", "silhouettes")  # columns of `geometry` that a look leaves out
Watch = Callable[[str, int, int], None]  # told what is done now, how much of it is done, and of how much


@dataclass(frozen=True)
class Asked:
    """What to look at, and how. None: as params.yaml has it, else as the constants above."""

    model: str
    data: str
    family: str | None = None
    context: int | None = None
    horizon: int | None = None
    noise: float = 0.0
    rows: int | None = None  # tokens of a layer, at most
    max_series: int | None = None
    seed: int | None = None
    device: str = "cpu"
    share: float = 0.9  # ε of the effective dimension d(ε)
    epsilon: float = 0.01  # of the numerical rank
    precision: str | None = None  # of products with the model's matrices


@dataclass(frozen=True)
class Looked:
    """rows: one a layer, with the names of tables `geometry` and `matrix_ranks`; n_series: those that gave windows.

    skipped: reason -> series that gave none.
    """

    rows: list[dict[str, Any]]
    n_series: int
    n_windows: int
    skipped: Mapping[str, int]


def bare() -> Params:
    """What stands for params.yaml where there is none."""
    return Params.model_validate(BARE)


def look(params: Params, asked: Asked, watch: Watch = lambda what, done, total: None) -> Looked:
    """A row a layer, in the order of the stacks.

    Raises ParamsError for a name or value that cannot be meant, DataError where the data give no window, ModelError
    where the checkpoint cannot be had or read, HealthError where its states are not finite.
    """
    with placed(asked.device):
        it = at_hand(params, asked, watch)
        watch("tokens and hidden states", 0, 0)
        table, skipped = token_dump(it)
        tables = list(states(it, table))
        rows = []
        for done, one in enumerate(tables):
            watch("measuring layers", done, len(tables))
            rows.append(_measured(it, one, asked))
        watch("measuring layers", len(tables), len(tables))
    n_series = len(table["series"].unique())
    return Looked(rows, n_series, len(table), left_out(it.series, skipped))


@dataclass(frozen=True)
class AtHand:
    """A model and series, loaded. params: those of this cell alone; row: the model's of table `checkpoints`."""

    params: Params
    cell: planning.Cell
    row: Mapping[str, Any]
    source: Source
    model: Family
    series: Loaded


def at_hand(params: Params, asked: Asked, watch: Watch) -> AtHand:
    """What is asked for, loaded. Raises as `look` does."""
    watch("loading the model", 0, 0)
    source = find(params, asked.model, asked.family).running_in(asked.precision)
    name, dataset = _data(params, asked)
    kind = modality(dataset.source)
    params, cell, row = _as_params(params, asked, source, name, dataset)
    model = load_model(source, asked.device)
    if model.modality != kind:
        raise ParamsError(f"{asked.data}: {kind} data, but model {asked.model} reads {model.modality}; name other data")
    watch("reading the data", 0, 0)
    return AtHand(params, cell, row, source, model, _series(params, asked, name, dataset))


def under(it: AtHand, params: Params, asked: Asked) -> AtHand:
    """The same model and series under another condition. params: those that `at_hand` was given."""
    dataset = it.params.datasets.sets[it.cell.dataset]
    own, cell, row = _as_params(params, asked, it.source, it.cell.dataset, dataset)
    return replace(it, params=own, cell=cell, row=row)


def _data(params: Params, asked: Asked) -> tuple[str, DataSet]:
    """Name and facts of the data: a set of params.yaml, of catalog.yaml, or a file or folder of one's own."""
    text, known = asked.data, params.datasets.sets
    if text in known or text in CATALOG:
        dataset = known.get(text) or DataSets.model_validate({"sets": {text: {}}}).sets[text]
        return text, dataset.model_copy(update={} if asked.horizon is None else {"horizon": asked.horizon})
    if not Path(text).expanduser().exists():
        near = difflib.get_close_matches(text, {**CATALOG, **known}, 2)
        mend = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known or CATALOG)}"
        raise ParamsError(f"DATA: got {text!r}, which is no file, no folder and no data set; {mend}")
    name = plain(Path(text).resolve().name.partition(".")[0]) or "data"
    return name, DataSet(source="folder", file=text, horizon=asked.horizon or HORIZON)


def _as_params(
    params: Params, asked: Asked, source: Source, name: str, dataset: DataSet
) -> tuple[Params, planning.Cell, dict[str, Any]]:
    """Params of this look alone, its cell, and the model's row of `checkpoints`: what the stages' specs are made of."""
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


def _condition(params: Params, asked: Asked, kind: Modality) -> tuple[str, Condition]:
    """The first condition of params.yaml for such data that is as asked, else one of its own."""
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
    """The jobs' device, as on an actor. ParamsError for one that is not there."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise ParamsError(
            f"--device {device}: {why}; `tsfm-lens doctor` lists the devices, cpu is always one"
        ) from None
    token = PLACE.set(Place(device))
    try:
        yield
    finally:
        PLACE.reset(token)


def load_model(source: Source, device: str) -> Family:
    """The model of a checkpoint. ModelError where it is none of its family."""
    from tasks.models import registry

    registry.check_options(source.family, source.options, f"models.{source.name}.options")
    try:
        return registry.load(source.family, source.folder, device=device, options=source.options)
    except (ValueError, KeyError, OSError) as error:
        what = " ".join(str(error).split())[:300]
        raise ModelError(f"{source.folder}: no checkpoint of family {source.family} can be read ({what})") from error


def _series(params: Params, asked: Asked, name: str, dataset: DataSet) -> Loaded:
    """The usable series. DataError where there is none, with why."""
    if dataset.source == "kernelsynth":
        drawn = kernelsynth.drawn(name, dataset, params)
        return Loaded(drawn, [], len(drawn))
    if dataset.file == asked.data and dataset.source == "folder":
        from tasks.series.gaps import missing_times
        from tasks.series.own import load_own

        sample = (params.datasets.max_series, params.seed)
        found = load_own(Path(asked.data).expanduser(), name=name, min_length=params.datasets.min_length, sample=sample)
        for line in found.notes:
            logger.warning(line)
        if found.missing:
            logger.warning(missing_times(found.missing))
    else:
        found = loaded(name, dataset, params)
    if not found.series:
        raise DataError(f"{asked.data}: no usable series: {_counted(Counter(one.reason for one in found.skipped))}")
    return found


def left_out(series: Loaded, without_window: Mapping[str, int]) -> dict[str, int]:
    """Reason -> series that cannot be used at all, or gave no window."""
    return dict(Counter(one.reason for one in series.skipped) + Counter(without_window))


def _counted(reasons: Mapping[str, int]) -> str:
    return "; ".join(f"{n} {reason}" for reason, n in reasons.items()) or "there are none"


def token_dump(it: AtHand) -> tuple[pa.Table, dict[str, int]]:
    """The token dump, and the series that gave no window, by reason. DataError where none did."""
    from tasks.models.tokenize import tokenize
    from tasks.series.tables import series_table

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
    return table, skipped


def states(it: AtHand, table: pa.Table) -> Iterator[pa.Table]:
    """A table of the embedding dump a layer."""
    from tasks.models.embed import embed

    spec = embeddings.spec(it.params, planning.identity(it.params, it.cell), {it.cell.model: it.row})
    result = embed(Job(embeddings.TASK, spec), table, it.model)
    assert result.dump is not None
    return iter(result.dump)


def place_of(batch: pa.RecordBatch) -> LayerPlace:
    """Which layer a record batch of an embedding dump holds."""
    stack, layer, normed = (batch[name][0].as_py() for name in ("stack", "layer", "normed"))
    return stack, layer, normed


def isotropy(params: Params, cell: planning.Cell, table: pa.Table) -> dict[str, Any]:
    """The row of one layer as the stage geometry makes it."""
    from tasks.geometry.measure import entry

    (batch,) = table.combine_chunks().to_batches()
    spec = geometry.spec(params, planning.identity(params, cell), place_of(batch), is_last=False)
    (row,) = entry(Job(geometry.TASK, spec), batch_states(batch), None).rows
    return {name: value for name, value in row.items() if name != "job_key"}


def _measured(it: AtHand, table: pa.Table, asked: Asked) -> dict[str, Any]:
    """The row of one layer: what `geometry` has of it, its d(ε) and the numerical rank of its tokens."""
    from tasks.geometry.dimension import effective_dimension
    from tasks.ranks.entry import input_spectrum
    from tasks.ranks.spectrum import numerical_rank

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
        "epsilon": asked.epsilon,
        "numerical_rank": numerical_rank(spectrum["singular_values"], asked.epsilon),
        "meaningless": asked.epsilon < spectrum["floor"],
    }
