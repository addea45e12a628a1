"""What is told before and after a job is submitted; tests/e2e/test_submit.py has a real cluster."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tsfmscope.tasks.errors import SweepError
from tsfmscope.tasks.sweep.cluster import PYTHON_VARIABLE
from tsfmscope.tasks.sweep.submit import NOT_FOUND_STATUS, Submission, submit


def order(address: str = "http://127.0.0.1:1", **more: Any) -> Submission:
    return Submission(**{"address": address, "folder": "/", "python": sys.executable, "command": ("true",), **more})


WRONG = [
    ({"address": ""}, "address: got ''.*http://HEAD:8265"),
    ({"address": "ray://head:10001"}, "address: got 'ray://head:10001'"),
    ({"folder": "here"}, "folder: got 'here', expected an absolute path"),
    ({"command": ()}, "command: got none"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_an_order_that_cannot_be_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SweepError, match=said):
        order(**given)


def test_an_address_needs_no_scheme() -> None:
    assert order("head:8265").url == order("http://head:8265/").url == "http://head:8265"


def run(made: Submission) -> subprocess.CompletedProcess[str]:
    """The line as Ray's supervisor runs it: through a shell, in some other folder."""
    return subprocess.run(made.entrypoint, shell=True, capture_output=True, text=True, check=False, cwd="/")


def test_the_job_runs_in_the_folder_with_its_python_and_its_words_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "a folder with 'quotes' and $HOME"
    folder.mkdir()
    words = ["two words", "$HOME", "'", '"', "*", "", "é;exit 3"]
    code = "import json, os, shutil, sys; print(json.dumps([os.getcwd(), shutil.which('python'), sys.argv[1:]]))"
    done = run(order(folder=str(folder), command=("python", "-c", code, *words)))
    there, python, got = json.loads(done.stdout)
    assert (there, python, got) == (str(folder), str(Path(sys.executable).with_name("python")), words)
    told = run(order(command=("printenv", PYTHON_VARIABLE))).stdout
    assert told.strip() == sys.executable


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_the_command_gives_the_line_its_exit_status(status: int) -> None:
    assert run(order(command=("bash", "-c", f"exit {status}"))).returncode == status


@pytest.mark.parametrize("missing", [{"folder": "/no/such folder"}, {"python": "/no/such/python"}])
def test_a_missing_folder_or_python_has_a_status_of_its_own(missing: dict[str, str]) -> None:
    assert run(order(**missing)).returncode == NOT_FOUND_STATUS
    assert shlex.split(order(**missing).entrypoint)[0] == "bash"


@contextmanager
def server(status: int, body: str) -> Iterator[str]:
    """Something that answers every GET with this."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


ANSWERS = [
    (200, json.dumps({"version": "4", "ray_version": "2.40.0"}), r"got Ray 2\.40\.0 on the cluster, expected 2\.\d+"),
    (200, "<html>a web page</html>", "no job server of Ray answers"),
    (200, json.dumps({"hello": "world"}), "no job server of Ray answers"),
    (404, "", "no job server of Ray answers"),
    (500, "", "no job server of Ray answers"),
]


@pytest.mark.parametrize(("status", "body", "said"), ANSWERS)
def test_what_is_no_job_server_of_this_ray_is_refused(status: int, body: str, said: str) -> None:
    with server(status, body) as address, pytest.raises(SweepError, match=said):
        submit(order(address))


def test_where_nothing_listens_it_is_said_within_seconds() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and nobody listens
        began = time.monotonic()
        with pytest.raises(SweepError, match=r"no job server of Ray answers \(.*refused.*http://HEAD:8265"):
            submit(order(f"127.0.0.1:{held.getsockname()[1]}"))
    assert time.monotonic() - began < 60, "ray's own client tries for minutes"
