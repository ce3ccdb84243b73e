"""Command lines of skills: check gates, look up grants, and offer the calls to scratchpads, tools and a shell."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from habitus.agent.background import in_thread
from habitus.agent.library_view import View, loadable
from habitus.app.conversations.running_code import given_files, open_environments, open_warm
from habitus.app.conversations.secrets import open_calls
from habitus.errors import NotFound, Refused
from habitus.files import content_of, tree_hash, write_whole
from habitus.journal.model import Origin, origin_of
from habitus.sandbox.child import Services
from habitus.sandbox.credentials.calling import COMMAND, Answer, Caller, Proxy
from habitus.sandbox.credentials.grants import (
    EVERYBODY,
    CommandLine,
    Grant,
    Granted,
    GrantKind,
    Grants,
    Values,
    read_env,
    resolve,
)
from habitus.sandbox.files import COMMANDS, Given, harmless
from habitus.skills import lifecycle, names
from habitus.skills.choosing.selection import User
from habitus.skills.layers.copies import SkillFiles
from habitus.skills.layers.listing import Listed
from habitus.skills.model import Skill, State
from habitus.skills.sources.trust import APPROVED
from habitus.skills.trees import CLI_CODE
from habitus.sql.outage import Outage
from habitus.tools.code_stage import dependencies_of

if TYPE_CHECKING:
    from habitus.app.home import Home


# Copies of skills' files that belong to the user from then on.
FILES = "skill-files"


class CommandLines:
    """The `SkillDirectory` of one user.

    Nothing is cached: a gate that was closed meanwhile is closed.
    """

    def __init__(self, home: Home, user: User) -> None:
        self._home = home
        self._user = user

    def names(self) -> Sequence[str]:
        """Return the skills with a command line that no gate closes for this user; their secrets may be missing."""
        return [item.name for item in self._home.skills.listing() if _has_cli(item) and not self._closed_gate(item)]

    def command_line(self, name: str) -> CommandLine:
        """Return a skill's command line with its grants. Raises `Refused` if it may not be called."""
        item = self._find(name)
        files, digest = self._files(item)
        granted = self._grant_for(item, digest, self._values(item, files))
        for value in granted.sensitive:
            # From now on the value is redacted in everything that is stored or shown.
            self._home.vault.keep_out_of_sight(value)
        return CommandLine(
            skill=item.name,
            script=CLI_CODE,
            content_hash=digest,
            files=files.tree,
            folders=files.folders,
            granted=granted,
            dependencies=_dependencies(item, files),
        )

    def refusals(self) -> dict[str, Refused | None]:
        """Map each skill with a command line to the error a call would raise, or None.

        No secret is opened for this, and no file is created.
        """
        items = [item for item in self._home.skills.listing() if _has_cli(item)]
        return {item.name: self._refusal(item) for item in items}

    def _refusal(self, item: Listed) -> Refused | None:
        try:
            files, digest = self._files(item)
            kept = self._home.vault.names()
            unopened = replace(
                self._values(item, files),
                secret=lambda name: "" if name in kept else None,
                file=lambda path: Path(path) if path in files.tree else None,
            )
            self._grant_for(item, digest, unopened)
        except Refused as refusal:
            return refusal
        return None

    def _files(self, item: Listed) -> tuple[SkillFiles, str]:
        """Return a skill's files and their hash. Raises `Refused` if a gate is closed."""
        if reason := self._closed_gate(item):
            raise Refused(f"'{item.name}' can't be called: {reason}.", hint="")
        files = self._home.skills.files(item)
        if CLI_CODE not in files.tree or CLI_CODE in files.untrusted:
            raise Refused(f"'{item.name}' has no {CLI_CODE} that a person stands behind.", hint="")
        return files, tree_hash(files.tree)

    def _find(self, name: str) -> Listed:
        item = self._home.skills.snapshot().by_name.get(names.canonical(name))
        if item is None or not _has_cli(item):
            known = ", ".join(self.names()) or "none"
            raise NotFound(f"No skill '{name[:80]}' has a command line here.", hint=f"There are: {known}.")
        return item

    def _closed_gate(self, item: Listed) -> str:
        """Return the first closed gate and how to open it; empty if all are open."""
        assert item.summary is not None
        context = self._home.gates(self._user)
        if item.state in (State.HELD, State.UNTRUSTED):
            return item.reason
        if reason := lifecycle.disabled_by(item.summary, context):
            return reason
        for reason in lifecycle.closed_gates(item.summary, context):
            return reason
        if reason := self._home.skills.untrusted_notice(item):
            return f"{reason}; see 'habitus trust {item.name}'"
        return self._missing_approval(item)

    def _missing_approval(self, item: Listed) -> str:
        """Return why no person has approved what an agent wrote; empty if approved, or written by a person."""
        if not self._home.skills.unreviewed_origin(item):
            return ""
        approvals = self._home.approvals
        # Reads approvals that other processes have stored since.
        approvals.revision()
        address = f"{item.name}@{item.layer}"
        return approvals.objection(APPROVED, item.name, item.tree_hash, lambda: self._home.skills.tree(address))

    def _values(self, item: Listed, files: SkillFiles) -> Values:
        return Values(
            user=self._user.name,
            config=self._home.settings.skill_config,
            secret=self._secret,
            environ=os.environ,
            file=lambda path: self._own_file(item.name, path, files),
        )

    def _grant_for(self, item: Listed, digest: str, values: Values) -> Granted:
        assert item.summary is not None
        grants = Grants(self._home.local, self._home.clock).of(item.name, self._user.name)
        _refuse_if_changed(item.name, grants, digest)
        declared = read_env(item.summary.manifest.env)
        granted = resolve(item.name, declared.specs, grants, values)
        if granted.waiting and not any(grant.kind is GrantKind.SECRET for grant in grants):
            hint = f"Run: habitus secrets grant {' '.join(granted.waiting)} {item.name}"
            raise Refused(f"'{item.name}' asks for secrets, and was granted none.", hint=hint)
        return replace(granted, missing=(*granted.missing, *declared.problems))

    def _secret(self, name: str) -> str | None:
        return self._home.vault.get(name) if name in self._home.vault.names() else None

    def _own_file(self, skill: str, path: str, files: SkillFiles) -> Path | None:
        """Return the user's own copy of a skill's file, created on first use; None if the skill has no such file."""
        own = self._home.place / FILES / harmless(self._user.name) / skill / path
        if path not in files.tree or ".." in Path(path).parts:
            return None
        if not own.exists():
            own.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(own, content_of(path, files.tree[path], files.folders.get(path)))
        return own


