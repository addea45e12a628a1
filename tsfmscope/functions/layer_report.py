"""Result of `tsfmscope.inspect`: a DataFrame with one row per layer, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pandas as pd

from tsfmscope.cli.provenance import license_of_source

if TYPE_CHECKING:
    from tsfmscope.cli.inspection import InspectResult
    from tsfmscope.report.charts.style import Chart

SUFFIXES = (".html", ".png", ".svg", ".pdf", ".csv", ".parquet")
# Columns that a notebook shows first.
SHOWN = (
    "stack", "layer", "normed", "n_tokens", "zeta", "zeta_adjusted", "isoscore", "effective_dimension",
    "dimension_share", "numerical_rank",
)  # fmt: skip


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
        license: licence of the model's weights and where it is stated, in words.
    """

    layers: pd.DataFrame
    title: str
    n_windows: int
    n_series: int
    skipped: Mapping[str, int]
    license: str

    @classmethod
    def from_result(cls, result: InspectResult) -> Self:
        """Build the report from what `tsfmscope inspect` prints."""
        first = result.rows[0]
        noisy = f", noise {first['noise']:g}" if first["noise"] else ""
        title = f"{first['model']} on {first['dataset']}, context {first['context']}{noisy}"
        layers = pd.DataFrame(result.rows)
        layers = layers.astype({"effective_dimension": "Int64", "zeta": float, "zeta_adjusted": float})
        license = str(license_of_source(result.source))
        return cls(layers, title, result.n_windows, result.n_series, result.skipped, license)

    def plot(self, measure: str = "isotropy") -> Chart:
        """Return an Altair chart by layer: "isotropy" or "dimensions". Raises ValueError for another name."""
        from tsfmscope.report.charts.layers import draw_layers
        from tsfmscope.report.render import apply_style

        charts = {title.lower(): chart for title, chart in draw_layers(self.layers)}
        if measure not in charts:
            raise ValueError(f"measure: got {measure!r}, expected one of {', '.join(charts)}")
        return apply_style(charts[measure])

    def save(self, path: str | Path) -> Path:
        """Write both figures as a page (.html) or image (.png, .svg, .pdf), or the layers (.csv, .parquet).

        Missing parent folders are made. Returns the path. Raises ValueError for another suffix, OSError if the
        file cannot be written.
        """
        target = Path(path)
        if target.suffix not in SUFFIXES:
            raise ValueError(f"{target}: expected a name that ends in {', '.join(SUFFIXES)}")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".csv":
            self.layers.to_csv(target, index=False)
        elif target.suffix == ".parquet":
            self.layers.to_parquet(target, index=False)
        elif target.suffix == ".html":
            from tsfmscope.report.page.single_model_page import render_page

            target.write_text(render_page(self.title, self.layers, [self._sample_text()]), encoding="utf-8")
        else:
            from tsfmscope.report.charts.layers import draw_layers
            from tsfmscope.report.render import convert_svg, draw_svg, stack_charts

            charts = [(f"{self.title}: {name.lower()}", chart) for name, chart in draw_layers(self.layers)]
            target.write_bytes(convert_svg(draw_svg(stack_charts(charts)), target.suffix))
        return target

    def _sample_text(self) -> str:
        skipped = "".join(f"; {n} without a window: {reason}" for reason, n in self.skipped.items())
        return f"{self.n_windows} windows of {self.n_series} series{skipped}."

    def __repr__(self) -> str:
        return f"{self.title}: {self._sample_text()}\n{self.layers[list(SHOWN)].to_string(index=False)}"

    def _repr_html_(self) -> str:
        table = self.layers[list(SHOWN)].to_html(index=False, float_format="{:.3f}".format, na_rep="–")
        return f"<p>{self.title}: {self._sample_text()}</p>\n{table}"
