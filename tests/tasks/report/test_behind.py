"""Every figure has its SQL and its data one click away, and they agree; the foot says what made the page."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from tests.tasks.report.rank_rows import rank_studies
from tsfmscope import store
from tsfmscope.stages.report import read_lock
from tsfmscope.store import catalogue
from tsfmscope.tasks.report.page.page import render
from tsfmscope.tasks.report.tables import ReportTables

BLOCK = re.compile(r'<div class="source" id="source-([^"]+)">(.*?)</div>', re.DOTALL)
CSV = re.compile(r'download="([^"]+)\.csv" href="data:text/csv;charset=utf-8;base64,([^"]*)"')


class Behind(NamedTuple):
    """The SQL and the CSV of one answer, as a reader gets them."""

    sql: str
    csv: pd.DataFrame | None


def behind(page: str) -> dict[str, Behind]:
    found = {}
    for name, block in BLOCK.findall(page):
        (sql,) = re.findall(r"<summary>SQL</summary>\s*<pre[^>]*><code>(.*?)</code></pre>", block, re.DOTALL)
        files = CSV.findall(block)
        assert [file for file, _ in files] in ([], [name])
        data = pd.read_csv(io.BytesIO(base64.b64decode(files[0][1]))) if files else None
        found[name] = Behind(html.unescape(sql), data)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("behind")


@pytest.fixture(scope="module")
def page(folder: Path, tables: ReportTables) -> str:
    """Made-up studies of both papers; those of ranks are answered by the page's own SQL from folder/results.duckdb."""
    return render(replace(tables, studies=(*tables.studies, *rank_studies(folder, tested=False).values())))


@pytest.mark.slow
def test_every_figure_names_what_is_behind_it_which_stands_after_it(page: str) -> None:
    found = behind(page)
    figures = list(re.finditer(r'<figure data-source="source-([^"]+)"', page))
    assert len(figures) == page.count("<figure") > 25
    for figure in figures:
        one = found[figure[1]]
        assert one.sql.strip()
        assert one.csv is not None and len(one.csv)
        assert page.index(f'id="source-{figure[1]}"') > figure.start()
        assert "<section" not in page[figure.start() : page.index(f'id="source-{figure[1]}"')]
    assert len(found) == page.count('class="source"')  # none twice


@pytest.mark.slow
def test_the_csv_of_a_figure_holds_the_rows_of_its_query(page: str, folder: Path) -> None:
    found = {
        name: one for name, one in behind(page).items() if name.startswith(("fig", "flow-")) and one.csv is not None
    }
    assert len(found) > 10
    with store.open(folder / "results.duckdb") as connection:
        for name, one in found.items():
            rows = connection.sql(one.sql).df()
            assert len(rows), name
            assert one.csv is not None
            again = pd.read_csv(io.StringIO(rows.to_csv(index=False)))
            pd.testing.assert_frame_equal(one.csv, again, obj=name)


@pytest.mark.slow
def test_the_sql_of_every_other_answer_runs_as_it_stands(page: str, tmp_path: Path) -> None:
    catalogue.build(tmp_path / "results.duckdb", {})
    asked = {name: one for name, one in behind(page).items() if not name.startswith(("fig", "flow-", "islands"))}
    assert len(asked) > 20
    with store.open(tmp_path / "results.duckdb") as connection:
        for name, one in asked.items():
            columns = connection.sql(one.sql).columns
            assert one.csv is None or list(one.csv.columns) == columns, name


LOCK = """schema: '2.0'
stages:
  geometry:
    cmd: python -m tsfmscope.stages geometry
    deps:
    - path: data/embeddings
      md5: 0000000000000000000000000000dead.dir
    outs:
    - path: data/geometry
      hash: md5
      md5: 11111111111111111111111111111111.dir
      size: 3
    - path: data/timings/geometry
      md5: 22222222222222222222222222222222.dir
  theory:
    cmd: python -m tsfmscope.stages theory
  report:
    cmd: python -m tsfmscope.stages report
    outs:
    - path: data/report.html
      md5: 33333333333333333333333333333333
"""


def test_the_lock_is_read_for_what_the_page_is_made_from_alone(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    assert read_lock(path) == {}
    path.write_text(LOCK)
    assert read_lock(path) == {"data/geometry": "1" * 32 + ".dir", "data/timings/geometry": "2" * 32 + ".dir"}


def test_the_foot_tells_commit_versions_hardware_seed_seconds_and_lock(tables: ReportTables) -> None:
    outs = {"data/theory": "b" * 32, "data/geometry": "a" * 32 + ".dir"}
    foot = render(tables, outs=outs).partition('<footer id="provenance"')[2]
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", foot))
    assert list(facts) == ["commit", "hardware", "seed", "versions", "seconds", "DVC lock"]
    assert facts["commit"] == "1a2b3c4"
    assert facts["hardware"] == "2 cores, x86_64, 8 GB"
    assert facts["seed"] == "0"
    assert "torch 2.13.0" in facts["versions"]
    assert facts["seconds"].startswith(f"{tables.runs.frame['seconds'].sum():,.0f} in all")
    listed = re.findall(r'<pre tabindex="0" aria-label="Outs in dvc.lock[^>]*>(.*?)</pre>', foot, re.DOTALL)
    assert listed == [f"{'a' * 32}.dir  data/geometry\n{'b' * 32}  data/theory\n"]
    assert facts["DVC lock"] == f"sha256 {hashlib.sha256(listed[0].encode()).hexdigest()} over 2 outs in dvc.lock"
    for row in tables.runs.frame.itertuples(index=False):  # seconds by stage
        assert re.search(rf"<td>{row.stage}</td><td>[^<]*</td><td class=\"n\" data-value=\"{row.seconds}\">", foot)
    assert "none: the stages were not run by DVC" in render(tables)
