"""What a reader gives: a transcript of turns, and what in it could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from habitus.events import Event, tool_called, tool_returned
from habitus.learning.transcripts.results import Reading
from habitus.redact import PATTERNS_ONLY, Redactor


class Stop(StrEnum):
    """How a person stopped an agent."""

    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    UNDONE = "undone"


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """A person's words, and what they did right before them."""

    words: str
    after: Stop | None = None
    at: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscriptTurn:
    """One request and all that was done for it; the window in which the detectors look."""

    id: str
    events: tuple[Event, ...]
    said: tuple[Said, ...] = ()  # the request, and what the person said in between
    is_sidechain: bool = False  # a helper agent's own work


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillUse:
    skill: str
    turn: str
    round_idx: int
    success: bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    id: str
    source: str  # the format it was read from
    turns: tuple[TranscriptTurn, ...] = ()
    skill_uses: tuple[SkillUse, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)  # why → how many lines or blocks
    is_weak: bool = False  # the format does not say what failed; success was inferred from the shape of results
    project: str = ""  # the directory that the work was done in, where the format says it
    goes_on: bool = False  # a piece: more turns of the same transcript follow

    @property
    def event_count(self) -> int:
        return sum(len(turn.events) for turn in self.turns)


PIECE = 5_000  # events after which the turns that have ended are handed on
LONGEST_WORDS = 1_000  # characters of what a person said
LONGEST_TURN = 20_000  # events; what comes after them is counted, not kept
CALLS_REMEMBERED = 10_000


@dataclass(kw_only=True, slots=True)
class OpenCall:
    """A call while its result may still come."""

    id: str
    name: str
    args: object
    turn: TurnDraft
    round_idx: int
    is_answered: bool = False


@dataclass(slots=True)
class TranscriptDraft:
    """A transcript while it is being read: the turns that were not handed on yet."""

    id: str
    source: str
    redactor: Redactor = PATTERNS_ONLY
    project: str = ""
    calls: dict[str, OpenCall] = field(default_factory=dict)
    turns: list[TurnDraft] = field(default_factory=list)
    skill_uses: list[SkillUse] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    opened: int = 0  # turns so far
    held: int = 0  # events in those that are still here
    large_from: int = PIECE

    def open(self, *, id: str | None = None, is_sidechain: bool = False) -> TurnDraft:
        self.opened += 1
        turn = TurnDraft(id=str(self.opened) if id is None else id, is_sidechain=is_sidechain)
        self.turns.append(turn)
        return turn

    @property
    def turn(self) -> TurnDraft:
        """The last one; opened where none is yet."""
        return self.turns[-1] if self.turns else self.open()

    def call(self, turn: TurnDraft, id: str, name: str, args: object, *, at: str = "", cwd: str = "") -> OpenCall:
        """A tool was called."""
        self.calls[id] = made = OpenCall(id=id, name=name, args=args, turn=turn, round_idx=turn.round_idx)
        if len(self.calls) > CALLS_REMEMBERED:
            del self.calls[next(iter(self.calls))]
        told = tool_called(name, args, round_idx=turn.round_idx, call_id=id, at=at, cwd=cwd, redactor=self.redactor)
        self.add(turn, told)
        return made

    def answer(self, call: OpenCall, reading: Reading, text: str | None, *, at: str = "", weak: bool = False) -> None:
        """A call came back with this text; none where it is not known."""
        call.is_answered = True
        told = tool_returned(
            call.name,
            success=reading.success,
            error=reading.error,
            result=text,
            round_idx=call.round_idx,
            call_id=call.id,
            at=at,
            weak=weak,
            redactor=self.redactor,
        )
        self.add(call.turn, told)

    def hear(self, turn: TurnDraft, words: str, *, after: Stop | None = None, at: str = "") -> None:
        """The person said something."""
        clean = self.redactor.redact(words[: LONGEST_WORDS * 4].strip()).text[:LONGEST_WORDS]
        if clean and not turn.is_handed_on:
            turn.said.append(Said(words=clean, after=after, at=at))

    def add(self, turn: TurnDraft, event: Event) -> None:
        if turn.is_handed_on:
            self.unread["result long after its turn"] += 1
        elif len(turn.events) >= LONGEST_TURN:
            self.unread["event of an endless turn"] += 1
        else:
            turn.events.append(event)
            self.held += 1

    @property
    def is_large(self) -> bool:
        return self.held >= self.large_from

    def piece(self, *, without: Collection[TurnDraft]) -> Transcript:
        """What has ended so far, taken out; the turns that go on stay."""
        ids = {id(turn) for turn in without}
        return self._handed_on([turn for turn in self.turns if id(turn) not in ids], goes_on=True)

    def finish(self) -> Transcript:
        return self._handed_on(self.turns, goes_on=False)

    def _handed_on(self, ended: list[TurnDraft], *, goes_on: bool) -> Transcript:
        names = {turn.id for turn in ended}
        uses = [use for use in self.skill_uses if use.turn in names or not goes_on]
        turns = tuple(turn.finish() for turn in ended if turn.events or turn.said)
        transcript = Transcript(
            id=self.id,
            source=self.source,
            turns=turns,
            skill_uses=tuple(uses),
            unread=dict(self.unread),
            is_weak=any(event.detail.get("weak") is True for turn in turns for event in turn.events),
            project=self.project,
            goes_on=goes_on,
        )
        for turn in ended:
            turn.is_handed_on = True
            self.held -= len(turn.events)
            turn.events = []
        self.turns = [turn for turn in self.turns if not turn.is_handed_on]
        self.skill_uses = [use for use in self.skill_uses if use not in uses]
        self.unread.clear()
        self.large_from = self.held + PIECE
        return transcript


@dataclass(slots=True)
class TurnDraft:
    id: str
    is_sidechain: bool = False
    events: list[Event] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    round_idx: int = 0
    last_line: int = 0  # the line that was last about it
    is_handed_on: bool = False

    def finish(self) -> TranscriptTurn:
        return TranscriptTurn(
            id=self.id, events=tuple(self.events), said=tuple(self.said), is_sidechain=self.is_sidechain
        )


def join_pieces(pieces: Sequence[Transcript]) -> Transcript:
    """The whole transcript of its pieces."""
    unread: Counter[str] = Counter()
    for piece in pieces:
        unread.update(piece.unread)
    return replace(
        pieces[-1],
        turns=tuple(turn for piece in pieces for turn in piece.turns),
        skill_uses=tuple(use for piece in pieces for use in piece.skill_uses),
        unread=dict(unread),
        is_weak=any(piece.is_weak for piece in pieces),
        project=next((piece.project for piece in pieces if piece.project), ""),
    )
