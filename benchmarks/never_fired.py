"""Whether "never fired" is right: requests of labelled sets against homes of skills, by families left out.

    python benchmarks/never_fired.py --data DIR [--homes 20] [--skills 25]

A home holds skills of one set, drawn at random; the right skill of each request is in it or not. Requests that fit
nothing (`clinc150/negatives.jsonl`) are asked in every home. A match is right when the request is labelled with the
skill. For each family the thresholds are the loosest that have 95 % right in the other families; what they come to in
the family itself is the held-out figure.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from _report import Metrics, progress, read_jsonl, show
from habitus.app.other_agents.agent_skills import (
    MIN_MATCH_SCORE,
    MIN_SCORE_LEAD,
    AgentSkill,
    build_skill_search,
    find_unambiguous_skill_match,
)
from habitus.search.model import SearchResults
from habitus.skills.model import Skill

FAMILIES = ("skillroute", "clinc150", "metatool_single")
GRID = list(itertools.product((0.3, 0.4, 0.5, 0.6, 0.7, 0.8), (0.1, 0.2, 0.3, 0.4, 0.5)))
ENOUGH = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request put to a home: what was found, and the names that would be right there."""

    found: SearchResults
    right: frozenset[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("HABITUS_BENCH_DATA", "")))
    parser.add_argument("--homes", type=int, default=20)
    parser.add_argument("--skills", type=int, default=25)
    parser.add_argument("--requests", type=int, default=100, help="of each kind, put to each home")
    args = parser.parse_args()
    nothing = [each["text"] for each in read_jsonl(args.data / "retrieval" / "clinc150" / "negatives.jsonl")]
    asked = {}
    for family in FAMILIES:
        progress(family)
        asked[family] = ask(args.data / "retrieval" / family, nothing, args)
    systems: dict[str, Metrics] = {}
    for family in FAMILIES:
        others = [each for other in FAMILIES if other != family for each in asked[other]]
        chosen = next((pair for pair in GRID if measure(others, *pair)["precision"] >= ENOUGH), None)
        held_out = {"thresholds": chosen, **measure(asked[family], *chosen)} if chosen else {"thresholds": None}
        systems[family] = {"held_out": held_out, "as_shipped": measure(asked[family], MIN_MATCH_SCORE, MIN_SCORE_LEAD)}
    show("never_fired", args, systems)


def ask(folder: Path, nothing: Sequence[str], args: argparse.Namespace) -> list[Asked]:
    corpus = {str(each["id"]): each for each in read_jsonl(next(folder.glob("corpus.jsonl*")))}
    queries = read_jsonl(folder / "queries.jsonl")
    found = []
    for number in range(args.homes):
        chance = random.Random(number)
        wanted = chance.sample(queries, min(args.skills // 2, len(queries)))
        held = {id for query in wanted for id in map(str, query["relevant_ids"][:1]) if id in corpus}
        held |= set(chance.sample(sorted(corpus), args.skills - len(held)))
        names = {id: str(corpus[id]["name"]) for id in sorted(held)}
        search = build_skill_search([as_skill(name, corpus[id]) for id, name in names.items()])
        others = chance.sample(queries, min(args.requests, len(queries)))
        for query in {query["id"]: query for query in (*wanted, *others)}.values():
            right = frozenset(names[id] for id in map(str, query["relevant_ids"]) if id in names)
            found.append(Asked(found=search(query["text"]), right=right))
        for text in chance.sample(list(nothing), min(args.requests, len(nothing))):
            found.append(Asked(found=search(text), right=frozenset()))
    return found


def as_skill(name: str, entry: Mapping[str, str]) -> AgentSkill:
    body = entry.get("body") or ""
    skill = Skill(name=name, description=str(entry.get("description") or name)[:1000], body=body)
    return AgentSkill(name=name, path=Path(name), tree={}, skill=skill, problems=())


def measure(asked: Sequence[Asked], clear: float, ahead: float) -> Metrics:
    matched = [(name, each.right) for each in asked if (name := find_unambiguous_skill_match(each.found, clear, ahead))]
    right = sum(name in fitting for name, fitting in matched)
    could = sum(bool(each.right) for each in asked)
    return {
        "requests": len(asked),
        "matches": len(matched),
        "precision": round(right / len(matched), 3) if matched else 0.0,
        "recall": round(right / could, 3) if could else 0.0,
    }


if __name__ == "__main__":
    main()
