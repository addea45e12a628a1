"""Model cards (README.md): the header that the hub reads, sections, tables and code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tsfmscope.printable import printable


def make_card(
    name: str, lead: str, sections: Mapping[str, str], *, note: str = "", **header: str | list[str] | None
) -> str:
    """Return the text of a model card.

    lead: text below the title. sections: title -> text that ends with a line break. note: comment above the title.
    header: fields of huggingface_hub's ModelCardData; None leaves one out. Control characters of the header become
    visible escapes.
    """
    # Its import takes longer than that of a command that writes no card.
    from huggingface_hub import ModelCardData

    data = ModelCardData(
        **{
            key: [printable(item) for item in value] if isinstance(value, list) else value and printable(value)
            for key, value in header.items()
        }
    )
    note = f"{note}\n\n" if note else ""
    return f"---\n{data}\n---\n{note}# {name}\n\n{lead}\n\n" + "\n".join(
        f"## {title}\n\n{text}" for title, text in sections.items()
    )


def make_table(titles: str, rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table. titles: the cells of the head, separated by " | "."""
    head = [f"| {titles} |", f"|{' --- |' * (titles.count(' | ') + 1)}"]
    return "".join(
        f"{line}\n" for line in [*head, *(f"| {' | '.join(printable(str(cell)) for cell in row)} |" for row in rows)]
    )


def loading_code(imports: str, call: str) -> str:
    """Return a block of Python code that loads a model."""
    return f"```python\n{imports}\n\nmodel = {call}\n```\n"
