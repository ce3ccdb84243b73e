"""Reads the fields of a skill from its frontmatter, leniently, with a diagnostic for each oddity."""

from __future__ import annotations

import dataclasses
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from habitus.plain_data import MAX_DEPTH, measure_nesting_depth
from habitus.skills import names
from habitus.skills.editable_fields import EDITABLE_FIELDS, FIELD_NAMES
from habitus.skills.formats.frontmatter import FrontMatterFields
from habitus.skills.model import DEFAULT_MANIFEST, Diagnostic, Manifest, Severity, Skill, SkillSource

MAX_BYTES = 1024 * 1024
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
# The standard lets tools add keys under 'metadata'; the prefix marks ours.
METADATA_PREFIX = "habitus."
DESCRIPTION_PARTS = (METADATA_PREFIX + "description", METADATA_PREFIX + "when_to_use")

STANDARD_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")

MANIFEST_FIELDS = {field.name: field for field in dataclasses.fields(Manifest) if field.name != "unreadable"}
_BOOLEAN_FIELDS = {name for name, field in MANIFEST_FIELDS.items() if isinstance(field.default, bool)}
_OWN_FIELDS = (*FIELD_NAMES, "source", "provenance")
_KNOWN_FIELDS = {*MANIFEST_FIELDS, *_OWN_FIELDS, *(key.replace("-", "_") for key in STANDARD_KEYS)}


