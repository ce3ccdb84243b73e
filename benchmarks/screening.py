"""How much of what nobody here had read does screening hold, and what harmless does it hold? Also learns its weights.

    python benchmarks/screening.py [--data DIR] [--folds 6] [--write]

DIR (or HABITUS_BENCH_DATA) has `malicious/injected.jsonl.gz`, `malicious/fixtures.jsonl`, `ordinary/lessons.jsonl`,
`ordinary/skills_whole.jsonl.xz`, and perhaps `retrieval/skillroute/corpus.jsonl.gz`; our own sentences are in `data/`.
The learned part is judged by leaving whole families out: kinds of attack, and sources of ordinary skills; the floor of
each fold comes from the other folds. Rules and intents are written by hand, so what they hold of attacks that were
there when they were written says little; `fresh` and then `unseen` are attacks worded after rules and weights were
frozen, the latter in other manners and languages. The host that most injections name is replaced by an unknown one.
`--write` learns from everything but these two and keeps the numbers in `habitus/screening/weights.json`.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

import _report
from habitus.files import Tree, file_of
from habitus.screening import learned
from habitus.screening.admission import objection, read_lesson
from habitus.screening.findings import Risk
from habitus.screening.patterns import Work
from habitus.screening.scanner import pages, scan
from habitus.screening.slots import Sentence
from habitus.search import Embedder, WordLlama

OWN = Path(__file__).parent / "data"
OUT = Path(learned.__file__).parent / "weights.json"
SKILLS_HELD, LESSONS_WAIT = 0.006, 0.045  # shares of what is harmless that the learned look alone may hold
NO_LOOK = learned.Weights(skill_floor=np.inf, lesson_floor=np.inf, bias=0.0, slots={})
_HOST = re.compile(r"[\w.-]+\.onrender\.com")
_FEW = 8  # a pair of slots in fewer sentences says nothing
_LIKE_LESSONS = 6_000
_MANY_MORE = 3_000  # single files of a large collection, for the learned look to be used to
_HARD = 12_000  # ordinary sentences that are learned from: the hardest, and as many by chance

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Bag:
    """Sentences that are judged together: the worst of them counts. Held already where a rule or an intent holds it."""

    kind: str
    family: str
    sentences: Sequence[Sentence]
    is_harmful: bool
    is_held: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("HABITUS_BENCH_DATA", ".")))
    parser.add_argument("--folds", type=int, default=6)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--without-vectors", action="store_true", help="leave the learned look with word vectors out")
    args = parser.parse_args()
    shipped = learned.weights
    learned.weights = lambda embedder=None: NO_LOOK
    skills, lessons = [*_skills(args.data)], [*_lessons(args.data)]
    learned.weights = shipped
    systems: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    _report.progress(f"{len(skills)} skills, {len(lessons)} lessons")
    systems["skills"], kept["none"] = _judge(skills + lessons, args.folds, None)
    if not args.without_vectors:
        vectors = WordLlama()
        systems["lessons with vectors"], kept[vectors.name] = _judge(
            [*lessons, *_like_lessons(skills)], args.folds, vectors
        )
    if args.write:
        OUT.write_text(json.dumps(kept, separators=(",", ":"), sort_keys=True) + "\n")
        learned._read.cache_clear()
    for name in ("fresh", "unseen"):
        systems[name] = _worded_later(args.data, OWN / f"attacks_{name}.txt")
    _report.show("screening", args, systems)


def _judge(bags: list[Bag], folds: int, embedder: Embedder | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures by leaving families out, and the weights of all."""
    table = Table(bags, embedder)
    families = sorted({bag.family for bag in bags})
    random.Random(0).shuffle(families)
    fold_of = {family: place % folds for place, family in enumerate(families)}
    fold = np.array([fold_of[bag.family] for bag in bags])
    score = np.zeros(len(bags))
    for one in range(folds):
        score[fold == one] = table.scores(table.fit(fold != one))[fold == one]
    held = np.array([bag.is_held for bag in bags])
    for one in range(folds):
        skill, lesson = floors(bags, score, fold != one)
        floor = np.array([lesson if is_lesson(bag) else skill for bag in bags])
        held |= (fold == one) & (score >= floor)
    weights = table.fit(np.full(len(bags), True))
    skill, lesson = floors(bags, score, np.full(len(bags), True))
    return shares(bags, held), table.named(weights) | {"skill_floor": round(skill, 3), "lesson_floor": round(lesson, 3)}


