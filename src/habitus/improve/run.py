"""One run of `skills improve`: practise, draft a few edits, gate them against today's version, examine, and propose.

Every rollout is stored before the next model is asked, so a run that was killed goes on where it was.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from habitus.errors import HabitusError, Invalid, NotFound, Refused
from habitus.files import Tree, build_tree_file
from habitus.improve import exam
from habitus.improve.candidates import (
    Candidate,
    CandidateState,
    apply_drafted_edits,
    ask_model_for_draft,
    count_gated_candidates,
    describe_practice_for_drafter,
    find_candidate_objection,
    was_skill_never_opened,
)
from habitus.improve.gate import GateHypothesis, GateRule, GateVerdict, RolloutPairCounts, pair_complete_rounds
from habitus.improve.plan import PRACTICE_ROUNDS, ImproveRequest, forecast_improve_run, list_practice_rollouts
from habitus.improve.report import CandidateReport, build_candidate_report, format_candidate_report, make_gate_rule
from habitus.improve.rollouts import RolloutRunner, TaskSolver, interleave_versions
from habitus.improve.rule_based_drafts import BY_RULE, RuleBasedDraft, draft_worked_example, list_rule_based_drafts
from habitus.improve.shortening import drop_redundant_skill_text, drop_untraced_sentences
from habitus.improve.tasks import get_main_text
from habitus.learning.budget import BudgetedModel
from habitus.llm.model import TokenUsage
from habitus.redact import Redactor
from habitus.skills import trees
from habitus.skills.model import ActorKind, Author, Skill
from habitus.skills.proposals import Proposal, ProposalAction, ProposalState, SkillChange
from habitus.skills.review import ReviewQueue
from habitus.tasks.leaks import list_passing_answers
from habitus.tasks.model import Task, get_task_family
from habitus.tasks.rollouts import LOST, Rollout, TaskSplit
from habitus.text import estimate_tokens

NOT_ON_NEW_TASKS = "better on these tasks, not shown on new ones"
_NO_EXAM = "better on these tasks; there is no other task to examine it by"
NO_FILES: Mapping[str, str] = {}
_PROGRAM_CHOICE = "its default model"
UNTRACED = f"{BY_RULE}: untraced"
_MOST_REMEMBERED = 10  # candidates that a drafter is told of
_STATES = {
    GateVerdict.ACCEPTED: CandidateState.ACCEPTED,
    GateVerdict.HOPELESS: CandidateState.STOPPED,
    GateVerdict.REPEATED: CandidateState.NOT_SHOWN,
    GateVerdict.NOT_SHOWN: CandidateState.NOT_SHOWN,
}
OpenSolver = Callable[[Tree], AbstractAsyncContextManager[TaskSolver]]  # with one version of the skill


@dataclass(frozen=True, kw_only=True, slots=True)
class ImproveResult:
    """The result of a run; `stopped` says why it ended before everything was tried."""

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


@dataclass(kw_only=True)
class ImproveRun:
    """One run, from its request to a proposal or to "not shown"."""

    request: ImproveRequest
    runner: RolloutRunner
    review: ReviewQueue
    open_solver: OpenSolver
    drafter: BudgetedModel | None
    redactor: Redactor
    user: str
    _solvers: dict[str, TaskSolver] = field(default_factory=dict)
    _exits: AsyncExitStack = field(default_factory=AsyncExitStack)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.store = self.runner.store
        self.subject = self.runner.subject
        self.name = self.runner.subject.name
        self._taken_over = {
            one.id for one in self.store.list_candidates(self.name) if self._is_left_open_by_other_run(one)
        }
        self._paid_before = self.runner.rollouts

    @property
    def _solver_model(self) -> str:
        """The model that solves: with another one, our own agent or a program is another solver."""
        if self.request.solver:
            return self.request.solver.partition(":")[2] or _PROGRAM_CHOICE
        return self.drafter.name if self.drafter is not None else ""

    async def execute(self) -> ImproveResult:
        await asyncio.to_thread(self._raise_if_run_is_pointless)
        try:
            async with self._exits:
                accepted = await (
                    self._gate_given_candidate() if self.request.has_given_candidate else self._try_drafted_candidates()
                )
                proposal = await self._run_exam_and_propose(accepted) if accepted is not None else None
        finally:
            await asyncio.to_thread(self.store.mark_lost_rollouts, self.runner.run)
        return self._build_result(proposal)

    def _raise_if_run_is_pointless(self) -> None:
        """Raise before the first rollout if nothing could come of the run; one that was begun may end."""
        if self._paid_before or self._taken_over:
            return
        model = self.drafter.name if self.drafter is not None else ""
        forecast_improve_run(self.store, self.subject, self.request, model=model).raise_if_run_cannot_start()

    async def _gate_given_candidate(self) -> Candidate | None:
        candidates = self._list_own_and_left_open_candidates()
        return await self._run_gate(
            candidates[0] if candidates else await asyncio.to_thread(self._store_given_candidate)
        )

    def _store_given_candidate(self) -> Candidate:
        text, source, why = self.request.text, "person", "a person's"
        if self.request.proposal is not None:
            proposal = _get_pending_proposal(self.review, self.name, self.request.proposal)
            text, source = get_main_text(proposal.change.tree), f"proposal {proposal.id}"
            why = proposal.author.reason or "; ".join(proposal.reasons)
            if proposal.author.actor is ActorKind.AGENT:
                why += " (by an agent that could have read the tasks on this disk)"
        parsed = trees.parse_skill_tree(self.name, _replace_main_text(self.subject.tree, text))
        if parsed.skill is None:
            raise Invalid(f"The candidate is not a skill: {parsed.diagnostics[-1]}", hint="Fix it, and try again.")
        return self._store_candidate(parsed.skill, text, why=why, source=source)

    async def _try_drafted_candidates(self) -> Candidate | None:
        for candidate in self._list_own_and_left_open_candidates():
            if (accepted := await self._run_gate(candidate)) is not None:
                return accepted
        while not self.runner.stopped and len(self._list_own_and_left_open_candidates()) < self.request.candidates:
            drafted = await self._draft_and_store_candidate()
            if drafted is None:
                break
            if (accepted := await self._run_gate(drafted)) is not None:
                return accepted
        return None

    def _list_own_and_left_open_candidates(self) -> list[Candidate]:
        """Return the candidates of this run, and before them those that another has left open."""
        every = self.store.list_candidates(self.name)
        return [one for one in every if one.run == self.runner.run or one.id in self._taken_over]

    def _is_left_open_by_other_run(self, one: Candidate) -> bool:
        """Whether a run that has ended (its budget was spent, say) left it in its gate or exam."""
        request = self.request
        solver = (one.solver, one.model) == (request.solver, self._solver_model)
        is_claimed = one.claim is request.claim or not request.shorter
        is_alike = solver and is_claimed and one.base == self.subject.version
        is_meant = one.text == request.text if request.text else one.source == f"proposal {request.proposal}"
        is_open = one.state in (CandidateState.OPEN, CandidateState.ACCEPTED) and one.proposal is None
        if not (one.number and is_open and is_alike and (is_meant or not request.has_given_candidate)):
            return False
        return one.run != self.runner.run and all(made.outcome for made in self.store.list_rollouts(run=one.run))

    async def _draft_and_store_candidate(self) -> Candidate | None:
        """Draft by rule, else by a model from practice."""
        if (ruled := await asyncio.to_thread(self._draft_by_first_untried_rule)) is not None:
            return ruled
        if self.drafter is None:
            self.runner.stop_starting_rollouts(
                "there is no model to draft a candidate; give one with --candidate FILE, or name a --model"
            )
            return None
        for number in range(PRACTICE_ROUNDS):
            await self._complete_round(TaskSplit.PRACTICE, self.subject.tasks[TaskSplit.PRACTICE], number, None)
        if self.runner.stopped:
            return None
        if (ruled := await asyncio.to_thread(self._draft_by_first_untried_rule)) is not None:
            return ruled
        material, drafter = (
            await asyncio.to_thread(self._describe_practice),
            self.drafter.copy_with_own_usage(),
        )
        try:
            draft = await ask_model_for_draft(
                drafter, material, is_to_shorten=self.request.shorter, redactor=self.redactor
            )
            skill, why = apply_drafted_edits(self.subject.skill, draft), " ".join(draft.why.split())
        except (HabitusError, TimeoutError) as error:
            skill, why = self.subject.skill, f"no candidate could be drafted: {str(error) or 'it took too long'}"
            self.runner.stop_starting_rollouts(why)
            if drafter.usage == TokenUsage():
                return None
        # A draft that came to nothing was paid for, too.
        return await asyncio.to_thread(self._store_candidate, skill, why=why, source=drafter.name, paid=drafter.usage)

    def _draft_by_first_untried_rule(self) -> Candidate | None:
        """Draft by the first rule that has not been tried on this version; None once all have been."""
        candidates = self.store.list_candidates(self.name)
        tried = {(one.source, one.why) for one in candidates if one.base == self.subject.version}
        proven = [one.text for one in candidates if one.state is CandidateState.ACCEPTED]
        practice = self.subject.tasks[TaskSplit.PRACTICE]
        shorter = self._list_shorter_drafts()
        if self.request.shorter:
            drafts = shorter
        else:
            made = self._list_practice_rollouts()
            example = draft_worked_example(self.subject, practice, made, lambda text: self.redactor.redact(text).text)
            drafts = [*list_rule_based_drafts(self.subject, proven), *([example] if example is not None else [])]
            # That a version is not worse takes many tasks; where there are fewer, no rollout is spent on it.
            gate = [task.id for task in self.subject.tasks[TaskSplit.GATE]]
            rule = GateRule(
                tasks=max(len(gate), 1),
                families=len(set(map(get_task_family, gate))),
                number=count_gated_candidates(candidates, gate) + 1,
                claim=GateHypothesis.NOT_WORSE,
            )
            drafts += [] if rule.problem else [one for one in shorter if one.source == UNTRACED]
        for one in drafts:
            if (one.source, one.why) not in tried:
                claim = GateHypothesis.NOT_WORSE if one in shorter else GateHypothesis.BETTER
                return self._store_candidate(
                    one.skill, one.text, why=one.why, source=one.source, files=one.files, claim=claim
                )
        return None

    def _list_shorter_drafts(self) -> list[RuleBasedDraft]:
        old, runs = self.subject.skill, [one.solver_actions for one in self._list_practice_rollouts() if one.is_ok]
        shorter = {
            BY_RULE: (drop_redundant_skill_text(old), "say things twice, or what no step needs"),
            UNTRACED: (drop_untraced_sentences(old, runs), "left no trace in an accepted run"),
        }
        return [
            RuleBasedDraft(
                skill=new,
                source=source,
                why=f"Some {estimate_tokens(old.body) - estimate_tokens(new.body)} tokens {why}.",
            )
            for source, (new, why) in shorter.items()
            if new is not None
        ]

    def _describe_practice(self) -> str:
        tried = [one.description for one in self._list_settled_candidates()]
        tasks = self.subject.tasks[TaskSplit.PRACTICE]
        return describe_practice_for_drafter(self.subject.skill, tasks, self._list_practice_rollouts(), tried)

    def _list_practice_rollouts(self) -> list[Rollout]:
        return list_practice_rollouts(self.store, self.subject, self.request.solver)

    def _list_settled_candidates(self) -> list[Candidate]:
        settled = [one for one in self.store.list_candidates(self.name) if one.state is not CandidateState.OPEN]
        return settled[-_MOST_REMEMBERED:]

    def _store_candidate(
        self,
        new: Skill,
        text: str = "",
        *,
        why: str,
        source: str,
        files: Mapping[str, str] = NO_FILES,
        claim: GateHypothesis | None = None,
        paid: TokenUsage | None = None,
    ) -> Candidate:
        """Store a candidate. Refused ones are stored, too, so that the next draft is another."""
        text = text or get_main_text(trees.update_main_file(self.subject.tree, new))
        claim, paid = claim or self.request.claim, paid or TokenUsage()
        objection = self._find_candidate_objection(new, text, source, files, claim)
        return self.store.add_candidate(
            Candidate(
                id=secrets.token_hex(6),
                skill=self.name,
                run=self.runner.run,
                base=self.subject.version,
                text=text,
                why=why,
                source=source,
                claim=claim,
                tasks=tuple(task.id for task in self.subject.tasks[TaskSplit.GATE]),
                rounds=self.request.rounds,
                solver=self.request.solver,
                model=self._solver_model,
                files=dict(files),
                tokens=paid.input_tokens + paid.output_tokens,
                dollars=paid.cost or 0.0,
                user=self.user,
                state=CandidateState.REFUSED if objection else CandidateState.OPEN,
                reason=objection,
            )
        )

    def _find_candidate_objection(
        self, new: Skill, text: str, source: str, files: Mapping[str, str], claim: GateHypothesis
    ) -> str:
        """Return why a candidate is not tried at all; empty where it is."""
        old, tasks, is_given = self.subject.skill, self.subject.tasks, self.request.has_given_candidate
        hidden = [*tasks[TaskSplit.GATE], *tasks[TaskSplit.EXAM]]
        practice = tasks[TaskSplit.PRACTICE]
        known = "\n".join(
            [old.body, *(text for task in practice for text in (task.request, *list_passing_answers(task)))]
        )
        # An undone edit may have been long: what it goes back to was in use.
        is_known = is_given or source == f"{BY_RULE}: undo"
        if objection := find_candidate_objection(old, new, hidden, known=known, is_given=is_known, files=files):
            return objection
        is_shorter = claim is GateHypothesis.NOT_WORSE
        if is_shorter and estimate_tokens(new.body) >= estimate_tokens(old.body):
            return "it is not shorter"
        same = (text, self.subject.version, self.request.solver, self._solver_model)
        settled = self._list_settled_candidates()
        if any((one.text, one.base, one.solver, one.model) == same and one.number for one in settled):
            return "the same was tried before, by the same solver"
        is_same_cue = (old.when_to_use, old.description) == (new.when_to_use, new.description)
        is_for_text = is_same_cue and not is_given and not is_shorter
        if is_for_text and was_skill_never_opened(self._list_practice_rollouts()):
            return "the skill was never opened, and its cue is as it was"
        return ""

    async def _run_gate(self, candidate: Candidate) -> Candidate | None:
        """Return the candidate if it is accepted; the gate looks after every whole round."""
        if candidate.state is CandidateState.ACCEPTED:
            return candidate
        if candidate.state is not CandidateState.OPEN:
            return None
        if not candidate.number:
            tried = count_gated_candidates(
                await asyncio.to_thread(self.store.list_candidates, self.name), candidate.tasks
            )
            rule = replace(make_gate_rule(candidate), number=tried + 1)
            # Asked before a number is given: a candidate beyond the last has no error to spend.
            if not rule.allowed_error:
                self.runner.stop_starting_rollouts(f"{rule.problem}; add new tasks")
                return None
            candidate = await asyncio.to_thread(self.store.assign_gate_number_to_candidate, candidate)
        by_id = {task.id: task for task in self.subject.tasks[TaskSplit.GATE]}
        if gone := [id for id in candidate.tasks if id not in by_id]:
            self.runner.stop_starting_rollouts(f"the gate's task '{gone[0]}' is gone since its candidate began")
            return None
        gate, tasks = make_gate_rule(candidate), [by_id[id] for id in candidate.tasks]
        while True:
            made = await asyncio.to_thread(self.store.list_rollouts, candidate=candidate.id)
            pairs = pair_complete_rounds(made, TaskSplit.GATE, candidate.tasks)
            tally = RolloutPairCounts.from_pairs(pairs) if pairs else RolloutPairCounts()
            verdict = gate.decide_verdict(tally) if pairs else GateVerdict.OPEN
            if verdict is not GateVerdict.OPEN:
                return await asyncio.to_thread(
                    self._store_verdict,
                    candidate,
                    verdict,
                    gate.explain_shortage_of_tasks(verdict, tally),
                )
            if self.runner.stopped:
                return None
            await self._complete_round(TaskSplit.GATE, tasks, len(pairs) // len(tasks), candidate)

    def _store_verdict(self, candidate: Candidate, verdict: GateVerdict, reason: str) -> Candidate | None:
        state, gate = _STATES[verdict], self._build_report(candidate).gate
        assert gate is not None, "there was a whole round"
        is_shorter = candidate.claim is GateHypothesis.NOT_WORSE
        if state is CandidateState.ACCEPTED and is_shorter and gate.new_tokens >= gate.old_tokens:
            state, reason = CandidateState.NOT_SHOWN, "it takes no fewer tokens"
        settled = self.store.update_candidate(replace(candidate, state=state, reason=reason))
        return settled if state is CandidateState.ACCEPTED else None

    async def _run_exam_and_propose(self, candidate: Candidate) -> int | None:
        """Ask the exam's tasks, and return the number of the proposal, if it comes to one."""
        if not (tasks := self.subject.tasks[TaskSplit.EXAM]):
            failed = replace(candidate, state=CandidateState.FAILED_EXAM, reason=_NO_EXAM)
            await asyncio.to_thread(self.store.update_candidate, failed)
            return None
        for number in range(self.request.rounds):
            await self._complete_round(TaskSplit.EXAM, tasks, number, candidate)
            if self.runner.stopped:
                return None
            made = await asyncio.to_thread(self.store.list_rollouts, candidate=candidate.id)
            if RolloutPairCounts.from_pairs(
                pair_complete_rounds(made, TaskSplit.EXAM, [task.id for task in tasks])
            ).is_repeated:
                break
        return await asyncio.to_thread(self._propose_candidate_if_exam_passed, candidate)

    def _propose_candidate_if_exam_passed(self, candidate: Candidate) -> int | None:
        report = self._build_report(candidate)
        if report.exam is None or not exam.is_exam_passed(report.exam.difference, candidate.claim):
            failed = replace(candidate, state=CandidateState.FAILED_EXAM, reason=NOT_ON_NEW_TASKS)
            self.store.update_candidate(failed)
            return None
        if candidate.proposal is not None:
            return candidate.proposal
        change = SkillChange(
            action=ProposalAction.WRITE,
            name=self.name,
            layer=self.subject.layer,
            tree=self._build_skill_files_with_candidate(candidate),
            details={"improve": {"candidate": candidate.id}},
        )
        author = Author(actor=ActorKind.JOB, name="improve", reason=candidate.why)
        proposal = self.review.propose(change, author, format_candidate_report(report))
        self.store.update_candidate(replace(candidate, proposal=proposal.id))
        return proposal.id

    def _build_report(self, candidate: Candidate) -> CandidateReport:
        return build_candidate_report(candidate, self.store.list_rollouts(candidate=candidate.id))

    def _build_skill_files_with_candidate(self, candidate: Candidate | None) -> Tree:
        """Return the skill's files with the candidate's text; without one, as they are today."""
        if candidate is None:
            return self.subject.tree
        if candidate.source.startswith("proposal "):
            return _get_pending_proposal(self.review, self.name, int(candidate.source.split()[1])).change.tree
        added = {path: build_tree_file(text.encode()) for path, text in candidate.files.items()}
        return {**_replace_main_text(self.subject.tree, candidate.text), **added}

    async def _complete_round(
        self, side: TaskSplit, tasks: Sequence[Task], number: int, candidate: Candidate | None
    ) -> None:
        """Solve every task with each version (in practice: with today's), but for what is stored already."""
        stored = (
            partial(self.store.list_rollouts, candidate=candidate.id) if candidate else self._list_practice_rollouts
        )
        made = await asyncio.to_thread(stored)
        done = {(one.side, one.round, one.task, one.is_new) for one in made if one.is_counted}
        both = interleave_versions(tasks, number) if candidate else ((task, False) for task in tasks)
        wanted = [(task, is_new) for task, is_new in both if (side, number, task.id, is_new) not in done]
        key = candidate.id if candidate is not None else self.request.solver
        await self.runner.run_round(
            side,
            number,
            wanted,
            lambda is_new: self._get_version_solver(candidate if is_new else None),
            candidate=key,
        )

    async def _get_version_solver(self, candidate: Candidate | None) -> TaskSolver:
        """Return the solver with this version; each is set up once."""
        key = candidate.id if candidate is not None else ""
        async with self._opening:
            if key not in self._solvers:
                tree = await asyncio.to_thread(self._build_skill_files_with_candidate, candidate)
                self._solvers[key] = await self._exits.enter_async_context(self.open_solver(tree))
        return self._solvers[key]

    def _build_result(self, proposal: int | None) -> ImproveResult:
        made, budget = self.runner.rollouts, self.runner.budget
        return ImproveResult(
            skill=self.name,
            run=self.runner.run,
            reports=tuple(build_candidate_report(one, made) for one in self._list_own_and_left_open_candidates()),
            proposal=proposal,
            is_never_opened=was_skill_never_opened(self._list_practice_rollouts()),
            stopped=self.runner.stopped,
            rollouts=len(made),
            lost=sum(one.outcome == LOST for one in made),
            tokens=sum(one.tokens for one in self._paid_before) + budget.tokens,
            dollars=sum(one.dollars for one in self._paid_before) + (budget.usage.cost or 0.0),
        )


def _get_pending_proposal(review: ReviewQueue, name: str, number: int) -> Proposal:
    found = review.get(number)
    if found.change.name != name or found.change.action is not ProposalAction.WRITE:
        raise NotFound(f"Proposal {number} does not change the text of '{name}'.", hint="See 'habitus review list'.")
    if found.state is not ProposalState.PENDING:
        raise Refused(f"Proposal {number} is decided already.", hint="See 'habitus review list'.")
    return found


def _replace_main_text(tree: Tree, text: str) -> Tree:
    return {**tree, trees.find_main_file(tree) or trees.MAIN_FILES[0]: build_tree_file(text.encode())}
