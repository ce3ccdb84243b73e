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
from habitus.app import home_directory
from habitus.app.conversations.command_lines import SKILL_FILES_DIR
from habitus.app.home import refuse_if_read_only
from habitus.app.learning.noted_sessions import CLAIMED_SESSIONS_FILE
from habitus.app.operating import erasure_records
from habitus.app.operating.erasure_records import list_distinct_engines
from habitus.app.operating.people import open_user_accounts
from habitus.app.operating.personal_data import PERSONAL_ROWS, DataSubject, find_places_with_remaining_personal_data
from habitus.app.tasks.storing import load_editable_tasks, replace_editable_tasks
from habitus.errors import HabitusError, Refused
from habitus.files import Tree, build_tree_file
from habitus.hosts.hook import LOG_FILE, NOTED_SESSIONS_FILE
from habitus.jobs.queue import JobQueue
from habitus.journal.evidence_records import delete_all_cached_evidence_sums
from habitus.journal.outbox import JournalOutbox
from habitus.journal.tables import exposures, lasting_outcomes, menu_exposures, seen_skills, turn_menus, turns, uses
from habitus.memory.model import Engram, LessonState
from habitus.memory.store import EngramStore
from habitus.sandbox.files import sanitize_file_name
from habitus.sandbox.inside import folders
from habitus.search.packed_index import delete_index_files
from habitus.search.store import requests_table
from habitus.search.texts.words import remove_quotations_and_pasted_text
from habitus.settings import Settings
from habitus.skills import erasing, trees
from habitus.skills.choosing.skill_finder import SkillFinder
from habitus.skills.formats.tool_json import CaseContributor, read_recorded_cases, remove_contributed_cases
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.model import ActorKind, Author
from habitus.tasks.model import Task

if TYPE_CHECKING:
    from habitus.app.home import Home

_ARCHIVE_FOLDER = "archive"
# Files of the home that belong to its owner without naming a user.
_OWNER_FILES = (
    NOTED_SESSIONS_FILE,
    CLAIMED_SESSIONS_FILE,
    LOG_FILE,
    home_directory.CHAT_HISTORY_FILE,
    home_directory.OUTBOX_DIR,
    "pads",
)
_TABLES_WITH_USERS = (turns, turn_menus, seen_skills, exposures, menu_exposures, lasting_outcomes, uses)
# Texts of the user that are searched for at the end.
_MAX_SAMPLES = 50
# A shorter text would be found anywhere by chance.
_LEAST_LETTERS, _MOST_LETTERS = 16, 80


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasureResult:
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


def erase_user(home: Home, user: str, *, dry_run: bool = False) -> ErasureResult:
    """Erase a user's data; a dry run only counts it."""
    refuse_if_read_only(home)
    if user != home.settings.user and not home.settings.is_admin:
        raise Refused(f"Only an admin may erase '{user}'.", hint="Ask one, or erase yourself.")
    # Another user's rows must be visible, because they decide what has to stay.
    home = home.as_system()
    # Turns in the outbox may be theirs too, so they are written first.
    JournalOutbox(home.writable_dir / home_directory.OUTBOX_DIR, home.redactor).replay_into_journal(home.journal)
    person = _load_data_subject(home.settings, home.shared, user)
    erased, in_use = (
        _count_user_entries_by_kind(home, person),
        _list_active_skills_authored_by_user(home.shared, home.local, person),
    )
    if dry_run:
        return ErasureResult(user=user, erased=erased, in_use=in_use, is_dry_run=True)
    words = [
        *_pick_texts_to_search_after_erasure(home.shared, person),
        *_pick_case_texts_to_search_after_erasure(home, person),
    ]
    stone = erasure_records.ErasedUserHashRecord.make_for_user(user)
    # The erasure record comes first: after a crash, the next start erases the rest.
    erasure_records.append_records_to_file(home.settings.home / erasure_records.FILE, [stone])
    _erase_user_data(home, person)
    busy = [
        note
        for engine in list_distinct_engines(home.shared, home.local)
        if (note := _vacuum_database_or_explain_busy(engine))
    ]
    erasure_records.insert_records_into_databases(home.shared, home.local, [stone], home.clock())
    again = [f"{place}: {count}" for place, count in _count_user_entries_by_kind(home, person).items()]
    found = find_places_with_remaining_personal_data(
        list_distinct_engines(home.shared, home.local),
        home.settings.home,
        words,
        excluded=home_directory.BACKUPS_DIR,
    )
    return ErasureResult(user=user, erased=erased, in_use=in_use, left=(*again, *found, *busy))


