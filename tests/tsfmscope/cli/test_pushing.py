"""`tsfmscope push` uploads to a local server with the hub's endpoints, from which the model is loaded again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from huggingface_hub import constants
from typer.testing import CliRunner, Result

from tests.tsfmscope.models.families import change_config
from tests.tsfmscope.models.local_hub import Hub
from tsfmscope.cli.app import app
from tsfmscope.compression.export import save
from tsfmscope.files import file_sum
from tsfmscope.models import registry
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.common.attention import Widths, shapes
from tsfmscope.models.common.checkpoint_folder import write_recipe
from tsfmscope.series.types import Windows

CHECKPOINTS = Path(__file__).parents[3] / "tsfmscope" / "checkpoints"
# huggingface_hub's upload of large files without Xet.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
SHAPE = {"d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
SHAPE |= {"context_length": 32, "prediction_length": 8, "input_patch_size": 8, "input_patch_stride": 8}
DESCRIPTION = {
    "family": "timesfm", "compression": {"method": "joint", "ranks": {"budget": 0.25}},
    "inputs": [{"name": "context"}, {"name": "frequency"}], "context": 64, "horizon": 12, "levels": [0.1, 0.5, 0.9],
    "base_model": "hub:google/timesfm-2.0-500m-pytorch", "license": "apache-2.0",
}  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="tsfmscope", catch_exceptions=False)


@pytest.fixture
def mood(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "well")


@pytest.fixture
def server(mood: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with an empty repository, and a user with a token. Xet needs a second server of another kind."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "a-token")
    with Hub(mood) as found:
        found.files.clear()
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        endpoint = f"http://127.0.0.1:{found.server_port}"
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        # As in a process that begins with the variable.
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield found
        found.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A compressed model with its recipe, next to files that must stay here."""
    folder, model = tmp_path / "smaller", ChronosBolt.new(SHAPE, seed=0)
    for layer in model.attentions():
        layer.write(layer.read().slice_heads(Widths(3, 2)))
    model.compression = {"method": "joint", "ranks": {"budget": 0.5}, "widths": shapes(model.attentions())}
    folder.mkdir()
    save(model, folder)
    change_config(folder, _name_or_path="/home/me/bolt", notes=["from /home/me/runs/7", "C:\\\\me\\\\x"])
    write_recipe(folder, {"recipe": {"base_model": "/home/me/bolt"}, "row": {"base_model": "bolt"}})
    for name in ("pytorch_model.bin", "notes.txt", ".env", ".hidden.json", "credentials.json"):
        (folder / name).write_text("private")
    (folder / "secret").write_text("private")
    for name in ("notes.md", "extra.json"):
        (folder / name).symlink_to("secret")
    (folder / "snapshots").mkdir()
    (folder / "snapshots" / "config.json").write_text("{}")
    return folder


def forecasts(folder: Path) -> np.ndarray:
    values = np.random.default_rng(0).normal(size=(3, 32)).cumsum(axis=1).astype(np.float32)
    windows = Windows(values, np.zeros((3, 8), np.float32), ["a", "b", "c"], np.full(3, 32), "walks", "D", 1)
    return ChronosBolt.load(folder).forecast(windows, seeds=[0] * 3).values


def test_a_model_that_is_pushed_is_loaded_from_the_hub_with_the_same_forecasts(
    server: Hub, folder: Path, tmp_path: Path
) -> None:
    done = run("push", str(folder), "org/tiny", "--json")
    assert done.exit_code == 0, done.stderr
    printed = json.loads(done.stdout)
    uploaded = ["README.md", "checksums.sha256", "compressed.safetensors", "config.json", "recipe.json"]
    assert sorted(server.files) == printed["files"] == uploaded and printed["commit"] == server.head
    assert printed["bytes"] == sum(map(len, server.files.values()))
    assert server.tokens == {"Bearer a-token"}
    assert [(one["organization"], one["name"], one["visibility"]) for one in server.created] == [
        ("org", "tiny", "private")
    ]
    back = registry.resolve("hub:org/tiny", allow_hub=True, cache=tmp_path / "cache").folder
    np.testing.assert_array_equal(forecasts(back), forecasts(folder))
    assert json.loads(server.files["recipe.json"])["recipe"] == {"base_model": "bolt"}
    config = json.loads(server.files["config.json"])
    assert "_name_or_path" not in config and config["notes"] == ["from 7", "x"]
    assert config["compression"] == json.loads((folder / "config.json").read_text())["compression"]
    assert not any(word in content for word in (b"/home/me", b"private") for content in server.files.values())
    # A clone of the repository agrees with its checksums.
    for name, content in server.files.items():
        (tmp_path / "clone").mkdir(exist_ok=True)
        (tmp_path / "clone" / name).write_bytes(content)
    np.testing.assert_array_equal(forecasts(registry.resolve(str(tmp_path / "clone")).folder), forecasts(folder))


