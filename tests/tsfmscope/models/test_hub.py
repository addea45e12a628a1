"""Downloads from a local server that has the hub's endpoints."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants, file_download
from huggingface_hub.utils import _http

from tests.tsfmscope.models.local_hub import COMMIT, FILES, Hub
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


def test_a_reference_of_no_known_form_is_refused() -> None:
    with pytest.raises(ModelError, match="no such folder, nor of the form hub:ORG/NAME"):
        registry.resolve("no/such/folder/here", allow_hub=True)
