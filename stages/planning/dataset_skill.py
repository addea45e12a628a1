"""Jobs that score models and local baselines on the last windows of data sets, and the means of their rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.config.params import Params
from stages.planning import planning
from stages.planning.sweeping import PlannedJob
from store.dumps import read_table
from tasks.dataset_skill import DatasetSkillSpec, ModelSkillSpec
from tasks.job import Job, Task
from tsfmscope.defaults import HELD_OUT, MIN_CONTEXT, RANDOM_SOURCES, REAL
from tsfmscope.forecasting.skill import mean_skill
from tsfmscope.models.references import split_checkpoint
from tsfmscope.series.synthetic.shards import CORPUS_FILE, REAL_PREFIX
from tsfmscope.training.options import Recipe

if TYPE_CHECKING:
    import pyarrow as pa

ENTRIES = "tasks.dataset_skill"
MODEL = Task("dataset_skill", 2, f"{ENTRIES}:measure_model", "tasks.parts:load_model", table="dataset_skill")
BASELINE = Task(
    "baseline_skill", 2, f"{ENTRIES}:measure_baseline", "tasks.forecasts:load_baseline", table="dataset_skill"
)
# Sources of data sets whose series are generated.
SYNTHETIC_SOURCES = ("kernelsynth", "signals")
# Parts of a training mixture that contain the bundled series, and those that contain generated series only.
WITH_BUNDLED = {"bundled", "tsmixup"}
GENERATED = {"kernelsynth", *RANDOM_SOURCES}


def dataset_skill_jobs(params: Params, rows: Iterable[Mapping[str, Any]]) -> Iterator[PlannedJob]:
    """Yield one job for each model and baseline on each data set of checkpoints.skill.

    rows: the models' rows of `checkpoints`. Data sets whose series are not on this machine have no job.
    """
    models = list(rows)
    for dataset in params.skill_datasets:
        series = planning.series_file(params, dataset)
        # The stage that reads a data set counts a missing one in the table `skipped`.
        if not series.exists():
            continue
        for row in models:
            scored = _spec(params, row["model"], dataset, is_trained_on(params, row, dataset))
            spec = ModelSkillSpec(**dict(scored), **dict(planning.model_source(row)))
            yield PlannedJob(Job(MODEL, spec.to_dict(), planning.inputs(row, series), group=row["model"]))
        for name in params.checkpoints.skill.baselines:
            of_baseline = _spec(params, name, dataset, False).to_dict()
            yield PlannedJob(Job(BASELINE, of_baseline, planning.file_inputs(series), group=name))


def is_trained_on(params: Params, row: Mapping[str, Any], dataset: str) -> bool | None:
    """Return whether a model's training data contain series of a data set; None if they are not known.

    row: the model's row of `checkpoints`.
    """
    recipes = params.checkpoints.recipes
    recipe = recipes.get(split_checkpoint(params.models[row["model"]].ref)[0])
    if row["recipe"] is None or recipe is None:
        return None
    is_bundled = params.datasets.sets[dataset].source == "bundled"
    answers = [_contains(recipe, dataset, is_bundled)]
    if recipe.embedding_from is not None:
        answers.append(_contains(recipes[recipe.embedding_from], dataset, is_bundled))
    return True if True in answers else None if None in answers else False


def read_series(root: Path, job: Job) -> pa.Table | None:
    """Return the series of a job on a data set; None for the stage's other jobs, which read nothing."""
    return read_table(root, job) if job.task.name in (MODEL.name, BASELINE.name) else None


def mean_rows(params: Params, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of `mean_skill` from those of `dataset_skill`."""
    return mean_skill(rows, bootstrap=params.checkpoints.skill.bootstrap, seed=params.seed)


def mean_line(row: Mapping[str, Any]) -> str:
    """Return one line of text that describes a row of `mean_skill`."""
    sets = f"{row['n_datasets']} {row['kind']} data set{'' if row['n_datasets'] == 1 else 's'}"
    parts = [f"{name.upper()} {row[name]:.3f}{_interval(row, name)}" for name in ("wql", "mae")]
    return f"on {sets}, relative to point seasonal naive (seasons: table dataset_skill): {', '.join(parts)}"


def _interval(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if low is None else f" [{low:.3f}, {high:.3f}]"


def _spec(params: Params, model: str, dataset: str, trained_on: bool | None) -> DatasetSkillSpec:
    block, source = params.checkpoints.skill, params.datasets.sets[dataset].source
    return DatasetSkillSpec(
        model=model,
        dataset=dataset,
        is_real=source not in SYNTHETIC_SOURCES,
        trained_on=trained_on,
        horizon=params.datasets.sets[dataset].horizon,
        min_context=MIN_CONTEXT,
        held_out=HELD_OUT if source == "bundled" else None,
        seed=params.seed,
        context=block.context,
        samples=block.samples,
        max_series=block.max_series,
    )


def _contains(recipe: Recipe, dataset: str, is_bundled: bool) -> bool | None:
    """Return whether the training data of a recipe contain series of a data set; None if they are not known.

    The first part of every bundled series is in the mixtures bundled and tsmixup. Any series may be in the Parquet
    files that a corpus of shards mixes in. A file of the source `real` is the data set of its name.
    """
    if recipe.real and dataset in recipe.real.files:
        return True
    if recipe.corpus is None:
        known = set(recipe.mixture) <= GENERATED | WITH_BUNDLED | {REAL}
        return is_bundled and bool(set(recipe.mixture) & WITH_BUNDLED) if known else None
    real = json.loads(Path(recipe.corpus, CORPUS_FILE).read_text())["real"]
    if f"{REAL_PREFIX}{dataset}" in real:
        return True
    return False if is_bundled or all(name.startswith(REAL_PREFIX) for name in real) else None
