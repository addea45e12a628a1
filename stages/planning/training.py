"""Trainings of recipes, for the stages checkpoints and pretraining: their jobs and their curves.

Curves are DVCLive files, written while trainings run and rewritten at the end. The files at the end have the same
bytes whatever was written before. The driver writes them, from the log that a training keeps next to its state,
because workers may run on machines without the repository, and because a training that was killed repeats some steps.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import DATA
from stages.config.params import Params
from stages.planning.model_folders import WORK
from store.files import fingerprint
from tasks.job import Job, Task
from tasks.pretraining import EmbeddingSource, PretrainSpec
from tasks.sweep.progress import format_duration
from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.common.checkpoint_folder import SNAPSHOTS
from tsfmscope.models.references import split_checkpoint
from tsfmscope.series.synthetic.shards import CORPUS_FILE
from tsfmscope.training.corpora import check_complete
from tsfmscope.training.options import Recipe
from tsfmscope.training.pretraining import PROGRESS

if TYPE_CHECKING:
    from dvclive import Live

TRAINING = Task("pretrain", 1, "tasks.pretraining:pretrain", table="training")
# Folder of the checkpoints, by name of their recipe.
MODELS = Path(DATA, "checkpoints", "models")
logger = logging.getLogger(__name__)
# Seconds between two readings of the trainings' logs.
POLL_SECONDS = 5.0
# Seconds between two lines of progress.
PROGRESS_EVERY = 30.0
# Trainings that a line of progress names: those that are nearest to their end.
MAX_LINES = 4


def recipes(params: Params) -> dict[str, Recipe]:
    """Return the recipes that models name, and the recipes whose embedding one of these takes over."""
    references = (split_checkpoint(model.ref)[0] for model in params.models.values())
    all_recipes = params.checkpoints.recipes
    named = {name: all_recipes[name] for name in references if name}
    sources = (recipe.embedding_from for recipe in named.values())
    return named | {name: all_recipes[name] for name in sources if name is not None}


def checkpoint_path(ref: str) -> str | None:
    """Return the path under MODELS of a reference checkpoint:RECIPE[/step-N]; None for another kind of reference."""
    recipe, snapshot = split_checkpoint(ref)
    return f"{recipe}/{SNAPSHOTS}/{snapshot}" if snapshot else recipe or None


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
    spec = PretrainSpec(
        model=name, recipe=recipe, code=registry.code_of(recipe.family) or None, embedding=embedding
    ).to_dict()
    if recipe.corpus is None:
        return Job(TRAINING, spec)
    # The file determines every series of the corpus.
    corpus_file = Path(recipe.corpus, CORPUS_FILE)
    if not corpus_file.exists():
        raise ModelError(f"recipe {name}: corpus {recipe.corpus} has no {CORPUS_FILE}; make it with `tsfmscope corpus`")
    check_complete(corpus_file.parent)
    return Job(TRAINING, spec, {corpus_file.as_posix(): fingerprint(corpus_file)})


def training_jobs(recipes: Mapping[str, Recipe]) -> dict[str, Job]:
    """Return the job of every recipe. `recipes` must contain those whose embeddings are taken over."""
    plain = {name: training_job(name, recipe) for name, recipe in recipes.items() if recipe.embedding_from is None}
    return {
        name: plain[name] if recipe.embedding_from is None else training_job(name, recipe, plain[recipe.embedding_from])
        for name, recipe in recipes.items()
    }


@contextmanager
def follow_trainings(curves: Path, jobs: Mapping[str, Job]) -> Iterator[None]:
    """Write the jobs' logs to curves/NAME inside the context, for `dvc plots show` and editors.

    A line of progress goes to standard error every PROGRESS_EVERY seconds.
    """
    stopped = threading.Event()
    thread = threading.Thread(target=_follow, args=(curves, jobs, stopped), name="curves", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def write_curve(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a training's rows (step, loss) as a DVCLive folder, which replaces an existing one."""
    live = _live(folder)
    for row in rows:
        _log(live, row)


def _follow(curves: Path, jobs: Mapping[str, Job], stopped: threading.Event) -> None:
    """Write curves until `stopped` is set, and once more after that.

    A curve that cannot be written is logged as a warning, because it is no reason to stop a training.
    """
    lives: dict[str, Live] = {}
    # The last row of each training that has advanced since the last line of progress.
    latest_rows: dict[str, dict[str, Any]] = {}
    reported_at, ended = time.monotonic(), False
    while not ended:
        ended = stopped.wait(POLL_SECONDS)
        for name, job in jobs.items():
            try:
                rows = read_log(WORK / job.key)
                if rows and name not in lives:
                    lives[name] = _live(curves / name)
                for row in rows:
                    if row["step"] > lives[name].step:
                        _log(lives[name], row)
                        latest_rows[name] = row
            # A kill can leave an incomplete line, which gives ValueError.
            except (OSError, ValueError) as error:
                logger.warning("curve of %s: %s", name, error)
        if latest_rows and time.monotonic() - reported_at >= PROGRESS_EVERY:
            print(f"{curves.parent.name}: {_progress_line(latest_rows)}", file=sys.stderr, flush=True)
            latest_rows, reported_at = {}, time.monotonic()


def _progress_line(latest_rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a line on the progress of the trainings."""
    nearest = sorted(latest_rows, key=lambda name: latest_rows[name]["seconds_left"])
    lines = []
    for name in nearest[:MAX_LINES]:
        row = latest_rows[name]
        duration = format_duration(row["seconds_left"])
        lines.append(f"{name} at step {row['step']} of {row['steps']}, loss {row['loss']:.4g}, {duration} left")
    return "; ".join([*lines, f"{len(nearest) - MAX_LINES} more"] if len(nearest) > MAX_LINES else lines)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the rows that a training has logged in its folder, by step.

    A step that was repeated after a kill gives one row, the later one. Returns [] if there is no log.
    """
    try:
        text = (folder / PROGRESS).read_text()
    # The training has not begun, or is finished.
    except FileNotFoundError:
        return []
    rows = (json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines())
    return sorted({row["step"]: row for row in rows}.values(), key=lambda row: row["step"])


def _live(folder: Path) -> Live:
    """Return DVCLive's writer of an empty folder, without an experiment, dvc.yaml or calls to DVC Studio."""
    # If the user has a token of DVC Studio, DVCLive would send every curve there as an experiment.
    os.environ.setdefault("DVC_STUDIO_OFFLINE", "true")
    from dvclive import Live

    live = Live(str(folder), save_dvc_exp=False, dvcyaml=None)
    # DVCLive opens the repository to look for an experiment's name, and leaves it open.
    if repository := getattr(live, "_dvc_repo", None):
        repository.close()
    return live


def _log(live: Live, row: Mapping[str, Any]) -> None:
    live.step = row["step"]
    # No summary is written: `dvc plots` would take its metrics.json for a curve.
    live.log_metric("loss", row["loss"])
