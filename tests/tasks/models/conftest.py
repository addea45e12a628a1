from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tasks.models.base import Family
from tasks.models.chronos_bolt import ChronosBolt
from tasks.models.chronos_t5 import ChronosT5
from tasks.models.lag_llama import LagLlama
from tasks.models.moirai import Moirai
from tasks.models.patchtst import PatchTST
from tasks.models.time_moe import TimeMoE
from tasks.models.visionts import VisionTS
from tasks.series.types import Windows

SHAPE = {"d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 3, "num_decoder_layers": 2}
T5 = {**SHAPE, "n_tokens": 128, "context_length": 48, "prediction_length": 12, "initializer_factor": 1.0}
BOLT = {**SHAPE, "input_patch_size": 8, "input_patch_stride": 8, "context_length": 48, "prediction_length": 12}
PATCHTST = {"d_model": 16, "ffn_dim": 24, "num_attention_heads": 2, "num_hidden_layers": 3, "init_std": 0.2}
PATCHTST |= {"patch_length": 8, "patch_stride": 4, "context_length": 48, "prediction_length": 12}

MOIRAI = {"d_model": 128, "num_layers": 3, "patch_sizes": [8, 16], "patch_size": 8}

LAG_LLAMA = {"context_length": 48, "n_layer": 3, "n_head": 2, "n_embd_per_head": 8, "lags": (0, 1, 2, 7, 24)}

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


@pytest.fixture(params=["t5", "bolt", "patchtst", "moirai", "lag_llama", "time_moe", "visionts"])
def family(request: pytest.FixtureRequest) -> Family:
    """Every family, a small random model each: the name of the fixture that makes it is the parameter."""
    found: Family = request.getfixturevalue(request.param)
    return found


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
