"""The smooth embedding: inner products against their closed form, and the model that starts from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsfmscope.models.common.embeddings import LONGEST, SHORTEST, smooth_embedding
from tsfmscope.models.registry import family_class
from tsfmscope.training.initialization import start
from tsfmscope.training.options import Recipe


@given(
    st.lists(st.floats(-15, 15), min_size=1, max_size=20),
    st.integers(1, 40),
    st.floats(1e-3, 10),
    st.integers(0, 2**31),
)
def test_inner_products_are_the_sum_of_cosines_of_the_difference(
    values: list[float], half: int, std: float, seed: int
) -> None:
    points = np.asarray(values)
    rows = smooth_embedding(points, width=2 * half, std=std, seed=seed)
    waves = np.geomspace(SHORTEST, LONGEST, half)
    expected = 2 * std**2 * np.cos(2 * np.pi * (points[:, None] - points)[..., None] / waves).sum(axis=-1)
    np.testing.assert_allclose(rows @ rows.T, expected, atol=1e-9 * std**2 * half)
    np.testing.assert_allclose(np.sqrt((rows**2).mean(axis=1)), std)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 7}, "width: got 7, expected an even number"),
        ({"std": 0.0}, "std: got 0, expected a number above 0"),
        ({"std": float("nan")}, "std: got nan, expected a number above 0"),
        ({"values": np.array([0.0, np.nan, np.inf])}, "values: got 2 that are not finite"),
    ],
)
def test_impossible_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        smooth_embedding(**{"values": np.zeros(3), "width": 8, "std": 1.0, "seed": 0} | changes)


def recipe(family: str, **changes: Any) -> Recipe:
    return Recipe(
        family=family, config=family_class(family).example, steps=1, batch_steps=1, learning_rate=0.1,
        contexts=[16], horizon=1,
        min_past=1, mixture={"priors": 1.0}, **changes,
    )  # fmt: skip


@pytest.mark.parametrize("family", ["chronos-t5", "wavetoken"])
def test_a_training_starts_from_it_and_rows_of_special_ids_and_other_weights_stay(family: str) -> None:
    plain, smooth = (start(recipe(family, seed=3, value_embedding_std=std)) for std in (None, 0.5))
    positions = smooth.id_positions()
    assert positions is not None
    is_value = ~np.isnan(positions)
    before, after = (dict(model.network.named_parameters()) for model in (plain, smooth))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"shared.weight"}
    old, new = (weights["shared.weight"].detach().numpy() for weights in (before, after))
    np.testing.assert_array_equal(old[~is_value], new[~is_value])
    expected = smooth_embedding(positions[is_value], width=new.shape[1], std=0.5, seed=3)
    np.testing.assert_allclose(new[is_value], expected, atol=1e-6)
    assert (np.diff(positions[is_value]) > 0).all()  # ids are in the order of what they stand for


@pytest.mark.parametrize("family", ["chronos-bolt", "t5-text"])
def test_a_family_whose_ids_stand_for_no_values_refuses(family: str) -> None:
    with pytest.raises(ValueError, match=f"ids of {family} stand for no values; remove the key"):
        start(recipe(family, value_embedding_std=1.0))
