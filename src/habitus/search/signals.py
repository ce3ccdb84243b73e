"""Computes about ten signals for every candidate of a request, most of them between 0 and 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from habitus.search.corpus import SearchCorpus
from habitus.search.postings import PostingsOfTerms, Slots
from habitus.search.texts.embedding import Embedder, Vectors, normalize_rows
from habitus.search.texts.index_entry import FIELDS, Codes
from habitus.search.texts.words import ParsedSearchRequest, hash_term, hash_term_of_content_word

Floats = NDArray[np.float32]

# The order is that of the columns of `Signals.values` and of the weights in calibration.
SIGNAL_NAMES = (
    "lexical",  # BM25F over all fields, relative to the best document
    # Share of the request's terms that occur anywhere in the document.
    "coverage",
    # The same for the best window of the body; 0 unless the request is a text itself.
    "passage",
    # Share of neighbouring words of the request that are also neighbours here.
    "phrase",
    "meaning",  # cosine of request and document
    "part",  # cosine of the best part of the request
    # How similar each request word is to its nearest word in name, when-to-use, tags or description.
    "words",
    # The reverse: how similar each document word is to its nearest request word.
    "said",
    "name",  # the same for the words of the name alone
    "says_when",  # the document says when to use it
    # How long the when-to-use text and the description are.
    "detail",
)

# Signals with the same weight for every encoder; their weights in calibration were swept, not fitted.
STATED_NAMES = (
    # Somebody asks, and the description states what the document is not for, as authors in large libraries do.
    "borders",
    # Share of the request that occurs only where the document says what it is not for.
    "excluded",
    # The rarest word about the surrounding project (languages, frameworks) in the summary.
    "project",
    # Plain BM25 over the whole text, relative to the best document, scaled by the share of documents with bodies;
    # half of it unless the request is a text itself.
    "as_text",
)

# Signals of one document's relevance by itself: rarity in this library and other documents do not count, so a crowd of
# near-duplicates changes nothing.
FIT_NAMES = ("strength", "coverage", "meaning", "part", "words", "said", "name")

_MOST_TERMS = 80
_BY_TERMS, _BY_TEXT, _BY_MEANING, _BY_PART, _NEAR = 80, 10, 60, 40, 500
_WINDOW, _STRIDE = 48, 24
_MEANING_CAP = 20.0
# Terms; a shorter statement is a topic, and a request of many terms is a text even if it asks for something.
_SHORTEST_STATEMENT, _SHORTEST_TASK = 4, 30
_EXCLUDED = FIELDS.index("excluded")
_NO_CODES: Codes = np.zeros(0, dtype=np.uint32)
# The largest share of a request's worth that one term may have: a rare topic is not the task.
_LARGEST_SHARE = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateSignals:
    """The signals of a request, one row per candidate slot."""

    slots: Slots
    values: Floats
    # One column for each of STATED_NAMES.
    stated: Floats
    # One column for each of FIT_NAMES.
    fit: Floats
    # The worth of each term of the request.
    worths: Mapping[int, float]

    @property
    def text_similarity_column(self) -> Floats:
        column: Floats = self.stated[:, STATED_NAMES.index("as_text")]
        return column


def choose_candidates_and_compute_signals(
    corpus: SearchCorpus,
    embedder: Embedder,
    request: ParsedSearchRequest,
    vectors: Vectors,
    among: Slots | None,
    more: Slots,
    project: Codes = _NO_CODES,
) -> CandidateSignals:
    """Choose candidates by terms, by meaning and by parts, plus `more`, and compute every signal for them.

    `vectors` are those of the request and then of its parts; `project` are terms that describe the project.
    """
    asked = WeighedRequest.from_request(corpus, request, among)
    scores, as_text = _score_lexically(corpus, asked)
    meaning = _compute_cosines(corpus, vectors[0], among)
    allowed = corpus.living_slots if among is None else among
    everywhere = len(allowed) == len(scores)
    if not everywhere:
        # A score of zero chooses no candidate.
        scores, as_text, meaning = (
            _zero_scores_outside_allowed_slots(found, allowed) for found in (scores, as_text, meaning)
        )
    likest = _select_best_slots(as_text, _BY_TEXT)
    chosen = more if everywhere else more[np.isin(more, allowed)]
    slots, part = _choose_candidates(corpus, vectors[1:], scores, meaning, np.concatenate([likest, chosen]))
    if not len(slots):
        none = np.zeros((0, len(SIGNAL_NAMES)), np.float32)
        return CandidateSignals(
            slots=slots,
            values=none,
            stated=none[:, : len(STATED_NAMES)],
            fit=none[:, : len(FIT_NAMES)],
            worths={},
        )
    lengths = corpus.lengths[slots]
    is_text = is_statement_or_long_task(request)
    passage, phrase, excluded = _compute_order_dependent_signals(corpus, asked, slots, lengths, is_text=is_text)
    by_rarity, plain = _compute_word_meaning_signals(corpus, embedder, request, slots)
    share_having_body = corpus.share_having_body
    # A carefully written description helps wishes, but not texts.
    prior = 1 - share_having_body if is_text else 1.0
    detail = np.log1p(lengths[:, 1] + lengths[:, 3]) / 5
    strengths = _collect_term_strengths(asked, slots, len(scores))
    has_term = np.where(strengths < 0, np.float32(0), np.float32(1))
    columns = (
        _divide_by_best(scores, slots),
        _compute_term_coverage(has_term, asked.worth),
        passage,
        phrase,
        meaning[slots],
        part,
        *by_rarity,
        corpus.says_when[slots] * prior,
        detail * prior,
    )
    borders = (lengths[:, _EXCLUDED] > 0) & request.is_asked
    text = _divide_by_best(as_text, slots) * np.float32(share_having_body * (1 if is_text else 0.5))
    stated = (borders, excluded, _score_project_terms(corpus, project, slots, lengths), text)
    strength = _sum_terms_by_candidate(np.maximum(strengths, 0), asked.weights) / max(float(asked.weights.sum()), 1e-9)
    fit = (strength, _compute_term_coverage(has_term, asked.weights), meaning[slots], part, *plain)
    return CandidateSignals(
        slots=slots,
        values=_stack_columns(columns),
        stated=_stack_columns(stated),
        fit=_stack_columns(fit),
        worths=asked.worths,
    )


def _zero_scores_outside_allowed_slots(scores: Floats, allowed: Slots) -> Floats:
    cleared = np.zeros_like(scores)
    cleared[allowed] = scores[allowed]
    return cleared


def _stack_columns(columns: Iterable[NDArray[Any]]) -> Floats:
    return np.stack([np.asarray(column, dtype=np.float32) for column in columns], axis=1)


def _compute_cosines(corpus: SearchCorpus, vector: Vectors, among: Slots | None) -> Floats:
    """Return the cosine of every allowed slot."""
    # One large product is faster than gathering many rows.
    if among is None or 4 * len(among) > len(corpus.vectors):
        cosines: Floats = corpus.vectors @ vector
        return cosines
    cosines = np.zeros(len(corpus.vectors), dtype=np.float32)
    cosines[among] = corpus.vectors[among] @ vector
    return cosines


@dataclass(frozen=True, kw_only=True, slots=True)
class WeighedRequest:
    """The terms of a request with the weight of their sentence, and their worth: weight times idf."""

    codes: Codes
    weights: Floats
    worth: Floats
    total: float
    rarity: Floats
    rows: PostingsOfTerms
    phrases: list[tuple[int, int]]
    # The worth of every term, of those left out above as well.
    worths: Mapping[int, float]

    @classmethod
    def from_request(cls, corpus: SearchCorpus, request: ParsedSearchRequest, among: Slots | None) -> WeighedRequest:
        codes = np.array([hash_term(term) for term in request.terms], dtype=np.uint32)
        weights = np.array(list(request.terms.values()), dtype=np.float32)
        rarity = corpus.compute_rarity(codes)
        worth = rarity * weights
        worths = dict(zip(codes.tolist(), worth.tolist(), strict=True))
        # Terms that many documents have say little and take the longest.
        kept = np.sort(find_positions_of_highest_scores(worth, _MOST_TERMS))
        codes, weights, rarity, worth = codes[kept], weights[kept], rarity[kept], worth[kept]
        worth = np.minimum(worth, _LARGEST_SHARE * worth.sum())
        named = list(request.terms)
        place = {named[term]: at for at, term in enumerate(kept.tolist())}
        phrases = [(place[a], place[b]) for a, b in request.phrases if a in place and b in place]
        return cls(
            codes=codes,
            weights=weights,
            worth=worth,
            total=max(float(worth.sum()), 1e-9),
            rarity=rarity,
            rows=corpus.postings.find_postings_of_terms(codes, among),
            phrases=sorted(phrases),
            worths=worths,
        )


def _score_lexically(corpus: SearchCorpus, asked: WeighedRequest) -> tuple[Floats, Floats]:
    """Return the BM25F score of each slot, and its plain BM25 score over the whole text."""
    rows, count = asked.rows, len(corpus.ids)
    by_field = np.repeat(asked.worth, rows.sizes) * rows.strengths
    by_text = np.repeat(asked.rarity / np.float32(255), rows.sizes) * rows.text_steps
    return _sum_by_slot(rows.slots, by_field, count), _sum_by_slot(rows.slots, by_text, count)


def _sum_by_slot(slots: Slots, scores: NDArray[Any], count: int) -> Floats:
    return np.bincount(slots, scores, count).astype(np.float32)


def _divide_by_best(scores: Floats, slots: Slots) -> Floats:
    shares: Floats = scores[slots] / np.float32(max(float(scores.max()), 1e-9))
    return shares


def _choose_candidates(
    corpus: SearchCorpus, parts: Vectors, scores: Floats, meaning: Floats, more: Slots
) -> tuple[Slots, Floats]:
    """Return the best slots by terms, meaning and parts, and the cosine of each with the nearest part of the
    request.
    """
    by_terms, by_meaning = _select_best_slots(scores, _BY_TERMS), _select_best_slots(meaning, _NEAR)
    # Parts are compared only with slots near the whole request, which saves most of the time.
    pool = _merge_slots(len(scores), by_terms, by_meaning, more)
    part = (corpus.vectors[pool] @ parts.T).max(1)
    by_meaning = by_meaning[_select_best_slots(meaning[by_meaning], _BY_MEANING)]
    by_part = pool[_select_best_slots(part, _BY_PART)]
    chosen = _merge_slots(len(scores), by_terms, by_meaning, by_part, more)
    return chosen, part[np.searchsorted(pool, chosen)]


def _merge_slots(count: int, *some: Slots) -> Slots:
    mask = np.zeros(count, dtype=bool)
    mask[np.concatenate(some)] = True
    return np.flatnonzero(mask)


def _select_best_slots(scores: Floats, count: int) -> Slots:
    """Return the positions of the highest positive scores, unordered."""
    top = find_positions_of_highest_scores(scores, count)
    return top[scores[top] > 0]


def find_positions_of_highest_scores(scores: Floats, count: int) -> Slots:
    """Return the positions of the `count` highest scores."""
    if count >= len(scores):
        return np.arange(len(scores))
    # Of equal scores the first win: numpy's argpartition would choose differently on each processor.
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    above = np.flatnonzero(scores > least)
    return np.concatenate([above, np.flatnonzero(scores == least)[: count - len(above)]])


def _score_project_terms(corpus: SearchCorpus, project: Codes, slots: Slots, lengths: NDArray[np.int32]) -> Floats:
    found = np.zeros(len(slots), dtype=np.float32)
    if not len(project):
        return found
    rarity = corpus.compute_rarity(project) / 10
    ends = lengths[:, :_EXCLUDED].sum(1)
    for row, slot in enumerate(slots.tolist()):
        there = np.isin(project, corpus.get_term_codes_at_slot(slot)[: ends[row]])
        found[row] = rarity[there].max(initial=0.0)
    return found


def _collect_term_strengths(asked: WeighedRequest, slots: Slots, count: int) -> Floats:
    """Return how strongly each candidate (column) has each requested term; -1 if it lacks it."""
    rows = asked.rows
    column = np.full(count, -1, dtype=np.int64)
    column[slots] = np.arange(len(slots))
    at = column.take(rows.slots)
    is_candidate = np.flatnonzero(at >= 0)
    term = np.searchsorted(np.cumsum(rows.sizes), is_candidate, side="right")
    found = np.full((len(rows.sizes), len(slots)), -1, dtype=np.float32)
    found[term, at.take(is_candidate)] = rows.strengths.take(is_candidate)
    return found


def _compute_term_coverage(has_term: Floats, worths: Floats) -> Floats:
    shares: Floats = _sum_terms_by_candidate(has_term, worths) / np.float32(max(float(worths.sum()), 1e-9))
    return shares


def _sum_terms_by_candidate(by_term: Floats, worths: Floats) -> Floats:
    """Sum by candidate, term by term in a fixed order."""
    # A matrix product would round differently on each machine.
    total: Floats = np.add.reduce(by_term * worths[:, None], axis=0)
    return total


def _compute_order_dependent_signals(
    corpus: SearchCorpus, asked: WeighedRequest, slots: Slots, lengths: NDArray[np.int32], *, is_text: bool
) -> tuple[Floats, Floats, Floats]:
    """Return the passage, phrase and exclusion signals, which depend on the order of terms."""
    codes, sizes = np.concatenate(corpus.collect_term_codes_of_slots(slots)), lengths.sum(1)
    at = np.flatnonzero(mask_possibly_wanted_codes(codes, asked.codes))
    order = np.argsort(asked.codes)
    near = order[np.minimum(np.searchsorted(asked.codes, codes[at], sorter=order), max(len(order) - 1, 0))]
    sure = asked.codes[near] == codes[at] if len(order) else np.zeros(0, dtype=bool)
    at, term = at[sure], near[sure]
    ends = np.cumsum(sizes)
    row = np.searchsorted(ends, at, side="right")
    inside = at - (ends - sizes)[row]
    before_body = sizes - lengths[:, -1]
    before_excluded = lengths[:, :_EXCLUDED].sum(1)
    is_excluded = (inside >= before_excluded[row]) & (inside < before_body[row])
    return (
        # A wish rarely repeats a passage, and the one that shares most of its words misleads.
        _score_best_passage(asked, row, inside - before_body[row], term, len(slots))
        if is_text
        else np.zeros(len(slots), dtype=np.float32),
        _score_phrases(asked, row, at, term, len(slots)),
        _compute_share_in_exclusions(asked, row[is_excluded], term[is_excluded], len(slots)),
    )


def mask_possibly_wanted_codes(codes: Codes, requested: Codes) -> NDArray[np.bool_]:
    """Return which codes may be among the wanted ones, by their low 16 bits."""
    # A cheap sieve: the few codes that pass are compared in full.
    sieve = np.zeros(1 << 16, dtype=bool)
    sieve[requested & np.uint32(0xFFFF)] = True
    # `take` needs half the time of indexing.
    return sieve.take(codes & np.uint32(0xFFFF))


def _score_best_passage(asked: WeighedRequest, row: Slots, place: Slots, term: Slots, count: int) -> Floats:
    """Return the worth of distinct terms within the best window of each body; windows overlap by half."""
    best = np.zeros(count, dtype=np.float32)
    in_body = place >= 0
    if not in_body.any():
        return best
    row, window, term = row[in_body], place[in_body] // _STRIDE, term[in_body]
    keys = ((row << 24) | (window << 8)) | term
    earlier = ((row << 24) | (np.maximum(window - (_WINDOW // _STRIDE - 1), 0) << 8)) | term
    unique = _sort_unique(np.concatenate([keys, earlier]))
    passages = unique >> 8
    starts = np.flatnonzero(np.concatenate([[True], passages[1:] != passages[:-1]]))
    worth = np.add.reduceat(asked.worth[unique & 0xFF], starts)
    np.maximum.at(best, passages[starts] >> 16, worth)
    shares: Floats = best / np.float32(asked.total)
    return shares


def _sort_unique(keys: Slots) -> Slots:
    """Return the sorted distinct keys."""
    # Ten times faster than `np.unique` for some thousand keys.
    ordered = np.sort(keys)
    different: Slots = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    return different


def _compute_share_in_exclusions(asked: WeighedRequest, row: Slots, term: Slots, count: int) -> Floats:
    shares = np.zeros(count, dtype=np.float32)
    if len(row):
        unique = _sort_unique((row << 8) | term)
        np.add.at(shares, unique >> 8, asked.worth[unique & 0xFF] / np.float32(asked.total))
    return shares


def is_statement_or_long_task(request: ParsedSearchRequest) -> bool:
    """Return whether the request is a text by itself: a statement that asks for nothing, or a long task."""
    return len(request.terms) >= (_SHORTEST_TASK if request.is_asked else _SHORTEST_STATEMENT)


def _score_phrases(asked: WeighedRequest, row: Slots, at: Slots, term: Slots, count: int) -> Floats:
    found = np.zeros(count, dtype=np.float32)
    if not asked.phrases or len(at) < 2:
        return found
    side = len(asked.codes)
    is_wanted = np.zeros(side * side, dtype=bool)
    is_wanted[[a * side + b for a, b in asked.phrases]] = True
    together = (at[1:] == at[:-1] + 1) & (row[1:] == row[:-1])
    pairs = (term[:-1] * side + term[1:])[together]
    hits = is_wanted[pairs]
    if not hits.any():
        return found
    unique = _sort_unique(row[:-1][together][hits] * side * side + pairs[hits])
    owner, pair = unique // (side * side), unique % (side * side)
    np.add.at(found, owner, (asked.worth[pair // side] + asked.worth[pair % side]) / 2)
    shares: Floats = found / np.float32(asked.total)
    return shares


def _compute_word_meaning_signals(
    corpus: SearchCorpus, embedder: Embedder, request: ParsedSearchRequest, slots: Slots
) -> tuple[tuple[Floats, Floats, Floats], tuple[Floats, Floats, Floats]]:
    """Return the `words`, `said` and `name` signals: each word meets its nearest on the other side.

    The first triple weighs words by rarity, the second all alike.
    """
    ids = corpus.collect_word_ids_of_slots(slots)
    sizes = np.array([len(of_one) for of_one in ids])
    starts = np.cumsum(sizes) - sizes
    different, back = corpus.find_distinct_words(np.concatenate(ids))
    asked = list(request.words) or [""]
    asked_codes = np.array([hash_term_of_content_word(word) for word in asked], dtype=np.uint32)
    codes, rarity = corpus.get_codes_and_rarity_of_words(different)
    vectors = embedder.embed_words(asked)
    if vectors.shape[1]:
        near = corpus.compute_cosines_of_words(different, normalize_rows(vectors))
        meant = np.minimum(np.linalg.norm(vectors, axis=1), _MEANING_CAP)
    else:
        near, meant = (codes[:, None] == asked_codes[None, :]).astype(np.float32), np.ones(len(asked), np.float32)
    weights = np.array([request.words.get(word, 1.0) for word in asked]) * meant
    best_for_asked = np.maximum.reduceat(near.take(back, axis=0), starts, axis=0)
    # Reducing along long rows is many times faster.
    nearest = np.ascontiguousarray(near.T).max(0).take(back)
    of_name = (np.arange(len(back)) - np.repeat(starts, sizes)) < np.repeat(corpus.name_words[slots], sizes)

    def compare(of_asked: NDArray[Any], of_there: Floats) -> tuple[Floats, Floats, Floats]:
        in_name = of_there * of_name
        sums = np.add.reduceat(np.stack([nearest * of_there, of_there, nearest * in_name, in_name]), starts, axis=1)
        said, name = sums[::2] / np.maximum(sums[1::2], 1e-9)
        words = best_for_asked @ of_asked / max(float(of_asked.sum()), 1e-9)
        return _to_float32(words), _to_float32(said), _to_float32(name)

    by_rarity = compare(corpus.compute_rarity(asked_codes) * weights, rarity.take(back))
    return by_rarity, compare(weights, np.ones(len(back), dtype=np.float32))


def _to_float32(values: NDArray[Any]) -> Floats:
    return values.astype(np.float32)
