from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tasks.models.base import Family
from tasks.models.chronos_2 import Chronos2
from tasks.models.chronos_bolt import ChronosBolt
from tasks.models.chronos_t5 import ChronosT5
from tasks.models.lag_llama import LagLlama
from tasks.models.moirai import Moirai
from tasks.models.patchtst import PatchTST
from tasks.models.t5_text import T5Text
from tasks.models.tabular import Tabular
from tasks.models.time_moe import TimeMoE
from tasks.models.timesfm import TimesFM, TimesFM25
from tasks.models.totem import Totem
from tasks.models.visionts import VisionTS
from tasks.models.vit import ViT
from tasks.models.wavetoken import WaveToken
from tasks.series import contrast
from tasks.series.types import Windows

SHAPE = {"d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 3, "num_decoder_layers": 2}
T5 = {**SHAPE, "n_tokens": 128, "context_length": 48, "prediction_length": 12, "initializer_factor": 1.0}
BOLT = {**SHAPE, "input_patch_size": 8, "input_patch_stride": 8, "context_length": 48, "prediction_length": 12}
PATCHTST = {"d_model": 16, "ffn_dim": 24, "num_attention_heads": 2, "num_hidden_layers": 3, "init_std": 0.2}
PATCHTST |= {"patch_length": 8, "patch_stride": 4, "context_length": 48, "prediction_length": 12}

MOIRAI = {"d_model": 128, "num_layers": 3, "patch_sizes": [8, 16], "patch_size": 8}

TOTEM = {"d_model": 16, "ffn_dim": 24, "num_attention_heads": 2, "num_hidden_layers": 3, "num_codes": 32}
TOTEM |= {"code_width": 8, "conv_width": 8, "residual_width": 4, "context_length": 48, "prediction_length": 12}

LAG_LLAMA = {"context_length": 48, "n_layer": 3, "n_head": 2, "n_embd_per_head": 8, "lags": (0, 1, 2, 7, 24)}

VIT = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}
VIT |= {"image_size": 8, "patch_size": 2, "initializer_range": 0.2}
TABULAR = {"dim": 16, "n_layers": 2, "n_heads": 2}


def placed(family: Totem) -> Totem:
    """With codes on what its own convolutions make of noise: all steps have the same of the small first ones."""
    vqvae = family.network.vqvae
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        given = vqvae.quantise(torch.randn(8, family.max_context)).given
        vqvae.place(given.detach().flatten(0, 1))
    return family


TIMESFM = {"hidden_size": 16, "intermediate_size": 24, "head_dim": 6, "num_attention_heads": 2, "num_hidden_layers": 3}
TIMESFM |= {"patch_length": 8, "context_length": 48, "horizon_length": 12, "initializer_range": 0.2}
CHRONOS_2 = {key: value for key, value in SHAPE.items() if key != "num_decoder_layers"} | {"context_length": 48}
CHRONOS_2 |= {"input_patch_size": 8, "max_output_patches": 2, "initializer_factor": 0.5}
TIME_MOE = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}
TIME_MOE |= {"num_experts": 4, "horizon_lengths": [1, 8], "max_position_embeddings": 48, "initializer_range": 0.2}

VISIONTS = {"image_size": 80, "patch_size": 4, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3}
VISIONTS |= {"num_attention_heads": 2, "decoder_hidden_size": 8, "decoder_intermediate_size": 12}
VISIONTS |= {"decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2, "periodicity": 7}
VISIONTS |= {"initializer_range": 0.2}


@pytest.fixture(scope="session")
def t5() -> ChronosT5:
    return ChronosT5.new(T5, seed=1)


@pytest.fixture(scope="session")
def bolt() -> ChronosBolt:
    return ChronosBolt.new(BOLT | {"initializer_factor": 1.0}, seed=1)


@pytest.fixture(scope="session")
def patchtst() -> PatchTST:
    return PatchTST.new(PATCHTST, seed=1)


@pytest.fixture(scope="session")
def moirai() -> Moirai:
    return Moirai.new(MOIRAI, seed=1)


@pytest.fixture(scope="session")
def lag_llama() -> LagLlama:
    return LagLlama.new(LAG_LLAMA, seed=1)


@pytest.fixture(scope="session")
def time_moe() -> TimeMoE:
    return TimeMoE.new(TIME_MOE, seed=1)


@pytest.fixture(scope="session")
def visionts() -> VisionTS:
    return VisionTS.new(VISIONTS, seed=1)


@pytest.fixture(scope="session")
def timesfm() -> TimesFM:
    return TimesFM.new(TIMESFM, seed=1)


@pytest.fixture(scope="session")
def timesfm_25() -> TimesFM25:
    family = TimesFM25.new(TIMESFM | {"output_quantile_len": 12}, seed=1)
    with torch.no_grad():  # a new one's are 0, as are all its states of a constant series then
        family.network.model.input_ff_layer.output_layer.bias.fill_(0.1)
    return family


@pytest.fixture(scope="session")
def chronos_2() -> Chronos2:
    return Chronos2.new(CHRONOS_2, seed=1)


@pytest.fixture(scope="session")
def wavetoken() -> WaveToken:
    return WaveToken.new(T5, seed=1)


@pytest.fixture(scope="session")
def totem() -> Totem:
    return placed(Totem.new(TOTEM, seed=1))


@pytest.fixture(scope="session")
def t5_text() -> T5Text:
    return T5Text.new(SHAPE, seed=1)


@pytest.fixture(scope="session")
def vit() -> ViT:
    return ViT.new(VIT, seed=1)


@pytest.fixture(scope="session")
def tabular() -> Tabular:
    return Tabular.new(TABULAR, seed=1)


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
        values, horizon = np.stack([contrast.item(rng.integers(0, 256, (8, 8, 3))) for _ in range(count)]), 1
    else:
        values, horizon = np.stack([contrast.item(contrast.draw_table(rng, 12, 8)) for _ in range(count)]), 1
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
