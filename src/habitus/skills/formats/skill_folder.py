"""The Agent Skills layout itself: a SKILL.md directory, or one Markdown file as people upload it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from habitus.files import Tree, file_of
from habitus.skills import names, trees
from habitus.skills.formats import disk, fitting, frontmatter, skill_fields
from habitus.skills.formats.base import CantTake, Entry, Format, Incoming, Outgoing, PlaybookLesson, Written
from habitus.skills.formats.foreign_values import Notes
from habitus.skills.formats.frontmatter import Unreadable
from habitus.skills.model import Severity, Skill, Source

_MARKDOWN = (".md", ".markdown")
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
_SETEXT = re.compile(r"^(\S.*)\n=+[ \t]*$", re.MULTILINE)


class SkillFolder(Format):
    name = "skill"

    def claims(self, path: Path, inside: Set[str]) -> bool:
        if inside:
            return not inside.isdisjoint(trees.MAIN_FILES)
        return path.suffix.lower() in _MARKDOWN and path.is_file()

    def read_one(self, path: Path, origin: str) -> Iterator[Entry]:
        yield _from_folder(path, origin) if path.is_dir() else _from_file(path, origin)

    def write(
        self, skills: Sequence[Outgoing], to: Path, *, lessons: Sequence[PlaybookLesson] = (), overwrite: bool = False
    ) -> Written:
        return disk.write_folders(skills, to, _folder, overwrite=overwrite)


def _from_folder(path: Path, origin: str) -> Incoming:
    """A skill as it is: its bytes stay, only an illegal name gives way."""
    notes = Notes(origin)
    tree = disk.read_folder(path, notes)
    if trees.main_file(tree) is None:
        raise CantTake("Its SKILL.md is a link." if not notes.found else notes.found[0].what)
    name = _folder_name(path, origin, tree)
    parsed = trees.parse(name, tree)
    if parsed.skill is None:
        problem = parsed.diagnostics[-1]
        raise CantTake(f"{problem.what} {problem.mend}".strip())
    return Incoming(
        name=parsed.skill.name,
        tree=tree,
        origin=origin,
        format="skill",
        diagnostics=(*parsed.diagnostics, *notes.found),
    )


def _folder_name(path: Path, origin: str, tree: Tree) -> str:
    """The folder names the skill. The root of an archive or a checkout has no name of its own: there the file does."""
    folder = path.name if path.name == Path(origin).name else Path(origin).stem
    if path.name == folder:
        return fitting.legal_name(folder)
    main = trees.main_file(tree)
    content = tree[main].content if main else None
    stated = ""
    try:
        front = frontmatter.split((content or b"").decode("utf-8", "replace"), "SKILL.md").front
        stated = str(frontmatter.read(front or "", "SKILL.md")[0].get("name") or "")
    except Unreadable:
        pass
    return fitting.legal_name(stated if names.is_legal(names.canonical(stated)) else folder)


def _from_file(path: Path, origin: str) -> Incoming:
    content = disk.read_file(path, limit=skill_fields.MAX_BYTES)
    notes = Notes(origin)
    try:
        parts = frontmatter.split(_text(content), origin)
        fields = frontmatter.read(parts.front, origin)[0] if parts.front is not None else None
    except Unreadable as problem:
        raise CantTake(f"{problem.diagnostic.what} {problem.diagnostic.mend}".strip()) from None
    if fields is not None and str(fields.get("description") or "").strip():
        return _with_fields(path, origin, content, str(fields.get("name") or ""))
    return _bare(path, origin, parts.body, str((fields or {}).get("name") or ""), notes)


def _text(content: bytes) -> str:
    if b"\0" in content:
        raise CantTake(f"There is a NUL byte at position {content.index(0)}; it is no text.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CantTake(f"It is not UTF-8 at byte {error.start}. Save it as UTF-8.") from None


def _with_fields(path: Path, origin: str, content: bytes, stated: str) -> Incoming:
    """A SKILL.md by another file name: it names itself."""
    name = fitting.legal_name(stated) if stated.strip() else _name_of_file(path, "")
    tree = {"SKILL.md": file_of(content)}
    parsed = trees.parse(name, tree)
    if parsed.skill is None:
        raise CantTake(parsed.diagnostics[-1].what)
    return Incoming(name=name, tree=tree, origin=origin, format="skill", diagnostics=parsed.diagnostics)


def _bare(path: Path, origin: str, body: str, stated: str, notes: Notes) -> Incoming:
    """Plain Markdown: titled by its first heading, described by its first paragraph."""
    if not body.strip():
        raise CantTake("There is no text in it.")
    found = _HEADING.search(body) or _SETEXT.search(body)
    title = found[1].strip() if found else ""
    name = fitting.legal_name(stated) if stated.strip() else _name_of_file(path, title)
    raw = Skill(
        name=name,
        title=title,
        description=fitting.first_paragraph(body),
        source=Source.IMPORTED,
        body=body,
    )
    notes.say("It came without frontmatter; the description is its first paragraph.", "Improve it.", Severity.NOTE)
    skill = fitting.fit(raw, format="skill", called="", frame=fitting.PLAIN_TEXT, notes=notes, kept={})
    return Incoming(
        name=name, tree=fitting.folder(skill, {}), origin=origin, format="skill", diagnostics=tuple(notes.found)
    )


def _name_of_file(path: Path, title: str) -> str:
    """From the file's name, unless that is one that everybody uses."""
    is_telling = path.stem.lower() not in ("skill", "readme", "index", "untitled", "document")
    return fitting.legal_name(path.stem if is_telling or not title else title)


def _folder(item: Outgoing) -> tuple[str, Tree]:
    return item.skill.name, item.tree if trees.main_file(item.tree) else fitting.folder(item.skill, item.tree)
