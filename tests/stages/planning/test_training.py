"""Training curves: DVCLive's files, live while a training runs, the same bytes at the end however it got there."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stages.planning import training
from stages.planning.model_folders import WORK
from tasks.job import Job, Task
from tsfmscope.training.pretraining import PROGRESS

JOB = Job(Task("pretrain", 1, "tasks.pretraining:pretrain", table="training"), {"model": "nano"})
ROWS = [{"step": 10 * n, "loss": 1 / n, "learning_rate": 0.1} for n in (1, 2, 3, 4)]
CURVE = Path("plots", "metrics", "loss.tsv")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "POLL_SECONDS", 0.05)
    yield tmp_path
    assert not list(tmp_path.rglob("dvc.yaml")) and not (tmp_path / ".dvc").exists()


def log(*rows: dict, end: str = "\n") -> None:
    """What a worker appends while it trains."""
    work = WORK / JOB.key
    work.mkdir(parents=True, exist_ok=True)
    with (work / PROGRESS).open("a") as file:
        file.write("\n".join(json.dumps(row | {"steps": 40, "seconds_left": 1.0}) for row in rows) + end)


def read(folder: Path) -> list[tuple[int, float]]:
    path = folder / CURVE
    # DVCLive creates the file before it writes the first line.
    lines = (path.read_text().splitlines() if path.exists() else []) or ["step\tloss"]
    assert lines[0] == "step\tloss"
    return [(int(step), float(loss)) for step, loss in (line.split("\t") for line in lines[1:])]


def wait(found: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not found():
        assert time.monotonic() < until
        time.sleep(0.02)


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_curve_is_dvclive_s_own_file_of_step_and_loss() -> None:
    training.write_curve(Path("c"), ROWS)
    assert read(Path("c")) == [(10, 1.0), (20, 0.5), (30, 1 / 3), (40, 0.25)]
    assert list(digests(Path("c"))) == [str(CURVE)]


def test_what_stood_there_before_leaves_no_trace() -> None:
    training.write_curve(Path("once"), ROWS)
    training.write_curve(Path("twice"), [*ROWS, {"step": 50, "loss": 9.0, "learning_rate": 0.0}])
    (Path("twice") / CURVE).chmod(0o444)  # as DVC leaves what it links to its cache
    training.write_curve(Path("twice"), ROWS)
    assert digests(Path("once")) == digests(Path("twice"))


def test_a_loss_that_is_no_number_is_kept_as_it_is() -> None:
    training.write_curve(Path("c"), [ROWS[0], {"step": 20, "loss": float("nan"), "learning_rate": 0.1}])
    assert (Path("c") / CURVE).read_text().splitlines()[-1] == "20\tnan"


def test_how_far_trainings_are_is_said_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "PROGRESS_EVERY", 0.0)
    with training.follow_trainings(Path("data/checkpoints/curves"), {"nano": JOB}):
        log(*ROWS[:3])
        wait(lambda: len(read(Path("data/checkpoints/curves/nano"))) == 3)
    assert capsys.readouterr().err == "checkpoints: nano at step 30 of 40, loss 0.3333, 0:01 left\n"


def test_of_many_trainings_those_nearest_to_their_end_are_named() -> None:
    news = {f"m{n}": {"step": n, "steps": 9, "loss": 1.0, "seconds_left": 60.0 * (9 - n)} for n in range(1, 7)}
    said = training._progress_line(news)
    assert said.startswith("m6 at step 6 of 9, loss 1, 3:00 left; m5 at") and said.endswith("; 2 more")


def test_a_curve_grows_while_its_training_runs_and_steps_done_twice_stand_once() -> None:
    with training.follow_trainings(Path("live"), {"nano": JOB}):
        log(*ROWS[:2])
        wait(lambda: len(read(Path("live/nano"))) == 2)
        log({"step": 30, "loss": 0.5, "learning_rate": 0.1}, end='\n{"step": 40, "lo')  # a line half written
        wait(lambda: len(read(Path("live/nano"))) == 3)
    (WORK / JOB.key / PROGRESS).unlink()
    log(*ROWS[1:])  # the next driver, after a kill: steps 20 and 30 are done again
    with training.follow_trainings(Path("live"), {"nano": JOB}):
        wait(lambda: [step for step, _ in read(Path("live/nano"))] == [20, 30, 40])


def test_the_last_rows_are_there_when_a_training_fails() -> None:
    def fail() -> None:
        with training.follow_trainings(Path("live"), {"nano": JOB}):
            log(*ROWS)
            raise FloatingPointError("loss is nan")

    with pytest.raises(FloatingPointError):
        fail()
    assert len(read(Path("live/nano"))) == 4


def test_a_curve_that_cannot_be_written_ends_no_training(caplog: pytest.LogCaptureFixture) -> None:
    Path("live").write_text("a file where the folder should be")
    with training.follow_trainings(Path("live"), {"nano": JOB}):
        log(*ROWS)
        wait(lambda: "curve of nano" in caplog.text)


def test_without_a_training_nothing_is_written_and_nothing_waited_for() -> None:
    started = time.monotonic()
    with training.follow_trainings(Path("live"), {"nano": JOB}):
        pass
    assert time.monotonic() - started < 5
    assert not Path("live").exists()
    assert training.read_log(WORK / JOB.key) == []


def test_logged_rows_stand_once_and_in_order_whatever_a_kill_did() -> None:
    log(*ROWS[:3])
    log(ROWS[1] | {"loss": 7.0}, *ROWS[2:])
    assert [(row["step"], row["loss"]) for row in training.read_log(WORK / JOB.key)] == [
        (10, 1.0), (20, 7.0), (30, 1 / 3), (40, 0.25),
    ]  # fmt: skip
