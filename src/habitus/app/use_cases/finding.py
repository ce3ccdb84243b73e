"""Which skills a request gets, and why: search, selection, the reasons for one skill, and its trigger cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from habitus.access import Access
from habitus.agent.choosing.placement_explanation import SkillPlacementExplanation
from habitus.app.home import Home
from habitus.app.library import explaining
from habitus.app.use_cases.declaration import (
    PageCursor,
    RestPageLimit,
    SkillName,
    argument,
    option,
    paginate_items,
    use_case,
)
from habitus.errors import InvalidOptions
from habitus.search.model import IndexHit
from habitus.skills.choosing.evals import TriggerEvalCase, TriggerEvalResult
from habitus.skills.choosing.selection import UserRequest

# Requests may be pasted texts, so this is more than the usual line.
_MAX_REQUEST_CHARS = 10_000


@dataclass(frozen=True, kw_only=True)
class SkillSearchResult:
    """Search hits, best first; `fits` is false if even the best is not relevant enough to be offered."""

    results: Sequence[IndexHit]
    fits: bool
    confidence: float
    # The confidence below which nothing is offered.
    min_confidence: float
    # When to use each skill, by name.
    when_to_use: Mapping[str, str]


@use_case("skills search", route="GET /search", access=Access.OPEN_READING, example={"q": "total by region"})
def search_skills(
    home: Home,
    q: Annotated[str, argument("A request in natural language.", metavar="QUERY", longest=_MAX_REQUEST_CHARS)],
    limit: Annotated[int, option("How many.", "-k", least=1, most=500)] = 10,
) -> SkillSearchResult:
    """Find skills by the meaning of a request, not only its words; each hit shows how its score is composed."""
    seen = home.skills.snapshot()
    found = home.finder.search(q, k=limit, at=seen)
    listed = seen.by_name
    summaries = {hit.id: listed[hit.id].summary for hit in found.hits if hit.id in listed}
    return SkillSearchResult(
        results=found.hits,
        fits=found.fits,
        confidence=found.confidence,
        min_confidence=found.min_confidence,
        when_to_use={name: summary.when_to_use_line for name, summary in summaries.items() if summary is not None},
    )


@dataclass(frozen=True, kw_only=True)
class RequestContextOptions:
    """The context of a request: where it comes from, and which files and resources are there."""

    source: Annotated[str, option("Source of the request: repl, talk, email, briefing …")] = "repl"
    attach: Annotated[tuple[str, ...], option("An attached file; may be repeated.")] = ()
    path: Annotated[tuple[str, ...], option("A file that the request is about; may be repeated.")] = ()
    resource: Annotated[
        tuple[str, ...], option("An available kind of resource, such as calendar; may be repeated.")
    ] = ()
    feature: Annotated[tuple[str, ...], option("An experimental feature to enable, skill_NAME; may be repeated.")] = ()

    def build_request(self, home: Home, text: str, user: str | None) -> UserRequest:
        """Return the request as the given user, by default the home's, would make it now."""
        return explaining.build_request_of_user(
            home,
            text,
            user,
            source_type=self.source,
            attachments=self.attach,
            paths=self.path,
            resources=frozenset(self.resource),
            features=frozenset(self.feature),
        )


@dataclass(frozen=True, kw_only=True)
class SelectSkillsRequest(RequestContextOptions):
    request: Annotated[str, option("The request.", "-r", longest=_MAX_REQUEST_CHARS)] = ""
    limit: RestPageLimit = None
    after: PageCursor = ""


@dataclass(frozen=True, kw_only=True)
class NameAndReason:
    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class SkillSelectionResult:
    """The skills that would reach a prompt: in full, on the menu, only by search, or not at all.

    `cut`, those without a line on the menu, and `left_out` are one list in name order, of which this is a page.
    """

    eager: Sequence[NameAndReason]
    menu: Sequence[str]
    cut: Sequence[str]
    left_out: Sequence[NameAndReason]
    # The cursor of the following page, None on the last, and the length of the list.
    next: str | None
    total: int
    menu_tokens: int
    menu_budget: int
    drops_memory: bool
    drops_persona: bool
    # The most relevant of the skills that the agent may open.
    ranks: Sequence[IndexHit]
    fits: bool


