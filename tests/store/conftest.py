"""Valid rows of every table, and records of jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import store
from stages.planning.inference import infer
from store import catalogue, files
from store.schema import TABLES, Column
from store.stage_store import StageStore
from tsfmscope.statistics.options import SeededOptions

IDENTITY = {"model": "m", "dataset": "d", "condition": "c512", "context": 512, "noise": 0.0}
TIMING = {"seconds": 1.0, "load_seconds": 0.5, "actor": "a", "node": "n", "device": "cpu", "started": 1e9}
# Values that tests rely on. `valid_row` fills other tables, and other columns that may not be null.
VALUES: Mapping[str, dict[str, Any]] = {
    "geometry": {
        **IDENTITY, "stack": "encoder", "layer": 2, "normed": True, "n_tokens": 2048, "n_types": 30, "n_series": 32,
        "n_zero": 0, "states_dtype": "float16", "weights_dtype": "float32", "zeta": 0.5, "zeta_token": 0.5, "k": 2,
        "silhouettes": [0.3, 0.2], "n_clusters_used": 2, "n_clusters_small": 0, "zeta_adjusted": 0.1,
        "zeta_adjusted_weighted": 0.1, "zeta_adjusted_floor": -0.001, "zeta_adjusted_corrected": 0.101,
        "eigenvalues": [4.0, 2.0, 1.0, 1.0], "log_isotropy": -1.0, "log_isotropy_scaled": -2.0, "repeats": 0,
    },
    "alignment": {
        **IDENTITY, "stack": "encoder", "layer": 1, "head": 0, "heads": 4, "n_tokens": 1024, "m": 16, "chance": 0.25,
        "chance_sd": 0.02, "query": 0.4, "key": 0.3, "inverse_cosine": 0.1, "query_uncentred": 0.5,
        "key_uncentred": 0.4, "inverse_cosine_uncentred": 0.2,
    },
    "partition": {
        **IDENTITY, "n_positions": 100, "n_ids": 4096, "log_z_mean": 9.0, "log_z_sd": 0.5, "log_z_low": 8.0,
        "log_z_high": 10.0, "log_z_range": 2.0,
    },
    "jacobian": {
        **IDENTITY, "stack": "encoder", "layer": 1, "head": 0, "heads": 4, "instance": 0, "n_tokens": 8, "norm": 1.0,
        "printed": 2.0, "appendix": 10.0, "safe": 20.0,
    },
    "forecasts": {
        **IDENTITY, "series": "s0", "origin": 600, "horizon": 64, "n_context": 512, "n_future": 64, "nmse": 0.5,
        "nmse_power": 0.4, "squared_error": 2.0, "nmse_denominator": 4.0, "wql_window": 0.1, "quantile_loss": 9.0,
        "target_abs": 10.0, "mase": 1.0, "season": 24, "seasonal_error": 0.3, "mase_gluonts": 1.0,
        "levels": [0.1, 0.5, 0.9], "batch": 8,
    },
    "spectra": {
        "model": "m", "what": "weight", "matrix": "q", "attention": "self", "stack": "encoder", "layer": 1,
        "n_rows": 2, "n_columns": 3, "dtype": "float32", "floor": 1e-7, "singular_values": [2.0, 1.0],
    },
    "similarity": {**IDENTITY, "other": "m"},
    "angles": {"model": "m", "what": "rows", "row": 0, "dimension": 3, "angles": [0.0, 1.5]},
    "theory": {
        "experiment": "T", "form": "printed", "kind": "instance", "seed": 0, "instance": 0, "x": 1.0, "y": 1.0,
        "bound": 2.0, "side": "upper", "holds": True, "fitted": False, "floor": 0.0, "setting": "{}", "job_key": "k",
    },
    "training": {"model": "m", "step": 1, "loss": 2.0, "learning_rate": 1e-3},
    "dumps": {
        **IDENTITY, "kind": "embeddings", "path": "dumps/m/d/c512.parquet", "rows": 10, "width": 4, "dtype": "float16",
        "bytes": 100, "fingerprint": "0" * 64, "n_windows": 5, "batch": 8,
    },
    "checkpoints": {
        "model": "m", "family": "chronos-bolt", "modality": "series", "source": "committed",
        "input_stack": "encoder", "output_stack": "encoder",
        "ref": "m", "fingerprint": "0" * 64, "parameters": 10, "bytes": 40,
    },
    "compression": {
        "model": "m@half", "base_model": "m", "size_parameter": 0.5, "size_rule": "share", "method": "joint",
        "ranks": '{"share": 0.5}',
        "parameters": 8, "base_parameters": 10, "attention_parameters": 2, "base_attention_parameters": 4,
        "size_ratio": 0.8, "attention_ratio": 0.5, "rank_ratio": 0.5, "error": 0.1, "job_key": "c",
    },
    "compressed_heads": {
        "model": "m@half", "base_model": "m", "stack": "encoder", "layer": 1, "attention": "self", "part": "qk",
        "full_width": 16, "rank": 8, "relative_error": 0.1,
    },
    "fidelity": {
        **IDENTITY, "n_windows": 4, "n_positions": 2048, "top": 10, "overlap": 0.9, "log_ppl": 2.0, "base_log_ppl": 1.0,
        "lppl": 2.0, "state_error": 0.1,
    },
    "datasets": {
        "dataset": "d", "source": "folder", "domain": "finance", "freq": "B", "horizon": 30, "season": 5, "n_series": 8,
        "n_available": 8, "n_steps": 60000, "provenance": "a file", "paper": "finance-1", "stands_in_for": None,
    },
    "studies": {"study": "s", "title": "What?", "figure": "isotropy Fig. 3", "plot": "domains"},
    "inference": {
        "study": "s", "answer": "mixed_model", "measure": "zeta", "grouping": "all", "block": "all",
        "statistic": "slope", "n": 9, "n_clusters": 3, "estimate": 0.5, "low": 0.1, "high": 0.9, "p": 0.01,
        "p_bh": 0.01, "p_by": 0.01, "n_tests": 1, "alpha": 0.05, "seed": 0,
    },
}  # fmt: skip


def example(column: Column) -> Any:
    """A value of the column's type inside its range."""
    if pa.types.is_list(column.type):
        return [example(column.model_copy(update={"type": column.type.value_type}))]
    if pa.types.is_string(column.type):
        return "m" if column.name == "model" else column.name
    if pa.types.is_timestamp(column.type):
        return datetime(2026, 1, 1, tzinfo=UTC)
    low, high = column.range
    number = 1 if low is None and high is None else high if low is None else low
    return pa.scalar(number, pa.float64()).cast(column.type, safe=False).as_py()


