"""The listing of a home, kept beside its database: read without the database's toolkit, and believed only while all
that it was made from is as it was. A doubt is no answer: whoever asks composes the listing anew."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from habitus.errors import HabitusError
from habitus.files import write_whole
from habitus.skills import lifecycle, names, trees
from habitus.skills.formats import frontmatter
from habitus.skills.layers.layer import USER, address, project_places
from habitus.skills.layers.listing import Listed, ShownSkill, SkillEntry, SkillPage, together, words_of_source
from habitus.skills.model import Counters, Manifest, Stage, State, Summary, Unreadable
from habitus.skills.sources import lock
from habitus.skills.stores import records
from habitus.skills.stores.base import TOLD
from habitus.skills.stores.files import DirectoryShelf

_FORMAT = 3
_END = b"end\n"
_MOST = 4  # views of one home that are kept: by user, variables and project
_LEAST_ROOM = 1 << 16
_A_DAY = timedelta(days=1)
DATABASE = "habitus.db"
# Files of a home by which a listing changes, or by which opening the home would do something.
_FILES = ("habitus.toml", "screening.toml", "forgotten.jsonl", ".replacing/begun.json", lock.OLD_FILE)
# Asked of the database when a listing is kept and when it is read: the answers must be the same.
_SAME = (
    "SELECT version_num FROM alembic_version",
    "SELECT MAX(oldest_reader) FROM schema_compatibility",
    "SELECT name, value FROM sequences ORDER BY name",
    "SELECT made_on FROM skill_versions ORDER BY rowid DESC LIMIT 1",
    "SELECT made_on FROM skill_switches ORDER BY id DESC LIMIT 1",
    "SELECT COUNT(*), MAX(trusted_on) FROM trusted_skills",
    "SELECT COUNT(*), MAX(imported_on) FROM skill_imports",
    "SELECT id, name, layer, host, action, base_hash, reasons FROM skill_proposals WHERE state = 'waiting' ORDER BY id",
)
_INTENDED = "SELECT COUNT(*) FROM skill_intents"  # somebody died on the way, or writes just now
_LESSONS = "SELECT COUNT(*) FROM engrams WHERE state = 'waiting'"
_REMINDED = "SELECT set_on FROM switches WHERE name = ?"  # of what waits, which is said once a day
_COUNTED = (
    "SELECT skill, version, stage, recommended, used, succeeded, failed, last_used, by_presence_until"
    " FROM skill_counters"
)

Ask = Callable[[str], Iterable[Sequence[Any]]]


class _Doubt(Exception):
    """Something is not as it was, or is not known to be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A home as a process sees it: what else a listing depends on is in the home, in folders and in the database."""

    home: Path
    cwd: Path
    environ: Mapping[str, str]

    @classmethod
    def of_this_process(cls, home: str = "") -> Self | None:
        """As the settings would have it; None where only they can say which home it is."""
        user_home = os.environ.get("HOME") or ""
        home = home or os.environ.get("HABITUS_HOME") or f"{user_home}/.habitus"
        if not user_home or home.startswith("~"):
            return None
        try:
            cwd = Path.cwd()
        except OSError:
            return None
        return cls(home=cwd / home, cwd=cwd, environ=dict(os.environ))

    @property
    def user_home(self) -> Path:
        return Path(self.environ.get("HOME") or Path.home())

    @property
    def file(self) -> Path:
        given = sorted(item for item in self.environ.items() if item[0].startswith("HABITUS_"))
        places = [(place.name, str(place.root)) for place in project_places(self.cwd, self.user_home)]
        seen = [os.getuid(), str(self.user_home), [item for item in given if item[0] != "HABITUS_HOME"], places]
        return self.home / "cache" / f"listing-{_hash(json.dumps(seen).encode())[:16]}.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptShelf:
    """A folder of skills as it was looked at: folder → stamp."""

    root: str
    follow_links: bool
    stamps: Mapping[str, str]

    def is_same(self, only: str = "") -> bool:
        """Whether it is now as it was, all of it or what has this name alone."""
        known = {f: s for f, s in self.stamps.items() if names.canonical(f) == only} if only else self.stamps
        found = DirectoryShelf(Path(self.root), Path(), follow_links=self.follow_links).look(known)
        if only:
            others = self.stamps.keys() - known.keys()
            found = {f: s for f, s in found.items() if f not in others and names.canonical(f) == only}
        return found == known


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptItem:
    """One line of a listing, with the manifest that its file states, its folder and its row in the database."""

    item: Listed
    manifest: Manifest
    folder: str
    row: int


def answers_of(ask: Ask) -> list[Any] | None:
    """The database's state of all that a listing depends on; None where something must be completed first."""
    if any(count for (count,) in ask(_INTENDED)):
        return None
    return [[list(row) for row in ask(query)] for query in _SAME]


