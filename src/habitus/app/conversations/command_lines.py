"""Command lines of skills: check gates, look up grants, and offer the calls to scratchpads, tools and a shell."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from habitus import operating_system
from habitus.agent.background import run_in_thread
from habitus.agent.library.view import LibraryView, list_all_loadable_skill_names
from habitus.app.conversations.running_code import (
    open_store_of_given_files_by_hash,
    open_virtual_environment_cache,
    open_warm_process_pool_for_tools,
)
from habitus.app.conversations.secrets import open_command_line_call_log
from habitus.app.library.layers import build_skill_gate_context
from habitus.errors import NotFound, Refused
from habitus.files import compute_tree_hash, read_tree_file, write_atomically
from habitus.journal.model import TurnOrigin, classify_turn_origin
from habitus.sandbox.child import HostServices
from habitus.sandbox.credentials.command_lines import (
    COMMAND,
    CommandLineRunner,
    SkillCommandLineServer,
    SkillCommandRunResult,
)
from habitus.sandbox.credentials.grants import (
    ALL_USERS,
    Grant,
    GrantedCredentials,
    GrantStore,
    GrantTargetKind,
    SkillCommandLine,
    VariableValueSources,
    parse_env_declarations,
    resolve_credentials,
)
from habitus.sandbox.files import COMMANDS, GivenFolder, sanitize_file_name
from habitus.sandbox.machine import probe_machine
from habitus.skills import lifecycle, names
from habitus.skills.choosing.selection import RequestUser
from habitus.skills.layers.copies import SkillFiles
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.model import Skill, SkillState
from habitus.skills.sources.trust import APPROVED_ROOT
from habitus.skills.trees import CLI_CODE
from habitus.sql.outage import OutageGuard
from habitus.tools.code_stage import parse_dependencies

if TYPE_CHECKING:
    from habitus.app.home import Home


# Copies of skills' files that belong to the user from then on.
SKILL_FILES_DIR = "skill-files"


class UserSkillCommandLineRegistry:
    """The `SkillCommandLineLookup` of one user.

    Nothing is cached: a gate that was closed meanwhile is closed.
    """

    def __init__(self, home: Home, user: RequestUser) -> None:
        self._home = home
        self._user = user

    def list_skills_with_open_command_line(self) -> Sequence[str]:
        """Return the skills with a command line that no gate closes for this user; their secrets may be missing."""
        return [
            item.name
            for item in self._home.skills.list_skills()
            if _is_skill_with_command_line(item) and not self._explain_first_closed_gate(item)
        ]

    def get_checked_command_line(self, name: str) -> SkillCommandLine:
        """Return a skill's command line with its grants. Raises `Refused` if it may not be called."""
        item = self._find_skill_with_command_line(name)
        files, digest = self._read_skill_files_if_allowed(item)
        granted = self._resolve_granted_credentials(item, digest, self._build_environment_variable_sources(item, files))
        for value in granted.sensitive:
            # From now on the value is redacted in everything that is stored or shown.
            self._home.vault.add_value_to_redact(value)
        return SkillCommandLine(
            skill=item.name,
            script=CLI_CODE,
            content_hash=digest,
            files=files.tree,
            folders=files.folders,
            granted=granted,
            dependencies=_list_command_line_packages(item, files),
        )

    def map_skills_to_call_errors(self) -> dict[str, Refused | None]:
        """Map each skill with a command line to the error a call would raise, or None.

        No secret is opened for this, and no file is created.
        """
        items = [item for item in self._home.skills.list_skills() if _is_skill_with_command_line(item)]
        return {item.name: self._find_call_error_of_skill(item) for item in items}

    def _find_call_error_of_skill(self, item: ListedSkill) -> Refused | None:
        try:
            files, digest = self._read_skill_files_if_allowed(item)
            kept = self._home.vault.list_secret_names()
            unopened = replace(
                self._build_environment_variable_sources(item, files),
                secret=lambda name: "" if name in kept else None,
                file=lambda path: Path(path) if path in files.tree else None,
            )
            self._resolve_granted_credentials(item, digest, unopened)
        except Refused as refusal:
            return refusal
        return None

    def _read_skill_files_if_allowed(self, item: ListedSkill) -> tuple[SkillFiles, str]:
        """Return a skill's files and their hash. Raises `Refused` if a gate is closed."""
        if reason := self._explain_first_closed_gate(item):
            raise Refused(f"'{item.name}' can't be called: {reason}.", hint="")
        files = self._home.skills.read_files(item)
        if CLI_CODE not in files.tree or CLI_CODE in files.untrusted:
            raise Refused(f"'{item.name}' has no {CLI_CODE} that a person has approved.", hint="")
        return files, compute_tree_hash(files.tree)

    def _find_skill_with_command_line(self, name: str) -> ListedSkill:
        item = self._home.skills.snapshot().by_name.get(names.canonicalize_name(name))
        if item is None or not _is_skill_with_command_line(item):
            known = ", ".join(self.list_skills_with_open_command_line()) or "none"
            raise NotFound(f"No skill '{name[:80]}' has a command line here.", hint=f"There are: {known}.")
        return item

    def _explain_first_closed_gate(self, item: ListedSkill) -> str:
        """Return the first closed gate and how to open it; empty if all are open."""
        assert item.summary is not None
        context = build_skill_gate_context(self._home.settings, self._user)
        if item.state in (SkillState.HELD, SkillState.UNTRUSTED):
            return item.reason
        if reason := lifecycle.explain_disabled(item.summary, context):
            return reason
        for reason in lifecycle.list_closed_gates(item.summary, context):
            return reason
        if reason := self._home.skills.describe_missing_trust(item):
            return f"{reason}; see 'habitus review trust {item.name}'"
        return self._explain_missing_approval(item)

    def _explain_missing_approval(self, item: ListedSkill) -> str:
        """Return why no person has approved what an agent wrote; empty if approved, or written by a person."""
        if not self._home.skills.describe_unreviewed_origin(item):
            return ""
        approvals = self._home.approvals
        # Reads approvals that other processes have stored since.
        approvals.read_revision()
        address = f"{item.name}@{item.layer}"
        return approvals.explain_distrust(
            APPROVED_ROOT, item.name, item.tree_hash, lambda: self._home.skills.read_tree(address)
        )

    def _build_environment_variable_sources(self, item: ListedSkill, files: SkillFiles) -> VariableValueSources:
        return VariableValueSources(
            user=self._user.name,
            config=self._home.settings.skill_config,
            secret=self._get_secret,
            environ=os.environ,
            file=lambda path: self._get_or_create_user_file_copy(item.name, path, files),
        )

    def _resolve_granted_credentials(
        self, item: ListedSkill, digest: str, values: VariableValueSources
    ) -> GrantedCredentials:
        assert item.summary is not None
        grants = GrantStore(self._home.local, self._home.clock).list_for_skill(item.name, self._user.name)
        _refuse_if_skill_changed_since_grant(item.name, grants, digest)
        declared = parse_env_declarations(item.summary.manifest.env)
        granted = resolve_credentials(item.name, declared.specs, grants, values)
        if granted.pending and not any(grant.kind is GrantTargetKind.SECRET for grant in grants):
            hint = f"Run: habitus secrets grant {' '.join(granted.pending)} {item.name}"
            raise Refused(f"'{item.name}' asks for secrets, and was granted none.", hint=hint)
        return replace(granted, missing=(*granted.missing, *declared.problems))

    def _get_secret(self, name: str) -> str | None:
        return self._home.vault.get(name) if name in self._home.vault.list_secret_names() else None

    def _get_or_create_user_file_copy(self, skill: str, path: str, files: SkillFiles) -> Path | None:
        """Return the user's own copy of a skill's file, created on first use; None if the skill has no such file."""
        own = self._home.writable_dir / SKILL_FILES_DIR / sanitize_file_name(self._user.name) / skill / path
        if path not in files.tree or ".." in Path(path).parts:
            return None
        if not own.exists():
            own.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(own, read_tree_file(path, files.tree[path], files.folders.get(path)))
        return own


