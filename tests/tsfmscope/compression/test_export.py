"""Exported models: a package's own class forecasts from a dense folder, with no code of ours, what ours does from the
compressed one, and a compressed one that it opens by mistake is refused."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.compression import stock
from tsfmscope.compression import export
from tsfmscope.compression.calibration import gather
from tsfmscope.compression.options import Method
from tsfmscope.compression.truncation import compress
from tsfmscope.errors import ModelError
from tsfmscope.models.base import Family
from tsfmscope.models.common.attention import Projections, Widths, shapes
from tsfmscope.models.registry import facts, family_class
from tsfmscope.series import other_modalities
from tsfmscope.series.types import Windows

# Families that a package forecasts with, and those that only this project runs.
CONFIGS: dict[str, dict[str, Any]] = {name: dict(family_class(name).example) for name in stock.STOCK}
CONFIGS["vit"] |= {"image_size": 16, "patch_size": 4}
OWN: dict[str, dict[str, Any]] = {
    "lag-llama": {"context_length": 32, "n_layer": 2, "n_head": 2, "n_embd_per_head": 8, "lags": (0, 1, 2, 7)},
    "moment": {**family_class("moment").example, "d_kv": 8},
    "patchtst-fm": dict(family_class("patchtst-fm").example),
    "time-moe": dict(family_class("time-moe").example),
    "toto-2": dict(family_class("toto-2").example),
    "totem": {**family_class("totem").example, "context_length": 32, "prediction_length": 8},
}
LENGTHS = {"prediction_length": stock.HORIZON, "context_length": stock.STEPS}
OPTIONS: dict[str, dict[str, Any]] = {"moirai": LENGTHS, "moirai-2": LENGTHS}


def stock_windows(name: str) -> Windows:
    """Return three windows that a family reads: crops of images for ViT, else the walks of `stock`."""
    values = stock.context().numpy()
    if name == "vit":
        crops = other_modalities.crops(3, 16, np.random.default_rng(0), is_training=True)
        values = np.stack([other_modalities.item(crop) for crop in crops]).astype(np.float32)
    steps = 1 if name == "vit" else stock.HORIZON
    origin = np.full(3, values.shape[1] - steps)
    return Windows(values[:, :-steps], values[:, -steps:], ["a", "b", "c"], origin, "x", "D", 1)


def assert_same(found: np.ndarray, wanted: np.ndarray) -> None:
    """To 1e-5 of the largest value: float32's rounding."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def compress_model(family: str) -> Family:
    """Random weights with narrower heads, each layer at widths of its own, value biases moved into output biases."""
    model = family_class(family).new((CONFIGS | OWN)[family], seed=1)
    rng = np.random.default_rng(0)
    for index, layer in enumerate(model.attentions()):
        one = layer.read()
        key = 1 + index % (one.widths.key - 1) if layer.plain else one.widths.key
        narrow = one.slice_heads(Widths(key, 1 + (2 * index) % (one.widths.value - 1)))
        if narrow.v_bias is not None:
            moved = rng.normal(size=narrow.o.shape[1])
            narrow = narrow._replace(v_bias=None, o_bias=moved if narrow.o_bias is None else narrow.o_bias + moved)
        layer.write(narrow._replace(k_bias=None))
    model.compression = {"widths": shapes(model.attentions())}
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Path]]:
    """`plain` and `dense` -> family -> a folder of the same compressed model."""
    root = tmp_path_factory.mktemp("exported")
    compressed: dict[str, dict[str, Path]] = {"plain": {}, "dense": {}}
    for family in CONFIGS | OWN:
        compressed["plain"][family], compressed["dense"][family] = (root / kind / family for kind in ("plain", "dense"))
        export.save(compress_model(family), compressed["plain"][family])
        export.save(export.densify(family_class(family).load(compressed["plain"][family])), compressed["dense"][family])
    return compressed


