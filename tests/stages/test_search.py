"""The stage `pretraining`: trials of a recipe over schedules, from params to tables and checkpoints."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file
from threadpoolctl import threadpool_limits

from stages import pretraining
from stages.config.params import Params, ParamsError, load
from stages.planning.model_folders import work_folder
from stages.planning.sweeping import TooManyFailures, resources
from stages.planning.training import training_job
from stages.planning.trials import stopped_rows, trials
from store.stage_outputs import read_rows
from store.status import read_statuses
from tasks.job import Job, StoreCallbacks
from tasks.pretraining import pretrain
from tasks.sweep.actor import Outcome, WorkerLocation
from tasks.sweep.halving import Halving
from tasks.sweep.policy import Failure
from tasks.sweep.records import outcome_without_answer
from tasks.sweep.tune import FinishedTrial, ProgressReport, search
from tsfmscope.errors import ModelError
from tsfmscope.models.registry import family_class
from tsfmscope.training import pretraining as training
from tsfmscope.training.options import Recipe
from tsfmscope.training.pretraining import PROGRESS

ROOT = Path(__file__).parents[2]
SMOKE = yaml.safe_load((ROOT / "params" / "smoke.yaml").read_text())
TOY = {
    "family": "chronos-t5",
    "config": {
        "d_model": 16, "d_ff": 16, "d_kv": 8, "num_heads": 2, "num_layers": 2, "num_decoder_layers": 1,
        "context_length": 32, "prediction_length": 8, "dropout_rate": 0.0, "n_tokens": 64,
    },
    "steps": 20, "batch_steps": 160, "learning_rate": 0.01, "contexts": [32], "horizon": 8, "min_past": 8,
    "mixture": {"kernelsynth": 1.0}, "pool": 4, "length": 128, "log_every": 1, "save_every": 5,
}  # fmt: skip
SPACE = {"recipe": "toy", "first": [1.0], "growth": [0.0, 1.0], "flat": [2], "grace": 5, "reduction": 2}


def params(folder: Path, **space: Any) -> Params:
    block = copy.deepcopy(SMOKE)
    block["checkpoints"]["recipes"]["toy"] = TOY
    block["pretraining"] = SPACE | space
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(block))
    return load(path)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """This process with as many threads as a worker has."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


def test_a_trial_is_the_recipe_with_a_schedule_and_a_seed(tmp_path: Path) -> None:
    found = trials(params(tmp_path, guideline=[{"smallest": 4}], seeds=[0, 1]))
    names = ["flow-1-0", "flow-1-1", "guideline-4-0-0.5", "flat-2"]
    assert list(found) == [f"toy+{name}+{seed}" for name in names for seed in (0, 1)]
    assert len({job.key for job in found.values()}) == len(found)
    assert all(job.group == f"seed {job.spec['recipe']['seed']}" for job in found.values())  # compared with each other
    assert found["toy+flow-1-1+1"].spec["recipe"] == found["toy+flow-1-1+0"].spec["recipe"] | {"seed": 1}
    assert not trials(params(tmp_path, recipe=None))


def test_a_recipe_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"pretraining\.recipe: unknown name 'toys'; did you mean 'toy'"):
        params(tmp_path, recipe="toys")


def test_a_grace_that_no_trial_reaches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"pretraining.grace: got 21, expected at most 20, the steps of 'toy'"):
        params(tmp_path, grace=21)


def test_a_step_that_a_killed_training_logged_twice_stands_once(tmp_path: Path) -> None:
    lines = [json.dumps({"step": step, "loss": step, "learning_rate": 0.1, "steps": 9}) for step in (1, 2, 2, 3)]
    (tmp_path / PROGRESS).write_text("\n".join(lines) + "\n")
    rows = stopped_rows(tmp_path, "m")
    assert rows == [{"model": "m", "step": step, "loss": step, "learning_rate": 0.1} for step in (1, 2, 3)]
    assert stopped_rows(tmp_path / "gone", "m") == []


