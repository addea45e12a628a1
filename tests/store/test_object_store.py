"""The store on an object store: what counts, whatever is killed, damaged, doubled or too late."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3

from tests.store.damage import spoilt
from tests.store.s3 import BUCKET, forget, s3  # noqa: F401  the fixture
from tsfmscope.store import dumps, files, objects, table_parts, uploads
from tsfmscope.store.errors import DamagedPart, LocationError, StoreBusy
from tsfmscope.store.lease import Lease
from tsfmscope.store.object_store import ObjectStoreBackend, active_files, manifest
from tsfmscope.store.objects import CHECKSUM, Remote, client
from tsfmscope.store.stage_store import StageStore
from tsfmscope.store.table_parts import TableParts

JOB = SimpleNamespace(spec={"model": "m", "dataset": "d", "condition": "c"}, inputs={})


@pytest.fixture
def at(s3: str, request: pytest.FixtureRequest) -> Remote:  # noqa: F811
    """A prefix of the test's own."""
    return Remote.parse(f"{s3}/{blake3(request.node.name.encode()).hexdigest()[:12]}/stage")


@pytest.fixture
def out(at: Remote, tmp_path: Path) -> Callable[..., StageStore]:
    """`out()`: the out of a stage `training` on the object store."""

    def make(table: str = "training", lease: float = 60.0, checkout: str = "one") -> StageStore:
        data = tmp_path / checkout
        shelf = ObjectStoreBackend(at, table, lease=lease)
        return StageStore(data / table, tables=[table], companion=data / "timings" / table, stage=table, backend=shelf)

    return make


def stored(at: Remote, table: str) -> list[dict[str, Any]]:
    """What a reader finds who knows the manifest and the listing alone."""
    held = active_files(at, manifest(at)[0], (at / "rows").list()).get(table, [])
    return [row for one in held for row in files.read_parquet(at / "rows" / table / one.name).to_pylist()]


def names(at: Remote) -> list[str]:
    return [one.key.removeprefix(f"{at.key}/") for one in at.list()]


def test_a_stored_job_is_not_missing_for_the_next_driver(out, at, record, row) -> None:
    with out() as store:
        store.append([record("a", [row("training")]), record("b", error={"transient": True})])
        assert store.missing(["b", "a", "c"]) == ["b", "c"]
    with out() as store:
        assert store.missing(["b", "a", "c"]) == ["b", "c"]
        store.append([record("b", [row("training")])])
    assert [r["job_key"] for r in stored(at, "training")] == ["a", "b"]


def test_finish_leaves_few_sorted_files_and_nothing_that_no_manifest_names(out, at, record, row) -> None:
    with out() as store:
        for key in "cab":
            store.append([record(key, [row("training", step=n) for n in range(2)])])
        assert store.finish("ac", {"s": "ac"}) == {"jobs": 2, "done": 3, "failed": 0, "reused": -1}
    assert [(r["job_key"], r["step"]) for r in stored(at, "training")] == [("a", 0), ("a", 1), ("c", 0), ("c", 1)]
    assert [r["job_key"] for r in stored(at, "study_jobs")] == ["a", "c"]
    assert len(stored(at, "runs")) == 1
    tables = [name.split("/")[1] for name in names(at) if name.startswith("rows/")]
    assert sorted(tables) == ["failures", "runs", "study_jobs", "timings", "training"]


def test_the_same_rows_are_the_same_bytes_as_on_a_disk_whatever_came_before(out, at, record, row, tmp_path) -> None:
    jobs = [record(key, [row("training", step=n, loss=ord(key)) for n in range(3)]) for key in "dbca"]
    with out() as store:
        store.append(jobs[:1])
        store.finish("d")
        store.append(jobs[1:])
        store.forget(["c"])
        store.append(jobs[2:3])
        store.finish("abd")
    local = tmp_path / "local"
    with StageStore(local, tables=["training"], companion=tmp_path / "c", stage="training") as store:
        store.append(jobs)
        store.finish("abd")
    held = manifest(at)[0]["tables"]["training"]
    assert [entry[3] for entry in held] == [files.fingerprint(p) for p in sorted((local / "training").iterdir())]


