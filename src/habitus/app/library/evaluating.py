"""Trigger cases: keep a request as a case of a skill, and try whether each skill comes up when it should."""

from __future__ import annotations

from dataclasses import asdict

from habitus.app.habitus import Habitus
from habitus.app.library.explaining import request_of
from habitus.app.library.selecting import select
from habitus.skills import evals
from habitus.skills.evals import EvalCase, EvalResult
from habitus.skills.listing import Listed


def record(habitus: Habitus, name: str, case: EvalCase) -> None:
    """Keep a case beside the skill; the same request again corrects the earlier one."""
    item = habitus.skills.find(name)
    content = evals.with_case(habitus.skills.tree(name), item.name, case)
    habitus.skills.edit_file(name, evals.FILE, content, habitus.person("recorded a case"))


def evaluate(habitus: Habitus, name: str | None = None) -> tuple[EvalResult, ...]:
    """Try every case of one skill, or of all."""
    library = habitus.skills
    chosen = [library.find(name)] if name else library.listing()
    return tuple(result for item in chosen if item.summary is not None for result in tried(habitus, item))


def tried(habitus: Habitus, item: Listed) -> tuple[EvalResult, ...]:
    """The cases of one skill as it is listed."""
    tree = habitus.skills.layer(item.layer).store.tree(item.name) or {}
    return tuple(_tried(habitus, item.name, case) for case in evals.read(item.name, tree))


def _tried(habitus: Habitus, name: str, case: EvalCase) -> EvalResult:
    triggered, detail = _comes_up(habitus, name, case.query)
    return EvalResult(name=name, triggered=triggered, detail=detail, **asdict(case))


def _comes_up(habitus: Habitus, name: str, query: str) -> tuple[bool, str]:
    """Whether a skill comes up for a request: by a rule, or among the first of what fits."""
    selection = select(habitus, request_of(habitus, query))
    for choice in selection.eager:
        if choice.name == name:
            return True, choice.reason
    on_menu = {summary.name for summary in selection.menu}
    results = habitus.finder.search(query, k=max(evals.OFFERED, 10), among=on_menu)
    ranked = [hit.id for hit in results.hits]
    rank = ranked.index(name) + 1 if name in ranked else None
    first = ranked[0] if ranked else "nothing"
    detail = f"rank {rank}, first is {first}" if rank else f"not found, first is {first}"
    return results.fits and rank is not None and rank <= evals.OFFERED, detail
