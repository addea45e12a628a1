"""`tsfmscope verify`: models of a local hub, whole and broken, folders and names; its document, line and exit codes."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load, save
from typer.testing import CliRunner, Result

from tests.tsfmscope.models.families import example_model
from tests.tsfmscope.models.local_hub import Hub
from tsfmscope.cli.app import app
from tsfmscope.conformance import OF_CODE, OF_WEIGHTS
from tsfmscope.functions.verify import COLUMNS
from tsfmscope.models import registry

CHECKPOINTS = Path(__file__).parents[3] / "tsfmscope" / "checkpoints"
STEPS = ("--context", "48", "--horizon", "12")
CARD = b"---\nlicense: cc-by-4.0\n---\n"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="tsfmscope", catch_exceptions=False)


@pytest.fixture
def mood(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "well")


@pytest.fixture
def server(mood: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with an empty repository, which has a released name too, and an empty cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with Hub(mood) as found:
        found.files.clear()
        found.tree = []
        found.repositories["amazon/chronos-bolt-tiny"] = found.repositories["org/tiny"]
        threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{found.server_port}")
        yield found
        found.shutdown()


def files_of(family: str, folder: Path) -> dict[str, bytes]:
    """Files of a random model, whose quantiles would not be in order."""
    example_model(family).save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "package"),
    [("chronos-bolt", "chronos-forecasting"), pytest.param("lag-llama", "", marks=pytest.mark.long)],
)
def test_a_whole_model_of_the_hub_passes(server: Hub, family: str, package: str) -> None:
    trained = {
        name: (CHECKPOINTS / f"{family}-mini" / name).read_bytes() for name in ("config.json", "model.safetensors")
    }
    commit = server.add(trained | {"README.md": CARD})
    done = run("verify", "hub:org/tiny", *STEPS, "--json")
    assert done.exit_code == 0, done.stdout
    found = json.loads(done.stdout)
    assert (found["reference"], found["family"]) == (f"hub:org/tiny@{commit}", family)
    assert (found["passed"], found["license"]) == (True, "cc-by-4.0")
    verdicts = {one["check"]: one["verdict"] for one in found["checks"]}
    assert len(verdicts) == 7 + len(OF_WEIGHTS) and "fail" not in verdicts.values()
    compared = "pass" if package else "not applicable"
    assert verdicts["states-are-those-of-the-package"] == verdicts["forecasts-are-those-of-the-package"] == compared
    assert (found["cost"]["context"], found["cost"]["horizon"]) == (48, 12)
    assert found["cost"]["load_seconds"] > 0 and found["cost"]["forecast_seconds"] > 0
    (line,) = csv.reader(io.StringIO(found["line"]))
    row = dict(zip(COLUMNS, line, strict=True))
    assert row == {name: "" if value is None else str(value) for name, value in found["row"].items()}
    assert (row["checkpoint"], row["revision"], row["package"]) == ("org/tiny", commit[:12], package)
    assert (row["verdict"], int(row["passed"])) == ("pass", list(verdicts.values()).count("pass"))


def test_checks_of_weights_and_of_code_are_all_that_a_family_must_pass() -> None:
    assert len(OF_CODE) == 8 and not set(OF_CODE) & set(OF_WEIGHTS)


@pytest.mark.parametrize("family", ["chronos-bolt", "lag-llama"])
def test_a_model_without_a_tensor_fails_where_it_is_loaded_and_the_rest_is_left_out(
    server: Hub, family: str, tmp_path: Path
) -> None:
    files = files_of(family, tmp_path / "made")
    tensors = load(files["model.safetensors"])
    name = max(tensors)
    del tensors[name]
    server.add(files | {"model.safetensors": save(tensors, {"format": "pt"})})
    done = run("verify", "hub:org/tiny", *STEPS)
    assert done.exit_code == 1
    assert name.removeprefix("model.") in done.stdout and "2 pass, 1 fail" in done.stdout
    assert "the other checks were not run" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("org/tiny,") and ",fail,2,1," in done.stdout


def test_shards_of_the_hub_are_loaded_and_an_absent_one_is_named(server: Hub, tmp_path: Path) -> None:
    example_model("chronos-bolt").network.save_pretrained(tmp_path / "made", max_shard_size="30KB")
    files = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    shard = [name for name in files if name.endswith(".safetensors")][-1]
    server.add(files)
    checkpoint = registry.resolve("hub:org/tiny", allow_hub=True)
    assert registry.load("chronos-bolt", checkpoint.folder, options={}).width == example_model("chronos-bolt").width
    del server.files[shard]
    server.add({"notes.md": b"changed"})
    done = run("verify", "hub:org/tiny", *STEPS, "--json")
    (check,) = json.loads(done.stdout)["checks"]
    assert (done.exit_code, check["check"], check["verdict"]) == (1, "files-are-complete", "fail")
    assert f"{shard}: No such file" in check["detail"]


@pytest.mark.parametrize("mood", ["404"], indirect=True)
def test_a_name_that_the_hub_does_not_have_is_a_wrong_reference(server: Hub) -> None:
    done = run("verify", "hub:org/tiny")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "check the name and the revision" in done.stderr


def test_a_repository_without_a_checkpoint_is_a_wrong_reference(server: Hub) -> None:
    server.add({"notes.md": b"no weights"})
    done = run("verify", "hub:org/tiny")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the repository has no file like" in done.stderr


@pytest.mark.parametrize("mood", ["401"], indirect=True)
def test_a_hub_that_refuses_is_no_wrong_reference(server: Hub) -> None:
    done = run("verify", "hub:org/tiny")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "log in" in done.stderr


@pytest.mark.parametrize("reference", ["no-such-model", "chronos-bolt:nowhere", "no-family:made", "made", "hub:a/b/c"])
def test_a_wrong_reference_has_exit_code_2_and_one_line(server: Hub, reference: str) -> None:
    Path("made").mkdir()
    Path("made", "config.json").write_text("{}")
    done = run("verify", reference)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("tsfmscope: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(("files", "text"), [
    ({"config.json": "{"}, "expected model.safetensors"),
    ({"notes.txt": ""}, "not a checkpoint"),
    ({"config.json": "{}", "checksums.sha256": "0" * 64 + "  config.json\n"}, "config.json"),
])  # fmt: skip
def test_a_folder_that_is_no_whole_checkpoint_fails_the_check_of_files(
    server: Hub, files: dict[str, str], text: str
) -> None:
    Path("broken").mkdir()
    for name, content in files.items():
        Path("broken", name).write_text(content)
    done = run("verify", "lag-llama:broken", "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    ((check, verdict, detail),) = [(one["check"], one["verdict"], one["detail"]) for one in found["checks"]]
    assert (check, verdict) == ("files-are-complete", "fail") and text in detail
    assert found["cost"] is None and found["row"]["checkpoint"] == "broken"


def test_a_released_name_has_its_family_although_the_config_is_of_a_later_version(server: Hub) -> None:
    server.add(
        {
            "config.json": b'{"model_type": "bolt-next"}',
            "model.safetensors": save({"shared.weight": torch.zeros(2, 16)}),
        }
    )
    done = run("verify", "hub:amazon/chronos-bolt-tiny", "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["family"] == "chronos-bolt" and found["license"] == "apache-2.0"
    assert [one["verdict"] for one in found["checks"]] == ["pass", "pass", "fail"]
    assert "chronos" in found["checks"][-1]["detail"]
