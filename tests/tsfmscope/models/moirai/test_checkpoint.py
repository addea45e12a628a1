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

from tsfmscope.errors import ModelError
from tsfmscope.models.moirai import Moirai
from tsfmscope.series.types import Windows

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
    parts = {f"part-{place}.safetensors": dict(list(tensors.items())[place::2]) for place in range(2)}
    for name, part in parts.items():
        save_file(part, tmp_path / name)
    shards = {tensor: name for name, part in parts.items() for tensor in part}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    assert same_forecasts(Moirai.load(tmp_path), moirai, windows())


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


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uni2ts.model.moirai.module", None)
    with pytest.raises(ModelError, match=r"family moirai: module 'uni2ts.* is missing; install it.*moirai"):
        Moirai.new(CONFIG, seed=0)
