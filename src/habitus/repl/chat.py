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
from habitus.agent.stream import Consent, Done, Question, ToolFinished, ToolStarted, TurnEvent
from habitus.app import Habitus
from habitus.app.conversations.models import chosen_by, models_named, refuse_in_chat
from habitus.app.conversations.past_sessions import past_session
from habitus.app.library import explaining, saving
from habitus.errors import HabitusError, Invalid, NotFound, Refused, UserError
from habitus.events import OutcomeKind
from habitus.files import given_path
from habitus.journal.model import Place
from habitus.llm.model import Models, Usage
from habitus.memory.model import Status
from habitus.repl import display, lines
from habitus.repl.commands import (
    COMMANDS,
    CommandLine,
    ParsedLine,
    SkillCall,
    SlashCommand,
    UserMessage,
    fill_arguments,
    in_chat,
    parse_line,
    slash_command,
)
from habitus.repl.lines import CommandReport, Surface
from habitus.skills import names
from habitus.skills.editable_fields import EDITABLE, NAMES
from habitus.skills.model import Skill, State
from habitus.sql.outage import away
from habitus.text import clean, short_line


def prompt_report(session: Session) -> CommandReport:
    """Return each section of the prompt with its tokens, its budget and what was cut."""
    sections = session.sections()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("section")
    table.add_column("tokens", justify="right")
    table.add_column("budget", justify="right")
    table.add_column("no room for", overflow="fold")
    for section in sections:
        cut = short_line(", ".join(section.cut), 300)
        table.add_row(section.name, f"{section.tokens:,}", f"{section.budget:,}" if section.budget else "", Text(cut))
    table.add_row("together", f"{sum(section.tokens for section in sections):,}", "", "", style="dim")
    rows = [
        {"name": section.name, "tokens": section.tokens, "budget": section.budget, "cut": list(section.cut)}
        for section in sections
    ]
    return CommandReport(type="why", shown=table, data={"sections": rows})


def skill_report(habitus: Habitus, session: Session, name: str) -> CommandReport:
    """Return why a skill did or did not reach the last turn's prompt."""
    found, past = explaining.why_in_session(habitus, session, name)
    said = found.sentences
    said += [f"In the last turn {entry.reason}." for entry in past.selected if entry.place is Place.LOADED]
    return CommandReport(
        type="why", shown=Group(*(Text(clean(line)) for line in said)), data={"name": found.name, "because": said}
    )


def dropped_files(line: str, cwd: Path) -> list[Path]:
    """Return the files that a line consists of; empty if it has any other word, since it is then a message."""
    said = line.strip()
    if not said or "\n" in said:
        return []
    # A path with spaces is tried as a whole before the line is split.
    for words in ([said], _words(said)):
        if words and all(_looks_like_a_path(word) for word in words):
            files = [_file(word, cwd) for word in words]
            if all(files):
                return [file for file in files if file]
    return []


def named_files(given: str, cwd: Path) -> list[Path]:
    """Return the files given to a command; raise `NotFound` if one doesn't exist."""
    for words in ([given], _words(given)):
        files = [_file(word, cwd) for word in words]
        if words and all(files):
            return [file for file in files if file]
    raise NotFound(f"There is no file {cwd / given_path(_plain(given))}.", hint="Check the path.")


def _words(said: str) -> list[str]:
    try:
        return shlex.split(said)
    # An apostrophe in a message is not an opening quote.
    except ValueError:
        return []


def _looks_like_a_path(word: str) -> bool:
    """Return whether a word can only be a path: `notes` is also a word, `notes.txt` and `./notes` are not."""
    return "/" in word or "." in word.strip(".")


def _file(word: str, cwd: Path) -> Path | None:
    """Return the file that a word names, or None."""
    try:
        path = cwd / given_path(_plain(word))
        return path if path.is_file() else None
    except (Invalid, OSError):
        return None


def _plain(word: str) -> str:
    """Return the path of a `file://` address of this machine; any other word unchanged."""
    # Terminals paste dropped files as file:// addresses.
    address = urlsplit(word) if word.startswith("file://") else None
    return unquote(address.path) if address and address.netloc in ("", "localhost") else word


