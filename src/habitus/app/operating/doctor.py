"""Checks of `habitus doctor` about operation, such as the shared database, jobs, hooks and the vault."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from habitus import optional_packages, sql, tracing
from habitus.app import home_directory
from habitus.app.conversations import secrets
from habitus.app.conversations.command_lines import CommandLines
from habitus.app.home import AWAY, Home
from habitus.app.operating import backing_up
from habitus.app.sharing.availability import silence
from habitus.errors import StorageFailed, UserError
from habitus.hosts.hook import SOCKET, SPOOL
from habitus.jobs.model import JobState
from habitus.jobs.queue import JobQueue
from habitus.journal.spool import Spool
from habitus.redact import Redactor
from habitus.settings import Settings
from habitus.sql.outage import ANSWERS_S


def operation(home: Home) -> Iterator[Check]:
    """Yield one check for each part of the operation that is in use."""
    if home.settings.database:
        yield _check_shared_database(home)
    yield from _spool(home.place, home.redactor)
    yield from _jobs(home)
    yield from _hooks(home.settings)
    yield from _vault(home)
    yield from _command_lines(home)
    yield from _backups(home.settings)
    if os.environ.get(tracing.ENDPOINT):
        yield _telemetry()


def _check_shared_database(home: Home) -> Check:
    name = "shared database"
    silent = silence(sql.create_engine(home_directory.address(home.settings), home.settings.workspace), ANSWERS_S)
    if home.is_stand_in or silent:
        hint = "Start the server, or correct HABITUS_DATABASE; until then turns work from what was seen last."
        return Check(name=name, state=CheckState.BROKEN, detail=silent or AWAY, hint=hint)
    return Check(name=name, state=CheckState.OK, detail=f"{sql.place(home.shared)} answers")


def _spool(place: Path, redactor: Redactor) -> Iterator[Check]:
    spool = Spool(place / home_directory.WAITING, redactor)
    waiting, dropped = spool.waiting, spool.count_dropped
    if not waiting and not dropped:
        return
    detail = f"{waiting} turns and judgements wait on disk, {dropped} counts or entries were dropped so far"
    if waiting:
        hint = "They are written with the next turn that reaches the database."
        yield Check(name="spool", state=CheckState.PAUSED, detail=f"{detail}.", hint=hint)
    else:
        yield Check(name="spool", state=CheckState.OK, detail=detail)


def _jobs(home: Home) -> Iterator[Check]:
    if home.is_stand_in:
        return
    found = JobQueue(home.shared).states()
    if not any(found.values()):
        return
    parked = found[JobState.FAILED] + found[JobState.PARKED]
    open_ones = sum(count for state, count in found.items() if not state.is_over)
    detail = f"{open_ones} to do, {parked} failed for good, {found[JobState.DONE]} done"
    hint = "See 'habitus jobs list --all', then 'habitus jobs retry ID'." if parked else ""
    yield Check(name="jobs", state=CheckState.PAUSED if parked else CheckState.OK, detail=detail, hint=hint)


def _hooks(settings: Settings) -> Iterator[Check]:
    """Report whether the hook daemon answers, if hooks were ever run."""
    folder = settings.home
    noted = 0
    with suppress(OSError):
        noted = len((folder / SPOOL).read_bytes().splitlines())
    if not noted and not (folder / SOCKET).exists():
        return
    wait = f", {noted} transcripts wait to be learned from" if noted else ""
    runs = "the resident process runs" if _answers(settings) else "the next session starts the resident process"
    yield Check(name="hooks", state=CheckState.OK, detail=f"{runs}{wait}")


def _answers(settings: Settings) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(ANSWERS_S)
        try:
            # A relative path, because a socket address has room for about 100 characters.
            line.connect(os.path.relpath(settings.home / SOCKET))
        except OSError:
            return False
    return True


def _vault(home: Home) -> Iterator[Check]:
    """Report whether the vault's key is available, if there are secrets or a skill asks for some."""
    try:
        names = home.vault.names()
        if not names and not secrets.askers(home.skills, home.skills.snapshot().by_name):
            return
        home.vault.unlock()
    except UserError as error:
        state = CheckState.BROKEN if isinstance(error, StorageFailed) else CheckState.MISSING
        yield Check(name="vault", state=state, detail=error.message, hint=error.hint)
        return
    yield Check(name="vault", state=CheckState.OK, detail=f"{len(names)} secrets, and its key is at hand")


def _command_lines(home: Home) -> Iterator[Check]:
    """Report which command lines of skills can be called, with their secrets and network limits."""
    refusals = CommandLines(home, home.user()).refusals()
    if not refusals:
        return
    fine = [name for name, refusal in refusals.items() if refusal is None]
    detail = f"{len(fine)} of {len(refusals)} can be called"
    detail += f": {', '.join(fine[:5])}{', …' * (len(fine) > 5)}" if fine else ""
    refused = [refusal for refusal in refusals.values() if refusal is not None]
    hints = [refusal.hint for refusal in refused if refusal.hint]
    hints += [f"Run: {request.hint}" for request in secrets.overview(home).requests if request.hint]
    if home.machine.bubblewrap is None:
        detail += "; none reaches a host, and code has skills.run and no habitus-skill"
        hints.append("Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap).")
    detail += "".join(f"; {refusal.message.rstrip('.')}" for refusal in refused[:5])
    state = CheckState.MISSING if hints else CheckState.OK
    detail = f"{detail}." if hints else detail
    yield Check(name="command lines", state=state, detail=detail, hint=hints[0] if hints else "")


def _backups(settings: Settings) -> Iterator[Check]:
    if found := backing_up.list_backups(settings):
        detail = f"{len(found)} in the home, the last of {found[0].made_on.astimezone():%Y-%m-%d %H:%M}"
        yield Check(name="backups", state=CheckState.OK, detail=detail)


def _telemetry() -> Check:
    if optional_packages.has("opentelemetry.sdk"):
        return Check(name="telemetry", state=CheckState.OK, detail=f"sent to what {tracing.ENDPOINT} names")
    detail = f"{tracing.ENDPOINT} is set, and nothing can be sent."
    return Check(
        name="telemetry", state=CheckState.MISSING, detail=detail, hint=optional_packages.how("opentelemetry.sdk")
    )


class CheckState(StrEnum):
    """The state of a health check."""

    OK = "ok"
    PAUSED = "paused"
    # An optional part is missing.
    MISSING = "missing"
    # A part in use does not work.
    BROKEN = "broken"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One line of the doctor's report."""

    name: str
    state: CheckState
    detail: str
    hint: str = ""
