"""Forgetting a person: erased wherever they are kept, looked for again everywhere, and done again after a restore."""

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
_OWNERS = (SPOOL, TAKEN, LOG, CHAT_HISTORY, WAITING, "pads")  # files of the home without a name in them
_USERS = (turns, seen, exposures, lasting_outcomes)
_MOST_WORDS = 50  # texts of theirs that are looked for at the end
_LEAST_LETTERS, _MOST_LETTERS = 16, 80  # of such a text: what is shorter is found anywhere


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgotten:
    """The number of things erased of a person, by place; `left` are places where something of theirs still is."""

    user: str
    erased: Mapping[str, int]
    in_use: tuple[str, ...] = ()  # skills they wrote, which stay without their name
    left: tuple[str, ...] = ()
    is_dry_run: bool = False

    @property
    def is_failed(self) -> bool:
        return bool(self.left)

    @property
    def total(self) -> int:
        return sum(self.erased.values())


def forget(home: Home, user: str, *, dry_run: bool = False) -> Forgotten:
    """Erase a person; a dry run only counts."""
    home.refuse_if_read_only()
    if user != home.settings.user and not home.settings.is_admin:
        raise Refused(f"Only an admin may have '{user}' forgotten.", mend="Ask one, or forget yourself.")
    home = home.as_nobody()  # whose the others' rows are has to be seen, so that they stay
    Spool(home.place / WAITING, home.redactor).replay(home.journal)  # what waits is theirs, too
    person = _person(home.settings, home.shared, user)
    erased, in_use = _count_rows(home, person), _in_use(home.shared, home.local, person)
    if dry_run:
        return Forgotten(user=user, erased=erased, in_use=in_use, is_dry_run=True)
    words = [*_words(home.shared, person), *_words_of_cases(home, person)]
    stone = Tombstone.of(user)
    tombstones.write(home.settings.home / tombstones.FILE, [stone])
    _erase(home, person)
    busy = [note for engine in _engines(home.shared, home.local) if (note := _compact(engine))]
    tombstones.place(home.shared, home.local, [stone], home.clock())
    again = [f"{place}: {count}" for place, count in _count_rows(home, person).items()]
    found = remains(_engines(home.shared, home.local), home.settings.home, words, apart=BACKUPS)
    return Forgotten(user=user, erased=erased, in_use=in_use, left=(*again, *found, *busy))


def forget_again(home: Home, stones: Sequence[Tombstone]) -> None:
    """Whoever was forgotten and is there again, goes again."""
    home = home.as_nobody()
    for user in _known_users(home):
        if any(stone.is_of(user) for stone in stones):
            _erase(home, _person(home.settings, home.shared, user))
    for engine in _engines(home.shared, home.local):
        _compact(engine)
    tombstones.write(home.settings.home / tombstones.FILE, stones)
    tombstones.place(home.shared, home.local, stones, home.clock())


def _person(settings: Settings, shared: sa.Engine, user: str) -> Person:
    """With every conversation of theirs: what it was offered is known longer than what was said in it."""
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
    """By place, in the order in which they are erased; where there is nothing, nothing is said."""
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
    """Files and search before the turns, which tell whose they are."""
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
    """A tool in use that keeps calls of theirs, and what its skill is without them."""

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
    """The tool stays without them; the version that had them is then a past one, which goes like all of theirs."""
    author = Author(actor=Actor.JOB, name="forget", reason="somebody was forgotten")
    for tool in _tools_with_cases(home, person):
        home.skills.write_tree(tool.item.layer, tool.item.name, tool.without, author)


def _skills_with_tasks(home: Home, person: Person) -> list[tuple[Listed, int, list[Task]]]:
    """Skills that are examined by what they asked, how many tasks that are, and the tasks that stay."""
    found: list[tuple[Listed, int, list[Task]]] = []
    for item in home.skills.snapshot().listing:
        with suppress(HabitusError):  # what can't be read as tasks, nobody mined
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
    """Their jobs, with the results."""
    return JobQueue(shared).forget_user(person.name, dry_run=dry_run)


def _learned_requests(shared: sa.Engine, finder: Finder, person: Person) -> frozenset[str]:
    """Requests that search remembers, but for those that somebody else's turn explains.

    Search outlives the turns and knows no names: what nobody can tell apart any more goes, and is learned again.
    """
    with sql.reading(shared) as connection:
        rows = connection.execute(sa.select(turns.c.user, turns.c.request)).all()
    others = {own_words(row.request) for row in rows if row.user != person.name}
    theirs = {own_words(row.request) for row in rows if row.user == person.name}
    with sql.reading(shared) as connection:  # where a copy of a home may have brought some
        copied = frozenset(connection.execute(sa.select(learned_table.c.text)).scalars())
    return frozenset(text for text in finder.learned_requests() | copied if text in theirs or text not in others)


def _files(shared: sa.Engine, place: Path, person: Person) -> list[Path]:
    """Files of their conversations in this home, and where it is their home, of their work without one."""
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
    found += [path for path in [place / STAND_IN] if path.exists()]  # it is copied anew
    return found + [path for name in _OWNERS if person.is_owner and (path := place / name).exists()]


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.is_dir():
            folders.remove(str(path))
        else:
            path.unlink()


def _compact(engine: sa.Engine) -> str:
    """Leave nothing in free pages and logs; says so where somebody keeps the database busy."""
    mend = f"'{DATABASE}' is busy: free pages may still hold it; stop other processes and run this again"
    if engine.dialect.name == "postgresql":
        with sql.storage_errors(engine), engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(sa.text("VACUUM"))
        return ""
    engine.dispose()  # our own connections would keep the log
    try:
        with closing(sqlite3.connect(engine.url.database or "", timeout=5, isolation_level=None)) as connection:
            connection.execute("VACUUM")
            is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError:
        return mend
    return mend if is_busy else ""


def _words(shared: sa.Engine, person: Person) -> list[str]:
    """Some texts that were theirs alone, to look for when they should be gone."""
    with sql.reading(shared) as connection:
        rows = connection.execute(sa.select(turns.c.user, turns.c.request)).all()
    lessons = [one.text for one in _engrams(shared) if one.is_of(person.name)]
    theirs = [*lessons, *(row.request for row in rows if row.user == person.name)]
    others = "\n".join(row.request for row in rows if row.user != person.name)
    found = dict.fromkeys(word for text in theirs if (word := _telling(text)) and word not in others)
    return list(found)[:: max(1, len(found) // _MOST_WORDS)]


def _words_of_cases(home: Home, person: Person) -> list[str]:
    """Texts of calls that tools keep of theirs, but for those that the skills themselves say."""
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
    """The longest piece of a text that is the same in JSON and as bytes."""
    longest = max(re.split(r'["\\\n\r\t\ud800-\udfff]', text), key=len)[:_MOST_LETTERS].strip()
    return longest if len(longest) >= _LEAST_LETTERS else ""
