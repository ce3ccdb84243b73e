"""The catalogue of tools: which skills have a code stage, which program their files form, and whether it may run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from habitus.errors import HabitusError, Invalid, NotFound
from habitus.files import Tree
from habitus.skills import names, trees
from habitus.skills.layers.listing import Listed, Snapshot
from habitus.skills.library import Library
from habitus.skills.model import Source, Stage, State
from habitus.skills.sources.trust import APPROVED, IMPORTED, Trust
from habitus.tasks.model import Task
from habitus.tasks.schema import Json
from habitus.tools.code_stage import program_of
from habitus.tools.health import Health, ToolHealth
from habitus.tools.model import CodeTool, ToolProgram, ToolStatus
from habitus.tools.workshop import fingerprint


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """A parsed code stage: a program, or the reason why there is none."""

    program: ToolProgram | None = None
    # The fingerprint of the program.
    code: str = ""
    problem: str = ""


class ToolCatalogue:
    """Reads programs from skills, caching them by content; `trust` and `approvals` know which code may run."""

    def __init__(self, library: Library, health: ToolHealth, *, trust: Trust, approvals: Trust) -> None:
        self._library = library
        self._health = health
        self._trust = trust
        self._approvals = approvals
        self._known: dict[tuple[str, str, str], _Read] = {}

    def active(self, *, at: Snapshot | None = None) -> tuple[CodeTool, ...]:
        """Return the tools that may be offered to a model, by name."""
        return tuple(tool for tool in self.all(at=at) if tool.status is ToolStatus.ACTIVE)

    def all(self, *, at: Snapshot | None = None) -> tuple[CodeTool, ...]:
        """Return the tools of all skills with a code stage, whatever their status."""
        items = (at or self._library.snapshot()).with_code
        if not items:
            return ()
        known = self._health.all()
        self._approvals.revision()
        return tuple(self._tool(item, known.get((self.place(item), item.name), Health())) for item in items)

    def get(self, name: str) -> CodeTool:
        """Return a tool by its skill's name or its callable name."""
        item = self.item(name)
        self._approvals.revision()
        return self._tool(item, self._health.get(self.place(item), item.name))

    def code(self, name: str) -> str:
        """Return the text of its `scripts/tool.py`."""
        return self.program(self.item(name)).code

    def cases(self, name: str) -> tuple[Task, ...]:
        """Return its test cases."""
        return self.program(self.item(name)).cases

    def item(self, name: str) -> Listed:
        """Return the skill of a tool; `NotFound` if it has no code stage."""
        item = self.skill(names.canonical(name))
        if item is None or not _has_code(item):
            near = names.closest_match(name, [tool.name for tool in self.all()])
            hint = f"Did you mean '{near}'?" if near else "See 'habitus tools list'."
            raise NotFound(f"There is no tool '{name}'.", hint=hint)
        return item

    def skill(self, name: str) -> Listed | None:
        """Return the skill of that name, with or without a code stage; None if there is none."""
        return next((item for item in self._library.listing() if item.name == name and item.summary), None)

    def program(self, item: Listed) -> ToolProgram:
        """Return the program of a skill; `Invalid` if it is broken."""
        read = self._read(item)
        if read.program is None:
            raise Invalid(f"The tool '{item.name}' is broken: {read.problem}", hint="")
        return read.program

    def program_if_any(self, item: Listed) -> ToolProgram | None:
        """Return the program of a skill, or None if it is broken."""
        return self._read(item).program

    def is_approved(self, item: Listed) -> bool:
        """Whether the skill is in use and its code approved."""
        self._approvals.revision()
        return item.state is State.OK and not self.objection(item)

    def tree(self, item: Listed) -> Tree:
        """Return the files of a skill."""
        return self._library.tree(f"{item.name}@{item.layer}")

    def place(self, item: Listed) -> str:
        """Return the key of its health: the layer, or the folder of a project's layer."""
        return self._library.layer(item.layer).trust_root or item.layer

    def _tool(self, item: Listed, health: Health) -> CodeTool:
        assert item.summary is not None
        read = self._read(item)
        status, reason = self._status(item, read, health)
        program = read.program or ToolProgram(name=item.name, description="", parameters={}, code="")
        tool = code_tool(program, status, reason)
        return replace(
            tool,
            description=tool.description or item.summary.description,
            proved_on=health.proved_on if read.code and health.proved_as == read.code else None,
            version=item.summary.version,
            layer=item.layer,
        )

    def _status(self, item: Listed, read: _Read, health: Health) -> tuple[ToolStatus, str]:
        """Return the first reason that keeps it from being offered."""
        if read.program is None:
            return ToolStatus.BROKEN, read.problem
        if item.state is not State.OK:
            return ToolStatus.OFF, f"{item.state.value}: {item.reason}"
        if objection := self.objection(item):
            return ToolStatus.UNAPPROVED, objection
        if health.is_degraded(read.code):
            return ToolStatus.DEGRADED, health.why_degraded
        return ToolStatus.ACTIVE, ""

    def objection(self, item: Listed) -> str:
        """Return why the code is not approved; "" if it is."""
        layer, digest = self._library.layer(item.layer), item.tree_hash
        if layer.source in (Source.BUNDLED, Source.OPERATOR) or layer.trust_root:
            # Its owner is responsible for it, and the listing says whether a project is trusted.
            return ""
        is_imported = item.summary is not None and item.summary.source is Source.IMPORTED
        if is_imported and self._trust.is_trusted_as_it_is(IMPORTED, item.name, digest):
            return ""
        return self._approvals.objection(APPROVED, item.name, digest, lambda: self.tree(item))

    def _read(self, item: Listed) -> _Read:
        key = (item.layer, item.name, item.tree_hash)
        if key not in self._known:
            try:
                tree = self.tree(item)
                trees.refuse_clash(item.name, tree)
                program = program_of(item.name, tree)
                self._known[key] = _Read(program=program, code=fingerprint(program))
            except HabitusError as error:
                self._known[key] = _Read(problem=str(error))
        return self._known[key]


def code_tool(program: ToolProgram, status: ToolStatus, reason: str) -> CodeTool:
    """Build the description of a program for others."""
    return CodeTool(
        name=program.name,
        callable_name=names.callable_name(program.name),
        description=program.description,
        parameters=program.parameters,
        status=status,
        reason=reason,
        example=program.cases[-1].payload if program.cases else None,
        permissions=program.permissions,
        dependencies=program.dependencies,
        returns=_returns(program.cases),
        cases=len(program.cases),
        by_shape=sum(case.expected_result is None for case in program.cases),
        is_compared=program.is_compared,
    )


def _returns(cases: Sequence[Task]) -> dict[str, Json] | None:
    """Return the keys that every case printed, without types, which other payloads may change."""
    if not cases or any(case.shape.get("type") != "object" for case in cases):
        return None
    keys = dict.fromkeys(key for case in cases for key in case.shape.get("properties", {}))
    return {"type": "object", "properties": {key: {} for key in keys}}


def _has_code(item: Listed) -> bool:
    return item.summary is not None and Stage.CODE in item.summary.stages
