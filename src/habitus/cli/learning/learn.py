"""`habitus learn`: finds lessons in agents' transcripts and, with `--apply`, adds them to memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from habitus.app import Habitus
from habitus.app.learning import studying
from habitus.app.learning.learning import RecurringFailureReport, keep_accepted_lesson_drafts
from habitus.app.learning.mining import RecipeOrSkillSuggestion
from habitus.app.library.undoing import build_lesson_undo_targets
from habitus.cli import output
from habitus.cli.completion import JsonOption
from habitus.cli.opening import open_habitus
from habitus.errors import Refused
from habitus.learning.remedies.findings import RemedyCoverageCounts
from habitus.learning.transcripts.applying import LessonBatch, TranscriptLessonRecordingCounts
from habitus.learning.transcripts.firings import DetectorFiring
from habitus.llm.model import SessionModels
from habitus.memory.model import Engram
from habitus.timestamps import parse_timestamp

# The most findings of one detector and the most candidates that are printed.
MAX_SHOWN = 5
MAX_FAILURES = 10
# A failure counts as recurring from this many sessions on.
MIN_RECURRING_SESSIONS = 2
SINCE_LAST = "last"


def learn_from_transcripts(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Transcripts: files, folders or patterns, such as ~/.claude/projects.", show_default=False),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Save the lessons; at a terminal you are asked about each.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            "--since", help="Only newer transcripts: 30d, 2026-05-01, or last (changed since the last --apply)."
        ),
    ] = "",
    model: Annotated[str, typer.Option("--model", help="Also let provider:model analyse the failed calls.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before sending to the model.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find failures in agents' sessions and what worked next.

    Reads the sessions of Claude Code, Codex, Copilot, Cursor and others: without files, those on this machine (see
    'habitus check -h') and Habitus' own.
    """
    paths = studying.find_transcripts(files or ())
    with open_habitus(context) as habitus:
        may_ask = sys.stdin.isatty() and not as_json
        # Sending transcripts to a model needs consent, which a pipe or JSON output can't give.
        is_refused = bool(model) and not yes and not may_ask
        models = studying.open_named_model_for_learning(habitus.settings, habitus.pause, model) if model else None
        # Findings are computed even if sending is refused, so the error can say how much would be sent.
        study = studying.TranscriptStudy(
            habitus,
            apply=apply and not is_refused,
            wants_failures=bool(model),
            since=parse_timestamp(since, habitus.clock()) if since not in ("", SINCE_LAST) else None,
            only_new=since == SINCE_LAST,
        )
        with _collect_saved_lessons(habitus, apply) as made:
            with _show_learning_progress_bar(as_json, len(paths)) as (turn_done, file_done):
                for path in paths:
                    study.study_file(path, turn_done)
                    file_done()
                if not files:
                    study.study_journal_sessions()
                study.collect_repeated_procedures()
            if is_refused:
                raise Refused(
                    f"{_describe_amount_of_failures_to_send(study.send_size_preview)} would be sent to {model}.",
                    hint="Nothing was sent or saved. Add --yes to send.",
                )
            if not as_json:
                _print_study_report(study.make_report())
            if (
                models is not None
                and study.send_size_preview.calls
                and (yes or _confirm_sending_failures(study.send_size_preview, model))
            ):
                _ask_model_about_failed_calls(study, models, is_quiet=as_json)
            if apply:
                study.store_lessons_and_propose_procedures(
                    _ask_lesson_decisions(study.list_lesson_batches_to_decide()) if may_ask else None
                )
        if as_json:
            output.print_json(study.make_report())
        else:
            has_nothing_to_ask = models is not None and not study.send_size_preview.calls
            _print_post_mortems_and_saved_lessons(
                context, study.make_report(), has_nothing_to_ask=has_nothing_to_ask, made=made
            )


def _ask_lesson_decisions(proposals: Sequence[LessonBatch]) -> list[LessonBatch]:
    """Ask about each lesson and return the proposals with the decisions; the same text is asked once."""
    said: dict[str, str | None] = {}
    for draft in (draft for taught in proposals for draft in taught.drafts):
        # Several projects can teach the same sentence; one answer settles all of them.
        if draft.text not in said:
            output.print_line(f"{draft.text} ({draft.evidence.told or draft.evidence.trace})")
            answer = typer.prompt("Save it? [y]es, [n]o, [e]dit", default="y").strip().lower()[:1]
            edited = typer.prompt("Text", default=draft.text) if answer == "e" else draft.text
            said[draft.text] = edited if answer in ("y", "e") else None
    return [keep_accepted_lesson_drafts(taught, said) for taught in proposals]


