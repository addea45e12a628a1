"""What went wrong, in a line."""

from __future__ import annotations

import traceback

import pytest

from store.stage_outputs import summarize_error


def raised(error: Exception) -> str:
    try:
        assert isinstance(error, KeyError), error.args or None
        raise error
    except Exception as caught:
        return "".join(traceback.format_exception(caught))


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("no such file", "no such file"),
        ("\n  first \nsecond", "first"),
        (
            "Validation error for field 'num_heads':\n    got 'four'\n  see there",
            "Validation error for field 'num_heads': got 'four'",
        ),
        ("ends in a colon:", "ends in a colon:"),
    ],
)
def test_it_is_the_first_line_of_the_message_and_what_a_colon_promises(message: str, line: str) -> None:
    assert summarize_error(message, "whatever") == line


def test_an_error_without_a_word_is_told_by_the_code_that_raised_it() -> None:
    assert summarize_error("", raised(ValueError())) == "at `assert isinstance(error, KeyError), error.args or None`"
    assert summarize_error("", "") == ""
