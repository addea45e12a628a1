"""What the paper prints beside what we measured: each verdict from data that call for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from store import catalogue

T5 = {"model": "t5", "family": "chronos-t5", "source": "hub", "output_stack": "decoder"}
NMSE = (0.00010, 0.00012, 0.00014)
Rows = list[dict[str, Any]]


INSIDE = "the printed number lies inside our interval"


@pytest.fixture(scope="module")
def catalogued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Every view over tables without rows, and without the checks: inference stands for rows that are not here.

    What is kept as a table is a view here too, as rows change after they were made.
    """
    sql = Path(str(catalogue.resources("store") / "sql"))
    live = tmp_path_factory.mktemp("sql")
    for folder, target in (("views", "views"), ("materialized", "views"), ("answers", "answers")):
        shutil.copytree(sql / folder, live / target, dirs_exist_ok=True)
    with duckdb.connect() as connection:
        catalogue._fill(connection, {}, 0)
        catalogue._create_views(connection, live)
        yield connection


@pytest.fixture
def answer(catalogued: duckdb.DuckDBPyConnection, row: Callable[..., dict[str, Any]]) -> Callable[..., Rows]:
    """The answer's rows about a study with one cell, seasonality-2 under a context of 500, and with claims."""

    def make(
        *,
        checkpoint: dict[str, Any] | None = None,
        dataset: dict[str, Any] | None = None,
        geometry: dict[str, Any] | None = None,
        nmse: tuple[float, ...] = NMSE,
        claims: tuple[dict[str, Any], ...] = (),
        figure: str = "isotropy Fig. 3",
    ) -> Rows:
        cell = {"study": "s", "model": "t5", "dataset": "sines", "condition": "c", "context": 500}
        state = {"stack": "decoder", "layer": 12, "zeta_adjusted": 0.005, "zeta_adjusted_sd": 0.001}
        made = {
            "checkpoints": [row("checkpoints", **T5 | (checkpoint or {}))],
            "datasets": [row("datasets", **{"dataset": "sines", "paper": "seasonality-2"} | (dataset or {}))],
            "geometry": [row("geometry", **cell | {"job_key": "g"} | state | (geometry or {}))],
            "forecasts": [row("forecasts", **cell, nmse=v, series=f"s{n}", job_key="f") for n, v in enumerate(nmse)],
            "studies": [row("studies", figure=figure)],
            "inference": [row("inference", **claim) for claim in claims],
        }
        for name, rows in made.items():
            given = pa.Table.from_pylist(rows)  # noqa: F841  read by its name
            catalogued.execute(f"delete from {name}")
            if rows:
                catalogued.execute(f"insert into {name} by name select * from given")
        found: Rows = catalogued.table("published_vs_measured").to_arrow_table().to_pylist()
        return [one for one in found if one["study"]]

    return make


def of(rows: Rows, quantity: str, what: str = "seasonality-2") -> dict[str, Any]:
    """The row of a quantity: of a claim, or of the number whose name has this in it."""
    (found,) = (one for one in rows if one["quantity"] == quantity and (what in one["claim"] or not one["published"]))
    return found


def test_a_printed_number_of_a_released_checkpoint_agrees_inside_our_interval(answer) -> None:
    rows = answer()
    error, cosine = of(rows, "nmse"), of(rows, "zeta_adjusted")
    assert (error["published"], cosine["published"]) == (0.00012, 0.0047)
    assert error["measured"] == pytest.approx(np.mean(NMSE))
    assert error["high"] - error["low"] == pytest.approx(2 * 1.96 * np.std(NMSE, ddof=1) / np.sqrt(3))
    assert (cosine["low"], cosine["high"]) == pytest.approx((0.005 - 0.00196, 0.005 + 0.00196))
    for one in (error, cosine):
        assert (one["comparable"], one["verdict"], one["why"], one["run"]) == (True, "agrees", INSIDE, None)