NURSERY = """
import os, sys, traceback
from pathlib import Path
from types import SimpleNamespace
import boto3, botocore.config, botocore.exceptions
import pyarrow as pa
import pyarrow.dataset  # what a driver imports late, each child would import again
from tsfmscope.store.objects import Remote
from tsfmscope.store.stage_store import StageStore
from tsfmscope.store.object_store import ObjectStoreBackend

def drive(uri, folder, jobs):
    keys = [f"{n:04d}" for n in range(jobs)]
    timing = dict(seconds=1.0, load_seconds=0.0, actor="a", node="n", device="cpu", started=0.0)
    place = ObjectStoreBackend(Remote.parse(uri), "tokens")
    where = dict(tables=["dumps"], companion=folder / "timings", stage="tokens", backend=place)
    with StageStore(folder / "tokens", **where) as out:
        print("open", flush=True)
        for n, key in enumerate(out.missing(keys)):
            job = SimpleNamespace(spec={"model": "m", "dataset": "d", "condition": key}, inputs={})
            facts = out.write_dump(job, [pa.table({"x": [int(key)] * 50})])
            row = dict(model="m", dataset="d", condition=key, kind="tokens", n_windows=1, **facts)
            print("run", key, flush=True)
            out.append([dict(key=key, task="t", spec="{}", table="dumps", rows=[row], error=None, timing=timing)])
            print("stored", key, flush=True)
            if n % 3 == 2:
                out.finish(keys)
        out.finish(keys, {"s": keys}, {"seed": 1})

for line in sys.stdin:
    uri, folder = line.split()
    child = os.fork()
    if not child:
        try:
            print("pid", os.getpid(), flush=True)
            drive(uri, Path(folder), int(sys.argv[1]))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print("ended", os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.slow
def test_a_driver_killed_again_and_again_loses_nothing_stored_and_doubles_nothing(at, tmp_path: Path) -> None:
    """Killed after a few of its words, at any moment of what follows them, until it comes to its end."""
    jobs, stored_words, ran, kills = 12, set(), [], 0
    command = [sys.executable, "-c", NURSERY, str(jobs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for n in range(30):
            nursery.stdin.write(f"{at} {tmp_path}\n")
            nursery.stdin.flush()
            pid = int(nursery.stdout.readline().split()[1])
            heard: list[list[str]] = []
            while not heard or heard[-1][0] != "ended":
                heard.append(nursery.stdout.readline().split())
                if len(heard) == 2 + n % 5 and heard[-1][0] != "ended":
                    time.sleep(0.01 * (n % 4))
                    os.kill(pid, signal.SIGKILL)
            again = {word[1] for word in heard if word[0] == "run"} & stored_words
            assert not again, "no stored job ran again"
            stored_words |= {word[1] for word in heard if word[0] == "stored"}
            ran += [word[1] for word in heard if word[0] == "run"]
            keys = [r["job_key"] for r in stored(at, "dumps")]
            assert len(keys) == len(set(keys)), "no row twice, whatever the moment"
            assert stored_words <= set(keys), "what was stored stays"
            if heard[-1][1] == "0":
                break
            kills += 1
        nursery.stdin.close()
    assert kills > 3
    assert len(ran) <= jobs + kills, "a kill costs the one job that was under way"
    assert [r["job_key"] for r in stored(at, "dumps")] == [f"{n:04d}" for n in range(jobs)]
    assert sum(name.startswith("rows/dumps/") for name in names(at)) == 1
    assert sum(name.endswith(".parquet") for name in names(at) if name.startswith("dumps/")) == jobs


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


SCHEMA = pa.schema([pa.field("x", pa.int64(), nullable=False), pa.field("job_key", pa.string(), nullable=False)])


def one_row(key: str) -> pa.Table:
    return pa.table({"x": [0], "job_key": [key]}, schema=SCHEMA)


@contextmanager
def held(at: Remote) -> Iterator[TableParts]:
    """A table of a store that is open."""
    shelf = ObjectStoreBackend(at, "s")
    shelf.acquire()
    shelf.open()
    yield TableParts(shelf.folder("t"), SCHEMA)
    shelf.release()


CHANGES: dict[
    str, tuple[Callable[[TableParts, Path], Any], int]
] = {  # what is done, and requests that change the store
    "compact": (lambda table, folder: table.compact(set("abc"), folder), 4),
    "drop": (lambda table, folder: table.drop("x"), 3),
    "merge": (lambda table, folder: (table.append(one_row("d")), table.merge_small()), 4),
}


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize(
    ("change", "moment"), [(name, n) for name, (_, last) in CHANGES.items() for n in range(last + 1)]
)
def test_a_kill_at_any_request_loses_and_doubles_nothing(
    at, tmp_path, monkeypatch, change: str, moment: int, arrives: bool
) -> None:
    """Every request that changes the store is a moment to die at, before or after it; the last one comes too late."""
    monkeypatch.setattr(table_parts, "ROWS_PER_FILE", 2)
    monkeypatch.setattr(table_parts, "MANY", 4 if change == "merge" else 99)
    do, last = CHANGES[change]
    calls = 0

    def dying(**_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > moment:
            raise KeyboardInterrupt

    event = "after-call" if arrives else "before-call"
    with held(at) as table:
        for key in "cab":
            table.append(one_row(key))
        table.append(pa.concat_tables([one_row("x"), one_row("y")]))
        for name in ("PutObject", "DeleteObjects"):
            client().meta.events.register(f"{event}.s3.{name}", dying, unique_id=f"dying-{name}")
        try:
            do(table, tmp_path)
            assert moment == last
        except KeyboardInterrupt:
            seen = [row["job_key"] for row in stored(at, "t")]
            assert len(seen) == len(set(seen)), "a reader never sees a row twice"
            assert set(seen) >= set("abc")
        finally:
            for name in ("PutObject", "DeleteObjects"):
                client().meta.events.unregister(f"{event}.s3.{name}", unique_id=f"dying-{name}")
    with held(at) as table:
        assert table.keys() >= {"a", "b", "c"}
        assert table.compact(set("abc"), tmp_path) == []
    assert [row["job_key"] for row in stored(at, "t")] == list("abc")
    assert sum(name.startswith("rows/") for name in names(at)) == 2


def test_many_small_parts_become_one_while_a_run_goes_on(at, monkeypatch) -> None:
    monkeypatch.setattr(table_parts, "MANY", 4)
    with held(at) as table:
        for n in range(23):
            table.append(one_row(f"{n:02d}"))
            table.merge_small()
        assert len(table.files()) <= 5
        assert table.read()["job_key"].to_pylist() == [f"{n:02d}" for n in range(23)]
    assert [row["job_key"] for row in stored(at, "t")] == [f"{n:02d}" for n in range(23)]


def test_a_merge_leaves_compacted_files_alone_whatever_stands_between_them(at, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(table_parts, "ROWS_PER_FILE", 2)
    with held(at) as table:
        for key in "abcd":
            table.append(one_row(key))
        table.compact(set("abcd"), tmp_path)
        table.drop("a")  # leaves a file that is none of the compacted, before one that is
        monkeypatch.setattr(table_parts, "MANY", 2)
        for key in "efg":
            table.append(one_row(key))
            table.merge_small()
        assert table.read()["job_key"].to_pylist() == list("bcdefg")
        assert len(table.files()) == 3


@contextmanager
def unanswered(operation: str, key: str, *, arrives: bool = False) -> Iterator[None]:
    """A client whose requests of that kind for keys with that part get no answer, whether or not they arrive."""
    from botocore.exceptions import ReadTimeoutError

    asked: dict[int, str] = {}  # by thread: the lease beats beside
    events = client().meta.events

    def ask(params: Any, **_: Any) -> None:
        asked[threading.get_ident()] = params["url_path"]

    def lost(**_: Any) -> None:
        if key in asked[threading.get_ident()]:
            raise ReadTimeoutError(endpoint_url="the store")

    events.register_first(f"before-call.s3.{operation}", ask, unique_id="ask")
    events.register(f"{'after' if arrives else 'before'}-call.s3.{operation}", lost, unique_id="lost")
    try:
        yield
    finally:
        events.unregister(f"before-call.s3.{operation}", unique_id="ask")
        events.unregister(f"{'after' if arrives else 'before'}-call.s3.{operation}", unique_id="lost")


@pytest.mark.parametrize(
    ("operation", "key"), [("GetObject", "/part-"), ("PutObject", "/mixed-"), ("PutObject", "/manifest.json")]
)
def test_rows_stand_once_where_the_merge_after_them_fails(out, at, record, row, monkeypatch, operation, key) -> None:
    """The engine then hands the same records over again."""
    monkeypatch.setattr(table_parts, "MANY", 2)
    with out() as store:
        for name in "ab":
            store.adopt("training", name, [row("training")])
        with unanswered(operation, key), pytest.raises(LocationError, match="Read timeout"):
            store.append([record("c", [row("training")])])
        store.append([record("c", [row("training")])])
    with out() as store:
        store.finish("abc")
        assert [r["job_key"] for r in stored(at, "training")] == list("abc")


def test_a_second_driver_is_refused_with_who_holds_the_store(out, at) -> None:
    refusal = rf"training: another driver holds the store {at}: pid {os.getpid()} on "
    with out(), pytest.raises(StoreBusy, match=refusal):
        out(checkout="another").__enter__()
    with out(checkout="another"):
        pass


def hold(at: Remote, **changes: Any) -> None:
    """Let the lease be another machine's."""
    lease = at / "lease.json"
    held = json.loads(lease.read()[0]) | {"host": "elsewhere", "released": False, "token": "theirs"} | changes
    lease.put(json.dumps(held).encode())


