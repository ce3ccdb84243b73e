"""The three pages people read and edit (profile.md, rules.md, lessons.md): rendering, parsing and files.

One line is one engram: `- text <!-- id scope #topic -->`. A text can't contain a line break or a comment, so it can't
forge a line, a section or an id. Lines that can't be parsed stay on the page, with the reason.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from habitus import sql
from habitus.errors import StorageFailed
from habitus.files import translate_disk_errors, write_atomically
from habitus.locks import hold_lock, try_lock
from habitus.memory.model import Engram, LessonKind, LessonScope, PromptPart
from habitus.memory.tables import memory_views
from habitus.text import clean_to_one_line


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedPageLine:
    """One parsed line of a page; the id is empty for a new one."""

    text: str
    kind: LessonKind
    id: str = ""
    scope: LessonScope | None = None
    topic: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnparsedPageLine:
    """A line that could not be parsed and stays on the page unchanged."""

    raw: str
    reason: str
    number: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedPage:
    """A parsed page."""

    lines: tuple[ParsedPageLine, ...] = ()
    bad: tuple[UnparsedPageLine, ...] = ()
    # The rendering it was edited from.
    stamp: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.lines or self.bad or self.stamp)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPageSpec:
    """The file name, title and sections of a page, with the kind of each section ("" without sections)."""

    name: str
    title: str
    sections: Mapping[str, LessonKind]

    @property
    def kinds(self) -> frozenset[LessonKind]:
        return frozenset(self.sections.values())


PAGE_SPECS = tuple(
    MemoryPageSpec(
        name=f"{part}.md",
        title=part.capitalize(),
        sections={kind.heading: kind for kind in LessonKind if kind.part is part},
    )
    for part in PromptPart
)

UNPARSED_SECTION = "Not understood"
_ID = r"[a-z][a-z0-9]{7}"
_HEAD = re.compile(r"<!-- habitus (?P<stamp>[0-9a-f]{12})\b.*-->\s*")
_NOTE = re.compile(r"\s*<!-- not understood: .*-->\s*")
_BULLET = re.compile(r"\s{0,3}[-*+]\s+(?P<rest>.*)")
_MARKED = re.compile(r"(?P<text>.*?)\s*<!--(?P<mark>(?:(?!<!--|-->).)*)-->\s*")
_MARK = re.compile(rf"\s*(?P<id>{_ID}\b)?\s*(?P<scope>user|project|workspace|global)?\s*(?:#(?P<topic>[\w-]+))?\s*")
_KNOWN_ID = re.compile(rf"<!--\s*({_ID})\b")
_EXPLAINED = "one line each, '- text'; the comment at the end of a line is its address: leave it out for a new line"


def render_page(spec: MemoryPageSpec, engrams: Iterable[Engram], bad: Sequence[UnparsedPageLine] = ()) -> str:
    """Return the text of a page; the same engrams give the same text."""
    mine = sorted((e for e in engrams if e.kind in spec.kinds), key=lambda e: (str(e.created_on), e.id))
    parts = [f"# {spec.title}", ""]
    for section, kind in spec.sections.items():
        if section:
            parts += [f"## {section}", ""]
        parts += [_render_line(engram) for engram in mine if engram.kind is kind]
        parts.append("")
    if bad:
        parts += [f"## {UNPARSED_SECTION}", ""]
        for line in bad:
            parts += [f"<!-- not understood: {escape_comment_delimiters(clean_to_one_line(line.reason))} -->", line.raw]
    body = "\n".join(parts).rstrip("\n") + "\n"
    return f"<!-- habitus {compute_page_body_checksum(body)}; {_EXPLAINED} -->\n{body}"


def _render_line(engram: Engram) -> str:
    topic = f" #{engram.topic}" if engram.topic else ""
    return f"- {escape_comment_delimiters(engram.text)} <!-- {engram.id} {engram.scope.value}{topic} -->"


def parse_page_checksum(text: str) -> str:
    """Return the stamp of a page's text; empty if it has none."""
    head = _HEAD.fullmatch(text.split("\n", 1)[0])
    return head["stamp"] if head else ""


