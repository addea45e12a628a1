"""Reader of YAML that first counts the values that aliases and merge keys stand for.

PyYAML expands merge keys (`<<: [*a, *a]`) while it builds values, so 463 bytes can keep it busy for more than
a minute. The events of the parser are counted first, in one pass that takes linear time and builds nothing.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

# Number of values that aliases may add to the values that the text itself contains.
MOST_VALUES = 1_000_000
# Levels of nesting; at a hundred thousand, libyaml's composer overflows the stack and ends the
# process.
DEEPEST = 100
# libyaml, if PyYAML was built with it: twenty times as fast as the loader in Python.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MERGE = "<<"
# Characters. Numbers of base 60 (1:1:1) take quadratic time to read, and Python prints no integer
# of more than 4,300 digits.
LONGEST_NUMBER = 100
TEXT = "tag:yaml.org,2002:str"
MERGE_TAG = "tag:yaml.org,2002:merge"
# Numbers that YAML 1.1 reads in base 60 or 8, and DVC, which follows YAML 1.2, as text or in base 10.
OTHER_BASE = re.compile(r"[-+]?([0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|0[0-9_]+)")
RESOLVER = yaml.resolver.Resolver()


def load_yaml(text: str) -> Any:
    """Parse one YAML document with the safe loader.

    Raises yaml.YAMLError for text that is not YAML. Raises ValueError, with the line, for a tag, for nesting
    deeper than DEEPEST levels, for a number of more than LONGEST_NUMBER characters, and for a key that occurs
    twice in one mapping, `<<` included: DVC refuses such a file, and YAML's loader would silently keep the
    later value. Raises ValueError also if aliases add more than MOST_VALUES values.
    """
    _count_values(text)
    return yaml.load(text, LOADER)


class _Collection:
    """Open list or mapping: its number of values so far, its anchor, and the line on which it begins."""

    def __init__(self, event: Any) -> None:
        self.values: float = 1
        self.anchor: str | None = event.anchor
        self.line: int = event.start_mark.line + 1
        self.is_mapping = isinstance(event, yaml.MappingStartEvent)
        self.at_key = True
        # Key, as (tag, text) -> the line on which it stands.
        self.keys: dict[tuple[str, str], int] = {}

    def add(self, event: Any, values: float) -> None:
        """Count a key, a value or an item that stands for `values` values."""
        self.values += values
        if self.is_mapping and self.at_key and isinstance(event, yaml.ScalarEvent):
            self._add_key(event)
        self.at_key = not self.at_key

    def _add_key(self, event: Any) -> None:
        key = (RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit), event.value)
        line = event.start_mark.line + 1
        if key[0] not in (TEXT, MERGE_TAG):
            kind = key[0].rpartition(":")[2]
            raise ValueError(
                f"line {line}: expected text as a key, got {event.value[:LONGEST_NUMBER]!r}, which YAML reads as "
                f"{kind}; put it in quotes"
            )
        if key in self.keys:
            fix = f"write {MERGE}: [*a, *b]" if event.value == MERGE else "remove or rename one"
            raise ValueError(
                f"line {line}: the key {event.value!r} is already in this mapping, on line {self.keys[key]}; {fix}"
            )
        self.keys[key] = line


def _check_value(event: Any) -> None:
    """Raise ValueError for a tag, and for a number in base 60 or 8 or of more than LONGEST_NUMBER characters.

    A tag would make the loader fail with errors of other types.
    """
    line = event.start_mark.line + 1
    if getattr(event, "tag", None) is not None:
        raise ValueError(f"line {line}: expected a plain value, got the tag {event.tag!r}; remove it")
    is_plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
    is_long = is_plain and len(event.value) > LONGEST_NUMBER
    is_other_base = is_plain and OTHER_BASE.fullmatch(event.value)
    if not (is_long or is_other_base) or RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit) == TEXT:
        return
    if is_long:
        raise ValueError(
            f"line {line}: expected a number or date of at most {LONGEST_NUMBER} characters, got {len(event.value)}"
        )
    if is_other_base:
        raise ValueError(
            f"line {line}: expected a decimal number, got {event.value!r}, which YAML reads in base "
            f"{60 if ':' in event.value else 8}; write the number, or text in quotes"
        )


def _count_values(text: str) -> None:
    """Raise ValueError for what `load_yaml` refuses, before any value is built from the text."""
    # Number of values by anchor. Values without an anchor are stored under None, which no alias
    # names.
    sizes: dict[str | None, float] = {}
    # An outermost list stands for the document, so that every event belongs to a collection.
    collections = [_Collection(yaml.SequenceStartEvent(None, None, True, yaml.Mark("", 0, 0, 0, None, 0)))]
    for n_events, event in enumerate(yaml.parse(text, LOADER)):
        values: float = 1
        _check_value(event)
        if isinstance(event, yaml.CollectionStartEvent):
            collections.append(_Collection(event))
            # An alias of a collection that is not closed yet means that the collection contains
            # itself.
            sizes[event.anchor] = math.inf
            if len(collections) > DEEPEST:
                raise ValueError(f"line {collections[-1].line}: nested deeper than {DEEPEST} levels; flatten it")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            collection = collections.pop()
            values = collection.values
            sizes[collection.anchor] = values
        elif isinstance(event, yaml.AliasEvent):
            values = sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor] = values
        else:
            continue
        collections[-1].add(event, values)
        if collections[-1].values - n_events > MOST_VALUES:
            raise ValueError(f"its aliases (*name) stand for more than {MOST_VALUES} values; repeat less with them")
