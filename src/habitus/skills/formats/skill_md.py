"""SKILL.md, the Agent Skills standard: read leniently with diagnostics, written to pass strict validators.

Plain Markdown is a skill too: its first heading is the title, its first paragraph the description.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from habitus.errors import Invalid
from habitus.plain_data import MAX_DEPTH, measure_nesting_depth
from habitus.skills import names
from habitus.skills.editable_fields import EDITABLE_FIELDS
from habitus.skills.formats import frontmatter
from habitus.skills.formats.frontmatter import FrontMatterFields
from habitus.skills.formats.frontmatter_fields import (
    DESCRIPTION_PARTS,
    MANIFEST_FIELDS,
    MAX_BYTES,
    MAX_COMPATIBILITY,
    MAX_DESCRIPTION,
    METADATA_PREFIX,
    STANDARD_KEYS,
    SkillFieldReader,
    build_full_description,
    dump_compact_json,
)
from habitus.skills.model import Diagnostic, MalformedFileError, Manifest, Severity, Skill, SkillSource, SkillSummary


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedSkillFile:
    """The result of parsing a file; `skill` is None if it can't be loaded, and the diagnostics say why."""

    skill: Skill | None
    diagnostics: tuple[Diagnostic, ...] = ()


def parse_skill_md_with_diagnostics(
    folder: str, data: bytes, *, file: str = "SKILL.md", toml: bytes | None = None
) -> ParsedSkillFile:
    """Parse the main file of the skill in `folder`, which names the skill. Never raises."""
    found: list[Diagnostic] = []
    try:
        parts = frontmatter.split_front_matter(_decode_file(data, file), file)
        if data.startswith(b"\xef\xbb\xbf"):
            what, hint = "The file begins with a byte order mark.", "Save it as UTF-8 without one."
            found.append(Diagnostic(file=file, message=what, hint=hint, severity=Severity.NOTE))
        fields = _read_all_fields(parts, toml, file, found)
        skill = SkillFieldReader(folder, file, fields, found).build_skill(frontmatter.normalize_newlines(parts.body))
    except MalformedFileError as problem:
        return ParsedSkillFile(skill=None, diagnostics=(*found, problem.diagnostic))
    return ParsedSkillFile(skill=skill, diagnostics=tuple(found))


def render_skill_md(skill: Skill, *, is_checked: bool = True) -> bytes:
    """Render a new file that follows the standard; `is_checked=False` renders stored values without validation."""
    if is_checked:
        check_skill_fields(skill)
    parts = frontmatter.FrontMatterDocument(front=frontmatter.render_fields(_build_front_matter(skill))).with_body(
        normalize_body(skill.body)
    )
    return _encode_file(parts, is_checked=is_checked)


def update_skill_md(content: bytes, skill: Skill, *, file: str = "SKILL.md", is_checked: bool = True) -> bytes:
    """Return the file changed to match `skill`; unchanged parts keep their bytes."""
    before = parse_skill_md_with_diagnostics(skill.name, content, file=file).skill
    # Equal values must not touch the file, not even its formatting.
    if before == skill:
        return content
    parts = frontmatter.split_front_matter(_decode_file(content, file), file) if before is not None else None
    if before is None or parts is None or parts.front is None:
        return render_skill_md(skill, is_checked=is_checked)
    if is_checked:
        check_skill_fields(skill, stored=before)
    body = normalize_body(skill.body)
    front = frontmatter.normalize_newlines(parts.front)
    if body != before.body:
        parts = parts.with_body(body)
    changes = _diff_front_matter(before, skill, frontmatter.parse_fields_with_diagnostics(front, file)[0])
    if changes:
        parts = parts.with_front(frontmatter.change_fields(front, changes, file))
    return _encode_file(parts, is_checked=is_checked)


def _encode_file(parts: frontmatter.FrontMatterDocument, *, is_checked: bool) -> bytes:
    content = parts.render_document().encode()
    if is_checked and len(content) > MAX_BYTES:
        raise Invalid(
            f"The skill is {len(content):,} bytes long; SKILL.md may have {MAX_BYTES:,}.",
            hint="Move reference material into files under references/.",
        )
    return content


def change_name_in_skill_md(content: bytes, name: str, *, file: str = "SKILL.md") -> bytes:
    """Return the file with another name; everything else stays."""
    parts = frontmatter.split_front_matter(_decode_file(content, file), file)
    found = parse_skill_md_with_diagnostics(name, content, file=file).skill
    if parts.front is None and found is not None:
        return render_skill_md(found, is_checked=False)
    front = frontmatter.change_fields(frontmatter.normalize_newlines(parts.front or ""), {"name": name}, file)
    return parts.with_front(front).render_document().encode()


