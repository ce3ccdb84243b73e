"""Labels and phrases of the web page for states, sources, outcomes and results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from habitus.agent.choosing import Why
from habitus.agent.stream import Consent
from habitus.events import OutcomeKind
from habitus.evidence.estimation import Effect
from habitus.evidence.findings import Plan, Verdict
from habitus.jobs.model import Job, JobState
from habitus.journal.journal import effective
from habitus.journal.model import Place, Turn
from habitus.memory.model import Engram, Kind, Producer, Scope, TrustLevel
from habitus.recipes.catalogue import RecipeCounts, RecipeStatus
from habitus.recipes.execution import Parameter
from habitus.settings import DAYS, SCHEDULE
from habitus.skills.layers.listing import Listed
from habitus.skills.model import Actor, Author, Counters, Source, Stage, State
from habitus.skills.proposals import AGENT_STARTED
from habitus.skills.review import Action
from habitus.skills.sources.importing import Verdict as ImportVerdict
from habitus.text import count_of
from habitus.tools.model import ToolStatus
from habitus.web.site_map import without_commands

STATES = {
    State.OK: "on",
    State.DISABLED: "off",
    State.GATED: "needs something",
    State.HELD: "waits for you",
    State.UNTRUSTED: "not trusted yet",
    State.BROKEN: "broken",
}
SOURCES = {
    Source.USER: "yours",
    Source.AGENT: "learned",
    Source.BUNDLED: "came with Habitus",
    Source.OPERATOR: "from your operator",
    Source.IMPORTED: "imported",
}
STAGES = {Stage.STEPS: "steps", Stage.CHUNKS: "recipes", Stage.CODE: "tested tool"}
KINDS = {kind: kind.label for kind in Kind}
SCOPES = {
    Scope.USER: "for you",
    Scope.PROJECT: "for one project",
    Scope.WORKSPACE: "for this place",
    Scope.GLOBAL: "for everybody",
}
PRODUCERS = {
    Producer.USER: "you said it",
    Producer.MODEL: "an agent noted it",
    Producer.DETECTOR: "noticed while an agent worked",
    Producer.CEREBELLUM: "learned from an error",
    Producer.DREAM: "learned by practice",
    Producer.IMPORT: "imported",
    Producer.TRANSCRIPTS: "learned from past conversations",
}
TRUSTS = {
    TrustLevel.USER: "you said or confirmed it",
    TrustLevel.VERIFIED: "a trial showed that it helps",
    TrustLevel.AUTOMATIC: "nobody has checked it",
}
OUTCOMES = {OutcomeKind.OK: "went well", OutcomeKind.FAILED: "went wrong", OutcomeKind.INFRA: "was interrupted"}
ROLES = {"viewer": "viewer: looks", "reviewer": "reviewer: decides too", "admin": "admin: changes everything"}
AGENTS = {
    "repl": "chat in a terminal",
    "web": "chat on this page",
    "mcp": "an agent over MCP",
    "api": "a program",
    "claude-code": "Claude Code",
    "cli": "the command line",
}
PLACES = {
    Place.EAGER: "was read in full",
    Place.STICKY: "was kept from the turn before",
    Place.MENU: "was offered by name",
    Place.CUT: "fitted, but there was no room",
    Place.LEFT_OUT: "was left out",
    Place.LOADED: "was opened by the agent",
    Place.WITHHELD: "was held back at random, to learn whether it helps",
}
CONSENTS = {
    Consent.YES: "Yes",
    Consent.NO: "No",
    Consent.LATER: "Later, in the Inbox",
    Consent.ALWAYS: "Always for this project",
}
IMPORTED = {
    ImportVerdict.IMPORTED: ("imported", "good"),
    ImportVerdict.UPDATED: ("updated", "good"),
    ImportVerdict.UNCHANGED: ("already here", ""),
    ImportVerdict.HELD: ("waits for you", "warn"),
    ImportVerdict.REFUSED: ("refused", "bad"),
}
JOB_STATES = {
    JobState.WAITING: ("waits", ""),
    JobState.RUNNING: ("running", "good"),
    JobState.DONE: ("done", "good"),
    JobState.FAILED: ("failed", "bad"),
    JobState.CANCELLED: ("ended", "warn"),
    JobState.PARKED: ("set aside after too many failures", "bad"),
}
TOOL_STATES = {
    ToolStatus.ACTIVE: ("ready", "good"),
    ToolStatus.DEGRADED: ("failed three times", "bad"),
    ToolStatus.UNAPPROVED: ("waits for your approval", "warn"),
    ToolStatus.OFF: ("off", ""),
    ToolStatus.BROKEN: ("broken", "bad"),
}
RECIPE_STATES = {
    RecipeStatus.ACTIVE: "ready",
    RecipeStatus.BROKEN: "broken",
    RecipeStatus.INERT: "not trusted yet",
    RecipeStatus.OFF: "off",
    RecipeStatus.TAKEN: "its name is taken",
    RecipeStatus.ARCHIVED: "archived for better ones",
}
PLACES_OF_SKILLS = {
    "user": "Your own",
    "project": "The project Habitus was started in",
    "bundled": "Came with Habitus",
    "operator": "Your operator’s",
    "claude": "Claude’s folder in your home",
    "codex": "Codex’ folder in your home",
    "agents": "The folder that agents share in your home",
}
CHECKS = {
    "command lines": "Skills that bring a program along",
    "database": "Where everything is written down",
    "disk": "Room on the disk",
    "evidence": "Finding out what helps",
    "git": "Skills from the net",
    "home": "The folder of Habitus",
    "jobs": "Work in the background",
    "learning": "Learning",
    "learning tokens": "What learning spends",
    "memory": "Lessons",
    "model": "The model that answers",
    "search": "Search",
    "settings": "Settings",
    "user": "You",
    "vault": "Secrets",
}
CHECK_PAGES = {
    "jobs": "/automation",
    "layer user": "/skills?state=broken",
    "learning": "/settings",
    "learning tokens": "/settings#learning_tokens",
    "memory": "/lessons",
    "model": "/settings#model",
    "settings": "/settings",
    "vault": "/secrets",
}
VERDICTS = {
    Verdict.PROMOTE: ("helps", "good"),
    Verdict.KEEP: ("does no harm", ""),
    Verdict.DEGRADE: ("helps too little", "warn"),
    Verdict.RETIRE: ("does harm", "bad"),
    Verdict.UNKNOWN: ("not known yet", ""),
}
ACTIONS = {
    Action.WRITE: "change",
    Action.REMOVE: "archive",
    Action.ENABLE: "switch on",
    Action.DISABLE: "switch off",
    Action.TASKS: "keep tasks to examine",
}


def source(source_type: str) -> tuple[str, str]:
    """Return the id and the label of the place where a request came from."""
    return source_type, AGENTS.get(source_type, source_type)


def went(turn: Turn) -> tuple[str, str] | None:
    """Return a turn's outcome as label and CSS class, or None without feedback."""
    judged = effective(turn.outcomes)
    if judged is None:
        return None
    return OUTCOMES[judged.kind], "good" if judged.kind is OutcomeKind.OK else "bad"


