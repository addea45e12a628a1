"""A training that processes share: the same model as of one, whoever is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.job import EXECUTION_CONTEXT, ExecutionContext, Job
from tasks.pretraining import pretrain
from tests.tsfmscope.training import test_pretraining
from tsfmscope.models.registry import family_class
from tsfmscope.training import parallel, pretraining
from tsfmscope.training.parallel import Share

STEADY: dict[str, Any] = {  # each window has as many steps and nothing is dropped: one process has the same mean
    "mixture": {"kernelsynth": 1.0},
    "contexts": [32],
    "min_past": 128,
    "length": 256,
    "futures": [1],
}


def job(family: str, **changes: Any) -> Job:
    config = {name: 0.0 if "dropout" in name else one for name, one in test_pretraining.CONFIGS[family].items()}
    return test_pretraining.job(family, config=config, **(STEADY | changes))


@pytest.fixture
def two() -> Iterator[None]:
    """What runs here is shared by two processes."""
    token = EXECUTION_CONTEXT.set(ExecutionContext(processes=2))
    yield
    EXECUTION_CONTEXT.reset(token)


def helpers(parent: int) -> list[int]:
    """Processes that a process has started to share its training."""
    found = subprocess.run(["pgrep", "-P", str(parent), "-f", parallel.PROCESS], capture_output=True, text=True)
    return [int(one) for one in found.stdout.split()]


def close(first: Path, second: Path, family: str) -> None:
    one, other = (family_class(family).load(folder).network.state_dict() for folder in (first, second))
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, rtol=0, atol=5e-4, msg=name)  # a step of Adam is 1e-2


@pytest.mark.parametrize("family", ["chronos-bolt", pytest.param("chronos-t5", marks=pytest.mark.slow)])
def test_two_processes_train_what_one_does(family: str, tmp_path: Path, two: None) -> None:
    asked = job(family, batch_steps=240)  # five windows: the parts are of three and of two
    shared = pretrain(asked, tmp_path / "shared", None)
    EXECUTION_CONTEXT.set(ExecutionContext())
    alone = pretrain(asked, tmp_path / "alone", None)
    assert [row["step"] for row in shared.rows] == [2, 4, 6] and shared.tokens == alone.tokens
    assert [row["loss"] for row in shared.rows] == pytest.approx([row["loss"] for row in alone.rows], rel=1e-4)
    close(tmp_path / "alone", tmp_path / "shared", family)
    assert not helpers(os.getpid())


@pytest.mark.slow
def test_a_shared_training_goes_on_after_a_kill_and_in_other_company(tmp_path: Path, two: None, dies_at: Any) -> None:
    asked = job("chronos-bolt")
    with dies_at(5):
        pretrain(asked, tmp_path / "broken", None)
    assert not helpers(os.getpid())  # they ended with the first
    pretrain(asked, tmp_path / "broken", None)
    EXECUTION_CONTEXT.set(ExecutionContext())
    pretrain(asked, tmp_path / "alone", None)
    close(tmp_path / "alone", tmp_path / "broken", "chronos-bolt")


@pytest.mark.slow
def test_a_process_that_is_killed_fails_the_attempt_in_passing(
    tmp_path: Path, two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = pretraining._step

    def kills_at_3(*arguments: Any) -> Any:
        if arguments[3] == 3:
            os.kill(helpers(os.getpid())[0], signal.SIGKILL)
        return step(*arguments)

    monkeypatch.setattr(pretraining, "_step", kills_at_3)
    with pytest.raises(ConnectionError, match="process 1 of 2 of the training ended with exit status -9"):
        pretrain(job("chronos-bolt"), tmp_path, None)
    assert torch.load(tmp_path / "state.pt", weights_only=True)["rows"][-1]["step"] == 2  # what was saved is not lost


def test_a_process_that_does_not_come_up_is_named(tmp_path: Path, two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ConnectionError, match="process 1 of 2 of the training ended with exit status 1"):
        pretrain(job("chronos-bolt"), tmp_path, None)


@pytest.mark.slow
def test_the_others_end_when_the_first_is_killed(tmp_path: Path) -> None:
    spec = json.dumps(dict(job("chronos-bolt", steps=100_000, save_every=100_000).spec))
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom tasks.pretraining import pretrain\n"
        "from tasks.job import EXECUTION_CONTEXT, ExecutionContext, Job, Task\n"
        "EXECUTION_CONTEXT.set(ExecutionContext(processes=3))\n"
        f"pretrain(Job(Task('t', 1, 'a:b'), json.loads({spec!r})), Path({str(tmp_path)!r}), None)"
    )
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": os.getcwd()}) as first:
        until(lambda: (tmp_path / pretraining.PROGRESS).exists())
        others = helpers(first.pid)
        first.kill()
    assert len(others) == 2
    until(lambda: not any(Path(f"/proc/{one}").exists() for one in others))


def until(holds: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_told_by_all_at_once(tmp_path: Path, two: None) -> None:
    with pytest.raises(FloatingPointError, match="lower learning_rate"):
        pretrain(job("chronos-bolt", learning_rate=1e30, steps=20), tmp_path, None)


def test_what_cannot_be_shared_is_refused() -> None:
    totem = family_class("totem").new(test_pretraining.CONFIGS["totem"], seed=0)
    with pytest.raises(ValueError, match="processes: got 2, expected 1 for totem: a step moves unused codes"):
        Share("cpu", 0, 2).loss(totem)
    with pytest.raises(
        ValueError, match="processes: got 2, expected at most 1, the windows of a batch; raise batch_steps"
    ):
        Share("cpu", 0, 2).part(np.zeros((1, 4)))


@pytest.mark.parametrize(("windows", "of"), [(5, 2), (7, 3), (4, 4), (3, 1)])
def test_parts_hold_every_window_once_and_the_mean_of_their_means_is_that_of_the_batch(windows: int, of: int) -> None:
    past, future = np.arange(windows * 2.0).reshape(windows, 2), np.arange(windows * 3.0).reshape(windows, 3)
    parts = [Share("cpu", rank, of).part(past, future) for rank in range(of)]
    assert np.array_equal(np.sort(np.concatenate([part[0] for part in parts]), axis=0), past)
    assert np.array_equal(np.sort(np.concatenate([part[1] for part in parts]), axis=0), future)
    assert np.mean([part[0].mean() * part[2] for part in parts]) == pytest.approx(past.mean())
