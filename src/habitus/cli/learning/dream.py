"""`habitus dream`: self-play, in the foreground or left to a worker; and checking challenges."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from habitus.app import Habitus
from habitus.app.learning import dreaming
from habitus.app.learning.tasks import Soundness, check_task
from habitus.app.operating import jobs
from habitus.app.operating.job_kinds import add
from habitus.cli import output
from habitus.cli.completion import AsJson
from habitus.cli.opening import open_habitus
from habitus.errors import Invalid, NotFound
from habitus.jobs.model import JobState
from habitus.jobs.queue import JobQueue
from habitus.learning.budget import Limits
from habitus.learning.dreaming import DOMAINS
from habitus.tasks.files import row_of_task


def dream(
    context: typer.Context,
    cycles: Annotated[int, typer.Option("--cycles", "-n", min=1, help="How many challenges.")] = 1,
    budget: Annotated[
        str, typer.Option("--budget", help="Stop at so many tokens (50k), minutes (30m), dollars ($2).")
    ] = "",
    model: Annotated[str, typer.Option("--model", help="Who plays, as provider:model; else the settings' model.")] = "",
    domain: Annotated[str, typer.Option("--domain", help=f"Only one of {', '.join(DOMAINS)}.")] = "",
    challenges: Annotated[
        str, typer.Option("--challenges", help="A .toml file with a challenge, or a folder of them.")
    ] = "",
    later: Annotated[bool, typer.Option("--later", help="Leave it to a worker.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only run the challenges' own solutions; no model.")] = False,
    invent: Annotated[
        bool, typer.Option("--invent", help="Let the model make a challenge of what failed here.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Practise: solve challenges in the sandbox, draw lessons, and believe those that were seen to help.

    It goes on as a job: what is interrupted, 'habitus worker' or the same command finishes.
    """
    with open_habitus(context) as habitus:
        if check:
            _check(habitus, Path(challenges) if challenges else None, as_json)
            return
        if invent:
            made, sound = asyncio.run(dreaming.invent(habitus, model=model))
            came_to = f"({made.domain}) is kept" if sound.is_sound else f"is no good exercise: {sound.reason}"
            _print({"challenge": row_of_task(made), "soundness": sound}, f"{made.id} {came_to}.", as_json)
            return
        if domain and domain not in DOMAINS:
            raise NotFound(f"There is no domain '{domain}'.", mend=f"There are: {', '.join(DOMAINS)}.")
        path = str(Path(challenges).absolute()) if challenges else ""
        dreaming.challenges(habitus.settings, Path(path) if path else None)  # what can't be read is said now
        given = {"cycles": cycles, "model": model, "domain": domain, "challenges": path, **_limits(budget)}
        queue = jobs.open_queue(habitus)
        id = add(habitus.settings, queue, "dream", given)
        if later:
            _print(queue.get(id), f"{id} waits for a worker.", as_json)
            return
        _dreamt(habitus, queue, id, as_json)


def _print(found: object, said: str, as_json: bool) -> None:
    if as_json:
        output.print_json(found)
    else:
        output.say(said)


def _limits(text: str) -> dict[str, float]:
    return {what: most for what, most in asdict(Limits.parse(text)).items() if most is not None}


def _dreamt(habitus: Habitus, queue: JobQueue, id: str, as_json: bool) -> None:
    """Work until this job is over, saying what each cycle came to."""
    stopped, told = threading.Event(), 0
    before = signal.signal(signal.SIGINT, lambda *_: stopped.set())
    try:
        with jobs.at_work(habitus, queue, only=("dream",), starts_due=False):
            while not queue.get(id).state.is_over and not stopped.wait(0.3):
                told = told if as_json else _tell(queue.results(id), told)
    finally:
        signal.signal(signal.SIGINT, before)
    job, results = queue.get(id), queue.results(id)
    if as_json:
        output.print_json({"job": job, "cycles": results})
    else:
        _tell(results, told)
        if job.state is JobState.DONE:
            output.say(", ".join(f"{count:,} {what}" for what, count in job.result.items()) + ".")
        elif not job.state.is_over:
            output.say(
                f"Interrupted after {output.count_of(len(results), 'cycle')}; 'habitus worker' goes on with {id}."
            )
    if job.state is JobState.FAILED:
        raise Invalid(f"The job {id} failed: {job.reason}", mend=f"Mend it, then: habitus jobs retry {id}")


def _tell(results: Sequence[Mapping[str, Any]], told: int) -> int:
    for each in results[told:]:
        reason = f" ({each['reason']})" if each["reason"] else ""
        output.say(f"{each['challenge']}: {each['verdict']}{reason}")
        if each["lesson"] and each["verdict"] in ("verified", "candidate"):
            lesson = each["lesson"]
            output.say(f"  {lesson['trigger']}: {lesson['correct_pattern']}", style="green")
    return len(results)


def _check(habitus: Habitus, path: Path | None, as_json: bool) -> None:
    async def all_of_them() -> list[Soundness]:
        return [await check_task(habitus, each) for each in dreaming.challenges(habitus.settings, path)]

    found = asyncio.run(all_of_them())
    bad = [each for each in found if not each.is_sound]
    if as_json:
        output.print_json({"challenges": found})
    else:
        for each in bad:
            output.say(f"{each.task}: {each.reason}", style="yellow")
        output.say(f"{len(found) - len(bad)} of {output.count_of(len(found), 'challenge')} tell right from wrong.")
    if bad:
        raise typer.Exit(1)
