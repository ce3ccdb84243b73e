"""How much of the code that arrives broken is recovered, and is anything accepted that should not be?

    python benchmarks/code_repair.py --cases corrupted.jsonl

Each line of the file: text, expected, recoverable, kind. Recovered means: the same syntax tree as expected.
"""

from __future__ import annotations

import argparse
import ast
import html
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _report import progress, report
from habitus.tools.code_repair import CodeRefused, repair_code

Repair = Callable[[str], str | None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, required=True, help="JSON lines: text, expected, recoverable, kind")
    args = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    cases = [json.loads(line) for line in args.cases.read_text(encoding="utf-8").splitlines() if line.strip()]
    report(
        "code_repair",
        {"cases": args.cases.name, "count": len(cases)},
        {"habitus": measure("habitus", repair_text, cases), "plain": measure("plain", repair_plainly, cases)},
    )


def repair_text(text: str) -> str | None:
    try:
        return repair_code(text).code
    except CodeRefused:
        return None


def repair_plainly(text: str) -> str | None:
    """The baseline: take the first fence, unescape HTML, and keep what parses."""
    if tree(text) is not None:
        return text
    _, fence, rest = text.partition("```")
    body = rest.partition("\n")[2].partition("```")[0] if fence else text
    for candidate in (body, html.unescape(body), html.unescape(html.unescape(body))):
        if tree(candidate) is not None:
            return candidate
    return None


def measure(name: str, repair_case: Repair, cases: list[dict[str, Any]]) -> dict[str, Any]:
    progress(f"{name}: {len(cases)} cases")
    outcomes: dict[str, list[bool]] = defaultdict(list)
    clean_touched = truncated_accepted = 0
    seconds = 0.0
    for case in cases:
        started = time.perf_counter()
        code = repair_case(case["text"])
        seconds += time.perf_counter() - started
        if case["recoverable"]:
            outcomes[case["kind"]].append(code is not None and tree(code) == tree(case["expected"]))
        elif tree(case["text"]) is None:
            truncated_accepted += code is not None
        if case["kind"] == "clean":
            clean_touched += code != case["text"]
    recoverable = [outcome for kind in outcomes.values() for outcome in kind]
    return {
        "recovered": share(recoverable),
        "recovered_by_kind": {kind: share(outcomes[kind]) for kind in sorted(outcomes)},
        "clean_touched": clean_touched,
        "truncated_accepted": truncated_accepted,
        "ms_per_case": round(1000 * seconds / max(1, len(cases)), 3),
    }


def tree(code: str) -> str | None:
    try:
        return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def share(outcomes: list[bool]) -> float:
    return round(sum(outcomes) / len(outcomes), 4) if outcomes else 0.0


if __name__ == "__main__":
    main()
