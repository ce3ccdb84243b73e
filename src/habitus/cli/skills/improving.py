"""`habitus skills improve`, `trial` and `climb`, and `lessons promote`: the cost said first, progress while it runs,
and "not shown" said as such; one step up by hand is proposed like any other.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from habitus.app import Habitus, json_shapes
from habitus.app.learning import rollouts
from habitus.app.learning.climbing import Climb, Climbing, drafting
from habitus.app.learning.improving import drafter
from habitus.app.learning.rollouts import Rollouts, Trial, Wish, open_ledger, outlook
from habitus.app.learning.solving import describe_powers
from habitus.app.operating import job_kinds, jobs
from habitus.app.use_cases import improving
from habitus.app.use_cases.improving import Improvement, Improvements, OneSkill
from habitus.cli import completion, inputs, output, use_case_commands
from habitus.cli.completion import AsJson, SkillName, Yes
from habitus.cli.opening import open_habitus
from habitus.errors import Invalid
from habitus.evidence.gate import Claim
from habitus.jobs.model import Job, JobState
from habitus.jobs.queue import JobQueue
from habitus.learning.budget import Budget, BudgetedModel, Limits
from habitus.learning.improve_ledger import CandidateState, ImproveLedger, Side
from habitus.learning.improve_report import CandidateReport, Compared, report_on
from habitus.skills.model import Stage

_PATIENCE_S = 1.0  # for what is under way when somebody presses Ctrl-C


@use_case_commands.taking(improving.improve)
def improve(
    context: typer.Context,
    wanted: Improvement,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do and could show.")] = False,
    later: Annotated[bool, typer.Option("--later", help="Leave it to a worker.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Try small changes of a skill on its tasks, and propose one that is proved better; asks before it spends.

    What was interrupted, the same command or 'habitus worker' goes on with: nothing measured is measured again.
    """
    text = inputs.read_text(wanted.text) if wanted.text else ""
    wish = replace(wanted, text=text).wish
    powers = [describe_powers(wish.solver)] if wish.solver else []
    with open_habitus(context) as habitus:
        seen = outlook(habitus, wish)
        if dry_run:
            _print(seen, [*seen.lines, *powers, f"A run takes {seen.cost}."], as_json)
            return
        queue = jobs.open_queue(habitus)
        begun = _unfinished_job(queue, wish)
        say: Callable[[str], None] = output.complain if as_json else output.say
        for line in [*seen.lines, *powers, *_before_it_starts(wish, begun), f"A run takes {seen.cost}."]:
            say(line)
        if not seen.can_run:
            raise Invalid(f"'{seen.skill}' has no task for a gate.", mend=f"Add some: habitus tasks add {seen.skill}")
        if (drafts := drafter(habitus, wish)) is not None:
            _ = drafts.main  # that there is none is said before anything is left to do
        if not yes and not typer.confirm("Run it?", err=as_json):
            raise typer.Exit(1)
        id = begun or job_kinds.add(habitus.settings, queue, "improve", asdict(wish))
        if later:
            _print(queue.get(id), [f"{id} waits for a worker."], as_json)
            return
        _follow(context, habitus, queue, seen.skill, id, as_json)


def _before_it_starts(wish: Wish, begun: str) -> list[str]:
    said = []
    if begun:
        said.append(f"Goes on with {begun}, which was interrupted.")
    limits = [f"{wish.tokens:,} tokens" if wish.tokens else "", f"${wish.dollars:g}" if wish.dollars else ""]
    limits.append(f"{wish.minutes:g} minutes" if wish.minutes else "")
    said.append(f"It stops after {', '.join(filter(None, limits))}." if any(limits) else "It has no --budget.")
    return said


def _unfinished_job(queue: JobQueue, wish: Wish) -> str:
    """The job of the same wish that somebody interrupted."""
    about = ("skill", "text", "proposal", "shorter", "solver")
    same = {key: value for key, value in asdict(wish).items() if key in about}
    return next((one.id for one in queue.list_unfinished("improve") if same.items() <= one.given.items()), "")


