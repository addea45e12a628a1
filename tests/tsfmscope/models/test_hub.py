"""Downloads from a local server that has the hub's endpoints, one that fails, and one that answers as no hub does."""

from __future__ import annotations

import random
import re
import string
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants, file_download
from huggingface_hub.utils import _http

from tests.tsfmscope.models.local_hub import COMMIT, FILES, Hub, entry
from tsfmscope import hub
from tsfmscope.errors import HubError, ModelError
from tsfmscope.models import registry


@pytest.fixture
def mood(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "well")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let huggingface_hub try again at once."""
    for module in (file_download, _http):
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda seconds: None))


@pytest.fixture
def server(mood: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub(mood) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{found.server_port}")
        yield found
        found.shutdown()


def test_config_and_safetensors_are_fetched_and_nothing_else(server: Hub, tmp_path: Path) -> None:
    found = registry.resolve("hub:org/tiny", allow_hub=True, cache=tmp_path)
    assert {p.name: p.read_bytes() for p in found.folder.iterdir()} == {
        name: FILES[name] for name in ("config.json", "model.safetensors")
    }
    assert (found.source, found.revision) == ("hub", COMMIT)
    assert not [path for path in server.asked if "pytorch_model.bin" in path]
    before = list(server.asked)
    again = registry.resolve(f"org/tiny@{COMMIT}", allow_hub=True, cache=tmp_path)
    assert again == found
    assert registry.resolve("org/tiny", cache=tmp_path) == found
    assert server.asked == before, "a pinned or forbidden look-up asked the hub"


def test_the_base_model_that_a_local_adapter_names_is_fetched(server: Hub, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "org/tiny"}')
    (adapter / "adapter_model.safetensors").write_bytes(b"weights")
    found = registry.resolve(str(adapter), allow_hub=True, cache=tmp_path / "cache")
    assert found.base == registry.resolve("hub:org/tiny", cache=tmp_path / "cache").folder
    assert (found.folder, found.source) == (adapter, "folder")


@pytest.mark.parametrize(
    ("mood", "text"),
    [
        ("401", "status 401; it is private, gated or missing.*log in"),
        ("gated", "status 403; it is private, gated"),
        ("404", "status 404; check the name and the revision"),
        ("altered", "model.safetensors has hash .*cuts the file short"),
    ],
    indirect=["mood"],
)
def test_a_refusal_says_what_to_do(server: Hub, tmp_path: Path, text: str) -> None:
    with pytest.raises(HubError, match=f"hub:org/tiny: .*{text}"):
        hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)


@pytest.mark.parametrize(
    ("mood", "text"),
    [
        ("stalled", "ReadTimeout.*the connection stalls: try again later, or name a folder"),
        ("stalled list", "ReadTimeout.*the connection stalls: try again later, or name a folder"),
        ("stalls half-way", "ReadTimeout.*the connection stalls: try again later, or name a folder"),
        ("truncated", "RemoteProtocolError.*cuts the file short: try again"),
    ],
    indirect=["mood"],
)
def test_a_broken_download_ends_with_its_reason_and_is_never_used(
    server: Hub, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if server.mood != "truncated":
        monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    with pytest.raises(HubError, match=f"hub:org/tiny: .*{text}"):
        hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)
    with pytest.raises(HubError, match="not in the hub's cache"):
        hub.download(f"org/tiny@{COMMIT}", registry.CHECKPOINT_FILES, allowed=False, cache=tmp_path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("mood", ["asks to wait"], indirect=True)
def test_a_server_that_asks_to_wait_for_a_year_is_not_waited_for(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(_http, "time", SimpleNamespace(sleep=waits.append))
    with pytest.raises(HubError, match="429 Too Many Requests"):
        hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)
    assert waits and max(waits) <= 8


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("reference", ["hub:org/tiny", f"hub:org/tiny@{COMMIT}"])
@pytest.mark.parametrize("allowed", [True, False])
def test_damaged_files_of_the_cache_are_never_used(
    server: Hub, tmp_path: Path, name: str, reference: str, allowed: bool
) -> None:
    def download() -> Path:
        return hub.download(reference, registry.CHECKPOINT_FILES, allowed=allowed, cache=tmp_path)[0]

    folder, _ = hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)
    assert download() == folder
    blob = (folder / name).resolve()
    content = bytearray(blob.read_bytes())
    content[len(content) // 2] ^= 1
    blob.write_bytes(content)
    with pytest.raises(HubError, match=f"{name} has hash .*, expected {blob.name}; .*try again"):
        download()
    assert not blob.exists()
    hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)
    assert (download() / name).read_bytes() == FILES[name]


@pytest.mark.parametrize("mood", ["truncated"], indirect=True)
def test_a_file_that_the_server_begins_again_each_time_is_given_up(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Smaller than the file, as the library's 10 MiB are for real weights.
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)
    with pytest.raises(HubError, match="cannot send the rest of a file alone; the hub or a proxy cuts the file short"):
        hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)


def test_the_settings_of_huggingface_hub_are_as_before_afterwards(server: Hub, tmp_path: Path) -> None:
    before = (_http._GLOBAL_CLIENT_FACTORY, constants.HF_HUB_DISABLE_XET)
    registry.resolve("hub:org/tiny", allow_hub=True, cache=tmp_path)
    after = (_http._GLOBAL_CLIENT_FACTORY, constants.HF_HUB_DISABLE_XET)
    assert after == before


def test_the_offline_mode_of_huggingface_hub_is_respected(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match=r"offline mode is enabled.*HF_HUB_OFFLINE.*check the network"):
        hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)
    assert server.asked == []


def test_no_network_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hub("well") as gone:
        port = gone.server_port
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(HubError, match="check the network and HF_ENDPOINT, or name a folder"):
        hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)


def test_the_hub_is_not_asked_unless_allowed(server: Hub, tmp_path: Path) -> None:
    with pytest.raises(HubError, match=re.escape("downloads are not allowed; allow them")):
        registry.resolve("hub:org/tiny", cache=tmp_path)
    assert server.asked == []


def test_a_mistyped_folder_is_not_looked_up_on_the_hub(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("checkpoints").mkdir()
    with pytest.raises(ModelError, match="checkpoints/nope: no such folder"):
        registry.resolve("checkpoints/nope", allow_hub=True, cache=tmp_path)
    assert server.asked == []
    with pytest.raises(HubError, match="no folder nobody/nothing here; nobody/nothing: not in the hub's cache"):
        registry.resolve("nobody/nothing", cache=tmp_path)


# The same check at another place of a response.
SLOW = pytest.mark.slow
OUTSIDE = "../../../outside"
REPOSITORY = "models--org--tiny"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache deep enough that what leaves it still lies under tmp_path."""
    folder = tmp_path / "a" / "b" / "cache"
    folder.mkdir(parents=True)
    return folder


