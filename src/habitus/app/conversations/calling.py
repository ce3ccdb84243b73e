"""Command lines put together: for the pads and tools of a conversation, and for a person at a shell."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from habitus.agent.background import in_thread
from habitus.agent.outage import Outage
from habitus.agent.view import View, loadable
from habitus.app.conversations.command_lines import CommandLines
from habitus.app.conversations.running_code import given_files, open_environments, open_warm
from habitus.app.conversations.secrets import open_calls
from habitus.journal.model import Origin, origin_of
from habitus.sandbox.credentials.calling import COMMAND, Answer, Caller
from habitus.sandbox.credentials.proxy import Proxy
from habitus.sandbox.given import COMMANDS, Given
from habitus.sandbox.services import Services
from habitus.skills import names
from habitus.skills.model import Skill
from habitus.skills.selection import User

if TYPE_CHECKING:
    from habitus.app.home import Home


async def run(home: Home, skill: str, arguments: Sequence[str], stdin: bytes = b"") -> Answer:
    """Call a skill's command line as the person of the settings, with what they granted it."""
    user, name = home.user(), names.canonical(skill)
    # Whichever they name: the gates say to a person which of them is closed.
    caller = _open(home, CommandLines(home, user), lambda: [name], who=user.name)
    try:
        return await caller.call(name, arguments, stdin)
    finally:
        await caller.close()


class SessionCalls:
    """Which command lines the code of a conversation may call, fixed when somebody first needs to know; and its ways
    to them: a service on its own line, and where it has one the command `habitus-skill`."""

    def __init__(self, home: Home, view: View, given: Given, outage: Outage, *, user: User, source_type: str) -> None:
        self._directory = CommandLines(home, user)
        self._view = view
        self._outage = outage
        self._lock = threading.Lock()
        self._names: Collection[str] | None = None if origin_of(source_type) is Origin.REAL else ()
        who = f"{user.name}, session {view.conversation}"
        self._caller = _open(home, self._directory, self.allowed_calls, who=who)
        is_here = home.settings.sandbox.runtime == "local" and home.machine.bubblewrap is not None
        self._proxy = Proxy(self._caller, given.folder / COMMANDS, uid=os.getuid()) if is_here else None
        self.services: Services = {"skills.run": self._ask}

    def allowed_calls(self) -> Collection[str]:
        """It looks into the database."""
        with self._lock:
            if self._names is None:
                self._names = self._outage.unless_away(self._callable, None)
            return self._names or ()

    def how_to_call(self, skill: Skill) -> str:
        """What a model is told below the text of a skill; nothing of one that its code may not call."""
        if not skill.manifest.cli or skill.name not in self.allowed_calls():
            return ""
        command = f"; `{COMMAND} {skill.name} --help` in a subprocess is the same" if self._proxy is not None else ""
        return (
            f"It has a command line. In the scratchpad, `skills.run({skill.name!r}, '--help')` gives its stdout, "
            f"stderr and code{command}. It runs apart from the scratchpad, with the accounts that a person granted "
            "it, and sees none of its files: pass a text as an argument, or as stdin=…."
        )

    async def ready(self) -> None:
        """Have the command there, where there is anything to call."""
        if self._proxy is None:
            return
        names = await in_thread(self.allowed_calls) if self._names is None else self._names
        if names:
            await self._proxy.open()

    async def close(self) -> None:
        if self._proxy is not None:
            await self._proxy.close()
        await self._caller.close()

    def _callable(self) -> frozenset[str]:
        """Those of skills that a model may use; most libraries have none, which costs no look at gates."""
        named = loadable(self._view.snapshot)
        stated = (item.summary for item in self._view.snapshot.listing if item.name in named)
        if not any(summary is not None and summary.manifest.cli for summary in stated):
            return frozenset()
        return frozenset(named.intersection(self._directory.names()))

    async def _ask(self, question: Any) -> dict[str, Any]:
        return (await self._caller.answer_call(question)).as_message()


def _open(home: Home, directory: CommandLines, allowed: Callable[[], Collection[str]], *, who: str) -> Caller:
    return Caller(
        directory,
        allowed,
        open_calls(home),
        open_warm(home),
        open_environments(home.place),
        given=partial(given_files, home),
        who=who,
        clock=home.clock,
    )
