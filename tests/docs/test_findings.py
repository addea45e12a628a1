"""Every number of a page of findings is that of a query, which stands in a comment on the page, over committed rows.

The comment names a folder of saved results, or CSV files by their path in the query. A table that follows a comment
has the query's numbers, row by row. Any other decimal number or percentage is that of some query, rounded as printed;
counts in sentences are not compared.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

import duckdb
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from store import saved_results
from tests.docs.blocks import ROOT

FOLDER = ROOT / "docs" / "findings"
PAGES = ("advice", "cutting", "isotropy", "probes", "rank", "theorems")
COMMENT = re.compile(r"<!-- rows(?: of (\S+))?\n(.*?)-->\n?", re.DOTALL)
NUMBER = re.compile(r"[−-]?\d[\d,]*(?:\.\d+)?(?:·10[⁰¹²³⁴⁵⁶⁷⁸⁹]+)?")
# Numbers of definitions: levels, tolerances, and shares of the variance.
DEFINED = {0.05, 0.1, 0.01, 0.8}
DEFINED_PERCENT = {"80", "90", "95"}
# Code, links, rows of tables, and numbers of papers and theorems.
NO_NUMBERS = re.compile(
    r"```.*?```|`[^`]*`|\]\([^)]*\)|^\|.*$|arXiv [\d.]+|Theorems? \d[\d., ]*(?:and \d[\d.]*)?",
    re.DOTALL | re.MULTILINE,
)
DECIMAL = re.compile(r"(?<![\w.])[−-]?\d[\d,]*\.\d+(?![\w.]*\d)(?:·10[⁰¹²³⁴⁵⁶⁷⁸⁹]+)?")
PERCENT = re.compile(r"(?:(\d+) to )?(\d+) %")
POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


class Query(NamedTuple):
    """A query of a page, its rows, and the text that follows it."""

    sql: str
    rows: list[tuple[object, ...]]
    after: str

    def numbers(self) -> Iterator[float]:
        """Yield all numbers of the rows."""
        for row in self.rows:
            yield from numbers_of(row)


def numbers_of(row: tuple[object, ...]) -> list[float]:
    return [float(value) for value in row if isinstance(value, int | float) and not isinstance(value, bool)]


@functools.cache
def connected(folder: str | None) -> duckdb.DuckDBPyConnection:
    """Return a connection to saved results, or, without a folder, one that reads CSV files by their path."""
    return saved_results.connect(ROOT / folder) if folder else duckdb.connect()


@functools.cache
def queries(page: str) -> list[Query]:
    """Return the queries of a page, run from the root of the repository."""
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    with contextlib.chdir(ROOT):
        return [
            Query(match[2], connected(match[1]).execute(match[2]).fetchall(), text[match.end() :])
            for match in COMMENT.finditer(text)
        ]


def agrees(printed: str, number: float) -> bool:
    """Return whether a number is printed rounded, as it is or in percent."""
    text = printed.replace("−", "-").replace(",", "")
    mantissa, _, power = text.partition("·10")
    scale = 10.0 ** int(power.translate(POWERS) or 0)
    unit = scale * 10.0 ** -len(mantissa.partition(".")[2])
    return any(abs(float(mantissa) * scale - one) <= 0.501 * unit for one in (number, 100 * number))


@pytest.mark.parametrize("page", [*PAGES, "../reading"])
def test_tables_have_the_numbers_of_the_query_above_them(page: str) -> None:
    tables = 0
    for query in queries(page):
        assert query.rows, query.sql
        if not query.after.startswith("|"):
            continue
        tables += 1
        lines = query.after.split("\n\n", 1)[0].splitlines()[2:]
        assert len(lines) == len(query.rows), query.sql
        for line, row in zip(lines, query.rows, strict=True):
            cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
            # Texts may have digits: each is one cell, the last one that is equal.
            for text in (value for value in row if isinstance(value, str)):
                assert text in cells, (line, text)
                del cells[len(cells) - 1 - cells[::-1].index(text)]
            printed = NUMBER.findall(" ".join(cells))
            expected = numbers_of(row)
            assert len(printed) == len(expected), (line, row)
            for text, number in zip(printed, expected, strict=True):
                assert agrees(text, number), (line, text, number)
    assert tables


@pytest.mark.parametrize("page", PAGES)
def test_decimal_numbers_in_sentences_are_those_of_a_query(page: str) -> None:
    known = [number for query in queries(page) for number in query.numbers()]
    text = COMMENT.sub("", (FOLDER / f"{page}.md").read_text("utf-8"))
    text = NO_NUMBERS.sub("", text)
    for printed in DECIMAL.findall(text):
        if abs(float(printed.replace("−", "-").partition("·")[0].replace(",", ""))) in DEFINED:
            continue
        signs = (printed, printed.lstrip("−-"), f"-{printed}")
        assert any(agrees(one, number) for one in signs for number in known), printed
    for printed in {share for pair in PERCENT.findall(text) for share in pair if share} - DEFINED_PERCENT:
        assert any(agrees(printed, number) for number in known), f"{printed} %"


@pytest.mark.parametrize("page", PAGES)
def test_a_changed_number_is_found(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of tables can fail: the numbers of one row are replaced."""
    real = queries(page)
    first = next(query for query in real if query.after.startswith("|"))
    _, *lines = first.after.split("\n\n", 1)[0].splitlines()
    line = next(line for line in reversed(lines) if NUMBER.search(line))
    wrong = NUMBER.sub("98765", line)
    changed = first._replace(after=first.after.replace(line, wrong, 1))
    monkeypatch.setattr("tests.docs.test_findings.queries", lambda page: [changed])
    with pytest.raises(AssertionError):
        test_tables_have_the_numbers_of_the_query_above_them(page)


@pytest.mark.parametrize(("names", "correlations", "families"), [
    (("bundled",), "bundled-correlations", 16), (("small-0", "large-0"), "population-correlations", 10),
])  # fmt: skip
def test_the_correlations_of_the_cut_layers_are_those_of_their_rows(
    names: tuple[str, ...], correlations: str, families: int
) -> None:
    """By scipy, for each predictor and change."""
    folder = ROOT / "docs" / "results" / "cutting"
    rows = pd.concat([pd.read_csv(folder / f"{name}.csv") for name in names])
    found = pd.read_csv(folder / f"{correlations}.csv")
    assert len(found) == 40 and rows.family.nunique() == families
    for row in found[found.predictor.isin(rows.columns)].itertuples():
        used = rows.dropna(subset=[row.predictor])
        by_model = {
            key: stats.spearmanr(layers[row.predictor], layers[row.change]).statistic
            for key, layers in used.groupby(["family", "model"])
            if len(layers) >= 3 and layers[row.predictor].nunique() > 1
        }
        inside = [
            np.mean([rho for (one, _), rho in by_model.items() if one == family])
            for family in {key[0] for key in by_model}
        ]
        low, high = stats.t.interval(0.95, len(inside) - 1, np.mean(inside), stats.sem(inside))
        assert (row.inside, row.low, row.high) == pytest.approx((np.mean(inside), low, high), abs=1e-5)
        means = used.groupby("family")[[row.predictor, row.change]].mean()
        assert row.between == pytest.approx(stats.spearmanr(*means.T.to_numpy()).statistic, abs=1e-5)
        assert (row.families, row.n_between) == (len(inside), len(means))
