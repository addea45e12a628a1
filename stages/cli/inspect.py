"""Command `tsfmscope inspect`: every layer of one model on the user's data, as a table, a plot or JSON."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsfmscope.stages.cli.output import Json, console, say_json, say_left_out, say_table, with_spread
from tsfmscope.stages.config import LARGEST_SEED
from tsfmscope.stages.config.defaults import params_here
from tsfmscope.stages.config.params import ParamsError

if TYPE_CHECKING:
    from tsfmscope.stages.cli.inspection import LayerReport, Watch

PICTURES = (".html", ".png", ".svg")
# Heading of the table -> column of the rows.
COLUMNS = {
    "stack": "stack", "layer": "layer", "tokens": "n_tokens", "ζ": "zeta", "ζ′": "zeta_adjusted",
    "ζ′ − null": "zeta_adjusted_corrected", "K": "k",
    "d({share:g})": "effective_dimension", "rank({epsilon:g})": "numerical_rank", "width": "width",
}  # fmt: skip
MEANING = (
    "ζ: mean cosine between tokens (0: every direction alike, 1: all one way); ζ′: the same inside K clusters; "
    "ζ′ − null: ζ′ less its mean for isotropic states; "
    "d({share:g}): directions that hold {percent:g} % of the variance; rank({epsilon:g}): singular values above "
    "{epsilon:g} of the largest, of what the next layer is given; n′: after the final norm; –: none, --json says why."
)

SPREAD = "±: standard deviation over token samples and cluster starts, from {repeats} random halves of the tokens."


class Precision(StrEnum):
    """Precisions of tsfmscope.tasks.models.registry, which imports too much for a help text."""

    float32 = "float32"
    bfloat16 = "bfloat16"


def inspect(
    model: Annotated[str, typer.Argument(help="A model of params.yaml, FAMILY:FOLDER, FAMILY:hub:ORG/NAME, a folder.")],
    data: Annotated[str, typer.Argument(help="A CSV or Parquet file, a folder of them, or a data set such as nile.")],
    family: Annotated[str | None, typer.Option(help="Of a model that is a folder.")] = None,
    context: Annotated[
        int | None, typer.Option(min=16, help="Steps of context; default: params.yaml's, or 500.")
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Steps after it; default: the data set's, or 24.")
    ] = None,
    noise: Annotated[float, typer.Option(min=0, max=10, help="On the context, in s.d. of the series.")] = 0.0,
    rows: Annotated[int | None, typer.Option(min=3, help="Tokens of a layer; default: params.yaml's, or 2048.")] = None,
    max_series: Annotated[int | None, typer.Option(min=1, help="A seeded sample where there are more.")] = None,
    share: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share ε of the variance for the effective dimension d(ε).")
    ] = 0.8,
    epsilon: Annotated[float, typer.Option(min=0, max=1, help="Of the largest singular value, for the rank.")] = 0.01,
    seed: Annotated[
        int | None, typer.Option(min=0, max=LARGEST_SEED, help="Of sampled series, tokens and clusters.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    precision: Annotated[
        Precision | None, typer.Option(help="Of products with its matrices; default: the model's, or float32.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A picture: .html (self-contained), .png or .svg.")] = None,
    as_json: Json = False,
) -> None:
    """Measure isotropy, effective dimension and rank of every layer of one model on one data set.

    \b
    tsfmscope inspect chronos-bolt-nano nile
    tsfmscope inspect chronos-bolt-nano mine.csv --context 128 --horizon 12 --out look.html
    tsfmscope inspect chronos-bolt:checkpoints/chronos-bolt-nano mine.csv --json

    Nothing is stored, Ray is not started, and params.yaml is optional.
    """
    from tsfmscope.stages.cli.inspection import InspectRequest
    from tsfmscope.stages.cli.inspection import inspect_layers as look_at

    if out is not None and out.suffix not in PICTURES:
        raise ParamsError(f"--out {out}: expected a name that ends in {', '.join(PICTURES)}")
    asked = InspectRequest(
        model, data, family, context, horizon, noise, rows, max_series, seed, device, share, epsilon,
        precision and precision.value,
    )  # fmt: skip
    with watched() as watch:
        found = look_at(params_here(), asked, watch)
        if out is not None:
            watch("drawing", 0, 0)
            _draw(found, out)
    if as_json:
        say_json(found.rows)
    else:
        _show(found, share, epsilon)
    say_left_out(found.skipped, aside=as_json)
    if out is not None and not as_json:
        typer.echo(f"picture: {out}")


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """Show progress on stderr if that is a terminal, and remove it at the end.

    After that, print the messages of the data's readers, each once.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from transformers.utils.logging import disable_progress_bar

    # Bars of transformers would be printed in the middle of ours.
    disable_progress_bar()
    bar = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    shown = console(stderr=True)
    with Progress(*bar, console=shown, transient=True, disable=not shown.is_terminal) as progress:
        task = progress.add_task("", total=None)

        def watch(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total or None)

        with _heard() as said:
            yield watch
    for line in said:
        typer.echo(line, err=True)