def _follow(context: typer.Context, habitus: Habitus, queue: JobQueue, skill: str, id: str, as_json: bool) -> None:
    stopped, watch = threading.Event(), _Watch(open_ledger(habitus), skill, queue.get(id), is_quiet=as_json)
    before = signal.signal(signal.SIGINT, lambda *_: stopped.set())
    try:
        with jobs.at_work(habitus, queue, only=("improve",), starts_due=False, patience_s=_PATIENCE_S):
            while not queue.get(id).state.is_over and not stopped.wait(0.3):
                watch.look()
    finally:
        signal.signal(signal.SIGINT, before)
    job, results = queue.get(id), queue.results(id)
    if as_json:
        output.print_json({"job": job, "runs": results})
    else:
        watch.look()
        _say_result(context, job, results, watch)
    if job.state is JobState.FAILED:
        raise Invalid(f"The job {id} failed: {job.reason}", mend=f"Mend it, then: habitus jobs retry {id}")


def _say_result(context: typer.Context, job: Job, results: list[Any], watch: _Watch) -> None:
    if not job.state.is_over:
        output.say(f"Interrupted; {watch.spent} kept. The same command, or 'habitus worker', goes on with {job.id}.")
    for run in results:
        if run["is_never_opened"]:
            output.say(
                "In practice it was never opened, so its text can't help: the cue (when to use it) is the first thing "
                "to edit."
            )
        if run["stopped"]:
            output.say(f"Stopped: {run['stopped']}.", style="yellow")
        if run["proposal"] is not None:
            show = output.command(context, "review", "show", str(run["proposal"]))
            output.say(f"Proposed: {show}", style="green")
        elif not run["stopped"]:
            output.say("Not shown: no change was proved to help. That is the usual answer.")
        lost = f", {run['lost']} of them paid twice" if run["lost"] else ""
        output.say(
            f"{run['rollouts']} rollouts{lost}; {run['tokens']:,} tokens{_dollars(run['dollars'])}.", style="dim"
        )


class _Watch:
    """Says what is new in the ledger of a run."""

    def __init__(self, ledger: ImproveLedger, skill: str, job: Job, *, is_quiet: bool) -> None:
        self._ledger = ledger
        self._skill = skill
        self._run = job.id
        self._limits = job.given
        self._is_quiet = is_quiet
        self._said: dict[str, str] = {}
        self._began = time.monotonic()
        self.spent = "nothing"
        self.left = ""

    def look(self) -> None:
        kept = self._ledger.rollouts(skill=self._skill, job=self._run)
        if not kept:
            return
        minutes = (time.monotonic() - self._began) / 60
        tokens, dollars = sum(one.tokens for one in kept), sum(one.dollars for one in kept)
        self.spent = f"{len(kept)} rollouts, {tokens:,} tokens{_dollars(dollars)}, {minutes:.1f} minutes"
        self.left = self._budget_left(tokens, dollars, minutes)
        practised = sum(one.side is Side.PRACTICE for one in kept)
        self._say("practice", f"Practised {practised} times." if practised else "", progress=True)
        for one in self._ledger.candidates(self._skill):
            if one.run.startswith(self._run):
                report = report_on(one, kept)
                self._say(one.id, f"Candidate {one.number or '–'}: {one.why}")
                self._say(f"{one.id} gate", _gate_line(report), progress=True)
                self._say(f"{one.id} exam", f"  exam: {report.exam.line}" if report.exam else "", progress=True)

    def _budget_left(self, tokens: int, dollars: float, minutes: float) -> str:
        """The rest of its budget, where it has one."""
        taken = {
            "tokens": (tokens, "{:,.0f} tokens"),
            "dollars": (dollars, "${:.2f}"),
            "minutes": (minutes, "{:.1f} minutes"),
        }
        said = [
            form.format(max(self._limits[of] - so_far, 0))
            for of, (so_far, form) in taken.items()
            if self._limits.get(of)
        ]
        return f"; {', '.join(said)} left" if said else ""

    def _say(self, about: str, line: str, *, progress: bool = False) -> None:
        if line and self._said.get(about) != line and not self._is_quiet:
            self._said[about] = line
            output.say(f"{line} [{self.spent}{self.left}]" if progress else line, style="dim" if progress else "")