def is_page_unedited(text: str) -> bool:
    """Return whether a page is exactly as it was rendered, without unparsed lines."""
    stamp, _, body = parse_page_checksum(text), *text.partition("\n")[1:]
    return bool(stamp) and stamp == compute_page_body_checksum(body) and f"## {UNPARSED_SECTION}" not in body


def compute_page_body_checksum(body: str) -> str:
    """Return the stamp of a page's body."""
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def escape_comment_delimiters(text: str) -> str:
    """Escape a text so it can't open or close a comment."""
    text = re.sub(r"&(?=(?:amp|lt|gt);)", "&amp;", text)
    return text.replace("<!--", "&lt;!--").replace("-->", "--&gt;")


def unescape_comment_delimiters(text: str) -> str:
    """Undo `escape_comment_delimiters`."""
    return re.sub(r"&(amp|lt|gt);", lambda found: {"amp": "&", "lt": "<", "gt": ">"}[found[1]], text)


def parse_page(spec: MemoryPageSpec, text: str) -> ParsedPage:
    """Parse a page; every line that is not blank or ours becomes a parsed or an unparsed line, none is lost."""
    stamp, section = "", ""
    lines: list[ParsedPageLine] = []
    bad: list[UnparsedPageLine] = []
    for number, raw in _join_wrapped_lines(text.lstrip("\ufeff")):
        heading = re.fullmatch(r"#{1,6}\s+(.*?)\s*#*\s*", raw)
        head = _HEAD.fullmatch(raw)
        if not raw.strip() or _NOTE.fullmatch(raw):
            continue
        if head:
            stamp = head["stamp"]
        elif heading and _is_known_heading(spec, heading[1]):
            section = heading[1].capitalize() if heading[1].lower() != spec.title.lower() else ""
        else:
            understood = _parse_page_line(spec, section, raw)
            if isinstance(understood, ParsedPageLine):
                lines.append(understood)
            else:
                bad.append(UnparsedPageLine(raw=raw, reason=understood, number=number))
    return ParsedPage(lines=tuple(lines), bad=tuple(bad), stamp=stamp)


def _is_known_heading(view: MemoryPageSpec, heading: str) -> bool:
    ours = {view.title, UNPARSED_SECTION, *view.sections} - {""}
    return heading.lower() in {name.lower() for name in ours}


def _join_wrapped_lines(text: str) -> list[tuple[int, str]]:
    """Return numbered lines, with lines that an editor wrapped joined again."""
    found: list[tuple[int, str]] = []
    is_open = False
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        is_bullet = _BULLET.fullmatch(raw) is not None
        if is_open and not is_bullet and re.match(r"(?: {2,}|\t)\S", raw):
            first, said = found[-1]
            found[-1] = first, f"{said} {raw.strip()}"
            continue
        found.append((number, raw))
        is_open = is_bullet
    return found


def _parse_page_line(view: MemoryPageSpec, section: str, raw: str) -> ParsedPageLine | str:
    """Return the parsed line, or why it can't be parsed."""
    bullet = _BULLET.fullmatch(raw)
    if bullet is None:
        return "a line starts with '- '"
    kind = view.sections.get(section) or view.sections.get("")
    if kind is None:
        return f"it is under none of {', '.join(view.sections)}"
    marked = _MARKED.fullmatch(bullet["rest"])
    text, mark = (marked["text"], marked["mark"]) if marked else (bullet["rest"], "")
    parsed = _MARK.fullmatch(mark)
    if parsed is None:
        return "the comment at its end is none of ours"
    if "<!--" in text or "-->" in text:
        return "there is a comment inside the text"
    plain = clean_to_one_line(unescape_comment_delimiters(text))
    if not plain:
        return "there is no text"
    scope = LessonScope(parsed["scope"]) if parsed["scope"] else None
    return ParsedPageLine(text=plain, kind=kind, id=parsed["id"] or "", scope=scope, topic=parsed["topic"] or "")


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectedPageEdits:
    """A person's edits of the pages since they were rendered."""

    new: tuple[ParsedPageLine, ...] = ()
    changed: tuple[ParsedPageLine, ...] = ()
    # As they were before.
    removed: tuple[ParsedPageLine, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.removed)


