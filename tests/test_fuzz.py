"""Files with some bytes or values changed at random: every reader answers, or raises the one error that it says."""

from __future__ import annotations

import copy
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stages.config.bounded_yaml import load_yaml
from stages.config.params import ParamsError, load
from tsfmscope.errors import DataError, ModelError
from tsfmscope.models.registry import family_class
from tsfmscope.series.files.sources import load_parquet

ROOT = Path(__file__).resolve().parents[1]
some = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
Edit = tuple[float, bytes]  # where, as a share of the file, and what stands there instead
edits = st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4)


def edited(content: bytes, changes: list[Edit], first: int | None = None) -> bytes:
    """The content with some bytes changed, of its first so many."""
    made = bytearray(content)
    for share, what in changes:
        start = int(share * (min(first or len(made), len(made)) - 1))
        made[start : start + len(what)] = what
    return bytes(made)


@pytest.fixture
def series(tmp_path: Path) -> bytes:
    """A good Parquet file of series."""
    table = pa.table(
        {
            "item_id": ["a", "b"],
            "start": pa.array([0, 0], pa.timestamp("ms")),
            "freq": ["D", "h"],
            "target": pa.array([np.arange(100.0), np.arange(50.0)], pa.list_(pa.float32())),
        }
    )
    pq.write_table(table, tmp_path / "good.parquet")
    return (tmp_path / "good.parquet").read_bytes()


@some
@given(edits, st.floats(0, 1))
@example([(0.0, b"P")], 0.5)
@example([(0.48046875, b"\x80")], 0.0)  # a column's name that is not UTF-8
def test_a_damaged_file_of_series(tmp_path: Path, series: bytes, changes: list[Edit], kept: float) -> None:
    path = tmp_path / "damaged.parquet"
    for content in (edited(series, changes), series[: int(kept * len(series))]):
        path.write_bytes(content)
        with suppress(DataError):
            load_parquet(path)


def test_no_byte_of_a_footer_ends_the_process(tmp_path: Path, series: bytes) -> None:
    """pyarrow 26 aborts where a footer's histograms are of another length than the column's levels."""
    (tmp_path / "good").write_bytes(series)
    done = subprocess.run([sys.executable, "-c", EVERY_BYTE, tmp_path], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 400


EVERY_BYTE = """
import sys
from pathlib import Path
from tsfmscope.errors import DataError
from tsfmscope.series.files.sources import load_parquet

folder, refused = Path(sys.argv[1]), 0
content = (folder / "good").read_bytes()
footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
for at in range(footer, len(content)):
    (folder / "damaged.parquet").write_bytes(content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :])
    try:
        load_parquet(folder / "damaged.parquet")
    except DataError:
        refused += 1
print(refused)
"""


@pytest.mark.parametrize("family", ["totem", "lag-llama"])  # transformers' reader, and our own
@some
@given(edits, st.booleans())
def test_a_damaged_checkpoint(tmp_path: Path, family: str, changes: list[Edit], weights: bool) -> None:
    folder = tmp_path / "model"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "tsfmscope" / "checkpoints" / f"{family}-mini", folder)
    path = folder / ("model.safetensors" if weights else "config.json")
    path.write_bytes(edited(path.read_bytes(), changes, first=4000))  # headers: other numbers are other weights
    with suppress(ModelError):
        family_class(family).load(folder)


def leaves(block: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value of a params file stands."""
    items = block.items() if isinstance(block, dict) else enumerate(block) if isinstance(block, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from leaves(value, (*path, key))


GOOD = yaml.safe_load((ROOT / "params" / "smoke.yaml").read_text())
PLACES = list(leaves(GOOD))
odd = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates(), st.binary(max_size=4)
)
values = st.recursive(
    odd, lambda held: st.lists(held, max_size=3) | st.dictionaries(st.text(max_size=5), held), max_leaves=5
)


@some
@given(st.sampled_from(PLACES), values)
def test_a_params_file_with_something_odd_in_it(tmp_path: Path, place: tuple[Any, ...], value: Any) -> None:
    block = copy.deepcopy(GOOD)
    at = block
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(block, allow_unicode=True))
    with suppress(ParamsError):
        load(path)


def drawn_yaml(rng: random.Random) -> str:
    """A document of anchors, aliases, merge keys and nesting, most of it valid."""
    names = [f"a{n}" for n in range(rng.randint(1, 6))]

    def node(depth: int) -> str:
        kind = rng.choice(["scalar", "alias", "list", "map", "merge", "anchor"] if depth else ["scalar", "alias"])
        if kind == "alias":
            return f"*{rng.choice(names)} "
        if kind == "anchor":
            return f"&{rng.choice(names)} {node(depth - 1).replace('*', '').replace('&', '')}"
        inner = [node(depth - 1) for _ in range(rng.randint(0, 5) if depth else 0)]
        if kind == "list":
            return f"[{', '.join(inner)}]"
        if kind == "map":
            return "{" + ", ".join(f"k{n}: {one}" for n, one in enumerate(inner)) + "}"
        if kind == "merge":
            return "{<<: " + rng.choice([f"[{', '.join(inner)}]", *inner, "{}"]) + ", k: 1}"
        return rng.choice(["x", "1", "1.5", "null", "'<<'", "~", "2020-01-01", "!!python/name:os.system"])

    return "".join(f"{name}: &{name} {node(rng.randint(1, 4))}\n" for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5), ids="seed-{}".format)
def test_yaml_of_random_structure_is_refused_or_read_as_pyyaml_reads_it_in_time(seed: int) -> None:
    rng, read = random.Random(seed), 0
    for _ in range(200):
        text = drawn_yaml(rng)
        began = time.process_time()
        try:
            found = load_yaml(text)
        except (ValueError, yaml.YAMLError, RecursionError):
            found = None
        assert time.process_time() - began < 5, text
        if found is not None:
            read += 1
            assert repr(found) == repr(yaml.safe_load(text)), text
    assert read > 10, "hardly any document was one"


@some
@given(st.text())
def test_any_text_as_a_params_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with suppress(ParamsError):
        load(path)


def test_a_params_file_that_is_not_utf_8_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_bytes(b"seed: \x9f")
    with pytest.raises(ParamsError, match=r"not UTF-8 text .*; save it as UTF-8"):
        load(tmp_path / "params.yaml")
