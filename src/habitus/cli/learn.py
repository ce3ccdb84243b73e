"""`habitus learn`: what transcripts of agents teach, ours or others', and teaching it to memory."""

from __future__ import annotations

import glob
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from habitus.cli import output
from habitus.cli.opening import opened
from habitus.errors import NotFound, Refused

if TYPE_CHECKING:
    from habitus.app import Habitus
    from habitus.learning.post_mortem import PostMortem
    from habitus.learning.transcripts.applying import Applied, Applier
    from habitus.learning.transcripts.study import Failures, FileRead, Firing, Studied
    from habitus.llm.model import Model
    from habitus.llm.roles import Models
    from habitus.redact import CountingRedactor

MOST_SHOWN = 5  # firings of one detector, for a person
MOST_KEPT = 200  # and for a program


def learn(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Transcripts: files, folders or patterns, such as ~/.claude/projects.", show_default=False),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Keep what they teach, once per turn.")] = False,
    model: Annotated[str, typer.Option("--model", help="Also let provider:model look at the failed calls.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before sending to the model.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find what went wrong in transcripts of agents: Claude Code sessions, OpenAI-style logs, event rows, our own."""
    paths = found_files(files or ())
    with opened(context) as habitus:
        from habitus.redact import CountingRedactor

        if apply:
            habitus.refuse_if_read_only()
        redactor = CountingRedactor(habitus.redactor)
        may_ask = sys.stdin.isatty() and not as_json
        is_refused = bool(model) and not yes and not may_ask
        models = _models(habitus, model) if model else None
        applier = _applier(habitus, redactor) if apply and not is_refused else None
        report = _read(habitus, paths, redactor, applier, wants_failures=bool(model), is_quiet=as_json)
        if is_refused:
            raise Refused(f"{report.sending} would go to {model}.", mend="Nothing was sent or kept. Say --yes to send.")
        if not as_json:
            _print_report(report, redactor)
        if models is not None and (yes or _may_send(report, model)):
            _ask(habitus, report, models, redactor, applier, is_quiet=as_json)
        if as_json:
            output.print_json(_as_data(report, applier.applied if applier else None, redactor))
        else:
            moment = habitus.opened_on.astimezone().isoformat(timespec="microseconds")
            applied = applier.applied if applier else None
            _print_end(context, report, applied, has_asked=models is not None, moment=moment)


# Which files

_SUFFIXES = (".jsonl", ".json", ".ndjson")


def found_files(given: Sequence[str]) -> list[Path]:
    """Every file that is meant, once; folders stand for the transcripts below them."""
    if not given:
        raise NotFound(
            "Which transcripts?",
            mend="Name files, folders or patterns; Claude Code keeps its own in ~/.claude/projects.",
        )
    found: dict[Path, None] = {}
    for one in given:
        path = Path(one).expanduser()
        if path.is_dir():
            here = sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES and each.is_file())
        elif path.exists():
            here = [path]
        else:
            matches = glob.glob(str(path), recursive=True)  # noqa: PTH207  # a pattern may be absolute
            here = [Path(each) for each in sorted(matches) if Path(each).is_file()]
        if not here:
            what = "holds no transcripts" if path.is_dir() else "is no file"
            raise NotFound(f"'{one}' {what}.", mend=f"Looked for files that end in {', '.join(_SUFFIXES)}.")
        found.update(dict.fromkeys(each.resolve() for each in here))
    for path in found:
        if not path.is_file():
            raise NotFound(f"'{path}' is not a regular file.", mend="Give a file, a folder or a pattern.")
    return list(found)


# Reading


@dataclass(slots=True)
class Report:
    files: list[FileRead] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    firings: dict[str, list[Firing]] = field(default_factory=dict)  # the first ones of each detector
    rules: dict[str, str] = field(default_factory=dict)
    skills: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[Failures] = field(default_factory=list)
    post_mortems: list[dict[str, Any]] = field(default_factory=list)
    tokens_to_send: int = 0
    stopped: str = ""  # why the model was not asked about everything

    def take(self, studied: Studied) -> None:
        from habitus.learning.transcripts.study import firings

        for lesson, firing in zip(studied.lessons, firings(studied), strict=True):
            self.fired[firing.detector] += 1
            self.rules[firing.detector] = lesson.rule
            kept = self.firings.setdefault(firing.detector, [])
            if len(kept) < MOST_KEPT:
                kept.append(firing)
        for use in studied.skill_uses:
            counts = self.skills.setdefault(use.skill, Counter())
            counts.update(uses=1, failed=int(use.success is False))

    @property
    def sending(self) -> str:
        """What would be sent, in words."""
        calls = sum(len(each.cells) for each in self.failures)
        files = output.counted(len(self.failures), "file")
        return f"{output.counted(calls, 'failed call')} of {files}, about {self.tokens_to_send:,} tokens,"


def _read(
    habitus: Habitus,
    paths: Sequence[Path],
    redactor: CountingRedactor,
    applier: Applier | None,
    *,
    wants_failures: bool,
    is_quiet: bool,
) -> Report:
    from habitus.learning.post_mortem import estimate, written
    from habitus.learning.transcripts.ledger import How
    from habitus.learning.transcripts.study import Failures, study

    report = Report()
    with _progress(is_quiet, len(paths)) as step:
        for path in paths:
            failures = Failures(file=path)

            def visit(studied: Studied, failures: Failures = failures) -> None:
                report.take(studied)
                if applier is not None:
                    applier.apply(studied)
                if wants_failures and habitus.learned_turns.is_new(studied.digest, How.POST_MORTEM):
                    failures.take(studied)
                step(0)

            report.files.append(study(path, redactor, visit))
            if failures.cells:
                report.failures.append(failures)
                report.tokens_to_send += estimate(written(list(failures.cells.values()), redactor))
            step(1)
    return report


@contextmanager
def _progress(is_quiet: bool, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while files are read."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda files: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("files"), TextColumn("{task.fields[turns]} turns"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("learn", total=total, turns=0)
        turns = 0

        def step(files: int) -> None:
            nonlocal turns
            turns += not files
            bar.update(task, advance=files, turns=turns)

        yield step


def _applier(habitus: Habitus, redactor: CountingRedactor) -> Applier:
    from habitus.app import learning

    habitus.pause.refuse_if_paused()
    return learning.open_applier(habitus, habitus.open_memory(), redactor)


# Asking a model


def _models(habitus: Habitus, name: str) -> Models:
    from habitus.app import learning

    if habitus.settings.memory == "off":
        raise Refused("Memory is off, so no model is asked for learning.", mend="Set HABITUS_MEMORY=autopilot.")
    habitus.pause.refuse_if_paused()
    return learning.models_named(habitus, name)


def _may_send(report: Report, model: str) -> bool:
    if not report.failures:
        return False
    output.say()
    is_allowed = typer.confirm(f"{report.sending} would go to {model}, without the secrets. Send them?")
    if not is_allowed:
        output.say("Nothing was sent.")
    return is_allowed


def _ask(
    habitus: Habitus,
    report: Report,
    models: Models,
    redactor: CountingRedactor,
    applier: Applier | None,
    *,
    is_quiet: bool,
) -> None:
    import asyncio

    if not report.failures:
        return
    if not is_quiet:
        output.say(f"{report.sending} go to {models.main.name}.", style="dim")

    async def ask() -> None:
        try:
            await _post_mortems(habitus, report, models.main, redactor, applier)
        finally:
            await models.close()

    asyncio.run(ask())


async def _post_mortems(
    habitus: Habitus, report: Report, model: Model, redactor: CountingRedactor, applier: Applier | None
) -> None:
    """One call per file. A file whose call fails is left for another time; the cap ends it all."""
    from habitus.learning.post_mortem import post_mortem
    from habitus.learning.spending import CapReached
    from habitus.llm.model import NoUsableAnswer, ProviderFault

    for failures in report.failures:
        try:
            found = await post_mortem(
                list(failures.cells.values()), model=model, spending=habitus.spending, redactor=redactor
            )
        except CapReached as reached:
            report.stopped = str(reached)
            return
        except (ProviderFault, NoUsableAnswer, TimeoutError) as fault:
            why = str(fault) or f"{model.name} took too long"
            report.post_mortems.append({"file": failures.file, "error": why})
            continue
        report.post_mortems.append(_told(failures, found))
        if applier is not None:
            applier.apply_post_mortem(failures, found)


def _told(failures: Failures, found: PostMortem) -> dict[str, Any]:
    return {"file": failures.file, "lessons": found.lessons, "refused": found.refused, "tokens": found.tokens}


# Telling


def _print_report(report: Report, redactor: CountingRedactor) -> None:
    for detector, count in report.fired.items():
        output.say(f"{detector}: {output.counted(count, 'time')}", style="bold")
        output.say(f"  {report.rules[detector]}", style="green")
        for firing in report.firings[detector][:MOST_SHOWN]:
            rounds = ("round " if len(firing.rounds) == 1 else "rounds ") + ", ".join(map(str, firing.rounds))
            guessed = " (success was guessed: this format does not say it)" if firing.is_weak else ""
            output.say(f"  {firing.file}, {_where(firing)}, {rounds}{guessed}")
            for line in firing.evidence:
                output.say(f"    {line}", style="dim")
        if count > MOST_SHOWN:
            output.say(f"  and {count - MOST_SHOWN} more", style="dim")
    if report.skills:
        used = ", ".join(f"{name} ({counts['uses']})" for name, counts in sorted(report.skills.items()))
        output.say(f"Skills used: {used}.")
    turns, events = (sum(getattr(file, what) for file in report.files) for what in ("turns", "events"))
    output.say(
        f"Read {output.counted(len(report.files), 'file')}: {output.counted(turns, 'turn')}, "
        f"{output.counted(events, 'event')}." + ("" if report.fired else " Nothing went wrong that a detector knows.")
    )
    for file in report.files:
        if file.unread:
            output.say(f"Not read in {file.path}: {_listed(file.unread)}.", style="yellow")
    if redactor.counts:
        output.say(f"Secrets taken out: {_listed(redactor.counts)}.", style="yellow")


def _where(firing: Firing) -> str:
    is_named_after_file = firing.transcript == firing.file.stem
    return f"turn {firing.turn}" if is_named_after_file else f"{firing.transcript}, turn {firing.turn}"


def _listed(counts: Any) -> str:
    return ", ".join(f"{count} × {what}" for what, count in sorted(counts.items()))


def _print_end(
    context: typer.Context, report: Report, applied: Applied | None, *, has_asked: bool, moment: str
) -> None:
    for told in report.post_mortems:
        for lesson in told.get("lessons", ()):
            output.say(f"{told['file'].name}: {lesson}", style="green")
        if told.get("error"):
            output.say(f"{told['file'].name}: {told['error']}", style="yellow")
    if has_asked and not report.failures:
        output.say("There was no failed call to ask the model about.")
    if report.stopped:
        output.say(report.stopped, style="yellow")
    if applied is None:
        if report.fired or report.skills or any(told.get("lessons") for told in report.post_mortems):
            output.say("Nothing was kept; --apply does.")
        return
    lessons = ", ".join(f"{count} {status}" for status, count in applied.lessons.items()) or "nothing new"
    output.say(f"Lessons: {lessons}." + (f" Skill uses counted: {applied.skill_uses}." if applied.skill_uses else ""))
    for reason, count in applied.reasons.items():
        output.say(f"  {count} ×: {reason}", style="yellow")
    if applied.lessons.keys() & {"stored", "reinforced"}:
        output.undo(context, "rollback", "--to", moment)
    if applied.already:
        output.say(f"Already learned from: {output.counted(applied.already, 'turn')}.")


def _as_data(report: Report, applied: Applied | None, redactor: CountingRedactor) -> dict[str, Any]:
    return {
        "files": report.files,
        "detectors": [
            {
                "detector": detector,
                "fired": count,
                "rule": report.rules[detector],
                "firings": report.firings[detector],
            }
            for detector, count in report.fired.items()
        ],
        "skills": report.skills,
        "redacted": redactor.counts,
        "post_mortems": report.post_mortems,
        "stopped": report.stopped,
        "applied": applied,
    }
