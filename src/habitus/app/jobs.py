"""Jobs over the use cases: the kinds of work that can be left to a worker, the queue they wait in, and the worker."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from habitus.app import curating, dreaming, studying, updating
from habitus.app.habitus import Habitus
from habitus.errors import Invalid, NotFound
from habitus.files import given_path
from habitus.jobs.model import Work
from habitus.jobs.owners import Owners
from habitus.jobs.queue import JobQueue
from habitus.jobs.worker import working
from habitus.learning.dream.challenge import Challenge
from habitus.learning.dream.cycle import Dreamt, DreamVerdict
from habitus.skills.formats import detect
from habitus.skills.formats.base import Incoming

_AT_A_TIME = 200  # skills of an import that are one part


class _Kind:
    """What all have in common; `takes` and `usage` say how a person leaves one to a worker."""

    takes = range(0)  # how many words
    usage = ""

    def __init__(self, habitus: Habitus) -> None:
        self._habitus = habitus

    @staticmethod
    def given(paths: Sequence[str]) -> dict[str, Any]:
        """What a job is given, from a person's words."""
        return {}

    def sum_up(self, results: Sequence[Any]) -> Any:
        return _added(results)


class Curate(_Kind):
    """Everything that ages, at once: what it does twice it does once."""

    takes = range(1)
    usage = "It takes none."

    def plan(self, given: Mapping[str, Any]) -> Sequence[Any]:
        return [{"model": given.get("model", "")}]

    def do(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        done = asyncio.run(curating.curate(self._habitus, apply=True, model=part.get("model", "")))
        return Counter(step.action.value for step in done.steps)


class Learn(_Kind):
    """Transcripts, a file at a time; the ledger of turns keeps one from teaching twice."""

    takes = range(1, 10_000)
    usage = "Name transcripts: files, folders or patterns."

    @staticmethod
    def given(paths: Sequence[str]) -> dict[str, Any]:
        return {"files": list(paths)}

    def plan(self, given: Mapping[str, Any]) -> Sequence[Any]:
        return [str(path) for path in studying.found_files(given["files"])]

    def do(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        study = studying.Study(self._habitus, apply=True, wants_failures=False)
        study.read(Path(part))
        study.keep()
        report = study.report()
        return {"files": 1, "turns": sum(file.turns for file in report.files)}


class Import(_Kind):
    """Skills of any layout, some hundred at a time; those that are here already stay as they are."""

    takes = range(1, 2)
    usage = "Say where from: a file, directory, archive or database address."

    @staticmethod
    def given(paths: Sequence[str]) -> dict[str, Any]:
        return {"source": paths[0]}

    def plan(self, given: Mapping[str, Any]) -> Sequence[Any]:
        found = [entry.name for entry in detect.read(_source(given)) if isinstance(entry, Incoming)]
        parts = [found[start : start + _AT_A_TIME] for start in range(0, len(found), _AT_A_TIME)]
        return [{**given, "only": names} for names in parts]

    def do(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        manner = updating.Manner(overwrite=part.get("overwrite", False), is_trusted=part.get("trust", False))
        taken = updating.take_in(self._habitus, _source(part), part["only"], part.get("layer", "user"), manner)
        return Counter(result.verdict.value for result in taken.results)


class Dream(_Kind):
    """Self-play, one challenge a part; what its lesson rests on is the part's key, so none is kept twice."""

    def plan(self, given: Mapping[str, Any]) -> Sequence[Any]:
        path = given.get("challenges")
        found = dreaming.challenges(self._habitus, Path(path) if path else None)
        wanted = [each for each in found if given.get("domain", "") in ("", each.domain)]
        cycles = given.get("cycles") or len(wanted)
        times = -(-cycles // len(wanted)) if wanted else 0
        chosen = [each for _ in range(times) for each in random.sample(wanted, len(wanted))][:cycles]
        until = time.time() + 60 * given["minutes"] if given.get("minutes") else None
        common = {"model": given.get("model", ""), "tokens": given.get("tokens"), "until": until}
        return [{"challenge": asdict(each), **common} for each in chosen]

    def do(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        challenge = Challenge(**part["challenge"])
        if reason := _spent(part, before):
            dreamt = Dreamt(challenge=challenge.name, verdict=DreamVerdict.INFRA, reason=reason)
        else:
            dreamt = asyncio.run(dreaming.dream(self._habitus, challenge, key=key, model=part["model"]))
        return asdict(dreamt)

    def sum_up(self, results: Sequence[Any]) -> Any:
        return {**Counter(each["verdict"] for each in results), "tokens": sum(each["tokens"] for each in results)}


def _spent(part: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> str:
    """Why there is to be no other cycle; nothing while there is some of its budget left."""
    if part["until"] is not None and time.time() >= part["until"]:
        return "its time is up"
    if part["tokens"] is not None and sum(each["tokens"] for each in before) >= part["tokens"]:
        return "its tokens are spent"
    return ""


# What `leave` takes; dreaming has a command of its own.
BY_HAND: Mapping[str, type[Curate | Import | Learn]] = {"curate": Curate, "import": Import, "learn": Learn}


def kinds(habitus: Habitus) -> dict[str, Work]:
    return {"dream": Dream(habitus), **{name: kind(habitus) for name, kind in BY_HAND.items()}}


def leave(queue: JobQueue, kind: str, words: Sequence[str]) -> str:
    """Add a job as a person writes it, and return its id. A path is that of whoever adds it, not of the worker."""
    if kind not in BY_HAND:
        raise NotFound(f"There are no jobs of the kind '{kind}'.", mend=f"There are: {', '.join(BY_HAND)}.")
    if len(words) not in BY_HAND[kind].takes:
        raise Invalid(f"'{kind}' can't do with {len(words)} words.", mend=BY_HAND[kind].usage)
    paths = [word if "://" in word else str(given_path(word).absolute()) for word in words]
    return queue.add(kind, BY_HAND[kind].given(paths))


@contextmanager
def opened_queue(habitus: Habitus) -> Iterator[JobQueue]:
    habitus.refuse_if_read_only()
    queue = JobQueue(_url(habitus))
    try:
        yield queue
    finally:
        queue.close()


@contextmanager
def at_work(habitus: Habitus, *, concurrency: int = 1) -> Iterator[str]:
    """Do jobs in this process until the block is left."""
    habitus.refuse_if_read_only()
    owners = Owners(habitus.settings.home / "workers")
    with working(_url(habitus), kinds(habitus), owners, concurrency=concurrency) as name:
        yield name


def _url(habitus: Habitus) -> str:
    """The engine has a database of its own beside ours, as private."""
    path = habitus.settings.home / "jobs.db"
    path.touch(mode=0o600)
    return f"sqlite:///{path}"


def _source(given: Mapping[str, Any]) -> Path | str:
    source = str(given["source"])
    return source if "://" in source else given_path(source)


def _added(results: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for result in results:
        total.update(result)
    return dict(total)
