"""Stage checkpoints: every model's weights, and the skill of forecasters.

Weights are committed to git, pretrained here, or read from a folder or the hub.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tsfmscope.stages import DATA
from tsfmscope.stages.config import Recipe
from tsfmscope.stages.config.params import COMPRESSED, Params
from tsfmscope.stages.pipeline import planning, training_curves
from tsfmscope.stages.pipeline.model_folders import WORK, key_of, prune, publish, set_damaged_aside, work_folder
from tsfmscope.stages.pipeline.sweeping import Planned, environments, nothing, open_store, resources, run, sweep
from tsfmscope.store.errors import DamagedFile
from tsfmscope.store.files import fingerprint, write_text
from tsfmscope.store.stage_outputs import read_rows
from tsfmscope.store.stage_store import StageStore
from tsfmscope.tasks.entries.checkpoints import SkillOptions, SkillSpec
from tsfmscope.tasks.entries.pretraining import EmbeddingSource, PretrainSpec
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.job import Job, Task
from tsfmscope.tasks.models import registry
from tsfmscope.tasks.models.common.checksums import RECIPE, verify_sums
from tsfmscope.tasks.series.synthetic.shards import LAW_FILE
from tsfmscope.tasks.training.shard_corpus import check_whole

TRAINING = Task("pretrain", 1, "tsfmscope.tasks.entries.pretraining:pretrain", table="training")
SKILL = Task(
    "skill",
    3,
    "tsfmscope.tasks.entries.checkpoints:measure_skill",
    "tsfmscope.tasks.entries.loading:load_model",
    table="skill",
)
MODELS, CURVES = Path(DATA, "checkpoints", "models"), Path(DATA, "checkpoints", "curves")
LOG = "training.json"


def main(params: Params) -> None:
    """Write data/checkpoints: models/NAME and curves/NAME per recipe; tables checkpoints, training, skill."""
    named = recipes(params)
    jobs = training_jobs(named)
    with open_store("checkpoints") as out:
        for name, job in jobs.items():
            _install(out, name, job, params.checkpoints.committed)
        trained: dict[str, Job] = {}
        # Recipes that take over an embedding are trained after the others.
        for needs in (False, True):
            wave = {name: job for name, job in jobs.items() if bool(named[name].embedding_from) is needs}
            if wave:
                with training_curves.followed(CURVES, wave):
                    run(out, [Planned(job) for job in wave.values()], resources(params), work_folder)
            trained |= {name: job for name, job in wave.items() if publish(MODELS / name, job)}
        rows = [_row(params, name, jobs, named) for name in params.models if _at_hand(params, name, trained)]
        _tell_of_changed(_former_rows(out.root), rows)
        out.write("checkpoints", rows)
        for name in trained:
            training_curves.write(CURVES / name, json.loads((MODELS / name / LOG).read_text()))
        for folder in (MODELS, CURVES):
            prune(folder, jobs)
        sweep(out, [*map(Planned, jobs.values()), *_skill_jobs(params, rows)], params, nothing)
    for row in read_rows(out.root, "skill").to_pylist():
        print(f"checkpoints: {row['model']}: {_skill_line(row)}")


def recipes(params: Params) -> dict[str, Recipe]:
    """Return the recipes that models name, and the recipes whose embedding one of these takes over."""
    named = (model.ref.partition(":") for model in params.models.values())
    known = params.checkpoints.recipes
    found = {name: known[name] for kind, _, name in named if kind == "checkpoint"}
    sources = (recipe.embedding_from for recipe in found.values())
    return found | {name: known[name] for name in sources if name is not None}


def training_job(name: str, recipe: Recipe, source: Job | None = None) -> Job:
    """Return the training job, whose key ties a checkpoint, committed or not, to its recipe.

    source: the job of recipe.embedding_from, needed if the recipe names one. Raises ModelError if the
    recipe's corpus has no file of its specification, DataError if shards of the corpus are missing or
    incomplete.
    """
    embedding = None
    if recipe.embedding_from is not None:
        assert source is not None
        embedding = EmbeddingSource(folder=(MODELS / recipe.embedding_from).as_posix(), key=source.key)
    # Earlier versions divided these ranks by the heads. The entry `ranks` changes the key of such
    # recipes only.
    whole = recipe.heads and recipe.heads.guideline and recipe.heads.factors == "shared"
    spec = PretrainSpec(
        model=name,
        recipe=recipe.spec(),
        code=registry.code_of(recipe.family) or None,
        embedding=embedding,
        ranks="of whole matrices" if whole else None,
    ).to_dict()
    if recipe.corpus is None:
        return Job(TRAINING, spec)
    # The file determines every series of the corpus.
    law = Path(recipe.corpus, LAW_FILE)
    if not law.exists():
        raise ModelError(f"recipe {name}: corpus {recipe.corpus} has no {LAW_FILE}; make it with `tsfmscope corpus`")
    check_whole(law.parent)
    return Job(TRAINING, spec, {law.as_posix(): fingerprint(law)})


def training_jobs(recipes: Mapping[str, Recipe]) -> dict[str, Job]:
    """Return the job of every recipe. `recipes` must contain those whose embeddings are taken over."""
    plain = {name: training_job(name, recipe) for name, recipe in recipes.items() if recipe.embedding_from is None}
    return {
        name: plain[name] if recipe.embedding_from is None else training_job(name, recipe, plain[recipe.embedding_from])
        for name, recipe in recipes.items()
    }


def commit(params: Params, folder: Path) -> list[str]:
    """Copy the pretrained checkpoints, with their logs, to a folder that is committed to git; return their names.

    Raises ModelError for a checkpoint that is not made by the recipe in params.yaml, or whose files are
    damaged.
    """
    jobs = training_jobs(recipes(params))
    for name, job in jobs.items():
        if key_of(MODELS / name) != job.key:
            raise ModelError(f"{MODELS / name} is not made by the recipe in params.yaml; run `dvc repro checkpoints`")
        verify_sums(MODELS / name)
        shutil.copytree(MODELS / name, folder / name, dirs_exist_ok=True)
    return list(jobs)


def _install(out: StageStore, name: str, job: Job, committed: str | None) -> None:
    """Use the committed checkpoint if it was made by this recipe; its log supplies the job's rows.

    If no checkpoint of this recipe exists, finished or committed, the job's rows are deleted.
    """
    kept = Path(committed, name) if committed else None
    for folder in (MODELS / name, WORK / job.key):
        set_damaged_aside(folder, "checkpoints")
    if kept:
        verify_sums(kept)
    if key_of(MODELS / name) != job.key and kept and key_of(kept) == job.key:
        shutil.rmtree(WORK / job.key, ignore_errors=True)
        shutil.copytree(kept, WORK / job.key, ignore=shutil.ignore_patterns(RECIPE))
        # Written last, so that an interrupted copy is not taken for a whole folder.
        write_text(WORK / job.key / RECIPE, (kept / RECIPE).read_text())
        publish(MODELS / name, job)
    if key_of(MODELS / name) == job.key:
        log = json.loads((MODELS / name / LOG).read_text())
        out.adopt("training", job.key, log)
    elif key_of(WORK / job.key) != job.key:
        # Rows without a checkpoint are of no use.
        out.forget([job.key])


def _former_rows(root: Path) -> list[dict[str, Any]]:
    """Return the rows of `checkpoints` of the last run; none if the file is damaged, as it is rewritten."""
    try:
        rows: list[dict[str, Any]] = read_rows(root, "checkpoints").to_pylist()
    except DamagedFile:
        return []
    return rows


def _tell_of_changed(former: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Print the models in the user's folders whose files differ from those of the last run."""
    known = {(row["model"], row["ref"]): row["fingerprint"] for row in former}
    for row in rows:
        was = known.get((row["model"], row["ref"]), row["fingerprint"])
        if row["source"] == "folder" and was != row["fingerprint"]:
            print(
                f"checkpoints: {row['model']}: the files in {row['ref']} have changed since the last run (fingerprint "
                f"{was[:12]}, now {row['fingerprint'][:12]}); its jobs run again",
                flush=True,
            )


