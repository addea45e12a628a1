"""LoRA adapters of Chronos-2 in peft's files, against a network with the adapter's terms written out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chronos.chronos2.model import Chronos2Model
from safetensors.torch import save_file

import tsfmscope as ts
from tests.tsfmscope.models.families import example_model
from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.common.lora import base_of
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
PREFIX = "base_model.model."
# What chronos-forecasting 2.3.2 trains by default (Chronos2Pipeline.fit).
TARGETS = ["self_attention.q", "self_attention.v", "self_attention.k", "self_attention.o"]
TARGETS += ["output_patch_embedding.output_layer"]
# adapter_config.json of peft 0.20 for that call, without keys that choose modules.
SETTINGS: dict[str, Any] = {
    "alora_invocation_tokens": None, "alpha_pattern": {}, "arrow_config": None, "base_model_name_or_path": "base",
    "auto_mapping": {"base_model_class": "Chronos2Model", "parent_library": "chronos.chronos2.model"},
    "bias": "none", "corda_config": None, "eva_config": None, "fan_in_fan_out": False, "inference_mode": True,
    "init_lora_weights": True, "layer_replication": None, "loftq_config": {}, "lora_alpha": 16, "lora_bias": False,
    "lora_dropout": 0.0, "megatron_core": "megatron.core", "modules_to_save": None, "peft_type": "LORA",
    "qalora_group_size": 16, "r": 4, "rank_pattern": {}, "revision": None, "target_modules": TARGETS,
    "target_parameters": None, "task_type": None, "trainable_token_indices": None, "use_dora": False,
    "use_qalora": False, "use_rslora": False,
}  # fmt: skip


class Adapted(torch.nn.Module):
    """A Linear and the two of its adapter, as peft runs them before they are merged: W x + s B (A x)."""

    def __init__(self, base: torch.nn.Linear, a: torch.Tensor, b: torch.Tensor, scale: float) -> None:
        super().__init__()
        self.base, self.a, self.b, self.scale = base, a, b, scale

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(values) + self.scale * ((values @ self.a.T) @ self.b.T)
        return out


def targets(network: Any) -> dict[str, torch.nn.Linear]:
    return {name: part for name, part in network.named_modules() if name.endswith(tuple(TARGETS))}


def write_adapter(folder: Path, network: Any, tensors: dict[str, torch.Tensor] | None = None, **changes: Any) -> Path:
    """Write an adapter of the network's targets with random matrices, as peft names them."""
    settings, draw = SETTINGS | changes, torch.Generator().manual_seed(0)
    rank = settings["r"] if isinstance(settings["r"], int) else 4
    matrices = {}
    for name, linear in targets(network).items():
        matrices[f"{PREFIX}{name}.lora_A.weight"] = torch.randn(rank, linear.in_features, generator=draw) / 4
        matrices[f"{PREFIX}{name}.lora_B.weight"] = torch.randn(linear.out_features, rank, generator=draw) / 4
    folder.mkdir(parents=True)
    save_file(matrices | (tensors or {}), folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    example_model("chronos-2").save(tmp_path / "base")
    return tmp_path / "base"


def adapted(base: Path, adapter: Path, scale: float) -> Any:
    """Return the package's network with unmerged adapters, the independent twin."""
    from safetensors.torch import load_file

    network = Chronos2Model.from_pretrained(base).eval()
    matrices = load_file(adapter / "adapter_model.safetensors")
    for name, linear in targets(network).items():
        a, b = (matrices[f"{PREFIX}{name}.lora_{part}.weight"] for part in "AB")
        parent, _, attribute = name.rpartition(".")
        setattr(network.get_submodule(parent), attribute, Adapted(linear, a, b, scale))
    return network


@pytest.mark.parametrize(
    ("changes", "scale"),
    [
        ({}, 4.0),
        ({"use_rslora": True}, 8.0),
        ({"r": 2, "lora_alpha": 3.0}, 1.5),
        # peft sets it to false for a Linear, with a warning.
        ({"fan_in_fan_out": True}, 4.0),
        ({"lora_alpha": 0}, 0.0),
    ],
    ids=str,
)
def test_states_and_forecasts_are_those_of_the_unmerged_terms(
    changes: dict[str, Any], scale: float, base: Path, tmp_path: Path, windows: Make
) -> None:
    adapter = write_adapter(tmp_path / "adapter", example_model("chronos-2").network, **changes)
    merged, made = ts.load(adapter).family, windows(count=3)
    twin = type(merged)(adapted(base, adapter, scale))
    for ours, theirs in zip(
        merged.hidden_states(merged.tokenize(made)), twin.hidden_states(twin.tokenize(made)), strict=True
    ):
        np.testing.assert_allclose(ours.states, theirs.states, rtol=2e-4, atol=2e-4)
    forecasts = [model.forecast(made, seeds=[0] * 3).values for model in (merged, twin)]  # type: ignore[attr-defined]
    np.testing.assert_allclose(*forecasts, rtol=1e-3, atol=1e-3)
    plain = ts.load(base).family
    changed = [
        name for name, value in plain.network.state_dict().items()
        if not torch.equal(value, merged.network.state_dict()[name])
    ]  # fmt: skip
    assert changed == ([f"{name}.weight" for name in targets(plain.network)] if scale else [])


def test_the_merged_weight_is_worked_by_hand(base: Path, tmp_path: Path) -> None:
    network = ts.load(base).family.network
    name = next(iter(targets(network)))
    before = network.get_submodule(name).weight
    a, b = torch.zeros(1, before.shape[1]), torch.zeros(before.shape[0], 1)
    a[0, 2], b[1, 0] = 3.0, 5.0
    folder = write_adapter(tmp_path / "adapter", torch.nn.Module(), r=1, lora_alpha=2, tensors={
        f"{PREFIX}{name}.lora_A.weight": a.bfloat16(), f"{PREFIX}{name}.lora_B.weight": b.half()
    })  # fmt: skip
    difference = ts.load(folder).family.network.get_submodule(name).weight - before
    assert difference.nonzero().tolist() == [[1, 2]]
    assert difference[1, 2].item() == pytest.approx(30.0)


def test_a_base_model_is_named_by_the_caller_or_lies_next_to_the_adapter(base: Path, tmp_path: Path) -> None:
    network = example_model("chronos-2").network
    adapter = write_adapter(tmp_path / "here" / "adapter", network, base_model_name_or_path=str(base))
    with pytest.raises(
        ModelError, match=r"expected a folder next to the adapter, or ORG/NAME of the hub; name.*\+BASE"
    ):
        ts.load(adapter)
    model = ts.load(f"{adapter}+{base}")
    assert model.name == "adapter" and model.source.reference == f"{adapter}+{base}"
    again = ts.load(model.source.reference, family="chronos-2")
    for name, value in model.family.network.state_dict().items():
        assert torch.equal(value, again.family.network.state_dict()[name])
    report = ts.inspect(f"chronos-2:{adapter}+{base}", "nile", context=48, rows=64)
    assert len(report.layers) == 5
    next_to = write_adapter(tmp_path / "adapter", network, base_model_name_or_path=str(base))
    assert base_of(next_to) == str(base)
    found = registry.resolve(str(next_to))
    assert found.base == base
    assert registry.resolve(f"{adapter}+{base}").fingerprint == found.fingerprint


def test_the_fingerprint_covers_the_adapter_and_its_base(base: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter", example_model("chronos-2").network)
    prints = [registry.resolve(str(base)).fingerprint, registry.resolve(str(adapter)).fingerprint]
    (adapter / "adapter_config.json").write_text(json.dumps(SETTINGS | {"lora_alpha": 1}))
    prints.append(registry.resolve(str(adapter)).fingerprint)
    (base / "config.json").write_text((base / "config.json").read_text() + " ")
    prints.append(registry.resolve(str(adapter)).fingerprint)
    assert len(set(prints)) == 4


@pytest.mark.parametrize(
    ("name", "revision", "expected"),
    [
        ("amazon/chronos-2", None, "hub:amazon/chronos-2"),
        ("amazon/chronos-2", "abc", "hub:amazon/chronos-2@abc"),
        ("base", "abc", "/base"),
        ("./base", None, "/base"),
        ("..", None, None),
        ("../other", None, None),
        ("/etc", None, None),
        ("", None, None),
        (None, None, None),
        ({"_target_": "os.system"}, None, None),
        ("missing", None, None),
        ("amazon/chronos-2", {"a": 1}, None),
    ],
)
def test_the_name_of_a_base_model_is_a_neighbour_or_a_name_of_the_hub(
    name: Any, revision: Any, expected: str | None, base: Path, tmp_path: Path
) -> None:
    (tmp_path.parent / "other").mkdir(exist_ok=True)
    settings = {"base_model_name_or_path": name, "revision": revision}
    adapter = write_adapter(tmp_path / "adapter", torch.nn.Module(), **settings)
    if expected is None:
        with pytest.raises(ModelError, match="base_model_name_or_path: got"):
            base_of(adapter)
    else:
        assert base_of(adapter) == expected.replace("/base", str(base))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"use_dora": True}, "got {'use_dora': True}, expected plain LoRA of Linears; merge the adapter with peft"),
        ({"peft_type": "IA3"}, "got {'peft_type': 'IA3'}"),
        ({"peft_type": None}, "got {'peft_type': None}"),
        ({"bias": "all"}, "got {'bias': 'all'}"),
        ({"modules_to_save": ["head"]}, "modules_to_save"),
        ({"alpha_pattern": {"q": 32}}, "alpha_pattern"),
        ({"rank_pattern": {"q": 2}}, "rank_pattern"),
        ({"init_lora_weights": "pissa"}, "'pissa'"),
        ({"init_lora_weights": {"a": 1}}, "init_lora_weights"),
        ({"layer_replication": [[0, 2], [1, 3]]}, "layer_replication"),
        ({"r": 0}, "got r 0 and lora_alpha 16, expected a whole number from 1 and a number"),
        ({"r": True}, "got r True"),
        ({"r": "4"}, "got r '4'"),
        ({"lora_alpha": float("nan")}, "lora_alpha nan"),
        ({"lora_alpha": 10**400}, "lora_alpha 1000"),
        ({"lora_alpha": None}, "lora_alpha None"),
        ({"r": 8}, r"got shapes {'A': \(4, .*expected {'A': \(8, "),
    ],
    ids=str,
)
def test_another_kind_of_adapter_is_refused_in_one_line(
    changes: dict[str, Any], text: str, base: Path, tmp_path: Path
) -> None:
    adapter = write_adapter(tmp_path / "adapter", example_model("chronos-2").network)
    (adapter / "adapter_config.json").write_text(json.dumps(SETTINGS | changes))
    with pytest.raises(ModelError, match=text) as caught:
        ts.load(adapter)
    assert "\n" not in str(caught.value)