def _collect_saved_lessons(habitus: Habitus, apply: bool) -> AbstractContextManager[list[Engram]]:
    """Collect the lessons that are saved inside the block, for the undo command."""
    return habitus.memory.collect_changes() if apply else nullcontext([])


@contextmanager
def _show_learning_progress_bar(is_quiet: bool, total: int) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """Yield two callbacks, for each turn and each file, that move a bar on standard error."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda: None, lambda: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("files"), TextColumn("{task.fields[turns]} turns"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("learn", total=total, turns=0)

        def turn_done() -> None:
            # A transcript can be hours long, so turns move the display while a file is still being read.
            bar.update(task, turns=bar.tasks[task].fields["turns"] + 1)

        yield turn_done, lambda: bar.advance(task)


def _describe_amount_of_failures_to_send(sending: studying.ModelSendSizePreview) -> str:
    """Return how much text would be sent to the model."""
    calls, files = (
        output.format_quantity(sending.calls, "failed call"),
        output.format_quantity(sending.files, "file"),
    )
    return f"{calls} of {files}, about {sending.tokens:,} tokens,"


def _confirm_sending_failures(sending: studying.ModelSendSizePreview, model: str) -> bool:
    """Ask whether the failed calls may be sent to the model."""
    output.print_line()
    is_allowed = typer.confirm(
        f"{_describe_amount_of_failures_to_send(sending)} would be sent to {model}, without secrets. Send?"
    )
    if not is_allowed:
        output.print_line("Nothing was sent.")
    return is_allowed


def _ask_model_about_failed_calls(study: studying.TranscriptStudy, models: SessionModels, *, is_quiet: bool) -> None:
    """Ask the model about the failed calls and close its connection."""
    if not is_quiet:
        output.print_line(
            f"{_describe_amount_of_failures_to_send(study.send_size_preview)} go to {models.main.name}.", style="dim"
        )

    async def ask() -> None:
        try:
            await study.ask_model_about_failures(models.main)
        finally:
            await models.close()

    asyncio.run(ask())


def _print_study_report(report: studying.TranscriptStudyReport) -> None:
    """Print recurring failures, remedies, procedures, detector findings and what was read."""
    _print_failures_and_remedies(report.remedies)
    _print_procedures(report.procedures)
    _print_lesson_coverage(report.remedies.coverage)
    for found in report.detectors:
        output.print_line(f"{found.detector}: {output.format_quantity(found.fired_count, 'time')}", style="bold")
        output.print_line(f"  {found.rule}", style="green")
        for firing in found.firings[:MAX_SHOWN]:
            rounds = ("round " if len(firing.rounds) == 1 else "rounds ") + ", ".join(map(str, firing.rounds))
            guessed = " (success was guessed: the format doesn't record it)" if firing.is_weak else ""
            output.print_line(f"  {firing.file}, {_describe_firing_location(firing)}, {rounds}{guessed}")
            for line in firing.evidence:
                output.print_line(f"    {line}", style="dim")
        if found.fired_count > MAX_SHOWN:
            output.print_line(f"  and {found.fired_count - MAX_SHOWN} more", style="dim")
    if report.skills:
        used = ", ".join(f"{name} ({counts['uses']})" for name, counts in sorted(report.skills.items()))
        output.print_line(f"Skills used: {used}.")
    turns, events = (sum(getattr(file, what) for file in report.files) for what in ("turns", "events"))
    unchanged = f" {report.unchanged} unchanged since the last run." if report.unchanged else ""
    own = f" Own sessions: {report.own_sessions}." if report.own_sessions else ""
    output.print_line(
        f"Read {output.format_quantity(len(report.files), 'file')}: {output.format_quantity(turns, 'turn')}, "
        f"{output.format_quantity(events, 'event')}.{own}{unchanged}"
        + ("" if report.detectors else " No detector found a failure.")
    )
    for file in report.files:
        if file.unread:
            output.print_line(f"Not read in {file.path}: {_format_counts(file.unread)}.", style="yellow")
    if report.redacted:
        output.print_line(f"Secrets removed: {_format_counts(report.redacted)}.", style="yellow")


def _print_failures_and_remedies(told: RecurringFailureReport) -> None:
    """Print recurring failures, the remedies that worked and the rules that the person stated."""
    if again := [failure for failure in told.failures if failure.sessions >= MIN_RECURRING_SESSIONS][:MAX_FAILURES]:
        output.print_line("Recurring failures, costliest first:", style="bold")
        for failure in again:
            lost = f"{output.format_quantity(failure.calls, 'failed call')}, {failure.minutes:g} min lost"
            output.print_line(
                f"  {failure.what} ({failure.sessions} sessions, {lost}; {failure.project or 'no project'})"
            )
    for heading, style, lessons in (
        ("What worked next:", "green", told.lessons),
        ("Your corrections:", "green", told.rules),
        ("Seen only once, not learned yet:", "dim", told.candidates[:MAX_SHOWN]),
    ):
        if lessons:
            output.print_line(heading, style="bold")
            for lesson in lessons:
                where = f"; {lesson.project}" if lesson.project else ""
                output.print_line(f"  {lesson.text} ({lesson.evidence}{where})", style=style)


def _print_procedures(found: Sequence[RecipeOrSkillSuggestion]) -> None:
    """Print procedures that recur and could become recipes."""
    if found:
        output.print_line("Recurring procedures:", style="bold")
    for one in found[:MAX_SHOWN]:
        waits = f"; pending review as {one.proposal}" if one.proposal is not None else ""
        output.print_line(f"  {one.name} ({one.evidence[0]}{waits})", style="green")
    if len(found) > MAX_SHOWN:
        output.print_line(
            f"  and {len(found) - MAX_SHOWN} more; 'habitus skills recipes mine' with these files shows all",
            style="dim",
        )


def _print_lesson_coverage(covered: RemedyCoverageCounts) -> None:
    """Print how many failed calls the lessons explain."""
    if covered.failures:
        output.print_line(
            f"{output.format_quantity(covered.failures, 'failed call')} in "
            f"{output.format_quantity(covered.sessions, 'session')}: "
            f"{covered.failures - covered.teachable} part of the work or transient, {covered.remedied} with a "
            f"known remedy, {covered.taught} covered by the lessons above."
        )


def _describe_firing_location(firing: DetectorFiring) -> str:
    """Return a finding's turn, with its transcript if the file name doesn't say it."""
    is_named_after_file = firing.transcript == firing.file.stem
    return f"turn {firing.turn}" if is_named_after_file else f"{firing.transcript}, turn {firing.turn}"


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {what}" for what, count in sorted(counts.items()))


def _print_post_mortems_and_saved_lessons(
    context: typer.Context, report: studying.TranscriptStudyReport, *, has_nothing_to_ask: bool, made: Sequence[Engram]
) -> None:
    """Print post-mortems, saved lessons and the costs of the run."""
    for told in report.post_mortems:
        for lesson in told.lessons:
            output.print_line(f"{told.file.name}: {lesson}", style="green")
        if told.error:
            output.print_line(f"{told.file.name}: {told.error}", style="yellow")
    if has_nothing_to_ask:
        output.print_line("No failed calls to send to the model.")
    if report.stopped:
        output.print_line(report.stopped, style="yellow")
    if report.applied is not None:
        _print_applied_lessons(context, report.applied, made)
    _print_tokens_spent_and_lessons_written(report)


def _print_tokens_spent_and_lessons_written(report: studying.TranscriptStudyReport) -> None:
    """Print how many tokens and lessons the run sent and saved."""
    sent = f"{report.spent:,} tokens were spent on a model" if report.spent else "nothing was sent or spent"
    written = report.applied.stored_or_pending_lesson_count if report.applied else 0
    kept = f"{output.format_quantity(written, 'lesson')} written" if written else "nothing was written"
    more = "; --apply saves the lessons" if report.applied is None and report.has_lessons else ""
    output.print_line(f"This run: {sent}, {kept}{more}.")


def _print_applied_lessons(
    context: typer.Context, applied: TranscriptLessonRecordingCounts, made: Sequence[Engram]
) -> None:
    lessons = ", ".join(f"{count} {status}" for status, count in applied.lessons.items()) or "nothing new"
    output.print_line(
        f"Lessons: {lessons}." + (f" Skill uses counted: {applied.skill_uses}." if applied.skill_uses else "")
    )
    for reason, count in applied.reasons.items():
        output.print_line(f"  {count} ×: {reason}", style="yellow")
    if made:
        output.print_and_register_undo_command(context, "undo", *build_lesson_undo_targets(made))
    if applied.already_learned:
        output.print_line(f"Already learned from: {output.format_quantity(applied.already_learned, 'turn')}.")
