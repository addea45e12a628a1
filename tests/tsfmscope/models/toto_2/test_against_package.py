"""Toto 2.0: states, forecasts and folders against the package toto-2, which runs in an interpreter of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tsfmscope.models.families import hard_windows, shake
from tests.tsfmscope.models.toto_2.parity import INTERPRETER, check_groups, check_parity, run_package, write_case
from tsfmscope.models.toto_2 import Toto2
from tsfmscope.series.types import Windows

pytestmark = pytest.mark.skipif(
    INTERPRETER not in os.environ, reason=f"{INTERPRETER} names no Python with toto-2; see docs/install.md"
)

Make = Callable[..., Windows]
CONFIG = {"patch_size": 8, "d_model": 32, "num_heads": 4, "num_layers": 4, "layer_group_size": 2}
CONFIG |= {"num_variate_layers_per_group": 1, "variate_layer_first": False, "residual_attn_ratio": 3.0}
# The switches of Datadog/Toto-2.0-4m.
RELEASED = {"attn_bias": True, "qk_norm": False, "per_dim_scale": True, "use_xpos": True, "residual_mult": 0.75}
RELEASED |= {"layer_group_size": 4, "norm_eps": 1e-4}
SHAPES: list[dict[str, Any]] = [
    {},
    RELEASED,
    {"norm_include_weight": True, "mlp_bias": True, "attn_bias": True, "variate_layer_first": True},
    {"qk_norm_include_weight": True, "per_dim_scale": True, "num_groups": 2, "qk_dim": 12, "v_dim": 6},
    {"use_xpos": True, "d_ff": 40, "num_layers": 3, "layer_group_size": 3, "num_variate_layers_per_group": 2},
]
LENGTHS = [(64, 5), (61, 20), (7, 30), (200, 64)]
# Rows of three series; the last of a row may be a group by itself.
SERIES = [[0, 0, 0], [0, 0, 1], [4, 2, 4]]


def random_model(config: dict[str, Any]) -> Toto2:
    return shake(Toto2.new(CONFIG | config, seed=2))


@pytest.fixture(scope="module")
def cases(windows: Make, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, Any], Any]:
    """Return folder, model and windows of every shape with every length, and of groups; the package has run."""
    root, made = tmp_path_factory.mktemp("toto"), {}
    for number, config in enumerate(SHAPES):
        for lengths in [*LENGTHS, "groups"]:
            model, folder = random_model(config), root / f"{number}-{lengths}"
            context, horizon = (64, 20) if lengths == "groups" else lengths
            drawn = windows(count=9, context=context, horizon=horizon)
            drawn = drawn if context < 30 else hard_windows(drawn)
            write_case(folder, model, drawn, SERIES if lengths == "groups" else None)
            made[number, lengths] = (folder, model, drawn)
    run_package([folder for folder, _, _ in made.values()])
    return made


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_states_of_every_layer_and_forecasts_are_those_of_the_package(
    cases: dict[Any, Any], number: int, lengths: tuple[int, int]
) -> None:
    folder, model, made = cases[number, lengths]
    check_parity(model, made, np.load(folder / "outputs.npz"))


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_series_of_a_group_read_each_other_as_in_the_package(cases: dict[Any, Any], number: int) -> None:
    folder, model, made = cases[number, "groups"]
    answer = np.load(folder / "outputs.npz")
    check_groups(model, made, SERIES, answer)
    alone = [[3 * row + column for column in range(3)] for row in range(3)]
    with pytest.raises(AssertionError):
        check_groups(model, made, alone, answer)


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_folders_pass_to_the_package_and_back(cases: dict[Any, Any], number: int) -> None:
    folder, model, made = cases[number, LENGTHS[0]]
    loaded = Toto2.load(folder / "saved")
    assert loaded.config == model.config
    ours, theirs = (one.forecast(made, seeds=[0] * len(made)).values for one in (model, loaded))
    np.testing.assert_allclose(theirs, ours, rtol=1e-6, atol=1e-6 * np.abs(ours).max())
