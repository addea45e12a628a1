"""Command `tsfmscope certify`: whether a small model forecasts as well as its base, within a margin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stages.config.defaults import params_here
from stages.config.params import ParamsError
from stages.planning.exit_codes import NOT_CERTIFIED, TOO_FEW
from store.printable import printable
from store.render import to_json
from tsfmscope.cli.options import (
    Context,
    DataSets,
    Device,
    Id,
    Json,
    MaxSeries,
    Model,
    Season,
    Seed,
    Time,
    TimeFormat,
    TimeZone,
    Value,
    name_columns,
)
from tsfmscope.cli.output import check_plot_file, print_json, print_left_out, print_table
from tsfmscope.cli.progress import show_progress
from tsfmscope.statistics.noninferiority import MARGIN, RELEASE_UNITS, WORST, largest_share, to_ratio

if TYPE_CHECKING:
    from tsfmscope.cli.certifying import CertifyResult

PICTURES = (".png", ".svg", ".pdf")
CODES = {"certified": 0, "not certified": NOT_CERTIFIED, "too few tasks": TOO_FEW}
# Heading of the table -> column of the tasks.
COLUMNS = {
    "data set": "dataset", "horizon": "horizon", "series": "n_series", "WQL base": "wql_base",
    "WQL small": "wql_small", "ratio": "ratio", "coverage base": "coverage_base", "coverage small": "coverage_small",
}  # fmt: skip
# Scale, value and limit of each condition as text, in the order of `Certificate.conditions`.
TEXTS = (
    (1, "{:.4f}", "below {:g}"),
    (1, "{:.4f}", "at most {:g}"),
    (100, "{:.2f} points", "at most {:g} points"),
    (100, "{:.2f} points", "below {:g} points"),
    (1, "{:g}", "at least {:g}"),
)

BothFamily = Annotated[
    str | None, typer.Option(help="Family of both models; needed only where a config.json does not name it.")
]
Horizons = Annotated[
    list[int] | None,
    typer.Option(
        min=1, max=1024, help="Number of steps to forecast; repeat it for more tasks; default: the data set's."
    ),
]


def certify(
    base: Model,
    small: Annotated[
        str, typer.Argument(help="Compressed or other small model, named like BASE, or a folder of `export --onnx`.")
    ],
    data: DataSets,
    margin: Annotated[
        float, typer.Option(help="Largest mean ratio of WQL, small model over base; fix it before you look at scores.")
    ] = MARGIN,
    worst: Annotated[float, typer.Option(help="Largest ratio of WQL of a task or group of series.")] = WORST,
    family: BothFamily = None,
    context: Context = None,
    horizon: Horizons = None,
    max_series: MaxSeries = None,
    seed: Seed = None,
    device: Device = "cpu",
    time: Time = None,
    series_id: Id = None,
    value: Value = None,
    time_format: TimeFormat = None,
    tz: TimeZone = None,
    season: Season = None,
    picture: Annotated[
        Path | None, typer.Option(help="File of a plot of the ratios of all tasks: .png, .svg or .pdf.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Test that a small model is as good as its base.

    \b
    tsfmscope certify chronos-bolt-mini chronos-bolt-nano --data nile --data co2 --context 64
    tsfmscope certify chronos-bolt-mini chronos-bolt-nano --data mine.csv --horizon 6 --horizon 12 --margin 1.05 --json

    With several data sets, the unit of the test is the source: data sets that share a series are one source, and
    those that calibrated SMALL are left out. With one data set, the certificate is for series like its own, and the
    unit is the series. Both models forecast the same windows, inside the last fifth of every series, with the same
    seeds. The conditions are those of docs/compression.md: the upper 95 % limit of the mean ratio of WQL is
    below the margin, no task or group of series is above --worst, coverage hardly changes, and there are at
    least 10 units. Exit codes: 0 certified; 1 the work failed; 2 the command is not valid; 3 too few tasks,
    neither pass nor fail; 4 not certified.
    """
    from tsfmscope.cli.certifying import CertifyOptions, certify_models
    from tsfmscope.cli.inspection import InspectRequest

    check_plot_file("--picture", picture, PICTURES)
    request = InspectRequest(
        base, "", family, context=context, max_series=max_series, seed=seed, device=device,
        columns=name_columns(time, series_id, value, time_format, tz, season),
    )  # fmt: skip
    try:
        options = CertifyOptions(tuple(horizon or ()), margin, worst)
    except ValueError as error:
        raise ParamsError(f"--{error}") from None
    with show_progress() as watch:
        result = certify_models(params_here(), request, small, data, options, watch)
        if picture is not None:
            watch("drawing", 0, 0)
            _draw(result, options.margin, options.worst, picture)
    if as_json:
        print_json(to_json(certificate_facts(base, small, result)))
    else:
        _show(base, small, result, picture)
    if code := CODES[result.certificate.outcome]:
        raise typer.Exit(code)


def describe_scope(result: CertifyResult) -> str:
    """Return one sentence with the scope of the certificate, which is its first line."""
    seen = f"; these calibrated or healed the small model: {', '.join(result.calibrated)}" if result.calibrated else ""
    if result.table is None:
        return f"scope: general; {_count_units(result)}, data sets told apart by their values{seen}"
    n_series = result.tasks[0]["n_series"]
    of_series = f" of {n_series} series" if n_series > len(result.units) else ""
    return f"scope: series like those of {result.table}, and nothing else; {_count_units(result)}{of_series}{seen}"