def diff_pages(before: Iterable[ParsedPageLine], pages: Iterable[ParsedPage]) -> DetectedPageEdits:
    """Compare the rendered lines with the current pages; a line may have moved to another page."""
    was = {line.id: line for line in before}
    new: list[ParsedPageLine] = []
    now: dict[str, ParsedPageLine] = {}
    bad_ids: set[str] = set()
    for page in pages:
        bad_ids.update(id for line in page.bad for id in _KNOWN_ID.findall(line.raw))
        for line in page.lines:
            if not line.id:
                new.append(line)
            elif line.id not in now:
                now[line.id] = line
            elif now[line.id] != line:
                # A copied line carries the id of its original, which is the line that did not change.
                copy, original = (now[line.id], line) if line == was.get(line.id) else (line, now[line.id])
                now[line.id] = original
                new.append(replace(copy, id=""))
    return DetectedPageEdits(
        new=tuple(new),
        changed=tuple(line for id, line in now.items() if was.get(id) != line),
        removed=tuple(line for id, line in was.items() if id not in now and id not in bad_ids),
    )


def redact_unparsed_lines(
    bad: Iterable[UnparsedPageLine], redact: Callable[[str], str]
) -> tuple[UnparsedPageLine, ...]:
    return tuple(replace(line, raw=redact(line.raw)) for line in bad)


_MAX_BYTES = 4_000_000

