from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.planning.sweeping import (
    RETRY_VARIABLE,
    JobLog,
    PlannedJob,
    TooManyFailures,
    account,
    read_nothing,
    run,
    run_and_finish,
)
from store import files
from store.stage_store import StageStore
from store.status import read_statuses, state
from tasks.job import Job, StoreCallbacks, Task
from tasks.sweep import engine
from tasks.sweep.actor import Outcome
from tasks.sweep.cluster import Resources
from tasks.sweep.policy import Failure
from tasks.sweep.progress import Progress
from tasks.sweep.records import Summary, record

TASK = Task("t", 1, "m:f")
asked_for = st.lists(st.tuples(st.integers(0, 20), st.lists(st.sampled_from("abc"), unique=True)), max_size=30)


@settings(deadline=None, max_examples=60)
@given(asked_for)
def test_a_log_records_the_keys_and_studies_of_the_jobs_that_pass(numbers: list[tuple[int, list[str]]]) -> None:
    planned = [PlannedJob(Job(TASK, {"n": n}), studies) for n, studies in numbers]
    log = JobLog()
    assert list(log.record(iter(planned))) == planned
    assert log.keys == [one.job.key for one in planned]
    pairs = {(study, key) for study, keys in log.studies.items() for key in keys}
    assert pairs == {(study, one.job.key) for one in planned for study in one.studies}


def test_the_order_in_which_jobs_are_planned_does_not_change_the_stored_studies(tmp_path: Path) -> None:
    planned = [PlannedJob(Job(TASK, {"n": n % 7}), ("b", "a") if n % 3 else ("b",)) for n in range(20)]
    prints = set()
    for name, jobs in (("x", planned), ("y", planned[::-1])):
        log = JobLog()
        list(log.record(jobs))
        with StageStore(tmp_path / name, tables=["training"], companion=tmp_path / f"{name}-c", stage="s") as out:
            out.finish(log.keys, log.studies)
        prints.add(files.fingerprint(tmp_path / name))
    assert len(prints) == 1


def opened(folder: Path) -> StageStore:
    return StageStore(folder / "x", tables=["training"], companion=folder / "c", stage="s", status=folder / "status")


def failing(n: int, error: Exception) -> Mapping[str, Any]:
    """The record of a job that failed."""
    times = {"seconds": 0.1, "load_seconds": 0.0, "actor": "actor-0", "node": "n", "device": "cpu", "started": 0.0}
    failed = Outcome([], Failure.of(error), times | {"tokens_per_s": None})
    return record(Job(TASK, {"n": n}), failed, 1)


def test_the_status_of_a_run_that_was_stopped_is_its_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(jobs: object, port: object, where: object, *, report: Callable[[Progress], None]) -> None:
        for done in (0, 1, 2):
            report(Progress(27, 0, done, 0, 0, 0.0, None))
        raise SystemExit(143)

    monkeypatch.setattr(engine, "run", stopped)
    with opened(tmp_path) as out, pytest.raises(SystemExit):
        run(out, [], Resources(), read_nothing)
    ((one, alive),) = read_statuses(tmp_path / "status")
    assert (one.done, one.remaining, state(one, alive=alive)) == (2, 25, "interrupted")


@pytest.mark.parametrize(("retried", "passed_over"), [(False, 3), (True, 0)])
def test_stored_failures_that_are_passed_over_are_told_of_in_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retried: bool, passed_over: int
) -> None:
    def asking(jobs: Iterable[Job], port: StoreCallbacks, where: object, *, report: Callable[[Progress], None]) -> None:
        keys = [job.key for job in jobs]
        reused = len(keys) - len(port.missing(keys))
        report(Progress(len(keys), reused, 0, 0, 0, 0.0, None))

    if retried:
        monkeypatch.setenv(RETRY_VARIABLE, "1")
    monkeypatch.setattr(engine, "run", asking)
    with opened(tmp_path) as out:
        out.append([failing(n, ValueError("no")) for n in range(3)] + [failing(3, TimeoutError("late"))])
    with opened(tmp_path) as out:
        run(out, [PlannedJob(Job(TASK, {"n": n})) for n in range(5)], Resources(), read_nothing)
    ((one, _),) = read_statuses(tmp_path / "status")
    assert (one.planned, one.reused, one.passed_over, one.remaining) == (5, passed_over, passed_over, 5 - passed_over)


def test_what_an_earlier_sweep_of_the_stage_did_is_done_and_failures_are_not_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def done(n: int) -> dict[str, Any]:
        row = {"model": "m", "step": n, "loss": 1.0, "learning_rate": 0.1}
        return {**failing(n, ValueError()), "table": "training", "rows": [row], "error": None}

    def asking(jobs: Iterable[Job], port: StoreCallbacks, where: object, **_: object) -> Summary:
        keys = [job.key for job in jobs]
        return Summary(len(keys), len(keys) - len(port.missing(keys)), 0, 0, 0.5, {})

    monkeypatch.setattr(engine, "run", asking)
    planned = [PlannedJob(Job(TASK, {"n": n})) for n in range(4)]
    with opened(tmp_path) as out:
        out.append([done(0)])
    with opened(tmp_path) as out:
        out.append([done(1), done(2), failing(3, ValueError("no"))])
        account(out, run_and_finish(out, planned, Resources(), read_nothing), max_share=0.5)
    assert capsys.readouterr().out.splitlines() == [
        "s: 4 jobs, 2 done, 1 from before, 1 failed, 0.5 s",
        "s: failed: 1 ValueError: no",
    ]


@pytest.mark.parametrize(
    ("error", "said"), [(MemoryError(), "MemoryError"), (ValueError("one\ntwo"), "ValueError: one")]
)
def test_a_failure_is_told_of_in_a_line_whether_or_not_it_has_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    with opened(tmp_path) as out:
        out.append([failing(1, error)])
        with pytest.raises(TooManyFailures, match="s: 1 of 1 jobs failed"):
            account(out, Summary(1, 0, 0, 1, 0.5, {}), max_share=0.5)
    assert capsys.readouterr().out.splitlines()[1:] == [f"s: failed: 1 {said}"]


def test_a_stage_that_failed_tells_of_each_kind_and_how_to_read_all_and_what_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = [KeyError, TypeError, OSError, IndexError, AttributeError, NameError]
    errors = [TimeoutError("late"), TimeoutError("later"), *(kind("x") for kind in kinds)]
    with opened(tmp_path) as out:
        out.append([failing(n, error) for n, error in enumerate(errors)])
        with pytest.raises(TooManyFailures) as caught:
            account(out, Summary(9, 0, 1, 8, 0.5, {}), max_share=0.5)
    told = capsys.readouterr().out.splitlines()[1:]
    assert told[0] == "s: failed: 2 TimeoutError: late" and told[1] == "s: failed: 1 KeyError: 'x'"
    assert told[5:] == ["s: failed: 2 of other kinds"]
    assert f"`tsfmscope failures --data {tmp_path}` lists the failures" in str(caught.value)
    assert "`dvc repro` then runs again the 2 jobs that failed because of the machine" in str(caught.value)