FIRST = "encoder.block.0.layer.0.self_attention.q"


@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        (f"{FIRST}.lora_magnitude_vector", (18,), "lora_magnitude_vector', expected lora_A and lora_B of Linears"),
        (f"{FIRST}.lora_B.bias", (18,), "lora_B.bias'"),
        ("shared.lora_embedding_A", (4, 2), "lora_embedding_A'"),
        ("shared.lora_A.weight", (4, 16), "shared.lora_A.weight'"),
        ("encoder.block.9.layer.0.self_attention.q.lora_A.weight", (4, 16), "block.9"),
        ("output_patch_embedding.hidden_layer.lora_A.weight", (4, 16), r"hidden_layer: got shapes {'A': \(4, 16\)}"),
        (f"{FIRST}.lora_A.weight", (4, 17), r"got shapes {'A': \(4, 17\), 'B': \(18, 4\)}, expected {'A': \(4, 16\)"),
        (f"{FIRST}.lora_A.weight", (16,), r"got shapes {'A': \(16,\)"),
    ],
)
def test_a_tensor_that_fits_no_linear_is_refused_in_one_line(
    name: str, shape: tuple[int, ...], text: str, base: Path, tmp_path: Path
) -> None:
    tensors = {PREFIX + name: torch.ones(shape)}
    adapter = write_adapter(tmp_path / "adapter", example_model("chronos-2").network, tensors)
    with pytest.raises(ModelError, match=text) as caught:
        ts.load(adapter)
    assert "\n" not in str(caught.value)


