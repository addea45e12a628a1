"""Panels and numbers are those of Shelim et al. 2025 where it has them."""

from __future__ import annotations

import pytest

from tsfmscope.report.panel_letters import NO_DOMAIN, REAL, SYNTHETIC, assign_letters, assign_numbers
from tsfmscope.series.catalog import CATALOG

PAPER = {entry.name: entry for entry in CATALOG.values() if entry.paper is not None}


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
