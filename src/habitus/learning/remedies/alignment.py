"""Alignment of a failed call with a later one that did the same thing, or with the one after which it worked. Pure."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from habitus.learning.remedies.calls import CUT, LOOKING_FLAGS, Call
from habitus.learning.remedies.commands import Command, is_flag, plain, word_set, written
from habitus.learning.remedies.troubles import Cause, Trouble, trouble

WINDOW = 40  # calls after a failure within which its remedy is looked for
LONGEST = 160  # characters of a remedy; what is longer is no habit but a piece of work


class Change(StrEnum):
    """How what worked differs from what failed."""

    INSTEAD = "instead"  # another program, or the same through something else
    PLACE = "place"
    VARIABLE = "variable"
    FLAGS = "flags"
    NAME = "name"  # another word: a subcommand, a script, a path
    ARGUMENT = "argument"  # of a tool that is no shell
    FIRST = "first"  # the same, after another call


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """What failed and what worked, in the words that matter for it."""

    change: Change
    cause: Cause
    about: str
    wrong: tuple[str, ...]
    right: tuple[str, ...]
    tool: str = ""  # of a call that is no shell's


class Ending(StrEnum):
    """What became of a failure that has no remedy."""

    LEFT = "left"  # nothing later did the same thing
    RETRIED = "retried"  # the same worked without anything in between: it was not the call
    GUARDED = "guarded"  # what worked goes round a guard, which nobody should learn


@dataclass(frozen=True, kw_only=True, slots=True)
class Aligned:
    remedy: Remedy | None
    ending: Ending = Ending.LEFT
    at: int = 0  # the index of the call that worked; 0 where none did


def aligned(calls: Sequence[Call], index: int) -> Aligned:
    """What the calls after a failed one show about it."""
    failed = calls[index]
    about = trouble(failed.error)
    end = min(len(calls), index + 1 + WINDOW)
    for at in range(index + 1, end):
        later = calls[at]
        if not later.has_worked or later.name != failed.name:
            continue
        between = calls[index + 1 : at]
        if _is_same(failed, later, about):
            found = _what_came_first(failed, between, about) if later.turn == failed.turn else Ending.RETRIED
        else:
            found = _instead(failed, later, between, about)
        if found is not None:
            return _judged(found, about, at)
    return Aligned(remedy=None)


def _judged(found: Remedy | Ending, about: Trouble, at: int) -> Aligned:
    if isinstance(found, Ending):
        return Aligned(remedy=None, ending=found, at=at)
    if not about.cause.may_teach or len(written((*found.wrong, *found.right))) > LONGEST or _is_odd(found.right):
        return Aligned(remedy=None, at=at)
    if _goes_round(found):
        return Aligned(remedy=None, ending=Ending.GUARDED, at=at)
    return Aligned(remedy=found, at=at)


_ODD = re.compile(r"://|\$\(|`|\[redacted|\n|[<>]|…")  # fetched from elsewhere, computed, secret, or cut


def _is_odd(words: Sequence[str]) -> bool:
    return any(_ODD.search(word) for word in words)


_GUARDS = word_set(
    "sudo doas --force -f --force-with-lease --no-verify --insecure -k --no-check-certificate --hard --privileged",
    "--break-system-packages --allow-root --no-sandbox --skip-checks --disable-warnings --trusted-host --no-gpg-sign",
    "777 -rf -fr --legacy-peer-deps --no-strict --yolo --unsafe-perm --allow-unauthenticated --nodeps",
)


def _goes_round(remedy: Remedy) -> bool:
    added = set(remedy.right) - set(remedy.wrong)
    return any(word.partition("=")[0] in _GUARDS or "dangerous" in word or "StrictHostKey" in word for word in added)


def _is_same(failed: Call, later: Call, about: Trouble) -> bool:
    if failed.digest and failed.digest == later.digest and failed.cwd == later.cwd:
        return True
    if not failed.command or not later.command:
        return False
    wanted = focus(failed, about)
    return wanted is not None and any(_as_run(each) == _as_run(wanted) and each.is_last for each in later.commands)


def _as_run(command: Command) -> tuple[object, ...]:
    return command.words, command.env, command.place, command.before


def focus(failed: Call, about: Trouble) -> Command | None:
    """The command of a line that the error is about."""
    found = [each for each in failed.commands if each.program not in ("echo", "sleep", "true")]
    if about.cause is Cause.PROGRAM:
        for each in found:
            if any(plain(word) == plain(about.about) for word in each.head):
                return each
    for each in found:
        if re.search(rf"(?m)^(?:\w+: )?{re.escape(each.program)}\b.{{0,20}}:", failed.error):
            return each
    return found[-1] if found else None


# The same thing in another way


def _instead(failed: Call, later: Call, between: Sequence[Call], about: Trouble) -> Remedy | Ending | None:
    is_next = failed.turn == later.turn and all(each.only_looks or not each.has_worked for each in between)
    if not failed.command:
        return _other_argument(failed, later, about, is_next=is_next)
    wanted = focus(failed, about)
    if wanted is None:
        return None
    found = (_other_command(wanted, each, about, is_next=is_next) for each in later.commands if each.is_last)
    return next(filter(None, found), None)


def _other_command(failed: Command, later: Command, about: Trouble, *, is_next: bool) -> Remedy | None:
    if set(later.args) & LOOKING_FLAGS - set(failed.args):
        return None  # asking how it is used is not doing it
    if about.cause is Cause.PROGRAM and any(plain(word) == plain(about.about) for word in failed.head):
        return _other_program(failed, later, about)
    if _is_through_interpreter(failed, later):
        return _remedy(Change.INSTEAD, about, failed.words[:1], later.words[:2])
    if failed.program != later.program:
        return None
    differing = [
        what
        for what, is_same in (
            ("before", failed.before == later.before),
            ("place", failed.place == later.place),
            ("env", failed.env == later.env),
            ("head", failed.head == later.head),
            ("args", failed.args == later.args),
        )
        if not is_same
    ]
    is_through_other = differing == ["head", "args"] and failed.targets == later.targets
    if len(differing) != 1 and not is_through_other:
        return None
    if differing == ["args"]:
        return _other_words(failed, later, about, is_next=is_next)
    if not is_next and about.cause is Cause.OTHER:
        return None
    base = _base(later)
    match differing[0]:
        case "before" if later.before[: len(failed.before)] == failed.before:
            steps = _joined(later.before[len(failed.before) :])
            return _remedy(Change.INSTEAD, about, failed.head, (*steps, *later.head))
        case "place":
            return _remedy(Change.PLACE, about, (*_moved(failed.place), *base), ("cd", later.place or ".", "&&", *base))
        case "env" if added := tuple(each for each in later.env if each not in failed.env):
            return _remedy(Change.VARIABLE, about, base, (*added, *base))
        case "head":
            return _remedy(Change.INSTEAD, about, failed.head, later.head)
    return None


def _is_through_interpreter(failed: Command, later: Command) -> bool:
    """`bash run.sh` for `./run.sh`."""
    if not failed.words[0].startswith(("./", "/")) or failed.words[1:] != later.words[2:]:
        return False
    return list(map(posixpath.normpath, later.words[1:2])) == [posixpath.normpath(failed.words[0])]


def _other_program(failed: Command, later: Command, about: Trouble) -> Remedy | None:
    """For a program that is not there, the way it is run is all that matters."""
    if failed.program == later.program and (failed.head, failed.before) != (later.head, later.before):
        return _remedy(Change.INSTEAD, about, failed.head, (*_joined(later.before), *later.head))
    if failed.program == later.program and failed.env != later.env:
        added = tuple(each for each in later.env if each not in failed.env)
        return _remedy(Change.VARIABLE, about, failed.head, (*added, *later.head)) if added else None
    if failed.targets and failed.targets == later.targets and failed.place == later.place:
        flags = tuple(word for word in later.args if is_flag(word))
        return _remedy(Change.INSTEAD, about, failed.head, (*later.head, *flags))
    shared = failed.words[1:]
    if (
        shared
        and shared == later.words[-len(shared) :]
        and SequenceMatcher(None, failed.program, "".join(later.words[:2])).ratio() > 0.8
    ):
        return _remedy(Change.INSTEAD, about, failed.head, later.words[: -len(shared)])  # `docker compose`
    return None


def _other_words(failed: Command, later: Command, about: Trouble, *, is_next: bool) -> Remedy | None:
    gone, new = _without(failed.args, later.args), _without(later.args, failed.args)
    lost, came = _loose(failed.args, gone), _loose(later.args, new)
    base = _base(later)
    if not lost and not came:
        is_told = about.about in gone or about.names((*gone, *new))
        return _remedy(Change.FLAGS, about, (*base, *gone), (*base, *new)) if is_next or is_told else None
    if len(lost) == len(came) == 1 and len(gone) == len(new) == 1:
        return _other_name(failed, later, lost[0], came[0], about)
    if came and not lost and about.names(new):
        return _remedy(Change.FLAGS, about, (*base, *gone), (*base, *(word for word in new if word not in base)))
    return None


def _other_name(failed: Command, later: Command, lost: str, came: str, about: Trouble) -> Remedy | None:
    if lost != about.about and not about.names([lost]):
        return None
    is_moved = posixpath.basename(lost) == posixpath.basename(came)
    is_suggested = about.names([came])
    is_close = about.cause is Cause.OPTION and SequenceMatcher(None, lost, came).ratio() >= 0.6
    if not (is_moved or is_suggested or is_close):
        return None
    return _remedy(Change.NAME, about, _up_to(failed, lost), _up_to(later, came))


def _other_argument(failed: Call, later: Call, about: Trouble, *, is_next: bool) -> Remedy | None:
    if CUT in (failed.summary[-1:], later.summary[-1:]):
        return None
    before, after = failed.whole, later.whole
    differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    if len(differing) != 1:
        return None
    key = differing[0]
    lost, came = before.get(key), after.get(key)
    if not (_is_short(lost) and _is_short(came)):
        return None
    is_told = about.names([str(each) for each in (came, key) if each is not None])
    is_near = isinstance(lost, str) and isinstance(came, str) and _is_near(lost, came)
    has_rest = len({**before, **after}) > 1
    if not (is_near and about.names([str(lost)])) and not (has_rest and is_told and is_next):
        return None
    return Remedy(
        change=Change.ARGUMENT,
        cause=about.cause,
        about=about.about,
        wrong=() if lost is None else (f"{key}={lost}",),
        right=() if came is None else (f"{key}={came}",),
        tool=failed.name,
    )


def _is_short(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= 80 and value.count(" ") < 3 and "\n" not in value
    return value is None or isinstance(value, bool | int | float)


def _is_near(one: str, other: str) -> bool:
    is_moved = posixpath.basename(one) == posixpath.basename(other) and "/" in one + other
    return is_moved or SequenceMatcher(None, one, other).ratio() >= 0.8


# The same thing, after something else


def _what_came_first(failed: Call, between: Sequence[Call], about: Trouble) -> Remedy | Ending | None:
    acts = [each for each in between if each.has_worked and not each.only_looks]
    told = [each for each in between if each.has_worked and _is_for(each, failed, about)]
    if not acts and not told:
        return Ending.RETRIED
    if told:
        chosen = told[-1]
    elif len(acts) == 1 and not acts[0].edits and _prepares(acts[0]):
        chosen = acts[0]
    else:
        return Ending.LEFT
    return _first(failed, chosen, about)


def _first(failed: Call, chosen: Call, about: Trouble) -> Remedy | Ending:
    wanted = focus(failed, about)
    wrong = _base(wanted) if wanted else ()
    tool = "" if wanted else failed.name
    if not chosen.command:
        shared = [key for key, value in chosen.whole.items() if value in failed.whole.values()]
        right = (chosen.name, *(() if shared else _spelled(chosen)))
        return Remedy(change=Change.FIRST, cause=about.cause, about=about.about, wrong=wrong, right=right, tool=tool)
    steps = [each for each in chosen.commands if each.program not in ("echo", "ls", "pwd")]
    if not steps:
        return Ending.LEFT
    moved = _moved(steps[0].place) if not wanted or steps[0].place != wanted.place else ()
    right = (*moved, *_joined([(*each.env, *each.words) for each in steps])[:-1])
    return Remedy(change=Change.FIRST, cause=about.cause, about=about.about, wrong=wrong, right=right, tool=tool)


def _spelled(call: Call) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in call.whole.items() if _is_short(value))


_INSTALLS = word_set("install add sync ci i get require restore bundle setup ensure activate use enable")
_STARTS = word_set("up start serve run restart open launch init")
_PREPARES = (
    _INSTALLS
    | _STARTS
    | word_set("create mkdir migrate build generate login chmod pull fetch clone bootstrap compile unlock cp ln")
)


def _prepares(call: Call) -> bool:
    words = {word for each in call.commands for word in each.words}
    return bool(words & _PREPARES) or any("activate" in word for word in words)


def _is_for(act: Call, failed: Call, about: Trouble) -> bool:
    """Whether a call answers what the error says."""
    if not act.command:
        return about.cause is Cause.OTHER and about.names([act.name, act.name.lower()])
    if act.only_looks:
        return False
    words = {word for each in act.commands for word in each.words}
    named = posixpath.basename(about.about)
    speaks_of_it = bool(named) and any(re.search(rf"(?<!\w){re.escape(named)}(?!\w)", word) for word in words)
    match about.cause:
        case Cause.PROGRAM | Cause.MODULE:
            return bool(words & _INSTALLS) or any("activate" in word for word in words)
        case Cause.SERVICE:
            return bool(words & _STARTS)
        case Cause.FILE | Cause.PERMISSION | Cause.OPTION:
            return speaks_of_it and not act.edits
        case _:
            known = {word for each in failed.commands for word in each.words}
            return not act.edits and about.names(word for word in words - known if len(word) > 3)


# Words


def _remedy(change: Change, about: Trouble, wrong: Sequence[str], right: Sequence[str]) -> Remedy | None:
    if tuple(wrong) == tuple(right):
        return None
    return Remedy(change=change, cause=about.cause, about=about.about, wrong=tuple(wrong), right=tuple(right))


_SUBCOMMAND = re.compile(r"[a-z][\w:-]*(?:\.\w{1,4})?")


def _base(command: Command) -> tuple[str, ...]:
    """The program and its subcommands: what stays when the arguments vary."""
    base = list(command.head)
    for word in command.args[:2]:
        if not _SUBCOMMAND.fullmatch(word):
            break
        base.append(word)
    return tuple(base)


def _up_to(command: Command, word: str) -> tuple[str, ...]:
    """The command as far as a word, without flags."""
    args = command.args[: command.args.index(word)]
    return (*command.head, *(each for each in args if not is_flag(each)), word)


def _without(words: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    left = Counter(words) - Counter(others)
    return tuple(word for word in dict.fromkeys(words) if left[word])


def _loose(args: Sequence[str], changed: Sequence[str]) -> list[str]:
    """Of the changed words those that are no flags, nor the value of a changed flag."""
    return [
        word
        for index, word in enumerate(args)
        if word in changed
        and not is_flag(word)
        and not (index and args[index - 1] in changed and is_flag(args[index - 1]))
    ]


def _joined(steps: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(word for step in steps for word in (*step, "&&"))


def _moved(place: str) -> tuple[str, ...]:
    return ("cd", place, "&&") if place else ()
