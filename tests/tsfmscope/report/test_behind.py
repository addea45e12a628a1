"""Every figure has its SQL and its data one click away, and they agree; the foot says what made the page."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from pathlib import Path
from typing import NamedTuple

import duckdb
import pandas as pd

from stages.report import read_lock
from tsfmscope.report.page import run_page
from tsfmscope.report.page.page import render
from tsfmscope.report.tables import ReportTables

BLOCK = re.compile(r'<div class="source" id="source-([^"]+)">(.*?)</div>', re.DOTALL)
CSV = re.compile(r'download="([^"]+)\.csv" href="data:text/csv;charset=utf-8;base64,([^"]*)"')
SQL = re.compile(r"<summary>SQL</summary>\s*<pre[^>]*><code>(.*?)</code></pre>", re.DOTALL)


class Source(NamedTuple):
    """The SQL and the CSV of one answer, as a reader gets them."""

    sql: str
    csv: pd.DataFrame | None


def read_sources(page: str) -> dict[str, Source]:
    sources = {}
    for name, block in BLOCK.findall(page):
        (sql,) = SQL.findall(block)
        files = CSV.findall(block)
        assert [file for file, _ in files] in ([], [name])
        data = pd.read_csv(io.BytesIO(base64.b64decode(files[0][1]))) if files else None
        sources[name] = Source(html.unescape(sql), data)
    return sources


def test_every_figure_names_its_sources_which_stand_after_it(page: str) -> None:
    sources = read_sources(page)
    figures = list(re.finditer(r'<figure data-source="source-([^"]+)"', page))
    assert len(figures) == page.count("<figure") > 12
    for figure in figures:
        source = sources[figure[1]]
        assert source.sql.strip()
        assert source.csv is not None and len(source.csv)
        assert "<section" not in page[figure.start() : page.index(f'id="source-{figure[1]}"', figure.start())]
    assert len(sources) == page.count('class="source"')  # none twice


def test_a_csv_holds_the_rows_of_its_query(
    page: str, tables: ReportTables, connection: duckdb.DuckDBPyConnection
) -> None:
    both = read_sources(page) | read_sources(run_page.render(tables))
    sources = {name: source for name, source in both.items() if "islands" not in name}
    assert len(sources) > 22
    for name, source in sources.items():
        rows = connection.sql(source.sql).df()
        if source.csv is None:
            assert rows.empty, name
        else:
            again = pd.read_csv(io.StringIO(rows.to_csv(index=False)))
            pd.testing.assert_frame_equal(source.csv, again, obj=name)


LOCK = """schema: '2.0'
stages:
  geometry:
    cmd: python -m stages geometry
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
    cmd: python -m stages theory
  report:
    cmd: python -m stages report
    outs:
    - path: data/report.html
      md5: 33333333333333333333333333333333
"""


SHORT = ("commit", "hardware", "DVC lock")


def test_the_lock_is_read_for_what_the_page_is_made_from_alone(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    assert read_lock(path) == {}
    path.write_text(LOCK)
    assert read_lock(path) == {"data/geometry": "1" * 32 + ".dir", "data/timings/geometry": "2" * 32 + ".dir"}


def test_the_page_on_the_run_tells_commit_versions_hardware_seed_seconds_and_lock(
    page: str, tables: ReportTables
) -> None:
    outs = {"data/theory": "b" * 32, "data/geometry": "a" * 32 + ".dir"}
    whole = run_page.render(tables, outs)
    foot = whole.partition('<footer id="provenance"')[2]
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", foot))
    assert list(facts) == ["commit", "hardware", "seed", "versions", "seconds", "DVC lock"]
    assert (facts["commit"], facts["hardware"], facts["seed"]) == ("1a2b3c4", "a machine", "0")
    assert "torch 2." in facts["versions"]
    assert facts["seconds"].startswith(f"{tables.runs.frame['seconds'].sum():,.0f} in all")
    listed = re.findall(r'<pre tabindex="0" aria-label="Outs in dvc.lock[^>]*>(.*?)</pre>', foot, re.DOTALL)
    assert listed == [f"{'a' * 32}.dir  data/geometry\n{'b' * 32}  data/theory\n"]
    assert facts["DVC lock"] == f"sha256 {hashlib.sha256(listed[0].encode()).hexdigest()} over 2 outs in dvc.lock"
    for row in tables.runs.frame.itertuples(index=False):  # seconds by stage
        assert re.search(rf"<td>{row.stage}</td><td>[^<]*</td><td class=\"n\" data-value=\"{row.seconds}\">", whole)
    short = render(tables, outs=outs).partition('<footer id="provenance"')[2]
    assert dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", short)) == {name: facts[name] for name in SHORT}
    assert "none: the stages were not run by DVC" in page
