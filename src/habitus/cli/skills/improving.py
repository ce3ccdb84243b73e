"""`habitus skills improve`, `trial` and `climb`, and `lessons promote`: shows the cost, then progress and result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from habitus.app import Habitus
from habitus.app.learning.climbing import StageClimbPlanOrResult
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.learning.improving import (
    forecast_requested_improvement,
    open_drafting_models,
    plan_skill_trial,
    run_planned_skill_trial,
)
from habitus.app.learning.solving import describe_solver_access
from habitus.app.library.exam_cards import describe_publisher_claim
from habitus.app.operating import job_kinds, jobs
from habitus.app.tasks.reviewing import refuse_unreviewed_foreign_tasks
from habitus.app.use_cases import improving
from habitus.cli import inputs, output, use_case_commands
from habitus.cli.completion import JsonOption, SkillNameArgument, YesOption
from habitus.cli.foreground_jobs import raise_if_job_failed, run_job_in_foreground
from habitus.cli.opening import open_habitus
from habitus.evidence.versions import LiveComparison
from habitus.improve.candidates import CandidateState
from habitus.improve.gate import GateHypothesis
from habitus.improve.plan import ImproveRequest
from habitus.improve.report import CandidateReport, VersionComparison, build_candidate_report
from habitus.improve.rollouts import RolloutRunner
from habitus.improve.store import ImproveStore
from habitus.improve.trials import TrialPlan, parse_trial_tasks
from habitus.jobs.model import Job
from habitus.jobs.queue import JobQueue
from habitus.learning.budget import BudgetedModel, RunBudget, RunLimits
from habitus.plain_data import convert_to_plain_json
from habitus.tasks.rollouts import TaskSplit

# After Ctrl-C the running rollout gets a second; it would be repeated anyway.
_INTERRUPT_GRACE_S = 1.0


def _print_improvement_ranking(context: typer.Context, wanted: bool) -> None:
    """Print which skills a scheduled run would try first, and why, instead of running anything."""
    if not wanted:
        return
    with open_habitus(context) as habitus:
        found = improving.plan_improvements(habitus)
    if context.params["as_json"]:
        output.print_json(found)
        raise typer.Exit
    rows = [
        (
            "left out" if one.skill in found.left_out else number,
            one.skill,
            f"{one.gain:.1f}",
            f"${one.cents / 100:.2f}" if one.cents else "unknown",
            one.reason,
        )
        for number, one in enumerate(found.ranking, 1)
    ]
    empty = "No skill has enough tasks; get some with 'habitus tasks mine' or 'habitus tasks draft NAME'."
    output.print_table_or_message(empty, ("", "skill", "gain", "price", "why"), rows, wide="why", is_cut=False)
    if found.success_cents:
        left = f", so {', '.join(found.left_out)} would cost more than it gains" if found.left_out else ""
        output.print_line(
            f"One more success is worth {found.success_cents:g} cents (success_cents){left}.", style="dim"
        )
    raise typer.Exit


@use_case_commands.with_use_case_options(improving.start_improvement)
def improve_skill(
    context: typer.Context,
    improvement: improving.StartImprovementRequest,
    plan_all: Annotated[
        bool,
        typer.Option(
            "--plan", callback=_print_improvement_ranking, help="Only show which skill pays most, and why; no NAME."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan and what it could detect.")] = False,
    later: Annotated[bool, typer.Option("--later", help="Queue it for a worker.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Try small changes to a skill on its tasks and propose one that proves better. Asks before it spends money.

    The same command or 'habitus jobs work' continues an interrupted run; nothing is measured twice.
    """
    text = inputs.read_text_of_file_or_stdin(improvement.text) if improvement.text else ""
    request = replace(improvement, text=text).improve_request
    powers = [describe_solver_access(request.solver)] if request.solver else []
    with open_habitus(context) as habitus:
        refuse_unreviewed_foreign_tasks(habitus, request.skill)
        plan = forecast_requested_improvement(habitus, request)
        cost = f"A run takes {plan.cost_text}."
        if dry_run:
            output.print_command_result(context, as_json, plan, *plan.lines, *powers, cost)
            plan.raise_if_run_cannot_start()
            return
        queue = jobs.open_job_queue(habitus)
        # Rollouts that are already paid for are reused.
        begun = _find_interrupted_job_of_request(queue, request)
        for line in [*plan.lines, *powers, *_describe_continued_job_and_limits(request, begun), cost]:
            (output.print_line_to_stderr if as_json else output.print_line)(line)
        plan.raise_if_run_cannot_start()
        if (drafters := open_drafting_models(habitus, request)) is not None:
            # Opening the model here reports a missing one before a job is queued.
            _ = drafters.main
        _confirm_spending(yes=yes, as_json=as_json)
        id = begun or job_kinds.add_job(habitus.settings, queue, "improve", asdict(request))
        if later:
            output.print_command_result(context, as_json, queue.get(id), f"{id} is queued for a worker.")
            return
        progress = _ImproveProgressPrinter(open_improve_store(habitus), plan.skill, queue.get(id), is_quiet=as_json)
        job = run_job_in_foreground(habitus, queue, id, progress.print_progress, patience_s=_INTERRUPT_GRACE_S)
        if as_json:
            output.print_json({"job": job, "runs": queue.list_part_results(id)})
        else:
            _print_proposals_and_costs_of_runs(context, job, queue.list_part_results(id), progress)
        raise_if_job_failed(job)
        # A candidate of the person's that was not even tried is an error to them, not an answer.
        if request.has_given_candidate and any(
            _list_candidate_refusal_reasons(run) for run in queue.list_part_results(id)
        ):
            raise typer.Exit(1)


