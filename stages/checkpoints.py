"""Every model's weights: kept in git, pretrained here, from a folder or the hub; and the skill of the pretrained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages import DATA, curves
from stages.blocks import Recipe
from stages.folders import RECIPE, WORK, drop_others, key_of, settle, work_folder
from stages.params import COMPRESSED, Params
from stages.sweeping import Planned, environments, nothing, opened, resources, run, sweep
from store.files import fingerprint, write_text
from store.out import Out
from store.published import read_rows
from tasks.compression.streamed import check_whole
from tasks.errors import ModelError
from tasks.models import registry
from tasks.series.shards import LAW_FILE
from tasks.sweep.jobs import Job, Task

TRAINING = Task("pretrain", 1, "tasks.compression.pretraining:pretrain", table="training")
SKILL = Task("skill", 2, "tasks.compression.unseen:measure_skill", "tasks.models.registry:load_for_job", table="skill")
MODELS, CURVES = Path(DATA, "checkpoints", "models"), Path(DATA, "checkpoints", "curves")
LOG = "training.json"


def main(params: Params) -> None:
    """Write data/checkpoints: models/NAME and curves/NAME for each recipe; tables checkpoints, training, skill."""
    jobs = training_jobs(recipes(params))
    with opened("checkpoints", ["training", "skill"]) as out:
        for name, job in jobs.items():
            _install(out, name, job, params.checkpoints.committed)
        trained: dict[str, Job] = {}
        for needs in (False, True):  # those that take over an embedding come after the others
            wave = {name: job for name, job in jobs.items() if ("embedding" in job.spec) is needs}
            if wave:
                with curves.followed(CURVES, wave):
                    run(out, [Planned(job) for job in wave.values()], resources(params), work_folder)
            trained |= {name: job for name, job in wave.items() if settle(MODELS / name, job)}
        rows = [_row(params, name, jobs) for name in params.models if _at_hand(params, name, trained)]
        out.write("checkpoints", rows)
        for name in trained:
            curves.write(CURVES / name, json.loads((MODELS / name / LOG).read_text()))
        for folder in (MODELS, CURVES):
            drop_others(folder, jobs)
        sweep(out, [*map(Planned, jobs.values()), *_skill_jobs(params, rows)], params, nothing)
    for row in read_rows(out.root, "skill").to_pylist():
        print(
            f"checkpoints: {row['model']}: WQL {row['wql_vs_median']:.3f} of the context median's "
            f"[{row['low']:.3f}, {row['high']:.3f}], {row['wql_vs_seasonal']:.3f} of seasonal naive's "
            f"[{row['seasonal_low']:.3f}, {row['seasonal_high']:.3f}], {row['n_windows']} unseen windows"
        )


def recipes(params: Params) -> dict[str, Recipe]:
    """The recipes that models name, and those whose embedding one of these takes over."""
    named = (model.ref.partition(":") for model in params.models.values())
    known = params.checkpoints.recipes
    found = {name: known[name] for kind, _, name in named if kind == "checkpoint"}
    sources = (recipe.embedding_from for recipe in found.values())
    return found | {name: known[name] for name in sources if name is not None}


def training_job(name: str, recipe: Recipe, source: Job | None = None) -> Job:
    """The job whose key ties a checkpoint, committed or not, to its recipe; source: that of recipe.embedding_from."""
    spec: dict[str, Any] = {"model": name, "recipe": recipe.spec()}
    if code := registry.code_of(recipe.family):
        spec["code"] = code
    if recipe.embedding_from is not None:
        assert source is not None
        spec["embedding"] = {"folder": (MODELS / recipe.embedding_from).as_posix(), "key": source.key}
    if recipe.heads and recipe.heads.guideline and recipe.heads.factors == "shared":
        spec["ranks"] = "of whole matrices"  # not over the heads, as once: a key of its own, and all others stay
    if recipe.corpus is None:
        return Job(TRAINING, spec)
    law = Path(recipe.corpus, LAW_FILE)  # every series of the corpus follows from what it says
    if not law.exists():
        raise ModelError(
            f"recipe {name}: corpus {recipe.corpus} has no {LAW_FILE}; make it with `python -m stages corpus`"
        )
    check_whole(law.parent)
    return Job(TRAINING, spec, {law.as_posix(): fingerprint(law)})


def training_jobs(recipes: Mapping[str, Recipe]) -> dict[str, Job]:
    """The job of every recipe; those whose embeddings are taken over are among them."""
    plain = {name: training_job(name, recipe) for name, recipe in recipes.items() if recipe.embedding_from is None}
    return {
        name: plain[name] if recipe.embedding_from is None else training_job(name, recipe, plain[recipe.embedding_from])
        for name, recipe in recipes.items()
    }


def keep(params: Params, folder: Path) -> None:
    """Copy the pretrained checkpoints, with their log, to a folder that is kept in git."""
    for name, job in training_jobs(recipes(params)).items():
        if key_of(MODELS / name) != job.key:
            raise ModelError(f"{MODELS / name} is not made by the recipe in params.yaml; run `dvc repro checkpoints`")
        shutil.copytree(MODELS / name, folder / name, dirs_exist_ok=True)


def _install(out: Out, name: str, job: Job, committed: str | None) -> None:
    """Take a checkpoint that is kept in git where it was made by this very recipe: its log is the job's rows."""
    kept = Path(committed, name) if committed else None
    if key_of(MODELS / name) != job.key and kept and key_of(kept) == job.key:
        shutil.rmtree(WORK / job.key, ignore_errors=True)
        shutil.copytree(kept, WORK / job.key, ignore=shutil.ignore_patterns(RECIPE))
        write_text(WORK / job.key / RECIPE, (kept / RECIPE).read_text())  # last: a copy that was stopped is not whole
        settle(MODELS / name, job)
    if key_of(MODELS / name) == job.key:
        log = json.loads((MODELS / name / LOG).read_text())
        out.adopt("training", job.key, log)
    elif key_of(WORK / job.key) != job.key:
        out.forget([job.key])  # rows without a checkpoint are of no use