# Keeping


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewer:
    """Whose listing it is, the encoder that searches it, and the marks that its skills have once they are indexed."""

    user: str
    count: int  # of the skills, without those that wait for a person
    encoder: str
    marks: Mapping[str, str]


def keep(
    view: View, viewer: Viewer, answers: Sequence[Any], shelves: Mapping[str, KeptShelf], items: Iterable[KeptItem]
) -> None:
    """Keep a listing, unless it is kept already; `shelves` by layer. What can't be kept is not."""
    head = {
        "format": _FORMAT,
        "code": _code(),
        "files": _digests(view.home),
        "database": _identity(view.home),
        "user": viewer.user,
        "count": viewer.count,
        "encoder": viewer.encoder,
        "indexed": digest_marks(viewer.marks),
        "answers": answers,
    }
    stamps = {layer: [one.root, one.follow_links, one.stamps] for layer, one in shelves.items()}
    with suppress(OSError, ValueError):
        begin = f"{json.dumps(head)}\n{json.dumps(stamps)}\n".encode()
        if _begins_with(view.file, begin):
            return
        view.file.parent.mkdir(exist_ok=True, mode=0o700)
        write_whole(view.file, begin + "".join(map(_line, items)).encode() + _END, mode=0o600, durable=False)
        forget_listings(view.home, but=_MOST)


def digest_marks(marks: Mapping[str, str]) -> str:
    """The marks that skills are indexed by, name → mark, in a few letters."""
    return _hash(json.dumps(sorted(marks.items())).encode())


