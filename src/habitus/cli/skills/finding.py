"""`habitus skills search`, `select`, `eval` and `habitus why`: renders what `use_cases/finding.py` returns."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.agent.choosing import Why
from habitus.app import Habitus
from habitus.app.home import whose
from habitus.app.library import explaining
from habitus.app.library.explaining import PastWhy
from habitus.app.use_cases import finding
from habitus.app.use_cases.finding import (
    FoundSkills,
    SelectedSkills,
    SelectionRequest,
    SkillSearch,
    TriedCases,
    TriggerCases,
    WhyRequest,
)
from habitus.cli import output
from habitus.cli.completion import AllUsers, Wide
from habitus.errors import Misused

AsUser = Annotated[str | None, typer.Option("--user", help="Who asks.")]
Turn = Annotated[str | None, typer.Option("--turn", help="A past turn to explain; the last one without.")]


def perform_search(habitus: Habitus, wanted: SkillSearch) -> FoundSkills:
    """Index skills that are new, with a counter, then search."""
    # A first search may have to embed thousands of skills, which takes visible time.
    with output.counting(doing="Indexing") as progress:
        habitus.finder.catch_up(progress)
    return finding.search(habitus, wanted)


def search(context: typer.Context, wanted: SkillSearch, done: FoundSkills, wide: Wide = False) -> None:
    if not done.results:
        output.say("Nothing matches.")
        return
    if not done.fits:
        output.say("Nothing fits well; the nearest:", style="yellow")
    rows = []
    for hit in done.results:
        # The three largest parts explain a score; the rest is noise on a narrow screen.
        made_of = ", ".join(f"{name} {value:+.2f}" for name, value in list(hit.parts.items())[:3])
        rows.append((hit.id, f"{hit.score:.2f}", done.cues.get(hit.id, ""), made_of))
    columns = ("name", "score", "use it", "made of") if wide else ("name", "score", "use it")
    output.table(columns, [row[: len(columns)] for row in rows], wide="use it", is_cut=not wide)


def perform_select(habitus: Habitus, wanted: SelectionRequest, user: AsUser = None) -> SelectedSkills:
    return finding.selection_for(habitus, wanted, user)


def select(context: typer.Context, wanted: SelectionRequest, done: SelectedSkills) -> None:
    for choice in done.eager:
        output.say(f"in full   {choice.name}: {choice.reason}", style="green")
    for name in done.menu:
        output.say(f"menu      {name}")
    for name in done.cut:
        output.say(f"no room   {name}", style="yellow")
    for left in done.left_out:
        output.say(f"left out  {left.name}: {left.reason}", style="dim")
    output.say(f"The menu takes {done.menu_tokens} of {done.menu_budget} tokens.")


def perform_why(
    habitus: Habitus, wanted: WhyRequest, turn: Turn = None, user: AsUser = None, all_users: AllUsers = False
) -> Why | PastWhy:
    """Explain a selection for a given request, or else for a past turn."""
    if wanted.request is not None and turn is not None:
        raise Misused("Give --request TEXT or --turn ID, not both.")
    if wanted.request is not None:
        return finding.why_for(habitus, wanted, user)
    of = whose(habitus.settings, all_users)
    return explaining.why_in_turn(habitus.skills, habitus.journal, wanted.name, turn, user=of)


def why(context: typer.Context, wanted: WhyRequest, done: Why | PastWhy) -> None:
    if isinstance(done, Why):
        for sentence in done.sentences:
            output.say(sentence)
    elif not done.selected:
        output.say(f"{done.name} was not known in turn {done.turn}.")
    else:
        for entry in done.selected:
            version = f" (version {entry.version})" if entry.version else ""
            output.say(f"{done.name}{version}: {entry.place.value}, {entry.reason}.")


def evaluate(context: typer.Context, wanted: TriggerCases, done: TriedCases) -> None:
    for result in done.cases:
        mark, style = ("ok  ", "green") if result.passed else ("miss", "red")
        should = "should" if result.should_trigger else "should not"
        output.say(f"{mark} {result.name}: {should} come up for {result.query!r} ({result.detail})", style=style)
    if not done.cases:
        where = f"'{wanted.name}' has" if wanted.name else "No skill has"
        output.say(f"{where} no cases. Record one: habitus skills eval NAME --record 'a request'")
    else:
        missed = sum(not result.passed for result in done.cases)
        output.say(f"{len(done.cases)} cases, {missed} missed.")
