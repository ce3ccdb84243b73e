"""Exam cards: what a skill's exam found, as its publisher's claim. A card states numbers, never the tasks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from habitus.evidence.model import EffectEstimate
from habitus.files import Tree, drop_eval_files
from habitus.improve.exam import compute_pass_rate_difference_interval
from habitus.improve.report import VersionComparison
from habitus.tasks.model import get_task_family
from habitus.tasks.rollouts import Rollout
from habitus.text import clean_to_one_line

GATE_VERSION = 1  # raised with every change of what the gate accepts
_LONGEST = 80  # characters of a name


@dataclass(frozen=True, kw_only=True, slots=True)
class ExamCard:
    """What the exam of one text of a skill found. `digest` is that of its files."""

    skill: str
    digest: str
    families: int  # of the exam's tasks: so many observations
    solver: str
    model: str
    new_against_old: EffectEstimate  # with its 95 % interval
    with_against_without: EffectEstimate | None = None  # by a trial on the exam's tasks
    gate: int = GATE_VERSION
    date: str = ""

    @property
    def sentence(self) -> str:
        """What the publisher claims, in words."""
        by = " and ".join(part for part in (self.solver, self.model) if part) or "an unnamed solver"
        without = self.with_against_without
        against = f"with it against without: {_format_estimate(without) if without is not None else 'not measured'}"
        families = f"{self.families} task {'family' if self.families == 1 else 'families'}"
        return (
            f"its publisher claims (exam of {self.date or 'an unknown date'}, {families}, {by}): "
            f"new against old {_format_estimate(self.new_against_old)}; {against}"
        )

    def to_json_values(self) -> dict[str, Any]:
        """Return the card as JSON values."""
        return asdict(self)


def build_exam_card(
    skill: str,
    tree: Tree,
    exam: VersionComparison,
    trials: Sequence[Rollout],
    *,
    solver: str,
    model: str,
    date: str,
) -> ExamCard:
    """Build the card; of `trials`, of this text by the same solver and model, those on the exam's tasks count."""
    interval = exam.interval
    tasks = {row.task for row in exam.rows}
    return ExamCard(
        skill=skill,
        digest=hash_skill_files(tree),
        families=exam.families,
        solver=solver,
        model=model,
        new_against_old=EffectEstimate(value=exam.difference, low=interval.low, high=interval.high),
        with_against_without=_estimate_effect_of_skill_in_trials(
            [one for one in trials if one.task in tasks and one.is_counted]
        ),
        date=date,
    )


def _estimate_effect_of_skill_in_trials(made: Sequence[Rollout]) -> EffectEstimate | None:
    """Return the difference between with and without over the families that have both; None if there are none."""
    gains = []
    for family in sorted({get_task_family(one.task) for one in made}):
        mine = [one for one in made if get_task_family(one.task) == family]
        on, off = ([one.is_ok for one in mine if one.is_new is is_new] for is_new in (True, False))
        if on and off:
            gains.append(fmean(on) - fmean(off))
    if not gains:
        return None
    interval = compute_pass_rate_difference_interval(gains)
    return EffectEstimate(value=fmean(gains), low=interval.low, high=interval.high)


def hash_skill_files(tree: Tree) -> str:
    """Return the digest of a skill's files by content; archives don't keep the other properties."""
    lines = (f"{path}\0{file.sha256}\n" for path, file in sorted(drop_eval_files(tree).items()))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def serialize_exam_card(card: ExamCard) -> bytes:
    return f"{json.dumps(card.to_json_values(), indent=2, ensure_ascii=False)}\n".encode()


def parse_exam_card(content: bytes) -> ExamCard | None:
    """Return the card of a stranger's file; None if it is none. Its words are cut to a line."""
    try:
        row = json.loads(content)
        without = row.get("with_against_without")
        words = {
            name: clean_to_one_line(str(row.get(name, "")))[:_LONGEST] for name in ("skill", "solver", "model", "date")
        }
        return ExamCard(
            **words,
            digest=str(row["digest"]),
            families=int(row["families"]),
            new_against_old=_parse_estimate(row["new_against_old"]),
            with_against_without=_parse_estimate(without) if without is not None else None,
            gate=int(row["gate"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def _parse_estimate(row: Any) -> EffectEstimate:
    value, low, high = (min(max(float(row[name]), -1.0), 1.0) for name in ("value", "low", "high"))
    return EffectEstimate(value=value, low=low, high=high)


def _format_estimate(estimate: EffectEstimate) -> str:
    value, low, high = (round(100 * part) for part in (estimate.value, estimate.low, estimate.high))
    return f"{value:+d} points ({low:+d} to {high:+d})"
