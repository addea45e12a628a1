"""The commands and the Python of the documentation, run in the order of its pages on the smoke run."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from tests.docs.accounts import IN_ORDER, TUTORIAL, elsewhere, words_only
from tests.docs.blocks import ROOT, Block, blocks, commands
from tests.docs.test_blocks import merge
from tests.e2e.checkout import Checkout
from tsfmscope.cli.app import app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
RAN: set[str] = set()  # in the scene: what two pages name is run once
READY = ".venv/.ready"  # what `make` would set up; the suite runs in such an environment


@pytest.fixture(scope="module")
def scene(smoke: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of the smoke run with the files that pages speak of."""
    made = smoke.copy(tmp_path_factory.mktemp("docs") / "repository")
    shutil.copytree(ROOT / "params", made.folder / "params", dirs_exist_ok=True)
    days = pd.date_range("2024-01-01", periods=180)
    pd.DataFrame({"ds": days, "y": [day.dayofyear % 7 + day.day / 10 for day in days]}).to_csv(
        made.folder / "mine.csv", index=False
    )
    (made.folder / "question.sql").write_text("select study, measure, spearman from correlation")
    return made


def command(line: str) -> str:
    """A line without its comment."""
    return shlex.join(shlex.split(line, comments=True))


def run(made: Checkout, line: str) -> str:
    """What a command prints; ours run in this process, which has their packages, others in a shell."""
    words = shlex.split(line, comments=True)
    if words[:1] == ["tsfmscope"]:
        return invoked(made, words[1:])
    shell = re.sub(r"^make ", f"make -o {READY} ", line.partition(" #")[0])
    if " profile NAME=" in shell:
        # the checkout's params.yaml is the suite's own, which git does not have
        shell += " FORCE=1"
    return made.run("bash", "-c", shell).stdout


def invoked(made: Checkout, words: list[str]) -> str:
    with at(made.folder):
        done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, (words, done.output)
    return done.output


@contextlib.contextmanager
def at(folder: Path) -> Iterator[None]:
    """In this folder, on a terminal that is wide enough."""
    before = {"COLUMNS": os.environ.get("COLUMNS")}
    os.environ["COLUMNS"] = "160"
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.mark.parametrize("page", IN_ORDER)
def test_the_commands_and_snippets_of_a_page_run_in_its_order(scene: Checkout, page: str) -> None:
    for block in blocks(ROOT / page):
        if block.language == "python":
            python(scene, block)
        if block.language == "yaml" and page == "docs/own_data.md":
            minis = {name: {} for name in ("chronos-bolt-mini", "chronos-t5-mini")}  # the default profile has them
            scene.params(partial(merge, given=yaml.safe_load(block.text) | {"models": minis}))
        for one in commands(block):
            if elsewhere(page, one.line) is None and command(one.line) not in RAN:
                run(scene, one.line)
                RAN.add(command(one.line))
        if page == "docs/compression.md" and "bolt-0.25" in block.text and block.language == "python":
            stands_for_the_models_of_params(scene)


def python(made: Checkout, block: Block) -> None:
    """Run in this process: torch is loaded once for all pages."""
    with at(made.folder):
        exec(compile(block.text, str(block), "exec"), {"__name__": "docs"})


def stands_for_the_models_of_params(made: Checkout) -> None:
    """`narrow`, `dense` and `bolt-onnx` of a folder; test_exporting.py exports them by their names in params.yaml."""
    for words in ("bolt-0.25 narrow", "bolt-0.25 dense --dense", "bolt-0.25 bolt-onnx --onnx"):
        run(made, f"tsfmscope export {words} --family chronos-bolt")


def test_the_tutorial_runs_from_top_to_bottom_and_prints_what_it_shows(smoke: Checkout, tmp_path: Path) -> None:
    made = smoke.copy(tmp_path / "repository")
    (made.folder / "params").mkdir(exist_ok=True)
    default, small = ROOT / "params.yaml", ROOT / "params" / "smoke.yaml"
    shutil.copy(small, made.folder / "params" / "smoke.yaml")
    shutil.copy(default, made.folder / "params.yaml")
    shown = 0
    for one in commands(TUTORIAL):
        if elsewhere(TUTORIAL, one.line) is not None:
            continue
        printed = {words_only(line) for line in run(made, one.line).splitlines()}
        for line in one.shown:
            assert words_only(line) in printed, (one.line, line, sorted(printed))
        shown += len(one.shown)
    assert shown > 20
    rows = made.sql("select distinct model from weight_ranks where study = 'queries'")
    assert {row["model"] for row in rows} == {"chronos-t5-nano", "chronos-bolt-nano"}
    assert (made.folder / "data/figures/queries.png").is_file()
