"""`habitus skills search`, `select`, `eval` and `habitus skills why`: renders what `use_cases/finding.py` returns."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.agent.choosing.placement_explanation import SkillPlacementExplanation
from habitus.app import Habitus
from habitus.app.home import resolve_user_filter
from habitus.app.library import explaining
from habitus.app.use_cases import finding
from habitus.cli import output
from habitus.cli.completion import AllUsersOption, WideOption
from habitus.errors import InvalidOptions

UserOption = Annotated[str | None, typer.Option("--user", help="The user who asks.")]
TurnOption = Annotated[str | None, typer.Option("--turn", help="A past turn to explain; default is the last one.")]


def perform_search_skills(habitus: Habitus, q: str, limit: int) -> finding.SkillSearchResult:
    """Index skills that are new, with a counter, then search."""
    # A first search may have to embed thousands of skills, which takes visible time.
    with output.show_progress_counter(label="Indexing") as progress:
        habitus.finder.update_index(progress)
    return finding.search_skills(habitus, q=q, limit=limit)


def print_result_of_search_skills(
    context: typer.Context, result: finding.SkillSearchResult, wide: WideOption = False
) -> None:
    if not result.results:
        output.print_line("No matches.")
        return
    if not result.fits:
        output.print_line("No good match; closest:", style="yellow")
    rows = []
    for hit in result.results:
        # The three largest parts explain a score; the rest is noise on a narrow screen.
        made_of = ", ".join(f"{name} {value:+.2f}" for name, value in list(hit.parts.items())[:3])
        rows.append((hit.id, f"{hit.score:.2f}", result.when_to_use.get(hit.id, ""), made_of))
    columns = ("name", "score", "when to use", "score parts") if wide else ("name", "score", "when to use")
    output.print_table(columns, [row[: len(columns)] for row in rows], wide="when to use", is_cut=not wide)


def perform_select_skills(
    habitus: Habitus, request: finding.SelectSkillsRequest, user: UserOption = None
) -> finding.SkillSelectionResult:
    return finding.select_skills_for_user(habitus, request, user)


def print_result_of_select_skills(context: typer.Context, result: finding.SkillSelectionResult) -> None:
    for choice in result.eager:
        output.print_line(f"in full   {choice.name}: {choice.reason}", style="green")
    for name in result.menu:
        output.print_line(f"menu      {name}")
    for name in result.cut:
        output.print_line(f"cut       {name}", style="yellow")
    for left in result.left_out:
        output.print_line(f"left out  {left.name}: {left.reason}", style="dim")
    output.print_paging_hint(len(result.cut) + len(result.left_out), result.total, result.next)
    output.print_line(f"The menu takes {result.menu_tokens} of {result.menu_budget} tokens.")


def perform_explain_skill(
    habitus: Habitus,
    request: finding.ExplainSkillRequest,
    turn: TurnOption = None,
    user: UserOption = None,
    all_users: AllUsersOption = False,
) -> SkillPlacementExplanation | explaining.PastSkillSelectionExplanation:
    """Explain a selection for a given request, or else for a past turn."""
    if request.request is not None and turn is not None:
        raise InvalidOptions("Give --request TEXT or --turn ID, not both.")
    if request.request is not None:
        return finding.explain_skill_for_user(habitus, request, user)
    of = resolve_user_filter(habitus.settings, all_users)
    return explaining.explain_skill_selection_in_past_turn(habitus.skills, habitus.journal, request.name, turn, user=of)


def print_result_of_explain_skill(
    context: typer.Context, result: SkillPlacementExplanation | explaining.PastSkillSelectionExplanation
) -> None:
    if isinstance(result, SkillPlacementExplanation):
        for sentence in result.sentences:
            output.print_line(sentence)
    elif not result.selected:
        output.print_line(f"{result.name} did not exist in turn {result.turn}.")
    else:
        for entry in result.selected:
            version = f" (version {entry.version})" if entry.version else ""
            output.print_line(f"{result.name}{version}: {entry.place.value}, {entry.reason}.")


def print_result_of_evaluate_skills(
    context: typer.Context, outcome: finding.SkillTriggerEvalsResult, name: str | None
) -> None:
    for result in outcome.cases:
        mark, style = ("ok  ", "green") if result.passed else ("miss", "red")
        should = "should" if result.should_trigger else "should not"
        output.print_line(
            f"{mark} {result.name}: {should} be selected for {result.query!r} ({result.detail})", style=style
        )
    if not outcome.cases:
        where = f"'{name}' has" if name else "No skill has"
        output.print_line(f"{where} no cases. Add one: habitus skills eval NAME --record 'a request'")
    else:
        missed = sum(not result.passed for result in outcome.cases)
        output.print_line(f"{len(outcome.cases)} cases, {missed} missed.")