def _is_skill_with_command_line(item: ListedSkill) -> bool:
    return item.summary is not None and item.summary.manifest.cli


def _list_command_line_packages(item: ListedSkill, files: SkillFiles) -> tuple[str, ...]:
    """Return the packages named in the manifest and in the script's header."""
    assert item.summary is not None
    script = (files.tree[CLI_CODE].content or b"").decode("utf-8", "replace")
    return tuple(dict.fromkeys((*item.summary.manifest.dependencies, *parse_dependencies(script))))


def _refuse_if_skill_changed_since_grant(skill: str, grants: Sequence[Grant], digest: str) -> None:
    changed = [grant for grant in grants if grant.content_hash != digest]
    if changed:
        whose = " --everybody" if changed[0].user == ALL_USERS else ""
        hint = f"See 'habitus skills diff {skill}', then: habitus secrets grant --again{whose} {skill}"
        lost = ", ".join(sorted({grant.what for grant in changed}))
        raise Refused(f"'{skill}' has changed since it was granted {lost}.", hint=hint)


async def run_command_line(
    home: Home, skill: str, arguments: Sequence[str], stdin: bytes = b""
) -> SkillCommandRunResult:
    """Run a skill's command line as the user of the settings, with their grants."""
    user, name = home.get_user(), names.canonicalize_name(skill)
    # Any name is allowed here: unlike a model, a person is told which gate is closed.
    caller = _open_command_line_runner(home, UserSkillCommandLineRegistry(home, user), lambda: [name], who=user.name)
    try:
        return await caller.run_command_line(name, arguments, stdin)
    finally:
        await caller.close()


