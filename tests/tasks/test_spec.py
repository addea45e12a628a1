"""Typed specs against their plain dicts: round trips, and entries that are unknown, missing or of another type."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.job import IDENTITY, LAYER, Job, Task
from tasks.parts import CellIdentity, LayerPlace, ModelIdentity
from tasks.spec import FLAT, Spec, entry_names


@dataclass(frozen=True, kw_only=True)
class Part(Spec):
    """Part of a spec."""

    name: str
    share: float | None
    history: int = 0


@dataclass(frozen=True, kw_only=True)
class Whole(Spec):
    """Spec with a flat part, a nested one, and an optional one."""

    part: Part = field(metadata=FLAT)
    rows: int
    is_last: bool
    sizes: tuple[int, ...]
    layers: Literal["all", "ends"]
    nested: Part
    optional: Part | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


PLAIN = {
    "name": "a", "share": None, "rows": 3, "is_last": True, "sizes": [1, 2], "layers": "all",
    "nested": {"name": "b", "share": 0.5, "history": 7},
}  # fmt: skip
# Every class of tasks from which a job's spec is made.
SPECS = sorted(
    {
        value
        for one in pkgutil.iter_modules(entries.__path__, f"{entries.__name__}.")
        for value in vars(importlib.import_module(one.name)).values()
        if inspect.isclass(value) and issubclass(value, Spec) and value is not Spec
    },
    key=lambda spec: spec.__name__,
)
every = pytest.mark.parametrize("spec", SPECS)


def values(expected: Any) -> st.SearchStrategy[Any]:
    """Values of a field of this type, as the dataclass has them."""
    origin, arguments = get_origin(expected), get_args(expected)
    if expected is Any:
        return st.none() | st.integers() | st.text()
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is not None:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3)
    if issubclass(expected, Spec):
        return specs(expected)
    scalars: dict[type, st.SearchStrategy[Any]] = {
        str: st.text(),
        bool: st.booleans(),
        int: st.integers(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        type(None): st.none(),
    }
    return scalars[expected]


def specs(spec: type[Spec]) -> st.SearchStrategy[Any]:
    return st.builds(spec, **{name: values(hint) for name, hint in get_type_hints(spec).items()})


def test_parts_name_the_columns_that_rows_begin_with() -> None:
    assert entry_names(CellIdentity) == entry_names(ModelIdentity) == IDENTITY
    assert entry_names(LayerPlace) == LAYER
    assert ModelIdentity.of("m").to_dict() == dict.fromkeys(IDENTITY) | {"model": "m"}


def test_a_plain_dict_becomes_typed_values_and_the_same_dict_again() -> None:
    whole = Whole.from_job(Job(Task("t", 1, "m:f"), PLAIN))
    assert (whole.part, whole.sizes, whole.nested.history) == (Part(name="a", share=None), (1, 2), 7)
    assert whole.to_dict() == PLAIN
    assert Part.part_of(PLAIN) == whole.part


@every
@settings(max_examples=8)
@given(st.data())
def test_every_spec_survives_the_way_through_json(spec: type[Spec], data: st.DataObject) -> None:
    made = data.draw(specs(spec))
    plain = json.loads(json.dumps(made.to_dict()))
    assert spec.parse(plain) == made
    assert spec.parse(plain).to_dict() == made.to_dict()
    assert set(plain) <= set(entry_names(spec))


@every
def test_no_two_fields_of_a_spec_are_one_entry_and_each_spec_says_what_it_is(spec: type[Spec]) -> None:
    assert len(set(entry_names(spec))) == len(entry_names(spec))
    assert spec.__doc__ and not spec.__doc__.startswith(f"{spec.__name__}(")
    assert all(one.kw_only for one in fields(spec))  # type: ignore[arg-type]


@given(st.text(min_size=1).filter(lambda name: name not in entry_names(Whole)))
def test_an_unknown_entry_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="Whole: unknown"):
        Whole.parse({**PLAIN, name: 1})
    with pytest.raises(ValueError, match=r"Whole\.nested: unknown"):
        Whole.parse({**PLAIN, "nested": {"name": "b", "share": 1, name + "?": 1}})


def test_an_unknown_entry_is_refused_in_one_line_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"^Whole: unknown row; did you mean rows\? known: name, share, history, rows"):
        Whole.parse({**PLAIN, "row": 3})


@pytest.mark.parametrize("name", PLAIN)
def test_a_missing_entry_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^Whole: missing {name}; got .*; add them where the job is planned$"):
        Whole.parse({one: value for one, value in PLAIN.items() if one != name})


@pytest.mark.parametrize(
    ("name", "value", "where"),
    [
        ("rows", "3", "rows: got '3', expected int"),
        ("rows", True, "rows: got True, expected int"),
        ("rows", 3.0, "rows: got 3.0, expected int"),
        ("rows", None, "rows: got None, expected int"),
        ("is_last", 1, "is_last: got 1, expected bool"),
        ("share", "x", r"share: got 'x', expected float \| None"),
        ("sizes", [1, "2"], r"sizes\[1\]: got '2', expected int"),
        ("sizes", "12", "sizes: got '12', expected tuple"),
        ("layers", "none", "layers: got 'none', expected .*Literal"),
        ("nested", 3, "nested: got 3, expected Part"),
        ("nested", {"name": 1, "share": 0}, r"nested\.name: got 1, expected str"),
        ("optional", {"name": 1, "share": 0}, r"optional\.name: got 1, expected str"),
        ("options", [], "options: got .*, expected .*Mapping"),
        ("options", {1: 2}, "options: got 1, expected str"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(name: str, value: Any, where: str) -> None:
    with pytest.raises(ValueError, match=rf"^Whole\.{where}.*; correct it where the job is planned$"):
        Whole.parse({**PLAIN, name: value})


def test_numbers_stay_as_they_are_because_keys_depend_on_them() -> None:
    assert [type(Whole.parse({**PLAIN, "share": one}).to_dict()["share"]) for one in (1, 1.0)] == [int, float]


def test_a_default_has_no_entry_so_that_a_new_field_changes_no_key() -> None:
    assert "history" not in Part(name="a", share=None, history=0).to_dict()
    assert Part(name="a", share=None, history=1).to_dict()["history"] == 1
