"""`habitus skills import | add | update | export | publish | scan`: skills from elsewhere, looked at first, and to
elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from habitus.app import Habitus, json_shapes
from habitus.app.conversations import secrets
from habitus.app.conversations.models import models as models_of
from habitus.app.home import Home
from habitus.app.library import publishing, updating
from habitus.app.library import uploading as use_case
from habitus.app.library.updating import Manner, TakenIn, Updated
from habitus.app.library.uploading import Looked, LookedAgain
from habitus.app.tasks.storing import examination_to_share
from habitus.cli import output
from habitus.cli.completion import AsJson
from habitus.cli.opening import open_habitus
from habitus.errors import Misused
from habitus.files import Tree, given_path
from habitus.learning.budget import CapReached
from habitus.llm.model import NoUsableAnswer, ProviderFault
from habitus.screening.findings import Risk
from habitus.skills.formats.detect import FORMATS
from habitus.skills.sources.discovery import Reach
from habitus.skills.sources.importing import Namesake, Result, Verdict, hold

_FORMATS = f"{', '.join(format.name for format in FORMATS)}."
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Take theirs where one here differs; history stays.")]
Trusted = Annotated[
    bool, typer.Option("--trust", help="You have read it: findings don't hold it, and what it asks for counts.")
]
KeepBoth = Annotated[bool, typer.Option("--keep-both", help="Of two skills of one name take the second as NAME-2.")]
Replace = Annotated[bool, typer.Option("--replace", help="Let it take the place of a skill from another origin.")]


def import_skills(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="A file, directory, archive, or database address.")],
    only: Annotated[list[str] | None, typer.Option("--skill", "-s", help="Only this skill; may be repeated.")] = None,
    layer: Annotated[str, typer.Option(help="The layer to import into.")] = "user",
    overwrite: Overwrite = False,
    keep_both: KeepBoth = False,
    replace: Replace = False,
    trust: Trusted = False,
    as_json: AsJson = False,
) -> None:
    """Take in skills of any known layout; each ends imported, updated, unchanged, held or refused, with a reason."""
    source = path if "://" in path else given_path(path)
    with open_habitus(context) as habitus:
        with _manner(overwrite, trust, as_json, keep_both=keep_both, replace=replace) as manner:
            taken = updating.take_in(habitus, source, only or (), layer, manner)
        _print_taken(context, habitus, taken, as_json)


def add(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="OWNER/REPO[/FOLDER], a site, an archive or repository by address, or a path.")
    ],
    only: Annotated[list[str] | None, typer.Option("--skill", "-s", help="Only this skill; may be repeated.")] = None,
    project: Annotated[
        bool, typer.Option("--project", help="Into .agents/skills of this project, locked in skills-lock.json.")
    ] = False,
    overwrite: Overwrite = False,
    keep_both: KeepBoth = False,
    replace: Replace = False,
    trust: Trusted = False,
    as_json: AsJson = False,
) -> None:
    """Fetch skills, scan them, take them in, and lock where they came from and at which commit."""
    with open_habitus(context) as habitus:
        with _manner(overwrite, trust, as_json, keep_both=keep_both, replace=replace) as manner:
            taken = (updating.add_to_project if project else updating.add)(habitus, source, only or (), manner)
        seen = habitus.seen_from(habitus.settings.cwd) if project else habitus  # with a folder that is new
        _print_taken(context, seen, taken, as_json)


def update(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Only these skills.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only show what would change; exit code 1 if any.")] = False,
    overwrite: Overwrite = False,
    trust: Trusted = False,
    as_json: AsJson = False,
) -> None:
    """Fetch added skills again, show what changed, and take it in; a local edit is never overwritten."""
    with open_habitus(context) as habitus:
        with _manner(overwrite, trust, as_json) as manner:
            updated = updating.update(habitus, names or (), manner, is_check=check)
        for note in updated.notes:
            output.complain(note)
        for name in updated.gone:
            output.complain(f"{name} is gone there; yours stays.")
        _print_update(context, habitus, updated, is_check=check, as_json=as_json)
        if check and updated.changes:
            raise typer.Exit(1)


def _print_update(context: typer.Context, habitus: Habitus, updated: Updated, *, is_check: bool, as_json: bool) -> None:
    changes = updated.changes
    if as_json:
        output.say_done(
            context, as_json, {"changes": changes, **json_shapes.result(updated.taken)}, undo=updated.taken.undo
        )
        return
    for change in changes:
        output.say(change.diff)
    if is_check:
        output.say(
            f"{output.count_of(len(changes), 'skill')} would change." if changes else "Everything is up to date."
        )
    else:
        _print_taken(context, habitus, updated.taken, as_json)


def export(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="A skill; or --all.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every skill that can be loaded.")] = False,
    format_name: Annotated[str, typer.Option("--format", help=_FORMATS)] = "skill",
    to: Annotated[Path, typer.Option("--to", help="Where to write it.")] = Path(),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there; it is kept beside.")] = False,
    with_tasks: Annotated[bool, typer.Option("--with-tasks", help="With what they are examined by, redacted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write skills in another system's layout, with their counters."""
    if (name is None) == (not everything):
        raise typer.BadParameter("Give one skill, or --all.")
    if to == Path():
        raise typer.BadParameter("Say where to write it.", param_hint="--to")
    with open_habitus(context) as habitus:
        with output.counting(is_quiet=as_json) as progress:
            tasks: Callable[[str], Tree] = partial(examination_to_share, habitus) if with_tasks else lambda name: {}
            done = updating.export(
                habitus.skills, name, format_name, to, overwrite=overwrite, tasks=tasks, progress=progress
            )
        if as_json:
            output.print_json({"written": done.written.paths, "left_out": done.written.left_out, "lost": done.lost})
            return
        for left in done.written.left_out:
            output.say(f"left out {left.name}: {left.reason}", style="yellow")
        for less in done.lost:
            output.say(f"{less.name} is not whole there: {less.reason}", style="yellow")
        output.say(f"Wrote {output.count_of(done.count, 'skill')} as '{done.format}' to {to}.")


