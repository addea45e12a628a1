"""Offline check of a params file, and the numbers of models, data sets and cells of its studies."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from stages.config.params import COMPRESSED, PARAMS_FILE, Params, ParamsError
from stages.planning.run_stage import read_params
from tsfmscope.errors import ModelError
from tsfmscope.models.registry import check_options, check_reference, family_class
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
        check_options(model.family, model.options, f"models.{name}.options")
        if not model.ref.startswith(("checkpoint:", COMPRESSED)):
            try:
                check_reference(model.ref)
            except ModelError as error:
                raise ParamsError(f"models.{name}.ref: {error}") from None
    return params


def study_sizes(params: Params) -> list[StudySize]:
    """Return the size of every study, in the order of the file.

    Cells are models x data sets x conditions within each modality. Data sets are counted whether or not their
    files are on this machine.
    """
    return [_size(params, study) for study in params.studies]


def _size(params: Params, study: str) -> StudySize:
    models, datasets = params.expand(study, "models"), params.expand(study, "datasets")
    conditions = params.expand(study, "conditions")
    kinds = (
        Counter(family_class(params.models[name].family).modality for name in models),
        Counter(modality(params.datasets.sets[name].source) for name in datasets),
        Counter(params.conditions[name].modality for name in conditions),
    )
    cells = sum(math.prod(kind[name] for kind in kinds) for name in kinds[0])
    return StudySize(study, len(models), len(datasets), len(conditions), cells)
