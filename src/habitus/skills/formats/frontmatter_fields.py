"""Reads the fields of a skill from its frontmatter, leniently, with a diagnostic for each oddity."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from habitus.plain_data import MAX_DEPTH, height
from habitus.skills import names
from habitus.skills.editable_fields import EDITABLE, NAMES
from habitus.skills.formats.frontmatter import Fields
from habitus.skills.model import PLAIN_MANIFEST, Diagnostic, Manifest, Severity, Skill, Source

MAX_BYTES = 1024 * 1024
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
# The standard lets tools add keys under 'metadata'; the prefix marks ours.
PREFIX = "habitus."
PARTS = (PREFIX + "description", PREFIX + "when_to_use")

STANDARD_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")

MANIFEST_FIELDS = {field.name: field for field in dataclasses.fields(Manifest) if field.name != "unreadable"}
_BOOLS = {name for name, field in MANIFEST_FIELDS.items() if isinstance(field.default, bool)}
_OWN = (*NAMES, "source", "provenance")
_KNOWN = {*MANIFEST_FIELDS, *_OWN, *(key.replace("-", "_") for key in STANDARD_KEYS)}


class FieldReader:
    """Turns the fields of one file into a skill and collects diagnostics."""

    def __init__(self, folder: str, file: str, fields: Fields, diagnostics: list[Diagnostic]) -> None:
        self.folder, self.file, self.diagnostics = folder, file, diagnostics
        self.metadata = self._metadata(fields)
        self.top = {key.replace("-", "_"): value for key, value in fields.items() if key != "metadata"}
        self.keys = [key for key in fields if key != "metadata"]
        self.stated: set[str] = set()
        self.unreadable: list[str] = []
        self.used: set[str] = set()

    def skill(self, body: str) -> Skill:
        """Return the skill with this body."""
        name = self._name()
        description, when_to_use = self._description()
        manifest = self._manifest()
        own: dict[str, Any] = {"description": description, "when_to_use": when_to_use}
        for field in EDITABLE:
            if field.name not in own:
                own[field.name] = self._list(field.name) if field.is_list else self._text(field.name)
        skill = Skill(
            name=name,
            **own,
            source=self._source(),
            license=self._text("license"),
            compatibility=self._text("compatibility"),
            allowed_tools=self._text("allowed_tools"),
            manifest=manifest,
            provenance=self._object("provenance"),
            extra=self._extra(),
            metadata={key: _as_text(value) for key, value in self.metadata.items() if key not in self.used},
            stated=frozenset(self.stated | ({"body"} if body.strip() else set())),
            body=body,
        )
        self._say_what_is_outside_the_standard(skill)
        return skill

    def _say(self, what: str, hint: str, severity: Severity = Severity.WARNING) -> None:
        self.diagnostics.append(Diagnostic(file=self.file, what=what, hint=hint, severity=severity))

    def _metadata(self, fields: Fields) -> Fields:
        value = fields.get("metadata")
        if value in (None, ""):
            return {}
        if isinstance(value, dict):
            return dict(value)
        self._say("'metadata' is not a block of fields and was ignored.", "Write 'key: value' lines below it.")
        return {}

    def _raw(self, field: str) -> Any:
        """Return the file's value of a field, under our prefix or at the top; None if it states none."""
        ours = PREFIX + field
        if ours in self.metadata:
            self.used.add(ours)
            self.stated.add(field)
            return self.metadata[ours]
        if field in self.top:
            self.stated.add(field)
            return self.top[field]
        return None

    def _text(self, field: str) -> str:
        return _as_line(self._raw(field))

    def _name(self) -> str:
        stated = self._text("name")
        name = names.canonical(self.folder)
        if not names.is_legal(name):
            name = names.slugify(self.folder)
            self._say(
                f"The folder '{self.folder}' is not a legal name; the skill is called '{name}'.",
                f"Rename the folder to '{name}'.",
            )
        elif name != self.folder:
            self._say(
                f"The folder is spelt '{self.folder}'; the skill is called '{name}'.",
                f"Rename the folder to '{name}'.",
                Severity.NOTE,
            )
        if stated and names.canonical(stated) not in (name, names.canonical(self.folder)):
            self._say(
                f"The file says name '{stated[:80]}', the folder '{self.folder}'; the folder counts.",
                f"Write 'name: {name}'.",
            )
        elif stated and stated != self.folder and names.canonical(stated) == name:
            self._say(
                f"The name is spelt '{stated}', the folder '{self.folder}'.", f"Write 'name: {name}'.", Severity.NOTE
            )
        elif not stated:
            self._say("There is no name.", f"Write 'name: {name}'.", Severity.NOTE)
        return name

    def _description(self) -> tuple[str, str]:
        outward = self._text_of_top("description")
        when_to_use = self._text("when_to_use")
        own = self.metadata.get(PREFIX + "description")
        if own is None:
            return outward, when_to_use
        self.used.add(PREFIX + "description")
        # A person may have edited the visible description; that wins over the parts stored beside it.
        is_ours = outward == outward_description(_as_text(own), when_to_use)
        return (_as_text(own), when_to_use) if is_ours else (outward, "")

    def _text_of_top(self, field: str) -> str:
        if self.top.get(field) is not None:
            self.stated.add(field)
        return _as_line(self.top.get(field))

    def _list(self, field: str) -> tuple[str, ...]:
        value = self._raw(field)
        if isinstance(value, str) and value.strip().startswith("["):
            value = _json_or(value, value)
        if isinstance(value, str):
            value = value.split(",")
        if value is None:
            return ()
        if not isinstance(value, list) or any(isinstance(item, (list, dict)) for item in value):
            self._unreadable(field, value, "a list of texts")
            return ()
        return tuple(text for item in value if (text := _as_text(item).strip()))

    def _bool(self, field: str, default: bool) -> bool:
        value = self._raw(field)
        if value is None or value == "":
            return default
        match _as_text(value).strip().lower():
            case "true" | "yes" | "on" | "1":
                return True
            case "false" | "no" | "off" | "0":
                return False
        self._unreadable(field, value, "true or false")
        return default

    def _env(self) -> tuple[Mapping[str, Any], ...]:
        stated = self._raw("env")
        value = _json_or(stated, stated) if isinstance(stated, str) else stated
        if value is None or value == "":
            return ()
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self._unreadable("env", value, "a list of objects")
            return ()
        return tuple(item if isinstance(stated, str) else _with_booleans(item) for item in value)

    def _object(self, field: str) -> Mapping[str, Any]:
        value = self._raw(field)
        if isinstance(value, str):
            value = _json_or(value, value)
        if value is None or value == "":
            return {}
        if isinstance(value, dict):
            return value
        self._unreadable(field, value, "an object")
        return {}

    def _unreadable(self, field: str, value: object, wanted: str) -> None:
        self.unreadable.append(field)
        self._say(f"'{field}' is {str(value)[:60]!r}, which is not {wanted}.", f"Write {wanted}.")

    def _source(self) -> Source:
        value = self._text("source")
        try:
            return Source(value) if value else Source.USER
        except ValueError:
            self._say(f"'{value}' is not a source.", f"Use one of {', '.join(Source)}.", Severity.NOTE)
            return Source.USER

    def _manifest(self) -> Manifest:
        values: dict[str, Any] = {}
        for name, field in MANIFEST_FIELDS.items():
            if PREFIX + name not in self.metadata and name not in self.top:
                continue
            if name == "env":
                values[name] = self._env()
            elif name in _BOOLS:
                values[name] = self._bool(name, bool(field.default))
            else:
                values[name] = self._list(name)
        gates = [name for name in self.unreadable if name in MANIFEST_FIELDS]
        return Manifest(**values, unreadable=tuple(gates)) if values else PLAIN_MANIFEST

    def _extra(self) -> Mapping[str, Any]:
        extra = {key: self.top[key.replace("-", "_")] for key in self.keys if key.replace("-", "_") not in _KNOWN}
        return {**extra, **(self._object("extra") if PREFIX + "extra" in self.metadata else {})}

    def _say_what_is_outside_the_standard(self, skill: Skill) -> None:
        # A skill that extends another inherits what it leaves out.
        says_little = skill.manifest.extends
        if not skill.description.strip() and not says_little:
            self._say("There is no description.", "Say in one sentence what the skill does and when to use it.")
        outward = self._text_of_top("description")
        if len(outward) > MAX_DESCRIPTION:
            self._say(f"The description has {len(outward)} characters.", f"Shorten it to {MAX_DESCRIPTION}.")
        if len(skill.compatibility) > MAX_COMPATIBILITY:
            self._say(
                f"The compatibility has {len(skill.compatibility)} characters.", "Shorten it to 500.", Severity.NOTE
            )
        if "<" in outward or ">" in outward:
            self._say("The description has a '<' or '>' in it.", "Use words instead.", Severity.NOTE)
        if not skill.body.strip() and not says_little:
            self._say("There are no steps below the frontmatter.", "Write the procedure.")
        outside = [key for key in self.keys if key not in STANDARD_KEYS]
        if outside:
            known = ", ".join(f"'{key}'" for key in outside)
            self._say(
                f"The standard has no field {known}.",
                "Strict readers want such fields under 'metadata'.",
                Severity.NOTE,
            )


