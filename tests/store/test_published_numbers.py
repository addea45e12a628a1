"""Every number of the reference files lives in the project, number by number, and stands in the answer."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml

import store
from tests.store import reference

ROOT = Path(__file__).parents[2]
needs_files = pytest.mark.skipif(not reference.FOLDER.is_dir(), reason=reference.ABSENT)


@pytest.fixture(scope="module")
def connection(empty_results: Path):
    with store.open(empty_results) as opened:
        yield opened


@needs_files
def test_the_files_and_the_project_hold_the_same_numbers(connection) -> None:
    files, ours = reference.of_files(), reference.of_project(connection)
    assert len(files) == 40 + 28 + 8 * 8 + 4 * 9 + (2 * 9 + 5) + 4 * 8
    assert files == ours


@needs_files
@pytest.mark.parametrize("name", sorted(reference.KEYS))
def test_one_digit_that_is_wrong_is_found(connection, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "reference"
    shutil.copytree(reference.FOLDER, folder)
    path = folder / f"{name}.csv"
    text = path.read_text().rstrip()
    path.chmod(0o644)
    path.write_text(f"{text[:-1]}{(int(text[-1]) + 1) % 10}\n")
    files, ours = reference.of_files(folder), reference.of_project(connection)
    wrong = {key for key in files.keys() | ours.keys() if files.get(key) != ours.get(key)}
    assert wrong and {key[0] for key in wrong} == {name}


@needs_files
def test_every_number_that_a_file_holds_and_no_other_stands_in_the_answer(connection) -> None:
    expected: Counter[tuple[str, float]] = Counter()
    for name, number in reference.of_files().items():
        if name[-1] not in reference.SETTINGS and not reference.is_base(name):
            expected[reference.FIGURES[name[0]].format(name[1][0]), number] += 1
    asked = "select figure, published from published_vs_measured where figure != 'isotropy Fig. 2'"
    assert Counter(connection.sql(asked).fetchall()) == expected


def test_what_was_not_measured_says_so_and_what_to_run(connection) -> None:
    rows = connection.sql("select * from published_vs_measured").to_arrow_table().to_pylist()
    assert len(rows) > 160
    for row in rows:
        assert (row["verdict"], row["comparable"], row["measured"]) == ("not measured", False, None)
        assert row["why"] == "no study of this run is of this figure" and row["run"] and row["claim"]
    assert all(float(row["published_text"]) == row["published"] for row in rows)


def test_a_number_is_named_apart_from_every_other_of_its_figure(connection) -> None:
    asked = "select figure, source, claim from published_values"
    found = connection.sql(asked).fetchall()
    twice = {name for name, n in Counter(found).items() if n > 1}
    assert not twice


def test_a_study_of_some_profile_is_of_every_figure_with_printed_numbers(connection) -> None:
    asked: dict[str, set[str]] = {}
    for path in (ROOT / "params.yaml", *sorted((ROOT / "params").glob("*.yaml"))):
        params = yaml.safe_load(path.read_text())
        for study in params["studies"].values():
            asked.setdefault(study.get("figure"), set()).add(params["profile"])
    for figure, profile in connection.sql("select distinct figure, profile from published_values").fetchall():
        assert profile in asked[figure], f"{figure} is in no study of params/{profile}.yaml"
