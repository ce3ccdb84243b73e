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
class SlashCommandHelp:
    """Usage and help of a slash command."""

    usage: str
    help: str


COMMANDS: Mapping[str, SlashCommandHelp] = {
    "help": SlashCommandHelp(usage="", help="Show the commands."),
    "skill": SlashCommandHelp(
        usage="save [HINT] | list | stats [NAME] | show NAME | edit NAME | remove NAME | restore NAME | enable NAME | "
        "disable NAME | history NAME | diff NAME | rollback NAME VERSION",
        help="Save the solution as a skill; show and change skills.",
    ),
    "skills": SlashCommandHelp(usage="", help="List all skills with their state."),
    "lessons": SlashCommandHelp(
        usage="[today | week | all | show ID | remove ID | restore ID]", help="List lessons, newest first."
    ),
    "review": SlashCommandHelp(usage="[show N | approve N | reject N [REASON]]", help="Review pending changes."),
    "why": SlashCommandHelp(usage="[NAME]", help="Show the prompt by section, or why a skill was or wasn't selected."),
    "good": SlashCommandHelp(usage="[REASON]", help="The last turn succeeded."),
    "bad": SlashCommandHelp(usage="[REASON]", help="The last turn failed."),
    "attach": SlashCommandHelp(usage="PATH", help="Attach a file to your next message."),
    "undo": SlashCommandHelp(usage="[WHAT]", help="Undo the last change of this chat, or the one named as printed."),
    "model": SlashCommandHelp(usage="[PROVIDER:MODEL]", help="Show or change the model."),
    "cost": SlashCommandHelp(usage="", help="Show tokens and cost of this conversation."),
    "resume": SlashCommandHelp(usage="[SESSION]", help="List recent conversations, or resume one."),
    "new": SlashCommandHelp(usage="", help="Start a new conversation."),
    "quit": SlashCommandHelp(usage="", help="Quit; Ctrl-D works too."),
}
COMMAND_ALIASES = {"exit": "quit", "q": "quit", "?": "help", "h": "help"}
_READ_ONLY_ACTIONS = ("show", "history", "diff")
SKILL_ACTIONS = (
    "save",
    "list",
    "stats",
    *_READ_ONLY_ACTIONS,
    "edit",
    "remove",
    "restore",
    "enable",
    "disable",
    "rollback",
)
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
class CliInvocation:
    """A command of the `habitus` command line; `viewed_skill` is a skill it only reads, whose name may be misspelt."""

    words: tuple[str, ...]
    viewed_skill: str = ""


ParsedLine = UserMessage | SkillCall | SlashCommand | CliInvocation


def parse_chat_line(line: str, skills: Collection[str] = ()) -> ParsedLine:
    """Parse a typed line; `skills` may be called by name. A line that starts with `//` or a path is a message."""
    said = line.strip()
    if not said.startswith("/") or _starts_with_path(said, skills):
        return UserMessage(text=said)
    if said.startswith("//"):
        return UserMessage(text=said[1:])
    word, _, rest = said[1:].partition(" ") if "\n" not in said.split(" ")[0] else said[1:].partition("\n")
    name, rest = COMMAND_ALIASES.get(word.lower(), word.lower()), rest.strip()
    if name in COMMANDS:
        return _parse_slash_command(name, rest)
    if names.canonicalize_name(word) in skills:
        return SkillCall(name=names.canonicalize_name(word), arguments=rest)
    near = get_close_matches(name, [*COMMANDS, *skills], n=1)
    hint = f"Did you mean '/{near[0]}'?" if near else "See /help."
    raise NotFound(f"There is no command '/{word}'.", hint=hint)


def _starts_with_path(said: str, skills: Collection[str]) -> bool:
    """Return whether a line starts with a path, such as `/usr/lib is full`, and not with a skill's name."""
    first = said.split(maxsplit=1)[0]
    return "/" in first[1:] and not first.startswith("//") and names.canonicalize_name(first[1:]) not in skills


def _parse_slash_command(name: str, rest: str) -> SlashCommand | CliInvocation:
    match name:
        case "skill":
            return _parse_skill_command(rest)
        case "skills":
            return CliInvocation(words=("skills", "list"))
        case "lessons":
            return _parse_lessons_command(rest)
        case "review":
            return _parse_review_command(rest)
        case "undo" if rest:
            return CliInvocation(words=("undo", *rest.split()))
        case "resume" if not rest:
            return CliInvocation(words=("sessions", "list"))
        case "attach" if not rest:
            raise Invalid("Which file?", hint="Write /attach PATH.")
        case _:
            return SlashCommand(name=name, arguments=rest)


