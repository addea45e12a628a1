"""Which files of a checkpoint folder are read, and which folders are refused; damage to any file is named."""

from __future__ import annotations

import json
import logging
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from stages.planning.checkpoints import CARD
from tests.tsfmscope.models.families import COMMITTED, READERS, change_config, example_model
from tsfmscope.errors import HubError, ModelError
from tsfmscope.models import registry
from tsfmscope.models.common.checkpoint_folder import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    COMPRESSED,
    INDEX,
    STOCK,
    SUMS,
    limit_parameters,
    verify_sums,
    weight_files,
    write_recipe,
    write_sums,
)
from tsfmscope.models.registry import family_of_folder

# Families with a checkpoint here; the other families of the same kind read folders with the same functions.
FAMILIES = sorted(COMMITTED)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the smallest checkpoint of a family."""
    family = getattr(request, "param", "chronos-bolt")
    shutil.copytree(COMMITTED[family], tmp_path / family)
    (tmp_path / family / "checksums.sha256").unlink()
    return tmp_path / family


def weights_of(folder: Path, family: str | None = None) -> dict[str, torch.Tensor]:
    return dict(registry.load(family or folder.name, folder, options={}).network.state_dict())


def split(folder: Path) -> list[Path]:
    """Write the weights as two files and their index, and return the files."""
    tensors = load_file(folder / STOCK)
    names = sorted(tensors)
    halves = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, folder / file, {"format": "pt"})
    write_index(folder, {name: file for file, part in halves.items() for name in part})
    (folder / STOCK).unlink()
    return [folder / file for file in halves]


def write_index(folder: Path, weight_map: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return set(found) == set(expected) and all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("folder", FAMILIES, indirect=True)
def test_a_second_file_of_weights_is_not_read_and_not_in_the_fingerprint(folder: Path) -> None:
    expected, fingerprint, facts = weights_of(folder), registry.fingerprint(folder), registry.facts(folder)
    averaged = {name: torch.ones_like(value) for name, value in load_file(folder / STOCK).items()}
    for name in ("model_ema.safetensors", "model.fp16.safetensors", "a.safetensors"):
        save_file(averaged, folder / name)
    assert weight_files(folder) == [folder / STOCK]
    assert registry.fingerprint(folder) == fingerprint and registry.facts(folder) == facts
    assert same(weights_of(folder), expected)


@pytest.mark.parametrize("folder", FAMILIES, indirect=True)
def test_weights_in_several_files_are_those_of_one_and_each_is_in_the_fingerprint(folder: Path) -> None:
    expected = weights_of(folder)
    files = split(folder)
    shutil.copy(files[0], folder / "model-00003-of-00003.safetensors")
    assert weight_files(folder) == files
    assert same(weights_of(folder), expected)
    fingerprints = [registry.fingerprint(folder)]
    for path in (*files, folder / INDEX):
        path.write_bytes(path.read_bytes() + b" ")
        fingerprints.append(registry.fingerprint(folder))
    assert len(set(fingerprints)) == 4


@pytest.mark.parametrize("folder", ["chronos-t5", "moirai", "tabular", "patchtst"], indirect=True)
@pytest.mark.parametrize("name", ["../outside.safetensors", "/outside.safetensors", "weights.bin", 5, ""])
def test_an_index_that_names_anything_but_safetensors_in_the_folder_is_refused(folder: Path, name: Any) -> None:
    shutil.copy(folder / STOCK, folder.parent / "outside.safetensors")
    shutil.copy(folder / STOCK, folder / "weights.bin")
    write_index(folder, dict.fromkeys(load_file(folder / STOCK), name))
    (folder / STOCK).unlink()
    for read in (weight_files, registry.fingerprint, weights_of):
        with pytest.raises(ModelError, match=f"{INDEX}: (got file {name!r}, expected names|expected an object)"):
            read(folder)


@pytest.mark.parametrize("content", ["[]", "{", "{}", '{"weight_map": {}}', '{"weight_map": [1]}', "[" * 100_000])
def test_an_index_that_is_none_is_named(folder: Path, content: str) -> None:
    (folder / STOCK).unlink()
    (folder / INDEX).write_text(content)
    with pytest.raises(ModelError, match=f"{INDEX}: "):
        weights_of(folder)


def outside(path: Path) -> Path:
    """Move a file out of its folder, and return its new place."""
    new = path.parent.parent / "outside.safetensors"
    path.replace(new)
    return new


LINKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link that leaves the folder": (lambda path: path.symlink_to(outside(path)), "got a link to .*outside"),
    "no file": (lambda path: path.unlink(), "No such file"),
    "a link to nothing": (lambda path: (path.unlink(), path.symlink_to("nowhere")), "No such file"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "expected a regular file, got a folder"),
    "a device": (lambda path: (path.unlink(), path.symlink_to("/dev/zero")), "got a device"),
}


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("is_split", [True, False])
def test_weights_that_are_no_file_of_the_folder_are_refused(folder: Path, kind: str, is_split: bool) -> None:
    if not is_split and kind == "no file":
        pytest.skip("a folder without weights has a test of its own")
    path = split(folder)[1] if is_split else folder / STOCK
    change, message = LINKS[kind]
    change(path)
    with pytest.raises(ModelError, match=f"{path.name}: .*{message}"):
        registry.resolve(str(folder))


def test_links_inside_the_folder_and_to_the_blobs_of_the_hubs_cache_are_read(folder: Path, tmp_path: Path) -> None:
    expected = weights_of(folder)
    (folder / STOCK).rename(folder / "weights")
    (folder / STOCK).symlink_to("weights")
    assert same(weights_of(folder), expected)
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "0", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name in ("config.json", STOCK):
        shutil.copy(folder / name, blobs / f"hash-{name}")
        (snapshot / name).symlink_to(f"../../blobs/hash-{name}")
    assert same(weights_of(snapshot, "chronos-bolt"), expected)
    (snapshot / STOCK).unlink()
    (snapshot / STOCK).symlink_to(folder / STOCK)
    with pytest.raises(ModelError, match="got a link to"):
        weights_of(snapshot, "chronos-bolt")


def test_other_names_and_two_files_that_both_count_are_refused(folder: Path) -> None:
    shutil.copy(folder / STOCK, folder / COMPRESSED)
    with pytest.raises(ModelError, match=f"got both {COMPRESSED} and {STOCK}, expected one"):
        registry.resolve(str(folder))
    (folder / COMPRESSED).unlink()
    (folder / STOCK).rename(folder / "model_ema.safetensors")
    with pytest.raises(ModelError, match=f"not a checkpoint: got .*expected {STOCK}, or {INDEX}"):
        registry.resolve(str(folder))
    for n in range(1000):
        (folder / f"{n:0200}.txt").touch()
    with pytest.raises(ModelError) as caught:
        registry.resolve(str(folder))
    assert len(str(caught.value)) < 1500 and "more, expected" in str(caught.value)


@pytest.mark.parametrize("folder", [*READERS, "chronos-bolt", "patchtst", "flowstate", "ttm"], indirect=True)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("quantization_config", {"quant_method": "bitsandbytes", "load_in_4bit": True}),
        ("quantization_config", {"quant_method": "torchao", "quant_type": "int8_weight_only"}),
        ("attn_implementation", "flash_attention_2"),
        ("attn_implementation", "org/kernel"),
        ("_attn_implementation", "flash_attention_2"),
        ("transformers_weights", "model_ema.safetensors"),
    ],
)
def test_a_config_that_asks_for_other_numbers_or_packages_is_refused(folder: Path, key: str, value: Any) -> None:
    save_file(load_file(folder / STOCK), folder / "model_ema.safetensors")
    change_config(folder, **{key: value})
    with pytest.raises(ModelError, match=rf"config.json: {key}: got .*expected none.*remove the key") as caught:
        weights_of(folder)
    assert "\n" not in str(caught.value)


def test_a_package_that_is_missing_while_a_model_is_loaded_is_an_error_that_names_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="ImportError: no bitsandbytes"), limit_parameters(folder):
        raise ImportError("no bitsandbytes")
    monkeypatch.setitem(sys.modules, "chronos.chronos_bolt", None)
    with pytest.raises(ModelError, match=r"module 'chronos\.chronos_bolt' is missing; install"):
        weights_of(folder)


@pytest.mark.parametrize("folder", ["chronos-2", "chronos-bolt", "moirai"], indirect=True)
def test_an_adapter_says_how_it_is_merged_alone_and_next_to_a_model(folder: Path, tmp_path: Path) -> None:
    (folder / ADAPTER).write_text(json.dumps({"base_model_name_or_path": "amazon/chronos-2", "peft_type": "LORA"}))
    save_file({"base_model.model.q.lora_A.weight": torch.ones(2, 2)}, folder / ADAPTER_WEIGHTS)
    both = "LoRA adapter of 'amazon/chronos-2' is next to the weights of a whole model; merge it .*or remove adapter_"
    for read in (weights_of, registry.fingerprint, family_of_folder):
        with pytest.raises(ModelError, match=both):
            read(folder)
    (folder / ADAPTER).rename(tmp_path / "kept")
    with pytest.raises(ModelError, match="adapter of a base model that it does not name is next to"):
        registry.resolve(str(folder))
    for name in (STOCK, "config.json"):
        (folder / name).unlink()
    (tmp_path / "kept").rename(folder / ADAPTER)
    alone = r"LoRA adapter of 'amazon/chronos-2' is not a whole model; merge it \(with peft: .*merge_and_unload\(\)"
    for read in (registry.fingerprint, family_of_folder):
        with pytest.raises(ModelError, match=alone):
            read(folder)
    # As a reference, it is an adapter of a base model that has to be had.
    with pytest.raises(HubError, match=r"amazon/chronos-2: not in the hub's .*: ADAPTER.FOLDER"):
        registry.resolve(str(folder))


@pytest.mark.parametrize("folder", ["chronos-bolt", "patchtst"], indirect=True)
def test_tensors_that_are_not_read_are_one_short_line_and_no_package_prints_the_config(
    folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = weights_of(folder)
    tensors = load_file(folder / STOCK)
    unknown = {f"\x1b[31m{n:0300}": torch.zeros(1) for n in range(2000)}
    save_file(tensors | unknown, folder / STOCK, {"format": "pt"})
    capfd.readouterr()
    with caplog.at_level(logging.WARNING):
        assert same(weights_of(folder), expected)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("transformers")] == []
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("tsfmscope")]
    assert "2000 tensors are not of this network and are not read" in line and "and 1995 more" in line
    assert len(line) < 1000 and "\x1b" not in line
    if folder.name == "chronos-bolt":
        change_config(folder, model_type="\x1b[31mred")
        assert same(weights_of(folder), expected)
    printed = "".join(capfd.readouterr())
    assert "\x1b[31m" not in printed and "LOAD REPORT" not in printed


@pytest.mark.parametrize("folder", ["chronos-t5", "t5-text", "wavetoken"], indirect=True)
def test_a_head_of_its_own_that_the_weights_lack_is_refused(folder: Path) -> None:
    tensors = load_file(folder / STOCK)
    assert "lm_head.weight" not in tensors
    weights_of(folder)
    change_config(folder, tie_word_embeddings=False)
    with pytest.raises(ModelError, match=r"lm_head.weight is missing, but config.json has tie_word_embeddings false"):
        weights_of(folder)
    head = tensors["shared.weight"] + 1
    save_file(tensors | {"lm_head.weight": head}, folder / STOCK, {"format": "pt"})
    assert torch.equal(weights_of(folder)["lm_head.weight"], head)


@pytest.mark.parametrize(("name", "rest"), [("model.safetensors", ""), ("epoch=3-step=200.ckpt", ".*lag-llama.ckpt")])
def test_the_path_of_a_file_is_answered_with_that_of_its_folder(folder: Path, name: str, rest: str) -> None:
    path = folder / name
    path.touch()
    with pytest.raises(ModelError, match=f"{name}: got a file, expected a folder; name the folder{rest}"):
        registry.resolve(str(path))


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


ROOT = Path(__file__).parents[4] / "tsfmscope" / "checkpoints"
BUNDLED = sorted(path.name for path in ROOT.iterdir() if path.is_dir())


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A checkpoint with a snapshot of its training."""
    shutil.copytree(ROOT / "chronos-bolt-mini", tmp_path / "m", ignore=shutil.ignore_patterns(SUMS))
    shutil.copytree(ROOT / "chronos-bolt-mini", tmp_path / "m/snapshots/step-1", ignore=shutil.ignore_patterns(SUMS))
    write_sums(tmp_path / "m")
    return tmp_path / "m"


