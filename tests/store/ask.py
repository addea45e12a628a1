"""Run by a DuckDB client in a process of its own: opens argv[1] and prints what it found, as JSON."""

import json
import sys

import duckdb

connection = duckdb.connect(sys.argv[1], read_only=True)
found = {"version": duckdb.__version__, "views": {}, "tables": {}}
for kind in ("view", "table"):
    names = connection.execute(f"select {kind}_name from duckdb_{kind}s() where not internal").fetchall()
    for (name,) in names:
        try:
            found[f"{kind}s"][name] = len(connection.execute(f"select * from {name}").fetchall())
        except duckdb.Error as error:
            found[f"{kind}s"][name] = str(error)
found["summary"] = [row[:2] for row in connection.execute("summarize training").fetchall()]
found["uncommented"] = connection.execute(
    "select count(*) from duckdb_columns() where not internal and comment is null"
    " and table_name in (select table_name from duckdb_tables())"
).fetchone()[0]
print(json.dumps(found))
