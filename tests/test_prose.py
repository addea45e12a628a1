"""Docstrings, comments, messages, help texts and names keep the rules of clear English that a machine can check.

conventions: docstrings begin with a verb or noun phrase, functions are verbs with an object, messages stand alone.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.schema import MEANINGS, OWN, TABLES

ROOT = Path(__file__).parents[1]
SQL_FILES = sorted((ROOT / "store" / "sql").rglob("*.sql"))
FOLDERS = ("tsfmscope", "stages", "tasks", "store", "bench", "docs")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
MOST_WORDS = 20
# Words that leave the reader without a subject: a text begins with a verb or with a noun phrase.
NO_BEGINNING = re.compile(r"(Of|That|Those|The same|What|As of)\b")
# Pictures for things that have a name of their own in the field.
METAPHORS = re.compile(r"\b(shelf|shelves|crew|nursery|diary|mend(s|ed)?|fond|told|tamed?|beaten)\b", re.IGNORECASE)
# Names that say nothing of the object: participles and pronouns without a noun.
BARE_NAMES = {
    "apart", "asked", "beaten", "beside", "chosen", "done", "drawn", "each", "every", "found", "given", "given_up",
    "gone", "held", "here", "how", "kept", "known", "left", "less", "lost", "made", "mine", "moved", "none", "one",
    "other", "picked", "place", "placed", "said", "seen", "sent", "set_aside", "shown", "some", "taken", "theirs",
    "there", "told", "used", "wanted", "what", "where", "whole", "within",
}  # fmt: skip
# Exceptions by file: columns of a table, keys of params.yaml, and usual terms of linear algebra.
ALLOWED_NAMES = {
    "tsfmscope/compression/candidates.py": {"left"},
    "tsfmscope/geometry/heads.py": {"left"},
    "tsfmscope/models/common/layers.py": {"left"},
    "tsfmscope/ranks/spectrum.py": {"what"},
    "tsfmscope/ranks/tall.py": {"other"},
    "tsfmscope/theory/experiments.py": {"kept", "left"},
}
# Callables whose text arguments a user reads.
PRINTING = {"print", "echo", "secho"}


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every comment of a file."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def literal_text(node: ast.expr) -> str:
    """Return the text of a string or f-string, with {} for each inserted value; "" for other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal_text(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return literal_text(node.left) + literal_text(node.right)
    return ""


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the errors that are raised, of printed lines, and of help texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            texts = list(node.exc.args)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            texts = list(node.args) if name in PRINTING else []
            texts += [keyword.value for keyword in node.keywords if keyword.arg == "help"]
        else:
            continue
        for text in texts:
            if literal := literal_text(text):
                yield text.lineno, literal


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of every function, method and parameter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def text_complaints(text: str) -> Iterator[str]:
    """Yield one sentence for each rule that a text breaks, docstring or message."""
    if match := NO_BEGINNING.match(text):
        yield f"begins with {match[0]!r}, expected a verb or a noun phrase"
    for match in METAPHORS.finditer(text):
        yield f"the word {match[0]!r}; use the field's term"


def docstring_complaints(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield one sentence for each docstring or comment of a file that breaks a rule."""
    name = path.relative_to(root)
    for line, text in docstrings(ast.parse(path.read_text("utf-8"))):
        words = len(text.partition("\n")[0].split())
        if words > MOST_WORDS:
            yield f"{name}:{line}: the first line has {words} words, expected at most {MOST_WORDS}"
        for complaint in text_complaints(text):
            yield f"{name}:{line}: {complaint}"
    for line, text in comments(path):
        for match in METAPHORS.finditer(text):
            yield f"{name}:{line}: the word {match[0]!r}; use the field's term"


def message_complaints(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield one sentence for each error, printed line or help text of a file that breaks a rule."""
    for line, text in messages(ast.parse(path.read_text("utf-8"))):
        for complaint in text_complaints(text):
            yield f"{path.relative_to(root)}:{line}: {complaint}"


def name_complaints(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield one sentence for each function, method or parameter of a file whose name has no noun."""
    name = path.relative_to(root).as_posix()
    for line, identifier in names(ast.parse(path.read_text("utf-8"))):
        bare = identifier.strip("_")
        if bare in BARE_NAMES and bare not in ALLOWED_NAMES.get(name, ()):
            yield f"{name}:{line}: the name {identifier!r}; name the object, as a noun or a verb with an object"


@pytest.mark.parametrize("complain", [docstring_complaints, message_complaints, name_complaints])
def test_docstrings_comments_messages_and_names_are_plain(complain: Callable[[Path], Iterator[str]]) -> None:
    assert [complaint for path in FILES for complaint in complain(path)] == []


def test_the_first_line_of_every_query_is_plain() -> None:
    """A question may begin with "What"; a statement may not."""
    first_lines = {path: path.read_text("utf-8").partition("\n")[0].removeprefix("-- ") for path in SQL_FILES}
    assert [
        f"{path.relative_to(ROOT)}:1: {complaint}"
        for path, text in first_lines.items()
        for complaint in text_complaints("" if text.startswith("What ") and text.endswith("?") else text)
    ] == []


def test_the_meanings_of_columns_are_plain() -> None:
    of_tables = {f"{name}.{column.name}": column.meaning for name, table in TABLES.items() for column in table.columns}
    of_views = {f"{view}.{name}": text for view, columns in OWN.items() for name, text in columns.items()}
    meanings = of_tables | of_views | {f"*.{name}": text for name, text in MEANINGS.items()}
    assert [
        f"{name}: {complaint}" for name, text in meanings.items() for complaint in text_complaints(text.capitalize())
    ] == []


@pytest.mark.parametrize(("complain", "code", "expected"), [
    (docstring_complaints, '"""What is left of a cell."""', "begins with 'What'"),
    (docstring_complaints, '"""Return the crew."""', "the word 'crew'"),
    (docstring_complaints, f'"""Return {"one " * 25}"""', "26 words"),
    (message_complaints, 'raise ValueError("x: " + f"got {value}; mend it")', "1: the word 'mend'"),
    (message_complaints, 'print(f"That of {name}")', "begins with 'That'"),
    (message_complaints, 'typer.Option(4, help="Of a model that is a folder.")', "begins with 'Of'"),
    (message_complaints, 'raise ValueError("of a model")', None),
    (name_complaints, "def _kept(rng): ...", "'_kept'"),
    (name_complaints, "key = lambda one: one", "'one'"),
    (name_complaints, "def draw_windows(rng): ...", None),
])  # fmt: skip
def test_a_rule_finds_what_it_is_for(
    tmp_path: Path, complain: Callable[[Path, Path], Iterator[str]], code: str, expected: str | None
) -> None:
    file = tmp_path / "made_up.py"
    file.write_text(code + "\n")
    complaints = "\n".join(complain(file, tmp_path))
    assert complaints == "" if expected is None else expected in complaints
