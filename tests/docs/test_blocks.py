"""Every command and snippet of the documentation is run by a test, or says in accounts.py why not."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from docs.building import studies
from stages.planning.run_stage import read_params
from store import catalogue, query
from tests.docs import accounts
from tests.docs.blocks import FENCE, PROMPT, ROOT, SHOWN, TRIED, Block, blocks, commands, every, pages
from tsfmscope.functions import results

UNFENCED = re.compile(r"^ {4,}(?:\$ )?(?:make|python3?|dvc|tsfmscope|uv|pip|ray) [a-z-]", re.MULTILINE)
COMMANDS = [one for path in pages() for one in commands(str(path.relative_to(ROOT)))]
OWN = {"sales": {"source": "folder", "file": "sales.parquet", "horizon": 24, "domain": "retail"}}  # README names it


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Every table and view of a run, without rows."""
    path = tmp_path_factory.mktemp("docs") / "results.duckdb"
    catalogue.build(path, {})
    with results.connect(path) as opened:
        yield opened


def test_every_block_has_a_language_that_says_whether_it_is_tried() -> None:
    unknown = [
        f"{one}: {one.language}" for path in pages() for one in blocks(path) if one.language not in TRIED + SHOWN
    ]
    assert not unknown
    hidden = [
        f"{one}: a command in a block that is no console" for one in every(*SHOWN) if f"\n{PROMPT}" in f"\n{one.text}"
    ]
    assert not hidden


def test_no_command_hides_outside_a_fence() -> None:
    texts = {path.name: FENCE.sub("", path.read_text("utf-8")) for path in pages()}
    found = [f"{name}: {line}" for name, text in texts.items() for line in UNFENCED.findall(text)]
    assert not found


def test_every_command_is_run_here_or_is_accounted_for() -> None:
    elsewhere = [one for one in COMMANDS if not accounts.here(one.page)]
    missing = [f"{one.page}: {one.line}" for one in elsewhere if not accounts.elsewhere(one.page, one.line)]
    assert not missing, "name them in tests/docs/accounts.py"
    for page, beginnings in accounts.NOT_RUN.items():
        for beginning in beginnings:
            assert any(one.page == page and one.line.startswith(beginning) for one in COMMANDS), (page, beginning)


def test_every_python_block_is_run_here() -> None:
    assert {one.page for one in every("python")} <= {*accounts.IN_ORDER, accounts.TUTORIAL, "CONTRIBUTING.md"}
    assert not every("sh", "bash"), "write commands as console blocks, with a prompt"


@pytest.mark.parametrize(
    "block", [pytest.param(one, id=str(one)) for one in every("yaml") if one.page != "CONTRIBUTING.md"]
)
def test_a_block_of_params_is_taken_beside_the_default(block: Block, tmp_path: Path) -> None:
    params = yaml.safe_load((ROOT / "params" / "full.yaml").read_text())
    params["datasets"]["sets"] |= OWN
    given = yaml.safe_load(block.text)
    merge(params, given)
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(params, sort_keys=False))
    read_params(file)
    assert given


@pytest.mark.parametrize("block", [pytest.param(one, id=str(one)) for one in every("sql")])
def test_sql_of_a_page_is_answered(connection: duckdb.DuckDBPyConnection, block: Block) -> None:
    assert query.query(connection, block.text).num_columns > 1


def test_the_sql_behind_every_picture_is_answered(connection: duckdb.DuckDBPyConnection) -> None:
    for page in studies.every_page(ROOT):
        asked = studies.sqls(page)
        assert asked, page.name
        for _, sql in asked:
            assert query.query(connection, sql).num_columns >= 1, page.name


def test_every_function_and_view_that_the_page_of_the_science_names_is_there() -> None:
    text = (ROOT / "docs/science.md").read_text("utf-8")
    named = set(re.findall(r"`(tsfmscope(?:\.\w+)+)`", text))
    assert len(named) > 25
    missing = [name for name in sorted(named) if not defined(name)]
    assert not missing
    listed = {name for found in re.findall(r"views? ((?:`\w+`(?:, )?)+)", text) for name in re.findall(r"\w+", found)}
    assert len(listed) > 10
    assert listed <= {path.stem for path in (ROOT / "store/sql/answers").glob("*.sql")}


def defined(name: str) -> bool:
    """Whether a dotted name is a module, or a function or class of one; nothing is imported."""
    parts = name.split(".")
    if ROOT.joinpath(*parts).with_suffix(".py").is_file():
        return True
    file = ROOT.joinpath(*parts[:-1]).with_suffix(".py")
    return file.is_file() and re.search(rf"^(?:def|class) {parts[-1]}\b", file.read_text(), re.MULTILINE) is not None


def test_every_study_has_its_page_and_every_note_and_picture_its_study() -> None:
    made = studies.pages(ROOT)
    names = {path.removeprefix("studies/").removesuffix(".md") for path in made} - {"index"}
    for file in studies.PROFILES.values():
        assert set(yaml.safe_load((ROOT / file).read_text())["studies"]) <= names
    notes = yaml.safe_load((ROOT / "docs/studies/notes.yaml").read_text())["studies"]
    assert set(notes) == names
    pictures = {path.stem for path in (ROOT / "docs/results").glob("*/*.png")}
    assert pictures <= names
    assert sum(path.stat().st_size for path in (ROOT / "docs/results").glob("*/*.png")) < 2.4e6


def test_the_page_of_a_study_shows_the_caption_next_to_its_picture(tmp_path: Path) -> None:
    page = next(page for page in studies.every_page(ROOT) if page.name == "isotropy")
    (tmp_path / "docs").mkdir()
    shutil.copytree(ROOT / "docs/studies", tmp_path / "docs/studies")
    shutil.copytree(ROOT / "params", tmp_path / "params")
    folder = tmp_path / "docs/results/full"
    folder.mkdir(parents=True)
    (folder / "isotropy.txt").write_text("|ζ′| < 1_0 *.\n\nSecond: & more.\n", encoding="utf-8")
    assert studies.captions(page, tmp_path) == []  # without a picture there is none
    (folder / "isotropy.png").touch()
    text = studies.pages(tmp_path)["studies/isotropy.md"]
    picture, _, rest = text.partition("](../results/full/isotropy.png)\n\n")
    assert picture and rest.startswith(
        '<p class="caption">|ζ′| &lt; 1_0 *.</p>\n\n<p class="caption">Second: &amp; more.</p>\n'
    )
    (folder / "isotropy.txt").unlink()
    assert "caption" not in studies.pages(tmp_path)["studies/isotropy.md"]


def merge(into: dict[str, Any], given: dict[str, Any]) -> None:
    """Put given keys into a block, blocks inside it likewise."""
    for key, value in given.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value
