"""Findings of the scanner: one per place, with how bad it is and why; and the policy by which a user silences rules or
holds more (`screening.toml`)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from habitus.errors import Invalid


class ThreatKind(StrEnum):
    """What content would do to the person who trusts it; each is also the name of the rule that a user may silence."""

    SENDS_SECRETS = "sends_secrets"
    SENDS_PRIVATE_DATA = "sends_private_data"
    RUNS_DOWNLOADS = "runs_downloads"
    DESTROYS = "destroys"
    STARTS_ITSELF = "starts_itself"
    CONCEALS = "conceals"
    OVERRIDES = "overrides"
    OPENS_ACCESS = "opens_access"
    WEAKENS = "weakens"


class RiskLevel(StrEnum):
    HIGH = "high"  # would do harm: waits for a person
    NOTE = "note"  # said beside the skill


_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ue000-\uf8ff\U000e0000-\U000fffff]+"
)
_QUOTE_CHARACTERS = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One suspicious place in one file; it may stand for more of its kind."""

    rule: str
    severity: RiskLevel
    path: str
    line: int
    quote: str  # the line of the file, safe to print
    why: str  # the threat in one sentence
    more: int = 0  # places of the same kind in the skill

    def __str__(self) -> str:
        more = f", and {self.more} more place{'s' * (self.more > 1)}" if self.more else ""
        quote = f"“{self.quote}” " if self.quote and self.quote != self.path else ""
        return f"{self.path}:{self.line}: {quote}{self.why.rstrip('.')}{more} ({self.rule})"


def merge_findings_of_each_rule(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One a kind, the first place, which says how many more there are; in the order they come."""
    kinds: dict[tuple[str, RiskLevel], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.rule, finding.severity), []).append(finding)
    return tuple(replace(found[0], more=len(found) - 1) for found in kinds.values())


def has_no_high_risk_finding(findings: Iterable[Finding]) -> bool:
    """Nothing here needs a person's decision."""
    return all(finding.severity is not RiskLevel.HIGH for finding in findings)


def get_finding_sort_key(finding: Finding) -> tuple[bool, str, int, str]:
    return finding.severity is not RiskLevel.HIGH, finding.path, finding.line, finding.rule


def make_safe_quote(text: str) -> str:
    """A short piece that is safe to print: no control or invisible characters."""
    plain = " ".join(_CONTROL.sub(" ", text[: 4 * _QUOTE_CHARACTERS]).split())
    return plain if len(plain) <= _QUOTE_CHARACTERS else plain[: _QUOTE_CHARACTERS - 1] + "…"


FILE = "screening.toml"
_LONGEST = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class ScreeningPolicy:
    """`silence` maps rules to reasons, `hold` maps texts that are to be held to reasons."""

    silence: Mapping[str, str] = field(default_factory=dict)
    hold: Mapping[str, str] = field(default_factory=dict)


def read_screening_policy(home: Path) -> ScreeningPolicy:
    """The policy of a home; an empty one where there is no file."""
    path = home / FILE
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return ScreeningPolicy()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = " ".join(str(error).split())
        raise Invalid(f"{path} can't be read: {reason}.", hint='A line reads: silence.RULE = "REASON".') from None
    for name, rows in table.items():
        is_reasoned = isinstance(rows, dict) and all(isinstance(why, str) and why.strip() for why in rows.values())
        if name not in ("silence", "hold") or not is_reasoned:
            raise Invalid(
                f"{path}: '{name}' is not understood.",
                hint='Lines read: silence.RULE = "REASON", hold."TEXT" = "REASON".',
            )
    if wrong := next((text for text in table.get("hold", {}) if not 3 <= len(text) <= _LONGEST), None):
        raise Invalid(
            f"{path}: '{wrong[:40]}' is not a text of 3 to {_LONGEST} characters.", hint="Hold longer or shorter texts."
        )
    return ScreeningPolicy(silence=table.get("silence", {}), hold=table.get("hold", {}))


def find_texts_held_by_policy(lower: str, policy: ScreeningPolicy) -> list[tuple[int, str, str]]:
    """Where a text stands that the user wants held: place, text, reason."""
    found = ((re.search(re.escape(text.lower()), lower), text, why) for text, why in policy.hold.items())
    return [(place.start(), text, why) for place, text, why in found if place]
