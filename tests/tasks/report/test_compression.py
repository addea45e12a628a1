"""Pictures of compressed models hold the ratios that data were made with; each verdict from data that call for it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.tasks.report.compression_rows import FACTORS, LOCAL, Made, compression_studies
from tests.tasks.report.conftest import HOSTILE
from tsfmscope import store
from tsfmscope.store import catalogue
from tsfmscope.tasks.report import colorscale
from tsfmscope.tasks.report.page import studies
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plot import load_plot
from tsfmscope.tasks.report.plots.frontier import check_local_methods
from tsfmscope.tasks.report.render.mpl_render import render
from tsfmscope.tasks.report.tables import StudyTables

REFERENCE = Path(__file__).parents[4] / "shared" / "reference"
Found = dict[str, StudyTables]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return compression_studies(tmp_path_factory.mktemp("compression"), Made(spread=0.0))


TOLD = {  # verdict -> what svd at a quarter costs, what flow costs where flat costs 1.1, and the spread of both
    "agrees": (0.95, 1.0, 0.01),
    "differs": (1.4, 1.3, 0.01),
    "undecided": (1.04, 1.1, 0.2),
}


@pytest.fixture(scope="module", params=TOLD)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Found]:
    """A run whose data call for a verdict."""
    svd, flow, spread = TOLD[request.param]
    factors = {"t5@svd-25": (svd, 0.6), "net-flow": (flow, 1.0)}
    return request.param, compression_studies(tmp_path_factory.mktemp("told"), Made(factors, spread))


def drawn(found: Found, study: str) -> Figure:
    (one,) = studies.draw_figures(found[study], [])
    return one


def claim(found: Found, study: str, words: str) -> str:
    (said,) = (one for one in studies.build_section(found[study], [], []).claims if words in one.text)
    return said.verdict


def test_queries_have_the_columns_that_their_plots_read(found: Found) -> None:
    for study in found.values():
        for query, columns in load_plot(study.plot).queries.items():
            assert set(columns) <= set(study.answers[query].frame.columns)


def test_ratios_are_geometric_means_over_data_sets_of_windows_that_all_have_a_score_of(found: Found) -> None:
    frame = found["frontier"].answers["frontier"].frame.set_index(["base", "model"])
    assert set(frame["n_windows"]) == {15} and set(frame["n_cells"]) == {4}  # ARIMA has no score of 1 of 16
    for model in FACTORS:
        base = "bolt" if model.startswith("bolt") else "t5"
        row = frame.loc[(base, model)]
        loss, time = FACTORS[model]
        assert (row["wql_ratio"], row["mase_ratio"]) == pytest.approx((loss, loss))
        assert row["time_ratio"] == pytest.approx(time)
    assert frame.loc[("bolt", "auto-ets"), "wql_ratio"] == pytest.approx(1.2 / 0.9)
    assert frame.loc[("bolt", "auto-ets"), "time_ratio"] == pytest.approx(0.3 / 0.5)
    assert frame.loc[("t5", "t5"), "seconds"] == pytest.approx(2.0)
    assert "t5@svd-25" not in frame.loc["bolt"].index


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return compression_studies(tmp_path_factory.mktemp("read"), Made(spread=0.0, read=True))


def test_a_cut_model_belongs_to_the_root_of_its_base_and_one_that_is_read_otherwise_is_not_cut(read: Found) -> None:
    frame = read["frontier"].answers["frontier"].frame
    kinds = frame[frame["base"] == "bolt"].set_index("model")["kind"]
    assert set(frame["base"]) == {"bolt", "t5"}
    assert (kinds["bolt-bf16"], kinds["bolt-bf16@joint-25"]) == ("other precision", "joint")
    names = {trace.name for trace in drawn(read, "frontier").figure.data if trace.showlegend}
    assert "other precision" in names


def test_a_model_that_is_read_otherwise_beats_no_local_method_as_a_compressed_one(read: Found) -> None:
    frame = read["frontier"].answers["frontier"].frame
    said = check_local_methods(frame)
    assert said.verdict == "agrees" and "auto-ets by bolt-bf16@joint-25" in said.text
    without = check_local_methods(frame[~frame["model"].str.contains("@")])
    assert without.verdict == "undecided" and "no compressed Chronos-Bolt" in without.text


def test_times_of_different_runs_are_not_held_against_each_other(tmp_path: Path) -> None:
    later = compression_studies(tmp_path, Made(spread=0.0, later=("t5@svd-25", "auto-ets")))
    frame = later["frontier"].answers["frontier"].frame.set_index(["base", "model"])
    assert frame.loc[[("t5", "t5@svd-25"), ("t5", "auto-ets"), ("bolt", "auto-ets")], "time_ratio"].isna().all()
    assert frame["time_ratio"].notna().sum() == len(frame) - 3
    assert frame.loc[("t5", "t5@svd-25"), "wql_ratio"] == pytest.approx(FACTORS["t5@svd-25"][0])


def test_baselines_stand_beside_models_on_an_accelerator(tmp_path: Path) -> None:
    frame = compression_studies(tmp_path, Made(spread=0.0, device="cuda:0"))["frontier"].answers["frontier"].frame
    assert frame["time_ratio"].notna().all()


def test_the_frontier_is_what_nothing_is_faster_and_better_than(found: Found) -> None:
    frame = found["frontier"].answers["frontier"].frame
    for _, part in frame.groupby("base"):
        points = part[["time_ratio", "wql_ratio"]].to_numpy()
        for point, on in zip(points, part["on_frontier"], strict=True):
            worse = (points <= point).all(axis=1) & (points < point).any(axis=1)
            assert on == (not worse.any())
    best = frame[frame["on_frontier"] & (frame["base"] == "t5")]
    assert set(best["model"]) == {"seasonal-naive", "auto-theta", "t5@joint-25", "t5"}


def test_the_picture_has_a_panel_a_dense_model_and_a_mark_for_each_row(found: Found) -> None:
    figure = drawn(found, "frontier").figure
    assert [one.text for one in figure.layout.annotations] == ["<b>bolt</b>", "<b>t5</b>"]
    frame = found["frontier"].answers["frontier"].frame
    marks = [trace for trace in figure.data if trace.mode == "markers"]
    assert sorted(x for trace in marks for x in trace.x) == pytest.approx(sorted(frame["time_ratio"]))
    assert sorted(y for trace in marks for y in trace.y) == pytest.approx(sorted(frame["wql_ratio"]))
    names = [trace.name for trace in marks if trace.showlegend]
    assert set(names) == {"dense", "svd", "joint", *LOCAL}
    assert len(names) == len(set(names))
    for trace in marks:
        assert (trace.marker.color == colorscale.GREY) == (trace.name in LOCAL)
    (svd,) = (trace for trace in marks if trace.name == "svd")
    assert dict(zip(svd.x, svd.marker.size, strict=True))[0.6] < max(svd.marker.size)  # less is left
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_lines_of_methods_stand_beside_the_papers_table_2(found: Found) -> None:
    figure = drawn(found, "table2").figure
    assert [one.text for one in figure.layout.annotations] == [
        f"<b>chronos-t5</b><br>{name}" for name in ("WQL", "MASE", "top-10 overlap", "LPPL")
    ]
    lines = {trace.name: trace for trace in figure.data if trace.mode == "lines" and trace.xaxis == "x"}
    assert set(lines) == {"svd", "joint", "printed, in-domain", "printed, zero-shot"}
    assert list(lines["svd"].x) == [0.25, 0.5] and list(lines["svd"].y) == pytest.approx([1.3, 1.1])
    assert (lines["printed, in-domain"].x[0], lines["printed, in-domain"].y[0]) == (0.073, 4.409)
    assert lines["svd"].line.dash == "solid" and lines["printed, zero-shot"].line.dash == "dot"


def test_a_line_of_pretrained_models_is_the_mean_over_its_seeds(told: tuple[str, Found]) -> None:
    _, found = told
    frame = found["table3"].answers["pretrained"].frame
    ours = frame[(frame["whose"] == "measured") & (frame["quantity"] == "WQL")]
    assert set(ours["line"]) == {"net-flow", "net-flat"} and len(ours) == 10
    figure = drawn(found, "table3").figure
    lines = {trace.name: trace for trace in figure.data if trace.mode == "lines" and trace.xaxis == "x"}
    for name, dash in (("net-flow", "solid"), ("net-flat", "dash")):
        assert lines[name].line.dash == dash
        assert lines[name].y[0] == pytest.approx(ours.loc[ours["line"] == name, "value"].mean())
    assert list(lines["printed, flat"].y) == [1.069, 1.038]


def test_whether_a_quarter_by_svd_loses_nothing_is_told_by_the_data_sets(told: tuple[str, Found]) -> None:
    verdict, found = told
    assert claim(found, "table2", "truncated by SVD to about a quarter of its size") == verdict


def test_whether_flow_beats_flat_is_told_by_the_seeds(told: tuple[str, Found]) -> None:
    verdict, found = told
    assert claim(found, "table3", "heads whose width grows with depth have less error") == verdict


def test_the_overlap_falls_with_what_is_left_and_the_original_shares_all_with_itself(told: tuple[str, Found]) -> None:
    """Svd at a half and a quarter, made 0.2 a halving from 0.9, and the original's 1: a slope of 0.25."""
    _, found = told
    (row,) = (one for one in found["table2"].published.frame.to_dict("records") if one["quantity"] == "overlap trend")
    assert (row["n"], row["condition"]) == (3, "t5") and row["measured"] == pytest.approx(0.25, abs=0.02)


