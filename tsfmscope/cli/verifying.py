"""Verification of a checkpoint that somebody else made, for `tsfmscope verify`."""

from __future__ import annotations

import csv
import datetime
import io
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.config.defaults import version
from stages.config.params import Params, ParamsError
from stages.planning.model_reference import Source, resolve
from tsfmscope import hub
from tsfmscope.cli.provenance import license_of_source
from tsfmscope.conformance import OF_WEIGHTS
from tsfmscope.conformance.checkpoint import OF_FILES, Checkpoint, every_tensor_is_read, files_are_complete
from tsfmscope.conformance.cost import Cost, measure
from tsfmscope.conformance.package import (
    forecasts_are_those_of_the_package,
    states_are_those_of_the_package,
)
from tsfmscope.conformance.verdict import Finding, demand_of, judge, name_of
from tsfmscope.errors import HubError, MissingOnHubError, ModelError
from tsfmscope.models.licenses import License
from tsfmscope.models.registry import family_of_release

if TYPE_CHECKING:
    from tsfmscope.cli.inspection import Watch

# Checks of a model that loads, beyond the conformance suite.
OF_MODEL: tuple[Callable[[Checkpoint], str], ...] = (
    every_tensor_is_read,
    states_are_those_of_the_package,
    forecasts_are_those_of_the_package,
)
GB = 1e9
# Columns of docs/verified.csv.
COLUMNS = (
    *("checkpoint", "revision", "family", "verdict", "passed", "failed", "package", "context", "horizon"),
    *("load_seconds", "load_peak_gb", "forecast_seconds", "forecast_peak_gb", "version", "date"),
)


@dataclass
class Verification:
    """Result of verifying one checkpoint.

    model: as the user named it. reference: as it was resolved, with the hub's commit. cost: None if the model does
    not load, or cannot be measured.
    """

    model: str
    family: str | None
    reference: str
    license: License | None = None
    checks: list[Finding] = field(default_factory=list)
    cost: Cost | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Number of checks by verdict."""
        return dict(Counter[str](finding.verdict for finding in self.checks))

    @property
    def has_passed(self) -> bool:
        """Whether no check failed."""
        return "fail" not in self.counts

    def row(self) -> dict[str, Any]:
        """Return the row of docs/verified.csv."""
        name, _, revision = self.reference.removeprefix(hub.PREFIX).partition("@")
        cost = self.cost
        values = {
            "checkpoint": name if self.reference.startswith(hub.PREFIX) else Path(name).name,
            "revision": revision[:12],
            "family": self.family,
            "verdict": "pass" if self.has_passed else "fail",
            "passed": self.counts.get("pass", 0),
            "failed": self.counts.get("fail", 0),
            "package": self._package(),
            "context": cost and cost.context,
            "horizon": cost and cost.horizon,
            "load_seconds": cost and round(cost.load_seconds, 2),
            "load_peak_gb": cost and cost.load_peak_bytes and round(cost.load_peak_bytes / GB, 2),
            "forecast_seconds": cost and round(cost.forecast_seconds, 3),
            "forecast_peak_gb": cost and cost.forecast_peak_bytes and round(cost.forecast_peak_bytes / GB, 2),
            "version": version(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }
        assert tuple(values) == COLUMNS
        return values

    def line(self) -> str:
        """Return the row as a line of docs/verified.csv."""
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(self.row().values())
        return text.getvalue()

    def json(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "model": self.model,
            "reference": self.reference,
            "family": self.family,
            "passed": self.has_passed,
            **(self.license.columns if self.license else {"license": None, "license_source": None}),
            "checks": [finding.json() for finding in self.checks],
            "cost": self.cost and self.cost.json(),
            "row": self.row(),
            "line": self.line(),
        }

    def _package(self) -> str:
        """Return the package that the states were compared with, or an empty string."""
        name = name_of(states_are_those_of_the_package)
        details = (one.detail for one in self.checks if one.check == name and one.verdict == "pass")
        return next(details, "").partition(":")[0]


def verify_checkpoint(
    params: Params, model: str, family: str | None, *, context: int, horizon: int, watch: Watch
) -> Verification:
    """Run every check of a checkpoint and measure its costs.

    If the model does not load, the other checks are left out.
    Raises ParamsError for a wrong reference, HubError if the hub does not answer or refuses.
    """
    watch("looking up the files", 0, 0)
    source = _resolve(params, model, family)
    if isinstance(source, Finding):
        return Verification(model, family, _folder_of(model), checks=[source])
    result = Verification(model, source.family, source.reference, license_of_source(source))
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = Checkpoint(source.family, source.folder, Path(scratch), context, horizon, source.options)
        result.checks += _findings(checkpoint, watch)
        has_loaded = checkpoint.is_loaded
        # Its memory is free for the process that is measured.
        del checkpoint
    if has_loaded:
        watch("measuring seconds and memory", 0, 0)
        result.cost = measure(source.family, source.folder, source.options, context=context, horizon=horizon)
    return result


def _resolve(params: Params, model: str, family: str | None) -> Source | Finding:
    """Return the checkpoint of a name, or the failed check of a folder that is no whole checkpoint.

    The family of a released checkpoint is known, so that its config.json may be that of a later version. Raises
    ParamsError for a wrong reference, HubError if the hub does not answer or refuses.
    """
    try:
        return resolve(params, model, family or family_of_release(model))
    except MissingOnHubError as error:
        raise ParamsError(str(error)) from error
    except HubError:
        raise
    except ModelError as error:
        # An error of a reference to the hub that has the right form is one of the files that were downloaded.
        if not Path(_folder_of(model)).is_dir() and not hub.looks_like_hub(_folder_of(model)):
            raise ParamsError(str(error)) from error
        return Finding(name_of(files_are_complete), "fail", demand_of(files_are_complete), str(error))


def _folder_of(model: str) -> str:
    """Return the folder of FAMILY:FOLDER or of a folder."""
    head, colon, rest = model.partition(":")
    return rest if colon and not Path(model).is_dir() and head != hub.PREFIX.rstrip(":") else model


def _findings(checkpoint: Checkpoint, watch: Watch) -> Iterator[Finding]:
    """Yield the checks of the files, then those of the model if it loads."""
    total = len(OF_FILES) + len(OF_MODEL) + len(OF_WEIGHTS)
    for n, of_files in enumerate(OF_FILES):
        watch(of_files.__name__.replace("_", " "), n, total)
        finding = judge(of_files, checkpoint)
        yield finding
        # Another check would repeat the same failure.
        if finding.verdict == "fail":
            return
    for n, of_model in enumerate(OF_MODEL, start=len(OF_FILES)):
        watch(of_model.__name__.replace("_", " "), n, total)
        yield judge(of_model, checkpoint)
    for n, of_weights in enumerate(OF_WEIGHTS, start=len(OF_FILES) + len(OF_MODEL)):
        watch(of_weights.__name__.replace("_", " "), n, total)
        yield judge(of_weights, checkpoint.subject)