def of_effect(effect: Effect) -> str:
    """Return the effect of offering an item as a sentence."""
    value, low, high = (f"{round(100 * each):+d}" for each in (effect.value, effect.low, effect.high))
    sure = "helps so far" if effect.low > 0 else "does harm so far" if effect.high < 0 else "not known yet"
    return f"{value} of 100 go well, {low} to {high}: {sure}"


_DURATIONS = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def time_left(job: Job) -> str:
    """Return about how long a job still takes; empty until its worker has finished a part."""
    # Only parts of the current run count: earlier ones may have run on another machine.
    done = job.done - job.begun_at
    if not (job.of and done > 0 and job.begun_on and job.changed_on and job.state is JobState.RUNNING):
        return ""
    seconds = (job.changed_on - job.begun_on).total_seconds() / done * (job.of - job.done)
    name, length = next(((name, length) for name, length in _DURATIONS if seconds >= length), ("minute", 60))
    return f"about {count_of(max(1, round(seconds / length)), name)} left"


def schedule_parts(when: str) -> tuple[str, str]:
    """Return a schedule as form values: off, hourly, daily or a weekday, and the time."""
    found = re.fullmatch(SCHEDULE, when)
    at = f"{int(found['hour'] or 0):02}:{int(found['minute'] or 0):02}" if found and found["hour"] else "03:00"
    if when.startswith("weekly"):
        return (found["day"] if found and found["day"] else DAYS[0]), at
    return when.partition(" ")[0], at


def check(name: str) -> str:
    """Return the label of a doctor check; parts of the sandbox keep their names."""
    kind, _, part = name.partition(" ")
    match kind:
        case "layer":
            return f"Skills: {PLACES_OF_SKILLS.get(part, part).lower()}"
        case "sandbox:":
            return f"Code is locked in: {part}"
    return CHECKS.get(name, name.capitalize())


def describe_result(result: object) -> str:
    """Return a job's result in words."""
    if not isinstance(result, Mapping):
        return str(result)
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in result.items())


def who(author: Author) -> str:
    """Return who made a change."""
    match author.actor:
        case Actor.DISK:
            return "found in its folder"
        case Actor.USER:
            return author.name or "you"
        case Actor.AGENT | Actor.JOB:
            return f"an agent ({author.name})" if author.name else "an agent"


