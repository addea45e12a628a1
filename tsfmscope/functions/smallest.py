"""Search for the smallest file of a model whose loss on search series stays below a margin.

No series of a user is read. Synthetic series calibrate; other synthetic series and the bundled data sets are the search
series, on which the sizes are compared.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope import progress
from tsfmscope.compression import refit
from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.compress import compress_and_record
from tsfmscope.compression.export import file_bytes
from tsfmscope.compression.options import METHOD, METHODS, WHOLE, Calibration, Method, Ranks
from tsfmscope.defaults import HELD_OUT, HORIZON
from tsfmscope.errors import DataError, ModelError
from tsfmscope.forecasting.scores import ScoredWindows
from tsfmscope.functions.certify import forecast_windows, score_task
from tsfmscope.functions.load import Case, Model, load_source, make_case
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.data_sets import OWN, NamedSeries, usable_series
from tsfmscope.series.files.sources import LoadedSeries
from tsfmscope.series.synthetic.priors import draw_priors
from tsfmscope.series.types import Series, digests
from tsfmscope.statistics.noninferiority import Certificate, CoverageChange, assess, log_ratio, to_ratio

if TYPE_CHECKING:
    from tsfmscope.models.base import Family

# Synthetic data sets that calibrate, and the windows of each.
CALIBRATING, WINDOWS = 8, 16
# Search series: synthetic data sets, the series of each, and the steps of a series. The steps of every second data set
# are a quarter, as many series of users are short.
SETS, SERIES, STEPS = 35, 8, 1024
# Number that separates the search series from the calibrating series of the same seed.
STREAM = 46
# Names of the bundled data sets of series.
BUNDLED = tuple(name for name, entry in CATALOG.items() if entry.source == "bundled")
# Shares of the bytes of the file that are tried after eight bits alone, which leave 26 to 28 %. For a model without
# MLPs that can be made smaller: shares of attention, in eight bits.
BYTES, ATTENTION = (0.22, 0.2, 0.18, 0.165, 0.15, 0.135, 0.12, 0.1), (0.5, 0.25, 0.1)


class Rung(NamedTuple):
    """One size that was tried.

    requested: share that the method was asked for. share: of the bytes of the files of weights. ratio, upper, largest:
    mean ratio of WQL over the search series, its upper 95 % limit, and the largest ratio of a data set. coverage: mean
    size of the change of the coverage of the 80 % interval. seconds: of compressing and scoring. passes: whether all
    conditions of a certificate hold.
    """

    method: str
    requested: float
    share: float
    ratio: float
    upper: float
    largest: float
    coverage: float
    seconds: float
    passes: bool


class Smallest(NamedTuple):
    """Smallest model that passed.

    model: the compressed model. record, arguments: result and arguments of `compress_and_record`. counts: number of
    calibration windows by data set. case: one of the search series, to time forecasts. ladder: all sizes tried.
    series: digests of the search series.
    """

    model: Model
    record: dict[str, Any]
    arguments: dict[str, Any]
    counts: dict[str, int]
    case: Case
    ladder: list[Rung]
    series: frozenset[str]


def find_smallest(
    model: Model, *, name: str, margin: float, context: int | None, horizon: int | None, seed: int
) -> Smallest:
    """Compress a model to smaller and smaller sizes until one loses too much; return the last one that does not.

    The order of the sizes is fixed before scoring and the first failure ends the search, so each size is tested at the
    full level: with 95 % confidence, no size that loses the margin or more on average over such search series is
    chosen (a fixed sequence of hypotheses, Maurer, Hothorn and Lehmacher 1995). A size passes if all conditions of a
    general certificate hold, where a unit is a data set.

    name: that of the smaller model. margin: largest mean ratio. Raises ModelError if the first size fails, and the
    errors of `compress_model`.
    """
    cases = [
        make_case(model, data, context=context, horizon=horizon, seed=seed) for data in _search_series(horizon, seed)
    ]
    first = cases[-1]
    calibration = Calibration(
        datasets=(), windows=WINDOWS, context=first.context, horizon=first.horizon, held_out=HELD_OUT, seed=seed,
        synthetic=CALIBRATING,
    )  # fmt: skip
    methods = list(_methods(model.family))
    full = file_bytes(model.family)
    progress.show("forecasting the search series")
    scored = [(case, forecast_windows(case, model.family)) for case in cases]
    show = progress.with_rate("searching the smallest size")
    ladder: list[Rung] = []
    best: tuple[Model, dict[str, Any], dict[str, Any]] | None = None
    for number, method in enumerate(methods):
        show(number, len(methods))
        began = time.monotonic()
        small = load_source(model.source.with_stored_options(), model.device)
        arguments: dict[str, Any] = {
            "method": method,
            "tables": {},
            "calibration": calibration if METHODS[method.method].reads_data else None,
        }
        try:
            record = compress_and_record(small.family, name=name, base_model=model.name, **arguments)
        except BudgetError:
            # This size and all smaller ones do not exist.
            break
        certificate = _assess(scored, small.family, margin, seed)
        _, largest, _, change, _ = certificate.conditions
        rung = Rung(
            method.method, method.ranks.rule[1], file_bytes(small.family) / full, to_ratio(certificate.mean),
            to_ratio(certificate.upper_limit), largest.value, change.value, time.monotonic() - began,
            certificate.outcome == "certified",
        )  # fmt: skip
        ladder.append(rung)
        if not rung.passes:
            break
        best = small, record, arguments
    if best is None:
        raise ModelError(
            f"{model.name}: even weights of eight bits lose too much on the search series: a mean ratio of WQL of "
            f"{ladder[0].ratio:.4f}, upper limit {ladder[0].upper:.4f}, largest {ladder[0].largest:.4f}, expected an "
            f"upper limit below {margin:g}; allow a larger loss, or compress with `to`"
        )
    counts = {"synthetic": CALIBRATING * WINDOWS} if best[2]["calibration"] else {}
    seen = frozenset[str]().union(*(digests(case.data.loaded.usable) for case in cases))
    return Smallest(*best, counts, first, ladder, seen)


def _assess(cases: Sequence[tuple[Case, ScoredWindows]], family: Family, margin: float, seed: int) -> Certificate:
    """Return the test of a model on the search series, where a unit is a data set.

    cases: each with the scored forecasts of the base.
    """
    rows = []
    for case, of_base in cases:
        # A bundled data set may be too short for the horizon.
        with contextlib.suppress(DataError):
            rows.append(score_task(case, of_base, forecast_windows(case, family)).row)
    ratios = [log_ratio((row["wql_base"], row["wql_small"])) for row in rows]
    changes = [CoverageChange(row["coverage_small"] - row["coverage_base"], row["n_values"]) for row in rows]
    return assess(ratios, ratios, changes, margin=margin, seed=seed)


def _methods(family: Family) -> Iterator[Method]:
    """Yield the methods in the order of the search: eight bits without truncation, then smaller and smaller sizes."""
    yield Method(method="svd", ranks=Ranks(budget=1), bits=8)
    if any(mlp.stack in family.stacks for mlp in refit.find_mlps(family)):
        yield from (Method(method=WHOLE, ranks=Ranks(bytes=share), bits=8) for share in BYTES)
    else:
        yield from (Method(method=METHOD, ranks=Ranks(budget=share), bits=8) for share in ATTENTION)


def _search_series(horizon: int | None, seed: int) -> Iterator[NamedSeries]:
    """Yield the bundled data sets with a window, and the synthetic ones, whose series have standard deviation 1."""
    for name in BUNDLED:
        yield usable_series(name, max_series=None, seed=seed)
    rng = np.random.default_rng([seed, STREAM])
    # The last fifth holds a horizon.
    least = 6 * (horizon or HORIZON)
    for number in range(SETS):
        steps = max(STEPS if number % 2 else STEPS // 4, least)
        values = draw_priors(rng, SERIES, steps)
        spread = np.nanstd(values, axis=1, keepdims=True)
        series = [
            Series(f"search-{number}", f"series-{n}", row / deviation)
            for n, (row, deviation) in enumerate(zip(values, spread[:, 0], strict=True))
            if deviation > 0
        ]
        yield NamedSeries(f"search-{number}", OWN, LoadedSeries(series, [], series))
