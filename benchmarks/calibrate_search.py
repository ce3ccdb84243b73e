"""Fits the weights in `habitus/search/calibration.py` on the development sets; held-out figures go to stderr.

    python benchmarks/calibrate_search.py --sets DIR [--model wordllama|minilm|none] [--most 700]

DIR holds one folder per set with corpus.jsonl[.gz], queries.jsonl and optionally negatives.jsonl. Stdout is the
`Tier(…)` to paste. Three fits, each of a few weights of which none may be negative: a softmax over candidates for
the order (documents with bodies start from the weights of those without); the same for what learning from use adds,
over libraries with little and much history; a logistic regression for "does anything fit".
"""

from __future__ import annotations

import argparse
import os
import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from _report import progress, read_jsonl
from habitus import sql
from habitus.search import ranking
from habitus.search.calibration import RankingCalibration, get_calibration
from habitus.search.index import SearchIndex
from habitus.search.model import SearchDocument
from habitus.search.searcher import RankingCandidates
from habitus.search.texts.embedding import Embedder, NoEmbedder, WordLlamaEmbedder
from habitus.search.texts.minilm import MiniLMEmbedder
from retrieval import auroc

Array = NDArray[np.float64]
Item = dict[str, Any]

FOLDS = 4
HISTORY = (1, 3, 10, 30)
_MOST_NEGATIVES = 300
_MOST_SENTENCES = 300
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_PLAIN = re.compile(r"[A-Z][a-z]+ [^`|]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    name: str
    corpus: list[Item]
    queries: list[Item]
    negatives: list[Item]

    @property
    def has_bodies(self) -> bool:
        return any(item.get("body") for item in self.corpus)

    @property
    def has_examples(self) -> bool:
        return any(item.get("examples") for item in self.corpus)

    @property
    def repeats(self) -> bool:
        """Enough requests per document to learn from some and test on others, each for one document."""
        answers = [id for query in self.queries for id in query["relevant_ids"]]
        return len(answers) == len(self.queries) > 3 * len(set(answers))


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """The candidates of one request, a row of features each, and which are right."""

    x: Array
    right: NDArray[np.bool_]
    relevant: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The evidence for the best hit of one request, how far its use is trusted, and whether anything fits."""

    x: Array
    trust: float
    fits: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--model", choices=("wordllama", "minilm", "none"), default="wordllama")
    parser.add_argument("--most", type=int, default=700, help="requests taken of each set, evenly spaced")
    parser.add_argument("--confidence-only", action="store_true", help="leave the order as it is")
    args = parser.parse_args()
    makers: dict[str, Callable[[], Embedder]] = {
        "wordllama": WordLlamaEmbedder,
        "minilm": MiniLMEmbedder,
        "none": NoEmbedder,
    }
    embedder = Remembering(makers[args.model]())
    sets = [_dataset(folder) for folder in sorted(args.sets.iterdir()) if folder.is_dir()]
    tier = get_calibration(embedder.name)
    if not args.confidence_only:
        tier = fit_order(sets, embedder, args.most, tier)
        tier = fit_use(sets, embedder, args.most, tier)
    tier = fit_confidence(sets, embedder, args.most, tier)
    print(_literal(tier))


class Remembering:
    """Embeds every text once: the fits look at the same ones again and again."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._known: dict[str, NDArray[np.float32]] = {}
        self.name, self.width, self.max_request_words = inner.name, inner.width, inner.max_request_words

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self._inner.embed(new), strict=True))
        return np.array([self._known[text] for text in texts], dtype=np.float32).reshape(len(texts), self.width)

    def embed_words(self, words: Sequence[str]) -> NDArray[np.float32]:
        return self._inner.embed_words(words)


def _dataset(folder: Path) -> Dataset:
    negatives = folder / "negatives.jsonl"
    return Dataset(
        name=folder.name,
        corpus=read_jsonl(next(folder.glob("corpus.jsonl*"))),
        queries=read_jsonl(folder / "queries.jsonl"),
        negatives=read_jsonl(negatives) if negatives.exists() else [],
    )


