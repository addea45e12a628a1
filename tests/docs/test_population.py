"""The committed tables of the population answer the page's queries, and its table of hypotheses has their numbers."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest

from store import query, saved_results
from tests.docs.blocks import ROOT
from tests.stages.estimates import KEY, population

PAGE = (ROOT / "docs" / "population.md").read_text("utf-8")
README = (ROOT / "docs" / "results" / "population" / "README.md").read_text("utf-8")
# Hypotheses in the order of the page's table.
NAMES = (
    *("shelim-across-runs", "shelim-inside-families", "shelim-across-seeds", "shelim-within-runs"),
    *("shelim-within-runs-wql", "uncorrected-within-runs", "isoscore-inside-families", "cosine-inside-families"),
)
NUMBER = re.compile(r"−?\d+\.\d+")


@pytest.fixture(scope="module")
def results() -> Iterator[duckdb.DuckDBPyConnection]:
    with saved_results.connect(ROOT / "docs" / "results" / "population") as connection:
        yield connection


def test_the_queries_of_the_page_find_rows(results: duckdb.DuckDBPyConnection) -> None:
    commands = [shlex.split(line) for line in re.findall(r"^\$ (tsfmscope sql .*)$", PAGE + README, re.MULTILINE)]
    assert len(commands) >= 3
    for command in commands:
        assert "docs/results/population" in command
        assert query.query(results, command[2]).num_rows > 0, command


def test_the_table_of_hypotheses_has_the_measured_numbers(results: duckdb.DuckDBPyConnection) -> None:
    columns = "explored_estimate, explored_p, estimate, low, high, p, detectable"
    found = {
        name: numbers for name, *numbers in results.sql(f"select name, {columns} from hypothesis_tests").fetchall()
    }
    lines = re.findall(r"^\| (?:across|inside|within|the same).*\|$", PAGE, re.MULTILINE)
    assert len(lines) == len(NAMES) == len(found)
    for name, line in zip(NAMES, lines, strict=True):
        printed = [text.replace("−", "-") for text in NUMBER.findall(line.split("|", 2)[2])]
        assert len(printed) == len(found[name])
        for text, number in zip(printed, found[name], strict=True):
            unit = 10.0 ** -len(text.partition(".")[2])
            assert abs(float(text) - number) <= 0.501 * unit, (name, text, number)


def test_no_hypothesis_holds_as_the_page_says(results: duckdb.DuckDBPyConnection) -> None:
    assert "None holds" in PAGE
    assert results.sql("select distinct verdict from hypothesis_tests").fetchall() == [("undecided",)]
    assert results.sql("select min(p_holm) from hypothesis_tests").fetchall() == [(1.0,)]


def test_every_estimate_of_the_population_is_computed_from_the_committed_rows_again(
    results: duckdb.DuckDBPyConnection,
) -> None:
    expected = dict(population(results))
    rows = results.sql("select * from inference where answer in ('population_correlation', 'hypothesis_tests')").df()
    assert len(rows.estimate.dropna()) >= 48  # 5 measures x 4 groupings x 2 errors, and 8 hypotheses
    for row in rows.to_dict("records"):
        n, estimate = expected.pop(tuple(row[name] for name in KEY))
        assert row["n"] == n and row["estimate"] == pytest.approx(estimate, abs=1e-9, nan_ok=True)
    # A measure that was added after these rows were committed has no units.
    assert not {key: n for key, (n, _) in expected.items() if n}


def test_the_page_has_the_measured_choice_and_ranks(results: duckdb.DuckDBPyConnection) -> None:
    choice = "study = 'population-choice' and measure = 'zeta_adjusted_corrected' and n > 0"
    ratios = dict(results.sql(f"select rule, round(ratio, 1) from advice_regret where {choice}").fetchall())
    assert ratios == {"advised": 3.7, "chance": 4.7, "validation": 1.4}
    assert "3.7 times the NMSE of the best one, choosing by chance 4.7 times" in PAGE and "1.4 times" in PAGE
    shares = results.sql("""
        select step, epsilon, depth, round(100 * avg(share))
        from flow_of_ranks
        inner join population
            using (model)
        where study = 'population-ranks' and depth in (0, 1) and epsilon in (0.1, 0.01) and step in (30, 121, 4000)
        group by all
    """).fetchall()
    found = {tuple(key): share for *key, share in shares}
    assert [found[4000, 0.01, 0], found[4000, 0.01, 1], found[4000, 0.1, 0], found[4000, 0.1, 1]] == [43, 61, 26, 18]
    assert [found[30, 0.01, 0], found[30, 0.01, 1], found[30, 0.1, 0], found[30, 0.1, 1]] == [44, 57, 29, 24]
    assert found[121, 0.1, 1] == 13
    assert (
        "from 43 % of the width" in PAGE and "to 61 %" in PAGE and "falls from 26 % to 18 %" in PAGE.replace("\n ", "")
    )


def test_the_table_of_claims_has_the_measured_numbers_and_verdicts(results: duckdb.DuckDBPyConnection) -> None:
    claims = results.sql("""
        select verdict, measured, low, high
        from published_vs_measured
        where published is null
    """).fetchall()
    assert Counter(verdict for verdict, *_ in claims) == {"no effect": 4, "undecided": 12, "agrees": 1}
    lines = PAGE[PAGE.index("| claim | measured |") :].split("\n\n", 1)[0].splitlines()[2:]
    printed = [text.split("|")[2:4] for text in lines]
    numbers = [float(text.replace("−", "-")) for pair in printed for text in re.findall(r"−?\d+\.\d+", "".join(pair))]
    measured = [number for _, *three in claims for number in three if number is not None]
    for number in numbers:
        assert any(abs(number - one) <= 0.00501 for one in measured), number
    assert len(numbers) == len(measured)


def test_the_page_on_the_inside_has_what_the_trainings_learned() -> None:
    page = (ROOT / "docs" / "inside.md").read_text("utf-8")
    section = page[page.index("## What a training learns") :].split("\n## ")[0]
    with saved_results.connect(ROOT / "docs" / "results" / "learning") as connection:
        learned = connection.sql("select family, factor, step, avg(value) from learned_factors group by all").fetchall()
        controls = connection.sql("""
            select split_part(model, '-small', 1), factor, avg(untrained), avg(simple_features)
            from best_probes where model not like '%step%' group by all
        """).fetchall()
    found = {(family, factor, step): value for family, factor, step, value in learned}
    found |= {(family, factor, "untrained"): value for family, factor, value, _ in controls}
    found |= {("simple", factor, ""): value for _, factor, _, value in controls}
    printed = {
        "0.70 for the period after 30 steps, 0.69 after 4,000, and 0.70 with random weights": [
            ("moirai", "period", step) for step in (30, 4000, "untrained")
        ],
        "(0.86, 0.83, 0.83)": [("moirai", "shift", step) for step in (30, 4000, "untrained")],
        "from 0.22 after 30 steps to 0.50": [("chronos-2", "season", step) for step in (30, 4000)],
        "at the end (0.48) than with random weights (0.48)": [
            ("chronos-2", "period", step) for step in (4000, "untrained")
        ],
        "0.03 for the period": [("patchtst", "period", "untrained")],
        "0.47 for the kernel; 60 steps bring the kernel to 0.80": [
            ("patchtst", "kernel", n) for n in ("untrained", 60)
        ],
        "from 0.24 to 0.54": [("patchtst", "trend", step) for step in (30, 4000)],
        "before (0.41) as after (0.36)": [("patchtst", "phase", step) for step in ("untrained", 4000)],
        "0.15 after 988 steps and 0.45": [("timesfm", "period", step) for step in (988, 4000)],
        "period (0.64), season (0.68) and trend (0.76)": [("simple", f, "") for f in ("period", "season", "trend")],
    }
    for text, keys in printed.items():
        assert text in section, text
        numbers = [float(number) for number in re.findall(r"0\.\d\d", text)]
        assert numbers == pytest.approx([found[key] for key in keys], abs=0.00501), text
