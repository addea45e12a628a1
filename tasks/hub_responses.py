"""Checks of responses from a hub's server, before huggingface_hub uses parts of them as paths.

huggingface_hub (2.4.0 and before) puts three texts of a response into paths of its cache without a check: the
ETag of a file, the commit in `X-Repo-Commit`, also of a response with status 404, and the commit of a
repository. A server that sends `../../x` there can write a file anywhere. Commits and hashes are hexadecimal;
anything else is rejected.
"""

from __future__ import annotations

import re
from typing import Any

COMMIT = re.compile(r"[0-9a-f]{40}")
# Git's SHA-1 for a small file, SHA-256 for a large one.
HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class HostileResponse(Exception):
    """Error for a response that has something else where a commit or a hash is expected."""


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
    Raises HostileResponse for a header that is no commit or no hash.
    """
    headers = response.headers
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


def guard() -> None:
    """Install `check_response` for every response that huggingface_hub receives in this process."""
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils._http import default_client_factory

    def make() -> Any:
        client = default_client_factory()
        hooks = client.event_hooks
        client.event_hooks = {**hooks, "response": [check_response, *hooks["response"]]}
        return client

    set_client_factory(make)
