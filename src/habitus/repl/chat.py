"""A chat: handles one typed line after another and shows the results on its surface."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import assert_never
from urllib.parse import unquote, urlsplit

from rich.console import Group
from rich.table import Table
from rich.text import Text

from habitus.agent.session import Session
from habitus.agent.stream import Consent, ConsentQuestion, ToolFinished, ToolStarted, TurnEvent, TurnResult
from habitus.app import Habitus
from habitus.app.conversations.models import (
    explain_default_model,
    open_session_models_for_name,
    refuse_agent_as_chat_model,
)
from habitus.app.conversations.past_sessions import get_latest_or_matching_session
from habitus.app.library import explaining, saving
from habitus.errors import HabitusError, Invalid, NotFound, Refused, UserError
from habitus.events import OutcomeKind
from habitus.files import parse_user_path
from habitus.journal.model import SkillPlacementKind
from habitus.llm.model import SessionModels, TokenUsage
from habitus.memory.model import LessonDraftOutcome
from habitus.repl import commands, display, lines
from habitus.repl.lines import ChatSurface, CommandOutput
from habitus.skills import names
from habitus.skills.editable_fields import EDITABLE_FIELDS, FIELD_NAMES
from habitus.skills.model import Skill, SkillState
from habitus.sql.outage import STORAGE_ERRORS
from habitus.text import shorten_to_line, strip_control_characters


def build_prompt_sections_report(session: Session) -> CommandOutput:
    """Return each section of the prompt with its tokens, its budget and what was cut."""
    sections = session.sections()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("section")
    table.add_column("tokens", justify="right")
    table.add_column("budget", justify="right")
    table.add_column("cut", overflow="fold")
    for section in sections:
        cut = shorten_to_line(", ".join(section.cut), 300)
        table.add_row(section.name, f"{section.tokens:,}", f"{section.budget:,}" if section.budget else "", Text(cut))
    table.add_row("total", f"{sum(section.tokens for section in sections):,}", "", "", style="dim")
    rows = [
        {"name": section.name, "tokens": section.tokens, "budget": section.budget, "cut": list(section.cut)}
        for section in sections
    ]
    return CommandOutput(type="why", shown=table, data={"sections": rows})


def build_skill_placement_report(habitus: Habitus, session: Session, name: str) -> CommandOutput:
    """Return why a skill did or did not reach the last turn's prompt."""
    found, past = explaining.explain_skill_selection_in_last_turn(habitus, session, name)
    said = found.sentences
    said += [f"In the last turn {entry.reason}." for entry in past.selected if entry.place is SkillPlacementKind.LOADED]
    return CommandOutput(
        type="why",
        shown=Group(*(Text(strip_control_characters(line)) for line in said)),
        data={"name": found.name, "because": said},
    )


def find_files_line_consists_of(line: str, cwd: Path) -> list[Path]:
    """Return the files that a line consists of; empty if it has any other word, since it is then a message."""
    said = line.strip()
    if not said or "\n" in said:
        return []
    # A path with spaces is tried as a whole before the line is split.
    for words in ([said], _split_shell_words(said)):
        if words and all(_is_path_like(word) for word in words):
            files = [_find_file(word, cwd) for word in words]
            if all(files):
                return [file for file in files if file]
    return []


def find_files_given_to_command(given: str, cwd: Path) -> list[Path]:
    """Return the files given to a command; raise `NotFound` if one doesn't exist."""
    for words in ([given], _split_shell_words(given)):
        files = [_find_file(word, cwd) for word in words]
        if words and all(files):
            return [file for file in files if file]
    raise NotFound(f"There is no file {cwd / parse_user_path(_strip_file_url(given))}.", hint="Check the path.")


def _split_shell_words(said: str) -> list[str]:
    try:
        return shlex.split(said)
    # An apostrophe in a message is not an opening quote.
    except ValueError:
        return []


def _is_path_like(word: str) -> bool:
    """Return whether a word can only be a path: `notes` is also a word, `notes.txt` and `./notes` are not."""
    return "/" in word or "." in word.strip(".")


def _find_file(word: str, cwd: Path) -> Path | None:
    """Return the file that a word names, or None."""
    try:
        path = cwd / parse_user_path(_strip_file_url(word))
        return path if path.is_file() else None
    except (Invalid, OSError):
        return None


def _strip_file_url(word: str) -> str:
    """Return the path of a `file://` address of this machine; any other word unchanged."""
    # Terminals paste dropped files as file:// addresses.
    address = urlsplit(word) if word.startswith("file://") else None
    return unquote(address.path) if address and address.netloc in ("", "localhost") else word


