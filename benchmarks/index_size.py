"""The index of many skills: building it, the memory it takes, and the time of a search, beside bm25s in the same run.

    python benchmarks/index_size.py --corpus retrieval/skillroute/corpus.jsonl.gz --queries …/queries.jsonl
                                    [--documents 50000]

Each system is built in a process of its own. With more `--documents` than the corpus has, the rest is recombined from
its paragraphs: real words in an order that nobody wrote, which the output says. CPU seconds of the build; megabytes
that it added when all is built, and at its peak; milliseconds of CPU of a search, median and 95th percentile.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from _report import Metrics, peak_mb, progress, read_jsonl, show
from _retrievers import BM25, Habitus, Item, Retriever, whole

_K = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--documents", type=int, help="how many; as many as the corpus has by default")
    args = parser.parse_args()
    systems = {}
    for name in SYSTEMS:
        progress(name)
        with multiprocessing.get_context("spawn").Pool(1) as own:
            systems[name] = own.apply(measure, (name, args.corpus, args.queries, args.documents))
    ours, theirs = systems["habitus"], systems["bm25s"]
    systems["habitus / bm25s"] = {key: round(ours[key] / theirs[key], 2) for key in ours if theirs[key]}
    show("index_size", args, systems)


def measure(name: str, corpus: Path, queries: Path, documents: int | None) -> Metrics:
    items = read_jsonl(corpus)
    items = recombined(items, documents - len(items)) if documents else items
    asked = [row["text"] for row in read_jsonl(queries)]
    gc.collect()
    before, began = resident_mb(), time.process_time()
    system = SYSTEMS[name](items)
    built, peak = time.process_time() - began, peak_mb()
    gc.collect()
    for text in asked[:5]:
        searched_ms(system, text)  # what is made at the first searches
    took = [searched_ms(system, text) for text in asked]
    return {
        "build_cpu_s": round(built, 1),
        "memory_mb": round(resident_mb() - before, 1),
        "peak_mb": round(peak - before, 1),
        "search_p50_ms": round(statistics.median(took), 2),
        "search_p95_ms": round(statistics.quantiles(took, n=20)[-1], 2),
    }


def recombined(items: Sequence[Item], more: int) -> list[Item]:
    """The items, and as many more out of their paragraphs; fewer than none are left out."""
    choose, parts = random.Random(0), [part for item in items for part in item["body"].split("\n\n") if part.strip()]
    made = [
        {
            **choose.choice(items),
            "id": f"recombined-{number}",
            "body": "\n\n".join(choose.sample(parts, min(12, len(parts)))),
        }
        for number in range(more)
    ]
    return [*items[: len(items) + min(more, 0)], *made]


def searched_ms(system: Retriever, text: str) -> float:
    began = time.process_time()
    system.search(text, _K)
    return (time.process_time() - began) * 1000


def resident_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


SYSTEMS: dict[str, Callable[[Sequence[Item]], Retriever]] = {
    "habitus": Habitus,
    "bm25s": lambda items: BM25([item["id"] for item in items], [whole(item) for item in items]),
}


if __name__ == "__main__":
    main()