@use_case("skills select", route="GET /select", access=Access.OPEN_READING, example={"request": "total by region"})
def select_skills(home: Home, request: SelectSkillsRequest) -> SkillSelectionResult:
    """Show what would reach the prompt for a request: in full, on the menu, or left out, each with its reason."""
    return select_skills_for_user(home, request, None)


def select_skills_for_user(home: Home, request: SelectSkillsRequest, user: str | None) -> SkillSelectionResult:
    """Select skills on behalf of another user, whom only the command line can name."""
    # The same code as a turn's, so the preview can't differ from the real prompt.
    seen = explaining.preview_skills_for_request(home, request.build_request(home, request.request, user))
    best, selection = explaining.rank_eligible_skills(home.finder, seen, request.request), seen.selection
    unlisted = sorted({*seen.skills_cut_from_menu, *selection.left_out})
    page = paginate_items("skills", unlisted, str, limit=request.limit, after=request.after)
    return SkillSelectionResult(
        eager=[NameAndReason(name=choice.name, reason=choice.reason) for choice in selection.eager],
        menu=seen.skills_on_menu,
        cut=[name for name in page.items if name not in selection.left_out],
        left_out=[
            NameAndReason(name=name, reason=selection.left_out[name])
            for name in page.items
            if name in selection.left_out
        ],
        next=page.next,
        total=page.total,
        menu_tokens=seen.menu.tokens,
        menu_budget=seen.menu.budget,
        drops_memory=selection.excludes_rules_and_profile,
        drops_persona=selection.excludes_persona,
        ranks=best.hits,
        fits=best.fits,
    )


@dataclass(frozen=True, kw_only=True)
class ExplainSkillRequest(RequestContextOptions):
    name: SkillName
    request: Annotated[str | None, option("A request to explain it for.", "-r", longest=_MAX_REQUEST_CHARS)] = None


@use_case(
    "skills why",
    route="GET /skills/{name}/why",
    access=Access.OPEN_READING,
    example={"name": "csv-summary", "request": "total by region"},
)
def explain_skill(home: Home, request: ExplainSkillRequest) -> SkillPlacementExplanation:
    """Explain why a skill does, or does not, reach the prompt of a request; on the command line also of a past turn."""
    return explain_skill_for_user(home, request, None)


def explain_skill_for_user(home: Home, request: ExplainSkillRequest, user: str | None) -> SkillPlacementExplanation:
    """Explain a skill on behalf of another user, whom only the command line can name."""
    if request.request is None:
        raise InvalidOptions("The request is missing.")
    return explaining.explain_skill_selection(home, request.name, request.build_request(home, request.request, user))


@dataclass(frozen=True, kw_only=True)
class SkillTriggerEvalsResult:
    """The result of each trigger case."""

    cases: Sequence[TriggerEvalResult]

    @property
    def is_failed(self) -> bool:
        """Whether a case failed."""
        return not all(one.passed for one in self.cases)


@use_case(
    "skills eval",
    access=Access.ADMIN,
    example={"name": "csv-summary", "record": "total by region"},
    undo="skills rollback",
)
def evaluate_skills(
    home: Home,
    name: Annotated[str | None, argument("One skill; all by default.", completes="skills")] = None,
    record: Annotated[str | None, option("Save this request as a trigger case of the skill.")] = None,
    should_trigger: Annotated[
        bool, option("With --record: whether it should trigger the skill.", "--should/--should-not")
    ] = True,
) -> SkillTriggerEvalsResult:
    """Run the trigger cases that skills carry in evals/evals.json; exit code 1 if one fails."""
    if record is not None:
        if name is None:
            raise InvalidOptions("--record needs the skill it belongs to.")
        explaining.store_trigger_case_with_skill(
            home, name, TriggerEvalCase(query=record, should_trigger=should_trigger)
        )
    return SkillTriggerEvalsResult(cases=explaining.run_trigger_cases(home, name))