FileStamps = Mapping[str, tuple[int, int, int] | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class PagesWithEdits:
    """The current pages, and a person's edits in them."""

    pages: Mapping[str, ParsedPage]
    edits: DetectedPageEdits
    # Whether all pages derive from renderings we still have.
    has_base: bool
    notes: tuple[str, ...] = ()
    seen: FileStamps | None = None


# Renderings to keep per page, against which edits are compared.
_MAX_RENDERINGS = 50


class MemoryPageFiles:
    """The page files of a home, with their earlier renderings in the database."""

    def __init__(self, dir: Path, engine: sa.Engine, *, clock: Callable[[], datetime], is_durable: bool = True) -> None:
        self.folder = dir
        self._engine = engine
        self._clock = clock
        self._is_durable = is_durable
        self._known: FileStamps = {}
        # The pages whose renderings this process has saved.
        self._remembered: dict[str, str] = {}

    def has_any_file_changed(self) -> bool:
        """Return whether a file differs from this process's last read or write; costs three stat calls."""
        return self._stat_files() != self._known

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Lock the pages for one process; yields False if another process has the lock and we can't wait."""
        with translate_disk_errors(self.folder):
            self.folder.mkdir(exist_ok=True, mode=0o700)
        # Its holder may wait for the database, so waiting inside a transaction could deadlock.
        with (try_lock if sql.has_open_write(self._engine) else hold_lock)(self.folder / ".lock") as held:
            yield held is not None

    def read_pages_and_find_edits(self) -> PagesWithEdits:
        """Read the pages and find a person's edits."""
        seen = self._stat_files()
        texts = {view.name: self._read_text(view.name) for view in PAGE_SPECS}
        return self.find_person_edits_in_texts({name: text for name, text in texts.items() if text is not None}, seen)

    def find_person_edits_in_texts(self, texts: Mapping[str, str], seen: FileStamps | None = None) -> PagesWithEdits:
        """Find a person's edits in these texts; a missing or empty page counts as unedited."""
        pages = {
            view.name: parse_page(view, texts[view.name])
            for view in PAGE_SPECS
            if view.name in texts and not self._is_unedited_rendering(view.name, texts[view.name])
        }
        notes = [f"{name} was empty and has been rewritten." for name, page in pages.items() if page.is_empty]
        pages = {name: page for name, page in pages.items() if not page.is_empty}
        before: list[ParsedPageLine] = []
        has_base = True
        for name, page in pages.items():
            lines = self._load_rendering_lines(name, page.stamp)
            if lines is None:
                has_base = False
                notes.append(f"{name} is an unknown page; no lesson was removed because of it.")
            before += lines or ()
        # All pages together, because a line cut from one page may have been pasted into another.
        return PagesWithEdits(
            pages=pages, edits=diff_pages(before, pages.values()), has_base=has_base, notes=tuple(notes), seen=seen
        )

    def _is_unedited_rendering(self, name: str, text: str) -> bool:
        """Return whether a page is one of our renderings, without any edits."""
        if self._remembered.get(name) == text and f"## {UNPARSED_SECTION}" not in text:
            return True
        if not is_page_unedited(text):
            return False
        table = memory_views
        query = sa.select(sa.func.count()).where(table.c.view == name, table.c.stamp == parse_page_checksum(text))
        with sql.read_transaction(self._engine) as conn:
            return bool(conn.execute(query).scalar_one())

    def read_texts(self) -> dict[str, str]:
        return {view.name: self._read_text(view.name) or "" for view in PAGE_SPECS}

    def write_pages_unless_saved_meanwhile(self, texts: Mapping[str, str], edited: PagesWithEdits | None) -> bool:
        """Write the pages; False, and nothing written, if a page was saved since it was read."""
        changed = [view.name for view in PAGE_SPECS if self._read_text(view.name) != texts[view.name]]
        for view in PAGE_SPECS:
            if view.name in changed or self._remembered.get(view.name) != texts[view.name]:
                self._save_rendering(view.name, texts[view.name])
        if edited is not None and edited.seen is not None and self._stat_files() != edited.seen:
            return False
        for name in changed:
            write_atomically(self.folder / name, texts[name].encode(), mode=0o600, durable=self._is_durable)
        self._known = self._stat_files()
        return True

    def _read_text(self, name: str) -> str | None:
        path = self.folder / name
        try:
            with path.open("rb") as file:
                return file.read(_MAX_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(f"Can't read {path}: {error.strerror}.", hint="Check its permissions.") from None

    def _stat_files(self) -> FileStamps:
        return {view.name: _stat_file(self.folder / view.name) for view in PAGE_SPECS}

    def _save_rendering(self, name: str, text: str) -> None:
        """Save a rendering before its file is written, so every visible page has one."""
        stamp, table = parse_page_checksum(text), memory_views
        mine = table.c.view == name
        with sql.read_transaction(self._engine) as conn:
            newest = sa.select(table.c.stamp).where(mine).order_by(table.c.written_on.desc()).limit(1)
            is_newest = conn.execute(newest).scalar() == stamp
        if is_newest:
            self._remembered[name] = text
            return
        with sql.write_transaction(self._engine) as conn:
            conn.execute(table.delete().where(mine, table.c.stamp == stamp))
            conn.execute(
                table.insert().values(
                    view=name, stamp=stamp, lines=zlib.compress(text.encode(), 1), written_on=self._clock()
                )
            )
            old = sa.select(table.c.stamp).where(mine).order_by(table.c.written_on.desc()).offset(_MAX_RENDERINGS)
            gone = list(conn.execute(old).scalars())
            if gone:
                conn.execute(table.delete().where(mine, table.c.stamp.in_(gone)))
        self._remembered[name] = text

    def _load_rendering_lines(self, name: str, stamp: str) -> tuple[ParsedPageLine, ...] | None:
        """Return the lines of a rendering; of the newest one if the stamp was deleted from the page."""
        table = memory_views
        query = sa.select(table.c.lines).where(table.c.view == name)
        query = query.where(table.c.stamp == stamp) if stamp else query.order_by(table.c.written_on.desc()).limit(1)
        with sql.read_transaction(self._engine) as conn:
            packed = conn.execute(query).scalar()
        if packed is None:
            return None
        view = next(view for view in PAGE_SPECS if view.name == name)
        return parse_page(view, zlib.decompress(packed).decode()).lines

    def delete_renderings(self) -> None:
        """Delete all renderings, because they may contain erased text."""
        self._remembered = {}
        with sql.write_transaction(self._engine) as conn:
            conn.execute(memory_views.delete())


def _stat_file(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