def check_skill_fields(skill: Skill, *, stored: Skill | None = None) -> None:
    """Raise `Invalid` for values that the standard forbids, unless the stored file already has them."""
    if stored is None or stored.name != skill.name:
        names.canonicalize_and_check_name(skill.name)
    for field, limit in (("description", MAX_DESCRIPTION), ("when_to_use", MAX_DESCRIPTION)):
        value: str = getattr(skill, field)
        if stored is not None and getattr(stored, field) == value:
            continue
        if len(value) > limit:
            raise Invalid(f"The {field} has {len(value)} characters.", hint=f"Shorten it to {limit}.")
        if "<" in value or ">" in value:
            raise Invalid(f"The {field} has a '<' or '>' in it.", hint="Agents refuse those in a listing; use words.")
    if not skill.description.strip() and (stored is None or stored.description.strip()):
        raise Invalid("A skill needs a description.", hint="Say in one sentence what it does.")
    if len(skill.compatibility) > MAX_COMPATIBILITY and (stored is None or stored.compatibility != skill.compatibility):
        raise Invalid(f"The compatibility has {len(skill.compatibility)} characters.", hint="Shorten it to 500.")
    _check_storable_text(skill)


def _check_storable_text(skill: Skill) -> None:
    if "\x00" in skill.body:
        raise Invalid(f"The body has a NUL byte at character {skill.body.index(chr(0))}.", hint="Remove it.")
    everything = json.dumps(_build_front_matter(skill), ensure_ascii=False) + skill.body
    try:
        everything.encode()
    except UnicodeEncodeError as error:
        shown = repr(everything[error.start])
        raise Invalid(f"{shown} is half of a character and can't be stored.", hint="Remove it.") from None


def normalize_body(text: str) -> str:
    """Return a body as it is stored: line feeds alone, no blank lines around it."""
    return frontmatter.normalize_newlines(text).strip("\n")


def _decode_file(content: bytes, file: str) -> str:
    if len(content) > MAX_BYTES:
        what = f"The file has {len(content):,} bytes; at most {MAX_BYTES:,} are read."
        raise MalformedFileError(what, "Move reference material into files under references/.", file=file)
    if b"\x00" in content:
        what = f"There is a NUL byte at position {content.index(0)}."
        raise MalformedFileError(what, "Save the file as UTF-8 text.", file=file)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFileError(f"Not UTF-8 at byte {error.start}.", "Save the file as UTF-8.", file=file) from None


def _read_all_fields(
    parts: frontmatter.FrontMatterDocument, toml: bytes | None, file: str, diagnostics: list[Diagnostic]
) -> FrontMatterFields:
    fields: FrontMatterFields = _parse_toml_fields(toml) if toml is not None else {}
    if parts.front is not None:
        own, found = frontmatter.parse_fields_with_diagnostics(frontmatter.normalize_newlines(parts.front), file)
        diagnostics += found
        fields |= own
    elif toml is None and has_heading_and_prose(parts.body):
        hint = "Write one: begin the file with '---', 'name: …', 'description: …', '---'."
        diagnostics.append(Diagnostic(file=file, message=NO_FRONTMATTER_NOTE, hint=hint, severity=Severity.WARNING))
        fields = {"title": extract_title(parts.body), "description": extract_first_paragraph(parts.body)}
    elif toml is None:
        hint = "Begin the file with '---', 'name: …', 'description: …', '---'."
        raise MalformedFileError("There is no frontmatter.", hint, file=file)
    return _rename_istota_fields(fields) if toml is not None or is_istota_file(file) else fields


def is_istota_file(file: str) -> bool:
    """Whether a main file is named as in Istota's format, which names some fields differently."""
    return PurePosixPath(file).name in ("skill.md", "skill.toml")


# Istota's keywords are triggers; a capability that a deployment must have is a required tool.
_ISTOTA_FIELD_NAMES = {"keywords": "triggers", "requires_capability": "requires_tools"}


def _rename_istota_fields(fields: FrontMatterFields) -> FrontMatterFields:
    renamed = {key: value for key, value in fields.items() if key not in _ISTOTA_FIELD_NAMES}
    for theirs, ours in _ISTOTA_FIELD_NAMES.items():
        if theirs in fields:
            both = (*_split_at_commas(fields.get(ours)), *_split_at_commas(fields[theirs]))
            renamed[ours] = list(dict.fromkeys(both))
    return renamed


def _split_at_commas(value: Any) -> list[str]:
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return [word for item in items if (word := str(item).strip())]


