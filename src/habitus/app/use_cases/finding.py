"""Which skills a request gets, and why: search, selection, the reasons for one skill, and its trigger cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from habitus.access import Access
from habitus.agent.choosing import Why
from habitus.app.home import Home
from habitus.app.library import explaining
from habitus.app.use_cases.declaration import argument, option, use_case
from habitus.app.use_cases.skills import skill_name
from habitus.errors import Misused
from habitus.search.model import Hit
from habitus.skills.choosing.evals import EvalCase, EvalResult
from habitus.skills.choosing.selection import Request

# Requests may be pasted texts, so this is more than the usual line.
_LONGEST = 10_000


@dataclass(frozen=True, kw_only=True)
class SkillSearch:
    q: str = argument("What somebody would ask for.", metavar="QUERY", longest=_LONGEST)
    limit: int = option("How many.", "-k", default=10, least=1, most=500)


@dataclass(frozen=True, kw_only=True)
class FoundSkills:
    """Search hits, best first; `fits` is false if even the best is not relevant enough to be offered."""

    results: Sequence[Hit]
    fits: bool
    confidence: float
    # The confidence below which nothing is offered.
    least: float
    # When to use each skill, by name.
    cues: Mapping[str, str]


@use_case("skills search", route="GET /search", access=Access.OPEN_READING, example=SkillSearch(q="total by region"))
def search(home: Home, wanted: SkillSearch) -> FoundSkills:
    """Find skills by the meaning of a request, not only its words; each hit shows how its score is composed."""
    found = home.finder.search(wanted.q, k=wanted.limit)
    listed = home.skills.snapshot().by_name
    summaries = {hit.id: listed[hit.id].summary for hit in found.hits if hit.id in listed}
    return FoundSkills(
        results=found.hits,
        fits=found.fits,
        confidence=found.confidence,
        least=found.least,
        cues={name: summary.cue for name, summary in summaries.items() if summary is not None},
    )


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The context of a request: where it comes from, and which files and resources are there."""

    source: str = option("Where the request comes from: repl, talk, email, briefing …", default="repl")
    attach: tuple[str, ...] = option("An attached file; may be repeated.", default=())
    path: tuple[str, ...] = option("A file the work is about; may be repeated.", default=())
    resource: tuple[str, ...] = option("A kind of resource you have, such as calendar; may be repeated.", default=())
    feature: tuple[str, ...] = option("An experiment to switch on, skill_NAME; may be repeated.", default=())

    def around(self, home: Home, text: str, user: str | None) -> Request:
        """Return the request as the given user, by default the home's, would make it now."""
        return explaining.request_of(
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
class SelectionRequest(Surroundings):
    request: str = option("What is asked.", "-r", default="", longest=_LONGEST)


@dataclass(frozen=True, kw_only=True)
class NamedReason:
    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class SelectedSkills:
    """The skills that would reach a prompt: in full, on the menu, cut from the menu, or left out."""

    eager: Sequence[NamedReason]
    menu: Sequence[str]
    cut: Sequence[str]
    left_out: Sequence[NamedReason]
    menu_tokens: int
    menu_budget: int
    drops_memory: bool
    drops_persona: bool
    # The most relevant of the skills that the agent may open.
    ranks: Sequence[Hit]
    fits: bool


@use_case(
    "skills select",
    route="GET /select",
    access=Access.OPEN_READING,
    example=SelectionRequest(request="total by region"),
)
def select(home: Home, wanted: SelectionRequest) -> SelectedSkills:
    """Show what would reach the prompt for a request: in full, on the menu, or left out, each with its reason."""
    return selection_for(home, wanted, None)


def selection_for(home: Home, wanted: SelectionRequest, user: str | None) -> SelectedSkills:
    """Select skills on behalf of another user, whom only the command line can name."""
    # The same code as a turn's, so the preview can't differ from the real prompt.
    seen = explaining.prospect(home, wanted.around(home, wanted.request, user))
    best, selection = explaining.best_of(home.finder, seen, wanted.request), seen.selection
    return SelectedSkills(
        eager=[NamedReason(name=choice.name, reason=choice.reason) for choice in selection.eager],
        menu=seen.on_menu,
        cut=seen.cut,
        left_out=[NamedReason(name=name, reason=reason) for name, reason in sorted(selection.left_out.items())],
        menu_tokens=seen.menu.tokens,
        menu_budget=seen.menu.budget,
        drops_memory=selection.drops_memory,
        drops_persona=selection.drops_persona,
        ranks=best.hits,
        fits=best.fits,
    )


@dataclass(frozen=True, kw_only=True)
class WhyRequest(Surroundings):
    name: str = skill_name()
    request: str | None = option("A request to explain it for.", "-r", longest=_LONGEST)


@use_case(
    "why",
    route="GET /skills/{name}/why",
    access=Access.OPEN_READING,
    example=WhyRequest(name="csv-summary", request="total by region"),
)
def why(home: Home, wanted: WhyRequest) -> Why:
    """Explain why a skill does, or does not, reach the prompt of a request; on the command line also of a past turn."""
    return why_for(home, wanted, None)


def why_for(home: Home, wanted: WhyRequest, user: str | None) -> Why:
    """Explain a skill on behalf of another user, whom only the command line can name."""
    if wanted.request is None:
        raise Misused("Say for which request.")
    return explaining.why(home, wanted.name, wanted.around(home, wanted.request, user))


@dataclass(frozen=True, kw_only=True)
class TriggerCases:
    name: str | None = argument("One skill; all by default.", default=None, completes="skills")
    record: str | None = option("Keep this request as a case of the skill.")
    should_trigger: bool = option(
        "With --record: whether it should bring the skill up.", "--should/--should-not", default=True
    )


@dataclass(frozen=True, kw_only=True)
class TriedCases:
    """The result of each trigger case."""

    cases: Sequence[EvalResult]

    @property
    def is_failed(self) -> bool:
        """Whether a case failed."""
        return not all(one.passed for one in self.cases)


@use_case(
    "skills eval",
    access=Access.ADMIN,
    example=TriggerCases(name="csv-summary", record="total by region"),
    undo="skills rollback",
)
def evaluate(home: Home, wanted: TriggerCases) -> TriedCases:
    """Run the trigger cases that skills carry in evals/evals.json; exit code 1 if one fails."""
    if wanted.record is not None:
        if wanted.name is None:
            raise Misused("--record needs the skill it belongs to.")
        explaining.record(home, wanted.name, EvalCase(query=wanted.record, should_trigger=wanted.should_trigger))
    return TriedCases(cases=explaining.evaluate(home, wanted.name))
