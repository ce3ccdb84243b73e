"""Conversion between SKILL.md and formats with other rules: values are fitted on import and restored on export.

A skill's provenance remembers its format, its original name, and each value that was fitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from habitus.files import Tree, TreeFile, build_tree_file
from habitus.skills import names, trees
from habitus.skills.formats import frontmatter, frontmatter_fields, skill_md
from habitus.skills.formats.foreign_values import DiagnosticCollector, make_json_storable
from habitus.skills.model import Severity, Skill

BodyFrame = tuple[str, str, str]  # text before and after a body, and its line ends

TEXT_FILE_FRAME: BodyFrame = ("", "\n", "\n")
PLAIN_TEXT_FRAME: BodyFrame = ("", "", "\n")

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_MAIN_FILES = (*trees.MAIN_FILES, trees.TOML_FILE)
# Some agents refuse angle brackets in descriptions.
_ANGLES = str.maketrans({"<": "‹", ">": "›"})


def make_legal_name(original: str) -> str:
    """Return a legal skill name for any original name."""
    name = names.canonicalize_name(original)
    return name if names.is_legal_name(name) else names.slugify(original)


def fit_to_skill_md(
    skill: Skill,
    *,
    format: str,
    original_name: str,
    frame: BodyFrame,
    notes: DiagnosticCollector,
    remembered: Mapping[str, Any],
) -> Skill:
    """Return the skill with values that SKILL.md can hold.

    `skill` has the raw values, `frame` is what usually surrounds a body in the other format, and `remembered`
    holds values that only that format uses.
    """
    body, own_frame = _split_body_frame(make_json_storable(skill.body))
    if "\x00" in body:
        notes.add("There are NUL bytes in the text; each became '\ufffd'.", "Save the file as text.")
        body = body.replace("\x00", "\ufffd")
    fitted: dict[str, Any] = {
        "title": _clean_line(skill.title),
        "when_to_use": _clean_description(skill.when_to_use),
        "tags": [tag.strip() for tag in skill.tags if tag.strip()],
    }
    fitted["description"] = _clean_description(skill.description) or _derive_description(
        fitted["title"], body, skill.name
    )
    memory: dict[str, Any] = {"format": format}
    if original_name:
        memory["name"] = make_json_storable(original_name)
    changed = {
        one: {"was": was, "is": now} for one, now in fitted.items() if (was := _get_storable_value(skill, one)) != now
    }
    if changed:
        memory["fitted"] = changed
    _report_fitted_values(changed, notes)
    if own_frame != frame and body:
        memory["frame"] = list(own_frame)
    return replace(
        skill,
        title=fitted["title"],
        description=fitted["description"],
        when_to_use=fitted["when_to_use"],
        tags=tuple(fitted["tags"]),
        body=body,
        provenance={
            **memory,
            **{key: make_json_storable(now) for key, now in remembered.items() if now not in ({}, [], "", None)},
        },
    )


def build_imported_skill_files(skill: Skill, others: Tree) -> dict[str, TreeFile]:
    """Return the files of an imported skill with a newly rendered SKILL.md."""
    return {"SKILL.md": build_tree_file(skill_md.render_skill_md(skill)), **others}


def make_standard_compliant_tree(name: str, tree: Tree, *, description: str) -> Tree:
    """Return a copy of leniently read files that passes strict validators. `description` is used if the skill
    inherits its own.
    """
    parsed = trees.parse_skill_tree(name, tree)
    if parsed.skill is None or not (parsed.diagnostics or trees.TOML_FILE in tree):
        return tree
    fitted = replace(
        parsed.skill,
        description=_clean_description(parsed.skill.description)
        or _clean_description(description)
        or name.replace("-", " ").capitalize(),
        when_to_use=_clean_description(parsed.skill.when_to_use),
        compatibility=parsed.skill.compatibility[: frontmatter_fields.MAX_COMPATIBILITY],
    )
    return build_imported_skill_files(fitted, {path: file for path, file in tree.items() if path not in _MAIN_FILES})


def get_remembered_values(skill: Skill, format: str) -> Mapping[str, Any]:
    """Return the remembered values if the skill came from this format; empty otherwise."""
    return skill.provenance if skill.provenance.get("format") == format else {}


def get_original_name(skill: Skill, format: str, default: str) -> str:
    """Return the skill's original name in a format if it still fits, or else the default."""
    called = get_remembered_values(skill, format).get("name")
    is_usable = isinstance(called, str) and make_legal_name(called) == skill.name and is_safe_file_name(called)
    return called if is_usable and isinstance(called, str) else default


def is_safe_file_name(name: str) -> bool:
    """Whether a name is safe as the name of a single file or directory."""
    return (
        0 < len(name.encode("utf-8", "replace")) <= 200
        and name not in (".", "..")
        and not re.search(r"[/\\\x00-\x1f]", name)
        and PurePosixPath(name).name == name
    )


def get_original_field(skill: Skill, field: str, format: str) -> Any:
    """Return a field's original value, unless it has been edited since."""
    value = _get_storable_value(skill, field)
    fitted = get_remembered_values(skill, format).get("fitted")
    entry = fitted.get(field) if isinstance(fitted, dict) else None
    if isinstance(entry, dict) and entry.get("is") == value and isinstance(entry.get("was"), type(value)):
        return entry["was"]
    return value


def get_original_body(skill: Skill, format: str, frame: BodyFrame) -> str:
    """Return the body with its original surroundings and line ends."""
    own = get_remembered_values(skill, format).get("frame")
    if isinstance(own, list) and len(own) == 3 and all(isinstance(part, str) for part in own):
        frame = (own[0], own[1], own[2])
    before, after, newline = frame
    text = before + skill.body + after if skill.body else ""
    return text.replace("\n", newline) if newline == "\r\n" else text


def _split_body_frame(text: str) -> tuple[str, BodyFrame]:
    plain = frontmatter.normalize_newlines(text)
    body = plain.strip("\n")
    start = plain.index(body)
    newline = "\r\n" if "\r\n" in text and text == plain.replace("\n", "\r\n") else "\n"
    return body, (plain[:start], plain[start + len(body) :], newline)


def _get_storable_value(skill: Skill, field: str) -> Any:
    value = getattr(skill, field)
    return list(value) if isinstance(value, tuple) else make_json_storable(value)


def _clean_line(text: str) -> str:
    return _CONTROL_CHARACTERS.sub(" ", make_json_storable(text)).strip()


def _clean_description(text: str) -> str:
    """Limit a text to the length and characters that other agents accept."""
    text = _clean_line(text).translate(_ANGLES)
    limit = frontmatter_fields.MAX_DESCRIPTION
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _derive_description(title: str, body: str, name: str) -> str:
    """Make a description for a skill without one, from its title, text or name."""
    return (
        _clean_description(title)
        or _clean_description(skill_md.extract_first_paragraph(body))
        or name.replace("-", " ").capitalize()
    )


def _report_fitted_values(changed: Mapping[str, Mapping[str, Any]], notes: DiagnosticCollector) -> None:
    for field, values in changed.items():
        if field == "description" and not str(values["was"]).strip():
            notes.add(f"There is no description; it says '{values['is'][:60]}' now.", "Write one.", Severity.NOTE)
        elif str(values["was"]).strip() != str(values["is"]):
            what = f"The {field} has characters or a length that SKILL.md does not allow; it was adapted."
            notes.add(what, "The original is remembered for export.", Severity.NOTE)