class SessionCommandLineService:
    """The command lines that a conversation's code may call, through a service and the command `habitus-skill`.

    The list is fixed on first use.
    """

    def __init__(
        self,
        home: Home,
        view: LibraryView,
        given: GivenFolder,
        outage: OutageGuard,
        *,
        user: RequestUser,
        source_type: str,
    ) -> None:
        self._directory = UserSkillCommandLineRegistry(home, user)
        self._view = view
        self._outage = outage
        self._lock = threading.Lock()
        # Only real conversations may call them: a trial or self-play must not use a person's accounts.
        self._names: Collection[str] | None = None if classify_turn_origin(source_type) is TurnOrigin.REAL else ()
        who = f"{user.name}, session {view.conversation}"
        self._caller = _open_command_line_runner(
            home, self._directory, self.list_skills_with_callable_command_line, who=who
        )
        is_here = home.settings.sandbox.runtime == "local" and probe_machine().bubblewrap is not None
        uid = operating_system.get_current_user_id()
        self._proxy = SkillCommandLineServer(self._caller, given.folder / COMMANDS, uid=uid) if is_here else None
        self.services: HostServices = {"skills.run": self._answer_call}

    def list_skills_with_callable_command_line(self) -> Collection[str]:
        """Return the skills whose command line may be called; reads the database on first use."""
        with self._lock:
            if self._names is None:
                self._names = self._outage.read_or_default(self._find_callable_skills, None)
            return self._names or ()

    def describe_command_line_calls_for_model(self, skill: Skill) -> str:
        """Return the lines that tell the model how to call a skill's command line; empty if it may not."""
        if not skill.manifest.cli or skill.name not in self.list_skills_with_callable_command_line():
            return ""
        command = f"; `{COMMAND} {skill.name} --help` in a subprocess is the same" if self._proxy is not None else ""
        return (
            f"It has a command line. In the scratchpad, `skills.run({skill.name!r}, '--help')` gives its stdout, "
            f"stderr and code{command}. It runs apart from the scratchpad, with the accounts that a person granted "
            "it, and sees none of its files: pass a text as an argument, or as stdin=…."
        )

    async def open_command_line_proxy(self) -> None:
        """Open the proxy for `habitus-skill`, if there is anything to call."""
        if self._proxy is None:
            return
        names = await run_in_thread(self.list_skills_with_callable_command_line) if self._names is None else self._names
        if names:
            await self._proxy.open()

    async def close(self) -> None:
        """Close the proxy and end all calls."""
        if self._proxy is not None:
            await self._proxy.close()
        await self._caller.close()

    def _find_callable_skills(self) -> frozenset[str]:
        """Return the callable skills among those that the model may load."""
        named = list_all_loadable_skill_names(self._view.snapshot)
        stated = (item.summary for item in self._view.snapshot.listing if item.name in named)
        # Most libraries have no command line at all, so gates need not be checked.
        if not any(summary is not None and summary.manifest.cli for summary in stated):
            return frozenset()
        return frozenset(named.intersection(self._directory.list_skills_with_open_command_line()))

    async def _answer_call(self, question: Any) -> dict[str, Any]:
        return (await self._caller.run_untrusted_call_request(question)).to_socket_message()


def _open_command_line_runner(
    home: Home, directory: UserSkillCommandLineRegistry, allowed: Callable[[], Collection[str]], *, who: str
) -> CommandLineRunner:
    return CommandLineRunner(
        directory,
        allowed,
        open_command_line_call_log(home),
        open_warm_process_pool_for_tools(home),
        open_virtual_environment_cache(home.writable_dir),
        open_given_folder=partial(open_store_of_given_files_by_hash, home.writable_dir),
        caller=who,
        clock=home.clock,
    )
