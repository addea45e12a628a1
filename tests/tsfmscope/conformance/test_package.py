"""States and forecasts of small random checkpoints against the families' own packages; differences are found."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from tests.tsfmscope.models.families import EXAMPLES, FAMILIES, example_model
from tsfmscope.conformance.checkpoint import Checkpoint
from tsfmscope.conformance.package import forecasts_are_those_of_the_package, states_are_those_of_the_package
from tsfmscope.conformance.package_forecasts import PACKAGES
from tsfmscope.conformance.verdict import Finding, judge

CHECKS = (states_are_those_of_the_package, forecasts_are_those_of_the_package)
INSTALLED = [
    name
    for name, one in PACKAGES.items()
    if importlib.util.find_spec(one.network_class.partition(".")[0].partition(":")[0])
]
ABSENT = [name for name in PACKAGES if name not in INSTALLED]
# Families whose package draws samples.
SAMPLED = {"moirai"}


def checkpoint_of(family: str, tmp_path: Path, horizon: int = 12) -> Checkpoint:
    folder = tmp_path / "model"
    example_model(family).save(folder)
    return Checkpoint(family, folder, tmp_path, 48, horizon)


def compare(checkpoint: Checkpoint) -> list[Finding]:
    return [judge(check, checkpoint) for check in CHECKS]


@pytest.mark.parametrize("family", INSTALLED)
def test_a_checkpoint_has_the_states_and_forecasts_of_the_package(family: str, tmp_path: Path) -> None:
    """The horizon is longer than what most of these models forecast at once."""
    states, forecasts = compare(checkpoint_of(family, tmp_path, horizon=30))
    assert states.verdict == "pass", states.detail
    assert forecasts.verdict == ("not applicable" if family in SAMPLED else "pass"), forecasts.detail


def test_a_package_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """momentfm prints how it loads weights."""
    pytest.importorskip("momentfm")
    compare(checkpoint_of("moment", tmp_path))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("family", INSTALLED)
def test_one_changed_weight_is_found_in_states_and_forecasts(family: str, tmp_path: Path) -> None:
    checkpoint = checkpoint_of(family, tmp_path)
    model = checkpoint.subject.model
    last = [weight for weight in model.weights() if weight.stack == model.stacks[-1]][-1]
    with torch.no_grad():
        last.linear.weight += 0.05 * torch.randn(last.linear.weight.shape, generator=torch.Generator().manual_seed(0))
    states, forecasts = compare(checkpoint)
    assert states.verdict == "fail" and "differ by" in states.detail
    assert forecasts.verdict == ("not applicable" if family in SAMPLED else "fail"), forecasts.detail


@pytest.mark.parametrize("family", ["lag-llama", "totem", "visionts", *ABSENT])
def test_without_a_package_the_reason_is_given(family: str, tmp_path: Path) -> None:
    assert set(PACKAGES) <= set(FAMILIES) == set(EXAMPLES)
    for finding in compare(checkpoint_of(family, tmp_path)):
        assert finding.verdict == "not applicable"
        assert ("install it to compare" if family in PACKAGES else "no package here to compare with") in finding.detail