class Searches:
    """In place of Ray Tune: trains nothing, ends each trial as `ends` says of its name, else whole."""

    def __init__(self) -> None:
        self.ends: dict[str, str] = {}
        self.asked: list[list[str]] = []  # names of the trials that were trained, a search each
        self.folder = Path()
        self.told: ProgressReport | None = None

    def __call__(self, jobs: list[Job], *others: Any) -> list[FinishedTrial]:
        stored = others[4] if len(others) > 4 else {}
        jobs = [job for job in jobs if job.key not in stored]
        self.asked.append([job.spec["model"] for job in jobs])
        self.folder = others[3]
        self.told = others[5]
        self.folder.mkdir(parents=True, exist_ok=True)
        return [self._end(job, self.ends.get(job.spec["model"], "whole")) for job in jobs]

    def _end(self, job: Job, how: str) -> FinishedTrial:
        if how == "failed":
            return FinishedTrial(
                job, outcome_without_answer(Failure.of(ModelError("no")), WorkerLocation("", "", ""), seconds=0.0)
            )
        work = work_folder(job)
        work.mkdir(parents=True, exist_ok=True)
        rows = [{"step": step, "loss": 1.0, "learning_rate": 0.1} for step in range(1, 6 if how == "stopped" else 21)]
        if how == "stopped":
            (work / PROGRESS).write_text("".join(json.dumps(row) + "\n" for row in rows))
            return FinishedTrial(job, None)
        (work / "recipe.json").write_text(json.dumps({"key": job.key}))
        timing = outcome_without_answer(Failure.of(ModelError("no")), WorkerLocation("", "", ""), seconds=0.0).timing
        return FinishedTrial(job, Outcome([{"model": job.spec["model"], **row} for row in rows], None, timing))


@pytest.fixture
def searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Searches:
    found = Searches()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretraining, "search", found)
    return found


def stored(folder: Path) -> dict[str, tuple[str, int]]:
    rows = read_rows(folder / "data" / "pretraining", "trials").to_pylist()
    return {row["model"]: (row["ended"], row["steps_done"]) for row in rows}


FIRST, SECOND, FLAT = "toy+flow-1-0+0", "toy+flow-1-1+0", "toy+flat-2+0"


def test_a_stopped_trial_that_another_search_lets_finish_has_its_whole_curve(
    tmp_path: Path, searches: Searches
) -> None:
    searches.ends = {SECOND: "stopped"}
    pretraining.main(params(tmp_path))
    assert stored(tmp_path) == {FIRST: ("finished", 20), SECOND: ("stopped", 5), FLAT: ("finished", 20)}
    searches.ends = {}
    pretraining.main(params(tmp_path, flat=[2, 3]))
    assert set(stored(tmp_path).values()) == {("finished", 20)}
    rows = read_rows(tmp_path / "data" / "pretraining", "training").to_pylist()
    assert [row["step"] for row in rows if row["model"] == SECOND] == list(range(1, 21))


def test_models_of_trials_that_are_no_longer_asked_for_go(tmp_path: Path, searches: Searches) -> None:
    pretraining.main(params(tmp_path))
    pretraining.main(params(tmp_path, flat=[]))
    assert {path.name for path in (tmp_path / "data" / "pretraining" / "models").iterdir()} == {FIRST, SECOND}


def test_a_new_trial_does_not_train_the_finished_ones_again(tmp_path: Path, searches: Searches) -> None:
    pretraining.main(params(tmp_path))
    pretraining.main(params(tmp_path, flat=[2, 3]))
    assert searches.asked == [[FIRST, SECOND, FLAT], ["toy+flat-3+0"]]
    assert set(stored(tmp_path).values()) == {("finished", 20)}


def test_a_finished_trial_whose_model_is_gone_is_trained_again_and_it_alone(tmp_path: Path, searches: Searches) -> None:
    searches.ends = {SECOND: "stopped"}
    pretraining.main(params(tmp_path))
    shutil.rmtree(tmp_path / "data" / "pretraining" / "models" / FIRST)
    pretraining.main(params(tmp_path))
    assert searches.asked[1:] == [[FIRST]]
    assert stored(tmp_path) == {FIRST: ("finished", 20), SECOND: ("stopped", 5), FLAT: ("finished", 20)}
    assert (tmp_path / "data" / "pretraining" / "models" / FIRST).exists()