def publish(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Where to write the site.")],
    names: Annotated[list[str] | None, typer.Argument(help="The skills.")] = None,
    tag: Annotated[str, typer.Option("--tag", help="Also all skills with this tag.")] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Take them out of the site instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a static site of chosen skills, which 'habitus skills add https://…' and other tools read."""
    with open_habitus(context) as habitus:
        made = publishing.publish(habitus, given_path(folder), names or (), tag=tag, remove=remove)
        back = ["skills", "publish", str(folder), *made.added, "--remove"] if made.added else []
        lines = [f"{output.count_of(len(made.skills), 'skill')} in {folder}: {', '.join(made.skills) or 'none'}."]
        if made.skills:
            lines.append("Serve that folder at the root of an address, or: habitus up --publish " + str(folder))
        output.say_done(context, as_json, made, *lines, undo=back)


@contextmanager
def _manner(
    overwrite: bool, is_trusted: bool, is_quiet: bool, *, keep_both: bool = False, replace: bool = False
) -> Iterator[Manner]:
    """With a counter on standard error while many are taken in."""
    if keep_both and replace:
        raise Misused("Give --keep-both or --replace, not both.")
    with output.counting(is_quiet=is_quiet) as progress:
        choose = _always_replace if replace else hold if is_quiet or not sys.stdin.isatty() else _ask
        reach = Reach() if is_quiet or not sys.stdin.isatty() else Reach(may_follow=_may_follow)
        yield Manner(
            overwrite=overwrite,
            is_trusted=is_trusted,
            keep_both=keep_both,
            progress=progress,
            choose=choose,
            reach=reach,
        )


def _may_follow(here: str, there: str) -> bool:
    return typer.confirm(f"{here} redirects to {there}. Follow it there?")


def _always_replace(name: str, here: str, there: str) -> Namesake:
    return Namesake.REPLACE


def _ask(name: str, here: str, there: str) -> Namesake:
    """A person at a terminal decides; the rest of the keys let it wait."""
    said = typer.prompt(
        f"'{name}' here came from {here}; this one comes from {there}. (r)eplace it, (k)eep both, or let it (w)ait?",
        default="w",
    )
    return {"r": Namesake.REPLACE, "k": Namesake.KEEP_BOTH}.get(said.strip().lower()[:1], Namesake.HOLD)


def _print_taken(context: typer.Context, habitus: Habitus, taken: TakenIn, as_json: bool) -> None:
    if as_json:
        output.say_done(context, as_json, json_shapes.result(taken), undo=taken.undo)
    else:
        for result in taken.results:
            if result.reason or result.notes or len(taken.results) <= 30:
                _print_result(result)
        output.say(_summary([result for result in taken.results if result.kind == "skill"]) or "Nothing.")
        if taken.namesakes:
            left_out = output.count_of(taken.namesakes, "skill")
            output.say(f"{left_out} left out: another one of the same name came first; --keep-both takes both.")
        lessons = [result for result in taken.results if result.kind == "lesson"]
        if lessons:
            output.say(f"{output.count_of(len(lessons), 'lesson')}: {_summary(lessons)}; see 'habitus lessons list'.")
        if asking := secrets.askers(habitus.skills, {result.name for result in taken.results}):
            asks = "asks" if len(asking) == 1 else "ask"
            output.say(f"{output.count_of(len(asking), 'skill')} {asks} for variables; see 'habitus secrets list'.")
        for name, finding in updating.likenesses(habitus.skills, habitus.finder, taken):
            output.say(f"note      {name}: {finding}", style="yellow")
        if taken.undo:
            output.say_undo(context, *taken.undo)
    if taken.is_refused:
        raise typer.Exit(1)


def _print_result(result: Result) -> None:
    style = {Verdict.HELD: "yellow", Verdict.REFUSED: "red", Verdict.UNCHANGED: "dim"}.get(result.verdict, "green")
    output.say(f"{result.verdict.value:<9} {result.name}" + (f": {result.reason}" if result.reason else ""), style)
    for note in result.notes:
        output.say(f"          {note}", style="yellow")


def _summary(results: Sequence[Result]) -> str:
    counts = Counter(result.verdict for result in results)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])


def scan(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="A file, a directory or an archive.")],
    second_look: Annotated[
        bool, typer.Option("--second-look", help="Also ask your model about what rules can't see; it decides nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What is suspicious about skills, or any files, that are not here yet. Exit code 1 if an import would wait."""
    with open_habitus(context) as habitus:
        report = use_case.look_at(habitus.skills, habitus.screening, path)
        again = asyncio.run(_look_again(habitus, path)) if second_look else None
    if as_json:
        said = {} if again is None else {"second_look": output.plain(again)}
        output.print_json({**output.plain(report), **said})
    else:
        _print_report(report)
        _print_second_look(again)
    if report.held:
        raise typer.Exit(1)


async def _look_again(home: Home, path: str) -> list[LookedAgain]:
    """The doubts of the person's own model; a fault or the cap is one line, and the scan stands as it is."""
    models = models_of(home.settings, os.environ)
    try:
        return await use_case.look_again(home, path, models.main)
    except (CapReached, ProviderFault, NoUsableAnswer, TimeoutError) as fault:
        output.complain(f"No second look: {str(fault) or 'the model did not answer in time.'}")
        return []
    finally:
        await models.close()


def _print_second_look(again: list[LookedAgain] | None) -> None:
    for each in again or ():
        for doubt in each.doubts:
            where = f"{each.name}/{doubt.path}:{doubt.line}"
            output.say(f"{doubt.model} (a model's verdict): {where}: {doubt.why} “{doubt.quote}”", style="dim")
        if each.is_cut:
            output.say(
                f"The model was shown only a part of {each.name}: it is too long, or the day's tokens are spent."
            )
    if again is not None:
        count = sum(len(each.doubts) for each in again)
        output.say(f"Second look: {output.count_of(count, 'line')} doubted. You decide; nothing is held for it.")


def _print_report(report: Looked) -> None:
    for each in report.scanned:
        for found in each.findings:
            where = "" if found.path == each.name else f"{each.name}/"
            output.say(
                f"{found.severity.value}: {where}{found}", style="red" if found.severity is Risk.HIGH else "yellow"
            )
    for left in report.not_read:
        output.say(f"not read: {left.name or left.origin}: {left.reason}", style="yellow")
    held = sum(each.is_held for each in report.scanned)
    with_findings = sum(bool(each.findings) for each in report.scanned)
    told = f"findings in {with_findings}; {held} would wait for you." if with_findings else "nothing suspicious."
    output.say(f"{len(report.scanned)} scanned: {told}")
