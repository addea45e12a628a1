"""Work that a params file plans: sizes of its studies, and jobs, rows, bytes and seconds of every model."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

from stages import DATA
from stages.config import WITHOUT_TOKENS, Measure
from stages.config.params import COMPRESSED, PARAMS_FILE, Params, ParamsError
from stages.planning import planning
from stages.planning.run_stage import read_params
from store.stage_outputs import read_rows
from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.series.catalog import modality


@dataclass(frozen=True)
class StudySize:
    """Numbers of models, data sets, conditions and cells that a study requests."""

    study: str
    models: int
    datasets: int
    conditions: int
    cells: int


def check_params(path: Path = Path(PARAMS_FILE)) -> Params:
    """Load a params file and check everything in it that can be checked offline.

    Raises ParamsError for what the file must change, ModelError for a family that cannot be imported.
    """
    params = read_params(path)
    for name, model in params.models.items():
        registry.check_options(model.family, model.options, f"models.{name}.options")
        if not model.ref.startswith(("checkpoint:", COMPRESSED)):
            try:
                registry.check_reference(model.ref)
            except ModelError as error:
                raise ParamsError(f"models.{name}.ref: {error}") from None
    return params


def study_sizes(params: Params) -> list[StudySize]:
    """Return the size of every study, in the order of the file.

    Cells are models x data sets x conditions within each modality. Data sets are counted whether or not their
    files are on this machine.
    """
    sizes = []
    for study in params.studies:
        models, datasets = params.expand(study, "models"), params.expand(study, "datasets")
        conditions = params.expand(study, "conditions")
        kinds = (
            Counter(registry.family_class(params.models[name].family).modality for name in models),
            Counter(modality(params.datasets.sets[name].source) for name in datasets),
            Counter(params.conditions[name].modality for name in conditions),
        )
        cells = sum(math.prod(kind[name] for kind in kinds) for name in kinds[0])
        sizes.append(StudySize(study, len(models), len(datasets), len(conditions), cells))
    return sizes


class _Stage(NamedTuple):
    """Stage that works on every cell: its table, and the measures that ask for its cells."""

    name: str
    table: str
    measures: Sequence[str]


TOKENIZED = sorted(set(get_args(Measure)) - WITHOUT_TOKENS)
STAGES = (
    _Stage("tokens", "dumps", TOKENIZED),
    _Stage("embeddings", "dumps", TOKENIZED),
    _Stage("forecasts", "forecasts", ("isotropy", "forecasts")),
    _Stage("geometry", "geometry", ("isotropy",)),
)


@dataclass(frozen=True)
class PlannedWork:
    """Work of one model in one stage.

    cells: cells that the studies request. measured: those of the same model whose rows are stored. The others are None
    where no cell is measured or no time of its jobs is stored; else they are the measured means per cell times `cells`.
    seconds: of one worker.
    """

    stage: str
    model: str
    cells: int
    measured: int
    jobs: int | None = None
    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None


def planned_work(params: Params, data: Path = Path(DATA)) -> list[PlannedWork]:
    """Return the work of each original model in each stage that works on cells; nothing is run or downloaded.

    A compressed model counts as the model that it was made from, as in the table `timings`.
    """
    kinds = {name: {"modality": registry.family_class(model.family).modality} for name, model in params.models.items()}
    rows = []
    for stage in STAGES:
        cells = planning.requested_cells(params, stage.measures, kinds)
        counts = Counter(planning.find_original(params, cell.model) for cell in cells)
        measured = _measure(params, stage, data)
        rows += [_extrapolate(stage.name, model, count, measured[model]) for model, count in counts.items()]
    return rows


class _Measured:
    """Sums over the stored rows of a model in a stage."""

    def __init__(self) -> None:
        self.cells: set[tuple[Any, ...]] = set()
        self.jobs = self.rows = self.bytes = 0
        self.seconds = 0.0


def _measure(params: Params, stage: _Stage, data: Path) -> defaultdict[str, _Measured]:
    """Return what is stored of a stage, by original model."""
    sums: defaultdict[str, _Measured] = defaultdict(_Measured)
    names = ["model", "dataset", "condition", *(["rows", "bytes"] if stage.table == "dumps" else [])]
    stored = read_rows(data / stage.name, stage.table)
    for row in stored.select(names).to_pylist():
        if row["model"] not in params.models:
            continue
        entry = sums[planning.find_original(params, row["model"])]
        entry.cells.add((row["model"], row["dataset"], row["condition"]))
        entry.rows += row.get("rows", 1)
        entry.bytes += row.get("bytes", 0)
    timings = read_rows(data / "timings" / stage.name, "timings").select(["key", "subject", "seconds"]).to_pylist()
    # A job that was run again has several rows.
    for row in {row["key"]: row for row in timings}.values():
        entry = sums[row["subject"]]
        entry.jobs += 1
        entry.seconds += row["seconds"]
    return sums


def _extrapolate(stage: str, model: str, cells: int, measured: _Measured) -> PlannedWork:
    count = len(measured.cells)
    if not count or not measured.jobs:
        return PlannedWork(stage, model, cells, count)
    factor = cells / count
    jobs, rows, size = (round(factor * value) for value in (measured.jobs, measured.rows, measured.bytes))
    return PlannedWork(stage, model, cells, count, jobs, rows, size, factor * measured.seconds)