def describe_uses(counters: Counters) -> str:
    """Return how often a skill was used and how often it succeeded."""
    if not counters.used:
        return "not used yet"
    judged = counters.succeeded + counters.failed
    return f"used {count_of(counters.used, 'time')}" + (
        f", {counters.succeeded} of {judged} went well" if judged else ""
    )


def interval(effect: Effect) -> str:
    """Return a skill's effect with its confidence interval as a sentence."""
    value, low, high = (_more(share) for share in (effect.value, effect.low, effect.high))
    return f"Of 100 conversations {value} go well with it; between {low} and {high}"


def _more(share: float) -> str:
    return f"{abs(100 * share):.0f} {'fewer' if share < 0 else 'more'}"


def plainly(sentence: str) -> str:
    """Return a sentence about a skill without its token cost."""
    return re.sub(r" Costs [\d,.]+ tokens a turn\.", "", sentence)


def power(told: str) -> str:
    """Return a capability without the fingerprint of its file."""
    return re.sub(r" \([0-9a-f]{16}\)$", "", told)


def prospect(plan: Plan) -> str:
    """Return how long it takes until an item's effect is known."""
    if plan.missing is None:
        return "As long as every conversation gets it, nobody can tell; Settings can hold it back now and then."
    about = f"It takes about {count_of(plan.missing, 'more conversation')} that somebody judges"
    return (
        f"{about}." if plan.days is None else f"{about}: some {count_of(max(1, round(plan.days)), 'day')} at this pace."
    )


def ran(counts: RecipeCounts) -> str:
    """Return how often a recipe ran and succeeded."""
    return f"run {count_of(counts.used, 'time')}, {counts.succeeded} went well"


def skeleton(parameters: Sequence[Parameter]) -> dict[str, object]:
    """Return a recipe's parameters as arguments to fill in."""
    return {one.name: "" if one.default is None else one.default for one in parameters}


def in_a_line(item: Listed) -> str:
    """Return when to use a skill, or why it can't be used."""
    if item.state in (State.OK, State.DISABLED) and item.summary is not None:
        return item.summary.cue
    return waits(without_commands(item.reason))


def begun(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def whom(engram: Engram) -> str:
    """Return who a lesson applies to."""
    owner = f" ({engram.owner})" if engram.owner and engram.scope is Scope.PROJECT else ""
    return SCOPES[engram.scope] + owner


def because(reason: str) -> str:
    """Return why a skill was selected, with selection rules in words."""
    kind, _, value = reason.partition("=")
    said = {
        "always_include": "it is always read",
        "source_type": f"the request comes from {value}",
        "file_type": f"a .{value} file is attached",
        "path": f"the work is about {value}",
        "sticky": "it was used just before",
        "sticky_reply": "it was used in the turn that is answered",
        "companion_of": f"{value} brings it along",
        "excluded_by": f"{value} excludes it",
    }
    return said.get(kind, reason)


def would_fire(why: Why) -> list[str]:
    """Return whether a request would select a skill, and why, one sentence each."""
    lines = [_answer(why)]
    if why.place in (Place.EAGER, Place.STICKY, Place.LEFT_OUT):
        lines.append(f"Because {because(why.reason)}.")
    if why.rank is not None:
        lines.append(f"Of all skills it is number {why.rank} for this request.")
    elif why.place is not Place.LEFT_OUT:
        lines.append("Nothing in it matches this request. Say in “When to use it” what somebody would ask.")
    return lines


def _answer(why: Why) -> str:
    """Return in one sentence how likely the agent uses the skill."""
    match why.place:
        case Place.EAGER | Place.STICKY:
            return "Yes: the agent reads it in full."
        case Place.LEFT_OUT | Place.WITHHELD:
            return "No: it is left out."
        case Place.CUT:
            return "Hardly: it fits the rules, and there was no room to offer it."
        case Place.MENU | Place.LOADED if why.rank == 1 and why.fits:
            return "Very likely: it fits best, and the agent is pointed to it."
        case Place.MENU | Place.LOADED if why.rank is not None and why.rank <= 3 and why.fits:
            return "Perhaps: the agent is offered it, and others fit better."
        case Place.MENU | Place.LOADED:
            return "Hardly: the agent can open it, and nothing points to it."


def waits(reason: str) -> str:
    """Return why an item is pending, with internal reasons in words."""
    if reason == AGENT_STARTED:
        return "the agent suggests this by itself"
    near = reason.removeprefix("near-duplicate of ")
    return reason if near == reason else f"says much the same as {near.partition(' ')[0]}"
