"""A study more in a params file: valid, last, and every other byte as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stages.commands.new_study import add_study
from stages.config.params import ParamsError, load

ROOT = Path(__file__).parents[3]
BLOCK = {"title": "Mine: a #question?", "measures": ["weights"], "models": ["m"]}
HEAD = 'models: &all  # a comment\n  m: {family: patchtst, ref: "a/folder"}\n'
TAIL = "datasets: {sets: {nile: {}}}\nconditions: {c: {context: 100}}\nreport: {study: one}\n"
ONE = "    title: One\n    models: all\n    measures: [weights]\n"
STUDIES = {  # text, its lines up to the end of the last study, column of its names
    "a block, with comments after it": (f"studies:  # of mine\n  one:\n{ONE}\n# what follows\n\n", 5, 2),
    "wide indents, a comment on the last line": (
        "studies:\n      one:\n         title: One\n         measures: [weights]\n         models: [m]  # it\n", 5, 6,
    ),
    "a study in braces over two lines": (
        "studies:\n  one: {title: One, models: all,\n        measures: [weights]\n       }\n\n", 4, 2,
    ),
    "a list in lines": ("studies:\n  one:\n    title: One\n    models: all\n    measures:\n    - weights\n", 6, 2),
    "a folded title last": (
        "studies:\n  one:\n    models: all\n    measures: [weights]\n    title: >\n      One\n      more\n", 7, 2,
    ),
    "an alias last": (
        "studies:\n  one:\n    title: &t One\n    measures: [weights]\n    models: all\n"
        "  three:\n    measures: [weights]\n    models: all\n    title: *t\n", 9, 2,
    ),
    "studies in a title": ("studies:\n  one:\n" + ONE.replace("One", "'studies: one'"), 5, 2),
}  # fmt: skip


@pytest.mark.parametrize("last", [False, True], ids=["in the middle", "at the end of the file, without a newline"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("how", STUDIES)
def test_lines_are_added_behind_the_last_study_and_nothing_else_changes(
    tmp_path: Path, how: str, newline: str, last: bool
) -> None:
    studies, end, indent = STUDIES[how]
    text = HEAD + TAIL + studies.rstrip("\n") if last else HEAD + studies + TAIL
    path = tmp_path / "mine.yaml"
    path.write_bytes(text.replace("\n", newline).encode())
    before = load(path)
    line = add_study(path, "mine", BLOCK)
    after = path.read_bytes().decode()
    first = (HEAD + TAIL if last else HEAD).count("\n") + end
    assert line == first + 1
    lines = text.replace("\n", newline).splitlines(keepends=True)
    lines[first - 1] = lines[first - 1].removesuffix(newline) + newline
    added = after.splitlines(keepends=True)[first : first + 4]
    assert after == "".join(lines[:first] + added + lines[first:])
    assert added[0] == " " * indent + "mine:" + newline
    found = load(path)
    assert found.studies["mine"].title == BLOCK["title"]
    assert found.model_copy(update={"studies": before.studies}) == before
    assert list(found.studies) == [*before.studies, "mine"]


@pytest.mark.parametrize("profile", ["params.yaml", "params/smoke.yaml", "params/paper.yaml"])
def test_our_own_profiles_take_a_study_after_another(tmp_path: Path, profile: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text((ROOT / profile).read_text())
    before, model = load(path), next(iter(load(path).models))
    for number in range(2):
        add_study(path, f"mine-{number}", {"title": "t", "measures": ["weights"], "models": [model]})
    found = load(path)
    assert list(found.studies) == [*before.studies, "mine-0", "mine-1"]
    added = set(path.read_text().splitlines()) - set((ROOT / profile).read_text().splitlines())
    assert {line.strip().partition(":")[0] for line in added} <= {"mine-0", "mine-1", "title", "measures", "models"}


@pytest.mark.parametrize(
    ("studies", "name", "block", "wrong"),
    [
        ("studies: {one: {title: One, models: all, measures: [weights]}}\n", "mine", BLOCK, "not written as a block"),
        (STUDIES["a list in lines"][0], "one", BLOCK, "studies.one: a study has this name already"),
        (STUDIES["a list in lines"][0], "a/b", BLOCK, "invalid name 'a/b'"),
        (STUDIES["a list in lines"][0], "mine", BLOCK | {"models": ["n"]}, "studies.mine.models: unknown name 'n'"),
        (STUDIES["a list in lines"][0], "mine", BLOCK | {"pictures": "none"}, "studies.mine.pictures: unknown key"),
        (STUDIES["a list in lines"][0], "mine", BLOCK | {"measures": []}, "studies.mine.measures"),
    ],
)
def test_what_cannot_be_added_leaves_the_file_alone(
    tmp_path: Path, studies: str, name: str, block: dict[str, Any], wrong: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + studies + TAIL)
    with pytest.raises(ParamsError, match=wrong):
        add_study(path, name, block)
    assert path.read_text() == HEAD + studies + TAIL
    assert [one.name for one in tmp_path.iterdir()] == ["mine.yaml"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(title="\x85", models=["m"])
@example(title="é\u2028a\nb", models=["m"])
@given(
    title=st.text(st.characters(exclude_categories=("Cs",)), max_size=60),
    models=st.lists(st.sampled_from(["m", "n" * 50, "null", "1e3"]), min_size=1, max_size=9, unique=True),
)
def test_any_title_and_any_names_come_back_as_they_went_in(tmp_path: Path, title: str, models: list[str]) -> None:
    path = tmp_path / "mine.yaml"
    named = "".join(f'  "{name}": {{family: patchtst, ref: "a"}}\n' for name in ["n" * 50, "null", "1e3"])
    path.write_text(HEAD + named + STUDIES["a list in lines"][0] + TAIL)
    add_study(path, "mine", BLOCK | {"title": title, "models": models})
    assert load(path).studies["mine"].title == title
    assert load(path).studies["mine"].models == models
