"""Explain a prompt: which skills reach it for a request, and why one does or doesn't.

The reason is a rule, a rank, the budget, a gate, or a copy in a higher layer. Turn, command line and tour share this
code, so they show the same menu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from habitus.agent.choosing.placement_explanation import SkillPlacementExplanation, explain_skill_placement
from habitus.agent.choosing.skill_selection import choose_skills, find_relevant_skills_on_menu
from habitus.agent.session import Session
from habitus.agent.user_input import make_path_relative_to_project
from habitus.app.home import Home
from habitus.app.learning.compared_versions import describe_running_comparison_of_skill
from habitus.app.library.layers import build_skill_gate_context
from habitus.errors import Invalid
from habitus.journal.journal import Journal
from habitus.journal.model import SelectedSkill, SkillPlacementKind
from habitus.search.model import IndexHit, SearchResults
from habitus.skills import names
from habitus.skills.choosing import evals, menu
from habitus.skills.choosing.selection import RequestUser, SkillSelection, UserRequest
from habitus.skills.choosing.skill_finder import SkillFinder
from habitus.skills.layers.listing import LibrarySnapshot, ListedSkill
from habitus.skills.library import Library
from habitus.skills.lifecycle import GateContext, is_unavailable
from habitus.skills.model import SkillSummary
from habitus.tools.service import ToolService


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillSelectionPreview:
    """The skills that would reach the prompt for a request."""

    selection: SkillSelection
    menu: menu.SkillMenu

    @property
    def skills_on_menu(self) -> tuple[str, ...]:
        """Return the skills that have a line on the menu."""
        cut = frozenset(self.menu.cut)
        return tuple(summary.name for summary in self.selection.menu if summary.name not in cut)

    @property
    def skills_cut_from_menu(self) -> tuple[str, ...]:
        """Return the skills that the menu has no room for."""
        cut = frozenset(self.menu.cut)
        return tuple(summary.name for summary in self.selection.menu if summary.name in cut)


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestSkillsPreview:
    """A previewed request: the skills it would get, and the best matches with their scores."""

    preview: SkillSelectionPreview
    best: tuple[tuple[SkillSummary, IndexHit], ...]
    # The relevance a skill needs to be offered.
    min_relevance: float
    # Skills that the agent is pointed to.
    suggested: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class PastSkillSelectionExplanation:
    """A skill's part in one past turn, from the journal; `selected` is empty if it was not known then."""

    name: str
    turn: str
    selected: tuple[SelectedSkill, ...]


def build_request_of_user(
    home: Home, text: str, user: str | None = None, *, paths: Sequence[str] = (), **around: Any
) -> UserRequest:
    """Return a request as this user would make it now; `around` are more fields of it."""
    found = tuple(make_path_relative_to_project(path, home.project) for path in paths)
    return UserRequest(text=text, user=home.get_user(user), now=home.clock(), paths=found, **around)


def preview_skills_for_request(home: Home, request: UserRequest) -> SkillSelectionPreview:
    """Preview the skills that a request would get, with the menu of a session."""
    counters = home.skills.read_all_counters()
    # A session's menu is made before its first request, so the words of this one must not shape it.
    drawn = menu.build_menu_for_selection(
        select_skills_for_request(home, request.keep_only_user_and_channel()), counters, build_skill_menu_options(home)
    )
    return SkillSelectionPreview(selection=select_skills_for_request(home, request), menu=drawn)


def build_skill_menu_options(home: Home) -> menu.MenuOptions:
    """Return what the settings and the project say about the menu."""
    settings = home.settings
    return menu.MenuOptions(
        budget=menu.compute_menu_budget(settings.context_tokens, settings.menu_tokens),
        clock=home.clock,
        pinned=frozenset(settings.menu_pinned),
        project=home.finder.list_project_words,
    )


# How many matches are shown.
_MAX_MATCHES = 8


