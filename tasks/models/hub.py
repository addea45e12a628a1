"""Files from the model hub: fetched only when asked, in a child process that is ended where nothing arrives.

A child, because huggingface_hub retries a stalled or broken connection for a minute or for ever, and name look-ups
know no time limit; a process can be ended whatever it waits for, and what it has fetched stays in the cache.
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

from tasks.errors import HubError

PREFIX = "hub:"
REFERENCE = re.compile(r"(?:hub:)?(?P<name>[\w.-]+/[\w.-]+?)(?:@(?P<revision>[\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")
STALL_SECONDS = 10.0  # give up when no new byte came for so long
CHUNK = 1 << 16  # bytes between two signs of life
MEND = {
    "offline": "check the network and HF_ENDPOINT, or name a folder that holds the checkpoint",
    "missing": "check the name and the revision on the hub",
    "refused": "it is private, gated or not there: accept its terms on the hub, log in (`hf auth login` or HF_TOKEN)",
    "stalled": "the connection stalls: try again later, or name a folder that holds the checkpoint",
    "truncated": "the hub or a proxy cuts the file short: try again, or fetch it another way and name its folder",
    "other": "try again, or name a folder that holds the checkpoint",
}


def looks_like_hub(reference: str) -> bool:
    """Whether a reference has the form "hub:ORG/NAME[@REVISION]" or "ORG/NAME[@REVISION]"."""
    return REFERENCE.fullmatch(reference) is not None


def download(
    reference: str,
    patterns: Sequence[str],
    *,
    allowed: bool,
    kind: str = "model",
    cache: Path | None = None,
) -> tuple[Path, str]:
    """Folder in the hub's cache with the files of a repository that match the patterns, and its commit.

    Without `allowed`, or where the revision is a commit, what the cache holds is used and no connection is made.
    HubError says what happened and what to do: not allowed, offline, not there, refused, stalled, truncated.
    """
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise ValueError(f"reference: got {reference!r}, expected hub:ORG/NAME[@REVISION]")
    what: dict[str, Any] = {
        "repo_id": match["name"],
        "revision": match["revision"],
        "repo_type": kind,
        "allow_patterns": list(patterns),
        "cache_dir": str(cache or _default_cache()),
    }
    pinned = COMMIT.fullmatch(match["revision"] or "") is not None
    folder = _cached(what) if pinned or not allowed else None
    if folder is None and not allowed:
        raise HubError(
            f"{reference}: not in the hub's cache, and the hub may not be asked; allow it where models are named, "
            "or name a folder that holds the checkpoint"
        )
    if folder is None:
        folder = _fetch(reference, what)
        _verify(reference, folder, patterns)
    return folder, folder.name


def _default_cache() -> str:
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)


def _cached(what: Mapping[str, Any]) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(**what, local_files_only=True))
    except (LocalEntryNotFoundError, OSError):
        return None
    return folder if any(folder.glob(p) for p in what["allow_patterns"]) else None


def _fetch(reference: str, what: Mapping[str, Any]) -> Path:
    root = str(Path(__file__).parents[2])
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
        "HF_HUB_DISABLE_XET": "1",  # its downloads show no progress that could be watched
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    command = [sys.executable, "-m", "tasks.models.hub", json.dumps(what)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        ended = _watch(child, Path(what["cache_dir"], f"{what['repo_type']}s--{what['repo_id'].replace('/', '--')}"))
        if ended is not None:
            child.kill()
            raise HubError(f"{reference}: no new data for {STALL_SECONDS:g} s ({ended}); {MEND[ended]}")
        assert child.stdout is not None
        lines = child.stdout.read().decode().splitlines()
    answer = json.loads(lines[-1]) if lines else {"error": "other", "detail": f"exit code {child.returncode}"}
    if "error" in answer:
        raise HubError(f"{reference}: {answer['detail']}; {MEND[answer['error']]}")
    return Path(answer["folder"])


def _watch(child: subprocess.Popen[bytes], repository: Path) -> str | None:
    """None once the child ends; "stalled" or "truncated" where bytes stop coming, or come again and again."""
    assert child.stdout is not None
    child.stdout.readline()  # it has imported what it needs, and the clock starts
    most, written, grown, since = 0, 0, 0, time.monotonic()
    while child.poll() is None:
        size, written = _bytes(repository / "blobs")
        if size > most:
            most, grown, since = size, written, time.monotonic()
        if time.monotonic() - since > STALL_SECONDS:
            return "truncated" if written > grown else "stalled"
        time.sleep(0.05)
    return None


def _bytes(folder: Path) -> tuple[int, int]:
    """Bytes in a folder, and when one was last written (ns)."""
    total, written = 0, 0
    for path in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError):  # the child renames what is complete
            stat = path.stat()
            total, written = total + stat.st_size, max(written, stat.st_mtime_ns)
    return total, written


def _verify(reference: str, folder: Path, patterns: Sequence[str]) -> None:
    """Hold each file against the hash that names its blob: SHA-256 of large files, git's SHA-1 of small ones."""
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    if not paths:
        raise HubError(f"{reference}: the repository has no file like {list(patterns)}; {MEND['missing']}")
    for path in paths:
        blob = path.resolve()
        want = blob.name
        if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", want):
            continue  # a server that sends no hash as its ETag
        digest = hashlib.sha256() if len(want) == 64 else hashlib.sha1(b"blob %d\0" % blob.stat().st_size)
        with blob.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
        if digest.hexdigest() != want:
            path.unlink()
            blob.unlink(missing_ok=True)
            raise HubError(f"{reference}: {path.name} has hash {digest.hexdigest()}, not {want}; {MEND['truncated']}")


def _child(what: Mapping[str, Any]) -> dict[str, str]:
    from huggingface_hub import constants, errors, snapshot_download

    print("ready", flush=True)
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK
    try:
        return {"folder": snapshot_download(**what)}
    except (errors.GatedRepoError, errors.DisabledRepoError) as error:
        return {"error": "refused", "detail": f"got status {error.response.status_code}"}
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        known = {401: "refused", 403: "refused", 404: "missing"}
        return {"error": known.get(status, "other"), "detail": f"got status {status}"}
    except OSError as error:  # the package's own: no connection and nothing cached, or sizes that differ
        if "Consistency check failed" in str(error):
            return {"error": "truncated", "detail": str(error).partition("\n")[0]}
        return {"error": "offline", "detail": f"{type(error).__name__}: {error}".partition("\n")[0]}
    except Exception as error:  # whatever it is, the parent raises it with what to do
        return {"error": "other", "detail": f"{type(error).__name__}: {error}".partition("\n")[0]}


if __name__ == "__main__":
    print(json.dumps(_child(json.loads(sys.argv[1]))))