def test_the_files_are_printed_with_their_sizes_before_anything_is_sent(
    server: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.mood = "403"
    done = run("push", str(folder), "org/tiny")
    lines = done.stderr.splitlines()
    assert done.exit_code == 1 and [line.split()[-1] for line in lines[:4]] == [
        *("checksums.sha256", "compressed.safetensors", "config.json", "recipe.json")
    ]
    assert f"{(folder / 'compressed.safetensors').stat().st_size:,}" in lines[1]
    assert lines[4].startswith("not uploaded: .env, .hidden.json, credentials.json, extra.json")


@pytest.mark.parametrize("name", ["config.json", "recipe.json", "generation_config.json", "README.md", "onnx.json"])
def test_a_link_that_leaves_the_folder_is_refused_before_any_request(server: Hub, folder: Path, name: str) -> None:
    (folder / "checksums.sha256").unlink()
    secret = folder.parent / "secret.json"
    secret.write_text("{}") if not (folder / name).exists() else (folder / name).replace(secret)
    (folder / name).symlink_to(secret)
    done = run("push", str(folder), "org/tiny")
    assert done.exit_code == 1 and f"{name}: got a link to {secret}" in done.stderr and server.asked == []


def test_every_file_of_a_checkpoint_of_this_project_is_uploaded(server: Hub) -> None:
    for folder in (CHECKPOINTS / name for name in ("chronos-t5-mini", "vit-nano", "flowstate-mini")):
        server.files.clear()
        assert run("push", str(folder), "org/tiny").exit_code == 0
        assert set(server.files) == {path.name for path in folder.iterdir()}
        sums = server.files["checksums.sha256"].decode()
        assert sorted(sums.splitlines()) == sorted((folder / "checksums.sha256").read_text().splitlines())


def test_weights_in_several_files_are_uploaded_with_their_index(server: Hub, folder: Path) -> None:
    model = ChronosBolt.new(SHAPE, seed=0)
    model.network.save_pretrained(folder.parent / "shards", max_shard_size="3KB")
    names = {path.name for path in (folder.parent / "shards").iterdir()}
    (folder.parent / "shards" / "model_ema.safetensors").symlink_to(folder / "compressed.safetensors")
    assert run("push", str(folder.parent / "shards"), "org/tiny").exit_code == 0
    assert set(server.files) == {"README.md", *names}


def test_the_card_has_the_facts_and_checksums_and_no_path_of_this_machine(server: Hub, folder: Path) -> None:
    assert run("push", str(folder), "org/tiny", "--public").exit_code == 0
    assert server.created[0]["visibility"] == "public"
    card = server.files["README.md"].decode()
    assert card.startswith(
        "---\nlibrary_name: tsfmscope\npipeline_tag: time-series-forecasting\ntags:\n- chronos-bolt\n"
    )
    for words in (
        "| base model | `bolt` |",
        '| method | joint, ranks {"budget": 0.5} |',
        f"| bytes of the model | {(folder / 'compressed.safetensors').stat().st_size:,} |",
        "| licence of the weights | not known; it is that of the base model |",
        'ts.load("hub:org/tiny")',
        f"| `compressed.safetensors` | `{file_sum(folder / 'compressed.safetensors')}` |",
    ):
        assert words in card, card
    assert "/home/me" not in card


@pytest.mark.parametrize("compression", [["x"], {"method": "\x1b[31mx\ny"}], ids=["a list", "a method of two lines"])
def test_texts_of_the_folder_add_no_lines_to_the_card(server: Hub, tmp_path: Path, compression: object) -> None:
    ChronosBolt.new(SHAPE, seed=0).save(tmp_path)
    change_config(tmp_path, compression=compression)
    (tmp_path / "recipe.json").write_text(
        json.dumps({"recipe": {"license": "mit\ntags: [x]", "base_model": "hub:a/b\nc"}})
    )
    done = run("push", str(tmp_path), "org/tiny")
    assert done.exit_code == 0, done.stderr
    card = server.files["README.md"].decode()
    header = yaml.safe_load(card.split("---\n")[1])
    assert header["license"] == r"mit\ntags: [x]" and header["base_model"] == r"a/b\nc"
    assert header["tags"] == ["chronos-bolt", "tsfmscope"] and "\x1b" not in card


def test_a_card_that_is_there_is_kept(server: Hub, folder: Path) -> None:
    server.files["README.md"] = b"of the hub"
    done = run("push", str(folder), "org/tiny")
    assert done.exit_code == 0 and "with the model card that was there" in done.stdout
    assert server.files["README.md"] == b"of the hub"
    (folder / "README.md").write_text("---\nlicense: mit\n---\nof the folder\n")
    # The repository is there already.
    assert run("push", str(folder), "org/tiny").exit_code == 0
    assert b"of the folder" in server.files["README.md"]


def test_an_onnx_model_has_a_card_of_its_own(server: Hub, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"weights")
    (tmp_path / "onnx.json").write_text(json.dumps(DESCRIPTION))
    assert run("push", str(tmp_path), "org/tiny").exit_code == 0
    assert sorted(server.files) == ["README.md", "model.onnx", "onnx.json"]
    card = server.files["README.md"].decode()
    assert "base_model: google/timesfm-2.0-500m-pytorch\nlibrary_name: onnx\nlicense: apache-2.0\n" in card
    assert 'hf_hub_download("org/tiny", "model.onnx")' in card and "[batch, 3, 12]" in card
    code = card.partition("```python\n")[2].partition("```")[0]
    compile(code, "card", "exec")
    assert '"frequency": np.zeros(1, dtype=np.int64)' in code


def test_the_card_of_an_onnx_model_with_a_data_file_downloads_both(server: Hub, tmp_path: Path) -> None:
    files = {"model.onnx": b"graph", "model.onnx.data": b"weights"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    sizes = {name: len(content) for name, content in files.items()}
    (tmp_path / "onnx.json").write_text(json.dumps(DESCRIPTION | {"files": sizes}))
    assert run("push", str(tmp_path), "org/tiny").exit_code == 0
    assert sorted(server.files) == ["README.md", "model.onnx", "model.onnx.data", "onnx.json"]
    code = server.files["README.md"].decode().partition("```python\n")[2].partition("```")[0]
    compile(code, "card", "exec")
    assert 'hf_hub_download("org/tiny", "model.onnx.data")\nsession = ' in code


@pytest.mark.parametrize(
    ("mood", "words"),
    [("401", "status 401; log in with a token that may write there"), ("403", "status 403; log in with a token")],
    indirect=["mood"],
)
def test_a_refused_upload_is_one_line(server: Hub, folder: Path, words: str) -> None:
    done = run("push", str(folder), "org/tiny")
    assert done.exit_code == 1 and f"org/tiny: the hub answers with {words}" in done.stderr.splitlines()[-1], (
        done.stderr
    )
    assert "Traceback" not in done.stderr and not server.files


def test_no_token_is_one_line_and_no_request(
    server: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    done = run("push", str(folder), "org/tiny")
    assert done.exit_code == 1 and "no token of the hub; log in with `hf auth login`, or set HF_TOKEN" in done.stderr
    assert server.asked == []


def test_a_hub_that_cannot_be_reached_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hub("well") as gone:
        port = gone.server_port
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("HF_TOKEN", "a-token")
    done = run("push", str(folder), "org/tiny")
    assert done.exit_code == 1 and "check the network and HF_ENDPOINT" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("name", "repository", "words"), [
    ("nowhere", "org/tiny", "expected a folder of a checkpoint, found none"),
    ("empty", "org/tiny", "not a checkpoint: got no file, expected model.safetensors"),
    ("smaller", "tiny", "tiny: expected the repository's name, ORG/NAME"),
    ("smaller", "hub:org/tiny", "hub:org/tiny: expected the repository's name, ORG/NAME"),
])  # fmt: skip
def test_what_cannot_be_pushed_is_one_line_and_no_request(
    server: Hub, folder: Path, name: str, repository: str, words: str
) -> None:
    (folder.parent / "empty").mkdir()
    done = run("push", str(folder.parent / name), repository)
    assert done.exit_code == 2 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert server.asked == []


def test_a_damaged_folder_is_not_pushed(server: Hub, folder: Path) -> None:
    weights = folder / "compressed.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    done = run("push", str(folder), "org/tiny")
    assert done.exit_code == 1 and "compressed.safetensors" in done.stderr and server.asked == []
