"""Downloads from the model hub, which happen only on request.

huggingface_hub downloads the files, continues broken downloads, and gives up when no data arrive. The
environment variable HF_HUB_DOWNLOAD_TIMEOUT is its limit of one wait in seconds (default 10); it makes six
attempts. `limit_wait` sets the same limit for requests that it sends without one.

Responses are checked before parts of them become paths. huggingface_hub (2.4.0 and before) puts three texts of a
response into paths of its cache without a check: the ETag of a file, the commit in `X-Repo-Commit`, also of a response
with status 404, and the commit of a repository. A server that sends `../../x` there can write a file anywhere. Commits
and hashes are hexadecimal; anything else is rejected.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tsfmscope.errors import HubError, MissingOnHubError
from tsfmscope.files import file_sum, git_sum

PREFIX = "hub:"
# The name and the revision become parts of paths in the cache: neither may lead out of it.
PART = r"[A-Za-z0-9_](?:(?!--|\.\.)[\w.-])*"
REFERENCE = re.compile(rf"(?:hub:)?(?P<name>{PART}/{PART}?)(?:@(?P<revision>[\w-](?:(?!\.\.)[\w./-])*))?", re.ASCII)
HINTS = {
    "offline": "check the network and HF_ENDPOINT, or name a folder that contains the checkpoint",
    "missing": "check the name and the revision on the hub",
    "refused": "it is private, gated or missing: accept its terms on the hub, log in (`hf auth login` or HF_TOKEN)",
    "stalled": "the connection stalls: try again later, or name a folder that contains the checkpoint",
    "truncated": "the hub or a proxy cuts the file short: try again, or fetch it another way and name its folder",
    "hostile": "do not use that server: check HF_ENDPOINT, or name a folder that contains the checkpoint",
    "other": "try again, or name a folder that contains the checkpoint",
}
STATUSES = {401: "refused", 403: "refused", 404: "missing"}
# Exceptions of httpx during a transfer, by name because huggingface_hub 2 uses another package than 1. All
# other exceptions of httpx mean that there is no connection.
TRANSFERS = {"ReadTimeout": "stalled", "RemoteProtocolError": "truncated", "ReadError": "truncated"}

COMMIT = re.compile(r"[0-9a-f]{40}")
# Git's SHA-1 for a small file, SHA-256 for a large one.
HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# The client factory of huggingface_hub belongs to the process: one thread at a time may replace it.
LOCK = threading.Lock()


def looks_like_hub(reference: str) -> bool:
    """Return whether a reference has the form "hub:ORG/NAME[@REVISION]" or "ORG/NAME[@REVISION]"."""
    return REFERENCE.fullmatch(reference) is not None


def download(
    reference: str, patterns: Sequence[str], *, also: Sequence[str] = (), allowed: bool, kind: str = "model",
    cache: Path | None = None,
) -> tuple[Path, str]:  # fmt: skip
    """Return the cache folder with the files of a repository that match the patterns, and its commit.

    reference: hub:ORG/NAME[@REVISION]; "hub:" may be missing. patterns: globs of file names. also: globs of files that
    are downloaded with them and may be missing. kind: type of the repository. cache: the hub's cache, by default that
    of huggingface_hub.
    If `allowed` is False, only the cache is used. If the revision is a commit and the cache has files of it,
    no connection is made either. Files of the cache too are compared with their hashes.
    Raises ValueError for a reference of another form. Raises HubError, whose message states the reason and a
    fix: not allowed, offline, missing (MissingOnHubError), refused, stalled, truncated, hostile server.
    """
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise ValueError(f"reference: got {reference!r}, expected hub:ORG/NAME[@REVISION]")
    request: dict[str, Any] = {
        "repo_id": match["name"], "revision": match["revision"] or "main", "repo_type": kind,
        "allow_patterns": [*patterns, *also], "cache_dir": cache,
    }  # fmt: skip
    pinned = COMMIT.fullmatch(request["revision"]) is not None
    folder = _cached_folder(request, patterns) if pinned or not allowed else None
    if folder is None and not allowed:
        raise HubError(
            f"{reference}: not in the hub's cache, and downloads are not allowed; allow them for this model, "
            "or name a folder that contains the checkpoint"
        )
    if folder is None:
        folder = _fetch(reference, request, patterns)
    _verify(reference, folder, patterns, also)
    return folder, folder.name


def _cached_folder(request: Mapping[str, Any], patterns: Sequence[str]) -> Path | None:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(**request, local_files_only=True))
    # The files are not in the cache.
    except OSError:
        return None
    return folder if any(any(folder.glob(pattern)) for pattern in patterns) else None


def _fetch(reference: str, request: Mapping[str, Any], patterns: Sequence[str]) -> Path:
    """Fetch the files and return their folder. Raises HubError."""
    from huggingface_hub import errors

    try:
        with checked_responses():
            return _snapshot(request, patterns)
    except HostileResponse as error:
        reason, detail = "hostile", str(error)
    except NotContinued as error:
        reason, detail = "truncated", str(error)
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        reason, detail = STATUSES.get(status, "other"), f"got status {status}"
    # The server may send anything, so that other code of the library may fail in any way.
    except Exception as error:
        # The library hides the reason behind the report that the cache has no files either.
        cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ else error
        is_request = isinstance(cause, errors.HTTPError | ConnectionError)
        reason = TRANSFERS.get(type(cause).__name__, "offline") if is_request else "other"
        if "Consistency check failed" in str(cause):
            reason = "truncated"
        detail = f"{type(cause).__name__}: {cause}".partition("\n")[0].rstrip(".")
    kind = MissingOnHubError if reason == "missing" else HubError
    raise kind(f"{reference}: {detail}; {HINTS[reason]}")


def _snapshot(request: Mapping[str, Any], patterns: Sequence[str]) -> Path:
    """Fetch the files of a revision's commit and return their folder.

    If the server does not name the commit, the files that the cache has for the revision are used.
    The commit is requested and checked here, because snapshot_download writes files under any name that the
    server sends. If snapshot_download is given a commit, it does not record the revision. The revision is
    therefore recorded here, since it is needed to find the files later without the hub.
    """
    from huggingface_hub import HfApi, snapshot_download

    # The library reads the variable only once, when it is imported.
    endpoint = os.environ.get("HF_ENDPOINT")
    revision = request["revision"]
    if COMMIT.fullmatch(revision):
        return Path(snapshot_download(**request, endpoint=endpoint))
    try:
        info = HfApi(endpoint).repo_info(request["repo_id"], repo_type=request["repo_type"], revision=revision)
    except HostileResponse:
        raise
    except Exception:
        if cached := _cached_folder(request, patterns):
            return cached
        raise
    folder = Path(snapshot_download(**{**request, "revision": checked_commit(info.sha)}, endpoint=endpoint))
    ref = folder.parents[1] / "refs" / revision
    ref.parent.mkdir(parents=True, exist_ok=True)
    temporary = ref.with_name(f"{ref.name}.{os.getpid()}.tmp")
    temporary.write_text(folder.name)
    temporary.replace(ref)
    return folder


def _verify(reference: str, folder: Path, patterns: Sequence[str], also: Sequence[str]) -> None:
    """Check each file against the hash that names its blob.

    The hash is SHA-256 for large files and git's SHA-1 for small ones. A file with a wrong hash is deleted, so that it
    is downloaded again. A process reads a file again only after its inode, its modification time or its size changed.
    Raises MissingOnHubError if no file matches the patterns, HubError if a blob's name is no hash or if a hash differs.
    """
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    if not paths:
        raise MissingOnHubError(f"{reference}: the repository has no file like {list(patterns)}; {HINTS['missing']}")
    for path in paths + sorted({path for pattern in also for path in folder.glob(pattern)}):
        # On a file system without links the cache has plain files, which have no hash in their
        # name. The server cannot cause this.
        if not path.is_symlink():
            continue
        blob = path.resolve()
        expected = blob.name
        if not HASH.fullmatch(expected):
            raise HubError(f"{reference}: the server sent no hash of {path.name}, got {expected!r}; {HINTS['hostile']}")
        # The fingerprint of a checkpoint needs the SHA-256 under the same path.
        digest = file_sum(path) if len(expected) == 64 else git_sum(path)
        if digest != expected:
            # A cache may be read-only.
            with contextlib.suppress(OSError):
                path.unlink()
                blob.unlink(missing_ok=True)
            raise HubError(f"{reference}: {path.name} has hash {digest}, expected {expected}; {HINTS['truncated']}")


class HostileResponse(Exception):
    """Error for a response that has something else where a commit or a hash is expected."""


class NotContinued(Exception):
    """Error for a server that sends a file from its beginning when the rest is requested.

    huggingface_hub would begin such a file again and again, for ever.
    """


def checked_commit(commit: object) -> str:
    """Return the commit that a server names. Raises HostileResponse if it is not 40 hexadecimal digits."""
    if not isinstance(commit, str) or COMMIT.fullmatch(commit) is None:
        raise HostileResponse(f"the server names commit {commit!r:.100}, expected 40 hexadecimal digits")
    return commit


def check_response(response: Any) -> None:
    """Check the headers that become paths; a response hook of httpx, called before all other code.

    `X-Repo-Commit` is always checked. An ETag is checked if the request is HEAD (which asks for a file's
    metadata) and the response is no error. From a redirection, an ETag that is no hash is removed: the
    redirection may be followed, and the ETag of the last response is then used.
    Raises HostileResponse for a header that is no commit or no hash, and NotContinued.
    """
    headers = response.headers
    # huggingface_hub waits as long as this header says.
    headers.pop("RateLimit", None)
    if "Range" in response.request.headers and response.status_code == 200:
        raise NotContinued("the connection broke, and the server cannot send the rest of a file alone")
    if "X-Repo-Commit" in headers:
        checked_commit(headers["X-Repo-Commit"])
    if response.request.method != "HEAD" or response.is_error:
        return
    for name in ("X-Linked-Etag", "ETag"):
        if name not in headers or HASH.fullmatch(headers[name].removeprefix("W/").strip('"')):
            continue
        if not response.is_redirect:
            raise HostileResponse(f"the server sends {name} {headers[name]!r:.100}, expected a file's hash")
        del headers[name]


def limit_wait(request: Any) -> None:
    """Limit every wait for the server; a request hook of httpx.

    huggingface_hub (2.4.0) sends its requests for a repository's commit and file list without a limit.
    """
    from huggingface_hub import constants

    limits = dict.fromkeys(("connect", "read", "write", "pool"), constants.HF_HUB_DOWNLOAD_TIMEOUT)
    request.extensions = {**request.extensions, "timeout": limits}


@contextlib.contextmanager
def checked_responses() -> Iterator[None]:
    """Install the checks and limits for the requests that huggingface_hub makes inside the context.

    Downloads through Xet are switched off there, because they use hashes of the file list without a check.
    """
    from huggingface_hub import constants, set_client_factory
    from huggingface_hub.utils import _http

    with LOCK:
        # There is no public way to read the factory, which may be the user's own, with a proxy.
        factory, without_xet = _http._GLOBAL_CLIENT_FACTORY, constants.HF_HUB_DISABLE_XET

        def make_client() -> Any:
            client = factory()
            hooks = client.event_hooks
            client.event_hooks = {
                "request": [*hooks["request"], limit_wait],
                "response": [check_response, *hooks["response"]],
            }
            return client

        set_client_factory(make_client)
        constants.HF_HUB_DISABLE_XET = True
        try:
            yield
        finally:
            set_client_factory(factory)
            constants.HF_HUB_DISABLE_XET = without_xet
