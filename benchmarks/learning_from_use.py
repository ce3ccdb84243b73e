"""Does use make search better? Recall at 1 on unseen requests after k past requests per document.

    python benchmarks/learning_from_use.py --corpus C --queries Q [--most 2000]

Of every document's requests 30 % (at least one) are held out for testing, the same for every k; up to k of the rest
are learned. Against BM25 with the past requests appended to the text, and TF-IDF with logistic regression.
"""

from __future__ import annotations

import argparse
import os
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _report import progress, read_jsonl, show
from _retrievers import BM25, Habitus, Item, Skipped, build, whole

HISTORY = (0, 1, 3, 10, 30)
SYSTEMS = ("habitus", "bm25_appended", "tfidf_lr", "habitus_minilm")

Best = Callable[[str], str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Past requests by document, in the order in which they are learned, and requests to test on."""

    past: dict[str, list[str]]
    tests: list[Item]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--most", type=int, default=2000, help="test requests at most, drawn evenly")
    parser.add_argument("--systems", help=f"comma-separated, of {', '.join(SYSTEMS)}")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    corpus = read_jsonl(args.corpus)
    chosen = split(read_jsonl(args.queries), args.most)
    progress(f"{len(corpus)} documents, {len(chosen.tests)} test requests")
    wanted = args.systems.split(",") if args.systems else SYSTEMS
    show("learning_from_use", args, {system: _curve(system, corpus, chosen) for system in wanted})


def split(queries: Sequence[Item], most: int) -> Split:
    by_document: dict[str, list[Item]] = defaultdict(list)
    for query in queries:
        if query["relevant_ids"]:
            by_document[query["relevant_ids"][0]].append(query)
    past: dict[str, list[str]] = {}
    tests: list[Item] = []
    for id, mine in sorted(by_document.items()):
        random.Random(id).shuffle(mine)
        held_out = max(1, int(0.3 * len(mine)))
        tests += mine[:held_out]
        past[id] = [query["text"] for query in mine[held_out:]]
    return Split(past=past, tests=tests[:: max(1, -(-len(tests) // most))])


def _curve(system: str, corpus: Sequence[Item], chosen: Split) -> dict[str, float] | str:
    try:
        answers = _MAKERS[system](corpus, chosen)
    except Skipped as why:
        return f"skipped: {why}"
    curve: dict[str, float] = {}
    for k in HISTORY:
        best = answers(k)
        right = sum(best(query["text"]) in query["relevant_ids"] for query in chosen.tests)
        curve[f"r@1_k{k}"] = round(100 * right / max(len(chosen.tests), 1), 2)
        progress(f"{system} k={k}: {curve[f'r@1_k{k}']}")
    return curve


def _habitus(tier: str) -> Callable[[Sequence[Item], Split], Callable[[int], Best]]:
    def make(corpus: Sequence[Item], chosen: Split) -> Callable[[int], Best]:
        retriever: Any = build(tier, [{**item, "examples": ()} for item in corpus])
        assert isinstance(retriever, Habitus)

        learned = 0

        def after(k: int) -> Best:
            nonlocal learned
            new = slice(learned, k)
            retriever.index.learn_requests((id, text) for id, texts in chosen.past.items() for text in texts[new])
            learned = k
            return lambda text: next((hit.id for hit in retriever.index.search(text, k=1).hits), None)

        return after

    return make


def _bm25(corpus: Sequence[Item], chosen: Split) -> Callable[[int], Best]:
    def after(k: int) -> Best:
        texts = [" ".join([whole(item), *chosen.past.get(item["id"], [])[:k]]) for item in corpus]
        engine = BM25([item["id"] for item in corpus], texts)
        return lambda text: next((id for id, _ in engine.search(text, 1)[0]), None)

    return after


def _tfidf(corpus: Sequence[Item], chosen: Split) -> Callable[[int], Best]:
    if find_spec("sklearn") is None:
        raise Skipped("scikit-learn is not installed (the bench extra brings it)")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    def after(k: int) -> Best:
        pairs = [(whole(item), item["id"]) for item in corpus]
        pairs += [(text, id) for id, texts in chosen.past.items() for text in texts[:k]]
        vectors = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), stop_words="english")
        model = LogisticRegression(C=10, max_iter=200)
        model.fit(vectors.fit_transform([text for text, _ in pairs]), [id for _, id in pairs])
        return lambda text: str(model.predict(vectors.transform([text]))[0])

    return after


_MAKERS: dict[str, Callable[[Sequence[Item], Split], Callable[[int], Best]]] = {
    "habitus": _habitus("habitus"),
    "bm25_appended": _bm25,
    "tfidf_lr": _tfidf,
    "habitus_minilm": _habitus("habitus_minilm"),
}


if __name__ == "__main__":
    main()
