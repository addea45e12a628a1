"""Text of SQL results: nothing lost or mislabelled, nothing that commands a terminal or breaks a table."""

from __future__ import annotations

import csv
import io
import json
import random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import query, render
from tests.tsfmscope.cli.test_output import shown
from tsfmscope.errors import UNPRINTABLE, printable

FORMS = ("csv", "markdown")
TWICE = "select 1 as a, 2 as a, 3 as b, 4 as A"


def asked(sql: str) -> pa.Table:
    with duckdb.connect() as connection:
        return query.query(connection, sql)


def cells(rows: pa.Table) -> list[list[str]]:
    """Cells of a terminal."""
    return [list(map(render.short_text, row)) for row in render.python_rows(rows)]


def split(text: str, form: str) -> list[list[str]]:
    """Header and rows of csv or markdown text."""
    if form == "csv":
        return list(csv.reader(io.StringIO(text)))
    lines = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in text.split("\n")]
    return [lines[0], *lines[2:]]


@pytest.mark.parametrize("form", FORMS)
def test_a_repeated_column_name_loses_no_value(form: str) -> None:
    assert split(render.render(asked(TWICE), form), form) == [["a", "a", "b", "A"], ["1", "2", "3", "4"]]


def test_a_repeated_column_name_is_numbered_in_json_and_parquet() -> None:
    rows = asked("select 1 as a, 2 as a, 3 as a_1, 4 as a")
    expected = {"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}
    assert json.loads(render.render(rows, "json")) == [expected]
    assert pq.read_table(pa.BufferReader(render.parquet(rows))).to_pylist() == [expected]


@given(st.lists(st.sampled_from(["a", "a_1", "a_2", "a_1_1", "b"]), max_size=9))
def test_numbered_names_are_unique_and_first_ones_stay(names: list[str]) -> None:
    unique = render.unique_names(names)
    assert len(set(unique)) == len(names)
    for place, name in enumerate(names):
        assert unique[place] == name if name not in names[:place] else unique[place].startswith(f"{name}_")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("'infinity'::date", "infinity"),
        ("'-infinity'::timestamp", "-infinity"),
        ("date '5000000-01-01'", "5000000-01-01"),
        ("[date 'infinity']", "[infinity]"),
        ("interval 3 month", "3 months"),
        (r"'\x01a'::blob", r"\x01a"),
        ("time '01:02:03'", "01:02:03"),
        ("date '2024-02-03'", "2024-02-03"),
        ("1.50::decimal(9, 2)", "1.50"),
        ("170141183460469231731687303715884105727::hugeint", "170141183460469231731687303715884105727"),
        ("340282366920938463463374607431768211455::uhugeint", "340282366920938463463374607431768211455"),
        ("[340282366920938463463374607431768211455::uhugeint]", "[340282366920938463463374607431768211455]"),
        ("'12:34:56+02'::timetz", "12:34:56+02"),
        ("{'\"BIT': '12:34:56+02'::timetz}", "{'\"BIT': '12:34:56+02'}"),
        ("'101'::bit", "101"),
        ("1::variant", "1"),
        ("'POINT (1 2)'::geometry", "POINT (1 2)"),
        ("'BIT'::enum('BIT', 'it''s')", "BIT"),
    ],
)
@pytest.mark.parametrize("form", [*FORMS, "json", "table"])
def test_values_without_a_python_type_are_duckdb_s_text(value: str, text: str, form: str) -> None:
    rows = asked(f"select {value} as x")
    if form == "json":
        assert json.loads(render.render(rows, form)) == [{"x": text}]
    elif form == "table":
        assert cells(rows) == [[text]]
    else:
        assert split(render.render(rows, form), form)[1] == [text.replace("\\", "\\\\") if form == "markdown" else text]


HOSTILE = "red\x1b[31m \x1b]0;title\x07 \x9b2J \u202eover\x7f"


def test_no_escape_sequence_of_a_value_or_name_reaches_the_terminal() -> None:
    rows = pa.table({HOSTILE: [HOSTILE], "list": [[HOSTILE]], "record": [{HOSTILE: HOSTILE}]})
    texts = [render.render(rows, form, terminal=True) for form in (*FORMS, "json")]
    for text in [*texts, shown(rows), shown(rows, terminal=False)]:
        assert not set(UNPRINTABLE.findall(text)) - {"\n"}
        assert r"\x1b[31m" in text or r"\u001b[31m" in text


def test_csv_for_a_program_and_json_keep_the_value_itself() -> None:
    rows = pa.table({"x": [HOSTILE]})
    assert split(render.render(rows, "csv"), "csv")[1] == [HOSTILE]
    assert json.loads(render.render(rows, "json")) == [{"x": HOSTILE}]


