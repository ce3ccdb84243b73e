"""Names of skills: validation, canonical spelling, and slugs made from any text."""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from habitus.errors import Invalid

MAX_NAME_LENGTH = 64
MATCH_CUTOFF = 0.6

# The agent's own tools (`agent/tools`); a skill's code can't use one of these names.
BUILT_IN_TOOLS = frozenset(
    {
        *("scratchpad", "recall_skill", "search_skills", "create_skill", "update_skill", "delete_skill"),
        *("list_skills", "read_skill", "enable_skill", "disable_skill", "memorize", "list_lessons"),
        *("create_tool", "manage_skills", "edit_system_prompt", "report_outcome", "why"),
    }
)

# Tools that inspect or edit skills; calling one says nothing about how the task was solved.
SKILL_MANAGEMENT_TOOLS = BUILT_IN_TOOLS - {"scratchpad"}

# Tools that execute the code in their arguments.
CODE_RUNNERS = frozenset({"scratchpad", "create_tool"})

# Letters that look like Latin ones (Greek to Armenian, Cherokee, Coptic, Lisu, phonetic): beside Latin letters they
# could imitate the name of another skill. So could the Hangul fillers, letters that nobody sees.
_LATIN = re.compile(r"[a-z\xdf-\u024f\u1e00-\u1eff]")
_LOOKALIKE = re.compile(
    r"[\u0250-\u02ff\u0370-\u058f\u13a0-\u13ff\u1d00-\u1dbf\u2c80-\u2cff\ua4d0-\ua4ff\uab70-\uabbf]"
)
_INVISIBLE = re.compile(r"[\u115f\u1160]")
_NOT_ALNUM = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillAddress:
    """`name` or `name@layer`: a skill, or its copy in one layer."""

    name: str
    layer: str | None = None

    def __str__(self) -> str:
        return self.name if self.layer is None else f"{self.name}@{self.layer}"


def parse_address(text: str) -> SkillAddress:
    """Parse `name` or `name@layer`; raise `Invalid` if the layer after the '@' is missing."""
    name, at, layer = text.partition("@")
    if at and not layer:
        raise Invalid(f"'{text}' names no layer after the '@'.", hint="Write name@user, or leave out the '@'.")
    return SkillAddress(name=canonicalize_name(name), layer=layer or None)


def is_legal_name(name: str) -> bool:
    """Whether a name matches the Agent Skills rules exactly as it is written: lower-case letters of any script."""
    if len(name) > MAX_NAME_LENGTH or not all(word.isalnum() for word in name.split("-")):
        return False
    return name == canonicalize_name(name) and (name.isascii() or not _could_imitate_another_name(name))


def canonicalize_name(name: str) -> str:
    """Return the spelling under which all spellings of a name are equal: `CSV_Summary` becomes `csv-summary`."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).strip().lower()).replace("_", "-")


def canonicalize_and_check_name(name: str, *, is_coined: bool = False) -> str:
    """Return the canonical name; raise `Invalid` with a legal suggestion if there is none.

    A coined name, one that a program or model has made up, must be ASCII, which every agent accepts.
    """
    found = canonicalize_name(name)
    if is_legal_name(found) and not (is_coined and not found.isascii()):
        return found
    raise Invalid(
        f"{_quote_name(name)} can't be the name of a skill.",
        hint="Use lower-case letters, digits and single hyphens, at most "
        f"{MAX_NAME_LENGTH}: '{slugify(name)}' would do.",
    )


def to_tool_name(name: str) -> str:
    """Return the name as an ASCII identifier, as model providers demand of a tool; each name has one of its own."""
    name = canonicalize_name(name)
    if not name.isascii():
        name = f"{slugify(name)[: MAX_NAME_LENGTH - 9]}-{_hash_text(name)}"
    return name.replace("-", "_")


def slugify(text: str) -> str:
    """Make a legal ASCII name from any text in any script."""
    text = unicodedata.normalize("NFC", text)
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    slug = _hyphenate_words(plain)
    if not slug or not text.isascii():
        # The tables for all scripts are large, and only names outside ASCII need them.
        from anyascii import anyascii

        slug = _hyphenate_words(anyascii(text))
    slug = _shorten_slug(slug, MAX_NAME_LENGTH)
    # A text without any letter, such as an emoji, still gets a stable name.
    return slug or f"skill-{_hash_text(text)}"


def make_unique_name(base: str, is_taken: Callable[[str], bool]) -> str:
    """Return the first free name of `base`, `base-2`, `base-3`, …, within the maximum length."""
    base = slugify(base)
    if not is_taken(base):
        return base
    number = 2
    while True:
        ending = f"-{number}"
        name = _shorten_slug(base, MAX_NAME_LENGTH - len(ending)) + ending
        if not is_taken(name):
            return name
        number += 1


def find_closest_name(name: str, known: Iterable[str], *, cutoff: float = MATCH_CUTOFF) -> str | None:
    """Return the known name closest to a misspelt one, or None if none is close."""
    near = difflib.get_close_matches(canonicalize_name(name), list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


def _could_imitate_another_name(name: str) -> bool:
    is_mixed = _LATIN.search(name) is not None and _LOOKALIKE.search(name) is not None
    return is_mixed or _INVISIBLE.search(name) is not None


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


def _hyphenate_words(text: str) -> str:
    return _NOT_ALNUM.sub("-", text.lower()).strip("-")


def _shorten_slug(slug: str, max_length: int) -> str:
    """Shorten a slug to whole words, or cut inside a word if whole words would lose more than half."""
    if len(slug) <= max_length:
        return slug
    words = slug[: max_length + 1].rpartition("-")[0]
    return words if len(words) >= max_length // 2 else slug[:max_length].rstrip("-")


def _quote_name(name: str) -> str:
    text = name if len(name) <= 80 else name[:77] + "…"
    return f"'{text}'" if text.isprintable() else repr(text)
