"""Every family keeps what the conformance suite demands, and every check fails where a family does not."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.tsfmscope.conformance.broken import FAULTS, LevelsReversed, PatchLine
from tests.tsfmscope.models.families import CLASSES
from tsfmscope.cli.app import app
from tsfmscope.conformance import CHECKS, answers, findings
from tsfmscope.conformance.subject import Failed, Subject, demand_of, distance, judge, name_of
from tsfmscope.models import registry
from tsfmscope.models.base import Family
from tsfmscope.models.patchtst import PatchTST
from tsfmscope.models.registry import family_class

CLAIMS = "claims-are-kept"  # of plain q·k or a softmax head: none where keys are rotated or normed
ITEMS = {
    "rows-are-in-time-order",
    "forecasts-keep-the-unit-of-the-series",
    "forecasts-depend-on-the-context",
    "padding-changes-nothing",
    "missing-steps-are-no-observation",
    "states-are-finite",
    "the-future-changes-no-forecast",
    "quantiles-are-in-order",
    "seeds-decide-a-forecast",
    "forecasts-do-not-depend-on-the-batch",
}
WHOLE = "the-future-changes-no-state-before-it"  # an item has no future


def not_applicable(cls: type[Family]) -> set[str]:
    """The checks of what a family does not claim to have; all others must pass."""
    checks = set() if cls.plain_attention or getattr(cls, "softmax_head", False) else {CLAIMS}
    if cls.modality != "series":
        checks |= ITEMS
    if cls.modality in ("image", "table"):
        checks.add(WHOLE)
    if cls.attention_layers.__func__ is Family.attention_layers.__func__:
        checks.add("attention-is-written-as-it-was-read")
    return checks


def subject_of(cls: Any, folder: Path, name: str = "patch-line") -> Subject:
    config = cls.example or family_class("patchtst").example
    return Subject(name, cls.new(config, seed=1), config, folder)


@pytest.mark.parametrize("name", CLASSES)
def test_a_family_of_ours_keeps_what_every_family_keeps(name: str, tmp_path: Path) -> None:
    found = list(findings(Subject.of(name, tmp_path)))
    assert [one for one in found if one.verdict == "fail"] == []
    assert {one.check for one in found if one.verdict == "not applicable"} == not_applicable(CLASSES[name])


def test_the_example_of_the_docs_keeps_it_too(tmp_path: Path) -> None:
    found = list(findings(subject_of(PatchLine, tmp_path)))
    assert {one.check for one in found if one.verdict != "pass"} == {"attention-is-written-as-it-was-read"}
    assert [one.verdict for one in found].count("fail") == 0


@pytest.mark.parametrize(
    ("check", "cls", "words"), FAULTS, ids=[f"{cls.__name__}-{check.__name__}" for check, cls, _ in FAULTS]
)
def test_a_check_fails_on_a_family_that_is_broken_so(check: Any, cls: Any, words: str, tmp_path: Path) -> None:
    found = judge(check, subject_of(cls, tmp_path))
    assert found.verdict == "fail", found.detail
    assert re.search(words, found.detail), found.detail


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_every_check_says_what_it_demands_and_has_a_family_that_fails_it(check: Any) -> None:
    assert check in {one for one, _, _ in FAULTS}
    assert demand_of(check).endswith(".")


def test_a_trained_direct_head_may_cross_in_one_of_a_hundred(tmp_path: Path) -> None:
    trained = dataclasses.replace(subject_of(LevelsReversed, tmp_path), config=None)
    found = judge(answers.quantiles_are_in_order, trained)
    assert (found.verdict, "100% of quantiles" in found.detail) == ("fail", True)


def test_an_untrained_direct_head_may_cross_at_will_if_training_puts_it_in_order(tmp_path: Path) -> None:
    class Unsorted(PatchLine):
        """One line to every quantile, and no sort."""

        @classmethod
        def new(cls, config: Any, *, seed: int) -> Any:
            model = super().new(config, seed=seed)
            model.network.__class__ = type("UnsortedNetwork", (type(model.network),), {"forward": _unsorted})
            return model

    found = judge(answers.quantiles_are_in_order, subject_of(Unsorted, tmp_path))
    assert found.verdict == "pass", found.detail
    assert "are out of order before training" in found.detail
    reversed_levels = type("UnsortedReversed", (LevelsReversed, Unsorted), {})
    found = judge(answers.quantiles_are_in_order, subject_of(reversed_levels, tmp_path / "reversed"))
    assert found.verdict == "fail", found.detail


def _unsorted(network: Any, patches: Any, padding: Any) -> Any:
    return network.head(network.encode(patches, padding)[:, -1]).unflatten(-1, (9, -1))


@pytest.mark.parametrize(
    ("found", "expected", "apart"),
    [
        (np.zeros(3), np.zeros(3), 0.0),
        (np.array([1.5]), np.array([1.0]), 0.5),
        (np.array([0.25, 0.0]), np.array([0.0, 0.0]), 0.25),  # never over less than 1
        (np.array([110.0, 1.0]), np.array([100.0, 1.0]), 0.1),
        (np.zeros((0, 4)), np.zeros((0, 4)), 0.0),
    ],
)
def test_distance_is_the_largest_difference_over_the_largest_number(
    found: np.ndarray, expected: np.ndarray, apart: float
) -> None:
    assert distance(found, expected) == pytest.approx(apart)
    with pytest.raises(Failed, match="got shape"):
        distance(found, np.zeros(99))


def test_a_state_that_is_not_a_number_is_far_from_every_number() -> None:
    with pytest.raises(Failed, match="not a number"):
        distance(np.array([np.nan, 1.0]), np.array([0.0, 1.0]))


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """Makes a class a family that an installed package adds."""

    def add(name: str, cls: Any) -> None:
        module = ModuleType("added_family")
        module.Added = cls  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "added_family", module)
        entry = EntryPoint(name, "added_family:Added", registry.GROUP)
        monkeypatch.setattr(registry, "plugin_entries", lambda: {name: (entry,)})

    return add


def test_the_command_exits_0_where_all_is_kept_and_1_where_not(named: Any) -> None:
    named("patch-line", PatchLine)
    done = CliRunner().invoke(app, ["check-family", "patch-line"])
    assert done.exit_code == 0, done.output
    assert "37 pass, 0 fail, 1 not applicable" in done.output
    named("patch-line", type("Deaf", (PatchLine,), {"direct_quantiles": False}))
    done = CliRunner().invoke(app, ["check-family", "patch-line", "--json"])
    assert done.exit_code == 1
    found = {one["check"]: one for one in json.loads(done.stdout)["checks"]}
    assert len(found) == len(CHECKS)
    assert {name for name, one in found.items() if one["verdict"] == "fail"} == {"seeds-decide-a-forecast"}
    assert found["seeds-decide-a-forecast"]["detail"] == "other seeds draw the same samples"


def test_the_command_takes_a_checkpoint_and_a_config(named: Any, tmp_path: Path) -> None:
    named("patch-line", PatchLine)
    PatchLine.new({**PatchLine.example, "blocks": 1}, seed=0).save(tmp_path)
    done = CliRunner().invoke(app, ["check-family", "patch-line", "--checkpoint", str(tmp_path), "--json"])
    seen = {one["check"]: one for one in json.loads(done.stdout)["checks"]}
    assert done.exit_code == 0, done.output
    assert seen["layers-come-in-order"]["detail"] == "encoder: 1 blocks"
    assert "no config for `new`" in seen["a-seed-decides-the-weights"]["detail"]
    config = json.dumps({**PatchLine.example, "width": 6})
    done = CliRunner().invoke(app, ["check-family", "patch-line", "--config", config, "--json"])
    assert "width 6" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["patch-lin"], "unknown family 'patch-lin'; did you mean patch-line"),
        (["patch-line", "--checkpoint", "nowhere"], "nowhere: no such folder"),
        (["patch-line", "--config", '{"widht": 1}'], r"got unknown keys \['widht'\]"),
        (["patch-line", "--config", "{"], "Expecting property name"),
        (["bare"], "config: keys .* are missing"),
    ],
)
def test_the_command_exits_2_where_there_is_no_model(named: Any, arguments: list[str], words: str) -> None:
    cls = type("Bare", (PatchTST,), {"name": "bare", "example": {}}) if arguments == ["bare"] else PatchLine
    named("bare" if arguments == ["bare"] else "patch-line", cls)
    done = CliRunner().invoke(app, ["check-family", *arguments])
    assert done.exit_code == 2
    assert re.search(words, done.output), done.output
