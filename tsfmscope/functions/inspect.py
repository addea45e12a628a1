"""`inspect`: isotropy, dimension and rank of every layer of one model on some series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd

from tsfmscope import layer_states, progress
from tsfmscope.files import TABLES, save_as, table_writers
from tsfmscope.functions.arguments import Bounds, Context, Count, Horizon, MaxSeries, Seed, Share, Tolerance, checked
from tsfmscope.functions.load import Model, as_model, make_case
from tsfmscope.models.cards import License, license_of
from tsfmscope.report import render
from tsfmscope.report.render import apply_style, image_writers, stack_charts
from tsfmscope.series.data_sets import Data, log_left_out, usable_series
from tsfmscope.series.files.options import reading_of
from tsfmscope.series.windows import Observed

if TYPE_CHECKING:
    from tsfmscope.report.style import Chart

SUFFIXES = (".html", *render.SUFFIXES, *TABLES)
# Heading of the table -> column of the layers.
COLUMNS = {
    "stack": "stack", "layer": "layer", "tokens": "n_tokens", "ζ": "zeta", "ζ′": "zeta_adjusted",
    "ζ′ − null": "zeta_adjusted_corrected", "K": "k", "IsoScore": "isoscore",
    "d({share:g})": "effective_dimension", "d/width": "dimension_share",
    "rank({epsilon:g})": "numerical_rank", "width": "width",
}  # fmt: skip
# Columns that a notebook shows first.
SHOWN = (
    "stack", "layer", "normed", "n_tokens", "zeta", "zeta_adjusted", "isoscore", "effective_dimension",
    "dimension_share", "numerical_rank",
)  # fmt: skip
MEANING = (
    "ζ: mean cosine between tokens (0: no common direction, 1: all parallel); ζ′: mean cosine inside K centred "
    "clusters; ζ′ − null: ζ′ minus its mean over permuted coordinates. It responds to skewness and to unequal norms, "
    "so it does not show how evenly the directions are used; IsoScore (0: one direction holds all variance, 1: all "
    "hold the same) and d/width do. d({share:g}): number of directions that hold {percent:g} % of the variance; "
    "rank({epsilon:g}): number of singular values above {epsilon:g} times the largest, of the next layer's input; "
    "n′: layer n after the final norm; –: no value, --json has the reason."
)

SPREAD = "±: standard deviation over token samples and cluster starts, from {repeats} random halves of the tokens."


@dataclass(frozen=True, eq=False)
class LayerReport:
    """Measures of every layer of one model on some series.

    `print` shows the main columns, and a notebook shows them as a table.

    Attributes:
        layers: one row per layer, in the order of the stacks: stack, layer (0: the embedding), normed (whether
            after the final norm), n_tokens, width, zeta, zeta_adjusted, isoscore, effective_dimension (directions),
            dimension_share (of the width), numerical_rank, and the other columns of the table `geometry`
            (docs/tables.md).
        title: model, data and condition in words.
        n_windows: number of windows whose tokens were measured.
        n_series: number of series that the windows are from.
        skipped: reason -> number of series that gave no window.
        observed: steps of context that the model reads of the windows.
        license: licence of the model's weights and where it is stated.
        notes: sentences on steps that the model does not read, and on the unit of the data.
    """

    layers: pd.DataFrame
    title: str
    n_windows: int
    n_series: int
    skipped: Mapping[str, int]
    observed: Observed
    license: License
    notes: list[str]

    def plot(self, measure: str = "isotropy") -> Chart:
        """Return an Altair chart by layer: "isotropy" or "dimensions".

        A notebook shows it; `altair.renderers.enable("svg")` does so without a network. Raises ValueError for another
        name.
        """
        from tsfmscope.report.single_model import draw_layers

        charts = {title.lower(): chart for title, chart in draw_layers(self.layers)}
        if measure not in charts:
            raise ValueError(f"measure: got {measure!r}, expected one of {', '.join(charts)}")
        return apply_style(charts[measure])

    def save(self, path: str | Path) -> Path:
        """Write both figures as a page (.html) or image (.png, .svg, .pdf), or the layers (.csv, .parquet).

        The file is written completely or not at all. Missing parent folders are made. Returns the path. Raises
        ValueError for another suffix, OSError if the file cannot be written.
        """
        return save_as(path, {".html": self._write_page, **image_writers(self._draw), **table_writers(self.layers)})

    def _write_page(self, path: Path) -> None:
        from tsfmscope.report.single_model import render_page

        path.write_text(render_page(self.title, self.layers, COLUMNS, list(self.sentences())), encoding="utf-8")

    def _draw(self) -> Chart:
        from tsfmscope.report.single_model import draw_layers

        return stack_charts([(f"{self.title}: {name.lower()}", chart) for name, chart in draw_layers(self.layers)])

    def sentences(self) -> Iterator[str]:
        """Yield sentences about the windows, and about the change of rank over the layers of each stack."""
        skipped = "".join(f"; {n} without a window: {reason}" for reason, n in self.skipped.items())
        yield f"{self.n_windows} windows of {self.n_series} series{skipped}; {self.observed}."
        for note in self.notes:
            yield f"{note}."
        if repeats := self.layers["repeats"].max():
            yield SPREAD.format(repeats=repeats)
        for stack, rows in self.layers[~self.layers["normed"]].groupby("stack", sort=False):
            first, last = rows.iloc[0], rows.iloc[-1]
            change = last["numerical_rank"] - first["numerical_rank"]
            trend = "grows" if change > 0 else "falls" if change < 0 else "stays"
            zeta = ["–" if pd.isna(row["zeta"]) else f"{row['zeta']:.2f}" for row in (first, last)]
            yield (
                f"{stack}: rank {trend} from {first['numerical_rank']} to {last['numerical_rank']} of "
                f"{min(first['width'], first['n_tokens'])} over {last['layer']} layers; ζ from {zeta[0]} to {zeta[1]}."
            )

    def __repr__(self) -> str:
        return f"{self.title}: {next(self.sentences())}\n{self.layers[list(SHOWN)].to_string(index=False)}"

    def _repr_html_(self) -> str:
        table = self.layers[list(SHOWN)].to_html(index=False, float_format="{:.3f}".format, na_rep="–")
        return f"<p>{self.title}: {next(self.sentences())}</p>\n{table}"


@checked
def inspect(
    model: Model | str | Path,
    data: Data,
    *,
    context: Context = None,
    horizon: Horizon = None,
    noise: Annotated[float, Bounds(0, 10)] = 0.0,
    rows: Count = 1024,
    max_series: MaxSeries = 32,
    share: Share = 0.8,
    epsilon: Tolerance = 0.01,
    seed: Seed = 0,
    **reading: Any,
) -> LayerReport:
    """Measure isotropy, effective dimension and numerical rank of every layer.

    Futures of a bundled data set lie in the last 20 % of its series, on which no model of the package is trained.

    Args:
        model: name of a bundled model, folder, FAMILY:FOLDER or hub:ORG/NAME; in Python also a model that `load`
            returned.
        data: CSV or Parquet file, folder of such files, or name of a data set (docs/own_data.md); in Python also a
            DataFrame with one row per time, a Series or an array [step], an array [series, step], and a list or dict of
            arrays [step]; tensors are arrays. Missing values are NaN or masked.
        context: steps of context that the model sees, 16 to 32,768; None: 500 of a time series, and one whole item of
            another modality.
        horizon: steps after the context, which decoders see; None: the data set's, or 24.
        noise: standard deviation of Gaussian noise on the context, in standard deviations of the series.
        rows: largest number of tokens per layer, a seeded sample.
        max_series: largest number of series, a seeded sample; None: all.
        share: share of the variance in the effective dimension, in (0, 1].
        epsilon: tolerance of the numerical rank, relative to the largest singular value, in [0, 1].
        seed: seed of samples and clusters.
        reading: how a table is read: time, id, value, time_format, tz, freq, season, duplicates, fill, decimal, sheet,
            one_table (docs/own_data.md).

    Returns:
        A report. Its `layers` is a DataFrame with one row per layer and the columns of `inspect --json`.

    Raises:
        DataError: the data contain no series, or no series is long enough.
        ArgumentError: a name is unknown, an argument is out of range, or the model reads other data. It is a
            ValueError.
        HealthError: hidden states are not finite.
    """
    progress.show("loading the model")
    model = as_model(model)
    progress.show("reading the data")
    series = usable_series(data, max_series=max_series, seed=seed, reading=reading_of(reading))
    case = make_case(model, series, context=context, horizon=horizon, seed=seed, noise=noise)
    progress.show("tokens and hidden states")
    tokens, without_window, observed, notes = case.tokenize(rows)
    states = layer_states.hidden_states(model.family, tokens, rows=rows, seed=seed, device=model.device)
    layers = list(states.layers)
    measured = layer_states.measure_layers(
        layers, tokens, states.rows, share=share, epsilon=epsilon, dtype=model.source.precision, rows=rows, seed=seed
    )
    table = []
    for n_done, row in enumerate(measured, start=1):
        table.append(case.identity | {"weights_dtype": model.source.precision} | row | observed.columns)
        progress.show("measuring layers", n_done, len(layers))
    skipped = series.count_left_out(without_window)
    log_left_out(skipped)
    frame = pd.DataFrame(table).astype({"effective_dimension": "Int64", "zeta": float, "zeta_adjusted": float})
    noisy = f", noise {noise:g}" if noise else ""
    return LayerReport(
        frame, f"{model.source.name} on {series.name}, context {case.context}{noisy}", len(tokens),
        len(set(tokens.series)), skipped, observed, license_of(model.source.folder, model.source.reference), notes,
    )  # fmt: skip
