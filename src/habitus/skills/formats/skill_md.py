"""SKILL.md, the Agent Skills standard: read leniently with diagnostics, written so that strict validators pass.

Fields the standard doesn't know stand as text under `metadata` with the prefix `habitus.`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time
from typing import Any

from habitus.errors import Invalid
from habitus.skills import names
from habitus.skills.formats import frontmatter, in_place
from habitus.skills.formats.frontmatter import Fields, Unreadable
from habitus.skills.model import PLAIN_MANIFEST, Diagnostic, Manifest, Severity, Skill, Source, Summary

MAX_BYTES = 1024 * 1024
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
PREFIX = "habitus."
_PARTS = (PREFIX + "description", PREFIX + "when_to_use")

STANDARD_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
# Known to one widespread agent or another; kept, and said to be outside the standard.
_KNOWN_ELSEWHERE = {"version", "author", "model", "context", "agent", "hooks", "argument-hint", "arguments"}

_MANIFEST = {field.name: field for field in dataclasses.fields(Manifest) if field.name != "unreadable"}
_BOOLS = {name for name, field in _MANIFEST.items() if isinstance(field.default, bool)}
_OWN = ("title", "when_to_use", "tags", "source", "provenance")
_KNOWN = {*_MANIFEST, *_OWN, *(key.replace("-", "_") for key in STANDARD_KEYS)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """What a file says. `skill` is None when it can't be loaded; the diagnostics say why."""

    skill: Skill | None
    diagnostics: tuple[Diagnostic, ...] = ()


def parse(folder: str, content: bytes, *, file: str = "SKILL.md", toml: bytes | None = None) -> Parsed:
    """Read one file of the skill in `folder`; the folder names the skill. Never raises."""
    diagnostics: list[Diagnostic] = []
    try:
        parts = frontmatter.split(_decoded(content, file), file)
        if content.startswith(b"\xef\xbb\xbf"):
            what, mend = "The file begins with a byte order mark.", "Save it as UTF-8 without one."
            diagnostics.append(Diagnostic(file=file, what=what, mend=mend, severity=Severity.NOTE))
        fields = _all_fields(parts.front, toml, file, diagnostics)
        skill = _Reader(folder, file, fields, diagnostics).skill(frontmatter.plain_newlines(parts.body))
    except Unreadable as problem:
        return Parsed(skill=None, diagnostics=(*diagnostics, problem.diagnostic))
    return Parsed(skill=skill, diagnostics=tuple(diagnostics))


def render(skill: Skill, *, is_checked: bool = True) -> bytes:
    """A new file for this skill, valid by the standard; unchecked for what is stored already, as it is."""
    if is_checked:
        check(skill)
    parts = frontmatter.Parts(front=frontmatter.write(_outward(skill))).with_body(normal_body(skill.body))
    return _encoded(parts, is_checked=is_checked)


def update(content: bytes, skill: Skill, *, file: str = "SKILL.md", is_checked: bool = True) -> bytes:
    """The file changed to say what `skill` says; what it said already keeps its bytes."""
    before = parse(skill.name, content, file=file).skill
    if before is None:
        return render(skill, is_checked=is_checked)
    if is_checked:
        check(skill, stored=before)
    parts = frontmatter.split(_decoded(content, file), file)
    body = normal_body(skill.body)
    if body != before.body:
        parts = parts.with_body(body)
    front = frontmatter.plain_newlines(parts.front or "")
    changes = _changes(before, skill, frontmatter.read(front, file)[0])
    if changes:
        parts = parts.with_front(in_place.change(front, changes, file))
    return _encoded(parts, is_checked=is_checked)


def _encoded(parts: frontmatter.Parts, *, is_checked: bool) -> bytes:
    content = parts.joined().encode()
    if is_checked and len(content) > MAX_BYTES:
        raise Invalid(
            f"The skill is {len(content):,} bytes long; SKILL.md may have {MAX_BYTES:,}.",
            mend="Move reference material into files under references/.",
        )
    return content


def rename(content: bytes, name: str, *, file: str = "SKILL.md") -> bytes:
    """The file with another name in it, everything else as it was."""
    parts = frontmatter.split(_decoded(content, file), file)
    front = in_place.change(frontmatter.plain_newlines(parts.front or ""), {"name": name}, file)
    return parts.with_front(front).joined().encode()


