"""A study more in a params file, as text: comments, quotes and the order of keys stay what they were."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stages.params import ParamsError, load, parse
from store.files import write_text

WIDTH = 110  # of a line of YAML
INDENT = 2


def add_study(path: Path, name: str, block: Mapping[str, Any]) -> int:
    """Write the study behind the last one; the number of its first line, from 1.

    block: keys of stages.blocks.Study. Raises ParamsError, and writes nothing, for a file that is not valid, a name
    that is there already or cannot be one, a block that is not valid, and studies that are not written as a block.
    """
    if name in load(path).studies:
        raise ParamsError(f"{path}: studies.{name}: there is such a study already; take another name")
    with path.open(newline="") as file:
        text = file.read()
    newline = "\r\n" if "\r\n" in text else "\n"
    at, indent = _end(text, path)
    before = text[:at] if text[:at].endswith("\n") else text[:at] + newline
    added = "".join(" " * indent + line + newline for line in _yaml(name, block))
    changed = before + added + text[at:]
    if list(parse(changed, path).studies)[-1] != name:
        raise ParamsError(f"{path}: the end of `studies` is not where it seems; add the study by hand")
    write_text(path, changed)
    return before.count("\n") + 1


def _yaml(name: str, block: Mapping[str, Any]) -> list[str]:
    """A block of the keys, lists in brackets while they fit a line."""
    lines = [f"{_scalar(name)}:"]
    for key, value in block.items():
        flat = f"{key}: {_scalar(value)}"
        if isinstance(value, list) and len(flat) > WIDTH:
            lines += [f"{' ' * INDENT}{key}:", *(f"{' ' * 2 * INDENT}- {_scalar(one)}" for one in value)]
        else:
            lines.append(" " * INDENT + flat)
    return lines


def _scalar(value: Any) -> str:
    """One line of YAML, quoted where it must be."""
    plain = str(value).isprintable()  # YAML folds some line breaks that are not ours, unless they are escaped
    text: str = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=plain)
    return text.removesuffix("\n").removesuffix("\n...")


def _end(text: str, path: Path) -> tuple[int, int]:
    """Characters up to the end of the last study's last line, and the column at which names of studies stand."""
    flows: list[bool] = []  # of the collections that are open: whether they are in brackets
    key, indent, end = None, None, 0
    for event in yaml.parse(text):
        inside = key == "studies"
        if isinstance(event, yaml.CollectionStartEvent):
            if inside and len(flows) == 1 and (event.flow_style or not isinstance(event, yaml.MappingStartEvent)):
                break
            flows.append(bool(event.flow_style))
        elif isinstance(event, yaml.CollectionEndEvent):
            end = (
                _line(event, text) if flows.pop() and inside else end
            )  # the end of a block is marked where the next begins
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
    """Characters up to the end of the line that an event ends on; a block of text ends where the next line begins."""
    mark = event.end_mark
    assert mark is not None  # PyYAML's parser marks every event
    if mark.column == 0:
        return int(mark.index)
    return text.find("\n", mark.index) + 1 or len(text)
