"""Conversion between SKILL.md and formats with other rules: values are fitted on import and restored on export.

A skill's provenance remembers its format, its original name, and each value that was fitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from habitus.files import File, Tree, file_of
from habitus.skills import names, trees
from habitus.skills.formats import frontmatter, frontmatter_fields, skill_md
from habitus.skills.formats.foreign_values import Notes, storable
from habitus.skills.model import Severity, Skill

Frame = tuple[str, str, str]  # text before and after a body, and its line ends

TEXT_FILE: Frame = ("", "\n", "\n")
PLAIN_TEXT: Frame = ("", "", "\n")

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_MAIN = (*trees.MAIN_FILES, trees.TOML_FILE)
# Some agents refuse angle brackets in descriptions.
_ANGLES = str.maketrans({"<": "‹", ">": "›"})


def legal_name(original: str) -> str:
    """Return a legal skill name for any original name."""
    name = names.canonical(original)
    return name if names.is_legal(name) else names.slugify(original)


def fit(skill: Skill, *, format: str, called: str, frame: Frame, notes: Notes, kept: Mapping[str, Any]) -> Skill:
    """Return the skill with values that SKILL.md can hold.

    `skill` has the raw values, `frame` is what usually surrounds a body in the other format, and `remembered`
    holds values that only that format uses.
    """
    body, own_frame = _split_frame(storable(skill.body))
    if "\x00" in body:
        notes.say("There are NUL bytes in the text; each became '\ufffd'.", "Save the file as text.")
        body = body.replace("\x00", "\ufffd")
    fitted: dict[str, Any] = {
        "title": _line(skill.title),
        "when_to_use": _outward(skill.when_to_use),
        "tags": [tag.strip() for tag in skill.tags if tag.strip()],
    }
    fitted["description"] = _outward(skill.description) or _derive_description(fitted["title"], body, skill.name)
    memory: dict[str, Any] = {"format": format}
    if called:
        memory["name"] = storable(called)
    changed = {
        field: {"was": was, "is": value} for field, value in fitted.items() if (was := _raw(skill, field)) != value
    }
    if changed:
        memory["fitted"] = changed
    _say_what_was_fitted(changed, notes)
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
            **{key: storable(value) for key, value in kept.items() if value not in ({}, [], "", None)},
        },
    )


def folder(skill: Skill, others: Tree) -> dict[str, File]:
    """Return the files of an imported skill with a newly rendered SKILL.md."""
    return {"SKILL.md": file_of(skill_md.render(skill)), **others}


def strict(name: str, tree: Tree, *, description: str) -> Tree:
    """Return a copy of leniently read files that passes strict validators. `description` is used if the skill
    inherits its own.
    """
    parsed = trees.parse(name, tree)
    if parsed.skill is None or not (parsed.diagnostics or trees.TOML_FILE in tree):
        return tree
    fitted = replace(
        parsed.skill,
        description=_outward(parsed.skill.description) or _outward(description) or name.replace("-", " ").capitalize(),
        when_to_use=_outward(parsed.skill.when_to_use),
        compatibility=parsed.skill.compatibility[: frontmatter_fields.MAX_COMPATIBILITY],
    )
    return folder(fitted, {path: file for path, file in tree.items() if path not in _MAIN})


def memory_of(skill: Skill, format: str) -> Mapping[str, Any]:
    """Return the remembered values if the skill came from this format; empty otherwise."""
    return skill.provenance if skill.provenance.get("format") == format else {}


def name_there(skill: Skill, format: str, otherwise: str) -> str:
    """Return the skill's original name in a format if it still fits, or else the default."""
    called = memory_of(skill, format).get("name")
    is_usable = isinstance(called, str) and legal_name(called) == skill.name and is_one_part(called)
    return called if is_usable and isinstance(called, str) else otherwise


def is_one_part(name: str) -> bool:
    """Whether a name is safe as the name of a single file or directory."""
    return (
        0 < len(name.encode("utf-8", "replace")) <= 200
        and name not in (".", "..")
        and not re.search(r"[/\\\x00-\x1f]", name)
        and PurePosixPath(name).name == name
    )


def original(skill: Skill, field: str, format: str) -> Any:
    """Return a field's original value, unless it has been edited since."""
    value = _raw(skill, field)
    fitted = memory_of(skill, format).get("fitted")
    entry = fitted.get(field) if isinstance(fitted, dict) else None
    if isinstance(entry, dict) and entry.get("is") == value and isinstance(entry.get("was"), type(value)):
        return entry["was"]
    return value


def original_body(skill: Skill, format: str, frame: Frame) -> str:
    """Return the body with its original surroundings and line ends."""
    own = memory_of(skill, format).get("frame")
    if isinstance(own, list) and len(own) == 3 and all(isinstance(part, str) for part in own):
        frame = (own[0], own[1], own[2])
    before, after, newline = frame
    text = before + skill.body + after if skill.body else ""
    return text.replace("\n", newline) if newline == "\r\n" else text


def _split_frame(text: str) -> tuple[str, Frame]:
    plain = frontmatter.plain_newlines(text)
    body = plain.strip("\n")
    start = plain.index(body)
    newline = "\r\n" if "\r\n" in text and text == plain.replace("\n", "\r\n") else "\n"
    return body, (plain[:start], plain[start + len(body) :], newline)


def _raw(skill: Skill, field: str) -> Any:
    value = getattr(skill, field)
    return list(value) if isinstance(value, tuple) else storable(value)


def _line(text: str) -> str:
    return _CONTROL.sub(" ", storable(text)).strip()


def _outward(text: str) -> str:
    """Limit a text to the length and characters that other agents accept."""
    text = _line(text).translate(_ANGLES)
    return (
        text
        if len(text) <= frontmatter_fields.MAX_DESCRIPTION
        else text[: frontmatter_fields.MAX_DESCRIPTION - 1].rstrip() + "…"
    )


def _derive_description(title: str, body: str, name: str) -> str:
    """Make a description for a skill without one, from its title, text or name."""
    return _outward(title) or _outward(skill_md.first_paragraph(body)) or name.replace("-", " ").capitalize()


def _say_what_was_fitted(changed: Mapping[str, Mapping[str, Any]], notes: Notes) -> None:
    for field, values in changed.items():
        if field == "description" and not str(values["was"]).strip():
            notes.say(f"There is no description; it says '{values['is'][:60]}' now.", "Write one.", Severity.NOTE)
        elif str(values["was"]).strip() != str(values["is"]):
            what = f"The {field} has characters or a length that SKILL.md does not allow; a fitted one stands there."
            notes.say(what, "The original is remembered for export.", Severity.NOTE)
