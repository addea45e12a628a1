"""Stage checkpoints: rows of the models, folders of pretrained ones, and jobs of the population's validation losses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.config.params import COMPRESSED, Params
from stages.planning import planning
from stages.planning.model_folders import WORK, key_of, publish, quarantine_damaged
from stages.planning.sweeping import PlannedJob
from stages.planning.training import MODELS, checkpoint_path
from store.errors import DamagedFile
from store.files import write_text
from store.stage_outputs import read_rows
from store.stage_store import StageStore
from tasks.checkpoints import PopulationSpec
from tasks.job import Job, Task
from tsfmscope.models import registry
from tsfmscope.models.common.checkpoint_folder import RECIPE, verify_sums
from tsfmscope.models.references import split_checkpoint
from tsfmscope.training.options import Recipe

# File of a checkpoint with the rows of its training.
LOG = "training.json"
# Model card of a committed checkpoint. No checksum covers it, since it may be renewed without the weights.
CARD = "README.md"
VALIDATION_LOSS = Task(
    "validation_loss", 2, "tasks.checkpoints:measure_validation_loss", "tasks.parts:load_model", table="population"
)


def former_rows(root: Path) -> list[dict[str, Any]]:
    """Return the rows of `checkpoints` of the last run; none if the file is damaged, as it is rewritten."""
    try:
        rows: list[dict[str, Any]] = read_rows(root, "checkpoints").to_pylist()
    except DamagedFile:
        return []
    return rows


def print_changed(former: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Print the models in the user's folders whose files differ from those of the last run."""
    fingerprints = {(row["model"], row["ref"]): row["fingerprint"] for row in former}
    for row in rows:
        former_fingerprint = fingerprints.get((row["model"], row["ref"]), row["fingerprint"])
        if row["source"] == "folder" and former_fingerprint != row["fingerprint"]:
            print(
                f"checkpoints: {row['model']}: the files in {row['ref']} have changed since the last run (fingerprint "
                f"{former_fingerprint[:12]}, now {row['fingerprint'][:12]}); its jobs run again",
                flush=True,
            )


def is_available(params: Params, name: str, trained: Mapping[str, Job]) -> bool:
    """Return whether a model can have a row: it is neither compressed nor a recipe that was not trained."""
    ref = params.models[name].ref
    recipe, _ = split_checkpoint(ref)
    return not ref.startswith(COMPRESSED) and (not recipe or recipe in trained)


def checkpoint_row(params: Params, name: str, jobs: Mapping[str, Job], recipes: Mapping[str, Recipe]) -> dict[str, Any]:
    """Return the row of a model; jobs: training jobs by name of their recipe."""
    model = params.models[name]
    recipe, _ = split_checkpoint(model.ref)
    path = checkpoint_path(model.ref)
    ref = (MODELS / path).as_posix() if path else model.ref
    checkpoint = registry.resolve(ref, allow_hub=True)
    registry.check_options(model.family, model.options, f"models.{name}.options")
    job = jobs[recipe] if recipe else None
    family = registry.family_class(model.family)
    heads = recipes[recipe].to_dict().get("heads") if job else None
    committed_root = params.checkpoints.committed
    committed = bool(job and committed_root and key_of(Path(committed_root, recipe)) == job.key)
    return {
        "model": name,
        "family": model.family,
        "modality": family.modality,
        "input_stack": family.stacks[0],
        "output_stack": family.output_stack,
        "source": {True: "committed", False: "trained"}[committed] if job else checkpoint.source,
        "ref": checkpoint.pin(ref),
        "fingerprint": registry.with_code(model.family, checkpoint.fingerprint),
        **registry.facts(checkpoint.folder),
        "recipe": job.key if job else None,
        "options": json.dumps(model.options, sort_keys=True) if model.options else None,
        "heads": json.dumps(heads, sort_keys=True) if heads else None,
    }


def skill_line(row: Mapping[str, Any]) -> str:
    """Return one line of text that describes a row of `skill`."""
    sine = (
        f"error on a clean sine {row['sine_error']:.2f} of forecasting 0, at most {row['sine_error_max']:.2f} "
        f"(period {row['sine_period_max']})"
    )
    if row["wql_vs_median"] is None:
        return sine
    return (
        f"WQL {row['wql_vs_median']:.3f} of the context median's [{row['low']:.3f}, {row['high']:.3f}], "
        f"{row['wql_vs_seasonal']:.3f} of point seasonal naive's (seasons: table datasets) [{row['seasonal_low']:.3f}, "
        f"{row['seasonal_high']:.3f}], {row['n_windows']} unseen windows; {sine}"
    )


def install(out: StageStore, name: str, job: Job, committed: str | None) -> None:
    """Use the committed checkpoint if it was made by this recipe; its log supplies the job's rows.

    If no checkpoint of this recipe exists, finished or committed, the job's rows are deleted.
    """
    source = Path(committed, name) if committed else None
    for folder in (MODELS / name, WORK / job.key):
        quarantine_damaged(folder, "checkpoints")
    if source:
        verify_sums(source)
    if key_of(MODELS / name) != job.key and source and key_of(source) == job.key:
        shutil.rmtree(WORK / job.key, ignore_errors=True)
        shutil.copytree(source, WORK / job.key, ignore=shutil.ignore_patterns(RECIPE, CARD))
        # Written last, so that an interrupted copy is not taken for a whole folder.
        write_text(WORK / job.key / RECIPE, (source / RECIPE).read_text())
        publish(MODELS / name, job)
    if key_of(MODELS / name) == job.key:
        log = json.loads((MODELS / name / LOG).read_text())
        out.adopt("training", job.key, log)
    elif key_of(WORK / job.key) != job.key:
        # Rows without a checkpoint are of no use.
        out.forget([job.key])


def population_jobs(params: Params, rows: Iterable[Mapping[str, Any]]) -> Iterator[PlannedJob]:
    """Yield a job for all weights of the population that are on this machine. rows: rows of `checkpoints`."""
    if params.population is None:
        return
    rows_by_model = {row["model"]: row for row in rows}
    for member in params.population.members():
        if (row := rows_by_model.get(member.model)) is None:
            continue
        spec = PopulationSpec(
            **{name: getattr(member, name) for name in ("model", "run", "size", "step", "is_final")},
            **dict(planning.model_source(row)),
            recipe=params.checkpoints.recipes[member.run],
            batches=params.population.validation_batches,
            seed=params.seed,
        )
        yield PlannedJob(Job(VALIDATION_LOSS, spec.to_dict(), planning.inputs(row), group=member.run))
