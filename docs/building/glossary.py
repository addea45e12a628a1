"""Links from the first use of every glossary term on a page to its row of the glossary."""

from __future__ import annotations

import functools
import posixpath
import re
from pathlib import Path

GLOSSARY = "glossary.md"
ROW = re.compile(r"^\| (?!term \||---)(?P<terms>[^|]+) \| (?P<meaning>[^|]+) \|$", re.MULTILINE)
# Text that stays as it is: blocks and spans of code, equations, headings, directives, links, HTML, headers of tables.
SKIPPED = re.compile(
    r"^( *)(`{3,}).*?^\1\2 *$|^---\n.*?^---$|^#.*?$|^:::.*?$|^\|[^\n]*\|\n(?=\| ?-)"
    r"|`[^`\n]+`|\$\$.*?\$\$|\$[^$\n]+\$|\[!\[[^\]]*\]\([^)]*\)\]\([^)]*\)|!?\[[^\]]*\]\([^)]*\)|<[^>\n]+>",
    re.MULTILINE | re.DOTALL,
)
# Terms that are also verbs; they are linked only after one of these words.
VERBS = ("study", "plot", "view", "fix", "hint", "key", "store")
ARTICLES = "".join(rf"(?<=\b{word} )|" for word in ("a", "the", "each", "every", "one", "of", "your")).rstrip("|")
# Terms that pages use in other meanings too: keys of attention, shares of a GPU.
NOT_LINKED = ("key", "share")
# Pages that are generated from code, or whose text is not prose.
LEFT_OUT = ("reference/", "files/", "measurements/", "changelog.md", "tables.md", GLOSSARY)


@functools.cache
def terms() -> dict[str, tuple[str, str]]:
    """Return term -> anchor of its row, meaning of the row; longer terms first."""
    text = Path(__file__).parents[1].joinpath(GLOSSARY).read_text("utf-8")
    found = {}
    for row in ROW.finditer(text):
        for term in row["terms"].split(", "):
            # Symbols and notes in brackets are no words to search for.
            name = re.sub(r"\s*\(.*\)|\s+[^\x00-\x7f]+$", "", term).strip()
            if name not in NOT_LINKED:
                found[name] = (anchor(row["terms"]), row["meaning"])
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


def anchor(row_terms: str) -> str:
    """Return the id of a row of the glossary, from its first term."""
    return "term-" + re.sub(r"\W+", "-", row_terms.split(",")[0].lower()).strip("-")


def with_anchors(markdown: str) -> str:
    """Return the glossary's text with an id for every row."""
    return ROW.sub(lambda row: f'| <span id="{anchor(row["terms"])}"></span>{row[0][2:]}', markdown)


def with_links(markdown: str, page: str) -> str:
    """Return a page's text with the first use of every term linked to the glossary; the title is the meaning."""
    if page == GLOSSARY:
        return with_anchors(markdown)
    if page.startswith(LEFT_OUT):
        return markdown
    path = posixpath.relpath(GLOSSARY, posixpath.dirname(page))
    # Alternate parts: text, skipped text, text, ...
    parts, start = [], 0
    for skipped in SKIPPED.finditer(markdown):
        parts += [markdown[start : skipped.start()], skipped[0]]
        start = skipped.end()
    parts.append(markdown[start:])
    for term, (row, meaning) in terms().items():
        before = f"(?:{ARTICLES})" if term in VERBS else r"(?<![\w-])(?<!time )"
        # A capital letter within a sentence is a name, such as the system Windows.
        first = rf"(?:{re.escape(term[0])}|(?:^|(?<=\. )|(?<=[\n*])|(?<=\| )){re.escape(term[0].upper())})"
        pattern = re.compile(rf"{before}{first}{re.escape(term[1:])}s?(?![\w-])")
        for index in range(0, len(parts), 2):
            if match := pattern.search(parts[index]):
                title = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`\"]", r"\1", meaning)
                link = f'[{match[0]}]({path}#{row} "{title}")'
                parts[index : index + 1] = [parts[index][: match.start()], link, parts[index][match.end() :]]
                break
    return "".join(parts)
