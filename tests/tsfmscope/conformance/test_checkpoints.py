"""Checkpoints damaged in one way each: the check that finds it, and what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tsfmscope.models.families import change_config, example_model
from tsfmscope.conformance.checkpoints import OF_FILES, Checkpoint, every_tensor_is_read
from tsfmscope.conformance.subject import Finding, judge

Damage = Callable[[Path], object]
WEIGHTS = "model.safetensors"


def saved(folder: Path, family: str, **options: Any) -> Path:
    model = example_model(family)
    if options:
        model.network.save_pretrained(folder, **options)
    else:
        model.save(folder)
    return folder


def findings(folder: Path, family: str, scratch: Path) -> list[Finding]:
    """The checks up to the first that fails."""
    checkpoint, found = Checkpoint(family, folder, scratch, 48, 12), []
    for check in (*OF_FILES, every_tensor_is_read):
        found.append(judge(check, checkpoint))
        if found[-1].verdict == "fail":
            break
    return found


def change(edit: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        edit(tensors)
        save_file(tensors, folder / WEIGHTS, {"format": "pt"})

    return damage


def stored_as(dtype: torch.dtype) -> Damage:
    return change(lambda tensors: tensors.update({name: value.to(dtype) for name, value in tensors.items()}))


def rename(name: str) -> Damage:
    return lambda folder: (folder / WEIGHTS).rename(folder / name)


@pytest.mark.parametrize("family", ["chronos-bolt", "flowstate", "lag-llama", "patchtst-fm", "patchtst", "ttm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_whole_checkpoints_pass_in_every_float_type(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", family)
    kept = {name: value for name, value in load_file(folder / WEIGHTS).items() if value.is_floating_point()}
    change(lambda tensors: tensors.update({name: value.to(dtype) for name, value in kept.items()}))(folder)
    found = findings(folder, family, tmp_path)
    assert [(one.check, one.verdict) for one in found] == [
        (name, "pass")
        for name in ("files-are-complete", "weights-have-a-float-type", "the-model-loads", "every-tensor-is-read")
    ], found[-1].detail


@pytest.mark.parametrize("family", ["chronos-bolt", "lag-llama"])
@pytest.mark.parametrize(
    ("damage", "check", "text"),
    [
        (change(lambda tensors: tensors.pop(max(tensors))), "the-model-loads", r"(?i)missing"),
        (
            change(lambda tensors: tensors.update({"later.weight": torch.zeros(2)})),
            "the-model-loads|every-tensor-is-read",
            r"later\.weight",
        ),
        (
            change(lambda tensors: tensors.update({min(tensors): torch.zeros(3, 5)})),
            "the-model-loads",
            "shape|size mismatch|cannot be read",
        ),
        (stored_as(torch.float64), "weights-have-a-float-type", "stored as F64, expected one of F32, F16, BF16"),
        (stored_as(torch.float8_e4m3fn), "weights-have-a-float-type", "stored as F8_E4M3, expected"),
        (
            rename("model-00001-of-00003.safetensors"),
            "files-are-complete",
            r"model-00002-of-00003.safetensors, model-00003-of-00003.safetensors absent",
        ),
        (
            lambda folder: save_file({"a": torch.zeros(1)}, folder / "other.safetensors"),
            "files-are-complete",
            "other.safetensors belong",
        ),
        (rename("pytorch_model.bin"), "files-are-complete", r"got \['config.json', 'pytorch_model.bin'\], expected"),
        (lambda folder: (folder / "config.json").unlink(), "files-are-complete", "expected config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "the-model-loads", "JSON"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"cut"), "weights-have-a-float-type", "SafetensorError"),
    ],
)
def test_a_damaged_checkpoint_fails_the_check_that_names_the_damage(
    family: str, damage: Damage, check: str, text: str, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "model", family)
    damage(folder)
    last = findings(folder, family, tmp_path)[-1]
    assert last.verdict == "fail" and re.fullmatch(check, last.check), last
    assert re.search(text, last.detail), last.detail


class TestShards:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return saved(tmp_path / "model", "chronos-bolt", max_shard_size="20KB")

    def test_all_shards_pass(self, folder: Path, tmp_path: Path) -> None:
        assert len(list(folder.glob("*.safetensors"))) > 2
        assert {one.verdict for one in findings(folder, "chronos-bolt", tmp_path)} == {"pass"}

    def test_an_absent_shard_is_named(self, folder: Path, tmp_path: Path) -> None:
        shard = sorted(folder.glob("*.safetensors"))[1]
        shard.unlink()
        (only,) = findings(folder, "chronos-bolt", tmp_path)
        assert only.verdict == "fail" and f"{shard.name} absent" in only.detail

    @pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": 3}', "{}"])
    def test_an_index_that_cannot_be_read_is_named(self, folder: Path, tmp_path: Path, text: str) -> None:
        (folder / "model.safetensors.index.json").write_text(text)
        (only,) = findings(folder, "chronos-bolt", tmp_path)
        assert only.verdict == "fail" and "expected an object with weight_map" in only.detail

    def test_a_file_that_the_index_does_not_name_is_extra(self, folder: Path, tmp_path: Path) -> None:
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        save_file({"a": torch.zeros(1)}, folder / "model-old.safetensors")
        assert "model-old.safetensors" not in index["weight_map"].values()
        (only,) = findings(folder, "chronos-bolt", tmp_path)
        assert "model-old.safetensors belong" in only.detail


def test_a_tied_tensor_may_be_stored_twice(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "chronos-bolt")
    change(lambda tensors: tensors.update({"encoder.embed_tokens.weight": tensors["shared.weight"].clone()}))(folder)
    last = findings(folder, "chronos-bolt", tmp_path)[-1]
    assert last.verdict == "pass" and "1 tied or unused" in last.detail


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("chronos-bolt", {"chronos_config": {"version": 3}}),
        ("flowstate", {"mlp_type": "mixture"}),
        ("lag-llama", {"experts": 8}),
        ("patchtst-fm", {"model_type": "patchtst-fm-2"}),
        ("ttm", {"multi_scale": True}),
    ],
)
def test_a_config_of_a_later_version_is_refused(family: str, changes: dict[str, Any], tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", family)
    change_config(folder, **changes)
    last = findings(folder, family, tmp_path)[-1]
    assert (last.check, last.verdict) == ("the-model-loads", "fail")
    assert str(folder) in last.detail and ";" in last.detail


@pytest.mark.parametrize("family", ["chronos-bolt", "lag-llama"])
def test_numbers_that_the_loaded_model_has_not_are_found(family: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint(family, saved(tmp_path / "model", family), tmp_path, 48, 12)
    network = checkpoint.subject.model.network
    with torch.no_grad():
        list(network.parameters())[-1].view(-1)[0] += 1e-3
    finding = judge(every_tensor_is_read, checkpoint)
    assert finding.verdict == "fail" and "other numbers than the files" in finding.detail
