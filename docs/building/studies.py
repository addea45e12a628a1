"""Generator of a page for each study of the params files: its question, plot, claims, block and SQL."""

from __future__ import annotations

import csv
import html
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PROFILES = {name: f"params/{name}.yaml" for name in ("full", "ranks", "compression", "population")}
# Prefix of the studies' names -> title of their group in the navigation.
GROUPS = {
    "isotropy": "Isotropy",
    "ranks": "Rank",
    "theory": "Theorems",
    "population": "A population of trainings",
    "": "Compression",
}
# Study that is in two profiles; each profile has its own page of it.
SHARED = "ranks-fig12"
# Page -> its notes by kind: label, paper, see.
Notes = dict[str, dict[str, str]]
RUN = {
    "full": "`make profile NAME=full` puts it into `params.yaml`; then `dvc repro` runs it, in about nine minutes.",
    "ranks": "`make profile NAME=ranks` puts it into `params.yaml`; then `dvc repro` runs it, in about an hour of two "
    "cores.",
    "compression": "`make profile NAME=compression` puts it into `params.yaml`; then `dvc repro` runs it, all in "
    "some four hours on two cores. The plots here are of runs of one or two studies each, on several machines.",
    "population": "`make profile NAME=population` puts it into `params.yaml`; then `dvc repro` runs it, in about 110 "
    "minutes of two cores.",
}
# Sections of the report that belong to no study of a params file but to the stage `theory`.
THEORY = {
    "theory-compression": ("Attention matrices are compressible on low-rank inputs", "ranks Fig. 15"),
    "theory-sketch": ("Sparse sketches, a few rows per head", "ranks Fig. 16"),
    "theory-flow": ("More heads lift more singular values", "ranks Fig. 17"),
    "theory-bounds": ("Do the theorems hold at every instance?", "ranks Theorems 1 to 6"),
}


class Page(NamedTuple):
    """One study of one profile. block: None for a section on theory."""

    name: str
    profile: str
    title: str
    figure: str | None
    block: dict[str, Any] | None


def every_page(root: Path) -> list[Page]:
    """Return every study of the params files, then the sections on theory."""
    pages = [
        Page(name, profile, block["title"], block.get("figure"), block)
        for profile, file in PROFILES.items()
        for name, block in yaml.safe_load((root / file).read_text("utf-8"))["studies"].items()
    ]
    return [*pages, *(Page(name, "full", title, figure, None) for name, (title, figure) in THEORY.items())]


def key(page: Page) -> str:
    """Return the page's name in the site and in the notes."""
    return f"{page.name}-{page.profile}" if page.profile != "full" and page.name == SHARED else page.name


def path(page: Page) -> str:
    """Return the page's path in the site."""
    return f"studies/{key(page)}.md"


def navigation(root: Path) -> list[Any]:
    """Return the navigation: an overview, then the pages in groups."""
    grouped: dict[str, list[dict[str, str]]] = {title: [] for title in GROUPS.values()}
    notes = _notes(root)["studies"]
    for page in _in_order(every_page(root)):
        grouped[_group(page)].append({_short(page, notes): path(page)})
    return ["studies/index.md", *({title: pages} for title, pages in grouped.items())]


def pages(root: Path) -> dict[str, str]:
    """Return path -> Markdown of every page, and of the overview with all plots."""
    notes = _notes(root)
    every = _in_order(every_page(root))
    text_by_page = {path(page): _page(page, root, notes["studies"].get(key(page), {})) for page in every}
    text_by_page["studies/index.md"] = notes["lead"] + "\n" + "\n".join(_cards(every, root, notes["studies"]))
    return text_by_page


def _notes(root: Path) -> dict[str, Any]:
    notes: dict[str, Any] = yaml.safe_load((root / "docs/studies/notes.yaml").read_text("utf-8"))
    return notes


def _in_order(pages: list[Page]) -> list[Page]:
    """Return the pages sorted by the number of the paper's figure.

    Pages without a figure come first, and appendices last.
    """

    def sort_key(page: Page) -> tuple[int, str]:
        number = re.search(r"Fig\. (\d+)(\w?)", page.figure or "")
        return (int(number[1]), number[2]) if number else (99 if "Appendix" in (page.figure or "") else 0, "")

    return sorted(pages, key=sort_key)


def plot_file(page: Page, root: Path) -> str | None:
    """Return the path under docs/ of the plot from the profile's run; None if there is none."""
    file = f"results/{page.profile}/{page.name}.png"
    return file if (root / "docs" / file).is_file() else None


def captions(page: Page, root: Path) -> list[str]:
    """Return the caption of each figure of the plot, from the file next to it; [] if there is none."""
    file = plot_file(page, root)
    text = (root / "docs" / file).with_suffix(".txt") if file else None
    return text.read_text("utf-8").strip().split("\n\n") if text and text.is_file() else []


