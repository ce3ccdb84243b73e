"""What the scanner reports: one finding per place, with how bad it is and why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    PROMPT_INJECTION = "prompt_injection"
    EXFILTRATION = "exfiltration"
    CREDENTIAL_ACCESS = "credential_access"
    OBFUSCATION = "obfuscation"
    DANGEROUS_CODE = "dangerous_code"
    HIDDEN_TEXT = "hidden_text"
    EXCESSIVE_PERMISSION = "excessive_permission"


class Risk(StrEnum):
    HIGH = "high"  # would do harm: waits for a person
    NOTE = "note"  # said beside the skill


_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ue000-\uf8ff\U000e0000-\U000fffff]+"
)
_EXCERPT_CHARACTERS = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One suspicious place in one file."""

    rule: str
    category: Category
    severity: Risk
    path: str
    line: int
    excerpt: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """The findings of one rule in a skill: the first place stands for the others."""

    first: Finding
    more: int = 0

    def __str__(self) -> str:
        more = f", and {self.more} more place{'s' * (self.more > 1)}" if self.more else ""
        return f"{self.first.path}:{self.first.line}: {self.first.why.rstrip('.')}{more} ({self.first.rule})"


def by_kind(findings: Iterable[Finding]) -> tuple[Kind, ...]:
    """One sentence a kind, with the first place and how many more; in the order they come."""
    kinds: dict[tuple[str, Risk], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.rule, finding.severity), []).append(finding)
    return tuple(Kind(first=found[0], more=len(found) - 1) for found in kinds.values())


def is_clean(findings: Iterable[Finding]) -> bool:
    """Nothing here needs a person's decision."""
    return all(finding.severity is not Risk.HIGH for finding in findings)


def worse_first(finding: Finding) -> tuple[bool, str, int, str]:
    return finding.severity is not Risk.HIGH, finding.path, finding.line, finding.rule


def excerpt_of(text: str) -> str:
    """A short piece that is safe to print: no control or invisible characters."""
    plain = " ".join(_CONTROL.sub(" ", text[: 4 * _EXCERPT_CHARACTERS]).split())
    return plain if len(plain) <= _EXCERPT_CHARACTERS else plain[: _EXCERPT_CHARACTERS - 1] + "…"