@pytest.mark.parametrize("name", BUNDLED)
def test_every_file_of_a_committed_checkpoint_but_its_card_is_recorded_and_as_recorded(name: str) -> None:
    verify_sums(ROOT / name)
    names = {line.split("  ")[1] for line in (ROOT / name / SUMS).read_text().splitlines()}
    assert names == {path.name for path in (ROOT / name).iterdir()} - {SUMS, CARD}


@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_bit_of_any_file_is_named_when_the_model_is_resolved(recorded: Path, seed: int) -> None:
    registry.resolve(str(recorded))
    draw = random.Random(seed)
    path = draw.choice(sorted(path for path in recorded.rglob("*") if path.is_file()))
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    try:
        registry.resolve(str(recorded))
    except ModelError as error:
        said = str(error)
        assert (
            said.startswith(f"{recorded}/") and "expected" in said and "found" in said and "restore the folder" in said
        )
    else:
        assert path.name == SUMS  # a line break for another, say
        verify_sums(recorded)


def test_the_error_names_file_expected_found_and_what_to_do(recorded: Path) -> None:
    (recorded / "config.json").write_text("{}")
    with pytest.raises(ModelError) as raised:
        verify_sums(recorded)
    digest = "[0-9a-f]{64}"
    assert re.fullmatch(
        rf"{recorded}/config\.json: damaged: expected SHA-256 {digest}, found {digest}; restore the folder \(`git "
        rf"checkout` or `dvc checkout`\), or delete its {SUMS} where the change is meant",
        str(raised.value),
    )


