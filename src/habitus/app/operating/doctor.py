"""Checks of `habitus doctor` about operation, such as the shared database, jobs, hooks and the vault."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from habitus import optional_packages, sql, tracing
from habitus.agent.user_input import format_byte_size
from habitus.app import home_directory
from habitus.app.conversations import secrets
from habitus.app.conversations.command_lines import UserSkillCommandLineRegistry
from habitus.app.home import DATABASE_AWAY, Home
from habitus.app.learning.usage import find_stale_usage_counters
from habitus.app.operating import backing_up
from habitus.app.operating.housekeeping import load_housekeeping_report, measure_database_size
from habitus.app.operating.identity_provider import open_identity_provider
from habitus.app.sharing.availability import explain_missing_database_answer
from habitus.errors import StorageFailed, UserError
from habitus.hosts.hook import NOTED_SESSIONS_FILE, SOCKET_FILE
from habitus.jobs.model import JobState
from habitus.jobs.queue import JobQueue
from habitus.journal.outbox import JournalOutbox
from habitus.redact import Redactor
from habitus.resident_process import HOOK_SERVER, is_process_running
from habitus.sandbox.machine import probe_machine
from habitus.settings import Settings
from habitus.sql.outage import PROBE_TIMEOUT_S
from habitus.text import format_quantity


def check_operation_parts_in_use(home: Home) -> Iterator[HealthCheckResult]:
    """Yield one check for each part of the operation that is in use."""
    if home.settings.database:
        yield _check_shared_database(home)
    yield from _check_outbox(home.writable_dir, home.redactor)
    yield from _check_use_counts_against_journal(home)
    yield from _check_jobs(home)
    yield from _check_hook_daemon(home.settings)
    yield from _check_vault_key(home)
    yield from _check_command_lines(home)
    yield from _report_backup_count_and_date(home.settings)
    if home.settings.oidc.issuer:
        yield _check_identity_provider(home.settings)
    yield from _check_packages_of_commands()
    yield _check_audio_transcription_programs()
    yield _report_storage_and_housekeeping(home)
    if os.environ.get(tracing.ENDPOINT_VARIABLE):
        yield _check_telemetry()


def _check_shared_database(home: Home) -> HealthCheckResult:
    name = "shared database"
    silent = explain_missing_database_answer(
        sql.create_engine(home_directory.get_database_url(home.settings), home.settings.workspace), PROBE_TIMEOUT_S
    )
    if home.is_offline or silent:
        hint = "Start the server, or correct HABITUS_DATABASE; until then turns use the offline snapshot."
        return HealthCheckResult.broken(name, silent or DATABASE_AWAY, hint)
    return HealthCheckResult.ok(name, f"{sql.describe_database(home.shared)} answers")


def _check_outbox(place: Path, redactor: Redactor) -> Iterator[HealthCheckResult]:
    spool = JournalOutbox(place / home_directory.OUTBOX_DIR, redactor)
    waiting, dropped = spool.pending_count, spool.dropped_count
    if not waiting and not dropped:
        return
    detail = f"{waiting} turns and judgements pending on disk, {dropped} counts or entries were dropped so far"
    if waiting:
        hint = "They are written with the next turn that reaches the database."
        yield HealthCheckResult.paused("outbox", f"{detail}.", hint)
    else:
        yield HealthCheckResult.ok("outbox", detail)


def _check_use_counts_against_journal(home: Home) -> Iterator[HealthCheckResult]:
    """Count all uses again from the journal and compare the counters that lists show."""
    if home.is_offline:
        return
    stale = find_stale_usage_counters(home)
    if stale:
        detail = f"the counters of {', '.join(stale[:5])}{', …' * (len(stale) > 5)} differ from their recorded uses"
        hint = "Run 'habitus doctor --fix', which counts the recorded uses and judgements again."
        yield HealthCheckResult(name="usage", state=HealthCheckState.BROKEN, detail=f"{detail}.", hint=hint)
    else:
        yield HealthCheckResult(
            name="usage", state=HealthCheckState.OK, detail="the counters agree with the recorded uses"
        )


def _check_jobs(home: Home) -> Iterator[HealthCheckResult]:
    if home.is_offline:
        return
    found = JobQueue(home.shared).count_jobs_by_state()
    if not any(found.values()):
        return
    stuck = found[JobState.FAILED] + found[JobState.DEAD_LETTERED]
    open_ones = sum(count for state, count in found.items() if not state.is_over)
    detail = f"{open_ones} to do, {stuck} need attention, {found[JobState.DONE]} done"
    hint = "See 'habitus jobs list --all', then 'habitus jobs retry ID'." if stuck else ""
    yield HealthCheckResult(
        name="jobs", state=HealthCheckState.PAUSED if stuck else HealthCheckState.OK, detail=detail, hint=hint
    )


def _check_hook_daemon(settings: Settings) -> Iterator[HealthCheckResult]:
    """Report whether the hook daemon answers, if hooks were ever run."""
    folder = settings.home
    noted = 0
    with suppress(OSError):
        noted = len((folder / NOTED_SESSIONS_FILE).read_bytes().splitlines())
    if not noted and not (folder / SOCKET_FILE).exists():
        return
    wait = f", {noted} transcripts pending" if noted else ""
    runs = (
        "the resident process runs"
        if is_process_running(folder, HOOK_SERVER, timeout_s=PROBE_TIMEOUT_S)
        else "the next session starts the resident process"
    )
    yield HealthCheckResult.ok("hooks", f"{runs}{wait}")


def _check_vault_key(home: Home) -> Iterator[HealthCheckResult]:
    """Report whether the vault's key is available, if there are secrets or a skill asks for some."""
    try:
        names = home.vault.list_secret_names()
        if not names and not secrets.list_skills_asking_for_secrets(home.skills, home.skills.snapshot().by_name):
            return
        home.vault.unlock()
    except UserError as error:
        state = HealthCheckState.BROKEN if isinstance(error, StorageFailed) else HealthCheckState.MISSING
        yield HealthCheckResult(name="vault", state=state, detail=error.message, hint=error.hint)
        return
    yield HealthCheckResult.ok("vault", f"{len(names)} secrets, and its key is available")


