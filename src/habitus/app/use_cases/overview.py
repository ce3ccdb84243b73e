"""Reports for people: the overview of the last thirty days, what needs attention today, a search over everything, and
insights into the library."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from habitus.access import Access
from habitus.app.conversations import models
from habitus.app.conversations.past_sessions import past_sessions
from habitus.app.home import Home
from habitus.app.learning import insights, learning
from habitus.app.learning.insights import Confusion, MenuCost, SkillEffect, SkillUsage, TriedCandidate, UnusedSkill
from habitus.app.learning.learning import Repeated
from habitus.app.library.browsing import DAYS, Cluster, map_skills
from habitus.app.library.undoing import of_change
from habitus.app.review import inbox
from habitus.app.review.inbox import InboxItem
from habitus.app.use_cases.agents import HeardAgent, heard_agents
from habitus.app.use_cases.declaration import Nothing, argument, limit_option, use_case
from habitus.app.use_cases.finding import NamedReason
from habitus.app.use_cases.skills import SkillList, everything, matching, skill_name
from habitus.evidence.findings import Rollback
from habitus.journal.facts import Day
from habitus.journal.model import KeptSession
from habitus.memory.model import Engram, Producer
from habitus.skills.layers.listing import Listed
from habitus.skills.library import Library
from habitus.skills.model import Source, State, Summary
from habitus.skills.review import Proposal
from habitus.tools.model import CodeTool, ToolStatus

_WEEK = timedelta(days=7)
# How many skills that help, or hurt, are shown.
_SHOWN = 3
# Producers whose lessons agents did not learn themselves.
_TAUGHT = (Producer.USER, Producer.IMPORT)


@dataclass(frozen=True, kw_only=True)
class KnownEffect:
    """The effect of a skill per hundred conversations, with its confidence interval."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A skill or a lesson that agents made from their work."""

    kind: str
    id: str
    text: str
    on: datetime | None


