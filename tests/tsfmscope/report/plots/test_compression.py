"""Figures of compressed models hold the ratios that rows were made with; each verdict from data that call for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from stages.planning.inference import _rank_rows as infer
from store import files
from tests.tsfmscope.report import recorded
from tests.tsfmscope.report.conftest import make_hostile
from tests.tsfmscope.report.drawn import read_panels, read_scale
from tests.tsfmscope.report.recorded import copy_rows
from tsfmscope.report.page import studies
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import pretrained
from tsfmscope.report.plots.frontier import check_local_methods
from tsfmscope.report.style import GREY
from tsfmscope.report.tables import StudyTables
from tsfmscope.statistics.options import SeededOptions

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
    chart = draw_study(by_plot, "frontier").chart
    panels = read_panels(chart)
    assert [panel.title for panel in panels] == [BOLT, T5]
    frame = by_plot["frontier"].answers["frontier"].frame
    for panel in panels:
        points, part = panel.layer("point"), frame[frame["base"] == panel.title]
        for axis, column in (("x", "time_ratio"), ("y", "wql_ratio")):
            assert sorted(points.values(axis)) == pytest.approx(sorted(part[column]))
            assert points.encoding[axis]["scale"]["type"] == "log"
    colours = read_scale(chart, "stroke")
    assert list(colours) == ["svd", "joint", *LOCAL, "dense"]
    assert {name for name, colour in colours.items() if colour == GREY} == set(LOCAL)
    shares = {row["model"]: row["share"] for row in panels[1].layer("text").rows}
    assert shares == dict.fromkeys([T5, *LOCAL], "") | {"t5@svd-25": "0.25", "t5@svd-50": "0.5", "t5@joint-25": "0.25"}


def test_models_of_a_method_stand_beside_the_papers_table_2(by_plot: ByPlot) -> None:
    chart = draw_study(by_plot, "compressed").chart
    panels = {panel.title: panel for panel in read_panels(chart)}
    names = ("WQL", "MASE", "overlap of the 10 likeliest tokens", "log perplexity (LPPL)")
    assert list(panels)[-4:] == [f"chronos-t5\n{name}" for name in names]
    printed, measured = panels["chronos-t5\nWQL"].select("point")
    points = {row["model"]: (row["size"], row["value"]) for row in measured.rows}
    assert points["t5@svd-25"] == pytest.approx((0.25, 1.3), rel=0.04)  # next to joint at 0.25
    assert points["t5@svd-50"] == pytest.approx((0.5, 1.1), rel=0.04)
    assert points["t5@svd-25"][0] < 0.25 < points["t5@joint-25"][0]
    assert {row["benchmark"] for row in printed.rows} == {"paper, in-domain", "paper, zero-shot"}
    (first, *_) = (row for row in printed.rows if row["model"] == "in-domain")
    assert (first["size"], first["value"]) == (0.073, 4.409)
    assert list(read_scale(chart, "stroke")) == ["svd", "joint"]


def test_intervals_of_compressed_models_are_those_of_the_tests(run: tuple[str, ByPlot]) -> None:
    study = run[1]["compressed"]
    tested = study.answers["compressed_intervals"].frame.set_index(["quantity", "model"])
    panels = {panel.title: panel for panel in read_panels(draw_study(run[1], "compressed").chart)}
    drawn = {row["model"]: row for row in panels["chronos-t5\nWQL"].select("point")[1].rows}
    for model in ("t5@svd-25", "t5@svd-50"):
        row, mark = tested.loc[("wql_ratio", model)], drawn[model]
        assert (mark["low"], mark["value"], mark["high"]) == (row["low"], row["estimate"], row["high"])
    assert f"n = {int(row['n'])} data sets" in draw_study(run[1], "compressed").caption


def test_pretrained_models_show_every_seed_their_mean_and_its_interval(run: tuple[str, ByPlot]) -> None:
    _, by_plot = run
    study = by_plot["pretrained"]
    frame = study.answers["pretrained"].frame
    ours = frame[(frame["whose"] == "measured") & (frame["quantity"] == "WQL")]
    assert set(ours["line"]) == {"net-flow", "net-flat"} and len(ours) == 10
    tested = study.answers["pretrained_intervals"].frame
    figure = draw_study(by_plot, "pretrained")
    first, second = read_panels(figure.chart)
    assert (first.title, second.title) == ("WQL", "MASE")
    pairs, (seeds, *_) = first.layer("line"), first.select("point")
    labels = pretrained.list_rows(pretrained.join_intervals(frame, tested), frame[frame["whose"] == "published"])
    texts = list(labels.values())
    assert texts[:3] == ["flow, size 0.25", "flat, size 0.25", "paper: flow, size 0.5"]
    intervals = next(layer for layer in first.select("rule") if "stroke" in layer.encoding).rows
    for at, name in enumerate(("net-flow", "net-flat")):
        values = ours[ours["line"] == name]["value"]
        drawn = [row["value"] for row in seeds.rows if round(row["position"]) == at]
        assert sorted(drawn) == pytest.approx(sorted(values))
        (mean,) = (row for row in intervals if row["position"] == at)
        (row,) = tested[(tested["model"] == f"{name}25-0") & (tested["quantity"] == "WQL")].to_dict("records")
        assert mean["ratio"] == pytest.approx(np.exp(np.log(values).mean()))
        assert (mean["low"], mean["high"], row["n"]) == (row["low"], row["high"], 5)
    assert "Student's t over 5 seeds." in figure.caption
    joined: dict[int, list[float]] = {}
    for row in pairs.rows:
        joined.setdefault(row["pair"], []).append(row["value"])
    by_seed = {line: part.sort_values("model")["value"].tolist() for line, part in ours.groupby("line")}
    assert {tuple(pair) for pair in joined.values()} == set(zip(by_seed["net-flow"], by_seed["net-flat"], strict=True))
    (printed,) = (layer for layer in first.select("point") if layer.mark.get("shape") == "square")
    found = {texts[row["position"]]: row["value"] for row in printed.rows}
    assert (found["paper: flat, size 0.25"], found["paper: flat, size 0.5"]) == (1.069, 1.038)


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


def test_the_overlap_falls_with_what_is_left_and_the_original_shares_all_with_itself(run: tuple[str, ByPlot]) -> None:
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


def test_without_timings_nothing_is_drawn_but_the_rows_are_there(by_plot: ByPlot) -> None:
    study = by_plot["frontier"]
    blank = recorded.with_rows(study, "frontier", study.answers["frontier"].frame.assign(time_ratio=np.nan))
    assert studies.draw_figures(blank, []) == ()


def test_hostile_names_stay_text() -> None:
    with recorded.build(*make_changes(), *make_hostile()) as connection:
        for study in answer(connection).values():
            for figure in studies.build_section(study, [], []).figures:
                assert "<img" not in figure.svg and figure.svg.count("<svg") == 1