def _confirm_spending(*, yes: bool, as_json: bool) -> None:
    """Ask before money is spent, and exit with 1 unless the answer is yes."""
    if not yes and not typer.confirm("Run it?", err=as_json):
        raise typer.Exit(1)


def _describe_continued_job_and_limits(request: ImproveRequest, begun: str) -> list[str]:
    """Return lines on the job that is continued and on the limits."""
    lines = [f"Continues the interrupted run {begun}."] if begun else []
    limits = [
        f"{request.tokens:,} tokens" if request.tokens else "",
        f"${request.dollars:g}" if request.dollars else "",
    ]
    limits.append(f"{request.minutes:g} minutes" if request.minutes else "")
    return [*lines, f"It stops after {', '.join(filter(None, limits))}." if any(limits) else "It has no --budget."]


def _find_interrupted_job_of_request(queue: JobQueue, request: ImproveRequest) -> str:
    """Return the id of the same request's job that was interrupted; empty if there is none."""
    # The budget may differ: a run with a new limit still continues the old one.
    about = ("skill", "text", "proposal", "shorter", "solver")
    same = {key: value for key, value in asdict(request).items() if key in about}
    return next(
        (one.id for one in queue.list_unfinished_jobs_of_kind("improve") if same.items() <= one.arguments.items()), ""
    )


def _print_proposals_and_costs_of_runs(
    context: typer.Context, job: Job, results: list[Any], progress: _ImproveProgressPrinter
) -> None:
    """Print each run's proposal, or why there is none, and its costs."""
    if not job.state.is_over:
        output.print_line(
            f"Interrupted; {progress.spent} saved. Continue {job.id} with the same command or 'habitus jobs work'."
        )
    for run in results:
        if run["is_never_opened"]:
            output.print_line("In practice it was never opened, so its text can't help: first edit when to use it.")
        if run["stopped"]:
            output.print_line(f"Stopped: {run['stopped']}.", style="yellow")
        if run["proposal"] is not None:
            show = output.format_command(context, "review", "show", str(run["proposal"]))
            output.print_line(f"Proposed: {show}", style="green")
        elif refused := _list_candidate_refusal_reasons(run):
            for reason in refused:
                output.print_line(f"Not tried: {reason}.", style="yellow")
        elif not run["stopped"]:
            output.print_line(f"Not shown: {_get_reason_of_last_candidate(run)}.")
        lost = f", {run['lost']} of them repeated" if run["lost"] else ""
        spent = f"{run['tokens']:,} tokens{_format_dollars_after_comma(run['dollars'])}"
        output.print_line(f"{run['rollouts']} rollouts{lost}; {spent}.", style="dim")


