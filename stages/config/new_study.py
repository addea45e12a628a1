"""Addition of a study to a params file as text, which keeps comments, quotes and the order of keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tsfmscope.stages.config.params import ParamsError, load, parse
from tsfmscope.store.files import write_text

# Characters of a line of YAML.
WIDTH = 110
# Spaces of one level of YAML.
INDENT = 2


def add_study(path: Path, name: str, block: Mapping[str, Any]) -> int:
    """Write a study after the last one and return the number of its first line, counted from 1.

    block: keys of tsfmscope.stages.config.Study. Raises ParamsError, and writes nothing, if the file is not
    valid, if the name is already used or is not a valid name, if the block is not valid, or if `studies` is
    not written as a block.
    """
    if name in load(path).studies:
        raise ParamsError(f"{path}: studies.{name}: a study has this name already; choose another name")
    with path.open(newline="") as file:
        text = file.read()
    newline = "\r\n" if "\r\n" in text else "\n"
    at, indent = _end(text, path)
    before = text[:at] if text[:at].endswith("\n") else text[:at] + newline
    added = "".join(" " * indent + line + newline for line in _yaml(name, block))
    changed = before + added + text[at:]
    if list(parse(changed, path).studies)[-1] != name:
        raise ParamsError(f"{path}: cannot tell where `studies` ends; add the study by hand")
    write_text(path, changed)
    return before.count("\n") + 1


def _yaml(name: str, block: Mapping[str, Any]) -> list[str]:
    """Return the lines of the study's block; a list stands in brackets if it fits on one line."""
    lines = [f"{_scalar(name)}:"]
    for key, value in block.items():
        flat = f"{key}: {_scalar(value)}"
        if isinstance(value, list) and len(flat) > WIDTH:
            lines += [f"{' ' * INDENT}{key}:", *(f"{' ' * 2 * INDENT}- {_scalar(item)}" for item in value)]
        else:
            lines.append(" " * INDENT + flat)
    return lines


def _scalar(value: Any) -> str:
    """Return a value as one line of YAML, quoted where YAML needs it."""
    # PyYAML folds lines at some Unicode line breaks unless they are escaped.
    plain = str(value).isprintable()
    text: str = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=plain)
    return text.removesuffix("\n").removesuffix("\n...")


def _end(text: str, path: Path) -> tuple[int, int]:
    """Return where the last study ends and the column of the studies' names.

    The end is the number of characters up to the end of the last study's last line.
    """
    # For each open collection: whether it is written in brackets.
    flows: list[bool] = []
    key, indent, end = None, None, 0
    for event in yaml.parse(text):
        inside = key == "studies"
        if isinstance(event, yaml.CollectionStartEvent):
            if inside and len(flows) == 1 and (event.flow_style or not isinstance(event, yaml.MappingStartEvent)):
                break
            flows.append(bool(event.flow_style))
        elif isinstance(event, yaml.CollectionEndEvent):
            # PyYAML marks the end of a block collection where the next one begins, so only the mark
            # of a collection in brackets is its real end.
            end = _line(event, text) if flows.pop() and inside else end
            if len(flows) == 1:
                if inside and indent is not None:
                    return end, indent
                key = None
        elif isinstance(event, (yaml.ScalarEvent, yaml.AliasEvent)):
            if len(flows) == 1:
                key = getattr(event, "value", None) if key is None else None
            elif inside:
                assert event.start_mark is not None
                indent, end = event.start_mark.column if indent is None else indent, _line(event, text)
    raise ParamsError(f"{path}: `studies` is not written as a block of lines; add the study by hand")


def _line(event: yaml.Event, text: str) -> int:
    """Return the number of characters up to the end of the line that an event ends on.

    A block of text ends where the next line begins, in column 0.
    """
    mark = event.end_mark
    # PyYAML's parser marks every event.
    assert mark is not None
    if mark.column == 0:
        return int(mark.index)
    return text.find("\n", mark.index) + 1 or len(text)
