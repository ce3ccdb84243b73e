"""Request → right skill: quality, abstention, speed and memory of our search and of the usual ways.

    python benchmarks/retrieval.py --corpus C --queries Q [--negatives N] [--systems habitus,bm25]

A corpus line has id, name, description and optionally cue, tags, body, examples (requests known to fit: learned by
Habitus, appended to the text for the others). A query line has id, text, relevant_ids. Negatives fit nothing.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from _report import peak_mb, progress, read_jsonl, show
from _retrievers import SYSTEMS, Ranked, Retriever, Skipped, build

_DEPTH = 10
_CROWDED = 15  # requests whose right answer gets a crowd, each in a small library of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    corpus: Path
    queries: Path
    negatives: Path | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--negatives", type=Path)
    parser.add_argument("--systems", help=f"comma-separated, of {', '.join(SYSTEMS)}")
    args = parser.parse_args()
    wanted = args.systems.split(",") if args.systems else list(SYSTEMS)
    unknown = [name for name in wanted if name not in SYSTEMS]
    if unknown:
        parser.error(f"unknown system '{unknown[0]}'")
    inputs = Inputs(corpus=args.corpus, queries=args.queries, negatives=args.negatives)
    os.environ["OMP_NUM_THREADS"] = "1"  # one core, for every library and child
    show("retrieval", args, {name: _in_own_process(name, inputs) for name in wanted})


def _in_own_process(system: str, inputs: Inputs) -> dict[str, float] | str:
    """A process of its own, so that memory is that of one system."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, system, inputs).result()


def measure(system: str, inputs: Inputs) -> dict[str, float] | str:
    corpus, queries = read_jsonl(inputs.corpus), read_jsonl(inputs.queries)
    negatives = read_jsonl(inputs.negatives) if inputs.negatives else []
    progress(f"{system}: {len(corpus)} documents, {len(queries)} requests …")
    began = time.perf_counter()
    try:
        retriever = build(system, corpus)
    except Skipped as why:
        progress(f"{system}: skipped, {why}")
        return f"skipped: {why}"
    build_s = time.perf_counter() - began
    retriever.search("warm up", _DEPTH)
    answers: list[Ranked] = []
    milliseconds = []
    for query in queries:
        began = time.perf_counter()
        answers.append(retriever.search(query["text"], _DEPTH))
        milliseconds.append(1000 * (time.perf_counter() - began))
    result = _quality(queries, answers)
    if negatives:
        sure_of_none = [retriever.search(query["text"], _DEPTH)[1] for query in negatives]
        result["auroc"] = round(auroc([sure for _, sure in answers], sure_of_none), 4)
    if system == "habitus":
        result |= _crowded(corpus, queries)
    result |= {
        "p50_ms": round(_percentile(milliseconds, 50), 2),
        "p95_ms": round(_percentile(milliseconds, 95), 2),
        "build_s": round(build_s, 2),
        "rss_mb": peak_mb(),
    }
    progress(f"{system}: {result}")
    return result


def _crowded(corpus: Sequence[dict[str, Any]], queries: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How much the fit of the right one falls when near-duplicates of it are added: the mean and the worst case."""
    chance = random.Random(1)
    words = [word for item in corpus[:200] for word in item["description"].split()]
    by_id = {item["id"]: item for item in corpus}
    asked = [query for query in queries if query["relevant_ids"] and query["relevant_ids"][0] in by_id][:_CROWDED]
    answers = {query["relevant_ids"][0] for query in asked}
    small = [item for item in corpus[:100] if item["id"] not in answers] + [by_id[id] for id in sorted(answers)]
    falls: dict[int, list[float]] = {10: [], 50: []}
    for query in asked:
        right = query["relevant_ids"][0]
        before = _fit(build("habitus", small), query["text"], right)
        for size, found in falls.items():
            crowd = [_near_duplicate(by_id[right], f"{right}~{number}", words, chance) for number in range(size)]
            found.append(before - _fit(build("habitus", [*small, *crowd]), query["text"], right))
    return {
        f"crowd_{size}_{name}": round(value, 4)
        for size, found in falls.items()
        if found
        for name, value in (("mean_fall", sum(found) / len(found)), ("worst_fall", max(found)))
    }


def _fit(retriever: Retriever, text: str, wanted: str) -> float:
    return dict(retriever.search(text, 200)[0]).get(wanted, 0.0)


def _near_duplicate(item: dict[str, Any], id: str, words: Sequence[str], chance: random.Random) -> dict[str, Any]:
    """The same with every fifth word of its description another one, and a word more in its name; never used yet."""
    mixed = [chance.choice(words) if chance.random() < 0.2 else word for word in item["description"].split()]
    return {
        **item,
        "examples": [],
        "id": id,
        "name": f"{item['name']} {chance.choice(words)}",
        "description": " ".join(mixed),
    }


def _quality(queries: Sequence[dict[str, Any]], answers: Sequence[Ranked]) -> dict[str, float]:
    names = ("hit@1", "recall@1", "recall@5", "recall@10", "ndcg@10")
    sums = dict.fromkeys(names, 0.0)
    judged = 0
    for query, (ranked, _) in zip(queries, answers, strict=True):
        relevant = set(query["relevant_ids"])
        if not relevant:
            continue
        judged += 1
        gains = [id in relevant for id, _ in ranked]
        sums["hit@1"] += bool(gains and gains[0])
        for depth in (1, 5, 10):
            sums[f"recall@{depth}"] += sum(gains[:depth]) / len(relevant)
        ideal = sum(1 / math.log2(place + 2) for place in range(min(_DEPTH, len(relevant))))
        sums["ndcg@10"] += sum(gain / math.log2(place + 2) for place, gain in enumerate(gains)) / ideal
    return {name: round(100 * total / max(judged, 1), 2) for name, total in sums.items()}


def auroc(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """The chance that a request that fits something scores above one that fits nothing."""
    ordered = sorted([(score, 1) for score in positives] + [(score, 0) for score in negatives])
    rank_sum, place = 0.0, 0
    while place < len(ordered):
        end = place
        while end < len(ordered) and ordered[end][0] == ordered[place][0]:
            end += 1
        middle = (place + 1 + end) / 2
        rank_sum += middle * sum(kind for _, kind in ordered[place:end])
        place = end
    count = len(positives)
    return (rank_sum - count * (count + 1) / 2) / max(count * len(negatives), 1)


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))] if ordered else 0.0


if __name__ == "__main__":
    main()
