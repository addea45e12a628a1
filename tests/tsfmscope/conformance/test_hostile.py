"""Hostile checkpoints of every family: nothing in them runs, on loading or in the comparison with the package."""

from __future__ import annotations

import ast
import copy
import json
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.tsfmscope.models.families import CLASSES, FAMILIES, change_config, example_model
from tsfmscope.cli.app import app
from tsfmscope.conformance.checkpoints import Checkpoint
from tsfmscope.conformance.package import (
    forecasts_are_those_of_the_package,
    load_package_network,
    states_are_those_of_the_package,
)
from tsfmscope.conformance.subject import judge
from tsfmscope.errors import ModelError

CHECKS = (states_are_those_of_the_package, forecasts_are_those_of_the_package)
ROOT = Path(__file__).parents[3]
MODULE = "hostile"
# What a loader may import from a folder on request of its files.
AUTO_MAP = dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM", "AutoTokenizer"), f"{MODULE}.Model")


class Marker:
    """When it is unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mknod, (str(self.path),)


def payload(marker: Path, prefix: str = "uni2ts.distribution.mixture.torch.") -> dict[str, Any]:
    """What hydra runs as a shell command; the prefix is one that uni2ts accepts."""
    return {"_target_": f"{prefix}os.system", "_args_": [f"touch {marker}"]}


def keys(marker: Path) -> dict[str, Any]:
    """Keys of config.json that some loader acts on."""
    return {
        "auto_map": AUTO_MAP,
        "quantization_config": {"quant_method": "torchao", "quant_type": payload(marker), "modules_to_not_convert": []},
        "attn_implementation": "org/kernel",
        "_attn_implementation": "org/kernel",
        "experts_implementation": "org/kernel",
        "custom_generate": f"{MODULE}.py",
        "transformers_weights": "pytorch_model.bin",
        "fusion_config": {"patch_embeddings": payload(marker)},
        "per_layer_config": {"0": payload(marker)},
        "name_or_path": "org/other",
        "peft_config": payload(marker),
        **payload(marker, "os."),
    }


def add_files(folder: Path, marker: Path) -> None:
    """Write code and pickles into a folder, and files that name them."""
    code = f"import os\nos.mknod({str(marker)!r})\nclass Model: ...\ngenerate = Model\n"
    for name in (f"{MODULE}.py", "custom_generate/generate.py", "__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(code)
    for name in ("pytorch_model.bin", "training_args.bin", "adapter_model.bin", "model.pt", "optimizer.pt"):
        (folder / name).write_bytes(pickle.dumps({"w": Marker(marker)}))
    texts = {
        "tokenizer_config.json": {"auto_map": AUTO_MAP, "tokenizer_class": f"{MODULE}.Model"},
        "generation_config.json": {"custom_generate": f"{MODULE}.py", "num_beams": 3},
    }
    for name, content in texts.items():
        (folder / name).write_text(json.dumps(content))


def variants(config: dict[str, Any], marker: Path) -> Iterator[dict[str, Any]]:
    """Configs with one more key, and with the payload in place of one value, or in front of one object's keys."""
    yield from (config | {key: value} for key, value in keys(marker).items())
    for path in paths(config):
        changed: Any = copy.deepcopy(config)
        block = changed
        for step in path[:-1]:
            block = block[step]
        old = block[path[-1]]
        block[path[-1]] = payload(marker) | old if isinstance(old, dict) else payload(marker)
        yield changed


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of every value in a config, and of the first of every list."""
    entries = (
        value.items() if isinstance(value, dict) else list(enumerate(value))[:2] if isinstance(value, list) else ()
    )
    for key, part in entries:
        yield (*above, key)
        yield from paths(part, (*above, key))


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[Path]:
    """A file that every payload makes; a test fails if it is there."""
    path = tmp_path / "ran"
    yield path
    assert not path.exists()


def load(family: str, folder: Path, scratch: Path) -> None:
    """Load the model, and the package's network where there is a package."""
    checkpoint = Checkpoint(family, folder, scratch, 48, 12)
    assert checkpoint.subject
    package = CLASSES[family].package
    if package is not None and package.network is not None:
        load_package_network(checkpoint.subject.model, folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_of_a_hostile_checkpoint_runs(family: str, marker: Path, tmp_path: Path) -> None:
    """Each change is refused in one line, or stays for the comparison with the package."""
    folder = tmp_path / "model"
    example_model(family).save(folder)
    path = folder / "config.json"
    clean = json.loads(path.read_text())
    add_files(folder, marker)
    load(family, folder, tmp_path)
    accepted: dict[str, Any] = {}
    refused: list[str] = []
    for config in variants(clean, marker):
        path.write_text(json.dumps(config))
        try:
            load(family, folder, tmp_path)
        except ModelError as error:
            refused.append(str(error))
        else:
            accepted |= {key: value for key, value in config.items() if clean.get(key) != value}
        assert not marker.exists(), set(config) - set(clean)
    assert [text for text in refused if str(folder) not in text or "\n" in text] == []
    # Lag-Llama refuses every key that it does not know.
    assert accepted or family == "lag-llama"
    path.write_text(json.dumps(clean | accepted))
    plain = tmp_path / "plain"
    example_model(family).save(plain)
    for check in CHECKS:
        hostile, usual = (judge(check, Checkpoint(family, of, tmp_path, 48, 12)) for of in (folder, plain))
        assert (hostile.verdict, hostile.detail) == (usual.verdict, usual.detail)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_is_not_loaded(family: str, marker: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    example_model(family).save(folder)
    add_files(folder, marker)
    adapter = {"base_model_name_or_path": str(folder), "peft_type": "LORA", "auto_mapping": AUTO_MAP}
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
    with pytest.raises(ModelError, match="a LoRA adapter") as caught:
        load(family, folder, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("folder", ["tasks", "stages", "store", "tsfmscope"])
def test_no_code_hands_a_folder_to_a_loader(folder: str) -> None:
    """`from_pretrained` gets None for a folder, pickles are read weights-only, and no class is found by a config."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            owner = ast.unparse(node.func)
            first = node.args[0] if node.args else None
            options = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if (
                (name == "from_pretrained" and not (isinstance(first, ast.Constant) and first.value is None))
                or name in {"instantiate", "load_from_checkpoint", "load_adapter", "get_class_from_dynamic_module"}
                or (owner == "torch.load" and options.get("weights_only") != "True")
                or (owner == "np.load" and options.get("allow_pickle") == "True")
                or "trust_remote_code" in options
            ):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {owner}")
    assert not found


@pytest.mark.parametrize("place", ["an option", "a component's option", "a component", "the mixture's own option"])
def test_verify_runs_no_command_that_a_moirai_config_names(place: str, marker: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(
        ROOT / "tsfmscope/checkpoints/moirai-mini", folder, ignore=shutil.ignore_patterns("checksums.sha256")
    )
    output = json.loads((folder / "config.json").read_text())["distr_output"]
    normal = {"_target_": "uni2ts.distribution.normal.NormalFixedScaleOutput", "scale": payload(marker)}
    if place == "an option":
        output = normal
    elif place == "a component's option":
        output["components"][1] = normal
    elif place == "a component":
        output["components"][1] = payload(marker)
    else:
        output["weights"] = payload(marker)
    change_config(folder, distr_output=output)
    done = CliRunner().invoke(app, ["verify", str(folder), "--context", "64", "--horizon", "12", "--json"])
    assert done.exit_code == 1
    detail = json.loads(done.stdout)["checks"][-1]["detail"]
    key = {"a component": "_target_", "the mixture's own option": "'weights'"}.get(place, "scale")
    assert str(folder) in detail and f"{key}" in detail and "\n" not in detail
