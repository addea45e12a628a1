"""Panels hold every point that log axes can show, once, where the paper would put it."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from tests.tsfmscope.report.drawn import has_legend, read_panels, read_scale, read_titles
from tsfmscope.report.plots import domains
from tsfmscope.report.plots.domains import NO_DOMAIN, REAL, SYNTHETIC, assign_letters, assign_numbers
from tsfmscope.report.style import COLOURS
from tsfmscope.report.tables import ReportTables
from tsfmscope.series.catalog import CATALOG

MODELS = ("m", "n")
CONDITIONS = ("long", "short")
PAPER = {entry.name: entry for entry in CATALOG.values() if entry.paper is not None}


def frame(datasets: dict[str, tuple[str, str | None]], models: tuple[str, ...] = MODELS) -> pd.DataFrame:
    """A row a (model, data set, condition), from data set -> domain and the paper's name; values differ."""
    rows = [
        {"model": m, "dataset": d, "domain": datasets[d][0], "paper": datasets[d][1], "condition": c}
        for m, d, c in itertools.product(models, datasets, CONDITIONS)
    ]
    at = np.arange(1, len(rows) + 1)
    return pd.DataFrame(rows).assign(zeta_adjusted=at * 1e-3 * (-1.0) ** at, nmse=at * 1e-2)


PAIR = frame({"car": ("retail", "retail-1"), "dominick": ("retail", "retail-2"), "rain": ("nature", "nature-2")})


def test_every_point_that_log_axes_can_show_is_drawn_once(tables: ReportTables) -> None:
    rows = tables.studies[0].answers["points"].frame.copy()
    rows.loc[0, "zeta_adjusted"] = np.nan
    wanted = rows.dropna(subset="zeta_adjusted")
    drawn = read_panels(domains.draw_by_domain(rows, sorted(set(rows["model"])), ("context-128", "noisy")))
    layers = [panel.layer("point") for panel in drawn]
    points = [pair for layer in layers for pair in zip(layer.values("x"), layer.values("y"), strict=True)]
    assert len(wanted) < len(rows)
    expected = sorted(zip(wanted["zeta_adjusted"].abs(), wanted["nmse"], strict=True))
    np.testing.assert_allclose(sorted(points), expected, rtol=1e-12)


def test_a_panel_has_the_papers_letter_and_its_own_domains_points() -> None:
    drawn = read_panels(domains.draw_by_domain(PAIR, MODELS, CONDITIONS))
    assert [panel.title for panel in drawn] == ["b · nature\n○ rain", "e · retail\n● car\n○ dominick"]
    found = [{row["dataset"] for row in panel.layer("point").rows} for panel in drawn]
    assert found == [{"rain"}, {"car", "dominick"}]
    for panel in drawn:
        assert {row["dataset"] for row in panel.layer("point").rows if row["is_filled"]} <= {"car"}
        line = panel.layer("line").encoding
        assert (line["stroke"]["field"], line["strokeDash"]["field"]) == ("model", "condition")
    scales = [{str(p.layer("point").encoding[axis]["scale"]) for p in drawn} for axis in "xy"]
    assert [len(scale) for scale in scales] == [1, 1]  # shared by all panels


def test_a_title_has_the_rho_of_the_drawn_measure_and_the_number_of_points_if_some_are_missing() -> None:
    rows = PAIR[(PAIR["condition"] == "long") & (PAIR["domain"] == "retail")].assign(
        zeta_adjusted_corrected=0.1,
        rho_printed=[{"car": -0.04, "dominick": 0.649}[name] for name in PAIR["dataset"] if name != "rain"][::2],
        rho_corrected=1.0,
    )
    rows.loc[(rows["dataset"] == "dominick") & (rows["model"] == "n"), "nmse"] = 0.0
    for of_paper, lines in (
        (True, ["● car, ρ = 0.0", "○ dominick, ρ = 0.6, n = 1"]),
        (False, ["● car, ρ = 1.0", "○ dominick, ρ = 1.0, n = 1"]),
    ):
        (title,) = read_titles(domains.draw_by_domain(rows, MODELS, CONDITIONS, of_paper=of_paper))
        assert title.split("\n")[1:] == lines
    (title,) = read_titles(domains.draw_by_domain(rows.assign(rho_printed=np.nan), MODELS, CONDITIONS))
    assert "ρ" not in title