def faster(frame: pd.DataFrame) -> pd.DataFrame:
    changed = frame["model"] == "bolt@joint-25"
    return frame.assign(
        time_ratio=frame["time_ratio"].where(~changed, 0.005), wql_ratio=frame["wql_ratio"].where(~changed, 0.5)
    )


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        (faster, "agrees", "auto-arima by bolt@joint-25, auto-ets by bolt@joint-25"),
        (lambda frame: frame, "differs", "auto-theta by none"),
        (lambda frame: frame[frame["kind"] != "baseline"], "undecided", "because no local method has score and time"),
        (lambda frame: frame.assign(time_ratio=np.nan), "undecided", "no local method and no compressed Chronos-Bolt"),
        (lambda frame: frame[frame["base"] != "bolt"], "not-comparable", "because no Chronos-Bolt is in this study"),
    ],
    ids=["all beaten", "not all", "no baseline", "no time", "no Bolt"],
)
def test_whether_a_compressed_bolt_beats_every_local_method_on_both(
    change: Callable[[pd.DataFrame], pd.DataFrame], verdict: str, words: str, found: Found
) -> None:
    said = check_local_methods(change(found["frontier"].answers["frontier"].frame))
    assert said.verdict == verdict and words in said.text


def test_a_study_without_rows_has_no_picture_and_is_told_so(found: Found) -> None:
    section = studies.build_section(found["nothing"], [], [])
    assert (section.rows, section.figures) == (0, ())
    assert section.claims[0].verdict == "not-comparable"