def test_a_lease_of_another_machine_is_taken_over_when_it_has_run_out_and_not_before(out, at, record, row) -> None:
    with out() as store:
        store.append([record("a", [row("training")])])
    hold(at, seconds=600.0)
    with pytest.raises(StoreBusy, match=r"pid \d+ on elsewhere since .*its lease runs out in [56]\d\d s if it is dead"):
        out().__enter__()
    hold(at, seconds=1.0)
    deadline = time.monotonic() + 30
    while True:
        try:
            with out() as store:
                assert store.missing(["a", "b"]) == ["b"]
                break
        except StoreBusy:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_a_lease_lives_as_long_as_its_driver_beats(out, at) -> None:
    with out(lease=0.4):
        first = (at / "lease.json").read()[1]
        deadline = time.monotonic() + 20
        while (at / "lease.json").read()[1] == first:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_dead_process_of_this_machine_holds_nothing(out, at) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        process.wait()
    with out():
        pass
    held = json.loads((at / "lease.json").read()[0])
    (at / "lease.json").put(json.dumps(held | {"released": False, "pid": process.pid}).encode())
    with out():
        pass


def test_what_a_stalled_driver_writes_after_it_was_taken_over_does_not_count(out, at, record, row) -> None:
    stalled = out()
    stalled.__enter__()
    stalled.append([record("a", [row("training")])])
    hold(at, seconds=0.0)
    with out(checkout="another") as store:
        stalled.append([record("b", [row("training", loss=1.0)])])  # its heart has not beaten since
        assert store.missing(["a", "b"]) == ["b"]
        store.append([record("b", [row("training", loss=2.0)])])
        with pytest.raises(StoreBusy, match="another driver has taken over"):
            stalled.finish("ab")
        assert [(r["job_key"], r["loss"]) for r in stored(at, "training")] == [("a", 2.0), ("b", 2.0)]
        store.finish("ab")
    stalled.__exit__(None, None, None)
    with out():
        assert len([name for name in names(at) if name.startswith("rows/training/")]) == 1


