"""Against a local server that speaks the hub's endpoints; tests/tsfmscope/models holds the bad moods of connections."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tsfmscope.errors import DataError, HubError, MissingOnHubError
from tsfmscope.series.files import hub_datasets
from tsfmscope.series.files.hub_datasets import REPOSITORY, infer_freq, load_hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HOURS = [datetime(2020, 1, 1) + timedelta(hours=i) for i in range(40)]


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _rows(**columns: object) -> bytes:
    times = pa.array([HOURS, HOURS], pa.list_(pa.timestamp("ms")))
    return _parquet(pa.table({"id": ["T1", "T2"], "timestamp": times, **columns}))


FILES = {
    "hourly/train-0.parquet": _rows(target=[list(np.arange(40.0)), [1.0] * 40]),
    "pairs/train-0.parquet": _rows(north=[list(np.arange(40.0))] * 2, south=[list(np.arange(40.0) ** 2)] * 2),
    "other/train-0.parquet": _parquet(pa.table({"x": [1.0]})),
    "broken/train-0.parquet": b"not parquet",
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if f"/datasets/{REPOSITORY}" not in self.path:
            return self._send(b"", 404)
        if "/resolve/" in self.path:
            body = FILES[self.path.partition(f"/resolve/{COMMIT}/")[2]]
            return self._send(body, 200)
        if "/tree/" in self.path:
            return self._send(json.dumps([_entry(name) for name in FILES]).encode(), 200)
        return self._send(json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": []}).encode(), 200)

    def _send(self, body: bytes, status: int) -> None:
        self.send_response(status)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{_oid(body)}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _oid(body: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


def _entry(name: str) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(FILES[name]), "oid": _oid(FILES[name])}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        found.daemon_threads = True
        threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{found.server_port}")
        yield
        found.shutdown()


def test_a_data_set_is_fetched_and_then_read_from_the_cache(server: None, tmp_path: Path) -> None:
    found = load_hub("hourly", allowed=True, domain="x", cache=tmp_path)
    again = load_hub("hourly", allowed=False, domain="x", cache=tmp_path)
    for one in (found, again):
        (series,) = one.series
        assert (series.dataset, series.series, series.freq, series.start) == ("hourly", "T1", "h", HOURS[0])
        assert series.provenance == f"hub {REPOSITORY}@{COMMIT} hourly"
        np.testing.assert_array_equal(series.values, np.arange(40, dtype=np.float32))
        assert one.skipped == [("T2", "constant")]


def test_a_data_set_that_is_not_there_is_said(server: None, tmp_path: Path) -> None:
    with pytest.raises(MissingOnHubError, match=r"no file like \['missing/\*\.parquet'\]; check the name"):
        load_hub("missing", allowed=True, cache=tmp_path)


def _shard(folder: Path, name: str) -> Path:
    path = folder / "train-0.parquet"
    path.write_bytes(FILES[f"{name}/train-0.parquet"])
    return path


def test_each_variate_is_a_series(tmp_path: Path) -> None:
    found = hub_datasets._series(_shard(tmp_path, "pairs"), "pairs", "x", "")
    assert [one.series for one in found] == ["T1:north", "T1:south", "T2:north", "T2:south"]
    np.testing.assert_array_equal(found[3].values, np.arange(40, dtype=np.float32) ** 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "other/train-0.parquet: expected columns id, timestamp and lists of numbers, got x double"),
        ("broken", "broken/train-0.parquet: expected a Parquet file"),
    ],
)
def test_a_shard_that_cannot_be_used_says_why(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        hub_datasets._series(_shard(tmp_path, name), name, "", "")


def test_the_hub_is_never_asked_unless_allowed(tmp_path: Path) -> None:
    with pytest.raises(HubError, match="downloads are not allowed"):
        load_hub("hourly", allowed=False, cache=tmp_path)


def test_a_name_that_leaves_the_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a folder's name"):
        load_hub("../x", allowed=True, cache=tmp_path)


@pytest.mark.parametrize(
    ("times", "freq"),
    [
        (HOURS, "h"),
        ([datetime(2020, month, 1) for month in range(1, 9)], "MS"),
        (HOURS[:2], ""),
        ([HOURS[0], HOURS[1], HOURS[5], HOURS[7]], ""),
    ],
)
def test_the_frequency_is_read_from_the_times(times: list[datetime], freq: str) -> None:
    assert infer_freq(times) == freq
