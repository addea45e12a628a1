"""Files of a release with random weights: as the package's own class saves them, and errors of wrong ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.local_hub import LocalHub, Repository, serving
from tests.rehearsal.layouts import LAYOUTS, Checks, Layout
from tests.rehearsal.steps import inspect_step
from tests.rehearsal.weights import (
    LayoutError,
    check_files,
    file_header,
    folder_bytes,
    predict_bytes,
    random_tensor,
    tensor_shapes,
    write_folder,
)
from tsfmscope.models.lag_llama import LagLlama, read_lightning

BOLT = LAYOUTS["chronos-bolt-tiny"]
# The tests alter files of it, so that a file is small.
SMALL = {"d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}


def small_layout() -> Layout:
    return dataclasses.replace(BOLT, config={**BOLT.config, **SMALL}, checks=Checks(None))


def save_own_class(layout: Layout, folder: Path) -> None:
    """Save a network as its package does."""
    folder.mkdir()
    if layout.family == "moirai":
        from uni2ts.model.moirai.module import MoiraiModule, decode_distr_output

        config = dict(layout.config)
        config["distr_output"] = decode_distr_output(config["distr_output"])
        config["patch_sizes"] = tuple(config["patch_sizes"])
        MoiraiModule(**config).save_pretrained(folder)
        return
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config, T5ForConditionalGeneration

    classes: dict[str, Any] = {"chronos-bolt": ChronosBoltModelForForecasting}
    classes.get(layout.family, T5ForConditionalGeneration)(T5Config(**layout.config)).save_pretrained(folder)


def contents(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    with safe_open(path, "numpy") as file:
        slices = {name: file.get_slice(name) for name in list(file.keys())}
    return {name: (tuple(tensor.get_shape()), tensor.get_dtype()) for name, tensor in slices.items()}


@pytest.mark.parametrize(
    "name",
    [
        *("chronos-t5-tiny", "chronos-bolt-tiny", "moirai-small"),
        pytest.param("t5-base", marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
def test_names_shapes_and_dtypes_are_those_that_the_package_saves(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    save_own_class(layout, tmp_path / "own")
    shapes = write_folder(layout, tmp_path / "ours", seed=0)
    own, ours = (tmp_path / folder / "model.safetensors" for folder in ("own", "ours"))
    assert contents(ours) == contents(own)
    assert ours.stat().st_size == predict_bytes(shapes)
    if layout.family == "moirai":
        assert json.loads((tmp_path / "own" / "config.json").read_text()) == layout.config


def test_lag_llama_is_written_with_the_names_that_its_class_saves(tmp_path: Path) -> None:
    layout = LAYOUTS["lag-llama"]
    shapes = write_folder(layout, tmp_path, seed=0)
    assert [path.name for path in tmp_path.iterdir()] == ["lag-llama.ckpt"]
    state, hyper_parameters = read_lightning(tmp_path / "lag-llama.ckpt")
    model = LagLlama.load(tmp_path)
    model.save(tmp_path / "own")
    assert contents(tmp_path / "own" / "model.safetensors") == {name: (shape, "F32") for name, shape in shapes.items()}
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == shapes
    kwargs = hyper_parameters["model_kwargs"]
    assert {**kwargs, "distr_output": layout.config["distr_output"]} == layout.config


def test_a_file_has_the_bytes_that_safetensors_writes(tmp_path: Path) -> None:
    layout = small_layout()
    shapes = write_folder(layout, tmp_path, seed=3)
    tensors = {name: random_tensor(name, shape, 3) for name, shape in shapes.items()}
    save_file(tensors, tmp_path / "expected", {"format": "pt"})
    assert (tmp_path / "model.safetensors").read_bytes() == (tmp_path / "expected").read_bytes()
    assert folder_bytes(tmp_path) == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    layout = small_layout()
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_folder(layout, tmp_path / folder, seed)
    a, b, c = ((tmp_path / folder / "model.safetensors").read_bytes() for folder in "abc")
    assert a == b != c


def test_scales_of_norms_are_one_and_no_two_matrices_are_equal() -> None:
    shapes = tensor_shapes(LAYOUTS["moirai-small"])
    ones = {name for name, shape in shapes.items() if torch.equal(random_tensor(name, shape, 0), torch.ones(shape))}
    assert ones == {name for name in shapes if "norm" in name}
    q, k = (random_tensor(f"encoder.layers.0.self_attn.{m}_proj.weight", (384, 384), 0) for m in "qk")
    assert not torch.equal(q, k)
    assert q.std().item() == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize("count", range(12))
def test_a_header_is_padded_to_a_multiple_of_eight(count: int) -> None:
    header = file_header({"a" * (count + 1): (2, 3)})
    assert len(header) % 8 == 0
    assert json.loads(header[8:])["a" * (count + 1)] == {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


NAME = "encoder.block.0.layer.0.SelfAttention.q.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(NAME), rf"tensor {NAME} of .*: got none, expected F32 \[16, 16\]"),
        (lambda tensors: tensors.update({NAME: torch.zeros(8, 32)}), r"got F32 \[8, 32\], expected F32 \[16, 16\]"),
        (lambda tensors: tensors.update({NAME: tensors[NAME].half()}), r"got F16 \[16, 16\], expected F32 \[16, 16\]"),
        (lambda tensors: tensors.update(more=torch.zeros(1)), r"tensor more of .*: got F32 \[1\], expected none"),
    ],
    ids=["missing", "shape", "dtype", "extra"],
)
def test_a_file_with_a_wrong_tensor_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    layout = small_layout()
    shapes = write_folder(layout, tmp_path, seed=0)
    check_files(layout, tmp_path, shapes)
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(LayoutError, match=message):
        check_files(layout, tmp_path, shapes)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"got no config\.json, expected all files of the release"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 40), "cannot be read .*write or fetch"),
    ],
    ids=["missing", "damaged"],
)
def test_a_folder_without_a_readable_file_is_refused(tmp_path: Path, harm: Any, message: str) -> None:
    layout = small_layout()
    shapes = write_folder(layout, tmp_path, seed=0)
    harm(tmp_path)
    with pytest.raises(LayoutError, match=message):
        check_files(layout, tmp_path, shapes)


def test_a_loaded_tensor_with_other_values_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = small_layout()
    write_folder(layout, tmp_path / "files", seed=0)
    path = tmp_path / "files" / "model.safetensors"
    with serving(LocalHub()) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        server.repositories[layout.repository] = Repository.of_folder(tmp_path / "files")
        row = inspect_step(layout, tmp_path / "cache", 0)
        assert (row["layers"], row["tokens"]) == (2, 5)
        tensors = load_file(path)
        tensors[NAME][3, 5] += 0.5
        save_file(tensors, path, {"format": "pt"})
        server.repositories[layout.repository] = Repository.of_folder(tmp_path / "files")
        with pytest.raises(LayoutError, match=rf"tensor {NAME}: got values that differ by up to 0\.5"):
            inspect_step(layout, tmp_path / "other", 0)


def test_the_tokenizer_has_the_size_of_t5s_and_reads_text(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    from tests.rehearsal.weights import write_tokenizer

    write_tokenizer(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 32_100
    assert [tokenizer.token_to_id(name) for name in ("<pad>", "</s>", "<unk>", "<extra_id_0>")] == [0, 1, 2, 32_099]
    encoded = tokenizer.encode("a text.")
    assert 2 not in encoded.ids
    assert tokenizer.decode(encoded.ids) == "a text."
