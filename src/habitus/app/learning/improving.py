"""Improving a skill: practise, draft a few edits, gate them against today's version, examine, and propose.

Everything that was measured is in the ledger before the next model is asked, so a run goes on where it was.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from habitus.app.conversations import models
from habitus.app.home import Home
from habitus.app.learning.rollouts import (
    PRACTICE_ROUNDS,
    Rollouts,
    Wish,
    by_turns,
    contrasts,
    open_ledger,
    open_subject,
    practice_rollouts,
)
from habitus.app.learning.solving import OwnAgent, Solver, open_program_solver, throw_away_home
from habitus.errors import HabitusError, Invalid, NotFound, Refused
from habitus.evidence.gate import GateVerdict
from habitus.files import Tree, file_of
from habitus.learning import improve_candidates as drafting
from habitus.learning.budget import Budget, BudgetedModel, Limits
from habitus.learning.improve_candidates import shorten
from habitus.learning.improve_ledger import LOST, Candidate, CandidateState, KeptRollout, Side, new_candidate, pairs
from habitus.learning.improve_report import CandidateReport, gate_of, report_on, table_of, tally_of
from habitus.llm.model import Models
from habitus.skills import trees
from habitus.skills.model import Actor, Author, Skill
from habitus.skills.proposals import Action, Change, Proposal, ProposalState
from habitus.skills.review import Review
from habitus.tasks.model import Task
from habitus.text import tokens

BY_RULE = "rule"  # the source of a shorter version that no model drafted
OpenSolver = Callable[[Tree], AbstractAsyncContextManager[Solver]]  # with one version of the skill


@dataclass(frozen=True, kw_only=True, slots=True)
class Improved:
    """The result of a run. `stopped` says why it ended before all was tried."""

    skill: str
    run: str
    reports: tuple[CandidateReport, ...] = ()
    proposal: int | None = None
    is_never_opened: bool = False
    stopped: str = ""
    rollouts: int = 0
    lost: int = 0  # rollouts that a killed process had begun: paid, and not counted
    tokens: int = 0
    dollars: float = 0.0


async def improve(home: Home, wish: Wish, *, run: str, is_scheduled: bool = False) -> Improved:
    """A run to its end, or on from where it was killed. What starts by itself stays within the tokens of the day."""
    home.refuse_if_read_only()
    home.pause.refuse_if_paused()
    paid = await asyncio.to_thread(open_ledger(home).rollouts, run=run)
    limits = Limits(
        tokens=None if wish.tokens is None else max(wish.tokens - sum(one.tokens for one in paid), 0),
        dollars=None if wish.dollars is None else max(wish.dollars - sum(one.dollars for one in paid), 0.0),
        minutes=wish.minutes,
    )
    budget = Budget(limits, day=home.spending if is_scheduled else None)
    if (drafts := drafter(home, wish)) is None:
        return await Improving(home, wish, run, None, budget=budget).go()
    try:
        return await Improving(home, wish, run, budget.model(drafts.main)).go()
    finally:
        await drafts.close()


def drafter(home: Home, wish: Wish) -> Models | None:
    """Who drafts, and has our own agent solve; a program that solves drafts too where no model is named. Nobody is
    needed where a candidate is given and a program solves."""
    if wish.model:
        return models.models_named(home.settings, wish.model)
    if wish.solver and wish.is_given:
        return None
    if wish.solver and not models.model_names(home.settings, os.environ)[0]:
        return models.models_named(home.settings, wish.solver)
    return home.models


class Improving:
    """One run, from its wish to a proposal or to "not shown"."""

    def __init__(
        self,
        home: Home,
        wish: Wish,
        run: str,
        model: BudgetedModel | None,
        open_solver: OpenSolver | None = None,
        *,
        budget: Budget | None = None,
    ) -> None:
        self.home = home
        self.wish = wish
        self.run = run
        self.model = model  # who drafts, and our own agent's
        self.budget = model.budget if model is not None else budget or Budget()
        self.subject = open_subject(home, wish.skill)
        self.name = self.subject.item.name
        self.rollouts = Rollouts(home, run, self.subject, self.budget, parallel=wish.parallel)
        self.ledger = self.rollouts.ledger
        self._left_open = {one.id for one in self.ledger.candidates(self.name) if self._is_left_open(one)}
        self._solvers: dict[str, Solver] = {}
        self._open_solver = open_solver or (self._open_program if wish.solver else self._open_own_agent)
        self._staying = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._paid_before = self.rollouts.tries

    async def go(self) -> Improved:
        if not self.subject.tasks[Side.GATE]:
            raise Invalid(
                f"'{self.name}' has no tasks for a gate.",
                mend=f"Add some with 'habitus tasks add {self.name}' or 'habitus tasks mine'.",
            )
        try:
            async with self._staying:
                accepted = await (self._try_given() if self.wish.is_given else self._try_drafts())
                proposal = await self._examine(accepted) if accepted is not None else None
        finally:
            await asyncio.to_thread(self.ledger.lose_unfinished, self.run)
        return self._result(proposal)

    async def _try_given(self) -> Candidate | None:
        mine = self._mine()
        return await self._pass_gate(mine[0] if mine else await asyncio.to_thread(self._given_candidate))

    def _given_candidate(self) -> Candidate:
        wish, subject = self.wish, self.subject
        if wish.proposal is not None:
            proposal = _proposal_of(self.home.review, self.name, wish.proposal)
            text, source = _main_text(proposal.change.tree), f"proposal {proposal.id}"
            why = proposal.author.reason or "; ".join(proposal.reasons)
            if proposal.author.actor is Actor.AGENT:
                why += " (by an agent that could have read the tasks on this disk)"
        else:
            text, source, why = wish.text, "person", "a person's"
        new = _parse(self.name, subject.tree, text)
        return self._add(new, text, why=why, source=source)

    async def _try_drafts(self) -> Candidate | None:
        for one in self._mine():
            if (accepted := await self._pass_gate(one)) is not None:
                return accepted
        while not self.rollouts.stopped and len(self._mine()) < self.wish.candidates:
            drafted = await self._draft_candidate()
            if drafted is None:
                break
            if (accepted := await self._pass_gate(drafted)) is not None:
                return accepted
        return None

    def _mine(self) -> list[Candidate]:
        """Candidates of this run, and before them what another has left open."""
        candidates = self.ledger.candidates(self.name)
        return [one for one in candidates if one.run == self.run or one.id in self._left_open]

    def _is_left_open(self, one: Candidate) -> bool:
        """Whether a run that has ended, because its budget was spent perhaps, left it in its gate or exam."""
        wish = self.wish
        is_alike = (one.base, one.claim, one.solver) == (self.subject.version, wish.claim, wish.solver)
        is_meant = one.text == wish.text if wish.text else one.source == f"proposal {wish.proposal}"
        is_open = one.state in (CandidateState.OPEN, CandidateState.ACCEPTED) and one.proposal is None
        if not (one.number and is_open and is_alike and (is_meant or not wish.is_given)):
            return False
        return one.run != self.run and all(kept.outcome for kept in self.ledger.rollouts(run=one.run))

    async def _practise(self) -> None:
        """Practise with this version; a task that was practised with it before is not done again."""
        for number in range(PRACTICE_ROUNDS):
            await self._round(Side.PRACTICE, self.subject.tasks[Side.PRACTICE], number, None)

    def _practice_rollouts(self) -> list[KeptRollout]:
        return practice_rollouts(self.ledger, self.subject, self.wish.solver)

    @property
    def is_never_opened(self) -> bool:
        practised = self._practice_rollouts()
        return bool(practised) and not any(one.is_opened or one.is_followed for one in practised)

    async def _draft_candidate(self) -> Candidate | None:
        """By rule where that takes something away, else by a model from what was practised."""
        if self.wish.shorter and (shorter := await asyncio.to_thread(self._shorten)) is not None:
            return shorter
        if self.model is None:
            self.rollouts.stop("nobody drafts a candidate; give one with --candidate FILE, or name a --model")
            return None
        await self._practise()
        if self.rollouts.stopped:
            return None
        try:
            skill, why = await drafting.draft_candidate(
                self.model,
                self.subject.skill,
                await asyncio.to_thread(lambda: contrasts(self.subject, self._practice_rollouts())),
                [f"{one.why} ({one.state.value}{f': {one.reason}' if one.reason else ''})" for one in self._before()],
                is_to_shorten=self.wish.shorter,
                redactor=self.home.redactor,
            )
        except (HabitusError, TimeoutError) as error:
            self.rollouts.stop(f"no candidate could be drafted: {str(error) or 'it took too long'}")
            return None
        return await asyncio.to_thread(self._add, skill, why=why, source=self.model.name)

    def _shorten(self) -> Candidate | None:
        """Once for each version."""
        tried = [one.base for one in self.ledger.candidates(self.name) if one.source == BY_RULE]
        draft = shorten(self.subject.skill) if self.subject.version not in tried else None
        if draft is None:
            return None
        return self._add(drafting.apply_draft(self.subject.skill, draft), why=draft.why, source=BY_RULE)

    def _before(self) -> list[Candidate]:
        return [one for one in self.ledger.candidates(self.name) if one.state is not CandidateState.OPEN][-10:]

    def _add(self, new: Skill, text: str = "", *, why: str, source: str) -> Candidate:
        """Refused ones are kept, too, so that the next draft is another."""
        text = text or _main_text(trees.with_skill(self.subject.tree, new))
        hidden = [task for side in (Side.GATE, Side.EXAM) for task in self.subject.tasks[side]]
        known = "\n".join([self.subject.skill.body, *(task.request for task in self.subject.tasks[Side.PRACTICE])])
        objection = drafting.objection(
            self.subject.skill, new, hidden, known=known, is_given=self.wish.is_given
        ) or self._objection(new, text)
        gate = self.subject.tasks[Side.GATE]
        candidate = new_candidate(
            self.name,
            self.run,
            self.subject.version,
            text,
            why=why,
            source=source,
            claim=self.wish.claim,
            tasks=tuple(task.id for task in gate),
            rounds=self.wish.rounds,
            solver=self.wish.solver,
            user=self.home.settings.signature,
            state=CandidateState.REFUSED if objection else CandidateState.OPEN,
            reason=objection,
        )
        return self.ledger.add(candidate)

    def _objection(self, new: Skill, text: str) -> str:
        old = self.subject.skill
        if self.wish.shorter and tokens(new.body) >= tokens(old.body):
            return "it is not shorter"
        if any(one.text == text and one.number and one.base == self.subject.version for one in self._before()):
            return "the same was tried before"
        is_same_cue = (old.when_to_use, old.description) == (new.when_to_use, new.description)
        if not self.wish.is_given and not self.wish.shorter and is_same_cue and self.is_never_opened:
            return "the skill was never opened, and its cue is as it was"
        return ""

    async def _pass_gate(self, candidate: Candidate) -> Candidate | None:
        """The candidate if it is accepted. Old and new by turns, a look after every whole round."""
        if candidate.state is CandidateState.ACCEPTED:
            return candidate
        if candidate.state is not CandidateState.OPEN:
            return None
        if not candidate.number:
            candidate = await asyncio.to_thread(self.ledger.begin_gate, candidate)
        by_id = {task.id: task for task in self.subject.tasks[Side.GATE]}
        if gone := [id for id in candidate.tasks if id not in by_id]:
            self.rollouts.stop(f"the gate's task '{gone[0]}' is gone since its candidate began")
            return None
        gate, tasks = gate_of(candidate), [by_id[id] for id in candidate.tasks]
        while True:
            kept = await asyncio.to_thread(self.ledger.rollouts, candidates=[candidate.id])
            tally, rounds = tally_of(kept, Side.GATE, candidate.tasks), len(pairs(kept, Side.GATE, candidate.tasks))
            verdict = gate.verdict(tally) if rounds else GateVerdict.OPEN
            if rounds and verdict is not GateVerdict.OPEN:
                break
            if self.rollouts.stopped:
                return None
            await self._round(Side.GATE, tasks, rounds, candidate)
        return await asyncio.to_thread(self._settle, candidate, verdict)

    def _settle(self, candidate: Candidate, verdict: GateVerdict) -> Candidate | None:
        state = {
            GateVerdict.ACCEPTED: CandidateState.ACCEPTED,
            GateVerdict.HOPELESS: CandidateState.STOPPED,
            GateVerdict.NOT_SHOWN: CandidateState.NOT_SHOWN,
        }[verdict]
        report = self._report(candidate)
        assert report.gate is not None
        is_accepted, reason = state is CandidateState.ACCEPTED, ""
        if is_accepted and self.wish.shorter and report.gate.new_tokens >= report.gate.old_tokens:
            is_accepted, state, reason = False, CandidateState.NOT_SHOWN, "it takes no fewer tokens"
        settled = self.ledger.settle(replace(candidate, state=state, reason=reason))
        return settled if is_accepted else None

    async def _examine(self, candidate: Candidate) -> int | None:
        """Once, fresh, on tasks that nobody has used for it."""
        tasks = self.subject.tasks[Side.EXAM]
        for number in range(self.wish.rounds):
            await self._round(Side.EXAM, tasks, number, candidate)
        if self.rollouts.stopped:
            return None
        return await asyncio.to_thread(self._propose, candidate)

    def _propose(self, candidate: Candidate) -> int | None:
        report = self._report(candidate)
        if report.exam is not None and report.exam.interval.high < 0:
            reason = "on tasks that it had never met it does worse"
            self.ledger.settle(replace(candidate, state=CandidateState.FAILED_EXAM, reason=reason))
            return None
        if candidate.proposal is not None:
            return candidate.proposal
        tree = {**self._tree(candidate)}
        change = Change(
            action=Action.WRITE,
            name=self.name,
            layer=self.subject.layer,
            tree=tree,
            details={"improve": {"candidate": candidate.id}},
        )
        author = Author(actor=Actor.JOB, name="improve", reason=candidate.why)
        proposal = self.home.review.propose(change, author, table_of(report))
        self.ledger.settle(replace(candidate, proposal=proposal.id))
        return proposal.id

    def _report(self, candidate: Candidate) -> CandidateReport:
        return report_on(candidate, self.ledger.rollouts(candidates=[candidate.id]))

    def _tree(self, candidate: Candidate) -> Tree:
        if candidate.source.startswith("proposal "):
            return _proposal_of(self.home.review, self.name, int(candidate.source.split()[1])).change.tree
        main = trees.main_file(self.subject.tree) or trees.MAIN_FILES[0]
        return {**self.subject.tree, main: file_of(candidate.text.encode())}

    async def _round(self, side: Side, tasks: Sequence[Task], number: int, candidate: Candidate | None) -> None:
        """Every task once with each version, but for what is in the ledger already."""
        kept = await asyncio.to_thread(self._rollouts_of, candidate)
        done = {(one.side, one.round, one.task, one.is_new) for one in kept if one.counts}
        arms = by_turns(tasks, number) if candidate else ((task, False) for task in tasks)
        wanted = [(task, is_new) for task, is_new in arms if (side, number, task.id, is_new) not in done]
        key = candidate.id if candidate is not None else self.wish.solver
        await self.rollouts.make(
            side, number, wanted, lambda is_new: self._solver(candidate if is_new else None), candidate=key
        )

    def _rollouts_of(self, candidate: Candidate | None) -> list[KeptRollout]:
        return self.ledger.rollouts(candidates=[candidate.id]) if candidate is not None else self._practice_rollouts()

    async def _solver(self, candidate: Candidate | None) -> Solver:
        """Whoever solves with this version; each is set up once."""
        key = candidate.id if candidate is not None else ""
        async with self._opening:
            if key not in self._solvers:
                tree = self.subject.tree if candidate is None else await asyncio.to_thread(self._tree, candidate)
                self._solvers[key] = await self._staying.enter_async_context(self._open_solver(tree))
        return self._solvers[key]

    @asynccontextmanager
    async def _open_own_agent(self, tree: Tree) -> AsyncIterator[Solver]:
        if self.model is None:
            raise Invalid("Nobody can solve the tasks.", mend="Name a --model.")
        async with throw_away_home(self.home, self.name, tree) as apart:
            yield OwnAgent(apart, self.name, self.model)

    def _open_program(self, tree: Tree) -> AbstractAsyncContextManager[Solver]:
        return open_program_solver(self.home, self.name, tree, self.wish.solver, self.budget, self.model)

    def _result(self, proposal: int | None) -> Improved:
        kept = self.rollouts.tries
        return Improved(
            skill=self.name,
            run=self.run,
            reports=tuple(report_on(one, kept) for one in self._mine()),
            proposal=proposal,
            is_never_opened=self.is_never_opened,
            stopped=self.rollouts.stopped,
            rollouts=len(kept),
            lost=sum(one.outcome == LOST for one in kept),
            tokens=sum(one.tokens for one in self._paid_before) + self.budget.tokens,
            dollars=sum(one.dollars for one in self._paid_before) + (self.budget.usage.cost or 0.0),
        )


def _proposal_of(review: Review, name: str, number: int) -> Proposal:
    found = review.get(number)
    if found.change.name != name or found.change.action is not Action.WRITE:
        raise NotFound(f"Proposal {number} does not change the text of '{name}'.", mend="See 'habitus review list'.")
    if found.state is not ProposalState.WAITING:
        raise Refused(f"Proposal {number} is decided already.", mend="See 'habitus review list'.")
    return found


def _main_text(tree: Tree) -> str:
    file = tree.get(trees.main_file(tree) or "")
    return file.content.decode("utf-8", "replace") if file is not None and file.content is not None else ""


def _parse(name: str, tree: Tree, text: str) -> Skill:
    main = trees.main_file(tree) or trees.MAIN_FILES[0]
    parsed = trees.parse(name, {**tree, main: file_of(text.encode())})
    if parsed.skill is None:
        raise Invalid(f"The candidate is not a skill: {parsed.diagnostics[-1]}", mend="Mend it, and try again.")
    return parsed.skill