def test_a_line_break_stays_inside_its_markdown_cell() -> None:
    rows = pa.table({"a\nb": ["one\ntwo\r\nthree", "bar | back\\slash"], "n": [1, 2]})
    assert render.render(rows, "markdown").split("\n") == [
        "| a<br>b | n |",
        "| --- | --- |",
        "| one<br>two<br>three | 1 |",
        "| bar \\| back\\\\slash | 2 |",
    ]


@given(st.text())
def test_printable_text_has_no_control_character_and_keeps_the_rest(text: str) -> None:
    made = printable(text, keep="\n")
    assert not set(UNPRINTABLE.findall(made)) - {"\n"}
    if not UNPRINTABLE.search(text):
        assert made == text


EXPRESSIONS = (
    "42", "-1.5::double", "'nan'::double", "'infinity'::double", "null", "true", "'text'", "''", "E'a\\nb'", "'|'",
    "'\"'", "','", "E'\\x1b[0m'", "date '2024-01-01'", "'infinity'::date", "timestamp '2024-01-01 01:02:03'",
    "'-infinity'::timestamp", "interval 1 day", "'ab'::blob", "[1, null]", "[]", "{'x': 1}", "{'x': date 'infinity'}",
    "map {'k': 1}", "1.10::decimal(5, 2)", "'1'::bit", "union_value(a := 1)", "time '01:02'", "uuid()", "[[1], [2]]",
    "'a'::enum('a', 'b')", "1::hugeint",
)  # fmt: skip
NAMES = ("a", "a", "A", "a_1", "b c", '"', "|", "\n", "x" * 80, "", "é")


@pytest.fixture(scope="module")
def alone() -> dict[str, str]:
    """Expression -> its text where it is the only column."""
    texts = {one: split(render.render(asked(f"select {one} as x"), "csv"), "csv")[1] for one in EXPRESSIONS}
    return {one: text[0] if text else "" for one, text in texts.items()}


@pytest.mark.parametrize("seed", range(40))
def test_results_of_any_shape_keep_every_column_in_its_place(seed: int, alone: dict[str, str]) -> None:
    draw = random.Random(seed)
    width, height = draw.randint(1, 12), draw.choice([0, 1, 3])
    columns = [draw.choice(EXPRESSIONS) for _ in range(width)]
    names = [draw.choice(NAMES).replace('"', '""') or "n" for _ in columns]
    listed = ", ".join(f'{column} as "{name}"' for column, name in zip(columns, names, strict=True))
    rows = asked(f"select {listed} from range({height})")
    table = split(render.render(rows, "csv"), "csv")
    assert (len(table), {len(line) for line in table}) == (height + 1, {width})
    assert render.render(rows, "markdown").count("\n") == height + 1
    objects = json.loads(render.render(rows, "json"))
    assert [len(one) for one in objects] == [width] * height
    assert [len(line) for line in cells(rows)] == [width] * height
    for line in table[1:]:
        for place, column in enumerate(columns):
            assert "uuid" in column or line[place] == alone[column]
    shown(rows)


@pytest.mark.parametrize("form", FORMS)
def test_infinite_and_missing_numbers_are_told_from_null(form: str) -> None:
    rows = asked("select 'inf'::double as a, 'nan'::double as b, null as c")
    assert split(render.render(rows, form) + (" " if form == "csv" else ""), form)[1][:2] == ["inf", "nan"]


@pytest.mark.parametrize(("value", "text"), [("interval 3 day", "3 days"), ("union_value(k := 1)", "1")])
def test_a_type_that_parquet_lacks_is_text(value: str, text: str) -> None:
    written = render.parquet(asked(f"select {value} as x"))
    assert pq.read_table(pa.BufferReader(written)).to_pylist() == [{"x": text}]


def test_values_of_every_type_of_duckdb_are_shown() -> None:
    rows = asked("select * from test_all_types()")
    objects = json.loads(render.render(rows, "json"))
    assert len(objects) == 3
    assert objects[1]["uhugeint"] == str(2**128 - 1)
    assert objects[1]["time_tz"] == "24:00:00-15:59:59"
    assert objects[1]["bit"] == "10101"
    assert [len(line) for line in cells(rows)] == [len(objects[0])] * 3
    # Two columns of one name, of which only the second is cast.
    twice = asked("select 1 as a, '101'::bit as a")
    assert (twice.column_names, cells(twice)) == (["a", "a"], [["1", "101"]])
