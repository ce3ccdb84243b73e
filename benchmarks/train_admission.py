"""Learns `habitus/screening/second_look.json`: how to tell sentences that work as orders from ordinary lessons.

    python benchmarks/train_admission.py [--waits 0.07] [--write]

A logistic regression over the concepts of a sentence, their pairs, and (where there are vectors) its meaning, from
`data/admission_*.txt`, the texts of the tests and the lessons of `data/paraphrases.jsonl`. The floor is where the
share `--waits` of the ordinary lessons waits in cross-validation; the figures of that go to stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

import _report
from habitus.screening import second_look
from habitus.search import WordLlama

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.memory.texts import ORDERS, ORDINARY

DATA = Path(__file__).parent / "data"
OUT = Path(second_look.__file__).parent / "second_look.json"
FOLDS = 10
_SEEN_OFTEN = 4  # a pair of concepts in fewer sentences says nothing

Array = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waits", type=float, default=0.07)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    texts, is_order = _sentences()
    learned = {}
    for embedder in (WordLlama(), None):
        name = embedder.name if embedder else "none"
        names, table = _concepts(texts)
        meaning = embedder.embed(texts).astype(float) if embedder else np.zeros((len(texts), 0))
        best = max(
            (
                _validated(table, meaning, is_order, (a, b), arguments.waits)
                for a in (0.1, 0.3, 1.0, 3.0)
                for b in _widths(meaning)
            ),
            key=lambda found: float(found["held"]),
        )
        print(name, {k: v for k, v in best.items() if k != "missed"}, file=sys.stderr)
        weights = _fitted(table, meaning, is_order, best["ridge"])
        learned[name] = {
            "floor": round(best["floor"], 4),
            "bias": round(float(weights[0]), 4),
            "concepts": {n: round(float(w), 3) for n, w in zip(names, weights[1:], strict=False) if abs(w) >= 0.001},
            "meaning": [round(float(w), 3) for w in weights[1 + len(names) :]],
        }
        if embedder:
            wrong = sorted(
                (s, texts[i]) for i, s in enumerate(best["missed"]) if not is_order[i] and s >= best["floor"]
            )
            missed = sorted((s, texts[i]) for i, s in enumerate(best["missed"]) if is_order[i] and s < best["floor"])
            for score, text in [*wrong, (0.0, "-----"), *missed]:
                print(f"{score:6.2f} {text}")
    if arguments.write:
        OUT.write_text(json.dumps(learned, separators=(",", ":"), sort_keys=True) + "\n")


def _widths(meaning: Array) -> tuple[float, ...]:
    return (0.3, 1.0, 3.0) if meaning.shape[1] else (1.0,)


def _sentences() -> tuple[list[str], Array]:
    ordinary = [*ORDINARY, *(DATA / "admission_ordinary.txt").read_text("utf-8").splitlines()]
    for pair in _report.read_jsonl(DATA / "paraphrases.jsonl"):
        ordinary += [pair["a"], pair["b"]]
    orders = dict.fromkeys([*ORDERS, *(DATA / "admission_orders.txt").read_text("utf-8").splitlines()])
    plain = [text for text in dict.fromkeys(ordinary) if text not in orders]
    return [*orders, *plain], np.array([1.0] * len(orders) + [0.0] * len(plain))


def _concepts(texts: list[str]) -> tuple[list[str], Array]:
    found = [second_look.features(text) for text in texts]
    counts: dict[str, int] = {}
    for names in found:
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    names = sorted(name for name, count in counts.items() if " " not in name or count >= _SEEN_OFTEN)
    place = {name: column for column, name in enumerate(names)}
    table = np.zeros((len(texts), len(names)))
    for row, mine in enumerate(found):
        table[row, [place[name] for name in mine if name in place]] = 1.0
    return names, table


def _validated(
    table: Array, meaning: Array, is_order: Array, ridge: tuple[float, float], waits: float
) -> dict[str, Any]:
    """Each sentence scored by weights that have not seen it."""
    fold = np.random.default_rng(5).permutation(len(is_order)) % FOLDS
    score = np.zeros(len(is_order))
    for one in range(FOLDS):
        rest, mine = fold != one, fold == one
        weights = _fitted(table[rest], meaning[rest], is_order[rest], ridge)
        score[mine] = weights[0] + np.hstack([table[mine], meaning[mine]]) @ weights[1:]
    floor = float(np.quantile(score[is_order == 0], 1 - waits))
    return {
        "ridge": ridge,
        "floor": floor,
        "held": round(float((score[is_order == 1] >= floor).mean()), 3),
        "missed": score.tolist(),
    }


def _fitted(table: Array, meaning: Array, is_order: Array, ridge: tuple[float, float]) -> Array:
    rows = np.hstack([np.ones((len(table), 1)), table, meaning])
    penalty = np.concatenate([[0.0], np.full(table.shape[1], ridge[0]), np.full(meaning.shape[1], ridge[1])])
    share = np.where(is_order == 1, 0.5 / is_order.mean(), 0.5 / (1 - is_order.mean()))

    def loss(weights: Array) -> tuple[float, Array]:
        margin = rows @ weights
        sure = 1 / (1 + np.exp(-np.clip(margin, -30, 30)))
        value = share @ (np.logaddexp(0, margin) - is_order * margin) + 0.5 * penalty @ weights**2
        return float(value), rows.T @ (share * (sure - is_order)) + penalty * weights

    return np.asarray(minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B").x)


if __name__ == "__main__":
    main()
