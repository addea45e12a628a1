"""Weights of a file by the names of the network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tsfmscope.models.families import example_model
from tsfmscope.errors import ModelError
from tsfmscope.models import registry


@pytest.mark.parametrize(("family", "prefix"), [("flowstate", "model."), ("patchtst-fm", "backbone.")])
def test_weights_with_and_without_the_prefix_are_read_and_both_at_once_are_refused(
    tmp_path: Path, family: str, prefix: str
) -> None:
    example_model(family).save(tmp_path)
    file = tmp_path / "model.safetensors"
    named = load_file(file)
    assert all(name.startswith(prefix) for name in named)
    short = {name.removeprefix(prefix): value for name, value in named.items()}
    expected = registry.load(family, tmp_path, options={}).network.state_dict()
    save_file(short, file)
    found = registry.load(family, tmp_path, options={}).network.state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    name = min(short)
    save_file(named | {name: torch.zeros_like(short[name])}, file)
    with pytest.raises(ModelError, match=f"got weights .*{name}.* both with and without the prefix '{prefix}'"):
        registry.load(family, tmp_path, options={})
