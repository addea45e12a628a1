"""README is short, its picture is the generated one, and its findings have the numbers of the pages that they name."""

from __future__ import annotations

import re

import pytest

from docs.building import few_bits
from tests.docs.blocks import FENCE, ROOT

README = (ROOT / "README.md").read_text("utf-8")
MOST_LINES, MOST_WORDS = 100, 900
FINDINGS = re.findall(r"^- .+$", README.partition("\n## What was found\n")[2].partition("\n## ")[0], re.MULTILINE)
LINK = re.compile(r"\]\(([^)#]*)[^)]*\)")
NUMBER = re.compile(r"−?\b\d+(?:\.\d+)?(?: %)?")


def test_readme_is_short() -> None:
    words = LINK.sub("]", FENCE.sub("", README)).split()
    assert README.count("\n") <= MOST_LINES and len(words) <= MOST_WORDS, (README.count("\n"), len(words))


def test_the_picture_is_the_generated_one_and_light() -> None:
    picture = few_bits.PICTURE.read_text("utf-8")
    assert picture == few_bits.draw(), "run: python -m docs.building.few_bits"
    assert f"]({few_bits.PICTURE.relative_to(ROOT)})" in README
    assert len(picture) < 150_000 and 'fill="#ffffff"' in picture


def test_the_table_of_few_bits_has_the_printed_counts() -> None:
    # One row is of a model that others trained.
    ours = [point for point in few_bits.read_points() if point.model.endswith("-mini")]
    certified = {share: sum(p.is_certified for p in ours if p.share == share) for share in (0.25, 0.18, 0.15, 0.13)}
    assert certified == {0.25: 8, 0.18: 7, 0.15: 4, 0.13: 3}
    assert "at 18 % of the bytes, seven of the eight that were tried" in README


@pytest.mark.parametrize("finding", FINDINGS)
def test_a_finding_has_the_numbers_of_its_pages(finding: str) -> None:
    pages = "".join((ROOT / path).read_text("utf-8") for path in LINK.findall(finding)).replace("\n", " ")
    assert pages, "expected a link to the page that has the numbers"
    for number in NUMBER.findall(LINK.sub("]", finding)):
        share = f"{float(number.removesuffix(' %').replace('−', '-')) / 100:g}" if number.endswith("%") else number
        assert any(re.search(rf"(?<![\d.]){re.escape(text)}(?![\d]|\.\d)", pages) for text in (number, share)), number


def test_every_result_has_a_finding() -> None:
    assert len(FINDINGS) >= 6
