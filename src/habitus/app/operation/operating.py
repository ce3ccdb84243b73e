"""Operation as the doctor sees it: the shared database, what waits on disk, jobs, hooks, vault, proxy and telemetry."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa

from habitus import extras, sql, tracing
from habitus.agent.outage import ANSWERS_S
from habitus.app import home_directory
from habitus.app.conversations import secrets
from habitus.app.conversations.command_lines import CommandLines
from habitus.app.home import AWAY, Home
from habitus.app.operation import backing_up
from habitus.app.operation.check_state import Check, CheckState
from habitus.app.sharing.reaching import silence
from habitus.errors import UserError
from habitus.hosts.hook import SOCKET, SPOOL
from habitus.jobs.model import JobState
from habitus.jobs.tables import jobs
from habitus.journal.spool import Spool
from habitus.redact import Redactor
from habitus.sandbox.credentials.vault import FILE as VAULT
from habitus.sandbox.credentials.vault import Vault
from habitus.settings import Settings


def operation(home: Home) -> Iterator[Check]:
    """Only what is in use has a line."""
    if home.settings.database:
        yield _shared(home)
    yield from _spool(home.place, home.redactor)
    yield from _jobs(home)
    yield from _hooks(home.settings)
    yield from _vault(home.settings, home.vault)
    yield from _proxy(home)
    yield from _backups(home.settings)
    if os.environ.get(tracing.ENDPOINT):
        yield _telemetry()


def _shared(home: Home) -> Check:
    name = "shared database"
    silent = silence(sql.create_engine(home_directory.address(home.settings), home.settings.workspace), ANSWERS_S)
    if home.is_stand_in or silent:
        mend = "Start the server, or correct HABITUS_DATABASE; until then turns work from what was seen last."
        return Check(name=name, state=CheckState.BROKEN, detail=silent or AWAY, mend=mend)
    return Check(name=name, state=CheckState.OK, detail=f"{sql.place(home.shared)} answers")


def _spool(place: Path, redactor: Redactor) -> Iterator[Check]:
    spool = Spool(place / home_directory.WAITING, redactor)
    waiting, dropped = spool.waiting, spool.dropped
    if not waiting and not dropped:
        return
    detail = f"{waiting} turns and judgements wait on disk, {dropped} counts or entries were dropped so far"
    if waiting:
        mend = "They are written with the next turn that reaches the database."
        yield Check(name="spool", state=CheckState.PAUSED, detail=f"{detail}.", mend=mend)
    else:
        yield Check(name="spool", state=CheckState.OK, detail=detail)


def _jobs(home: Home) -> Iterator[Check]:
    if home.is_stand_in:
        return
    query = sa.select(jobs.c.state, sa.func.count()).group_by(jobs.c.state)
    with sql.reading(home.shared) as connection:
        found = {JobState(state): count for state, count in connection.execute(query)}
    if not found:
        return
    parked = found.get(JobState.FAILED, 0) + found.get(JobState.PARKED, 0)
    open_ones = sum(count for state, count in found.items() if not state.is_over)
    detail = f"{open_ones} to do, {parked} failed for good, {found.get(JobState.DONE, 0)} done"
    mend = "See 'habitus jobs list --all', then 'habitus jobs retry ID'." if parked else ""
    yield Check(name="jobs", state=CheckState.PAUSED if parked else CheckState.OK, detail=detail, mend=mend)


def _hooks(settings: Settings) -> Iterator[Check]:
    """Whether the resident process behind hooks answers, where hooks were ever run."""
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
            line.connect(os.path.relpath(settings.home / SOCKET))  # an address has room for 100 characters
        except OSError:
            return False
    return True


def _vault(settings: Settings, vault: Vault) -> Iterator[Check]:
    if not (settings.home / VAULT).exists():
        return
    try:
        names = vault.names()
        detail = f"{len(names)} secrets" + (", locked" if vault.is_locked() else "")
    except UserError as error:
        yield Check(name="vault", state=CheckState.BROKEN, detail=error.message, mend=error.mend)
        return
    mend = "Give HABITUS_VAULT_KEY, or a keyring, to those who run skills." if vault.is_locked() else ""
    yield Check(name="vault", state=CheckState.MISSING if mend else CheckState.OK, detail=detail, mend=mend)


def _proxy(home: Home) -> Iterator[Check]:
    """Command lines of skills: whether they can be called, with what they ask for, and be held to their hosts."""
    items = [item for item in home.skills.listing() if item.summary is not None and item.summary.manifest.cli]
    if not items:
        return
    callable_ones = len(CommandLines(home, home.user()).names())
    detail = f"{callable_ones} of {len(items)} skills with a command line can be called"
    mends = [f"Run: {request.mend}" for request in secrets.overview(home).requests if request.mend]
    if home.machine.bubblewrap is None:
        detail += "; none is let out to its hosts only, so none has a network"
        mends.append("Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap).")
    state = CheckState.MISSING if mends else CheckState.OK
    yield Check(name="proxy", state=state, detail=f"{detail}." if mends else detail, mend=mends[0] if mends else "")


def _backups(settings: Settings) -> Iterator[Check]:
    if found := backing_up.listed(settings):
        detail = f"{len(found)} in the home, the last of {found[0].made_on.astimezone():%Y-%m-%d %H:%M}"
        yield Check(name="backups", state=CheckState.OK, detail=detail)


def _telemetry() -> Check:
    if extras.has("opentelemetry.sdk"):
        return Check(name="telemetry", state=CheckState.OK, detail=f"sent to what {tracing.ENDPOINT} names")
    detail = f"{tracing.ENDPOINT} is set, and nothing can be sent."
    return Check(name="telemetry", state=CheckState.MISSING, detail=detail, mend=extras.how("opentelemetry.sdk"))