def _check_command_lines(home: Home) -> Iterator[HealthCheckResult]:
    """Report which command lines of skills can be called, with their secrets and network limits."""
    refusals = UserSkillCommandLineRegistry(home, home.get_user()).map_skills_to_call_errors()
    if not refusals:
        return
    fine = [name for name, refusal in refusals.items() if refusal is None]
    detail = f"{len(fine)} of {len(refusals)} can be called"
    detail += f": {', '.join(fine[:5])}{', …' * (len(fine) > 5)}" if fine else ""
    refused = [refusal for refusal in refusals.values() if refusal is not None]
    hints = [refusal.hint for refusal in refused if refusal.hint]
    hints += [f"Run: {request.hint}" for request in secrets.read_secrets_overview(home).requests if request.hint]
    if probe_machine().bubblewrap is None:
        detail += "; none reaches a host, and code has skills.run and no habitus-skill"
        hints.append("Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap).")
    detail += "".join(f"; {refusal.message.rstrip('.')}" for refusal in refused[:5])
    state = HealthCheckState.MISSING if hints else HealthCheckState.OK
    detail = f"{detail}." if hints else detail
    yield HealthCheckResult(name="command lines", state=state, detail=detail, hint=hints[0] if hints else "")


def _report_backup_count_and_date(settings: Settings) -> Iterator[HealthCheckResult]:
    if found := backing_up.list_backups(settings):
        detail = f"{len(found)} in the home, the last of {found[0].made_on.astimezone():%Y-%m-%d %H:%M}"
        yield HealthCheckResult.ok("backups", detail)


