"""Parses a typed line into a message or a slash command. Pure functions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from habitus.errors import Invalid, NotFound
from habitus.skills import names


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """Usage and help of a slash command."""

    usage: str
    help: str


COMMANDS: Mapping[str, Command] = {
    "help": Command(usage="", help="These commands."),
    "skill": Command(
        usage="save [HINT] | list | stats [NAME] | show NAME | edit NAME | remove NAME | restore NAME | enable NAME | "
        "disable NAME | history NAME | diff NAME | rollback NAME VERSION",
        help="Save what was just worked out as a skill; look at skills and change them.",
    ),
    "skills": Command(usage="", help="Every skill with its state."),
    "lessons": Command(
        usage="[today | week | all | show ID | remove ID | restore ID]", help="What is remembered, the newest first."
    ),
    "review": Command(
        usage="[show N | approve N | reject N [REASON]]", help="What waits for you, and your word on it."
    ),
    "why": Command(usage="[NAME]", help="What the model was told, section by section; or why a skill was, or was not."),
    "good": Command(usage="[REASON]", help="The last turn went well."),
    "bad": Command(usage="[REASON]", help="The last turn went wrong."),
    "attach": Command(usage="PATH", help="Send a file along with what you say next."),
    "undo": Command(
        usage="[WHAT]", help="Take back the last change of this chat, or the one that is named as it was printed."
    ),
    "model": Command(usage="[PROVIDER:MODEL]", help="Which model answers; or let another one go on."),
    "cost": Command(usage="", help="What this conversation has taken so far."),
    "resume": Command(usage="[SESSION]", help="The last conversations; or go on with one of them."),
    "new": Command(usage="", help="Begin a new conversation."),
    "quit": Command(usage="", help="Leave; Ctrl-D does, too."),
}
OTHER_NAMES = {"exit": "quit", "q": "quit", "?": "help", "h": "help"}
_LOOKING = ("show", "history", "diff")
SKILL_ACTIONS = ("save", "list", "stats", *_LOOKING, "edit", "remove", "restore", "enable", "disable", "rollback")
REVIEW_ACTIONS = ("list", "show", "approve", "reject")
LESSON_ACTIONS = ("show", "remove", "restore")


@dataclass(frozen=True, kw_only=True, slots=True)
class UserMessage:
    """A message for the model."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillCall:
    """A skill called by name, with the text typed after it."""

    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SlashCommand:
    """A command of the chat itself, such as `/cost`, with the text typed after it; `save` is `/skill save`."""

    name: str
    arguments: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandLine:
    """A command of the `habitus` command line; `viewed_skill` is a skill it only reads, whose name may be misspelt."""

    words: tuple[str, ...]
    looks_at: str = ""


ParsedLine = UserMessage | SkillCall | SlashCommand | CommandLine


def parse_line(line: str, skills: Collection[str] = ()) -> ParsedLine:
    """Parse a typed line; `skills` may be called by name. A line that starts with `//` or a path is a message."""
    said = line.strip()
    if not said.startswith("/") or _is_path(said, skills):
        return UserMessage(text=said)
    if said.startswith("//"):
        return UserMessage(text=said[1:])
    word, _, rest = said[1:].partition(" ") if "\n" not in said.split(" ")[0] else said[1:].partition("\n")
    name, rest = OTHER_NAMES.get(word.lower(), word.lower()), rest.strip()
    if name in COMMANDS:
        return _command(name, rest)
    if names.canonical(word) in skills:
        return SkillCall(name=names.canonical(word), arguments=rest)
    near = get_close_matches(name, [*COMMANDS, *skills], n=1)
    hint = f"Did you mean '/{near[0]}'?" if near else "See /help."
    raise NotFound(f"There is no command '/{word}'.", hint=hint)


def _is_path(said: str, skills: Collection[str]) -> bool:
    """Return whether a line starts with a path, such as `/usr/lib is full`, and not with a skill's name."""
    first = said.split(maxsplit=1)[0]
    return "/" in first[1:] and not first.startswith("//") and names.canonical(first[1:]) not in skills


def _command(name: str, rest: str) -> SlashCommand | CommandLine:
    match name:
        case "skill":
            return _skill(rest)
        case "skills":
            return CommandLine(words=("skills", "list"))
        case "lessons":
            return _lessons(rest)
        case "review":
            return _review(rest)
        case "undo" if rest:
            return CommandLine(words=("undo", *rest.split()))
        case "resume" if not rest:
            return CommandLine(words=("sessions", "list"))
        case "attach" if not rest:
            raise Invalid("Which file?", hint="Write /attach PATH.")
        case _:
            return SlashCommand(name=name, arguments=rest)


