"""What families keep beside the checks of their conformance, on small random checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tasks.models.families import names
from tsfmscope.tasks.conformance.examples import EXAMPLES
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models.base import Family
from tsfmscope.tasks.models.chronos_bolt import ChronosBolt
from tsfmscope.tasks.models.patchtst import PatchTST
from tsfmscope.tasks.models.registry import family_class
from tsfmscope.tasks.models.t5.chronos_t5 import ChronosT5
from tsfmscope.tasks.models.t5.shared import T5Stacks
from tsfmscope.tasks.models.totem.family import Totem
from tsfmscope.tasks.models.types import LayerStates, Tokens
from tsfmscope.tasks.series.types import Windows

Make = Callable[..., Windows]


def states_of(family: Family, tokens: Tokens) -> dict[tuple[str, int, bool], np.ndarray]:
    return {(s.stack, s.layer, s.normed): s.states for s in family.hidden_states(tokens)}


def close(a: np.ndarray, b: np.ndarray, tolerance: float = 1e-5) -> bool:
    return bool(np.max(np.abs(a - b)) <= tolerance * max(1.0, float(np.max(np.abs(b)))))


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


def test_a_context_near_the_largest_float_has_finite_states(family: Family, windows_of: Callable[..., Windows]) -> None:
    made = windows_of(np.linspace(1, 3e38, 48)[None], np.full((1, 12), np.nan))
    # no forecast: T5's samples reach 15 scales, beyond float32
    assert all(np.isfinite(s).all() for s in states_of(family, family.tokenize(made)).values())


# Inputs of the others hold the scale, so that a scaled copy is another window.
@pytest.mark.parametrize("family", names(lambda cls: "scale" in getattr(cls, "equivariant", ())), indirect=True)
def test_a_huge_window_is_forecast_as_its_scaled_copy(
    family: Family, windows: Make, windows_of: Callable[..., Windows]
) -> None:
    small = windows(count=3)
    huge = windows_of(small.context * 2.0**90, small.future)
    a, b = (family.forecast(w, seeds=[1, 2, 3]).values for w in (small, huge))
    # PatchTST's scaler adds 1e-5 to the variance, so its forecasts scale as exactly as that is small beside it
    np.testing.assert_allclose(b / 2.0**90, a, rtol=1e-5, atol=1e-5 * float(np.abs(a).max()))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_config_without_a_key_is_named(name: str) -> None:
    first = next(iter(EXAMPLES[name]))
    with pytest.raises(ValueError, match=rf"keys \['{first}'"):
        family_class(name).new({k: v for k, v in EXAMPLES[name].items() if k != first}, seed=0)


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
    numbers = [name for name, value in config.items() if isinstance(value, int) and not isinstance(value, bool)]
    # A family with keys of its own: all numbers of its config are raised.
    raised = next(([name] for name in names if name in config), numbers)
    (folder / "config.json").write_text(json.dumps(config | {name: config[name] + 1 for name in raised}))


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
        (break_deeper, "weights do not fit config.json: missing .*(encoder|transformer.h|layers)|cannot be read"),
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


@pytest.mark.parametrize("any_family", names(lambda cls: issubclass(cls, T5Stacks)), indirect=True)
def test_every_attention_and_mlp_matrix_of_a_t5_is_named_once(any_family: Family) -> None:
    family = any_family
    found = list(family.weights())
    parameters = dict(family.network.named_parameters())
    names = {(w.stack, w.layer, w.name, w.attention) for w in found}
    assert len(names) == len(found)
    of_blocks = [n for n in parameters if ".block." in n and "norm" not in n and "relative" not in n]
    assert len(of_blocks) == len(found)
    by_name = {(w.stack, w.layer, w.name, w.attention): w.matrix for w in found}
    for key, name in {
        ("encoder", 1, "q", "self"): "encoder.block.0.layer.0.SelfAttention.q.weight",
        ("decoder", 2, "o", "cross"): "decoder.block.1.layer.1.EncDecAttention.o.weight",
        ("decoder", 1, "mlp_out", None): "decoder.block.0.layer.2.DenseReluDense.wo.weight",
        ("encoder", 3, "mlp_in", None): "encoder.block.2.layer.1.DenseReluDense.wi.weight",
    }.items():
        np.testing.assert_array_equal(by_name[key], parameters[name].detach().numpy())
    assert {w.heads for w in found if w.attention} == {3}


@pytest.mark.skipif("TSFMSCOPE_WEIGHTS" not in os.environ, reason="TSFMSCOPE_WEIGHTS names no folder of checkpoints")
def test_real_trained_weights_load_and_beat_the_last_value() -> None:
    family = ChronosBolt.load(Path(os.environ["TSFMSCOPE_WEIGHTS"], "chronos-bolt-350k"))
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
