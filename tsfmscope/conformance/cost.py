"""Seconds and peak memory of loading a checkpoint and of one forecast, measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tsfmscope import process_memory
from tsfmscope.conformance.subject import SEED, Subject
from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.base import Forecaster


@dataclass(frozen=True)
class Cost:
    """Seconds, and bytes of memory of the whole process.

    bytes_before: resident before loading, with every package imported. load_peak_bytes, forecast_peak_bytes: peaks
    while loading and during the first forecast; None where the system does not report them. load_seconds: the family's
    packages were imported before. forecast_seconds: the second forecast of one window, or its hidden states for
    a family that does not forecast.
    """

    context: int
    horizon: int
    threads: int
    load_seconds: float
    forecast_seconds: float
    bytes_before: int | None
    load_peak_bytes: int | None
    forecast_peak_bytes: int | None

    def json(self) -> dict[str, Any]:
        """Return the numbers as plain data."""
        return asdict(self)


def measure(family: str, folder: Path, options: Mapping[str, Any], *, context: int, horizon: int) -> Cost:
    """Measure in a new process, whose memory no other work has enlarged.

    Raises ModelError, with the last line of its output, if the process fails.
    """
    arguments = [family, str(folder), json.dumps(dict(options)), str(context), str(horizon)]
    # The folder that holds the package, also where it is no installed one.
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", __name__, *arguments], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*paths, *sys.path])},
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise ModelError(f"{folder}: loading and forecasting in a process of its own failed: {last}")
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def measure_here(family: str, folder: Path, options: Mapping[str, Any], *, context: int, horizon: int) -> Cost:
    """Measure in this process, which has loaded no other large model."""
    import torch

    _warm_up(family)
    before = process_memory.resident_bytes()
    process_memory.reset_peak()
    start = time.perf_counter()
    model = registry.load(family, folder, options=options)
    load_seconds, load_peak = time.perf_counter() - start, process_memory.peak_bytes()
    subject = Subject(family, model, None, Path(), context, horizon)
    process_memory.reset_peak()
    _forecast(subject)
    forecast_peak = process_memory.peak_bytes()
    start = time.perf_counter()
    _forecast(subject)
    seconds = time.perf_counter() - start
    return Cost(context, horizon, torch.get_num_threads(), load_seconds, seconds, before, load_peak, forecast_peak)


def _warm_up(family: str) -> None:
    """Load a small model of the family and forecast, which imports everything that these need."""
    made = registry.family_class(family)
    small = made.new_example(seed=SEED)
    with tempfile.TemporaryDirectory() as scratch:
        small.save(Path(scratch))
        _forecast(Subject(family, made.load(Path(scratch)), None, Path(scratch)))


def _forecast(subject: Subject) -> None:
    """Forecast one window, or compute its hidden states."""
    windows = subject.windows(count=1)
    if isinstance(subject.model, Forecaster):
        subject.model.forecast(windows, seeds=[0])
    else:
        # Rows are computed as they are asked for.
        for layer in subject.model.hidden_states(subject.model.tokenize(windows)):
            np.shape(layer.states)


def main(arguments: list[str]) -> None:
    """Measure what the arguments name, and print one line of JSON."""
    family, folder, options, context, horizon = arguments
    cost = measure_here(family, Path(folder), json.loads(options), context=int(context), horizon=int(horizon))
    print(json.dumps(cost.json()))


if __name__ == "__main__":
    main(sys.argv[1:])
