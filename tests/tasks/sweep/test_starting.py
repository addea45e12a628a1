"""Ray where it cannot start, and signals that come while it does."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ALONE = ("unshare", "--net", "--map-root-user")  # a network without interfaces but a loopback that is down
CONNECT = """
from tsfmscope.tasks.sweep.cluster import Resources, connect
with connect(Resources(local_cpus=1)):
    print("connected")
"""
# The main thread is held in C, as Ray holds it while it starts. The handlers do nothing, so that a signal that comes
# before the call into C does not end the process in the usual way.
BUSY = """
import hashlib, signal
from tsfmscope.tasks.sweep.signals import kill_on_signal
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: None)
with kill_on_signal(grace=0.5):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""
QUICK = """
import os, signal, time
from tsfmscope.tasks.sweep.signals import kill_on_signal
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
