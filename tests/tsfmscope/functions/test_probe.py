"""`probe` and the choice of a layer for `embed`: known answers on drawn and labelled series, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import tsfmscope as ts
from tests.tsfmscope.models.families import FORECASTERS
from tsfmscope import layer_states
from tsfmscope.cli.app import app
from tsfmscope.cli.probe import COMMAND
from tsfmscope.compression.export import save
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.functions.load import Model
from tsfmscope.functions.probe import ProbeReport, read_labels
from tsfmscope.models.registry import family_class
from tsfmscope.models.types import TokenKind
from tsfmscope.ranks.spectrum import numerical_rank, singular_values
from tsfmscope.series.types import Series
from tsfmscope.series.windows import last_contexts

MODEL = "patchtst-mini"
SERIES = 100


@pytest.fixture(scope="module")
def model() -> Model:
    return ts.load(MODEL)


@pytest.fixture(scope="module")
def report(model: Model) -> ProbeReport:
    return ts.probe(model, context=128, max_series=SERIES)


@pytest.fixture(scope="module")
def shops() -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Series of two kinds that differ in their period, and one that has no value."""
    rng, steps = np.random.default_rng(0), np.arange(200)
    kinds = {f"shop {n}": "week" if n % 2 else "month" for n in range(60)}
    series = {
        name: np.sin(2 * np.pi * steps / (7 if kind == "week" else 30) + rng.normal()) + 0.3 * rng.normal(size=200)
        for name, kind in kinds.items()
    }
    return series, kinds


def test_every_layer_and_control_has_a_score_of_every_factor(model: Model, report: ProbeReport) -> None:
    factors = ["period", "phase", "season", "trend", "noise", "shift", "changepoint", "kernel", "forecast"]
    scores = report.scores
    assert list(dict.fromkeys(scores["factor"])) == factors
    assert not scores.duplicated(["features", "stack", "layer", "normed", "factor"]).any()
    layers = model.layers["encoder"] + 1 + (1 if scores["normed"].fillna(False).any() else 0)
    counts = scores.groupby("features", sort=False)["factor"].count() / len(factors)
    assert counts.to_dict() == {
        "states": layers, "untrained states": layers, "window": 1, "simple features": 1, "factors": 1
    }  # fmt: skip
    assert (scores["low"] <= scores["value"] + 1e-9).all() and (scores["value"] <= scores["high"] + 1e-9).all()
    # The known best: factors predict themselves.
    own = scores[(scores["features"] == "factors") & (scores["factor"] != "forecast")]
    assert (own["value"] > 0.95).all()
    assert set(scores["n_series"]) <= set(range(20, SERIES + 1))


def test_all_directions_have_the_score_of_the_states(report: ProbeReport) -> None:
    """A rotation changes no ridge regression; features are standardised after it, which changes it a little."""
    whole = report.directions[report.directions["directions"] == report.directions["directions"].max()]
    states = report.scores[report.scores["features"] == "states"]
    joined = whole.merge(states, on=["layer", "normed", "factor"])
    assert len(joined) == len(states)
    assert (joined["value_x"] - joined["value_y"]).abs().median() < 0.08


def test_directions_are_those_that_the_numerical_rank_counts(model: Model, report: ProbeReport) -> None:
    row = report.directions.iloc[0]
    from tsfmscope.series.synthetic.factors import draw_factors

    drawn = draw_factors(SERIES, 128, seed=0).values
    tokens = model.family.tokenize(last_contexts([Series("", str(n), x) for n, x in enumerate(drawn)], 128, 8))
    rows = np.flatnonzero(tokens.kinds["encoder"] == TokenKind.OBSERVATION)
    first = next(iter(model.family.hidden_states(tokens, {"encoder": rows})))
    assert row["numerical_rank"] == numerical_rank(singular_values(first.states), 0.01)


def test_labelled_series_are_probed_for_their_labels(model: Model, shops: Any) -> None:
    series, kinds = shops
    labels = pd.DataFrame({"kind": kinds, "size": {name: float(np.std(x)) for name, x in series.items()}})
    # A series without a label is left out of that label alone.
    labels.loc["shop 3", "kind"] = None
    report = ts.probe(model, series, labels=labels, context=128)
    best = report.best_layers().set_index("factor")
    assert best.loc["kind", "measure"] == "AUC" and best.loc["kind", "value"] > 0.9
    assert best.loc["kind", "n_series"] == 59 and best.loc["size", "n_series"] == 60
    assert best.loc["size", "measure"] == "R²"
    assert "factors" not in set(report.scores["features"])