def test_a_driver_that_lost_its_lease_learns_so_from_its_heartbeat(out, at, record, row) -> None:
    store = out(lease=0.4)
    store.__enter__()
    hold(at, seconds=60.0)
    deadline = time.monotonic() + 20
    while not store._backend.lease._lost:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(StoreBusy, match=r"has taken over .* sent no heartbeat"):
        store.append([record("a", [row("training")])])
    store.__exit__(None, None, None)
    assert json.loads((at / "lease.json").read()[0])["host"] == "elsewhere", "what is another's is not given back"


@pytest.mark.parametrize("key", ["/timings/", "/training/"])
def test_a_write_whose_answer_is_lost_is_tried_again_and_stands_once(out, at, record, row, key: str) -> None:
    """The request arrives, its answer does not; the driver hands the same records over again, then dies."""
    with out() as store:
        store.append([record("a", [row("training")])])
        with unanswered("PutObject", key, arrives=True), pytest.raises(LocationError, match="Read timeout"):
            store.append([record("b", [row("training")])])
        store.append([record("b", [row("training")])])
    assert [r["job_key"] for r in stored(at, "training")] == ["a", "b"]
    with out() as store:
        assert store.missing(["a", "b"]) == []


def test_a_write_whose_answer_is_lost_counts_where_nothing_follows(out, at, record, row) -> None:
    with out() as store:
        with unanswered("PutObject", "/training/", arrives=True), pytest.raises(LocationError, match="Read timeout"):
            store.append([record("a", [row("training")])])
        with unanswered("PutObject", "/manifest.json"), pytest.raises(LocationError, match="Read timeout"):
            store.append([record("a", [row("training")])])
    assert [r["job_key"] for r in stored(at, "training")] == ["a"]