def _parse_review_command(rest: str) -> CliInvocation:
    action, words = _split_and_check_action(rest or "list", REVIEW_ACTIONS, "review")
    if action == "list":
        return CliInvocation(words=("review", "list"))
    if not words:
        raise Invalid("Which proposal?", hint=f"Write /review {action} N; /review lists them.")
    if action == "reject" and len(words) > 1:
        return CliInvocation(words=("review", "reject", words[0], "--reason", " ".join(words[1:])))
    return CliInvocation(words=("review", action, *words))


def _parse_lessons_command(rest: str) -> CliInvocation:
    action, *words = rest.split() or ["list"]
    if action not in LESSON_ACTIONS:
        return CliInvocation(words=("lessons", "list", "--scope", "all" if action == "list" else action))
    if not words:
        raise Invalid("Which lesson?", hint=f"Write /lessons {action} ID; /lessons lists them.")
    return CliInvocation(words=("lessons", action, *words))


def _parse_skill_command(rest: str) -> SlashCommand | CliInvocation:
    action, words = _split_and_check_action(rest or "list", SKILL_ACTIONS, "skill")
    if action == "save":
        return SlashCommand(name="save", arguments=rest.partition(" ")[2].strip())
    if action in ("list", "stats"):
        return CliInvocation(words=("skills", action, *words))
    if not words:
        raise Invalid("Which skill?", hint=f"Write /skill {action} NAME.")
    skill, *more = words
    if action == "rollback":
        if len(more) != 1:
            raise Invalid(
                "To which version?", hint=f"Write /skill rollback {skill} N; /skill history {skill} lists them."
            )
        more = ["--to", more[0].removeprefix("v")]
    return CliInvocation(
        words=("skills", action, skill, *more), viewed_skill=skill if action in _READ_ONLY_ACTIONS else ""
    )


def _split_and_check_action(rest: str, known: Iterable[str], command: str) -> tuple[str, list[str]]:
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


def convert_cli_words_to_slash_command(*words: str) -> str:
    """Return a command line as typed in the chat: `skills rollback NAME --to 2` is `/skill rollback NAME 2`."""
    first, *rest = words
    return " ".join(["/skill" if first == "skills" else f"/{first}", *(word for word in rest if word != "--to")])


_CLI_COMMAND_PATTERN = re.compile(r"'habitus ((?:skills|lessons|review|sessions) [^']*)'")
_LIST_COMMANDS = {"lessons list": "/lessons", "sessions list": "/resume"}


def replace_cli_commands_in_hint(hint: str) -> str:
    """Replace commands in a hint by slash commands; those without one stay unchanged."""
    actions = {"skills": SKILL_ACTIONS, "lessons": LESSON_ACTIONS, "review": REVIEW_ACTIONS}

    def as_typed(found: re.Match[str]) -> str:
        first, action, *rest = found[1].split()
        # A command with other options has no equivalent in the chat.
        is_here = action in actions.get(first, ()) and not {word for word in rest if word[0] == "-"} - {"--to"}
        return _LIST_COMMANDS.get(found[1]) or (
            convert_cli_words_to_slash_command(first, action, *rest) if is_here else found[0]
        )

    return _CLI_COMMAND_PATTERN.sub(as_typed, hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class LineCompletion:
    """A word that the Tab key offers."""

    text: str
    # Number of characters before the cursor that it replaces.
    start: int
    help: str = ""


def list_line_completions(text: str, invocable: Mapping[str, str], known: Iterable[str]) -> list[LineCompletion]:
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
                LineCompletion(text=f"/{name}", start=start, help=about)
                for name, about in offered.items()
                if name.startswith(last)
            ]
        case ["skill", _]:
            return _list_completions_with_prefix(SKILL_ACTIONS, last)
        case ["review", _]:
            return _list_completions_with_prefix(REVIEW_ACTIONS, last)
        case ["lessons", _]:
            return _list_completions_with_prefix(("today", "week", "all", *LESSON_ACTIONS), last)
        case ["why", _]:
            return _list_completions_with_prefix(known, last)
        case ["skill", action, _] if action not in ("save", "list", "restore"):
            return _list_completions_with_prefix(known, last)
        case _:
            return []


def _list_completions_with_prefix(words: Iterable[str], beginning: str) -> list[LineCompletion]:
    return [LineCompletion(text=word, start=len(beginning)) for word in words if word.startswith(beginning)]


def fill_skill_arguments(body: str, arguments: str) -> str:
    """Return a skill's text with `$ARGUMENTS` replaced; unchanged if it has none."""
    return body.replace("$ARGUMENTS", arguments)
