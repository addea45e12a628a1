"""Docstrings and comments keep the rules of clear English that a machine can check."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("stages", "tasks", "store", "bench", "docs")
# In tsfmscope, the folders stages, tasks and store are links.
FILES = sorted([*(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")), *(ROOT / "tsfmscope").glob("*.py")])
MOST_WORDS = 20
# Words that leave the reader without a subject: a docstring begins with a verb or with a noun phrase.
NO_BEGINNING = re.compile(r"(Of|That|Those|The same|What|As of)\b")
# Pictures for things that have a name of their own in the field.
METAPHORS = re.compile(r"\b(shelf|shelves|crew|nursery|diary|mend(s|ed)?|fond|told|tamed?|beaten)\b", re.IGNORECASE)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring of a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every comment of a file."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def complaints(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield one sentence for each docstring or comment that breaks a rule."""
    name = path.relative_to(root)
    for line, text in docstrings(path):
        words = len(text.partition("\n")[0].split())
        if words > MOST_WORDS:
            yield f"{name}:{line}: the first line has {words} words, expected at most {MOST_WORDS}"
        if found := NO_BEGINNING.match(text):
            yield f"{name}:{line}: begins with {found[0]!r}, expected a verb or a noun phrase"
    for line, text in (*docstrings(path), *comments(path)):
        for found in METAPHORS.finditer(text):
            yield f"{name}:{line}: the word {found[0]!r}; use the field's term"


@pytest.mark.parametrize("folder", [*FOLDERS, "tsfmscope"])
def test_docstrings_and_comments_are_plain(folder: str) -> None:
    found = [one for path in FILES if path.relative_to(ROOT).parts[0] == folder for one in complaints(path)]
    assert found == []


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("What is left of a cell.", "begins with 'What'"),
        ("Of a cell.", "begins with 'Of'"),
        ("Those that are asked for.", "begins with 'Those'"),
        ("Return the crew.", "the word 'crew'"),
        ("Return " + "one " * 25, "26 words"),
    ],
)
def test_the_rules_find_what_they_are_for(tmp_path: Path, docstring: str, expected: str) -> None:
    file = tmp_path / "made_up.py"
    file.write_text(f'"""{docstring}"""\n')
    assert expected in "\n".join(complaints(file, tmp_path))