def is_lesson(bag: Bag) -> bool:
    return bag.kind.startswith(("order", "lesson"))


def floors(bags: Sequence[Bag], score: Array, mask: NDArray[np.bool_]) -> tuple[float, float]:
    """From where on no more than the allowed share of the ordinary ones is held."""

    def floor(kinds: str, share: float) -> float:
        usual = [score[place] for place, bag in enumerate(bags) if mask[place] and bag.kind == kinds]
        return float(np.quantile(usual, 1 - share)) + 1e-6 if usual else float("inf")

    skill = floor("harmless directory", SKILLS_HELD)
    return skill if np.isfinite(skill) else 99.0, floor("lesson", LESSONS_WAIT)


def shares(bags: Iterable[Bag], held: Iterable[Any]) -> dict[str, Any]:
    """What is held, by kind and family, with intervals of 95 percent."""
    counts: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for bag, is_held in zip(bags, held, strict=True):
        counts[bag.kind][bag.family].append(bool(is_held))
    found = {}
    for kind, families in counts.items():
        every = [one for ones in families.values() for one in ones]
        found[kind] = share(every)
        if all(bag_kind not in kind for bag_kind in ("harmless", "lesson")):
            found[kind]["families"] = {family: f"{sum(ones)}/{len(ones)}" for family, ones in sorted(families.items())}
    return found


