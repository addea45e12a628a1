"""Command `tsfmscope inspect`: every layer of one model on the user's data, as a table, a plot or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stages.config.defaults import params_here
from stages.config.params import ParamsError
from store.printable import printable
from tsfmscope.cli.options import (
    Context,
    Data,
    Device,
    Family,
    Horizon,
    Id,
    Json,
    MaxSeries,
    Model,
    RunPrecision,
    Seed,
    Time,
    TimeFormat,
    TimeZone,
    Value,
    name_columns,
)
from tsfmscope.cli.output import check_plot_file, print_json, print_left_out, print_table, with_spread
from tsfmscope.cli.progress import show_progress

if TYPE_CHECKING:
    from tsfmscope.cli.inspection import InspectResult

PLOTS = (".html", ".png", ".svg", ".pdf")
# Heading of the table -> column of the rows.
COLUMNS = {
    "stack": "stack", "layer": "layer", "tokens": "n_tokens", "ζ": "zeta", "ζ′": "zeta_adjusted",
    "ζ′ − null": "zeta_adjusted_corrected", "K": "k", "IsoScore": "isoscore",
    "d({share:g})": "effective_dimension", "d/width": "dimension_share",
    "rank({epsilon:g})": "numerical_rank", "width": "width",
}  # fmt: skip
MEANING = (
    "ζ: mean cosine between tokens (0: no common direction, 1: all parallel); ζ′: mean cosine inside K centred "
    "clusters; ζ′ − null: ζ′ minus its mean over permuted coordinates. It responds to skewness and to unequal norms, "
    "so it does not show how evenly the directions are used; IsoScore (0: one direction holds all variance, 1: all "
    "hold the same) and d/width do. d({share:g}): number of directions that hold {percent:g} % of the variance; "
    "rank({epsilon:g}): number of singular values above {epsilon:g} times the largest, of the next layer's input; "
    "n′: layer n after the final norm; –: no value, --json has the reason."
)

SPREAD = "±: standard deviation over token samples and cluster starts, from {repeats} random halves of the tokens."


PlotFile = Annotated[
    Path | None, typer.Option(help="File of a plot: .html (one file, no network needed), .png, .svg or .pdf.")
]


def inspect(
    model: Model,
    data: Data,
    family: Family = None,
    context: Context = None,
    horizon: Horizon = None,
    noise: Annotated[
        float, typer.Option(min=0, max=10, help="Noise on the context, in standard deviations of the series.")
    ] = 0.0,
    rows: Annotated[
        int | None,
        typer.Option(min=3, help="Largest number of tokens per layer; default: that of params.yaml, or 2048."),
    ] = None,
    max_series: MaxSeries = None,
    share: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share s of the variance for the effective dimension d(s).")
    ] = 0.8,
    epsilon: Annotated[
        float,
        typer.Option(min=0, max=1, help="Tolerance of the numerical rank, relative to the largest singular value."),
    ] = 0.01,
    seed: Seed = None,
    device: Device = "cpu",
    time: Time = None,
    series_id: Id = None,
    value: Value = None,
    time_format: TimeFormat = None,
    tz: TimeZone = None,
    precision: RunPrecision = None,
    out: PlotFile = None,
    as_json: Json = False,
) -> None:
    """Measure isotropy, dimension and rank of every layer.

    \b
    tsfmscope inspect chronos-bolt-nano nile
    tsfmscope inspect chronos-bolt-nano mine.csv --context 128 --horizon 12 --out look.html
    tsfmscope inspect chronos-bolt:tsfmscope/checkpoints/chronos-bolt-nano mine.csv --json

    Nothing is stored, Ray is not started, and params.yaml is optional.
    """
    from tsfmscope.cli.inspection import InspectRequest, inspect_layers
    from tsfmscope.cli.provenance import license_of_source

    check_plot_file("--out", out, PLOTS)
    request = InspectRequest(
        model, data, family, context, horizon, noise, rows, max_series, seed, device, share, epsilon,
        precision, name_columns(time, series_id, value, time_format, tz),
    )  # fmt: skip
    with show_progress() as watch:
        report = inspect_layers(params_here(), request, watch)
        if out is not None:
            watch("drawing", 0, 0)
            _draw(report, out)
    if as_json:
        columns = license_of_source(report.source).columns
        print_json([row | columns for row in report.rows])
    else:
        _show(report, share, epsilon)
    print_left_out(report.skipped, as_json=as_json)
    if out is not None and not as_json:
        typer.echo(f"plot: {out}")


def _show(report: InspectResult, share: float, epsilon: float) -> None:
    from tsfmscope.cli.provenance import license_of_source

    first = report.rows[0]
    values = {"share": share, "epsilon": epsilon, "percent": 100 * share}
    title = (
        f"{first['model']} on {first['dataset']}: {report.n_windows} windows of {report.n_series} series, "
        f"context {first['context']}" + (f", noise {first['noise']:g}" if first["noise"] else "")
    )
    lines = [[_cell(row, column) for column in COLUMNS.values()] for row in report.rows]
    print_table(title, [name.format(**values) for name in COLUMNS], lines)
    typer.echo(MEANING.format(**values))
    for line in flow(report.rows):
        typer.echo(line)
    if repeats := max(row["repeats"] for row in report.rows):
        typer.echo(SPREAD.format(repeats=repeats))
    typer.echo(str(report.observed))
    typer.echo(printable(str(license_of_source(report.source))))


def notes(report: InspectResult) -> Iterator[str]:
    """Yield sentences about the windows, for the page."""
    yield f"{report.n_windows} windows of {report.n_series} series; {report.observed}."
    for note in report.notes:
        yield f"{note}."
    if repeats := max(row["repeats"] for row in report.rows):
        yield SPREAD.format(repeats=repeats)


def _cell(row: Mapping[str, Any], column: str) -> Any:
    if column == "layer":
        return f"{row['layer']}{'′' if row['normed'] else ''}"
    if column == "numerical_rank" and row["below_noise_floor"]:
        # ε is below the rounding error of the singular values.
        return None
    return with_spread(row[column], row.get(f"{column}_sd"))


def flow(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one sentence per stack: the change of rank from the embedding to the last block's output."""
    for stack in dict.fromkeys(row["stack"] for row in rows):
        of_stack = [row for row in rows if row["stack"] == stack and not row["normed"]]
        first, last = of_stack[0], of_stack[-1]
        change = last["numerical_rank"] - first["numerical_rank"]
        trend = "grows" if change > 0 else "falls" if change < 0 else "stays"
        yield (
            f"{stack}: rank {trend} from {first['numerical_rank']} to {last['numerical_rank']} of "
            f"{min(first['width'], first['n_tokens'])} over {last['layer']} layers; "
            f"ζ from {_short(first['zeta'])} to {_short(last['zeta'])}"
        )


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _draw(report: InspectResult, out: Path) -> None:
    """Write the plot, completely or not at all. Raises ParamsError if the file cannot be written."""
    import pandas as pd

    from store.files import atomic
    from tsfmscope.report.charts.layers import draw_layers
    from tsfmscope.report.page.single_model_page import render_page
    from tsfmscope.report.render import convert_svg, draw_svg, stack_charts

    first = report.rows[0]
    rows = pd.DataFrame(report.rows)
    title = f"{first['model']} on {first['dataset']}, context {first['context']}"
    if out.suffix == ".html":
        data = render_page(title, rows, list(notes(report))).encode()
    else:
        chart = stack_charts([(f"{title}: {name.lower()}", chart) for name, chart in draw_layers(rows)])
        data = convert_svg(draw_svg(chart), out.suffix)
    try:
        with atomic(out) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise ParamsError(f"--out {out}: cannot be written ({error.strerror}); name another file") from None
