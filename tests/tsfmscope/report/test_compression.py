"""Figures of compressed models hold the ratios that rows were made with; each verdict from data that call for it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import store
from stages.planning.inference import _rank_rows as infer
from store import catalogue, files
from tests.tsfmscope.report import recorded
from tests.tsfmscope.report.conftest import make_hostile
from tests.tsfmscope.report.recorded import copy_rows
from tsfmscope.report import colorscale
from tsfmscope.report.charts import pretrained
from tsfmscope.report.page import studies
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots.frontier import check_local_methods
from tsfmscope.report.render.mpl_render import render
from tsfmscope.report.tables import StudyTables
from tsfmscope.statistics.options import SeededOptions

REFERENCE = Path(__file__).parents[4] / "shared" / "reference"
ByPlot = dict[str, StudyTables]
T5, BOLT = "chronos-t5-nano", "chronos-bolt-nano"
LOCAL = ("seasonal-naive", "auto-ets", "auto-theta", "auto-arima")
FACTORS = {  # model -> factors of the loss and of the time of T5, or of BOLT where the name says so
    "t5@svd-25": (1.3, 0.6), "t5@svd-50": (1.1, 0.8), "t5@joint-25": (1.02, 0.5), "bolt@joint-25": (1.01, 0.7),
    "seasonal-naive": (1.6, 0.01), "auto-ets": (1.2, 0.3), "auto-theta": (1.15, 0.1), "auto-arima": (1.1, 4.0),
}  # fmt: skip
BFLOAT16 = {"bolt-bf16": (0.5, 0.005), "bolt-bf16@joint-25": (0.5, 0.005)}  # the second is cut from the first
NETS = {"net-flow": 1.02, "net-flat": 1.1}  # pretrained with narrow heads -> factor of the dense model's loss
HEADS = {"net-flow": '{"factors": "head", "flow": {"first": 5.0}}', "net-flat": '{"factors": "head", "flat": 8}'}
STUDIES = {"frontier": "isotropy", "compressed": "isotropy", "pretrained": "isotropy-contexts"}
OPTIONS = SeededOptions(permutations=999, bootstrap=100, seed=1)
ADJUSTED = {"alpha": 0.05, "seed": 1, "n_tests": 1}


def add_model(name: str, like: str, factor: float, seconds: float = 1.0, **changed: Any) -> list[str]:
    """Return SQL that adds a model with a multiple of another's losses and times.

    changed: study, base, share (of the width of heads), heads (of the checkpoint), and spread of the
    factor's logarithm over data sets.
    """
    rng = np.random.default_rng([ord(letter) for letter in name])
    spread, base, heads = changed.get("spread", 0.0), changed.get("base"), changed.get("heads")
    factors = {dataset: factor * np.exp(spread * rng.normal()) for dataset in ("linear-2", "seasonality-2")}
    of_dataset = " ".join(f"when '{dataset}' then {value}" for dataset, value in factors.items())
    scale = f"(case dataset {of_dataset} else {factor * np.exp(spread * rng.normal())} end)"
    rows = f"study = '{changed.get('study', 'isotropy')}' and model = '{like}'"
    scaled = {column: f"{column} * {scale}" for column in ("quantile_loss", "wql_window", "mase", "mase_gluonts")}
    identity = {"model": f"'{name}'", "base_model": f"'{base}'" if base else "null", "job_key": f"job_key || '{name}'"}
    jobs = f"stage = 'forecasts' and key in (select job_key from forecasts where {rows})"
    identity |= {"size_parameter": str(changed.get("share", "null")), "size_rule": "null"}
    identity |= {"size_rule": "'share'"} if "share" in changed else {}
    sql = [
        copy_rows("forecasts", rows, **identity, **scaled),
        copy_rows("timings", jobs, key=f"key || '{name}'", seconds=f"seconds * {seconds}"),
    ]
    family = {"family": "'moirai'", "heads": f"'{heads}'" if heads else "null"} if "net" in name else {}
    return sql if name in LOCAL else [*sql, copy_rows("checkpoints", f"model = '{like}'", model=f"'{name}'", **family)]


def cut_model(name: str, base: str) -> list[str]:
    """Return SQL on how a model NAME@METHOD-PERCENT was compressed and how near it is to its base."""
    method, share = name.partition("@")[2].split("-")[0], int(name.rpartition("-")[2]) / 100
    model = {"model": f"'{name}'", "base_model": f"'{base}'", "job_key": f"job_key || '{name}'"}
    model |= {"size_parameter": str(share), "size_rule": "'budget'"}
    sizes = {"attention_ratio": str(share), "rank_ratio": str(share / 2 if method == "svd" else share)}
    return [
        copy_rows("compression", "method = 'activation-aware'", method=f"'{method}'", **sizes, **model),
        copy_rows(
            "fidelity",
            "study = 'isotropy-layers'",
            study="'isotropy'",
            overlap=str(0.9 + 0.2 * np.log2(share)),
            **model,
        ),
    ]


def make_changes(factors: dict[str, tuple[float, float]] | None = None, *, spread: float = 0.0) -> list[str]:
    """Return SQL that adds the models; ARIMA has no forecast of one window."""
    sql = []
    factors = factors or {}
    costs = {name: factors.get(name, (factor,))[0] for name, factor in NETS.items()}
    models = {name: pair for name, pair in (FACTORS | factors).items() if name not in NETS}
    for name, (factor, seconds) in models.items():
        like = BOLT if name.startswith("bolt") else T5
        base = None if name in LOCAL else "bolt-bf16" if name.startswith("bolt-bf16@") else like
        own = 0.0 if name in LOCAL else spread
        sql += add_model(name, like, factor, seconds, base=base, spread=own)
        sql += cut_model(name, str(base)) if "@" in name else []
    seeds = {f"{line}-{seed}": seed + 1 for line in ("net-dense", *(f"{line}25" for line in NETS)) for seed in range(5)}
    for seed in range(5):
        dense, study = f"net-dense-{seed}", "isotropy-contexts"
        sql += add_model(dense, T5, 1.0 + seed, study=study)
        for line, factor in costs.items():
            narrow = {"base": dense, "share": 0.25, "heads": HEADS[line], "spread": spread}
            sql += add_model(f"{line}25-{seed}", T5, factor * (1 + seed), study=study, **narrow)
    return [
        *sql,
        "update forecasts set reason = 'not forecast: made so', mase = null where model = 'auto-arima' "
        "and series = 'linear-2-000001' and condition = 'noisy'",
        "update studies set figure = 'ranks Table 2' where study = 'isotropy'",
        "update studies set figure = 'ranks Table 3' where study = 'isotropy-contexts'",
        f"update studies set x_axis = '{json.dumps(seeds)}' where study = 'isotropy-contexts'",
    ]


@contextmanager
def infer_from(changes: Sequence[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield the changed database with the intervals that the stage statistics gives."""
    with recorded.build("delete from inference", *changes) as connection:
        rows = files.to_arrow("inference", [{**row, **ADJUSTED} for row in infer(connection, OPTIONS)])
        connection.register("inferred", rows)
        connection.execute("insert into inference by name select * from inferred")
        yield connection


