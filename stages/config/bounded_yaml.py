"""Reader of YAML that refuses what DVC reads in another way, and aliases that stand for millions of values."""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

# Number of values that aliases may add to the values that the text itself contains.
MOST_VALUES = 1_000_000
# Levels of nesting; at a hundred thousand, libyaml's composer overflows the stack and ends the process.
DEEPEST = 100
# libyaml, if PyYAML was built with it: twenty times as fast as the loader in Python.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Characters. Numbers of base 60 (1:1:1) take quadratic time to read, and Python prints no integer
# of more than 4,300 digits.
LONGEST_NUMBER = 100
TEXT = "tag:yaml.org,2002:str"
MERGE = "tag:yaml.org,2002:merge"
# Numbers that YAML 1.1 reads in base 60 or 8, and DVC, which follows YAML 1.2, as text or in base 10.
OTHER_BASE = re.compile(r"[-+]?([0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|0[0-9_]+)")


def load_yaml(text: str) -> Any:
    """Parse one YAML document with the safe loader.

    Raises yaml.YAMLError for text that is not YAML. Raises ValueError, with the line, for a tag, for nesting
    deeper than DEEPEST levels, for a number of more than LONGEST_NUMBER characters or in base 60 or 8, for a key that
    is not text, and for a key that occurs twice in one mapping, `<<` included: DVC refuses such a file, and YAML's
    loader would silently keep the later value. Raises ValueError also if aliases add more than MOST_VALUES values.
    """
    depth = 0
    for event in yaml.parse(text, LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"line {_line(event)}: nested deeper than {DEEPEST} levels; flatten it")
        if (tag := getattr(event, "tag", None)) is not None:
            raise ValueError(f"line {_line(event)}: expected a plain value, got the tag {tag!r}; remove it")
    root = yaml.compose(text, LOADER)
    if root is None:
        return None
    sizes: dict[int, float] = {}
    if _count_values(root, sizes) - len(sizes) > MOST_VALUES:
        raise ValueError(f"its aliases (*name) stand for more than {MOST_VALUES} values; repeat less with them")
    return yaml.constructor.SafeConstructor().construct_document(root)


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _count_values(node: yaml.Node, sizes: dict[int, float]) -> float:
    """Check a node and return the number of values that it stands for.

    sizes: numbers of the nodes that were counted, by id. An alias names a node that was counted before.
    """
    if id(node) in sizes:
        return sizes[id(node)]
    # Until the node is counted: it may contain itself.
    sizes[id(node)] = math.inf
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    elif isinstance(node, yaml.ScalarNode) and not node.style and node.tag != TEXT:
        _check_number(node)
    sizes[id(node)] = 1 + sum(_count_values(child, sizes) for child in children)
    return sizes[id(node)]


def _check_keys(mapping: yaml.MappingNode) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.tag not in (TEXT, MERGE):
            raise ValueError(
                f"line {_line(key)}: expected text as a key, got {key.value[:LONGEST_NUMBER]!r}, which YAML reads as "
                f"{key.tag.rpartition(':')[2]}; put it in quotes"
            )
        if (key.tag, key.value) in lines:
            fix = "write <<: [*a, *b]" if key.tag == MERGE else "remove or rename one"
            raise ValueError(
                f"line {_line(key)}: the key {key.value!r} is already in this mapping, on line "
                f"{lines[key.tag, key.value]}; {fix}"
            )
        lines[key.tag, key.value] = _line(key)


def _check_number(node: yaml.ScalarNode) -> None:
    if len(node.value) > LONGEST_NUMBER:
        raise ValueError(
            f"line {_line(node)}: expected a number or date of at most {LONGEST_NUMBER} characters, got "
            f"{len(node.value)}"
        )
    if OTHER_BASE.fullmatch(node.value):
        raise ValueError(
            f"line {_line(node)}: expected a decimal number, got {node.value!r}, which YAML reads in base "
            f"{60 if ':' in node.value else 8}; write the number, or text in quotes"
        )
