"""Typed specs of jobs: frozen dataclasses, converted from and to the plain dict `Job.spec`."""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from tasks.job import Job

# Metadata of a field whose entries stand directly among those of the spec that contains it.
FLAT: Mapping[str, Any] = types.MappingProxyType({"flat": True})


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Base class of typed specs, whose subclasses are frozen dataclasses with keyword fields.

    In the plain dict, each field is an entry of the same name. A field that is a Spec is a nested dict, or,
    with the metadata FLAT, its entries are entries of the outer dict. A field that equals its default has no
    entry, so that a new field with a default changes no job key. Types of fields: str, bool, int, float, Any,
    Literal, tuple[T, ...] (a list in the dict), Mapping[str, T], a Spec, and unions of these.
    """

    @classmethod
    def from_job(cls, job: Job) -> Self:
        """Return the spec of a job; raises what `parse` raises."""
        return cls.parse(job.spec)

    @classmethod
    def parse(cls, entries: Mapping[str, Any]) -> Self:
        """Return the spec that a plain dict describes.

        ValueError, with one line, for unknown or missing entries and for a value of another type.
        """
        return _parse(cls, entries, cls.__name__)

    @classmethod
    def part_of(cls, entries: Mapping[str, Any]) -> Self:
        """Return the spec from a plain dict that may have further entries; otherwise as `parse`."""
        return _build(cls, entries, cls.__name__)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain dict, as a job contains it."""
        entries: dict[str, Any] = {}
        for field in _layout(type(self)).fields:
            value = getattr(self, field.name)
            if field.is_flat:
                entries |= value.to_dict()
            elif field.default is MISSING or value != field.default:
                entries[field.name] = _plain(value)
        return entries


S = TypeVar("S", bound=Spec)


class _Field(NamedTuple):
    """Field of a spec. default: MISSING for a field that must be given."""

    name: str
    type: Any
    default: Any
    is_flat: bool


class _Layout(NamedTuple):
    """Fields of a spec, and names of the entries that its plain dict may have and must have."""

    fields: tuple[_Field, ...]
    names: tuple[str, ...]
    required: tuple[str, ...]


# Layouts by class: type hints are resolved once.
_LAYOUTS: dict[type[Spec], _Layout] = {}


def _layout(spec: type[Spec]) -> _Layout:
    if spec not in _LAYOUTS:
        hints = get_type_hints(spec)
        layout_fields: list[_Field] = []
        names: list[str] = []
        required: list[str] = []
        for field in fields(spec):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            is_flat = bool(field.metadata.get("flat"))
            layout_fields.append(_Field(field.name, hints[field.name], default, is_flat))
            part = _layout(hints[field.name]) if is_flat else None
            names += part.names if part else [field.name]
            required += part.required if part else [field.name] if default is MISSING else []
        _LAYOUTS[spec] = _Layout(tuple(layout_fields), tuple(names), tuple(required))
    return _LAYOUTS[spec]


def entry_names(spec: type[Spec]) -> tuple[str, ...]:
    """Return the names of all entries of a spec's plain dict, in the order of the fields."""
    return _layout(spec).names


def _parse(spec: type[S], entries: Mapping[str, Any], location: str) -> S:
    known = _layout(spec).names
    if unknown := [name for name in entries if name not in known]:
        near = [match for name in unknown for match in difflib.get_close_matches(name, known, n=1)]
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise ValueError(f"{location}: unknown {', '.join(unknown)}; {hint}known: {', '.join(known)}")
    return _build(spec, entries, location)


def _build(spec: type[S], entries: Mapping[str, Any], location: str) -> S:
    """Return the spec from its own entries; others are ignored."""
    layout = _layout(spec)
    if missing := [name for name in layout.required if name not in entries]:
        names = ", ".join(entries) or "nothing"
        raise ValueError(f"{location}: missing {', '.join(missing)}; got {names}; add them where the job is planned")
    values = {}
    for field in layout.fields:
        if field.is_flat:
            values[field.name] = _build(field.type, entries, location)
        elif field.name in entries:
            values[field.name] = _convert(field.type, entries[field.name], f"{location}.{field.name}")
    return spec(**values)


def _convert(expected: Any, value: Any, location: str) -> Any:
    """Convert a value of the plain dict to a field's type; ValueError if it has another type."""
    if isinstance(expected, type) and issubclass(expected, Spec) and isinstance(value, Mapping):
        return _parse(expected, value, location)
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        for argument in arguments:
            if _has_outer_type(argument, value):
                return _convert(argument, value, location)
    elif _has_outer_type(expected, value):
        if origin is tuple:
            return tuple(_convert(arguments[0], item, f"{location}[{n}]") for n, item in enumerate(value))
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {
                _convert(arguments[0], name, location): _convert(arguments[1], value[name], f"{location}.{name}")
                for name in value
            }
        return value
    text = getattr(expected, "__name__", str(expected)) if origin is None else str(expected)
    raise ValueError(f"{location}: got {value!r}, expected {text}; correct it where the job is planned")


def _has_outer_type(expected: Any, value: Any) -> bool:
    """Return whether a value has the expected type, regardless of what it contains."""
    origin = get_origin(expected)
    if expected is Any:
        return True
    if origin is Literal:
        return value in get_args(expected)
    if origin is tuple:
        return isinstance(value, list | tuple)
    if origin is not None:
        return isinstance(value, origin)
    if issubclass(expected, Spec):
        return isinstance(value, Mapping)
    # A bool is an int, and an int is a valid float, but a bool is neither here.
    if isinstance(value, bool):
        return expected is bool
    return isinstance(value, (int, float) if expected is float else expected)


def _plain(value: Any) -> Any:
    """Return the value of a field as the plain dict has it."""
    if isinstance(value, Spec):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
