"""Against a local server that speaks the hub's endpoints; the child that fetches reads HF_ENDPOINT for itself."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tasks.errors import HubError, ModelError
from tasks.models import hub, registry

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = json.dumps({"chronos_config": {}}).encode()
WEIGHTS = bytes(range(256)) * 4096  # 1 MiB, many of the hub's chunks
FILES = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "pytorch_model.bin": b"pickled"}


class Hub(ThreadingHTTPServer):
    """A hub with one repository, in one mood; `asked` is the log of its paths."""

    daemon_threads = True

    def __init__(self, mood: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.mood, self.asked = mood, []

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that is ended in the middle of an answer is what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, format: str, *args: object) -> None:
        self.server.asked.append(f"{self.command} {self.path}")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        mood = self.server.mood
        if mood == "stalled":
            time.sleep(30)
        elif mood == "401":
            self._send(b"", 401)
        elif mood == "gated":
            self._send(b"", 403, {"X-Error-Code": "GatedRepo"})
        elif mood == "404":
            self._send(b"", 404, {"X-Error-Code": "RepoNotFound"})
        elif "/resolve/" in self.path:
            self._file(self.path.rsplit("/", 1)[1], mood)
        elif "/tree/" in self.path:
            self._send(json.dumps([entry(name) for name in FILES]).encode())
        else:
            self._send(json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": []}).encode())

    def _file(self, name: str, mood: str) -> None:
        body = FILES[name]
        large = name.endswith(".safetensors")
        head = {"X-Repo-Commit": COMMIT, "ETag": f'"{entry(name)["oid"] if not large else sha256(body)}"'}
        if large and mood == "altered":
            body = body[:-1] + b"!"
        short = large and mood == "truncated" and self.command == "GET"
        self._send(body[: len(body) // 2] if short else body, 200, head, len(body))
        self.close_connection = short
        if large and mood == "stalls half-way":
            time.sleep(30)

    def _send(
        self, body: bytes, status: int = 200, head: dict[str, str] | None = None, size: int | None = None
    ) -> None:
        self.send_response(status)
        for key, value in (head or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body) if size is None else size))
        self.end_headers()
        if self.command == "GET":
            half = self.server.mood == "stalls half-way" and body == WEIGHTS
            self.wfile.write(body[: len(body) // 2] if half else body)


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def entry(name: str) -> dict[str, object]:
    body = FILES[name]
    oid = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
    found: dict[str, object] = {"type": "file", "path": name, "size": len(body), "oid": oid}
    if name.endswith(".safetensors"):
        found["lfs"] = {"oid": sha256(body), "size": len(body), "pointerSize": 130}
    return found


@pytest.fixture
def mood(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "well")


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
        ("401", "status 401; it is private, gated or not there.*log in"),
        ("gated", "status 403; it is private, gated"),
        ("404", "status 404; check the name and the revision"),
        ("altered", "model.safetensors has hash .*cuts the file short"),
    ],
    indirect=["mood"],
)
def test_a_refusal_says_what_to_do(server: Hub, tmp_path: Path, text: str) -> None:
    with pytest.raises(HubError, match=f"hub:org/tiny: .*{text}"):
        hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)


@pytest.mark.parametrize("mood", ["stalled", "stalls half-way"], indirect=True)
def test_a_stalled_connection_is_given_up_in_ten_seconds(
    server: Hub, tmp_path: Path, mood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hub.STALL_SECONDS == 10.0
    monkeypatch.setattr(hub, "STALL_SECONDS", 2.0)  # the same path in less of the suite's time
    start = time.monotonic()
    with pytest.raises(HubError, match=r"no new data for 2 s .*stalls: try again later, or name a folder"):
        hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("mood", ["truncated"], indirect=True)
def test_a_file_that_breaks_off_is_never_used(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "STALL_SECONDS", 2.5)
    with pytest.raises(HubError, match="cuts the file short: try again"):
        hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)
    with pytest.raises(HubError, match="not in the hub's cache"):
        hub.download(f"org/tiny@{COMMIT}", registry.CHECKPOINT_FILES, allowed=False, cache=tmp_path)


def test_no_network_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hub("well") as gone:
        port = gone.server_port
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(HubError, match="check the network and HF_ENDPOINT, or name a folder"):
        hub.download("hub:org/tiny", registry.CHECKPOINT_FILES, allowed=True, cache=tmp_path)


def test_the_hub_is_not_asked_unless_allowed(server: Hub, tmp_path: Path) -> None:
    with pytest.raises(HubError, match=re.escape("the hub may not be asked; allow it")):
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