def test_a_snapshot_is_held_to_the_checksums_of_its_checkpoint(recorded: Path) -> None:
    snapshot = recorded / "snapshots" / "step-1"
    registry.resolve(str(snapshot))
    (recorded / "config.json").write_text("{}")  # not of the snapshot
    registry.resolve(str(snapshot))
    (snapshot / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"step-1/config\.json: damaged"):
        registry.resolve(str(snapshot))


def test_a_file_that_is_gone_is_named(recorded: Path) -> None:
    (recorded / "training.json").unlink()
    with pytest.raises(ModelError, match=r"training\.json: damaged: .* found no such file"):
        verify_sums(recorded)


@pytest.mark.parametrize("line", ["no checksum", "00  /etc/passwd", "00  ../config.json", "00  "])
def test_a_record_that_is_none_is_named(recorded: Path, line: str) -> None:
    (recorded / SUMS).write_text(f"{line}\n")
    with pytest.raises(ModelError, match=f"{SUMS}: damaged: expected lines of a SHA-256"):
        verify_sums(recorded)


def test_a_folder_without_a_record_is_taken_as_it_is(recorded: Path) -> None:
    (recorded / SUMS).unlink()
    (recorded / "config.json").write_text("{}")
    verify_sums(recorded)


def test_the_record_covers_the_recipe_and_is_what_sha256sum_checks(recorded: Path) -> None:
    write_recipe(recorded, {"key": "k"})
    verify_sums(recorded)
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=recorded, check=True)
    (recorded / "recipe.json").write_text("{}")
    with pytest.raises(ModelError, match=r"recipe\.json: damaged"):
        verify_sums(recorded)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_file_of_checksums_that_was_cut_short_is_damage(recorded: Path, kept: int) -> None:
    lines = (recorded / SUMS).read_text().splitlines(keepends=True)
    (recorded / SUMS).write_text("".join(lines[:kept]))
    with pytest.raises(ModelError, match=rf"{SUMS}: damaged: expected a line for .*model\.safetensors, found none"):
        registry.resolve(str(recorded))
