"""Fixed embeddings against products and sums of cosines written out, and the models that start from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chronos import BaseChronosPipeline
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import chebyshev

from tests.tsfmscope.models.families import change_config
from tsfmscope.errors import ModelError
from tsfmscope.models.chronos import ChronosT5
from tsfmscope.models.common.embeddings import LONGEST, SHORTEST, chebyshev_embedding, smooth_embedding
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows
from tsfmscope.training.initialization import start
from tsfmscope.training.options import Recipe

CENTRES = np.linspace(-15, 15, 4093)  # of Chronos
CONFIG: dict[str, Any] = {
    "d_model": 32, "d_ff": 16, "d_kv": 5, "num_heads": 3, "num_layers": 2, "num_decoder_layers": 1, "n_tokens": 64,
    "context_length": 24, "prediction_length": 6, "dropout_rate": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("rank", [1, 3, 32])
def test_the_rank_of_the_values_is_the_one_asked_for(rank: int) -> None:
    values, special = chebyshev_embedding(CENTRES, rank=rank, width=512, seed=0)
    spectrum = np.linalg.svd(values, compute_uv=False) / np.linalg.norm(values, 2)
    assert (spectrum > 1e-12).sum() == rank
    assert spectrum[rank - 1] > 0.2  # far from dependent: 0.201 at 32, where that of monomials is below 1e-10
    assert values.shape == (4093, 512) and special.shape == (2, 512)
    np.testing.assert_allclose(special @ special.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(special @ values.T, 0, atol=1e-12)  # PAD and EOS lie outside the values' subspace


@given(st.integers(1, 32), st.integers(0, 2**31), st.floats(1e-3, 1e3))
@settings(max_examples=20, deadline=None)
def test_lengths_and_angles_are_those_of_the_polynomials_alone(rank: int, seed: int, top: float) -> None:
    points = np.linspace(-top, top, 101)
    values, _ = chebyshev_embedding(points, rank=rank, width=64, seed=seed)
    rows = np.stack([chebyshev.Chebyshev.basis(j)(points / top) for j in range(1, rank + 1)], axis=1)
    np.testing.assert_allclose(values @ values.T, rows @ rows.T, atol=1e-9)  # orthonormal columns: any draw


def test_rank_1_is_a_line_through_the_origin_and_the_seed_draws_its_direction() -> None:
    values, _ = chebyshev_embedding(CENTRES, rank=1, width=16, seed=0)
    np.testing.assert_allclose(values, np.outer(CENTRES / 15, values[-1]), atol=1e-14)
    assert np.linalg.norm(values[-1]) == pytest.approx(1)
    again, other = (chebyshev_embedding(CENTRES, rank=1, width=16, seed=seed)[0] for seed in (0, 1))
    assert np.array_equal(values, again) and not np.allclose(np.abs(values), np.abs(other))


@pytest.mark.parametrize(
    ("points", "rank", "text"),
    [
        (CENTRES, 0, "got 0, expected 1..14 for width 16 and 4093 values"),
        (CENTRES, 15, "got 15, expected 1..14"),
        (np.array([-1.0, 1.0]), 3, "expected 1..2"),
        (np.zeros(3), 1, "not all zero"),
        (np.array([1.0, np.inf]), 1, "finite"),
        (np.array([1.0, np.nan]), 1, "finite"),
        (np.zeros(0), 1, "not all zero"),
    ],
)
def test_what_cannot_be_is_said(points: np.ndarray, rank: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        chebyshev_embedding(points, rank=rank, width=16, seed=0)


def steps(family: ChronosT5, made: Windows, count: int) -> list[float]:
    optimizer = torch.optim.AdamW(family.network.parameters(), lr=1e-2, weight_decay=0.1)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = family.loss(torch.from_numpy(made.context), torch.from_numpy(made.future))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_leaves_the_embedding_as_it_was_and_moves_the_head(windows: Callable[..., Windows]) -> None:
    family = ChronosT5.new(CONFIG | {"chebyshev_rank": 3}, seed=0)
    network = family.network
    embedding, head = network.shared.weight.detach().clone(), network.lm_head.weight.detach().clone()
    losses = steps(family, windows(count=8, context=24, horizon=6), 25)
    assert losses[-1] < losses[0]
    assert torch.equal(network.shared.weight, embedding)
    for stack in (network.encoder, network.decoder):
        assert stack.embed_tokens.weight.data_ptr() == network.shared.weight.data_ptr()
    assert (network.lm_head.weight - head).abs().max() > 1e-3


def test_the_embedding_is_that_of_the_bin_centres_rounded_once() -> None:
    family = ChronosT5.new(CONFIG | {"chebyshev_rank": 3}, seed=5)
    found = family.network.shared.weight.detach().numpy()
    values, special = chebyshev_embedding(np.linspace(-15, 15, 61), rank=3, width=32, seed=5)
    np.testing.assert_allclose(found[:2], special, atol=1e-7)
    np.testing.assert_allclose(found[3:], values, atol=1e-5)  # the package's centres are float32
    np.testing.assert_array_equal(found[2], found[3])
    spectrum = np.linalg.svd(found[3:].astype(np.float64), compute_uv=False)
    assert spectrum[2] / spectrum[0] > 0.3 and spectrum[3] / spectrum[0] < 1e-7  # float32 rounds: 1e-12 needs float64


def test_a_saved_one_is_frozen_again_and_is_a_chronos_pipeline(windows: Callable[..., Windows], tmp_path: Path) -> None:
    family, made = ChronosT5.new(CONFIG | {"chebyshev_rank": 3}, seed=0), windows(count=3, context=24, horizon=6)
    steps(family, made, 2)
    family.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["chebyshev_rank"] == 3 and config["architectures"] == ["T5ForConditionalGeneration"]
    loaded, package = ChronosT5.load(tmp_path), BaseChronosPipeline.from_pretrained(tmp_path)
    first, second, theirs = (m.state_dict() for m in (family.network, loaded.network, package.model.model))
    assert all(torch.equal(first[name], second[name]) and torch.equal(first[name], theirs[name]) for name in first)
    assert not loaded.network.shared.weight.requires_grad and loaded.network.lm_head.weight.requires_grad
    forecasts = [f.forecast(made, seeds=[1, 2, 3]).values for f in (family, loaded)]
    assert np.array_equal(*forecasts)
    tokens = family.tokenize(made)
    ids, mask, decoder = family._inputs(tokens, slice(None))
    with torch.no_grad():
        logits = package.model.model(input_ids=ids, attention_mask=mask, decoder_input_ids=decoder).logits
    np.testing.assert_allclose(next(family.forecast_logits(tokens)), logits, atol=1e-5)


def test_a_frozen_checkpoint_without_its_head_is_refused(tmp_path: Path) -> None:
    ChronosT5.new(CONFIG, seed=0).save(tmp_path)  # tied: no head of its own in the file
    change_config(tmp_path, chebyshev_rank=3)
    with pytest.raises(ModelError, match=r"missing \['lm_head.weight'\]"):
        ChronosT5.load(tmp_path)


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
