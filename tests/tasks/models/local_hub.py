"""A hub on this machine with one repository, which can be downloaded and uploaded to."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = json.dumps({"chronos_config": {}}).encode()
WEIGHTS = bytes(range(256)) * 4096  # 1 MiB, many of the hub's chunks
# Ends of the names of files that the hub stores apart from git, with their SHA-256 as ETag.
LARGE = (".safetensors", ".onnx")
FILES = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "pytorch_model.bin": b"pickled"}


class Hub(ThreadingHTTPServer):
    """A hub with one repository, in one mood; `asked` is the log of its paths.

    files: contents of the repository's files, which a commit adds to; blobs: large files that were uploaded, by their
    SHA-256; created: what the requests for a repository contained; tokens: of the uploading requests.

    commit, headers, tree, status: what a hostile server says instead of the truth, of the repository and of its files.
    """

    daemon_threads = True

    def __init__(self, mood: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.mood = mood
        self.asked: list[str] = []
        self.files = dict(FILES)
        self.blobs: dict[str, bytes] = {}
        self.created: list[dict[str, object]] = []
        self.tokens: set[str] = set()
        self.head = COMMIT
        self.commit: object = COMMIT
        self.headers: dict[str, str] = {}
        self.tree: list[object] = [entry(name, body) for name, body in FILES.items()]
        self.status = 200

    def add(self, files: dict[str, bytes]) -> str:
        """Commit files and return the commit."""
        self.files |= files
        self.head = hashlib.sha1(self.head.encode()).hexdigest()
        self.commit, self.tree = self.head, [entry(name, body) for name, body in self.files.items()]
        return self.head

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

    def do_PUT(self) -> None:
        body = self._read()
        oid = self.path.rsplit("/", 1)[1]
        self.server.blobs[oid] = body
        self._send(b"", 200 if sha256(body) == oid else 400)

    def do_POST(self) -> None:
        body, mood = self._read(), self.server.mood
        self.server.tokens.add(self.headers.get("Authorization", ""))
        if self.path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif mood in ("401", "403"):
            self._send(b"", int(mood))
        elif self.path == "/api/repos/create":
            is_new = not self.server.created
            self.server.created.append(json.loads(body))
            self._answer({"url": f"{self._endpoint}/org/tiny"}, 200 if is_new else 409)
        elif "/preupload/" in self.path:
            paths = [file["path"] for file in json.loads(body)["files"]]
            modes = {path: "lfs" if path.endswith(LARGE) else "regular" for path in paths}
            self._answer({"files": [{"path": p, "uploadMode": m, "shouldIgnore": False} for p, m in modes.items()]})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            self._answer({"objects": [o | {"actions": {"upload": self._target(o["oid"])}} for o in objects]})
        elif "/commit/" in self.path:
            commit = self.server.add(self._committed(body))
            self._answer({"commitUrl": f"{self._endpoint}/org/tiny/commit/{commit}", "commitOid": commit})
        else:
            self._send(b"", 404)

    def _committed(self, body: bytes) -> dict[str, bytes]:
        """The files of a commit's NDJSON: small ones are in it, large ones were uploaded before."""
        found = {}
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                found[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                found[value["path"]] = self.server.blobs[value["oid"]]
        return found

    @property
    def _endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def _target(self, oid: str) -> dict[str, str]:
        return {"href": f"{self._endpoint}/upload/{oid}"}

    def _answer(self, content: object, status: int = 200) -> None:
        self._send(json.dumps(content).encode(), status, {"Content-Type": "application/json"})

    def _read(self) -> bytes:
        """The body of a request, whose length is in its head or in chunks."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _file(self, name: str, mood: str) -> None:
        if name not in self.server.files:
            self._send(b"", 404, {"X-Error-Code": "EntryNotFound", "ETag": 'W/"f-error"'})
            return
        body = self.server.files[name]
        large = name.endswith(LARGE)
        etag = sha256(body) if large else entry(name, body)["oid"]
        head = {"X-Repo-Commit": self.server.head, "ETag": f'"{etag}"'}
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
        if self.command != "HEAD":
            half = self.server.mood == "stalls half-way" and body == WEIGHTS
            self.wfile.write(body[: len(body) // 2] if half else body)


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def entry(name: str, body: bytes) -> dict[str, object]:
    oid = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
    found: dict[str, object] = {"type": "file", "path": name, "size": len(body), "oid": oid}
    if name.endswith(LARGE):
        found["lfs"] = {"oid": sha256(body), "size": len(body), "pointerSize": 130}
    return found
