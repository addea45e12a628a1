"""Ctrl-C ends any statement within two seconds."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from store import query
from tsfmscope.functions import results

STATEMENTS = {
    "recursion": "with recursive t(n) as (select 1 union all select n + 1 from t) select max(n) from t",
    "one-call": "select list_sum(range(400000000))",
    "product": "select count(*) from range(10000000) a, range(10000000) b",
    "sort": "select * from range(300000000) order by hash(range)",
}


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.slow
def test_ctrl_c_ends_the_command_within_two_seconds(empty_results: Path, name: str) -> None:
    command = [sys.executable, "-m", "tsfmscope", "sql", STATEMENTS[name], "--results", str(empty_results)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(4)  # the command has started, and no statement above ends by then
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - sent < 2
    assert (process.returncode, out, err) == (130, "", "tsfmscope: interrupted\n")


@pytest.mark.slow
def test_a_statement_that_cannot_be_stopped_is_said_so(empty_results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "INTERRUPT_S", 0.0)
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    connection = results.connect(empty_results)
    with pytest.raises(query.StillRunning):
        query.query(connection, "select list_sum(range(30000000))")
    for thread in threading.enumerate():
        if thread.name == "sql":
            thread.join(60)
    connection.close()


def test_a_connection_answers_again_after_ctrl_c(empty_results: Path) -> None:
    # A shell starts background processes with SIGINT ignored, and Python then installs no handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with results.connect(empty_results) as connection:
            threading.Timer(0.5, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
            with pytest.raises(KeyboardInterrupt):
                query.query(connection, STATEMENTS["product"])
            assert query.query(connection, "select 1 as a").to_pylist() == [{"a": 1}]
    finally:
        signal.signal(signal.SIGINT, before)
