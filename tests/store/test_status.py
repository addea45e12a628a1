from __future__ import annotations

from pathlib import Path

import pytest

from store.errors import StoreError
from store.lock import Lock
from store.status import Status, read_statuses, state, write_status


def status(**changes) -> Status:
    facts = {"stage": "geometry", "planned": 100, "done": 30, "failed": 10, "running": 4, "reused": 20}
    return Status(**(facts | {"started": 1000.0, "updated": 1080.0} | changes))


def test_a_status_tells_what_is_left_how_fast_and_how_long() -> None:
    one = status()
    assert one.remaining == 40
    assert one.rate == pytest.approx(0.5)
    assert one.seconds_left == pytest.approx(80)


@pytest.mark.parametrize("changes", [{"done": 0, "failed": 0}, {"updated": 1000.0}, {"updated": 900.0}])
def test_without_progress_there_is_no_rate(changes: dict) -> None:
    assert status(**changes).rate is None
    assert status(**changes).seconds_left is None


def test_a_status_is_written_at_most_once_in_a_while(tmp_path: Path) -> None:
    folder = tmp_path / "new" / ".status"
    assert write_status(status(), folder=folder)
    assert not write_status(status(done=31), folder=folder, interval=60)
    assert write_status(status(done=32), folder=folder, interval=0)
    assert [one.done for one, _ in read_statuses(folder)] == [32]
    assert [p.name for p in folder.iterdir()] == ["geometry.json"]


def test_state_follows_from_the_lock(tmp_path: Path) -> None:
    write_status(status(), folder=tmp_path)
    lock = Lock(tmp_path / "geometry.lock")
    lock.acquire()
    ((one, alive),) = read_statuses(tmp_path)
    assert state(one, alive=alive) == "running"
    lock.release()
    ((one, alive),) = read_statuses(tmp_path)
    assert state(one, alive=alive) == "interrupted"
    assert state(status(finished=True), alive=False) == "finished"


def test_a_broken_status_is_named(tmp_path: Path) -> None:
    (tmp_path / "geometry.json").write_text('{"stage": "geometry"')
    with pytest.raises(StoreError, match=r"geometry\.json: not a status that this version writes.*delete it"):
        read_statuses(tmp_path)
