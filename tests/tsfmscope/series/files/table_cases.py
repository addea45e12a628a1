"""Tables in the shapes that users' programs write, each with the series that a reader must find in it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tsfmscope.series.files.frames import UNNAMED, Columns

STEPS = 60
Y = [round(10 + 3 * float(np.sin(step)) + step % 7 / 4, 3) for step in range(STEPS)]
DAYS = pd.date_range("2024-01-01", periods=STEPS, freq="D")
HOURS = pd.date_range("2024-01-14", periods=STEPS, freq="h")


class Case(NamedTuple):
    """A file and what is right: ids of the series, frequency, time of the first value, and values of the first series.

    skipped: ids that are left out.
    """

    name: str
    data: bytes
    ids: list[str]
    freq: str
    start: str
    values: list[float] = Y
    columns: Columns = UNNAMED
    skipped: tuple[str, ...] = ()


def cases() -> Iterator[Case]:
    """Yield every case; the first ones are those of issue 44, their neighbours follow."""
    yield from _index_cases()
    yield from _type_cases()
    yield from _time_cases()
    yield from _zone_cases()
    yield from _id_cases()
    yield from _csv_cases()


def _index_cases() -> Iterator[Case]:
    two = pd.DataFrame(
        {"item_id": ["A"] * STEPS + ["B"] * STEPS, "timestamp": [*DAYS, *DAYS], "target": [*Y, *Y[::-1]]}
    )
    days = ("D", "2024-01-01")
    yield Case("multiindex.parquet", _parquet(two.set_index(["item_id", "timestamp"])), ["A", "B"], *days)
    numbered = two.assign(item_id=[7] * STEPS + [8] * STEPS).rename(columns={"item_id": "store"})
    yield Case("multiindex_of_numbers.parquet", _parquet(numbered.set_index(["store", "timestamp"])), ["7", "8"], *days)
    yield Case("ids_in_the_index.parquet", _parquet(two.set_index("item_id")), ["A", "B"], *days)
    text_index = pd.DataFrame({"y": Y}, index=[f"{day:%Y-%m-%d}" for day in DAYS])
    yield Case("text_dates_in_the_index.parquet", _parquet(text_index[::-1]), ["y"], *days)
    prices = pd.DataFrame({("Close", "AAPL"): Y, ("Open", "AAPL"): Y}, index=pd.Index(DAYS, name="Date"))
    yield Case("multiindex_columns.parquet", _parquet(prices), ["Close:AAPL", "Open:AAPL"], *days)
    yield Case("damaged_pandas_block.parquet", _with_block(two, b"{not json"), ["A", "B"], *days)
    block = b'{"index_columns": ["none"], "columns": [{"name": "target", "kind": 3}]}'
    yield Case("foreign_pandas_block.parquet", _with_block(two, block), ["A", "B"], *days)


def _type_cases() -> Iterator[Case]:
    days = ("D", "2024-01-01")
    table = pd.DataFrame({"item_id": "A", "timestamp": DAYS, "target": Y})
    unused = table.assign(item_id=pd.Categorical(["A"] * STEPS, categories=["A", "B"]))
    yield Case("unused_category.parquet", _parquet(unused), ["A"], *days)
    yield Case("decimal.parquet", _parquet(table.assign(target=[Decimal(str(y)) for y in Y])), ["A"], *days)
    shuffled = pd.DataFrame({"day": DAYS.date, "y": Y}).sample(frac=1, random_state=0)
    yield Case("date32_shuffled.parquet", _parquet(shuffled), ["y"], *days)
    yield Case("dictionary_of_dates.parquet", _parquet(shuffled.astype({"day": "category"})), ["y"], *days)
    quarters = pd.DataFrame({"q": pd.period_range("2000Q1", periods=STEPS, freq="Q"), "y": Y})
    yield Case("periods.parquet", _parquet(quarters), ["y"], "QS-OCT", "2000-01-01")
    for level in (1e8, 1e9, 1e12):
        raised = [y + level for y in Y]
        frame = pd.DataFrame({"ds": DAYS, "y": raised})
        yield Case(f"level_{level:.0e}.csv", frame.to_csv(index=False).encode(), ["y"], *days, raised)
    lists = [np.array(Y) + shift for shift in (0, 1)]
    own = {
        "item_id": pa.array(["A", "B"]), "start": pa.array([DAYS[0]] * 2), "freq": pa.array(["D"] * 2),
        "target": pa.array(lists),
    }  # fmt: skip
    whole = [np.round(values).astype(int) for values in lists]
    yield Case(
        "int_lists.parquet", _arrow(own | {"target": pa.array(whole)}), ["A", "B"], *days, [*map(float, whole[0])]
    )
    view = {name: own[name].cast(pa.string_view()) for name in ("item_id", "freq")}
    yield Case("string_view.parquet", _arrow(own | view), ["A", "B"], *days)
    yield Case(
        "list_view.parquet", _arrow(own | {"target": pa.array(lists, pa.list_view(pa.float64()))}), ["A", "B"], *days
    )
    yield Case("date32_start.parquet", _arrow(own | {"start": own["start"].cast(pa.date32())}), ["A", "B"], *days)
    yield Case("text_start.parquet", _arrow(own | {"start": pa.array(["2024-01-01"] * 2)}), ["A", "B"], *days)
    cents = pa.array([[Decimal(str(y)) for y in Y]] * 2, pa.list_(pa.decimal128(9, 3)))
    yield Case("decimal_lists.parquet", _arrow(own | {"target": cents}), ["A", "B"], *days)


def _time_cases() -> Iterator[Case]:
    hourly = ("h", "2024-01-14")
    minutes = pd.date_range("2024-01-14", periods=STEPS, freq="10min")
    months = pd.date_range("2000-01-01", periods=STEPS, freq="MS")
    weeks = pd.date_range("2023-01-02", periods=STEPS, freq="W-MON")
    quarters = pd.period_range("2000Q1", periods=STEPS, freq="Q")
    yield _wide("yyyymmddhh.csv", HOURS.strftime("%Y%m%d%H"), *hourly)
    yield _wide("yyyymmddhhmm.csv", minutes.strftime("%Y%m%d%H%M"), "10min", "2024-01-14")
    yield _wide("yyyymm.csv", months.strftime("%Y%m"), "MS", "2000-01-01")
    yield _wide("quarters.csv", quarters.strftime("%YQ%q"), "QS-OCT", "2000-01-01")
    yield _wide("quarters_first.csv", [f"Q{q.quarter} {q.year}" for q in quarters], "QS-OCT", "2000-01-01")
    yield _wide("iso_weeks.csv", weeks.strftime("%G-W%V"), "W-MON", "2023-01-02")
    yield _wide("months_of_eurostat.csv", months.strftime("%YM%m"), "MS", "2000-01-01")
    yield _wide("named_months.csv", DAYS.strftime("%d-%b-%y"), "D", "2024-01-01")
    yield _wide("monthly_on_15th.csv", months + pd.Timedelta(days=14), "MS", "2000-01-15")
    sparse = pd.DatetimeIndex(np.random.default_rng(0).choice(pd.date_range("2020-01-01", periods=240), STEPS, False))
    yield _wide("sparse_days.csv", sparse.sort_values(), "", f"{sparse.min():%Y-%m-%d}")
    separate = pd.DataFrame({"Date": HOURS.strftime("%d/%m/%Y"), "Time": HOURS.strftime("%H:%M:%S"), "power": Y})
    text = separate.to_csv(index=False, sep=";").encode()
    yield Case("date_and_time.csv", text, ["power"], *hourly)
    yield Case("date_and_time_named.csv", text, ["power"], *hourly, columns=Columns(time=["Date", "Time"]))
    by_hour = pd.DataFrame({"date": HOURS.date, "hour": HOURS.hour, "power": Y}).to_csv(index=False).encode()
    yield Case("date_and_hour.csv", by_hour, ["power"], *hourly, columns=Columns(time=["date", "hour"]))
    header = pd.DataFrame(
        [Y, Y[::-1]], columns=[f"{day:%Y-%m-%d}" for day in DAYS], index=pd.Index(["p0", "p1"], name="page")
    )
    yield Case("dates_as_header.csv", header.to_csv().encode(), ["p0", "p1"], "D", "2024-01-01")
    years = header.set_axis([str(year) for year in range(1960, 1960 + STEPS)], axis=1)
    yield Case("years_as_header.csv", years.to_csv().encode(), ["p0", "p1"], "YS-JAN", "1960-01-01")


def _zone_cases() -> Iterator[Case]:
    autumn = pd.date_range("2024-10-01", periods=STEPS, freq="D", tz="Europe/Berlin")
    yield _wide("daily_with_offsets.csv", [time.isoformat() for time in autumn], "D", "2024-10-01")
    utc = autumn.tz_convert("UTC")
    yield _wide("daily_in_utc.csv", utc.strftime("%Y-%m-%dT%H:%M:%SZ"), "D", "2024-09-30 22:00")
    local = Columns(tz="Europe/Berlin")
    yield _wide("daily_in_utc_tz.csv", utc.strftime("%Y-%m-%dT%H:%M:%SZ"), "D", "2024-10-01", columns=local)
    for zone, day in (
        ("Europe/Berlin", "2023-10-28"),
        ("America/New_York", "2023-11-04"),
        ("Europe/London", "2023-10-28"),
    ):
        hours = pd.date_range(day, periods=STEPS, freq="h", tz=zone)
        name = f"hourly_with_repeated_hour_{zone.partition('/')[2]}.csv"
        yield _wide(name, hours.strftime("%Y-%m-%d %H:%M:%S"), "h", day)
    hours = pd.date_range("2023-10-28", periods=STEPS, freq="h", tz="Europe/Berlin")
    yield _wide("hourly_tz.csv", hours.strftime("%Y-%m-%d %H:%M:%S"), "h", "2023-10-28", columns=local)
    halves = pd.date_range("2023-10-28 12:00", periods=STEPS, freq="30min", tz="Europe/Berlin").strftime(
        "%Y-%m-%d %H:%M"
    )
    yield _wide("half_hours.csv", halves, "30min", "2023-10-28 12:00")
    backwards = pd.DataFrame({"ds": halves, "y": Y})[::-1].to_csv(index=False).encode()
    yield Case("newest_first.csv", backwards, ["y"], "30min", "2023-10-28 12:00")
    both = pd.DataFrame({"unique_id": ["a"] * STEPS + ["b"] * STEPS, "ds": [*halves, *halves], "y": [*Y, *Y]})
    yield Case("repeated_hour_of_ids.csv", both.to_csv(index=False).encode(), ["a", "b"], "30min", "2023-10-28 12:00")


def _id_cases() -> Iterator[Case]:
    days = ("D", "2024-01-01")
    short = "".join(f"B,{day},5\n" for day in ("2024-01-01", "2024-01-08", "2024-01-15"))
    long = pd.DataFrame({"unique_id": "A", "ds": DAYS, "y": Y}).to_csv(index=False)
    yield Case("one_short_item.csv", (long + short).encode(), ["A"], *days, skipped=("B",))
    every_second = pd.DataFrame(
        {"unique_id": "B", "ds": pd.date_range("2024-01-01", periods=40, freq="2D"), "y": Y[:40]}
    )
    text = long + every_second.to_csv(index=False, header=False)
    yield Case("every_second_day.csv", text.encode(), ["A", "B"], *days)
    weeks = [pd.date_range(first, periods=STEPS, freq="7D") for first in ("2024-01-01", "2024-01-03")]
    weekly = pd.DataFrame({"unique_id": ["A"] * STEPS + ["B"] * STEPS, "ds": [*weeks[0], *weeks[1]], "y": [*Y, *Y]})
    yield Case("weeks_of_two_days.csv", weekly.to_csv(index=False).encode(), ["A", "B"], "W-MON", "2024-01-01")
    stores = [(store, item) for store in (1, 2) for item in (1, 2)]
    rows = [(day, *key, y) for key in stores for day, y in zip(DAYS, Y, strict=True)]
    sales = pd.DataFrame(rows, columns=["date", "store", "item", "sales"]).to_csv(index=False).encode()
    ids = Columns(id=["store", "item"])
    yield Case("two_id_columns.csv", sales, ["1/1", "1/2", "2/1", "2/2"], *days, columns=ids)
    constant = "".join(
        f"{name},{day:%Y-%m-%d},5\n" for name, n in (("short", 20), ("constant", STEPS)) for day in DAYS[:n]
    )
    yield Case("short_and_constant.csv", (long + constant).encode(), ["A"], *days, skipped=("short", "constant"))


def _csv_cases() -> Iterator[Case]:
    days = ("D", "2024-01-01")
    plain = pd.DataFrame({"ds": DAYS, "y": Y}).to_csv(index=False)
    wide = pd.DataFrame({"ds": DAYS, "y": Y, "z": Y}).to_csv(index=False)
    yield Case("comments.csv", ("# station 1\n# metres, above sea\n" + plain).encode(), ["y"], *days)
    yield Case("sep.csv", ("sep=;\n" + plain.replace(",", ";")).encode(), ["y"], *days)
    yield Case("title.csv", ("Daily report\n\n" + plain).encode(), ["y"], *days)
    preamble = '"Data Source","World Development Indicators"\n\n"Last Updated","2024"\n\n'
    yield Case("preamble.csv", (preamble + wide).encode(), ["y", "z"], *days)
    cells = ("<NA>", r"\N", "#DIV/0!", "#VALUE!")
    gaps = plain.splitlines()
    for row, cell in enumerate(cells, start=5):
        gaps[row] = gaps[row].partition(",")[0] + "," + cell
    values = [np.nan if 4 <= step < 4 + len(cells) else y for step, y in enumerate(Y)]
    yield Case("missing_cells.csv", "\n".join(gaps).encode(), ["y"], *days, values)
    german = "".join(
        f"{day:%d.%m.%Y};{f'{y:.3f}'.replace('.', ',')};1.{number + 100},50\n"
        for number, (day, y) in enumerate(zip(DAYS, Y, strict=True))
    )
    header = "Datum;Filiale Köln;Filiale München\n"
    names = ["Filiale Köln", "Filiale München"]
    yield Case("excel_de_thousands.csv", (header + german).encode(), names, *days)
    yield Case("excel_de_cp1252.csv", (header + german).encode("cp1252"), names, *days)
    yield Case("utf16.csv", (header + german).encode("utf-16"), names, *days)
    thousands = [1000 + y for y in Y]
    english = "ds,y\n" + "".join(f'{day:%Y-%m-%d},"{y:,}"\n' for day, y in zip(DAYS, thousands, strict=True))
    yield Case("thousands.csv", english.encode(), ["y"], *days, thousands)


def _wide(name: str, times: Any, freq: str, start: str, columns: Columns = UNNAMED) -> Case:
    return Case(
        name, pd.DataFrame({"ds": times, "y": Y}).to_csv(index=False).encode(), ["y"], freq, start, columns=columns
    )


def _arrow(columns: dict[str, pa.Array]) -> bytes:
    return _write(pa.table(columns))


def _parquet(frame: pd.DataFrame) -> bytes:
    return _write(pa.Table.from_pandas(frame))


def _with_block(frame: pd.DataFrame, block: bytes) -> bytes:
    return _write(pa.Table.from_pandas(frame).replace_schema_metadata({b"pandas": block}))


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())
