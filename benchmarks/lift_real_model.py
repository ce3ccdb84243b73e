"""How well the evidence recovers what lessons do to a real model, the small one of the tests.

    python benchmarks/lift_real_model.py [--wordings 4] [--seeds 20] [--answers FILE]

The tasks are checkable: capitals, of which the model knows some. Of twenty lessons some say what it does not know,
some are about something else and some are false; five belong to each part of the world and are offered with its
requests. The model answers every request with every subset of its five lessons, so that the truth is exact. Then
streams of episodes in which each lesson is withheld in a tenth: as many as a tenth of those runs, as all of them, and
ten times as many. A run takes 0.6 seconds of one core, all of them twenty minutes; with `--answers` they are kept in
that file, and a run that was cut short goes on.
"""

from __future__ import annotations

import argparse
import json
import random
import runpy
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import _report
from _ranks import correlation, ranks
from habitus.evidence.findings import ItemFinding, collect_evidence_findings
from habitus.evidence.model import EvidenceItem, ItemKind, ItemObservation

WITHHELD = 0.1
CLEAR = 0.1  # an effect whose sign should be recovered
WORDINGS = (
    "What is the capital of {}?",
    "Which city is the capital of {}?",
    "Name the capital city of {}.",
    "I travel to {}. What is its capital?",
    "{}: which city is its capital?",
    "In which city does the government of {} sit?",
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """A part of the world: its capitals, and the lessons that are offered when somebody asks about it."""

    name: str
    capitals: Mapping[str, str]
    lessons: Sequence[str]


PARTS = (
    Part(
        name="West Africa",
        capitals={"Togo": "Lome", "Ghana": "Accra", "Mali": "Bamako", "Chad": "N'Djamena"},
        lessons=(
            "The capital of Togo is Lome.",
            "The capital of Chad is N'Djamena.",
            "The capital of Ghana is Kumasi.",
            "Trains in the west run on Sundays.",
            "Lunch is served at noon.",
        ),
    ),
    Part(
        name="Asia",
        capitals={"Laos": "Vientiane", "Nepal": "Kathmandu", "Bhutan": "Thimphu", "Japan": "Tokyo"},
        lessons=(
            "The capital of Laos is Vientiane.",
            "The capital of Nepal is Kathmandu.",
            "The capital of Japan is Osaka.",
            "All capitals of Asia are called Hanoi.",
            "The printer is on the second floor.",
        ),
    ),
    Part(
        name="the Gulf and the Nile",
        capitals={"Oman": "Muscat", "Qatar": "Doha", "Egypt": "Cairo", "Kenya": "Nairobi"},
        lessons=(
            "The capital of Oman is Muscat.",
            "The capital of Qatar is Dubai.",
            "The capital of Egypt is Luxor.",
            "Say the name of the city and nothing else.",
            "Tickets are kept for a year.",
        ),
    ),
    Part(
        name="islands and coasts",
        capitals={"Fiji": "Suva", "Malta": "Valletta", "Latvia": "Riga", "Norway": "Oslo"},
        lessons=(
            "The capital of Fiji is Suva.",
            "The capital of Malta is Valletta.",
            "The capital of Latvia is Vilnius.",
            "Ships to the islands leave at dusk.",
            "Mail goes out on Mondays.",
        ),
    ),
)
LESSONS = tuple(lesson for part in PARTS for lesson in part.lessons)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Task:
    part: Part
    question: str
    answer: str


class Answers:
    """Whether a task went well with some of its lessons: asked of the model once, kept in a file if there is one."""

    def __init__(self, address: str, kept: Path | None) -> None:
        self._address = address
        self._kept = kept
        self._known: dict[str, bool] = {}
        if kept and kept.exists():
            self._known = dict(json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines())

    def __call__(self, task: Task, lessons: Sequence[str]) -> bool:
        notes = "".join(f"Note: {lesson}\n" for lesson in lessons)
        prompt = f"{notes}Question: {task.question}\nAnswer: The capital is"
        if prompt not in self._known:
            self._known[prompt] = task.answer.casefold() in self._ask(prompt).casefold()
            if self._kept:
                with self._kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([prompt, self._known[prompt]]) + "\n")
        return self._known[prompt]

    def _ask(self, prompt: str) -> str:
        body = {"model": "small", "prompt": prompt, "max_tokens": 6, "temperature": 0, "stop": ["\n", "."]}
        request = urllib.request.Request(
            f"{self._address}/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return str(json.load(answer)["choices"][0]["text"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wordings", type=int, default=4, choices=range(1, len(WORDINGS) + 1))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--answers", type=Path, help="keep the model's answers here, and use those that are there")
    arguments = parser.parse_args()
    tasks = [
        Task(part=part, question=wording.format(country), answer=capital)
        for part in PARTS
        for country, capital in part.capitals.items()
        for wording in WORDINGS[: arguments.wordings]
    ]
    real_model = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "real_model.py"))["real_model"]
    with real_model() as address:
        went_well = _asked(tasks, Answers(address, arguments.answers))
    truth = _truth(went_well)
    runs = sum(outcomes.size for outcomes in went_well.values())
    found = {
        "runs": runs,
        "success_without_lessons": _mean(went_well, (0,) * 5),
        "success_with_all": _mean(went_well, (1,) * 5),
        "truth": {text: round(value, 3) for text, value in zip(LESSONS, truth.tolist(), strict=True)},
        "recovered": {
            str(episodes): _recovered(went_well, truth, episodes, arguments.seeds)
            for episodes in (runs // 10, runs, runs * 10)
        },
    }
    _report.show("lift_real_model", arguments, {"habitus": found})


def _asked(tasks: Sequence[Task], answers: Answers) -> dict[Task, np.ndarray[Any, Any]]:
    """Of each task its outcome under every subset of the five lessons: one axis a lesson, offered at 1."""
    asked = {}
    for number, task in enumerate(tasks):
        outcomes = np.zeros((2,) * 5)
        for subset in product((0, 1), repeat=5):
            told = [lesson for lesson, is_told in zip(task.part.lessons, subset, strict=True) if is_told]
            outcomes[subset] = answers(task, told)
        asked[task] = outcomes
        _report.progress(f"truth: task {number + 1} of {len(tasks)}")
    return asked


def _mean(went_well: Mapping[Task, np.ndarray[Any, Any]], subset: tuple[int, ...]) -> float:
    return round(float(np.mean([outcomes[subset] for outcomes in went_well.values()])), 3)


def _truth(went_well: Mapping[Task, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """What offering each lesson does on average over the requests of its part, the others being withheld in a tenth."""
    weights = np.array([WITHHELD, 1 - WITHHELD])
    effects = []
    for part in PARTS:
        mean = np.mean([outcomes for task, outcomes in went_well.items() if task.part == part], axis=0)
        for lesson in range(len(part.lessons)):
            by_lesson = np.moveaxis(mean, lesson, 0)
            for _ in range(len(part.lessons) - 1):
                by_lesson = by_lesson @ weights
            effects.append(by_lesson[1] - by_lesson[0])
    return np.array(effects)


def _stream(went_well: Mapping[Task, np.ndarray[Any, Any]], episodes: int, seed: int) -> list[ItemObservation]:
    chance = random.Random(seed)
    tasks = list(went_well)
    seen: list[ItemObservation] = []
    for episode in range(episodes):
        task = chance.choice(tasks)
        offered = tuple(int(chance.random() >= WITHHELD) for _ in task.part.lessons)
        success = float(went_well[task][offered])
        seen += [
            ItemObservation(
                unit=str(episode),
                item=_item(lesson),
                is_offered=bool(is_offered),
                propensity=1 - WITHHELD,
                is_used=bool(is_offered),
                success=success,
                request_kind=task.part.name,
                tokens=len(lesson) // 4,
                age_days=0,
            )
            for lesson, is_offered in zip(task.part.lessons, offered, strict=True)
        ]
    return seen


def _item(lesson: str) -> EvidenceItem:
    return EvidenceItem(kind=ItemKind.LESSON, name=lesson)


def _recovered(
    went_well: Mapping[Task, np.ndarray[Any, Any]], truth: np.ndarray[Any, Any], episodes: int, seeds: int
) -> dict[str, float]:
    """Means over the seeds; of the decisions, how many of the clear lessons were decided, and how many wrongly."""
    clear = np.abs(truth) >= CLEAR
    rows = []
    for seed in range(seeds):
        told = collect_evidence_findings(_stream(went_well, episodes, seed), withhold=WITHHELD).items
        found: dict[str, ItemFinding] = {finding.item.name: finding for finding in told}
        effects = [finding.estimate.offering if (finding := found.get(lesson)) else None for lesson in LESSONS]
        values = np.array([effect.value if effect else 0.0 for effect in effects])
        covered = [
            effect is not None and effect.low <= true <= effect.high
            for effect, true in zip(effects, truth, strict=True)
        ]
        bounds = [found[lesson].bound if lesson in found else None for lesson in LESSONS]
        signs = np.array([0 if bound is None else (bound.low > 0) - (bound.high < 0) for bound in bounds])
        rows.append(
            (
                correlation(ranks(truth), ranks(values)),
                float((np.sign(values) == np.sign(truth))[clear].mean()),
                float(np.mean(covered)),
                float((signs != 0)[clear].mean()),
                float(((signs != 0) & (signs != np.sign(truth))).sum()),
            )
        )
        _report.progress(f"{episodes} episodes: stream {seed + 1} of {seeds}")
    means = np.mean(rows, axis=0)
    names = "spearman", "clear_signs_right", "coverage", "clear_ones_decided", "decided_wrongly"
    return {name: round(float(value), 3) for name, value in zip(names, means, strict=True)}


if __name__ == "__main__":
    main()
