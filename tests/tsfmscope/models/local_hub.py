"""The local hub with one repository, which can be uploaded to, and with the moods of a hub that fails."""

from __future__ import annotations

import base64
import hashlib
import json
import time

from tests.local_hub import HubHandler, LocalHub, Repository, entry

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = json.dumps({"chronos_config": {}}).encode()
WEIGHTS = bytes(range(256)) * 4096  # 1 MiB, many of the hub's chunks
# Ends of the names of files that are uploaded apart from a commit.
LARGE = (".safetensors", ".onnx")
FILES = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "pytorch_model.bin": b"pickled"}
__all__ = ["COMMIT", "FILES", "Hub", "entry"]


class Hub(LocalHub):
    """A hub with one repository, in one mood.

    files: contents of the repository's files, which a commit adds to; blobs: large files that were uploaded, by their
    SHA-256; created: what the requests for a repository contained; tokens: of the uploading requests.

    commit, headers, tree, status: what a hostile server says instead of the truth, of the repository and of its files.
    """

    def __init__(self, mood: str) -> None:
        super().__init__(Handler)
        self.mood = mood
        self.files = dict(FILES)
        self.blobs: dict[str, bytes] = {}
        self.created: list[dict[str, object]] = []
        self.tokens: set[str] = set()
        self.head = COMMIT
        self.commit: object = COMMIT
        self.headers: dict[str, str] = {}
        self.tree: list[object] = [entry(name, body) for name, body in FILES.items()]
        self.status = 200
        self.repositories["org/tiny"] = Repository(self.files, COMMIT)

    def add(self, files: dict[str, bytes]) -> str:
        """Commit files and return the commit."""
        self.files |= files
        self.head = hashlib.sha1(self.head.encode()).hexdigest()
        self.commit, self.tree = self.head, [entry(name, body) for name, body in self.files.items()]
        self.repositories["org/tiny"].commit = self.head
        return self.head


class Handler(HubHandler):
    server: Hub

    def do_GET(self) -> None:
        mood = self.server.mood
        if mood == "stalled":
            time.sleep(30)
        elif mood == "401":
            self.send_bytes(b"", 401)
        elif mood == "gated":
            self.send_bytes(b"", 403, {"X-Error-Code": "GatedRepo"})
        elif "/tree/" in self.path and mood == "asks to wait":
            self.send_bytes(b"", 429, {"RateLimit": '"api";r=0;t=31536000'})
        elif mood == "404":
            self.send_bytes(b"", 404, {"X-Error-Code": "RepoNotFound"})
        elif "/tree/" in self.path and mood == "stalled list":
            time.sleep(30)
        else:
            super().do_GET()

    def send_api(self, name: str, repository: Repository, *, is_list: bool) -> None:
        self.send_json(self.server.tree if is_list else {"id": name, "sha": self.server.commit, "siblings": []})

    def send_file(self, repository: Repository, name: str) -> None:
        mood = self.server.mood
        if name not in repository.files or not (
            mood.startswith(("altered", "truncated", "stalls")) or self._is_hostile
        ):
            super().send_file(repository, name)
            return
        body = self.server.files[name]
        large = name.endswith(LARGE)
        etag = hashlib.sha256(body).hexdigest() if large else entry(name, body)["oid"]
        head = {"X-Repo-Commit": self.server.head, "ETag": f'"{etag}"'} | self.server.headers
        if large and mood == "altered":
            body = body[:-1] + b"!"
        short = large and mood == "truncated" and self.command == "GET"
        self.send_head(self.server.status, head, len(body))
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if short or (large and mood == "stalls half-way") else body)
        self.close_connection = short
        if large and mood == "stalls half-way":
            time.sleep(30)

    @property
    def _is_hostile(self) -> bool:
        return bool(self.server.headers) or self.server.status != 200

    def do_PUT(self) -> None:
        body = self._read()
        oid = self.path.rsplit("/", 1)[1]
        self.server.blobs[oid] = body
        self.send_bytes(b"", 200 if hashlib.sha256(body).hexdigest() == oid else 400)

    def do_POST(self) -> None:
        body, mood = self._read(), self.server.mood
        self.server.tokens.add(self.headers.get("Authorization", ""))
        if self.path == "/api/validate-yaml":
            self.send_json({"errors": [], "warnings": []})
        elif mood in ("401", "403"):
            self.send_bytes(b"", int(mood))
        elif self.path == "/api/repos/create":
            is_new = not self.server.created
            self.server.created.append(json.loads(body))
            self.send_json({"url": f"{self.server.endpoint}/org/tiny"}, 200 if is_new else 409)
        elif "/preupload/" in self.path:
            paths = [file["path"] for file in json.loads(body)["files"]]
            modes = {path: "lfs" if path.endswith(LARGE) else "regular" for path in paths}
            self.send_json({"files": [{"path": p, "uploadMode": m, "shouldIgnore": False} for p, m in modes.items()]})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            self.send_json({"objects": [o | {"actions": {"upload": self._target(o["oid"])}} for o in objects]})
        elif "/commit/" in self.path:
            commit = self.server.add(self._committed(body))
            self.send_json({"commitUrl": f"{self.server.endpoint}/org/tiny/commit/{commit}", "commitOid": commit})
        else:
            self.send_bytes(b"", 404)

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

    def _target(self, oid: str) -> dict[str, str]:
        return {"href": f"{self.server.endpoint}/upload/{oid}"}

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