def _at_hand(params: Params, name: str, trained: Mapping[str, Job]) -> bool:
    ref = params.models[name].ref
    kind, _, recipe = ref.partition(":")
    return not ref.startswith(COMPRESSED) and (kind != "checkpoint" or recipe in trained)


def _row(params: Params, name: str, jobs: Mapping[str, Job], recipes: Mapping[str, Recipe]) -> dict[str, Any]:
    model, own = params.models[name], environments(params).get(name)
    kind, _, recipe = model.ref.partition(":")
    ref = (MODELS / recipe).as_posix() if kind == "checkpoint" else model.ref
    found = registry.resolve(ref, allow_hub=True)
    registry.check_options(model.family, model.options, f"models.{name}.options")
    job = jobs[recipe] if kind == "checkpoint" else None
    family = registry.family_class(model.family)
    heads = recipes[recipe].spec().get("heads") if job else None
    kept = params.checkpoints.committed
    committed = bool(job and kept and key_of(Path(kept, recipe)) == job.key)
    return {
        "model": name,
        "family": model.family,
        "modality": family.modality,
        "input_stack": family.stacks[0],
        "output_stack": family.output_stack,
        "source": {True: "committed", False: "trained"}[committed] if job else found.source,
        "ref": found.pinned(ref),
        "fingerprint": registry.with_code(model.family, found.fingerprint, own.digest if own else ""),
        **registry.facts(found.folder),
        "recipe": job.key if job else None,
        "options": json.dumps(model.options, sort_keys=True) if model.options else None,
        "heads": json.dumps(heads, sort_keys=True) if heads else None,
        "environment": own.described if own else None,
    }


