"""`Tools`: make, offer, run, test, retire and restore the code stage of skills."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Self

from habitus.errors import HabitusError, Invalid, NotFound, Refused, ToolFailed
from habitus.events import Outcome, OutcomeKind
from habitus.files import Tree
from habitus.sandbox.model import Permissions, ToolRun
from habitus.skills import names, trees
from habitus.skills.layers import USER, Layer
from habitus.skills.library import Library
from habitus.skills.listing import Listed, Snapshot
from habitus.skills.model import Author, Source, Stage, State
from habitus.skills.review import Action, Change, Proposal, Review
from habitus.skills.trust import APPROVED, IMPORTED, Scan, Trust
from habitus.tools.files import is_only_a_tool, program_of, with_tool, without_tool
from habitus.tools.health import ToolHealth
from habitus.tools.lifecycle import Health, after_call, after_curator, reason_to_retire
from habitus.tools.model import Created, Retired, Tool, ToolStatus
from habitus.tools.program import Case, Draft, Json, Regression, ToolProgram
from habitus.tools.workshop import Workshop, fingerprint

_PROVED = "proved_as"
NOTHING_GRANTED = Permissions()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """What the files of a skill make: a program, or the reason why none."""

    program: ToolProgram | None = None
    code: str = ""  # its fingerprint
    problem: str = ""


class Tools:
    """Use it in an `async with` block where tools are made or run, so that no process of the sandbox is left.

    `hire` makes a workshop together with the way to close it; `trust` and `approvals` know which code may act.
    """

    def __init__(
        self,
        library: Library,
        review: Review,
        health: ToolHealth,
        *,
        trust: Trust,
        approvals: Trust,
        hire: Callable[[], Workshop],
        clock: Callable[[], datetime],
        scan: Scan,
        environ: Mapping[str, str],
        redacted: Callable[[str], str],
    ) -> None:
        self._library = library
        self._review = review
        self._health = health
        self._trust = trust
        self._approvals = approvals
        self._hire = hire
        self._clock = clock
        self._scan = scan
        self._environ = environ
        self._redacted = redacted
        self._read: dict[tuple[str, str, str], _Read] = {}
        self._hired: tuple[asyncio.AbstractEventLoop, Workshop] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the sandbox's processes; the next call starts them again."""
        hired, self._hired = self._hired, None
        if hired is not None and hired[0] is asyncio.get_running_loop():
            await hired[1].close()

    # Offering

    def active(self, *, at: Snapshot | None = None) -> tuple[Tool, ...]:
        """What may be offered to a model, by name."""
        return tuple(tool for tool in self.all(at=at) if tool.status is ToolStatus.ACTIVE)

    def all(self, *, at: Snapshot | None = None) -> tuple[Tool, ...]:
        """Every skill that has a code stage, whatever keeps it from use."""
        seen = at or self._library.snapshot()
        items = [item for item in seen.listing if item.summary and Stage.CODE in item.summary.stages]
        if not items:
            return ()
        known = self._health.all()
        self._approvals.revision()
        return tuple(self._tool(item, known.get((self._place(item), item.name), Health())) for item in items)

    def get(self, name: str) -> Tool:
        """The tool that a name, or the name a model calls it by, stands for."""
        item = self._item(name)
        self._approvals.revision()
        return self._tool(item, self._health.get(self._place(item), item.name))

    def code(self, name: str) -> str:
        """The text of its `scripts/tool.py`."""
        return self._program(self._item(name)).code

    def _item(self, name: str) -> Listed:
        item = next((item for item in self._library.listing() if item.name == names.canonical(name)), None)
        if item is None or item.summary is None or Stage.CODE not in item.summary.stages:
            near = names.closest_match(name, [tool.name for tool in self.all()])
            mend = f"Did you mean '{near}'?" if near else "See 'habitus tools list'."
            raise NotFound(f"There is no tool '{name}'.", mend=mend)
        return item

    def _tool(self, item: Listed, health: Health) -> Tool:
        assert item.summary is not None
        read = self._read_item(item)
        status, reason = self._status(item, read, health)
        plain = Tool(
            name=item.name,
            callable_name=names.callable_name(item.name),
            description=item.summary.description,
            parameters={},
            status=status,
            reason=reason,
            version=item.summary.version,
            layer=item.layer,
        )
        program = read.program
        if program is None:
            return plain
        return replace(
            plain,
            description=program.description or item.summary.description,
            parameters=program.parameters,
            example=program.cases[-1].payload if program.cases else None,
            permissions=program.permissions,
            dependencies=program.dependencies,
            cases=len(program.cases),
            proved_on=health.proved_on if health.proved_as == read.code else None,
        )

    def _status(self, item: Listed, read: _Read, health: Health) -> tuple[ToolStatus, str]:
        """The first thing that keeps it from being offered."""
        if read.program is None:
            return ToolStatus.BROKEN, read.problem
        if item.state is not State.OK:
            return ToolStatus.OFF, f"{item.state.value}: {item.reason}"
        if objection := self._objection(item):
            return ToolStatus.UNAPPROVED, objection
        if health.is_degraded(read.code):
            return ToolStatus.DEGRADED, f"failed {health.streak} times in a row: {health.last_failure}"
        return ToolStatus.ACTIVE, ""

    def _objection(self, item: Listed) -> str:
        """Why no person stands behind this code; nothing when one does."""
        layer, digest = self._library.layer(item.layer), item.tree_hash
        if layer.source in (Source.BUNDLED, Source.OPERATOR) or layer.trust_root:
            return ""  # its owner answers for it, and the listing says whether a project is trusted
        is_imported = item.summary is not None and item.summary.source is Source.IMPORTED
        if is_imported and self._trust.is_trusted_as_it_is(IMPORTED, item.name, digest):
            return ""
        return self._approvals.objection(APPROVED, item.name, digest, lambda: self._tree(item))

    # Making

    async def create(
        self,
        name: str,
        description: str,
        parameters: Json,
        code: str,
        payload: Json,
        author: Author,
        *,
        permissions: Permissions = NOTHING_GRANTED,
        dependencies: Sequence[str] = (),
        drop_cases: bool = False,
        conversation: str = "",
        taken: Collection[str] = (),
    ) -> Created:
        """Test a tool in the sandbox and make it the code stage of the skill of that name.

        A person's is there at once; an agent's waits for a person, and is tested without permissions nobody has
        granted yet. `ToolFailed` has the one-line cause, and nothing was changed. Cases that the skill's tool has must
        go on passing unless they are dropped. Names that are `taken` by other tools are refused.
        """
        try:
            name = names.checked(name)
        except Invalid as error:
            raise ToolFailed(str(error)) from None
        if name in {names.canonical(other) for other in taken}:
            raise ToolFailed(f"There is another tool called '{names.callable_name(name)}'. Choose another name.")
        item = self._existing(name)
        layer, before = (self._library.layer(USER), {}) if item is None else self._target(item)
        old = self._program_before(item)
        granted = permissions if not author.is_automatic else _granted(old, permissions, self._is_approved(item))
        draft = Draft(
            name=name,
            description=description,
            parameters=parameters,
            code=code,
            payload=payload,
            permissions=granted,
            dependencies=tuple(dependencies),
        )
        kept: tuple[Case, ...] = () if old is None or drop_cases else old.cases
        try:
            program = await self._workshop().acquire(draft, kept=kept, env=self._environ)
        except ToolFailed as error:
            raise ToolFailed(f"{error}{_untested(permissions, granted)}") from None
        program = replace(program, permissions=permissions)
        return self._submit(program, layer, before, author, conversation)

    def _submit(self, program: ToolProgram, layer: Layer, before: Tree, author: Author, conversation: str) -> Created:
        tree = with_tool(before, program, is_automatic=author.is_automatic)
        change = Change(
            action=Action.WRITE,
            name=program.name,
            layer=layer.name,
            tree=tree,
            findings=tuple(self._scan(tree)) if author.is_automatic else (),
            details={_PROVED: fingerprint(program)},
        )
        submitted = self._review.submit(change, author, conversation=conversation)
        if submitted.proposal is not None:
            waiting = submitted.proposal
            undo = ("review", "reject", str(waiting.id))
            return Created(name=program.name, applied=False, proposal=waiting.id, reasons=waiting.reasons, undo=undo)
        self._approve(layer, program.name, tree, author.name, fingerprint(program))
        version = submitted.version or 1
        address = f"{program.name}@{layer.name}"
        back = ("skills", "rollback", address, "--to", str(version - 1))
        return Created(
            name=program.name,
            applied=True,
            version=version,
            undo=back if version > 1 else ("tools", "remove", address),
        )

    def approved(self, proposal: Proposal) -> None:
        """A person has let a proposal in: they stand behind the code it brings, as it is."""
        change = proposal.change
        if change.action is Action.WRITE and trees.TOOL_CODE in change.tree:
            layer = self._library.layer(change.layer)
            proved = str(change.details.get(_PROVED, ""))
            self._approve(layer, change.name, change.tree, self._review.get(proposal.id).decided_by, proved)

    def approve(self, name: str, person: str) -> Tool:
        """Stand behind the code of a tool as it is now, with the permissions it asks for."""
        item = self._item(name)
        self._approvals.trust(APPROVED, {item.name: self._tree(item)}, person)
        return self.get(name)

    def _approve(self, layer: Layer, name: str, tree: Tree, person: str, proved_as: str) -> None:
        self._approvals.trust(APPROVED, {name: tree}, person)
        if proved_as:
            self._prove(layer.trust_root or layer.name, name, proved_as)

    def _prove(self, place: str, name: str, code: str) -> None:
        self._health.change(place, name, lambda health: replace(health, proved_as=code, proved_on=self._clock()))

    def _existing(self, name: str) -> Listed | None:
        return next((item for item in self._library.listing() if item.name == name and item.summary), None)

    def _target(self, item: Listed) -> tuple[Layer, Tree]:
        """Where a skill's tool is written: with the skill, or above it where that can't be written."""
        layer = self._library.layer(item.layer)
        return (layer if layer.can_write else self._library.layer(USER)), self._tree(item)

    def _program_before(self, item: Listed | None) -> ToolProgram | None:
        return None if item is None else self._read_item(item).program

    def _is_approved(self, item: Listed | None) -> bool:
        self._approvals.revision()
        return item is not None and item.state is State.OK and not self._objection(item)

    # Running

    async def run(self, name: str, payload: Json) -> ToolRun:
        """Call a tool and count how it went. `ToolFailed`: the payload does not fit, which counts for nobody."""
        item = self._item(name)
        tool = self.get(name)
        if not tool.can_run:
            raise Refused(f"The tool '{tool.name}' can't run: {tool.reason}.", mend=_mend(tool))
        program = self._program(item)
        run = self._clean(await self._workshop().run(program, payload, env=self._environ))
        self._count(item, fingerprint(program), run.outcome)
        return run

    def _clean(self, run: ToolRun) -> ToolRun:
        """A key that a tool prints is for nobody's eyes, and no model's."""
        return replace(
            run,
            stdout=self._redacted(run.stdout),
            stderr=self._redacted(run.stderr),
            outcome=replace(run.outcome, reason=self._redacted(run.outcome.reason)),
        )

    def _count(self, item: Listed, code: str, outcome: Outcome) -> None:
        """Counters and health together: either both know of the call, or neither."""
        succeeded = None if outcome.kind is OutcomeKind.INFRA else outcome.is_ok
        with self._health.writing():
            self._health.change(
                self._place(item), item.name, lambda health: after_call(health, code, outcome, self._clock())
            )
            self._library.layer(item.layer).store.record_use(item.name, stage=Stage.CODE, succeeded=succeeded)

    async def test(self, name: str) -> Regression:
        """Run its kept cases again; code that nobody approved runs without the permissions it asks for."""
        item = self._item(name)
        program, health = self._program(item), self._health.get(self._place(item), item.name)
        trial = program if self.get(name).can_run else replace(program, permissions=NOTHING_GRANTED)
        report = await self._workshop().regress(trial, proved_as=health.proved_as, env=self._environ)
        if report.passed and report.results:
            self._prove(self._place(item), item.name, report.fingerprint)
        return report

    # Waiting for a person

    def waiting(self, conversation: str) -> tuple[Tool, ...]:
        """The tools that wait and were written in this conversation: there they can be called already."""
        return tuple(
            Tool(
                name=program.name,
                callable_name=names.callable_name(program.name),
                description=program.description,
                parameters=program.parameters,
                status=ToolStatus.UNAPPROVED,
                reason="waits for a person",
                example=program.cases[-1].payload if program.cases else None,
                permissions=program.permissions,
                dependencies=program.dependencies,
                cases=len(program.cases),
            )
            for program in self._waiting_programs(conversation).values()
        )

    async def run_waiting(self, conversation: str, name: str, payload: Json) -> ToolRun:
        """Call one of them, without any permission, and count nothing: it is nobody's tool yet."""
        program = self._waiting_programs(conversation).get(names.canonical(name))
        if program is None:
            raise NotFound(f"No tool '{name}' waits in this conversation.", mend="See 'habitus review list'.")
        return self._clean(await self._workshop().run(replace(program, permissions=NOTHING_GRANTED), payload))

    def _waiting_programs(self, conversation: str) -> dict[str, ToolProgram]:
        changes = [proposal.change for proposal in self._review.list() if proposal.conversation == conversation]
        return {
            change.name: program_of(change.name, change.tree)
            for change in changes
            if change.action is Action.WRITE and trees.TOOL_CODE in change.tree
        }

    # Leaving and coming back

    async def curate(self, author: Author) -> list[Retired]:
        """Look at every degraded tool once, and send those to the archive that have had their time."""
        retired = []
        for tool in self.all():
            if tool.status is not ToolStatus.DEGRADED:
                continue
            item = self._item(tool.name)
            report = await self.test(tool.name)
            _, health = self._health.change(self._place(item), item.name, after_curator)
            reason = reason_to_retire(health, self._clock(), fails_its_cases=bool(report.failed))
            if reason:
                retired.append(self.retire(tool.name, replace(author, reason=reason)))
        return retired

    def retire(self, name: str, author: Author) -> Retired:
        """Take a tool out of use. A skill that is nothing else goes to the archive; another keeps its other stages."""
        wanted = names.parse_address(name)
        item = self._item(wanted.name)
        layer = self._library.layer(item.layer)
        if wanted.layer not in (None, item.layer):
            raise NotFound(f"There is no tool '{name}'.", mend=f"It is in the layer '{item.layer}'.")
        if not layer.can_write:
            raise Refused(f"'{item.name}' is in the read-only layer '{layer.name}'.", mend="Disable it instead.")
        author = replace(author, reason=author.reason or "tool retired")
        tree = self._tree(item)
        address = f"{item.name}@{item.layer}"
        if is_only_a_tool(item.name, tree):
            self._library.remove(address, author)
        else:
            self._library.write_tree(item.layer, item.name, without_tool(tree), author)
        return Retired(name=item.name, reason=author.reason, undo=("tools", "restore", address))

    remove = retire

    def restore(self, name: str, author: Author) -> Tool:
        """Bring a tool back as it was; what was counted against it is forgotten."""
        wanted = names.parse_address(name)
        item = self._existing(wanted.name)
        author = replace(author, reason=author.reason or "tool restored")
        if item is None:
            self._library.restore(name, author)
        elif item.summary is not None and Stage.CODE in item.summary.stages:
            raise Invalid(f"The tool '{item.name}' is there already.", mend="See 'habitus tools list'.")
        else:
            self._put_back(item, author)
        found = self._item(wanted.name)
        self._health.change(
            self._place(found),
            found.name,
            lambda health: Health(proved_as=health.proved_as, proved_on=health.proved_on),
        )
        return self.get(found.name)

    def _put_back(self, item: Listed, author: Author) -> None:
        """The newest code in the skill's history, beside what the skill is now."""
        store = self._library.layer(item.layer).store
        with_code = [version for version in store.history(item.name) if trees.TOOL_CODE in version.paths]
        if not with_code:
            raise NotFound(f"'{item.name}' never had a tool.", mend="Make one: 'habitus tools new'.")
        old = store.tree(item.name, with_code[-1].number) or {}
        code = {path: old[path] for path in (trees.TOOL_FILE, trees.TOOL_CODE) if path in old}
        self._library.write_tree(item.layer, item.name, {**self._tree(item), **code}, author)

    # Reading

    def _read_item(self, item: Listed) -> _Read:
        """Parsed once for each content."""
        key = (item.layer, item.name, item.tree_hash)
        if key not in self._read:
            try:
                program = program_of(item.name, self._tree(item))
                self._read[key] = _Read(program=program, code=fingerprint(program))
            except HabitusError as error:
                self._read[key] = _Read(problem=str(error))
        return self._read[key]

    def _program(self, item: Listed) -> ToolProgram:
        read = self._read_item(item)
        if read.program is None:
            raise Invalid(f"The tool '{item.name}' is broken: {read.problem}", mend="")
        return read.program

    def _tree(self, item: Listed) -> Tree:
        return self._library.tree(f"{item.name}@{item.layer}")

    def _place(self, item: Listed) -> str:
        return self._library.layer(item.layer).trust_root or item.layer

    def _workshop(self) -> Workshop:
        """One for each event loop: its processes can't be waited for from another."""
        loop = asyncio.get_running_loop()
        if self._hired is None or self._hired[0] is not loop:
            self._hired = (loop, self._hire())
        return self._hired[1]


def _granted(old: ToolProgram | None, wanted: Permissions, is_approved: bool) -> Permissions:
    """Of what an agent's code wants, what a person has already granted to the tool it replaces."""
    had = old.permissions if old is not None and is_approved else NOTHING_GRANTED
    return Permissions(
        network=wanted.network and had.network,
        read=tuple(path for path in wanted.read if path in had.read),
        write=tuple(path for path in wanted.write if path in had.write),
        env=tuple(name for name in wanted.env if name in had.env),
    )


def _untested(wanted: Permissions, granted: Permissions) -> str:
    if wanted == granted:
        return ""
    return " (It was tested without the permissions it asks for: only a person can grant them.)"


def _mend(tool: Tool) -> str:
    match tool.status:
        case ToolStatus.UNAPPROVED:
            return f"Read it first: 'habitus tools show {tool.name}'."
        case ToolStatus.BROKEN:
            return "Mend its files, or roll it back."
        case _:
            return "See 'habitus skills list'."