@pytest.fixture(scope="module")
def fresh(folders: dict[str, dict[str, Path]], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, np.ndarray]:
    """FAMILY/WHAT -> what the stock packages make of the dense folders, in a process that imports nothing of ours."""
    out = tmp_path_factory.mktemp("fresh") / "answers.npz"
    named = [f"{family}={folders['dense'][family]}" for family in CONFIGS]
    script = out.with_name("stock.py")
    script.write_text(Path(stock.__file__).read_text())
    run = [sys.executable, "-I", str(script), *named, str(out)]
    done = subprocess.run(run, cwd=out.parent, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(np.load(out))


@pytest.mark.parametrize(  # by transformers; by safetensors itself
    ("family", "mask", "mode"), [("chronos-bolt", 0o022, 0o644), ("moirai", 0o022, 0o644), ("time-moe", 0o077, 0o600)]
)
def test_who_may_read_a_saved_model_is_what_the_umask_says(family: str, mask: int, mode: int, tmp_path: Path) -> None:
    former = os.umask(mask)
    try:
        export.save(compress_model(family), tmp_path / "plain")
        export.save(export.densify(family_class(family).load(tmp_path / "plain")), tmp_path / "dense")
    finally:
        os.umask(former)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*/*")}
    assert modes.keys() >= {"config.json", "model.safetensors", "compressed.safetensors"}
    assert set(modes.values()) == {mode}


@pytest.mark.parametrize("family", CONFIGS)
def test_the_stock_package_forecasts_from_a_dense_folder_what_ours_does_from_the_compressed_one(
    family: str, folders: dict[str, dict[str, Path]], fresh: Mapping[str, np.ndarray]
) -> None:
    ours = export.pipeline(folders["plain"][family], family, **OPTIONS.get(family, {}))
    answers = stock.answer(family, ours.network if family == "wavetoken" or family == "visionts" else ours)
    assert answers
    for name, values in answers.items():
        assert np.isfinite(values).all() and np.ptp(values) > 1e-3
        assert_same(fresh[f"{family}/{name}"], values)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_dense_folder_has_the_config_and_the_shapes_of_the_original(
    family: str, folders: dict[str, dict[str, Path]], tmp_path: Path
) -> None:
    original = family_class(family).new(CONFIGS[family], seed=1)
    original.save(tmp_path)
    dense = folders["dense"][family]
    assert json.loads((dense / "config.json").read_text()) == json.loads((tmp_path / "config.json").read_text())
    assert facts(dense)["parameters"] == facts(tmp_path)["parameters"]
    assert "compression" in json.loads((folders["plain"][family] / "config.json").read_text())
    assert facts(folders["plain"][family])["parameters"] < facts(dense)["parameters"]


@pytest.mark.parametrize("family", CONFIGS)
def test_a_compressed_folder_that_the_stock_package_opens_is_refused(
    family: str, folders: dict[str, dict[str, Path]]
) -> None:
    with pytest.raises((OSError, RuntimeError), match=r"model\.safetensors"):
        stock.STOCK[family][0](str(folders["plain"][family]))


@pytest.mark.parametrize("family", OWN)
def test_of_our_own_networks_a_dense_folder_is_the_same_function(
    family: str, folders: dict[str, dict[str, Path]]
) -> None:
    found = [family_class(family).load(folders[kind][family]) for kind in ("plain", "dense")]
    values = torch.from_numpy(np.random.default_rng(3).normal(size=(3, 40)).cumsum(axis=1).astype(np.float32))
    assert found[0].compression is not None and found[1].compression is None
    with torch.no_grad():
        losses = []
        for model in found:
            # PatchTST-FM and MOMENT draw masks.
            torch.manual_seed(0)
            losses.append(float(model.loss(values[:, :32], values[:, 32:])))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    windows = Windows(values[:, :32].numpy(), values[:, 32:].numpy(), list("abc"), np.full(3, 32), "x", "D", 1)
    for narrow, dense in zip(*(model.hidden_states(model.tokenize(windows)) for model in found), strict=True):
        assert_same(dense.states, narrow.states)
    assert {layer.widths for layer in found[1].attentions()} == {Widths(8, 8)}


@pytest.mark.parametrize("method", ["svd", "joint", "activation-aware", "activation-aware-svd", "project"])
@pytest.mark.parametrize("family", ["chronos-bolt", "patchtst"])  # the latter has biases everywhere
def test_what_every_method_makes_is_exported_whole(family: str, method: str, tmp_path: Path) -> None:
    model = family_class(family).new(CONFIGS[family], seed=2)
    moments = gather(model, model.tokenize(stock_windows(family)))
    asked = Method.model_validate({"method": method, "ranks": {"share": 0.3}})
    compress(model, asked, moments)
    wanted = stock.answer(family, export.as_package_model(model))
    export.save(model, tmp_path / "plain")
    loaded = family_class(family).load(tmp_path / "plain")
    block = json.loads((tmp_path / "plain" / "config.json").read_text())["compression"]
    assert block == loaded.compression == model.compression and block | asked.to_dict() == block
    export.save(export.densify(loaded), tmp_path / "dense")
    for answers in (
        stock.answer(family, export.pipeline(tmp_path / "plain", family)),
        stock.answer(family, stock.STOCK[family][0](str(tmp_path / "dense"))),
    ):
        for name, found in answers.items():
            assert_same(found, wanted[name])
    with pytest.raises((OSError, RuntimeError), match=r"model\.safetensors"):
        stock.STOCK[family][0](str(tmp_path / "plain"))


def test_an_output_bias_that_the_original_has_not_is_made_by_a_value_that_is_always_one() -> None:
    """By hand: one head, values of width 1 of 2; attention weights w sum to 1, so sum w (0 x + 1) = 1."""
    one = Projections(*(np.ones((1, 1, 3)),) * 3, np.ones((1, 3, 1)), o_bias=np.array([1.0, 2.0, 3.0]))
    compressed = export.pad_heads(one, Widths(2, 2), ["v"], "layer")
    assert compressed.o_bias is None and compressed.v_bias is not None
    weights, inputs = np.array([0.25, 0.75]), np.arange(6.0).reshape(2, 3)
    values = inputs @ compressed.v[0].T + compressed.v_bias[0]
    np.testing.assert_allclose(
        compressed.o[0] @ (weights @ values), one.o[0] @ (weights @ (inputs @ one.v[0].T)) + one.o_bias
    )


def test_an_output_bias_of_full_heads_comes_out_of_the_values_that_made_it() -> None:
    """Two query heads of one key head at full width: what absorption moved there goes back."""
    rng = np.random.default_rng(0)
    o, bias = rng.normal(size=(2, 6, 2)), rng.normal(size=(1, 2))
    moved = (o @ bias[0]).sum(axis=0)
    one = Projections(np.ones((2, 1, 3)), np.ones((1, 1, 3)), rng.normal(size=(1, 2, 3)), o, o_bias=moved)
    compressed = export.pad_heads(one, Widths(1, 2), ["v"], "layer")
    assert compressed.o_bias is None and compressed.v_bias is not None
    np.testing.assert_allclose(compressed.v_bias, bias)


@pytest.mark.parametrize(("biases", "value"), [(["q"], 2), (["v"], 1), ([], 2)])
def test_an_output_bias_without_a_place_is_refused(biases: list[str], value: int) -> None:
    one = Projections(*(np.ones((1, 1, 3)),) * 3, np.ones((1, 3, 1)), o_bias=np.arange(3.0))
    with pytest.raises(ModelError, match=r"decoder\.1\.self: the original has no bias of o"):
        export.pad_heads(one, Widths(1, value), biases, "decoder.1.self")


def test_options_that_a_pipeline_does_not_take_are_named(folders: dict[str, dict[str, Path]]) -> None:
    with pytest.raises(ValueError, match="pipeline of chronos-bolt: got options"):
        export.pipeline(folders["plain"]["chronos-bolt"], "chronos-bolt", patch_size=8)
    with pytest.raises(ValueError, match=r"pipeline of moirai: .*context_length"):
        export.pipeline(folders["plain"]["moirai"], "moirai", prediction_length=8)
