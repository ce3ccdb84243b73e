"""Erase a user's data everywhere, verify that nothing is left, and erase it again after a restore."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from habitus import sql
from habitus.app.conversations.command_lines import FILES
from habitus.app.home_directory import BACKUPS, CHAT_HISTORY, DATABASE, PADS, STAND_IN, WAITING
from habitus.app.learning.noted_sessions import TAKEN
from habitus.app.operating import tombstones
from habitus.app.operating.people import open_people
from habitus.app.operating.personal_data import ROWS, Person, remains
from habitus.app.operating.tombstones import Tombstone
from habitus.app.tasks.storing import keep_tasks, kept_tasks
from habitus.errors import HabitusError, NotFound, Refused
from habitus.files import Tree, file_of
from habitus.hosts.hook import LOG, SPOOL
from habitus.jobs.queue import JobQueue
from habitus.journal.facts import empty_sums
from habitus.journal.spool import Spool
from habitus.journal.tables import exposures, lasting_outcomes, seen, turns
from habitus.memory.model import Engram, LessonState
from habitus.memory.store import EngramStore
from habitus.sandbox.files import harmless
from habitus.sandbox.inside import folders
from habitus.search.packed_index import forget_files
from habitus.search.store import learned_table
from habitus.search.texts.words import own_words
from habitus.settings import Settings
from habitus.skills import erasing, trees
from habitus.skills.choosing.finding import Finder
from habitus.skills.formats.tool_json import Recorder, cases_in, without_cases
from habitus.skills.layers.listing import Listed
from habitus.skills.model import Actor, Author
from habitus.tasks.model import Task

if TYPE_CHECKING:
    from habitus.app.home import Home

_ARCHIVE = "archive"
# Files of the home that belong to its owner without naming a user.
_OWNERS = (SPOOL, TAKEN, LOG, CHAT_HISTORY, WAITING, "pads")
_USERS = (turns, seen, exposures, lasting_outcomes)
# Texts of the user that are searched for at the end.
_MOST_WORDS = 50
# A shorter text would be found anywhere by chance.
_LEAST_LETTERS, _MOST_LETTERS = 16, 80


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgotten:
    """The number of erased entries by kind; `left` names places that still hold data of the user."""

    user: str
    erased: Mapping[str, int]
    # Skills they wrote, which stay without their name.
    in_use: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    is_dry_run: bool = False

    @property
    def is_failed(self) -> bool:
        """Whether data of the user is left."""
        return bool(self.left)

    @property
    def total(self) -> int:
        return sum(self.erased.values())


def forget(home: Home, user: str, *, dry_run: bool = False) -> Forgotten:
    """Erase a user's data; a dry run only counts it."""
    home.refuse_if_read_only()
    if user != home.settings.user and not home.settings.is_admin:
        raise Refused(f"Only an admin may have '{user}' forgotten.", hint="Ask one, or forget yourself.")
    # Another user's rows must be visible, because they decide what has to stay.
    home = home.as_nobody()
    # Turns in the outbox may be theirs too, so they are written first.
    Spool(home.place / WAITING, home.redactor).replay(home.journal)
    person = _person(home.settings, home.shared, user)
    erased, in_use = _count_rows(home, person), _in_use(home.shared, home.local, person)
    if dry_run:
        return Forgotten(user=user, erased=erased, in_use=in_use, is_dry_run=True)
    words = [*_words(home.shared, person), *_words_of_cases(home, person)]
    stone = Tombstone.of(user)
    # The erasure record comes first: after a crash, the next start erases the rest.
    tombstones.write(home.settings.home / tombstones.FILE, [stone])
    _erase(home, person)
    busy = [note for engine in _engines(home.shared, home.local) if (note := _compact(engine))]
    tombstones.place(home.shared, home.local, [stone], home.clock())
    again = [f"{place}: {count}" for place, count in _count_rows(home, person).items()]
    found = remains(_engines(home.shared, home.local), home.settings.home, words, apart=BACKUPS)
    return Forgotten(user=user, erased=erased, in_use=in_use, left=(*again, *found, *busy))


def forget_again(home: Home, stones: Sequence[Tombstone]) -> None:
    """Erase users again who were erased before and have come back with a restored backup."""
    home = home.as_nobody()
    for user in _known_users(home):
        if any(stone.is_of(user) for stone in stones):
            _erase(home, _person(home.settings, home.shared, user))
    for engine in _engines(home.shared, home.local):
        _compact(engine)
    tombstones.write(home.settings.home / tombstones.FILE, stones)
    tombstones.place(home.shared, home.local, stones, home.clock())


def _person(settings: Settings, shared: sa.Engine, user: str) -> Person:
    """Return the user with all their conversations: exposures are stored longer than the turns themselves."""
    columns = (turns.c.session, turns.c.conversation, exposures.c.unit, lasting_outcomes.c.unit)
    found: set[str] = set()
    with sql.reading(shared) as connection:
        for column in columns:
            found.update(connection.execute(sa.select(column).where(column.table.c.user == user).distinct()).scalars())
    return Person(name=user, conversations=frozenset(found - {""}), is_owner=user == settings.user)


