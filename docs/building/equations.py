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

    def converted(display: str, latex: str) -> str:
        try:
            made = latex2mathml.converter.convert(entities.unescape(latex).strip(), display=display)
        except Exception as error:
            raise ValueError(f"{page}: {latex.strip()!r} is no equation: {type(error).__name__} {error}") from error
        return made.replace("<math ", f'<math alttext="{entities.escape(entities.unescape(latex).strip())}" ', 1)

    html = BLOCK.sub(lambda found: converted("block", found[1]), html)
    return INLINE.sub(lambda found: converted("inline", found[1]), html)
