"""What families of text, images and tables share: whole items only, the sweep's entries, items that break things."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tasks.embeddings import embed
from tasks.job import Job, Task
from tasks.tokens import tokenize
from tests.tsfmscope.models.families import OTHERS, names
from tsfmscope.models.base import Family
from tsfmscope.models.types import TokenKind
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series, Windows

Make = Callable[..., Windows]
VALUED = (TokenKind.OBSERVATION, TokenKind.FUTURE)
CELL = {"model": "m", "base_model": None, "size_parameter": None, "size_rule": None, "dataset": "d", "condition": "c"}
CELL |= {"noise": 0.0}
MODEL = {"family": "f", "ref": "r", "seed": 0, "format": "arrow"}
others = pytest.mark.parametrize("any_family", OTHERS, indirect=True)
of_items = pytest.mark.parametrize("any_family", names(lambda cls: cls.modality in ("image", "table")), indirect=True)


@others
def test_items_go_the_whole_way_to_states_of_every_layer(any_family: Family, items: Make) -> None:
    made = items(any_family, count=4)
    whole = np.concatenate((made.context, made.future), axis=1)
    data = series_table([Series("d", f"s{n}", values) for n, values in enumerate(whole)])
    context = made.context.shape[1]
    cell = CELL | MODEL | {"context": context}
    windows = {"horizon": made.horizon, "min_context": context, "held_out": None, "rows": 40}
    tokenized = tokenize(Job(Task("t", 1, "m:f"), cell | windows), data, any_family)
    assert tokenized.rows[0]["n_windows"] == 4
    dump = (tokenized.dump or [])[0]
    assert json.loads((dump.schema.metadata or {})[b"skipped"]) == {}
    embedded = embed(
        Job(Task("t", 1, "m:f"), cell | {"rows": 20, "batch": 3, "store_dtype": "float32"}), dump, any_family
    )
    tables = list(embedded.dump or [])
    assert len(tables) == sum(n + 2 for n in any_family.layers.values())
    assert {len(table) for table in tables} == {20}
    assert {kind for table in tables for kind in table["kind"].to_pylist()} <= {int(kind) for kind in VALUED}


@of_items
def test_part_of_an_item_stands_for_nothing_and_is_counted(any_family: Family, items: Make) -> None:
    made = items(any_family, count=3)
    whole = np.concatenate((made.context, made.future), axis=1)
    data = series_table([Series("d", f"s{n}", values) for n, values in enumerate(whole)])
    cell = CELL | MODEL | {"context": 77, "horizon": 1, "min_context": 77, "held_out": None, "rows": 40}
    dump = (tokenize(Job(Task("t", 1, "m:f"), cell), data, any_family).dump or [])[0]
    assert len(dump) == 0
    skipped = json.loads((dump.schema.metadata or {})[b"skipped"])
    assert set(skipped) == {"no token of stack encoder stands for a value"}


@of_items
def test_a_whole_item_beside_a_part_of_one_keeps_its_states(any_family: Family, items: Make) -> None:
    made = items(any_family, count=3)
    mixed = replace(made, origin=made.origin + np.array([0, 7, 0]))
    tokens, alone = any_family.tokenize(mixed), any_family.tokenize(made)
    kinds = tokens.kinds["encoder"]
    assert not np.isin(kinds[1], VALUED).any()
    np.testing.assert_array_equal(kinds[[0, 2]], alone.kinds["encoder"][[0, 2]])
    for layer, expected in zip(any_family.hidden_states(tokens), any_family.hidden_states(alone), strict=True):
        np.testing.assert_allclose(layer.states[[0, 2]], expected.states[[0, 2]], atol=1e-5)
        assert np.isfinite(layer.states).all()


HARD: dict[str, Callable[[np.ndarray], Any]] = {
    "all missing": lambda values: np.full_like(values, np.nan),
    "all zero": np.zeros_like,
    "constant": lambda values: np.full_like(values, 9),
    "huge": lambda values: values * 1e30,
    "of both signs": lambda values: -values,
    "between whole numbers": lambda values: values + 0.25,
    "gaps": lambda values: np.where(np.arange(values.shape[1]) % 3 == 1, np.nan, values),
    "the largest float": lambda values: np.full_like(values, np.finfo(np.float32).max),
}


@others
@pytest.mark.parametrize("name", HARD)
def test_hard_items_give_finite_states(any_family: Family, items: Make, name: str) -> None:
    made = items(any_family, count=2)
    context = HARD[name](made.context)
    for first in (context[:, :1], made.context[:, :1]):  # a table's first value says how it is cut
        hard = replace(made, context=np.concatenate((first, context[:, 1:]), axis=1))
        tokens = any_family.tokenize(hard)
        for layer in any_family.hidden_states(tokens):
            assert np.isfinite(layer.states).all(), (layer.stack, layer.layer)


@others
def test_a_loss_of_items_is_finite_and_of_nothing_that_is_missing(any_family: Family, items: Make) -> None:
    import torch

    made = items(any_family, count=3)
    context, future = torch.from_numpy(made.context), torch.from_numpy(made.future)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        assert torch.isfinite(any_family.loss(context, future))