def describe_outcome(base: str, small: str, result: CertifyResult) -> str:
    """Return one sentence with the outcome and its reason."""
    certificate = result.certificate
    limit, *_, enough = certificate.conditions
    failed = [condition.name for condition in certificate.conditions if not condition.is_met]
    if certificate.outcome == "certified":
        scope = "" if result.table is None else f" on series like those of {result.table}"
        return (
            f"certified: with 95 % confidence, the WQL of {small} is on average below {limit.limit:g} times that of "
            f"{base}{scope}; mean ratio {to_ratio(certificate.mean):.3f} over {_count_units(result)}."
        )
    if certificate.outcome == "not certified":
        return f"not certified: {small} against {base} fails: {'; '.join(failed)}."
    needed = certificate.needed if enough.is_met else int(enough.limit)
    return (
        f"too few tasks: {_count_units(result)}, needed {needed} or more for {small} against {base}; this is "
        f"neither pass nor fail. {'Name more data sets' if result.table is None else 'Give more series'}."
    )


def describe_exclusion(result: CertifyResult) -> str:
    """Return one sentence with the share of units above the limit, and the largest share that they cannot exclude."""
    n, worst = len(result.units), result.certificate.conditions[1].limit
    bad = {unit["unit"] for unit in result.units if unit["ratio"] > worst}
    if result.table is None:
        bad |= {task["source"] for task in result.tasks if task["ratio"] > worst}
    sentence = (
        f"{len(bad)} of {_count_units(result)} with a ratio above {worst:g}: with 95 % confidence, at most "
        f"{100 * largest_share(len(bad), n):.1f} % of all such {_name_units(result, 2)} are above it"
    )
    if result.table is None and n < RELEASE_UNITS:
        sentence += f"; a certificate for a release needs {RELEASE_UNITS} sources or more"
    return sentence


def _name_units(result: CertifyResult, count: int) -> str:
    if result.table is None:
        return "source" if count == 1 else "sources"
    return "groups" if result.tasks[0]["n_series"] > len(result.units) else "series"


def _count_units(result: CertifyResult) -> str:
    return f"{len(result.units)} {_name_units(result, len(result.units))}"


def _show(base: str, small: str, result: CertifyResult, picture: Path | None) -> None:
    typer.echo(printable(describe_scope(result)))
    rows = [[row[column] for column in COLUMNS.values()] for row in result.tasks]
    print_table(f"{small} against {base}, context {result.tasks[0]['context']}", [*COLUMNS], rows)
    conditions = [
        (name, value.format(scale * number), limit.format(scale * bound), "pass" if is_met else "fail")
        for (name, number, bound, is_met), (scale, value, limit) in zip(
            result.certificate.conditions, TEXTS, strict=True
        )
    ]
    print_table("", ["condition", "value", "limit", ""], conditions)
    print_tasks_left_out(result)
    print_left_out(result.skipped, as_json=False)
    for name, source in {row["data"]: row["source"] for row in result.tasks}.items():
        if name != source:
            typer.echo(printable(f"note: {name} has a series of {source}; they are one source"))
    typer.echo(describe_exclusion(result))
    typer.echo(printable(describe_outcome(base, small, result)))
    if picture is not None:
        typer.echo(f"plot: {picture}")


def print_tasks_left_out(result: CertifyResult) -> None:
    """Print one line per task that could not be scored, with the reason."""
    for task in result.left_out:
        horizon = "" if task["horizon"] is None else f", horizon {task['horizon']}"
        typer.echo(printable(f"left out: task {task['data']}{horizon}: {task['reason']}"))


def certificate_facts(base: str, small: str, result: CertifyResult) -> dict[str, Any]:
    """Return the JSON document, with infinite and unknown numbers as they are."""
    certificate = result.certificate
    return {
        "base": base,
        "small": small,
        "scope": describe_scope(result),
        "outcome": certificate.outcome,
        "verdict": describe_outcome(base, small, result),
        "exclusion": describe_exclusion(result),
        "n_units": certificate.n_units,
        "needed_units": certificate.needed,
        "mean_ratio": to_ratio(certificate.mean),
        "log_ratio_sd": certificate.sd,
        "t_limit": to_ratio(certificate.t_limit),
        "bootstrap_limit": to_ratio(certificate.bootstrap_limit),
        "bootstrap_method": certificate.bootstrap_method,
        "conditions": [condition._asdict() for condition in certificate.conditions],
        "tasks": result.tasks,
        "units": result.units,
        "parts": result.parts,
        "calibrated": result.calibrated,
        "left_out": result.left_out,
    }


def _draw(result: CertifyResult, margin: float, worst: float, path: Path) -> None:
    """Write the plot, completely or not at all. Raises ParamsError if the file cannot be written."""
    import pandas as pd

    from store.files import atomic
    from tsfmscope.report.charts.certificate import draw_certificate
    from tsfmscope.report.render import convert_svg, draw_svg

    certificate = result.certificate
    chart = draw_certificate(
        pd.DataFrame(result.parts), mean=to_ratio(certificate.mean), upper=to_ratio(certificate.upper_limit),
        margin=margin, worst=worst, units=_count_units(result),
    )  # fmt: skip
    data = convert_svg(draw_svg(chart), path.suffix)
    try:
        with atomic(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise ParamsError(f"--picture {path}: cannot be written ({error.strerror}); name another file") from None
