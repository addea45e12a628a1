"""Names of families, other packages' families, fingerprints and options; configs by which a family is recognised."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch

from tasks.job import Job, Task
from tasks.parts import load_model
from tests.tsfmscope.models.families import CHECKPOINTS, change_config, example_model
from tsfmscope.errors import ModelError, StaleInputError
from tsfmscope.models import registry
from tsfmscope.models.base import Family
from tsfmscope.models.chronos import ChronosBolt, ChronosT5
from tsfmscope.models.lag_llama import LagLlama
from tsfmscope.models.registry import FAMILIES, family_of_config, family_of_folder, load


@pytest.fixture
def folder(bolt: ChronosBolt, tmp_path: Path) -> Path:
    bolt.save(tmp_path / "bolt")
    return tmp_path / "bolt"


def test_an_unknown_name_is_answered_with_near_names_and_the_list() -> None:
    with pytest.raises(
        ValueError, match=r"'chronos_bolt'; did you mean chronos-bolt.*known: chronos-2, chronos-bolt, chronos-t5"
    ):
        registry.family_class("chronos_bolt")
    with pytest.raises(ValueError, match="'qqq'; known: chronos-2, chronos-bolt, chronos-t5"):
        registry.family_class("qqq")


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package on the path as an installer does: install(NAME, FAMILY, "module:Class", {file: text})."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    before = set(sys.modules)

    def put(package: str, family: str, value: str, files: Mapping[str, str] | None = None) -> None:
        info = site / f"{package}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{family} = {value}\n")
        for name, text in (files or {}).items():
            (site / name).parent.mkdir(exist_ok=True)
            (site / name).write_text(text)
        registry.plugin_entries.cache_clear()
        importlib.invalidate_caches()

    yield put
    for name in set(sys.modules) - before:
        if name.startswith("their"):
            del sys.modules[name]
    registry.plugin_entries.cache_clear()


USABLE = "from tsfmscope.models.chronos import ChronosBolt\nclass Theirs(ChronosBolt):\n    name = 'theirs'\n"


def test_an_entry_point_adds_a_family_which_is_imported_when_its_name_is_asked_for(install: Install) -> None:
    install("their-package", "theirs", "their_module:Theirs", {"their_module.py": USABLE})
    assert registry.families()["theirs"] == "their_module:Theirs"
    with pytest.raises(ValueError, match=r"'their'; did you mean theirs\? .*, theirs"):
        registry.family_class("their")
    assert registry.code_of("theirs")
    assert "their_module" not in sys.modules
    found = registry.family_class("theirs")
    assert issubclass(found, ChronosBolt)
    assert found.__module__ == "their_module"


@pytest.mark.parametrize(
    ("value", "text", "words"),
    [
        ("no_such_package.models:Thing", "", "module 'no_such_package' is missing; install the package that holds"),
        ("uni2ts.no_such_module:Thing", "", r"tsfmscope\[moirai\].*--no-deps uni2ts"),
        ("their_module:Thing", USABLE, "module their_module has no class 'Thing'; fix its entry point"),
        ("their_module:Theirs", "import no_such_package", "module 'no_such_package' is missing"),
        ("their_module:Theirs", "1 / 0", r"does not import \(ZeroDivisionError: .*uninstall it"),
        ("their_module:Theirs", "class :", r"does not import \(SyntaxError"),
        ("their_module:Theirs", "import math\nmath.nothing", r"does not import \(AttributeError"),
        ("their_module:Theirs", "class Theirs: pass", "is no subclass of tsfmscope.models.base.Family"),
        (
            "their_module:Theirs",
            "from tsfmscope.models.base import Family\nclass Theirs(Family): pass",
            r"lacks _pass, _tokenize, layers, .*\(docs/plugins.md\)",
        ),
    ],
)
def test_a_family_that_cannot_be_used_names_its_package_and_the_mend(
    install: Install, monkeypatch: pytest.MonkeyPatch, value: str, text: str, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "uni2ts", None)  # as where it is not installed
    install("their-package", "theirs", value, {"their_module.py": text})
    with pytest.raises(ModelError, match=rf"family theirs of package their-package 1.2 \({value}\): .*{words}"):
        registry.family_class("theirs")


def test_a_name_of_ours_cannot_be_taken_and_others_of_ours_stay(install: Install) -> None:
    install("their-package", "chronos-bolt", "their_module:Theirs", {"their_module.py": USABLE})
    with pytest.raises(
        ModelError, match=r"chronos-bolt: package their-package 1.2 .* is built in; rename .* uninstall"
    ):
        registry.family_class("chronos-bolt")
    assert registry.families()["chronos-bolt"] == registry.FAMILIES["chronos-bolt"]
    assert registry.family_class("chronos-t5") is ChronosT5
    assert "their_module" not in sys.modules


def test_a_name_that_two_packages_take_is_neithers(install: Install) -> None:
    for package in ("their-package", "another"):
        install(package, "theirs", "their_module:Theirs", {"their_module.py": USABLE})
    with pytest.raises(ModelError, match=r"theirs: packages .*1.2 and .*1.2 both name a family so; uninstall one"):
        registry.family_class("theirs")


def test_fingerprints_of_ours_are_the_files_and_of_others_the_code_too(install: Install, tmp_path: Path) -> None:
    files = {"their_module/__init__.py": USABLE, "their_module/part.py": "A = 1\n"}
    install("their-package", "theirs", "their_module:Theirs", files)
    assert registry.code_of("chronos-t5") is None
    assert registry.with_code("chronos-t5", "f") == "f"
    code, whole = registry.code_of("theirs"), registry.with_code("theirs", "f")
    assert code is not None
    assert re.fullmatch("their-package 1.2 [0-9a-f]{64}", code)
    assert whole == hashlib.sha256(f"f\n{code}".encode()).hexdigest()
    assert registry.with_code("theirs", "g") != whole
    (tmp_path / "site/their_module/notes.txt").write_text("no code")
    assert registry.code_of("theirs") == code
    for change in ("A = 2\n", "A = 1\n"):
        (tmp_path / "site/their_module/part.py").write_text(change)
        assert (registry.code_of("theirs") == code) is (change == "A = 1\n")
    with pytest.raises(ValueError, match="unknown family 'their'"):
        registry.with_code("their", "f")


def test_the_code_of_a_namespace_package_is_that_of_all_its_folders(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("their-package", "theirs", "their_space.part:Theirs", {"their_space/part.py": USABLE})
    first, second = tmp_path / "site/their_space/part.py", tmp_path / "more/their_space/part.py"
    second.parent.mkdir(parents=True)
    second.write_text("A = 1\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "more")])
    importlib.invalidate_caches()
    code = registry.code_of("theirs")
    for path in (first, second):
        before = path.read_text()
        path.write_text(f"{before}B = 2\n")
        assert registry.code_of("theirs") != code
        path.write_text(before)
        assert registry.code_of("theirs") == code


def test_only_a_family_whose_results_changed_has_new_keys() -> None:
    changed = {name for name in registry.FAMILIES if registry.with_code(name, "f") != "f"}
    assert changed == {"lag-llama"}  # since its windows have dates


def test_a_job_of_older_code_is_stale(install: Install, folder: Path, tmp_path: Path) -> None:
    install("their-package", "theirs", "their_module:Theirs", {"their_module.py": USABLE})
    planned = registry.with_code("theirs", registry.resolve(str(folder)).fingerprint)
    job = Job(Task("t", 1, "m:f"), {"family": "theirs", "ref": str(folder)}, {f"model:{folder}": planned})
    assert load_model(job).name == "theirs"
    (tmp_path / "site/their_module.py").write_text(USABLE + "A = 2\n")
    with pytest.raises(StaleInputError, match=r"planned with .* run the stage again"):
        load_model(job)


def test_a_folder_resolves_to_itself_with_a_fingerprint_of_its_files(folder: Path) -> None:
    found = registry.resolve(str(folder))
    assert (found.folder, found.source, found.revision) == (folder, "folder", None)
    assert found.pin(str(folder)) == str(folder)
    (folder / "notes.txt").write_text("not part of the model")
    assert registry.resolve(str(folder)).fingerprint == found.fingerprint
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert registry.resolve(str(folder)).fingerprint != found.fingerprint


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"not a checkpoint: got no file, expected model\.safetensors"):
        registry.resolve(str(tmp_path))


@pytest.mark.parametrize("reference", ["hub:org/tiny", "org/tiny@main", "org/tiny"])
def test_a_hub_reference_is_pinned_to_its_commit(reference: str) -> None:
    found = registry.ResolvedRef(Path("x"), "f", "hub", "a" * 40)
    assert found.pin(reference) == f"hub:org/tiny@{'a' * 40}"


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
    assert isinstance(load_model(job), ChronosBolt)
    stale = Job(job.task, spec, {f"model:{folder}": "0" * 64})
    with pytest.raises(StaleInputError, match="planned with 000000000000, its files and code are now"):
        load_model(stale)


def test_a_job_loads_its_model_with_its_options(tmp_path: Path) -> None:
    config = {"context_length": 8, "n_layer": 1, "n_head": 1, "n_embd_per_head": 4, "lags": (0, 1)}
    LagLlama.new(config, seed=0).save(tmp_path)
    spec = {"family": "lag-llama", "ref": str(tmp_path), "options": {"rope_scaling": "linear", "tokens": 16}}
    model = load_model(Job(Task("t", 1, "m:f"), spec))
    assert (model.config["rope_scaling"], model.tokens) == ("linear", 16)


def test_an_option_that_a_family_does_not_take_is_named() -> None:
    registry.check_options("lag-llama", {"rope_scaling": "linear"}, "models.x.options")
    registry.check_options("chronos-t5", {}, "models.x.options")
    with pytest.raises(
        ModelError, match=r"models.x.options: got \['rope'\]; family lag-llama takes rope_scaling, tokens, precision"
    ):
        registry.check_options("lag-llama", {"rope": 1}, "models.x.options")
    with pytest.raises(ModelError, match=r"got \['device'\]; family chronos-t5 takes precision"):
        registry.check_options("chronos-t5", {"device": "cpu"}, "models.x.options")


def test_a_precision_is_an_option_of_every_family(folder: Path) -> None:
    spec = {"family": "chronos-bolt", "ref": str(folder), "options": {"precision": "bfloat16"}}
    job = Job(Task("t", 1, "m:f"), spec)
    assert {one.weight.dtype for one in linears(load_model(job))} == {torch.bfloat16}
    whole = registry.load("chronos-bolt", folder, options={"precision": "float32"})
    assert {one.weight.dtype for one in linears(whole)} == {torch.float32}
    registry.check_options("chronos-bolt", spec["options"], "models.x.options")
    with pytest.raises(ModelError, match=r"models.x.options.precision: got 'half', expected one of float32, bfloat16"):
        registry.check_options("chronos-bolt", {"precision": "half"}, "models.x.options")


def linears(model: Family) -> list[torch.nn.Linear]:
    return [one for one in model.network.modules() if isinstance(one, torch.nn.Linear)]


def test_importing_the_registry_imports_no_heavy_package() -> None:
    heavy = {"torch", "transformers", "chronos", "ray", "huggingface_hub"}
    code = f"import sys, tsfmscope.models.registry; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_family_whose_package_is_missing_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.check_packages("moirai")
    monkeypatch.setitem(sys.modules, "uni2ts", None)
    with pytest.raises(ModelError, match=r"family moirai: module 'uni2ts' is missing; install it with .*--no-deps"):
        registry.check_packages("moirai")
    registry.check_packages("chronos-bolt")


@pytest.mark.parametrize("folder", sorted(CHECKPOINTS.glob("*/")), ids=lambda one: one.name)
def test_every_committed_checkpoint_is_recognised(folder: Path) -> None:
    recipe = json.loads((folder / "recipe.json").read_text())["recipe"]
    assert family_of_folder(folder) == recipe["family"]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_a_family_saves_is_recognised(family: str, tmp_path: Path) -> None:
    example_model(family).save(tmp_path)
    assert family_of_folder(tmp_path) == family


def test_a_config_may_name_its_family_as_its_model_type() -> None:
    assert family_of_config({"model_type": "lag-llama"}) == "lag-llama"
    assert family_of_config({"model_type": "no-such-family"}) is None


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt", "chronos-2"])
@pytest.mark.parametrize("architectures", [None, ["T5ForConditionalGeneration"], []])
@pytest.mark.parametrize("left_out", ["architectures", "chronos_pipeline_class", "model_type"])
def test_a_chronos_config_is_recognised_by_its_block_whatever_class_it_names(
    family: str, architectures: list[str] | None, left_out: str
) -> None:
    config = json.loads((CHECKPOINTS / f"{family}-mini" / "config.json").read_text()) | {"architectures": architectures}
    del config[left_out]
    assert family_of_config(config) == family
    pipeline = {"chronos_config": {}, "chronos_pipeline_class": config.get("chronos_pipeline_class")}
    assert family_of_config(pipeline) == (None if left_out == "chronos_pipeline_class" else family)


@pytest.mark.parametrize("family", ["chronos-bolt", "chronos-2"])
@pytest.mark.parametrize("architectures", [None, ["T5ForConditionalGeneration"]])
def test_a_chronos_model_that_a_script_saved_is_loaded_as_what_it_is(
    family: str, architectures: list[str] | None, tmp_path: Path
) -> None:
    example_model(family).save(tmp_path)
    change_config(tmp_path, architectures=architectures)
    assert family_of_folder(tmp_path) == family
    assert load(family, tmp_path, options={}).width == example_model(family).width


@pytest.mark.parametrize(
    "config", [{}, {"architectures": None}, {"architectures": ["GPT2LMHeadModel"]}, {"model_type": []}]
)
def test_another_config_is_not_recognised(config: dict[str, object]) -> None:
    assert family_of_config(config) is None


def test_a_folder_without_a_readable_config(tmp_path: Path) -> None:
    assert family_of_folder(tmp_path) is None
    for text in ("{", "[]", "[" * 100_000):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ModelError, match=r"config\.json: expected"):
            family_of_folder(tmp_path)


def test_a_config_of_five_million_bytes_is_read_for_its_family_as_for_its_network(tmp_path: Path) -> None:
    example_model("chronos-bolt").save(tmp_path)
    change_config(tmp_path, vocabulary="x" * 5_000_000)
    assert family_of_folder(tmp_path) == "chronos-bolt"