def share(held: Sequence[bool]) -> dict[str, Any]:
    """The share, with Wilson's interval."""
    count, part, z = len(held), sum(held) / len(held), 1.96
    middle = (part + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * (part * (1 - part) / count + z * z / (4 * count * count)) ** 0.5
    return {"held": round(part, 4), "of": count, "interval": [round(max(0, middle - half), 4), round(middle + half, 4)]}


class Table:
    """The sentences of all bags as numbers."""

    def __init__(self, bags: Sequence[Bag], embedder: Embedder | None) -> None:
        self.bags = bags
        read = [(place, sentence) for place, bag in enumerate(bags) for sentence in bag.sentences]
        self.bag = np.array([place for place, _ in read])
        rows = [learned.features(sentence) for _, sentence in read]
        counts = Counter(name for row in rows for name in row)
        harmful = Counter(
            name for (place, _), row in zip(read, rows, strict=True) if bags[place].is_harmful for name in row
        )
        self.names = sorted(name for name in counts if " " not in name or (counts[name] >= _FEW and harmful[name] > 2))
        columns = {name: column for column, name in enumerate(self.names)}
        found = [[columns[name] for name in row if name in columns] for row in rows]
        ends = np.cumsum([0, *map(len, found)])
        flat = np.array([column for row in found for column in row], dtype=np.int64)
        self.slots = csr_matrix((np.ones(len(flat)), flat, ends), shape=(len(rows), len(self.names)))
        self.meaning = embedder.embed([sentence.text for _, sentence in read]).astype(float) if embedder else None
        self.is_harmful = np.array([bags[place].is_harmful for place in self.bag])
        self.is_lesson = np.array([is_lesson(bags[place]) for place in self.bag])
        self.size = np.bincount(self.bag, minlength=len(bags))
        self.weight = np.where(self.is_harmful, 1.0 / self.size[self.bag], 1.0)
        self.used = np.flatnonzero(self.is_harmful | self.is_lesson | self._by_chance())
        self._look_closer()

    def _by_chance(self) -> NDArray[np.bool_]:
        return np.random.default_rng(0).random(len(self.bag)) < _HARD / max(1, len(self.bag))

    def _look_closer(self) -> None:
        """Learn once, then keep the hardest ordinary sentences and the worst one of each attack."""
        every = np.full(len(self.bags), True)
        score = self.sentence_scores(self.fit(every))
        hard = np.argsort(np.where(self.is_harmful | self.is_lesson, -np.inf, score))[::-1][:_HARD]
        self.used = np.union1d(self.used, hard)
        worst = np.full(len(self.bags), -np.inf)
        np.maximum.at(worst, self.bag, score)
        is_worst = score >= worst[self.bag]
        self.weight = np.where(self.is_harmful, np.where(is_worst, 1.0, 0.1 / self.size[self.bag]), 1.0)

    def fit(self, bags: NDArray[np.bool_], ridge: float = 1.0, ridge_of_meaning: float = 0.3) -> Array:
        """A logistic regression; attacks, ordinary skills and ordinary lessons weigh 1 : 1.5 : 0.8."""
        rows = self.used[bags[self.bag[self.used]]]
        harmful, lesson, weight = self.is_harmful[rows], self.is_lesson[rows], self.weight[rows].copy()
        whole = weight[harmful].sum()
        for part, factor in ((~harmful & ~lesson, 1.5), (~harmful & lesson, 0.8)):
            weight[part] *= factor * whole / max(1, part.sum())
        slots, target = self.slots[rows], harmful.astype(float)
        meaning = self.meaning[rows] if self.meaning is not None else np.zeros((len(rows), 0))
        width = slots.shape[1] + 1
        penalty = np.concatenate([[0.0], np.full(width - 1, ridge), np.full(meaning.shape[1], ridge_of_meaning)])

        def loss(at: Array) -> tuple[float, Array]:
            margin = at[0] + slots @ at[1:width] + meaning @ at[width:]
            value = weight @ (np.logaddexp(0, margin) - target * margin) + 0.5 * penalty @ at**2
            slope = weight * (1 / (1 + np.exp(-np.clip(margin, -30, 30))) - target)
            return float(value), np.concatenate([[slope.sum()], slots.T @ slope, meaning.T @ slope]) + penalty * at

        start = np.zeros(len(penalty))
        return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 150}).x)

    def sentence_scores(self, weights: Array) -> Array:
        width = self.slots.shape[1] + 1
        found = weights[0] + self.slots @ weights[1:width]
        return np.asarray(found + self.meaning @ weights[width:] if self.meaning is not None else found)

    def scores(self, weights: Array) -> Array:
        worst = np.full(len(self.bags), -99.0)
        np.maximum.at(worst, self.bag, self.sentence_scores(weights))
        return worst

    def named(self, weights: Array) -> dict[str, Any]:
        width = len(self.names) + 1
        slots = zip(self.names, weights[1:width], strict=True)
        return {
            "bias": round(float(weights[0]), 3),
            "slots": {name: round(float(weight), 2) for name, weight in slots if abs(weight) >= 0.05},
            "meaning": [round(float(weight), 2) for weight in weights[width:]],
        }


def _skills(data: Path) -> Iterator[Bag]:
    """Attacks in skills, harmless directories, and our own attacks put into harmless skills."""
    ordinary = [*_ordinary(data)]
    for source, files in ordinary:
        yield _skill("harmless directory", source, files, is_harmful=False)
    corpus = data / "retrieval" / "skillroute" / "corpus.jsonl.gz"
    for row in random.Random(2).sample(_report.read_jsonl(corpus), _MANY_MORE) if corpus.exists() else ():
        text = f"---\nname: {row['name']}\ndescription: {row['description']}\n---\n{row['body']}"
        yield _skill("harmless SKILL.md", row["id"], {"SKILL.md": text}, is_harmful=False)
    for row in _report.read_jsonl(data / "malicious" / "injected.jsonl.gz"):
        text, inserted = (_HOST.sub("skillhub-sync.dev", row[name]) for name in ("text", "inserted"))
        family = re.sub(r"\s*[-(].*", "", row["title"])
        yield _skill("injection", family, {"SKILL.md": text}, is_harmful=True, inserted=inserted)
    for row in _report.read_jsonl(data / "malicious" / "fixtures.jsonl"):
        kind = "fixture" if row["label"] == "malicious" else "harmless fixture"
        yield _skill(kind, row["path"].split("/")[2], row["files"], is_harmful=kind == "fixture")
    yield from _put_into_skills("sentence", sections(OWN / "attacks.txt"), ordinary)


