"""Folders and rows of compressed models, and the methods and calibration data that params.yaml gives them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages import DATA
from stages.config.params import Params, ParamsError
from stages.planning import planning
from stages.planning.model_folders import key_of, quarantine_damaged, recipe, work_folder
from store.stage_store import StageStore
from tasks.job import Job
from tsfmscope.compression.options import Calibration, Method
from tsfmscope.defaults import HELD_OUT
from tsfmscope.models import registry
from tsfmscope.series.catalog import modality

# Folder of the compressed models, by name.
MODELS = Path(DATA, "compression", "models")


def method_of(params: Params, name: str) -> Method:
    """Return the method of a compressed model."""
    return params.compression.methods[name.rpartition("@")[2]]


def calibration_datasets(params: Params, name: str, kind: str) -> list[str]:
    """Return the calibration data sets of a modality whose series are on this machine.

    Raises ParamsError if there is none.
    """
    names = params.compression.calibration.datasets
    matching = [name for name in names if modality(params.datasets.sets[name].source) == kind]
    available = [name for name in matching if planning.series_file(params, name).exists()]
    if not available:
        raise ParamsError(
            f"compression.calibration.datasets: got {list(names)}, expected a data set of modality {kind!r}, which "
            f"{name} reads, whose series are on this machine; add one"
        )
    return available


def print_missing(params: Params) -> None:
    """Print the calibration data sets without series, because models calibrated on other series differ."""
    names = params.compression.calibration.datasets
    missing = [dataset for dataset in names if not planning.series_file(params, dataset).exists()]
    if missing and any(method_of(params, name).reads_data for name in params.compressed):
        print(f"compression: calibrated without {', '.join(missing)}, whose series are not on this machine", flush=True)


def calibration_spec(params: Params, datasets: list[str]) -> Calibration:
    """Return the options of the calibration windows from these data sets."""
    options = dict(params.compression.calibration) | {"datasets": datasets}
    return Calibration(**options, seed=params.seed, held_out=HELD_OUT)


def keep_or_forget(out: StageStore, folder: Path, job: Job) -> None:
    """Store the row that a whole folder contains; delete rows without a folder, which are of no use."""
    for path in (folder, work_folder(job)):
        quarantine_damaged(path, "compression")
    if key_of(folder) == job.key:
        out.adopt("compression", job.key, [read_recipe(folder)["row"]])
    elif key_of(work_folder(job)) != job.key:
        out.forget([job.key])


def read_recipe(folder: Path) -> dict[str, Any]:
    """Return what the recipe file of the whole folder of a compressed model contains."""
    content = recipe(folder)
    assert content is not None
    return content


def checkpoint_row(bases: Mapping[str, Mapping[str, Any]], params: Params, name: str) -> dict[str, Any]:
    """Return the row of `checkpoints` of a compressed model: its base's row with the model's own files."""
    checkpoint = registry.resolve((MODELS / name).as_posix())
    base = bases[str(params.models[name].base_model)]
    return {
        "model": name,
        "source": "compressed",
        **{column: base[column] for column in ("family", "modality", "input_stack", "output_stack")},
        "ref": (MODELS / name).as_posix(),
        "fingerprint": registry.with_code(base["family"], checkpoint.fingerprint),
        **registry.facts(checkpoint.folder),
        "license": base["license"],
        "recipe": read_recipe(MODELS / name)["key"],
        "options": base["options"],
    }