def erase_users_again_after_restore(home: Home, records: Sequence[erasure_records.ErasedUserHashRecord]) -> None:
    """Erase users again who were erased before and have come back with a restored backup."""
    home = home.as_system()
    for user in _list_known_users(home):
        if any(stone.matches(user) for stone in records):
            _erase_user_data(home, _load_data_subject(home.settings, home.shared, user))
    for engine in list_distinct_engines(home.shared, home.local):
        _vacuum_database_or_explain_busy(engine)
    erasure_records.append_records_to_file(home.settings.home / erasure_records.FILE, records)
    erasure_records.insert_records_into_databases(home.shared, home.local, records, home.clock())


def _load_data_subject(settings: Settings, shared: sa.Engine, user: str) -> DataSubject:
    """Return the user with all their conversations: exposures are stored longer than the turns themselves."""
    columns = (turns.c.session, turns.c.conversation, exposures.c.unit, menu_exposures.c.unit, lasting_outcomes.c.unit)
    found: set[str] = set()
    with sql.read_transaction(shared) as connection:
        for column in columns:
            found.update(connection.execute(sa.select(column).where(column.table.c.user == user).distinct()).scalars())
    return DataSubject(name=user, conversations=frozenset(found - {""}), is_owner=user == settings.user)


def _list_known_users(home: Home) -> set[str]:
    people = open_user_accounts(home)
    found = {home.settings.user, *(person.name for person in people.list_accounts())}
    with sql.read_transaction(home.shared) as connection:
        for table in _TABLES_WITH_USERS:
            found.update(connection.execute(sa.select(table.c.user).distinct()).scalars())
    for engram in _list_engrams(home.shared):
        found |= {engram.evidence.user, engram.owner}
    return found - {""}


def _list_engrams(shared: sa.Engine) -> tuple[Engram, ...]:
    return EngramStore(shared).load_changed_engrams(0).engrams


def _count_user_entries_by_kind(home: Home, person: DataSubject) -> Mapping[str, int]:
    """Count the user's entries by kind, in the order of erasure; kinds without entries are left out."""
    count: Counter[str] = Counter()
    for engine in list_distinct_engines(home.shared, home.local):
        with sql.read_transaction(engine) as connection:
            for rows in PERSONAL_ROWS:
                count[rows.label] += rows.count(connection, person)
            traces = erasing.find_personal_traces(connection, person.author_names, person.conversations)
            count["past versions of skills"] += len(traces.past_versions)
            count["archived skills"] += len(traces.archived_skills)
            count["proposals"] += len(traces.proposals)
            count["signatures"] += traces.signed_rows_of_others_count
    count["recorded cases of tools"] = sum(len(tool.cases) for tool in _find_tools_with_cases_of_user(home, person))
    count["tasks"] = sum(gone for _, gone, _ in _find_skills_with_tasks_of_user(home, person))
    count["lessons"] = sum(
        one.belongs_to(person.name) and one.state is not LessonState.ERASED for one in _list_engrams(home.shared)
    )
    count["learned requests"] = len(_find_user_requests_learned_by_search(home.shared, home.finder, person))
    count["files"] = len(_list_personal_files(home.shared, home.writable_dir, person))
    count["jobs"] = _erase_or_count_user_jobs(home.shared, person, dry_run=True)
    people = open_user_accounts(home)
    count["sign-in"] = int(people.find_account_by_name(person.name) is not None)
    return {place: number for place, number in count.items() if number}


def _list_active_skills_authored_by_user(shared: sa.Engine, local: sa.Engine, person: DataSubject) -> tuple[str, ...]:
    found: set[str] = set()
    for engine in list_distinct_engines(shared, local):
        with sql.read_transaction(engine) as connection:
            found.update(erasing.find_personal_traces(connection, person.author_names, ()).active_skills)
    return tuple(sorted(found))