def _has_cli(item: Listed) -> bool:
    return item.summary is not None and item.summary.manifest.cli


def _dependencies(item: Listed, files: SkillFiles) -> tuple[str, ...]:
    """Return the packages named in the manifest and in the script's header."""
    assert item.summary is not None
    script = (files.tree[CLI_CODE].content or b"").decode("utf-8", "replace")
    return tuple(dict.fromkeys((*item.summary.manifest.dependencies, *dependencies_of(script))))


def _refuse_if_changed(skill: str, grants: Sequence[Grant], digest: str) -> None:
    changed = [grant for grant in grants if grant.content_hash != digest]
    if changed:
        whose = " --everybody" if changed[0].user == EVERYBODY else ""
        hint = f"See 'habitus skills diff {skill}', then: habitus secrets grant --again{whose} {skill}"
        lost = ", ".join(sorted({grant.what for grant in changed}))
        raise Refused(f"'{skill}' has changed since it was granted {lost}.", hint=hint)


async def run(home: Home, skill: str, arguments: Sequence[str], stdin: bytes = b"") -> Answer:
    """Run a skill's command line as the user of the settings, with their grants."""
    user, name = home.user(), names.canonical(skill)
    # Any name is allowed here: unlike a model, a person is told which gate is closed.
    caller = _open(home, CommandLines(home, user), lambda: [name], who=user.name)
    try:
        return await caller.call(name, arguments, stdin)
    finally:
        await caller.close()


class SessionCalls:
    """The command lines that a conversation's code may call, through a service and the command `habitus-skill`.

    The list is fixed on first use.
    """

    def __init__(self, home: Home, view: View, given: Given, outage: Outage, *, user: User, source_type: str) -> None:
        self._directory = CommandLines(home, user)
        self._view = view
        self._outage = outage
        self._lock = threading.Lock()
        # Only real conversations may call them: a trial or self-play must not use a person's accounts.
        self._names: Collection[str] | None = None if origin_of(source_type) is Origin.REAL else ()
        who = f"{user.name}, session {view.conversation}"
        self._caller = _open(home, self._directory, self.allowed_calls, who=who)
        is_here = home.settings.sandbox.runtime == "local" and home.machine.bubblewrap is not None
        self._proxy = Proxy(self._caller, given.folder / COMMANDS, uid=os.getuid()) if is_here else None
        self.services: Services = {"skills.run": self._ask}

    def allowed_calls(self) -> Collection[str]:
        """Return the skills whose command line may be called; reads the database on first use."""
        with self._lock:
            if self._names is None:
                self._names = self._outage.unless_away(self._callable, None)
            return self._names or ()

    def how_to_call(self, skill: Skill) -> str:
        """Return the lines that tell the model how to call a skill's command line; empty if it may not."""
        if not skill.manifest.cli or skill.name not in self.allowed_calls():
            return ""
        command = f"; `{COMMAND} {skill.name} --help` in a subprocess is the same" if self._proxy is not None else ""
        return (
            f"It has a command line. In the scratchpad, `skills.run({skill.name!r}, '--help')` gives its stdout, "
            f"stderr and code{command}. It runs apart from the scratchpad, with the accounts that a person granted "
            "it, and sees none of its files: pass a text as an argument, or as stdin=…."
        )

    async def ready(self) -> None:
        """Open the proxy for `habitus-skill`, if there is anything to call."""
        if self._proxy is None:
            return
        names = await in_thread(self.allowed_calls) if self._names is None else self._names
        if names:
            await self._proxy.open()

    async def close(self) -> None:
        """Close the proxy and end all calls."""
        if self._proxy is not None:
            await self._proxy.close()
        await self._caller.close()

    def _callable(self) -> frozenset[str]:
        """Return the callable skills among those that the model may load."""
        named = loadable(self._view.snapshot)
        stated = (item.summary for item in self._view.snapshot.listing if item.name in named)
        # Most libraries have no command line at all, so gates need not be checked.
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
