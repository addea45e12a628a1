"""`tsfm-lens sql`: the store's own command, `python -m store`."""

from __future__ import annotations

import typer

SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


def sql(context: typer.Context) -> None:
    """SQL over the results: a statement, a .sql file, - for standard input, or a prompt where there is nothing.

    \b
    tsfm-lens sql "select 6 * 7 as answer" --format markdown
    tsfm-lens sql "select model, layer, zeta from geometry limit 3" --json
    tsfm-lens sql tables geometry
    tsfm-lens sql query --help

    This is `python -m store`; --json stands for --format json. Exit code 2 says that the SQL or its database is wrong.
    """
    from store.__main__ import main

    arguments = [part for word in context.args for part in (["--format", "json"] if word == "--json" else [word])]
    main(arguments, "tsfm-lens sql")
