"""The headline numbers and the plots' rows, against the catalogue that `store` makes and DVC's own renderer."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
import yaml

from store.report_queries import load_queries
from tsfmscope.report.tables import KEY_COLUMNS, nest_rows

ROOT = Path(__file__).parents[3]
DRAWN = [one for one in yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"] if isinstance(one, dict)]
CSV = {file: (name, how, y) for one in DRAWN for name, how in one.items() if isinstance(how["y"], dict)
       for file, y in how["y"].items()}  # fmt: skip


@pytest.mark.parametrize("name", sorted(load_queries("metrics")))
def test_a_headline_of_a_catalogue_without_rows_is_no_number_or_a_count(
    name: str, empty: duckdb.DuckDBPyConnection
) -> None:
    relation = empty.sql(load_queries("metrics")[name].fill(study="it's {x}").sql)
    assert set(nest_rows(relation.columns, relation.fetchall(), KEY_COLUMNS[name]).values()) <= {0}


@pytest.mark.parametrize("file", sorted(CSV))
def test_a_plot_of_dvc_yaml_has_its_columns_and_its_template(file: str, empty: duckdb.DuckDBPyConnection) -> None:
    _, how, y = CSV[file]
    columns = empty.sql(load_queries("dvc_plots")[Path(file).stem].fill(study="it's").sql).columns
    assert {"line", how["x"], y} <= set(columns)
    assert (ROOT / ".dvc" / "plots" / f"{how['template']}.json").exists()


def test_every_headline_has_its_number_of_keys() -> None:
    assert set(KEY_COLUMNS) == set(load_queries("metrics"))


def test_dvc_yaml_draws_every_file_of_plots_and_no_other() -> None:
    assert {Path(file).stem for file in CSV} == set(load_queries("dvc_plots"))


@pytest.mark.parametrize("name", ["lines", "points"])
def test_a_template_of_dvc_plots_holds_data_axes_colours_and_revisions(name: str) -> None:
    from dvc_render.vega import VegaRenderer

    points = [
        {"line": line, "x": n, "y": n * n, "rev": rev} for line in "ab" for n in range(3) for rev in ("old", "new")
    ]
    template = str(ROOT / ".dvc" / "plots" / f"{name}.json")
    renderer = VegaRenderer(points, "p", x="x", y="y", x_label="X", y_label="Y", title="T", template=template)
    drawn = renderer.get_filled_template()
    assert drawn["data"]["values"] == points
    encoding = drawn["encoding"]
    assert (encoding["x"]["field"], encoding["y"]["field"], encoding["color"]["field"]) == ("x", "y", "line")
    assert "rev" in json.dumps({key: one for key, one in encoding.items() if key in ("strokeDash", "shape")})
    assert "DVC_METRIC" not in json.dumps(drawn)


def test_rows_nest_by_their_names_and_what_is_no_number_is_left_out() -> None:
    rows = [("a", "x", 1, 0.5), ("a", "y", 2, None), ("b", "x", None, None)]
    assert nest_rows(("one", "two", "n", "rho"), rows, 2) == {"a": {"x": {"n": 1, "rho": 0.5}, "y": {"n": 2}}}
    assert nest_rows(("n", "rho"), [(3, 0.1)], 0) == {"n": 3, "rho": 0.1}
    assert nest_rows(("one", "n"), [], 1) == {}