def _erase_user_data(home: Home, person: DataSubject) -> None:
    """Erase everything of a user. Files and search go before the turns, which tell whose they are."""
    requests = _find_user_requests_learned_by_search(home.shared, home.finder, person)
    home.finder.forget_learned_requests(requests)
    for path in _list_personal_files(home.shared, home.writable_dir, person):
        _remove_path(path)
    delete_index_files(home.settings.home / "cache")
    _erase_user_cases_from_tools(home, person)
    examined: set[str] = set()
    for item, _, others in _find_skills_with_tasks_of_user(home, person):
        file = home.skills.read_tree(_format_item_address(item)).get(trees.TASKS_FILE)
        examined |= {file.sha256} if file is not None else set()
        replace_editable_tasks(home, _format_item_address(item), others)
    # Through the journal, which takes their uses out of the counters too.
    home.journal.erase_user_evidence(person.name)
    for engine in list_distinct_engines(home.shared, home.local):
        with sql.write_transaction(engine, durable=True) as connection:
            traces = erasing.find_personal_traces(connection, person.author_names, person.conversations)
            gone = erasing.erase_personal_traces(connection, traces, examined)
            for rows in PERSONAL_ROWS:
                rows.erase(connection, person)
            delete_all_cached_evidence_sums(connection)
            connection.execute(requests_table.delete().where(requests_table.c.text.in_(requests)))
        for layer, name in gone:
            home.skills.usage.erase_skill_counts(layer, name)
        for folder in traces.archive_folders:
            _remove_path(home.settings.home / _ARCHIVE_FOLDER / folder)
    home.memory.erase_user(person.name)
    _erase_or_count_user_jobs(home.shared, person)
    open_user_accounts(home).erase_account_and_removal_record(person.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class _ToolWithUserCases:
    """A tool that stores calls of the user, and the files of its skill without them."""

    item: ListedSkill
    cases: tuple[Mapping[str, Any], ...]
    tree_without_cases: Tree


def _find_tools_with_cases_of_user(home: Home, person: DataSubject) -> list[_ToolWithUserCases]:
    tools = [item for item in home.skills.snapshot().skills_with_code if home.skills.get_layer(item.layer).can_write]
    brought: dict[str, frozenset[str]] = {}
    for engine in list_distinct_engines(home.shared, home.local) if tools else ():
        with sql.read_transaction(engine) as connection:
            for name, payloads in erasing.find_contributed_case_payloads(
                connection, person.author_names, person.conversations
            ).items():
                brought[name] = brought.get(name, frozenset()) | payloads
    found = []
    for item in tools:
        tree = home.skills.read_tree(_format_item_address(item))
        manifest = tree[trees.TOOL_FILE].content or b"" if trees.TOOL_FILE in tree else b""
        recorder = CaseContributor(conversations=person.conversations, payloads=brought.get(item.name, ()))
        if theirs := tuple(case for case in read_recorded_cases(manifest) if recorder.has_contributed(case)):
            without = {**tree, trees.TOOL_FILE: build_tree_file(remove_contributed_cases(manifest, recorder))}
            found.append(_ToolWithUserCases(item=item, cases=theirs, tree_without_cases=without))
    return found


def _erase_user_cases_from_tools(home: Home, person: DataSubject) -> None:
    """Write the tools without the user's cases; the version that had them becomes a past one and is erased as such."""
    author = Author(actor=ActorKind.JOB, name="forget", reason="a user was erased")
    for tool in _find_tools_with_cases_of_user(home, person):
        home.skills.write_tree(tool.item.layer, tool.item.name, tool.tree_without_cases, author)


def _find_skills_with_tasks_of_user(home: Home, person: DataSubject) -> list[tuple[ListedSkill, int, list[Task]]]:
    """Return the skills that have tasks from the user's requests, the number of those tasks, and the remaining ones."""
    found: list[tuple[ListedSkill, int, list[Task]]] = []
    for item in home.skills.snapshot().listing:
        # A malformed task file was not mined from anyone's turns.
        with suppress(HabitusError):
            tasks = load_editable_tasks(home, item)
            theirs = {
                t.id for t in tasks if person.name == t.origin.user or t.origin.conversation in person.conversations
            }
            if theirs:
                found.append((item, len(theirs), [task for task in tasks if task.id not in theirs]))
    return found


def _format_item_address(item: ListedSkill) -> str:
    return f"{item.name}@{item.layer}"


def _erase_or_count_user_jobs(shared: sa.Engine, person: DataSubject, *, dry_run: bool = False) -> int:
    """Erase the user's jobs with their results; return their number."""
    return JobQueue(shared).delete_user_jobs(person.name, dry_run=dry_run)


def _find_user_requests_learned_by_search(
    shared: sa.Engine, finder: SkillFinder, person: DataSubject
) -> frozenset[str]:
    """Return the requests that search has learned, without those that another user's turn explains.

    Search outlives the turns and stores no names, so a request of unknown origin is erased and may be learned again.
    """
    with sql.read_transaction(shared) as connection:
        rows = connection.execute(sa.select(turns.c.user, turns.c.request)).all()
    others = {remove_quotations_and_pasted_text(row.request) for row in rows if row.user != person.name}
    theirs = {remove_quotations_and_pasted_text(row.request) for row in rows if row.user == person.name}
    # A copied home may have brought some.
    with sql.read_transaction(shared) as connection:
        copied = frozenset(connection.execute(sa.select(requests_table.c.text)).scalars())
    return frozenset(text for text in finder.list_learned_requests() | copied if text in theirs or text not in others)


def _list_personal_files(shared: sa.Engine, place: Path, person: DataSubject) -> list[Path]:
    """Return the files of the user's conversations and, for the home's owner, files that belong to no conversation."""
    with sql.read_transaction(shared) as connection:
        others = set(
            connection.execute(sa.select(turns.c.session).where(turns.c.user != person.name).distinct()).scalars()
        )
    pads = (place / home_directory.SESSION_PADS_DIR).glob("*")
    found = [
        folder
        for folder in pads
        if folder.name in person.conversations or (person.is_owner and folder.name not in others)
    ]
    found += [own] if (own := place / SKILL_FILES_DIR / sanitize_file_name(person.name)).exists() else []
    # The offline snapshot is copied anew.
    found += [path for path in [place / home_directory.OFFLINE_SNAPSHOT_FILE] if path.exists()]
    return found + [path for name in _OWNER_FILES if person.is_owner and (path := place / name).exists()]


def _remove_path(path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.is_dir():
            folders.remove_folder(str(path))
        else:
            path.unlink()


def _vacuum_database_or_explain_busy(engine: sa.Engine) -> str:
    """Overwrite free pages and logs; return a note if another process keeps the database busy, else empty."""
    hint = f"'{home_directory.DATABASE}' is busy: free pages may still hold it; stop other processes and run this again"
    if engine.dialect.name == "postgresql":
        with sql.translate_storage_errors(engine), engine.connect() as connection:
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


def _pick_texts_to_search_after_erasure(shared: sa.Engine, person: DataSubject) -> list[str]:
    """Return some texts that only this user wrote, to search for after the erasure."""
    with sql.read_transaction(shared) as connection:
        rows = connection.execute(sa.select(turns.c.user, turns.c.request)).all()
    lessons = [one.text for one in _list_engrams(shared) if one.belongs_to(person.name)]
    theirs = [*lessons, *(row.request for row in rows if row.user == person.name)]
    others = "\n".join(row.request for row in rows if row.user != person.name)
    found = dict.fromkeys(
        word for text in theirs if (word := _find_longest_searchable_fragment(text)) and word not in others
    )
    return list(found)[:: max(1, len(found) // _MAX_SAMPLES)]


def _pick_case_texts_to_search_after_erasure(home: Home, person: DataSubject) -> list[str]:
    """Return texts of the user's calls stored by tools, without those that the skills themselves contain."""
    found: dict[str, None] = {}
    for tool in _find_tools_with_cases_of_user(home, person):
        stays = [file.content or b"" for file in tool.tree_without_cases.values()]
        words = [
            _find_longest_searchable_fragment(text)
            for case in tool.cases
            for text in _collect_strings(case.get("payload"))
        ]
        found |= dict.fromkeys(word for word in words if word and not any(word.encode() in one for one in stays))
    return list(found)[:_MAX_SAMPLES]


def _collect_strings(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        return [
            text for one in (value.values() if isinstance(value, dict) else value) for text in _collect_strings(one)
        ]
    return [value] if isinstance(value, str) else []


def _find_longest_searchable_fragment(text: str) -> str:
    """Return the longest fragment of a text that reads the same in JSON and as bytes; empty if it is too short."""
    longest = max(re.split(r'["\\\n\r\t\ud800-\udfff]', text), key=len)[:_MOST_LETTERS].strip()
    return longest if len(longest) >= _LEAST_LETTERS else ""
