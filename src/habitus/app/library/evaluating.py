"""Trigger cases: keep a request as a case of a skill, and try whether each skill comes up when it should."""

from __future__ import annotations

from dataclasses import asdict

from habitus.app.home import Home
from habitus.app.library.explaining import request_of
from habitus.app.library.selecting import select
from habitus.skills import evals
from habitus.skills.evals import EvalCase, EvalResult
from habitus.skills.listing import Listed


def record(home: Home, name: str, case: EvalCase) -> None:
    """Keep a case beside the skill; the same request again corrects the earlier one."""
    item = home.skills.find(name)
    content = evals.with_case(home.skills.tree(name), item.name, case)
    home.skills.edit_file(name, evals.FILE, content, home.person("recorded a case"))


def evaluate(home: Home, name: str | None = None) -> tuple[EvalResult, ...]:
    """Try every case of one skill, or of all."""
    library = home.skills
    chosen = [library.find(name)] if name else library.listing()
    return tuple(result for item in chosen if item.summary is not None for result in evaluate_skill(home, item))


def evaluate_skill(home: Home, item: Listed) -> tuple[EvalResult, ...]:
    """The cases of one skill as it is listed."""
    tree = home.skills.layer(item.layer).store.tree(item.name) or {}
    return tuple(_evaluate_case(home, item.name, case) for case in evals.read(item.name, tree))


def _evaluate_case(home: Home, name: str, case: EvalCase) -> EvalResult:
    triggered, detail = _comes_up(home, name, case.query)
    return EvalResult(name=name, triggered=triggered, detail=detail, **asdict(case))


def _comes_up(home: Home, name: str, query: str) -> tuple[bool, str]:
    """Whether a skill comes up for a request: by a rule, or among the first of what fits."""
    selection = select(home, request_of(home, query))
    for choice in selection.eager:
        if choice.name == name:
            return True, choice.reason
    on_menu = {summary.name for summary in selection.menu}
    results = home.finder.search(query, k=max(evals.OFFERED, 10), among=on_menu)
    ranked = [hit.id for hit in results.hits]
    rank = ranked.index(name) + 1 if name in ranked else None
    first = ranked[0] if ranked else "nothing"
    detail = f"rank {rank}, first is {first}" if rank else f"not found, first is {first}"
    return results.fits and rank is not None and rank <= evals.OFFERED, detail
