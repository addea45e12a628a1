from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.sweeping import Asked, Planned, TooManyFailures, account
from store import files
from store.out import Out
from tasks.sweep.actor import Outcome
from tasks.sweep.jobs import Job, Task
from tasks.sweep.policy import Failure
from tasks.sweep.records import Summary, record

TASK = Task("t", 1, "m:f")
asked_for = st.lists(st.tuples(st.integers(0, 20), st.lists(st.sampled_from("abc"), unique=True)), max_size=30)


@settings(deadline=None, max_examples=60)
@given(asked_for)
def test_what_was_asked_for_is_noted_as_the_jobs_pass(numbers: list[tuple[int, list[str]]]) -> None:
    planned = [Planned(Job(TASK, {"n": n}), studies) for n, studies in numbers]
    asked = Asked()
    assert list(asked.noting(iter(planned))) == planned
    assert [key.decode() for key in asked.keys.tolist()] == sorted(one.job.key for one in planned)
    pairs = [(study, key.decode()) for study, keys in asked.studies for key in keys.tolist()]
    assert pairs == sorted({(study, one.job.key) for one in planned for study in one.studies})


def test_keys_by_study_and_pairs_of_study_and_key_give_the_same_bytes(tmp_path: Path) -> None:
    planned = [Planned(Job(TASK, {"n": n % 7}), ("b", "a") if n % 3 else ("b",)) for n in range(20)]
    asked = Asked()
    list(asked.noting(planned))
    pairs = [(study, one.job.key) for one in reversed(planned) for study in one.studies]
    prints = set()
    for name, keys, studies in (("x", asked.keys, asked.studies), ("y", [one.job.key for one in planned], pairs)):
        with Out(tmp_path / name, tables=["training"], companion=tmp_path / f"{name}-c", stage="s") as out:
            out.finish(keys, studies)
        prints.add(files.fingerprint(tmp_path / name))
    assert len(prints) == 1


@pytest.mark.parametrize(
    ("error", "said"), [(MemoryError(), "MemoryError"), (ValueError("one\ntwo"), "one"), (AssertionError(), "Asser")]
)
def test_the_first_failure_is_told_of_whether_or_not_it_has_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    times = {"seconds": 0.1, "load_seconds": 0.0, "actor": "actor-0", "node": "n", "device": "cpu", "started": 0.0}
    failed = Outcome([], Failure.of(error), times | {"tokens_per_s": None})
    with Out(tmp_path / "x", tables=["training"], companion=tmp_path / "c", stage="s") as out:
        out.append([record(Job(Task("training", 1, "m:f"), {"n": 1}), failed, 1)])
        with pytest.raises(TooManyFailures, match="s: 1 of 1 jobs failed"):
            account(out, Summary(1, 0, 0, 1, 0.5, {}), max_share=0.5)
    assert f"failed: {{'{type(error).__name__}': 1}}, the first: {said}" in capsys.readouterr().out
