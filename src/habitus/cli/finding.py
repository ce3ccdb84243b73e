"""`habitus skills search | select | eval` and `habitus why`: which skill for which request, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from habitus.cli import completion, output
from habitus.cli.opening import opened

if TYPE_CHECKING:
    from habitus.app import Habitus
    from habitus.skills.evals import CaseResult
    from habitus.skills.menu import Menu
    from habitus.skills.selection import Request, Selection

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Source = Annotated[str, typer.Option("--source", help="Where the request comes from: repl, talk, email, briefing …")]
Attach = Annotated[list[str] | None, typer.Option("--attach", help="An attached file; may be repeated.")]
Paths = Annotated[list[str] | None, typer.Option("--path", help="A file the work is about; may be repeated.")]
AsUser = Annotated[str | None, typer.Option("--user", help="Who asks.")]


def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What somebody would ask for.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Find skills by what a request says, not only by its words."""
    with opened(context) as habitus:
        results = habitus.finder.search(query, k=k)
        listing = {item.name: item for item in habitus.skills.listing()}
        if as_json:
            output.print_json({"results": results.hits, "fits": results.fits, "confidence": results.confidence})
            return
        if not results.hits:
            output.say("Nothing matches.")
            return
        if not results.fits:
            output.say("Nothing fits well; the nearest:", style="yellow")
        rows = []
        for hit in results.hits:
            summary = listing[hit.id].summary if hit.id in listing else None
            made_of = ", ".join(f"{name} {value:+.2f}" for name, value in list(hit.parts.items())[:3])
            rows.append((hit.id, f"{hit.score:.2f}", summary.cue if summary else "", made_of))
        output.table(("name", "score", "use it", "made of"), rows, wide="use it")


def select(
    context: typer.Context,
    request: Annotated[str, typer.Option("--request", "-r", help="What is asked.")] = "",
    source: Source = "repl",
    attach: Attach = None,
    path: Paths = None,
    user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """What would reach the prompt for a request: in full, on the menu, or left out, each with its reason."""
    with opened(context) as habitus:
        asked = _request(habitus, request, source, attach, path, user)
        selection, menu = _selected(habitus, asked)
        if as_json:
            output.print_json(_selection_json(selection, menu))
            return
        for choice in selection.eager:
            output.say(f"in full   {choice.name}: {choice.reason}", style="green")
        for name in menu.shown:
            output.say(f"menu      {name}")
        for name in menu.cut:
            output.say(f"no room   {name}", style="yellow")
        for name, reason in sorted(selection.left_out.items()):
            output.say(f"left out  {name}: {reason}", style="dim")
        output.say(f"The menu takes {menu.tokens} of {menu.budget} tokens.")


def why(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A skill.", autocompletion=completion.skill_names)],
    request: Annotated[str | None, typer.Option("--request", "-r", help="A request to explain it for.")] = None,
    turn: Annotated[str | None, typer.Option("--turn", help="A past turn to explain.")] = None,
    source: Source = "repl",
    attach: Attach = None,
    path: Paths = None,
    user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Why a skill did, or did not, reach the prompt."""
    from habitus.skills.why import explain

    if (request is None) == (turn is None):
        raise typer.BadParameter("Give --request TEXT or --turn ID.")
    with opened(context) as habitus:
        item = habitus.skills.find(name)
        if turn is not None:
            _print_past(habitus, item.name, turn, as_json)
            return
        asked = _request(habitus, request or "", source, attach, path, user)
        selection, menu = _selected(habitus, asked)
        eligible = selection.eligible()
        results = habitus.finder.search(asked.text, k=len(eligible) or 1, among=eligible)
        explained = explain(item, selection, menu, results)
        if as_json:
            output.print_json(explained)
        else:
            for sentence in explained.sentences():
                output.say(sentence)


def _print_past(habitus: Habitus, name: str, turn: str, as_json: bool) -> None:
    past = habitus.journal.turn(turn)
    found = [entry for entry in past.selected if entry.name == name]
    if as_json:
        output.print_json({"name": name, "turn": turn, "selected": found})
    elif not found:
        output.say(f"{name} was not known in turn {turn}.")
    else:
        for entry in found:
            version = f" (version {entry.version})" if entry.version else ""
            output.say(f"{name}{version}: {entry.place.value}, {entry.reason}.")


def _request(
    habitus: Habitus, text: str, source: str, attach: list[str] | None, path: list[str] | None, user: str | None
) -> Request:
    from habitus.skills.selection import Request

    return Request(
        text=text,
        source_type=source,
        user=habitus.user(user),
        attachments=tuple(attach or ()),
        paths=tuple(path or ()),
        now=habitus.clock(),
    )


def _selected(habitus: Habitus, request: Request) -> tuple[Selection, Menu]:
    from habitus.skills import menu

    selection = habitus.select(request)
    return selection, menu.compose(selection.menu, menu.budget_for(habitus.settings.context_tokens))


def _selection_json(selection: Selection, menu: Menu) -> dict[str, Any]:
    return {
        "eager": [{"name": choice.name, "reason": choice.reason} for choice in selection.eager],
        "menu": list(menu.shown),
        "cut": list(menu.cut),
        "left_out": [{"name": name, "reason": reason} for name, reason in sorted(selection.left_out.items())],
        "menu_tokens": menu.tokens,
        "menu_budget": menu.budget,
        "drops_memory": selection.drops_memory,
        "drops_persona": selection.drops_persona,
    }


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
    from habitus.skills import evals

    with opened(context) as habitus:
        library = habitus.skills
        if record is not None:
            if name is None:
                raise typer.BadParameter("--record needs the skill it belongs to.")
            item = library.find(name)
            content = evals.with_case(
                library.tree(name), item.name, evals.Case(query=record, should_trigger=should_trigger)
            )
            library.edit_file(name, evals.FILE, content, habitus.person("recorded a case"))
        wanted = [library.find(name)] if name else library.listing()
        results: list[CaseResult] = []
        for item in wanted:
            if item.summary is not None:
                cases = evals.read(item.name, library.tree(f"{item.name}@{item.layer}"))
                results += evals.run(item.name, cases, lambda query, name=item.name: _offered(habitus, name, query))  # type: ignore[misc]  # the default binds the loop variable
        _print_cases(results, name, as_json)
        if not all(result.passed for result in results):
            raise typer.Exit(1)


def _offered(habitus: Habitus, name: str, query: str) -> tuple[bool, str]:
    """Whether a skill comes up for a request: by a rule, or among the first of what fits."""
    from habitus.skills import evals

    selection = habitus.select(_request(habitus, query, "repl", None, None, None))
    for choice in selection.eager:
        if choice.name == name:
            return True, choice.reason
    eligible = {summary.name for summary in selection.menu}
    results = habitus.finder.search(query, k=max(evals.OFFERED, 10), among=eligible)
    ranked = [hit.id for hit in results.hits]
    rank = ranked.index(name) + 1 if name in ranked else None
    first = ranked[0] if ranked else "nothing"
    detail = f"rank {rank}, first is {first}" if rank else f"not found, first is {first}"
    return results.fits and rank is not None and rank <= evals.OFFERED, detail


def _print_cases(results: list[CaseResult], name: str | None, as_json: bool) -> None:
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
