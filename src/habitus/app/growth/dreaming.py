"""Self-play put together: challenges, our session as their solver, and memory for what it taught."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from habitus.agent.conversation import new_id
from habitus.agent.stream import Done, ToolFinished, ToolStarted
from habitus.app.conversations import models
from habitus.app.conversations.running_code import open_scratchpads, readable
from habitus.app.conversations.sessions import open_session
from habitus.app.home import Home
from habitus.app.home_directory import PADS
from habitus.events import OK, Outcome, OutcomeKind, failed, infra
from habitus.learning.acc.monitor import Mode
from habitus.learning.budget import Budget, BudgetedModel, Limits
from habitus.learning.cerebellum import Cerebellum
from habitus.learning.dream.challenge import Challenge, read, starters, written
from habitus.learning.dream.cycle import Attempt, Dreamt, DreamVerdict, Solver, cycle, verified
from habitus.learning.dream.extract import extract
from habitus.learning.dream.propose import propose
from habitus.learning.observer import Learner
from habitus.llm.model import Model, NoUsableAnswer, ProviderFault
from habitus.memory.model import Draft, Evidence, Kind, Producer, Scope, Status
from habitus.sandbox.inside import folders
from habitus.sandbox.model import Cell
from habitus.settings import Settings

PAD = "challenge"
_PLAYED = "self-play: "  # what the source of a lesson says before the name of its challenge
OWN = "challenges"  # a folder of the home with challenges of one's own
_LONGEST_S = 600.0  # of one attempt
_MOST_TRIED = 200  # candidates at a time
_RESULT_CHARS = 1_000  # of a call's result that a lesson is drawn from


@dataclass(frozen=True, kw_only=True, slots=True)
class Soundness:
    """Whether an exercise tells right from wrong; `reason` says why not."""

    challenge: str
    is_sound: bool
    reason: str = ""


def challenges(settings: Settings, path: Path | None = None) -> tuple[Challenge, ...]:
    """Those of a file or folder; else those that come along, and the home's own, which win under one name."""
    if path is not None:
        return read(path)
    own = settings.home / OWN
    found = {each.name: each for each in (*starters(), *(read(own) if own.is_dir() else ()))}
    return tuple(found.values())


