"""Sanitising of text from other sources, so that it is safe to print on a terminal."""

from __future__ import annotations

import re

# Control characters (Unicode C0, C1, DEL) and the marks that reverse the direction of text.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# Characters of a line of an error: no message of this project has as many, unless it repeats a long input.
LONGEST = 1200


def printable(text: str, *, keep: str = "") -> str:
    r"""Replace control characters by visible escapes such as \x1b, so that a value cannot control a terminal.

    keep: control characters that stay, such as "\n".
    """
    return UNPRINTABLE.sub(
        lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode("ascii"), text
    )


def shorten(text: str) -> str:
    """Return the text with the middle of every line of more than LONGEST characters left out."""
    return "\n".join(map(_shorten_line, text.split("\n")))


def _shorten_line(line: str) -> str:
    left_out = len(line) - LONGEST
    kept = LONGEST // 2
    return f"{line[:kept]} … {left_out:,} characters … {line[-kept:]}" if left_out > 0 else line