def valid_row(name: str) -> dict[str, Any]:
    """A row of a table, without job_key, with a value in every column that needs one."""
    columns = [column for column in TABLES[name].columns if column.name != "job_key"]
    needed = [column for column in columns if column.needs_reason or not column.nullable]
    return {column.name: example(column) for column in needed} | VALUES.get(name, {})


def build_results(folder: Path, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
    """Write the rows of some tables and build the catalogue from them."""
    for name, rows in tables.items():
        files.write_rows(folder / f"{name}.parquet", name, rows)
    path = folder / "results.duckdb"
    catalogue.build(path, {name: [folder / f"{name}.parquet"] for name in tables})
    return path


@contextmanager
def open_results(
    folder: Path, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a catalogue of some rows."""
    with store.open(build_results(folder, tables)) as connection:
        yield connection


@contextmanager
def open_inferred_results(
    folder: Path, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a catalogue of some rows and of their statistics."""
    with open_results(folder, tables) as connection:
        inference = infer(connection, SeededOptions(permutations=99, bootstrap=99))
    (folder / "inferred").mkdir()
    with open_results(folder / "inferred", {**tables, "inference": inference}) as connection:
        yield connection


@pytest.fixture(scope="session")
def empty_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue without rows, only for reading."""
    return build_results(tmp_path_factory.mktemp("empty"), {})


@pytest.fixture(scope="session")
def rows() -> Mapping[str, dict[str, Any]]:
    """A valid row of each table, without job_key."""
    return {name: valid_row(name) for name in TABLES}


@pytest.fixture
def row() -> Callable[..., dict[str, Any]]:
    """`row("geometry", zeta=2.0)`: a valid row of a table with some columns changed."""
    return lambda table, **changes: valid_row(table) | changes


@pytest.fixture
def record() -> Callable[..., dict[str, Any]]:
    """`record(key, rows)` or `record(key, error=...)`: what the engine hands to `StageStore.append`."""

    def make(key: str, rows: Any = (), *, error: Any = None, table: str = "training") -> dict[str, Any]:
        if error is not None:
            error = {"type": "E", "message": "m", "traceback": "t", "attempts": 1, "transient": False} | error
        answer = {"key": key, "task": "t", "spec": json.dumps({"key": key}), "table": table, "rows": list(rows)}
        return answer | {"error": error, "timing": TIMING}

    return make


@pytest.fixture
def out(tmp_path: Path) -> Callable[..., StageStore]:
    """`out()`: the out of a stage `training` under the test's folder; `out("geometry")` another."""

    def make(table: str = "training", folder: Path = tmp_path) -> StageStore:
        data = folder / "data"
        return StageStore(data / table, tables=[table], companion=data / "timings" / table, stage=table)

    return make
