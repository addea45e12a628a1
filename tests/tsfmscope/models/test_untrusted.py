"""Checkpoints that somebody else made: what is wrong is an error that names the file, and nothing in them is run."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.tsfmscope.models.families import COMMITTED, READERS, change_config
from tsfmscope.errors import ModelError
from tsfmscope.models.common.checkpoint_folder import LARGEST_CONFIG
from tsfmscope.models.registry import family_class

GROWING = 3 * 2**30  # bytes of address space that a load may take


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A family and a copy of its committed checkpoint."""
    folder = tmp_path / "model"
    shutil.copytree(COMMITTED[request.param], folder)
    return request.param, folder


@contextmanager
def bounded() -> Iterator[None]:
    """Memory that a hostile file may not exceed."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + GROWING, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def refused(family: str, folder: Path) -> str:
    """What the error says."""
    with bounded(), pytest.raises(ModelError) as caught:
        family_class(family).load(folder)
    return str(caught.value)


def weights(folder: Path) -> Path:
    return folder / "model.safetensors"


def with_header(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Write the header of the weights anew."""
    content = weights(folder).read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    tensors = {name: told for name, told in header.items() if name != "__metadata__"}
    change(next(iter(tensors.values())))
    text = json.dumps(header).encode()
    weights(folder).write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])


BROKEN_WEIGHTS: dict[str, Callable[[Path], object]] = {
    "nothing in it": lambda folder: weights(folder).write_bytes(b""),
    "cut off": lambda folder: os.truncate(weights(folder), weights(folder).stat().st_size - 1000),
    "noise": lambda folder: weights(folder).write_bytes(bytes(range(256)) * 20),
    "a header of 2^60 bytes": lambda folder: weights(folder).write_bytes(
        struct.pack("<Q", 2**60) + weights(folder).read_bytes()[8:]
    ),
    "data beyond its end": lambda folder: with_header(folder, lambda told: told.update(data_offsets=[0, 2**50])),
    "data before its start": lambda folder: with_header(folder, lambda told: told.update(data_offsets=[-8, 0])),
    "2^62 numbers": lambda folder: with_header(folder, lambda told: told.update(shape=[2**40, 2**22])),
    "numbers of no known type": lambda folder: with_header(folder, lambda told: told.update(dtype="F31")),
}


@pytest.mark.parametrize("made", READERS, indirect=True)
@pytest.mark.parametrize("how", BROKEN_WEIGHTS)
def test_weights_that_lie_are_an_error_that_names_their_folder(made: tuple[str, Path], how: str) -> None:
    family, folder = made
    BROKEN_WEIGHTS[how](folder)
    assert str(folder) in refused(family, folder)


BROKEN_CONFIGS: dict[str, Callable[[Path], object]] = {
    "a list": lambda folder: (folder / "config.json").write_text("[]"),
    "cut off": lambda folder: os.truncate(folder / "config.json", 20),
    "no text": lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\x00"),
    "two hundred thousand brackets": lambda folder: (folder / "config.json").write_text("[" * 200_000),
    "seventeen million bytes": lambda folder: (folder / "config.json").write_text(" " * (LARGEST_CONFIG + 1)),
    "a number that is none": lambda folder: change_config(folder, dropout_rate=float("nan")),
    "a number without end": lambda folder: change_config(folder, chronos_config={"a": [float("inf")]}),
}


@pytest.mark.parametrize("made", READERS, indirect=True)
@pytest.mark.parametrize("how", BROKEN_CONFIGS)
def test_a_config_that_is_none_is_an_error_that_names_it(made: tuple[str, Path], how: str) -> None:
    family, folder = made
    BROKEN_CONFIGS[how](folder)
    assert str(folder / "config.json") in refused(family, folder)


LAYERS = ("num_layers", "num_decoder_layers", "num_hidden_layers", "n_layer", "n_layers")


@pytest.mark.parametrize("made", READERS, indirect=True)
@pytest.mark.parametrize("count", [10**9, 0, -1, "3", 2.5, True, [4]])
def test_a_number_of_layers_that_the_weights_do_not_have_is_refused_at_once(made: tuple[str, Path], count: Any) -> None:
    family, folder = made
    held = json.loads((folder / "config.json").read_text())
    change_config(folder, **{name: count for name in LAYERS if name in held})
    assert str(folder) in refused(family, folder)


@pytest.mark.parametrize("made", ["chronos-bolt", "chronos-2"], indirect=True)
@pytest.mark.parametrize("key", ["input_patch_size", "input_patch_stride", "context_length"])
@pytest.mark.parametrize("value", [0, -1, "16", 2.5])
def test_a_patch_of_no_steps_is_refused_with_its_key(made: tuple[str, Path], key: str, value: Any) -> None:
    family, folder = made
    block = json.loads((folder / "config.json").read_text())["chronos_config"]
    change_config(folder, chronos_config=block | {key: value})
    assert f"config.json: {key}: got {value!r}, expected a whole number from 1" in refused(family, folder)


class Marker:
    """When it is unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mknod, (str(self.path),)


@pytest.mark.parametrize("made", READERS, indirect=True)
def test_pickles_are_never_read(made: tuple[str, Path], tmp_path: Path) -> None:
    family, folder = made
    for name in ("pytorch_model.bin", "training_args.bin", "model.pt", "adapter_model.bin"):
        (folder / name).write_bytes(pickle.dumps({"w": Marker(tmp_path / "ran")}))
    family_class(family).load(folder)  # its safetensors alone
    weights(folder).unlink()
    assert "safetensors" in refused(family, folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("made", ["chronos-bolt", "chronos-t5", "patchtst"], indirect=True)
@pytest.mark.parametrize("value", ["float99", "__class__", 5, {}, ["float32"]])
def test_an_odd_dtype_is_refused_or_passed_over(made: tuple[str, Path], value: Any) -> None:
    family, folder = made
    change_config(folder, dtype=value, torch_dtype=value)
    with suppress(ModelError):
        assert family_class(family).load(folder).network.dtype.itemsize == 4


def whole_numbers(family: str) -> Iterator[tuple[str | None, str]]:
    """Keys of config.json, and of the blocks in it, that hold whole numbers."""
    config = json.loads((COMMITTED[family] / "config.json").read_text())
    for block, held in [(None, config), *((key, value) for key, value in config.items() if isinstance(value, dict))]:
        for key, value in held.items():
            if isinstance(value, int) and not isinstance(value, bool):
                yield block, key


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("made", sorted(COMMITTED), indirect=True)
def test_no_number_of_a_config_fills_the_memory_or_goes_on_for_ever(made: tuple[str, Path]) -> None:
    family, folder = made
    config = json.loads((folder / "config.json").read_text())
    for block, key in whole_numbers(family):
        for value in (10**9, -1):
            changed = {key: value} if block is None else {block: config[block] | {key: value}}
            (folder / "config.json").write_text(json.dumps(config | changed))
            with bounded(), suppress(ModelError):
                family_class(family).load(folder)
