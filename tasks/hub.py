"""Downloads from the model hub, which happen only on request, in a child process with a stall limit.

A child process is needed because huggingface_hub retries a stalled or broken connection for a minute or for
ever, and name look-ups have no time limit. A process can be killed whatever it waits for, and the files that
it has fetched stay in the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tsfmscope.tasks.errors import HubError
from tsfmscope.tasks.hub_responses import COMMIT, HASH, HostileResponse, checked_commit, guard

PREFIX = "hub:"
# The name and the revision become parts of paths in the cache: neither may lead out of it.
PART = r"[A-Za-z0-9_](?:(?!--|\.\.)[\w.-])*"
REFERENCE = re.compile(rf"(?:hub:)?(?P<name>{PART}/{PART}?)(?:@(?P<revision>[\w-](?:(?!\.\.)[\w./-])*))?", re.ASCII)
# A download is given up when no new byte arrives for this long.
STALL_SECONDS = 10.0
# Bytes that the child writes at a time, so that the parent sees progress on slow connections.
CHUNK = 1 << 16
HINTS = {
    "offline": "check the network and HF_ENDPOINT, or name a folder that contains the checkpoint",
    "missing": "check the name and the revision on the hub",
    "refused": "it is private, gated or missing: accept its terms on the hub, log in (`hf auth login` or HF_TOKEN)",
    "stalled": "the connection stalls: try again later, or name a folder that contains the checkpoint",
    "truncated": "the hub or a proxy cuts the file short: try again, or fetch it another way and name its folder",
    "hostile": "do not use that server: check HF_ENDPOINT, or name a folder that contains the checkpoint",
    "other": "try again, or name a folder that contains the checkpoint",
}


def looks_like_hub(reference: str) -> bool:
    """Return whether a reference has the form "hub:ORG/NAME[@REVISION]" or "ORG/NAME[@REVISION]"."""
    return REFERENCE.fullmatch(reference) is not None


def download(
    reference: str,
    patterns: Sequence[str],
    *,
    allowed: bool,
    kind: str = "model",
    cache: Path | None = None,
) -> tuple[Path, str]:
    """Return the cache folder with the files of a repository that match the patterns, and its commit.

    reference: hub:ORG/NAME[@REVISION]; "hub:" may be missing. patterns: globs of file names. kind: type of
    the repository. cache: the hub's cache, by default that of huggingface_hub.
    If `allowed` is False, only the cache is used. If the revision is a commit and the cache has files of it,
    no connection is made either.
    Raises ValueError for a reference of another form. Raises HubError, whose message states the reason and a
    fix: not allowed, offline, missing, refused, stalled, truncated, hostile server.
    """
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise ValueError(f"reference: got {reference!r}, expected hub:ORG/NAME[@REVISION]")
    request: dict[str, Any] = {
        "repo_id": match["name"],
        "revision": match["revision"],
        "repo_type": kind,
        "allow_patterns": list(patterns),
        "cache_dir": str(cache or _default_cache()),
    }
    pinned = COMMIT.fullmatch(match["revision"] or "") is not None
    folder = _cached_folder(request) if pinned or not allowed else None
    if folder is None and not allowed:
        raise HubError(
            f"{reference}: not in the hub's cache, and downloads are not allowed; allow them for this model, "
            "or name a folder that contains the checkpoint"
        )
    if folder is None:
        folder = _fetch(reference, request)
        _verify(reference, folder, patterns)
    return folder, folder.name


def _default_cache() -> str:
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)


def _cached_folder(request: Mapping[str, Any]) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(**request, local_files_only=True))
    except (LocalEntryNotFoundError, OSError):
        return None
    return folder if any(folder.glob(p) for p in request["allow_patterns"]) else None


def _fetch(reference: str, request: Mapping[str, Any]) -> Path:
    root = str(Path(__file__).absolute().parents[2])
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
        # Downloads through Xet show no progress that `_watch` could see.
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    command = [sys.executable, "-m", "tsfmscope.tasks.hub", json.dumps(request)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        repository = f"{request['repo_type']}s--{request['repo_id'].replace('/', '--')}"
        reason = _watch(child, Path(request["cache_dir"], repository))
        if reason is not None:
            child.kill()
            raise HubError(f"{reference}: no new data for {STALL_SECONDS:g} s ({reason}); {HINTS[reason]}")
        assert child.stdout is not None
        lines = child.stdout.read().decode().splitlines()
    answer = json.loads(lines[-1]) if lines else {"error": "other", "detail": f"exit code {child.returncode}"}
    if "error" in answer:
        raise HubError(f"{reference}: {answer['detail']}; {HINTS[answer['error']]}")
    return Path(answer["folder"])


def _watch(child: subprocess.Popen[bytes], repository: Path) -> str | None:
    """Return None once the child ends, or the reason why it must be killed.

    The reason is "stalled" if no bytes arrive for STALL_SECONDS, and "truncated" if bytes arrive but the
    files do not grow beyond their largest size so far, because the same bytes are fetched again and again.
    """
    assert child.stdout is not None
    # The child prints a line when its imports are done, so that their time does not count.
    child.stdout.readline()
    largest, last_write, write_at_largest, since = 0, 0, 0, time.monotonic()
    while child.poll() is None:
        size, last_write = _bytes(repository / "blobs")
        if size > largest:
            largest, write_at_largest, since = size, last_write, time.monotonic()
        if time.monotonic() - since > STALL_SECONDS:
            return "truncated" if last_write > write_at_largest else "stalled"
        time.sleep(0.05)
    return None


def _bytes(folder: Path) -> tuple[int, int]:
    """Return the bytes in a folder, and the time of its last write in nanoseconds."""
    total, last_write = 0, 0
    for path in folder.glob("*"):
        # The child may rename a complete file at any moment.
        with contextlib.suppress(FileNotFoundError):
            stat = path.stat()
            total, last_write = total + stat.st_size, max(last_write, stat.st_mtime_ns)
    return total, last_write


def _verify(reference: str, folder: Path, patterns: Sequence[str]) -> None:
    """Check each file against the hash that names its blob.

    The hash is SHA-256 for large files and git's SHA-1 for small ones. A file with a wrong hash is deleted.
    Raises HubError if no file matches the patterns, if a blob's name is no hash, or if a hash differs.
    """
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    if not paths:
        raise HubError(f"{reference}: the repository has no file like {list(patterns)}; {HINTS['missing']}")
    for path in paths:
        # On a file system without links the cache has plain files, which have no hash in their
        # name. The server cannot cause this.
        if not path.is_symlink():
            continue
        blob = path.resolve()
        expected = blob.name
        if not HASH.fullmatch(expected):
            raise HubError(f"{reference}: the server sent no hash of {path.name}, got {expected!r}; {HINTS['hostile']}")
        digest = hashlib.sha256() if len(expected) == 64 else hashlib.sha1(b"blob %d\0" % blob.stat().st_size)
        with blob.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
        if digest.hexdigest() != expected:
            path.unlink()
            blob.unlink(missing_ok=True)
            raise HubError(
                f"{reference}: {path.name} has hash {digest.hexdigest()}, expected {expected}; {HINTS['truncated']}"
            )


def _child(request: Mapping[str, Any]) -> dict[str, str]:
    """Fetch the files in this process, and return the folder or the kind and detail of the error."""
    from huggingface_hub import constants, errors

    guard()
    print("ready", flush=True)
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK
    try:
        return {"folder": _snapshot(request)}
    except HostileResponse as error:
        return {"error": "hostile", "detail": str(error)}
    except (errors.GatedRepoError, errors.DisabledRepoError) as error:
        return {"error": "refused", "detail": f"got status {error.response.status_code}"}
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        kinds = {401: "refused", 403: "refused", 404: "missing"}
        return {"error": kinds.get(status, "other"), "detail": f"got status {status}"}
    # The package raises OSError if there is no connection and nothing cached, or if sizes differ.
    except OSError as error:
        if "Consistency check failed" in str(error):
            return {"error": "truncated", "detail": str(error).partition("\n")[0]}
        return {"error": "offline", "detail": f"{type(error).__name__}: {error}".partition("\n")[0]}
    # Any other error is sent to the parent, which raises it with a hint.
    except Exception as error:
        unreached = type(error).__module__.startswith("httpx")
        detail = f"{type(error).__name__}: {error}".partition("\n")[0]
        return {"error": "offline" if unreached else "other", "detail": detail}


def _snapshot(request: Mapping[str, Any]) -> str:
    """Fetch the files of a revision's commit and return their folder.

    If the server does not name the commit, the files that the cache has for the revision are used.
    The commit is requested and checked here, because snapshot_download writes files under any name that the
    server sends. If snapshot_download is given a commit, it does not record the revision. The revision is
    therefore recorded here, since it is needed to find the files later without the hub.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    revision = request["revision"] or constants.DEFAULT_REVISION
    if COMMIT.fullmatch(revision):
        return str(snapshot_download(**request))
    try:
        info = HfApi().repo_info(request["repo_id"], repo_type=request["repo_type"], revision=revision)
    except HostileResponse:
        raise
    except Exception:
        if cached := _cached_folder(request):
            return str(cached)
        raise
    commit = checked_commit(info.sha)
    folder = str(snapshot_download(**{**request, "revision": commit}))
    ref = Path(folder).parents[1] / "refs" / revision
    ref.parent.mkdir(parents=True, exist_ok=True)
    temporary = ref.with_name(f"{ref.name}.{os.getpid()}.tmp")
    temporary.write_text(commit)
    temporary.replace(ref)
    return folder


if __name__ == "__main__":
    print(json.dumps(_child(json.loads(sys.argv[1]))))