def check(skill: Skill, *, stored: Skill | None = None) -> None:
    """Refuse what the standard forbids, unless the stored file already says so itself."""
    if stored is None or stored.name != skill.name:
        names.checked(skill.name)
    for field, limit in (("description", MAX_DESCRIPTION), ("when_to_use", MAX_DESCRIPTION)):
        value: str = getattr(skill, field)
        if stored is not None and getattr(stored, field) == value:
            continue
        if len(value) > limit:
            raise Invalid(f"The {field} has {len(value)} characters.", mend=f"Shorten it to {limit}.")
        if "<" in value or ">" in value:
            raise Invalid(f"The {field} has a '<' or '>' in it.", mend="Agents refuse those in a listing; use words.")
    if not skill.description.strip() and (stored is None or stored.description.strip()):
        raise Invalid("A skill needs a description.", mend="Say in one sentence what it does.")
    if len(skill.compatibility) > MAX_COMPATIBILITY and (stored is None or stored.compatibility != skill.compatibility):
        raise Invalid(f"The compatibility has {len(skill.compatibility)} characters.", mend="Shorten it to 500.")
    _check_text(skill)


def _check_text(skill: Skill) -> None:
    if "\x00" in skill.body:
        raise Invalid(f"The body has a NUL byte at character {skill.body.index(chr(0))}.", mend="Remove it.")
    everything = json.dumps(_outward(skill), ensure_ascii=False) + skill.body
    try:
        everything.encode()
    except UnicodeEncodeError as error:
        shown = repr(everything[error.start])
        raise Invalid(f"{shown} is half of a character and can't be stored.", mend="Remove it.") from None


def normal_body(text: str) -> str:
    """A body as it is kept: `\\n` line ends, no blank lines around it."""
    return frontmatter.plain_newlines(text).strip("\n")


def outward_description(description: str, when_to_use: str) -> str:
    """What other agents see: the description with the cue, within the standard's length."""
    if not when_to_use.strip():
        return description
    cue = _as_sentence(when_to_use.strip())
    first = description.strip()
    if first and first[-1] not in ".!?…。":
        first += "."
    room = MAX_DESCRIPTION - len(cue) - 1
    if len(first) > room:
        first = first[: max(room - 1, 0)].rstrip() + "…" if room > 20 else ""
    return f"{first} {cue}".strip()[:MAX_DESCRIPTION].rstrip()


def _as_sentence(cue: str) -> str:
    if re.match(r"(?i)use\b", cue):
        return cue[0].upper() + cue[1:]
    if re.match(r"(?i)when(ever)?\b|if\b|for\b|before\b|after\b|while\b", cue):
        return f"Use {cue[0].lower()}{cue[1:]}"
    starts_a_word = len(cue) > 1 and cue[0].isupper() and (cue[1].islower() or cue[:2] == "A ")
    return f"Use when {cue[0].lower() + cue[1:] if starts_a_word else cue}"


