"""The Agent Skills format itself: a SKILL.md directory, or a single uploaded Markdown file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

from habitus.files import Tree, build_tree_file
from habitus.skills import names, trees
from habitus.skills.formats import conversion, disk, frontmatter, frontmatter_fields, skill_md
from habitus.skills.formats.base import ImportEntry, IncomingSkill, OutgoingSkill, UnreadableEntryError
from habitus.skills.formats.foreign_values import DiagnosticCollector
from habitus.skills.model import Diagnostic, MalformedFileError, Skill, SkillSource

_MARKDOWN = (".md", ".markdown")


DiagnosticsLookup = Callable[[str, Tree], "Sequence[Diagnostic] | None"]


class AgentSkillsFormat(disk.SkillFolderFormat):
    """Reads SKILL.md folders and Markdown files. `known` returns the diagnostics of a skill with exactly these files,
    which is then not parsed again.
    """

    name = "skill"

    def __init__(self, known: DiagnosticsLookup = lambda name, tree: None) -> None:
        self._known = known

    def can_read(self, path: Path, inside: Set[str]) -> bool:
        if inside:
            return not inside.isdisjoint(trees.MAIN_FILES)
        return path.suffix.lower() in _MARKDOWN and path.is_file()

    def read_entries(self, path: Path, origin: str) -> Iterator[ImportEntry]:
        yield _read_skill_folder(path, origin, self._known) if path.is_dir() else _read_markdown_file(path, origin)

    def render_skill_folder(self, item: OutgoingSkill) -> tuple[str, Tree]:
        is_whole = trees.find_main_file(item.tree) is not None
        return item.skill.name, item.tree if is_whole else conversion.build_imported_skill_files(item.skill, item.tree)


def _read_skill_folder(path: Path, origin: str, known: DiagnosticsLookup) -> IncomingSkill:
    """Return a skill with its bytes unchanged; only an illegal name is replaced."""
    notes = DiagnosticCollector(origin)
    tree = disk.read_folder(path, notes)
    main = trees.find_main_file(tree)
    if main is None:
        raise UnreadableEntryError("Its SKILL.md is a link." if not notes.diagnostics else notes.diagnostics[0].message)
    content = tree[main].content or b""
    # The root of a checkout or archive can have any name, so there the file names the skill; elsewhere the folder
    # does.
    stated = _read_stated_name(content) if "/" not in origin else ""
    name = conversion.make_legal_name(stated if names.is_legal_name(names.canonicalize_name(stated)) else path.name)
    if not _starts_like_front_matter(content) and trees.TOML_FILE not in tree:
        others = {place: file for place, file in tree.items() if place != main}
        return _build_incoming_from_plain_markdown(
            name, origin, _decode_text(content).removeprefix("\ufeff"), notes, others
        )
    said = known(name, tree)
    if said is None:
        parsed = trees.parse_skill_tree(name, tree)
        if parsed.skill is None:
            problem = parsed.diagnostics[-1]
            raise UnreadableEntryError(f"{problem.message} {problem.hint}".strip())
        name, said = parsed.skill.name, parsed.diagnostics
    return IncomingSkill(
        name=name,
        tree=tree,
        origin=origin,
        format="skill",
        diagnostics=(*said, *notes.diagnostics),
        vcs_files=tuple(notes.vcs_files),
    )


def _read_stated_name(content: bytes) -> str:
    try:
        front = frontmatter.split_front_matter(content.decode("utf-8", "replace"), "SKILL.md").front
        return str(frontmatter.parse_fields_with_diagnostics(front or "", "SKILL.md")[0].get("name") or "")
    except MalformedFileError:
        return ""


def _starts_like_front_matter(content: bytes) -> bool:
    """Whether it has a frontmatter block, or was meant to."""
    return content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"---")


def _read_markdown_file(path: Path, origin: str) -> IncomingSkill:
    content = disk.read_file(path, limit=frontmatter_fields.MAX_BYTES)
    notes = DiagnosticCollector(origin)
    try:
        parts = frontmatter.split_front_matter(_decode_text(content), origin)
        fields = frontmatter.parse_fields_with_diagnostics(parts.front, origin)[0] if parts.front is not None else None
    except MalformedFileError as problem:
        raise UnreadableEntryError(f"{problem.diagnostic.message} {problem.diagnostic.hint}".strip()) from None
    if fields is not None and str(fields.get("description") or "").strip():
        return _build_incoming_from_skill_md(path, origin, content, str(fields.get("name") or ""))
    stated = str((fields or {}).get("name") or "")
    title = skill_md.extract_title(parts.body)
    name = conversion.make_legal_name(stated) if stated.strip() else _make_name_from_file_or_title(path, title)
    return _build_incoming_from_plain_markdown(name, origin, parts.body, notes, {})


def _decode_text(content: bytes) -> str:
    if b"\0" in content:
        raise UnreadableEntryError(f"There is a NUL byte at position {content.index(0)}; it is not text.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UnreadableEntryError(f"It is not UTF-8 at byte {error.start}. Save it as UTF-8.") from None


def _build_incoming_from_skill_md(path: Path, origin: str, content: bytes, stated: str) -> IncomingSkill:
    """Import a complete SKILL.md under another file name; it names itself."""
    name = conversion.make_legal_name(stated) if stated.strip() else _make_name_from_file_or_title(path, "")
    tree = {"SKILL.md": build_tree_file(content)}
    parsed = trees.parse_skill_tree(name, tree)
    if parsed.skill is None:
        raise UnreadableEntryError(parsed.diagnostics[-1].message)
    return IncomingSkill(name=name, tree=tree, origin=origin, format="skill", diagnostics=parsed.diagnostics)


def _build_incoming_from_plain_markdown(
    name: str, origin: str, body: str, notes: DiagnosticCollector, others: Tree
) -> IncomingSkill:
    """Import plain Markdown: the first heading is the title, the first paragraph the description."""
    if not body.strip():
        raise UnreadableEntryError("There is no text in it.")
    raw = Skill(
        name=name,
        title=skill_md.extract_title(body),
        description=skill_md.extract_first_paragraph(body),
        source=SkillSource.IMPORTED,
        body=body,
    )
    notes.add(skill_md.NO_FRONTMATTER_NOTE, "Improve it.")
    skill = conversion.fit_to_skill_md(
        raw, format="skill", original_name="", frame=conversion.PLAIN_TEXT_FRAME, notes=notes, remembered={}
    )
    tree = conversion.build_imported_skill_files(skill, others)
    return IncomingSkill(
        name=name,
        tree=tree,
        origin=origin,
        format="skill",
        diagnostics=tuple(notes.diagnostics),
        vcs_files=tuple(notes.vcs_files),
    )


def _make_name_from_file_or_title(path: Path, title: str) -> str:
    """Return a name from the file's name, or from the title if the file has a generic name."""
    is_telling = path.stem.lower() not in ("skill", "readme", "index", "untitled", "document")
    return conversion.make_legal_name(path.stem if is_telling or not title else title)