def _known_users(home: Home) -> set[str]:
    people = open_people(home)
    found = {home.settings.user, *(person.name for person in people.list()), *people.left_in_file()}
    with sql.reading(home.shared) as connection:
        for table in _USERS:
            found.update(connection.execute(sa.select(table.c.user).distinct()).scalars())
    for engram in _engrams(home.shared):
        found |= {engram.evidence.user, engram.owner}
    return found - {""}


def _engrams(shared: sa.Engine) -> tuple[Engram, ...]:
    return EngramStore(shared).changes(0).engrams


def _engines(shared: sa.Engine, local: sa.Engine) -> tuple[sa.Engine, ...]:
    return tuple(dict.fromkeys((shared, local)))


def _count_rows(home: Home, person: Person) -> Mapping[str, int]:
    """Count the user's entries by kind, in the order of erasure; kinds without entries are left out."""
    count: Counter[str] = Counter()
    for engine in _engines(home.shared, home.local):
        with sql.reading(engine) as connection:
            for rows in ROWS:
                count[rows.place] += rows.count(connection, person)
            traces = erasing.traces(connection, person.names, person.conversations)
            count["past versions of skills"] += len(traces.past)
            count["archived skills"] += len(traces.archived)
            count["proposals"] += len(traces.proposals)
            count["signatures"] += traces.signatures
    count["recorded cases of tools"] = sum(len(tool.cases) for tool in _tools_with_cases(home, person))
    count["tasks"] = sum(gone for _, gone, _ in _skills_with_tasks(home, person))
    count["lessons"] = sum(
        one.is_of(person.name) and one.state is not LessonState.ERASED for one in _engrams(home.shared)
    )
    count["learned requests"] = len(_learned_requests(home.shared, home.finder, person))
    count["files"] = len(_files(home.shared, home.place, person))
    count["jobs"] = _jobs(home.shared, person, dry_run=True)
    people = open_people(home)
    count["sign-in"] = int(people.get(person.name) is not None or person.name in people.left_in_file())
    return {place: number for place, number in count.items() if number}


def _in_use(shared: sa.Engine, local: sa.Engine, person: Person) -> tuple[str, ...]:
    found: set[str] = set()
    for engine in _engines(shared, local):
        with sql.reading(engine) as connection:
            found.update(erasing.traces(connection, person.names, ()).present)
    return tuple(sorted(found))


