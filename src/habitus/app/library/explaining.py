"""Explain a prompt: which skills reach it for a request, and why one does or doesn't.

The reason is a rule, a rank, the budget, a gate, or a copy in a higher layer. Turn, command line and tour share this
code, so they show the same menu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from habitus.agent.choosing import Why, choose, explain, near
from habitus.agent.session import Session
from habitus.agent.user_input import inside
from habitus.app.home import Home
from habitus.errors import Invalid
from habitus.journal.journal import Journal
from habitus.journal.model import Place, Selected
from habitus.search import Hit, Results
from habitus.skills import names
from habitus.skills.choosing import evals, menu
from habitus.skills.choosing.evals import EvalCase, EvalResult
from habitus.skills.choosing.finding import Finder
from habitus.skills.choosing.menu import Menu
from habitus.skills.choosing.selection import Request, Selection, User
from habitus.skills.layers.listing import Listed, Snapshot
from habitus.skills.library import Library
from habitus.skills.lifecycle import GateContext, is_barred
from habitus.skills.model import Summary
from habitus.tools.tools import Tools


@dataclass(frozen=True, kw_only=True, slots=True)
class Prospect:
    """The skills that would reach the prompt for a request."""

    selection: Selection
    menu: Menu

    @property
    def on_menu(self) -> tuple[str, ...]:
        """Return the skills that have a line on the menu."""
        cut = frozenset(self.menu.cut)
        return tuple(summary.name for summary in self.selection.menu if summary.name not in cut)

    @property
    def cut(self) -> tuple[str, ...]:
        """Return the skills that the menu has no room for."""
        cut = frozenset(self.menu.cut)
        return tuple(summary.name for summary in self.selection.menu if summary.name in cut)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """A previewed request: the skills it would get, and the best matches with their scores."""

    prospect: Prospect
    best: tuple[tuple[Summary, Hit], ...]
    # The relevance a skill needs to be offered.
    least: float
    # Skills that the agent is pointed to.
    named: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class PastWhy:
    """A skill's part in one past turn, from the journal; `selected` is empty if it was not known then."""

    name: str
    turn: str
    selected: tuple[Selected, ...]


def request_of(home: Home, text: str, user: str | None = None, *, paths: Sequence[str] = (), **around: Any) -> Request:
    """Return a request as this user would make it now; `around` are more fields of it."""
    found = tuple(inside(path, home.project) for path in paths)
    return Request(text=text, user=home.user(user), now=home.clock(), paths=found, **around)


def prospect(home: Home, request: Request) -> Prospect:
    """Preview the skills that a request would get, with the menu of a session."""
    counters = home.skills.all_counters()
    # A session's menu is made before its first request, so the words of this one must not shape it.
    drawn = menu.make_menu(select(home, request.bare()), counters, home.settings.context_tokens)
    return Prospect(selection=select(home, request), menu=drawn)


# How many matches are shown.
_BEST = 8


def try_request(home: Home, text: str) -> Tried:
    """Preview the skills that an agent would get for these words."""
    seen = prospect(home, request_of(home, text))
    found = best_of(home.finder, seen, text)
    known = {summary.name: summary for summary in seen.selection.menu}
    known |= {choice.name: choice.summary for choice in seen.selection.eager}
    on_menu = frozenset(summary.name for summary in seen.selection.menu)
    named = frozenset(hit.id for hit in near(partial(home.finder.search, text), on_menu))
    best = tuple((known[hit.id], hit) for hit in found.hits)
    return Tried(prospect=seen, best=best, least=found.least, named=named)


def best_of(finder: Finder, seen: Prospect, text: str) -> Results:
    """Rank the skills that the agent may open by relevance to the text."""
    return finder.search(text, k=_BEST, among=seen.selection.eligible())


def why(home: Home, name: str, request: Request) -> Why:
    """Explain why a skill would, or would not, reach the prompt of this request."""
    seen = prospect(home, request)
    return _why(home.skills, home.finder, home.skills.find(name), request.text, seen.selection, seen.menu)


def why_in_turn(skills: Library, journal: Journal, name: str, turn: str | None, *, user: str | None) -> PastWhy:
    """Explain a skill's part in a past turn of this user, by default the last turn; None means any user."""
    item = skills.find(name)
    if turn is None:
        last = journal.latest(limit=1, user=user)
        if not last:
            raise Invalid("There was no turn yet.", hint=f"Try: habitus why {item.name} --request TEXT")
        turn = last[0].id
    found = tuple(entry for entry in journal.turn(turn, user=user).selected if entry.name == item.name)
    return PastWhy(name=item.name, turn=turn, selected=found)


