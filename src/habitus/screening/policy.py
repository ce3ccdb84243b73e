"""Reads screening.toml: which rules a user silences, and what else is to be held, one line each with the reason."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from habitus.errors import Invalid

FILE = "screening.toml"
_LONGEST = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """`silence` maps rules to reasons, `hold` maps texts that are to be held to reasons."""

    silence: Mapping[str, str] = field(default_factory=dict)
    hold: Mapping[str, str] = field(default_factory=dict)


def read_policy(home: Path) -> Policy:
    """The policy of a home; an empty one where there is no file."""
    path = home / FILE
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Policy()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = " ".join(str(error).split())
        raise Invalid(f"{path} can't be read: {reason}.", mend='A line reads: silence.RULE = "REASON".') from None
    for name, rows in table.items():
        is_reasoned = isinstance(rows, dict) and all(isinstance(why, str) and why.strip() for why in rows.values())
        if name not in ("silence", "hold") or not is_reasoned:
            raise Invalid(
                f"{path}: '{name}' is not understood.",
                mend='Lines read: silence.RULE = "REASON", hold."TEXT" = "REASON".',
            )
    if wrong := next((text for text in table.get("hold", {}) if not 3 <= len(text) <= _LONGEST), None):
        raise Invalid(
            f"{path}: '{wrong[:40]}' is no text of 3 to {_LONGEST} characters.", mend="Hold longer or shorter texts."
        )
    return Policy(silence=table.get("silence", {}), hold=table.get("hold", {}))


def held_texts(lower: str, policy: Policy) -> list[tuple[int, str, str]]:
    """Where a text stands that the user wants held: place, text, reason."""
    found = ((re.search(re.escape(text.lower()), lower), text, why) for text, why in policy.hold.items())
    return [(place.start(), text, why) for place, text, why in found if place]
