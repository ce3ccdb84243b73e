"""The Agent Skills format itself: a SKILL.md directory, or a single uploaded Markdown file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

from habitus.files import Tree, file_of
from habitus.skills import names, trees
from habitus.skills.formats import disk, fitting, frontmatter, frontmatter_fields, skill_md
from habitus.skills.formats.base import CantTake, Entry, Format, Incoming, Outgoing, PlaybookLesson, Written
from habitus.skills.formats.foreign_values import Notes
from habitus.skills.model import Diagnostic, Skill, Source, Unreadable

_MARKDOWN = (".md", ".markdown")


Known = Callable[[str, Tree], "Sequence[Diagnostic] | None"]


def nothing_known(name: str, tree: Tree) -> None:
    return None


class SkillFolder(Format):
    """Reads SKILL.md folders and Markdown files. `known` returns the diagnostics of a skill with exactly these files,
    which is then not parsed again.
    """

    name = "skill"

    def __init__(self, known: Known = nothing_known) -> None:
        self._known = known

    def claims(self, path: Path, inside: Set[str]) -> bool:
        if inside:
            return not inside.isdisjoint(trees.MAIN_FILES)
        return path.suffix.lower() in _MARKDOWN and path.is_file()

    def read_one(self, path: Path, origin: str) -> Iterator[Entry]:
        yield _from_folder(path, origin, self._known) if path.is_dir() else _from_file(path, origin)

    def write(
        self, skills: Sequence[Outgoing], to: Path, *, lessons: Sequence[PlaybookLesson] = (), overwrite: bool = False
    ) -> Written:
        return disk.write_folders(skills, to, _folder, overwrite=overwrite)


def _from_folder(path: Path, origin: str, known: Known) -> Incoming:
    """Return a skill with its bytes unchanged; only an illegal name is replaced."""
    notes = Notes(origin)
    tree = disk.read_folder(path, notes)
    main = trees.main_file(tree)
    if main is None:
        raise CantTake("Its SKILL.md is a link." if not notes.found else notes.found[0].what)
    content = tree[main].content or b""
    # The root of a checkout or archive can have any name, so there the file names the skill; elsewhere the folder
    # does.
    stated = _stated_name(content) if "/" not in origin else ""
    name = fitting.legal_name(stated if names.is_legal(names.canonical(stated)) else path.name)
    if not _has_fields(content) and trees.TOML_FILE not in tree:
        others = {place: file for place, file in tree.items() if place != main}
        return _bare(name, origin, _text(content).removeprefix("\ufeff"), notes, others)
    said = known(name, tree)
    if said is None:
        parsed = trees.parse(name, tree)
        if parsed.skill is None:
            problem = parsed.diagnostics[-1]
            raise CantTake(f"{problem.what} {problem.hint}".strip())
        name, said = parsed.skill.name, parsed.diagnostics
    return Incoming(
        name=name,
        tree=tree,
        origin=origin,
        format="skill",
        diagnostics=(*said, *notes.found),
        control=tuple(notes.control),
    )


def _stated_name(content: bytes) -> str:
    try:
        front = frontmatter.split(content.decode("utf-8", "replace"), "SKILL.md").front
        return str(frontmatter.read(front or "", "SKILL.md")[0].get("name") or "")
    except Unreadable:
        return ""


def _has_fields(content: bytes) -> bool:
    """Whether it has a frontmatter block, or was meant to."""
    return content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"---")


def _from_file(path: Path, origin: str) -> Incoming:
    content = disk.read_file(path, limit=frontmatter_fields.MAX_BYTES)
    notes = Notes(origin)
    try:
        parts = frontmatter.split(_text(content), origin)
        fields = frontmatter.read(parts.front, origin)[0] if parts.front is not None else None
    except Unreadable as problem:
        raise CantTake(f"{problem.diagnostic.what} {problem.diagnostic.hint}".strip()) from None
    if fields is not None and str(fields.get("description") or "").strip():
        return _with_fields(path, origin, content, str(fields.get("name") or ""))
    stated = str((fields or {}).get("name") or "")
    title = skill_md.title(parts.body)
    name = fitting.legal_name(stated) if stated.strip() else _name_of_file(path, title)
    return _bare(name, origin, parts.body, notes, {})


def _text(content: bytes) -> str:
    if b"\0" in content:
        raise CantTake(f"There is a NUL byte at position {content.index(0)}; it is not text.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CantTake(f"It is not UTF-8 at byte {error.start}. Save it as UTF-8.") from None


def _with_fields(path: Path, origin: str, content: bytes, stated: str) -> Incoming:
    """Import a complete SKILL.md under another file name; it names itself."""
    name = fitting.legal_name(stated) if stated.strip() else _name_of_file(path, "")
    tree = {"SKILL.md": file_of(content)}
    parsed = trees.parse(name, tree)
    if parsed.skill is None:
        raise CantTake(parsed.diagnostics[-1].what)
    return Incoming(name=name, tree=tree, origin=origin, format="skill", diagnostics=parsed.diagnostics)


def _bare(name: str, origin: str, body: str, notes: Notes, others: Tree) -> Incoming:
    """Import plain Markdown: the first heading is the title, the first paragraph the description."""
    if not body.strip():
        raise CantTake("There is no text in it.")
    raw = Skill(
        name=name,
        title=skill_md.title(body),
        description=skill_md.first_paragraph(body),
        source=Source.IMPORTED,
        body=body,
    )
    notes.say(skill_md.SAID, "Improve it.")
    skill = fitting.fit(raw, format="skill", called="", frame=fitting.PLAIN_TEXT, notes=notes, kept={})
    tree = fitting.folder(skill, others)
    return Incoming(
        name=name,
        tree=tree,
        origin=origin,
        format="skill",
        diagnostics=tuple(notes.found),
        control=tuple(notes.control),
    )


def _name_of_file(path: Path, title: str) -> str:
    """Return a name from the file's name, or from the title if the file has a generic name."""
    is_telling = path.stem.lower() not in ("skill", "readme", "index", "untitled", "document")
    return fitting.legal_name(path.stem if is_telling or not title else title)


def _folder(item: Outgoing) -> tuple[str, Tree]:
    return item.skill.name, item.tree if trees.main_file(item.tree) else fitting.folder(item.skill, item.tree)