def _at_hand(params: Params, name: str, trained: Mapping[str, Job]) -> bool:
    ref = params.models[name].ref
    kind, _, recipe = ref.partition(":")
    return not ref.startswith(COMPRESSED) and (kind != "checkpoint" or recipe in trained)


def _row(params: Params, name: str, jobs: Mapping[str, Job]) -> dict[str, Any]:
    model, own = params.models[name], environments(params).get(name)
    kind, _, recipe = model.ref.partition(":")
    ref = (MODELS / recipe).as_posix() if kind == "checkpoint" else model.ref
    found = registry.resolve(ref, allow_hub=True)
    registry.check_options(model.family, model.options, f"models.{name}.options")
    job = jobs[recipe] if kind == "checkpoint" else None
    heads = job.spec["recipe"].get("heads") if job else None
    kept = params.checkpoints.committed
    committed = bool(job and kept and key_of(Path(kept, recipe)) == job.key)
    return {
        "model": name,
        "family": model.family,
        "modality": registry.family_class(model.family).modality,
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
    """Of the pretrained models whose forecasts a study looks at."""
    asking = [name for name, study in params.studies.items() if {"isotropy", "forecasts"} & set(study.measures)]
    forecasting = {model for study in asking for model in params.asked(study, "models")}
    for row in rows:
        of_series = row["modality"] == "series" and row["model"] in forecasting
        if of_series and row["recipe"] is not None and _is_own(params, row["model"]):
            spec = {name: row[name] for name in ("model", "family", "ref", "recipe")}
            spec |= {"seed": params.seed, "skill": params.checkpoints.skill.model_dump()}
            spec |= {"options": json.loads(row["options"])} if row["options"] else {}
            yield Planned(Job(SKILL, spec, {f"model:{row['ref']}": row["fingerprint"]}, group=row["model"]))


def _is_own(params: Params, name: str) -> bool:
    """Whether a model's weights are not those of the model that it is made from, read otherwise."""
    base = params.models[name].base_model
    return base is None or params.models[base].ref != params.models[name].ref
