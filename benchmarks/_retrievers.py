"""The systems that the retrieval benchmarks compare, behind one small protocol. Each is built in its own process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

Item = dict[str, Any]
Ranked = tuple[list[tuple[str, float]], float]


class Retriever(Protocol):
    def search(self, text: str, k: int) -> Ranked:
        """The best ids with scores, and how sure the system is that anything fits."""
        ...


class Skipped(Exception):
    """The system can't run here; the text says why."""


def summary(item: Item) -> str:
    """Name, description and example requests, for the systems that know no fields."""
    return " ".join([item["name"], item.get("description", ""), *item.get("examples", ())])


def whole(item: Item) -> str:
    return f"{summary(item)} {item.get('body', '')}"


class Habitus:
    def __init__(self, corpus: Sequence[Item], *, tier: str = "static", examples: bool = True) -> None:
        from habitus import sql
        from habitus.search.index import SearchIndex
        from habitus.search.model import SearchDocument
        from habitus.search.texts.embedding import Embedder, WordLlamaEmbedder
        from habitus.search.texts.minilm import MiniLMEmbedder

        embedder: Embedder = MiniLMEmbedder() if tier == "minilm" else WordLlamaEmbedder()
        self._folder = tempfile.TemporaryDirectory()
        engine = sql.create_engine(sql.build_sqlite_url(Path(self._folder.name) / "search.db"))
        sql.metadata.create_all(engine)
        self.index = SearchIndex.open(
            engine, "benchmark", embedder=embedder, clock=lambda: 0.0, folder=Path(self._folder.name)
        )
        self.index.put_documents(
            SearchDocument(
                id=item["id"],
                name=item["name"],
                when_to_use=item.get("cue", ""),
                description=item.get("description", ""),
                tags=tuple(item.get("tags", ())),
                body=item.get("body", ""),
            )
            for item in corpus
        )
        if examples:
            self.index.learn_requests((item["id"], text) for item in corpus for text in item.get("examples", ()))

    def search(self, text: str, k: int) -> Ranked:
        found = self.index.search(text, k=k)
        return [(hit.id, hit.score) for hit in found.hits], found.confidence


class BM25:
    """The bm25s library with its stop words and a Snowball stemmer."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        if find_spec("bm25s") is None:
            raise Skipped("bm25s is not installed (the bench extra brings it)")
        import bm25s
        import Stemmer

        self._ids = list(ids)
        self._stemmer = Stemmer.Stemmer("english")
        self._library: Any = bm25s
        self._engine: Any = bm25s.BM25()
        self._engine.index(self._tokens(list(texts)), show_progress=False)

    def _tokens(self, texts: list[str]) -> Any:
        return self._library.tokenize(texts, stopwords="en", stemmer=self._stemmer, show_progress=False)

    def search(self, text: str, k: int) -> Ranked:
        most = min(k, len(self._ids))
        found, scores = self._engine.retrieve(self._tokens([text]), k=most, show_progress=False)
        ranked = [(self._ids[int(at)], float(score)) for at, score in zip(found[0], scores[0], strict=True)]
        return ranked, ranked[0][1] if ranked else 0.0


class Embedding:
    def __init__(self, corpus: Sequence[Item], *, tier: str = "static") -> None:
        from habitus.search.texts.embedding import Embedder, WordLlamaEmbedder
        from habitus.search.texts.minilm import MiniLMEmbedder

        self._embedder: Embedder = MiniLMEmbedder() if tier == "minilm" else WordLlamaEmbedder()
        by_id = sorted(corpus, key=lambda item: str(item["id"]))  # a stable sort then breaks ties by id
        self._ids = [item["id"] for item in by_id]
        self._vectors = self._embedder.embed([summary(item) for item in by_id])

    def search(self, text: str, k: int) -> Ranked:
        scores = self._vectors @ self._embedder.embed([text])[0]
        best = (-scores).argsort(kind="stable")[:k].tolist()
        ranked = [(self._ids[at], float(scores[at])) for at in best]
        return ranked, ranked[0][1] if ranked else 0.0


class EqualVotes:
    """Reciprocal rank fusion: one vote each."""

    def __init__(self, voters: Sequence[Retriever]) -> None:
        self._voters = voters

    def search(self, text: str, k: int) -> Ranked:
        votes: dict[str, float] = {}
        for voter in self._voters:
            for place, (id, _) in enumerate(voter.search(text, 100)[0]):
                votes[id] = votes.get(id, 0.0) + 1 / (60 + place + 1)
        ranked = sorted(votes.items(), key=lambda vote: (-vote[1], vote[0]))[:k]
        return ranked, ranked[0][1] if ranked else 0.0


def _bm25(corpus: Sequence[Item]) -> Retriever:
    return BM25([item["id"] for item in corpus], [summary(item) for item in corpus])


def _bm25_body(corpus: Sequence[Item]) -> Retriever:
    return BM25([item["id"] for item in corpus], [whole(item) for item in corpus])


SYSTEMS: dict[str, Callable[[Sequence[Item]], Retriever]] = {
    "habitus": Habitus,
    "habitus_no_examples": lambda corpus: Habitus(corpus, examples=False),
    "bm25": _bm25,
    "bm25_body": _bm25_body,
    "embedding": Embedding,
    "rrf": lambda corpus: EqualVotes([_bm25_body(corpus), Embedding(corpus)]),
    "embedding_minilm": lambda corpus: Embedding(corpus, tier="minilm"),
    "habitus_minilm": lambda corpus: Habitus(corpus, tier="minilm"),
}


def build(system: str, corpus: Sequence[Item]) -> Retriever:
    from habitus.search.texts.weights import ModelUnavailableError

    if system == "habitus_no_examples" and not any(item.get("examples") for item in corpus):
        raise Skipped("the corpus has no examples; the same as habitus")
    try:
        return SYSTEMS[system](corpus)
    except ModelUnavailableError as missing:
        raise Skipped(str(missing)) from None
