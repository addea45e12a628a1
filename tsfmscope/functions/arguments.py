"""Bounds of the arguments of public functions, which stand in their signatures, and their check."""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import numpy as np

from tsfmscope.defaults import MAX_CONTEXT, MIN_CONTEXT
from tsfmscope.errors import ArgumentError
from tsfmscope.series.files.options import reading_of
from tsfmscope.strict import LARGEST_SEED

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Bounds:
    """Smallest and largest value of an argument, and whether it must exceed the smallest; None: no bound."""

    least: float | None = None
    most: float | None = None
    excludes_least: bool = False

    def check(self, name: str, value: float) -> None:
        """Raise ArgumentError for a value that is out of bounds, NaN or infinite."""
        above = self.least is None or (value > self.least if self.excludes_least else value >= self.least)
        is_finite = abs(value) < math.inf
        if not (above and is_finite and (self.most is None or value <= self.most)):
            least = "" if self.least is None else f"{'above' if self.excludes_least else 'at least'} {self.least:g}"
            most = f"at most {self.most:g}" if self.most is not None else "" if is_finite else "finite"
            raise ArgumentError(f"{name}: got {value}, expected {' and '.join(filter(None, (least, most)))}")


# Arguments that several functions have.
Context = Annotated[int | None, Bounds(MIN_CONTEXT, MAX_CONTEXT)]
Horizon = Annotated[int | None, Bounds(1, 1024)]
Count = Annotated[int, Bounds(1)]
MaxSeries = Annotated[int | None, Bounds(1)]
Seed = Annotated[int, Bounds(0, LARGEST_SEED)]
# Share of the variance, and tolerance relative to the largest singular value.
Share = Annotated[float, Bounds(0, 1, excludes_least=True)]
Tolerance = Annotated[float, Bounds(0, 1)]


def checked(function: F) -> F:
    """Check numbers and choices of each call against the bounds and literals of the function's signature.

    Further arguments by name are options of `Reading`. A call raises ArgumentError, which is a ValueError, for a value
    that does not fit or an unknown name.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        signature = inspect.signature(function)
        hints = annotations_of(function)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                reading_of(value, [other for other in signature.parameters if other != name])
            else:
                _check(name, value, hints[name])
        return function(*args, **kwargs)

    return typing.cast(F, call)


@functools.cache
def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotation of each argument, with its bounds."""
    plain = inspect.unwrap(function)
    # The type of the result may be one that only type checkers import.
    arguments = {name: text for name, text in plain.__annotations__.items() if name != "return"}
    holder = types.SimpleNamespace(__annotations__=arguments)
    return typing.get_type_hints(holder, globalns=plain.__globals__, include_extras=True)


def bounds_of(annotation: Any) -> Bounds | None:
    """Return the bounds in an annotation; None without."""
    if get_origin(annotation) is not Annotated:
        return None
    return next((item for item in get_args(annotation)[1:] if isinstance(item, Bounds)), None)


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """Return the values of the literal in an annotation; empty without."""
    return tuple(choice for part in _parts(annotation) if get_origin(part) is Literal for choice in get_args(part))


def types_of(annotation: Any) -> set[Any]:
    """Return the types that an annotation allows, None left out."""
    return {part for part in _parts(annotation) if part is not type(None)}


def _parts(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif get_origin(annotation) in (typing.Union, types.UnionType):
        for part in get_args(annotation):
            yield from _parts(part)
    else:
        yield annotation


def _check(name: str, value: Any, annotation: Any) -> None:
    if value is None and types.NoneType in _parts(annotation):
        return
    choices, kinds = choices_of(annotation), types_of(annotation)
    # An argument may be one of some words, or any value of another type.
    others = tuple(kind for kind in kinds if kind in (int, float, str))
    if choices and value not in choices and not isinstance(value, others):
        raise ArgumentError(f"{name}: got {value!r}, expected one of {', '.join(map(str, choices))}")
    bounds = bounds_of(annotation)
    if bounds is None:
        return
    for number in value if isinstance(value, Sequence) and not isinstance(value, str) else [value]:
        if isinstance(number, bool) or not isinstance(number, int | float | np.integer | np.floating):
            raise ArgumentError(f"{name}: got {number!r}, expected a number")
        if float not in kinds and not isinstance(number, int | np.integer):
            raise ArgumentError(f"{name}: got {number}, expected a whole number")
        bounds.check(name, float(number) if isinstance(number, np.generic) else number)
