"""Shorter candidates by rule: without repetition, needless sections, further examples and wordy phrases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from habitus.evidence.model import has_left_trace_of_steps
from habitus.improve.candidates import MOST_LINES
from habitus.skills.model import Skill
from habitus.text import estimate_tokens

_LEAST_SAVED = 0.02  # of a text's tokens; less is not worth a gate
_FEWEST_RUNS = 5  # that were accepted, before a sentence without a trace is thought needless
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


def drop_redundant_skill_text(skill: Skill) -> Skill | None:
    """Return the skill without the blocks whose loss saves most; None where there is little to take away."""
    blocks = [found[0] for found in _BLOCK.finditer(skill.body) if found[0]]
    kept = _drop_repetition(blocks, cue=f"{skill.description} {skill.when_to_use}")
    kept = _drop_orphaned_headings(_drop_further_examples(_drop_needless_sections(kept)))

    def tokens_saved(hunk: range) -> int:
        return estimate_tokens(_join_blocks_of_hunk(blocks, hunk)) - estimate_tokens(_join_blocks_of_hunk(kept, hunk))

    shorter, room = list(blocks), MOST_LINES
    for hunk in sorted(_find_changed_hunks(blocks, kept), key=tokens_saved, reverse=True):
        changed = len(f"{_join_blocks_of_hunk(blocks, hunk)}{_join_blocks_of_hunk(kept, hunk)}".splitlines())
        if changed <= room:
            shorter[hunk.start : hunk.stop] = kept[hunk.start : hunk.stop]
            room -= changed
    body = "".join(shorter)
    is_worth_a_gate = estimate_tokens(body) < (1 - _LEAST_SAVED) * estimate_tokens(skill.body)
    return replace(skill, body=body) if is_worth_a_gate else None


def drop_untraced_sentences(skill: Skill, runs: Sequence[str]) -> Skill | None:
    """Return the skill without the sentences of which no accepted run has a trace; None where there are too few runs,
    or little to take away.
    """
    if len(runs) < _FEWEST_RUNS:
        return None
    blocks, room, kept = [found[0] for found in _BLOCK.finditer(skill.body) if found[0]], MOST_LINES, list[str]()
    for block in blocks:
        marker = _MARKER.match(block)
        assert marker is not None, "it matches nothing, too"
        sentences = [] if _LEFT_ALONE.match(block) else _SENTENCE.split(block[marker.end() :].strip())
        used = [
            sentence
            for sentence in sentences
            if any(has_left_trace_of_steps(sentence, (), request="", done=done, if_unclear=True) for done in runs)
        ]
        is_shorter = used != sentences and room > 0
        shorter = f"{marker[0]}{' '.join(used)}{block[len(block.rstrip()) :]}" if used else ""
        kept.append(shorter if is_shorter else block)
        room -= is_shorter
    body = "".join(_drop_orphaned_headings(kept))
    is_worth_a_gate = estimate_tokens(body) < (1 - _LEAST_SAVED) * estimate_tokens(skill.body)
    return replace(skill, body=body) if is_worth_a_gate else None


def _join_blocks_of_hunk(blocks: Sequence[str], hunk: range) -> str:
    return "".join(blocks[hunk.start : hunk.stop])


def _get_heading_level(block: str) -> int:
    """Of a heading; 0 of all else."""
    return len(block) - len(block.lstrip("#"))


def _drop_repetition(blocks: Sequence[str], *, cue: str) -> list[str]:
    said, known = set[str](), set(_WORD.findall(cue.casefold()))
    found = []
    for block in blocks:
        is_code = block.lstrip().startswith(("```", "~~~"))
        if is_code and block in said:
            found.append("")
        else:
            found.append(block if _LEFT_ALONE.match(block) else _drop_needless_words_in_line(block, said, known))
        said.add(block)
    return found


def _drop_needless_words_in_line(line: str, said: set[str], known: set[str]) -> str:
    """A line without what was said before: not in the text, and outside lists not in the cue either."""
    marker = _MARKER.match(line)
    assert marker is not None, "it matches nothing, too"
    sentences, kept = _SENTENCE.split(line[marker.end() :].strip()), []
    for sentence in sentences:
        words = _WORD.findall(sentence.casefold())
        is_long = len(words) >= _FEWEST_WORDS and not _is_announcing_line(sentence)
        same = " ".join(words)
        is_cue = not marker[0].strip() and known.issuperset(words)
        if not (_POLITE.fullmatch(sentence) or (is_long and (is_cue or same in said))):
            kept.append(_replace_wordy_phrases(sentence))
        said.add(same)
    if kept == sentences:
        return line
    return f"{marker[0]}{' '.join(kept)}{line[len(line.rstrip()) :]}" if kept else ""


def _is_announcing_line(line: str) -> bool:
    return line.rstrip("* \n").endswith(":")


def _replace_wordy_phrases(sentence: str) -> str:
    shorter = sentence
    for pattern, instead in _WORDY:
        shorter = pattern.sub(instead, shorter)
    return shorter if shorter == sentence else shorter[:1].upper() + shorter[1:]


def _drop_needless_sections(blocks: Sequence[str]) -> list[str]:
    """Whoever reads the text has opened the skill already, and does what its steps say."""
    found, depth = [], 0
    for block in blocks:
        level = _get_heading_level(block)
        if level and (not depth or level <= depth):
            depth = level if _NEEDLESS.match(block) else 0
        found.append("" if depth else block)
    return found


def _drop_further_examples(blocks: Sequence[str]) -> list[str]:
    """The first piece of code in a section of examples stays, those after it go with the line that announces them."""
    found, is_example, has_one = [], False, False
    for block in blocks:
        if _get_heading_level(block):
            is_example, has_one = _EXAMPLES.match(block) is not None, False
        found.append(block)
        if is_example and block.lstrip().startswith(("```", "~~~")):
            if has_one:
                found[-1] = ""
                above = next((n for n in range(len(found) - 2, -1, -1) if found[n].strip()), 0)
                found[above] = "" if _is_announcing_line(found[above]) else found[above]
            has_one = True
    return found


def _drop_orphaned_headings(kept: list[str]) -> list[str]:
    """A heading goes with all that stood below it, and an empty line with what it set apart."""
    found, is_left, went, below = list(kept), False, False, 0
    for place, block in reversed(list(enumerate(kept))):
        level = _get_heading_level(block)
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


def _find_changed_hunks(blocks: Sequence[str], kept: Sequence[str]) -> Iterator[range]:
    """Runs of blocks that change."""
    start = 0
    for place in range(len(blocks) + 1):
        if place == len(blocks) or blocks[place] == kept[place]:
            if start < place:
                yield range(start, place)
            start = place + 1