def forget_listings(home: Path, *, but: int = 0) -> None:
    """Let go of what is kept, but the last few; the next `skills list` keeps it anew."""
    kept = sorted((home / "cache").glob("listing-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    for old in kept[: len(kept) - but] if len(kept) > but else ():
        old.unlink(missing_ok=True)


def _line(kept: KeptItem) -> str:
    item, summary = kept.item, kept.item.summary
    told = [
        *(item.name, item.layer, kept.folder, kept.row, item.state, item.reason, item.tree_hash),
        *(item.hidden, item.waiting, item.fills, item.inert, records.pack_diagnostics(item.diagnostics)),
    ]
    stated = None if summary is None or kept.manifest == summary.manifest else Summary(name="", manifest=kept.manifest)
    parts = [
        json.dumps(told, ensure_ascii=False)[1:-1],
        "null" if stated is None else records.pack_summary(stated),
        "null",
    ]
    if summary is not None:
        dates = [moment and moment.isoformat() for moment in (summary.created_on, summary.modified_on)]
        row = json.dumps([summary.layer, summary.version, summary.enabled, *dates], ensure_ascii=False)[1:]
        parts[-1] = f"[{records.pack_summary(summary)}, {row}"
    return f"[{', '.join(parts)}]\n"


def _begins_with(file: Path, begin: bytes) -> bool:
    try:
        with file.open("rb") as kept:
            return kept.read(len(begin)) == begin
    except FileNotFoundError:
        return False


def _code() -> list[list[Any]]:
    """The modules that have made it: another version of them might make something else."""
    found = {getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith("habitus")}
    return [[file, *_times(file)] for file in sorted(filter(None, found))]


def _times(file: str) -> tuple[int, int]:
    found = os.stat(file)  # noqa: PTH116  # hundreds of files, and a Path of each costs more than the look
    return found.st_mtime_ns, found.st_size


def _digests(home: Path) -> dict[str, str]:
    found = {}
    for name in _FILES:
        with suppress(FileNotFoundError, NotADirectoryError):
            found[name] = _hash((home / name).read_bytes())
    return found


def _identity(home: Path) -> list[int]:
    """Which file the database is: the numbers in one that was put in its place mean something else."""
    found = (home / DATABASE).stat()
    return [found.st_dev, found.st_ino]


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# Reading


def read_page(view: View) -> SkillPage | None:
    """Every skill, as `skills list` has it; None where the listing must be composed anew."""
    try:
        with open_listing(view) as kept:
            if not all(shelf.is_same() for shelf in kept.shelves.values()):
                return None
            counted = _counters(kept.connection.execute(_COUNTED))
        found = [
            SkillEntry(item=one.item, manifest=one.manifest, counters=together(counted[one.row, False]))
            for one in map(_parse_item, kept.lines)
        ]
        return SkillPage(skills=found, next=None, total=len(found))
    except ODD:
        return None


def is_kept(view: View) -> bool:
    """Whether a listing is kept, and opening the home would do and say nothing."""
    try:
        with open_listing(view, says_what_waits=False):
            return True
    except ODD:
        return False


def read_listing(view: View) -> list[Listed] | None:
    """Every skill, as the library has them; None where the listing must be composed anew."""
    try:
        with open_listing(view, says_what_waits=False) as kept:
            if not all(shelf.is_same() for shelf in kept.shelves.values()):
                return None
        return [_parse_item(line).item for line in kept.lines[: kept.head["count"]]]
    except ODD:
        return None


def read_shown(view: View, name: str) -> ShownSkill | None:
    """One skill as `skills show` has it; None where it is not known by this name alone, or not as it was."""
    try:
        with open_listing(view) as kept:
            one = kept.find(name)
            item = one.item
            is_plain = item.summary is not None and not (item.fills or item.summary.manifest.extends)
            asked = (address(item.name, item.layer),)
            is_judged = kept.connection.execute("SELECT 1 FROM exposures WHERE item = ? LIMIT 1", asked).fetchone()
            if not is_plain or is_judged or not all(shelf.is_same(name) for shelf in kept.shelves.values()):
                return None
            counted = _counters(kept.connection.execute(f"{_COUNTED} WHERE skill = ?", (one.row,)))
        return _read_shown(view, kept.shelves[item.layer], one, counted)
    except ODD:
        return None


ODD = (_Doubt, OSError, ValueError, KeyError, TypeError, IndexError, sqlite3.Error, HabitusError, Unreadable)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptListing:
    head: Mapping[str, Any]
    connection: sqlite3.Connection
    shelves: Mapping[str, KeptShelf]
    data: bytes
    begin: int  # where the lines are

    @property
    def lines(self) -> list[bytes]:
        return self.data[self.begin : -len(_END)].splitlines()

    def find(self, name: str) -> KeptItem:
        start = self.data.find(b'\n["%s", ' % name.encode(), self.begin - 1) + 1
        end = self.data.find(b"\n", start)
        if not start or self.data[end + 1 :].startswith(b'["%s", ' % name.encode()):  # a broken one beside it
            raise _Doubt
        return _parse_item(self.data[start:end])


@contextmanager
def open_listing(view: View, *, says_what_waits: bool = True) -> Iterator[KeptListing]:
    """A listing that is kept, while the database says the same of it."""
    _check_home(view.home)
    data = view.file.read_bytes()
    shelves_at = data.index(b"\n") + 1
    begin = data.index(b"\n", shelves_at) + 1
    head = json.loads(data[:shelves_at])
    if (
        head["format"] != _FORMAT
        or not data.endswith(b"\n" + _END)
        or any(_times(file) != (mtime, size) for file, mtime, size in head["code"])
        or head["files"] != _digests(view.home)
        or head["database"] != _identity(view.home)
    ):
        raise _Doubt
    shelves = {
        layer: KeptShelf(root=root, follow_links=follow_links, stamps=stamps)
        for layer, (root, follow_links, stamps) in json.loads(data[shelves_at:begin]).items()
    }
    place = f"file:{quote(str(view.home / DATABASE))}?mode=rw"
    with closing(sqlite3.connect(place, uri=True, timeout=1.0, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        if answers_of(connection.execute) != head["answers"]:
            raise _Doubt
        if says_what_waits and _is_reminder_due(connection, head):
            raise _Doubt
        yield KeptListing(head=head, connection=connection, shelves=shelves, data=data, begin=begin)


def _is_reminder_due(connection: sqlite3.Connection, head: Mapping[str, Any]) -> bool:
    """Whether a command would say that something waits for the person."""
    if not head["answers"][-1] and not connection.execute(_LESSONS).fetchone()[0]:
        return False
    last = connection.execute(_REMINDED, (f"reminded {head['user']}",)).fetchone()
    return last is None or datetime.now(UTC) - datetime.fromisoformat(last[0]) >= _A_DAY


def _check_home(home: Path) -> None:
    """Whether it is ours, private, and can be written: whoever opens another one says something about that."""
    found, room = home.stat(), os.statvfs(home)
    is_ours = found.st_uid == os.geteuid() and not found.st_mode & 0o077 and os.access(home, os.W_OK)
    if not is_ours or room.f_bavail * room.f_frsize < _LEAST_ROOM:
        raise _Doubt


def _counters(rows: Iterable[Sequence[Any]]) -> dict[tuple[int, bool], dict[Stage, Counters]]:
    """(row of a skill, whether another system told it) → how its stages fared."""
    found = defaultdict[tuple[int, bool], dict[Stage, Counters]](dict)
    for skill, version, stage, recommended, used, succeeded, failed, *dates in rows:
        last_used, until = (date and datetime.fromisoformat(date) for date in dates)
        one = Counters(
            recommended=recommended,
            used=used,
            succeeded=succeeded,
            failed=failed,
            last_used=last_used,
            by_presence_until=until,
        )
        stages = found[skill, version == TOLD]
        stages[Stage(stage)] = stages.get(Stage(stage), Counters()) + one
    return found


def _parse_item(line: bytes) -> KeptItem:
    name, layer, folder, row, state, reason, tree_hash, hidden, waiting, fills, inert, diagnostics, stated, known = (
        json.loads(line)
    )
    summary = None
    if known is not None:
        values, of_layer, version, enabled, created_on, modified_on = known
        summary = records.unpack_summary(
            values,
            name=name,
            layer=of_layer,
            version=version,
            enabled=enabled,
            created_on=created_on and datetime.fromisoformat(created_on),
            modified_on=modified_on and datetime.fromisoformat(modified_on),
        )
    item = Listed(
        name=name,
        layer=layer,
        state=State(state),
        reason=reason,
        summary=summary,
        tree_hash=tree_hash,
        diagnostics=records.unpack_diagnostics(diagnostics),
        hidden=tuple(hidden),
        waiting=tuple(waiting),
        fills=fills,
        inert=tuple(inert),
    )
    if stated is not None:
        manifest = records.unpack_summary(stated, name="").manifest
    else:
        manifest = Manifest() if summary is None else summary.manifest
    return KeptItem(item=item, manifest=manifest, folder=folder, row=row)


def _read_shown(
    view: View, shelf: KeptShelf, one: KeptItem, counted: Mapping[tuple[int, bool], Mapping[Stage, Counters]]
) -> ShownSkill:
    """A skill to show: its folder is read, its fields came with the listing."""
    found = DirectoryShelf(Path(shelf.root), Path(), follow_links=shelf.follow_links).read(one.folder)
    main = None if found is None else trees.main_file(found.tree)
    if found is None or main is None or one.item.summary is None or (text := found.tree[main].content) is None:
        raise _Doubt
    body = frontmatter.split(text.decode("utf-8", "replace"), one.item.name).body
    skill = records.with_body(one.item.summary, body)
    return ShownSkill(
        item=one.item,
        manifest=one.manifest,
        counters=together(counted.get((one.row, False), {})),
        told=words_of_source(counted.get((one.row, True), {})),
        skill=skill,
        files=tuple(sorted(found.tree)),
        text=text,
        lacks=lifecycle.missing_packages(skill.manifest, lifecycle.Packages()),
        origin=_origin(view, one.item),
    )


def _origin(view: View, item: Listed) -> str:
    if item.layer == USER:
        return lock.origin_of(view.home / lock.FILE, item.name)
    folders = {place.root.parents[1] for place in project_places(view.cwd, view.user_home)}
    files = [lock.global_file(view.user_home, view.environ), *map(lock.project_file, folders)]
    if any(file.path.exists() for file in files):
        raise _Doubt  # they say it in more words
    return ""