def _page(page: Page, root: Path, note: dict[str, str]) -> str:
    parts = [f"# {page.title}", f"*{_figure(page)}; study `{page.name}` of `{PROFILES[page.profile]}`*"]
    parts += [f"**The paper.** {note['paper']}"] if "paper" in note else []
    if (file := plot_file(page, root)) is not None:
        parts.append(f"[![{page.title}](../{file})](../{file})")
        parts += [f'<p class="caption">{html.escape(text, quote=False)}</p>' for text in captions(page, root)]
    elif page.profile == "full":
        parts.append(f"The plot is the section `study-{page.name}` of `data/report.html` after a run.")
    parts += [f"**The plot.** {note['see']}"] if "see" in note else []
    if claims := _claims(page, root):
        parts += ["## What the paper claims, and what we measured", claims]
    parts += ["## Run it again", RUN[page.profile]]
    if page.block is not None:
        block = yaml.safe_dump(
            {"studies": {page.name: page.block}},
            sort_keys=False,
            allow_unicode=True,
            width=100,
            default_flow_style=None,
        )
        parts.append(f"```yaml\n{block}```")
    parts += [f"Query of the plot: {title[0].lower()}{title[1:]}.\n\n```sql\n{sql}\n```" for title, sql in sqls(page)]
    return "\n\n".join(parts) + "\n"


def sqls(page: Page) -> list[tuple[str, str]]:
    """Return the title and the SQL of the queries from which the report draws the plot."""
    from store.report_queries import load_queries
    from tsfmscope.report.plots import load_plot

    if page.block is None:
        name = "theory_violations" if page.name == "theory-bounds" else page.name.replace("-", "_")
        return [load_queries("page")[name][:2]]
    plot = page.block.get("plot", "domains")
    if plot == "islands":
        models = ", ".join(f"'{model}'" for model in page.block["models"])
        sql = f"select path\nfrom dumps\nwhere model in ({models})\n    and kind = 'embeddings'\norder by path"
        return [("The files whose states the plot shows", sql)]
    queries = load_queries("study")
    return [queries[name].fill(study=page.name)[:2] for name in load_plot(plot).queries]


def _claims(page: Page, root: Path) -> str:
    """Return a table of the study's rows in the profile's committed claims.csv; "" if there are none.

    The file is an export of `published_vs_measured`.
    """
    file = root / f"docs/results/{page.profile}/claims.csv"
    if not file.is_file():
        return ""
    with file.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["study"] == page.name]
    # A claim about single models has one row per model.
    has_models = any(row.get("model") for row in rows)
    columns = ["claim", *(["of"] if has_models else []), "published", "measured", "95 % interval", "p", "n", "verdict"]
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    for row in rows:
        numbers = [row["published_text"], _number(row["measured"]), _interval(row), _number(row["p"]), row["n"]]
        cells = [row["claim"], *([row["model"]] if has_models else []), *numbers, row["verdict"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if rows else ""


def _number(text: str) -> str:
    return f"{float(text):.3g}" if text else ""


def _interval(row: dict[str, str]) -> str:
    return f"{_number(row['low'])} to {_number(row['high'])}" if row["low"] else ""


def _cards(pages: list[Page], root: Path, notes: Notes) -> list[str]:
    lines = []
    for title in GROUPS.values():
        lines += [f"## {title}", '<div class="cards" markdown="0">']
        for page in (entry for entry in pages if _group(entry) == title):
            file = plot_file(page, root)
            image = f'<img alt="" loading="lazy" src="../{file}">' if file else ""
            target = path(page).removeprefix("studies/").removesuffix(".md")
            lines.append(f'<a href="{target}.html">{image}<b>{_short(page, notes)}</b>{page.title}</a>')
        lines.append("</div>\n")
    return lines


def _group(page: Page) -> str:
    if page.name.startswith("compression") or page.profile == "compression":
        return "Compression"
    return next(title for start, title in GROUPS.items() if page.name.startswith(start))


def _figure(page: Page) -> str:
    paper, _, reference = (page.figure or "").partition(" ")
    names = {"isotropy": "Shelim et al. 2025", "ranks": "Yu et al. 2026", "rank": "Yu et al. 2026"}
    return f"{reference[:1].upper()}{reference[1:]} of {names[paper]}" if reference else "A question of this project"


def _short(page: Page, notes: Notes) -> str:
    """Return the page's title in the navigation: the note's label, else the figure, else the study's name."""
    note = notes.get(key(page), {})
    if page.profile == "ranks" and page.name == SHARED:
        return "Fig. 12, by heads"
    return note.get("label") or (page.figure or page.name).partition(" ")[2] or page.name
