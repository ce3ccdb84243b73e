"""Kinds of failure written by hand (`data/failures_*.txt`), as sessions, and how many of their remedies are found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from habitus.app import read_settings
from habitus.app.learning.learning import find_known_remedy_for_failure
from habitus.app.wiring import open_home
from habitus.events import build_tool_call_event, build_tool_result_event
from habitus.learning.remedies import wording
from habitus.learning.remedies.findings import collect_remedy_findings
from habitus.learning.remedies.session_facts import FailuresAndCorrectionsCollector, SessionFailuresAndCorrections
from habitus.learning.transcripts.model import TranscriptTurn

DATA = Path(__file__).parent / "data"
FAMILIES = ("seen", "unseen")  # when the rules were written
LEARNED_FROM, HELPED = (0, 1), 2  # sessions of a kind
_ALTERNATIVES = re.compile(r"\{([^{}|]*)\|([^{}|]*)\|([^{}|]*)\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    tool: str
    command: str
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    name: str
    says: tuple[str, ...]  # what its lesson has to say; nothing where there is none to find
    sessions: tuple[tuple[Step, ...], ...]

    def is_right(self, lesson: str) -> bool:
        return bool(self.says) and all(part in lesson for part in self.says)


def read_kinds(family: str) -> list[Kind]:
    blocks = (DATA / f"failures_{family}.txt").read_text(encoding="utf-8").split("\n# ")[1:]
    return [_kind(block) for block in blocks]


def _kind(block: str) -> Kind:
    name, _, rest = block.partition("\n")
    says = tuple(line[2:] for line in rest.splitlines() if line.startswith("= "))
    sessions = tuple(tuple(_steps(_ALTERNATIVES.sub(rf"\{at}", rest).splitlines())) for at in (1, 2, 3))
    return Kind(name=name, says=tuple(" ".join(says).split(" ;; ")) if says else (), sessions=sessions)


def _steps(lines: Iterable[str]) -> list[Step]:
    made: list[Step] = []
    for line in lines:
        match line[:1]:
            case "$":
                made.append(Step(tool="Bash", command=" ".join(line[2:].split(" ")).strip()))
            case "@":
                tool, _, file = line[2:].partition(" ")
                made.append(Step(tool=tool, command=file))
            case "!":
                last = made[-1]
                made[-1] = Step(tool=last.tool, command=last.command, error=f"{last.error}\n{line[2:]}".strip("\n"))
    return made


def facts(kind: Kind, number: int, project: str) -> SessionFailuresAndCorrections:
    reader = FailuresAndCorrectionsCollector(session=f"{kind.name} {number}", project=project, file=f"{number}.jsonl")
    events = []
    for at, step in enumerate(kind.sessions[number]):
        when = f"2026-05-{number + 1:02}T10:{at:02}:00Z"
        events.append(build_tool_call_event(step.tool, arguments(step), call_id=str(at), at=when, cwd=project))
        events.append(
            build_tool_result_event(step.tool, success=not step.error, error=step.error, call_id=str(at), at=when)
        )
    reader.add_turn(TranscriptTurn(id="1", events=tuple(events)))
    return reader.build_facts()


def arguments(step: Step) -> dict[str, str]:
    return {"command": step.command} if step.tool == "Bash" else {"file_path": step.command}


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    kinds: int
    found: int
    right: int
    wrong: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def precision(self) -> float:
        return round(self.right / max(1, self.right + len(self.wrong)), 3)

    @property
    def recall(self) -> float:
        return round(self.found / max(1, self.kinds), 3)


def score_remedies(kinds: Sequence[Kind]) -> Found:
    """Each kind in a project of its own, learned from its first two sessions."""
    right, wrong, missed, found = 0, [], [], 0
    for kind in kinds:
        lessons = collect_remedy_findings(facts(kind, number, f"/srv/{kind.name}") for number in LEARNED_FROM).lessons
        texts = [wording.describe_remedy_lesson(held) for held in lessons]
        good = [text for text in texts if kind.is_right(text)]
        right += len(good)
        wrong += [f"{kind.name}: {text}" for text in texts if text not in good]
        found += bool(good)
        missed += [kind.name] if kind.says and not good else []
    planted = sum(bool(kind.says) for kind in kinds)
    return Found(kinds=planted, found=found, right=right, wrong=tuple(wrong), missed=tuple(missed))


def score_hints(kinds: Sequence[Kind], place: Path) -> Found:
    """All kinds learned in one project; in the last session of each, what is said beside its failure."""
    right, wrong, missed = 0, [], []
    settings = read_settings(place / "home", {"HOME": str(place), "USER": "ann"})
    with closing(open_home(settings.model_copy(update={"cwd": place}))) as home:
        for held in collect_remedy_findings(
            facts(kind, number, str(place)) for kind in kinds for number in LEARNED_FROM
        ).lessons:
            home.memory.encode(wording.draft_remedy_or_correction_lesson(held, now=home.clock(), user=settings.user))
        for kind in kinds:
            failed = next(step for step in kind.sessions[HELPED] if step.error)
            hint = find_known_remedy_for_failure(home, failed.tool, arguments(failed), failed.error, str(place))
            right += kind.is_right(hint)
            wrong += [f"{kind.name}: {hint}"] if hint and not kind.is_right(hint) else []
            missed += [kind.name] if kind.says and not kind.is_right(hint) else []
    planted = sum(bool(kind.says) for kind in kinds)
    return Found(kinds=planted, found=right, right=right, wrong=tuple(wrong), missed=tuple(missed))
