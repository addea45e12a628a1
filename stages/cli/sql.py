"""Command `tsfmscope sql`: the same as `python -m tsfmscope.store`."""

from __future__ import annotations

import typer

SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


def sql(context: typer.Context) -> None:
    """Run SQL on the results: a statement, a .sql file, - for standard input, or a prompt.

    \b
    tsfmscope sql "select 6 * 7 as answer" --format markdown
    tsfmscope sql "select model, layer, zeta from geometry limit 3" --json
    tsfmscope sql tables geometry
    tsfmscope sql query --help

    This is `python -m tsfmscope.store`; --json means --format json. Exit code 2: the SQL or the database is
    not valid.
    """
    from tsfmscope.store.__main__ import main

    arguments = [part for word in context.args for part in (["--format", "json"] if word == "--json" else [word])]
    main(arguments, "tsfmscope sql")
