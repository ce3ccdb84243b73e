"""How well the evidence recovers what lessons do to a real model, the small one of the tests.

    python benchmarks/lift_real_model.py [--tasks 40] [--episodes 840]

Tasks are made up and checkable: two people, two colours, one question. Of twenty lessons some help, some do nothing
and some mislead. The truth: every task with four lessons around it, with and without each of the twenty. Then a stream
of episodes in which each of five lessons is withheld in a tenth; the evidence is read after a tenth of the truth's runs
and at the end. A run takes 0.7 seconds of one core, all of them twenty minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import runpy
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import _report
from _ranks import correlation, ranks
from habitus.evidence.findings import Finding, findings
from habitus.evidence.model import Item, ItemKind, Observation

HELPFUL = (
    "Answer with one word.",
    "Answer in one short sentence.",
    "Answer like this: Rosa's hat is pink.",
    "Repeat the words of the question in the answer.",
    "Find the name in the text and copy the colour.",
    "Name the colour first.",
    "The text says every colour.",
)
IDLE = (
    "Lunch is served at noon.",
    "The printer is on the second floor.",
    "Tickets are kept for a year.",
    "The garden closes at dusk.",
    "Mail goes out on Mondays.",
    "Tea is stored in the cellar.",
    "The lift was built in May.",
)
MISLEADING = (
    "Answer like this: Nobody knows.",
    "Answer only yes or no.",
    "Begin with a long story.",
    "Ask a question back.",
    "Answer in numbers only.",
    "Every colour is a riddle.",
)
LESSONS = (*HELPFUL, *IDLE, *MISLEADING)
AROUND, OFFERED, WITHHELD = 4, 5, 0.1
CLEAR = 0.1  # an effect whose sign should be recovered
_NAMES = "Bram", "Ida", "Otto", "Vera", "Nils", "Rosa", "Hugo", "Lena"
_THINGS = "boat", "door", "coat", "kite", "lamp", "cart"
_COLOURS = "green", "red", "blue", "yellow", "black", "white", "brown"

Run = Callable[["Task", frozenset[int]], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    question: str
    answer: str
    other: str  # the colour that is not asked for
    thing: str

    @classmethod
    def drawn(cls, chance: random.Random) -> Task:
        people, colours, thing = chance.sample(_NAMES, 2), chance.sample(_COLOURS, 2), chance.choice(_THINGS)
        asked = chance.randrange(2)
        text = " ".join(f"{who}'s {thing} is {colour}." for who, colour in zip(people, colours, strict=True))
        question = f"{text} What colour is {people[asked]}'s {thing}?"
        return cls(question=question, answer=colours[asked], other=colours[1 - asked], thing=thing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--episodes", type=int, default=840)
    arguments = parser.parse_args()
    real_model = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "real_model.py"))["real_model"]
    with real_model() as address:

        @cache
        def run(task: Task, lessons: frozenset[int]) -> bool:
            said = _ask(address, task, [LESSONS[number] for number in sorted(lessons)]).lower()
            return task.answer in said and task.other not in said

        truth, errors, base = _truth(run, arguments.tasks)
        stream = _stream(run, arguments.episodes)
    tenth = arguments.tasks * (len(LESSONS) + 1) // 10
    found = {
        "success_with_four_lessons": base,
        "truth": {text: round(value, 3) for text, value in zip(LESSONS, truth.tolist(), strict=True)},
        "error_of_truth": round(float(errors.mean()), 3),
        "recovered": {
            str(count): _recovered(stream[: count * OFFERED], truth) for count in (tenth, arguments.episodes)
        },
    }
    _report.show("lift_real_model", arguments, {"habitus": found})


def _ask(address: str, task: Task, lessons: Sequence[str]) -> str:
    told = "\n".join(f"- {lesson}" for lesson in lessons)
    messages = [
        {"role": "system", "content": f"You answer questions.\n\nLessons:\n{told}"},
        {"role": "user", "content": task.question},
    ]
    body = json.dumps({"model": "small", "messages": messages, "max_tokens": 12, "temperature": 0}).encode()
    request = urllib.request.Request(f"{address}/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def _truth(run: Run, tasks: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], float]:
    """Of each lesson the mean difference that it makes, its standard error, and how often it goes well anyway."""
    chance = random.Random(1)
    differences, base = [], []
    for number in range(tasks):
        task, around = Task.drawn(chance), frozenset(chance.sample(range(len(LESSONS)), AROUND))
        base.append(run(task, around))
        differences.append(
            [run(task, around | {lesson}) - run(task, around - {lesson}) for lesson in range(len(LESSONS))]
        )
        _report.progress(f"truth: task {number + 1} of {tasks}")
    values = np.array(differences, dtype=np.float64)
    return values.mean(0), values.std(0) / np.sqrt(tasks), round(float(np.mean(base)), 3)


def _stream(run: Run, episodes: int) -> list[Observation]:
    chance = random.Random(2)
    seen: list[Observation] = []
    for episode in range(episodes):
        task, chosen = Task.drawn(chance), chance.sample(range(len(LESSONS)), OFFERED)
        offered = frozenset(lesson for lesson in chosen if chance.random() >= WITHHELD)
        success = float(run(task, offered))
        seen += [
            Observation(
                unit=str(episode),
                item=_item(lesson),
                is_offered=lesson in offered,
                propensity=1 - WITHHELD,
                is_used=lesson in offered,
                success=success,
                request_kind=task.thing,
                tokens=len(LESSONS[lesson]) // 4,
                age_days=(episodes - episode) / 50,
            )
            for lesson in chosen
        ]
        if not (episode + 1) % 50:
            _report.progress(f"stream: {episode + 1} of {episodes}")
    return seen


def _item(lesson: int) -> Item:
    return Item(kind=ItemKind.LESSON, name=LESSONS[lesson])


def _recovered(seen: Sequence[Observation], truth: np.ndarray[Any, Any]) -> dict[str, Any]:
    found: dict[Item, Finding] = {finding.item: finding for finding in findings(seen, withhold=WITHHELD).items}
    told = [found.get(_item(lesson)) for lesson in range(len(LESSONS))]
    effects = [finding.estimate.offering if finding else None for finding in told]
    values = np.array([effect.value if effect else 0.0 for effect in effects])
    clear = np.abs(truth) >= CLEAR
    covered = [effect and effect.low <= true <= effect.high for effect, true in zip(effects, truth, strict=True)]
    return {
        "spearman": round(correlation(ranks(truth), ranks(values)), 3),
        "clear_effects": int(clear.sum()),
        "signs_right": int((np.sign(values) == np.sign(truth))[clear].sum()),
        "intervals_that_hold_the_truth": sum(map(bool, covered)),
        "verdicts": {
            finding.item.name: finding.judgement.verdict.value
            for finding in found.values()
            if finding.judgement.verdict != "not known yet"
        },
        "estimates": {text: round(float(value), 3) for text, value in zip(LESSONS, values, strict=True)},
    }


if __name__ == "__main__":
    main()