def test_pickled_or_broken_weights_and_files_of_other_folders_are_refused(base: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter", example_model("chronos-2").network)
    weights = adapter / "adapter_model.safetensors"
    shutil.copy(weights, kept := tmp_path / "kept")
    weights.write_bytes(b"not safetensors")
    with pytest.raises(ModelError, match=r"adapter_model.safetensors: weights cannot be read"):
        ts.load(adapter)
    weights.unlink()
    weights.symlink_to(kept)
    with pytest.raises(ModelError, match="got a link to"):
        ts.load(adapter)
    weights.unlink()
    (adapter / "adapter_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match=r"without adapter_model.safetensors.*\(adapter_model.bin\) are not read"):
        ts.load(adapter)


def test_an_adapter_of_an_adapter_and_a_base_for_a_whole_model_are_refused(base: Path, tmp_path: Path) -> None:
    network = example_model("chronos-2").network
    adapter = write_adapter(tmp_path / "adapter", network, base_model_name_or_path="adapter")
    with pytest.raises(ModelError, match="a LoRA adapter of 'adapter' is not a whole model"):
        ts.load(adapter)
    with pytest.raises(ModelError, match=r"got a whole model before \+, expected a LoRA adapter; leave"):
        ts.load(f"{base}+{base}")
    with pytest.raises(ModelError, match="nowhere: no such folder"):
        ts.load(f"{adapter}+nowhere")
    named = tmp_path / "a+b"
    shutil.copytree(base, named)
    assert ts.load(named).source.base is None


def test_a_reference_of_the_hub_is_pinned_in_front_of_its_base_model() -> None:
    found = registry.ResolvedRef(Path("x"), "f", "hub", "a" * 40, Path("y"))
    assert found.pin("hub:me/adapter@main+hub:org/base") == f"hub:me/adapter@{'a' * 40}+hub:org/base"
    registry.check_reference("hub:me/adapter+hub:org/base")
    with pytest.raises(ModelError, match="nowhere: no such folder"):
        registry.check_reference("hub:me/adapter+nowhere")


def test_an_adapter_is_exported_as_a_whole_model(base: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter", example_model("chronos-2").network)
    ts.export(adapter, tmp_path / "whole")
    merged, whole = (ts.load(folder).family.network.state_dict() for folder in (adapter, tmp_path / "whole"))
    assert merged.keys() == whole.keys()
    assert all(torch.equal(value, whole[name]) for name, value in merged.items())