def test_a_manifest_whose_answer_is_lost_is_not_another_drivers(out, at, record, row) -> None:
    with out() as store:
        store.append([record(key, [row("training")]) for key in "ab"])
        with (
            unanswered("PutObject", "/manifest.json", arrives=True),
            pytest.raises(LocationError, match="Read timeout"),
        ):
            store.forget("a")
        store.forget("b")
        store.append([record("c", [row("training")])])
    assert [r["job_key"] for r in stored(at, "training")] == ["c"]


def test_a_heartbeat_whose_answer_is_lost_is_not_another_drivers(at, caplog) -> None:
    lease = Lease(at, "s", seconds=0.4)
    with caplog.at_level(logging.WARNING):
        lease.acquire()
        with unanswered("PutObject", "/lease.json", arrives=True):
            wait_for(lambda: "no heartbeat" in caplog.text)
        beaten = (at / "lease.json").read()[1]
        wait_for(lambda: (at / "lease.json").read()[1] != beaten)
    lease.check()
    lease.release()
    assert json.loads((at / "lease.json").read()[0])["released"]


@pytest.mark.parametrize("cut", [0, 3, -1, None])
def test_a_damaged_or_missing_part_is_set_aside_and_costs_its_jobs_only(out, at, record, row, cut, caplog) -> None:
    with out() as store:
        store.append([record("a", [row("training")])])
        store.append([record("b", [row("training")])])
    (bad,) = [one for one in (at / "rows" / "training").list() if "-00000001" in one.key]
    part = Remote(BUCKET, bad.key)
    if cut is None:
        with out():
            pass  # its manifest names the parts
        at.delete([bad.key])
    else:
        part.put(part.read()[0][:cut])
    with out() as store:
        assert f"{part} {'cannot be read' if cut is None else 'is damaged'}; quarantined as" in caplog.text
        assert store.missing(["a", "b"]) == ["a"]
        assert len(list((store.status / "damaged" / "training").glob("training-part-*.damaged"))) == 1


@pytest.mark.parametrize(("table", "column", "missing"), [("training", "job_key", "a"), ("failures", "key", "c")])
def test_a_part_with_a_spoilt_page_is_set_aside_at_opening(out, at, record, row, table, column, missing) -> None:
    with out() as store:
        store.append([record("a", [row("training")]), record("c", error={})])
        store.append([record("b", [row("training")])])
    (part, *_) = [Remote(BUCKET, one.key) for one in (at / "rows" / table).list()]
    part.put(spoilt(part.read()[0], column))
    with out() as store:
        assert store.missing(list("abc")) == [missing]
        assert [path.name.split("-")[0] for path in (store.status / "damaged" / "training").iterdir()] == [table]