def _decoded(content: bytes, file: str) -> str:
    def broken(what: str, mend: str) -> Unreadable:
        return Unreadable(Diagnostic(file=file, what=what, mend=mend, severity=Severity.ERROR))

    if len(content) > MAX_BYTES:
        raise broken(
            f"The file has {len(content):,} bytes; at most {MAX_BYTES:,} are read.",
            "Move reference material into files under references/.",
        )
    if b"\x00" in content:
        raise broken(f"There is a NUL byte at position {content.index(0)}.", "Save the file as UTF-8 text.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise broken(f"Not UTF-8 at byte {error.start}.", "Save the file as UTF-8.") from None


def _all_fields(front: str | None, toml: bytes | None, file: str, diagnostics: list[Diagnostic]) -> Fields:
    fields: Fields = _from_toml(toml) if toml is not None else {}
    if front is None and toml is None:
        raise Unreadable(
            Diagnostic(
                file=file,
                what="There is no frontmatter.",
                mend="Begin the file with '---', 'name: …', 'description: …', '---'.",
                severity=Severity.ERROR,
            )
        )
    if front is not None:
        own, found = frontmatter.read(frontmatter.plain_newlines(front), file)
        diagnostics += found
        fields |= own
    return fields


def _from_toml(toml: bytes) -> Fields:
    try:
        # Dates and times become text, as they are in a frontmatter block.
        values = json.loads(json.dumps(tomllib.loads(toml.decode()), default=str))
        if frontmatter.height(values) > frontmatter.MAX_DEPTH:
            raise RecursionError("values are nested too deep")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(
            Diagnostic(
                file="skill.toml",
                what=f"Not valid TOML: {error}.",
                mend="Correct that line, or move its fields into the frontmatter of skill.md.",
                severity=Severity.ERROR,
            )
        ) from None
    section = values.get("skill", values)
    fields = {key: _storable(value) for key, value in section.items()} if isinstance(section, dict) else {}
    if isinstance(fields.get("env"), list):
        fields["env"] = _json(fields["env"])  # TOML has booleans of its own, so its texts stay texts
    return fields


def _storable(value: Any) -> Any:
    """TOML's dates and times as the text they were written as; everything else is JSON already."""
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return value.isoformat() if isinstance(value, (date, time)) else value


class _Reader:
    """Turns the fields of one file into a skill, collecting what was odd."""

    def __init__(self, folder: str, file: str, fields: Fields, diagnostics: list[Diagnostic]) -> None:
        self.folder, self.file, self.diagnostics = folder, file, diagnostics
        self.metadata = self._metadata(fields)
        self.top = {key.replace("-", "_"): value for key, value in fields.items() if key != "metadata"}
        self.keys = [key for key in fields if key != "metadata"]
        self.stated: set[str] = set()
        self.unreadable: list[str] = []
        self.used: set[str] = set()

    def skill(self, body: str) -> Skill:
        name = self._name()
        description, when_to_use = self._description()
        manifest = self._manifest()
        skill = Skill(
            name=name,
            title=self._text("title"),
            description=description,
            when_to_use=when_to_use,
            tags=self._list("tags"),
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

    def _say(self, what: str, mend: str, severity: Severity = Severity.WARNING) -> None:
        self.diagnostics.append(Diagnostic(file=self.file, what=what, mend=mend, severity=severity))

    def _metadata(self, fields: Fields) -> Fields:
        value = fields.get("metadata")
        if value in (None, ""):
            return {}
        if isinstance(value, dict):
            return dict(value)
        self._say("'metadata' is not a block of fields and was ignored.", "Write 'key: value' lines below it.")
        return {}

    def _raw(self, field: str) -> Any:
        """What the file states for a field, under our prefix or at the top; None when it states nothing."""
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
        value = self._raw(field)
        if isinstance(value, list):
            return " ".join(_as_text(item) for item in value)
        return "" if value is None else _as_text(value).strip()

    def _name(self) -> str:
        stated = self._text("name")
        name = names.canonical(self.folder)
        if not names.is_legal(name):
            name = names.slugify(self.folder)
            self._say(
                f"The folder '{self.folder}' is no legal name; the skill is called '{name}'.",
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
        if own is not None:
            self.used.add(PREFIX + "description")
            if outward == outward_description(_as_text(own), when_to_use):
                return _as_text(own), when_to_use
            # The person changed what everybody sees: that wins over the parts we had kept.
            return outward, ""
        return outward, when_to_use

    def _text_of_top(self, field: str) -> str:
        value = self.top.get(field)
        if value is None:
            return ""
        self.stated.add(field)
        return " ".join(_as_text(item) for item in value) if isinstance(value, list) else _as_text(value).strip()

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
            self._say(f"'{value}' is no source.", f"Use one of {', '.join(Source)}.", Severity.NOTE)
            return Source.USER

    def _manifest(self) -> Manifest:
        values: dict[str, Any] = {}
        for name, field in _MANIFEST.items():
            if PREFIX + name not in self.metadata and name not in self.top:
                continue
            if name == "env":
                values[name] = self._env()
            elif name in _BOOLS:
                values[name] = self._bool(name, bool(field.default))
            else:
                values[name] = self._list(name)
        gates = [name for name in self.unreadable if name in _MANIFEST]
        return Manifest(**values, unreadable=tuple(gates)) if values else PLAIN_MANIFEST

    def _extra(self) -> Mapping[str, Any]:
        extra = {key: self.top[key.replace("-", "_")] for key in self.keys if key.replace("-", "_") not in _KNOWN}
        return {**extra, **(self._object("extra") if PREFIX + "extra" in self.metadata else {})}

    def _say_what_is_outside_the_standard(self, skill: Skill) -> None:
        says_little = skill.manifest.extends  # the skill it extends has what it leaves out
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


def _outward(skill: Skill) -> dict[str, str | Mapping[str, str]]:
    fields: dict[str, str | Mapping[str, str]] = {
        "name": skill.name,
        "description": outward_description(skill.description, skill.when_to_use),
    }
    fields |= {
        key: value
        for key, value in (
            ("license", skill.license),
            ("compatibility", skill.compatibility),
            ("allowed-tools", skill.allowed_tools),
        )
        if value
    }
    metadata = {**skill.metadata, **_own_metadata(skill)}
    return {**fields, "metadata": metadata} if metadata else fields


def _own_metadata(skill: Summary) -> dict[str, str]:
    """Our fields as text, the ones that differ from their default."""
    plain = Manifest()
    values: dict[str, str] = {}
    if skill.title:
        values["title"] = skill.title
    if skill.when_to_use:
        values |= {"description": skill.description, "when_to_use": skill.when_to_use}
    if skill.tags:
        values["tags"] = _json(list(skill.tags))
    if skill.source is not Source.USER:
        values["source"] = skill.source.value
    if skill.provenance:
        values["provenance"] = _json(skill.provenance)
    if skill.extra:
        values["extra"] = _json(skill.extra)
    for name in _MANIFEST:
        value = getattr(skill.manifest, name)
        if value != getattr(plain, name):
            values[name] = ("true" if value else "false") if isinstance(value, bool) else _json(list(value))
    return {PREFIX + name: value for name, value in values.items()}


def _changes(before: Skill, after: Skill, fields: Fields) -> dict[str, str | Mapping[str, str | None] | None]:
    """What to change in a block that says `before`. A field that moves to its standard place leaves its old one."""
    changes: dict[str, str | Mapping[str, str | None] | None] = {}
    old, new = _outward(before), _outward(after)
    for key in ("name", "description", "license", "compatibility", "allowed-tools"):
        if old.get(key) != new.get(key):
            value = new.get(key)
            changes[key] = value if isinstance(value, str) else None
    ours_before = {**before.metadata, **_own_metadata(before)}
    ours_after = {**after.metadata, **_own_metadata(after)}
    ours_before.pop(PREFIX + "extra", None), ours_after.pop(PREFIX + "extra", None)
    nested: dict[str, str | None] = {
        key: ours_after.get(key) for key in {**ours_before, **ours_after} if ours_before.get(key) != ours_after.get(key)
    }
    if "description" in changes:
        # What it is made of is written with it: parts left from before would be taken for a change by hand.
        nested |= {key: ours_after.get(key) for key in _PARTS if key in ours_after or key in _metadata_of(fields)}
    for key in fields:
        ours = PREFIX + key.replace("-", "_")
        if key not in STANDARD_KEYS and ours in nested:
            changes[key] = None
    if after.extra != before.extra:
        kept = {key for key in fields if key in after.extra and after.extra[key] == before.extra.get(key)}
        changes |= {key: None for key in fields if key in before.extra and key not in kept}
        moved = {key: value for key, value in after.extra.items() if key not in kept}
        nested[PREFIX + "extra"] = _json(moved) if moved else None
    if nested:
        changes["metadata"] = nested
    return changes


def _metadata_of(fields: Fields) -> Fields:
    metadata = fields.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _json_or(text: str, otherwise: Any) -> Any:
    """What the JSON text says, unless it can't be read, or can't be written again (`"\\ud800"` is half a character)."""
    try:
        value = json.loads(text)
        if "\\u" in text:
            _json(value).encode()
    except (ValueError, RecursionError):
        return otherwise
    return value if frontmatter.height(value) <= frontmatter.MAX_DEPTH else otherwise


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return _json(value) if isinstance(value, (list, dict)) else ("" if value is None else str(value))


def _with_booleans(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """YAML texts `true` and `false` inside an env spec mean what they say; JSON has them already."""
    words = {"true": True, "false": False}
    return {key: words.get(value, value) if isinstance(value, str) else value for key, value in spec.items()}