def test_both_conditions_have_their_rho_in_the_studys_order() -> None:
    rows = PAIR[PAIR["dataset"] == "rain"]
    rows = rows.assign(rho_printed=[{"long": -0.5, "short": 0.5}[name] for name in rows["condition"]])
    for order, text in ((CONDITIONS, "ρ = −0.5 and 0.5"), (CONDITIONS[::-1], "ρ = 0.5 and −0.5")):
        assert read_titles(domains.draw_by_domain(rows, MODELS, order)) == [f"b · nature\n○ rain, {text}"]


def test_a_model_has_its_colour_though_others_are_not_there_and_needs_no_legend_alone() -> None:
    both, one = (domains.draw_by_domain(rows, MODELS, CONDITIONS) for rows in (PAIR, PAIR[PAIR["model"] == "n"]))
    assert read_scale(one, "fill") == {"n": COLOURS[1]}
    assert has_legend(both, "shape") and not has_legend(one, "shape")
    assert has_legend(one, "strokeDash")


@pytest.mark.parametrize("domain", [None, "", float("nan")])
def test_a_data_set_without_a_domain_has_a_panel_too(domain: object) -> None:
    two = PAIR[PAIR["domain"] == "retail"]
    drawn = domains.draw_by_domain(two.assign(domain=domain), MODELS, CONDITIONS)
    assert read_titles(drawn) == ["a · other\n● car\n○ dominick"]


def test_a_title_counts_the_data_sets_where_a_domain_has_many() -> None:
    rows = frame({f"d{n}": ("nature", None) for n in range(6)})
    assert read_titles(domains.draw_by_domain(rows, MODELS, CONDITIONS)) == ["b · nature\n6 data sets"]


def test_letters_are_the_papers_where_a_figure_holds_synthetic_or_real_domains_alone() -> None:
    assert list(assign_letters(SYNTHETIC).items())[1] == ("seasonality", "b")  # Figure 3 b
    assert assign_letters(REAL)["energy"] == "a"  # Figure 7 a
    assert assign_letters(REAL)["retail"] == "e"  # Figure 7 e
    assert assign_letters(["retail", "finance"]) == {"finance": "c", "retail": "e"}


def test_a_figure_of_no_paper_counts_its_panels() -> None:
    assert assign_letters(["transport", "retail"], of_paper=False) == {"retail": "a", "transport": "b"}


def test_other_figures_count_their_panels() -> None:
    found = assign_letters(["zoology", "retail", "trend", NO_DOMAIN])
    assert found == {"trend": "a", "retail": "b", NO_DOMAIN: "c", "zoology": "d"}
    many = assign_letters([f"d{n:02d}" for n in range(30)])
    assert many["d25"] == "z" and many["d26"] == "27"


def test_every_domain_of_the_catalogues_paper_data_sets_has_its_place() -> None:
    assert {entry.domain for entry in PAPER.values()} == {*SYNTHETIC, *REAL}


def test_the_papers_data_sets_keep_its_numbers() -> None:
    found = assign_numbers({n: e.domain for n, e in PAPER.items()}, {n: e.paper for n, e in PAPER.items()})
    assert all(found[name] == int(str(entry.paper)[-1]) for name, entry in PAPER.items())


@pytest.mark.parametrize(
    ("papers", "expected"),
    [
        ({}, {"a": 1, "b": 2, "c": 3}),
        ({"c": "x-1"}, {"a": 2, "b": 3, "c": 1}),
        ({"a": "x-2", "c": "x-2"}, {"a": 2, "b": 1, "c": 3}),  # two that claim one number: the first has it
        ({"b": "x-7"}, {"a": 1, "b": 7, "c": 2}),
        ({"b": "no number"}, {"a": 1, "b": 2, "c": 3}),
    ],
)
def test_others_take_the_numbers_that_are_free(papers: dict[str, str], expected: dict[str, int]) -> None:
    assert assign_numbers(dict.fromkeys("abc", "x"), papers) == expected


def test_each_domain_counts_for_itself() -> None:
    assert assign_numbers({"a": "x", "b": "y", "c": "x"}, {}) == {"a": 1, "c": 2, "b": 1}
