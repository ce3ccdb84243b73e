"""Candidates: edits of a skill's text by a model, shorter ones by rule, and what refuses one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, Field

from habitus.errors import Invalid
from habitus.learning.budget import PATIENCE_S, BudgetedModel, ask_within
from habitus.learning.dreaming import copied_from
from habitus.redact import Redactor
from habitus.skills import edits
from habitus.skills.edits import Edit, Operation
from habitus.skills.model import Skill
from habitus.tasks.model import Task
from habitus.text import tokens

MOST_EDITS = 4
MOST_LINES = 30  # that a candidate adds or takes away, together
_ROOM = 3_000  # tokens of an answer
_PATIENCE_S = 3 * PATIENCE_S


class DraftedEdit(BaseModel):
    """One edit of the skill's text."""

    operation: Operation = Field(description="find_replace, append, prepend or delete.")
    find: str = Field(default="", description="For find_replace: the exact text that stands in the skill.")
    content: str = Field(default="", description="The new text; for delete, the exact text that goes.")

    @property
    def edit(self) -> Edit:
        if self.operation is Operation.FIND_REPLACE:
            return Edit(operation=self.operation, find=self.find, replace=self.content)
        return Edit(operation=self.operation, content=self.content)


class DraftedCandidate(BaseModel):
    """A small change of the skill that is meant to mend what failed."""

    why: str = Field(description="What goes wrong today and how this mends it, in one sentence.")
    when_to_use: str = Field(
        default="", description="A better line on when the skill applies; empty where it is opened when it should be."
    )
    edits: list[DraftedEdit] = Field(default_factory=list, description=f"At most {MOST_EDITS} edits of its text.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """A practice task: what was asked, and what was done by who passed and who failed."""

    request: str
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    never_opened: bool = False


async def draft_candidate(
    model: BudgetedModel,
    skill: Skill,
    contrasts: Sequence[Contrast],
    tried: Sequence[str],
    *,
    is_to_shorten: bool,
    redactor: Redactor,
) -> tuple[Skill, str]:
    """A changed skill and what it is meant to mend; `tried` are candidates that were not accepted, in words."""
    record = redactor.redact(material(skill, contrasts, tried)).text
    found = await ask_within(
        model,
        DraftedCandidate,
        system=_prompt("shorten-skill" if is_to_shorten else "improve-skill"),
        record=record,
        room=_ROOM,
        patience_s=_PATIENCE_S,
    )
    return apply_draft(skill, found), " ".join(found.why.split())


def apply_draft(skill: Skill, draft: DraftedCandidate) -> Skill:
    """By the library's own edit operations, each on what the one before left."""
    if len(draft.edits) > MOST_EDITS:
        raise Invalid(f"It has {len(draft.edits)} edits.", mend=f"{MOST_EDITS} are the most.")
    body = skill.body
    for one in draft.edits:
        if one.operation is Operation.REPLACE:
            raise Invalid("It replaces the whole text.", mend="Edit a part of it.")
        body = edits.apply(body, one.edit)
    cue = " ".join(draft.when_to_use.split())
    return replace(skill, body=body, when_to_use=cue or skill.when_to_use)


def objection(old: Skill, new: Skill, hidden: Iterable[Task], *, known: str = "", is_given: bool = False) -> str:
    """Why a candidate is not tried at all; nothing where it may be. A person's may be as long as they like. `known` is
    what whoever drafts may read: such words are no quotation."""
    if (old.body, old.when_to_use, old.description) == (new.body, new.when_to_use, new.description):
        return "it changes nothing"
    changed = changed_lines(old, new)
    if not is_given and len(changed) > MOST_LINES:
        return f"it changes {len(changed)} lines, and {MOST_LINES} are the most"
    added = "\n".join(line[2:] for line in changed if line.startswith("+ "))
    for task in hidden:
        if quoted := copied_from(added, task, known):
            return f"it quotes a task of the gate or the exam: '{quoted}'"
    return ""


def changed_lines(old: Skill, new: Skill) -> list[str]:
    """Lines that went, as `- …`, and that came, as `+ …`."""
    before, after = (f"{one.when_to_use}\n{one.description}\n{one.body}".splitlines() for one in (old, new))
    return [line for line in difflib.ndiff(before, after) if line.startswith(("+ ", "- "))]


def material(skill: Skill, contrasts: Sequence[Contrast], tried: Sequence[str]) -> str:
    """The material for whoever drafts."""
    parts = [
        f"# The skill '{skill.name}'\n\nWhen to use: {skill.when_to_use}\n\nIts text:\n\n{skill.body}",
        *(_contrast(number, one) for number, one in enumerate(contrasts, 1)),
    ]
    if tried:
        parts.append("# Tried before, and not shown to help\n\n" + "\n\n".join(tried))
    return "\n\n".join(parts)


def _contrast(number: int, one: Contrast) -> str:
    lines = [f"# Task {number}\n\nAsked: {one.request}"]
    if one.never_opened:
        lines.append("The skill was not opened: nothing in its text can have helped.")
    lines += [f"Passed:\n{record}" for record in one.passed]
    lines += [f"Failed:\n{record}" for record in one.failed]
    return "\n\n".join(lines)


@cache
def _prompt(name: str) -> str:
    return files("habitus.learning").joinpath("prompts", f"{name}.md").read_text("utf-8").strip()


_LEAST_SAVED = 0.02  # of a text's tokens; less is not worth a gate
_FEWEST_WORDS = 6  # of a sentence that is known again
_BLOCK = re.compile(r"[ \t]*(```|~~~)[^\n]*\n(?:.*\n)*?[ \t]*\1[^\n]*(?:\n|\Z)|[^\n]*(?:\n|\Z)")
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_MARKER = re.compile(r"\s*(?:(?:[-*+]|\d+[.)])\s+)?")  # of an item in a list
_LEFT_ALONE = re.compile(r"#|\||>|    |\t|\s*$|[ \t]*(?:```|~~~)")  # headings, tables, quotations, code, empty lines
_NEEDLESS = re.compile(
    r"(?i)#+\s*(?:when to use(?: (?:this|the) \w+)?|summary|conclusion|credits|acknowledge?ments|licen[cs]e)\s*$"
)
_EXAMPLES = re.compile(r"(?i)#+.*\bexamples\b")
_POLITE = re.compile(r"(?i)(?:thank you|thanks|good luck|happy \w+ing|have fun|i hope this helps)\b[^.!?]*[.!]?")
_WORDY = (
    (re.compile(r"(?i)\b(?:(?:please |it is important to )?note|(?:please )?(?:keep in mind|remember)) that\s+"), ""),
    (re.compile(r"(?i)\bin order to\b"), "to"),
    (re.compile(r"(?i)\bdue to the fact that\b"), "because"),
    (re.compile(r"(?i)\bplease\s+(?=\w)"), ""),
)


def shorten(skill: Skill) -> DraftedCandidate | None:
    """The few edits that take most away; nothing where there is little to take."""
    blocks = [found[0] for found in _BLOCK.finditer(skill.body) if found[0]]
    kept = _without_repetition(blocks, cue=f"{skill.description} {skill.when_to_use}")
    kept = _tidy_blocks(_without_more_examples(_without_needless_sections(kept)))

    def tokens_saved(hunk: range) -> int:
        return tokens(_text(blocks, hunk)) - tokens(_text(kept, hunk))

    chosen: list[range] = []
    room = MOST_LINES
    for hunk in sorted(_hunks(blocks, kept), key=tokens_saved, reverse=True):
        changed = len(f"{_text(blocks, hunk)}{_text(kept, hunk)}".splitlines())
        if changed <= room and len(chosen) < MOST_EDITS:
            chosen.append(hunk)
            room -= changed
    total = sum(map(tokens_saved, chosen))
    if total <= _LEAST_SAVED * tokens(skill.body):
        return None
    edits = [_edit(blocks, kept, hunk) for hunk in sorted(chosen, key=lambda one: -one.start)]
    return DraftedCandidate(why=f"Some {total} tokens say things twice, or what no step needs.", edits=edits)


def _text(blocks: Sequence[str], hunk: range) -> str:
    return "".join(blocks[hunk.start : hunk.stop])


def _level(block: str) -> int:
    """Of a heading; 0 of all else."""
    return len(block) - len(block.lstrip("#"))


def _without_repetition(blocks: Sequence[str], *, cue: str) -> list[str]:
    said, known = set[str](), set(_WORD.findall(cue.casefold()))
    found = []
    for block in blocks:
        is_code = block.lstrip().startswith(("```", "~~~"))
        if is_code and block in said:
            found.append("")
        else:
            found.append(block if _LEFT_ALONE.match(block) else _short_line(block, said, known))
        said.add(block)
    return found


def _short_line(line: str, said: set[str], known: set[str]) -> str:
    """A line without what was said before: not in the text, and outside lists not in the cue either."""
    marker = _MARKER.match(line)
    assert marker is not None, "it matches nothing, too"
    sentences, kept = _SENTENCE.split(line[marker.end() :].strip()), []
    for sentence in sentences:
        words = _WORD.findall(sentence.casefold())
        is_long = len(words) >= _FEWEST_WORDS and not _is_announcing(sentence)
        same = " ".join(words)
        is_cue = not marker[0].strip() and known.issuperset(words)
        if not (_POLITE.fullmatch(sentence) or (is_long and (is_cue or same in said))):
            kept.append(_plain(sentence))
        said.add(same)
    if kept == sentences:
        return line
    return f"{marker[0]}{' '.join(kept)}{line[len(line.rstrip()) :]}" if kept else ""


def _is_announcing(line: str) -> bool:
    return line.rstrip("* \n").endswith(":")


def _plain(sentence: str) -> str:
    shorter = sentence
    for pattern, instead in _WORDY:
        shorter = pattern.sub(instead, shorter)
    return shorter if shorter == sentence else shorter[:1].upper() + shorter[1:]


def _without_needless_sections(blocks: Sequence[str]) -> list[str]:
    """Whoever reads the text has opened the skill already, and does what its steps say."""
    found, depth = [], 0
    for block in blocks:
        level = _level(block)
        if level and (not depth or level <= depth):
            depth = level if _NEEDLESS.match(block) else 0
        found.append("" if depth else block)
    return found


def _without_more_examples(blocks: Sequence[str]) -> list[str]:
    """The first piece of code in a section of examples stays, those after it go with the line that announces them."""
    found, is_example, has_one = [], False, False
    for block in blocks:
        if _level(block):
            is_example, has_one = _EXAMPLES.match(block) is not None, False
        found.append(block)
        if is_example and block.lstrip().startswith(("```", "~~~")):
            if has_one:
                found[-1] = ""
                above = next((n for n in range(len(found) - 2, -1, -1) if found[n].strip()), 0)
                found[above] = "" if _is_announcing(found[above]) else found[above]
            has_one = True
    return found


def _tidy_blocks(kept: list[str]) -> list[str]:
    """A heading goes with all that stood below it, and an empty line with what it set apart."""
    found, is_left, went, below = list(kept), False, False, 0
    for place, block in reversed(list(enumerate(kept))):
        level = _level(block)
        if not block or (level and went and not is_left and below <= level):
            found[place], went = "", True
        elif level:
            is_left, went, below = False, False, level
        else:
            is_left = is_left or bool(block.strip())
    last, went = "", False
    for place, block in enumerate(found):
        if not block or (went and not block.strip() and not last.strip()):
            found[place], went = "", True
        else:
            last, went = block, False
    return found


def _hunks(blocks: Sequence[str], kept: Sequence[str]) -> Iterator[range]:
    """Runs of blocks that change."""
    start = 0
    for place in range(len(blocks) + 1):
        if place == len(blocks) or blocks[place] == kept[place]:
            if start < place:
                yield range(start, place)
            start = place + 1


def _edit(blocks: Sequence[str], kept: Sequence[str], hunk: range) -> DraftedEdit:
    """With as much above it as tells its place from one that reads the same."""
    body, start = "".join(blocks), hunk.start
    while body.find(_text(blocks, range(start, hunk.stop))) < len(_text(blocks, range(start))):
        start -= 1
    above = range(start, hunk.start)
    return DraftedEdit(
        operation=Operation.FIND_REPLACE,
        find=_text(blocks, above) + _text(blocks, hunk),
        content=_text(blocks, above) + _text(kept, hunk),
    )