def test_a_search_has_a_status_while_trials_run_and_when_all_is_stored(tmp_path: Path, searches: Searches) -> None:
    searches.ends = {FLAT: "failed"}
    with pytest.raises(TooManyFailures):
        pretraining.main(params(tmp_path))
    assert searches.told is not None
    searches.told(1, 0, 2)  # the file is a moment old: it is not written again
    ((now, _),) = read_statuses(tmp_path / "data" / ".status")
    assert (now.planned, now.reused, now.done, now.failed, now.remaining, now.finished) == (3, 0, 2, 1, 0, True)
    (tmp_path / "data" / ".status" / "pretraining.json").unlink()
    searches.told(1, 0, 2)
    ((now, _),) = read_statuses(tmp_path / "data" / ".status")
    assert (now.done, now.running, now.remaining, now.finished) == (1, 2, 2, False)
    searches.ends = {}
    pretraining.main(params(tmp_path, flat=[]))
    ((now, _),) = read_statuses(tmp_path / "data" / ".status")
    assert (now.planned, now.reused, now.finished) == (2, 2, True)


@pytest.mark.parametrize("change", [{"grace": 10}, {"reduction": 3}])
def test_another_halving_tries_the_stopped_trials_again_and_them_alone(
    change: dict[str, int], tmp_path: Path, searches: Searches
) -> None:
    searches.ends = {SECOND: "stopped"}
    pretraining.main(params(tmp_path))
    pretraining.main(params(tmp_path))
    assert len(searches.asked) == 1
    searches.ends = {}
    pretraining.main(params(tmp_path, **change))
    assert searches.asked[1:] == [[SECOND]]
    assert set(stored(tmp_path).values()) == {("finished", 20)}