def answer(connection: duckdb.DuckDBPyConnection, plots: Sequence[str] = tuple(STUDIES)) -> ByPlot:
    figures = {"isotropy": "ranks Table 2", "isotropy-contexts": "ranks Table 3"}
    return {
        plot: recorded.answer_study(connection, STUDIES[plot], plot, figure=figures[STUDIES[plot]]) for plot in plots
    }


@pytest.fixture(scope="module")
def by_plot() -> Iterator[ByPlot]:
    with recorded.build(*make_changes()) as connection:
        yield answer(connection)


VERDICTS = {  # verdict -> what svd at a quarter costs, what flow costs where flat costs 1.1, and the spread of both
    "agrees": (0.95, 1.0, 0.01),
    "differs": (1.4, 1.3, 0.01),
    "undecided": (1.04, 1.1, 0.2),
}


@pytest.fixture(scope="module", params=VERDICTS)
def run(request: pytest.FixtureRequest) -> Iterator[tuple[str, ByPlot]]:
    """A run whose data call for a verdict."""
    svd, flow, spread = VERDICTS[request.param]
    with infer_from(make_changes({"t5@svd-25": (svd, 0.6), "net-flow": (flow, 1.0)}, spread=spread)) as connection:
        yield request.param, answer(connection, ("compressed", "pretrained"))


def frontier(*changes: str, factors: dict[str, tuple[float, float]] | None = None) -> pd.DataFrame:
    with recorded.build(*make_changes(factors), *changes) as connection:
        return answer(connection, ("frontier",))["frontier"].answers["frontier"].frame.set_index(["base", "model"])