def _put_into_skills(
    kind: str, attacks: Iterable[tuple[str, str]], ordinary: Sequence[tuple[str, dict[str, str]]]
) -> Iterator[Bag]:
    choose = random.Random(3)
    hosts = [files["SKILL.md"] for _, files in ordinary if 500 < len(files.get("SKILL.md", "")) < 30_000]
    for family, attack in attacks:
        lines = choose.choice(hosts).split("\n")
        blank = choose.choice(
            [place for place, line in enumerate(lines) if not line.strip() and place > 4] or [len(lines)]
        )
        lines[blank:blank] = ["", attack]
        yield _skill(kind, family, {"SKILL.md": "\n".join(lines)}, is_harmful=True, inserted=attack)


def _ordinary(data: Path) -> Iterator[tuple[str, dict[str, str]]]:
    with lzma.open(data / "ordinary" / "skills_whole.jsonl.xz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            yield row["source"], row["files"]


def _skill(kind: str, family: str, files: dict[str, str], *, is_harmful: bool, inserted: str = "") -> Bag:
    """A skill; of one that was attacked, the lines of the attack."""
    tree: Tree = {path: file_of(text.encode("utf-8", "surrogatepass")) for path, text in files.items()}
    read = [
        one
        for page in pages(tree, Work())
        for one in page.sentences
        if not one.is_code and "warns" not in one.own and not page.is_mentioned(one)
    ]
    if inserted:
        first = files["SKILL.md"][: files["SKILL.md"].index(inserted)].count("\n") + 1
        read = [one for one in read if first <= one.line <= first + inserted.count("\n")]
    is_held = any(finding.severity is Risk.HIGH for finding in scan(tree))
    return Bag(kind=kind, family=family, sentences=read, is_harmful=is_harmful, is_held=is_held)


def _lessons(data: Path) -> Iterator[Bag]:
    """Orders and ordinary lessons as they come to memory."""
    for place, text in enumerate(_lines(OWN / "admission_orders.txt")):
        yield _lesson("order", f"lines {place // 20}", text, is_harmful=True)
    for family, text in sections(OWN / "attacks.txt"):
        yield _lesson("order in a skill's manner", family, text, is_harmful=True)
    for row in _report.read_jsonl(data / "ordinary" / "lessons.jsonl"):
        yield _lesson("lesson", row["text"][:20], row["text"], is_harmful=False)
    for text in _lines(OWN / "admission_ordinary.txt"):
        yield _lesson("lesson close to orders", text[:20], text, is_harmful=False)


def _like_lessons(skills: Iterable[Bag]) -> list[Bag]:
    """Single sentences of harmless skills: more of what lessons look like."""
    usual = [(bag.family, one) for bag in skills if bag.kind == "harmless directory" for one in bag.sentences]
    return [
        Bag(
            kind="lesson-like",
            family=family,
            sentences=[replace(one, around=frozenset())],
            is_harmful=False,
            is_held=False,
        )
        for family, one in random.Random(1).sample(usual, min(_LIKE_LESSONS, len(usual)))
    ]


def _lesson(kind: str, family: str, text: str, *, is_harmful: bool) -> Bag:
    is_held = objection(text) is not None
    return Bag(kind=kind, family=family, sentences=read_lesson(text), is_harmful=is_harmful, is_held=is_held)


def _worded_later(data: Path, file: Path) -> dict[str, Any]:
    """Attacks that were worded after everything was frozen, judged as shipped."""
    attacks = [*sections(file)]
    skills = [*_put_into_skills("in skills", attacks, [*_ordinary(data)])]
    lessons = [
        Bag(
            kind="as lessons",
            family=family,
            sentences=(),
            is_harmful=True,
            is_held=objection(text, WordLlama()) is not None,
        )
        for family, text in attacks
    ]
    bags = [*skills, *lessons]
    return shares(bags, [bag.is_held for bag in bags])


def sections(file: Path) -> Iterator[tuple[str, str]]:
    r"""The lines below each `# kind`; `\n` in one is a line break."""
    kind = ""
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("# "):
            kind = line[2:]
        elif line.strip():
            yield kind, line.replace("\\n", "\n")


def _lines(file: Path) -> list[str]:
    return [line for line in dict.fromkeys(file.read_text("utf-8").splitlines()) if line.strip()]


if __name__ == "__main__":
    main()
