"""Replacements: what a call that worked did differently from a failed one with the same goal. Pure functions."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from habitus.learning.detectors.error_signatures import ClassifiedError, ErrorCause
from habitus.learning.remedies.calls import (
    CUT_MARK,
    SUBCOMMAND,
    Remedy,
    RemedyChangeKind,
    SessionCall,
    ShellCommand,
    get_program_name,
    is_flag,
    is_read_only_command,
    list_read_only_flags,
)

_MAX_SHARED = 4
_PLAIN_OPTION = re.compile(r"[\w.,/+=-]{1,30}")


def find_replacement_remedy(
    failed: SessionCall, later: SessionCall, between: Sequence[SessionCall], about: ClassifiedError
) -> Remedy | None:
    is_next = failed.turn == later.turn and all(each.is_read_only or not each.has_worked for each in between)
    if not failed.command:
        return _find_changed_argument_remedy(failed, later, about, is_next=is_next)
    wanted = failed.failing_command
    if wanted is None:
        return None
    found = (
        _find_changed_command_remedy(wanted, each, about, is_next=is_next)
        for each in list_commands_with_unhidden_exit_status(later)
    )
    return next(filter(None, found), None)


def list_commands_with_unhidden_exit_status(call: SessionCall) -> list[ShellCommand]:
    return [each for each in call.commands if each.is_last]


def list_steps_still_needed_before(command: ShellCommand, failed: ShellCommand) -> tuple[tuple[str, ...], ...]:
    """Return the steps before it on its line, without those that a line which failed at it had already completed."""
    count = len(command.before)
    is_done = count < len(failed.before) and command.before == failed.before[len(failed.before) - count :]
    return failed.before if is_done else command.before


def _find_changed_command_remedy(
    failed: ShellCommand, later: ShellCommand, about: ClassifiedError, *, is_next: bool
) -> Remedy | None:
    if list_read_only_flags(later) ^ list_read_only_flags(failed):
        return None  # asking for help is not doing it, and what a check found is no failure of it
    if about.cause is ErrorCause.PROGRAM and any(
        get_program_name(word) == get_program_name(about.subject) for word in failed.runner_and_program_words
    ):
        return _find_changed_program_remedy(failed, later, about, is_next=is_next)
    if _adds_interpreter(failed, later):
        return build_remedy_if_different(RemedyChangeKind.INSTEAD, about, failed.words[:1], later.words[:2])
    if is_next and _wraps_failed_command(failed, later):
        return build_remedy_if_different(
            RemedyChangeKind.INSTEAD,
            about,
            failed.program_and_subcommand_words,
            (*later.words[: -len(failed.words)], *failed.program_and_subcommand_words),
        )
    if failed.program != later.program:
        is_same_task = bool(failed.words[1:]) and failed.words[1:] == later.words[1:] and failed.place == later.place
        is_known_kind = is_next and is_same_task and not is_flag(failed.words[1])
        if not is_known_kind:
            return None
        # A program alone says too little: `bash` for `sh` is right for this script.
        wrong, right = (
            each.program_and_subcommand_words if len(each.program_and_subcommand_words) > 1 else each.words[:2]
            for each in (failed, later)
        )
        return build_remedy_if_different(RemedyChangeKind.INSTEAD, about, wrong, right)
    differing = [
        what
        for what, is_same in (
            ("before", failed.before == list_steps_still_needed_before(later, failed)),
            ("place", failed.place == later.place),
            ("env", failed.env == later.env),
            ("head", failed.runner_and_program_words == later.runner_and_program_words),
            ("args", failed.args == later.args),
        )
        if not is_same
    ]
    # Another runner may need fewer words: `-h localhost` means nothing inside a container.
    is_through_other = differing == ["head", "args"] and (
        failed.non_flag_args == later.non_flag_args or not list_words_missing_in_others(later.args, failed.args)
    )
    if len(differing) != 1 and not is_through_other:
        return None
    if differing == ["args"]:
        return _find_changed_words_remedy(failed, later, about, is_next=is_next)
    if not is_next and about.cause is ErrorCause.OTHER:
        return None
    base = later.program_and_subcommand_words
    match differing[0]:
        case "before" if later.before[: len(failed.before)] == failed.before:
            steps = join_shell_steps(later.before[len(failed.before) :])
            return build_remedy_if_different(
                RemedyChangeKind.INSTEAD, about, failed.program_and_subcommand_words, (*steps, *base)
            )
        case "place":
            return build_remedy_if_different(
                RemedyChangeKind.PLACE,
                about,
                (*build_cd_prefix(failed.place), *base),
                ("cd", later.place or ".", "&&", *base),
            )
        case "env" if added := tuple(each for each in later.env if each not in failed.env):
            return build_remedy_if_different(RemedyChangeKind.VARIABLE, about, base, (*added, *base))
        case "head":
            return build_remedy_if_different(
                RemedyChangeKind.INSTEAD, about, failed.runner_and_program_words, later.runner_and_program_words
            )
    return None


def _wraps_failed_command(failed: ShellCommand, later: ShellCommand) -> bool:
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


def _adds_interpreter(failed: ShellCommand, later: ShellCommand) -> bool:
    """`bash run.sh` for `./run.sh`."""
    if not failed.words[0].startswith(("./", "/")) or failed.words[1:] != later.words[2:]:
        return False
    return list(map(posixpath.normpath, later.words[1:2])) == [posixpath.normpath(failed.words[0])]


def _find_changed_program_remedy(
    failed: ShellCommand, later: ShellCommand, about: ClassifiedError, *, is_next: bool
) -> Remedy | None:
    """For a missing program only the way it is started matters."""
    if failed.program == later.program and (failed.runner_and_program_words, failed.before) != (
        later.runner_and_program_words,
        later.before,
    ):
        return build_remedy_if_different(
            RemedyChangeKind.INSTEAD,
            about,
            failed.runner_and_program_words,
            (*join_shell_steps(later.before), *later.runner_and_program_words),
        )
    if failed.program == later.program and failed.env != later.env:
        added = tuple(each for each in later.env if each not in failed.env)
        return (
            build_remedy_if_different(
                RemedyChangeKind.VARIABLE,
                about,
                failed.runner_and_program_words,
                (*added, *later.runner_and_program_words),
            )
            if added
            else None
        )
    if failed.non_flag_args and failed.non_flag_args == later.non_flag_args and failed.place == later.place:
        flags = tuple(word for word in later.args if is_flag(word))
        return build_remedy_if_different(
            RemedyChangeKind.INSTEAD, about, failed.runner_and_program_words, (*later.runner_and_program_words, *flags)
        )
    shared = failed.words[1:]
    if (
        shared
        and shared == later.words[-len(shared) :]
        and SequenceMatcher(None, failed.program, "".join(later.words[:2])).ratio() > 0.8
    ):
        return build_remedy_if_different(
            RemedyChangeKind.INSTEAD, about, failed.runner_and_program_words, later.words[: -len(shared)]
        )  # `docker compose`
    wanted = [word for word in failed.args if not is_flag(word) and len(word) > 2]
    if is_next and wanted and all(any(word in other for other in later.words[1:]) for word in wanted):
        return build_remedy_if_different(
            RemedyChangeKind.INSTEAD, about, failed.runner_and_program_words, later.runner_and_program_words
        )  # `find src -name '*x*'` for `fd x src`
    return None


def _find_changed_words_remedy(
    failed: ShellCommand, later: ShellCommand, about: ClassifiedError, *, is_next: bool
) -> Remedy | None:
    gone, new = (
        list_words_missing_in_others(failed.args, later.args),
        list_words_missing_in_others(later.args, failed.args),
    )
    lost, came = _list_new_plain_words(failed.args, later.args), _list_new_plain_words(later.args, failed.args)
    base = later.program_and_subcommand_words
    kept = tuple(word for word in later.args if "://" in word and word not in (*base, *new))
    if not lost and not came:
        is_told = about.subject in gone or about.mentions_any_word((*gone, *new))
        found = build_remedy_if_different(RemedyChangeKind.FLAGS, about, (*base, *gone, *kept), (*base, *new, *kept))
        shared = _list_short_options([word for word in failed.args if word not in (*base, *gone, *kept)])
        return replace(found, shared_options=shared) if found and (is_next or is_told) else None
    if len(lost) == len(came) == 1 and len(gone) == len(new) == 1:
        return _find_changed_name_remedy(failed, later, lost[0], came[0], about)
    if (
        len(came) == 1
        and not gone
        and new == tuple(came)
        and (subcommand := _find_command_with_added_subcommand(failed, later, came[0]))
    ):
        is_told = about.mentions_any_word(came) or (is_next and about.cause is ErrorCause.OPTION)
        return (
            build_remedy_if_different(RemedyChangeKind.INSTEAD, about, failed.program_and_subcommand_words, subcommand)
            if is_told
            else None
        )
    if came and not lost and about.mentions_any_word(new):
        added = (word for word in new if word not in base)
        return build_remedy_if_different(
            RemedyChangeKind.FLAGS, about, (*failed.program_and_subcommand_words, *gone, *kept), (*base, *added, *kept)
        )
    return None


def _list_short_options(words: Sequence[str]) -> tuple[str, ...]:
    """Return the options among the words, each with the word after it; none if they are many, or odd ones."""
    found = [
        word
        for before, word in zip(("", *words), words, strict=False)
        if is_flag(word) or (is_flag(before) and "=" not in before)
    ]
    return tuple(found) if len(found) <= _MAX_SHARED and all(_PLAIN_OPTION.fullmatch(word) for word in found) else ()


def _find_command_with_added_subcommand(failed: ShellCommand, later: ShellCommand, came: str) -> tuple[str, ...]:
    """Return the command with the subcommand that was added; empty if the added word is a target."""
    base = failed.program_and_subcommand_words
    at = later.args.index(came)
    reach = len(base) - len(failed.runner_and_program_words) + 1
    return (
        later.words[: len(later.runner_and_program_words) + reach] if at < reach and SUBCOMMAND.fullmatch(came) else ()
    )


def _find_changed_name_remedy(
    failed: ShellCommand, later: ShellCommand, lost: str, came: str, about: ClassifiedError
) -> Remedy | None:
    if lost != about.subject and not about.mentions_any_word([lost]):
        return None
    is_moved = posixpath.basename(lost) == posixpath.basename(came)
    is_suggested = about.mentions_any_word([came])
    is_close = about.cause is ErrorCause.OPTION and SequenceMatcher(None, lost, came).ratio() >= 0.6
    if not (is_moved or is_suggested or is_close):
        return None
    return build_remedy_if_different(
        RemedyChangeKind.NAME, about, _cut_after_word(failed, lost), _cut_after_word(later, came)
    )


def _find_changed_argument_remedy(
    failed: SessionCall, later: SessionCall, about: ClassifiedError, *, is_next: bool
) -> Remedy | None:
    if CUT_MARK in (failed.arguments_summary[-1:], later.arguments_summary[-1:]):
        return None
    before, after = failed.unshortened_arguments, later.unshortened_arguments
    differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    if len(differing) != 1:
        return None
    key = differing[0]
    lost, came = before.get(key), after.get(key)
    if not (is_short_value(lost) and is_short_value(came)):
        return None
    is_told = about.mentions_any_word([str(each) for each in (came, key) if each is not None])
    is_near = isinstance(lost, str) and isinstance(came, str) and _is_similar_name(lost, came)
    has_rest = len({**before, **after}) > 1
    if not (is_near and about.mentions_any_word([str(lost)])) and not (has_rest and is_told and is_next):
        return None
    wrong, right = (() if value is None else (f"{key}={value}",) for value in (lost, came))
    return build_remedy_if_different(RemedyChangeKind.ARGUMENT, about, wrong, right, tool=failed.name)


def is_short_value(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= 80 and value.count(" ") < 3 and "\n" not in value
    return value is None or isinstance(value, bool | int | float)


def _is_similar_name(one: str, other: str) -> bool:
    is_moved = posixpath.basename(one) == posixpath.basename(other) and "/" in one + other
    return is_moved or SequenceMatcher(None, one, other).ratio() >= 0.8


def build_remedy_if_different(
    change: RemedyChangeKind, about: ClassifiedError, wrong: Sequence[str], right: Sequence[str], *, tool: str = ""
) -> Remedy | None:
    """Return the remedy; None if nothing differs."""
    wrong, right = tuple(wrong), tuple(right)
    if wrong == right:
        return None
    says = about.longest_plain_word_run if about.cause in (ErrorCause.OTHER, ErrorCause.TRANSIENT) else ""
    return Remedy(change=change, cause=about.cause, about=about.subject, wrong=wrong, right=right, tool=tool, says=says)


def _cut_after_word(command: ShellCommand, word: str) -> tuple[str, ...]:
    """Return the command up to a word, without flags except the one whose value it may be."""
    at = command.args.index(word)
    args = command.args[:at]
    return (*command.runner_and_program_words, *(each for each in args[:-1] if not is_flag(each)), *args[-1:], word)


def list_words_missing_in_others(words: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word, is_new in _pair_words_with_newness(words, others) if is_new)


def _pair_words_with_newness(words: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each word and whether the others lack it.

    Of one that occurs again the value of a new flag is new (`-n api get api`), else the last (`plan -out plan`).
    """
    new = Counter(words) - Counter(others)
    places = sorted(range(len(words)), reverse=True)
    flags = {at for at, word in enumerate(words) if is_flag(word) and word not in others}
    chosen = set[int]()
    for at in (*(at for at in places if at - 1 in flags), *places):
        if at not in chosen and new[words[at]] > 0:
            new[words[at]] -= 1
            chosen.add(at)
    for at, word in enumerate(words):
        yield word, at in chosen


def _list_new_plain_words(args: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the new words that are neither flags nor values of new flags."""
    found: list[str] = []
    after_flag = False
    for word, is_new in _pair_words_with_newness(args, others):
        after_flag = is_new and (after_flag or is_flag(word))
        if is_new and not after_flag:
            found.append(word)
    return found


def join_shell_steps(steps: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(word for step in steps for word in (*step, "&&"))


def build_cd_prefix(place: str) -> tuple[str, ...]:
    return ("cd", place, "&&") if place else ()