def draw_study(by_plot: ByPlot, study: str) -> Figure:
    (figure,) = studies.draw_figures(by_plot[study], [])
    return figure


def claim(by_plot: ByPlot, study: str, words: str) -> str:
    (sentence,) = (claim for claim in studies.build_section(by_plot[study], [], []).claims if words in claim.text)
    return sentence.verdict


def test_ratios_are_geometric_means_over_data_sets_of_windows_that_all_have_a_score_of(by_plot: ByPlot) -> None:
    frame = by_plot["frontier"].answers["frontier"].frame.set_index(["base", "model"])
    assert set(frame["n_windows"]) == {35} and set(frame["n_cells"]) == {6}  # ARIMA has no score of 1 of 36
    for model, (loss, time) in FACTORS.items():
        row = frame.loc[(BOLT if model.startswith("bolt") else T5, model)]
        assert (row["wql_ratio"], row["mase_ratio"]) == pytest.approx((loss, loss))
        assert row["time_ratio"] == pytest.approx(time)
    assert "t5@svd-25" not in frame.loc[BOLT].index


def test_a_model_in_another_precision_is_not_compressed_and_what_is_cut_from_it_has_its_root() -> None:
    frame = frontier(factors=BFLOAT16)
    kinds = frame.loc[BOLT]["kind"]
    assert set(frame.index.get_level_values("base")) == {BOLT, T5}
    assert (kinds["bolt-bf16"], kinds["bolt-bf16@joint-25"]) == ("other precision", "joint")
    rows = frame.reset_index()
    sentence = check_local_methods(rows)
    assert sentence.verdict == "agrees" and "auto-ets by bolt-bf16@joint-25" in sentence.text
    without = check_local_methods(rows[~rows["model"].str.contains("@")])
    assert without.verdict == "undecided" and "no compressed Chronos-Bolt" in without.text


def test_times_are_compared_within_one_run_and_baselines_with_models_on_an_accelerator() -> None:
    run = copy_rows("runs", "stage = 'forecasts'", started="started + interval 1 day")
    later = "update timings set started = started + interval 1 day where ends_with(key, 't5@svd-25')"
    cuda = "update timings set device = 'cuda:0' where not regexp_matches(key, 'auto-|seasonal-')"
    frame = frontier(run, later, cuda)
    assert frame["time_ratio"].isna().sum() == 1 and np.isnan(frame.loc[(T5, "t5@svd-25"), "time_ratio"])
    assert frame.loc[(T5, "t5@svd-25"), "wql_ratio"] == pytest.approx(FACTORS["t5@svd-25"][0])


def test_the_frontier_is_what_nothing_is_faster_and_better_than(by_plot: ByPlot) -> None:
    frame = by_plot["frontier"].answers["frontier"].frame
    for _, part in frame.groupby("base"):
        points = part[["time_ratio", "wql_ratio"]].to_numpy()
        for point, is_best in zip(points, part["on_frontier"], strict=True):
            worse = (points <= point).all(axis=1) & (points < point).any(axis=1)
            assert is_best == (not worse.any())
    best = frame[frame["on_frontier"] & (frame["base"] == T5)]
    assert set(best["model"]) == {"seasonal-naive", "auto-theta", "t5@joint-25", T5}


