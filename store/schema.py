"""Schema of every table: meaning of a row; type, unit, meaning and source of each column. Read from store/tables.

The file of a table has the fields of `Table`; each entry of its `columns` is one of three:

- the fields of a `Column`;
- the name of a column or list of columns of shared.yaml;
- `{like: NAME, field: value}`, these columns with other values in some fields.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Annotated, Any, Literal

import pyarrow as pa
import yaml
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from tsfmscope.strict import Strict

# libyaml, if PyYAML was built with it: ten times as fast as the loader in Python.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SCALARS = (
    *(pa.string(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.timestamp("ms"), pa.timestamp("us", tz="UTC")),
)
TYPES: Mapping[str, pa.DataType] = {str(kind): kind for kind in _SCALARS}


def parse_type(name: str | pa.DataType) -> pa.DataType:
    """Return the Arrow type of a name such as `double` or `list of float`. Raises ValueError for an unknown name."""
    if isinstance(name, pa.DataType):
        return name
    if name.startswith("list of "):
        return pa.list_(parse_type(name.removeprefix("list of ")))
    if name not in TYPES:
        raise ValueError(f"unknown type {name!r}; expected `list of` a type, or one of {', '.join(TYPES)}")
    return TYPES[name]


class Column(Strict):
    """One column of a table, and the rules for its values, from which checks and documentation are generated.

    unit: "" if there is none. source: paper with section or equation, or section of docs/science.md; "" if
    the column needs none. nullable: whether values may be null. more_isotropic: for a measure of isotropy, which
    values mean more isotropic states; the view `isotropy` then offers it. needs_reason:
    whether a row in which the value is null must have a text in column `reason`. range: least and largest value,
    or item of a list; None is no limit. slack: amount by which rounding may exceed the range. references: columns
    as TABLE.COLUMN, of tables or views; each value must occur in at least one of them. if_null: column whose value
    is looked up instead where this one is null.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str
    type: Annotated[pa.DataType, BeforeValidator(parse_type)]
    meaning: str
    unit: str = ""
    source: str = ""
    nullable: bool = False
    more_isotropic: Literal["larger", "near_zero"] | None = None
    needs_reason: bool = False
    range: tuple[float | None, float | None] = (None, None)
    slack: float = 0.0
    references: tuple[str, ...] = ()
    if_null: str = ""

    @property
    def limits(self) -> str:
        """Range in words, such as "-1 to 1"; empty if there is none."""
        low, high = self.range
        if low is None or high is None:
            return f"at least {low:g}" if low is not None else f"at most {high:g}" if high is not None else ""
        return f"{low:g} to {high:g}"

    @property
    def comment(self) -> str:
        """Meaning, unit, range and source in one line.

        The catalogue's comments and `tsfmscope tables VIEW` show this text.
        """
        brackets = ", ".join(filter(None, (self.unit, self.limits)))
        return self.meaning + (f" [{brackets}]" if brackets else "") + (f" ({self.source})" if self.source else "")


class Table(Strict):
    """One table: what a row is, its columns, which stages write it and what identifies a row.

    stages: stages that write it, in any order; () if no stage does. key: columns that no two rows have in
    common. by_study: whether studies request its rows; the catalogue then adds the study as the first column,
    which belongs to the key. in_catalogue: whether it is in results.duckdb (bulk data is not). is_printed:
    whether its rows are the file store/published/NAME.csv.
    """

    name: str
    row: str
    columns: tuple[Column, ...] = Field(min_length=1)
    stages: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    by_study: bool = False
    in_catalogue: bool = True
    is_printed: bool = False

    @model_validator(mode="after")
    def _check_names(self) -> Table:
        names = [column.name for column in self.columns]
        named = [*self.key, *(column.if_null for column in self.columns if column.if_null)]
        named += ["reason"] if any(column.needs_reason for column in self.columns) else []
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"columns {twice} are declared twice; remove or rename one")
        if unknown := sorted(set(named) - set(names)):
            raise ValueError(f"key, if_null or needs_reason refer to columns {unknown}, which the table does not have")
        return self

    @property
    def keyed(self) -> bool:
        """Whether rows belong to jobs (column job_key)."""
        return any(column.name == "job_key" for column in self.columns)

    @property
    def full_key(self) -> tuple[str, ...]:
        """Key in the catalogue, with the study if the table has one; () if rows have no key."""
        return ("study", *self.key) if self.by_study and self.key else self.key


def _read(name: str) -> dict[str, Any]:
    """Return the fields in a YAML file of this folder. YAMLError and ValueError name the file."""
    with (files("store") / name).open(encoding="utf-8") as file:
        content = yaml.load(file, LOADER)
    if not isinstance(content, dict):
        raise ValueError(f"store/{name}: expected fields, such as `columns: [model]`, got {content!r}")
    return content


