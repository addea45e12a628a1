from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tasks.errors import ModelError, StaleInputError
from tasks.models import registry
from tasks.models.chronos_bolt import ChronosBolt
from tasks.models.chronos_t5 import ChronosT5
from tasks.models.lag_llama import LagLlama
from tasks.sweep.jobs import Job, Task


@pytest.fixture
def folder(bolt: ChronosBolt, tmp_path: Path) -> Path:
    bolt.save(tmp_path / "bolt")
    return tmp_path / "bolt"


@pytest.mark.parametrize(("name", "cls"), [("chronos-t5", ChronosT5), ("chronos-bolt", ChronosBolt)])
def test_a_name_gives_its_class(name: str, cls: type) -> None:
    assert registry.family_class(name) is cls
    assert cls.name == name


def test_an_unknown_name_is_answered_with_near_names_and_the_list() -> None:
    with pytest.raises(
        ValueError, match=r"'chronos_bolt'; did you mean chronos-bolt.*known: chronos-2, chronos-bolt, chronos-t5"
    ):
        registry.family_class("chronos_bolt")
    with pytest.raises(ValueError, match="'qqq'; known: chronos-2, chronos-bolt, chronos-t5"):
        registry.family_class("qqq")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("no_such_package.models:Thing", "module 'no_such_package' is missing; install the package that holds"),
        ("uni2ts.no_such_module:Thing", "install the extra moirai with uv"),
        ("tasks.models.types:Thing", "module tasks.models.types has no class 'Thing'"),
    ],
)
def test_a_family_that_cannot_be_imported_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, value: str, text: str
) -> None:
    monkeypatch.setitem(sys.modules, "uni2ts", None)  # as where it is not installed
    entry = EntryPoint(name="theirs", value=value, group=registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    with pytest.raises(ModelError, match=f"family theirs.*{text}"):
        registry.family_class("theirs")


def test_an_entry_point_adds_a_family(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint(name="theirs", value="tasks.models.chronos_bolt:ChronosBolt", group=registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    assert registry.family_class("theirs") is ChronosBolt


def test_a_folder_resolves_to_itself_with_a_fingerprint_of_its_files(folder: Path) -> None:
    found = registry.resolve(str(folder))
    assert (found.folder, found.source, found.revision) == (folder, "folder", None)
    assert found.pinned(str(folder)) == str(folder)
    (folder / "notes.txt").write_text("not part of the model")
    assert registry.resolve(str(folder)).fingerprint == found.fingerprint
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert registry.resolve(str(folder)).fingerprint != found.fingerprint


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"neither config.json nor \*.safetensors"):
        registry.resolve(str(tmp_path))


@pytest.mark.parametrize("reference", ["hub:org/tiny", "org/tiny@main", "org/tiny"])
def test_a_hub_reference_is_pinned_to_its_commit(reference: str) -> None:
    found = registry.ResolvedRef(Path("x"), "f", "hub", "a" * 40)
    assert found.pinned(reference) == f"hub:org/tiny@{'a' * 40}"


def test_facts_count_parameters_without_loading_them(folder: Path, bolt: ChronosBolt) -> None:
    found = registry.facts(folder)
    assert found["parameters"] == sum(p.numel() for p in bolt.network.parameters())
    assert found["bytes"] == (folder / "model.safetensors").stat().st_size
    assert found["license"] is None
    (folder / "README.md").write_text("---\ntags: [a]\nlicense: apache-2.0\n---\n# Card\n")
    assert registry.facts(folder)["license"] == "apache-2.0"
    (folder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ModelError, match="not a safetensors file"):
        registry.facts(folder)


def test_a_job_loads_its_model_and_a_changed_one_is_stale(folder: Path) -> None:
    spec = {"family": "chronos-bolt", "ref": str(folder)}
    fingerprint = registry.resolve(str(folder)).fingerprint
    job = Job(Task("t", 1, "m:f"), spec, {f"model:{folder}": fingerprint})
    assert isinstance(registry.load_for_job(job), ChronosBolt)
    stale = Job(job.task, spec, {f"model:{folder}": "0" * 64})
    with pytest.raises(StaleInputError, match="planned with 000000000000, its files are now"):
        registry.load_for_job(stale)


def test_a_job_loads_its_model_with_its_options(tmp_path: Path) -> None:
    config = {"context_length": 8, "n_layer": 1, "n_head": 1, "n_embd_per_head": 4, "lags": (0, 1)}
    LagLlama.new(config, seed=0).save(tmp_path)
    spec = {"family": "lag-llama", "ref": str(tmp_path), "options": {"rope_scaling": "linear", "tokens": 16}}
    model = registry.load_for_job(Job(Task("t", 1, "m:f"), spec))
    assert (model.config.rope_scaling, model.tokens) == ("linear", 16)


def test_an_option_that_a_family_does_not_take_is_named() -> None:
    registry.check_options("lag-llama", {"rope_scaling": "linear"}, "models.x.options")
    registry.check_options("chronos-t5", {}, "models.x.options")
    with pytest.raises(
        ModelError, match=r"models.x.options: got \['rope'\]; family lag-llama takes rope_scaling, tokens"
    ):
        registry.check_options("lag-llama", {"rope": 1}, "models.x.options")
    with pytest.raises(ModelError, match=r"got \['device'\]; family chronos-t5 takes none"):
        registry.check_options("chronos-t5", {"device": "cpu"}, "models.x.options")


def test_importing_the_registry_imports_no_heavy_package() -> None:
    heavy = {"torch", "transformers", "chronos", "ray", "huggingface_hub"}
    code = f"import sys, tasks.models.registry; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
