"""Whether the right skill reaches the model: on the steady menu, or among the lines that fit the request.

    python benchmarks/reach.py --corpus C --queries Q [--strangers N] [--sizes 30 300 11491] [--menu-tokens 1000]

A library of each size holds the right skills of the requests, and others drawn at random; nothing was used yet. Smaller
sizes are several libraries, each for some of the requests. `--strangers` are requests that fit no skill: how many
skills are named beside them.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from _report import progress, read_jsonl, show
from _retrievers import Habitus, Item
from habitus.agent.choosing.skill_selection import find_relevant_skills_on_menu
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import SkillSelection
from habitus.skills.model import SkillSummary

_CONTEXT = 200_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True, nargs="+")
    parser.add_argument("--strangers", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 300, 11_491])
    parser.add_argument("--menu-tokens", type=int, default=1000)
    parser.add_argument("--most", type=int, default=100, help="requests of each file")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    corpus = {item["id"]: item for item in read_jsonl(args.corpus)}
    strangers = [query["text"] for query in read_jsonl(args.strangers)][: args.most] if args.strangers else []
    show("reach", args, {str(size): measure(corpus, args, size, strangers) for size in args.sizes})


def measure(corpus: dict[str, Item], args: Any, size: int, strangers: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    whole = Habitus([*corpus.values()]) if size >= len(corpus) else None
    for file in args.queries:
        queries = read_jsonl(file)[: args.most]
        reached, tokens, lines, named = 0.0, [], 0, 0
        step = len(queries) if whole is not None else max(1, size // 4)
        for start in range(0, len(queries), step):
            some = queries[start : start + step]
            items = [*corpus.values()] if whole is not None else _draw_library(corpus, some, size)
            retriever = whole or Habitus(items)
            drawn = _draw_menu(items, args.menu_tokens)
            tokens.append(drawn.tokens)
            for query in some:
                near = _find_lines(retriever, drawn, query["text"])
                lines += len(near)
                right = set(query["relevant_ids"])
                reached += len(right & {*drawn.shown, *near}) / len(right)
            if start == 0:
                named = sum(len(_find_lines(retriever, drawn, text)) for text in strangers)
        found[f"{file.stem}: reach"] = round(100 * reached / len(queries), 1)
        found[f"{file.stem}: fitting lines"] = round(lines / len(queries), 2)
        found[f"{file.stem}: menu tokens"] = max(tokens)
        if strangers:
            found[f"{file.stem}: lines for a stranger"] = round(named / len(strangers), 2)
        progress(f"{size}: {found}")
    return found


def _draw_library(corpus: dict[str, Item], queries: Sequence[Item], size: int) -> list[Item]:
    right = {id for query in queries for id in query["relevant_ids"]}
    others = random.Random(size).sample(sorted(corpus.keys() - right), max(0, size - len(right)))
    return [corpus[id] for id in sorted({*right, *others})]


def _draw_menu(items: Sequence[Item], menu_tokens: int) -> menu.SkillMenu:
    ids: dict[str, str] = {}
    for item in items:
        ids[f"{item['name']}-{item['id']}" if item["name"] in ids else item["name"]] = item["id"]
    described = {item["id"]: item["description"] for item in items}
    skills = [SkillSummary(name=name, description=described[id]) for name, id in ids.items()]
    options = menu.MenuOptions(budget=menu.compute_menu_budget(_CONTEXT, menu_tokens), clock=partial(datetime.now, UTC))
    drawn = menu.build_menu_for_selection(SkillSelection(menu=tuple(skills)), {}, options)
    return menu.SkillMenu(
        text=drawn.text,
        tokens=drawn.tokens,
        budget=drawn.budget,
        shown=tuple(ids[name] for name in drawn.shown),
        cut=tuple(ids[name] for name in drawn.cut),
    )


def _find_lines(retriever: Habitus, drawn: menu.SkillMenu, text: str) -> set[str]:
    eligible = frozenset({*drawn.shown, *drawn.cut})
    hits = find_relevant_skills_on_menu(partial(retriever.index.search, text), eligible, unlisted=frozenset(drawn.cut))
    return {hit.id for hit in hits}


if __name__ == "__main__":
    main()
