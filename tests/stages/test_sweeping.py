from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from stages.sweeping import Asked, Planned
from store import files
from store.out import Out
from tasks.sweep.jobs import Job, Task

TASK = Task("t", 1, "m:f")
asked_for = st.lists(st.tuples(st.integers(0, 20), st.lists(st.sampled_from("abc"), unique=True)), max_size=30)


@settings(deadline=None, max_examples=60)
@given(asked_for)
def test_what_was_asked_for_is_noted_as_the_jobs_pass(numbers: list[tuple[int, list[str]]]) -> None:
    planned = [Planned(Job(TASK, {"n": n}), studies) for n, studies in numbers]
    asked = Asked()
    assert list(asked.noting(iter(planned))) == planned
    assert [key.decode() for key in asked.keys.tolist()] == sorted(one.job.key for one in planned)
    pairs = sorted((study, key.decode()) for study, keys in asked.studies for key in keys.tolist())
    assert pairs == sorted((study, one.job.key) for one in planned for study in one.studies)


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