async def checked(home: Home, challenge: Challenge) -> Soundness:
    """Run the right solution, a wrong one and none: only the first may pass."""
    for solution, should_pass, what in (
        (challenge.reference, True, "its reference solution"),
        (challenge.wrong, False, "its wrong solution"),
        ("", False, "doing nothing"),
    ):
        async with laid_out(home, challenge) as arena:
            if not arena.laid.is_ok:
                return Soundness(challenge=challenge.name, is_sound=False, reason=arena.laid.reason)
            await arena.run(solution)
            judged = await arena.judge()
        if judged.is_ok != should_pass:
            came_to = "passes" if judged.is_ok else f"does not pass: {judged.reason}"
            return Soundness(challenge=challenge.name, is_sound=False, reason=f"{what} {came_to}")
    return Soundness(challenge=challenge.name, is_sound=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Arena:
    """A folder in the sandbox with what a challenge lays out; `laid` says whether that went well."""

    home: Home
    challenge: Challenge
    session: str  # whose scratchpads can work there
    laid: Outcome = OK

    async def run(self, code: str) -> Cell:
        """In a process of its own, which is gone when somebody else wants the folder."""
        read = _programs(self.home.settings, self.challenge)
        pads = open_scratchpads(self.home, f"{PADS}/{self.session}", read=read)
        try:
            return await pads.exec(PAD, code)
        finally:
            await pads.close()

    async def judge(self) -> Outcome:
        cell = await self.run(self.challenge.validator)
        return cell.outcome if cell.error is None else failed(_last_line(cell.error))


@asynccontextmanager
async def laid_out(home: Home, challenge: Challenge) -> AsyncIterator[Arena]:
    arena = Arena(home=home, challenge=challenge, session=f"dream-{new_id()}")
    try:
        setup = await arena.run(challenge.setup)
        yield (
            arena if setup.error is None else replace(arena, laid=infra(f"its setup failed: {_last_line(setup.error)}"))
        )
    finally:
        await asyncio.to_thread(folders.remove, str(home.place / PADS / arena.session))


def _programs(settings: Settings, challenge: Challenge) -> tuple[Path, ...]:
    """What a shell needs is not in the sandbox unless somebody says so."""
    is_for_shell = challenge.domain == "bash" and settings.sandbox.runtime == "local"
    return readable(settings, [Path("/usr")]) if is_for_shell else ()


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()[:500]


async def dream(home: Home, challenge: Challenge, *, key: str, model: str = "", limits: Limits | None = None) -> Dreamt:
    """One cycle over one challenge, its lesson kept; under a key whose lesson is kept already, only that is told."""
    home.refuse_if_read_only()
    home.pause.refuse_if_paused()
    if home.memory.taught_by([key]):
        return Dreamt(challenge=challenge.name, verdict=DreamVerdict.NOTHING, reason="it was dreamt already")
    opened = models.models_named(home.settings, model) if model else home.models
    try:
        player = Budget(limits, day=home.spending).model(opened.main)
        dreamt = await dream_with(home, challenge, SessionSolver(home, player), player, key=key)
        return _with_spent(dreamt, player.budget)
    finally:
        await opened.close()


def _with_spent(dreamt: Dreamt, budget: Budget) -> Dreamt:
    return replace(
        dreamt,
        tokens=budget.tokens,
        requests=budget.requests,
        dollars=budget.usage.cost or 0.0,
        is_spent=budget.is_reached,
    )


async def dream_with(home: Home, challenge: Challenge, solver: Solver, model: BudgetedModel, *, key: str) -> Dreamt:
    """The same with any solver; `model` draws the lesson."""
    if challenge not in starters():
        sound = await checked(home, challenge)
        if not sound.is_sound:
            return Dreamt(challenge=challenge.name, verdict=DreamVerdict.UNSOUND, reason=sound.reason)
    draw = partial(extract, model=model, redactor=home.redactor)
    try:
        dreamt = await cycle(challenge, solver, draw)
    except (NoUsableAnswer, ProviderFault, TimeoutError) as fault:
        return Dreamt(challenge=challenge.name, verdict=DreamVerdict.INFRA, reason=str(fault) or "it took too long")
    return await asyncio.to_thread(_kept, home, challenge, dreamt, key)


def _kept(home: Home, challenge: Challenge, dreamt: Dreamt, key: str) -> Dreamt:
    if dreamt.lesson is None or not dreamt.is_kept:
        return dreamt
    encoded = home.open_memory(user=home.settings.user).encode(
        Draft(
            text=dreamt.lesson.text,
            kind=Kind.LESSON,
            scope=Scope.USER,
            confidence=dreamt.confidence,
            topic=challenge.domain,
            source=f"{_PLAYED}{challenge.name}",
            evidence=Evidence(trace=key, user=home.settings.user),
            body=dreamt.lesson,
            user=home.settings.user,
            produced_by=Producer.DREAM,
            verified=dreamt.verdict is DreamVerdict.VERIFIED,
        )
    )
    if encoded.status in (Status.STORED, Status.REINFORCED, Status.WAITING):
        return dreamt
    return Dreamt(challenge=challenge.name, verdict=DreamVerdict.REJECTED, reason=f"memory: {encoded.reason}")


def candidates(home: Home) -> tuple[str, ...]:
    """The ids of the lessons that self-play has drawn and nothing has shown yet."""
    memory = home.open_memory(user=home.settings.user)
    drawn = [one for one in memory.list_lessons("self-play", limit=_MOST_TRIED) if one.source.startswith(_PLAYED)]
    return tuple(one.id for one in drawn if not one.verified and one.body is not None)


async def verify(home: Home, id: str, *, model: str = "") -> Dreamt:
    """Try a lesson once more on the challenge that it was drawn from; what was verified meanwhile stays so."""
    home.refuse_if_read_only()
    home.pause.refuse_if_paused()
    opened = models.models_named(home.settings, model) if model else home.models
    try:
        player = Budget(day=home.spending).model(opened.main)
        return _with_spent(await verify_with(home, id, SessionSolver(home, player)), player.budget)
    finally:
        await opened.close()


async def verify_with(home: Home, id: str, solver: Solver) -> Dreamt:
    """The same with any solver."""
    lesson = await asyncio.to_thread(home.open_memory(user=home.settings.user).get, id)
    name = lesson.source.removeprefix(_PLAYED)
    found = {each.name: each for each in challenges(home.settings)}
    tried = Dreamt(challenge=name, verdict=DreamVerdict.NOTHING, reason="it is verified already")
    if lesson.verified or lesson.body is None:
        return tried
    if name not in found:
        return replace(tried, verdict=DreamVerdict.INFRA, reason="its challenge is not there any more")
    drawn = replace(tried, lesson=lesson.body, confidence=lesson.confidence, reason="")
    dreamt = await verified(found[name], solver, lesson.body, drawn)
    if dreamt.verdict is not DreamVerdict.VERIFIED:
        return dreamt
    return await asyncio.to_thread(_kept, home, found[name], dreamt, lesson.evidence.trace)


class SessionSolver:
    """Our own agent, in a session that nobody's memory learns from but by this."""

    def __init__(self, home: Home, model: Model, *, longest_s: float = _LONGEST_S) -> None:
        self._home = home
        self._model = model
        self._longest_s = longest_s

    async def solve(self, challenge: Challenge, *, playbook: str = "", feedback: str = "") -> Attempt:
        async with laid_out(self._home, challenge) as arena:
            if not arena.laid.is_ok:
                return Attempt(outcome=arena.laid)
            try:
                async with asyncio.timeout(self._longest_s):
                    record, outcome = await self._asked(
                        arena.session, challenge, _request(challenge, playbook, feedback)
                    )
            except TimeoutError:
                return Attempt(outcome=failed(f"it was not done after {self._longest_s:.0f} s"))
            if outcome.kind is OutcomeKind.INFRA:
                return Attempt(outcome=outcome)
            judged = await arena.judge()
        return Attempt(outcome=judged, record=f"{record}\n\nJudged: {judged.reason or 'passed'}")

    async def _asked(self, session: str, challenge: Challenge, request: str) -> tuple[str, Outcome]:
        """What was done, in words, and how the turn went."""
        home, done, went = self._home, [], OK
        quiet = Cerebellum(None, home.memory.encode, spending=home.spending, redactor=home.redactor)
        learner = Learner(home.memory, quiet, mode=Mode.OFF, redactor=home.redactor)
        read = _programs(home.settings, challenge)
        async with open_session(
            home, self._model, id=session, source_type="dream", learner=learner, read=read
        ) as opened:
            async for seen in opened.turn_stream(request):
                match seen:
                    case ToolStarted(tool=tool, arguments=arguments):
                        done.append(f"{tool} {arguments}")
                    case ToolFinished(content=content, outcome=outcome):
                        done.append(f"came to ({outcome.kind.value}): {content[-_RESULT_CHARS:]}")
                    case Done(reply=reply, outcome=outcome):
                        done.append(f"said: {reply[-_RESULT_CHARS:]}")
                        went = outcome
        return "\n".join(done), went


def _request(challenge: Challenge, playbook: str, feedback: str) -> str:
    parts = [
        playbook,
        challenge.task,
        f"Work in the scratchpad '{PAD}': what the task speaks of lies in its folder, and what you write there counts. "
        "Nobody is there to ask; do it, and say so when it is done.",
        f"An earlier attempt, of which nothing is left, was not accepted: {feedback}" if feedback else "",
    ]
    return "\n\n".join(part for part in parts if part)


async def invent(home: Home, *, model: str = "") -> tuple[Challenge, Soundness]:
    """A challenge that a model makes up about what failed here; one that tells right from wrong is kept in the home."""
    home.refuse_if_read_only()
    home.pause.refuse_if_paused()
    opened = models.models_named(home.settings, model) if model else home.models
    try:
        return await invent_with(home, Budget(day=home.spending).model(opened.main))
    finally:
        await opened.close()


async def invent_with(home: Home, model: BudgetedModel) -> tuple[Challenge, Soundness]:
    """The same with any model."""
    failures = await asyncio.to_thread(_failures, home)
    made = await propose(failures, model=model, redactor=home.redactor)
    sound = await checked(home, made)
    if sound.is_sound:
        folder = home.settings.home / OWN
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / f"{made.name}.toml").write_text(written(made), "utf-8")
    return made, sound


def _failures(home: Home) -> list[str]:
    """What went wrong lately, as memory has it."""
    memory = home.open_memory(user=home.settings.user)
    found = [one for one in memory.list_lessons(limit=200) if one.evidence.error_signature or one.evidence.detector]
    return [f"{one.text} [{one.evidence.error_signature or one.evidence.detector}]" for one in found[:20]]