def _gate_line(report: CandidateReport) -> str:
    one = report.candidate
    if one.state is CandidateState.REFUSED:
        return f"  not tried: {one.reason}"
    return f"  {one.state.value}: {report.gate.line}" if report.gate is not None else ""


def improvements(context: typer.Context, wanted: OneSkill, done: Improvements) -> None:
    for line in done.outlook.lines:
        output.say(line)
    columns = ("number", "why", "tasks", "old", "new", "difference", "tokens", "exam", "came to")
    output.table(columns, [_row(one) for one in done.candidates], wide="why")


def _row(report: CandidateReport) -> list[object]:
    one, gate, exam = report.candidate, report.gate, report.exam
    claim = " (shorter)" if one.claim is Claim.NOT_WORSE else ""
    claim += f" (solved by {one.solver})" if one.solver else ""
    came_to = f"{one.state.value}{f', proposal {one.proposal}' if one.proposal else ''}"
    measured = (
        (gate.tasks, _of_100(gate.old), _of_100(gate.new), _difference(gate), f"{gate.old_tokens} → {gate.new_tokens}")
        if gate is not None
        else ("", "", "", one.reason, "")
    )
    return [one.number or "–", f"{one.why}{claim}", *measured, _difference(exam) if exam else "", came_to]


def _of_100(share: float) -> str:
    return f"{100 * share:.0f}"


def _difference(compared: Compared) -> str:
    low, value, high = (
        round(100 * part) for part in (compared.interval.low, compared.difference, compared.interval.high)
    )
    return f"{value:+d} ({low:+d} to {high:+d})"


def _dollars(amount: float) -> str:
    return f", about ${amount:.2f}" if amount else ""


def _print(found: object, lines: list[str], as_json: bool) -> None:
    if as_json:
        output.print_json(found)
        return
    for line in lines:
        output.say(line)


Drafter = Annotated[str, typer.Option("--model", help="Let provider:model draft it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what it would be made of.")]


class Target(StrEnum):
    RECIPE = "recipe"
    CODE = "code"

    @property
    def stage(self) -> Stage:
        return Stage.CHUNKS if self is Target.RECIPE else Stage.CODE


