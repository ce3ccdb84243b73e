"""Findings over many sessions: failures by cost, remedies by support, rules by how often they were stated."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, takewhile

from habitus.learning.detectors.error_signatures import ErrorCause
from habitus.learning.remedies.alignment import NoRemedyReason
from habitus.learning.remedies.calls import (
    Remedy,
    RemedyChangeKind,
    find_program_index,
    get_program_name,
    is_flag,
    parse_shell_commands,
    quote_for_shell,
)
from habitus.learning.remedies.corrections import (
    UserCorrection,
    choose_most_complete_wording,
    group_correction_indexes_by_rule,
)
from habitus.learning.remedies.recurring_failures import (
    VARYING_WORD,
    FindingOccurrence,
    RecurringFailure,
    build_finding_occurrence,
    compute_cost_in_seconds,
    find_shared_beginning,
    is_probe_command,
    list_recurring_failures_by_cost,
    sum_minutes,
)
from habitus.learning.remedies.session_facts import FailedCallDetails, SessionFailuresAndCorrections

MIN_SESSIONS = 2  # sessions needed for a lesson
MAJORITY = 0.6  # share of the sessions with any remedy that found this one
_DESTROYING_PROGRAMS = frozenset({"rm", "rmdir", "unlink", "kill", "pkill", "killall", "fuser", "dropdb", "shred"})
_CORRECTING_FLAGS = frozenset({"--fix", "--write", "--autocorrect", "--auto-correct", "--unsafe-fixes"})
CONTRADICTED = 5  # supporting sessions that one contradiction outweighs


@dataclass(frozen=True, kw_only=True, slots=True)
class SupportedRemedy:
    """A remedy and its evidence."""

    remedy: Remedy
    project: str  # empty if several projects have it
    sessions: int
    last: str
    rows: tuple[FindingOccurrence, ...]  # the failed calls that it is a remedy for, oldest first
    signatures: tuple[str, ...]
    traces: tuple[str, ...]  # session and turn
    against: int = 0  # sessions that contradict it
    share: float = 1.0  # of the sessions that found any remedy
    is_in_error: bool = False  # the error says it each time, so an agent finds it alone
    is_candidate: bool = False  # in no session the only thing that can have helped
    is_vague: bool = False  # a step of which each session had other arguments, such as `kill` and `mkdir`

    @property
    def minutes(self) -> float:
        return sum_minutes(self.rows)

    @property
    def is_worth_proposing(self) -> bool:
        is_enough = self.sessions >= MIN_SESSIONS and self.is_clearly_supported
        return is_enough and not (self.is_candidate and self.is_vague)

    @property
    def is_for_failed_lookup_command(self) -> bool:
        """Whether the failed command only looked something up. A missing program is worth knowing all the same."""
        return self.remedy.cause is not ErrorCause.PROGRAM and is_probe_command(self.remedy.wrong)

    @property
    def has_destructive_step(self) -> bool:
        """Whether a step deletes or ends something, such as a lock, which is right only if nothing uses it."""
        steps = parse_shell_commands(quote_for_shell(self.remedy.right)) if not self.remedy.tool else ()
        return any(step.program in _DESTROYING_PROGRAMS for step in steps)

    @property
    def corrects_the_work(self) -> bool:
        """Whether it lets a checker change what it has complained of: `ruff check --fix` for `ruff check`."""
        gone, new = (set(one) - set(other) for one, other in permutations((self.remedy.wrong, self.remedy.right)))
        return self.remedy.change is RemedyChangeKind.FLAGS and bool(
            new & _CORRECTING_FLAGS or any(word.startswith("--check") for word in gone)
        )

    @property
    def has_known_condition(self) -> bool:
        """Whether it says when: by the error, or by a cause. That `go` fails says nothing."""
        if self.remedy.change is RemedyChangeKind.FLAGS and self.remedy.cause is not ErrorCause.OPTION:
            return bool(self.remedy.says) or len(self.remedy.wrong) > 1
        return bool(self.remedy.says) or self.remedy.cause is not ErrorCause.OTHER or len(self.remedy.wrong) > 1

    @property
    def is_clearly_supported(self) -> bool:
        return self.against * CONTRADICTED <= self.sessions and self.share >= MAJORITY


@dataclass(frozen=True, kw_only=True, slots=True)
class ProposedRule:
    correction: UserCorrection
    project: str
    sessions: int  # in which it was stated
    traces: tuple[str, ...]
    rows: tuple[FindingOccurrence, ...]  # its statements, oldest first

    @property
    def is_worth_proposing(self) -> bool:
        """Worth proposing at once: it was meant permanently, or stated again."""
        return self.sessions >= MIN_SESSIONS or self.correction.is_standing


@dataclass(frozen=True, kw_only=True, slots=True)
class RemedyCoverageCounts:
    sessions: int = 0
    calls: int = 0
    failures: int = 0
    teachable: int = 0  # neither transient nor about the work itself
    remedied: int = 0  # a later call reached the goal
    taught: int = 0  # covered by a lesson
    guarded: int = 0  # worked only by bypassing a guard


@dataclass(frozen=True, kw_only=True, slots=True)
class RemedyFindings:
    failures: tuple[RecurringFailure, ...]
    lessons: tuple[SupportedRemedy, ...]
    candidates: tuple[SupportedRemedy, ...]
    rules: tuple[ProposedRule, ...]
    coverage: RemedyCoverageCounts


def collect_remedy_findings(sessions: Iterable[SessionFailuresAndCorrections]) -> RemedyFindings:
    seen = sorted({facts.session: facts for facts in sessions}.values(), key=lambda facts: (facts.last, facts.session))
    held = _merge_remedies_across_projects(_list_remedies_with_support(seen))
    lessons = _drop_candidates_for_covered_failures([each for each in held if each.is_worth_proposing])
    return RemedyFindings(
        failures=list_recurring_failures_by_cost(seen),
        lessons=lessons,
        candidates=tuple(
            each for each in held if not each.is_worth_proposing and each.is_clearly_supported and not each.is_candidate
        ),
        rules=_list_proposed_rules(seen),
        coverage=_count_remedy_coverage(seen, lessons),
    )


def _drop_candidates_for_covered_failures(held: Sequence[SupportedRemedy]) -> tuple[SupportedRemedy, ...]:
    """Drop candidates for whose failures another remedy has more support."""
    kept: list[SupportedRemedy] = []
    covered = set[FindingOccurrence]()
    for each in sorted(held, key=lambda each: (each.is_candidate, -each.sessions)):
        if not each.is_candidate or covered.isdisjoint(each.rows):
            kept.append(each)
            covered.update(each.rows)
    return tuple(each for each in held if each in kept)


_Support = list[tuple[SessionFailuresAndCorrections, FailedCallDetails, Remedy]]


def _list_remedies_with_support(seen: Sequence[SessionFailuresAndCorrections]) -> list[SupportedRemedy]:
    """Return every remedy of every project, with its support and contradictions."""
    supports: dict[tuple[object, ...], _Support] = defaultdict(list)
    rivals: dict[tuple[str, ...], set[str]] = defaultdict(set)
    certain = set[tuple[object, ...]]()
    for facts in seen:
        for failure in facts.failures:
            if remedy := failure.remedy:
                certain.add((facts.project, *_make_remedy_key(remedy)))
                rivals[_make_failure_key(facts.project, failure, remedy)].add(facts.conversation)
            possible = (remedy, *failure.candidates) if remedy else failure.candidates
            by_key: dict[tuple[object, ...], Remedy] = {}
            for each in possible:
                by_key.setdefault((facts.project, *_make_remedy_key(each)), each)
            for key, each in by_key.items():
                supports[key].append((facts, failure, each))
    found = []
    for key, support in supports.items():
        sessions = {facts.conversation for facts, _, _ in support}
        all_ways = set().union(
            *(rivals[_make_failure_key(facts.project, failure, made)] for facts, failure, made in support)
        )
        held = _merge_into_supported_remedy(support)
        found.append(
            replace(
                held,
                against=_count_contradicting_sessions(held.remedy, support, seen),
                share=len(sessions) / len(all_ways | sessions),
                is_candidate=key not in certain,
            )
        )
    return _join_steps_taken_together(found)


def _join_steps_taken_together(held: Sequence[SupportedRemedy]) -> list[SupportedRemedy]:
    """Join the candidates that every session with one of them had: which of them helped, nobody knows."""
    joined: dict[object, SupportedRemedy] = {}
    for number, each in enumerate(held):
        is_step = each.is_candidate and each.remedy.change is RemedyChangeKind.FIRST and not each.remedy.tool
        key = (each.project, each.rows) if is_step else number
        if (other := joined.get(key)) and each.sessions >= MIN_SESSIONS:
            right = (*other.remedy.right, "&&", *each.remedy.right)
            each = replace(each, remedy=replace(each.remedy, right=right), is_vague=other.is_vague and each.is_vague)
        joined[key] = each
    return list(joined.values())


def _make_remedy_key(remedy: Remedy) -> tuple[object, ...]:
    """Return the key that equal remedies share, with the words of the error; flags count without values."""
    match remedy.change:
        case RemedyChangeKind.FLAGS:
            # The same error of another subcommand or script has the same remedy.
            base = remedy.wrong[:1] if remedy.says else remedy.wrong[:2]
            return remedy.change, base, remedy.says, _list_flags(remedy.wrong), _list_flags(remedy.right)
        case RemedyChangeKind.VARIABLE | RemedyChangeKind.INSTEAD if added := _list_words_before_failed_command(remedy):
            added = ("source", *added[1:]) if added[0] == "." else added
            return remedy.change, remedy.wrong[:1], added, remedy.says
        case RemedyChangeKind.FIRST:
            # A preparation depends on the state, which only the error tells.
            failed = tuple(map(get_program_name, remedy.wrong[:1]))
            return remedy.change, remedy.tool, failed, _make_preparation_key(remedy), remedy.says
        case _:
            return remedy.change, remedy.tool, remedy.wrong, remedy.right, remedy.says


# Programs whose first argument is a program of its own.
_GROUPED_PROGRAMS = frozenset({"aws", "az", "gcloud"})
_SUBPROGRAMS = frozenset(
    {"docker compose", "docker buildx", "npm run", "pnpm run", "yarn run", "uv pip", "kubectl config"}
)


def _make_preparation_key(remedy: Remedy) -> tuple[str, ...]:
    """Return the subcommand that a preparation runs, if the error says when to; its arguments vary with the state."""
    words = _get_first_step(remedy.right)
    if remedy.tool or not (remedy.says or remedy.cause is ErrorCause.SERVICE) or len(words) < 2:
        return remedy.right
    at = find_program_index(words)
    at += words[at] in _GROUPED_PROGRAMS or " ".join(words[at : at + 2]) in _SUBPROGRAMS
    return tuple(word for word in words[: at + 2] if not word.isdigit())


def _get_first_step(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(takewhile(lambda word: word != "&&", words))


def _list_words_before_failed_command(remedy: Remedy) -> tuple[str, ...]:
    """Return what is written before the failed command; empty if it was changed itself."""
    added = len(remedy.right) - len(remedy.wrong)
    return remedy.right[:added] if added > 0 and remedy.right[added:] == remedy.wrong else ()


def _list_flags(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word.partition("=")[0] for word in words if is_flag(word))


def _make_failure_key(project: str, failure: FailedCallDetails, remedy: Remedy) -> tuple[str, ...]:
    """Return the key of a failure, which all its remedies share."""
    return project, failure.tool, failure.signature, failure.about, quote_for_shell(remedy.wrong[:1])


def _merge_into_supported_remedy(support: _Support) -> SupportedRemedy:
    sessions = {facts.conversation for facts, _, _ in support}
    last_facts, _, remedy = support[-1]
    rights = [made.right for _, _, made in support]
    if remedy.change is RemedyChangeKind.FLAGS:
        remedy = replace(
            remedy,
            wrong=_keep_common_words_and_mark_others([made.wrong for _, _, made in support]),
            right=_keep_common_words_and_mark_others(rights),
            shared_options=remedy.shared_options if len({made.shared_options for _, _, made in support}) == 1 else (),
        )
    if remedy.change is RemedyChangeKind.FIRST:
        remedy = replace(remedy, right=_merge_preparations(rights))
    added = _list_words_before_failed_command(remedy)
    if remedy.change is RemedyChangeKind.FIRST or added:
        shared = find_shared_beginning([made.wrong for _, _, made in support]) or remedy.wrong[:1]
        remedy = replace(remedy, wrong=shared, right=(*added, *shared) if added else remedy.right)
    if len({made.about for _, _, made in support}) > 1:
        remedy = replace(remedy, about="")
    traces = {f"{facts.file or facts.session} turn {failure.turn}": None for facts, failure, _ in support}
    return SupportedRemedy(
        remedy=remedy,
        project=last_facts.project,
        sessions=len(sessions),
        last=max(failure.at or facts.last for facts, failure, _ in support),
        rows=tuple(build_finding_occurrence(facts, failure) for facts, failure, _ in support),
        signatures=tuple(dict.fromkeys(failure.signature for _, failure, _ in support)),
        traces=tuple(traces),
        is_in_error=all(failure.is_remedy_in_error for _, failure, _ in support),
        is_vague=len(set(rights)) > 1 and all(is_flag(word) or word == VARYING_WORD for word in remedy.right[1:]),
    )


def _keep_common_words_and_mark_others(rights: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the words that all have; varying ones are replaced by a mark."""
    last = rights[-1]
    if any(len(right) != len(last) for right in rights):
        return last
    return tuple(word if all(right[at] == word for right in rights) else VARYING_WORD for at, word in enumerate(last))


