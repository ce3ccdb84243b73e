"""Read the skills of another agent in place and remark on them, each remark with a command that fixes it.

The listing of skills is computed as Claude Code does it: which descriptions fit, and which are cut.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path

from habitus import sql
from habitus.files import Tree
from habitus.hosts.known_agents import KnownAgent
from habitus.learning.remedies.recurring_failures import FindingOccurrence
from habitus.search.index import SearchIndex
from habitus.search.model import IndexHit, SearchResults
from habitus.skills import names, trees
from habitus.skills.choosing.skill_finder import DUPLICATE_THRESHOLD, make_search_document
from habitus.skills.model import Severity, Skill
from habitus.skills.stores.files import DirectoryBackend

# Matching requests from which a skill that never fired is worth a remark.
MIN_MATCHING_REQUESTS = 3
# The score of a certain match, and its least lead over the next one, as measured by benchmarks/never_fired.py.
MIN_MATCH_SCORE, MIN_SCORE_LEAD = 0.8, 0.5


class RemarkTopic(StrEnum):
    """Topics of remarks, in the order in which they are shown."""

    # A rule that the user stated when stopping something.
    RULE = "rule"
    # A lesson that would have helped.
    LESSON = "lesson"
    # A recurring failure without a known remedy.
    FAILING = "failing"
    BROKEN = "broken"
    # Two skills with the same text, or nearly.
    COPY = "copy"
    LISTING = "listing"
    RISKY = "risky"
    CONFUSABLE = "confusable"
    SHADOWED = "shadowed"
    NEVER_FIRED = "never fired"
    UNUSED = "unused"


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentRemark:
    """A remark on an agent's setup, with the command that fixes it."""

    topic: RemarkTopic
    what: str
    hint: str
    # Whether it is shown without being asked for: a person would act on it.
    is_urgent: bool = False
    # The finding without its evidence, the same in every agent that has it; empty if it is about a skill.
    about: str = ""
    # What its numbers count: failed calls, or statements of a rule.
    rows: tuple[FindingOccurrence, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSkill:
    """A skill folder of another agent; `skill` is None if it can't be read."""

    name: str
    path: Path
    tree: Tree
    skill: Skill | None
    problems: tuple[str, ...]

    @property
    def when_to_use_text(self) -> str:
        """The description and when-to-use text, which decide whether the skill is chosen."""
        return f"{self.skill.description} {self.skill.when_to_use}".strip() if self.skill else ""


def quote_path_for_shell(path: Path) -> str:
    """Quote a path for a shell."""
    return shlex.quote(str(path))


def make_skill_edit_command(skill: AgentSkill) -> str:
    """Return the command that opens a skill in the user's editor."""
    return f"${{EDITOR:-vi}} {quote_path_for_shell(skill.path / (trees.find_main_file(skill.tree) or 'SKILL.md'))}"


def read_agent_skills(folder: Path) -> Iterator[AgentSkill]:
    """Yield the skills in a folder of another agent, with the problems that keep one from loading."""
    shelf = DirectoryBackend(folder, folder, can_write=False)
    for name in shelf.list_folder_change_stamps({}):
        found = shelf.read_folder(name)
        if found is None:
            continue
        parsed = trees.parse_skill_tree(name, found.tree)
        problems = (found.problem,) if found.problem else parsed.diagnostics
        yield AgentSkill(
            name=names.canonicalize_name(name),
            path=folder / name,
            tree=found.tree,
            skill=None if found.problem else parsed.skill,
            problems=tuple(f"{each.message} {each.hint}" for each in problems if each.severity is Severity.ERROR),
        )


def remark_on_unreadable_and_hidden_skills(skills: Sequence[AgentSkill]) -> Iterator[AgentRemark]:
    """Remark on unreadable skills, and on skills hidden by another of the same name."""
    first: dict[str, Path] = {}
    for each in skills:
        for problem in each.problems:
            yield AgentRemark(
                topic=RemarkTopic.BROKEN,
                what=f"The head of '{each.name}' can't be read: {problem}",
                hint=make_skill_edit_command(each),
                is_urgent=True,
            )
        if (winner := first.setdefault(each.name, each.path)) != each.path:
            yield AgentRemark(
                topic=RemarkTopic.SHADOWED,
                what=f"'{each.name}' in {each.path.parent} is hidden by the one in {winner.parent}.",
                hint=f"diff -r {quote_path_for_shell(winner)} {quote_path_for_shell(each.path)}",
            )


def remark_on_missing_descriptions(skills: Sequence[AgentSkill], agent: KnownAgent) -> Iterator[AgentRemark]:
    """Remark on skills without a description, in whose place Claude Code alone takes the first paragraph."""
    for each in skills:
        if agent.name != "claude-code" and each.skill and "description" not in each.skill.stated:
            yield AgentRemark(
                topic=RemarkTopic.BROKEN,
                what=f"'{each.name}' has no description, by which {agent.title} chooses a skill.",
                hint=make_skill_edit_command(each),
                is_urgent=True,
            )


def remark_on_risky_skills(skills: Sequence[AgentSkill], scan: Callable[[Tree], list[str]]) -> Iterator[AgentRemark]:
    """Remark on risky skills, one line each, those with the most kinds of findings first."""
    found = [(each, risks) for each in skills if (risks := scan(each.tree))]
    for each, risks in sorted(found, key=lambda one: -len(one[1])):
        more = f" (and {len(risks) - 1} more)" if len(risks) > 1 else ""
        yield AgentRemark(
            topic=RemarkTopic.RISKY,
            what=f"'{each.name}': {risks[0]}{more}.",
            hint=f"habitus skills scan {quote_path_for_shell(each.path)}",
        )


def make_skill_disable_command(skill: AgentSkill) -> str:
    """Return the command that moves a skill out of the agent's sight without deleting it."""
    off = skill.path.parent.with_name("skills-off")
    return f"mkdir -p {quote_path_for_shell(off)} && mv {quote_path_for_shell(skill.path)} {quote_path_for_shell(off)}/"


# The share of words that two skills must have in common to be copies.
_NEARLY, _WITH_SAME_BODY = 0.9, 0.7
# Shorter skills share words by chance.
_MIN_WORDS = 30
# Two skills with nearly the same words, and whether their text is the same.
SkillCopyPair = tuple[AgentSkill, AgentSkill, bool]


def find_skill_copies(skills: Sequence[AgentSkill]) -> Iterator[SkillCopyPair]:
    """Yield pairs of skills with the same or nearly the same text."""
    words = {
        each.path: Counter(f"{each.when_to_use_text} {each.skill.body}".lower().split())
        for each in skills
        if each.skill
    }
    sizes = {path: found.total() for path, found in words.items()}
    for one, two in itertools.combinations([each for each in skills if each.skill], 2):
        fewer, more = sorted((sizes[one.path], sizes[two.path]))
        # Texts of very different length can't be copies; counting their words would be the slow part.
        if fewer < _WITH_SAME_BODY * more:
            continue
        shared = (words[one.path] & words[two.path]).total()
        all_of = fewer + more - shared
        has_same_body = bool(one.skill and two.skill and one.skill.body.strip() == two.skill.body.strip() != "")
        is_equal = has_same_body and one.when_to_use_text == two.when_to_use_text
        enough = _WITH_SAME_BODY if has_same_body else _NEARLY
        if is_equal or (all_of >= _MIN_WORDS and shared >= enough * all_of):
            yield one, two, has_same_body


def remark_on_copied_skills(found: Iterable[SkillCopyPair]) -> Iterator[AgentRemark]:
    """Remark on pairs of skills with the same text."""
    for one, two, is_same in found:
        how = "have the same text" if is_same else "have nearly the same text"
        yield AgentRemark(
            topic=RemarkTopic.COPY,
            what=f"'{one.name}' and '{two.name}' {how}.",
            hint=make_skill_disable_command(two),
            is_urgent=True,
        )


def build_skill_search(skills: Sequence[AgentSkill]) -> Callable[[str], SearchResults]:
    """Return a search function over the skills, on an index in memory."""
    index = SearchIndex.open(sql.create_in_memory_engine(), "agent")
    index.put_documents(make_search_document(each.skill, each.skill.body) for each in skills if each.skill)
    return lambda request: index.search(request, k=4, refresh=False)  # no other process writes to this index


def remark_on_confusable_skills(
    skills: Sequence[AgentSkill], search: Callable[[str], SearchResults], reported: Iterable[SkillCopyPair]
) -> Iterator[AgentRemark]:
    """Remark on pairs where a skill's own words find the other one first, or nearly as well.

    `reported` pairs are skipped.
    """
    by_name = {each.skill.name: each for each in skills if each.skill}
    spread = count_texts_per_word(each.when_to_use_text for each in skills)
    seen = {frozenset((one.name, two.name)) for one, two, _ in reported}
    for name, each in by_name.items():
        hits = search(each.when_to_use_text).hits
        before = itertools.takewhile(partial(_is_hit_of_other_skill, name), hits)
        close = [hit for hit in hits if hit.id != name and hit.score >= DUPLICATE_THRESHOLD]
        for rival in dict.fromkeys(hit.id for hit in (*before, *close)):
            pair = frozenset((name, rival))
            if pair in seen or rival not in by_name:
                continue
            seen.add(pair)
            other = by_name[rival]
            apart = " ".join(
                f"Say {' or '.join(map(repr, words))} in '{one.name}'."
                for one, two in ((each, other), (other, each))
                if (words := find_distinguishing_words(one.when_to_use_text, two.when_to_use_text, spread))
            )
            yield AgentRemark(
                topic=RemarkTopic.CONFUSABLE,
                what=f"'{each.name}' and '{other.name}' are easily confused. {apart}".strip(),
                hint=f"{make_skill_edit_command(each)} {quote_path_for_shell(other.path / 'SKILL.md')}",
            )


def _is_hit_of_other_skill(name: str, hit: IndexHit) -> bool:
    return hit.id != name


def remark_on_unused_skills_matching_requests(
    skills: Sequence[AgentSkill], uses: Counter[str], requests: Sequence[str], search: Callable[[str], SearchResults]
) -> Iterator[AgentRemark]:
    """Remark on unused skills that clearly match several requests for which no skill was used."""
    by_name = {each.skill.name: each for each in skills if each.skill and not uses[each.name]}
    fitted: dict[str, list[str]] = {}
    for words in requests if by_name else ():
        name = find_unambiguous_skill_match(search(words))
        if name in by_name:
            fitted.setdefault(name, []).append(words)
    for name, asked in fitted.items():
        if len(asked) >= MIN_MATCHING_REQUESTS:
            example = " ".join(asked[-1].split())
            yield AgentRemark(
                topic=RemarkTopic.NEVER_FIRED,
                what=f"'{name}' would have fitted {len(asked)} requests and never fired, such as "
                f"“{example if len(example) <= 80 else example[:79] + '…'}”. Use their words in its description.",
                hint=make_skill_edit_command(by_name[name]),
            )


def find_unambiguous_skill_match(
    results: SearchResults, clear: float = MIN_MATCH_SCORE, ahead: float = MIN_SCORE_LEAD
) -> str:
    """Return the name of the skill that matches with no other near it; empty if in doubt."""
    scores = [hit.score for hit in results.hits] + [0.0, 0.0]
    is_clear = results.fits and scores[0] >= clear and scores[0] - scores[1] >= ahead
    return results.hits[0].id if is_clear else ""


_WORD_PATTERN = re.compile(r"[a-z][a-z0-9-]{3,}")
_COMMON_WORDS = frozenset(
    word
    for line in (
        "this that with from when what which will your have been into only also then than them they their there",
        "skill skills uses used using user users asks asked file files make makes create creates work works task tasks",
        "about after before every each other some such more most very should would could must help helps need needs",
    )
    for word in line.split()
)


def extract_uncommon_words(text: str) -> frozenset[str]:
    """Return the distinct words of a text, without common ones."""
    return frozenset(_WORD_PATTERN.findall(text.lower())) - _COMMON_WORDS


def find_distinguishing_words(one: str, other: str, frequencies: Counter[str]) -> tuple[str, ...]:
    """Return up to three words of the first text that the second lacks, the rarest by `frequencies` first."""
    own = extract_uncommon_words(one) - extract_uncommon_words(other)
    return tuple(sorted(own, key=lambda word: (frequencies[word], -len(word), word))[:3])


def count_texts_per_word(texts: Iterable[str]) -> Counter[str]:
    """Count in how many texts each word occurs."""
    return Counter(word for text in texts for word in extract_uncommon_words(text))


# Transcripts searched for the last listing, newest first.
_MAX_TRANSCRIPTS = 20
# Tokens of a model's context window.
_SMALL, _LARGE = 200_000, 1_000_000
_CHARS_PER_TOKEN = 4
# The share of the window that the listing may take.
_DEFAULT_FRACTION = 0.01
# Assumed characters of a foreign description that was cut too.
_ASSUMED_DESCRIPTION_CHARS = 200
# Characters of the listing that skills of Claude Code 2.1.X itself take: first and last X, as measured with an empty
# home. Other versions are unknown.
_BUILT_IN_SIZES = (
    *((190, 197, 4_453), (203, 210, 5_802), (231, 240, 4_410), (260, 272, 5_449), (274, 285, 5_496)),
    *((286, 287, 5_746), (288, 289, 5_895), (290, 294, 5_887), (295, 303, 5_906), (304, 310, 5_904)),
    *((311, 319, 6_102), (321, 323, 6_191), (324, 325, 6_200)),
)
# Recent uses count more, as Claude Code counts them.
_HALF_LIFE_DAYS, _LEAST = 7, 0.1
_LISTING_ENTRY = re.compile(r"^- ([^\s:]+(?::[^\s:]+)*)(?:: (.*))?$")
_PROGRAM_VERSION = re.compile(r'"version": ?"(\d+\.\d+\.\d+)"')
_RAW_DESCRIPTION = re.compile(r"(?m)^description:[ \t]*(.*)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillListingBudget:
    """The characters that the listing has and needs, and the skills whose description is cut."""

    room: int
    wanted: int
    # Names, those used least last.
    lost: tuple[str, ...]
    # A prefix for the count: empty if a listing was seen, otherwise how certain it is.
    how_many: str
    # The share of the window with which nothing would be cut.
    fraction: float


def compute_listing_budget(
    skills: Sequence[AgentSkill],
    recorded: RecordedSkillListing,
    settings: Mapping[str, object],
    usage: Mapping[str, float],
) -> SkillListingBudget:
    """Compute which descriptions fit in the listing.

    Entries of the recorded listing that are not ours take part of the room; without one, the known size for that
    version is assumed.
    """
    last = recorded.listing
    own = {
        each.path.name: min(len(get_listed_description(each)), _get_description_limit(settings))
        for each in skills
        if is_listed_skill(each)
    }
    others = [
        len(f"- {name}: {told}" if told else f"- {name}")
        for name, told in _parse_listing_entries(last)
        if name not in own
    ]
    window = _LARGE if len(last) > _SMALL * _CHARS_PER_TOKEN * _get_budget_fraction(settings) else _SMALL
    room = int(window * _CHARS_PER_TOKEN * _get_budget_fraction(settings))
    taken = sum(others) + len(others) if last else _get_built_in_listing_size(recorded.version)
    names_only = taken + sum(len(name) + 2 for name in own) + len(own) - 1
    wanted = names_only + sum(size + 2 for size in own.values() if size)
    lost = []
    left = room - names_only
    # The program gives room to the most used skills first.
    for name in sorted(own, key=lambda name: -usage.get(name, 0.0)) if wanted > room else ():
        if own[name] + 2 <= left:
            left -= own[name] + 2
        elif own[name]:
            lost.append(name)
    unknown = _ASSUMED_DESCRIPTION_CHARS * sum(
        not told for name, told in _parse_listing_entries(last) if name not in own
    )
    how_many = "" if last else "about " if taken else "at least "
    fraction = max(_get_budget_fraction(settings), -(-(wanted + unknown) * 1000 // (window * _CHARS_PER_TOKEN)) / 1000)
    return SkillListingBudget(room=room, wanted=wanted, lost=tuple(lost), how_many=how_many, fraction=fraction)


def is_listed_skill(each: AgentSkill) -> bool:
    """Whether the agent lists the skill for its model."""
    return each.skill is None or not each.skill.manifest.disable_model_invocation


def get_listed_description(each: AgentSkill) -> str:
    """Return the description as the agent reads it: the first line if there is none, and invalid YAML as it stands."""
    skill = each.skill
    if skill is None:
        content = each.tree[main].content if (main := trees.find_main_file(each.tree)) else None
        text = (content or b"").decode("utf-8", "replace")
        found = _RAW_DESCRIPTION.search(text)
        return found[1].strip() if found else _get_first_line(text)
    told = skill.description or _get_first_line(skill.body)
    return f"{told} - {skill.when_to_use}" if skill.when_to_use else told


def _get_first_line(text: str) -> str:
    return next((line.strip("# ") for line in text.splitlines() if line.strip("# ")), "")


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedSkillListing:
    """The newest complete listing in the transcripts, and the version of the program that wrote last."""

    listing: str = ""
    version: str = ""


def find_last_recorded_skill_listing(transcripts: Iterable[Path]) -> RecordedSkillListing:
    """Return the newest complete listing in the latest transcripts; empty if there is none."""
    newest = sorted(((path.stat().st_mtime, path) for path in transcripts if path.exists()), reverse=True)
    version = ""
    for _, path in newest[:_MAX_TRANSCRIPTS]:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if '"skill_listing"' in line and (found := _parse_listing(line)):
                    return RecordedSkillListing(listing=found, version=version)
                if not version and (told := _PROGRAM_VERSION.search(line)):
                    version = told[1]
    return RecordedSkillListing(version=version)


def _get_built_in_listing_size(version: str) -> int:
    """Return the characters of the program's own entries with line breaks; 0 if the version is unknown."""
    major, _, minor = version.rpartition(".")
    known = (size for first, last, size in _BUILT_IN_SIZES if minor.isdigit() and first <= int(minor) <= last)
    return next(known, -1) + 1 if major == "2.1" else 0


def _parse_listing(line: str) -> str:
    try:
        told = json.loads(line).get("attachment", {})
    except (ValueError, AttributeError, RecursionError):
        return ""
    is_whole = isinstance(told, dict) and told.get("type") == "skill_listing" and told.get("isInitial", True)
    return str(told.get("content", "")) if is_whole else ""


def read_claude_settings(agent: KnownAgent, environ: Mapping[str, str], home: Path) -> Mapping[str, object]:
    """Return Claude Code's settings; empty if they can't be read."""
    return _read_json_object(agent.resolve_path("~/.claude/settings.json", environ, home, home))


def read_claude_skill_usage(
    agent: KnownAgent, environ: Mapping[str, str], home: Path, now: datetime
) -> Mapping[str, float]:
    """Return the usage of each skill as Claude Code counts it, with older uses weighing less."""
    kept = _read_json_object(agent.resolve_path("~/.claude.json", environ, home, home)).get("skillUsage")
    found = {}
    for name, told in kept.items() if isinstance(kept, dict) else ():
        try:
            days = max(0.0, now.timestamp() - float(told["lastUsedAt"]) / 1000) / 86_400
            found[str(name)] = float(told["usageCount"]) * max(0.5 ** (days / _HALF_LIFE_DAYS), _LEAST)
        except (TypeError, KeyError, ValueError):
            continue
    return found


def _read_json_object(path: Path) -> Mapping[str, object]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _get_description_limit(settings: Mapping[str, object]) -> int:
    given = settings.get("skillListingMaxDescChars")
    return given if isinstance(given, int) and given > 0 else 1_536


def _get_budget_fraction(settings: Mapping[str, object]) -> float:
    given = settings.get("skillListingBudgetFraction")
    return float(given) if isinstance(given, int | float) and 0 < given <= 1 else _DEFAULT_FRACTION


def _parse_listing_entries(listing: str) -> list[tuple[str, str]]:
    """Return the names with their descriptions, which may span several lines."""
    found: list[tuple[str, str]] = []
    for line in listing.splitlines():
        if entry := _LISTING_ENTRY.match(line):
            found.append((entry[1], entry[2] or ""))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{line}")
    return found