def preview_skills_for_text(home: Home, text: str) -> RequestSkillsPreview:
    """Preview the skills that an agent would get for these words."""
    seen = preview_skills_for_request(home, build_request_of_user(home, text))
    found = rank_eligible_skills(home.finder, seen, text)
    known = {summary.name: summary for summary in seen.selection.menu}
    known |= {choice.name: choice.summary for choice in seen.selection.eager}
    on_menu = frozenset(summary.name for summary in seen.selection.menu)
    fitting = find_relevant_skills_on_menu(
        partial(home.finder.search, text), on_menu, unlisted=frozenset(seen.menu.cut)
    )
    named = frozenset(hit.id for hit in fitting)
    best = tuple((known[hit.id], hit) for hit in found.hits)
    return RequestSkillsPreview(preview=seen, best=best, min_relevance=found.min_confidence, suggested=named)


def rank_eligible_skills(finder: SkillFinder, preview: SkillSelectionPreview, text: str) -> SearchResults:
    """Rank the skills that the agent may open by relevance to the text."""
    return finder.search(text, k=_MAX_MATCHES, among=preview.selection.list_eligible_names())


def explain_skill_selection(home: Home, name: str, request: UserRequest) -> SkillPlacementExplanation:
    """Explain why a skill would, or would not, reach the prompt of this request."""
    seen, item = preview_skills_for_request(home, request), home.skills.find(name)
    found = _explain_skill_placement_in_selection(
        home.skills, home.finder, item, request.text, seen.selection, seen.menu
    )
    return replace(found, compared=describe_running_comparison_of_skill(home, item))


def explain_skill_selection_in_past_turn(
    skills: Library, journal: Journal, name: str, turn: str | None, *, user: str | None
) -> PastSkillSelectionExplanation:
    """Explain a skill's part in a past turn of this user, by default the last turn; None means any user."""
    item = skills.find(name)
    if turn is None:
        last = journal.list_latest_turns_of_all_conversations(limit=1, user=user)
        if not last:
            raise Invalid("There was no turn yet.", hint=f"Try: habitus skills why {item.name} --request TEXT")
        turn = last[0].id
    found = tuple(entry for entry in journal.get_turn(turn, user=user).selected if entry.name == item.name)
    return PastSkillSelectionExplanation(name=item.name, turn=turn, selected=found)


def explain_skill_selection_in_last_turn(
    home: Home, session: Session, name: str
) -> tuple[SkillPlacementExplanation, PastSkillSelectionExplanation]:
    """Explain a skill's part in the session's last turn, and return what the model did with it."""
    item = home.skills.find(name)
    last = session.last
    if last is None or last.selection is None:
        raise Invalid("Nothing was asked yet.", hint=f"Ask something first; then /why {item.name}.")
    if item.name not in last.selection.list_eligible_names() and item.name not in last.selection.left_out:
        raise Invalid(f"'{item.name}' did not exist when the last turn started.", hint="Ask again, then retry.")
    drawn = last.composed.menu if last.composed is not None else None
    drawn = drawn or menu.SkillMenu(text="", tokens=0, budget=0, shown=())
    found = _explain_skill_placement_in_selection(
        home.skills, home.finder, item, last.user_input.request.text, last.selection, drawn
    )
    found = replace(found, compared=last.parts.view.describe_compared_version(item.name))
    past = explain_skill_selection_in_past_turn(
        home.skills, home.journal, item.name, last.id, user=last.user_input.request.user.name
    )
    withheld = next((entry for entry in past.selected if entry.place is SkillPlacementKind.WITHHELD), None)
    return found if withheld is None else replace(found, place=withheld.place, reason=withheld.reason), past