@pytest.mark.parametrize(
    ("changes", "quantity", "verdict", "why"),
    [
        (
            {"geometry": {"zeta_adjusted": 0.1}},
            "zeta_adjusted",
            "differs",
            "the printed number lies below our interval",
        ),
        (
            {"geometry": {"zeta_adjusted": -0.1}},
            "zeta_adjusted",
            "differs",
            "the printed number lies above our interval",
        ),
        ({"nmse": (0.5, 0.6, 0.7)}, "nmse", "differs", "the printed number lies below our interval"),
        ({"nmse": (0.5,)}, "nmse", "undecided", "no interval: one series gives no spread"),
        ({"geometry": {"zeta_adjusted_sd": None, "reason": "x"}}, "zeta_adjusted", "undecided", "no interval: x"),
        ({"geometry": {"zeta_adjusted": None, "reason": "x"}}, "zeta_adjusted", "not measured", "null: x"),
        ({"dataset": {"paper": "linear-1"}}, "nmse", "not measured", "no such data set or condition in the study"),
        ({"checkpoint": {"family": "moirai"}}, "nmse", "not measured", "no model of this family in the study"),
        ({"checkpoint": {"source": "committed"}}, "nmse", "not comparable", "a small checkpoint of ours"),
        ({"checkpoint": {"source": "compressed"}}, "nmse", "not comparable", "a compressed model"),
        ({"geometry": {"layer": 6}}, "nmse", "not comparable", "another size: 6 layers, the paper's has 12"),
        ({"dataset": {"stands_in_for": "sines"}}, "nmse", "not comparable", "a stand-in for the data: sines"),
    ],
)
def test_each_verdict_of_a_number(answer, changes: dict[str, Any], quantity: str, verdict: str, why: str) -> None:
    found = of(answer(**changes), quantity)
    assert (found["verdict"], found["why"]) == (verdict, why)
    assert found["comparable"] == (verdict not in ("not comparable", "not measured"))
    assert (found["run"] is None) == found["comparable"]
    lacks = found["measured"] is not None and found["low"] is None
    assert (found["note"] is not None) == lacks


WITHIN = "the interval, and what would be found in 80 % of samples, lie within 0.1 of 0.5"
ABOVE = "the interval lies above 0.5, and p is at most 0.05"
SIGN = {
    "answer": "sign_test", "measure": "zeta_adjusted_corrected", "grouping": "dataset",
    "block": "data sets of a domain", "statistic": "agreement", "n": 60, "n_clusters": 12, "p_smallest": 0.0005,
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "verdict", "why"),
    [
        ({"estimate": 0.8, "low": 0.6, "high": 0.9, "p": 0.01}, "agrees", ABOVE),
        ({"estimate": 0.2, "low": 0.1, "high": 0.4, "p": 0.01}, "differs", ABOVE.replace("above", "below")),
        ({"estimate": 0.6, "low": 0.4, "high": 0.8, "p": 0.2}, "undecided", "p is above 0.05"),
        ({"estimate": 0.6, "low": 0.4, "high": 0.8, "p": 0.04}, "undecided", "the interval holds 0.5"),
        ({"estimate": 0.5, "low": 0.3, "high": 0.7, "p": 1.0}, "undecided", "p is above 0.05"),
        ({"estimate": 0.5, "low": 0.41, "high": 0.59, "p": 1.0, "detectable": 0.59}, "no effect", WITHIN),
        ({"estimate": 0.5, "low": 0.41, "high": 0.59, "p": 1.0}, "undecided", "p is above 0.05"),
        (
            {"estimate": 0.5, "low": 0.41, "high": 0.59, "p": 1.0, "detectable": 0.61},
            "undecided",
            "p is above 0.05; an effect of 0.61 would be found in 80 % of samples",
        ),
        ({"estimate": 0.5, "low": 0.41, "high": 0.6, "p": 1.0}, "undecided", "p is above 0.05"),
        (
            {"estimate": 0.6, "low": 0.4, "high": 0.8, "p": 0.2, "detectable": 0.75},
            "undecided",
            "p is above 0.05; an effect of 0.75 would be found in 80 % of samples",
        ),
        (
            {"estimate": 1.0, "low": 0.9, "high": 1.0, "p": 0.0625, "p_smallest": 0.0625},
            "undecided",
            "the smallest p that the test can give is 0.0625",
        ),
        ({"estimate": 1.0, "low": None, "high": None, "p": 0.01, "reason": "one pair"}, "undecided", "one pair"),
        ({"estimate": None, "low": None, "high": None, "p": None, "reason": "no pair"}, "undecided", "no pair"),
    ],
)
def test_each_verdict_of_a_claim(answer, found: dict[str, Any], verdict: str, why: str) -> None:
    got = of(answer(claims=(SIGN | found,)), "agreement")
    assert (got["verdict"], got["why"], got["published_text"]) == (verdict, why, "> 0.5")
    assert (got["measured"], got["low"], got["high"], got["p"]) == tuple(
        found[k] for k in ("estimate", "low", "high", "p")
    )