def _review(rest: str) -> CommandLine:
    action, words = _action(rest or "list", REVIEW_ACTIONS, "review")
    if action == "list":
        return CommandLine(words=("review", "list"))
    if not words:
        raise Invalid("Which proposal?", hint=f"Write /review {action} N; /review lists them.")
    if action == "reject" and len(words) > 1:
        return CommandLine(words=("review", "reject", words[0], "--reason", " ".join(words[1:])))
    return CommandLine(words=("review", action, *words))


def _lessons(rest: str) -> CommandLine:
    action, *words = rest.split() or ["all"]
    if action not in LESSON_ACTIONS:
        return CommandLine(words=("lessons", "list", "--scope", action))
    if not words:
        raise Invalid("Which lesson?", hint=f"Write /lessons {action} ID; /lessons lists them.")
    return CommandLine(words=("lessons", action, *words))


def _skill(rest: str) -> SlashCommand | CommandLine:
    action, words = _action(rest or "list", SKILL_ACTIONS, "skill")
    if action == "save":
        return SlashCommand(name="save", arguments=rest.partition(" ")[2].strip())
    if action in ("list", "stats"):
        return CommandLine(words=("skills", action, *words))
    if not words:
        raise Invalid("Which skill?", hint=f"Write /skill {action} NAME.")
    skill, *more = words
    if action == "rollback":
        if len(more) != 1:
            raise Invalid(
                "To which version?", hint=f"Write /skill rollback {skill} N; /skill history {skill} lists them."
            )
        more = ["--to", more[0].removeprefix("v")]
    return CommandLine(words=("skills", action, skill, *more), looks_at=skill if action in _LOOKING else "")


def _action(rest: str, known: Iterable[str], command: str) -> tuple[str, list[str]]:
    try:
        action, *words = shlex.split(rest)
    # An apostrophe in a reason is not an opening quote.
    except ValueError:
        action, *words = rest.split()
    if action in known:
        return action, words
    near = get_close_matches(action, list(known), n=1)
    hint = f"Did you mean '/{command} {near[0]}'?" if near else f"Write /{command} {COMMANDS[command].usage}."
    raise NotFound(f"There is no '/{command} {action}'.", hint=hint)


def slash_command(*words: str) -> str:
    """Return a command line as typed in the chat: `skills rollback NAME --to 2` is `/skill rollback NAME 2`."""
    first, *rest = words
    return " ".join(["/skill" if first == "skills" else f"/{first}", *(word for word in rest if word != "--to")])


_ADVICE = re.compile(r"'habitus ((?:skills|lessons|review|sessions) [^']*)'")
_LISTS = {"lessons list": "/lessons", "sessions list": "/resume"}


def in_chat(advice: str) -> str:
    """Replace commands in a hint by slash commands; those without one stay unchanged."""
    actions = {"skills": SKILL_ACTIONS, "lessons": LESSON_ACTIONS, "review": REVIEW_ACTIONS}

    def as_typed(found: re.Match[str]) -> str:
        first, action, *rest = found[1].split()
        # A command with other options has no equivalent in the chat.
        is_here = action in actions.get(first, ()) and not {word for word in rest if word[0] == "-"} - {"--to"}
        return _LISTS.get(found[1]) or (slash_command(first, action, *rest) if is_here else found[0])

    return _ADVICE.sub(as_typed, advice)


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A word that the Tab key offers."""

    text: str
    # Number of characters before the cursor that it replaces.
    start: int
    help: str = ""


def completions(text: str, invocable: Mapping[str, str], known: Iterable[str]) -> list[Completion]:
    """Return what the Tab key offers for the text before the cursor.

    `invocable` maps the skills a person may call to their when-to-use; `known` are all skill names.
    """
    if not text.startswith("/") or "\n" in text:
        return []
    words = text[1:].split(" ")
    last = words[-1]
    match words:
        case [_]:
            offered = {name: command.help for name, command in COMMANDS.items()} | {
                name: cue for name, cue in invocable.items() if name not in COMMANDS
            }
            last, start = last.lower(), len(last) + 1
            return [
                Completion(text=f"/{name}", start=start, help=about)
                for name, about in offered.items()
                if name.startswith(last)
            ]
        case ["skill", _]:
            return _completions(SKILL_ACTIONS, last)
        case ["review", _]:
            return _completions(REVIEW_ACTIONS, last)
        case ["lessons", _]:
            return _completions(("today", "week", "all", *LESSON_ACTIONS), last)
        case ["why", _]:
            return _completions(known, last)
        case ["skill", action, _] if action not in ("save", "list", "restore"):
            return _completions(known, last)
        case _:
            return []


def _completions(words: Iterable[str], beginning: str) -> list[Completion]:
    return [Completion(text=word, start=len(beginning)) for word in words if word.startswith(beginning)]


def fill_arguments(body: str, arguments: str) -> str:
    """Return a skill's text with `$ARGUMENTS` replaced; unchanged if it has none."""
    return body.replace("$ARGUMENTS", arguments)