def _merge_preparations(rights: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return what all preparations have in common, in the words of the last; a mark stands for what varies."""
    if len(set(rights)) == 1:
        return rights[0]
    rights = [_get_first_step(right) for right in rights]
    merged = list[str]()
    for word in rights[-1]:
        flag = word.partition("=")[0]
        if all(word in right for right in rights):
            merged.append(word)
        elif is_flag(word) and "=" in word and all(any(each.startswith(f"{flag}=") for each in one) for one in rights):
            merged.append(f"{flag}={VARYING_WORD}")
        elif merged[-1:] != [VARYING_WORD]:
            merged.append(VARYING_WORD)
    # Further arguments, but for the value of a flag, say nothing.
    is_value = len(merged) > 1 and is_flag(merged[-2])
    return tuple(merged[:-1] if merged[-1] == VARYING_WORD and not is_value else merged)


def _count_contradicting_sessions(
    remedy: Remedy, support: _Support, seen: Sequence[SessionFailuresAndCorrections]
) -> int:
    """Count the sessions of the project in which the failed call worked as it is, or the remedy failed."""
    project = support[-1][0].project
    signatures = {failure.signature for _, failure, _ in support}
    since = min(facts.last for facts, _, _ in support)
    wrongs = {quote_for_shell(made.wrong) for _, _, made in support}
    # Whether a step is needed before it depends on what it does then, unless the program itself is not there.
    is_step = bool(_list_words_before_failed_command(remedy)) and remedy.change is RemedyChangeKind.INSTEAD
    is_standing = remedy.change in _STANDING and (remedy.cause is ErrorCause.PROGRAM or not is_step)
    count = 0
    for facts in seen:
        if facts.project != project:
            continue
        works_anyway = is_standing and not wrongs.isdisjoint(facts.worked) and facts.last >= since
        count += works_anyway or any(_is_failure_of_remedy(remedy, failure, signatures) for failure in facts.failures)
    return count


_STANDING = (
    RemedyChangeKind.INSTEAD,
    RemedyChangeKind.PLACE,
    RemedyChangeKind.VARIABLE,
    RemedyChangeKind.NAME,
)  # hold at any time; the others depend on the state at that time


def _is_failure_of_remedy(remedy: Remedy, failure: FailedCallDetails, signatures: set[str]) -> bool:
    if failure.signature not in signatures or (failure.tool and remedy.tool and failure.tool != remedy.tool):
        return False
    if failure.ending is NoRemedyReason.RETRIED:
        return failure.words[:1] == remedy.wrong[:1] and failure.about == remedy.about
    match remedy.change:
        case RemedyChangeKind.INSTEAD | RemedyChangeKind.NAME:
            return failure.words[: len(remedy.right)] == remedy.right
        case RemedyChangeKind.FLAGS:
            words, left_out = set(failure.words), set(remedy.wrong) - set(remedy.right)
            return set(remedy.right) - {VARYING_WORD} <= words and not left_out & words
        case _:
            return False


def _merge_remedies_across_projects(held: Sequence[SupportedRemedy]) -> list[SupportedRemedy]:
    """Merge remedies that hold in several projects into one that belongs to no project."""
    groups: dict[tuple[object, ...], list[SupportedRemedy]] = defaultdict(list)
    for each in held:
        groups[_make_remedy_key(each.remedy)].append(each)
    found: list[SupportedRemedy] = []
    for members in groups.values():
        clear = [each for each in members if each.is_clearly_supported]
        if len(clear) < MIN_SESSIONS or len(clear) < len(members):
            found += members
            continue
        last = max(clear, key=lambda each: each.last)
        found.append(
            replace(
                last,
                project="",
                sessions=sum(each.sessions for each in clear),
                rows=tuple(sorted((row for each in clear for row in each.rows), key=lambda row: row.at)),
                signatures=tuple(dict.fromkeys(one for each in clear for one in each.signatures)),
                traces=tuple(trace for each in clear for trace in each.traces),
            )
        )
    return sorted(found, key=lambda each: (-each.sessions, -compute_cost_in_seconds(each.rows), each.remedy.wrong))


def _list_proposed_rules(seen: Sequence[SessionFailuresAndCorrections]) -> tuple[ProposedRule, ...]:
    said = [(facts, correction) for facts in seen for correction in facts.corrections]
    rules = []
    for members in (
        [said[at] for at in group] for group in group_correction_indexes_by_rule([correction for _, correction in said])
    ):
        corrections = [each for _, each in members]
        sessions, projects = ({getattr(each, of) for each, _ in members} for of in ("conversation", "project"))
        if len(sessions) < MIN_SESSIONS and not any(each.after for each in corrections):
            continue
        rules.append(
            ProposedRule(
                correction=replace(
                    choose_most_complete_wording(corrections),
                    at=max(each.at for each in corrections),
                    after=next((each.after for each in reversed(corrections) if each.after), None),
                    is_standing=any(each.is_standing for each in corrections),
                ),
                project=members[-1][0].project if len(projects) == 1 else "",
                sessions=len(sessions),
                traces=tuple(f"{each.file or each.session} turn {said.turn}" for each, said in members),
                rows=tuple(build_finding_occurrence(each, said) for each, said in members),
            )
        )
    return tuple(sorted(rules, key=lambda rule: (-rule.sessions, not rule.correction.is_standing)))


def _count_remedy_coverage(
    seen: Sequence[SessionFailuresAndCorrections], lessons: Sequence[SupportedRemedy]
) -> RemedyCoverageCounts:
    count: Counter[str] = Counter()
    taught = {(each.project, *_make_remedy_key(each.remedy)) for each in lessons}
    for facts in seen:
        count["calls"] += facts.calls
        for failure in facts.failures:
            count["failures"] += 1
            count["teachable"] += failure.cause.can_have_remedy
            count["guarded"] += failure.ending is NoRemedyReason.GUARDED
            if failure.remedy:
                count["remedied"] += 1
                key = _make_remedy_key(failure.remedy)
                count["taught"] += (facts.project, *key) in taught or ("", *key) in taught
    return RemedyCoverageCounts(sessions=sum(facts.is_conversation for facts in seen), **count)
