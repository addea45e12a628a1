"""Commands that are made from the signatures and docstrings of public functions.

An argument before the star is an argument of the command, any other an option. Its help is its entry under `Args`.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import textwrap
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.models import OptionInfo

from tsfmscope.cli.output import Json, check_file, print_json, show_progress
from tsfmscope.errors import ArgumentError
from tsfmscope.functions import load as loading
from tsfmscope.functions.arguments import annotations_of, bounds_of, choices_of, types_of
from tsfmscope.functions.inspect import inspect as inspect_layers
from tsfmscope.functions.load import LoadedForecaster, Model
from tsfmscope.series.data_sets import Data
from tsfmscope.series.files.options import Reading

# Arguments of `load`, which are options of every command with a model.
LOADING = ("family", "device", "precision")


@dataclass(frozen=True)
class Command:
    """Command of a public function.

    show: takes the result and the values of `extras`, and prints. json: returns the document of `--json`, which is
    printed instead. extras: options and arguments of the command alone, by name, as annotation and default. before:
    checks the extras before the work. without: arguments of `load` or of the function that the command lacks.
    exit_code: returns the exit code for a result. files: help and suffixes of the option --out, whose files the
    result's `save` writes.
    """

    function: Callable[..., Any]
    show: Callable[..., None]
    json: Callable[..., Any]
    examples: str
    extras: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    before: Callable[..., None] | None = None
    without: Sequence[str] = ()
    exit_code: Callable[[Any], int] = lambda result: 0
    files: tuple[str, Sequence[str]] | None = None

    def callback(self) -> Callable[..., None]:
        """Return the function that typer calls."""
        parameters, readers = _parameters(self.function, self.without)
        help_text, suffixes = self.files or ("", ())
        if self.files:
            parameters["out"] = (Annotated[list[Path] | None, typer.Option(help=f"{help_text}; repeatable.")], None)
        parameters |= {**self.extras, "as_json": (Json, False)}
        # Arguments first, in their order; then options.
        ordered = sorted(parameters.items(), key=lambda item: item[1][1] is not inspect.Parameter.empty)
        options = [name for name, (kind, _) in ordered if isinstance(kind.__metadata__[0], OptionInfo)]

        def call(**values: Any) -> None:
            # A model, file or folder may have the name of an option, and an error may begin with it.
            given = {Path(str(value)).stem for name, value in values.items() if name not in options}
            own = {name: values.pop(name) for name in self.extras}
            as_json, paths = values.pop("as_json"), values.pop("out", None) or () if self.files else ()
            for path in paths:
                check_file(path, suffixes)
            if self.before is not None:
                self.before(**own)
            with show_progress(), _argument_errors({*options} - given):
                arguments = {name: read(values) for name, read in readers.items()}
                result = self.function(**arguments, **_reading(values))
                for path in paths:
                    result.save(path)
                if as_json:
                    document = self.json(result, **own)
            if as_json:
                print_json(document)
            else:
                self.show(result, **own)
                for path in paths:
                    typer.echo(f"file: {path}")
            if code := self.exit_code(result):
                raise typer.Exit(code)

        call.__name__ = self.function.__name__
        call.__doc__ = _help(self.function, self.examples)
        call.__annotations__ = {name: annotation for name, (annotation, _) in ordered}
        make = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        signature = [make(name, default=default, annotation=annotation) for name, (annotation, default) in ordered]
        call.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
        return call


@contextlib.contextmanager
def _argument_errors(options: Container[str]) -> Iterator[None]:
    """Turn a ValueError for an argument into an error of the command, which names the option as users type it.

    options: names of arguments that are options. The error begins "NAME: " or "NAME VALUE: ".
    """
    try:
        yield
    except ValueError as error:
        message = str(error)
        begin = re.match(r"(\w+)(?=:| \S+[:,])", message)
        if begin and begin[1] in options:
            message = f"--{begin[1].replace('_', '-')}{message[begin.end() :]}"
        raise ArgumentError(message) from error


def _parameters(
    function: Callable[..., Any], without: Sequence[str]
) -> tuple[dict[str, tuple[Any, Any]], dict[str, Callable[[Mapping[str, Any]], Any]]]:
    """Return the parameters of the command, and functions of their values that give the function's arguments."""
    parameters: dict[str, tuple[Any, Any]] = {}
    readers: dict[str, Callable[[Mapping[str, Any]], Any]] = {}
    help_texts = _arguments_of_docstring(function)
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = annotations_of(function)[name]
        if name in without:
            continue
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            parameters |= {key: _reading_option(key) for key in Reading.model_fields}
            continue
        if Model in types_of(annotation) and not readers:
            keys = [key for key in LOADING if key not in without]
            of_load, texts = inspect.signature(loading.load).parameters, _arguments_of_docstring(loading.load)
            for key in keys:
                parameters[key] = _option(key, annotations_of(loading.load)[key], of_load[key].default, texts)
            loader = loading.as_forecaster if LoadedForecaster in types_of(annotation) else loading.load
            readers[name] = partial(_load_model, loader, name, keys)
        else:
            is_word_or_number = bool(choices_of(annotation)) and int in types_of(annotation)
            readers[name] = partial(_read_value, name, is_word_or_number)
            if all(get_origin(kind) is Sequence for kind in types_of(annotation)):
                readers[name] = partial(_read_names, name)
        is_argument = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        if is_argument and name == "data" and any(get_args(kind) == (Data,) for kind in types_of(annotation)):
            names = list[str] if parameter.default is parameter.empty else list[str] | None
            parameters[name] = (Annotated[names, typer.Option("--data", help=help_texts[name])], parameter.default)
        elif is_argument:
            kind: Any = Path if types_of(annotation) == {str, Path} else str
            kind = kind if parameter.default is parameter.empty else kind | None
            parameters[name] = (Annotated[kind, typer.Argument(help=help_texts[name])], parameter.default)
        else:
            parameters[name] = _option(name, annotation, parameter.default, help_texts)
    return parameters, readers