def _explain_skill_placement_in_selection(
    skills: Library, finder: SkillFinder, item: ListedSkill, text: str, selection: SkillSelection, drawn: menu.SkillMenu
) -> SkillPlacementExplanation:
    eligible = selection.list_eligible_names()
    found = explain_skill_placement(item, selection, drawn, finder.search(text, k=len(eligible) or 1, among=eligible))
    front = skills.find(item.name)
    if front.layer == item.layer:
        return found
    if item.layer in front.awaiting_trust:
        return replace(found, place=SkillPlacementKind.LEFT_OUT, reason=f"{item.state.value}: {item.reason}")
    return replace(found, place=SkillPlacementKind.LEFT_OUT, reason=f"hidden by {front.name}@{front.layer}")


def select_skills_for_request(home: Home, request: UserRequest) -> SkillSelection:
    """Select skills as a session would: with stickiness from the journal and the session's tools."""
    snapshot = home.skills.snapshot(user=request.user.name)
    return choose_skills(snapshot, request, build_gates_with_session_tools(home, snapshot, request.user), home.journal)


def build_gates_with_session_tools(home: Home, snapshot: LibrarySnapshot, user: RequestUser) -> GateContext:
    """Return the gates for a user who has the tools of a session."""
    gates = build_skill_gate_context(home.settings, user)
    tools = names.BUILT_IN_TOOLS | _list_active_code_tools(
        home.tools, snapshot, replace(gates, tools=names.BUILT_IN_TOOLS)
    )
    return replace(gates, tools=tools)


def _list_active_code_tools(tools: ToolService, snapshot: LibrarySnapshot, gates: GateContext) -> frozenset[str]:
    open_here = {
        item.name for item in snapshot.skills_with_code if item.summary and not is_unavailable(item.summary, gates)
    }
    if not open_here:
        return frozenset()
    return frozenset(tool.name for tool in tools.active(at=snapshot) if tool.name in open_here)


def store_trigger_case_with_skill(home: Home, name: str, case: evals.TriggerEvalCase) -> None:
    """Store a trigger case with the skill; the same request replaces an earlier case."""
    item = home.skills.find(name)
    content = evals.render_eval_file_with_case(home.skills.read_tree(name), item.name, case)
    home.skills.edit_file(name, evals.EVALS_FILE, content, home.build_author("recorded a case"))


def run_trigger_cases(home: Home, name: str | None = None) -> tuple[evals.TriggerEvalResult, ...]:
    """Run the trigger cases of one skill, or of all."""
    library = home.skills
    chosen = [library.find(name)] if name else library.list_skills()
    return tuple(
        result for item in chosen if item.summary is not None for result in run_skill_trigger_cases(home, item)
    )


def run_skill_trigger_cases(home: Home, item: ListedSkill) -> tuple[evals.TriggerEvalResult, ...]:
    """Run the trigger cases of one listed skill."""
    tree = home.skills.get_layer(item.layer).store.read_tree(item.name, check_disk=False) or {}
    return tuple(_run_trigger_case(home, item.name, case) for case in evals.parse_trigger_eval_cases(item.name, tree))


def _run_trigger_case(home: Home, name: str, case: evals.TriggerEvalCase) -> evals.TriggerEvalResult:
    triggered, detail = _check_skill_offered_for_request(home, name, case.query)
    return evals.TriggerEvalResult(name=name, triggered=triggered, detail=detail, **asdict(case))


def _check_skill_offered_for_request(home: Home, name: str, query: str) -> tuple[bool, str]:
    """Return whether a skill is offered for a request, by a rule or among the top matches, and a line of detail."""
    selection = select_skills_for_request(home, build_request_of_user(home, query))
    for choice in selection.eager:
        if choice.name == name:
            return True, choice.reason
    on_menu = {summary.name for summary in selection.menu}
    results = home.finder.search(query, k=max(evals.OFFERED_COUNT, 10), among=on_menu)
    ranked = [hit.id for hit in results.hits]
    rank = ranked.index(name) + 1 if name in ranked else None
    first = ranked[0] if ranked else "nothing"
    detail = f"rank {rank}, first is {first}" if rank else f"not found, first is {first}"
    return results.fits and rank is not None and rank <= evals.OFFERED_COUNT, detail
