"""Trigger evaluations: requests that should, or should not, bring a skill up, kept beside it in `evals/evals.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from habitus.errors import Invalid
from habitus.files import Tree

FILE = "evals/evals.json"
OFFERED = 3  # a skill is offered when it is among the first so many of what fits


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalCase:
    query: str
    should_trigger: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalResult:
    name: str
    query: str
    should_trigger: bool
    triggered: bool
    detail: str

    @property
    def passed(self) -> bool:
        return self.should_trigger == self.triggered


def read(name: str, tree: Tree) -> list[EvalCase]:
    """The cases of a skill: a list of {query, should_trigger}, or such a list under 'evals' or 'cases'."""
    file = tree.get(FILE)
    if file is None or file.content is None:
        return []
    try:
        data = json.loads(file.content)
    except ValueError as error:
        raise Invalid(f"{FILE} of '{name}' is not JSON: {error}.", mend="Correct it.") from None
    rows = (
        data if isinstance(data, list) else (data.get("evals") or data.get("cases")) if isinstance(data, dict) else None
    )
    if not isinstance(rows, list):
        raise Invalid(
            f"{FILE} of '{name}' has no list of cases.", mend='Write [{"query": "…", "should_trigger": true}].'
        )
    cases = []
    for row in rows:
        query = (row.get("query") or row.get("prompt")) if isinstance(row, dict) else None
        if not isinstance(query, str) or not isinstance(row.get("should_trigger", True), bool):
            raise Invalid(f"{FILE} of '{name}' has a case without a 'query' text.", mend="Give each case a query.")
        cases.append(EvalCase(query=query, should_trigger=row.get("should_trigger", True)))
    return cases


def with_case(tree: Tree, name: str, case: EvalCase) -> bytes:
    """The file with one more case; the same query again corrects the earlier one."""
    cases = [known for known in read(name, tree) if known.query != case.query]
    rows = [{"query": c.query, "should_trigger": c.should_trigger} for c in (*cases, case)]
    return (json.dumps(rows, ensure_ascii=False, indent=2) + "\n").encode()
