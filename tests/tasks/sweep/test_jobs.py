from __future__ import annotations

import hashlib
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.job import EXECUTION_CONTEXT, ExecutionContext, Job, Task, current_context

TASK = Task("geometry", 3, "m:f", "m:l")
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_the_key_is_the_hash_of_canonical_json() -> None:
    job = Job(TASK, {"layer": 2, "a": None}, {"tokens": "ff"}, group="x")
    text = '{"inputs":{"tokens":"ff"},"spec":{"a":null,"layer":2},"task":"geometry","version":3}'
    assert job.key == hashlib.sha256(text.encode()).hexdigest()
    assert job.seed == int(job.key[:16], 16) >> 1 and 0 <= job.seed < 2**63


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (Job(TASK, {"b": 1, "a": 2}, {"x": "1"}, group="elsewhere"), True),
        (Job(Task("geometry", 3, "m2:f2", None), {"a": 2, "b": 1}, {"x": "1"}), True),
        (Job(Task("geometry", 4, "m:f"), {"a": 2, "b": 1}, {"x": "1"}), False),
        (Job(Task("spectra", 3, "m:f"), {"a": 2, "b": 1}, {"x": "1"}), False),
        (Job(TASK, {"a": 2, "b": 1}, {"x": "2"}), False),
        (Job(TASK, {"a": 2, "b": 1.5}, {"x": "1"}), False),
        (Job(TASK, {"a": 2, "b": "1"}, {"x": "1"}), False),
    ],
)
def test_the_key_changes_with_what_the_result_depends_on_only(other: Job, same: bool) -> None:
    assert (other.key == Job(TASK, {"a": 2, "b": 1}, {"x": "1"}).key) == same


@given(st.dictionaries(st.text(), PLAIN, max_size=5))
@settings(deadline=None, max_examples=60)
def test_the_key_is_the_hash_of_the_whole_as_json_writes_it(spec: dict[str, object]) -> None:
    job = Job(Task('a "task"', 7, "m:f"), spec, {"é": "\n"}, group="x")
    whole = {"task": 'a "task"', "version": 7, "spec": spec, "inputs": {"é": "\n"}}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False)
    again = pickle.loads(pickle.dumps(job))
    assert job.key == hashlib.sha256(text.encode()).hexdigest() == again.key
    assert (again, again.spec_json) == (job, job.spec_json)


@given(st.dictionaries(st.text(), PLAIN, max_size=5))
@settings(deadline=None, max_examples=60)
def test_a_spec_survives_its_json_and_keeps_its_key(spec: dict[str, object]) -> None:
    job = Job(TASK, spec)
    assert Job(TASK, json.loads(job.spec_json)).key == job.key


def test_a_spec_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        Job(TASK, {"x": float("nan")}).key  # noqa: B018
    with pytest.raises(TypeError, match="not JSON serializable"):
        Job(TASK, {"x": object()}).key  # noqa: B018


def test_a_place_halves_batches_down_to_one_and_is_the_cpu_outside_a_sweep() -> None:
    assert current_context() == ExecutionContext("cpu", 1)
    token = EXECUTION_CONTEXT.set(ExecutionContext("cuda:0", 4))
    assert (current_context().device, current_context().batch(10), current_context().batch(2)) == ("cuda:0", 2, 1)
    EXECUTION_CONTEXT.reset(token)