def test_the_chosen_layer_is_the_one_with_the_best_score(
    model: Model, shops: Any, caplog: pytest.LogCaptureFixture
) -> None:
    series, kinds = shops
    report = ts.probe(model, series, labels=kinds, context=128)
    states = report.scores[(report.scores["features"] == "states") & (report.scores["factor"] == "label")]
    vectors = ts.embed(model, series, layer="best", labels=kinds, context=128)
    assert vectors.attrs["layer"] == states.loc[states["value"].idxmax(), "layer"]
    assert "predicts label best" in caplog.text
    chosen = ts.embed(model, series, layer=int(vectors.attrs["layer"]), context=128)
    last = ts.embed(model, series, context=128)
    assert any(np.array_equal(vectors, other) for other in (chosen, last))


def test_pooled_states_are_those_of_the_tokens(model: Model) -> None:
    values = [Series("", str(n), x) for n, x in enumerate(np.random.default_rng(0).normal(size=(150, 96)))]
    tokens = model.family.tokenize(last_contexts(values, 96))
    layers = layer_states.pool_states(model.family, tokens, "encoder", "max", factors=True)
    observed = tokens.kinds["encoder"] == TokenKind.OBSERVATION
    for pooled, state in zip(layers, model.family.hidden_states(tokens), strict=True):
        expected = [states[kept].max(axis=0) for states, kept in zip(state.states, observed, strict=True)]
        np.testing.assert_allclose(pooled.vectors, expected, atol=1e-5)
        np.testing.assert_allclose(
            pooled.factor.singular_values(), singular_values(state.states[observed]), rtol=1e-5, atol=1e-3
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", FORECASTERS)
def test_every_family_is_probed(name: str, tmp_path: Path) -> None:
    save(family_class(name).new_example(seed=0), tmp_path / "model")
    report = ts.probe(ts.load(f"{name}:{tmp_path / 'model'}"), context=64, max_series=SERIES)
    assert np.isfinite(report.scores["value"]).all()


def test_a_score_that_no_direction_has_is_carried_by_none() -> None:
    """The best layer is above chance, in three divisions into folds; its directions are not, in one of them."""
    place = {"stack": "encoder", "layer": 1, "normed": False, "width": 4, "factor": "kind", "measure": "AUC"}
    scores = pd.DataFrame([{"features": "states", **place, "value": 0.512, "low": 0.4, "high": 0.6, "n_series": 30}])
    for last, expected in ((0.45, None), (0.9, 2)):
        curve = [place | {"directions": count, "value": value} for count, value in ((1, 0.5), (2, 0.9), (4, last))]
        report = ProbeReport(scores, pd.DataFrame(curve), "model on noise", [])
        carried = report.best_layers()["directions"].item()
        assert pd.isna(carried) if expected is None else carried == expected
        assert ("carried" in next(report.sentences())) == (expected is not None)


def test_ids_of_labels_are_text(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("id,kind\n07,a\n7,b\nNA,c\n8,\n")
    assert read_labels(tmp_path / "labels.csv")["kind"].to_dict() == {"07": "a", "7": "b", "NA": "c"}
    pd.DataFrame({"kind": ["a"]}, index=pd.Index(["x"], name="id")).to_parquet(tmp_path / "labels.parquet")
    assert read_labels(tmp_path / "labels.parquet")["kind"].to_dict() == {"x": "a"}
    for content in (b"", b"\x80\x81,\x00"):
        (tmp_path / "bad.csv").write_bytes(content)
        with pytest.raises(DataError, match=r"labels: .*bad\.csv: "):
            read_labels(tmp_path / "bad.csv")


def test_a_constant_series_changes_no_score_of_the_others(model: Model, shops: Any) -> None:
    series, _ = shops
    sizes = {name: float(np.std(values)) for name, values in series.items()}
    reports = [
        ts.probe(model, series | {"shop 0": values}, labels=sizes, context=128)
        for values in (series["shop 0"], np.full(200, 0.1))
    ]
    for report in reports:
        scores = report.scores[(report.scores["features"] == "window") & (report.scores["factor"] == "forecast")]
        assert scores["value"].item() > -1


def test_labels_are_read_from_files_and_mappings(tmp_path: Path) -> None:
    table = pd.DataFrame({"shop": [1, 2], "size": [0.5, 1.5]})
    table.to_csv(tmp_path / "labels.csv", index=False)
    table.to_parquet(tmp_path / "labels.parquet")
    for source in (tmp_path / "labels.csv", str(tmp_path / "labels.parquet"), table.set_index("shop")):
        assert read_labels(source)["size"].to_dict() == {"1": 0.5, "2": 1.5}
    assert read_labels({1: "a"})["label"].to_dict() == {"1": "a"}


def test_the_command_prints_the_scores_and_writes_the_figure(
    report: ProbeReport, tmp_path: Path, shops: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    COMMAND.show(report)
    shown = capsys.readouterr().out
    assert "changepoint" in shown and "R²: share of" in shown
    series, kinds = shops
    pd.DataFrame(series).to_csv(tmp_path / "shops.csv", index=False)
    pd.Series(kinds, name="kind").rename_axis("shop").to_csv(tmp_path / "kinds.csv")
    arguments = [
        "--labels",
        str(tmp_path / "kinds.csv"),
        "--context",
        "128",
        "--out",
        str(tmp_path / "p.png"),
        "--json",
    ]
    result = CliRunner().invoke(app, ["probe", MODEL, str(tmp_path / "shops.csv"), *arguments], catch_exceptions=False)
    assert result.exit_code == 0 and (tmp_path / "p.png").stat().st_size > 20_000
    found = json.loads(result.stdout)
    assert found["best_layers"][0]["factor"] == "kind" and found["scores"][0]["features"] == "states"


@pytest.mark.parametrize(
    ("kind", "message", "arguments"),
    [
        (ArgumentError, "labels: expected data and labels together", {"labels": {"a": 1}}),
        (ArgumentError, "labels: expected data and labels together", {"data": "nile"}),
        (ArgumentError, "stack: got 'x', expected one of encoder", {"stack": "x"}),
        (ArgumentError, "max_series: got 99, expected at least 100 drawn series", {"max_series": 99}),
        (ArgumentError, "context: got 63, expected at least 64", {"context": 63}),
        (DataError, "got ids such as a, expected ids of the series", {"data": np.ones((3, 99)), "labels": {"a": 1}}),
        (DataError, "label is the same for all 60 series", {"labels": 1.0}),
        (DataError, "label has the class x alone", {"labels": "x"}),
        (DataError, "got 4 series with a label, expected at least 20", {"labels": 4}),
        (DataError, "label: got inf, expected less than 1e", {"labels": np.inf}),
        (ArgumentError, "got a label forecast, which names the model's own forecast", {"labels": "forecast"}),
        (DataError, "occurs twice", {"labels": pd.Series([1, 2], index=["a", "a"]), "data": np.ones((3, 99))}),
        (
            DataError,
            "labels: got missing.csv, expected a CSV or Parquet file",
            {"labels": "missing.csv", "data": "nile"},
        ),
    ],
)
def test_bad_input_is_one_line(model: Model, shops: Any, kind: Any, message: str, arguments: dict[str, Any]) -> None:
    series, kinds = shops
    labels = arguments.get("labels")
    if isinstance(labels, int):
        rng = np.random.default_rng(0)
        arguments = {"data": series, "labels": {name: rng.normal() for name in list(kinds)[:4]}}
    elif isinstance(labels, str) and labels == "forecast":
        arguments = {"data": series, "labels": pd.DataFrame({"forecast": dict.fromkeys(kinds, 1.0)})}
    elif isinstance(labels, float) or (isinstance(labels, str) and labels == "x"):
        arguments = {"data": series, "labels": dict.fromkeys(kinds, labels)}
    with pytest.raises(kind, match=message) as found:
        ts.probe(model, **{"context": 128, **arguments})
    assert "\n" not in str(found.value)


def test_a_layer_is_chosen_by_labels_alone(model: Model, shops: Any) -> None:
    series, kinds = shops
    for arguments in ({"layer": "best"}, {"labels": kinds}):
        with pytest.raises(ArgumentError, match="expected them with layer 'best' alone"):
            ts.embed(model, series, **arguments)
    with pytest.raises(ArgumentError, match="got 2 columns, expected one label"):
        ts.embed(model, series, layer="best", labels=pd.DataFrame({"a": kinds, "b": kinds}))


def test_models_of_other_data_are_refused() -> None:
    with pytest.raises(ArgumentError, match="which reads text; name a model of time series"):
        ts.probe("t5-text-nano")