# The next prompt waits this long for lessons of the turn; later ones are reported after the next turn.
_LEARNING_S = 1.0
# Runs a command of the command line and returns the commands that undo it.
RunCommand = Callable[[Sequence[str]], list[tuple[str, ...]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatContext:
    """The paths, resources, features and folders sent with every request of a chat."""

    paths: Sequence[str] = ()
    resources: Sequence[str] = ()
    features: Sequence[str] = ()
    # Folders that scratchpad cells may read.
    read: Sequence[Path] = ()


class Chat:
    """A conversation on one surface, with its attachments and undo history."""

    def __init__(
        self,
        habitus: Habitus,
        surface: Surface,
        *,
        open_session: Callable[[str], Session],
        run_command: RunCommand,
        models: Models,
        resume: str = "",
        attached: Sequence[Path] = (),
        context: ChatContext = ChatContext(),  # noqa: B008  # frozen
        typed: lines.Typed = slash_command,
    ) -> None:
        """`open_session` resumes the session with an id or starts one; `format_command` formats a command as it is
        typed.
        """
        self.habitus = habitus
        self.session = open_session(resume)
        self.went_well = True
        self._surface = surface
        self._open_session = open_session
        self._run_command = run_command
        self._models = models
        self._context = context
        self._typed = typed
        # Undo commands of this chat's changes, newest last.
        self._undos: list[tuple[str, ...]] = []
        # Invocable skills as of the library's last answer.
        self._known: dict[str, str] = {}
        # Sent along with the next message.
        self._attached = [*attached]

    async def handle(self, line: str) -> bool:
        """Handle a typed line; return False if it leaves the chat."""
        if not line.strip():
            return True
        try:
            if dropped := dropped_files(line, self.habitus.settings.cwd):
                self._attach(dropped)
                return True
            parsed = parse_line(line, self.invocable())
            if parsed == SlashCommand(name="quit"):
                return False
            await self._do(parsed, line.strip())
        except UserError as error:
            self._say_failure(error.message, error.hint)
        except HabitusError as error:
            self._say_failure(str(error))
        return True

    async def say(self, text: str, attach: Sequence[Path] = (), *, invoked: Skill | None = None) -> Done | None:
        """Run one turn and report the lessons it taught; None if it was cancelled."""
        context = self._context
        events = self.session.turn_stream(
            text,
            attach,
            paths=context.paths,
            resources=context.resources,
            features=context.features,
            invoked=invoked,
        )
        done = await self._surface.show_turn(self._note_events(events), self.session.cancel)
        self.went_well = self.went_well and done is not None and done.outcome.is_ok
        with suppress(TimeoutError):
            await asyncio.wait_for(self.session.settle(), _LEARNING_S)
        self._tell_learned()
        return done

    async def close(self) -> None:
        """Close the session and the models."""
        await self.session.close()
        self._tell_learned()
        await self._models.close()

    def invocable(self) -> dict[str, str]:
        """Return the skills a person may call by name, with their when-to-use; the last known ones if the library is
        unreachable.
        """
        with suppress(*away()):
            self._known = {
                item.name: item.summary.cue
                for item in self.habitus.skills.listing()
                if item.summary is not None and item.state is State.OK and item.summary.manifest.user_invocable
            }
        return self._known

    def skill_names(self) -> list[str]:
        with suppress(*away()):
            return [item.name for item in self.habitus.skills.listing()]
        return list(self._known)

    async def _note_events(self, events: AsyncGenerator[TurnEvent, None]) -> AsyncGenerator[TurnEvent, None]:
        """Pass the events of a turn on and collect the undo commands of its changes."""
        arguments: dict[str, str] = {}
        async with aclosing(events):
            async for event in events:
                if isinstance(event, ToolStarted):
                    arguments[event.call] = event.arguments
                elif isinstance(event, ToolFinished):
                    self._undos += filter(None, [lines.undoing(event, arguments.get(event.call, ""))])
                yield event

    def _tell_learned(self) -> None:
        """Report lessons that were learned or are pending, with the command to undo or review them."""
        for encoded in self.session.learned():
            engram = encoded.engram
            if engram is None:
                continue
            if encoded.status is Status.WAITING:
                said, then = f"waits for your word: {short_line(engram.text)}", self._typed("review", "list")
            else:
                self._undos.append(("lessons", "remove", engram.id))
                said, then = f"learned: {short_line(engram.text)}", f"undo: {self._typed(*self._undos[-1])}"
            self._surface.note(_line("learned", f"{said} ({then})", "dim", id=engram.id, status=encoded.status.value))

    def _say_failure(self, message: str, hint: str = "") -> None:
        """Show an error with its hint; in a chat, commands in it become slash commands."""
        self.went_well = False
        self._surface.complain(message, in_chat(hint) if self._typed is slash_command else hint)

    async def _do(self, parsed: ParsedLine, line: str) -> None:
        match parsed:
            case UserMessage(text=text):
                await self._say_with_attached(text)
            case SkillCall(name=name, arguments=arguments):
                skill = self.habitus.skills.load(name)
                await self._say_with_attached(line, invoked=replace(skill, body=fill_arguments(skill.body, arguments)))
            case CommandLine(words=words, looks_at=wanted):
                self._undos += self._run_command([self._nearest(word) if word == wanted else word for word in words])
            case SlashCommand(name=name, arguments=arguments):
                await self._run_slash_command(name, arguments)
            case never:
                assert_never(never)

    async def _run_slash_command(self, name: str, arguments: str) -> None:
        match name:
            case "save":
                await self._save_skill(arguments)
            case "why":
                self._why(arguments)
            case "good" | "bad":
                self._judge(name == "good", arguments)
            case "attach":
                self._attach(named_files(arguments, self.habitus.settings.cwd))
            case "new":
                await self._go_over_to("")
            case "resume":
                await self._go_over_to(past_session(self.habitus.settings, self.habitus.journal, arguments).session)
            case "model":
                await self._use_model(arguments)
            case "cost":
                self._surface.tell(_cost(self.session.usage))
            case "undo":
                self._undo()
            case _:
                self._surface.tell(_help())

    async def _say_with_attached(self, text: str, *, invoked: Skill | None = None) -> None:
        attached, self._attached = self._attached, []
        await self.say(text, attached, invoked=invoked)

    def _nearest(self, wanted: str) -> str:
        """Return the closest existing skill for a misspelt name, and say so."""
        address = names.parse_address(wanted)
        if self.habitus.skills.is_taken(address.name):
            return wanted
        near = self.habitus.skills.closest_match(address.name)
        if near is None:
            return wanted
        self._surface.tell(_line("notice", f"There is no skill '{wanted}'; this is the nearest, '{near}'.", "yellow"))
        return near

    def _why(self, name: str) -> None:
        if name:
            self._surface.tell(skill_report(self.habitus, self.session, name))
        else:
            self._surface.tell(prompt_report(self.session))

    def _judge(self, is_good: bool, reason: str) -> None:
        kind = OutcomeKind.OK if is_good else OutcomeKind.FAILED
        turn = self.session.judge(kind, reason=reason)
        said = f"Noted: the last turn {'went well' if is_good else 'went wrong'}{f', {reason}' if reason else ''}."
        self._surface.tell(_line("judged", said, turn=turn, kind=kind.value, reason=reason))

    def _attach(self, files: Sequence[Path]) -> None:
        self._attached += files
        for path in files:
            self._surface.tell(_line("attached", f"{path.name} goes along with what you say next.", path=str(path)))

    async def _go_over_to(self, session: str) -> None:
        if session == self.session.id:
            raise Invalid(f"This is the session '{session}'.", hint="/resume lists the others.")
        await self.session.close()
        self._tell_learned()
        self.session, self._undos = self._open_session(session), []
        said = f"Go on with {session}." if session else f"A new conversation, {self.session.id}."
        self._surface.tell(_line("session", said, id=self.session.id, model=self.session.model))

    async def _use_model(self, name: str) -> None:
        if name:
            refuse_in_chat(name, os.environ)
            models = models_named(self.habitus.settings, name)
            self.session.use(models.main)
            await self._models.close()
            self._models = models
        chosen = f"{self.session.model} answers{'' if name else chosen_by(self.habitus.settings, os.environ)}."
        self._surface.tell(_line("model", chosen, model=self.session.model))

    def _undo(self) -> None:
        if not self._undos:
            raise NotFound("There is nothing to take back in this chat.", hint="'habitus rollback --to' goes further.")
        self._run_command(self._undos.pop())

    # /skill save

    async def _save_skill(self, hint: str) -> None:
        draft = await self._draft_skill(hint)
        self._surface.tell(_draft_report(draft))
        # The command itself is consent; at a terminal the person still sees the draft before it is saved.
        question = Question(text=f"Save it as '{draft.name}'?")
        answer = await self._surface.ask(question) if self._surface.can_ask else Consent.YES
        saved = saving.save(self.habitus, draft, answer, self.session.id)
        if saved.proposal is not None:
            said = f"'{saved.name}' waits as proposal {saved.proposal}."
            decide = self._typed("review", "approve", str(saved.proposal))
            shown = Group(Text(said), Text(f"Decide: {decide}", style="dim"))
        else:
            self._undos.append(("undo", f"{saved.name}:{saved.version}"))
            said = f"Saved {saved.name}, version {saved.version}."
            shown = Group(Text(said), Text(f"Undo: {self._typed(*self._undos[-1])}", style="dim"))
        data = {"name": saved.name, "version": saved.version, "proposal": saved.proposal}
        self._surface.tell(CommandReport(type="saved", shown=shown, data=data))

    async def _draft_skill(self, hint: str) -> Skill:
        drafting = asyncio.ensure_future(
            saving.draft(self.habitus, self._models.cheap, self.session.history.messages, hint)
        )
        with self._surface.waiting("drafting a skill", drafting.cancel):
            await asyncio.wait([drafting])
        if drafting.cancelled():
            raise Refused("Nothing was saved.", hint="")
        return drafting.result()


def _line(type: str, text: str, style: str = "", **data: object) -> CommandReport:
    return CommandReport(type=type, shown=Text(clean(text), style=style), data={"text": text, **data})


def _cost(usage: Usage) -> CommandReport:
    """Return a report of the tokens and money spent so far."""
    spent = " · ".join(lines.spent(usage)) or "nothing yet"
    return _line("cost", f"This conversation has taken: {spent}.", **asdict(usage))


def _draft_report(draft: Skill) -> CommandReport:
    """Return a report that shows a drafted skill."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    for field in EDITABLE:
        if value := field.text(draft):
            facts.add_row(field.noun, Text(clean(value)))
    heading = Text(draft.name, style="bold")
    data = {name: getattr(draft, name) for name in ("name", *NAMES, "body")}
    return CommandReport(
        type="draft", shown=Group(heading, facts, Text(), display.MarkdownBlock(draft.body)), data=data
    )


def _help() -> CommandReport:
    """Return a report with all slash commands."""
    table = Table.grid(padding=(0, 2))
    table.add_column(width=38)
    table.add_column()
    for name, command in COMMANDS.items():
        table.add_row(Text.assemble((f"/{name}", "bold"), " ", command.usage), command.help)
    table.add_row(Text.assemble(("/NAME", "bold"), " [ARGUMENTS]"), "Call a skill; $ARGUMENTS in its text are filled.")
    keys = "Alt-Enter begins a new line. Ctrl-C stops the turn; at an empty prompt, twice, it leaves."
    shown = Group(table, Text(), Text(keys, style="dim"))
    return CommandReport(
        type="help",
        shown=shown,
        data={"commands": [{"command": f"/{name}", "usage": c.usage, "help": c.help} for name, c in COMMANDS.items()]},
    )
