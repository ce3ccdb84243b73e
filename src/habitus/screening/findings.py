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
    HIGH = "high"  # waits for a person
    MEDIUM = "medium"  # worth a look
    LOW = "low"  # said for completeness


_ORDER = {Risk.LOW: 0, Risk.MEDIUM: 1, Risk.HIGH: 2}
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


def is_clean(findings: Iterable[Finding]) -> bool:
    """Nothing here needs a person's decision."""
    return all(finding.severity is not Risk.HIGH for finding in findings)


def worse_first(finding: Finding) -> tuple[int, str, int, str]:
    return -_ORDER[finding.severity], finding.path, finding.line, finding.rule


def lowered(risk: Risk) -> Risk:
    return Risk.MEDIUM if risk is Risk.HIGH else Risk.LOW


def excerpt_of(text: str) -> str:
    """A short piece that is safe to print: no control or invisible characters."""
    plain = " ".join(_CONTROL.sub(" ", text[: 4 * _EXCERPT_CHARACTERS]).split())
    return plain if len(plain) <= _EXCERPT_CHARACTERS else plain[: _EXCERPT_CHARACTERS - 1] + "…"
