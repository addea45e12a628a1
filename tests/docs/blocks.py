"""Fenced blocks of the documentation, and the commands in them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
TRIED = ("console", "sh", "bash", "python", "yaml", "sql")  # languages of what a reader types or pastes
SHOWN = ("text", "toml", "bibtex", "")  # drawings, listings, and a package's metadata: docs/plugin has the whole of it
PROMPT = "$ "


class Block(NamedTuple):
    """A fenced block of a page, without the fence's own indentation."""

    page: str
    language: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    """A command after a prompt, and the lines that the page shows it to print."""

    page: str
    line: str
    shown: list[str]


def pages() -> list[Path]:
    """README, CONTRIBUTING and every page under docs/."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path) -> list[Block]:
    """Those of one page, in order."""
    text, name = path.read_text("utf-8"), str(path.relative_to(ROOT))
    return [
        Block(name, found[2], textwrap.dedent(found[3]), text.count("\n", 0, found.start()) + 1)
        for found in FENCE.finditer(text)
    ]


def every(*languages: str) -> list[Block]:
    """Blocks of these languages on all pages."""
    return [one for path in pages() for one in blocks(path) if one.language in languages]


def commands(of: str | Block) -> Iterator[Command]:
    """Those of a block or of all blocks of a page, in order; a line that ends in a backslash goes on in the next."""
    for block in blocks(ROOT / of) if isinstance(of, str) else [of]:
        if block.language != "console":
            continue
        found: Command | None = None
        for line in block.text.replace("\\\n", " ").splitlines():
            if line.startswith(PROMPT):
                if found is not None:
                    yield found
                found = Command(block.page, line.removeprefix(PROMPT), [])
            elif found is None:
                raise ValueError(f"{block}: a console block begins with a command after {PROMPT!r}, got {line!r}")
            elif line.strip():
                found.shown.append(line)
        if found is not None:
            yield found