def test_a_part_that_rots_while_the_stage_runs_is_named_at_its_end(out, at, record, row) -> None:
    with out() as store:
        store.append([record("a", [row("training", step=n) for n in range(2000)])])
        store.append([record("b", [row("training")])])
        part = store.tables["training"].files()[0]
        content = bytearray(part.read()[0])
        content[400] ^= 0xFF
        part.put(bytes(content))
        with pytest.raises(DamagedPart, match=r"quarantined: .*part-\d+-\d+\.damaged; run the stage again"):
            store.finish(["a", "b"])
    with out() as store:
        assert store.missing(["a", "b"]) == ["a"]


def dump(store: StageStore, record, row, key: str) -> Remote:
    job = SimpleNamespace(spec={"model": "m", "dataset": "d", "condition": key}, inputs={})
    facts = store.write_dump(job, [pa.table({"x": [1, 2]})])
    store.append([record(key, [row("dumps", condition=key, **facts)])])
    return store._backend.dumps / facts["path"]


def test_dumps_that_are_gone_or_damaged_are_named_and_made_again(out, at, record, row, caplog) -> None:
    with out("dumps") as store:
        gone, torn, other, unsigned, whole = (dump(store, record, row, key) for key in "abcde")
    at.delete([gone.key, unsigned.sibling(CHECKSUM).key])
    torn.put(torn.read()[0][:-1])
    content = bytearray(other.read()[0])
    content[20] ^= 1
    other.put(bytes(content))
    with out("dumps") as store, caplog.at_level(logging.WARNING):
        assert store.missing(list("abcde")) == ["a", "b", "c"]
        assert f"dump {gone} is gone" in caplog.text
        assert f"dump {torn} is damaged" in caplog.text
        assert f"dump {other} is damaged" in caplog.text
        dump(store, record, row, "a")
        assert store.missing(list("abcde")) == ["b", "c"]
        store.write_dump(JOB, [pa.table({"x": [1]})])
        store.finish("ade")
    left = {name for name in names(at) if name.startswith("dumps/")}
    assert left == {f"dumps/m/d/{k}.parquet{s}" for k in "ade" for s in ("", CHECKSUM)} - {
        f"dumps/m/d/d.parquet{CHECKSUM}"
    }
    assert whole.exists()


def test_a_large_dump_goes_up_in_parts_and_is_what_a_disk_would_hold(at, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(uploads, "PART", 5 * 2**20)
    table = pa.table({"state": np.random.default_rng(0).normal(size=600_000)})
    facts = dumps.write_dump(at, "dumps/m/d/c.arrow", [table, table, table])
    assert facts == dumps.write_dump(tmp_path, "dumps/m/d/c.arrow", [table, table, table])
    there = at / facts["path"]
    assert there.head().etag.strip('"').endswith("-3"), "three parts"
    assert blake3(there.read()[0]).hexdigest() == facts["fingerprint"] == there.fingerprint()
    with pa.ipc.open_file(there.open()) as file:
        assert file.num_record_batches == 3


@pytest.mark.slow
def test_a_store_that_is_away_while_an_object_is_read_is_a_place_error(at, monkeypatch) -> None:
    from moto.server import ThreadedMotoServer

    table = pa.table({"state": np.random.default_rng(0).normal(size=10**5)})
    parquet, arrow = (at / dumps.write_dump(at, f"dumps/c.{kind}", [table])["path"] for kind in ("parquet", "arrow"))
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)  # of the same buckets
    server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
    forget()
    try:
        reads = [pq.ParquetFile(parquet.open()).read, partial(pa.ipc.open_file(arrow.open()).get_batch, 0)]
        with pytest.raises(FileNotFoundError):
            (at / "absent").open()
        server.stop()
        for read, one in zip([*reads, arrow.open], [parquet, arrow, arrow], strict=True):
            with pytest.raises(LocationError, match=f"^{one}: "):
                read()
    finally:
        forget()


