"""The life of skills in any order: nothing that was retired is back without a restore, and no text is ever lost."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from habitus.app import Habitus, read_settings
from habitus.app.learning import curating
from habitus.errors import Stale
from habitus.events import OutcomeKind
from habitus.files import build_tree_file
from habitus.journal.model import ExposureAssignment, Turn, TurnOutcome
from habitus.memory.model import LessonDraft, LessonKind, LessonProducer, SelfPlayLessonBody
from habitus.skills import trees
from habitus.skills.formats import tool_json
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.model import ActorKind, Author, Skill, SkillState, Stage
from habitus.skills.review import ProposalAction, SkillChange
from tests.homes import furnish
from tests.usage import record_use

NAMES = st.sampled_from(["brew-tea", "bake-bread", "patch-nets"])
WHICH = st.integers(0, 5)
JOB = Author(actor=ActorKind.JOB, name="test", reason="it seemed better")


class Life(RuleBasedStateMachine):
    """Persons, agents, jobs and the curator do things to three skills; a model of their life knows what is retired."""

    def __init__(self) -> None:
        super().__init__()
        self._closing = ExitStack()
        folder = Path(self._closing.enter_context(TemporaryDirectory()))
        known = read_settings(furnish(folder / "home"), {"HOME": str(folder), "USER": "ann"})
        changed = {"cwd": folder, "durable": False, "look_every": 0.0, "reliable": 0.5}
        self.habitus = self._closing.enter_context(Habitus.open(known.model_copy(update=changed)))
        self.texts: set[str] = set()  # that a skill ever had
        self.retired: set[str] = set()  # skills that somebody took out of use
        self.without_tool: set[str] = set()  # skills whose tool was retired
        self.tick = 0

    def _new_text(self) -> str:
        self.tick += 1
        return f"Step number {self.tick} of {self.tick * 7919}."

    def _is_there(self, name: str) -> bool:
        return name in self.habitus.skills.snapshot().by_name

    def _change(self, name: str) -> SkillChange:
        """The skill with other steps, and perhaps code, as somebody proposes it."""
        text = self._new_text()
        before = self.habitus.skills.read_tree(f"{name}@{USER_LAYER}") if self._is_there(name) else {}
        skill = trees.parse_skill_tree(name, before).skill or Skill(name=name, description=f"How to {name}.")
        tree = trees.update_main_file(before, replace(skill, body=f"{text}\n"))
        return SkillChange(action=ProposalAction.WRITE, name=name, layer=USER_LAYER, tree=tree, details={"text": text})

    @rule(name=NAMES)
    def a_person_writes(self, name: str) -> None:
        if name in self.retired and not self._is_there(name):
            return  # another skill of the name of an archived one
        change = self._change(name)
        self.habitus.review.submit(change, self.habitus.build_author())
        self.texts.add(str(change.details["text"]))

    @rule(name=NAMES, with_code=st.booleans())
    def a_job_proposes(self, name: str, with_code: bool) -> None:
        change = self._change(name)
        if with_code and name not in self.without_tool:
            code = f"print({self.tick})\n".encode()
            contract = tool_json.ToolContract(
                name=name.replace("-", "_"),
                description="Prints.",
                parameters={"type": "object"},
                hash=tool_json.hash_code(code),
            )
            files = {
                trees.TOOL_FILE: build_tree_file(tool_json.render_tool_json(contract)),
                trees.TOOL_CODE: build_tree_file(code),
            }
            change = replace(change, tree={**change.tree, **files})
        self.habitus.review.propose(change, JOB, ["because"])

    @rule(which=WHICH, is_good=st.booleans())
    def a_person_decides(self, which: int, is_good: bool) -> None:
        waiting = self.habitus.review.list_proposals_by_state()
        if not waiting:
            return
        proposal = waiting[which % len(waiting)]
        name, change = proposal.change.name, proposal.change
        if not is_good:
            self.habitus.review.reject(proposal.id, self.habitus.build_author(), "no")
            return
        is_new = change.action is ProposalAction.WRITE and not proposal.base_hash
        if is_new and name in self.retired:
            return  # another skill of the name of an archived one
        try:
            self.habitus.review.approve(proposal.id, self.habitus.build_author())
        except Stale:
            return
        if change.action in (ProposalAction.REMOVE, ProposalAction.DISABLE):
            self.retired.add(name)
        elif change.action is ProposalAction.WRITE:
            skill = trees.parse_skill_tree(name, change.tree).skill
            assert skill is not None
            self.texts |= {line for line in skill.body.splitlines() if line.startswith("Step number")}

    @rule(name=NAMES, is_removed=st.booleans())
    def a_person_retires(self, name: str, is_removed: bool) -> None:
        if self._is_there(name):
            if is_removed:
                self.habitus.skills.remove(name, self.habitus.build_author())
            else:
                self.habitus.skills.set_enabled(name, False, self.habitus.build_author())
            self.retired.add(name)

    @precondition(lambda self: self.retired)
    @rule(which=WHICH)
    def a_person_restores(self, which: int) -> None:
        name = sorted(self.retired)[which % len(self.retired)]
        if not self._is_there(name):
            self.habitus.skills.restore(name, self.habitus.build_author())
        self.habitus.skills.set_enabled(name, True, self.habitus.build_author())
        self.retired.discard(name)

    @rule(name=NAMES)
    def its_tool_is_retired(self, name: str) -> None:
        if self._has_code(name):
            self.habitus.tools.retire(name, self.habitus.build_author())
            self.without_tool.add(name)

    @precondition(lambda self: self.without_tool)
    @rule(which=WHICH)
    def its_tool_is_restored(self, which: int) -> None:
        name = sorted(self.without_tool)[which % len(self.without_tool)]
        if self._is_there(name) and not self._has_code(name):
            self.habitus.tools.restore(name, self.habitus.build_author())
            self.without_tool.discard(name)

    def _has_code(self, name: str) -> bool:
        item = self.habitus.skills.snapshot().by_name.get(name)
        return item is not None and item.summary is not None and Stage.CODE in item.summary.stages

    @rule(name=NAMES, is_good=st.booleans())
    def it_is_used(self, name: str, is_good: bool) -> None:
        item = self.habitus.skills.snapshot().by_name.get(name)
        if item is None or item.summary is None:
            return
        went = OutcomeKind.OK if is_good else OutcomeKind.FAILED
        for _ in range(4):
            self.tick += 1
            shown = ExposureAssignment(kind="skill", item=name, version=item.summary.version, is_used=True)
            turn = Turn(id=f"t{self.tick}", session=f"s{self.tick}", request="", started_on=self.habitus.clock())
            judged = TurnOutcome(kind=went, weight=1.0, source="user")
            self.habitus.journal.record_complete_turn(replace(turn, exposures=(shown,), outcomes=(judged,)))
            record_use(self.habitus, name, succeeded=is_good)

    @rule(name=NAMES)
    def a_lesson_helps(self, name: str) -> None:
        body = SelfPlayLessonBody(
            trigger=f"When you {name.replace('-', ' ')}", correct_pattern=f"count to {self.tick} first"
        )
        draft = LessonDraft(
            text=body.text, kind=LessonKind.LESSON, produced_by=LessonProducer.DREAM, body=body, verified=True
        )
        lesson = self.habitus.memory.encode(draft).engram
        assert lesson is not None
        for _ in range(4):
            self.tick += 1
            self.habitus.memory.record_retrieval([lesson.id])
            self.habitus.memory.record_helpful(body.trigger)
            shown = ExposureAssignment(kind="lesson", item=lesson.id, version=lesson.version, is_used=True)
            turn = Turn(id=f"t{self.tick}", session=f"s{self.tick}", request="", started_on=self.habitus.clock())
            self.habitus.journal.record_complete_turn(replace(turn, exposures=(shown,)))

    @rule()
    def the_curator_comes_by(self) -> None:
        asyncio.run(curating.plan_or_run_curation(self.habitus, apply=True))

    @invariant()
    def what_is_retired_stays_so(self) -> None:
        listed = self.habitus.skills.snapshot().by_name
        for name in self.retired:
            assert name not in listed or listed[name].state is SkillState.DISABLED
        assert not [name for name in self.without_tool if self._has_code(name)]

    def teardown(self) -> None:
        try:
            self._nothing_is_lost()
        finally:
            self._closing.close()

    def _nothing_is_lost(self) -> None:
        """Bring everything back, and look through every version of it."""
        person, library = self.habitus.build_author(), self.habitus.skills
        for archived in library.list_archived():
            library.restore(f"#{archived.id}", person, new_name=f"back-{archived.id}")
        found = set()
        for item in library.list_skills():
            for version in library.list_versions(f"{item.name}@{item.layer}") if item.layer == USER_LAYER else ():
                skill = trees.parse_skill_tree(
                    item.name, library.read_tree(f"{item.name}@{USER_LAYER}", version.number)
                ).skill
                found |= set(skill.body.splitlines()) if skill is not None else set()
        assert self.texts <= found


Life.TestCase.settings = hypothesis_settings(stateful_step_count=8)
TestLife = pytest.mark.full(pytest.mark.timeout(1200)(pytest.mark.req("LA-04", "SK-12")(Life.TestCase)))
