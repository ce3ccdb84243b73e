"""A chat: takes one line after another, does what it means, and shows what comes of it on its surface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from rich.console import Group
from rich.table import Table
from rich.text import Text

from habitus.agent.consent import Consent, Question
from habitus.agent.session import Session
from habitus.agent.stream import Done
from habitus.app import Habitus, saving
from habitus.errors import HabitusError, NotFound, Refused, UserError
from habitus.events import OutcomeKind
from habitus.files import given_path
from habitus.llm.model import Model
from habitus.repl import markdown, why
from habitus.repl.commands import (
    COMMANDS,
    Attach,
    CommandLine,
    Explain,
    Help,
    Invoke,
    Judge,
    Meant,
    New,
    Quit,
    SaveSkill,
    Say,
    filled,
    meaning,
)
from habitus.repl.plain import clean
from habitus.repl.surface import CommandReport, Surface
from habitus.skills import names
from habitus.skills.model import Skill, State

RunCommand = Callable[[Sequence[str]], None]  # what `habitus …` does, on this surface


@dataclass(frozen=True, kw_only=True, slots=True)
class Around:
    """What every request of a chat has besides its words."""

    paths: Sequence[str] = ()
    resources: Sequence[str] = ()
    features: Sequence[str] = ()


class Chat:
    def __init__(
        self,
        habitus: Habitus,
        surface: Surface,
        *,
        open_session: Callable[[], Session],
        run_command: RunCommand,
        drafter: Callable[[], Model],
        attached: Sequence[Path] = (),
        around: Around = Around(),  # noqa: B008  # frozen
    ) -> None:
        self.habitus = habitus
        self.session = open_session()
        self.went_well = True
        self._surface = surface
        self._open_session = open_session
        self._run_command = run_command
        self._drafter = drafter
        self._around = around
        self._attached = [*attached]  # goes along with what is said next

    async def handle(self, line: str) -> bool:
        """Do what a line says; False when it says to leave."""
        if not line.strip():
            return True
        try:
            meant = meaning(line, self.invocable())
            if isinstance(meant, Quit):
                return False
            await self._do(meant, line.strip())
        except UserError as error:
            self._failed(error.message, error.mend)
        except HabitusError as error:
            self._failed(str(error))
        return True

    async def say(self, text: str, attach: Sequence[Path] = (), *, invoked: Skill | None = None) -> Done | None:
        """One turn."""
        around = self._around
        events = self.session.turn_stream(
            text,
            attach,
            paths=around.paths,
            resources=around.resources,
            features=around.features,
            invoked=invoked,
        )
        done = await self._surface.show_turn(events, self.session.cancel)
        self.went_well = self.went_well and done is not None and done.outcome.is_ok
        return done

    async def close(self) -> None:
        await self.session.close()

    def invocable(self) -> dict[str, str]:
        """The skills a person may call by name, each with its cue."""
        return {
            item.name: item.summary.cue
            for item in self.habitus.skills.listing()
            if item.summary is not None and item.state is State.OK and item.summary.manifest.user_invocable
        }

    def known(self) -> list[str]:
        return [item.name for item in self.habitus.skills.listing()]

    def _failed(self, message: str, mend: str = "") -> None:
        self.went_well = False
        self._surface.complain(message, mend)

    async def _do(self, meant: Meant, line: str) -> None:
        match meant:
            case Say(text=text):
                await self._say_with_attached(text)
            case Invoke(name=name, arguments=arguments):
                skill = self.habitus.skills.load(name)
                await self._say_with_attached(line, invoked=replace(skill, body=filled(skill.body, arguments)))
            case CommandLine(words=words, looks_at=wanted):
                self._run_command([self._nearest(word) if word == wanted else word for word in words])
            case SaveSkill(hint=hint):
                await self._save_skill(hint)
            case Explain(name=name):
                self._why(name)
            case Judge(is_good=is_good, reason=reason):
                self._judge(is_good, reason)
            case Attach(path=path):
                self._attach(path)
            case New():
                await self._begin_anew()
            case Help():
                self._surface.tell(_help())
            case Quit():
                pass
            case never:
                assert_never(never)

    async def _say_with_attached(self, text: str, *, invoked: Skill | None = None) -> None:
        attached, self._attached = self._attached, []
        await self.say(text, attached, invoked=invoked)

    def _nearest(self, wanted: str) -> str:
        """The skill that is meant by a misspelt name, which is said."""
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
            self._surface.tell(why.skill_report(self.habitus, self.session, name))
        else:
            self._surface.tell(why.prompt_report(self.session))

    def _judge(self, is_good: bool, reason: str) -> None:
        kind = OutcomeKind.OK if is_good else OutcomeKind.FAILED
        turn = self.session.judge(kind, reason=reason)
        said = f"Noted: the last turn {'went well' if is_good else 'went wrong'}{f', {reason}' if reason else ''}."
        self._surface.tell(replace(_line("judged", said), data={"turn": turn, "kind": kind.value, "reason": reason}))

    def _attach(self, given: str) -> None:
        path = self.habitus.settings.cwd / given_path(given.strip("'\""))
        if not path.is_file():
            raise NotFound(f"There is no file {path}.", mend="Check the path.")
        self._attached.append(path)
        said = f"{path.name} goes along with what you say next."
        self._surface.tell(replace(_line("attached", said), data={"path": str(path)}))

    async def _begin_anew(self) -> None:
        await self.session.close()
        self.session = self._open_session()
        said = f"A new conversation, {self.session.id}."
        self._surface.tell(replace(_line("session", said), data={"id": self.session.id, "model": self.session.model}))

    # /skill save

    async def _save_skill(self, hint: str) -> None:
        draft = await self._drafted(hint)
        self._surface.tell(_draft_report(draft))
        # Who asks for it wants it; where somebody is there, they see the draft before it is saved.
        question = Question(text=f"Save it as '{draft.name}'?")
        answer = await self._surface.ask(question) if self._surface.can_ask else Consent.YES
        saved = saving.save(self.habitus, draft, answer, self.session.id)
        if saved.proposal is not None:
            said, undo = f"'{saved.name}' waits as proposal {saved.proposal}.", f"/review approve {saved.proposal}"
            shown = Group(Text(said), Text(f"Decide: {undo}", style="dim"))
        else:
            said, undo = f"Saved {saved.name}, version {saved.version}.", f"/undo {saved.name}:{saved.version}"
            shown = Group(Text(said), Text(f"Undo: {undo}", style="dim"))
        data = {"name": saved.name, "version": saved.version, "proposal": saved.proposal}
        self._surface.tell(CommandReport(type="saved", shown=shown, data=data))

    async def _drafted(self, hint: str) -> Skill:
        drafting = asyncio.ensure_future(
            saving.draft(self.habitus, self._drafter(), self.session.history.messages, hint)
        )
        with self._surface.waiting("drafting a skill", drafting.cancel):
            await asyncio.wait([drafting])
        if drafting.cancelled():
            raise Refused("Nothing was saved.", mend="")
        return drafting.result()


def _line(type: str, text: str, style: str = "") -> CommandReport:
    return CommandReport(type=type, shown=Text(clean(text), style=style), data={"text": text})


def _draft_report(draft: Skill) -> CommandReport:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    for label, value in (("title", draft.title), ("does", draft.description), ("use when", draft.when_to_use)):
        facts.add_row(label, Text(clean(value)))
    heading = Text(draft.name, style="bold")
    data = {
        "name": draft.name,
        "title": draft.title,
        "description": draft.description,
        "when_to_use": draft.when_to_use,
        "body": draft.body,
    }
    return CommandReport(
        type="draft", shown=Group(heading, facts, Text(), markdown.MarkdownBlock(draft.body)), data=data
    )


def _help() -> CommandReport:
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