def outward_description(description: str, when_to_use: str) -> str:
    """Return the description for other agents: with when-to-use, within the standard's length."""
    if not when_to_use.strip():
        return description
    cue = _as_sentence(when_to_use.strip())
    first = description.strip()
    if first and first[-1] not in ".!?…。":
        first += "."
    # When-to-use decides whether an agent loads the skill, so the description gives way.
    room = MAX_DESCRIPTION - len(cue) - 1
    if len(first) > room:
        first = first[: max(room - 1, 0)].rstrip() + "…" if room > 20 else ""
    return f"{first} {cue}".strip()[:MAX_DESCRIPTION].rstrip()


def _as_sentence(cue: str) -> str:
    """Return when-to-use as a sentence that begins with "Use"."""
    if re.match(r"(?i)use\b", cue):
        return cue[0].upper() + cue[1:]
    if re.match(r"(?i)when(ever)?\b|if\b|for\b|before\b|after\b|while\b", cue):
        return f"Use {cue[0].lower()}{cue[1:]}"
    # Lower-case an ordinary word, but not an acronym such as CSV.
    starts_a_word = len(cue) > 1 and cue[0].isupper() and (cue[1].islower() or cue[:2] == "A ")
    return f"Use when {cue[0].lower() + cue[1:] if starts_a_word else cue}"


def as_json(value: object) -> str:
    """Render a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _json_or(text: str, otherwise: Any) -> Any:
    """Return the value of a JSON text, or the default if it can't be parsed or written again."""
    try:
        value = json.loads(text)
        # An escape such as \ud800 parses but is half a character, which can't be stored.
        if "\\u" in text:
            as_json(value).encode()
    except (ValueError, RecursionError):
        return otherwise
    return value if height(value) <= MAX_DEPTH else otherwise


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return as_json(value) if isinstance(value, (list, dict)) else ("" if value is None else str(value))


def _as_line(value: object) -> str:
    return " ".join(map(_as_text, value)) if isinstance(value, list) else _as_text(value).strip()


_ENV_TEXTS = {"var", "from", "service", "key", "name", "config_path", "template", "when", "fallback", "fallback_var"}


def _with_booleans(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert the flags of an env spec from YAML, where every value is text."""
    words = {"true": True, "false": False}
    return {
        key: words.get(value, value) if isinstance(value, str) and key not in _ENV_TEXTS else value
        for key, value in spec.items()
    }
