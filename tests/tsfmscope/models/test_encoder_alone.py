"""Checkpoints whose encoder is ours and whose head is not: states as in their own package, no forecast in one line."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import PatchTSTConfig

import tsfmscope as ts
from tests.tsfmscope.models.families import change_config, example_model
from tsfmscope.errors import ModelError
from tsfmscope.functions.load import as_forecaster
from tsfmscope.models.base import Forecaster
from tsfmscope.models.patchtst import PatchTST
from tsfmscope.models.ttm import HEAD, TTM
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("tsfm_public") is None, reason="granite-tsfm is not installed; see docs/install.md"
)
PATCHTST = {
    "num_input_channels": 3, "context_length": 50, "patch_length": 8, "patch_stride": 4, "d_model": 16, "ffn_dim": 24,
    "num_attention_heads": 2, "num_hidden_layers": 2, "init_std": 0.2, "num_targets": 5,
}  # fmt: skip
CLASSES = ("PatchTSTForPretraining", "PatchTSTForClassification", "PatchTSTForRegression")
TTM_SIZE = {
    "context_length": 48, "prediction_length": 12, "patch_length": 8, "patch_stride": 8, "d_model": 24,
    "num_layers": 1, "adaptive_patching_levels": 2, "decoder_d_model": 16, "decoder_num_layers": 1,
    "num_input_channels": 3, "scaling": "std",
}  # fmt: skip
HEADS: dict[str, dict[str, Any]] = {
    "mixed channels": {"decoder_mode": "mix_channel"},
    "exogenous": {
        "decoder_mode": "mix_channel", "enable_forecast_channel_mixing": True, "prediction_channel_indices": [0],
        "exogenous_channel_indices": [1, 2], "fcm_context_length": 1, "fcm_mix_layers": 1,
    },
    "one target": {"prediction_channel_indices": [1]},
    "categories": {"decoder_mode": "mix_channel", "categorical_vocab_size_list": [4]},
}  # fmt: skip


def save_patchtst(folder: Path, name: str, **changes: Any) -> Any:
    """Save a random network of a class of transformers, and return it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = getattr(transformers, name)(PatchTSTConfig(**PATCHTST | changes)).eval()
    network.save_pretrained(folder)
    return network


