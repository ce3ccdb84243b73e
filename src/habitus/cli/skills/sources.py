"""`habitus skills import`, `add`, `update`, `export` and `publish`: renders results and asks the person.

`use_cases/sources.py` does the work.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from habitus.app import Habitus
from habitus.app.conversations import secrets
from habitus.app.home import Home
from habitus.app.library import updating
from habitus.app.library.publishing import Site
from habitus.app.library.updating import Exported, ImportOptions, TakenIn, Updated
from habitus.app.use_cases import sources
from habitus.app.use_cases.sources import Addition, Chosen, ExportRequest, ImportRequest, PublishRequest, UpdateRequest
from habitus.cli import output
from habitus.cli.opening import open_habitus
from habitus.errors import Misused
from habitus.skills.sources.discovery import Reach
from habitus.skills.sources.importing import Namesake, Result, Verdict, hold

Trusted = Annotated[
    bool, typer.Option("--trust", help="You have read it: findings don't hold it, and what it asks for counts.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Let it take the place of a skill from another origin.")]
Project = Annotated[
    bool, typer.Option("--project", help="Into .agents/skills of this project, locked in skills-lock.json.")
]


def perform_import_skills(
    habitus: Habitus, wanted: ImportRequest, replace: Replace = False, trust: Trusted = False, as_json: bool = False
) -> TakenIn:
    with _asking(wanted, trust=trust, replace=replace, is_quiet=as_json) as options:
        return sources.import_with(habitus, wanted, options)


def import_skills(context: typer.Context, wanted: ImportRequest, done: TakenIn) -> None:
    with open_habitus(context) as habitus:
        _print_taken(habitus, done)


def perform_add(
    habitus: Habitus,
    wanted: Addition,
    project: Project = False,
    replace: Replace = False,
    trust: Trusted = False,
    as_json: bool = False,
) -> TakenIn:
    """Add skills from any source; a person at the command line may also add them to a project."""
    with _asking(wanted, trust=trust, replace=replace, is_quiet=as_json) as options:
        add = updating.add_to_project if project else updating.add
        return add(habitus, wanted.source, wanted.only, options)


def add(context: typer.Context, wanted: Addition, done: TakenIn, project: Project = False) -> None:
    with open_habitus(context) as habitus:
        # The project's folder may be new, so the home is opened again as seen from there.
        _print_taken(habitus.seen_from(habitus.settings.cwd) if project else habitus, done)


def perform_update(habitus: Habitus, wanted: UpdateRequest, trust: Trusted = False, as_json: bool = False) -> Updated:
    with _asking(Chosen(overwrite=wanted.overwrite), trust=trust, is_quiet=as_json) as options:
        return updating.update(habitus, wanted.names, options, is_check=wanted.check)


def update(context: typer.Context, wanted: UpdateRequest, done: Updated) -> None:
    for note in (*done.notes, *(f"{name} is gone there; yours stays." for name in done.gone)):
        output.complain(note)
    for change in done.changes:
        output.say(change.diff)
    if wanted.check:
        count = output.count_of(len(done.changes), "skill")
        output.say(f"{count} would change." if done.changes else "Everything is up to date.")
    else:
        with open_habitus(context) as habitus:
            _print_taken(habitus, done.taken)


def perform_export(habitus: Habitus, wanted: ExportRequest) -> Exported:
    with output.counting() as progress:
        return sources.export_counting(habitus, wanted, progress)


def export(context: typer.Context, wanted: ExportRequest, done: Exported) -> None:
    for left in done.left_out:
        output.say(f"left out {left.name}: {left.reason}", style="yellow")
    for less in done.lost:
        output.say(f"{less.name} is not whole there: {less.reason}", style="yellow")
    output.say(f"Wrote {output.count_of(done.count, 'skill')} as '{done.format}' to {wanted.to}.")


def publish(context: typer.Context, wanted: PublishRequest, done: Site) -> None:
    skills = output.count_of(len(done.skills), "skill")
    output.say(f"{skills} in {wanted.folder}: {', '.join(done.skills) or 'none'}.")
    if done.skills:
        output.say(f"Serve that folder at the root of an address, or: habitus up --publish {wanted.folder}")


@contextmanager
def _asking(wanted: Chosen, *, trust: bool, replace: bool = False, is_quiet: bool) -> Iterator[ImportOptions]:
    """Yield import options that ask the person at a terminal, with a counter on standard error."""
    if wanted.keep_both and replace:
        raise Misused("Give --keep-both or --replace, not both.")
    is_alone = is_quiet or not sys.stdin.isatty()
    with output.counting(is_quiet=is_quiet) as progress:
        yield ImportOptions(
            overwrite=wanted.overwrite,
            is_trusted=trust,
            keep_both=wanted.keep_both,
            progress=progress,
            # Without a person to ask, a name conflict is held for review.
            choose=_always_replace if replace else hold if is_alone else _ask,
            reach=Reach() if is_alone else Reach(may_follow=_may_follow),
        )


def _may_follow(here: str, there: str) -> bool:
    return typer.confirm(f"{here} redirects to {there}. Follow it there?")


def _always_replace(name: str, here: str, there: str) -> Namesake:
    return Namesake.REPLACE


def _ask(name: str, here: str, there: str) -> Namesake:
    """Ask how to resolve a name conflict; any other key holds the skill for review."""
    said = typer.prompt(
        f"'{name}' here came from {here}; this one comes from {there}. (r)eplace it, (k)eep both, or let it (w)ait?",
        default="w",
    )
    return {"r": Namesake.REPLACE, "k": Namesake.KEEP_BOTH}.get(said.strip().lower()[:1], Namesake.HOLD)


def _print_taken(home: Home, taken: TakenIn) -> None:
    """Print the import results, then what needs attention: name conflicts, secrets, similar skills."""
    for result in taken.results:
        # A large import prints only entries that say something.
        if result.reason or result.notes or len(taken.results) <= 30:
            _print_result(result)
    output.say(_summary([result for result in taken.results if result.kind == "skill"]) or "Nothing.")
    if taken.namesakes:
        left_out = output.count_of(taken.namesakes, "skill")
        output.say(f"{left_out} left out: another one of the same name came first; --keep-both takes both.")
    lessons = [result for result in taken.results if result.kind == "lesson"]
    if lessons:
        output.say(f"{output.count_of(len(lessons), 'lesson')}: {_summary(lessons)}; see 'habitus lessons list'.")
    if asking := secrets.askers(home.skills, {result.name for result in taken.results}):
        asks = "asks" if len(asking) == 1 else "ask"
        output.say(f"{output.count_of(len(asking), 'skill')} {asks} for variables; see 'habitus secrets list'.")
    for name, finding in updating.likenesses(home.skills, home.finder, taken):
        output.say(f"note      {name}: {finding}", style="yellow")


def _print_result(result: Result) -> None:
    style = {Verdict.HELD: "yellow", Verdict.REFUSED: "red", Verdict.UNCHANGED: "dim"}.get(result.verdict, "green")
    output.say(f"{result.verdict.value:<9} {result.name}" + (f": {result.reason}" if result.reason else ""), style)
    for note in result.notes:
        output.say(f"          {note}", style="yellow")


def _summary(results: Sequence[Result]) -> str:
    """Return how many entries had each verdict."""
    counts = Counter(result.verdict for result in results)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