class SkillFieldReader:
    """Turns the fields of one file into a skill and collects diagnostics."""

    def __init__(self, folder: str, file: str, fields: FrontMatterFields, diagnostics: list[Diagnostic]) -> None:
        self.folder, self.file, self.diagnostics = folder, file, diagnostics
        self.metadata = self._read_metadata(fields)
        self.top = {key.replace("-", "_"): value for key, value in fields.items() if key != "metadata"}
        self.keys = [key for key in fields if key != "metadata"]
        self.stated: set[str] = set()
        self.unreadable: list[str] = []
        self.used: set[str] = set()

    def build_skill(self, body: str) -> Skill:
        """Return the skill with this body."""
        name = self._read_name()
        description, when_to_use = self._read_description_and_when_to_use()
        manifest = self._read_manifest()
        own: dict[str, Any] = {"description": description, "when_to_use": when_to_use}
        for field in EDITABLE_FIELDS:
            if field.name not in own:
                own[field.name] = self._read_list(field.name) if field.is_list else self._read_text(field.name)
        skill = Skill(
            name=name,
            **own,
            source=self._read_source(),
            license=self._read_text("license"),
            compatibility=self._read_text("compatibility"),
            allowed_tools=self._read_text("allowed_tools"),
            manifest=manifest,
            provenance=self._read_object("provenance"),
            extra=self._read_extra_fields(),
            metadata={key: _to_text(value) for key, value in self.metadata.items() if key not in self.used},
            stated=frozenset(self.stated | ({"body"} if body.strip() else set())),
            body=body,
        )
        self._report_deviations_from_standard(skill)
        return skill

    def _add_diagnostic(self, message: str, hint: str, severity: Severity = Severity.WARNING) -> None:
        self.diagnostics.append(Diagnostic(file=self.file, message=message, hint=hint, severity=severity))

    def _read_metadata(self, fields: FrontMatterFields) -> FrontMatterFields:
        value = fields.get("metadata")
        if value in (None, ""):
            return {}
        if isinstance(value, dict):
            return dict(value)
        self._add_diagnostic(
            "'metadata' is not a block of fields and was ignored.", "Write 'key: value' lines below it."
        )
        return {}

    def _get_raw_value(self, field: str) -> Any:
        """Return the file's value of a field, under our prefix or at the top; None if it states none."""
        ours = METADATA_PREFIX + field
        if ours in self.metadata:
            self.used.add(ours)
            self.stated.add(field)
            return self.metadata[ours]
        if field in self.top:
            self.stated.add(field)
            return self.top[field]
        return None

    def _read_text(self, field: str) -> str:
        return _to_line(self._get_raw_value(field))

    def _read_name(self) -> str:
        # An accent is one character or two, by the system that wrote it; nobody sees the difference.
        stated = unicodedata.normalize("NFC", self._read_text("name"))
        folder = unicodedata.normalize("NFC", self.folder)
        name = names.canonicalize_name(self.folder)
        if not names.is_legal_name(name):
            name = names.slugify(self.folder)
            self._add_diagnostic(
                f"The folder '{self.folder}' is not a legal name; the skill is called '{name}'.",
                f"Rename the folder to '{name}'.",
            )
        elif name != folder:
            self._add_diagnostic(
                f"The folder is spelt '{self.folder}'; the skill is called '{name}'.",
                f"Rename the folder to '{name}'.",
                Severity.NOTE,
            )
        if stated and names.canonicalize_name(stated) not in (name, names.canonicalize_name(self.folder)):
            self._add_diagnostic(
                f"The file says name '{stated[:80]}', the folder '{self.folder}'; the folder counts.",
                f"Write 'name: {name}'.",
            )
        elif stated and stated != folder and names.canonicalize_name(stated) == name:
            self._add_diagnostic(
                f"The name is spelt '{stated}', the folder '{self.folder}'.", f"Write 'name: {name}'.", Severity.NOTE
            )
        elif not stated:
            self._add_diagnostic("There is no name.", f"Write 'name: {name}'.", Severity.NOTE)
        return name

    def _read_description_and_when_to_use(self) -> tuple[str, str]:
        outward = self._read_top_level_text("description")
        when_to_use = self._read_text("when_to_use")
        own = self.metadata.get(METADATA_PREFIX + "description")
        if own is None:
            return outward, when_to_use
        self.used.add(METADATA_PREFIX + "description")
        # A person may have edited the visible description; that wins over the parts stored beside it.
        is_ours = outward == build_full_description(_to_text(own), when_to_use)
        return (_to_text(own), when_to_use) if is_ours else (outward, "")

    def _read_top_level_text(self, field: str) -> str:
        if self.top.get(field) is not None:
            self.stated.add(field)
        return _to_line(self.top.get(field))

    def _read_list(self, field: str) -> tuple[str, ...]:
        value = self._get_raw_value(field)
        if isinstance(value, str) and value.strip().startswith("["):
            value = _parse_json_or_default(value, value)
        if isinstance(value, str):
            value = value.split(",")
        if value is None:
            return ()
        if not isinstance(value, list) or any(isinstance(item, (list, dict)) for item in value):
            self._report_unreadable_field(field, value, "a list of texts")
            return ()
        return tuple(text for item in value if (text := _to_text(item).strip()))

    def _read_bool(self, field: str, default: bool) -> bool:
        value = self._get_raw_value(field)
        if value is None or value == "":
            return default
        match _to_text(value).strip().lower():
            case "true" | "yes" | "on" | "1":
                return True
            case "false" | "no" | "off" | "0":
                return False
        self._report_unreadable_field(field, value, "true or false")
        return default

    def _read_env(self) -> tuple[Mapping[str, Any], ...]:
        stated = self._get_raw_value("env")
        value = _parse_json_or_default(stated, stated) if isinstance(stated, str) else stated
        if value is None or value == "":
            return ()
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self._report_unreadable_field("env", value, "a list of objects")
            return ()
        return tuple(item if isinstance(stated, str) else _parse_env_spec_flags(item) for item in value)

    def _read_object(self, field: str) -> Mapping[str, Any]:
        value = self._get_raw_value(field)
        if isinstance(value, str):
            value = _parse_json_or_default(value, value)
        if value is None or value == "":
            return {}
        if isinstance(value, dict):
            return value
        self._report_unreadable_field(field, value, "an object")
        return {}

    def _report_unreadable_field(self, field: str, value: object, expected: str) -> None:
        self.unreadable.append(field)
        self._add_diagnostic(f"'{field}' is {str(value)[:60]!r}, which is not {expected}.", f"Write {expected}.")

    def _read_source(self) -> SkillSource:
        value = self._read_text("source")
        try:
            return SkillSource(value) if value else SkillSource.USER
        except ValueError:
            self._add_diagnostic(f"'{value}' is not a source.", f"Use one of {', '.join(SkillSource)}.", Severity.NOTE)
            return SkillSource.USER

    def _read_manifest(self) -> Manifest:
        values: dict[str, Any] = {}
        for name, field in MANIFEST_FIELDS.items():
            if METADATA_PREFIX + name not in self.metadata and name not in self.top:
                continue
            if name == "env":
                values[name] = self._read_env()
            elif name in _BOOLEAN_FIELDS:
                values[name] = self._read_bool(name, bool(field.default))
            else:
                values[name] = self._read_list(name)
        gates = [name for name in self.unreadable if name in MANIFEST_FIELDS]
        return Manifest(**values, unreadable=tuple(gates)) if values else DEFAULT_MANIFEST

    def _read_extra_fields(self) -> Mapping[str, Any]:
        rest = {key: self.top[key.replace("-", "_")] for key in self.keys if key.replace("-", "_") not in _KNOWN_FIELDS}
        return {**rest, **(self._read_object("extra") if METADATA_PREFIX + "extra" in self.metadata else {})}

    def _report_deviations_from_standard(self, skill: Skill) -> None:
        # A skill that extends another inherits what it leaves out.
        says_little = skill.manifest.extends
        if not skill.description.strip() and not says_little:
            self._add_diagnostic(
                "There is no description.", "Say in one sentence what the skill does and when to use it."
            )
        outward = self._read_top_level_text("description")
        if len(outward) > MAX_DESCRIPTION:
            self._add_diagnostic(f"The description has {len(outward)} characters.", f"Shorten it to {MAX_DESCRIPTION}.")
        if len(skill.compatibility) > MAX_COMPATIBILITY:
            self._add_diagnostic(
                f"The compatibility has {len(skill.compatibility)} characters.", "Shorten it to 500.", Severity.NOTE
            )
        if "<" in outward or ">" in outward:
            self._add_diagnostic("The description has a '<' or '>' in it.", "Use words instead.", Severity.NOTE)
        if not skill.body.strip() and not says_little:
            self._add_diagnostic("There are no steps below the frontmatter.", "Write the procedure.")
        outside = [key for key in self.keys if key not in STANDARD_KEYS]
        if outside:
            known = ", ".join(f"'{key}'" for key in outside)
            self._add_diagnostic(
                f"The standard has no field {known}.",
                "Strict readers want such fields under 'metadata'.",
                Severity.NOTE,
            )


