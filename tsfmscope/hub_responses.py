"""Limits of requests to a hub's server, and checks of its responses before parts of them become paths.

huggingface_hub (2.4.0 and before) puts three texts of a response into paths of its cache without a check: the
ETag of a file, the commit in `X-Repo-Commit`, also of a response with status 404, and the commit of a
repository. A server that sends `../../x` there can write a file anywhere. Commits and hashes are hexadecimal;
anything else is rejected.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

COMMIT = re.compile(r"[0-9a-f]{40}")
# Git's SHA-1 for a small file, SHA-256 for a large one.
HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# The client factory of huggingface_hub belongs to the process: one thread at a time may replace it.
LOCK = threading.Lock()


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
