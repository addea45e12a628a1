"""Moirai's hidden states and forecasts of windows drawn here, as jobs: the same in whatever environment they run."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import numpy as np

from tasks.job import Job, Result, Task, current_context
from tsfmscope.series.types import Windows

TASK = Task("twice", 1, "moirai_twice:entry", "tasks.loading:load_model")
CONTEXT, HORIZON, LEVELS = 128, 24, (0.1, 0.5, 0.9)


def windows(count: int, seed: int) -> Windows:
    """Sines with noise, of scales from 0.01 to 100."""
    rng, steps = np.random.default_rng(seed), np.arange(CONTEXT + HORIZON)
    waves = np.sin(steps / rng.uniform(2, 9, (count, 1))) + 0.2 * rng.normal(size=(count, len(steps)))
    values = (waves * 10.0 ** rng.uniform(-2, 2, (count, 1))).astype(np.float32)
    names = [f"s{index}" for index in range(count)]
    past, future = values[:, :CONTEXT], values[:, CONTEXT:]
    return Windows(past, future, names, np.full(count, CONTEXT), "sines", "D", 7)


def entry(job: Job, data: Any, model: Any) -> Result:
    given = windows(job.spec["windows"], job.spec["seed"])
    states = {
        f"{one.stack} {one.layer} {one.normed}": np.asarray(one.states, np.float64).ravel().tolist()
        for one in model.hidden_states(model.tokenize(given))
    }
    forecast = model.forecast(given, levels=LEVELS, samples=100, seeds=list(range(len(given))))
    scale = given.context.std(axis=1)[:, None, None]
    versions = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "uni2ts", "pyarrow")}
    row = {"states": states, "forecast": (np.asarray(forecast.values) / scale).ravel().tolist(), "versions": versions}
    return Result([row | {"environment": current_context().environment}])


def do_nothing(_: Any) -> None:
    """What is read, and what is checked: the loader itself holds the model's fingerprint to what was planned."""