def _option(name: str, annotation: Any, default: Any, help_texts: Mapping[str, str]) -> tuple[Any, Any]:
    """Return the annotation and the default of an option."""
    bounds, kinds, choices = bounds_of(annotation), types_of(annotation), choices_of(annotation)
    numbers = [kind for kind in (int, float) if kind in kinds]
    limits: dict[str, Any] = {}
    # Typer has no bound that is excluded; the function checks that.
    if bounds is not None and not bounds.excludes_least:
        limits = {"min": bounds.least, "max": bounds.most}
        if numbers == [int]:
            limits = {key: None if value is None else int(value) for key, value in limits.items()}
    kind: Any
    if any(get_origin(one) is Sequence for one in kinds):
        kind = list[numbers[0] if numbers else str] | None  # type: ignore[misc]
    elif choices and numbers:
        kind, limits = str, {}
    elif choices and all(isinstance(choice, str) for choice in choices):
        kind = next(one for one in kinds if get_args(one) == choices)
    elif choices:
        kind, limits = type(choices[0]), {}
    else:
        kind = bool if bool in kinds else float if float in kinds else numbers[0] if numbers else str
    if default is None and "None" not in str(kind):
        kind = kind | None
    return Annotated[kind, typer.Option(f"--{name.replace('_', '-')}", help=help_texts[name], **limits)], default


def _read_value(name: str, is_word_or_number: bool, values: Mapping[str, Any]) -> Any:
    value = values[name]
    if is_word_or_number and isinstance(value, str) and value.isdecimal():
        return int(value)
    # An option that may be repeated is an empty list if it is not given.
    return None if value == [] else value


def _read_names(name: str, values: Mapping[str, Any]) -> list[str] | None:
    """Return the names of an option that may be repeated, or have several with commas."""
    return [item for text in values[name] or () for item in text.split(",")] or None


def _load_model(loader: Callable[..., Any], name: str, keys: Sequence[str], values: Mapping[str, Any]) -> Any:
    return loader(values[name], **{key: values[key] for key in keys})


def _reading_option(name: str) -> tuple[Any, Any]:
    """Return the annotation and the default of an option of reading."""
    field = Reading.model_fields[name]
    kinds = types_of(field.annotation)
    choices = choices_of(field.annotation)
    kind: Any = bool if bool in kinds else int if int in kinds else str
    if choices:
        kind = Literal[choices]
    elif list[str] in kinds:
        kind = list[str]
    description = field.description or ""
    text = f"{description[:1].upper()}{description[1:]}."
    repeated = {"time": "; repeatable", "id": "; repeatable", "value": "; with commas"}.get(name, "")
    help_text = text.replace(";", f"{repeated};", 1) if repeated else text
    return Annotated[kind | None, typer.Option(help=help_text, min=1 if kind is int else None)], None


def _reading(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options of reading by name."""
    given = {name: values[name] for name in Reading.model_fields if values.get(name) not in (None, [])}
    if "value" in given:
        given["value"] = [name for text in given["value"] for name in text.split(",")]
    return given


def _help(function: Callable[..., Any], examples: str) -> str:
    """Return the help text: the docstring up to its arguments, with examples after its first sentence."""
    text = inspect.getdoc(function) or ""
    first, _, rest = text.partition("\n\n")
    rest = re.split(r"(?:^|\n)Args:\n", rest)[0].strip()
    return f"{first}\n\n\b\n{textwrap.dedent(examples).strip()}\n\n{rest}"


def _arguments_of_docstring(function: Callable[..., Any]) -> dict[str, str]:
    """Return the entry of each argument under `Args`; one that refers to `inspect` has the text that stands there."""
    text = inspect.getdoc(function) or ""
    section = re.split(r"\n(?:Returns|Raises):\n", text.partition("Args:\n")[2])[0]
    entries = re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", section, flags=re.M | re.S)
    texts = {name: " ".join(entry.split()).replace("None: ", "default: ") for name, entry in entries}
    for name, entry in texts.items():
        if "as in `inspect`" in entry and function is not inspect_layers:
            known = _arguments_of_docstring(inspect_layers)
            texts[name] = known[name if name in known else "model"]
    for name, entry in texts.items():
        text = entry.partition("; in Python")[0].rstrip(".")
        texts[name] = f"{text[:1].upper()}{text[1:]}."
    return texts