def _list_candidate_refusal_reasons(run: Mapping[str, Any]) -> list[str]:
    """Return why the candidates of a run were refused; empty if any was tried."""
    tried = [report["candidate"] for report in run["reports"]]
    is_refused = bool(tried) and all(one["state"] == CandidateState.REFUSED for one in tried)
    return [one["reason"] for one in tried] if is_refused else []


def _get_reason_of_last_candidate(run: Mapping[str, Any]) -> str:
    """Return the reason of the last candidate, or that nothing was proved."""
    reasons = [report["candidate"]["reason"] for report in run["reports"]]
    return next(filter(None, reversed(reasons)), "no change was proved to help. That is the usual answer")


class _ImproveProgressPrinter:
    """Prints practice, gate and exam results of a run as they are stored."""

    def __init__(self, store: ImproveStore, skill: str, job: Job, *, is_quiet: bool) -> None:
        self._store = store
        self._skill = skill
        self._job = job
        self._is_quiet = is_quiet
        self._printed: dict[str, str] = {}
        self._began = time.monotonic()
        self.spent = "nothing"

    def print_progress(self) -> None:
        """Print the lines that are new or have changed since the last call."""
        rollouts = self._store.list_rollouts(skill=self._skill, job=self._job.id)
        if not rollouts or self._is_quiet:
            return
        minutes = (time.monotonic() - self._began) / 60
        tokens, dollars = sum(one.tokens for one in rollouts), sum(one.dollars for one in rollouts)
        self.spent = (
            f"{len(rollouts)} rollouts, {tokens:,} tokens{_format_dollars_after_comma(dollars)}, {minutes:.1f} minutes"
        )
        so_far = f" [{self.spent}{self._format_remaining_budget(tokens=tokens, dollars=dollars, minutes=minutes)}]"
        practised = sum(one.side is TaskSplit.PRACTICE for one in rollouts)
        self._print_line_if_changed("practice", f"Practice: {practised} rollouts." if practised else "", so_far)
        for one in self._store.list_candidates(self._skill):
            if one.run.startswith(self._job.id):
                report = build_candidate_report(one, rollouts)
                self._print_line_if_changed(one.id, f"Candidate {one.number or '–'}: {one.why}")
                self._print_line_if_changed(f"{one.id} gate", _format_candidate_gate_result(report), so_far)
                self._print_line_if_changed(
                    f"{one.id} exam", f"  exam: {report.exam.summary_line}" if report.exam else "", so_far
                )

    def _format_remaining_budget(self, **spent: float) -> str:
        """Return the rest of the budget, if the job has one."""
        forms = {"tokens": "{:,.0f} tokens", "dollars": "${:.2f}", "minutes": "{:.1f} minutes"}
        limits = {unit: limit for unit in forms if (limit := self._job.arguments.get(unit))}
        left = [forms[unit].format(max(limit - spent[unit], 0)) for unit, limit in limits.items()]
        return f"; {', '.join(left)} left" if left else ""

    def _print_line_if_changed(self, key: str, line: str, so_far: str = "") -> None:
        if line and self._printed.get(key) != line:
            self._printed[key] = line
            output.print_line(f"{line}{so_far}", style="dim" if so_far else "")


