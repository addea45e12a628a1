"""Other schedulers for bench.sweep: functions (folder, jobs) -> seconds of the jobs, seconds including the start.

Each function imports its own package, since it runs in a process that loads no other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.job import Job, Result

ACTORS, IN_FLIGHT = 2, 8
ROW = {"model": "m", "step": 1, "loss": 0.0, "learning_rate": 0.0}
Times = tuple[float, float]


def spec(n: int) -> dict[str, Any]:
    """Return a job's spec, as large as one of stage geometry."""
    cell = {
        "model": "m",
        "base_model": None,
        "size_parameter": None,
        "size_rule": None,
        "dataset": "d",
        "condition": "c512",
        "context": 512,
    }
    return {**cell, "noise": 0.0, "stack": "encoder", "layer": n % 24, "normed": False, "seed": n}


def entry(job: Job, data: Any, model: Any) -> Result:
    """Run a job of the sweep that does nothing."""
    return Result([ROW])


class Bare:
    """Actor that does nothing."""

    def run(self, spec: dict[str, Any]) -> list[dict[str, Any]]:
        """Return one constant row."""
        return [ROW]


def nothing(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one constant row, as a function without an actor."""
    return [ROW]


def _specs(count: int) -> list[dict[str, Any]]:
    return [spec(n) for n in range(count)]


def _bare(work: Callable[[Any, list[Any], list[dict[str, Any]]], None], count: int) -> Times:
    """Time the work on warm actors of a Ray that is started as the sweep starts its own."""
    import ray

    from tasks.sweep.cluster import Resources, connect

    began = time.time()
    with connect(Resources(local_cpus=ACTORS)):
        actors = [ray.remote(Bare).options(num_cpus=1).remote() for _ in range(ACTORS)]
        work(ray, actors, _specs(1000))
        specs, first = _specs(count), time.time()
        work(ray, actors, specs)
        return time.time() - first, time.time() - began


def _at_once(ray: Any, actors: list[Any], specs: list[dict[str, Any]]) -> None:
    ray.get([actors[n % ACTORS].run.remote(spec) for n, spec in enumerate(specs)])


def _in_flight(ray: Any, actors: list[Any], specs: list[dict[str, Any]]) -> None:
    waiting, remaining = {}, iter(specs)
    for actor in actors * IN_FLIGHT:
        waiting[actor.run.remote(next(remaining))] = actor
    while waiting:
        for ref in ray.wait(list(waiting))[0]:
            actor = waiting.pop(ref)
            ray.get(ref)
            if (spec := next(remaining, None)) is not None:
                waiting[actor.run.remote(spec)] = actor


def _joblib(folder: Path, count: int) -> Times:
    import joblib

    began = time.time()
    with joblib.Parallel(n_jobs=ACTORS) as parallel:
        parallel(joblib.delayed(nothing)(spec) for spec in _specs(100))
        specs, first = _specs(count), time.time()
        parallel(joblib.delayed(nothing)(spec) for spec in specs)
        return time.time() - first, time.time() - began


def _tune(folder: Path, count: int) -> Times:
    from ray import tune

    from tasks.sweep.cluster import Resources, connect, environment
    from tasks.sweep.tune import QUIET

    began = time.time()
    with environment(QUIET), connect(Resources(local_cpus=ACTORS)):
        tuner = tune.Tuner(
            _trial,
            param_space={"seed": tune.grid_search(list(range(count)))},
            tune_config=tune.TuneConfig(max_concurrent_trials=ACTORS, reuse_actors=True),
            run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
        )
        first = time.time()
        assert len(tuner.fit()) == count
        return time.time() - first, time.time() - began


def _trial(config: dict[str, Any]) -> None:
    from ray import tune

    tune.report({"loss": 0.0})


def _dvc(folder: Path, count: int) -> Times:
    def dvc(*words: str) -> None:
        environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
        command = [sys.executable, "-m", "dvc", *words, "--quiet"]
        subprocess.run(command, cwd=folder, env=environment, check=True)

    began = time.time()
    numbers = ", ".join(map(str, range(count)))
    (folder / "dvc.yaml").write_text(f"stages:\n  nothing:\n    matrix:\n      n: [{numbers}]\n    cmd: 'true'\n")
    dvc("init", "--no-scm")
    first = time.time()
    dvc("repro")
    return time.time() - first, time.time() - began


PEERS: dict[str, Callable[[Path, int], Times]] = {
    "ray, at once": lambda folder, count: _bare(_at_once, count),
    "ray, 8 in flight": lambda folder, count: _bare(_in_flight, count),
    "joblib": _joblib,
    "ray tune": _tune,
    "dvc": _dvc,
}
