"""What families guarantee besides the checks of their conformance, on small random checkpoints."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import tsfmscope as ts
from tests.tsfmscope.models.families import CLASSES, READERS, change_config, example_model, names
from tsfmscope.cli.app import app
from tsfmscope.errors import ModelError
from tsfmscope.models import lag_llama_network as lag_sampling
from tsfmscope.models import registry
from tsfmscope.models import t5_decoding as t5_sampling
from tsfmscope.models.base import Family
from tsfmscope.models.cards import license_of
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.registry import family_of_folder
from tsfmscope.models.types import LayerStates
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]


def test_a_context_near_the_largest_float_has_finite_states(family: Family, windows_of: Callable[..., Windows]) -> None:
    made = windows_of(np.linspace(1, 3e38, 48)[None], np.full((1, 12), np.nan))
    # no forecast: T5's samples reach 15 scales, beyond float32
    assert all(np.isfinite(layer.states).all() for layer in family.hidden_states(family.tokenize(made)))


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


def raise_one(folder: Path, names: tuple[str, ...]) -> None:
    """Raise the first of these numbers of config.json, or all numbers where a family has keys of its own."""
    config = json.loads((folder / "config.json").read_text())
    shape = config.get("t5_config", config)
    numbers = [name for name, value in shape.items() if isinstance(value, int) and not isinstance(value, bool)]
    raised = next(([name] for name in names if name in shape), numbers)
    changes = {name: shape[name] + 1 for name in raised}
    change_config(folder, **(changes if shape is config else {"t5_config": shape | changes}))


DEPTHS = ("num_layers", "encoder_num_layers", "num_hidden_layers", "n_layer", "n_layers")
SIZES = ("d_ff", "decoder_dim", "ffn_dim", "n_head", "d_model", "intermediate_size", "dim_output")
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "no folder .*expected one with config.json"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json: file is missing"),
    "broken config": (
        lambda folder: (folder / "config.json").write_text("{"), "config.json: not valid JSON.*fetch or save",
    ),
    "another model": (
        lambda folder: (folder / "config.json").write_text('{"model_type": "bert"}'), "so this is no .* checkpoint",
    ),
    "pickled weights": (
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        r"expected model.safetensors, or .*; convert pickled",
    ),
    "cut weights": (
        lambda folder: os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size - 100),
        "cannot be read.*fetch or save the checkpoint again",
    ),
    "one layer more": (
        lambda folder: raise_one(folder, DEPTHS),
        "weights do not fit config.json: missing .*(encoder|transformer.h|layers|blocks)|cannot be read|"
        "expected a multiple of layer_group_size",
    ),
    "wider": (lambda folder: raise_one(folder, SIZES), "cannot be read|do not fit config.json|expected a multiple of"),
}  # fmt: skip


# Conformance checks that every family refuses most of these damages; the same functions word the error in all.
NAMED = [*product(READERS, DAMAGES)]
NAMED += product(set(CLASSES) - set(READERS), ("another model", "one layer more", "wider"))


@pytest.mark.parametrize(("name", "damage"), sorted(NAMED))
def test_a_broken_checkpoint_is_named_with_what_to_do(name: str, damage: str, tmp_path: Path) -> None:
    apply, text = DAMAGES[damage]
    example_model(name).save(tmp_path / "checkpoint")
    apply(tmp_path / "checkpoint")
    with pytest.raises(ModelError, match=text):
        CLASSES[name].load(tmp_path / "checkpoint")


# Two families whose config.json have keys in common, each way round.
@pytest.mark.parametrize(
    ("name", "saved"),
    [("chronos-bolt", "chronos-t5"), ("chronos-t5", "chronos-bolt"), ("patchtst", "chronos-bolt"),
     ("totem", "chronos-t5"), ("timesfm", "timesfm-2.5"), ("timesfm-2.5", "timesfm"), ("moirai", "chronos-t5"),
     ("moirai", "moirai-2"), ("moirai-2", "moirai"),
     ("visionts", "vit"), ("vit", "visionts"), ("t5-text", "chronos-t5")],
)  # fmt: skip
def test_a_checkpoint_of_another_family_is_refused(name: str, saved: str, tmp_path: Path) -> None:
    example_model(saved).save(tmp_path)
    with pytest.raises(ModelError, match=f"so this is no {name} checkpoint; name the family"):
        CLASSES[name].load(tmp_path)


@pytest.mark.parametrize(
    ("name", "sampling", "rows"), [("chronos-t5", t5_sampling, 40), ("lag-llama", lag_sampling, 1)]
)
def test_paths_do_not_depend_on_how_many_are_drawn_at_once(
    name: str, sampling: Any, rows: int, windows: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, made = example_model(name), windows()
    whole = model.forecast(made, seeds=[3, 1, 4, 1, 5]).values
    monkeypatch.setattr(sampling, "ROWS", rows)
    parted = model.forecast(made, seeds=[3, 1, 4, 1, 5]).values
    np.testing.assert_allclose(parted, whole, rtol=1e-4, atol=1e-3)


# Families whose loss is not 0 where no step is observed: Chronos-T5 counts the EOS id, Time-MoE its experts' balance.
COUNTS_MORE = ("chronos-t5", "time-moe")


def test_a_batch_without_any_observed_step_has_a_finite_loss_and_gradients(family: Family) -> None:
    loss = family.loss(torch.full((2, 48), torch.nan), torch.full((2, 12), torch.nan))
    parameters = [part for part in family.network.parameters() if part.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    assert torch.isfinite(loss) and (family.name in COUNTS_MORE or loss.item() == 0)
    assert all(torch.isfinite(part).all() for part in gradients if part is not None)


@pytest.mark.parametrize("level", [0.0, 0.1, 3e38, 1e-30])
def test_windows_without_a_scale_have_a_finite_loss(family: Family, level: float) -> None:
    context, future = torch.full((2, 48), level), torch.full((2, 12), level)
    if level < 1e38 or family.name not in OVERFLOWS:
        context[1] = torch.nan
    assert torch.isfinite(family.loss(context, future))


# Families whose loss of a huge future after an empty context, which has no scale, overflows as the package's does.
OVERFLOWS = ("chronos-bolt", "patchtst")


@pytest.mark.parametrize("level", [1.0, 1e15, 3e38])
@pytest.mark.parametrize("name", OVERFLOWS)
def test_the_loss_of_a_future_after_an_empty_context_is_the_packages_own(name: str, level: float) -> None:
    model = example_model(name)
    network, future = model.network, torch.full((1, 12), level)
    context = torch.full((1, model.max_context), torch.nan)
    if name == "patchtst":
        filled = torch.zeros_like(context)[..., None]
        released = network(filled, past_observed_mask=filled.bool(), future_values=future[..., None]).loss
    else:
        released = model.stock_model().model(context, target=future).loss
    assert model.loss(context, future).item() == pytest.approx(released.item(), rel=1e-5)
    assert torch.isfinite(released) == (level < 1e38)


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


def test_the_last_stack_is_the_default_also_in_a_subclass_of_a_subclass() -> None:
    class Mixer(Family):
        stacks: ClassVar[tuple[str, ...]] = ("zoom", "mixer")

    class Named(Mixer):
        output_stack: ClassVar[str] = "zoom"

    class Short(Named):
        stacks: ClassVar[tuple[str, ...]] = ("mixer",)

    assert [one.output_stack for one in (Mixer, Named, Short)] == ["mixer", "zoom", "mixer"]


EXAMPLE = Path(__file__).parents[3] / "docs" / "plugin" / "patch_line.py"
# Changes that make a family of the example whose config.json names a class, and not the family.
CHANGES = {
    "class PatchLine(": "class NewLine(",
    '"patch-line"': '"new-line"',
    '"model_type": self.name': '"architectures": ["NewLineForPrediction"]',
    "checkpoint_folder.check_model_type(config, folder, cls.name)": "",
    'del config["model_type"]': 'del config["architectures"]',
    "    network: Network\n": """    network: Network
    released = Released(("someone/new-line-small",), "mit", "a page")
    architectures = ("NewLineForPrediction",)
""",
    "from tsfmscope.models.base": """from tsfmscope.models.facts import Released
from tsfmscope.models.base""",
}


@pytest.fixture
def new_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a family whose module lies in a package of its own, with one line in the registry."""
    text = EXAMPLE.read_text()
    for old, new in CHANGES.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "added_families").mkdir()
    (tmp_path / "added_families" / "new_line.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(registry.FAMILIES, "new-line", "added_families.new_line:NewLine")
    return "new-line"


def test_a_module_and_a_line_of_the_registry_make_a_family(new_family: str, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    registry.family_class(new_family).new_example(seed=1).save(folder)
    assert family_of_folder(folder) == new_family
    release = "hub:someone/new-line-small@main"
    assert (registry.family_of_release(release), license_of(folder, release).name) == (new_family, "mit")
    assert ts.load(str(folder)).family.name == new_family
    layers = ts.inspect(str(folder), "nile", context=48, horizon=12, rows=50).layers
    assert len(layers) == 4
    done = CliRunner().invoke(app, ["check-family", new_family])
    assert done.exit_code == 0, done.output