def _erase(home: Home, person: Person) -> None:
    """Erase everything of a user. Files and search go before the turns, which tell whose they are."""
    requests = _learned_requests(home.shared, home.finder, person)
    home.finder.forget_learned(requests)
    for path in _files(home.shared, home.place, person):
        _remove(path)
    forget_files(home.settings.home / "cache")
    _drop_cases(home, person)
    examined: set[str] = set()
    for item, _, others in _skills_with_tasks(home, person):
        file = home.skills.tree(_address(item)).get(trees.TASKS_FILE)
        examined |= {file.sha256} if file is not None else set()
        keep_tasks(home, _address(item), others)
    for engine in _engines(home.shared, home.local):
        with sql.writing(engine, durable=True) as connection:
            traces = erasing.traces(connection, person.names, person.conversations)
            erasing.erase(connection, traces, examined)
            for rows in ROWS:
                rows.erase(connection, person)
            empty_sums(connection)
            connection.execute(learned_table.delete().where(learned_table.c.text.in_(requests)))
        for folder in traces.folders:
            _remove(home.settings.home / _ARCHIVE / folder)
    home.memory.forget_user(person.name)
    _jobs(home.shared, person)
    with suppress(NotFound):
        open_people(home).remove(person.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class _KeptCases:
    """A tool that stores calls of the user, and the files of its skill without them."""

    item: Listed
    cases: tuple[Mapping[str, Any], ...]
    without: Tree


def _tools_with_cases(home: Home, person: Person) -> list[_KeptCases]:
    tools = [item for item in home.skills.snapshot().with_code if home.skills.layer(item.layer).can_write]
    brought: dict[str, frozenset[str]] = {}
    for engine in _engines(home.shared, home.local) if tools else ():
        with sql.reading(engine) as connection:
            for name, payloads in erasing.brought_cases(connection, person.names, person.conversations).items():
                brought[name] = brought.get(name, frozenset()) | payloads
    found = []
    for item in tools:
        tree = home.skills.tree(_address(item))
        manifest = tree[trees.TOOL_FILE].content or b"" if trees.TOOL_FILE in tree else b""
        recorder = Recorder(conversations=person.conversations, payloads=brought.get(item.name, ()))
        if theirs := tuple(case for case in cases_in(manifest) if recorder.has_made(case)):
            without = {**tree, trees.TOOL_FILE: file_of(without_cases(manifest, recorder))}
            found.append(_KeptCases(item=item, cases=theirs, without=without))
    return found


def _drop_cases(home: Home, person: Person) -> None:
    """Write the tools without the user's cases; the version that had them becomes a past one and is erased as such."""
    author = Author(actor=Actor.JOB, name="forget", reason="somebody was forgotten")
    for tool in _tools_with_cases(home, person):
        home.skills.write_tree(tool.item.layer, tool.item.name, tool.without, author)


def _skills_with_tasks(home: Home, person: Person) -> list[tuple[Listed, int, list[Task]]]:
    """Return the skills that have tasks from the user's requests, the number of those tasks, and the remaining ones."""
    found: list[tuple[Listed, int, list[Task]]] = []
    for item in home.skills.snapshot().listing:
        # A malformed task file was not mined from anyone's turns.
        with suppress(HabitusError):
            tasks = kept_tasks(home, item)
            theirs = {
                t.id for t in tasks if person.name == t.origin.user or t.origin.conversation in person.conversations
            }
            if theirs:
                found.append((item, len(theirs), [task for task in tasks if task.id not in theirs]))
    return found


def _address(item: Listed) -> str:
    return f"{item.name}@{item.layer}"


def _jobs(shared: sa.Engine, person: Person, *, dry_run: bool = False) -> int:
    """Erase the user's jobs with their results; return their number."""
    return JobQueue(shared).forget_user(person.name, dry_run=dry_run)


def _learned_requests(shared: sa.Engine, finder: Finder, person: Person) -> frozenset[str]:
    """Return the requests that search has learned, without those that another user's turn explains.

    Search outlives the turns and stores no names, so a request of unknown origin is erased and may be learned again.
    """
    with sql.reading(shared) as connection:
        rows = connection.execute(sa.select(turns.c.user, turns.c.request)).all()
    others = {own_words(row.request) for row in rows if row.user != person.name}
    theirs = {own_words(row.request) for row in rows if row.user == person.name}
    # A copied home may have brought some.
    with sql.reading(shared) as connection:
        copied = frozenset(connection.execute(sa.select(learned_table.c.text)).scalars())
    return frozenset(text for text in finder.learned_requests() | copied if text in theirs or text not in others)


def _files(shared: sa.Engine, place: Path, person: Person) -> list[Path]:
    """Return the files of the user's conversations and, for the home's owner, files that belong to no conversation."""
    with sql.reading(shared) as connection:
        others = set(
            connection.execute(sa.select(turns.c.session).where(turns.c.user != person.name).distinct()).scalars()
        )
    pads = (place / PADS).glob("*")
    found = [
        folder
        for folder in pads
        if folder.name in person.conversations or (person.is_owner and folder.name not in others)
    ]
    found += [own] if (own := place / FILES / harmless(person.name)).exists() else []
    # The offline snapshot is copied anew.
    found += [path for path in [place / STAND_IN] if path.exists()]
    return found + [path for name in _OWNERS if person.is_owner and (path := place / name).exists()]


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.is_dir():
            folders.remove(str(path))
        else:
            path.unlink()


def _compact(engine: sa.Engine) -> str:
    """Overwrite free pages and logs; return a note if another process keeps the database busy, else empty."""
    hint = f"'{DATABASE}' is busy: free pages may still hold it; stop other processes and run this again"
    if engine.dialect.name == "postgresql":
        with sql.storage_errors(engine), engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(sa.text("VACUUM"))
        return ""
    # Our own connections would keep the write-ahead log open.
    engine.dispose()
    try:
        with closing(sqlite3.connect(engine.url.database or "", timeout=5, isolation_level=None)) as connection:
            connection.execute("VACUUM")
            is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError:
        return hint
    return hint if is_busy else ""


def _words(shared: sa.Engine, person: Person) -> list[str]:
    """Return some texts that only this user wrote, to search for after the erasure."""
    with sql.reading(shared) as connection:
        rows = connection.execute(sa.select(turns.c.user, turns.c.request)).all()
    lessons = [one.text for one in _engrams(shared) if one.is_of(person.name)]
    theirs = [*lessons, *(row.request for row in rows if row.user == person.name)]
    others = "\n".join(row.request for row in rows if row.user != person.name)
    found = dict.fromkeys(word for text in theirs if (word := _telling(text)) and word not in others)
    return list(found)[:: max(1, len(found) // _MOST_WORDS)]


def _words_of_cases(home: Home, person: Person) -> list[str]:
    """Return texts of the user's calls stored by tools, without those that the skills themselves contain."""
    found: dict[str, None] = {}
    for tool in _tools_with_cases(home, person):
        stays = [file.content or b"" for file in tool.without.values()]
        words = [_telling(text) for case in tool.cases for text in _texts(case.get("payload"))]
        found |= dict.fromkeys(word for word in words if word and not any(word.encode() in one for one in stays))
    return list(found)[:_MOST_WORDS]


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        return [text for one in (value.values() if isinstance(value, dict) else value) for text in _texts(one)]
    return [value] if isinstance(value, str) else []


def _telling(text: str) -> str:
    """Return the longest fragment of a text that reads the same in JSON and as bytes; empty if it is too short."""
    longest = max(re.split(r'["\\\n\r\t\ud800-\udfff]', text), key=len)[:_MOST_LETTERS].strip()
    return longest if len(longest) >= _LEAST_LETTERS else ""
