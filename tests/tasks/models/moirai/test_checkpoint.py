"""Folders: those of the package load, it loads ours, and what is wrong is named."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from uni2ts.distribution import MixtureOutput, NormalOutput, StudentTOutput
from uni2ts.model.moirai.module import MoiraiModule

from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models.moirai.family import Moirai
from tsfmscope.tasks.series.types import Windows

Make = Callable[..., Windows]
CONFIG = {"d_model": 128, "num_layers": 3, "patch_sizes": [8, 16, 32]}


@pytest.fixture(scope="module")
def moirai() -> Moirai:
    return Moirai.new(CONFIG | {"patch_size": 8}, seed=1)


def same_forecasts(first: Moirai, second: Moirai, windows: Windows) -> bool:
    a, b = (family.forecast(windows, seeds=[1] * len(windows)).values for family in (first, second))
    return np.array_equal(a, b)


@pytest.mark.parametrize("components", [[StudentTOutput(), NormalOutput()], None])
def test_a_folder_of_the_package_loads(windows: Make, tmp_path: Path, components: list[Any] | None) -> None:
    family = Moirai.new(CONFIG, seed=5)
    output = MixtureOutput(components) if components else family.network.distr_output
    module = MoiraiModule(output, 128, 3, (8, 16, 32), 64, attn_dropout_p=0.5, dropout_p=0.1)
    module.save_pretrained(tmp_path)
    loaded = Moirai.load(tmp_path)
    tensors = loaded.network.state_dict()
    assert all(torch.equal(tensors[name], value) for name, value in module.state_dict().items())
    assert same_forecasts(loaded, loaded, windows())  # the package would drop out attention in eval mode too


@pytest.mark.parametrize("patch_size", [None, 16])
def test_the_package_loads_our_folder(windows: Make, tmp_path: Path, patch_size: int | None) -> None:
    family = Moirai.new(CONFIG | {"patch_size": patch_size}, seed=6)
    family.save(tmp_path)
    module = MoiraiModule.from_pretrained(tmp_path)
    tensors = family.network.state_dict()
    assert all(torch.equal(tensors[name], value) for name, value in module.state_dict().items())
    assert Moirai.load(tmp_path).config == family.config
    loaded = Moirai(module, family.config)
    assert same_forecasts(loaded, family, windows())


def test_weights_in_several_files_load(moirai: Moirai, windows: Make, tmp_path: Path) -> None:
    moirai.save(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    path.unlink()
    for place in range(2):
        save_file(dict(list(tensors.items())[place::2]), tmp_path / f"part-{place}.safetensors")
    assert same_forecasts(Moirai.load(tmp_path), moirai, windows())


def changed(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


EVIL = {"_target_": "uni2ts.distribution._base.torch.load", "f": "weights.bin"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"distr_output": EVIL}, "got _target_ 'uni2ts.distribution._base.torch.load', expected"),
        ({"distr_output": {"_target_": "os.system", "command": "true"}}, "got _target_ 'os.system'"),
        ({"distr_output": {"_target_": "uni2ts.distribution.MixtureOutput", "components": [EVIL]}}, "torch.load"),
        ({"distr_output": {"_target_": "uni2ts.distribution.StudentTOutput", "df": 3}}, "TypeError"),
        ({"distr_output": None}, "got _target_ None"),
        ({"d_model": 40}, "got d_model 40, expected a multiple of 64"),
        ({"d_model": 192}, "weights do not fit config.json.*another shape"),
        ({"num_layers": 4}, "weights do not fit config.json: missing .*encoder.layers.3"),
        ({"patch_sizes": []}, r"got patch_sizes \[\]"),
        ({"patch_size": 64}, "got patch_size 64, expected one of patch_sizes"),
    ],
)
def test_a_config_that_does_not_fit_is_named(
    moirai: Moirai, tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    moirai.save(tmp_path)
    changed(tmp_path, **changes)
    with pytest.raises(ModelError, match=text):
        Moirai.load(tmp_path)


def test_a_checkpoint_of_another_family_is_refused(tmp_path: Path, moirai: Moirai) -> None:
    moirai.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with pytest.raises(ModelError, match="are missing, so this is no moirai checkpoint; name the family"):
        Moirai.load(tmp_path)


def test_weights_that_are_missing_or_cut_are_named(moirai: Moirai, tmp_path: Path) -> None:
    moirai.save(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors["mask_encoding.weight"]
    save_file(tensors, path)
    with pytest.raises(ModelError, match=r"missing .'mask_encoding.weight'.*use the config that they were saved with"):
        Moirai.load(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ModelError, match=r"model.safetensors: weights cannot be read .*fetch or save the checkpoint"):
        Moirai.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"d_modle": 64}, r"unknown keys \['d_modle'\]"),
        ({"d_model": 102}, "got d_model 102, expected a multiple of 64"),
        ({"patch_sizes": [0, 8]}, r"got patch_sizes \[0, 8\]"),
        ({"patch_size": 5}, "got patch_size 5"),
    ],
)
def test_a_wrong_config_is_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Moirai.new(CONFIG | changes, seed=0)


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uni2ts.model.moirai.module", None)
    with pytest.raises(ModelError, match=r"family moirai: module 'uni2ts.* is missing; install it.*moirai"):
        Moirai.new(CONFIG, seed=0)
