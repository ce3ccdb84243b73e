"""Names in braces that a skill's text may leave open, such as `{BOT_NAME}`, filled in when it is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping

KNOWN = ("BOT_NAME", "BOT_DIR", "SKILL_DIR", "USER")

_OPEN = re.compile(r"(?<!\$)\{(" + "|".join(KNOWN) + r")\}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the known names; shell variables (`${USER}`) and every other brace stay as they are."""
    return _OPEN.sub(lambda found: values.get(found[1], found[0]), text)