def outside(cache: Path, top: Path) -> list[Path]:
    """Files that lie under `top` and not in the repository's folders of the cache."""
    inside = [cache / REPOSITORY, cache / ".locks" / REPOSITORY, cache / "CACHEDIR.TAG"]
    files = [path for path in top.rglob("*") if not path.is_dir()]
    return [path for path in files if not any(path.is_relative_to(one) for one in inside)]


def fetched(cache: Path) -> dict[str, bytes]:
    folder, commit = hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=cache)
    assert commit == COMMIT
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"headers": {"ETag": f'"{OUTSIDE}"'}}, "sends ETag .*outside.*expected a file's hash"),
        pytest.param({"headers": {"ETag": f'W/"{OUTSIDE}"'}}, "sends ETag", marks=SLOW),
        pytest.param({"headers": {"X-Linked-Etag": OUTSIDE}}, "sends X-Linked-Etag", marks=SLOW),
        pytest.param({"headers": {"ETag": '"abc"'}}, "sends ETag .*expected a file's hash", marks=SLOW),
        pytest.param({"headers": {"X-Repo-Commit": OUTSIDE}}, "names commit .*expected 40 hexadecimal", marks=SLOW),
        (
            {"headers": {"X-Repo-Commit": OUTSIDE, "X-Error-Code": "EntryNotFound"}, "status": 404},
            "names commit .*expected 40 hexadecimal digits",
        ),
        ({"commit": OUTSIDE}, "names commit .*expected 40 hexadecimal digits"),
        pytest.param({"commit": 5}, "names commit 5", marks=SLOW),
    ],
    ids=str,
)
def test_a_text_that_would_become_a_path_is_refused_before_anything_is_written(
    server: Hub, cache: Path, tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    for name, value in changes.items():
        setattr(server, name, value)
    with pytest.raises(HubError, match=f"hub:org/tiny: the server {expected}.*do not use that server"):
        fetched(cache)
    assert outside(cache, tmp_path) == []
    assert not list((cache / REPOSITORY / "blobs").glob("*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [f"{OUTSIDE}/model.safetensors", "a/../../../../x/model.safetensors", "/x.safetensors"]
)
def test_a_file_whose_name_leads_out_of_the_snapshot_is_not_written_there(
    server: Hub, cache: Path, tmp_path: Path, path: str
) -> None:
    server.tree = [entry("model.safetensors", FILES["model.safetensors"]) | {"path": path}]
    with pytest.raises(HubError):
        fetched(cache)
    assert outside(cache, tmp_path) == []


@pytest.mark.slow
def test_the_etag_of_an_answer_that_reports_an_error_does_not_count(server: Hub, cache: Path) -> None:
    server.tree.append(entry("config.json", FILES["config.json"]) | {"path": "lag-llama.ckpt"})
    with pytest.raises(HubError, match="got status 404"):
        fetched(cache)


@pytest.mark.parametrize(
    "reference", ["hub:org/tiny@../../x", "hub:org/tiny@/x", "hub:../tiny", "hub:a--b/c", "hub:org/..@x"]
)
def test_a_reference_that_leads_out_of_the_cache_is_refused(reference: str, cache: Path) -> None:
    with pytest.raises(ModelError, match="nor of the form hub:ORG/NAME"):
        registry.resolve(reference, allow_hub=True, cache=cache)


ODD = [OUTSIDE, "/", "..", "", "a" * 300, "\\", "%2e%2e%2f", "W/", '"', COMMIT, "0" * 64, COMMIT + "/..", "x\ty", "é"]


def odd(rng: random.Random) -> str:
    """A text that no hash is, most of the time."""
    return "".join(rng.choice([*ODD, *string.hexdigits]) for _ in range(rng.randint(0, 4)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25), ids="seed-{}".format)
def test_responses_drawn_at_random_write_nothing_outside_and_end_well_or_with_the_one_error(
    server: Hub, cache: Path, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 3.0)
    rng = random.Random(seed)
    for name in rng.sample(["ETag", "X-Linked-Etag", "X-Repo-Commit", "X-Linked-Size", "X-Error-Code", "Location"], 2):
        server.headers[name] = odd(rng).encode("latin-1", "replace").decode("latin-1")
    if rng.random() < 0.3:
        server.commit = rng.choice([odd(rng), None, 5, [], {}])
    if rng.random() < 0.5:
        key = rng.choice(["path", "oid", "size", "type", "lfs"])
        wrong = entry(*rng.choice(list(FILES.items()))) | {
            key: rng.choice([odd(rng), -1, None, [], {"oid": odd(rng), "size": 1}])
        }
        server.tree.append(wrong)
    server.status = rng.choice([200, 200, 200, 302, 404, 500])
    with suppress(HubError):
        files = fetched(cache)
        assert files.items() >= {name: FILES[name] for name in ("config.json", "model.safetensors")}.items()
    assert outside(cache, tmp_path) == []