@dataclass(frozen=True, kw_only=True)
class ImportedTogether:
    """Skills imported by one command, and the command that undoes it."""

    names: Sequence[str]
    on: datetime
    undo: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FirstSteps:
    """Which of the first steps are done in a new home."""

    agent: bool
    skills: bool
    model: bool
    request: bool


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The last thirty days, oldest first, with the number of pending items at the end of each day."""

    days: Sequence[Day]
    waiting: Sequence[int]
    helps: Sequence[KnownEffect]
    hurts: Sequence[KnownEffect]
    agents: Sequence[HeardAgent]
    learned: Sequence[Learned]
    imports: Sequence[ImportedTogether]
    steps: FirstSteps


@use_case("", route="GET /overview", access=Access.VIEWER, example=Nothing())
def overview(home: Home, wanted: Nothing) -> Overview:
    """Show the last thirty days: requests and their outcomes, pending reviews, what helps or hurts, and agents."""
    now = home.clock()
    with home.reading():
        days, heard = home.journal.days(DAYS), home.journal.last_heard()
    summaries = [item.summary for item in home.skills.listing() if item.summary is not None]
    recent = [one for one in summaries if one.modified_on is not None and one.modified_on >= now - _WEEK]
    helps, hurts = _effects(home)
    agents = heard_agents(home, heard)
    own = any(one.layer != "bundled" for one in summaries)
    steps = FirstSteps(
        agent=bool(agents),
        skills=own,
        model=bool(models.model_names(home.settings, os.environ)[0]),
        request=bool(heard),
    )
    return Overview(
        days=days,
        waiting=_waiting(home, days),
        helps=helps,
        hurts=hurts,
        agents=agents,
        learned=_recently_learned(recent, home.memory.list_lessons("week", 100)),
        imports=_imports(home.skills, recent),
        steps=steps,
    )


def _waiting(home: Home, days: Sequence[Day]) -> list[int]:
    open_from: list[tuple[datetime, datetime | None]] = []
    for item in inbox.waiting(home, with_decided=True, with_contents=False):
        subject = item.subject
        if isinstance(subject, Proposal):
            open_from.append((subject.made_on, subject.decided_on))
        elif subject.created_on is not None:
            open_from.append((subject.created_on, None))
    ends = [datetime.combine(day.day, datetime.min.time(), tzinfo=UTC) + timedelta(days=1) for day in days]
    return [sum(made < end and (done is None or done >= end) for made, done in open_from) for end in ends]


def _effects(home: Home) -> tuple[list[KnownEffect], list[KnownEffect]]:
    """Return the skills with the strongest known effects, helpful and harmful, by their newest version."""
    newest: dict[str, KnownEffect] = {}
    # The statistics take long to load, so skip them while no turn has an outcome.
    for one in home.evidence.findings().items if home.journal.is_judged() else ():
        if one.item.kind == "skill" and (effect := one.estimate.offering) is not None:
            name = one.item.name.partition("@")[0]
            # Findings come oldest version first, so the newest one wins.
            newest[name] = KnownEffect(name=name, value=effect.value, low=effect.low, high=effect.high)
    ranked = sorted(newest.values(), key=lambda one: (-one.value, one.name))
    hurts = [one for one in reversed(ranked) if one.value < 0]
    return [one for one in ranked if one.value > 0][:_SHOWN], hurts[:_SHOWN]


def _recently_learned(recent: Iterable[Summary], lessons: Iterable[Engram]) -> list[Learned]:
    found = [
        Learned(kind="skill", id=one.name, text=one.title or one.name, on=one.modified_on)
        for one in recent
        if one.source is Source.AGENT
    ]
    found += [
        Learned(kind="lesson", id=one.id, text=one.text, on=one.created_on)
        for one in lessons
        if one.produced_by not in _TAUGHT
    ]
    return sorted(found, key=lambda one: one.on or datetime.min.replace(tzinfo=UTC), reverse=True)


def _imports(skills: Library, recent: Iterable[Summary]) -> list[ImportedTogether]:
    """Group recently imported skills by import."""
    together: dict[datetime, list[str]] = {}
    for one in recent:
        if one.source is Source.IMPORTED and one.modified_on is not None:
            # One import stamps all of its skills with the same timestamp.
            together.setdefault(one.modified_on, []).append(one.name)
    found = []
    for on in sorted(together, reverse=True)[:_SHOWN]:
        change = skills.history(together[on][0])[-1].author
        undo = of_change(change) if change.change else ()
        found.append(ImportedTogether(names=sorted(together[on]), on=on, undo=undo))
    return found


@dataclass(frozen=True, kw_only=True)
class MappedSkill:
    """A skill on the map: coordinates from 0 to 1, uses, and its effect per hundred conversations, if known."""

    name: str
    x: float
    y: float
    uses: int
    effect: float | None


@dataclass(frozen=True, kw_only=True)
class MapOfSkills:
    skills: Sequence[MappedSkill]
    clusters: Sequence[Cluster]


@use_case("", route="GET /map", access=Access.OPEN_READING, example=Nothing())
def show_map(home: Home, wanted: Nothing) -> MapOfSkills:
    """Show skills on a map by meaning: the most used ones as points, the others in clusters."""
    found = map_skills(home)
    return MapOfSkills(
        skills=[
            MappedSkill(
                name=dot.row.item.name,
                x=dot.x,
                y=dot.y,
                uses=dot.row.counters.used,
                effect=None if dot.row.effect is None else dot.row.effect.value,
            )
            for dot in found.dots
        ],
        clusters=found.clusters,
    )


@dataclass(frozen=True, kw_only=True)
class Words:
    q: str = argument("A few words.", default="")
    limit: int = limit_option(6)


@dataclass(frozen=True, kw_only=True)
class FoundThing:
    """A skill, a lesson or a conversation; `id` opens it."""

    kind: str
    id: str
    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class FoundThings:
    found: Sequence[FoundThing]


@use_case("", route="GET /find", access=Access.VIEWER, example=Words(q="close the books"))
def find(home: Home, wanted: Words) -> FoundThings:
    """Find skills, lessons and your conversations by a few words, at most `limit` of each."""
    if not (words := wanted.q.lower().split()):
        return FoundThings(found=())
    skills, fits = matching(home, SkillList(q=wanted.q), everything(home))
    found = [
        FoundThing(
            kind="skill",
            id=item.name,
            title=(item.summary.title if item.summary else "") or item.name,
            text=item.summary.cue if item.summary else item.reason,
        )
        # Without a good match, two near misses are enough to show what is there.
        for item in skills[: wanted.limit if fits else 2]
    ]
    lessons = [one for one in home.memory.list_lessons("all", 1000) if _has_all(words, one.text)]
    found += [FoundThing(kind="lesson", id=one.id, title=one.text, text="") for one in lessons[: wanted.limit]]
    talks = [one for one in past_sessions(home.settings, home.journal, 500) if _has_all(words, one.title)]
    found += [FoundThing(kind="conversation", id=one.id, title=one.title, text="") for one in talks[: wanted.limit]]
    return FoundThings(found=found)


def _has_all(words: Iterable[str], text: str) -> bool:
    lowered = text.lower()
    return all(word in lowered for word in words)


@dataclass(frozen=True, kw_only=True)
class Insights:
    """Long-term figures about the library."""

    # Most helpful first.
    effects: Sequence[SkillEffect]
    menu: MenuCost
    unused: Sequence[UnusedSkill]
    confusion: Confusion
    improvements: Sequence[TriedCandidate]


@use_case("", route="GET /insights", access=Access.OPEN_READING, example=Nothing())
def show(home: Home, wanted: Nothing) -> Insights:
    """Show effects over time, the cost of the menu, unused and confused skills, and the candidates tried."""
    return Insights(
        effects=insights.effects(home),
        menu=insights.menu_cost(home),
        unused=insights.unused_skills(home),
        confusion=insights.confusion(home),
        improvements=insights.tried_candidates(home),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Today:
    """What needs attention today, and what is new this week."""

    waiting: tuple[InboxItem, ...]
    # Created or changed within a week, newest first.
    new_skills: tuple[Summary, ...]
    new_lessons: tuple[Engram, ...]
    # Skills that can't be loaded or lack something they need.
    broken: tuple[Listed, ...]
    # Versions that do worse than their predecessor.
    worse: tuple[Rollback, ...]
    # Tools that failed repeatedly.
    failing: tuple[CodeTool, ...]
    sessions: tuple[KeptSession, ...]
    # The number of all skills.
    skills: int
    # Without the skills that come with Habitus.
    own_skills: int

    @property
    def is_new(self) -> bool:
        """Whether nothing has been created, learned or asked in this home yet."""
        return not (self.waiting or self.own_skills or self.new_lessons or self.sessions)


def today(home: Home, *, with_contents: bool = True) -> Today:
    """Collect what needs attention; `with_contents` also reads the files of pending changes."""
    listing, now = home.skills.listing(), home.clock()
    summaries = [item.summary for item in listing if item.summary is not None]
    # Listing tools loads the sandbox, so it is skipped if no skill has code.
    tools = home.tools.all() if home.skills.snapshot().with_code else ()
    return Today(
        waiting=inbox.waiting(home, with_contents=with_contents),
        new_skills=_newest(summaries, now - _WEEK),
        new_lessons=home.memory.list_lessons("week", 100),
        broken=tuple(item for item in listing if item.state in (State.BROKEN, State.GATED)),
        worse=home.evidence.findings().rollbacks,
        failing=tuple(tool for tool in tools if tool.status in (ToolStatus.DEGRADED, ToolStatus.BROKEN)),
        sessions=tuple(past_sessions(home.settings, home.journal, 5)),
        skills=len(summaries),
        own_skills=sum(summary.layer != "bundled" for summary in summaries),
    )


def _newest(summaries: list[Summary], since: datetime) -> tuple[Summary, ...]:
    """Return the skills changed since then, newest first, without bundled ones."""
    dated = [(summary.modified_on, summary) for summary in summaries if summary.modified_on is not None]
    recent = [(on, summary) for on, summary in dated if on >= since and summary.layer != "bundled"]
    return tuple(summary for _, summary in sorted(recent, key=lambda each: (each[0], each[1].name), reverse=True))


@dataclass(frozen=True, kw_only=True)
class FirstLook:
    """What needs attention today, as served over REST."""

    waiting: Sequence[InboxItem]
    new_skills: Sequence[str]
    new_lessons: Sequence[Engram]
    broken: Sequence[NamedReason]
    worse: Sequence[Rollback]
    failing: Sequence[NamedReason]


@use_case("", route="GET /today", access=Access.VIEWER, example=Nothing())
def first_look(home: Home, wanted: Nothing) -> FirstLook:
    """Show what to look at first: pending reviews, this week's news, and broken skills and tools."""
    found = today(home)
    return FirstLook(
        waiting=found.waiting,
        new_skills=[summary.name for summary in found.new_skills],
        new_lessons=found.new_lessons,
        broken=[NamedReason(name=item.name, reason=item.reason) for item in found.broken],
        worse=found.worse,
        failing=[NamedReason(name=tool.name, reason=tool.reason) for tool in found.failing],
    )


@dataclass(frozen=True, kw_only=True)
class FailureList:
    failing: Sequence[Repeated]


@use_case("", route="GET /failing", access=Access.VIEWER, example=Nothing())
def failing(home: Home, wanted: Nothing) -> FailureList:
    """List what fails repeatedly in conversations, and which remedies worked."""
    return FailureList(failing=learning.repeated_failures(home))


@dataclass(frozen=True, kw_only=True)
class SkillEvidence:
    name: str = skill_name()


@use_case(
    "", route="GET /skills/{name}/evidence", access=Access.OPEN_READING, example=SkillEvidence(name="csv-summary")
)
def skill_evidence(home: Home, wanted: SkillEvidence) -> SkillUsage:
    """Show the effect of each version of a skill, newest first, and its uses by version and by week."""
    return insights.record_of(home, home.skills.find(wanted.name))
