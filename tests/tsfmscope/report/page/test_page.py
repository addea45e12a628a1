"""The pages as text: what they hold, that it is the same twice, that names are escaped, that errors name the column."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import duckdb
import pandas as pd
import pytest

from stages.report import read_lock
from store.report_queries import load_queries
from tests.tsfmscope.report import recorded
from tsfmscope.report.page import run_page
from tsfmscope.report.page.page import render
from tsfmscope.report.page.sections import build_table, csv_link
from tsfmscope.report.page.verdicts import cite, list_verdicts
from tsfmscope.report.tables import Answer, ReportTables, StudyTables, order_models

# NMSE against isotropy, advice, four of the theorems, and those of the studies: by domain, by condition, islands,
# two of each other plot, and of the inside four of probes, two of ablation and one of similarity.
PICTURES = 1 + 1 + 4 + 7 + 7
BLOCK = re.compile(r'<div class="source" id="source-([^"]+)">(.*?)</div>', re.DOTALL)
CSV = re.compile(r'download="([^"]+)\.csv" href="data:text/csv;charset=utf-8;base64,([^"]*)"')
SQL = re.compile(r"<summary>SQL</summary>\s*<pre[^>]*><code>(.*?)</code></pre>", re.DOTALL)
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


class _Outline(HTMLParser):
    """Tags, ids, links and the text of script elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attributes)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found[name] or "" for name in ("href", "src") if name in found]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def test_the_page_is_the_same_twice(page: str, tables: ReportTables) -> None:
    assert render(tables) == page


def test_nothing_points_outside_and_every_link_inside_has_its_goal(page: str) -> None:
    outline = _Outline(page)
    assert len(outline.ids) == len(set(outline.ids))
    for link in outline.links:
        assert link.startswith(("data:", "#")) or link == "run.html"
        assert not link.startswith("#") or link[1:] in outline.ids
    assert len(page) < 15e6