def test_a_failed_trial_is_tried_again_by_retry_in_a_search_of_its_own(
    tmp_path: Path, searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = params(tmp_path)
    searches.ends = {SECOND: "failed", FLAT: "stopped"}
    with pytest.raises(TooManyFailures):
        pretraining.main(asked)
    assert not searches.folder.exists()  # it holds the failure
    assert not work_folder(trials(asked)[FLAT]).exists()
    searches.ends = {}
    monkeypatch.setenv(pretraining.RETRY_VARIABLE, "1")
    pretraining.main(asked)
    assert searches.asked[1:] == [[SECOND]]
    assert stored(tmp_path) == {FIRST: ("finished", 20), SECOND: ("finished", 20), FLAT: ("stopped", 5)}


def interrupted(job: Job, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train to this step and no further, as a search that is killed before Tune writes down what it heard."""

    step = training._step

    def dies(*arguments: Any) -> tuple[float, int]:
        if arguments[3] == at:
            raise KeyboardInterrupt
        return step(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(training, "_step", dies)
        with pytest.raises(KeyboardInterrupt):
            pretrain(job, work_folder(job), None)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.long
def test_a_search_that_was_killed_after_a_trial_passed_rungs_unseen_ends_as_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    asked = params(tmp_path)
    good, hopeless = (
        training_job(name, Recipe.model_validate(TOY | {"learning_rate": rate}))
        for name, rate in (("good", 0.01), ("hopeless", 1e-9))
    )
    interrupted(good, 12, monkeypatch)
    port = StoreCallbacks(lambda keys: keys, lambda records: None, str, work_folder, lambda job, dump: {})
    halving = Halving(most=20, grace=5, reduction=2)
    where = replace(resources(asked), actors=1)
    first, second = search([good, hopeless], port, where, halving, tmp_path / "search")
    assert first.outcome is not None and [row["step"] for row in first.outcome.rows] == list(range(1, 21))
    assert second.outcome is None
    assert [row["step"] for row in stopped_rows(work_folder(hopeless), "hopeless")] == [1, 2, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)  # two Rays are started; on a busy machine each takes a minute
def test_a_search_stores_curves_of_all_trials_and_checkpoints_of_those_that_finished(tmp_path: Path) -> None:
    asked = params(tmp_path)
    jobs = trials(asked)

    def run() -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "stages", "pretraining"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = run()
    out = tmp_path / "data" / "pretraining"
    rows = {row["model"]: row for row in read_rows(out, "trials").to_pylist()}
    curves = read_rows(out, "training").to_pylist()
    assert set(rows) == set(jobs) and "0 failed" in first
    finished = [name for name, row in rows.items() if row["ended"] == "finished"]
    assert finished and {path.name for path in (out / "models").iterdir()} == set(finished)
    for name, row in rows.items():
        logged = [one for one in curves if one["model"] == name]
        assert [one["step"] for one in logged] == list(range(1, row["steps_done"] + 1))
        assert row["steps_done"] == 20 if name in finished else row["steps_done"] % 5 == 0
        drawn = (out / "curves" / name / "plots" / "metrics" / "loss.tsv").read_text().splitlines()
        assert drawn == ["step\tloss", *(f"{one['step']}\t{one['loss']!r}" for one in logged)]
    with threads(resources(asked).for_task("pretrain").threads):  # sums of other parts are other sums
        whole = pretrain(jobs[finished[0]], tmp_path / "here", None)  # the trial is the job
    assert [one["loss"] for one in curves if one["model"] == finished[0]] == [row["loss"] for row in whole.rows]
    weights, same = (
        load_file(path / "model.safetensors") for path in (out / "models" / finished[0], tmp_path / "here")
    )
    assert weights.keys() == same.keys()
    for name, weight in weights.items():
        assert np.array_equal(weight, same[name]), name
    assert family_class("chronos-t5").load(out / "models" / finished[0]).compression
    stamp = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    bytes_of_curves = {path: path.read_bytes() for path in out.rglob("*.tsv")}
    assert run() == first  # of what the store holds, and nothing is done again
    assert stamp == {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    assert bytes_of_curves == {path: path.read_bytes() for path in out.rglob("*.tsv")}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)  # two Rays are started; on a busy machine each takes a minute
def test_trainings_of_both_stages_use_the_processes_of_their_task_and_an_embedding_is_trained_before_it_is_reused(
    tmp_path: Path,
) -> None:
    block = copy.deepcopy(SMOKE)
    block["resources"] = {"tasks": {"pretrain": {"cpus": 2, "processes": 2}}, "max_failed_share": 0}
    block["pretraining"] = {"recipe": "one", "flat": [2], "grace": 5}
    reused = TOY | {"embedding_from": "toy", "heads": {"flat": 2}, "snapshots": [0]}
    one_window = TOY | {"batch_steps": 40}
    block["checkpoints"] = {"committed": None, "recipes": {"reused": reused, "toy": TOY, "one": one_window}}
    block["models"] = {"reused": {"family": "chronos-t5", "ref": "checkpoint:reused"}}
    block["studies"] = {"weights": {"title": "t", "measures": ["weights"], "models": "all", "plot": "none"}}
    block["report"] = {"study": "weights"}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(block))
    trained, searched = (
        subprocess.run(
            [sys.executable, "-m", "stages", stage],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )
        for stage in ("checkpoints", "pretraining")
    )  # fmt: skip
    assert searched.returncode == 1
    (failed,) = read_rows(tmp_path / "data" / "pretraining", "failures").to_pylist()
    assert failed["message"].startswith("processes: got 2, expected at most 1, the windows of a batch")
    assert trained.returncode == 0, trained.stderr
    out = tmp_path / "data" / "checkpoints"
    together = [row["loss"] for row in read_rows(out, "training").to_pylist() if row["model"] == "toy"]
    alone = pretrain(
        training_job("toy", load(tmp_path / "params.yaml").checkpoints.recipes["toy"]), tmp_path / "x", None
    )
    assert together == pytest.approx([row["loss"] for row in alone.rows], rel=1e-2)

    (row,) = read_rows(out, "checkpoints").to_pylist()
    assert json.loads(row["heads"]) == {"flat": 2, "factors": "head"}
    source = family_class("chronos-t5").load(out / "models" / "toy").network.shared.weight
    began = family_class("chronos-t5").load(out / "models" / "reused" / "snapshots" / "step-0").network.shared.weight
    assert torch.equal(source, began)