def test_the_figure_has_a_panel_a_dense_model_and_a_mark_for_each_row(by_plot: ByPlot) -> None:
    figure = draw_study(by_plot, "frontier").figure
    assert [note.text for note in figure.layout.annotations] == [f"<b>{BOLT}</b>", f"<b>{T5}</b>"]
    frame = by_plot["frontier"].answers["frontier"].frame
    marks = [trace for trace in figure.data if trace.mode == "markers"]
    assert sorted(x for trace in marks for x in trace.x) == pytest.approx(sorted(frame["time_ratio"]))
    assert sorted(y for trace in marks for y in trace.y) == pytest.approx(sorted(frame["wql_ratio"]))
    names = [trace.name for trace in figure.data if trace.showlegend]
    assert names == ["Pareto front", "svd", "joint"]
    labels = [trace.text[0] for trace in figure.data if trace.mode == "text" and trace.xaxis == "x2"]
    assert sorted(labels) == sorted(["dense", "0.25", "0.5", "0.25", *LOCAL])  # of T5
    for trace in marks:
        assert (trace.marker.color == colorscale.GREY) == (trace.name in LOCAL)
    (svd,) = (trace for trace in marks if trace.name == "svd")
    assert svd.marker.size[np.argmin(svd.x)] < max(svd.marker.size)  # less is left
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_models_of_a_method_stand_beside_the_papers_table_2(by_plot: ByPlot) -> None:
    figure = draw_study(by_plot, "compressed").figure
    names = ("WQL", "MASE", "overlap of the 10 likeliest tokens", "log perplexity (LPPL)")
    assert [note.text for note in figure.layout.annotations][-4:] == [f"<b>chronos-t5</b><br>{name}" for name in names]
    axis = next(trace.xaxis for trace in figure.data if trace.name == "svd" and len(trace.x) == 2)
    traces = {trace.name: trace for trace in figure.data if trace.name and trace.xaxis == axis}
    assert {name for name, trace in traces.items() if trace.x[0]} == {
        "svd",
        "joint",
        "paper, in-domain",
        "paper, zero-shot",
    }
    assert list(traces["svd"].x) == pytest.approx([0.25, 0.5], rel=0.04)  # next to joint at 0.25
    assert list(traces["svd"].y) == pytest.approx([1.3, 1.1])
    assert traces["svd"].x[0] < 0.25 < traces["joint"].x[0]
    printed = traces["paper, in-domain"]
    assert (printed.x[0], printed.y[0]) == (0.073, 4.409)
    assert printed.line.dash == "dash" and traces["paper, zero-shot"].line.dash == "dot"


def test_intervals_of_compressed_models_are_those_of_the_tests(run: tuple[str, ByPlot]) -> None:
    study = run[1]["compressed"]
    tested = study.answers["compressed_intervals"].frame.set_index(["quantity", "model"])
    figure = draw_study(run[1], "compressed").figure
    notes = [note.text for note in figure.layout.annotations]
    axis = f"x{notes.index('<b>chronos-t5</b><br>WQL') + 1}"
    (svd,) = (trace for trace in figure.data if trace.name == "svd" and trace.xaxis == axis)
    for at, model in enumerate(("t5@svd-25", "t5@svd-50")):
        row = tested.loc[("wql_ratio", model)]
        ends = (svd.y[at] - svd.error_y.arrayminus[at], svd.y[at], svd.y[at] + svd.error_y.array[at])
        assert ends == pytest.approx((row["low"], row["estimate"], row["high"]))
    assert f"n = {int(row['n'])} data sets" in draw_study(run[1], "compressed").caption


def test_pretrained_models_show_every_seed_their_mean_and_its_interval(run: tuple[str, ByPlot]) -> None:
    _, by_plot = run
    study = by_plot["pretrained"]
    frame = study.answers["pretrained"].frame
    ours = frame[(frame["whose"] == "measured") & (frame["quantity"] == "WQL")]
    assert set(ours["line"]) == {"net-flow", "net-flat"} and len(ours) == 10
    tested = study.answers["pretrained_intervals"].frame
    figure = draw_study(by_plot, "pretrained")
    rows = list(figure.figure.layout.yaxis.ticktext)
    assert rows[:3] == ["flow, size 0.25", "flat, size 0.25", "paper: flow, size 0.5"]
    assert [note.text for note in figure.figure.layout.annotations] == ["<b>WQL</b>", "<b>MASE</b>"]
    traces = [trace for trace in figure.figure.data if trace.xaxis == "x" and trace.y[0] is not None]
    for at, name in enumerate(("net-flow", "net-flat")):
        (seeds,) = (trace for trace in traces if trace.name == "one seed" and round(trace.y[0]) == at)
        values = ours[ours["line"] == name]["value"]
        assert sorted(seeds.x) == pytest.approx(sorted(values))
        (mean,) = (trace for trace in traces if trace.name.startswith("mean") and trace.y[0] == at)
        assert mean.x[0] == pytest.approx(np.exp(np.log(values).mean()))
        (row,) = tested[(tested["model"] == f"{name}25-0") & (tested["quantity"] == "WQL")].to_dict("records")
        (span,) = (trace for trace in traces if trace.mode == "lines" and list(trace.y) == [at, at])
        assert list(span.x) == [row["low"], row["high"]] and row["n"] == 5
    assert "Student's t over 5 seeds." in figure.caption
    (pairs,) = (trace for trace in traces if trace.name == "same seed")
    by_seed = {line: part.sort_values("model")["value"].tolist() for line, part in ours.groupby("line")}
    joined = {(pairs.x[at], pairs.x[at + 1]) for at in range(0, len(pairs.x), 3)}
    assert joined == set(zip(by_seed["net-flow"], by_seed["net-flat"], strict=True))
    printed = {rows[trace.y[0]]: trace.x[0] for trace in traces if trace.name == "printed in the paper"}
    assert (printed["paper: flat, size 0.25"], printed["paper: flat, size 0.5"]) == (1.069, 1.038)


