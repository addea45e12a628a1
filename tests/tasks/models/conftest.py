from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tsfmscope.tasks.conformance.examples import EXAMPLES, ready
from tsfmscope.tasks.models.base import Family
from tsfmscope.tasks.models.chronos_2 import Chronos2
from tsfmscope.tasks.models.chronos_bolt import ChronosBolt
from tsfmscope.tasks.models.lag_llama.family import LagLlama
from tsfmscope.tasks.models.moirai.family import Moirai
from tsfmscope.tasks.models.patchtst import PatchTST
from tsfmscope.tasks.models.registry import family_class
from tsfmscope.tasks.models.t5.chronos_t5 import ChronosT5
from tsfmscope.tasks.models.t5.text import T5Text
from tsfmscope.tasks.models.tabular.family import Tabular
from tsfmscope.tasks.models.time_moe.family import TimeMoE
from tsfmscope.tasks.models.timesfm.versions import TimesFM, TimesFM25
from tsfmscope.tasks.models.totem.family import Totem
from tsfmscope.tasks.models.visionts.family import VisionTS
from tsfmscope.tasks.models.vit import ViT
from tsfmscope.tasks.models.wavetoken.family import WaveToken
from tsfmscope.tasks.series import other_modalities
from tsfmscope.tasks.series.types import Windows


def made(name: str) -> Any:
    """The small random model that a family's conformance is tried on."""
    return ready(family_class(name).new(EXAMPLES[name], seed=1))


@pytest.fixture(scope="session")
def t5() -> ChronosT5:
    return made("chronos-t5")


@pytest.fixture(scope="session")
def bolt() -> ChronosBolt:
    return made("chronos-bolt")


@pytest.fixture(scope="session")
def patchtst() -> PatchTST:
    return made("patchtst")


@pytest.fixture(scope="session")
def moirai() -> Moirai:
    return made("moirai")


@pytest.fixture(scope="session")
def lag_llama() -> LagLlama:
    return made("lag-llama")


@pytest.fixture(scope="session")
def time_moe() -> TimeMoE:
    return made("time-moe")


@pytest.fixture(scope="session")
def visionts() -> VisionTS:
    return made("visionts")


@pytest.fixture(scope="session")
def timesfm() -> TimesFM:
    return made("timesfm")


@pytest.fixture(scope="session")
def timesfm_25() -> TimesFM25:
    return made("timesfm-2.5")


@pytest.fixture(scope="session")
def chronos_2() -> Chronos2:
    return made("chronos-2")


@pytest.fixture(scope="session")
def wavetoken() -> WaveToken:
    return made("wavetoken")


@pytest.fixture(scope="session")
def totem() -> Totem:
    return made("totem")


@pytest.fixture(scope="session")
def t5_text() -> T5Text:
    return made("t5-text")


@pytest.fixture(scope="session")
def vit() -> ViT:
    return made("vit")


@pytest.fixture(scope="session")
def tabular() -> Tabular:
    return made("tabular")


FORECASTERS = [
    "t5",
    "bolt",
    "patchtst",
    "moirai",
    "lag_llama",
    "wavetoken",
    "totem",
    "timesfm",
    "timesfm_25",
    "chronos_2",
    "time_moe",
    "visionts",
]
OTHERS = ["t5_text", "vit", "tabular"]  # that read another modality, and forecast nothing


@pytest.fixture(params=FORECASTERS)
def family(request: pytest.FixtureRequest) -> Family:
    """Every family that forecasts, a small random model each: the parameter names the fixture that makes it."""
    found: Family = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=[*FORECASTERS, *OTHERS])
def any_family(request: pytest.FixtureRequest) -> Family:
    """Every family; `items` gives windows of its modality."""
    found: Family = request.getfixturevalue(request.param)
    return found


def drawn(modality: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
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
        return windows_of(*drawn(family.modality, count, seed))

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