def why_in_session(home: Home, session: Session, name: str) -> tuple[Why, PastWhy]:
    """Explain a skill's part in the session's last turn, and return what the model did with it."""
    item = home.skills.find(name)
    last = session.last
    if last is None or last.selection is None:
        raise Invalid("Nothing was asked yet.", hint=f"Ask something first; then /why {item.name}.")
    if item.name not in last.selection.eligible() and item.name not in last.selection.left_out:
        raise Invalid(f"'{item.name}' was not there yet when the last turn began.", hint="Ask again; then look.")
    drawn = last.composed.menu if last.composed is not None else None
    drawn = drawn or Menu(text="", tokens=0, budget=0, shown=())
    found = _why(home.skills, home.finder, item, last.said.request.text, last.selection, drawn)
    past = why_in_turn(home.skills, home.journal, item.name, last.id, user=last.said.request.user.name)
    withheld = next((entry for entry in past.selected if entry.place is Place.WITHHELD), None)
    return found if withheld is None else replace(found, place=withheld.place, reason=withheld.reason), past


def _why(skills: Library, finder: Finder, item: Listed, text: str, selection: Selection, drawn: Menu) -> Why:
    eligible = selection.eligible()
    found = explain(item, selection, drawn, finder.search(text, k=len(eligible) or 1, among=eligible))
    front = skills.find(item.name)
    if front.layer == item.layer:
        return found
    if item.layer in front.waiting:
        return replace(found, place=Place.LEFT_OUT, reason=f"{item.state.value}: {item.reason}")
    return replace(found, place=Place.LEFT_OUT, reason=f"hidden by {front.name}@{front.layer}")


def select(home: Home, request: Request) -> Selection:
    """Select skills as a session would: with stickiness from the journal and the session's tools."""
    snapshot = home.skills.snapshot(user=request.user.name)
    return choose(snapshot, request, gates_at(home, snapshot, request.user), home.journal)


def gates_at(home: Home, snapshot: Snapshot, user: User) -> GateContext:
    """Return the gates for a user who has the tools of a session."""
    gates = home.gates(user)
    tools = names.BUILT_IN_TOOLS | _code_tools(home.tools, snapshot, replace(gates, tools=names.BUILT_IN_TOOLS))
    return replace(gates, tools=tools)


def _code_tools(tools: Tools, snapshot: Snapshot, gates: GateContext) -> frozenset[str]:
    open_here = {item.name for item in snapshot.with_code if item.summary and not is_barred(item.summary, gates)}
    if not open_here:
        return frozenset()
    return frozenset(tool.name for tool in tools.active(at=snapshot) if tool.name in open_here)


def record(home: Home, name: str, case: EvalCase) -> None:
    """Store a trigger case with the skill; the same request replaces an earlier case."""
    item = home.skills.find(name)
    content = evals.with_case(home.skills.tree(name), item.name, case)
    home.skills.edit_file(name, evals.FILE, content, home.person("recorded a case"))


def evaluate(home: Home, name: str | None = None) -> tuple[EvalResult, ...]:
    """Run the trigger cases of one skill, or of all."""
    library = home.skills
    chosen = [library.find(name)] if name else library.listing()
    return tuple(result for item in chosen if item.summary is not None for result in evaluate_skill(home, item))


def evaluate_skill(home: Home, item: Listed) -> tuple[EvalResult, ...]:
    """Run the trigger cases of one listed skill."""
    tree = home.skills.layer(item.layer).store.tree(item.name) or {}
    return tuple(_evaluate_case(home, item.name, case) for case in evals.read(item.name, tree))


def _evaluate_case(home: Home, name: str, case: EvalCase) -> EvalResult:
    triggered, detail = _comes_up(home, name, case.query)
    return EvalResult(name=name, triggered=triggered, detail=detail, **asdict(case))


def _comes_up(home: Home, name: str, query: str) -> tuple[bool, str]:
    """Return whether a skill is offered for a request, by a rule or among the top matches, and a line of detail."""
    selection = select(home, request_of(home, query))
    for choice in selection.eager:
        if choice.name == name:
            return True, choice.reason
    on_menu = {summary.name for summary in selection.menu}
    results = home.finder.search(query, k=max(evals.OFFERED, 10), among=on_menu)
    ranked = [hit.id for hit in results.hits]
    rank = ranked.index(name) + 1 if name in ranked else None
    first = ranked[0] if ranked else "nothing"
    detail = f"rank {rank}, first is {first}" if rank else f"not found, first is {first}"
    return results.fits and rank is not None and rank <= evals.OFFERED, detail
