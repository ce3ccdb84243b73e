"""Every JSON column of the recorded home is read by today's code, and nothing that it says is lost on the way."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from habitus.agent.history import decode_journal_message
from habitus.app import Habitus
from habitus.app.conversations.secrets import open_command_line_call_log
from habitus.app.home_directory import OUTBOX_DIR
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.operating.jobs import open_job_queue
from habitus.events import OutcomeKind
from habitus.journal.outbox import JournalOutbox
from habitus.learning.remedies.session_facts import FailuresAndCorrectionsStore
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from tests.recorded.record import ARCHIVE, HOST, READ_ON, opened, run_command

Reader = Callable[[Habitus], object]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def _histories(habitus: Habitus) -> list[object]:
    habitus.skills.list_skills()
    stores = [layer.store for layer in habitus.skills.layers]
    named = [(store, row.name) for store in stores for row in store.list_rows()]
    archived = [(habitus.skills.get_layer(one.layer).store, one.name) for one in habitus.skills.list_archived()]
    return [store.read_change_history(name) for store, name in (*named, *archived)]


def _trees(habitus: Habitus) -> list[object]:
    habitus.skills.list_skills()
    stores = [layer.store for layer in habitus.skills.layers]
    rows = [(store, row.name) for store in stores for row in store.list_rows()]
    return [store.read_tree(name, version.number) for store, name in rows for version in store.list_versions(name)]


def _turns(habitus: Habitus) -> list[Any]:
    return [
        habitus.journal.get_turn(one.id) for one in habitus.journal.list_latest_turns_of_all_conversations(limit=100)
    ]


def _lessons(habitus: Habitus) -> list[Any]:
    memory = habitus.memory
    return [*memory.list_lessons(), *memory.list_pending_lessons(), *memory.list_archived_lessons()]


def _jobs(habitus: Habitus) -> list[Any]:
    return open_job_queue(habitus).list_jobs()


def _summaries(habitus: Habitus) -> list[object]:
    stores = [layer.store for layer in habitus.skills.layers]
    return [(store.read_contents(), store.list_rows()) for store in stores]


def _proposals(habitus: Habitus) -> object:
    return habitus.review.list_proposals_by_state(None, all_hosts=True)


def _studied(habitus: Habitus) -> object:
    kept_for = timedelta(days=365)
    return FailuresAndCorrectionsStore(
        engine=habitus.local, clock=habitus.clock, kept_for=kept_for
    ).load_facts_except_of_files()


READERS: dict[str, Reader] = {
    "skills.summary": _summaries,
    "skills.diagnostics": _summaries,
    "skill_versions.tree": _trees,
    "skill_versions.author": _histories,
    "skill_switches.author": _histories,
    **dict.fromkeys(
        (f"skill_proposals.{name}" for name in ("tree", "author", "reasons", "details", "base")), _proposals
    ),
    "trusted_skills.powers": lambda habitus: (
        [habitus.trust._read_trusted_skill_states(one.root) for one in habitus.trust.list_trusted_roots()]
        + [habitus.approvals._read_trusted_skill_states(one.root) for one in habitus.approvals.list_trusted_roots()]
    ),
    "turns.usage": _turns,
    "turn_messages.content": lambda habitus: [
        decode_journal_message(message) for turn in _turns(habitus) for message in turn.messages
    ],
    "turn_events.detail": _turns,
    "seen_skills.hashes": lambda habitus: habitus.journal.get_hashes_of_seen_skills("ann"),
    "engrams.definition": _lessons,
    "engram_versions.definition": lambda habitus: [habitus.memory.get_history(one.id) for one in _lessons(habitus)],
    "studied_files.facts": _studied,
    "skill_calls.arguments": lambda habitus: open_command_line_call_log(habitus).list_logged_calls(),
    "skill_calls.secrets": lambda habitus: open_command_line_call_log(habitus).list_logged_calls(),
    "jobs.given": _jobs,
    "jobs.result": _jobs,
    "job_parts.result": lambda habitus: [open_job_queue(habitus).list_part_results(one.id) for one in _jobs(habitus)],
    "improve_candidates.facts": lambda habitus: open_improve_store(habitus).list_candidates("csv-summary"),
}
# Read in the tests below: a plan by the worker that goes on with it, an answer by the request that is sent again. The
# index is built anew from the skills.
ELSEWHERE = {"jobs.plan", "answered_requests.answer", "search_documents.tags"}


@pytest.mark.req("SC-01")
def test_every_json_column_is_read_whole(place: Path) -> None:
    stored = _json_columns(place / "home/habitus.db")
    assert set(stored) == READERS.keys() | ELSEWHERE
    with opened(place, lambda: READ_ON) as habitus:
        for column, read in READERS.items():
            assert set(_leaves(stored[column])) - set(_leaves(read(habitus))) == set(), column


@pytest.mark.req("SC-01")
def test_pending_jobs_go_on_and_a_repeated_request_gets_its_answer(place: Path) -> None:
    with opened(place, lambda: READ_ON) as habitus:
        run_command("learn resume")
        run_command("jobs work --until-idle")
        (before,) = {one.state.value for one in _jobs(habitus) if one.kind == "index"}
        assert before == "done"
        lessons = len(habitus.memory.list_lessons())
        keys, pool = load_sign_in_service(habitus), HomePool(habitus)
        with closing(pool):
            headers = {"Authorization": f"Bearer {keys.owner_token}", "Idempotency-Key": "once"}
            client = TestClient(make_web_app(pool, keys, {HOST}), base_url=f"http://{HOST}", headers=headers)
            answer = client.post("/api/v1/lessons", json={"text": "The bakery closes at six."})
            assert (answer.status_code, answer.json()["lesson"]["text"]) == (201, "The bakery closes at six.")
        assert len(habitus.memory.list_lessons()) == lessons


@pytest.mark.req("OP-03")
def test_an_outcome_that_an_earlier_release_left_on_the_disk_reaches_the_journal(place: Path) -> None:
    with opened(place, lambda: READ_ON) as habitus:
        turn = habitus.journal.list_latest_turns_of_all_conversations(limit=1)[0]
        said = {"kind": "failed", "weight": 1.0, "source": "host", "reason": "It was not.", "at": None}
        line = json.dumps({"turn": None, "judged": turn.id, "outcome": said}).encode()
        folder = habitus.writable_dir / OUTBOX_DIR
        folder.mkdir(exist_ok=True)
        (folder / "waiting").write_bytes(hashlib.sha256(line).hexdigest()[:16].encode() + b" " + line + b"\n")
        JournalOutbox(folder, habitus.redactor).replay_into_journal(habitus.journal)
        outcomes = habitus.journal.get_turn(turn.id).outcomes
        assert [(one.kind, one.reason) for one in outcomes if one.source == "host"] == [
            (OutcomeKind.FAILED, "It was not.")
        ]


# A later release has other bundled skills; the files of an archived skill, or of a project elsewhere, are not listed.
_OURS = "WHERE layer IN ('user', 'prompt') AND archived_on IS NULL"
_PRESENT = {"skills": _OURS, "skill_versions": f"WHERE skill IN (SELECT id FROM skills {_OURS})"}


def _json_columns(file: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        for table in [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]:
            for row in connection.execute(f"SELECT * FROM {table} {_PRESENT.get(table, '')}"):
                for column, value in dict(row).items():
                    if isinstance(value, str) and value[:1] in ("{", "[") and value[:1]:
                        found.setdefault(f"{table}.{column}", []).append(json.loads(value))
    return found


def _leaves(value: object) -> Iterator[object]:
    """The texts and numbers in a value, however deep; what is empty says nothing."""
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, Mapping):
        value = [*value, *value.values()] if not all(isinstance(key, str) for key in value) else list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str | int | float) and value not in ("", 0, False):
        yield str(value) if isinstance(value, str) else value