def _index(data: Dataset, embedder: Embedder) -> SearchIndex:
    engine = sql.create_engine("sqlite://")
    sql.metadata.create_all(engine)
    index = SearchIndex.open(engine, data.name, embedder=embedder, clock=lambda: 0.0)
    index.put_documents(
        SearchDocument(id=x["id"], name=x["name"], description=x["description"], body=x.get("body", ""))
        for x in data.corpus
    )
    return index


def _spread(values: Sequence[Item], most: int) -> Sequence[Item]:
    return values[:: max(1, -(-len(values) // most))]


# The order


def fit_order(sets: Sequence[Dataset], embedder: Embedder, most: int, tier: RankingCalibration) -> RankingCalibration:
    short: dict[str, list[Case]] = {}
    long: dict[str, list[Case]] = {}
    for data in sets:
        if not data.negatives:  # those are intents, with a name for a description
            progress(f"order: reading {data.name}")
            cases = _order_cases(_index(data, embedder), _spread(data.queries, most))
            (long if data.has_bodies else short)[data.name] = cases
            if data.has_bodies:
                asking = _asked_in_their_words(data)
                long[asking.name] = _order_cases(_index(asking, embedder), _spread(asking.queries, most))
    weights = _show_folds(short, lambda train: _softmax_fit(train, l2=1e-3))

    def fit_long(train: Mapping[str, Sequence[Case]]) -> Array:
        return _softmax_fit(train, l2=3e-3, towards=weights)

    with_bodies = _show_folds(long, fit_long) if long else weights
    for name in long if len(long) > 1 else ():
        others = fit_long({other: cases for other, cases in long.items() if other != name})
        hit, gain = np.mean([_measure(case, others) for case in long[name]], axis=0)
        progress(f"  {name} fitted without this set: hit@1 {100 * hit:.1f} ndcg@10 {100 * gain:.1f}")
    return replace(tier, short=_rounded(weights), long=_rounded(with_bodies))


def _asked_in_their_words(data: Dataset) -> Dataset:
    """A second family of requests: a sentence out of a body, which is then no longer there.

    Those who write requests for a set often wrote its best descriptions, too; with these requests a prior that only
    tells such authors from others finds no support.
    """
    chance = random.Random(5)
    corpus = {item["id"]: item for item in data.corpus}
    queries: list[Item] = []
    for id in chance.sample(sorted(corpus), min(1200, len(corpus))):
        body = corpus[id].get("body", "")
        found = [line.strip(" #*-`\n") for line in _SENTENCE.split(body)]
        sentences = [line for line in found if 8 <= len(line.split()) <= 25 and _PLAIN.fullmatch(line)]
        if len(sentences) > 2 and len(queries) < _MOST_SENTENCES:
            text = chance.choice(sentences)
            corpus[id] = {**corpus[id], "body": body.replace(text, "")}
            queries.append({"id": f"{id}-sentence", "text": text, "relevant_ids": [id]})
    return replace(data, name=f"{data.name} sentences", corpus=list(corpus.values()), queries=queries)


def _order_cases(index: SearchIndex, queries: Sequence[Item]) -> list[Case]:
    found = [(query, index.gather_candidates(query["text"])) for query in queries]
    return [_case(query, evidence, evidence.signals.values) for query, evidence in found if evidence is not None]


def _case(query: Item, evidence: RankingCandidates, x: NDArray[Any]) -> Case:
    relevant = set(query["relevant_ids"])
    right = np.array([id in relevant for id in evidence.ids])
    return Case(x=x.astype(np.float64), right=right, relevant=len(relevant))


def _show_folds(sets: Mapping[str, Sequence[Case]], fit: Callable[[Mapping[str, Sequence[Case]]], Array]) -> Array:
    """Fit on all, after telling what fits on the other folds achieve on each fold."""
    totals: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for fold in range(FOLDS):
        weights = fit({name: [c for i, c in enumerate(cases) if i % FOLDS != fold] for name, cases in sets.items()})
        for name, cases in sets.items():
            totals[name] += [_measure(case, weights) for i, case in enumerate(cases) if i % FOLDS == fold]
    for name, figures in totals.items():
        hit, gain = np.mean(figures, axis=0)
        progress(f"  held out {name}: hit@1 {100 * hit:.1f} ndcg@10 {100 * gain:.1f} ({len(figures)} requests)")
    return fit(sets)


def _measure(case: Case, weights: Array) -> tuple[float, float]:
    gains = case.right[np.argsort(-(case.x @ weights), kind="stable")[:10]]
    ideal = sum(1 / np.log2(place + 2) for place in range(min(10, case.relevant)))
    return float(gains[0]), sum(gain / np.log2(place + 2) for place, gain in enumerate(gains)) / ideal


def _softmax_fit(sets: Mapping[str, Sequence[Case]], l2: float, towards: Array | None = None) -> Array:
    """The weights under which right candidates are likeliest; every set counts the same."""
    stacks = []
    for cases in sets.values():
        usable = [case for case in cases if case.right.any()]
        if not usable:
            continue
        sizes = np.array([len(case.right) for case in usable])
        x = np.concatenate([case.x for case in usable])
        y = np.concatenate([case.right / case.right.sum() for case in usable])
        stacks.append((x, y, np.cumsum(sizes) - sizes, sizes))
    start = np.ones(stacks[0][0].shape[1]) if towards is None else towards.copy()
    centre = np.zeros_like(start) if towards is None else towards

    def loss(weights: Array) -> tuple[float, Array]:
        total, slope = 0.0, np.zeros_like(weights)
        for x, y, starts, sizes in stacks:
            scores = x @ weights
            top = np.maximum.reduceat(scores, starts)
            powers = np.exp(scores - np.repeat(top, sizes))
            sums = np.add.reduceat(powers, starts)
            total -= ((y * scores).sum() - (top + np.log(sums)).sum()) / len(sizes)
            slope -= x.T @ (y - powers / np.repeat(sums, sizes)) / len(sizes)
        off = weights - centre
        return float(total / len(stacks) + l2 * off @ off), slope / len(stacks) + 2 * l2 * off

    return _minimum(loss, start)


def _minimum(loss: Callable[[Array], tuple[float, Array]], start: Array, free: int = 0) -> Array:
    """The last `free` weights may be negative."""
    bounds = [(0.0, None)] * (len(start) - free) + [(None, None)] * free
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500})
    return np.asarray(found.x)


# Learning from use


def fit_use(sets: Sequence[Dataset], embedder: Embedder, most: int, tier: RankingCalibration) -> RankingCalibration:
    """For libraries where every document has k past requests, every other one, or only one in ten."""
    cases: dict[str, list[Case]] = {}
    for data in (data for data in sets if data.repeats):
        for k in HISTORY:
            for every in (1, 2, 10):
                progress(f"use: reading {data.name}, {k} past requests for one document in {every}")
                index, tests = with_history(data, embedder, k, every)
                cases[f"{data.name} k={k} every={every}"] = _use_cases(index, _spread(tests, most), tier)
        if data.has_examples:
            index = _with_examples(data, embedder)
            cases[f"{data.name} examples"] = _use_cases(index, _spread(data.queries, most), tier)
    weights = _show_folds(cases, lambda train: _softmax_fit(train, l2=1e-4))
    weights = weights / weights[0]
    width = (len(weights) - 2) // 2
    return replace(
        tier,
        trusted_base=round(float(weights[1]), 3),
        used=_rounded(weights[2 : 2 + width]),
        trusted_used=_rounded(weights[2 + width :]),
    )


def with_history(data: Dataset, embedder: Embedder, k: int, every: int = 1) -> tuple[SearchIndex, list[Item]]:
    """An index that has learned up to k requests of every (or every other) document, and requests it has not seen."""
    by_document: dict[str, list[Item]] = defaultdict(list)
    for place in np.random.default_rng(0).permutation(len(data.queries)).tolist():
        by_document[data.queries[place]["relevant_ids"][0]].append(data.queries[place])
    index = _index(data, embedder)
    tests: list[Item] = []
    past: list[tuple[str, str]] = []
    for place, (id, queries) in enumerate(sorted(by_document.items())):
        held_out = max(1, int(0.3 * len(queries)))
        tests += queries[:held_out]
        if place % every == 0:
            past += [(id, query["text"]) for query in queries[held_out : held_out + k]]
    index.learn_requests(past)
    return index, tests


def _with_examples(data: Dataset, embedder: Embedder) -> SearchIndex:
    index = _index(data, embedder)
    index.learn_requests((item["id"], text) for item in data.corpus for text in item.get("examples", ()))
    return index


def _use_cases(index: SearchIndex, tests: Sequence[Item], tier: RankingCalibration) -> list[Case]:
    cases = []
    for query in tests:
        evidence = index.gather_candidates(query["text"])
        if evidence is not None:
            base = evidence.signals.values @ np.array(tier.short)
            chances = np.exp(base - base.max())
            trust = float(chances @ evidence.usage.familiarity / chances.sum())
            both = np.concatenate([base[:, None], evidence.usage.values], axis=1)
            x = np.concatenate([both * (1 - trust), both * trust], axis=1)
            # base, trusted base, then the two halves of what use says
            half = both.shape[1]
            order = [0, half, *range(1, half), *range(half + 1, 2 * half)]
            cases.append(_case(query, evidence, x[:, order]))
    return cases


# Does anything fit?


def fit_confidence(
    sets: Sequence[Dataset], embedder: Embedder, most: int, tier: RankingCalibration
) -> RankingCalibration:
    judged: dict[str, list[Judged]] = {}
    for data in sets:
        progress(f"confidence: reading {data.name}")
        foreign = [
            q for other in sets if other is not data and not other.has_bodies for q in _spread(other.queries, 20)
        ]
        judged[data.name] = _judged(_index(data, embedder), data, _spread(data.queries, most), foreign, tier)
        if data.repeats:
            index, tests = with_history(data, embedder, 10)
            judged[f"{data.name} k=10"] = _judged(index, data, _spread(tests, most), foreign, tier)
        if data.has_examples:
            index = _with_examples(data, embedder)
            judged[f"{data.name} examples"] = _judged(index, data, _spread(data.queries, most), foreign, tier)
    for name in judged:
        rest = {other: rows for other, rows in judged.items() if other.split()[0] != name.split()[0]}
        progress(f"  {name}: AUROC {_auroc(judged[name], _logistic_fit(rest)):.4f} fitted without this set")
    for fold in range(FOLDS):
        train = {name: [r for i, r in enumerate(rows) if i % FOLDS != fold] for name, rows in judged.items()}
        weights = _logistic_fit(train)
        held_out = {name: [r for i, r in enumerate(rows) if i % FOLDS == fold] for name, rows in judged.items()}
        progress("  fold " + ", ".join(f"{name} {_auroc(rows, weights):.4f}" for name, rows in held_out.items()))
    weights = _logistic_fit(judged)
    half = len(weights) // 2
    return replace(
        tier,
        confidence_new=_rounded(weights[:half]),
        confidence_used=_rounded(weights[half:]),
        floor=round(_floor(judged, weights), 3),
    )


def _judged(
    index: SearchIndex, data: Dataset, queries: Sequence[Item], foreign: Sequence[Item], tier: RankingCalibration
) -> list[Judged]:
    """Requests that fit; then ones that don't: given negatives, else others' and ours without the answer."""
    everything = [item["id"] for item in data.corpus]
    rows = [_judge(index, query["text"], None, True, tier) for query in queries]
    if data.negatives:
        rows += [_judge(index, query["text"], None, False, tier) for query in data.negatives]
    else:
        for query in _spread(queries, _MOST_NEGATIVES):
            others = [id for id in everything if id not in query["relevant_ids"]]
            rows.append(_judge(index, query["text"], others, False, tier))
        rows += [_judge(index, query["text"], None, False, tier) for query in foreign]
    found = [row for row in rows if row is not None]
    return [found[place] for place in np.random.default_rng(0).permutation(len(found)).tolist()]


def _judge(
    index: SearchIndex, text: str, among: list[str] | None, fits: bool, tier: RankingCalibration
) -> Judged | None:
    evidence = index.gather_candidates(text, among=among)
    if evidence is None:
        return None
    ranked = ranking.score_candidates(evidence.signals, evidence.usage, tier, evidence.corpus.share_having_body)
    best = int(np.argmax(ranked.scores))
    x = ranking.build_confidence_features(evidence.signals, evidence.usage, tier)[best]
    return Judged(x=x.astype(np.float64), trust=float(evidence.usage.familiarity[best]), fits=fits)


def _features(rows: Sequence[Judged]) -> Array:
    """Both halves carry their own constant last."""
    x = np.stack([np.append(row.x, 1.0) for row in rows])
    trust = np.array([row.trust for row in rows])[:, None]
    return np.concatenate([x * (1 - trust), x * trust], axis=1)


def _logistic_fit(sets: Mapping[str, Sequence[Judged]], l2: float = 3e-4) -> Array:
    """Every set counts the same, and in each set what fits as much as what doesn't."""
    x = np.concatenate([_features(rows) for rows in sets.values()])
    y = np.concatenate([[row.fits for row in rows] for rows in sets.values()]).astype(np.float64)
    share = np.concatenate([_balanced(rows) for rows in sets.values()])
    half = x.shape[1] // 2
    # The constants go last, where they may be negative.
    order = [*range(half - 1), *range(half, 2 * half - 1), half - 1, 2 * half - 1]

    def loss(weights: Array) -> tuple[float, Array]:
        odds = x[:, order] @ weights
        slope = x[:, order].T @ (share * (1 / (1 + np.exp(-odds)) - y))
        value = float((share * (np.logaddexp(0, odds) - y * odds)).sum())
        return float(value + l2 * weights @ weights), slope + 2 * l2 * weights

    found = _minimum(loss, np.full(2 * half, 0.1), free=2)
    weights = np.zeros(2 * half)
    weights[order] = found
    return weights


def _balanced(rows: Sequence[Judged]) -> Array:
    fits = np.array([row.fits for row in rows])
    shares: Array = np.where(fits, 1 / max(fits.sum(), 1), 1 / max((~fits).sum(), 1)) / 2
    return shares


def _auroc(rows: Sequence[Judged], weights: Array) -> float:
    odds = (_features(rows) @ weights).tolist()
    fits = [row.fits for row in rows]
    return auroc(
        [o for o, f in zip(odds, fits, strict=True) if f], [o for o, f in zip(odds, fits, strict=True) if not f]
    )


def _floor(sets: Mapping[str, Sequence[Judged]], weights: Array) -> float:
    """The confidence that tells best what fits from what doesn't, over all sets."""
    chances = np.concatenate([1 / (1 + np.exp(-(_features(rows) @ weights))) for rows in sets.values()])
    fits = np.concatenate([[row.fits for row in rows] for rows in sets.values()])
    share = np.concatenate([_balanced(rows) for rows in sets.values()])
    floors = np.linspace(0.05, 0.95, 91)
    kept = [share[fits & (chances >= floor)].sum() + share[~fits & (chances < floor)].sum() for floor in floors]
    return float(floors[int(np.argmax(kept))])


def _rounded(weights: Array) -> tuple[float, ...]:
    return tuple(round(float(weight), 3) for weight in weights)


def _literal(tier: RankingCalibration) -> str:
    lines = [f"    {name}={getattr(tier, name)}," for name in RankingCalibration.__slots__]
    return "\n".join(["Tier(", *lines, ")"])


if __name__ == "__main__":
    main()
