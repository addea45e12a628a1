"""Conversion of LaTeX in pages to MathML, which browsers render without a script."""

from __future__ import annotations

import html as entities
import re

import latex2mathml.converter

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def with_mathml(html: str, page: str) -> str:
    """Return the HTML with every equation that arithmatex has marked converted to MathML.

    Raises ValueError, which names the page and the equation, for an equation that is not valid LaTeX.
    """

    def convert(display: str, latex: str) -> str:
        try:
            mathml = latex2mathml.converter.convert(entities.unescape(latex).strip(), display=display)
        except Exception as error:
            raise ValueError(f"{page}: {latex.strip()!r} is no equation: {type(error).__name__} {error}") from error
        return mathml.replace("<math ", f'<math alttext="{entities.escape(entities.unescape(latex).strip())}" ', 1)

    html = BLOCK.sub(lambda match: convert("block", match[1]), html)
    return INLINE.sub(lambda match: convert("inline", match[1]), html)