_SHARED = _read("tables/shared.yaml")
# Name -> entries of the columns that it stands for.
_LISTS: Mapping[str, list[Any]] = {column["name"]: [column] for column in _SHARED["columns"]} | dict(_SHARED["lists"])


def _expand(entries: Any) -> Iterator[dict[str, Any]]:
    """Yield the fields of each column, with shared columns in place of their names."""
    if not isinstance(entries, list):
        raise ValueError(f"columns: expected a list, got {entries!r}")
    for entry in entries:
        if not isinstance(entry, str | dict):
            raise ValueError(f"columns: expected the fields of a column, or a name of shared.yaml, got {entry!r}")
        fields = {"like": entry} if isinstance(entry, str) else dict(entry)
        if (name := fields.pop("like", None)) is None:
            yield fields
        elif name in _LISTS:
            yield from (column | fields for column in _expand(_LISTS[name]))
        else:
            near = ", ".join(difflib.get_close_matches(name, _LISTS)) or ", ".join(_LISTS)
            raise ValueError(f"{name!r} is no column or list of store/tables/shared.yaml; near: {near}")


def parse_table(name: str, block: dict[str, Any]) -> Table:
    """Return the table that a file of store/tables declares.

    Raises ValueError, with the file, for an unknown, missing or wrong field, and for a name that nothing has.
    """
    try:
        columns = list(_expand(block.get("columns", [])))
        return Table(name=name, **block | {"columns": columns})
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            place = list(problem["loc"])
            if place[:1] == ["columns"] and len(place) > 1:
                place[1] = columns[int(place[1])].get("name", place[1])
            problems.append(f"{'.'.join(map(str, place))}: {problem['msg']}, got {problem['input']!r}")
        raise ValueError(f"store/tables/{name}.yaml: {'; '.join(problems)}") from None
    except ValueError as error:
        raise ValueError(f"store/tables/{name}.yaml: {error}") from None


TABLES: Mapping[str, Table] = {name: parse_table(name, _read(f"tables/{name}.yaml")) for name in _SHARED["tables"]}
_VIEWS = _read("view_columns.yaml")
_ANYWHERE = [Column(**fields) for fields in _expand(["identity", "stack", "layer", "normed", "seed", "stage"])]
# Column name -> meaning, in any view that does not define its own in OWN.
MEANINGS: Mapping[str, str] = {column.name: column.comment for column in _ANYWHERE} | dict(_VIEWS["every"])
# View -> column name -> meaning, for that view alone.
OWN: Mapping[str, Mapping[str, str]] = _VIEWS["views"]


def view_meaning(view: str, column: str, reads: Collection[str]) -> str | None:
    """Return the meaning of a column of a view, or None if none is defined.

    reads: names of the tables that the view reads; a column of the same name in one of them is the last
    resort.
    """
    if own := OWN.get(view, {}).get(column) or MEANINGS.get(column):
        return own
    columns = (other for name, table in TABLES.items() if name in reads for other in table.columns)
    return next((other.comment for other in columns if other.name == column), None)


def isotropy_measures() -> tuple[Column, ...]:
    """Return the columns of `geometry` that order states by isotropy."""
    return tuple(column for column in TABLES["geometry"].columns if column.more_isotropic)


def job_tables(stage: str) -> list[str]:
    """Return the names of the tables that the jobs of a stage write."""
    return [name for name, table in TABLES.items() if stage in table.stages and table.keyed]


def arrow_schema(name: str) -> pa.Schema:
    """Return the Arrow schema of a table, with nullability and without metadata."""
    return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in TABLES[name].columns])


def to_arrow(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Convert rows to a table of the schema. A nullable column may be absent; a NaN in one becomes null.

    Raises ValueError for unknown columns, missing columns, and values of the wrong type.
    """
    schema = arrow_schema(name)
    known, required = set(schema.names), [field.name for field in schema if not field.nullable]
    optional = {field.name for field in schema if field.nullable}
    clean = []
    for n, row in enumerate(rows):
        if unknown := sorted(set(row) - known):
            raise ValueError(f"table {name}, row {n}: unknown columns {unknown}, expected {schema.names}")
        if missing := [c for c in required if row.get(c) is None]:
            raise ValueError(f"table {name}, row {n}: missing columns {missing}")
        # NaN is the only value that differs from itself.
        clean.append({c: None if c in optional and isinstance(v, float) and v != v else v for c, v in row.items()})
    columns = []
    for field in schema:
        try:
            columns.append(pa.array([row.get(field.name) for row in clean], field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise ValueError(f"table {name}, column {field.name}: expected {field.type}: {error}") from error
    return pa.Table.from_arrays(columns, schema=schema)