def test_without_tests_the_mean_is_that_of_the_seeds_and_has_no_interval(by_plot: ByPlot) -> None:
    study = by_plot["pretrained"]
    frames = [study.answers[name].frame for name in ("pretrained", "pretrained_intervals")]
    rows = pretrained.join_intervals(frames[0], frames[1].assign(ratio=None, low=None, high=None))
    part = rows[(rows["schedule"] == "flow") & (rows["quantity"] == "WQL")]
    assert part["ratio"].tolist() == pytest.approx([np.exp(np.log(part["value"]).mean())] * 5)
    assert part["low"].isna().all()


def test_claims_are_decided_by_data_sets_and_seeds(run: tuple[str, ByPlot]) -> None:
    verdict, by_plot = run
    assert claim(by_plot, "compressed", "truncated by SVD to about a quarter of its size") == verdict
    assert claim(by_plot, "pretrained", "heads whose width grows with depth have less error") == verdict


def test_the_overlap_falls_with_what_is_left_and_the_original_shares_all_with_itself(
    run: tuple[str, ByPlot],
) -> None:
    """Svd at a half and a quarter, made 0.2 a halving from 0.9, and the original's 1: a slope of 0.25."""
    rows = run[1]["compressed"].published.frame.to_dict("records")
    (row,) = (row for row in rows if row["quantity"] == "overlap trend")
    assert (row["n"], row["condition"]) == (3, T5) and row["measured"] == pytest.approx(0.25)


def faster(frame: pd.DataFrame) -> pd.DataFrame:
    changed = frame["model"] == "bolt@joint-25"
    return frame.assign(
        time_ratio=frame["time_ratio"].where(~changed, 0.0001), wql_ratio=frame["wql_ratio"].where(~changed, 0.0001)
    )


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        (faster, "agrees", "auto-arima by bolt@joint-25, auto-ets by bolt@joint-25"),
        (lambda frame: frame, "differs", "seasonal-naive by none"),
        (lambda frame: frame[frame["kind"] != "baseline"], "undecided", "because no local method has score and time"),
        (lambda frame: frame.assign(time_ratio=np.nan), "undecided", "no local method and no compressed Chronos-Bolt"),
        (lambda frame: frame[frame["base"] != BOLT], "not-comparable", "because no Chronos-Bolt is in this study"),
    ],
    ids=["all beaten", "not all", "no baseline", "no time", "no Bolt"],
)
def test_whether_a_compressed_bolt_beats_every_local_method_on_both(
    change: Callable[[pd.DataFrame], pd.DataFrame], verdict: str, words: str, by_plot: ByPlot
) -> None:
    sentence = check_local_methods(change(by_plot["frontier"].answers["frontier"].frame))
    assert sentence.verdict == verdict and words in sentence.text


def test_a_study_without_rows_has_no_figure_and_says_so(connection: duckdb.DuckDBPyConnection) -> None:
    section = studies.build_section(recorded.answer_study(connection, "nothing", "frontier"), [], [])
    assert (section.rows, section.figures) == (0, ())
    assert section.claims[0].verdict == "not-comparable"


def test_without_timings_nothing_is_drawn_but_the_rows_are_there(by_plot: ByPlot) -> None:
    study = by_plot["frontier"]
    blank = recorded.with_rows(study, "frontier", study.answers["frontier"].frame.assign(time_ratio=np.nan))
    assert studies.draw_figures(blank, []) == ()


@pytest.mark.parametrize("study", STUDIES)
def test_a_figure_is_rendered_without_a_browser(study: str, by_plot: ByPlot) -> None:
    images = render([("", draw_study(by_plot, study).figure)])
    assert images["png"].startswith(b"\x89PNG") and b"<svg" in images["svg"]


def test_hostile_names_stay_text() -> None:
    with recorded.build(*make_changes(), *make_hostile()) as connection:
        for study in answer(connection).values():
            for figure in studies.build_section(study, [], []).figures:
                assert "<" not in figure.json and "<img" not in json.dumps(json.loads(figure.json))


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