def test_without_timings_nothing_is_drawn_but_the_rows_are_there(found: Found) -> None:
    study = found["frontier"]
    answer = study.answers["frontier"]
    blank = replace(answer, frame=answer.frame.assign(time_ratio=np.nan))
    assert studies.draw_figures(replace(study, answers={"frontier": blank}), []) == ()


@pytest.mark.parametrize("study", ["frontier", "table2", "table3"])
def test_a_still_is_drawn(study: str, found: Found) -> None:
    made = render([("", drawn(found, study).figure)])
    assert made["png"].startswith(b"\x89PNG") and b"<svg" in made["svg"]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    found = compression_studies(tmp_path, Made(rename=HOSTILE))
    for study in ("frontier", "table2", "table3"):
        for picture in studies.build_section(found[study], [], []).figures:
            assert "<" not in picture.json and "<img" not in json.dumps(json.loads(picture.json))


@pytest.mark.parametrize(
    ("name", "figure", "columns"),
    [
        ("fig7_pretrained_compressed_chronos", "ranks Fig. 7", {
            "from_scratch_a": ("from scratch", "score a"), "from_scratch_b": ("from scratch", "score b"),
            "reuse_embedding_a": ("reused embedding", "score a"), "reuse_embedding_b": ("reused embedding", "score b"),
        }),
        ("table3_pretrained_compressed_moirai", "ranks Table 3", {
            "flow_wql": ("flow", "WQL"), "flow_mase": ("flow", "MASE"), "flat_wql": ("flat", "WQL"),
            "flat_mase": ("flat", "MASE"),
        }),
        ("table4_pretrained_compressed_bolt_small", "ranks Table 4", {
            "in_domain_wql": ("in-domain", "WQL"), "in_domain_mase": ("in-domain", "MASE"),
            "zero_shot_wql": ("zero-shot", "WQL"), "zero_shot_mase": ("zero-shot", "MASE"),
        }),
    ],
)  # fmt: skip
def test_the_printed_numbers_are_those_of_the_reference_files(
    name: str, figure: str, columns: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    if not REFERENCE.exists():
        pytest.skip("../shared/reference is not here; it holds the numbers as others copied them from the paper")
    with (REFERENCE / f"{name}.csv").open() as file:
        printed = list(csv.DictReader(file))
    expected: set[tuple[Any, ...]] = set()
    for row in printed:
        for column, (line, quantity) in columns.items():
            if row[column]:
                prefix = f"{line}_" if "flow_d0" in row else ""
                numbers = [
                    row.get(f"{prefix}d0"),
                    row.get("size_ratio"),
                    row.get("time"),
                    row.get("space"),
                    row[column],
                ]
                expected.add((line, quantity, *(float(one) if one else None for one in numbers)))
    catalogue.build(tmp_path / "results.duckdb", {})
    columns_of_numbers = "line, quantity, first, size, time_ratio, space_ratio, value"
    sql = f"select {columns_of_numbers} from published_pretrained where figure = ?"
    with store.open(tmp_path / "results.duckdb") as connection:
        assert set(connection.sql(sql, params=[figure]).fetchall()) == expected
