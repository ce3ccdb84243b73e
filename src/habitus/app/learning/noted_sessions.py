"""Learn from ended sessions that hooks of other agents noted in a file, each within its own project."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from habitus.app.home import Home
from habitus.app.learning.mining import RepeatedProcedureFinder
from habitus.app.learning.studying import TranscriptStudy
from habitus.errors import HabitusError, Refused
from habitus.files import write_atomically
from habitus.hosts.hook import NOTED_SESSIONS_FILE
from habitus.locks import try_lock
from habitus.settings import Settings

log = logging.getLogger(__name__)

# Opens the home as seen from a working directory.
OpenHomeAt = Callable[[Path], AbstractContextManager[Home]]
_LOCK_FILE = "learning.lock"
_MAX_MINED_TRANSCRIPTS = 50  # the latest of a folder
# The noted sessions while they are processed; a killed process leaves the file behind for the next one.
CLAIMED_SESSIONS_FILE = "hooks.learning"


@dataclass(frozen=True, kw_only=True, slots=True)
class NotedAgentSession:
    """A session of another agent with its transcript and working directory."""

    session: str
    transcript: Path
    cwd: Path


def learn_from_ended_noted_sessions(settings: Settings, open_at: OpenHomeAt, *, live: Collection[str] = ()) -> int:
    """Learn from the sessions that have ended and return the number of transcripts read; live sessions stay noted.

    Returns 0 while another process is learning.
    """
    with try_lock(settings.home / _LOCK_FILE) as held:
        return 0 if held is None else _learn_and_mine_ended_sessions(settings, open_at, live)


def _learn_and_mine_ended_sessions(settings: Settings, open_at: OpenHomeAt, live: Collection[str]) -> int:
    noted = {
        one.session: one
        for one in map(_parse_noted_session, _claim_noted_session_lines(settings.home))
        if one is not None
    }
    over = [one for one in noted.values() if one.session not in live]
    later = [one for one in noted.values() if one.session in live]
    try:
        read = sum(_learn_from_noted_transcript(settings, open_at, one) for one in over)
    # A pause or a read-only home concerns all sessions, so all of them wait.
    except Refused as refused:
        log.info("Nothing is learned now: %s", refused)
        read, later = 0, list(noted.values())
    _put_back_noted_sessions(settings.home, later)
    if read and settings.schedule.mine != "off":
        for one in {one.transcript.parent: one for one in over}.values():
            _propose_procedures_beside_transcript(settings, open_at, one)
    return read


def _propose_procedures_beside_transcript(settings: Settings, open_at: OpenHomeAt, noted: NotedAgentSession) -> None:
    """Propose procedures that recur in the latest transcripts of a session's folder; it needs no model."""
    try:
        beside = noted.transcript.parent.glob(f"*{noted.transcript.suffix}")
        latest = sorted(beside, key=lambda path: path.stat().st_mtime, reverse=True)[:_MAX_MINED_TRANSCRIPTS]
        with open_at(noted.cwd if noted.cwd.is_dir() else settings.user_home) as home:
            mining = RepeatedProcedureFinder(home)
            mining.add_turns_of_transcripts(latest)
            mining.collect_suggestion_drafts()
            mining.propose_all_suggestions()
    except (HabitusError, OSError) as error:
        log.warning("No procedures were mined beside %s: %s", noted.transcript, error)


def _learn_from_noted_transcript(settings: Settings, open_at: OpenHomeAt, noted: NotedAgentSession) -> bool:
    if not noted.transcript.is_file():
        # Claude Code removes old transcripts.
        return False
    cwd = noted.cwd if noted.cwd.is_dir() else settings.user_home
    try:
        with open_at(cwd) as home:
            study = TranscriptStudy(home, apply=True, wants_failures=False)
            study.study_file(noted.transcript)
            study.store_lessons_and_propose_procedures()
    except Refused:
        raise
    except (HabitusError, OSError) as error:
        log.warning("Nothing was learned from %s: %s", noted.transcript, error)
        return False
    return True


def _claim_noted_session_lines(home: Path) -> list[str]:
    """Move the notes aside, so hooks can go on writing, and return all lines."""
    spool, taken = home / NOTED_SESSIONS_FILE, home / CLAIMED_SESSIONS_FILE
    left = taken.read_text("utf-8", "replace") if taken.exists() else ""
    if left:
        with suppress(FileNotFoundError):
            left += spool.read_text("utf-8", "replace")
            spool.unlink()
        write_atomically(taken, left.encode())
    else:
        with suppress(FileNotFoundError):
            spool.replace(taken)
            left = taken.read_text("utf-8", "replace")
    return left.splitlines()


def _put_back_noted_sessions(home: Path, noted: Iterable[NotedAgentSession]) -> None:
    lines = [{"session": one.session, "transcript": str(one.transcript), "cwd": str(one.cwd)} for one in noted]
    if lines:
        with (home / NOTED_SESSIONS_FILE).open("a", encoding="utf-8") as spool:
            spool.write("".join(f"{json.dumps(line)}\n" for line in lines))
    (home / CLAIMED_SESSIONS_FILE).unlink(missing_ok=True)


def _parse_noted_session(line: str) -> NotedAgentSession | None:
    try:
        told: Mapping[str, Any] = json.loads(line)
        return NotedAgentSession(
            session=str(told["session"]), transcript=Path(told["transcript"]), cwd=Path(told["cwd"] or "/")
        )
    except (ValueError, KeyError, TypeError):
        # Cut off by a full disk, or written by another version.
        return None