def _format_candidate_gate_result(report: CandidateReport) -> str:
    """Return a candidate's gate result, or why it was not tried; empty while it is pending."""
    one = report.candidate
    if one.state is CandidateState.REFUSED:
        return f"  not tried: {one.reason}"
    return f"  {one.state.value}: {report.gate.summary_line}" if report.gate is not None else ""


def print_result_of_list_improvements(context: typer.Context, result: improving.ListImprovementsResult) -> None:
    for line in result.plan.lines:
        output.print_line(line)
    columns = ("number", "why", "tasks", "old", "new", "difference", "tokens", "exam", "result")
    output.print_table(columns, [_format_candidate_row(one) for one in result.candidates], wide="why")


def _format_candidate_row(report: CandidateReport) -> list[object]:
    """Return the table cells of a candidate."""
    one, gate, exam = report.candidate, report.gate, report.exam
    claim = " (shorter)" if one.claim is GateHypothesis.NOT_WORSE else ""
    claim += f" (solver: {one.solver})" if one.solver else ""
    measured: tuple[object, ...] = ("", "", "", one.reason, "")
    if gate is not None:
        rates = (f"{100 * gate.old:.0f}", f"{100 * gate.new:.0f}")
        measured = (gate.tasks, *rates, _format_version_difference(gate), f"{gate.old_tokens} → {gate.new_tokens}")
    came_to = f"{one.state.value}{f', proposal {one.proposal}' if one.proposal else ''}"
    return [
        one.number or "–",
        f"{one.why}{claim}",
        *measured,
        _format_version_difference(exam) if exam else "",
        came_to,
    ]


def _format_version_difference(found: VersionComparison) -> str:
    """Return the difference between two versions with its interval, in tasks of 100."""
    low, value, high = (round(100 * part) for part in (found.interval.low, found.difference, found.interval.high))
    return f"{value:+d} ({low:+d} to {high:+d})"


def _format_dollars_after_comma(amount: float) -> str:
    return f", about ${amount:.2f}" if amount else ""


def print_result_of_compare_versions(context: typer.Context, result: LiveComparison, stop: bool) -> None:
    if stop:
        output.print_line(f"{result.skill} has version {result.new} in every conversation that begins from now on.")
        return
    output.print_line(
        f"{result.share:.0%} of the conversations that begin from now on get version {result.old} of {result.skill}; "
        f"see 'habitus skills comparisons'."
    )
    output.print_and_register_undo_command(context, "skills", "compare", result.skill, "--stop")


def print_result_of_list_comparisons(context: typer.Context, result: improving.ListComparisonsResult) -> None:
    rows = [
        (
            one.comparison.skill,
            f"{one.comparison.old} → {one.comparison.new}",
            one.comparison.state.value,
            f"{one.result.old.judged} and {one.result.new.judged}",
            one.result.sentence,
        )
        for one in result.comparisons
    ]
    columns = ("skill", "versions", "state", "judged, old and new", "known")
    output.print_table_or_message("No change was compared in use yet.", columns, rows, wide="known")
    share = f"{result.share:.0%} of conversations get the version before an approved improvement"
    output.print_line(
        f"{share if result.share else 'Versions are not compared'} (evidence.compare_versions).", style="dim"
    )


def print_result_of_climb_skill(context: typer.Context, result: StageClimbPlanOrResult, dry_run: bool) -> None:
    output.print_line(f"{result.skill or result.item} to {result.to.label}. {result.why}")
    output.print_line("\n".join(f"    {line}".rstrip() for line in result.text.strip().splitlines()), style="green")
    if dry_run:
        output.print_line("Dry run: nothing was drafted or proposed.")
    elif result.problem:
        output.print_line(f"Not proposed: {result.problem}", style="yellow")
    else:
        output.print_line(f"Pending review: {output.format_command(context, 'review', 'show', str(result.proposal))}")
    if result.spent:
        output.print_line(f"{result.spent}.", style="dim")


