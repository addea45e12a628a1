"""What the paper prints beside what we measured: each verdict from data that call for it."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import store
from store import catalogue, files

REFERENCE = Path(__file__).parents[3] / "shared" / "reference"
T5 = {"model": "t5", "family": "chronos-t5", "source": "hub"}
NMSE = (0.00010, 0.00012, 0.00014)
Answer = Callable[..., dict[str, Any]]


@pytest.fixture
def answer(tmp_path: Path, row: Callable[..., dict[str, Any]]) -> Callable[..., list[dict[str, Any]]]:
    """The answer's rows about a study with one cell, seasonality-2 under a context of 500, and with claims."""

    def make(
        *,
        checkpoint: dict[str, Any] | None = None,
        dataset: dict[str, Any] | None = None,
        geometry: dict[str, Any] | None = None,
        nmse: tuple[float, ...] = NMSE,
        claims: tuple[dict[str, Any], ...] = (),
        figure: str = "isotropy Fig. 3",
    ) -> list[dict[str, Any]]:
        cell = {"model": "t5", "dataset": "sines", "condition": "c", "context": 500}
        state = {"stack": "decoder", "zeta_adjusted": 0.005, "zeta_adjusted_null_sd": 0.001, "job_key": "g"}
        made = {
            "checkpoints": [row("checkpoints", **T5 | (checkpoint or {}))],
            "datasets": [row("datasets", **{"dataset": "sines", "paper": "seasonality-2"} | (dataset or {}))],
            "geometry": [row("geometry", **cell | state | (geometry or {}))],
            "forecasts": [row("forecasts", **cell, nmse=v, series=f"s{n}", job_key="f") for n, v in enumerate(nmse)],
            "questions": [row("questions", figure=figure)],
            "studies": [{"study": "s", "stage": s, "job_key": s[0]} for s in ("geometry", "forecasts")],
            "inference": [row("inference", **claim) for claim in claims],
        }
        for name, rows in made.items():
            files.write_rows(tmp_path / f"{name}.parquet", name, rows)
        with duckdb.connect() as connection:  # without the checks: inference stands for rows that are not here
            catalogue._fill(connection, {name: [tmp_path / f"{name}.parquet"] for name in made}, 0)
            catalogue._create_views(connection, catalogue.resources("store") / "sql")
            found: list[dict[str, Any]] = connection.table("published_vs_measured").to_arrow_table().to_pylist()
        return found

    return make


def of(rows: list[dict[str, Any]], quantity: str) -> dict[str, Any]:
    (found,) = (one for one in rows if one["quantity"] == quantity)
    return found


def test_a_printed_number_of_a_released_checkpoint_agrees_inside_our_interval(answer) -> None:
    rows = answer()
    error, cosine = of(rows, "nmse"), of(rows, "zeta_adjusted")
    assert (error["published"], cosine["published"]) == (0.00012, 0.0047)
    assert error["measured"] == pytest.approx(np.mean(NMSE))
    assert error["high"] - error["low"] == pytest.approx(2 * 1.96 * np.std(NMSE, ddof=1) / np.sqrt(3))
    assert (cosine["low"], cosine["high"]) == pytest.approx((0.005 - 0.00196, 0.005 + 0.00196))
    assert {(one["comparable"], one["verdict"], one["why"]) for one in rows} == {(True, "agrees", None)}


@pytest.mark.parametrize(
    ("changes", "quantity", "verdict", "why"),
    [
        ({"geometry": {"zeta_adjusted": 0.1}}, "zeta_adjusted", "differs", None),
        ({"nmse": (0.5, 0.6, 0.7)}, "nmse", "differs", None),
        ({"nmse": (0.5,)}, "nmse", "undecided", "no interval"),
        ({"geometry": {"zeta_adjusted_null_sd": None, "reason": "x"}}, "zeta_adjusted", "undecided", "no interval"),
        ({"geometry": {"zeta_adjusted": None, "reason": "x"}}, "zeta_adjusted", "undecided", "not measured"),
        ({"checkpoint": {"source": "committed"}}, "nmse", "not comparable", "a small checkpoint of ours"),
        ({"checkpoint": {"source": "compressed"}}, "nmse", "not comparable", "a compressed model"),
        ({"dataset": {"stands_in_for": "sines"}}, "nmse", "not comparable", "a stand-in for the data: sines"),
    ],
)
def test_each_verdict_of_a_number(
    answer, changes: dict[str, Any], quantity: str, verdict: str, why: str | None
) -> None:
    found = of(answer(**changes), quantity)
    assert (found["verdict"], found["why"], found["comparable"]) == (verdict, why, verdict != "not comparable")


