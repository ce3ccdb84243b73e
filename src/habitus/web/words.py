"""Words of the page: what states, sources and places are called for people who never saw a terminal."""

from __future__ import annotations

from habitus.events import OutcomeKind
from habitus.journal.model import Place
from habitus.memory.model import Engram, Kind, Producer, Scope
from habitus.skills.model import Actor, Author, Counters, Source, Stage, State
from habitus.skills.review import Action

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
    Source.IMPORTED: "brought in",
}
STAGES = {Stage.STEPS: "steps", Stage.CHUNKS: "recipes", Stage.CODE: "tested tool"}
KINDS = {
    Kind.ALWAYS: "always do",
    Kind.NEVER: "never do",
    Kind.WHEN: "in one case",
    Kind.LESSON: "lesson",
    Kind.PROFILE: "about you",
}
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
    Producer.IMPORT: "brought in",
}
OUTCOMES = {OutcomeKind.OK: "went well", OutcomeKind.FAILED: "went wrong", OutcomeKind.INFRA: "was interrupted"}
PLACES = {
    Place.EAGER: "was read in full",
    Place.STICKY: "was kept from the turn before",
    Place.MENU: "was offered by name",
    Place.CUT: "fitted, but there was no room",
    Place.LEFT_OUT: "was left out",
    Place.LOADED: "was opened by the agent",
}
ACTIONS = {
    Action.WRITE: "change",
    Action.REMOVE: "put away",
    Action.ENABLE: "switch on",
    Action.DISABLE: "switch off",
}


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing if number == 1 else thing + 's'}"


def who(author: Author) -> str:
    match author.actor:
        case Actor.DISK:
            return "found in its folder"
        case Actor.USER:
            return author.name or "you"
        case Actor.AGENT | Actor.JOB:
            return f"an agent ({author.name})" if author.name else "an agent"


def fared(counters: Counters) -> str:
    """How a skill did, in a few words."""
    if not counters.used:
        return "not used yet"
    judged = counters.succeeded + counters.failed
    return f"used {counted(counters.used, 'time')}" + (
        f", {counters.succeeded} of {judged} went well" if judged else ""
    )


def whom(engram: Engram) -> str:
    owner = f" ({engram.owner})" if engram.owner and engram.scope is Scope.PROJECT else ""
    return SCOPES[engram.scope] + owner