def _skill_jobs(params: Params, rows: list[dict[str, Any]]) -> Iterator[Planned]:
    """Yield a job for each time series model with weights of its own whose forecasts a study uses.

    Models that are not pretrained here forecast a clean sine only.
    """
    asking = [name for name, study in params.studies.items() if {"isotropy", "forecasts"} & set(study.measures)]
    forecasting = {model for study in asking for model in params.asked(study, "models")}
    for row in rows:
        of_series = row["modality"] == "series" and row["model"] in forecasting
        if of_series and _is_own(params, row["model"]):
            block = params.checkpoints.skill
            options = SkillOptions(
                windows=block.windows, context=block.context, samples=block.samples, bootstrap=block.bootstrap
            )
            spec = SkillSpec(
                model=row["model"],
                source=planning.model_source(row),
                recipe=row["recipe"],
                seed=params.seed,
                skill=options,
            )
            yield Planned(Job(SKILL, spec.to_dict(), {f"model:{row['ref']}": row["fingerprint"]}, group=row["model"]))


def _skill_line(row: Mapping[str, Any]) -> str:
    """Return one line of text that describes a row of `skill`."""
    sine = f"error on a clean sine {row['sine_error']:.2f} of forecasting 0"
    if row["wql_vs_median"] is None:
        return sine
    return (
        f"WQL {row['wql_vs_median']:.3f} of the context median's [{row['low']:.3f}, {row['high']:.3f}], "
        f"{row['wql_vs_seasonal']:.3f} of point seasonal naive's [{row['seasonal_low']:.3f}, "
        f"{row['seasonal_high']:.3f}], {row['n_windows']} unseen windows; {sine}"
    )


def _is_own(params: Params, name: str) -> bool:
    """Return whether a model has weights of its own, and is not its base model with other options."""
    base = params.models[name].base_model
    return base is None or params.models[base].ref != params.models[name].ref
