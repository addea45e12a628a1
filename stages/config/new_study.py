"""Addition of a study to a params file as text, which keeps comments, quotes and the order of keys.

A round trip through ruamel.yaml (0.19) would change 57 lines of params.yaml, mostly line breaks and comments.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stages.config.params import ParamsError, load, parse
from store.files import write_text

# Characters of a line of YAML.
WIDTH = 110


def add_study(path: Path, name: str, block: Mapping[str, Any]) -> int:
    """Write a study after the last one and return the number of its first line, counted from 1.

    block: keys of stages.config.Study. Raises ParamsError, and writes nothing, if the file is not
    valid, if the name is already used or is not a valid name, if the block is not valid, or if `studies` is
    not written as a block.
    """
    if name in load(path).studies:
        raise ParamsError(f"{path}: studies.{name}: a study has this name already; choose another name")
    with path.open(newline="") as file:
        text = file.read()
    newline = "\r\n" if "\r\n" in text else "\n"
    kept, indent = _end(text, path)
    # Line breaks of Unicode, which JSON leaves as they are, are escaped: PyYAML would break the line there.
    plain = json.dumps(dict(block), ensure_ascii=False).isprintable()
    added = yaml.safe_dump(
        {name: dict(block)}, default_flow_style=None, width=WIDTH, allow_unicode=plain, sort_keys=False
    )
    added = textwrap.indent(added.rstrip("\n"), " " * indent).replace("\n", newline)
    changed = kept + newline + added + (text[len(kept) :] or newline)
    if list(parse(changed, path).studies)[-1] != name:
        raise ParamsError(f"{path}: cannot tell where `studies` ends; add the study by hand")
    write_text(path, changed)
    return kept.count("\n") + 2


def _end(text: str, path: Path) -> tuple[str, int]:
    """Return the text up to the end of the last study's last line, and the column of the studies' names."""
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    entries = root.value
    blocks = [
        (position, node.value[0][0].start_mark)
        for position, (key, node) in enumerate(entries)
        if key.value == "studies" and isinstance(node, yaml.MappingNode) and not node.flow_style
        and node.value[0][0].start_mark.line > key.start_mark.line
    ]  # fmt: skip
    if not blocks:
        raise ParamsError(f"{path}: `studies` is not written as a block of lines; add the study by hand")
    ((at, first),) = blocks
    end = entries[at + 1][0].start_mark.index if at + 1 < len(entries) else len(text)
    lines = text[:end].split("\n")
    # Comments in the first column and empty lines belong to what follows.
    while not lines[-1].strip() or lines[-1].startswith("#"):
        lines.pop()
    return "\n".join(lines).removesuffix("\r"), first.column
