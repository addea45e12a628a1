"""Jobs of stage inside give the rows of the public functions, with the identity of their cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from store.schema import arrow_schema
from tasks import inside
from tasks.job import Job, Result, Task
from tsfmscope.errors import DataError
from tsfmscope.forecasting.ablation import KINDS, WAYS
from tsfmscope.functions.ablate import EXIT, ablate
from tsfmscope.functions.compare import compare
from tsfmscope.functions.load import Model, load
from tsfmscope.functions.probe import LEAST_DRAWN, probe
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
IDENTITY: dict[str, Any] = {
    "model": "bolt", "base_model": None, "size_parameter": None, "size_rule": None, "dataset": None,
    "condition": "c", "context": 64, "noise": 0.0,
}  # fmt: skip
WINDOW = {"horizon": 6, "min_context": 16, "held_out": None, "seed": 0}


@pytest.fixture(scope="module")
def bolt() -> Model:
    return load(CHECKPOINTS / "chronos-bolt-nano")


@pytest.fixture(scope="module")
def t5() -> Model:
    return load(CHECKPOINTS / "chronos-t5-nano")


def draw_series(count: int = 12) -> dict[str, np.ndarray]:
    rng, steps = np.random.default_rng(3), np.arange(70)
    return {f"s{n:02}": 9 + 3 * np.sin(2 * np.pi * steps / 12 + n) + rng.normal(size=70) for n in range(count)}


def make_table(series: dict[str, np.ndarray]) -> pa.Table:
    return series_table([Series("d", name, values, freq="h") for name, values in series.items()])


def make_job(entry: str, table: str, **entries: Any) -> Job:
    source = {"family": "chronos-bolt", "ref": str(CHECKPOINTS / "chronos-bolt-nano")}
    return Job(Task(entry, 1, f"tasks.inside:{entry}", table=table), IDENTITY | source | entries)


def check_schema(result: Result, table: str) -> pd.DataFrame:
    """Rows have the columns of the table, and no value that its types refuse."""
    schema = arrow_schema(table)
    stored = pa.Table.from_pylist([row | {"job_key": "k"} for row in result.rows], schema=schema)
    assert {*result.rows[0]} | {"job_key"} == set(schema.names)
    return stored.to_pandas()


def test_rows_of_probes_are_those_of_the_function(bolt: Model) -> None:
    job = make_job("probe_layers", "probes", condition=None, noise=None, max_series=100, seed=4)
    rows = check_schema(inside.probe_layers(job, None, bolt.family), "probes")
    report = probe(bolt, max_series=100, context=64, seed=4)
    scores, curves = rows[rows["directions"].isna()], rows[rows["directions"].notna()]
    np.testing.assert_array_equal(scores["value"], report.scores["value"])
    np.testing.assert_array_equal(curves["high"], report.directions["high"])
    assert list(curves["numerical_rank"]) == list(report.directions["numerical_rank"])
    assert set(curves["features"]) == {"states"}
    assert scores.loc[scores["features"] == "window", "layer"].isna().all()
    assert (rows["model"] == "bolt").all()
    assert rows["dataset"].isna().all()


def test_rows_of_ablation_are_those_of_the_function_over_all_data_sets(bolt: Model) -> None:
    first, second = draw_series(), {name: 2 + values for name, values in draw_series(7).items()}
    windows = {"data/a.parquet": WINDOW, "data/b.parquet": WINDOW}
    options: dict[str, Any] = {"parts": ["layer", "exit"], "ways": ["skip"], "seed": 0}
    job = make_job("ablate_parts", "ablation", windows=windows, max_series=6, **options)
    data = {"data/a.parquet": make_table(first), "data/b.parquet": make_table(second)}
    rows = check_schema(inside.ablate_parts(job, data, bolt.family), "ablation")
    own = [pd.DataFrame(dict(list(part.items())[:6])) for part in (first, second)]
    expected = ablate(bolt, [dict(frame) for frame in own], context=64, horizon=6, windows=1, **options)
    np.testing.assert_allclose(rows["ratio"], expected.parts["ratio"], rtol=1e-6)
    np.testing.assert_allclose(rows["upper"], expected.parts["upper"], rtol=1e-6)
    assert list(rows["can_go"]) == list(expected.parts["can_go"])
    assert (rows["n_datasets"] == 2).all()
    assert (rows["n_windows"] == 12).all()


def test_noise_of_the_condition_changes_the_windows_and_a_data_set_without_windows_is_not_counted(bolt: Model) -> None:
    table, short = make_table(draw_series()), make_table({"s": np.arange(10.0), "t": np.arange(9.0)})
    windows = {"a": WINDOW, "b": WINDOW}
    options: dict[str, Any] = {"parts": ["exit"], "max_series": 32, "windows": windows, "seed": 0}
    quiet, noisy = (
        check_schema(
            inside.ablate_parts(
                make_job("ablate_parts", "ablation", noise=noise, **options), {"a": table, "b": short}, bolt.family
            ),
            "ablation",
        )
        for noise in (0.0, 0.5)
    )
    assert (quiet["n_datasets"] == 1).all()
    assert not np.allclose(quiet["ratio"], noisy["ratio"])


def test_rows_of_similarity_are_those_between_both_models(bolt: Model, t5: Model) -> None:
    other = {"family": "chronos-t5", "ref": str(CHECKPOINTS / "chronos-t5-nano")}
    series = draw_series()
    job = make_job(
        "compare_models", "similarity", dataset="d", other="t5", other_source=other, rows=200, **WINDOW
    )  # fmt: skip
    rows = check_schema(inside.compare_models(job, make_table(series), (bolt.family, t5.family)), "similarity")
    expected = compare(bolt, t5, series, context=64, rows=200, seed=0, freq="h").layers
    between = expected[expected["block"] == "between"]
    assert len(rows) == len(between) == 6 * 6
    assert list(rows["layer"]) == list(between["layer_a"])
    assert list(rows["other_layer"]) == list(between["layer_b"])
    assert (rows["other"] == "t5").all()
    assert rows["cka"].between(-0.5, 1.01).all()


def test_series_without_a_window_are_an_error_that_names_the_data_set(bolt: Model) -> None:
    source = {"family": "chronos-bolt", "ref": "r"}
    job = make_job("compare_models", "similarity", dataset="d", other="o", other_source=source, rows=64, **WINDOW)
    with pytest.raises(DataError, match="data set d: no series has a window of 64 steps of context"):
        inside.compare_models(job, make_table({"s": np.arange(10.0)}), (bolt.family, bolt.family))


def test_options_of_a_study_have_the_names_and_defaults_of_the_functions() -> None:
    fields = inside.AblationOptions.model_fields
    assert fields["parts"].default == [*KINDS, EXIT]
    assert fields["ways"].default == [WAYS[0]]
    assert inside.Way.__args__ == WAYS
    for options, function in (
        (inside.ProbeOptions, probe), (inside.SimilarityOptions, compare), (inside.AblationOptions, ablate),
    ):  # fmt: skip
        defaults = function.__wrapped__.__kwdefaults__
        named = {name: field.default for name, field in options.model_fields.items() if name not in ("parts", "ways")}
        assert named == {name: defaults[name] for name in named}
    assert inside.ProbeOptions.model_fields["max_series"].metadata[0].ge == LEAST_DRAWN
