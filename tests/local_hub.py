"""A server on this machine with the endpoints of the model hub that a download uses, for several repositories.

`tests/rehearsal` serves models with random weights from it, and tests of downloads and uploads extend it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

# Ends of the names of files that the hub stores apart from git, with their SHA-256 as ETag.
LARGE = (".safetensors", ".onnx", ".ckpt", ".bin")
# Seconds between two looks at whether the server should end.
POLL = 0.05
CHUNK = 2**20

Content = bytes | Path


@dataclass
class Repository:
    """Files of a repository by name, as bytes or as a path, and its commit."""

    files: Mapping[str, Content]
    commit: str
    _entries: dict[str, dict[str, object]] = field(default_factory=dict)

    @classmethod
    def of_folder(cls, folder: Path) -> Repository:
        """Return the repository with the files of a folder; its commit is made from their names and hashes."""
        files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
        entries = {name: entry(name, path) for name, path in files.items()}
        return cls(files, hashlib.sha1(json.dumps(entries).encode()).hexdigest(), entries)

    def entry(self, name: str) -> dict[str, object]:
        """Return a file's entry of the file list; hashes of files on the disk are computed once."""
        if name in self._entries:
            return self._entries[name]
        return entry(name, self.files[name])


class LocalHub(ThreadingHTTPServer):
    """Server of repositories by their name ORG/NAME; `endpoint` is the value for HF_ENDPOINT."""

    daemon_threads = True

    def __init__(self, handler: type[HubHandler] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), handler or HubHandler)
        self.repositories: dict[str, Repository] = {}
        # Methods and paths of all requests.
        self.asked: list[str] = []

    @property
    def endpoint(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: a client that is ended in the middle of a file is no fault of the server."""


@contextmanager
def serving(server: LocalHub) -> Iterator[LocalHub]:
    """Run a server in a thread until the block ends."""
    with server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": POLL}, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


class HubHandler(BaseHTTPRequestHandler):
    """Answers of the hub to a download: facts of a repository, its file list, its files."""

    protocol_version = "HTTP/1.1"
    server: LocalHub

    def log_message(self, format: str, *args: object) -> None:
        """Add the request to the server's list."""
        self.server.asked.append(f"{self.command} {self.path}")

    def do_HEAD(self) -> None:
        """Answer as to GET, without the body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer a request for facts, a file list or a file."""
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if is_api := parts[:2] == ["api", "models"]:
            parts = parts[2:]
        name, rest = "/".join(parts[:2]), parts[2:]
        repository = self.server.repositories.get(name)
        if repository is None:
            self.send_bytes(b"", 404, {"X-Error-Code": "RepoNotFound"})
        elif is_api:
            self.send_api(name, repository, is_list=rest[:1] == ["tree"])
        elif rest[:1] == ["resolve"] and len(rest) > 2:
            self.send_file(repository, "/".join(rest[2:]))
        else:
            self.send_bytes(b"", 404)

    def send_api(self, name: str, repository: Repository, *, is_list: bool) -> None:
        """Send the facts of a repository, or the list of its files."""
        if is_list:
            self.send_json([repository.entry(file) for file in repository.files])
        else:
            self.send_json({"id": name, "sha": repository.commit, "siblings": []})

    def send_file(self, repository: Repository, name: str) -> None:
        """Send a file with its hash as ETag."""
        if name not in repository.files:
            self.send_bytes(b"", 404, {"X-Error-Code": "EntryNotFound", "ETag": 'W/"f-error"'})
            return
        found = repository.entry(name)
        large = found.get("lfs")
        etag = large["oid"] if isinstance(large, dict) else found["oid"]
        content = repository.files[name]
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        self.send_head(200, {"X-Repo-Commit": repository.commit, "ETag": f'"{etag}"'}, size)
        if self.command != "HEAD":
            with _open(content) as stream:
                shutil.copyfileobj(stream, self.wfile, CHUNK)

    def send_json(self, content: object, status: int = 200) -> None:
        """Send a JSON document."""
        self.send_bytes(json.dumps(content).encode(), status, {"Content-Type": "application/json"})

    def send_bytes(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send a status, headers and a body."""
        self.send_head(status, headers or {}, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_head(self, status: int, headers: Mapping[str, str], size: int) -> None:
        """Send a status and headers, among them the length of the body."""
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(size))
        self.end_headers()


def entry(name: str, content: Content) -> dict[str, object]:
    """Return a file's entry of the hub's file list: size, git's SHA-1, and SHA-256 where the file is large."""
    size = content.stat().st_size if isinstance(content, Path) else len(content)
    if not name.endswith(LARGE):
        return {"type": "file", "path": name, "size": size, "oid": _digest(content, b"blob %d\0" % size, "sha1")}
    # The hub has the SHA-1 of a pointer file here, which nothing reads.
    oid = hashlib.sha1(name.encode()).hexdigest()
    large = {"oid": _digest(content, b"", "sha256"), "size": size, "pointerSize": 130}
    return {"type": "file", "path": name, "size": size, "oid": oid, "lfs": large}


def _digest(content: Content, prefix: bytes, algorithm: str) -> str:
    digest = hashlib.new(algorithm, prefix)
    with _open(content) as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _open(content: Content) -> BinaryIO:
    return content.open("rb") if isinstance(content, Path) else BytesIO(content)
