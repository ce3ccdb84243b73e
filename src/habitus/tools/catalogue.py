"""The catalogue of tools: which skills have a code stage, which program their files form, and whether it may run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from habitus.errors import HabitusError, Invalid, NotFound
from habitus.files import Tree
from habitus.skills import names, trees
from habitus.skills.layers.listing import LibrarySnapshot, ListedSkill
from habitus.skills.library import Library
from habitus.skills.model import SkillSource, SkillState, Stage
from habitus.skills.sources.trust import APPROVED_ROOT, IMPORTED_ROOT, TrustStore
from habitus.tasks.model import Task
from habitus.tasks.schema import Json
from habitus.tools.code_stage import parse_tool_program_from_files
from habitus.tools.execution import compute_tool_fingerprint
from habitus.tools.health import ToolHealthRecord, ToolHealthStore
from habitus.tools.model import CodeTool, ToolProgram, ToolStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class _ParsedTool:
    """A parsed code stage: a program, or the reason why there is none."""

    program: ToolProgram | None = None
    # The fingerprint of the program.
    code: str = ""
    problem: str = ""


class ToolCatalogue:
    """Reads programs from skills, caching them by content; `trust` and `approvals` know which code may run."""

    def __init__(self, library: Library, health: ToolHealthStore, *, trust: TrustStore, approvals: TrustStore) -> None:
        self._library = library
        self._health = health
        self._trust = trust
        self._approvals = approvals
        self._known: dict[tuple[str, str, str], _ParsedTool] = {}

    def list_active(self, *, at: LibrarySnapshot | None = None) -> tuple[CodeTool, ...]:
        """Return the tools that may be offered to a model, by name."""
        return tuple(tool for tool in self.list_all(at=at) if tool.status is ToolStatus.ACTIVE)

    def list_all(self, *, at: LibrarySnapshot | None = None) -> tuple[CodeTool, ...]:
        """Return the tools of all skills with a code stage, whatever their status."""
        items = (at or self._library.snapshot()).skills_with_code
        if not items:
            return ()
        known = self._health.list_all()
        self._approvals.read_revision()
        return tuple(
            self._build_tool(item, known.get((self._get_health_place(item), item.name), ToolHealthRecord()))
            for item in items
        )

    def get(self, name: str) -> CodeTool:
        """Return a tool by its skill's name or its callable name."""
        item = self.find_tool_skill(name)
        self._approvals.read_revision()
        return self._build_tool(item, self.get_health(item))

    def get_code(self, name: str) -> str:
        """Return the text of its `scripts/tool.py`."""
        return self.get_program(self.find_tool_skill(name)).code

    def get_cases(self, name: str) -> tuple[Task, ...]:
        """Return its test cases."""
        return self.get_program(self.find_tool_skill(name)).cases

    def find_tool_skill(self, name: str) -> ListedSkill:
        """Return the skill of a tool; `NotFound` if it has no code stage."""
        item = self.find_skill(names.canonicalize_name(name)) or self._find_non_ascii_skill_by_tool_name(name)
        if item is None or not _has_code_stage(item):
            near = names.find_closest_name(name, [tool.name for tool in self.list_all()])
            hint = f"Did you mean '{near}'?" if near else "See 'habitus tools list'."
            raise NotFound(f"There is no tool '{name}'.", hint=hint)
        return item

    def find_skill(self, name: str) -> ListedSkill | None:
        """Return the skill of that name, with or without a code stage; None if there is none."""
        return next((item for item in self._library.list_skills() if item.name == name and item.summary), None)

    def _find_non_ascii_skill_by_tool_name(self, name: str) -> ListedSkill | None:
        skills = (item for item in self._library.list_skills() if not item.name.isascii() and item.summary)
        return next((item for item in skills if names.to_tool_name(item.name) == name), None)

    def get_program(self, item: ListedSkill) -> ToolProgram:
        """Return the program of a skill; `Invalid` if it is broken."""
        read = self._parse_tool(item)
        if read.program is None:
            raise Invalid(f"The tool '{item.name}' is broken: {read.problem}", hint="")
        return read.program

    def find_program(self, item: ListedSkill) -> ToolProgram | None:
        """Return the program of a skill, or None if it is broken."""
        return self._parse_tool(item).program

    def is_approved(self, item: ListedSkill) -> bool:
        """Whether the skill is in use and its code approved."""
        self._approvals.read_revision()
        return item.state is SkillState.OK and not self.explain_missing_approval(item)

    def read_tree(self, item: ListedSkill) -> Tree:
        """Return the files of a skill."""
        return self._library.read_tree(f"{item.name}@{item.layer}")

    def get_health(self, item: ListedSkill) -> ToolHealthRecord:
        """Return the health of the skill's tool."""
        return self._health.get_stored_or_fresh_record(self._get_health_place(item), item.name)

    def update_health(
        self, item: ListedSkill, change: Callable[[ToolHealthRecord], ToolHealthRecord]
    ) -> ToolHealthRecord:
        """Apply a pure function to the health of the skill's tool and return the result."""
        return self._health.update_health(self._get_health_place(item), item.name, change)

    def _get_health_place(self, item: ListedSkill) -> str:
        return self._library.get_layer(item.layer).trust_root or item.layer

    def _build_tool(self, item: ListedSkill, health: ToolHealthRecord) -> CodeTool:
        assert item.summary is not None
        read = self._parse_tool(item)
        status, reason = self._determine_status(item, read, health)
        program = read.program or ToolProgram(name=item.name, description="", parameters={}, code="")
        tool = build_code_tool_from_program(program, status, reason)
        return replace(
            tool,
            description=tool.description or item.summary.description,
            proved_on=health.proved_on if read.code and health.proved_as == read.code else None,
            version=item.summary.version,
            layer=item.layer,
        )

    def _determine_status(
        self, item: ListedSkill, read: _ParsedTool, health: ToolHealthRecord
    ) -> tuple[ToolStatus, str]:
        """Return the first reason that keeps it from being offered."""
        if read.program is None:
            return ToolStatus.BROKEN, read.problem
        if item.state is not SkillState.OK:
            return ToolStatus.OFF, f"{item.state.value}: {item.reason}"
        if objection := self.explain_missing_approval(item):
            return ToolStatus.UNAPPROVED, objection
        if health.is_degraded(read.code):
            return ToolStatus.DEGRADED, health.degradation_reason
        return ToolStatus.ACTIVE, ""

    def explain_missing_approval(self, item: ListedSkill) -> str:
        """Return why the code is not approved; "" if it is."""
        layer, digest = self._library.get_layer(item.layer), item.tree_hash
        if layer.source in (SkillSource.BUNDLED, SkillSource.OPERATOR) or layer.trust_root:
            # Its owner is responsible for it, and the listing says whether a project is trusted.
            return ""
        is_imported = item.summary is not None and item.summary.source is SkillSource.IMPORTED
        if is_imported and self._trust.is_trusted_exactly(IMPORTED_ROOT, item.name, digest):
            return ""
        return self._approvals.explain_distrust(APPROVED_ROOT, item.name, digest, lambda: self.read_tree(item))

    def _parse_tool(self, item: ListedSkill) -> _ParsedTool:
        key = (item.layer, item.name, item.tree_hash)
        if key not in self._known:
            try:
                tree = self.read_tree(item)
                trees.refuse_code_name_conflict(item.name, tree)
                program = parse_tool_program_from_files(item.name, tree)
                self._known[key] = _ParsedTool(program=program, code=compute_tool_fingerprint(program))
            except HabitusError as error:
                self._known[key] = _ParsedTool(problem=str(error))
        return self._known[key]


def build_code_tool_from_program(program: ToolProgram, status: ToolStatus, reason: str) -> CodeTool:
    """Build the description of a program for others."""
    return CodeTool(
        name=program.name,
        callable_name=names.to_tool_name(program.name),
        description=program.description,
        parameters=program.parameters,
        status=status,
        reason=reason,
        example=program.cases[-1].payload if program.cases else None,
        permissions=program.permissions,
        dependencies=program.dependencies,
        returns=_infer_schema_of_printed_keys(program.cases),
        cases=len(program.cases),
        by_shape=sum(case.expected_result is None for case in program.cases),
        is_compared=program.is_compared,
    )


def _infer_schema_of_printed_keys(cases: Sequence[Task]) -> dict[str, Json] | None:
    """Return the keys that every case printed, without types, which other payloads may change."""
    if not cases or any(case.result_schema.get("type") != "object" for case in cases):
        return None
    keys = dict.fromkeys(key for case in cases for key in case.result_schema.get("properties", {}))
    return {"type": "object", "properties": {key: {} for key in keys}}


def _has_code_stage(item: ListedSkill) -> bool:
    return item.summary is not None and Stage.CODE in item.summary.stages
