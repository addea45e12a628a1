"""LaTeX in pages as MathML, which browsers draw by themselves."""

from __future__ import annotations

import html as entities
import re

import latex2mathml.converter

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def with_mathml(html: str, page: str) -> str:
    """Every equation that arithmatex marked. Raises ValueError, naming page and equation, for one that is no LaTeX."""

    def converted(display: str, latex: str) -> str:
        try:
            made = latex2mathml.converter.convert(entities.unescape(latex).strip(), display=display)
        except Exception as error:
            raise ValueError(f"{page}: {latex.strip()!r} is no equation: {type(error).__name__} {error}") from error
        return made.replace("<math ", f'<math alttext="{entities.escape(entities.unescape(latex).strip())}" ', 1)

    html = BLOCK.sub(lambda found: converted("block", found[1]), html)
    return INLINE.sub(lambda found: converted("inline", found[1]), html)
