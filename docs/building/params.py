"""Generator of the page of every key of params.yaml, from the typed blocks that parse it."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

LEAD = """# Every key of params.yaml

Made from the blocks that parse it, `stages/config`. An unknown key, a value of a wrong type, or an unknown
name gives one line that states the fix. `tsfmscope plan` prints it before any work is done.

A key or a block with a default may be left out. A file needs `models` and `studies`, and, unless only weights are
measured, `datasets` and `conditions`. `data/params.json` has the values of all keys after a run.
"""
VALUE = re.compile(r'^    "([\w-]+)",(?:  # (.*))?$', re.MULTILINE)
HEAD = "| key | type | default | meaning |\n| --- | --- | --- | --- |"
CHOICES = "## {title}\n\n| value | meaning |\n| --- | --- |\n{rows}\n"


def page() -> str:
    """Return the page: the whole file first, then one section per block, in order of first use."""
    from stages.config import blocks
    from stages.config.params import Params
    from tsfmscope.report.plots import describe_plot, plot_names

    sections = list(_sections(Params, "All blocks", set()))
    block = inspect.getsource(blocks).partition("Measure = Literal[")[2].partition("\n]")[0]
    choices = {
        "Measures of a study": VALUE.findall(block),
        "Plots of a study": [(name, describe_plot(name)) for name in plot_names()],
    }
    for title, values in choices.items():
        rows = "\n".join(f"| `{value}` | {meaning or ''} |" for value, meaning in values)
        sections.append(CHOICES.format(title=title, rows=rows))
    return "\n".join([LEAD, *sections])


def _sections(block: type[BaseModel], title: str, written_blocks: set[type]) -> Iterator[str]:
    """Yield a section with a table of the block's keys, then sections of the blocks inside it, each once."""
    written_blocks.add(block)
    # Keys without a default come first.
    fields = sorted(block.model_fields.items(), key=lambda item: not item[1].is_required())
    rows = [_row(name, field) for name, field in fields]
    lead = inspect.cleandoc(block.__doc__ or "")
    lead_text = "" if lead.startswith(title) else f"{lead}\n"
    yield "\n".join([f"## {title}\n", lead_text, HEAD, *rows, ""])
    for name, field in block.model_fields.items():
        for inner in _blocks(field.annotation):
            if inner not in written_blocks:
                yield from _sections(inner, f"{_heading(title)}{name}", written_blocks)


def _heading(title: str) -> str:
    return "" if title == "All blocks" else f"{title}."


def _row(name: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        default_text = "required"
    elif isinstance(default, BaseModel):
        default_text = "its defaults"
    else:
        plain = list(default) if isinstance(default, tuple) else default
        default_text = f"`{'null' if plain is None else plain}`"
    limits = ", ".join(
        f"{sign} {_number(getattr(limit, key))}"
        for limit in field.metadata
        for key, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
        if getattr(limit, key, None) is not None
    )
    meaning = "; ".join(part for part in (field.description or "", limits) if part)
    return f"| `{name}` | {_type(field.annotation)} | {default_text} | {meaning} |".replace("\n", " ")


def _number(limit: float) -> str:
    """Return a limit with all digits of a whole number."""
    return str(int(limit)) if limit == int(limit) else f"{limit:g}"


def _type(kind: Any) -> str:
    """Return the description of a type for users of the YAML file."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(inner[0])
    if origin is Literal:
        return "one of those below" if len(inner) > 8 else " or ".join(f"`{part}`" for part in inner)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if part is type(None) else _type(part) for part in inner)
    if origin is dict:
        return f"{_type(inner[0])} → {_type(inner[1])}"
    if origin in (list, tuple):
        return f"list of {_type(inner[0])}"
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "anything"}
    if kind in names:
        return names[kind]
    return "block" if inspect.isclass(kind) and issubclass(kind, BaseModel) else getattr(kind, "__name__", str(kind))


def _blocks(kind: Any) -> Iterator[type[BaseModel]]:
    """Yield the blocks that a type contains, at any depth."""
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        yield from _blocks(part)