def _parse_toml_fields(toml: bytes) -> FrontMatterFields:
    try:
        # Dates and times become text, as in a frontmatter block.
        values = json.loads(json.dumps(tomllib.loads(toml.decode()), default=str))
        if measure_nesting_depth(values) > MAX_DEPTH:
            raise RecursionError("values are nested too deep")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "Correct that line, or move its fields into the frontmatter of skill.md."
        raise MalformedFileError(f"Not valid TOML: {error}.", hint, file="skill.toml") from None
    section = values.get("skill", values)
    fields: FrontMatterFields = dict(section) if isinstance(section, dict) else {}
    if isinstance(fields.get("env"), list):
        # TOML has real booleans, so its strings must not be read as flags.
        fields["env"] = dump_compact_json(fields["env"])
    return fields


def _build_front_matter(skill: Skill) -> dict[str, str | Mapping[str, str]]:
    fields: dict[str, str | Mapping[str, str]] = {
        "name": skill.name,
        "description": build_full_description(skill.description, skill.when_to_use),
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
    metadata = {**skill.metadata, **_build_habitus_metadata(skill)}
    return {**fields, "metadata": metadata} if metadata else fields


def _build_habitus_metadata(skill: SkillSummary) -> dict[str, str]:
    """Return our fields as text, without defaults."""
    plain = Manifest()
    values: dict[str, str] = {}
    for field in EDITABLE_FIELDS:
        own = getattr(skill, field.name)
        # The plain description is stored apart only if when-to-use was merged into the visible one.
        if skill.when_to_use if field.name == "description" else own:
            values[field.name] = dump_compact_json(list(own)) if field.is_list else own
    if skill.source is not SkillSource.USER:
        values["source"] = skill.source.value
    if skill.provenance:
        values["provenance"] = dump_compact_json(skill.provenance)
    if skill.extra:
        values["extra"] = dump_compact_json(skill.extra)
    for name in MANIFEST_FIELDS:
        value = getattr(skill.manifest, name)
        if value != getattr(plain, name):
            values[name] = ("true" if value else "false") if isinstance(value, bool) else dump_compact_json(list(value))
    return {METADATA_PREFIX + name: value for name, value in values.items()}


def _diff_front_matter(
    before: Skill, after: Skill, fields: FrontMatterFields
) -> dict[str, str | Mapping[str, str | None] | None]:
    """Return the changes that turn a block for `before` into one for `after`; moved fields leave their old place."""
    changes: dict[str, str | Mapping[str, str | None] | None] = {}
    old, new = _build_front_matter(before), _build_front_matter(after)
    for key in ("name", "description", "license", "compatibility", "allowed-tools"):
        if old.get(key) != new.get(key):
            value = new.get(key)
            changes[key] = value if isinstance(value, str) else None
    ours_before = {**before.metadata, **_build_habitus_metadata(before)}
    mine = {**after.metadata, **_build_habitus_metadata(after)}
    ours_before.pop(METADATA_PREFIX + "extra", None), mine.pop(METADATA_PREFIX + "extra", None)
    nested: dict[str, str | None] = {
        key: mine.get(key) for key in {**ours_before, **mine} if ours_before.get(key) != mine.get(key)
    }
    if "description" in changes:
        # The parts are written together with the whole: stale parts would look like a manual edit of the
        # description.
        nested |= {key: mine.get(key) for key in DESCRIPTION_PARTS if key in mine or key in _get_metadata(fields)}
    for key in fields:
        ours = METADATA_PREFIX + key.replace("-", "_")
        if key in _ISTOTA_FIELD_NAMES and key not in before.extra:
            ours = METADATA_PREFIX + _ISTOTA_FIELD_NAMES[key]
        if key not in STANDARD_KEYS and ours in nested:
            changes[key] = None
    if after.extra != before.extra:
        kept = {key for key in fields if key in after.extra and after.extra[key] == before.extra.get(key)}
        changes |= {key: None for key in fields if key in before.extra and key not in kept}
        moved = {key: value for key, value in after.extra.items() if key not in kept}
        nested[METADATA_PREFIX + "extra"] = dump_compact_json(moved) if moved else None
    if nested:
        changes["metadata"] = nested
    return changes


def _get_metadata(fields: FrontMatterFields) -> FrontMatterFields:
    metadata = fields.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
_SETEXT = re.compile(r"^(\S.*)\n=+[ \t]*$", re.MULTILINE)
NO_FRONTMATTER_NOTE = "It came without frontmatter; the description is its first paragraph."


def has_heading_and_prose(body: str) -> bool:
    """Whether a file without frontmatter is a document (a heading, then prose) rather than a damaged skill."""
    return _HEADING.match(body.lstrip()) is not None and bool(extract_first_paragraph(body))


def extract_title(body: str) -> str:
    """Return the first heading; empty if there is none."""
    found = _HEADING.search(body) or _SETEXT.search(body)
    return found[1].strip() if found else ""


def extract_first_paragraph(body: str) -> str:
    """Return the first lines of prose, without headings, code blocks and list marks."""
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
