"""`verify`: checks of a checkpoint that somebody else made, and its costs."""

from __future__ import annotations

import csv
import datetime
import io
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from tsfmscope import hub, progress
from tsfmscope.conformance import OF_WEIGHTS
from tsfmscope.conformance.checkpoints import OF_FILES, Checkpoint, every_tensor_is_read, files_are_complete
from tsfmscope.conformance.cost import Cost, measure
from tsfmscope.conformance.package import forecasts_are_those_of_the_package, states_are_those_of_the_package
from tsfmscope.conformance.published_probes import states_have_the_published_probes
from tsfmscope.conformance.subject import Finding, demand_of, judge, name_of
from tsfmscope.errors import ArgumentError, HubError, MissingOnHubError, ModelError
from tsfmscope.extras import version
from tsfmscope.functions.arguments import Bounds, checked
from tsfmscope.models.cards import License, license_of
from tsfmscope.models.references import Source, resolve
from tsfmscope.models.registry import family_of_release

# Checks of a model that loads, beyond the conformance suite.
OF_MODEL: tuple[Callable[[Checkpoint], str], ...] = (
    every_tensor_is_read,
    states_are_those_of_the_package,
    forecasts_are_those_of_the_package,
    states_have_the_published_probes,
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
        cost, compared = self.cost, name_of(states_are_those_of_the_package)
        # The detail of that check begins with the package that the states were compared with.
        details = (one.detail for one in self.checks if one.check == compared and one.verdict == "pass")
        values = {
            "checkpoint": name if self.reference.startswith(hub.PREFIX) else Path(name).name, "revision": revision[:12],
            "family": self.family, "verdict": "pass" if self.has_passed else "fail",
            "passed": self.counts.get("pass", 0), "failed": self.counts.get("fail", 0),
            "package": next(details, "").partition(":")[0], "context": cost and cost.context,
            "horizon": cost and cost.horizon, "load_seconds": cost and round(cost.load_seconds, 2),
            "load_peak_gb": cost and cost.load_peak_bytes and round(cost.load_peak_bytes / GB, 2),
            "forecast_seconds": cost and round(cost.forecast_seconds, 3),
            "forecast_peak_gb": cost and cost.forecast_peak_bytes and round(cost.forecast_peak_bytes / GB, 2),
            "version": version(), "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }  # fmt: skip
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
            "model": self.model, "reference": self.reference, "family": self.family, "passed": self.has_passed,
            **(self.license.columns if self.license else {"license": None, "license_source": None}),
            "checks": [finding.json() for finding in self.checks], "cost": self.cost and self.cost.json(),
            "row": self.row(), "line": self.line(),
        }  # fmt: skip


@checked
def verify(
    model: str | Path,
    *,
    family: str | None = None,
    context: Annotated[int, Bounds(32)] = 128,
    horizon: Annotated[int, Bounds(1, 1024)] = 24,
) -> Verification:
    """Check a released checkpoint on this machine.

    Checked are the files, types and tensors, the guarantees of every family, states and forecasts against the family's
    own package where it is installed, and the states against linear probes that were published. Measured are seconds
    and peak memory of loading and of one forecast. If the model does not load, the other checks are left out.

    Args:
        model: model, as in `inspect`.
        family: model family; needed where a config.json does not name it.
        context: number of steps of the longest windows.
        horizon: number of steps to forecast.

    Returns:
        The checks, the licence of the weights, and the costs.

    Raises:
        ArgumentError: the reference is wrong. It is a ValueError.
        HubError: the hub does not answer or refuses.
    """
    name = str(model)
    progress.show("looking up the files")
    source = _resolve(name, family)
    if isinstance(source, Finding):
        return Verification(name, family, _folder_of(name), checks=[source])
    license = license_of(source.folder, source.reference)
    result = Verification(name, source.family, source.reference, license)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = Checkpoint(
            source.family, source.folder, Path(scratch), context, horizon, source.options, source.reference
        )
        result.checks += _findings(checkpoint)
        has_loaded = checkpoint.is_loaded
        # Its memory is free for the process that is measured.
        del checkpoint
    if has_loaded:
        progress.show("measuring seconds and memory")
        result.cost = measure(source.family, source.folder, source.options, context=context, horizon=horizon)
    return result


def _resolve(model: str, family: str | None) -> Source | Finding:
    """Return the checkpoint of a name, or the failed check of a folder that is no whole checkpoint.

    The family of a released checkpoint is known, so that its config.json may be that of a later version. Raises
    ArgumentError for a wrong reference, HubError if the hub does not answer or refuses.
    """
    try:
        return resolve(model, family or family_of_release(model))
    except MissingOnHubError as error:
        raise ArgumentError(str(error)) from error
    except HubError:
        raise
    except ModelError as error:
        # An error of a reference to the hub that has the right form is one of the files that were downloaded.
        if not Path(_folder_of(model)).is_dir() and not hub.looks_like_hub(_folder_of(model)):
            raise ArgumentError(str(error)) from error
        return Finding(name_of(files_are_complete), "fail", demand_of(files_are_complete), str(error))


def _folder_of(model: str) -> str:
    """Return the folder of FAMILY:FOLDER or of a folder."""
    head, colon, rest = model.partition(":")
    return rest if colon and not Path(model).is_dir() and head != hub.PREFIX.rstrip(":") else model


def _findings(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Yield the checks of the files, then those of the model if it loads."""
    checks: list[Callable[[Any], str]] = [*OF_FILES, *OF_MODEL, *OF_WEIGHTS]
    for n, check in enumerate(checks):
        progress.show(check.__name__.replace("_", " "), n, len(checks))
        finding = judge(check, checkpoint.subject if check in OF_WEIGHTS else checkpoint)
        yield finding
        # Another check would repeat the same failure.
        if check in OF_FILES and finding.verdict == "fail":
            return
