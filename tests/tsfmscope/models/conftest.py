from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tsfmscope.models.families import CLASSES, FORECASTERS, example_model
from tsfmscope.models.base import Family
from tsfmscope.series import other_modalities
from tsfmscope.series.types import Windows

# Families that tests name in short.
SHORT = {"chronos-t5": "t5", "chronos-bolt": "bolt"}


def _fixture(name: str) -> Any:
    """The small random model of one family."""

    @pytest.fixture(scope="session", name=SHORT.get(name, name.replace("-", "_").replace(".", "")))
    def model() -> Any:
        return example_model(name)

    return model


# One fixture per family: t5, bolt, patchtst, timesfm_25 and so on.
globals().update({f"model_of_{name}": _fixture(name) for name in CLASSES})


@pytest.fixture(params=FORECASTERS)
def family(request: pytest.FixtureRequest) -> Family:
    """The small random model of every family that forecasts."""
    model: Family = example_model(request.param)
    return model


@pytest.fixture(params=CLASSES)
def any_family(request: pytest.FixtureRequest) -> Family:
    """The small random model of every family; `items` gives windows of its modality."""
    model: Family = example_model(request.param)
    return model


def draw_items(modality: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Context and future of windows of a modality other than series: text, 8 x 8 images or tables of 12 rows."""
    rng = np.random.default_rng(seed)
    if modality == "text":
        values, horizon = rng.integers(32, 127, (count, 60)), 12
    elif modality == "image":
        values, horizon = np.stack([other_modalities.item(rng.integers(0, 256, (8, 8, 3))) for _ in range(count)]), 1
    else:
        values, horizon = (
            np.stack([other_modalities.item(other_modalities.draw_table(rng, 12, 8)) for _ in range(count)]),
            1,
        )
    return values[:, :-horizon], values[:, -horizon:]


@pytest.fixture(scope="session")
def items(
    windows: Callable[..., Windows], windows_of: Callable[[np.ndarray, np.ndarray], Windows]
) -> Callable[..., Windows]:
    """Windows that a family reads: items(family, count, seed); of forecasters random walks."""

    def make(family: type[Family] | Family, count: int = 5, seed: int = 0) -> Windows:
        if family.modality == "series":
            return windows(count=count, seed=seed)
        return windows_of(*draw_items(family.modality, count, seed))

    return make


@pytest.fixture(scope="session")
def windows_of() -> Callable[[np.ndarray, np.ndarray], Windows]:
    """Windows of a context [W, C] and a future [W, H]."""

    def make(context: np.ndarray, future: np.ndarray) -> Windows:
        names = [f"s{i}" for i in range(len(context))]
        origin = np.full(len(context), context.shape[1], dtype=np.int64)
        return Windows(context.astype(np.float32), future.astype(np.float32), names, origin, "walks", "D", 7)

    return make


@pytest.fixture(scope="session")
def windows(windows_of: Callable[[np.ndarray, np.ndarray], Windows]) -> Callable[..., Windows]:
    """Random walks: windows(count, context, horizon, seed)."""

    def make(count: int = 5, context: int = 48, horizon: int = 12, seed: int = 0) -> Windows:
        walks = np.random.default_rng(seed).normal(size=(count, context + horizon)).cumsum(axis=1)
        return windows_of(walks[:, :context], walks[:, context:])

    return make
