"""Alignment of a failed call with a later one that did the same thing, or with the one that made it work. Pure
functions.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from habitus.learning.detectors.error_signatures import ClassifiedError, ErrorCause, classify_error
from habitus.learning.remedies.calls import (
    CUT_MARK,
    SUBCOMMAND,
    Remedy,
    RemedyKind,
    SessionCall,
    ShellCommand,
    get_program_name,
    is_flag,
    is_read_only_command,
    list_read_only_flags,
    make_word_set,
    parse_commands,
    quote_for_shell,
)

WINDOW = 40  # calls after a failure that are searched for its remedy


class NoRemedyReason(StrEnum):
    """How a failure without a remedy ended."""

    NOTHING = "nothing"  # neither the next call nor a similar one succeeded later
    LEFT = "left"  # one of them succeeded, and why is unknown
    RETRIED = "retried"  # the same call succeeded unchanged: a transient error
    GUARDED = "guarded"  # what worked bypasses a guard, so it must not be learned


@dataclass(frozen=True, kw_only=True, slots=True)
class RemedyAlignment:
    remedy: Remedy | None
    ending: NoRemedyReason = NoRemedyReason.LEFT
    at: int = 0  # index of the call that succeeded; 0 if none did


def align_failed_call(calls: Sequence[SessionCall], index: int) -> RemedyAlignment:
    """Align a failed call with the calls after it, and return the remedy or how it ended."""
    failed = calls[index]
    about = classify_error(failed.error)
    end = min(len(calls), index + 1 + WINDOW)
    ending = NoRemedyReason.NOTHING
    named: list[SessionCall] = []  # calls in between that ran what the error recommends
    for at in range(index + 1, end):
        later, between = calls[at], calls[index + 1 : at]
        named += (each for each in between[-1:] if _is_named_by_error(each, failed, about))
        if later.name != failed.name or not _has_got_further(failed, later, about):
            continue
        if _has_same_goal(failed, later) or (
            at == index + 1
            and (failed.is_read_only or not later.is_read_only)
            and not _fails_again(failed, calls[at + 1 : end], about)
        ):
            ending = NoRemedyReason.LEFT
        if _is_same_call(failed, later) or (
            between and _is_other_mode(between[-1], failed) and _extends(failed, later)
        ):
            found = (
                _find_preparation(failed, between, named, about)
                if later.turn == failed.turn
                else NoRemedyReason.RETRIED
            )
        elif _is_named_by_error(later, failed, about) and any(
            _has_same_goal(failed, each) for each in calls[at + 1 : end]
        ):
            continue  # a preparation; the retry itself comes later
        elif _is_other_step(later, failed, about) and any(_extends(failed, each) for each in calls[at + 1 : end]):
            continue  # `cmake -B` before `cmake --build`, `touch x` before `cat x`
        elif named and _has_same_goal(failed, later):
            found = _build_preparation(failed, named, about)  # the goal was reached after it, with other arguments
        else:
            found = _find_replacement(failed, later, between, about)
        if found is not None:
            return _judge_remedy(found, about, at)
    return RemedyAlignment(remedy=None, ending=ending)


def _has_got_further(failed: SessionCall, later: SessionCall, about: ClassifiedError) -> bool:
    """Return whether a call succeeded, or got as far as the work where the failed one did not even start."""
    return later.has_worked or (
        later.has_reached_work and about.cause is not ErrorCause.WORK and not _is_same_call(failed, later)
    )


def _fails_again(failed: SessionCall, later: Sequence[SessionCall], about: ClassifiedError) -> bool:
    """Return whether the first later call with the same goal fails with the same error."""
    again = next((each for each in later if each.name == failed.name and _has_same_goal(failed, each)), None)
    return again is not None and again.success is False and classify_error(again.error).signature == about.signature


def _judge_remedy(found: Remedy | NoRemedyReason, about: ClassifiedError, at: int) -> RemedyAlignment:
    if isinstance(found, NoRemedyReason):
        return RemedyAlignment(remedy=None, ending=found, at=at)
    if found.bypasses_guard:
        return RemedyAlignment(remedy=None, ending=NoRemedyReason.GUARDED, at=at)
    may_teach = about.has_message and (about.cause.can_have_remedy or _is_advised_by_error(found, about))
    if not may_teach or not found.can_be_quoted:
        return RemedyAlignment(remedy=None, ending=NoRemedyReason.LEFT, at=at)
    return RemedyAlignment(remedy=found, at=at)


def _is_advised_by_error(remedy: Remedy, about: ClassifiedError) -> bool:
    """Return whether the error message itself recommends the remedy."""
    match remedy.change:
        case RemedyKind.FLAGS:
            return about.mentions_any(word for word in remedy.right if is_flag(word) and word not in remedy.wrong)
        case RemedyKind.FIRST:
            return any(_is_command_in_error(each, about) for each in parse_commands(quote_for_shell(remedy.right)))
        case _:
            return False


def _has_same_goal(failed: SessionCall, later: SessionCall) -> bool:
    """Return whether a call may have the same goal: the same program with the same first word."""
    wanted = failed.failing_command
    if wanted is None:
        return not failed.command
    return any(_get_goal(each) == _get_goal(wanted) for each in later.commands)


def _is_same_call(failed: SessionCall, later: SessionCall) -> bool:
    if failed.digest and failed.digest == later.digest and failed.cwd == later.cwd:
        return True
    if not failed.command or not later.command:
        return False
    wanted = failed.failing_command
    return wanted is not None and any(
        _make_run_key(each, wanted) == _make_run_key(wanted, wanted) for each in _list_last_commands(later)
    )


def _extends(failed: SessionCall, later: SessionCall) -> bool:
    """Return whether a call that worked is the failed one, perhaps with more options."""
    wanted = failed.failing_command
    return wanted is not None and any(
        each.head == wanted.head and each.place == wanted.place and not _subtract_words(wanted.args, each.args)
        for each in (_list_last_commands(later) if later.has_worked else ())
    )


def _is_other_step(later: SessionCall, failed: SessionCall, about: ClassifiedError) -> bool:
    """Return whether a call does something else than the failed one, so that it prepares it if that works later."""
    if _is_other_mode(later, failed):
        return True
    wanted = failed.failing_command
    if wanted is None or about.cause is ErrorCause.PROGRAM:
        return False
    return wanted.program not in (each.program for each in later.commands)


def _is_other_mode(act: SessionCall, failed: SessionCall) -> bool:
    """Return whether a call runs the same program with other flags alone, which then prepares what failed."""
    wanted = failed.failing_command
    if wanted is None or not act.has_worked or act.is_edit:
        return False
    modes = {word for word in wanted.args if is_flag(word)}
    return any(
        each.program == wanted.program
        and bool(flags := {word for word in each.args if is_flag(word)})
        and bool(modes)
        and flags.isdisjoint(modes)
        for each in act.commands
    )


def _make_run_key(command: ShellCommand, failed: ShellCommand) -> tuple[object, ...]:
    return command.words, command.env, command.place, _list_unfinished_steps(command, failed)


def _list_last_commands(call: SessionCall) -> list[ShellCommand]:
    return [each for each in call.commands if each.is_last]


def _list_unfinished_steps(command: ShellCommand, failed: ShellCommand) -> tuple[tuple[str, ...], ...]:
    """Return the steps before it on its line, without those that a line which failed at it had already completed."""
    count = len(command.before)
    is_done = count < len(failed.before) and command.before == failed.before[len(failed.before) - count :]
    return failed.before if is_done else command.before


# Replacement: the same goal in another way


def _find_replacement(
    failed: SessionCall, later: SessionCall, between: Sequence[SessionCall], about: ClassifiedError
) -> Remedy | NoRemedyReason | None:
    is_next = failed.turn == later.turn and all(each.is_read_only or not each.has_worked for each in between)
    if not failed.command:
        return _replace_argument(failed, later, about, is_next=is_next)
    wanted = failed.failing_command
    if wanted is None:
        return None
    found = (_replace_command(wanted, each, about, is_next=is_next) for each in _list_last_commands(later))
    return next(filter(None, found), None)


def _replace_command(
    failed: ShellCommand, later: ShellCommand, about: ClassifiedError, *, is_next: bool
) -> Remedy | None:
    if list_read_only_flags(later) ^ list_read_only_flags(failed):
        return None  # asking for help is not doing it, and what a check found is no failure of it
    if about.cause is ErrorCause.PROGRAM and any(
        get_program_name(word) == get_program_name(about.subject) for word in failed.head
    ):
        return _replace_program(failed, later, about, is_next=is_next)
    if _is_through_interpreter(failed, later):
        return _build_remedy(RemedyKind.INSTEAD, about, failed.words[:1], later.words[:2])
    if is_next and _runs_through(failed, later):
        return _build_remedy(RemedyKind.INSTEAD, about, failed.base, (*later.words[: -len(failed.words)], *failed.base))
    if failed.program != later.program:
        is_same_task = bool(failed.words[1:]) and failed.words[1:] == later.words[1:] and failed.place == later.place
        is_known_kind = is_next and is_same_task and not is_flag(failed.words[1])
        if not is_known_kind:
            return None
        # A program alone says too little: `bash` for `sh` is right for this script.
        wrong, right = (each.base if len(each.base) > 1 else each.words[:2] for each in (failed, later))
        return _build_remedy(RemedyKind.INSTEAD, about, wrong, right)
    differing = [
        what
        for what, is_same in (
            ("before", failed.before == _list_unfinished_steps(later, failed)),
            ("place", failed.place == later.place),
            ("env", failed.env == later.env),
            ("head", failed.head == later.head),
            ("args", failed.args == later.args),
        )
        if not is_same
    ]
    # Another runner may need fewer words: `-h localhost` means nothing inside a container.
    is_through_other = differing == ["head", "args"] and (
        failed.targets == later.targets or not _subtract_words(later.args, failed.args)
    )
    if len(differing) != 1 and not is_through_other:
        return None
    if differing == ["args"]:
        return _replace_words(failed, later, about, is_next=is_next)
    if not is_next and about.cause is ErrorCause.OTHER:
        return None
    base = later.base
    match differing[0]:
        case "before" if later.before[: len(failed.before)] == failed.before:
            steps = _join_shell_steps(later.before[len(failed.before) :])
            return _build_remedy(RemedyKind.INSTEAD, about, failed.base, (*steps, *base))
        case "place":
            return _build_remedy(
                RemedyKind.PLACE,
                about,
                (*_build_cd_prefix(failed.place), *base),
                ("cd", later.place or ".", "&&", *base),
            )
        case "env" if added := tuple(each for each in later.env if each not in failed.env):
            return _build_remedy(RemedyKind.VARIABLE, about, base, (*added, *base))
        case "head":
            return _build_remedy(RemedyKind.INSTEAD, about, failed.head, later.head)
    return None


def _runs_through(failed: ShellCommand, later: ShellCommand) -> bool:
    """`aws-vault exec dev -- terraform plan` for `terraform plan`."""
    added = len(later.words) - len(failed.words)
    return (
        added > 1
        and len(failed.words) > 1
        and later.words[added:] == failed.words
        and later.place == failed.place
        and failed.program != later.program
        and not is_read_only_command(later)
    )


def _is_through_interpreter(failed: ShellCommand, later: ShellCommand) -> bool:
    """`bash run.sh` for `./run.sh`."""
    if not failed.words[0].startswith(("./", "/")) or failed.words[1:] != later.words[2:]:
        return False
    return list(map(posixpath.normpath, later.words[1:2])) == [posixpath.normpath(failed.words[0])]


def _replace_program(
    failed: ShellCommand, later: ShellCommand, about: ClassifiedError, *, is_next: bool
) -> Remedy | None:
    """For a missing program only the way it is started matters."""
    if failed.program == later.program and (failed.head, failed.before) != (later.head, later.before):
        return _build_remedy(RemedyKind.INSTEAD, about, failed.head, (*_join_shell_steps(later.before), *later.head))
    if failed.program == later.program and failed.env != later.env:
        added = tuple(each for each in later.env if each not in failed.env)
        return _build_remedy(RemedyKind.VARIABLE, about, failed.head, (*added, *later.head)) if added else None
    if failed.targets and failed.targets == later.targets and failed.place == later.place:
        flags = tuple(word for word in later.args if is_flag(word))
        return _build_remedy(RemedyKind.INSTEAD, about, failed.head, (*later.head, *flags))
    shared = failed.words[1:]
    if (
        shared
        and shared == later.words[-len(shared) :]
        and SequenceMatcher(None, failed.program, "".join(later.words[:2])).ratio() > 0.8
    ):
        return _build_remedy(RemedyKind.INSTEAD, about, failed.head, later.words[: -len(shared)])  # `docker compose`
    wanted = [word for word in failed.args if not is_flag(word) and len(word) > 2]
    if is_next and wanted and all(any(word in other for other in later.words[1:]) for word in wanted):
        return _build_remedy(
            RemedyKind.INSTEAD, about, failed.head, later.head
        )  # `find src -name '*x*'` for `fd x src`
    return None


def _replace_words(
    failed: ShellCommand, later: ShellCommand, about: ClassifiedError, *, is_next: bool
) -> Remedy | None:
    gone, new = _subtract_words(failed.args, later.args), _subtract_words(later.args, failed.args)
    lost, came = _list_new_plain_words(failed.args, later.args), _list_new_plain_words(later.args, failed.args)
    base = later.base
    kept = tuple(word for word in later.args if "://" in word and word not in (*base, *new))
    if not lost and not came:
        is_told = about.subject in gone or about.mentions_any((*gone, *new))
        return (
            _build_remedy(RemedyKind.FLAGS, about, (*base, *gone, *kept), (*base, *new, *kept))
            if is_next or is_told
            else None
        )
    if len(lost) == len(came) == 1 and len(gone) == len(new) == 1:
        return _replace_name(failed, later, lost[0], came[0], about)
    if len(came) == 1 and not gone and new == tuple(came) and (subcommand := _add_subcommand(failed, later, came[0])):
        is_told = about.mentions_any(came) or (is_next and about.cause is ErrorCause.OPTION)
        return _build_remedy(RemedyKind.INSTEAD, about, failed.base, subcommand) if is_told else None
    if came and not lost and about.mentions_any(new):
        added = (word for word in new if word not in base)
        return _build_remedy(RemedyKind.FLAGS, about, (*failed.base, *gone, *kept), (*base, *added, *kept))
    return None


def _add_subcommand(failed: ShellCommand, later: ShellCommand, came: str) -> tuple[str, ...]:
    """Return the command with the subcommand that was added; empty if the added word is a target."""
    base = failed.base
    at = later.args.index(came)
    reach = len(base) - len(failed.head) + 1
    return later.words[: len(later.head) + reach] if at < reach and SUBCOMMAND.fullmatch(came) else ()


def _replace_name(
    failed: ShellCommand, later: ShellCommand, lost: str, came: str, about: ClassifiedError
) -> Remedy | None:
    if lost != about.subject and not about.mentions_any([lost]):
        return None
    is_moved = posixpath.basename(lost) == posixpath.basename(came)
    is_suggested = about.mentions_any([came])
    is_close = about.cause is ErrorCause.OPTION and SequenceMatcher(None, lost, came).ratio() >= 0.6
    if not (is_moved or is_suggested or is_close):
        return None
    return _build_remedy(RemedyKind.NAME, about, _cut_after_word(failed, lost), _cut_after_word(later, came))


def _replace_argument(
    failed: SessionCall, later: SessionCall, about: ClassifiedError, *, is_next: bool
) -> Remedy | None:
    if CUT_MARK in (failed.summary[-1:], later.summary[-1:]):
        return None
    before, after = failed.full_arguments, later.full_arguments
    differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    if len(differing) != 1:
        return None
    key = differing[0]
    lost, came = before.get(key), after.get(key)
    if not (_is_short_value(lost) and _is_short_value(came)):
        return None
    is_told = about.mentions_any([str(each) for each in (came, key) if each is not None])
    is_near = isinstance(lost, str) and isinstance(came, str) and _is_similar_name(lost, came)
    has_rest = len({**before, **after}) > 1
    if not (is_near and about.mentions_any([str(lost)])) and not (has_rest and is_told and is_next):
        return None
    wrong, right = (() if value is None else (f"{key}={value}",) for value in (lost, came))
    return _build_remedy(RemedyKind.ARGUMENT, about, wrong, right, tool=failed.name)


def _is_short_value(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= 80 and value.count(" ") < 3 and "\n" not in value
    return value is None or isinstance(value, bool | int | float)


def _is_similar_name(one: str, other: str) -> bool:
    is_moved = posixpath.basename(one) == posixpath.basename(other) and "/" in one + other
    return is_moved or SequenceMatcher(None, one, other).ratio() >= 0.8


# Preparation: the same call, after another one


def _find_preparation(
    failed: SessionCall, between: Sequence[SessionCall], named: Sequence[SessionCall], about: ClassifiedError
) -> Remedy | NoRemedyReason | None:
    if named:
        return _build_preparation(failed, named, about)
    acts = [each for each in between if each.has_worked and not each.is_read_only]
    told = [each for each in between if each.has_worked and _is_response_to_error(each, failed, about)]
    if not acts and not told:
        return NoRemedyReason.RETRIED
    if told:
        return _build_preparation(failed, told[-1:], about)
    if len(acts) == 1 and not acts[0].is_edit and (_is_known_preparation(acts[0]) or _is_other_mode(acts[0], failed)):
        return _build_preparation(failed, acts, about)
    return NoRemedyReason.LEFT


def _is_named_by_error(call: SessionCall, failed: SessionCall, about: ClassifiedError) -> bool:
    """Return whether the call ran what the error message says to run."""
    wanted = failed.failing_command
    if wanted is None or not call.has_worked:
        return False
    return any(_is_command_in_error(each, about) and _get_goal(each) != _get_goal(wanted) for each in call.commands)


def _is_command_in_error(command: ShellCommand, about: ClassifiedError) -> bool:
    first = command.args[:1]
    return bool(first) and about.mentions_any({" ".join((*command.head, *first)), " ".join((command.program, *first))})


def _get_goal(command: ShellCommand) -> tuple[str, ...]:
    """Return the program and its first target, whatever runner starts it."""
    return command.program, *command.targets[:1]


def _build_preparation(
    failed: SessionCall, chosen: Sequence[SessionCall], about: ClassifiedError
) -> Remedy | NoRemedyReason | None:
    wanted = failed.failing_command
    wrong = wanted.base if wanted else ()
    if wanted and len(wrong) == 1:
        wrong += tuple(word for word in wanted.args if is_flag(word))[:1]
    tool = "" if wanted else failed.name
    last = chosen[-1]
    if not last.command:
        shared = [key for key, value in last.full_arguments.items() if value in failed.full_arguments.values()]
        right = (last.name, *(() if shared else _list_short_arguments(last)))
        return _build_remedy(RemedyKind.FIRST, about, wrong, right, tool=tool)
    steps = [each for call in chosen for each in call.commands if each.program not in ("echo", "ls", "pwd")]
    if not steps:
        return NoRemedyReason.LEFT
    moved = _build_cd_prefix(steps[0].place) if not wanted or steps[0].place != wanted.place else ()
    right = (*moved, *_join_shell_steps([(*each.env, *each.words) for each in steps])[:-1])
    return _build_remedy(RemedyKind.FIRST, about, wrong, right, tool=tool)


def _list_short_arguments(call: SessionCall) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in call.full_arguments.items() if _is_short_value(value))


_INSTALLS = make_word_set("install add sync ci i get require restore bundle setup ensure activate use enable")
_STARTS = make_word_set("up start serve run restart open launch init")
_PREPARES = (
    _INSTALLS
    | _STARTS
    | make_word_set(
        "create mkdir migrate build generate login chmod pull fetch clone bootstrap compile unlock cp ln update"
    )
    | make_word_set("upgrade rm remove stop prune clean")
)


def _is_known_preparation(call: SessionCall) -> bool:
    words = {part for each in call.commands for word in each.words for part in (word, *re.split(r"[:.]", word))}
    return bool(words & _PREPARES) or any("activate" in word for word in words)


def _is_response_to_error(act: SessionCall, failed: SessionCall, about: ClassifiedError) -> bool:
    """Return whether a call addresses what the error message says."""
    if not act.command:
        return about.cause is ErrorCause.OTHER and about.mentions_any([act.name, act.name.lower()])
    if act.is_read_only:
        return False
    words = {word for each in act.commands for word in each.words}
    named = posixpath.basename(about.subject)
    speaks_of_it = bool(named) and any(re.search(rf"(?<!\w){re.escape(named)}(?!\w)", word) for word in words)
    match about.cause:
        case ErrorCause.PROGRAM | ErrorCause.MODULE:
            return bool(words & _INSTALLS) or any("activate" in word for word in words)
        case ErrorCause.SERVICE:
            return bool(words & _STARTS)
        case ErrorCause.FILE | ErrorCause.PERMISSION | ErrorCause.OPTION:
            return speaks_of_it and not act.is_edit
        case _:
            known = {word for each in failed.commands for word in each.words}
            is_allowed = not act.is_edit or all(each.program == "git" for each in act.commands)
            return is_allowed and about.mentions_any(word for word in words - known if len(word) > 3)


# Words


def _build_remedy(
    change: RemedyKind, about: ClassifiedError, wrong: Sequence[str], right: Sequence[str], *, tool: str = ""
) -> Remedy | None:
    """Return the remedy; None if nothing differs."""
    wrong, right = tuple(wrong), tuple(right)
    if wrong == right:
        return None
    says = about.phrase if about.cause is ErrorCause.OTHER else ""
    return Remedy(change=change, cause=about.cause, about=about.subject, wrong=wrong, right=right, tool=tool, says=says)


def _cut_after_word(command: ShellCommand, word: str) -> tuple[str, ...]:
    """Return the command up to a word, without flags except the one whose value it may be."""
    at = command.args.index(word)
    args = command.args[:at]
    return (*command.head, *(each for each in args[:-1] if not is_flag(each)), *args[-1:], word)


def _subtract_words(words: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word, is_new in _mark_new_words(words, others) if is_new)


def _mark_new_words(words: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each word and whether the others lack it; of one that occurs again (`plan -out plan`) the last is new."""
    rest, new = Counter(words), Counter(words) - Counter(others)
    for word in words:
        yield word, rest[word] <= new[word]
        rest[word] -= 1


def _list_new_plain_words(args: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the new words that are neither flags nor values of new flags."""
    found: list[str] = []
    after_flag = False
    for word, is_new in _mark_new_words(args, others):
        after_flag = is_new and (after_flag or is_flag(word))
        if is_new and not after_flag:
            found.append(word)
    return found


def _join_shell_steps(steps: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(word for step in steps for word in (*step, "&&"))


def _build_cd_prefix(place: str) -> tuple[str, ...]:
    return ("cd", place, "&&") if place else ()
