"""Submission of a command as a job of a running Ray cluster, in a folder that its nodes share.

Ray's own client submits the job and follows it to its end. This module avoids these faults of `ray job
submit`:

- its exit status is 1 whatever the command's status was, and 0 when the job was stopped;
- a wrong address gives a traceback, after 45 s if it has no http://;
- RAY_ADDRESS overrides the given address;
- a stopped job gets 3 s, which is less than a sweep needs to store its results.
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

from tsfmscope.tasks.errors import SweepError
from tsfmscope.tasks.sweep.cluster import PROBE_S, PYTHON_VARIABLE, environment

# Seconds between SIGTERM and SIGKILL of a stopped job. They are enough for Resources.drain_seconds
# and the flush.
STOP_S = 30
# Exit status of a job that was stopped, as a shell gives it after SIGTERM.
STOPPED_STATUS = 143
# Exit status if the folder or the Python does not exist (EX_NOINPUT of sysexits.h).
NOT_FOUND_STATUS = 66
POLL_S = 1.0
# Variables that override the address given to a client.
OVERRIDES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")

# Script for bash, with folder, Python and command as positional parameters. Ray prints it at the
# beginning of the job's log.
ENTRY = (
    f'cd "$0" && python=$(command -v "$1") || exit {NOT_FOUND_STATUS}; '
    f'export {PYTHON_VARIABLE}="$python" PATH="${{python%/*}}:$PATH"; exec "${{@:2}}"'
)


@dataclass(frozen=True)
class Submission:
    """A command and where to run it."""

    # Address of the job server: http://head:8265.
    address: str
    # Absolute path, as the nodes see it.
    folder: str
    # Python of the driver and of the workers: absolute, as the nodes see it, or a name on their
    # PATH.
    python: str
    command: Sequence[str]
    # Submission id; None: Ray creates one.
    name: str | None = None
    # Environment variables of the job; Ray's dashboard shows them.
    variables: Mapping[str, str] = field(default_factory=dict)
    follow: bool = True

    def __post_init__(self) -> None:
        """Raise SweepError for an invalid value."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SweepError(f"address: got {self.address!r}, expected the address of the job server: http://HEAD:8265")
        if not self.folder.startswith("/"):
            raise SweepError(f"folder: got {self.folder!r}, expected an absolute path, as the cluster's nodes see it")
        if not self.command:
            raise SweepError("command: got none, expected a command to run in the folder")

    @property
    def url(self) -> str:
        """Return the job server's address with its scheme."""
        address = self.address.rstrip("/")
        return address if "://" in address else f"http://{address}"

    @property
    def entrypoint(self) -> str:
        """Return the shell line that Ray runs on the head node."""
        return shlex.join(["bash", "-c", ENTRY, self.folder, self.python, *self.command])


def submit(submission: Submission) -> int:
    """Submit a command, print the job's log, and return its exit status.

    The status is 143 if the job was stopped, and 0 if it is not followed.

    Raises:
        SweepError: no job server answers, it refuses the token or the job, or the cluster runs another
            version of Ray.
    """
    with environment(dict.fromkeys(OVERRIDES, "")):
        client = _client(submission.url)
        variables = {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S), **submission.variables}
        try:
            job = client.submit_job(
                entrypoint=submission.entrypoint,
                submission_id=submission.name,
                runtime_env={"env_vars": variables},
                metadata={"folder": submission.folder},
            )
        except RuntimeError as error:
            # The message contains the server's traceback; its last line is the reason.
            lines = [line for line in str(error).splitlines() if line.strip(" .")]
            raise SweepError(f"{submission.url} refused the job: {lines[-1]}") from error
        options = f"--address {submission.url} {job}"
        print(f"submitted {job} to {submission.url}; stop it with `ray job stop {options}`", flush=True)
        if not submission.follow:
            print(f"its log: `ray job logs --follow {options}`", flush=True)
            return 0
        try:
            return _follow(client, job, submission)
        except KeyboardInterrupt:
            print(f"\n{job} continues; its log: `ray job logs --follow {options}`", file=sys.stderr, flush=True)
            raise


def _client(url: str) -> Any:
    """Return Ray's client of a job server that answers and runs the same Ray version as this process."""
    import logging

    import ray
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    logging.getLogger(JobSubmissionClient.__module__).setLevel(logging.WARNING)
    _probe(url)
    try:
        client = JobSubmissionClient(url)
        cluster_version = client._do_request("GET", "/api/version").json()["ray_version"]
    except AuthenticationError as error:
        raise SweepError(
            f"{url}: the cluster requires a token, but the token was wrong or missing. Run `ray get-auth-token` on the "
            "head node, copy its output to ~/.ray/auth_token (or RAY_AUTH_TOKEN_PATH), and set "
            f"RAY_AUTH_MODE=token\n({str(error).splitlines()[0].split('. ')[0]})"
        ) from error
    # The exceptions of requests are OSErrors.
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise SweepError(_no_server(url, error)) from error
    if cluster_version != ray.__version__:
        raise SweepError(
            f"{url}: got Ray {cluster_version} on the cluster, expected {ray.__version__} as here, because different "
            "versions of Ray cannot communicate; start the cluster with the version of constraints.txt"
        )
    return client


def _no_server(url: str, error: Exception) -> str:
    return (
        f"{url}: no job server of Ray answers ({error}); expected the dashboard's address, http://HEAD:8265 "
        "unless `ray start --head` was given --dashboard-host or --dashboard-port"
    )


def _probe(url: str) -> None:
    """Raise SweepError within seconds if nothing listens."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, port), timeout=PROBE_S).close()
    except (OSError, ValueError) as error:
        raise SweepError(_no_server(url, error)) from error


def _follow(client: Any, job: str, submission: Submission) -> int:
    """Print the job's log until the job ends, and return its exit status.

    Raises:
        SweepError: the job server no longer answers.
    """
    import asyncio

    import aiohttp

    async def tail() -> None:
        async for lines in client.tail_job_logs(job):
            print(lines, end="", flush=True)

    try:
        try:
            asyncio.run(tail())
        # A proxy or a busy dashboard may close the connection.
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            print(
                f"the connection to the log broke ({error}); waiting for the end of the job",
                file=sys.stderr,
                flush=True,
            )
        while not (info := client.get_job_info(job)).status.is_terminal():
            time.sleep(POLL_S)
    except (OSError, RuntimeError) as error:
        raise SweepError(
            f"{submission.url} no longer answers ({error}). If the head node is alive, {job} continues; if not, submit "
            "the command again: finished jobs are stored"
        ) from error
    return _status(info, submission)


def _status(info: Any, submission: Submission) -> int:
    """Return the exit status of an ended job, and print the reason if it failed."""
    if info.status == "SUCCEEDED":
        return 0
    if info.status == "STOPPED":
        print(f"{info.submission_id} was stopped", file=sys.stderr, flush=True)
        return STOPPED_STATUS
    code = info.driver_exit_code
    # The job never ran, or its node died.
    if code is None:
        print(f"{info.submission_id} failed: {info.message}", file=sys.stderr, flush=True)
        return 1
    # A negative code is a signal; a shell gives 128 + its number.
    code = int(code) if code >= 0 else 128 - int(code)
    if code == NOT_FOUND_STATUS:
        print(
            f"the head node lacks the folder {submission.folder} or the Python {submission.python}: set FOLDER to the "
            "checkout's path on the nodes, run `make setup` in it, or set PYTHON to an interpreter that all nodes have",
            file=sys.stderr,
        )
    print(f"{info.submission_id} failed: exit status {code}", file=sys.stderr, flush=True)
    return code
