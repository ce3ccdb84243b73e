"""What selection, menu and search cost as a library grows: skills with bodies, made up.

    python benchmarks/scale.py [--sizes 100 1000 10000] [--searched 10000]

Selection and menu run over summaries in memory; `searched` bounds the sizes for which an index is built. Times are
medians in milliseconds. Beside it, plain: the menu as one line for every skill, in one pass, without rules or budget.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from _report import Metrics, peak_mb, progress, report
from habitus import sql
from habitus.search.index import SearchIndex
from habitus.search.model import SearchDocument
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import UserRequest, select_skills
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import DEFAULT_MANIFEST, Manifest, SkillState, SkillSummary

WORDS = tuple(
    "report invoice chart deploy server test customer ticket email table query index backup schedule image "  # noqa: SIM905  # a list of forty strings is harder to read
    "video model prompt merge branch release note budget forecast contract policy audit route cache token".split()
)
REQUEST = UserRequest(
    text="please deploy the invoice server and write a report", attachments=("a.csv",), paths=("src/x.py",)
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--searched", type=int, default=10_000)
    args = parser.parse_args()
    habitus: Metrics = {}
    plain: Metrics = {}
    for size in args.sizes:
        progress(f"{size} skills")
        listing = [listed(number) for number in range(size)]
        habitus |= {f"{name}_{size}": value for name, value in selecting(listing).items()}
        plain[f"menu_ms_{size}"] = plainly(listing)
        if size <= args.searched:
            habitus |= {f"{name}_{size}": value for name, value in searching(listing).items()}
    habitus["peak_mb"] = peak_mb()
    report("scale", {"sizes": args.sizes, "searched": args.searched}, {"habitus": habitus, "plain": plain})


def selecting(listing: list[ListedSkill]) -> Metrics:
    context = GateContext()
    selection = select_skills(listing, REQUEST, context)
    budget = menu.compute_menu_budget(200_000, 1_000)
    estimate_once = partial(defaultdict[str, float], lambda: 1.0)
    return {
        "select_ms": median(lambda: select_skills(listing, REQUEST, context), 7),
        "menu_ms": median(lambda: menu.compose_menu(selection.menu, budget, estimate_once), 7),
        "select_and_menu_ms": median(
            lambda: menu.compose_menu(select_skills(listing, REQUEST, context).menu, budget, estimate_once),
            7,
        ),
    }


def searching(listing: list[ListedSkill]) -> Metrics:
    documents = [document(item) for item in listing]
    with tempfile.TemporaryDirectory() as scratch:
        engine = sql.open_engine_with_current_schema(sql.build_sqlite_url(Path(scratch) / "habitus.db"))
        index = SearchIndex.open(engine, "skills")
        build = timed(lambda: index.put_documents(documents))
        query = median(lambda: index.search(REQUEST.text), 30)
        added = iter(range(10**6))
        add_one = median(lambda: index.put_documents([document(listed(10**7 + next(added)))]), 7)
        start = timed(lambda: SearchIndex.open(engine, "skills").search(REQUEST.text))
        engine.dispose()
    return {"build_s": round(build / 1000, 2), "query_ms": query, "add_one_ms": add_one, "start_up_ms": start}


def plainly(listing: list[ListedSkill]) -> float:
    return median(
        lambda: "\n".join(f"- {item.name}: {item.summary.when_to_use_line}" for item in listing if item.summary), 7
    )


def listed(number: int) -> ListedSkill:
    """A made-up skill; one in ten has a manifest that the rules must look at."""
    choose = random.Random(number)
    words = " ".join(choose.choices(WORDS, k=12))
    manifest = DEFAULT_MANIFEST
    if number % 10 == 3:
        manifest = Manifest(file_types=("csv",)) if number % 500 == 3 else Manifest(triggers=("x",))
    summary = SkillSummary(
        name=f"skill-{number:06d}",
        description=f"Handles {words}.",
        when_to_use=f"somebody asks for {words}",
        tags=(choose.choice(WORDS),),
        manifest=manifest,
    )
    return ListedSkill(name=summary.name, layer="user", state=SkillState.OK, summary=summary)


def document(item: ListedSkill) -> SearchDocument:
    assert item.summary is not None
    choose = random.Random(item.name)
    body = "\n\n".join(" ".join(choose.choices(WORDS, k=40)) for _ in range(8))
    return SearchDocument(
        id=item.name,
        name=item.name,
        when_to_use=item.summary.when_to_use,
        description=item.summary.description,
        tags=item.summary.tags,
        body=body,
    )


def timed(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return round((time.perf_counter() - started) * 1000, 3)


def median(action: Callable[[], Any], times: int) -> float:
    return round(statistics.median(timed(action) for _ in range(times)), 3)


if __name__ == "__main__":
    main()