# A lesson's climb has the same result as a skill's.
print_result_of_promote_lesson = print_result_of_climb_skill


def run_skill_trial(
    context: typer.Context,
    name: SkillNameArgument,
    cases: Annotated[Path | None, typer.Option("--cases", help="Tasks as TOML or JSON; else the skill's own.")] = None,
    runs: Annotated[int, typer.Option("--runs", "-n", min=1, max=1000, help="Pairs of runs per case.")] = 1,
    model: Annotated[
        str, typer.Option("--model", "-m", help="provider:model; default is the model in the settings.")
    ] = "",
    budget: Annotated[str, typer.Option("--budget", help="Limit in tokens (50k), minutes (30m) or dollars ($2).")] = "",
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the same requests with a skill and without it, and record the results as evidence. Asks before spending."""
    limits = RunLimits.parse(budget)
    with open_habitus(context, model=model) as habitus:
        given = (
            parse_trial_tasks(inputs.read_text_of_file_or_stdin(str(cases)), about=str(cases))
            if cases is not None
            else ()
        )
        plan = plan_skill_trial(habitus, name, given, runs, limits)
        paid = RunBudget(limits).wrap_model(habitus.models.main)
        (output.print_line_to_stderr if as_json else output.print_line)(
            f"{output.format_quantity(plan.conversations, 'conversation')} with {paid.name}, half of them without "
            f"'{plan.subject.name}': about {plan.likely_tokens:,} tokens."
        )
        _confirm_spending(yes=yes, as_json=as_json)
        runner = asyncio.run(_run_trial_and_print_scores(habitus, plan, paid, is_quiet=as_json))
        _print_trial_result_and_evidence(habitus, plan, runner, as_json)


async def _run_trial_and_print_scores(
    habitus: Habitus, plan: TrialPlan, model: BudgetedModel, *, is_quiet: bool
) -> RolloutRunner:
    """Run the conversations, print the score after each, and close the model."""
    try:
        async for runner in run_planned_skill_trial(habitus, plan, model):
            if not is_quiet:
                output.print_line(
                    f"{len(runner.rollouts)} of {plan.conversations}: {_describe_successes_per_variant(runner)}",
                    style="dim",
                )
        return runner
    finally:
        await habitus.models.close()


def _print_trial_result_and_evidence(habitus: Habitus, plan: TrialPlan, runner: RolloutRunner, as_json: bool) -> None:
    """Print the trial's result and what is known about this version from all evidence."""
    subject, spent = plan.subject, runner.budget.summary
    versions = habitus.evidence.find_skill_findings(subject.item)
    known = next((one for one in versions if one.item.version == subject.version), None)
    claim = describe_publisher_claim(habitus.skills, subject.name)
    if as_json:
        found = {"skill": subject.name, "version": subject.version, "rollouts": runner.rollouts}
        found |= {"stopped": runner.stopped, "finding": known, "spent": spent, "claim": claim}
        output.print_json(convert_to_plain_json(found, shaped=True))
        return
    output.print_line(f"{_describe_successes_per_variant(runner).capitalize()}.")
    output.print_line(f"Stopped: {runner.stopped}." if runner.stopped else f"{spent}.")
    if known is not None:
        output.print_line(f"Evidence on version {subject.version}: {known.sentence}")
    if claim:
        output.print_line(f"To compare: {claim}.")


def _describe_successes_per_variant(runner: RolloutRunner) -> str:
    """Return how many rollouts of each variant succeeded, of those that could be judged."""
    parts = []
    for is_offered, variant in ((True, "with it"), (False, "without it")):
        made = [one for one in runner.rollouts if one.is_new is is_offered]
        judged = [one.is_ok for one in made if one.is_counted]
        broken = f" ({len(made) - len(judged)} could not be judged)" if len(judged) < len(made) else ""
        parts.append(f"{variant} {sum(judged)} of {len(judged)} succeeded{broken}")
    return ", ".join(parts)
