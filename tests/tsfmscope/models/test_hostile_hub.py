"""A hub that answers what no honest one does: nothing outside its folder of the cache is written, and that is said."""

from __future__ import annotations

import random
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

# The same check at another place of a response.
SLOW = pytest.mark.slow
OUTSIDE = "../../../outside"
REPOSITORY = "models--org--tiny"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub("well") as found:
        threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{found.server_port}")
        yield found
        found.shutdown()


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
    for module in (file_download, _http):
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda seconds: None))
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