def skill(
    context: typer.Context,
    name: SkillName,
    to: Annotated[
        Target | None, typer.Option("--to", help="Which stage; else the next there is something for.")
    ] = None,
    model: Drafter = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take a skill to its next stage: a recipe from what was done with it, or code that passes its trial."""
    with open_habitus(context) as habitus:
        climbing = Climbing(habitus)
        found = climbing.skill(name, to.stage if to else None)
        _climb(context, habitus, climbing, found, model, is_dry=dry_run, as_json=as_json)


def lesson(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="A lesson.", autocompletion=completion.lesson_ids)],
    model: Drafter = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a lesson a skill: drafted by a model, or without one from the facts."""
    with open_habitus(context) as habitus:
        climbing = Climbing(habitus)
        _climb(context, habitus, climbing, climbing.lesson(id), model, is_dry=dry_run, as_json=as_json)


def _climb(
    context: typer.Context,
    habitus: Habitus,
    climbing: Climbing,
    found: Climb,
    model: str,
    *,
    is_dry: bool,
    as_json: bool,
) -> None:
    done = found if is_dry else asyncio.run(_carried_out(habitus, climbing, found, model))
    if as_json:
        output.print_json(done)
    else:
        output.say(f"{done.skill or done.item} to {done.to.value}. {done.why}")
        output.say("\n".join(f"    {line}".rstrip() for line in done.text.strip().splitlines()), style="green")
        if is_dry:
            output.say("Nothing was drafted, tried or proposed.")
        elif done.problem:
            output.say(f"Not proposed: {done.problem}", style="yellow")
        else:
            output.say(f"It waits for you: {output.command(context, 'review', 'show', str(done.proposal))}")
        if done.spent:
            output.say(f"{done.spent}.", style="dim")
    if done.problem:
        raise typer.Exit(1)


async def _carried_out(habitus: Habitus, climbing: Climbing, found: Climb, model: str) -> Climb:
    async with drafting(habitus, model) as drafter:
        done = await climbing.carry_out(found, drafter)
    return replace(done, spent=drafter.budget.line) if drafter is not None else done


def trial(
    context: typer.Context,
    name: SkillName,
    cases: Annotated[Path | None, typer.Option("--cases", help="Tasks as TOML or JSON; else the skill's own.")] = None,
    runs: Annotated[int, typer.Option("--runs", "-n", min=1, max=1000, help="Pairs of runs for each case.")] = 1,
    model: Annotated[str, typer.Option("--model", "-m", help="provider:model; else that of the settings.")] = "",
    budget: Annotated[
        str, typer.Option("--budget", help="Stop at so many tokens (50k), minutes (30m), dollars ($2).")
    ] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Ask the same with a skill and without it, and keep how both went as evidence; asks before it spends."""
    limits = Limits.parse(budget)
    with open_habitus(context, model=model) as habitus:
        read = rollouts.read_cases(inputs.read_text(str(cases)), about=str(cases)) if cases is not None else ()
        ready = rollouts.prepare(habitus, name, read, runs)
        paid = Budget(limits).model(habitus.models.main)
        (output.complain if as_json else output.say)(
            f"{output.count_of(ready.conversations, 'conversation')} with {paid.name}, half of them without "
            f"'{ready.subject.item.name}': about {ready.likely_tokens:,} tokens."
        )
        if not yes and not typer.confirm("Run it?", err=as_json):
            raise typer.Exit(1)
        made = asyncio.run(_run(habitus, ready, paid, is_quiet=as_json))
        _print_trial(habitus, ready, made, as_json)


async def _run(habitus: Habitus, ready: Trial, model: BudgetedModel, *, is_quiet: bool) -> Rollouts:
    try:
        async for made in rollouts.run(habitus, ready, model):
            if not is_quiet:
                output.say(f"{len(made.tries)} of {ready.conversations}: {_arms(made)}", style="dim")
        return made
    finally:
        await habitus.models.close()


def _print_trial(habitus: Habitus, ready: Trial, made: Rollouts, as_json: bool) -> None:
    subject, spent = ready.subject, made.budget.line
    versions = habitus.evidence.of_skill(subject.item)
    known = next((one for one in versions if one.item.version == subject.version), None)
    if as_json:
        found = {
            "skill": subject.item.name,
            "version": subject.version,
            "rollouts": made.tries,
            "stopped": made.stopped,
        }
        output.print_json(json_shapes.result({**found, "finding": known, "spent": spent}))
        return
    output.say(f"{_arms(made).capitalize()}.")
    output.say(f"Stopped: {made.stopped}." if made.stopped else f"{spent}.")
    if known is not None:
        output.say(f"All that is known of version {subject.version}: {known.sentence}")


def _arms(made: Rollouts) -> str:
    """How each went, of what could be judged."""
    said = []
    for is_offered, arm in ((True, "with it"), (False, "without it")):
        went = [one for one in made.tries if one.is_new is is_offered]
        judged = [one.is_ok for one in went if one.counts]
        broken = f" ({len(went) - len(judged)} could not be judged)" if len(judged) < len(went) else ""
        said.append(f"{arm} {sum(judged)} of {len(judged)} went well{broken}")
    return ", ".join(said)
