"""What every family must keep, on small random checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.errors import ModelError
from tasks.models.base import Family, Forecaster
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
from tasks.models.types import LayerStates, TokenKind, Tokens, tokens_from_table, tokens_to_table
from tasks.models.visionts import VisionTS
from tasks.models.vit import ViT
from tasks.models.wavetoken import WaveToken
from tasks.series.types import Windows

Make = Callable[..., Windows]
VALUED = (TokenKind.OBSERVATION, TokenKind.FUTURE)
TINY_T5 = {"d_model": 8, "d_ff": 8, "d_kv": 4, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
PATCHES = {"image_size": 8, "patch_size": 4}
LENGTHS = {"context_length": 16, "prediction_length": 4}
TINY_TIMESFM = {"hidden_size": 8, "intermediate_size": 8, "head_dim": 4, "num_attention_heads": 2}
TINY_TIMESFM |= {"num_hidden_layers": 1, "patch_length": 8, "context_length": 16, "horizon_length": 4}
TINY_CHRONOS_2 = {key: value for key, value in TINY_T5.items() if key != "num_decoder_layers"}
TINY_CHRONOS_2 |= {"context_length": 16, "input_patch_size": 8}
TINY: list[tuple[type[Family], dict[str, int | float]]] = [  # configs for `new`, without dropout
    (ChronosT5, TINY_T5 | LENGTHS | {"n_tokens": 32, "dropout_rate": 0.0}),
    (ChronosBolt, TINY_T5 | LENGTHS | {"input_patch_size": 8, "input_patch_stride": 8, "dropout_rate": 0.0}),
    (
        PatchTST,
        {"d_model": 8, "ffn_dim": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "patch_length": 8} | LENGTHS,
    ),
    (LagLlama, {"n_layer": 1, "n_head": 2, "n_embd_per_head": 4, "context_length": 8}),
    (Moirai, {"d_model": 64, "num_layers": 1, "patch_sizes": [8]}),
    (WaveToken, TINY_T5 | LENGTHS | {"n_tokens": 32, "dropout_rate": 0.0}),
    (Totem, {"d_model": 8, "ffn_dim": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "conv_width": 8} | LENGTHS),
    (T5Text, TINY_T5 | {"dropout_rate": 0.0}),
    (ViT, {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2} | PATCHES),
    (Tabular, {"dim": 8, "n_layers": 1, "n_heads": 2}),
    (TimesFM, TINY_TIMESFM),
    (TimesFM25, TINY_TIMESFM | {"output_quantile_len": 4}),
    (Chronos2, TINY_CHRONOS_2 | {"dropout_rate": 0.0}),
    (TimeMoE, {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}),
    (
        VisionTS,
        {
            **{"image_size": 16, "patch_size": 4, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1},
            **{"num_attention_heads": 2, "decoder_hidden_size": 8, "decoder_intermediate_size": 8},
            **{"decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2},
        },
    ),
]
every_family_class = pytest.mark.parametrize(("cls", "config"), TINY, ids=[cls.name for cls, _ in TINY])


def states_of(family: Family, tokens: Tokens) -> dict[tuple[str, int, bool], np.ndarray]:
    return {(s.stack, s.layer, s.normed): s.states for s in family.hidden_states(tokens)}


def close(a: np.ndarray, b: np.ndarray, tolerance: float = 1e-5) -> bool:
    return bool(np.max(np.abs(a - b)) <= tolerance * max(1.0, float(np.max(np.abs(b)))))


def test_every_layer_of_every_stack_comes_once_and_in_order(any_family: Family, items: Make) -> None:
    tokens = any_family.tokenize(items(any_family))
    got = [(s.stack, s.layer, s.normed) for s in any_family.hidden_states(tokens)]
    want = []
    for stack in any_family.stacks:
        blocks = any_family.layers[stack]
        want += [(stack, layer, False) for layer in range(blocks + 1)] + [(stack, blocks, True)] * any_family.final_norm
    assert got == want


def test_states_do_not_depend_on_the_batch(any_family: Family, items: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = any_family.tokenize(items(any_family, count=5))
    whole = states_of(any_family, tokens)
    monkeypatch.setattr(any_family, "batch", 2)
    for key, states in states_of(any_family, tokens).items():
        assert close(states, whole[key]), key


def test_the_same_tokens_give_the_same_bits(any_family: Family, items: Make) -> None:
    tokens = any_family.tokenize(items(any_family))
    first, second = states_of(any_family, tokens), states_of(any_family, tokens)
    assert all(np.array_equal(first[key], second[key]) for key in first)


def test_tokens_that_went_through_a_table_give_the_same_bits(any_family: Family, items: Make) -> None:
    tokens = any_family.tokenize(items(any_family))
    back = tokens_from_table(tokens_to_table(tokens))
    first, second = states_of(any_family, tokens), states_of(any_family, back)
    assert all(np.array_equal(first[key], second[key]) for key in first)


def test_changing_one_input_changes_that_window_alone(any_family: Family, items: Make) -> None:
    tokens = any_family.tokenize(items(any_family, count=4))
    name = next(
        name for name in ("ids", "codes", "inputs", "values", "pixels", "features", "patches") if name in tokens.arrays
    )
    changed = np.array(tokens.arrays[name])
    changed[2].reshape(-1)[5] += 3
    before, after = states_of(any_family, tokens), states_of(any_family, replace_arrays(tokens, name, changed))
    for key, states in before.items():
        same = [bool(np.array_equal(a, b)) for a, b in zip(states, after[key], strict=True)]
        # a decoder's own embedding reads no context
        untouched = key[:2] == ("decoder", 0) and "encoder" in any_family.stacks
        assert same == [True, True, untouched, True], key


def replace_arrays(tokens: Tokens, name: str, values: np.ndarray) -> Tokens:
    return replace(tokens, arrays={**tokens.arrays, name: values})


def test_padding_on_the_left_changes_no_real_row(
    family: Family, windows: Make, windows_of: Callable[..., Windows]
) -> None:
    plain = windows(context=24)
    padded = windows_of(np.pad(plain.context, ((0, 0), (24, 0)), constant_values=np.nan), plain.future)
    tokens, longer = family.tokenize(plain), family.tokenize(padded)
    before, after = states_of(family, tokens), states_of(family, longer)
    for key, states in before.items():
        rows = states.shape[1]
        assert close(after[key][:, -rows:], states), key
    padding = longer.kinds[family.stacks[0]] == TokenKind.PADDING
    assert padding.any(axis=1).all()
    assert padding[:, : -tokens.kinds[family.stacks[0]].shape[1]].all()  # none where a family pads every context itself


@pytest.mark.parametrize("context", [5, 24, 48, 60])
def test_a_full_window_has_as_many_valued_rows_as_promised(family: Family, windows: Make, context: int) -> None:
    made = windows(context=context)
    tokens = family.tokenize(made)
    for stack, rows in family.rows_per_window(context, made.horizon).items():
        assert (np.isin(tokens.kinds[stack], VALUED).sum(axis=1) == rows).all(), stack


HARD = {
    "constant": np.full(48, 3.0),
    "zero": np.zeros(48),
    "all missing": np.full(48, np.nan),
    "huge": np.random.default_rng(0).normal(size=48) * 1e30,
    "near the largest float": np.linspace(1, 3e38, 48),
    "tiny": np.random.default_rng(0).normal(size=48) * 1e-30,
    "one step": np.r_[np.full(47, np.nan), 2.0],
    "gaps": np.where(np.arange(48) % 3 == 0, np.nan, np.arange(48.0)),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_contexts_give_finite_states_and_forecasts(
    family: Family, windows_of: Callable[..., Windows], name: str
) -> None:
    made = windows_of(HARD[name][None], np.full((1, 12), np.nan))
    states = states_of(family, family.tokenize(made))
    assert all(np.isfinite(s).all() for s in states.values())
    if name != "near the largest float":  # T5's samples reach 15 scales, beyond float32
        assert np.isfinite(family.forecast(made, seeds=[0]).values).all()


# not lag-llama: its inputs hold the scale, so that a scaled copy is another window
@pytest.mark.parametrize(
    "family",
    [
        "t5",
        "bolt",
        "patchtst",
        "moirai",
        "wavetoken",
        "totem",
        "timesfm",
        "timesfm_25",
        "chronos_2",
        "time_moe",
        "visionts",
    ],
    indirect=True,
)
def test_a_huge_window_is_forecast_as_its_scaled_copy(
    family: Family, windows: Make, windows_of: Callable[..., Windows]
) -> None:
    small = windows(count=3)
    huge = windows_of(small.context * 2.0**90, small.future)
    a, b = (family.forecast(w, seeds=[1, 2, 3]).values for w in (small, huge))
    # PatchTST's scaler adds 1e-5 to the variance, so its forecasts scale as exactly as that is small beside it
    np.testing.assert_allclose(b / 2.0**90, a, rtol=1e-5, atol=1e-5 * float(np.abs(a).max()))


def test_a_saved_model_loads_with_the_same_bits(any_family: Family, items: Make, tmp_path: Path) -> None:
    any_family.save(tmp_path)
    loaded = type(any_family).load(tmp_path)
    tokens = any_family.tokenize(items(any_family))
    first, second = states_of(any_family, tokens), states_of(loaded, tokens)
    assert all(np.array_equal(first[key], second[key]) for key in first)
    if isinstance(any_family, Forecaster):
        first_forecast, second_forecast = (
            f.forecast(items(f), seeds=[7] * 5).values for f in (any_family, loaded) if isinstance(f, Forecaster)
        )
        assert np.array_equal(first_forecast, second_forecast)


def test_saving_twice_gives_the_same_files(any_family: Family, tmp_path: Path) -> None:
    for name in ("a", "b"):
        any_family.save(tmp_path / name)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(p.name for p in (tmp_path / "b").iterdir())
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


@every_family_class
def test_a_seed_decides_the_weights_and_touches_no_global_state(cls: type[Family], config: Mapping[str, int]) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (cls.new(config, seed=s).network.state_dict() for s in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@every_family_class
def test_a_wrong_config_is_named(cls: type[Family], config: Mapping[str, int]) -> None:
    with pytest.raises(ValueError, match=r"unknown keys \['d_modle'\]"):
        cls.new({**config, "d_modle": 8}, seed=0)
    first = next(iter(config))
    with pytest.raises(ValueError, match=rf"keys \['{first}'"):
        cls.new({k: v for k, v in config.items() if k != first}, seed=0)


def break_nothing_there(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def break_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def break_foreign(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))


def break_pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def break_cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def raise_one(folder: Path, names: tuple[str, ...]) -> None:
    config = json.loads((folder / "config.json").read_text())
    name = next(name for name in names if name in config)
    (folder / "config.json").write_text(json.dumps(config | {name: config[name] + 1}))


def break_deeper(folder: Path) -> None:
    raise_one(folder, ("num_layers", "num_hidden_layers", "n_layer", "n_layers"))


def break_wider(folder: Path) -> None:
    raise_one(folder, ("d_ff", "ffn_dim", "n_head", "d_model", "intermediate_size", "dim_output"))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (break_nothing_there, "no folder .*expected one with config.json"),
        (break_no_config, "config.json: file is missing"),
        (break_config, "config.json: not valid JSON.*fetch or save"),
        (break_foreign, "so this is no .* checkpoint"),
        (break_pickled, r"expected \*.safetensors; convert pickled"),
        (break_cut, "cannot be read.*fetch or save the checkpoint again"),
        (break_deeper, "weights do not fit config.json: missing .*(encoder|transformer.h|layers)"),
        (break_wider, "cannot be read|do not fit config.json"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_checkpoint_is_named_with_the_mend(
    any_family: Family, tmp_path: Path, damage: Callable[[Path], None], text: str
) -> None:
    folder = tmp_path / "checkpoint"
    any_family.save(folder)
    damage(folder)
    with pytest.raises(ModelError, match=text):
        type(any_family).load(folder)


def test_a_checkpoint_of_the_other_family_is_refused(t5: ChronosT5, bolt: ChronosBolt, tmp_path: Path) -> None:
    t5.save(tmp_path / "t5")
    bolt.save(tmp_path / "bolt")
    for cls, folder in ((ChronosBolt, "t5"), (ChronosT5, "bolt"), (PatchTST, "bolt"), (Totem, "t5")):
        with pytest.raises(ModelError, match="name the family that the checkpoint belongs to"):
            cls.load(tmp_path / folder)


@pytest.mark.parametrize("name", ["t5", "bolt", "wavetoken", "t5_text"])
def test_every_attention_and_mlp_matrix_of_a_t5_is_named_once(name: str, request: pytest.FixtureRequest) -> None:
    family: Family = request.getfixturevalue(name)
    found = list(family.weights())
    parameters = dict(family.network.named_parameters())
    names = {(w.stack, w.layer, w.what, w.attention) for w in found}
    assert len(names) == len(found)
    of_blocks = [n for n in parameters if ".block." in n and "norm" not in n and "relative" not in n]
    assert len(of_blocks) == len(found)
    by_name = {(w.stack, w.layer, w.what, w.attention): w.matrix for w in found}
    for key, name in {
        ("encoder", 1, "q", "self"): "encoder.block.0.layer.0.SelfAttention.q.weight",
        ("decoder", 2, "o", "cross"): "decoder.block.1.layer.1.EncDecAttention.o.weight",
        ("decoder", 1, "mlp_out", None): "decoder.block.0.layer.2.DenseReluDense.wo.weight",
        ("encoder", 3, "mlp_in", None): "encoder.block.2.layer.1.DenseReluDense.wi.weight",
    }.items():
        np.testing.assert_array_equal(by_name[key], parameters[name].detach().numpy())
    assert {w.heads for w in found if w.attention} == {3}


@every_family_class
def test_gradient_steps_lower_the_loss(
    cls: type[Family], config: Mapping[str, int], windows: Make, items: Make
) -> None:
    made = windows(count=8, context=16, horizon=4) if issubclass(cls, Forecaster) else items(cls, count=8)
    context, future = torch.from_numpy(made.context), torch.from_numpy(made.future)
    family = cls.new(config, seed=0)
    optimizer = torch.optim.AdamW(family.network.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # where patches are masked
            loss = family.loss(context, future)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.skipif("TSFM_LENS_WEIGHTS" not in os.environ, reason="TSFM_LENS_WEIGHTS names no folder of checkpoints")
def test_real_trained_weights_load_and_beat_the_last_value() -> None:
    family = ChronosBolt.load(Path(os.environ["TSFM_LENS_WEIGHTS"], "chronos-bolt-350k"))
    time = np.arange(512 + 64)
    wave = np.sin(2 * np.pi * time / 24) + np.random.default_rng(0).normal(size=time.shape) * 0.2
    made = Windows(
        wave[None, :512].astype(np.float32), wave[None, 512:].astype(np.float32), ["w"], np.array([512]), "w", "h", 24
    )
    error = np.abs(family.forecast(made, seeds=[0]).median - made.future).mean()
    naive = np.abs(made.context[:, -1:] - made.future).mean()
    assert error < 0.4 * naive
    layers: list[LayerStates] = list(family.hidden_states(family.tokenize(made)))
    assert len(layers) == 6
