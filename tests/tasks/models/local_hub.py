"""A hub on this machine with one repository."""

from __future__ import annotations

import hashlib
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = json.dumps({"chronos_config": {}}).encode()
WEIGHTS = bytes(range(256)) * 4096  # 1 MiB, many of the hub's chunks
FILES = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "pytorch_model.bin": b"pickled"}


class Hub(ThreadingHTTPServer):
    """A hub with one repository, in one mood; `asked` is the log of its paths.

    commit, headers, tree, status: what a hostile server says instead of the truth, of the repository and of its files.
    """

    daemon_threads = True

    def __init__(self, mood: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.mood = mood
        self.asked: list[str] = []
        self.commit: object = COMMIT
        self.headers: dict[str, str] = {}
        self.tree: list[object] = [entry(name) for name in FILES]
        self.status = 200

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
        elif "/tree/" in self.path and mood == "stalled list":
            time.sleep(30)
        elif "/tree/" in self.path:
            self._send(json.dumps(self.server.tree).encode())
        else:
            self._send(json.dumps({"id": "org/tiny", "sha": self.server.commit, "siblings": []}).encode())

    def _file(self, name: str, mood: str) -> None:
        if name not in FILES:
            self._send(b"", 404, {"X-Error-Code": "EntryNotFound", "ETag": 'W/"f-error"'})
            return
        body = FILES[name]
        large = name.endswith(".safetensors")
        head = {"X-Repo-Commit": COMMIT, "ETag": f'"{entry(name)["oid"] if not large else sha256(body)}"'}
        head |= self.server.headers
        if large and mood == "altered":
            body = body[:-1] + b"!"
        short = large and mood == "truncated" and self.command == "GET"
        self._send(body[: len(body) // 2] if short else body, self.server.status, head, len(body))
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