def _check_packages_of_commands() -> Iterator[HealthCheckResult]:
    commands = {"mcp": "'habitus mcp' and 'connect'", "uvicorn": "'habitus up'", "prompt_toolkit": "'habitus chat'"}
    absent = [module for module in commands if not optional_packages.is_installed(module)]
    if absent:
        detail = f"{', '.join(map(commands.__getitem__, absent))} can't be used."
        yield HealthCheckResult.missing("extras", detail, optional_packages.describe_install(absent[0]))


def _check_audio_transcription_programs() -> HealthCheckResult:
    name = "audio"
    if not optional_packages.is_installed("pocketsphinx"):
        hint = optional_packages.describe_install("pocketsphinx")
        detail = "recordings are attached, and not transcribed."
        return HealthCheckResult.missing(name, detail, hint)
    if shutil.which("ffmpeg") is None:
        hint = "Install ffmpeg for other formats (Debian, Ubuntu: apt-get install ffmpeg)."
        detail = "only .wav recordings are transcribed."
        return HealthCheckResult.missing(name, detail, hint)
    return HealthCheckResult.ok(name, "recordings are transcribed here, in English")


def _report_storage_and_housekeeping(home: Home) -> HealthCheckResult:
    """What is stored, since when, how large it is, and what the last housekeeping freed."""
    name, oldest = "stored data", home.journal.get_oldest_turn_time()
    since = f"turns since {oldest.astimezone():%Y-%m-%d}" if oldest else "no turns"
    detail = f"{since}, {format_byte_size(sum(map(measure_database_size, {home.shared, home.local})))}"
    last = load_housekeeping_report(home.writable_dir)
    if last is not None:
        freed = f"{format_quantity(last.turns, 'old turn')} deleted, {format_byte_size(last.freed_bytes)} freed"
        detail += f"; last housekeeping {last.ran_on.astimezone():%Y-%m-%d %H:%M} ({freed})"
    return HealthCheckResult.ok(name, detail)


def _check_identity_provider(settings: Settings) -> HealthCheckResult:
    name = "sign-in provider"
    try:
        provider = open_identity_provider(settings)
        assert provider is not None
        return HealthCheckResult.ok(name, f"{provider.metadata['issuer']} answers")
    except UserError as error:
        return HealthCheckResult.broken(name, error.message, error.hint)


def _check_telemetry() -> HealthCheckResult:
    if optional_packages.is_installed("opentelemetry.sdk"):
        return HealthCheckResult.ok("telemetry", f"sent to what {tracing.ENDPOINT_VARIABLE} names")
    detail = f"{tracing.ENDPOINT_VARIABLE} is set, and nothing can be sent."
    return HealthCheckResult.missing("telemetry", detail, optional_packages.describe_install("opentelemetry.sdk"))


class HealthCheckState(StrEnum):
    """The state of a health check."""

    OK = "ok"
    PAUSED = "paused"
    # An optional part is missing.
    MISSING = "missing"
    # A part in use does not work.
    BROKEN = "broken"


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthCheckResult:
    """One line of the doctor's report."""

    name: str
    state: HealthCheckState
    detail: str
    hint: str = ""

    @classmethod
    def ok(cls, name: str, detail: str) -> HealthCheckResult:
        """Return the check of a part that works."""
        return cls(name=name, state=HealthCheckState.OK, detail=detail)

    @classmethod
    def paused(cls, name: str, detail: str, hint: str) -> HealthCheckResult:
        """Return the check of a part that pauses."""
        return cls(name=name, state=HealthCheckState.PAUSED, detail=detail, hint=hint)

    @classmethod
    def missing(cls, name: str, detail: str, hint: str) -> HealthCheckResult:
        """Return the check of an optional part that is missing."""
        return cls(name=name, state=HealthCheckState.MISSING, detail=detail, hint=hint)

    @classmethod
    def broken(cls, name: str, detail: str, hint: str) -> HealthCheckResult:
        """Return the check of a part in use that does not work."""
        return cls(name=name, state=HealthCheckState.BROKEN, detail=detail, hint=hint)
