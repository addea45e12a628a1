"""Ray where it cannot start, and signals that come while it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from ipaddress import ip_address
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ALONE = ("unshare", "--net", "--map-root-user")  # a network without interfaces but a loopback that is down
CONNECT = """
from tasks.sweep.cluster import Resources, connect
with connect(Resources(local_cpus=1)):
    print("connected")
"""
# Prints the addresses on which a local Ray and its driver listen, and whether others can enter its folder.
LISTEN = """
import json, psutil, ray
from pathlib import Path
from tasks.sweep.cluster import Resources, connect

@ray.remote
class Actor:
    def answer(self):
        return 6 * 7

with connect(Resources(local_cpus=1)):
    answer = ray.get(Actor.remote().answer.remote())
    driver = psutil.Process()
    connections = [c for p in [driver, *driver.children(recursive=True)] for c in p.net_connections("inet")]
    listening = [c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN]
    folder = Path(ray._private.worker._global_node.get_session_dir_path())
    modes = [parent.stat().st_mode & 0o077 for parent in folder.parents]
print(json.dumps({"answer": answer, "listening": listening, "folder": str(folder), "modes": modes}))
"""
# The main thread is held in C, as Ray holds it while it starts. The handlers do nothing, so that a signal that comes
# before the call into C does not end the process in the usual way.
BUSY = """
import hashlib, signal
from tasks.sweep.signals import kill_on_signal
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: None)
with kill_on_signal(grace=0.5):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""
QUICK = """
import os, signal, time
from tasks.sweep.signals import kill_on_signal
signal.signal(signal.SIGTERM, lambda *_: None)
before = signal.set_wakeup_fd(-1)
with kill_on_signal(grace=0.5):
    os.kill(os.getpid(), signal.SIGTERM)
assert signal.set_wakeup_fd(-1) == before
time.sleep(1)
print("went on")
"""


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_without_a_loopback_interface_the_error_comes_at_once_and_says_what_to_do() -> None:
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("this kernel lets nobody make a network of their own")
    done = subprocess.run([*ALONE, sys.executable, "-c", CONNECT], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "SweepError: Ray's processes communicate over 127.0.0.1" in done.stderr
    assert "bring the loopback interface up" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("temporary", ["", "long " * 40], ids=["usual", "a temporary folder too long for sockets"])
def test_no_other_user_can_reach_a_local_ray(tmp_path: Path, temporary: str) -> None:
    token = tmp_path / ".ray" / "auth_token"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"HOME": str(tmp_path)}
    if temporary:
        (tmp_path / temporary).mkdir()
        environment["TMPDIR"] = str(tmp_path / temporary)
        # An earlier Ray's token, which everyone may read.
        token.parent.mkdir()
        token.write_text("0" * 64)
        token.chmod(0o644)
    done = subprocess.run(
        [sys.executable, "-c", LISTEN], cwd=ROOT, env=environment, umask=0, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["answer"] == 42
    addresses = [ip_address(ip) for ip in found["listening"]]
    assert len(addresses) > 4
    assert all((getattr(ip, "ipv4_mapped", None) or ip).is_loopback for ip in addresses), addresses
    assert 0 in found["modes"]
    assert not Path(found["folder"]).exists()
    # Ray made the token readable for everyone, in a folder that only its owner can enter.
    assert [path.stat().st_mode & 0o077 for path in (token.parent, token)] == [0, 0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_process_that_is_held_in_c(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(timeout=10) == 128 + number
        assert time.monotonic() - began < 5
        assert process.stderr.read() == f"stopped by {number.name} while Ray started\n"


def test_a_process_that_ends_in_time_is_left_alone() -> None:
    done = subprocess.run([sys.executable, "-c", QUICK], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")