def test_the_policy_allows_the_two_scripts_by_hash_and_no_request(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    scripts = _Outline(page).scripts
    assert len(scripts) == 2
    for text in scripts:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"sha256-{digest}" in policy.group(1)
    assert policy.group(1).startswith("default-src 'none'")


def test_figures_are_svg_with_alt_texts(page: str) -> None:
    assert page.count("<svg") == PICTURES
    alts = re.findall(r'role="img" tabindex="0" aria-label="([^"]+)"', page)
    assert len(alts) == PICTURES
    assert all(len(alt) > 40 for alt in alts)


def test_hostile_names_make_no_element(hostile: ReportTables, page: str) -> None:
    attacked = _Outline(render(hostile))
    assert set(attacked.tags) == set(_Outline(page).tags)
    assert attacked.tags.count("script") == 2


def test_a_lacking_column_is_named(tables: ReportTables) -> None:
    answer = tables.nmse_against_isotropy
    broken = replace(answer, frame=answer.frame.drop(columns="nmse"))
    with pytest.raises(
        ValueError, match=r"'Forecast error against isotropy': expected columns nmse, found only model, .*;"
    ):
        render(replace(tables, nmse_against_isotropy=broken))
    study = tables.studies[0]
    broken = replace(study.published, frame=study.published.frame.drop(columns="why"))
    with pytest.raises(ValueError, match=r"Claims of the paper.*: expected columns why, found"):
        render(replace(tables, studies=(replace(study, published=broken),)))


def test_a_long_table_is_cut_in_the_page_and_whole_in_its_csv(tables: ReportTables) -> None:
    frame = pd.concat([tables.alignment.frame] * 20, ignore_index=True)
    text = run_page.render(replace(tables, skipped=Answer("Skipped", "select 1", frame)))
    assert "The first 400 of 480 rows; the CSV holds all." in text
    assert csv_link(frame) in text


@pytest.mark.parametrize(
    ("value", "text", "number"),
    [
        (0.123456, "0.123", 0.123456),
        (-0.5, "−0.5", -0.5),
        (float("nan"), "–", None),
        (None, "–", None),
        (pd.NaT, "–", None),
        (12_345, "12,345", 12_345.0),
        (8174.6, "8,175", 8174.6),
        (-1234.5, "−1,234", -1234.5),
        (1.5e7 + 0.5, "1.5e+07", 1.5e7 + 0.5),
        (3.0, "3", 3.0),
        (1e-9, "1e−09", 1e-9),
        (float("inf"), "inf", float("inf")),
        (True, "yes", None),
        ("<b>", "<b>", None),
    ],
)
def test_cells_show_numbers_shortly_and_keep_them_to_sort_by(value: object, text: str, number: float | None) -> None:
    (row,) = build_table(pd.DataFrame({"x": pd.Series([value], dtype=object)})).rows
    assert (row[0].text, row[0].number) == (text, number)


def test_a_study_is_found_by_its_figures_number(page: str, tables: ReportTables) -> None:
    for study in tables.studies:
        part = section(page, study.name)
        assert f'<span class="kicker">{cite(study.figure or "")}</span> {study.title}' in part or study.figure is None
        assert ("params/paper.yaml" in part) == (study.figure is not None)
        assert f'href="#study-{study.name}"' in page


def test_a_study_says_what_the_paper_says_with_each_verdict(tables: ReportTables) -> None:
    study = tables.studies[0]
    verdicts = ("agrees", "differs", "undecided", "not comparable")
    rows = pd.concat([study.published.frame.assign(verdict=verdict) for verdict in verdicts])
    part = section(render(replace(tables, studies=(with_claims(study, rows),))), study.name)
    for verdict in verdicts:
        assert (
            f'<li class="{verdict.replace(" ", "-")}">Shelim et al. 2025 (section 6): isotropy is a reliable indicator'
            in part
        )


def section(page: str, study: str) -> str:
    start = page.index(f'id="study-{study}"')
    return page[start : page.index("</section>", start)]


def with_claims(study: StudyTables, rows: pd.DataFrame) -> StudyTables:
    return replace(study, published=replace(study.published, frame=rows))


def test_the_models_of_the_main_study_have_the_first_colours(tables: ReportTables) -> None:
    frame = tables.checkpoints.frame
    others = frame.iloc[:1].assign(model="a-base@svd-4"), frame.iloc[:1].assign(model="another")
    checkpoints = replace(tables.checkpoints, frame=pd.concat([*others, frame]))
    names = order_models(replace(tables, checkpoints=checkpoints))
    assert names == [*sorted(frame["model"])[:2], "another", "a-base@svd-4", sorted(frame["model"])[2]]


def test_the_page_begins_with_papers_date_verdicts_and_models(page: str, tables: ReportTables) -> None:
    top = page.partition('class="question"')[0]
    assert "arXiv:2505.17135" in top and "arXiv:2510.03358" in top
    assert re.search(r"run of <strong>\d{4}-\d\d-\d\d</strong>", top)
    claims = [row for study in tables.studies for row in study.published.frame.itertuples() if pd.isna(row.published)]
    assert claims
    rows = re.findall(r'<tr><td class="verdict ([a-z-]+)">([^<]+)</td><td class="long"><a href="[^"]+">([^<]+)', top)
    assert {verdict for verdict, _, _ in rows} <= {"agrees", "differs", "undecided", "not-comparable", "not-measured"}
    assert {html.unescape(text).partition(" (")[0].strip() for _, _, text in rows} == {row.claim for row in claims}
    assert '<table id="models-table"' in top
    assert "chronos-bolt-nano" in top.partition('id="models-table"')[2]


def test_errors_on_whole_data_sets_replace_those_on_windows_at_a_glance(page: str) -> None:
    (column,) = re.findall(r'<table id="models-table".*?</thead>', page, re.DOTALL)
    assert "data sets" in column and ">low<" in column and ">high<" in column and "MASE" not in column
    row = {"kind": "real", "n_datasets": 7, "wql": 0.5, "wql_low": 0.4, "wql_high": 0.6, "mae": 0.7, "mae_low": 0.6}
    row |= {"mae_high": 0.8, "bootstrap": 100, "seed": 0}
    values = ", ".join(["'chronos-bolt-nano'", *(repr(value) for value in row.values())])
    identity = "model: 'auto-ets', dataset: 'made-up', domain: '', is_real: true, trained_on: false, reason: 'none'"
    sizes = "n_series: 9, n_windows: 8, context: 64, horizon: 6, season: 1, seed: 0, job_key: 'k'"
    with recorded.build(
        f"insert into mean_skill ({', '.join(['model', *row])}) values ({values})",
        f"insert into dataset_skill by name select unnest([{{{identity}, {sizes}}}], recursive := true)",
    ) as changed:
        answered = recorded.answer_report(changed)
    line = answered.models.frame.set_index("model").loc["chronos-bolt-nano"]
    assert list(line[["n_real", "real_wql", "real_low", "real_high", "real_mae"]]) == [7, 0.5, 0.4, 0.6, 0.7]
    found = render(answered)
    (column,) = re.findall(r'<table id="models-table".*?</thead>', found, re.DOTALL)
    assert "real sets: WQL" in column and "MASE" not in column and "real sets: WQL" not in page
    for name in ("mean_skill", "dataset_skill"):
        assert f'id="{name}"' in found and f'id="{name}"' not in page


def test_an_own_study_changes_no_number_of_the_models_at_a_glance(tables: ReportTables) -> None:
    where = "study = 'ranks'"
    keys = recorded.copy_rows("study_jobs", where, study="'mine'")
    spectra = recorded.copy_rows("spectra", where, study="'mine'", singular_values="[1.0]", dataset="'mine'")
    study = recorded.copy_rows("studies", where, study="'mine'", figure="null")
    with recorded.build(study, keys, spectra) as changed:
        frame = recorded.answer_report(changed).models.frame
    pd.testing.assert_frame_equal(frame, tables.models.frame)


def test_no_two_verdicts_have_the_same_text(tables: ReportTables) -> None:
    study = next(study for study in tables.studies if any(study.published.frame["published"].isna()))
    row = study.published.frame[study.published.frame["published"].isna()].iloc[:1].assign(model=None, dataset=None)
    two = pd.concat(
        [row.assign(condition="a@svd", verdict="undecided"), row.assign(condition="b@svd", verdict="differs")]
    )
    first = replace(study, published=replace(study.published, frame=two))
    verdicts = list(list_verdicts([first, replace(first, name="again")]))
    assert len({verdict.claim for verdict in verdicts}) == 4
    assert {"a@svd", "again"} <= set(re.findall(r"[\w@]+", verdicts[2].claim))


def test_a_claim_on_many_models_is_one_row_with_counts(tables: ReportTables) -> None:
    study = next(study for study in tables.studies if any(study.published.frame["published"].isna()))
    row = study.published.frame[study.published.frame["published"].isna()].iloc[:1]
    models = [row.assign(model=f"model-{n}", verdict="agrees" if n else "differs") for n in range(5)]
    many = replace(study, published=replace(study.published, frame=pd.concat(models)))
    (verdict,) = list_verdicts([many])
    assert (verdict.answer, verdict.verdict) == ("4 agree, 1 differs", "undecided")
    assert verdict.section == f"study-{study.name}"


def test_an_own_study_comes_first_with_its_errors_and_papers_come_after(page: str, tables: ReportTables) -> None:
    own = [study for study in tables.studies if study.is_own]
    assert [study.name for study in own] == ["isotropy-contexts", "isotropy-states", "isotropy-layers"]
    questions = re.findall(r'<section id="([^"]+)" class="question"', page)
    assert questions == ["own", "isotropy", "rank", "theorems", "trust"]
    for study in own:
        assert study.errors is not None and len(study.errors.frame)
        part = section(page, study.name)
        assert f'id="{study.name}-errors-table"' in part and "WQL" in part and '<details class="fold">' not in part
        assert page.index('id="own"') < page.index(f'id="study-{study.name}"') < page.index('id="isotropy"')
    no_papers = render(replace(tables, studies=tuple(own)))
    assert 'id="rank"' not in no_papers


def test_errors_of_an_own_study_are_those_of_its_windows_and_relative_to_seasonal_naive() -> None:
    naive = recorded.copy_rows(
        "forecasts", "study = 'isotropy-contexts'", model="'seasonal-naive'", quantile_loss="2 * quantile_loss"
    )
    with recorded.build(naive) as changed:
        errors = recorded.answer_study(changed, "isotropy-contexts", "conditions").errors
        windows = changed.sql("from forecasts where study = 'isotropy-contexts'").df()
    assert errors is not None
    assert set(errors.frame["condition"]) == {"context-128", "noisy"}
    for row in errors.frame.itertuples():
        mine = windows.query("model == @row.model and dataset == @row.dataset and condition == @row.condition")
        levels = len(mine["levels"].iloc[0])
        assert row.wql == pytest.approx(mine["quantile_loss"].sum() / (levels * mine["target_abs"].sum()))
        assert row.wql_ratio == pytest.approx(1.0 if row.model == "seasonal-naive" else 0.5)
        assert row.kind == ("baseline" if row.model == "seasonal-naive" else "model")
        assert (row.n_windows, row.n_series) == (len(mine), mine["series"].nunique())


def test_only_the_first_section_of_a_question_is_open(page: str, tables: ReportTables) -> None:
    starts = [*re.finditer(r'<section id="([^"]+)" class="question"', page)]
    ends = [*(start.start() for start in starts[1:]), len(page)]
    for start, end in zip(starts, ends, strict=True):
        folded = ['<details class="fold">' in text for text in page[start.end() : end].split("<section id=")[1:]]
        assert folded.count(False) == (3 if start[1] == "own" else 1), start[1]
    assert 'id="study-isotropy-layers"' in page


def test_how_it_ran_is_a_page_of_its_own(page: str, tables: ReportTables) -> None:
    text = run_page.render(tables, {"data/geometry": "0" * 32})
    outline = _Outline(text)
    assert len(outline.ids) == len(set(outline.ids))
    names = {"runs", "failures", "skipped", "training", "checkpoints", "provenance"}
    assert names <= set(outline.ids)
    assert not (names - {"provenance"}) & set(_Outline(page).ids)
    for link in outline.links:
        assert link.startswith("data:") or link == "report.html" or link.removeprefix("#") in outline.ids
    assert csv_link(tables.runs.frame) in text and "data/geometry" in text
    assert run_page.render(tables, {"data/geometry": "0" * 32}) == text


def test_the_tests_of_a_population_are_shown_where_a_run_has_one(
    page: str, tables: ReportTables, population: duckdb.DuckDBPyConnection
) -> None:
    names, queries = ("population_correlation", "hypothesis_tests"), load_queries("page")
    filled = {name: queries[name].fill(study="s") for name in names}
    answers = {name: Answer(query.title, query.sql, query.run(population).df()) for name, query in filled.items()}
    found = render(replace(tables, **answers))
    assert [f'id="{name}"' in page for name in names] == [False, False]
    part = found[found.index('id="hypothesis_tests"') :].partition("</table>")[0]
    assert 'id="population_correlation"' in found
    for row in answers["hypothesis_tests"].frame.itertuples():
        assert row.claim in part and row.verdict in part


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