@pytest.fixture(params=["ttm", "patchtst"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A TTM that mixes channels, without the tensors of its decoder, and a PatchTST of pretraining."""
    folder = tmp_path / "model"
    if request.param == "patchtst":
        save_patchtst(folder, "PatchTSTForPretraining", num_input_channels=1)
        return folder
    example_model("ttm").save(folder)
    change_config(folder, decoder_mode="mix_channel", num_input_channels=7)
    kept = {name: value for name, value in load_file(folder / "model.safetensors").items() if "backbone" in name}
    save_file(kept, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(
    "changes",
    [{}, {"use_cls_token": True, "pooling_type": None}, {"loss": "nll", "distribution_output": "negative_binomial"}],
    ids=str,
)
def test_states_of_a_patchtst_of_another_task_are_those_of_transformers(
    name: str, changes: dict[str, Any], windows: Make, tmp_path: Path
) -> None:
    network = save_patchtst(tmp_path, name, **changes)
    model, made = ts.load(tmp_path).family, windows(count=3, context=50)
    assert isinstance(model, PatchTST) and model.missing == f"class {name}"
    assert model.layers == {"encoder": 2} and {matrix.stack for matrix in model.weights()} == {"encoder"}
    assert [key for key, _ in model.network.named_parameters() if key.startswith("head")] == []
    # Pretraining reads masked patches.
    network.model.masking, network.model.do_mask_input = torch.nn.Identity(), False
    with torch.no_grad():
        output = network.model(torch.from_numpy(made.context.T)[None], output_hidden_states=True)
    expected = [*output.hidden_states, output.last_hidden_state]
    assert len(expected) == 3
    for ours, theirs in zip(model.hidden_states(model.tokenize(made)), expected, strict=True):
        np.testing.assert_allclose(ours.states, theirs[0].numpy(), rtol=1e-4, atol=1e-4)


@needs_package
@pytest.mark.parametrize("head", HEADS)
def test_states_of_a_ttm_with_another_head_are_those_of_the_package(head: str, windows: Make, tmp_path: Path) -> None:
    from tsfm_public.models.tinytimemixer import TinyTimeMixerConfig, TinyTimeMixerForPrediction

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = TinyTimeMixerForPrediction(TinyTimeMixerConfig(**TTM_SIZE | HEADS[head])).eval()
    network.save_pretrained(tmp_path)
    model, made = ts.load(tmp_path).family, windows(count=3, context=48)
    assert isinstance(model, TTM) and model.missing is not None
    assert all(f"{key} {value!r}" in model.missing for key, value in HEADS[head].items() if key in HEAD)
    assert model.layers == {"encoder": 2} and {matrix.stack for matrix in model.weights()} == {"encoder"}
    with torch.no_grad():
        last = network.backbone(torch.from_numpy(made.context.T)[None]).last_hidden_state[0]
    *_, ours = model.hidden_states(model.tokenize(made))
    np.testing.assert_allclose(ours.states, last.numpy(), rtol=1e-4, atol=1e-4)


def test_everything_that_forecasts_is_refused_in_one_line(folder: Path, windows: Make, tmp_path: Path) -> None:
    loaded, made, new = ts.load(folder), windows(count=2), tmp_path / "new"
    model = loaded.family
    assert isinstance(model, Forecaster)
    calls: list[Callable[[], object]] = [
        lambda: model.forecast(made, seeds=[0, 0]),
        lambda: model.loss(torch.from_numpy(made.context), torch.from_numpy(made.future)),
        model.forecast_graph,
        lambda: model.save(new),
        lambda: ts.forecast(loaded, "nile"),
        lambda: ts.compress(loaded, "nile", to=0.5, context=48),
        lambda: ts.compress(loaded, certified=0.05, context=48),
        lambda: ts.certify("chronos-bolt-mini", loaded, "nile"),
        lambda: as_forecaster(loaded),
        lambda: ts.certify(loaded, "chronos-bolt-mini", "nile"),
        lambda: ts.export(loaded, new),
        lambda: ts.export(loaded, new, onnx=True),
    ]
    line = (
        rf"family {model.name}: expected a checkpoint with a forecasting head, found its encoder alone \((deco|class)"
    )
    for call in calls:
        with pytest.raises(ModelError, match=line) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert not new.exists()


def test_inspect_states_and_embed_read_it_and_inspect_says_what_was_left_out(folder: Path) -> None:
    report = ts.inspect(folder, "nile", context=48, rows=64)
    assert any("its encoder alone was read, without decoder and head (" in note for note in report.notes)
    assert set(report.layers["stack"]) == {"encoder"}
    loaded = ts.load(folder)
    assert len(ts.states(loaded, "nile", context=48, rows=64)) == loaded.layers["encoder"] + 1
    assert ts.embed(loaded, "nile", context=48).shape == (1, loaded.width)
    assert "found its encoder alone" in ts.score("nile", models=[loaded]).left_out[loaded.name]


def test_a_whole_model_has_nothing_left_out(tmp_path: Path) -> None:
    for name in ("ttm", "patchtst"):
        example_model(name).save(tmp_path / name)
        assert ts.load(tmp_path / name).family.missing is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mode": "mix_channel", "decoder_mode": "mix_channel"}, r"got {'mode': 'mix_channel'}, expected"),
        ({"decoder_mode": "mix_channel", "d_model": 32}, "weights do not fit config.json"),
    ],
)
def test_another_encoder_is_refused_with_any_head(changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    example_model("ttm").save(tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(ModelError, match=text):
        TTM.load(tmp_path)


def test_the_trainers_folder_loads_and_one_that_has_only_such_folders_names_them(tmp_path: Path) -> None:
    class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
            return {"past_values": torch.randn(50, 3, generator=torch.Generator().manual_seed(at))}

    network = save_patchtst(tmp_path / "start", "PatchTSTForPretraining").train()
    arguments = transformers.TrainingArguments(
        str(tmp_path / "run"), max_steps=2, save_steps=1, per_device_train_batch_size=2, report_to="none",
        use_cpu=True, disable_tqdm=True, label_names=["past_values"],
    )  # fmt: skip
    transformers.Trainer(network, arguments, train_dataset=Rows()).train()
    folder = tmp_path / "run" / "checkpoint-2"
    assert {"training_args.bin", "optimizer.pt", "trainer_state.json"} <= {path.name for path in folder.iterdir()}
    state, start = ts.load(folder).family.network.state_dict(), ts.load(tmp_path / "start").family.network.state_dict()
    for name, value in network.state_dict().items():
        assert name.startswith("head") or torch.equal(value, state[name])
    assert not torch.equal(state[name := "model.encoder.layers.0.ff.0.weight"], start[name])
    for reference in (tmp_path / "run", f"patchtst:{tmp_path / 'run'}"):
        with pytest.raises(ModelError, match="folders that contain one: 'checkpoint-1', 'checkpoint-2'; name one"):
            ts.load(reference)


def test_a_config_with_a_long_value_gives_a_short_line(tmp_path: Path) -> None:
    example_model("ttm").save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"exogenous_channel_indices": list(range(10_000))}))
    missing = TTM.load(tmp_path).missing
    assert missing is not None and len(missing) < 100
