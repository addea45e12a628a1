"""A new plot is one module and one SQL file, as CONTRIBUTING.md describes."""

from __future__ import annotations

import importlib.resources
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
import yaml

from stages.config.params import ParamsError, parse
from store import report_queries
from tests.tsfmscope.report.drawn import read_panels
from tests.tsfmscope.report.recorded import answer_study
from tsfmscope.report import plots
from tsfmscope.report.page.page import render
from tsfmscope.report.page.studies import draw_figures
from tsfmscope.report.tables import ReportTables

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Add a plot")[2].partition("## Add a table")[0]
MODULE = """
from collections.abc import Iterator, Sequence

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.tables import StudyTables
"""
SQL = """-- Number of parameters
select
    model,
    parameters
from checkpoints
order by model
"""


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add the plot `parameters` to copies of the two folders."""
    (tmp_path / "plots").mkdir()
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    module = f'"""Number of parameters, one bar per model."""\n{MODULE}\n{textwrap.dedent(code)}'
    (tmp_path / "plots" / "parameters.py").write_text(module.replace('"NAME"', '"parameters"'))
    with importlib.resources.as_file(report_queries.ROOT) as folder:
        shutil.copytree(folder, tmp_path / "sql")
    (tmp_path / "sql" / "study" / "parameters.sql").write_text(SQL)
    monkeypatch.setattr(plots, "__path__", [*plots.__path__, str(tmp_path / "plots")])
    monkeypatch.setattr(report_queries, "ROOT", tmp_path / "sql")
    yield
    sys.modules.pop(f"{plots.__name__}.parameters", None)


def with_plot(plot: str) -> str:
    block = yaml.safe_load((ROOT / "params" / "smoke.yaml").read_text("utf-8"))
    block["studies"]["sizes"] = {"title": "Sizes", "models": "all", "measures": ["weights"], "plot": plot}
    return yaml.safe_dump(block)


@pytest.mark.usefixtures("added")
def test_a_module_and_an_sql_file_add_a_plot_to_the_page(
    connection: duckdb.DuckDBPyConnection, tables: ReportTables
) -> None:
    study = answer_study(connection, "sizes", "parameters", title="How large are the models?")
    page = render(replace(tables, studies=(study,)))
    section = page[page.index('id="study-sizes"') :].partition("</section>")[0]
    for text in (
        "How large are the models?",
        "Number of parameters of each model.",
        "Biases are counted.",
        "from checkpoints",
    ):
        assert text in section
    (figure,) = draw_figures(study, [])
    bars = read_panels(figure.chart)[0].layer("bar")
    assert bars.values("y") == tables.checkpoints.frame["parameters"].tolist()


@pytest.mark.usefixtures("added")
def test_the_command_of_the_guide_draws_the_added_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"python -c '\n(.*?)'\n", GUIDE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(textwrap.dedent(code).replace("PLOT", "parameters"), {})
    assert "<svg" in (tmp_path / "isotropy-0.svg").read_text()


@pytest.mark.usefixtures("added")
def test_params_and_documentation_accept_the_added_plot() -> None:
    from docs.building import params

    assert parse(with_plot("parameters")).studies["sizes"].plot == "parameters"
    assert "| `parameters` | Number of parameters, one bar per model |" in params.page()


def test_an_unknown_plot_is_an_error_that_names_a_near_one() -> None:
    with pytest.raises(ParamsError, match=r"sizes\.plot: unknown plot 'histograms', .*; did you mean histogram\?"):
        parse(with_plot("histograms"))
