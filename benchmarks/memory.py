"""What memory costs and how well it tells things apart.

    python benchmarks/memory.py [--sizes 100 1000 10000] [--pairs FILE] [--requests FILE]

Encode, recall and rendering with so many lessons: `shared` spreads them over users as the cap has it, `alone` gives
all of them to one user, more than the cap would let in. Pairs: paraphrases that are merged, distinct advice that is
wrongly merged. Requests: how many related ones bring a lesson up, and how many unrelated ones do, per floor.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import _report
from habitus import sql
from habitus.memory import page_files
from habitus.memory.cortex import Cortex
from habitus.memory.model import ChangeAuthorAndReason, Engram, LessonDraft, LessonKind, LessonProducer, LessonScope
from habitus.memory.page_files import MemoryPageFiles
from habitus.memory.recall import RELEVANCE_FLOOR
from habitus.memory.store import EngramStore
from habitus.memory.text_equivalence import MIN_SIMILARITY, is_equivalent
from habitus.redact import Redactor
from habitus.search.index import SearchIndex
from habitus.search.texts.embedding import WordLlamaEmbedder

DATA = Path(__file__).parent / "data"
_THINGS = [
    "invoice",
    "report",
    "export",
    "table",
    "ticket",
    "sensor",
    "archive",
    "mailbox",
    "chart",
    "dataset",
    "calendar",
    "contract",
    "backup",
    "shipment",
]
_ASPECTS = [
    "date",
    "currency",
    "delimiter",
    "encoding",
    "owner",
    "limit",
    "password",
    "page",
    "total",
    "colour",
    "version",
    "address",
    "region",
    "size",
]
_FACTS = "is stored in", "comes from", "is rounded in", "is missing in", "is duplicated in", "is cached by"
_PLACES = [
    "Vienna",
    "Lisbon",
    "Oslo",
    "Quito",
    "Nairobi",
    "Osaka",
    "Denver",
    "Perth",
    "Cusco",
    "Tartu",
    "Ghent",
    "Malmo",
    "Pune",
    "Turin",
    "Leeds",
    "Brno",
]
_FLOORS = tuple(sorted({0.2, 0.25, 0.3, RELEVANCE_FLOOR, 0.4, 0.45, 0.5, 0.6}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--repeat", type=int, default=200, help="how many recalls are timed")
    parser.add_argument("--pairs", type=Path, default=DATA / "paraphrases.jsonl")
    parser.add_argument("--requests", type=Path, default=DATA / "requests.jsonl")
    arguments = parser.parse_args()
    embedder = WordLlamaEmbedder()
    pairs = _report.read_jsonl(arguments.pairs)
    habitus: dict[str, Any] = {
        "sizes": {str(size): _of_size(size, arguments.repeat, embedder) for size in arguments.sizes},
        "pairs": _pairs(pairs, embedder, _guarded),
        "recall": _requests(
            _report.read_jsonl(arguments.requests), [pair["a"] for pair in pairs if pair["same"]], embedder
        ),
        "peak_mb": _report.peak_mb(),
    }
    plain = {f"cosine >= {least}": _pairs(pairs, embedder, _cosine(least)) for least in (0.8, 0.9, 0.95, 0.99)}
    _report.show("memory", arguments, {"habitus": habitus, **plain})


def _of_size(size: int, repeat: int, embedder: WordLlamaEmbedder) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, per_user in (("shared", 50), ("alone", size)):
        _report.progress(f"{size} lessons, {name}")
        with tempfile.TemporaryDirectory() as folder:
            found[name] = _measured(_lessons(size, per_user), repeat, embedder, Path(folder))
    return found


def _measured(lessons: Sequence[Engram], repeat: int, embedder: WordLlamaEmbedder, home: Path) -> dict[str, Any]:
    engine = sql.open_engine_with_current_schema(sql.build_sqlite_url(home / "habitus.db"))
    store = EngramStore(engine)
    store.save_new_versions_or_counters(
        lessons, ChangeAuthorAndReason(at=datetime.now(UTC), by="benchmark", reason="made")
    )
    cortex = Cortex(
        store,
        lambda: SearchIndex.open(engine, "memory", embedder=embedder),
        redactor=Redactor(),
        clock=lambda: datetime.now(UTC),
        user="user-0",
        files=MemoryPageFiles(home / "memory", engine, clock=lambda: datetime.now(UTC)),
    )
    chance = random.Random(7)
    first = _milliseconds(lambda: cortex.recall("warm up"))
    recalls = [_milliseconds(lambda: cortex.recall(_request(chance))) for _ in range(repeat)]
    worked = [_milliseconds(lambda: cortex.recall(_request(chance)), time.thread_time) for _ in range(repeat)]
    mine = [lesson for lesson in lessons if lesson.owner == "user-0"]
    rendering = [_milliseconds(lambda: page_files.render_page(page_files.PAGE_SPECS[2], mine)) for _ in range(5)]
    encodes = [_milliseconds(lambda n=n: cortex.encode(_draft(n))) for n in range(min(repeat, 20))]  # type: ignore[misc]  # mypy can't infer a lambda's default
    started = time.thread_time()
    for number in range(100, 120):
        cortex.encode(_draft(number))
    encode_cpu = (time.thread_time() - started) * 1000 / 20
    engine.dispose()
    return {
        "index_all_ms": round(first, 1),
        "recall_p50_ms": round(statistics.median(recalls), 2),
        "recall_p95_ms": round(_quantile(recalls, 0.95), 2),
        "recall_cpu_p50_ms": round(statistics.median(worked), 2),
        "recall_cpu_p95_ms": round(_quantile(worked, 0.95), 2),
        "encode_p50_ms": round(statistics.median(encodes), 2),
        "encode_cpu_ms": round(encode_cpu, 2),
        "render_ms": round(statistics.median(rendering), 2),
    }


def _milliseconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    work()
    return (clock() - started) * 1000


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _lessons(size: int, per_user: int) -> list[Engram]:
    chance = random.Random(size)
    return [
        Engram(
            id=f"b{number:07d}",
            text=_sentence(chance),
            kind=LessonKind.LESSON,
            scope=LessonScope.USER,
            owner=f"user-{number // per_user}",
        )
        for number in range(size)
    ]


def _sentence(chance: random.Random) -> str:
    pick, number = chance.choice, chance.randrange(10_000)
    about = f"The {pick(_ASPECTS)} of the {pick(_THINGS)} from {pick(_PLACES)}"
    return f"{about} {pick(_FACTS)} the {pick(_THINGS)} number {number}."


def _request(chance: random.Random) -> str:
    pick = chance.choice
    return (
        f"please check the {pick(_ASPECTS)} of the {pick(_THINGS)} that we got from {pick(_PLACES)} and write it down"
    )


def _draft(number: int) -> LessonDraft:
    return LessonDraft(
        text=f"Machine {number} in hall {number + 40} is oiled on Mondays.",
        kind=LessonKind.LESSON,
        produced_by=LessonProducer.MODEL,
    )


Judge = Callable[[str, str, float], bool]


def _guarded(a: str, b: str, meaning: float) -> bool:
    return is_equivalent(a, b, similarity=meaning)


def _cosine(least: float) -> Judge:
    return lambda a, b, meaning: meaning >= least


def _pairs(pairs: Sequence[dict[str, Any]], embedder: WordLlamaEmbedder, judge: Judge) -> dict[str, Any]:
    counts = {(part, same): [0, 0] for part in ("tune", "check") for same in (True, False)}
    for pair in pairs:
        first, second = embedder.embed([pair["a"], pair["b"]])
        merged, all_of_it = counts[pair["part"], pair["same"]]
        counts[pair["part"], pair["same"]] = [
            merged + judge(pair["a"], pair["b"], float(first @ second)),
            all_of_it + 1,
        ]
    caught, same = (sum(counts[part, True][n] for part in ("tune", "check")) for n in (0, 1))
    wrong, distinct = (sum(counts[part, False][n] for part in ("tune", "check")) for n in (0, 1))
    return {
        "paraphrases": same,
        "distinct": distinct,
        "caught": round(caught / max(same, 1), 3),
        "caught_check_half": round(counts["check", True][0] / max(counts["check", True][1], 1), 3),
        "wrongly_merged": wrong,
    }


def _requests(requests: Sequence[dict[str, Any]], texts: Sequence[str], embedder: WordLlamaEmbedder) -> dict[str, Any]:
    """The share of requests whose best lesson is above each floor."""
    engine = sql.create_in_memory_engine()
    now = datetime(2030, 1, 1, tzinfo=UTC)
    store = EngramStore(engine)
    blank = Engram(id="", text="", kind=LessonKind.LESSON, scope=LessonScope.GLOBAL)
    store.save_new_versions_or_counters(
        [replace(blank, id=f"b{number:07d}", text=text) for number, text in enumerate(texts)],
        ChangeAuthorAndReason(at=now, by="benchmark", reason="made"),
    )
    cortex = Cortex(
        store, lambda: SearchIndex.open(engine, "memory", embedder=embedder), redactor=Redactor(), clock=lambda: now
    )
    sure = [(row["related"], cortex.recall(row["request"]).confidence) for row in requests]
    return {
        "lessons": len(texts),
        "floor": RELEVANCE_FLOOR,
        "meaning": MIN_SIMILARITY,
        "per_floor": {
            str(floor): {
                "related": round(_share([c for is_related, c in sure if is_related], floor), 3),
                "unrelated": round(_share([c for is_related, c in sure if not is_related], floor), 3),
            }
            for floor in _FLOORS
        },
    }


def _share(values: Sequence[float], floor: float) -> float:
    return sum(value >= floor for value in values) / max(len(values), 1)


if __name__ == "__main__":
    main()