SIGN = {
    "answer": "sign_test", "measure": "zeta_adjusted", "grouping": "dataset", "block": "data sets of a domain",
    "statistic": "agreement", "n": 60, "n_clusters": 12, "p_smallest": 0.0005,
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "verdict", "why"),
    [
        ({"estimate": 0.8, "low": 0.6, "high": 0.9, "p": 0.01}, "agrees", None),
        ({"estimate": 0.2, "low": 0.1, "high": 0.4, "p": 0.01}, "differs", None),
        ({"estimate": 0.6, "low": 0.4, "high": 0.8, "p": 0.2}, "undecided", "p is above 0.05"),
        ({"estimate": 0.6, "low": 0.4, "high": 0.8, "p": 0.04}, "undecided", "the interval holds 0.5"),
        ({"estimate": 0.5, "low": 0.3, "high": 0.7, "p": 1.0}, "undecided", "p is above 0.05"),
        (
            {"estimate": 1.0, "low": 0.9, "high": 1.0, "p": 0.0625, "p_smallest": 0.0625},
            "undecided",
            "the smallest p that the test can give is 0.0625",
        ),
        ({"estimate": 1.0, "low": None, "high": None, "p": 0.01, "reason": "one pair"}, "undecided", "one pair"),
        ({"estimate": None, "low": None, "high": None, "p": None, "reason": "no pair"}, "undecided", "no pair"),
    ],
)
def test_each_verdict_of_a_claim(answer, found: dict[str, Any], verdict: str, why: str | None) -> None:
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


def test_variance_and_dimension_are_those_of_the_eigenvalues(answer) -> None:
    state = {"stack": "decoder", "layer": 2, "normed": False, "eigenvalues": [4.0, 3.0, 2.0, 1.0]}
    llama = {"checkpoint": {"family": "lag-llama"}, "dataset": {"paper": "finance-1"}}
    got = answer(**llama, geometry=state | {"normed": True}, figure="isotropy Fig. 2")
    assert got == []  # no layer without the norm
    rows = answer(checkpoint={"family": "patchtst"}, dataset={"paper": "finance-1"}, figure="isotropy Table 1",
                  geometry=state | {"stack": "encoder"})  # fmt: skip
    assert [(r["measured"], r["low"], r["high"], r["verdict"]) for r in rows] == [(3.0, 3.0, 3.0, "differs")]


def test_the_numbers_are_those_of_the_reference_files(tmp_path: Path) -> None:
    if not REFERENCE.is_dir():
        pytest.skip("../shared/reference is not here; it holds the numbers as others copied them from the paper")
    catalogue.build(tmp_path / "r.duckdb", {})
    with store.open(tmp_path / "r.duckdb") as connection:
        ours = connection.sql(
            "select figure, family, dataset, context, noise, quantity, published from published_numbers"
        )
        held = {tuple(one) for one in ours.fetchall()}
    for one in printed("isotropy_text_values.csv"):
        name, _, value = one["condition"].partition("=")
        context = int(value) if name == "context" else None
        noise = float(value) if name == "noise" else 0.0
        figure = f"isotropy Fig. {one['figure'][0]}"
        for quantity, column in (("nmse", "nmse"), ("zeta_adjusted", "cosine")):
            if one[column]:
                row = (figure, one["model"], one["dataset"], context, noise, quantity, float(one[column]))
                assert row in held
    table = printed("table1_effective_dimension.csv")
    for family in {one["model"] for one in table}:
        values = {float(one["d_0_8"]) for one in table if one["model"] == family}
        assert values == {one[-1] for one in held if one[0] == "isotropy Table 1" and one[1] == family}


def printed(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((REFERENCE / name).read_text().splitlines()))