@pytest.mark.parametrize("large", [False, True])
def test_a_dump_that_fails_half_way_leaves_the_former_one_and_no_upload(at, monkeypatch, large: bool) -> None:
    monkeypatch.setattr(uploads, "PART", 5 * 2**20)
    first = dumps.write_dump(at, "dumps/m/d/c.parquet", [pa.table({"x": [1]})])

    def failing():
        yield pa.table({"x": np.random.default_rng(0).normal(size=1_500_000 if large else 1)})
        if large:
            assert client().list_multipart_uploads(Bucket=BUCKET)["Uploads"]
        raise RuntimeError("model died")

    with pytest.raises(RuntimeError, match="model died"):
        dumps.write_dump(at, "dumps/m/d/c.parquet", failing())
    assert (at / first["path"]).fingerprint() == first["fingerprint"]
    assert "Uploads" not in client().list_multipart_uploads(Bucket=BUCKET)


def test_what_cut_a_dump_off_is_said_though_its_upload_cannot_be_aborted(at, monkeypatch, caplog) -> None:
    monkeypatch.setattr(uploads, "PART", 5 * 2**20)

    def failing():
        yield pa.table({"x": np.random.default_rng(0).normal(size=1_500_000)})
        raise KeyboardInterrupt("asked to stop")

    with unanswered("AbortMultipartUpload", "/dumps/"), pytest.raises(KeyboardInterrupt, match="asked to stop"):
        dumps.write_dump(at, "dumps/m/d/c.parquet", failing())
    assert "could not abort the upload of" in caplog.text
    assert at.abort_uploads() == 1


def test_the_uploads_of_a_killed_worker_are_ended_by_the_next_driver_and_no_others(out, at) -> None:
    other = at.sibling("-other") / "dumps/x"
    for key in ((at / "dumps/m/d/c.arrow").key, other.key):
        client().create_multipart_upload(Bucket=BUCKET, Key=key)
    with out():
        left = client().list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    assert [one["Key"] for one in left] == [other.key]
    client().abort_multipart_upload(Bucket=BUCKET, Key=other.key, UploadId=left[0]["UploadId"])


def test_a_bucket_that_is_missing_is_said_at_once(s3: str, tmp_path) -> None:  # noqa: F811
    shelf = ObjectStoreBackend(Remote.parse("s3://nowhere/x"), "s")
    with pytest.raises(LocationError, match=r"s3://nowhere/x: no bucket 'nowhere' at http://127\.0\.0\.1"):
        shelf.acquire()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9", r"http://127\.0\.0\.1:9 does not respond; see AWS_ENDPOINT_URL"),
        ("AWS_ACCESS_KEY_ID", None, "no credentials; set AWS_ACCESS_KEY_ID"),
    ],
)
def test_an_endpoint_without_an_answer_and_absent_credentials_are_said_at_once(
    at, monkeypatch, tmp_path, name: str, value: str | None, message: str
) -> None:
    monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    forget()
    started = time.monotonic()
    try:
        with pytest.raises(LocationError, match=message):
            ObjectStoreBackend(at, "s").acquire()
    finally:
        forget()
    assert time.monotonic() - started < 30


def test_a_store_that_ignores_conditions_is_refused(at) -> None:
    def strip(params: Any, **_: Any) -> None:
        for header in ("If-Match", "If-None-Match"):
            params["headers"].pop(header, None)

    client().meta.events.register("before-call.s3.PutObject", strip, unique_id="strip")
    try:
        with pytest.raises(LocationError, match="ignores If-Match, so that two drivers could write at once"):
            ObjectStoreBackend(at, "s").acquire()
    finally:
        client().meta.events.unregister("before-call.s3.PutObject", unique_id="strip")


@pytest.mark.parametrize("uri", ["s3://", "s3://bucket", "s3://bucket/", "gs://b/p", "/folder/x", "s3:/b/p"])
def test_what_is_no_uri_of_a_prefix_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="expected s3://BUCKET/PREFIX"):
        Remote.parse(uri)


def test_a_listing_of_many_pages_is_whole_and_many_objects_are_deleted(at, monkeypatch) -> None:
    monkeypatch.setattr(objects, "AT_ONCE", 7)
    for n in range(20):
        (at / f"x/{n:02d}").put(b"")
    assert [Path(one.key).name for one in (at / "x").list()] == [f"{n:02d}" for n in range(20)]
    at.delete(one.key for one in (at / "x").list())
    assert list((at / "x").list()) == []
