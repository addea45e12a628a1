"""Extras: the table of modules agrees with pyproject.toml, and a missing module is one line with its command."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tsfmscope import errors
from tsfmscope.extras import EXTRAS, WITHOUT_DEPENDENCIES

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_every_module_of_an_extra_is_installed_by_it_and_by_no_other() -> None:
    distributions = importlib.metadata.packages_distributions()
    extras = {
        Requirement(text).name: extra for extra, texts in PROJECT["optional-dependencies"].items() for text in texts
    }
    core = {Requirement(text).name for text in PROJECT["dependencies"]}
    for module, extra in EXTRAS.items():
        if module not in WITHOUT_DEPENDENCIES:
            (name,) = {name.lower() for name in distributions[module]}
            assert extras[name] == extra and name not in core


@pytest.mark.parametrize(("module", "words"), [
    ("ray", "module 'ray' is missing; install it with `pip install 'tsfmscope[pipeline]'`"),
    ("altair.vegalite", "install it with `pip install 'tsfmscope[report]'`"),
    ("uni2ts.model", "`pip install 'tsfmscope[moirai]'`, then `pip install --no-deps uni2ts`"),
])  # fmt: skip
def test_a_missing_module_is_one_line(module: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = ModuleNotFoundError(f"No module named {module!r}", name=module)
    assert errors.report_error(error, "tsfmscope") == errors.FAILED
    assert words in capsys.readouterr().err


def test_another_missing_module_is_a_fault_of_the_program() -> None:
    with pytest.raises(ModuleNotFoundError):
        errors.report_error(ModuleNotFoundError("No module named 'tsfmscope.nowhere'", name="tsfmscope.nowhere"))
