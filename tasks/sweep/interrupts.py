"""Stop signals as something to look at between two steps, so that none tears a write apart."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def caught_signals() -> Iterator[list[int]]:
    """The SIGINTs and SIGTERMs that came while open, kept from their usual effect; none outside the main thread."""
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
def leaving(text: Callable[[], str]) -> Iterator[None]:
    """While open, a SIGINT or SIGTERM ends what runs at once, whatever that makes of it, and `leave` says the text."""
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
        leave(caught[0], text())


def leave(signum: int, text: str) -> NoReturn:
    """Say the text and go the way that the signal asked for."""
    text = f"stopped by {signal.Signals(signum).name}: {text}"
    print(text, file=sys.stderr, flush=True)
    if signum == signal.SIGINT:
        raise KeyboardInterrupt(text)
    raise SystemExit(128 + signum)
