"""Alignment of a failed call with a later one that did the same thing, or with the one that made it work. Pure
functions.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from habitus.learning.detectors.error_signatures import ClassifiedError, ErrorCause, classify_error
from habitus.learning.remedies.calls import (
    SUBCOMMAND,
    Remedy,
    RemedyChangeKind,
    SessionCall,
    ShellCommand,
    changes_shell_state,
    is_flag,
    is_read_only_command,
    list_read_only_flags,
    make_word_set,
    parse_shell_commands,
    quote_for_shell,
)
from habitus.learning.remedies.replacements import (
    build_cd_prefix,
    build_remedy_if_different,
    find_replacement_remedy,
    is_short_value,
    join_shell_steps,
    list_commands_with_unhidden_exit_status,
    list_steps_still_needed_before,
    list_words_missing_in_others,
)

WINDOW = 40  # calls after a failure that are searched for its remedy


class NoRemedyReason(StrEnum):
    """How a failure without a remedy ended."""

    NOTHING = "nothing"  # neither the next call nor a similar one succeeded later
    BYPASSED = "bypassed"  # the next call did something else, and no similar one succeeded later
    LEFT = "left"  # a similar one succeeded, and why is unknown
    RETRIED = "retried"  # the same call succeeded unchanged: a transient error
    GUARDED = "guarded"  # what worked bypasses a guard, so it must not be learned


@dataclass(frozen=True, kw_only=True, slots=True)
class RemedySearchResult:
    remedy: Remedy | None
    ending: NoRemedyReason = NoRemedyReason.LEFT
    at: int = 0  # index of the call that succeeded; 0 if none did
    is_in_error: bool = False  # the error itself recommends the remedy
    candidates: tuple[Remedy, ...] = ()  # what else may have made it work; another session can confirm it


def find_remedy_in_later_calls(calls: Sequence[SessionCall], index: int) -> RemedySearchResult:
    """Align a failed call with the calls after it, and return the remedy or how it ended."""
    about = classify_error(calls[index].error)
    found = _find_first_remedy_or_ending(calls, index, about)
    candidates = tuple(_list_candidate_remedies(calls[index : index + 1 + WINDOW], about))
    # The line of the success had a step of its own, which may have made it work.
    steps = {step.words for step in calls[found.at].commands[:-1] if not is_read_only_command(step)}
    is_explained = (
        found.ending is NoRemedyReason.RETRIED
        and candidates
        and len(steps - {step.words for step in calls[index].commands}) > 0
    )
    return replace(found, candidates=candidates, ending=NoRemedyReason.LEFT if is_explained else found.ending)


def _find_first_remedy_or_ending(
    calls: Sequence[SessionCall], index: int, about: ClassifiedError
) -> RemedySearchResult:
    failed = calls[index]
    end = min(len(calls), index + 1 + WINDOW)
    ending = NoRemedyReason.NOTHING
    named: list[SessionCall] = []  # calls in between that ran what the error recommends
    for at in range(index + 1, end):
        later, between = calls[at], calls[index + 1 : at]
        named += (each for each in between[-1:] if _has_run_command_named_by_error(each, failed, about))
        has_got_further = _has_got_further(failed, later, about) or _has_later_call_overcome_error(
            calls, index, at, about
        )
        if later.name != failed.name or not has_got_further:
            continue
        if _has_same_goal(failed, later):
            ending = NoRemedyReason.LEFT
        elif (
            at == index + 1
            and (failed.is_read_only or not later.is_read_only)
            and not _has_next_attempt_same_error(failed, calls[at + 1 : end], about)
        ):
            ending = NoRemedyReason.BYPASSED
        if _is_same_call(failed, later) or (
            between
            and _is_same_program_with_other_flags(between[-1], failed)
            and _is_failed_call_extended(failed, later)
        ):
            found = (
                _find_preparation_remedy(failed, between, named, about)
                if later.turn == failed.turn
                else NoRemedyReason.RETRIED
            )
        elif _has_run_command_named_by_error(later, failed, about) and any(
            _has_same_goal(failed, each) for each in calls[at + 1 : end]
        ):
            continue  # a preparation; the retry itself comes later
        elif _is_possible_preparation_step(later, failed, about) and any(
            _is_failed_call_extended(failed, each) for each in calls[at + 1 : end]
        ):
            continue  # `cmake -B` before `cmake --build`, `touch x` before `cat x`
        elif named and _has_same_goal(failed, later):
            # The goal was reached after it, with other arguments.
            found = _build_preparation_remedy(failed, named, about)
        else:
            found = find_replacement_remedy(failed, later, between, about)
        if found is not None:
            return _accept_or_reject_remedy(found, about, at)
    return RemedySearchResult(remedy=None, ending=ending)


def _has_got_further(failed: SessionCall, later: SessionCall, about: ClassifiedError) -> bool:
    """Return whether a call succeeded, or got as far as the work where the failed one did not even start."""
    return later.has_worked or (
        later.has_reached_work and about.cause is not ErrorCause.WORK and not _is_same_call(failed, later)
    )


# A call with such an error was wrong in itself, so it may not have come as far as the failed one.
_EARLY_CAUSES = (ErrorCause.PROGRAM, ErrorCause.OPTION, ErrorCause.TRANSIENT)


def _has_later_call_overcome_error(calls: Sequence[SessionCall], index: int, at: int, about: ClassifiedError) -> bool:
    """Return whether a call with the same goal failed for another reason, the first error never came back, and what
    the call has more than the failed one is also in one that worked.
    """
    failed, later, rest = calls[index], calls[at], calls[at + 1 : index + 1 + WINDOW]
    if later.success is not False or not _has_same_goal(failed, later) or _is_same_call(failed, later):
        return False
    other = classify_error(later.error)
    if not other.has_text_beyond_exit_code or other.cause in _EARLY_CAUSES or other.signature == about.signature:
        return False
    added = set(later.command.split()) - set(failed.command.split())
    return not _has_next_attempt_same_error(failed, rest, about) and any(
        each.has_worked and _has_same_goal(failed, each) and added <= set(each.command.split()) for each in rest
    )


def _has_next_attempt_same_error(failed: SessionCall, later: Sequence[SessionCall], about: ClassifiedError) -> bool:
    """Return whether the first later call with the same goal fails with the same error."""
    again = next((each for each in later if each.name == failed.name and _has_same_goal(failed, each)), None)
    return again is not None and again.success is False and classify_error(again.error).signature == about.signature


def _accept_or_reject_remedy(found: Remedy | NoRemedyReason, about: ClassifiedError, at: int) -> RemedySearchResult:
    if isinstance(found, NoRemedyReason):
        return RemedySearchResult(remedy=None, ending=found, at=at)
    if found.bypasses_guard:
        return RemedySearchResult(remedy=None, ending=NoRemedyReason.GUARDED, at=at)
    is_in_error = _is_remedy_advised_by_error(found, about)
    may_teach = about.has_text_beyond_exit_code and (about.cause.can_have_remedy or is_in_error)
    if not may_teach or not found.is_short_and_safe_to_quote:
        return RemedySearchResult(remedy=None, ending=NoRemedyReason.LEFT, at=at)
    return RemedySearchResult(remedy=found, at=at, is_in_error=is_in_error)


def _is_remedy_advised_by_error(remedy: Remedy, about: ClassifiedError) -> bool:
    """Return whether the error message itself recommends the remedy."""
    match remedy.change:
        case RemedyChangeKind.FLAGS:
            return about.mentions_any_word(word for word in remedy.right if is_flag(word) and word not in remedy.wrong)
        case RemedyChangeKind.FIRST:
            return any(
                _is_command_in_error(each, about) for each in parse_shell_commands(quote_for_shell(remedy.right))
            )
        case _:
            return False


def _has_same_goal(failed: SessionCall, later: SessionCall) -> bool:
    """Return whether a call may have the same goal: the same program with the same first word."""
    wanted = failed.failing_command
    if wanted is None:
        return not failed.command
    return any(_get_program_and_target(each) == _get_program_and_target(wanted) for each in later.commands)


def _is_same_call(failed: SessionCall, later: SessionCall) -> bool:
    if failed.arguments_digest and failed.arguments_digest == later.arguments_digest and failed.cwd == later.cwd:
        return True
    if not failed.command or not later.command:
        return False
    wanted = failed.failing_command
    return wanted is not None and any(
        _make_command_run_key(each, wanted) == _make_command_run_key(wanted, wanted)
        for each in list_commands_with_unhidden_exit_status(later)
    )


def _is_failed_call_extended(failed: SessionCall, later: SessionCall) -> bool:
    """Return whether a call that worked is the failed one, perhaps with more options."""
    wanted = failed.failing_command
    return wanted is not None and any(
        each.runner_and_program_words == wanted.runner_and_program_words
        and each.place == wanted.place
        and not list_words_missing_in_others(wanted.args, each.args)
        for each in (list_commands_with_unhidden_exit_status(later) if later.has_worked else ())
    )


def _is_possible_preparation_step(later: SessionCall, failed: SessionCall, about: ClassifiedError) -> bool:
    """Return whether a call does something else than the failed one, so that it prepares it if that works later."""
    if _is_same_program_with_other_flags(later, failed):
        return True
    wanted = failed.failing_command
    if wanted is None or about.cause is ErrorCause.PROGRAM:
        return False
    return wanted.program not in (each.program for each in later.commands)


def _is_same_program_with_other_flags(act: SessionCall, failed: SessionCall) -> bool:
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


def _make_command_run_key(command: ShellCommand, failed: ShellCommand) -> tuple[object, ...]:
    return command.words, command.env, command.place, list_steps_still_needed_before(command, failed)


# Candidates: everything that came between the failure and the next success


def _list_candidate_remedies(calls: Sequence[SessionCall], about: ClassifiedError) -> Iterator[Remedy]:
    """Yield each step and each flag that the next call with the same goal which worked had before it or in addition."""
    failed, rest = calls[0], calls[1:]
    wanted = failed.failing_command
    at = next((at for at, each in enumerate(rest) if each.has_worked and _has_same_goal(failed, each)), None)
    if wanted is None or at is None or about.cause is ErrorCause.WORK or not about.has_text_beyond_exit_code:
        return
    line = rest[at].commands
    last = next(at for at, each in enumerate(line) if _get_program_and_target(each) == _get_program_and_target(wanted))
    between = [
        step
        for call in rest[:at]
        if call.has_worked and not call.is_edit and call.turn == failed.turn
        for step in call.commands
    ]
    base = wanted.runner_and_program_words if about.cause is ErrorCause.PROGRAM else wanted.program_and_subcommand_words
    found: list[Remedy | None] = []
    for step in (*(each for each in between if _is_typical_preparation(each)), *line[:last]):
        words = (*step.env, *step.words)
        if is_read_only_command(step) or words in wanted.before:
            continue
        if changes_shell_state(words):
            found.append(build_remedy_if_different(RemedyChangeKind.INSTEAD, about, base, (*words, "&&", *base)))
        elif _get_program_and_target(step) != _get_program_and_target(wanted):
            found.append(build_remedy_if_different(RemedyChangeKind.FIRST, about, base, words))
    if line[last].place != wanted.place:
        moved = (*build_cd_prefix(wanted.place), *base), ("cd", line[last].place or ".", "&&", *base)
        found.append(build_remedy_if_different(RemedyChangeKind.PLACE, about, *moved))
    found += (
        build_remedy_if_different(RemedyChangeKind.VARIABLE, about, base, (each, *base))
        for each in line[last].env
        if each not in wanted.env
    )
    # What was edited in between may have helped as well as a flag.
    if about.cause.can_have_remedy and not any(call.is_edit for call in rest[:at]):
        found += _list_remedies_for_added_flags(wanted, line[last], about)
    yield from (
        remedy
        for remedy in dict.fromkeys(filter(None, found))
        if remedy.is_short_and_safe_to_quote and not remedy.bypasses_guard
    )


def _list_remedies_for_added_flags(
    failed: ShellCommand, later: ShellCommand, about: ClassifiedError
) -> Iterator[Remedy | None]:
    """Yield a remedy for each flag that the later command has in addition, with its value."""
    if not set(failed.non_flag_args) <= set(later.args):
        return  # it did something else, such as giving up with `--abort`
    base, new = failed.program_and_subcommand_words, list_words_missing_in_others(later.args, failed.args)
    for at, word in enumerate(new):
        if is_flag(word) and not list_read_only_flags(later):
            value = new[at + 1 : at + 2] if new[at + 1 : at + 2] and not is_flag(new[at + 1]) else ()
            yield build_remedy_if_different(RemedyChangeKind.FLAGS, about, base, (*base, word, *value))


# Preparation: the same call, after another one


def _find_preparation_remedy(
    failed: SessionCall, between: Sequence[SessionCall], named: Sequence[SessionCall], about: ClassifiedError
) -> Remedy | NoRemedyReason | None:
    if named:
        return _build_preparation_remedy(failed, named, about)
    acts = [each for each in between if each.has_worked and not each.is_read_only]
    told = [each for each in between if each.has_worked and _is_response_to_error(each, failed, about)]
    if not acts and not told:
        return NoRemedyReason.RETRIED
    if told:
        return _build_preparation_remedy(failed, told[-1:], about)
    if (
        len(acts) == 1
        and not acts[0].is_edit
        and (_has_typical_preparation_word(acts[0]) or _is_same_program_with_other_flags(acts[0], failed))
    ):
        return _build_preparation_remedy(failed, acts, about)
    return NoRemedyReason.LEFT


def _has_run_command_named_by_error(call: SessionCall, failed: SessionCall, about: ClassifiedError) -> bool:
    """Return whether the call ran what the error message says to run."""
    wanted = failed.failing_command
    if wanted is None or not call.has_worked:
        return False
    return any(
        _is_command_in_error(each, about) and _get_program_and_target(each) != _get_program_and_target(wanted)
        for each in call.commands
    )


def _is_command_in_error(command: ShellCommand, about: ClassifiedError) -> bool:
    first, both = command.args[:1], command.args[:2]
    names = {" ".join((*command.runner_and_program_words, *first)), " ".join((command.program, *first))}
    # `pnpm prisma generate` is "prisma generate" there.
    if len(both) == 2 and all(map(SUBCOMMAND.fullmatch, both)):
        names.add(" ".join(both))
    return bool(first) and about.mentions_any_word(names)


def _get_program_and_target(command: ShellCommand) -> tuple[str, ...]:
    """Return the program and its first target, whatever runner starts it and from which directory."""
    return command.program, *(posixpath.basename(word) or word for word in command.non_flag_args[:1])


def _build_preparation_remedy(
    failed: SessionCall, chosen: Sequence[SessionCall], about: ClassifiedError
) -> Remedy | NoRemedyReason | None:
    wanted = failed.failing_command
    wrong = wanted.program_and_subcommand_words if wanted else ()
    # `cmake --build` is a subcommand by another name; the namespace of `kubectl -n x get pods` is none.
    if wanted and len(wrong) == 1:
        flags = [word for word in wanted.args if is_flag(word)]
        wrong += tuple(flags[:1]) if flags and (len(flags[0]) > 2 or len(wanted.non_flag_args) < 2) else ()
    tool = "" if wanted else failed.name
    last = chosen[-1]
    if not last.command:
        shared = [
            key for key, value in last.unshortened_arguments.items() if value in failed.unshortened_arguments.values()
        ]
        right = (last.name, *(() if shared else _format_short_arguments(last)))
        return build_remedy_if_different(RemedyChangeKind.FIRST, about, wrong, right, tool=tool)
    steps = [each for call in chosen for each in call.commands if each.program not in ("echo", "ls", "pwd")]
    if not steps:
        return NoRemedyReason.LEFT
    moved = build_cd_prefix(steps[0].place) if not wanted or steps[0].place != wanted.place else ()
    right = (*moved, *join_shell_steps([(*each.env, *each.words) for each in steps])[:-1])
    return build_remedy_if_different(RemedyChangeKind.FIRST, about, wrong, right, tool=tool)


def _format_short_arguments(call: SessionCall) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in call.unshortened_arguments.items() if is_short_value(value))


_INSTALLS = make_word_set("install add sync ci i get require restore bundle setup ensure activate use enable")
_STARTS = make_word_set("up start serve run restart open launch init")
_PREPARES = (
    _INSTALLS
    | _STARTS
    | make_word_set(
        "create mkdir migrate build generate login chmod pull fetch clone bootstrap compile unlock cp ln update"
    )
    | make_word_set("upgrade rm remove stop prune clean kill pkill killall fuser kinit renew refresh reset mount load")
    | make_word_set("scancel source export auth sync push register reload")
)


def _has_typical_preparation_word(call: SessionCall) -> bool:
    return any(map(_is_typical_preparation, call.commands))


def _is_typical_preparation(command: ShellCommand) -> bool:
    words = {part for word in command.words for part in (word, *_split_target_into_parts(word))}
    return bool(words & _PREPARES) or any("activate" in word or "login" in word for word in words)


def _split_target_into_parts(word: str) -> Sequence[str]:
    """Return the parts of a target or subcommand, such as `db:migrate` or `update-kubeconfig`."""
    return re.split(r"[:.]", word) if is_flag(word) else re.split(r"[:.-]", word)


def _is_response_to_error(act: SessionCall, failed: SessionCall, about: ClassifiedError) -> bool:
    """Return whether a call addresses what the error message says."""
    if not act.command:
        return about.cause is ErrorCause.OTHER and about.mentions_any_word([act.name, act.name.lower()])
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
            return is_allowed and about.mentions_any_word(word for word in words - known if len(word) > 3)
