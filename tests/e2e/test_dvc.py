"""DVC's promises: what is out of date runs, and nothing else; another clone gets everything."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from store.files import fingerprint, write_parquet
from tests.e2e.checkout import Checkout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def digests(made: Checkout, stage: str) -> dict[str, str]:
    folder = made.folder / "data" / stage
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def write_series(folder: Path, name: str, seed: int, series: int = 3) -> None:
    rng = np.random.default_rng(seed)
    values = [rng.normal(size=300).cumsum().astype(np.float32) for _ in range(series)]
    table = pa.table(
        {
            "item_id": [f"s{n}" for n in range(series)],
            "start": pa.array([0] * series, pa.timestamp("ms")),
            "freq": ["D"] * series,
            "target": pa.array(values, pa.list_(pa.float32())),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / f"{name}.parquet")


@pytest.mark.long
def test_a_clone_that_pulled_has_nothing_to_do_and_a_new_model_runs_its_jobs_only(
    smoke: Checkout, tmp_path: Path
) -> None:
    first = smoke.copy(tmp_path / "first")
    first.run("dvc", "remote", "add", "--local", "--default", "store", str(tmp_path / "remote"))
    first.run("dvc", "push")
    first.run("git", "clone", "--quiet", ".", str(tmp_path / "second"))
    second = Checkout(tmp_path / "second")
    second.run("dvc", "remote", "add", "--local", "--default", "store", str(tmp_path / "remote"))
    second.run("dvc", "pull")
    assert second.repro() == ["external_inputs"]
    assert second.sql("select count(*) as n from geometry where study = 'isotropy'")[0]["n"] == 144

    def add(block: dict[str, Any]) -> None:
        block["models"]["bolt-again"] = {"family": "chronos-bolt", "ref": "tests/checkpoints/chronos-bolt-nano"}

    second.params(add)
    second.repro("embeddings")
    for stage in ("tokens", "embeddings"):  # six cells of each model, one of a compressed model, one of the study ranks
        assert second.jobs(stage) == {"jobs": 20, "done": 6, "reused": 14, "failed": 0}

    second.params(lambda block: block["models"].pop("bolt-again"))
    second.repro("embeddings")
    for stage in ("tokens", "embeddings"):  # results that no study requests are removed
        assert digests(second, stage) == digests(smoke, stage), stage


@pytest.mark.long
def test_a_data_root_reruns_what_depends_on_it_and_nothing_else(smoke: Checkout, tmp_path: Path) -> None:
    made = smoke.copy(tmp_path / "repository")

    def name_two(block: dict[str, Any]) -> None:
        for name in ("mine", "other"):
            block["datasets"]["sets"][name] = {"source": "folder", "file": f"{name}.parquet", "horizon": 12}

    made.params(name_two)
    made.repro("tokens")
    skipped = pq.read_table(made.folder / "data/datasets/skipped.parquet").to_pylist()
    assert {row["dataset"] for row in skipped} >= {"mine", "other"}
    assert any("TSFMSCOPE_DATA" in row["reason"] for row in skipped)

    for seed, name in enumerate(("mine", "other")):
        write_series(tmp_path / "one", name, seed)
        write_series(tmp_path / "two", name, seed if name == "mine" else 99)
    rooted = Checkout(made.folder, tmp_path / "one")
    ran = rooted.repro("tokens")
    # The stage checkpoints measures skill on data sets.
    assert {"datasets", "checkpoints", "tokens"} <= set(ran) and "kernelsynth" not in ran
    assert rooted.jobs("tokens") == {"jobs": 22, "done": 8, "reused": 14, "failed": 0}

    moved = Checkout(made.folder, tmp_path / "two")  # the same bytes of one file, other bytes of the other
    moved.repro("tokens")
    assert moved.jobs("tokens")["done"] == 4
    assert moved.repro("tokens") == ["external_inputs"]


def test_one_changed_id_changes_that_windows_states_alone(smoke: Checkout, tmp_path: Path) -> None:
    made = smoke.copy(tmp_path / "repository")
    dump = made.folder / "data/tokens/dumps/chronos-t5-nano/seasonality-2/context-128.arrow"
    before = states(made)
    table = pa.ipc.open_file(dump).read_all()
    ids = np.stack(table["array:ids"].to_numpy())
    window = 1
    place = int(np.flatnonzero(ids[window] > 1)[5])
    ids[window, place] += 1
    flat = pa.FixedSizeListArray.from_arrays(pa.array(ids.reshape(-1)), ids.shape[1])
    changed = table.set_column(table.schema.get_field_index("array:ids"), table.schema.field("array:ids"), flat)
    dump.unlink()  # linked to DVC's cache
    with pa.ipc.new_file(str(dump), changed.schema) as writer:
        writer.write_table(changed)
    accept(made, dump)
    made.run("python", "-m", "stages", "embeddings")
    after = states(made)
    assert before["token"].equals(after["token"])
    length = {"encoder": ids.shape[1], "decoder": table.schema.field("kind:decoder").type.list_size}
    stack, token = (np.asarray(before[name].to_pylist()) for name in ("stack", "token"))
    windows = np.array([t // length[s] for s, t in zip(stack, token, strict=True)])
    differs = np.any(np.stack(before["state"].to_numpy()) != np.stack(after["state"].to_numpy()), axis=1)
    assert differs[windows == window].any()
    assert not differs[windows != window].any()
    assert made.jobs("embeddings") == {"jobs": 14, "done": 1, "reused": 13, "failed": 0}


def states(made: Checkout) -> pa.Table:
    path = made.folder / "data/embeddings/dumps/chronos-t5-nano/seasonality-2/context-128.arrow"
    return pa.ipc.open_file(path).read_all()


def accept(made: Checkout, dump: Path) -> None:
    """Write the changed dump's size and fingerprint into its row, as if its job had made it so."""
    file = made.folder / "data/tokens/dumps/00000.parquet"
    rows = pq.read_table(file)
    out = made.folder / "data/tokens"
    listed = rows.to_pylist()
    for row in listed:
        if row["path"] == dump.relative_to(out).as_posix():
            row["bytes"], row["fingerprint"] = dump.stat().st_size, fingerprint(dump)
    write_parquet(file, pa.Table.from_pylist(listed, schema=rows.schema))


@pytest.mark.long
def test_an_experiment_runs_and_is_kept(smoke: Checkout, tmp_path: Path) -> None:
    made = smoke.copy(tmp_path / "repository")
    made.run("dvc", "exp", "run", "-S", "geometry.k_max=3", "--name", "fewer")
    assert "fewer" in made.run("dvc", "exp", "list", "--all").stdout
    assert "geometry.k_max" in made.run("dvc", "params", "diff", "main").stdout
    changed = json.loads(made.run("dvc", "metrics", "diff", "--json").stdout)["data/metrics.json"]
    assert "isotropy.chronos-t5-nano.median_isotropy" in changed
    assert not [name for name in changed if name.startswith(("skill.", "theory.", "rank_slope."))]
    experiments = made.run("dvc", "exp", "show", "--only-changed", "--csv").stdout.splitlines()
    assert "isotropy.chronos-t5-nano.median_isotropy" in experiments[0] and "skill" not in experiments[0]
    drawn = json.loads(made.run("dvc", "plots", "diff", "HEAD", "workspace", "--json").stdout)["data"]
    (scatter,) = drawn["isotropy against forecast error"]
    points = scatter["content"]["data"]["values"]
    assert {point["rev"] for point in points} == {"HEAD", "workspace"}
    assert made.jobs("geometry")["done"] == 156
    assert made.jobs("embeddings") == smoke.jobs("embeddings"), "the stage ran again"
