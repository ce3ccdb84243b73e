"""`habitus skills select | eval` and `habitus why`: which skill for which request, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.app import Habitus, json_shapes
from habitus.app.home import whose
from habitus.app.library import explaining
from habitus.app.library.explaining import PastWhy
from habitus.cli import completion, output
from habitus.cli.completion import AllUsers, AsJson, Features, Paths, Resources
from habitus.cli.opening import open_habitus
from habitus.skills.choosing.evals import EvalCase, EvalResult
from habitus.skills.choosing.selection import Request

Source = Annotated[str, typer.Option("--source", help="Where the request comes from: repl, talk, email, briefing …")]
Attach = Annotated[list[str] | None, typer.Option("--attach", help="An attached file; may be repeated.")]
AsUser = Annotated[str | None, typer.Option("--user", help="Who asks.")]


def select(
    context: typer.Context,
    request: Annotated[str, typer.Option("--request", "-r", help="What is asked.")] = "",
    source: Source = "repl",
    attach: Attach = None,
    path: Paths = None,
    resource: Resources = None,
    feature: Features = None,
    user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """What would reach the prompt for a request: in full, on the menu, or left out, each with its reason."""
    with open_habitus(context) as habitus:
        asked = _request(
            habitus,
            request,
            user=user,
            source=source,
            attach=attach,
            path=path,
            resource=resource,
            feature=feature,
        )
        seen = explaining.prospect(habitus, asked)
        if as_json:
            output.print_json(json_shapes.prospect(seen, explaining.best_of(habitus.finder, seen, request)))
            return
        for choice in seen.selection.eager:
            output.say(f"in full   {choice.name}: {choice.reason}", style="green")
        for name in seen.on_menu:
            output.say(f"menu      {name}")
        for name in seen.cut:
            output.say(f"no room   {name}", style="yellow")
        for name, reason in sorted(seen.selection.left_out.items()):
            output.say(f"left out  {name}: {reason}", style="dim")
        output.say(f"The menu takes {seen.menu.tokens} of {seen.menu.budget} tokens.")


def _request(
    habitus: Habitus,
    text: str,
    *,
    user: str | None,
    source: str,
    attach: Attach,
    path: Paths,
    resource: Resources,
    feature: Features,
) -> Request:
    return explaining.request_of(
        habitus,
        text,
        user,
        source_type=source,
        attachments=tuple(attach or ()),
        paths=tuple(path or ()),
        resources=frozenset(resource or ()),
        features=frozenset(feature or ()),
    )


def why(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A skill.", autocompletion=completion.skill_names)],
    request: Annotated[str | None, typer.Option("--request", "-r", help="A request to explain it for.")] = None,
    turn: Annotated[str | None, typer.Option("--turn", help="A past turn to explain; the last one without.")] = None,
    source: Source = "repl",
    attach: Attach = None,
    path: Paths = None,
    resource: Resources = None,
    feature: Features = None,
    user: AsUser = None,
    all_users: AllUsers = False,
    as_json: AsJson = False,
) -> None:
    """Why a skill did, or did not, reach the prompt: of the last turn, of a past one or of a request."""
    if request is not None and turn is not None:
        raise typer.BadParameter("Give --request TEXT or --turn ID, not both.")
    with open_habitus(context) as habitus:
        if request is None:
            past = explaining.why_in_turn(
                habitus.skills, habitus.journal, name, turn, user=whose(habitus.settings, all_users)
            )
            _print_past(past, as_json)
            return
        asked = _request(
            habitus,
            request,
            user=user,
            source=source,
            attach=attach,
            path=path,
            resource=resource,
            feature=feature,
        )
        explained = explaining.why(habitus, name, asked)
        if as_json:
            output.print_json(json_shapes.why(explained))
        else:
            for sentence in explained.sentences():
                output.say(sentence)


def _print_past(past: PastWhy, as_json: bool) -> None:
    if as_json:
        output.print_json(past)
    elif not past.selected:
        output.say(f"{past.name} was not known in turn {past.turn}.")
    else:
        for entry in past.selected:
            version = f" (version {entry.version})" if entry.version else ""
            output.say(f"{past.name}{version}: {entry.place.value}, {entry.reason}.")


def evaluate(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="One skill; all by default.", autocompletion=completion.skill_names)
    ] = None,
    record: Annotated[str | None, typer.Option("--record", help="Keep this request as a case of the skill.")] = None,
    should_trigger: Annotated[
        bool, typer.Option("--should/--should-not", help="With --record: whether it should bring the skill up.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Run the trigger cases that skills carry in evals/evals.json; exit code 1 on a miss."""
    with open_habitus(context) as habitus:
        if record is not None:
            if name is None:
                raise typer.BadParameter("--record needs the skill it belongs to.")
            explaining.record(habitus, name, EvalCase(query=record, should_trigger=should_trigger))
        results = explaining.evaluate(habitus, name)
        _print_cases(results, name, as_json)
        if not all(result.passed for result in results):
            raise typer.Exit(1)


def _print_cases(results: tuple[EvalResult, ...], name: str | None, as_json: bool) -> None:
    if as_json:
        output.print_json({"cases": [output.plain(result) | {"passed": result.passed} for result in results]})
        return
    for result in results:
        mark, style = ("ok  ", "green") if result.passed else ("miss", "red")
        wanted = "should" if result.should_trigger else "should not"
        output.say(f"{mark} {result.name}: {wanted} come up for {result.query!r} ({result.detail})", style=style)
    if not results:
        where = f"'{name}' has" if name else "No skill has"
        output.say(f"{where} no cases. Record one: habitus skills eval NAME --record 'a request'")
    else:
        missed = sum(not result.passed for result in results)
        output.say(f"{len(results)} cases, {missed} missed.")
