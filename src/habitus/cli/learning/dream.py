"""`habitus learn dream`: self-play in the foreground or as a job, and checking of challenges."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from habitus.app import Habitus
from habitus.app.learning import self_play
from habitus.app.operating import jobs
from habitus.app.operating.job_kinds import add_job
from habitus.app.tasks.validation import validate_tasks
from habitus.cli import output
from habitus.cli.completion import JsonOption
from habitus.cli.foreground_jobs import raise_if_job_failed, run_job_in_foreground
from habitus.cli.opening import open_habitus
from habitus.errors import NotFound
from habitus.jobs.model import JobState
from habitus.jobs.queue import JobQueue
from habitus.learning.budget import RunLimits
from habitus.learning.self_play import DOMAINS


def run_self_play(
    context: typer.Context,
    cycles: Annotated[int, typer.Option("--cycles", "-n", min=1, help="Number of challenges.")] = 1,
    budget: Annotated[str, typer.Option("--budget", help="Limit in tokens (50k), minutes (30m) or dollars ($2).")] = "",
    model: Annotated[
        str, typer.Option("--model", help="The model, as provider:model; default is the model in the settings.")
    ] = "",
    domain: Annotated[str, typer.Option("--domain", help=f"Only one of {', '.join(DOMAINS)}.")] = "",
    challenges: Annotated[
        str, typer.Option("--challenges", help="A .toml file with a challenge, or a folder of them.")
    ] = "",
    later: Annotated[bool, typer.Option("--later", help="Queue it for a worker.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only run the challenges' own solutions; no model.")] = False,
    invent: Annotated[
        bool, typer.Option("--invent", help="Let the model create a challenge from failures in this home.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Practise: solve challenges in the sandbox, draw lessons, and keep those that proved to help.

    Runs as a job: the same command or 'habitus jobs work' continues an interrupted run.
    """
    with open_habitus(context) as habitus:
        if check:
            _validate_challenge_solutions(habitus, Path(challenges) if challenges else None, as_json)
            return
        if invent:
            made, sound = asyncio.run(self_play.invent_and_store_challenge(habitus, model=model))
            came_to = f"({made.domain}) is saved" if sound.is_sound else f"is not usable: {sound.reason}"
            found = {"challenge": made.as_json(), "soundness": sound}
            output.print_command_result(context, as_json, found, f"{made.id} {came_to}.")
            return
        if domain and domain not in DOMAINS:
            raise NotFound(f"There is no domain '{domain}'.", hint=f"There are: {', '.join(DOMAINS)}.")
        path = str(Path(challenges).absolute()) if challenges else ""
        # An unreadable challenge is reported now, not later by a worker.
        self_play.list_challenges(habitus.settings, Path(path) if path else None)
        given = {"cycles": cycles, "model": model, "domain": domain, "challenges": path, **_parse_budget_limits(budget)}
        queue = jobs.open_job_queue(habitus)
        id = add_job(habitus.settings, queue, "dream", given)
        if later:
            output.print_command_result(context, as_json, queue.get(id), f"{id} is queued for a worker.")
            return
        _run_dream_job_and_print_cycles(habitus, queue, id, as_json)


def _parse_budget_limits(text: str) -> dict[str, float]:
    """Return the limits of a budget such as 50k, 30m or $2 by their field names."""
    return {what: most for what, most in asdict(RunLimits.parse(text)).items() if most is not None}


def _run_dream_job_and_print_cycles(habitus: Habitus, queue: JobQueue, id: str, as_json: bool) -> None:
    """Work on the job until it ends and print the verdict of each cycle."""
    printed = 0

    def show() -> None:
        nonlocal printed
        printed = printed if as_json else _print_new_cycles_and_return_count(queue.list_part_results(id), printed)

    job = run_job_in_foreground(habitus, queue, id, show)
    results = queue.list_part_results(id)
    if as_json:
        output.print_json({"job": job, "cycles": results})
    elif job.state is JobState.DONE:
        output.print_line(", ".join(f"{count:,} {what}" for what, count in job.result.items()) + ".")
    elif not job.state.is_over:
        cycles = output.format_quantity(len(results), "cycle")
        output.print_line(f"Interrupted after {cycles}; continue with 'habitus jobs work' ({id}).")
    raise_if_job_failed(job)


def _print_new_cycles_and_return_count(results: Sequence[Mapping[str, Any]], printed: int) -> int:
    """Print the cycles that are new and return how many are printed now."""
    for each in results[printed:]:
        reason = f" ({each['reason']})" if each["reason"] else ""
        output.print_line(f"{each['challenge']}: {each['verdict']}{reason}")
        if each["lesson"] and each["verdict"] in ("verified", "candidate"):
            lesson = each["lesson"]
            output.print_line(f"  {lesson['trigger']}: {lesson['correct_pattern']}", style="green")
    return len(results)


def _validate_challenge_solutions(habitus: Habitus, path: Path | None, as_json: bool) -> None:
    """Run each challenge's own solution and exit with 1 if one is not valid."""
    found = validate_tasks(habitus, (("", each) for each in self_play.list_challenges(habitus.settings, path)))
    bad = [each for each in found if not each.is_sound]
    if as_json:
        output.print_json({"challenges": found})
    else:
        for each in bad:
            output.print_line(f"{each.task}: {each.reason}", style="yellow")
        output.print_line(f"{len(found) - len(bad)} of {output.format_quantity(len(found), 'challenge')} valid.")
    if bad:
        raise typer.Exit(1)
