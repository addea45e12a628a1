"""Questions of bench/store.py, as SQL on the catalogue and as pandas on its Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

Sources = Mapping[str, Sequence[Path]]
CELL = ["model", "dataset", "condition"]


class Question(NamedTuple):
    """One question as SQL and as pandas; the last column of the result is a number, the others are keys."""

    sql: str
    pandas: Callable[[Sources], pd.DataFrame]


def read(sources: Sources, name: str, columns: list[str]) -> pd.DataFrame:
    """Return these columns of a table."""
    return pd.read_parquet(list(sources[name]), columns=columns)


def mean_by_layer(sources: Sources) -> pd.DataFrame:
    """Return the mean adjusted cosine by model, stack, layer and norm."""
    by = ["model", "stack", "layer", "normed"]
    rows = read(sources, "geometry", [*by, "zeta_adjusted"])
    return rows.groupby(by, as_index=False)["zeta_adjusted"].mean()


def last_layers(sources: Sources) -> pd.DataFrame:
    """Return the adjusted cosine of the last state of the family's output stack, by cell."""
    rows = read(sources, "geometry", [*CELL, "stack", "layer", "normed", "zeta_adjusted"])
    stacks = read(sources, "checkpoints", ["model", "output_stack"]).rename(columns={"output_stack": "stack"})
    rows = rows.merge(stacks, on=["model", "stack"])
    rows = rows.sort_values(["layer", "normed"]).drop_duplicates(CELL, keep="last")
    return rows[[*CELL, "zeta_adjusted"]]


def mean_errors(sources: Sources) -> pd.DataFrame:
    """Return the mean NMSE over windows, by cell."""
    rows = read(sources, "forecasts", [*CELL, "nmse"])
    return rows[np.isfinite(rows["nmse"])].groupby(CELL, as_index=False)["nmse"].mean()


def correlations(sources: Sources) -> pd.DataFrame:
    """Return Spearman's rho of isotropy and error over the cells of each uncompressed model."""
    compressed = read(sources, "compression", ["model"])
    cells = last_layers(sources).merge(mean_errors(sources), on=CELL)
    cells = cells[~cells["model"].isin(compressed["model"])]
    ranks = pd.DataFrame({"model": cells["model"]})
    ranks["isotropy"] = (-cells["zeta_adjusted"].abs()).groupby(cells["model"]).rank()
    ranks["error"] = np.log(cells["nmse"].clip(lower=1e-6)).groupby(cells["model"]).rank()
    correlation = ranks.groupby("model")[["isotropy", "error"]].corr().iloc[::2, 1].droplevel(1)
    return correlation.rename("spearman").reset_index()


def ranks_by_layer(sources: Sources) -> pd.DataFrame:
    """Return the mean numerical rank of layer inputs at tolerance 0.01, by model and layer."""
    parts = []
    for path in sources["spectra"]:
        table = pq.read_table(path, columns=["model", "layer", "what", "normed", "singular_values"])
        rows = table.select(["model", "layer", "what", "normed"]).to_pandas()
        lists = table["singular_values"].combine_chunks()
        if rows["what"].iloc[0] == "input":
            sigma = lists.flatten().to_numpy().reshape(len(rows), -1)
            rows["numerical_rank"] = (sigma > 0.01 * sigma[:, :1]).sum(axis=1)
            parts.append(rows[~rows["normed"].astype(bool)])
    return pd.concat(parts).groupby(["model", "layer"], as_index=False)["numerical_rank"].mean()


def dimensions(sources: Sources) -> pd.DataFrame:
    """Return the mean effective dimension d(0.8) by model, stack, layer and norm.

    It reads one file at a time, since 10 million rows at once need 6 GB.
    """
    by, parts = ["model", "stack", "layer", "normed"], []
    for path in sources["geometry"]:
        table = pq.read_table(path, columns=[*by, "eigenvalues"])
        rows = table.select(by).to_pandas()
        values = np.maximum(table["eigenvalues"].combine_chunks().flatten().to_numpy().reshape(len(rows), -1), 0)
        reached = values.cumsum(axis=1)
        rows["effective_dimension"] = (reached < 0.8 * reached[:, -1:] * (1 - 1e-12)).sum(axis=1) + 1
        parts.append(rows)
    return pd.concat(parts).groupby(by, as_index=False)["effective_dimension"].mean()


QUESTIONS = {
    "isotropy by layer": Question(
        "select model, stack, layer, normed, avg(zeta_adjusted) as zeta_adjusted from geometry group by all",
        mean_by_layer,
    ),
    "last layers": Question("select model, dataset, condition, zeta_adjusted from last_layer", last_layers),
    "mean errors": Question("select model, dataset, condition, nmse from scores", mean_errors),
    "correlation by model": Question(
        """
        select block as model, spearman
        from correlation_blocks
        where measure = 'zeta_adjusted'
            and "grouping" = 'per_model'
        """,
        correlations,
    ),
    "ranks by layer": Question(
        """
        select model, layer, avg(numerical_rank) as numerical_rank
        from flow_of_ranks
        where epsilon = 0.01
        group by all
        """,
        ranks_by_layer,
    ),
    "effective dimension": Question(
        """
        select model, stack, layer, normed, avg(effective_dimension) as effective_dimension
        from effective_dimension
        where variance_share = 0.8
        group by all
        """,
        dimensions,
    ),
}