@contextlib.contextmanager
def _heard() -> Iterator[dict[str, None]]:
    """Collect the lines that reading data logs, in order.

    Each line is kept once, because several candidates may read the same file.
    """
    said: dict[str, None] = {}

    class Hear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.setdefault(record.getMessage())

    logger, hear = logging.getLogger("tsfmscope.stages.cli.inspection"), Hear()
    # With a handler, Python's handler of last resort does not print the lines as well.
    logger.addHandler(hear)
    try:
        yield said
    finally:
        logger.removeHandler(hear)


def _show(found: LayerReport, share: float, epsilon: float) -> None:
    first = found.rows[0]
    values = {"share": share, "epsilon": epsilon, "percent": 100 * share}
    title = (
        f"{first['model']} on {first['dataset']}: {found.n_windows} windows of {found.n_series} series, "
        f"context {first['context']}" + (f", noise {first['noise']:g}" if first["noise"] else "")
    )
    lines = [[_cell(row, column) for column in COLUMNS.values()] for row in found.rows]
    say_table(title, [name.format(**values) for name in COLUMNS], lines)
    typer.echo(MEANING.format(**values))
    for line in flow(found.rows):
        typer.echo(line)
    if repeats := max(row["repeats"] for row in found.rows):
        typer.echo(SPREAD.format(repeats=repeats))
    typer.echo(str(found.observed))


def notes(found: LayerReport) -> Iterator[str]:
    """Yield sentences about the windows, for the page."""
    yield f"{found.n_windows} windows of {found.n_series} series; {found.observed}."
    if repeats := max(row["repeats"] for row in found.rows):
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
        how = "grows" if change > 0 else "falls" if change < 0 else "stays"
        yield (
            f"{stack}: rank {how} from {first['numerical_rank']} to {last['numerical_rank']} of "
            f"{min(first['width'], first['n_tokens'])} over {last['layer']} layers; "
            f"ζ from {_short(first['zeta'])} to {_short(last['zeta'])}"
        )


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _draw(found: LayerReport, out: Path) -> None:
    """Write the plot, completely or not at all. Raises ParamsError if the file cannot be written."""
    import pandas as pd

    from tsfmscope.store.files import atomic
    from tsfmscope.tasks.report.page.single_model_page import drawn, page
    from tsfmscope.tasks.report.render.mpl_render import render

    first = found.rows[0]
    figures = drawn(pd.DataFrame(found.rows))
    if out.suffix == ".html":
        title = f"{first['model']} on {first['dataset']}, context {first['context']}"
        data = page(title, figures, list(notes(found))).encode()
    else:
        data = render(figures)[out.suffix.removeprefix(".")]
    try:
        with atomic(out) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise ParamsError(f"--out {out}: cannot be written ({error.strerror}); name another place") from None