def test_a_claim_of_a_correlation_holds_below_zero(answer) -> None:
    rho = SIGN | {"answer": "correlation", "grouping": "per_dataset", "statistic": "spearman", "block": "all"}
    values = {"estimate": -0.5, "low": -0.7, "high": -0.2, "p": 0.01}
    agreed = of(answer(claims=(rho | values,)), "spearman")
    assert (agreed["verdict"], agreed["published_text"]) == ("agrees", "< 0")
    values = {"estimate": 0.5, "low": 0.2, "high": 0.7, "p": 0.01}
    assert of(answer(claims=(rho | values,)), "spearman")["verdict"] == "differs"
    values = {"estimate": -0.1, "low": -0.3, "high": 0.1, "p": 0.01}
    assert of(answer(claims=(rho | values,)), "spearman")["why"] == "the interval holds 0"


def test_a_study_without_a_figure_of_the_paper_is_held_against_nothing(answer) -> None:
    assert answer(figure="mine", claims=(SIGN | {"estimate": 0.8, "low": 0.6, "high": 0.9, "p": 0.01},)) == []


@pytest.mark.parametrize(
    ("changes", "verdict", "why"),
    [
        ({"layer": 2}, "undecided", "no interval: one covariance matrix"),
        ({"layer": 1}, "not measured", "the model has 1 layers"),
        ({"layer": 2, "eigenvalues": None}, "not measured", "no such data set or condition in the study"),
        ({"layer": 2, "normed": True}, "not measured", "no such data set or condition in the study"),
    ],
)
def test_a_layer_of_table_1_has_no_interval(answer, changes: dict[str, Any], verdict: str, why: str) -> None:
    state = {"stack": "encoder", "normed": False, "eigenvalues": [4.0, 3.0, 2.0, 1.0]}
    cell = {
        "checkpoint": {"family": "patchtst", "output_stack": "encoder"},
        "dataset": {"paper": "finance-1"},
        "figure": "isotropy Table 1",
    }
    rows = [one for one in answer(**cell, geometry=state | changes) if one["model"]]
    assert [one["claim"] for one in rows] == [f"d(0.8) of patchtst on finance-1, layer {n}" for n in (1, 2)]
    found = rows[1]
    assert (found["verdict"], found["why"]) == (verdict, why)
    assert found["measured"] == (3.0 if verdict == "undecided" else None)
    assert (found["low"], found["high"], found["run"] is None) == (None, None, found["comparable"])


def test_the_variance_in_three_components_is_that_of_the_eigenvalues(answer) -> None:
    state = {"stack": "decoder", "layer": 8, "normed": False, "eigenvalues": [4.0, 3.0, 2.0, 1.0]}
    cell = {"checkpoint": {"family": "lag-llama"}, "dataset": {"paper": "finance-1"}, "figure": "isotropy Fig. 2"}
    found = of(answer(**cell, geometry=state), "variance in 3 components", "lag-llama")
    assert (found["measured"], found["verdict"]) == (pytest.approx(0.9), "undecided")
    assert found["note"] == "no interval: one covariance matrix"
    found = of(answer(**cell, geometry=state | {"normed": True}), "variance in 3 components", "lag-llama")
    assert (found["measured"], found["verdict"]) == (None, "not measured")  # no layer without the norm