def build_full_description(description: str, when_to_use: str) -> str:
    """Return the description for other agents: with when-to-use, within the standard's length."""
    if not when_to_use.strip():
        return description
    cue = _format_when_to_use(when_to_use.strip())
    first = description.strip()
    if first and first[-1] not in ".!?…。":
        first += "."
    # When-to-use decides whether an agent loads the skill, so the description gives way.
    room = MAX_DESCRIPTION - len(cue) - 1
    if len(first) > room:
        first = first[: max(room - 1, 0)].rstrip() + "…" if room > 20 else ""
    return f"{first} {cue}".strip()[:MAX_DESCRIPTION].rstrip()


def _format_when_to_use(cue: str) -> str:
    """Return when-to-use as a sentence that begins with "Use"."""
    if re.match(r"(?i)use\b", cue):
        return cue[0].upper() + cue[1:]
    if re.match(r"(?i)when(ever)?\b|if\b|for\b|before\b|after\b|while\b", cue):
        return f"Use {cue[0].lower()}{cue[1:]}"
    # Lower-case an ordinary word, but not an acronym such as CSV.
    starts_a_word = len(cue) > 1 and cue[0].isupper() and (cue[1].islower() or cue[:2] == "A ")
    return f"Use when {cue[0].lower() + cue[1:] if starts_a_word else cue}"


def dump_compact_json(value: object) -> str:
    """Render a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _parse_json_or_default(text: str, default: Any) -> Any:
    """Return the value of a JSON text, or the default if it can't be parsed or written again."""
    try:
        value = json.loads(text)
        # An escape such as \ud800 parses but is half a character, which can't be stored.
        if "\\u" in text:
            dump_compact_json(value).encode()
    except (ValueError, RecursionError):
        return default
    return value if measure_nesting_depth(value) <= MAX_DEPTH else default


def _to_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return dump_compact_json(value) if isinstance(value, (list, dict)) else ("" if value is None else str(value))


def _to_line(value: object) -> str:
    return " ".join(map(_to_text, value)) if isinstance(value, list) else _to_text(value).strip()


_ENV_TEXTS = {"var", "from", "service", "key", "name", "config_path", "template", "when", "fallback", "fallback_var"}


def _parse_env_spec_flags(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert the flags of an env spec from YAML, where every value is text."""
    words = {"true": True, "false": False}
    return {
        key: words.get(value, value) if isinstance(value, str) and key not in _ENV_TEXTS else value
        for key, value in spec.items()
    }
