"""A command as a job of a running Ray cluster, in a folder that its nodes share; followed to its end.

Ray's own client does the work. What it lacks: `ray job submit` ends with 1 whatever the command's status was, and with
0 when the job was stopped; a wrong address is a traceback, after 45 s where it has no http://; RAY_ADDRESS overrides
the address that it was given; and a job that is stopped has 3 s, less than a sweep needs to store what it has.
"""

from __future__ import annotations

import shlex
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tasks.errors import SweepError
from tasks.sweep.cluster import PROBE_S, PYTHON_VARIABLE, environment

STOP_S = 30  # between SIGTERM and SIGKILL of a stopped job; Resources.drain_seconds and the flush fit in
STOPPED = 143  # exit status of a job that was stopped, as a shell gives it after SIGTERM
NOT_THERE = 66  # the folder or the python is not there (EX_NOINPUT of sysexits.h)
POLL_S = 1.0
OVERRIDES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")  # of the address that a client is given

# Of bash with folder, python and command as positional parameters; Ray prints it at the head of the job's log.
ENTRY = (
    f'cd "$0" && python=$(command -v "$1") || exit {NOT_THERE}; '
    f'export {PYTHON_VARIABLE}="$python" PATH="${{python%/*}}:$PATH"; exec "${{@:2}}"'
)


@dataclass(frozen=True)
class Order:
    """What to run where."""

    address: str  # of the job server: http://head:8265
    folder: str  # absolute, as the nodes see it
    python: str  # absolute, as the nodes see it, or a name on their PATH; of the driver and of the workers
    command: Sequence[str]
    name: str | None = None  # submission id; None: Ray makes one
    variables: Mapping[str, str] = field(default_factory=dict)  # of the job's environment; the dashboard shows them
    follow: bool = True

    def __post_init__(self) -> None:
        """Raises SweepError on what cannot be."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SweepError(f"address: got {self.address!r}, expected that of the job server: http://HEAD:8265")
        if not self.folder.startswith("/"):
            raise SweepError(f"folder: got {self.folder!r}, expected an absolute path, as the cluster's nodes see it")
        if not self.command:
            raise SweepError("command: got none, expected what to run in the folder")

    @property
    def url(self) -> str:
        """The job server's address with its scheme."""
        address = self.address.rstrip("/")
        return address if "://" in address else f"http://{address}"

    @property
    def entrypoint(self) -> str:
        """The shell line that Ray runs on the head node."""
        return shlex.join(["bash", "-c", ENTRY, self.folder, self.python, *self.command])


def submit(order: Order) -> int:
    """Submit, print what the job prints, and answer its exit status: 143 where it was stopped; 0 if not followed.

    Raises SweepError where no job server answers, where it refuses the token, the job, or a client of this Ray.
    """
    with environment(dict.fromkeys(OVERRIDES, "")):
        client = _client(order.url)
        variables = {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S), **order.variables}
        try:
            job = client.submit_job(
                entrypoint=order.entrypoint,
                submission_id=order.name,
                runtime_env={"env_vars": variables},
                metadata={"folder": order.folder},
            )
        except RuntimeError as error:
            said = [line for line in str(error).splitlines() if line.strip(" .")]  # the server's traceback
            raise SweepError(f"{order.url} refused the job: {said[-1]}") from error
        where = f"--address {order.url} {job}"
        print(f"submitted {job} to {order.url}; stop it with `ray job stop {where}`", flush=True)
        if not order.follow:
            print(f"its log: `ray job logs --follow {where}`", flush=True)
            return 0
        try:
            return _follow(client, job, order)
        except KeyboardInterrupt:
            print(f"\n{job} goes on; its log: `ray job logs --follow {where}`", file=sys.stderr, flush=True)
            raise


def _client(url: str) -> Any:
    """Ray's client of a job server that has answered, and runs the Ray that runs here."""
    import logging

    import ray
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    logging.getLogger(JobSubmissionClient.__module__).setLevel(logging.WARNING)
    _probe(url)
    try:
        client = JobSubmissionClient(url)
        theirs = client._do_request("GET", "/api/version").json()["ray_version"]
    except AuthenticationError as error:
        raise SweepError(
            f"{url}: the cluster asks for a token, and this one was not right, or there was none. Copy the head "
            "node's, which `ray get-auth-token` prints there, to ~/.ray/auth_token (or RAY_AUTH_TOKEN_PATH), and set "
            f"RAY_AUTH_MODE=token\n({str(error).splitlines()[0].split('. ')[0]})"
        ) from error
    except (OSError, RuntimeError, ValueError, KeyError) as error:  # requests' errors are OSErrors
        raise SweepError(_no_server(url, error)) from error
    if theirs != ray.__version__:
        raise SweepError(
            f"{url}: got Ray {theirs} on the cluster, expected {ray.__version__} as here: workers of one Ray do not "
            "talk to another; start the cluster from this environment (constraints.txt pins it)"
        )
    return client


def _no_server(url: str, error: Exception) -> str:
    return (
        f"{url}: no job server of Ray answers there ({error}); expected the dashboard's address, "
        "http://HEAD:8265 unless `ray start --head` was told otherwise with --dashboard-host and --dashboard-port"
    )


def _probe(url: str) -> None:
    """Raise SweepError within seconds where nothing listens."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, port), timeout=PROBE_S).close()
    except (OSError, ValueError) as error:
        raise SweepError(_no_server(url, error)) from error


def _follow(client: Any, job: str, order: Order) -> int:
    """Print the job's log until it ends; its exit status. Raises SweepError where the job server goes away."""
    import asyncio

    import aiohttp

    async def tail() -> None:
        async for lines in client.tail_job_logs(job):
            print(lines, end="", flush=True)

    try:
        try:
            asyncio.run(tail())
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # a proxy, or a busy dashboard
            print(f"the log's connection broke ({error}); waiting for the job's end", file=sys.stderr, flush=True)
        while not (info := client.get_job_info(job)).status.is_terminal():
            time.sleep(POLL_S)
    except (OSError, RuntimeError) as error:
        raise SweepError(
            f"{order.url} no longer answers ({error}); where the head node is alive {job} goes on, else submit again: "
            "what finished is stored"
        ) from error
    return _status(info, order)


def _status(info: Any, order: Order) -> int:
    """The exit status that a job's end stands for."""
    if info.status == "SUCCEEDED":
        return 0
    if info.status == "STOPPED":
        print(f"{info.submission_id} was stopped", file=sys.stderr, flush=True)
        return STOPPED
    code = info.driver_exit_code
    if code is None:  # it never ran, or its node died
        print(f"{info.submission_id} failed: {info.message}", file=sys.stderr, flush=True)
        return 1
    code = int(code) if code >= 0 else 128 - int(code)  # of a signal, as a shell gives it
    if code == NOT_THERE:
        print(
            f"the head node has not got the folder {order.folder} or the python {order.python}: name the checkout as "
            "the cluster's nodes see it (FOLDER=...), run `make setup` in it, or name a python that all nodes have "
            "(PYTHON=...)",
            file=sys.stderr,
        )
    print(f"{info.submission_id} failed: exit status {code}", file=sys.stderr, flush=True)
    return code
