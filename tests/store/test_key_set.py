from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.store import key_set
from tsfmscope.store.key_set import KeySet, as_bytes

names = st.text("abcdef0123456789", min_size=1, max_size=64)


@settings(deadline=None, max_examples=60)
@given(st.lists(names), st.lists(names), st.lists(names), st.lists(names))
def test_keys_behave_as_a_set(first: list[str], added: list[str], removed: list[str], asked: list[str]) -> None:
    twin = (set(first) | set(added)) - set(removed)
    held = KeySet(first)
    held.add(key for key in added if not held.holds([key])[0])
    held.remove(removed)
    everything = [*asked, *first, *added]
    assert held.holds(everything).tolist() == [key in twin for key in everything]
    assert len(held) == len(twin)
    assert held.sorted.tolist() == sorted(key.encode() for key in twin)


def test_added_keys_are_merged_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_set, "MAX_FRESH", 10)
    held = KeySet()
    some = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(35)]
    for key in some:
        held.add([key])
    assert held.holds(some).all()
    assert not held.holds(["0" * 64])[0]


def test_a_slice_of_a_column_gives_its_own_keys() -> None:
    column = pa.array(["aa", "bb", "cc"]).slice(1)
    assert as_bytes(column).tolist() == [b"bb", b"cc"]


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="got 65 bytes, expected at most 64"):
        KeySet(["a" * 65])
