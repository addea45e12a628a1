"""Links of the first use of a term to the glossary."""

from __future__ import annotations

from docs.building import glossary


def test_the_first_use_of_a_term_is_a_link_and_code_headings_and_links_stay() -> None:
    text = "# A cell\n\n`cell` [cell](x.md) Two cells and a cell. They study it on Windows.\n\n```text\na cell\n```\n"
    linked = glossary.with_links(text, "findings/rank.md")
    assert linked.startswith('# A cell\n\n`cell` [cell](x.md) Two [cells](../glossary.md#term-cell "one model on')
    assert linked.endswith(" and a cell. They study it on Windows.\n\n```text\na cell\n```\n")


def test_a_term_in_a_table_is_a_link_but_the_header_stays() -> None:
    text = "| cell | n |\n| --- | --- |\n| [x](y.md) | a cell |\n\nText.\n\n| cell |\n| --- |\n| a cell |\n"
    linked = glossary.with_links(text, "cli.md")
    assert linked.startswith("| cell | n |\n| --- | --- |\n| [x](y.md) | a [cell](glossary.md#term-cell ")
    assert linked.count("](") == 2 and linked.endswith("| cell |\n| --- |\n| a cell |\n")


def test_every_row_of_the_glossary_has_the_anchor_that_links_name() -> None:
    text = (glossary.Path(glossary.__file__).parents[1] / glossary.GLOSSARY).read_text("utf-8")
    shown = glossary.with_links(text, glossary.GLOSSARY)
    anchors = {row for row, _ in glossary.terms().values()}
    assert len(anchors) > 30
    assert all(shown.count(f'id="{row}"') == 1 for row in anchors)