# The next prompt waits this long for lessons of the turn; later ones are reported after the next turn.
_LEARNING_WAIT_S = 1.0
# Runs a command of the command line and returns the commands that undo it.
CommandRunner = Callable[[Sequence[str]], list[tuple[str, ...]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequestContext:
    """The paths, resources, features and folders sent with every request of a chat."""

    paths: Sequence[str] = ()
    resources: Sequence[str] = ()
    features: Sequence[str] = ()
    # Folders that scratchpad cells may read.
    readable_folders: Sequence[Path] = ()


class Chat:
    """A conversation on one surface, with its attachments and undo history."""

    def __init__(
        self,
        habitus: Habitus,
        surface: ChatSurface,
        *,
        open_session: Callable[[str], Session],
        run_command: CommandRunner,
        models: SessionModels,
        resume: str = "",
        attached: Sequence[Path] = (),
        context: ChatRequestContext = ChatRequestContext(),  # noqa: B008  # frozen
        format_command: lines.CommandFormatter = commands.convert_cli_words_to_slash_command,
    ) -> None:
        """`open_session` resumes the session with an id or starts one; `format_command` formats a command as it is
        typed.
        """
        self.habitus = habitus
        self.session = open_session(resume)
        self.has_succeeded = True
        self._surface = surface
        self._open_session = open_session
        self._run_command = run_command
        self._models = models
        self._context = context
        self._typed = format_command
        # Undo commands of this chat's changes, newest last.
        self._undos: list[tuple[str, ...]] = []
        # Invocable skills as of the library's last answer.
        self._known: dict[str, str] = {}
        # Sent along with the next message.
        self._attached = [*attached]

    async def handle_line(self, line: str) -> bool:
        """Handle a typed line; return False if it leaves the chat."""
        if not line.strip():
            return True
        try:
            if dropped := find_files_line_consists_of(line, self.habitus.settings.cwd):
                self._attach_files(dropped)
                return True
            parsed = commands.parse_chat_line(line, self.list_invocable_skills())
            if parsed == commands.SlashCommand(name="quit"):
                return False
            await self._run_parsed_line(parsed, line.strip())
        except UserError as error:
            self._show_error_and_mark_failure(error.message, error.hint)
        except HabitusError as error:
            self._show_error_and_mark_failure(str(error))
        return True

    async def run_turn_and_report_lessons(
        self, text: str, attach: Sequence[Path] = (), *, invoked: Skill | None = None
    ) -> TurnResult | None:
        """Run one turn and report the lessons it taught; None if it was cancelled."""
        context = self._context
        events = self.session.turn_stream(
            text, attach, paths=context.paths, resources=context.resources, features=context.features, invoked=invoked
        )
        done = await self._surface.show_turn(
            self._forward_events_and_collect_undo_commands(events), self.session.cancel
        )
        self.has_succeeded = self.has_succeeded and done is not None and done.outcome.is_ok
        with suppress(TimeoutError):
            await asyncio.wait_for(self.session.wait_for_learning(), _LEARNING_WAIT_S)
        self._report_new_lessons()
        return done

    async def close(self) -> None:
        """Close the session and the models."""
        await self.session.close()
        self._report_new_lessons()
        await self._models.close()

    def list_invocable_skills(self) -> dict[str, str]:
        """Return the skills a person may call by name, with their when-to-use; the last known ones if the library is
        unreachable.
        """
        with suppress(*STORAGE_ERRORS):
            self._known = {
                item.name: item.summary.when_to_use_line
                for item in self.habitus.skills.list_skills()
                if item.summary is not None and item.state is SkillState.OK and item.summary.manifest.user_invocable
            }
        return self._known

    def list_skill_names(self) -> list[str]:
        with suppress(*STORAGE_ERRORS):
            return [item.name for item in self.habitus.skills.list_skills()]
        return list(self._known)

    async def _forward_events_and_collect_undo_commands(
        self, events: AsyncGenerator[TurnEvent, None]
    ) -> AsyncGenerator[TurnEvent, None]:
        """Pass the events of a turn on and collect the undo commands of its changes."""
        arguments: dict[str, str] = {}
        async with aclosing(events):
            async for event in events:
                if isinstance(event, ToolStarted):
                    arguments[event.call] = event.arguments
                elif isinstance(event, ToolFinished):
                    self._undos += filter(
                        None, [lines.get_undo_command_of_tool_call(event, arguments.get(event.call, ""))]
                    )
                yield event

    def _report_new_lessons(self) -> None:
        """Report lessons that were learned or are pending, with the command to undo or review them."""
        for encoded in self.session.take_new_lessons():
            engram = encoded.engram
            if engram is None:
                continue
            if encoded.status is LessonDraftOutcome.PENDING:
                said, then = f"pending review: {shorten_to_line(engram.text)}", self._typed("review", "list")
            else:
                self._undos.append(("lessons", "remove", engram.id))
                said, then = f"learned: {shorten_to_line(engram.text)}", f"undo: {self._typed(*self._undos[-1])}"
            self._surface.show_unasked_report(
                _make_one_line_output("learned", f"{said} ({then})", "dim", id=engram.id, status=encoded.status.value)
            )

    def _show_error_and_mark_failure(self, message: str, hint: str = "") -> None:
        """Show an error with its hint; in a chat, commands in it become slash commands."""
        self.has_succeeded = False
        self._surface.show_error(
            message,
            commands.replace_cli_commands_in_hint(hint)
            if self._typed is commands.convert_cli_words_to_slash_command
            else hint,
        )

    async def _run_parsed_line(self, parsed: commands.ParsedLine, line: str) -> None:
        match parsed:
            case commands.UserMessage(text=text):
                await self._run_turn_with_attachments(text)
            case commands.SkillCall(name=name, arguments=arguments):
                skill = self.session.load_skill(name)
                await self._run_turn_with_attachments(
                    line, invoked=replace(skill, body=commands.fill_skill_arguments(skill.body, arguments))
                )
            case commands.CliInvocation(words=words, viewed_skill=wanted):
                self._undos += self._run_command(
                    [self._correct_skill_name(word) if word == wanted else word for word in words]
                )
            case commands.SlashCommand(name=name, arguments=arguments):
                await self._run_slash_command(name, arguments)
            case never:
                assert_never(never)

    async def _run_slash_command(self, name: str, arguments: str) -> None:
        match name:
            case "save":
                await self._save_conversation_as_skill(arguments)
            case "why":
                self._show_prompt_or_skill_explanation(arguments)
            case "good" | "bad":
                self._judge_last_turn(name == "good", arguments)
            case "attach":
                self._attach_files(find_files_given_to_command(arguments, self.habitus.settings.cwd))
            case "new":
                await self._switch_session("")
            case "resume":
                await self._switch_session(
                    get_latest_or_matching_session(self.habitus.settings, self.habitus.journal, arguments).session
                )
            case "model":
                await self._switch_model(arguments)
            case "cost":
                self._surface.show_report(_build_cost_report(self.session.usage))
            case "undo":
                self._undo_last_change()
            case _:
                self._surface.show_report(_build_help_report())

    async def _run_turn_with_attachments(self, text: str, *, invoked: Skill | None = None) -> None:
        attached, self._attached = self._attached, []
        await self.run_turn_and_report_lessons(text, attached, invoked=invoked)

    def _correct_skill_name(self, wanted: str) -> str:
        """Return the closest existing skill for a misspelt name, and say so."""
        address = names.parse_address(wanted)
        if self.habitus.skills.is_name_taken(address.name):
            return wanted
        near = self.habitus.skills.find_closest_name(address.name)
        if near is None:
            return wanted
        self._surface.show_report(
            _make_one_line_output("notice", f"There is no skill '{wanted}'; showing the closest, '{near}'.", "yellow")
        )
        return near

    def _show_prompt_or_skill_explanation(self, name: str) -> None:
        if name:
            self._surface.show_report(build_skill_placement_report(self.habitus, self.session, name))
        else:
            self._surface.show_report(build_prompt_sections_report(self.session))

    def _judge_last_turn(self, is_good: bool, reason: str) -> None:
        kind = OutcomeKind.OK if is_good else OutcomeKind.FAILED
        turn = self.session.judge(kind, reason=reason)
        said = f"Noted: the last turn {'succeeded' if is_good else 'failed'}{f', {reason}' if reason else ''}."
        self._surface.show_report(_make_one_line_output("judged", said, turn=turn, kind=kind.value, reason=reason))

    def _attach_files(self, files: Sequence[Path]) -> None:
        self._attached += files
        for path in files:
            self._surface.show_report(
                _make_one_line_output("attached", f"{path.name} will be sent with your next message.", path=str(path))
            )

    async def _switch_session(self, session: str) -> None:
        if session == self.session.id:
            raise Invalid(f"Session '{session}' is already open.", hint="/resume lists the others.")
        await self.session.close()
        self._report_new_lessons()
        self.session, self._undos = self._open_session(session), []
        said = f"Resumed {session}." if session else f"New conversation {self.session.id}."
        self._surface.show_report(_make_one_line_output("session", said, id=self.session.id, model=self.session.model))

    async def _switch_model(self, name: str) -> None:
        if name:
            refuse_agent_as_chat_model(name, os.environ)
            models = open_session_models_for_name(self.habitus.settings, name)
            self.session.switch_model(models.main)
            await self._models.close()
            self._models = models
        chosen = (
            f"Model: {self.session.model}{'' if name else explain_default_model(self.habitus.settings, os.environ)}."
        )
        self._surface.show_report(_make_one_line_output("model", chosen, model=self.session.model))

    def _undo_last_change(self) -> None:
        if not self._undos:
            raise NotFound(
                "There is nothing to undo in this chat.", hint="'habitus undo since TIME' goes further back."
            )
        self._run_command(self._undos.pop())

    # /skill save

    async def _save_conversation_as_skill(self, hint: str) -> None:
        draft = await self._draft_skill_from_conversation(hint)
        self._surface.show_report(_build_draft_report(draft))
        # The command itself is consent; at a terminal the person still sees the draft before it is saved.
        question = ConsentQuestion(text=f"Save it as '{draft.name}'?")
        answer = await self._surface.ask(question) if self._surface.can_ask else Consent.YES
        saved = saving.save_postpone_or_drop_draft(self.habitus, draft, answer, self.session.id)
        if saved.proposal is not None:
            said = f"'{saved.name}' is pending review as proposal {saved.proposal}."
            decide = self._typed("review", "approve", str(saved.proposal))
            shown = Group(Text(said), Text(f"Review: {decide}", style="dim"))
        else:
            self._undos.append(("undo", f"{saved.name}:{saved.version}"))
            said = f"Saved {saved.name}, version {saved.version}."
            shown = Group(Text(said), Text(f"Undo: {self._typed(*self._undos[-1])}", style="dim"))
        data = {"name": saved.name, "version": saved.version, "proposal": saved.proposal}
        self._surface.show_report(CommandOutput(type="saved", shown=shown, data=data))

    async def _draft_skill_from_conversation(self, hint: str) -> Skill:
        drafting = asyncio.ensure_future(
            saving.draft_skill_from_messages(self.habitus, self._models.cheap, self.session.history.messages, hint)
        )
        with self._surface.show_waiting_indicator("drafting a skill", drafting.cancel):
            await asyncio.wait([drafting])
        if drafting.cancelled():
            raise Refused("Nothing was saved.", hint="")
        return drafting.result()


def _make_one_line_output(type: str, text: str, style: str = "", **data: object) -> CommandOutput:
    return CommandOutput(
        type=type, shown=Text(strip_control_characters(text), style=style), data={"text": text, **data}
    )


def _build_cost_report(usage: TokenUsage) -> CommandOutput:
    """Return a report of the tokens and money spent so far."""
    spent = " · ".join(lines.format_tokens_and_cost(usage)) or "nothing yet"
    return _make_one_line_output("cost", f"This conversation has used: {spent}.", **asdict(usage))


def _build_draft_report(draft: Skill) -> CommandOutput:
    """Return a report that shows a drafted skill."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    for field in EDITABLE_FIELDS:
        if value := field.format_value(draft):
            facts.add_row(field.noun, Text(strip_control_characters(value)))
    heading = Text(draft.name, style="bold")
    data = {name: getattr(draft, name) for name in ("name", *FIELD_NAMES, "body")}
    return CommandOutput(
        type="draft", shown=Group(heading, facts, Text(), display.MarkdownRenderable(draft.body)), data=data
    )


def _build_help_report() -> CommandOutput:
    """Return a report with all slash commands."""
    table = Table.grid(padding=(0, 2))
    table.add_column(width=38)
    table.add_column()
    for name, command in commands.COMMANDS.items():
        table.add_row(Text.assemble((f"/{name}", "bold"), " ", command.usage), command.help)
    table.add_row(Text.assemble(("/NAME", "bold"), " [ARGUMENTS]"), "Call a skill; $ARGUMENTS in its text is replaced.")
    keys = "Alt-Enter starts a new line. Ctrl-C cancels the turn; pressed twice at an empty prompt, it quits."
    shown = Group(table, Text(), Text(keys, style="dim"))
    return CommandOutput(
        type="help",
        shown=shown,
        data={
            "commands": [
                {"command": f"/{name}", "usage": c.usage, "help": c.help} for name, c in commands.COMMANDS.items()
            ]
        },
    )
