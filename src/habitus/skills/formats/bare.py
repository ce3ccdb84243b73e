"""Plain Markdown as a skill: titled by its first heading, described by its first paragraph."""

from __future__ import annotations

import re

_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
_SETEXT = re.compile(r"^(\S.*)\n=+[ \t]*$", re.MULTILINE)

SAID = "It came without frontmatter; the description is its first paragraph."


def is_document(body: str) -> bool:
    """Whether a file is meant as it is: a heading, then words. Anything else has lost its frontmatter."""
    return _HEADING.match(body.lstrip()) is not None and bool(first_paragraph(body))


def title(body: str) -> str:
    found = _HEADING.search(body) or _SETEXT.search(body)
    return found[1].strip() if found else ""


def first_paragraph(body: str) -> str:
    """The first lines of prose, without headings, fences and lists' marks."""
    lines: list[str] = []
    is_code = False
    for line in body.splitlines():
        words = line.strip()
        if words.startswith(("```", "~~~")):
            is_code = not is_code
        elif is_code or not words or words.startswith(("#", "---", "|")):
            if lines:
                break
        else:
            lines.append(re.sub(r"^(?:[-*+]|\d+[.)])\s+", "", words))
    return " ".join(lines)
