"""`habitus learn`: what transcripts of agents teach, ours or others', and teaching it to memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from habitus.app import Habitus, studying
from habitus.app.studying import FileFault, FileLessons, Sending, Study, StudyReport
from habitus.app.undoing import of_lessons
from habitus.cli import mining, output
from habitus.cli.opening import opened
from habitus.cli.options import AsJson
from habitus.errors import Refused
from habitus.learning.transcripts.applying import Applied
from habitus.learning.transcripts.study import Firing
from habitus.llm.roles import Models
from habitus.memory.model import Engram

MOST_SHOWN = 5  # firings of one detector


def learn(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Transcripts: files, folders or patterns, such as ~/.claude/projects.", show_default=False),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Keep what they teach, once per turn.")] = False,
    model: Annotated[str, typer.Option("--model", help="Also let provider:model look at the failed calls.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before sending to the model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find what went wrong in transcripts of agents: Claude Code sessions, OpenAI-style logs, event rows, our own.

    Without files: what you had done again and again here, as recipes and skills that --apply proposes to you.
    """
    if not files:
        mining.from_journal(context, apply=apply, model=model, yes=yes, as_json=as_json)
        return
    paths = studying.found_files(files)
    with opened(context) as habitus:
        may_ask = sys.stdin.isatty() and not as_json
        is_refused = bool(model) and not yes and not may_ask
        models = studying.open_models(habitus, model) if model else None
        study = Study(habitus, apply=apply and not is_refused, wants_failures=bool(model))
        with _noting(habitus, apply) as made:
            with _progress(as_json, len(paths)) as (turn_done, file_done):
                for path in paths:
                    study.read(path, turn_done)
                    file_done()
            if is_refused:
                raise Refused(
                    f"{_told(study.sending)} would go to {model}.", mend="Nothing was sent or kept. Say --yes to send."
                )
            if not as_json:
                _print_findings(study.report())
            if models is not None and study.sending.calls and (yes or _may_send(study.sending, model)):
                _ask(study, models, is_quiet=as_json)
        if as_json:
            output.print_json(study.report())
        else:
            has_nothing_to_ask = models is not None and not study.sending.calls
            _print_end(context, study.report(), has_nothing_to_ask=has_nothing_to_ask, made=made)


def _noting(habitus: Habitus, apply: bool) -> AbstractContextManager[list[Engram]]:
    """What is made of lessons inside, where anything is kept."""
    return habitus.memory.noting() if apply else nullcontext([])


@contextmanager
def _progress(is_quiet: bool, total: int) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """A bar on standard error while files are read: to be told of every turn, and of every file."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda: None, lambda: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("files"), TextColumn("{task.fields[turns]} turns"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("learn", total=total, turns=0)

        def turn_done() -> None:
            bar.update(task, turns=bar.tasks[task].fields["turns"] + 1)

        yield turn_done, lambda: bar.advance(task)


def _told(sending: Sending) -> str:
    """What would be sent, in words."""
    calls, files = output.counted(sending.calls, "failed call"), output.counted(sending.files, "file")
    return f"{calls} of {files}, about {sending.tokens:,} tokens,"


def _may_send(sending: Sending, model: str) -> bool:
    output.say()
    is_allowed = typer.confirm(f"{_told(sending)} would go to {model}, without the secrets. Send them?")
    if not is_allowed:
        output.say("Nothing was sent.")
    return is_allowed


def _ask(study: Study, models: Models, *, is_quiet: bool) -> None:
    if not is_quiet:
        output.say(f"{_told(study.sending)} go to {models.main.name}.", style="dim")

    async def ask() -> None:
        try:
            await study.ask(models.main)
        finally:
            await models.close()

    asyncio.run(ask())


def _print_findings(report: StudyReport) -> None:
    for found in report.detectors:
        output.say(f"{found.detector}: {output.counted(found.fired, 'time')}", style="bold")
        output.say(f"  {found.rule}", style="green")
        for firing in found.firings[:MOST_SHOWN]:
            rounds = ("round " if len(firing.rounds) == 1 else "rounds ") + ", ".join(map(str, firing.rounds))
            guessed = " (success was guessed: this format does not say it)" if firing.is_weak else ""
            output.say(f"  {firing.file}, {_where(firing)}, {rounds}{guessed}")
            for line in firing.evidence:
                output.say(f"    {line}", style="dim")
        if found.fired > MOST_SHOWN:
            output.say(f"  and {found.fired - MOST_SHOWN} more", style="dim")
    if report.skills:
        used = ", ".join(f"{name} ({counts['uses']})" for name, counts in sorted(report.skills.items()))
        output.say(f"Skills used: {used}.")
    turns, events = (sum(getattr(file, what) for file in report.files) for what in ("turns", "events"))
    output.say(
        f"Read {output.counted(len(report.files), 'file')}: {output.counted(turns, 'turn')}, "
        f"{output.counted(events, 'event')}."
        + ("" if report.detectors else " Nothing went wrong that a detector knows.")
    )
    for file in report.files:
        if file.unread:
            output.say(f"Not read in {file.path}: {_listed(file.unread)}.", style="yellow")
    if report.redacted:
        output.say(f"Secrets taken out: {_listed(report.redacted)}.", style="yellow")


def _where(firing: Firing) -> str:
    is_named_after_file = firing.transcript == firing.file.stem
    return f"turn {firing.turn}" if is_named_after_file else f"{firing.transcript}, turn {firing.turn}"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {what}" for what, count in sorted(counts.items()))


def _print_end(
    context: typer.Context, report: StudyReport, *, has_nothing_to_ask: bool, made: Sequence[Engram]
) -> None:
    for told in report.post_mortems:
        match told:
            case FileLessons():
                for lesson in told.lessons:
                    output.say(f"{told.file.name}: {lesson}", style="green")
            case FileFault():
                output.say(f"{told.file.name}: {told.error}", style="yellow")
    if has_nothing_to_ask:
        output.say("There was no failed call to ask the model about.")
    if report.stopped:
        output.say(report.stopped, style="yellow")
    if report.applied is not None:
        _print_applied(context, report.applied, made)
    elif report.teaches:
        output.say("Nothing was kept; --apply does.")


def _print_applied(context: typer.Context, applied: Applied, made: Sequence[Engram]) -> None:
    lessons = ", ".join(f"{count} {status}" for status, count in applied.lessons.items()) or "nothing new"
    output.say(f"Lessons: {lessons}." + (f" Skill uses counted: {applied.skill_uses}." if applied.skill_uses else ""))
    for reason, count in applied.reasons.items():
        output.say(f"  {count} ×: {reason}", style="yellow")
    if made:
        output.say_undo(context, "undo", *of_lessons(made))
    if applied.already:
        output.say(f"Already learned from: {output.counted(applied.already, 'turn')}.")
