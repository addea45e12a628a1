"""`compare`: rows aligned in time, the same windows for both models, layers that moved, and hard series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tsfmscope as ts
from tests.tsfmscope.models.families import FORECASTERS
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.functions.compare import Comparison, _align, _average_states, _token_ages, compare
from tsfmscope.functions.load import Model
from tsfmscope.geometry.similarity import compare_layers
from tsfmscope.models.registry import family_class
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

STEPS = 48


@pytest.fixture(scope="module")
def series() -> np.ndarray:
    rng, steps = np.random.default_rng(0), np.arange(150)
    return np.sin(steps / rng.uniform(2, 9, size=(6, 1))) + 0.3 * rng.normal(size=(6, 150)) + 2


@pytest.fixture(scope="module")
def windows(series: np.ndarray) -> Windows:
    ids = [f"series-{i}" for i in range(6)]
    return Windows(series[:, :STEPS], series[:, STEPS:60], ids, np.full(6, STEPS), "data", "h", 24)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """Small models with random weights by family."""
    names = ("chronos-bolt", "chronos-t5", "patchtst", "wavetoken", "visionts", "vit")
    folders = {name: tmp_path_factory.mktemp("models") / name for name in names}
    for name, folder in folders.items():
        family_class(name).new_example(seed=0).save(folder)
    return {name: ts.load(f"{name}:{folder}") for name, folder in folders.items()}


def _between(comparison: Comparison) -> pd.DataFrame:
    return comparison.layers[comparison.layers["block"] == "between"]


def test_a_model_equals_itself(models: dict[str, Model], series: np.ndarray) -> None:
    model = models["chronos-bolt"]
    same = compare(model, model, series, context=STEPS)
    np.testing.assert_allclose(np.diagonal(same.matrix()), 1)
    for block in ("within a", "within b"):
        pd.testing.assert_frame_equal(same.matrix(block), same.matrix())
    assert same.moved is not None and not same.moved[["moved", "low", "high"]].to_numpy().any()
    assert same.layers["reason"].isna().all() and set(same.layers["n_series"]) == {6}
    assert [*same.sentences()][-1] == "First layer whose interval is above 0: none."
    assert "Each row is one token of each model." in repr(same)


def test_values_are_those_of_the_states_of_all_tokens(models: dict[str, Model], series: np.ndarray) -> None:
    """`ts.states` draws another number of windows of these series, so that values are near, not equal."""
    model = models["patchtst"]
    got = compare(model, model, series, context=STEPS, rows=10**6)
    states = ts.states(model, series, context=STEPS, rows=10**6, max_series=None)
    count = int(got.layers["n_rows"].iloc[0])
    assert got.n_windows == 128 and count % got.n_windows == 0
    layers = [of_layer for (stack, _), of_layer in states.items() if stack == "encoder"]
    expected = compare_layers(layers, np.zeros(len(layers[0]), int)).cka
    np.testing.assert_allclose(got.matrix().to_numpy(), expected, atol=0.05)


def test_only_layers_behind_a_changed_block_move(models: dict[str, Model], series: np.ndarray, tmp_path: Path) -> None:
    base = models["chronos-bolt"]
    base.family.save(tmp_path / "tuned")
    tuned = ts.load(f"chronos-bolt:{tmp_path / 'tuned'}")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in tuned.family.blocks["encoder"][-1].parameters():  # type: ignore[attr-defined]
            weight += 0.5 * torch.randn(weight.shape, generator=generator)
    got = compare(base, tuned, series, context=STEPS)
    assert got.moved is not None
    last = base.layers["encoder"]
    is_behind = got.moved["layer"] == last
    assert not got.moved.loc[~is_behind, "moved"].any() and (got.moved.loc[is_behind, "moved"] > 1e-4).all()
    assert f"above 0: layer {last}" in [*got.sentences()][-1]


# The package of these families takes seconds to import.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if "moirai" in name else []) for name in FORECASTERS]
)
def test_tokens_of_every_family_lie_at_even_distances(name: str, windows: Windows) -> None:
    family = family_class(name).new_example(seed=0)
    ages = _token_ages(family, windows)
    if not family.in_time_order:
        assert ages is None
        return
    kinds = family.tokenize(windows).kinds[family.stacks[0]]
    assert ages is not None
    of_context = ages[(kinds == TokenKind.OBSERVATION).all(axis=0)]
    assert of_context[-1] == 0 and len(set(np.diff(of_context))) <= 1
    assert (np.diff(of_context) < 0).all() and of_context[0] < STEPS


def test_states_of_single_steps_are_averaged_over_the_other_models_patches(
    models: dict[str, Model], windows: Windows
) -> None:
    bolt, t5 = models["chronos-bolt"], models["chronos-t5"]
    network: Any = bolt.family.network
    size = int(network.chronos_config.input_patch_size)
    tokens, ids, n_bins, unit = _align((bolt, t5), windows)
    assert unit == f"the mean state of {size} steps"
    # Bin 0 ends with the context: patch n - 1 - k, and the steps of that patch, are in bin k.
    patches = -(-STEPS // size)
    np.testing.assert_array_equal(ids[0][2, :patches], 2 * n_bins + np.arange(patches)[::-1])
    np.testing.assert_array_equal(ids[1][2, :STEPS], 2 * n_bins + (STEPS - 1 - np.arange(STEPS)) // size)
    kept = np.array([1, n_bins, 3 * n_bins + 1])
    got = _average_states(t5, tokens[1], ids[1], kept)
    for layer in t5.family.hidden_states(tokens[1]):
        if layer.stack == "encoder":
            expected = [layer.states[row // n_bins][ids[1][row // n_bins] == row].mean(axis=0) for row in kept]
            np.testing.assert_allclose(got["encoder", layer.layer, layer.normed], expected, atol=1e-5)


def test_bins_without_an_observed_step_are_left_out(models: dict[str, Model], series: np.ndarray) -> None:
    gaps = series.copy()
    gaps[:, 100:130] = np.nan
    bolt, t5 = models["chronos-bolt"], models["chronos-t5"]
    full, sparse = (compare(bolt, t5, data, context=STEPS) for data in (series, gaps))
    assert sparse.layers["n_rows"].iloc[0] < full.layers["n_rows"].iloc[0]
    assert np.isfinite(sparse.layers["cka"]).all()


def test_tokens_without_a_place_in_time_are_compared_by_window(models: dict[str, Model], series: np.ndarray) -> None:
    mixed = compare(models["chronos-bolt"], models["visionts"], series, context=STEPS)
    assert mixed.moved is None and (mixed.layers["n_rows"] == mixed.n_windows).all()
    assert "the mean state of a window, since the tokens of a model are not in the order of time" in mixed.notes[0]
    assert "Most similar: layer" in [*mixed.sentences()][-1]
    # Tokens of one family with the same layout are aligned without their time.
    same = compare(models["wavetoken"], models["wavetoken"], series, context=STEPS)
    assert same.notes[0] == "Each row is one token of each model"
    np.testing.assert_allclose(np.diagonal(same.matrix()), 1)


def test_both_models_read_the_context_of_the_shorter_one(models: dict[str, Model], series: np.ndarray) -> None:
    limits = [models[name].family.max_context for name in ("patchtst", "chronos-t5")]
    assert None not in limits
    got = compare(models["patchtst"], models["chronos-t5"], series, context=100)
    least = min(limits)  # type: ignore[type-var]
    assert got.title.endswith(f"context {least}")
    assert f"context 100: a model reads the last {least} steps, so both read these" in got.notes


def test_rows_and_series_are_seeded_samples(models: dict[str, Model], series: np.ndarray) -> None:
    def run(**options: Any) -> pd.DataFrame:
        return compare(models["chronos-bolt"], models["patchtst"], series, context=STEPS, **options).layers

    first = run(rows=60, seed=1)
    assert set(first["n_rows"]) == {60}
    pd.testing.assert_frame_equal(first, run(rows=60, seed=1))
    assert not first["cka"].equals(run(rows=60, seed=2)["cka"])
    assert set(run(max_series=3)["n_series"]) == {3}


def test_one_series_has_values_without_an_interval(models: dict[str, Model], series: np.ndarray) -> None:
    rows = _between(compare(models["chronos-bolt"], models["patchtst"], series[0], context=STEPS))
    assert np.isfinite(rows["cka"]).all() and rows[["cka_low", "cka_high"]].isna().all(axis=None)
    assert set(rows["reason"]) == {"one series gives no interval"}


def test_constant_states_have_no_value_and_a_reason(models: dict[str, Model]) -> None:
    """The data set `constant` has series of one value each, which scaling makes equal."""
    got = compare(models["chronos-t5"], models["chronos-t5"], "constant", context=STEPS)
    rows = _between(got)
    assert rows["cka"].isna().any()
    assert set(rows.loc[rows["cka"].isna(), "reason"]) == {"the states of a layer are constant, or too few rows differ"}
    assert repr(got)


def test_more_series_than_groups_have_an_interval(models: dict[str, Model]) -> None:
    data = np.random.default_rng(0).normal(size=(40, 80)).cumsum(axis=1)
    rows = _between(compare(models["chronos-bolt"], models["patchtst"], data, context=STEPS))
    assert set(rows["n_series"]) == {40} and (rows["cka_low"] < rows["cka_high"]).all()


def test_each_wrong_input_is_one_line(models: dict[str, Model], series: np.ndarray) -> None:
    bolt = models["chronos-bolt"]
    with pytest.raises(ArgumentError, match=r"data: series data, but model \S+ reads image; name other data"):
        compare(bolt, models["vit"], series)
    with pytest.raises(DataError, match=r"no window of 16 steps of context and a horizon of 24: .*; give longer"):
        compare(bolt, bolt, series[:, :39], context=16)
    with pytest.raises(ArgumentError, match="rows: got 0"):
        compare(bolt, bolt, series, rows=0)


def test_files_and_charts(models: dict[str, Model], series: np.ndarray, tmp_path: Path) -> None:
    got = compare(models["chronos-bolt"], models["chronos-bolt"], series, context=STEPS)
    for suffix in ("png", "svg", "pdf", "csv", "parquet"):
        assert got.save(tmp_path / "new" / f"layers.{suffix}").stat().st_size > 500
    table = pd.read_parquet(tmp_path / "new" / "layers.parquet")
    pd.testing.assert_frame_equal(table, got.layers)
    with pytest.raises(ValueError, match=r"layers\.gif: expected a name that ends in \.png"):
        got.save(tmp_path / "layers.gif")
    assert len(got.plot().to_dict()["vconcat"]) == 2
