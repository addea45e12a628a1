"""Handlers of stop signals.

`caught_signals` collects signals, to be checked between two steps, so that no write is interrupted.
`exit_on_signal` and `kill_on_signal` end code that does not return to such a check.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import psutil

# Seconds that a normal exit may take.
GRACE_S = 2.0


@contextmanager
def caught_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list instead of their usual effect; none outside the main thread."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda signum, _: caught.append(signum))
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def exit_on_signal(text: Callable[[], str]) -> Iterator[None]:
    """On SIGINT or SIGTERM inside the block, end the block at once and exit with the text.

    Any exception of the interrupted block is dropped. No effect outside the main thread.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, _: object) -> None:
        caught.append(signum)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except BaseException:
        if not caught:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        exit_by_signal(caught[0], text())


@contextmanager
def kill_on_signal(grace: float = GRACE_S) -> Iterator[None]:
    """End this process and its children `grace` seconds after SIGINT or SIGTERM, if the block still runs.

    Python runs a signal handler only between two of its own steps, and Ray may wait in C++ for minutes while
    it starts. No effect outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    finished = threading.Event()
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def watch() -> None:
        while (number := reader.recv(1)) not in (b"", bytes([signal.SIGINT]), bytes([signal.SIGTERM])):
            pass
        if number and not finished.wait(grace):
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            print(f"stopped by {signal.Signals(number[0]).name} while Ray started", file=sys.stderr, flush=True)
            os._exit(128 + number[0])

    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        signal.set_wakeup_fd(before)
        writer.close()
        thread.join()
        reader.close()


def exit_by_signal(signum: int, text: str) -> NoReturn:
    """Print the text, then raise KeyboardInterrupt for SIGINT, else SystemExit(128 + number)."""
    text = f"stopped by {signal.Signals(signum).name}: {text}"
    print(text, file=sys.stderr, flush=True)
    if signum == signal.SIGINT:
        raise KeyboardInterrupt(text)
    raise SystemExit(128 + signum)
