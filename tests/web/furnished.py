"""A home with something on every page: skills of all kinds, versions, uses, lessons, proposals and a conversation."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from habitus.agent.history import encode_message_for_journal
from habitus.app import Habitus
from habitus.events import OutcomeKind
from habitus.files import build_tree_file
from habitus.journal.model import (
    ExposureAssignment,
    ItemUse,
    SelectedSkill,
    SkillPlacementKind,
    Turn,
    TurnOutcome,
    UseManner,
)
from habitus.llm.model import AssistantMessage
from habitus.skills.editable_fields import FieldChanges
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.model import ActorKind, Author, Skill, SkillSource
from habitus.skills.review import ProposalAction, SkillChange
from habitus.skills.trees import update_main_file
from habitus.tools.code_stage import build_case_from_call, build_skill_files_with_code_stage
from habitus.tools.model import ToolProgram
from tests.usage import record_use

AGENT = Author(actor=ActorKind.AGENT, name="helper", reason="worked it out in a conversation about sales")

SKILLS = (
    Skill(
        name="close-the-month",
        title="Close the month",
        description="Books the last invoices and locks the period.",
        when_to_use="When the user wants to close the books of a month.",
        tags=("finance", "monthly"),
        body="# Close the month\n\n1. List open invoices.\n2. Book each one, or say why not.\n3. Lock the period.\n",
    ),
    Skill(
        name="weekly-report",
        title="Weekly report",
        description="Gathers the numbers of the week and writes a page for the team.",
        tags=("writing", "monthly"),
        source=SkillSource.AGENT,
        body="1. Read the figures.\n2. Say what changed, **and why**.\n",
    ),
    Skill(
        name="tidy-inbox",
        title="Tidy the inbox",
        description="Sorts mail into folders and answers what is short.",
        tags=("mail",),
        body="1. Archive newsletters.\n2. Answer what takes two minutes.\n",
    ),
)


def furnish_with_life(habitus: Habitus) -> None:
    person = habitus.build_author("written by hand")
    for skill in SKILLS:
        habitus.skills.create(skill, person)
    text = TextEdit(operation=EditOperation.APPEND, content="4. Tell the team.\n")
    habitus.skills.edit("close-the-month", text, habitus.build_author("the team asked"))
    habitus.skills.edit(
        "close-the-month", TextEdit(), person, fields=FieldChanges(tags=("finance", "monthly", "books"))
    )
    for succeeded in (True, True, True, False, None):
        record_use(habitus, "close-the-month", succeeded=succeeded)
    habitus.skills.set_enabled("tidy-inbox", False, person)
    _propose(habitus)
    for words, kind in (
        ("Dates are written day first.", "always"),
        ("Never send mail without asking.", "never"),
        ("The sales file has two header rows; skip the first.", "lesson"),
        ("Ann works in Vienna and keeps the books of three shops.", "profile"),
    ):
        habitus.memory.add(words, kind=kind)
    equip(habitus)
    _talk(habitus)
    _weigh(habitus)


def _propose(habitus: Habitus) -> None:
    tree = habitus.skills.read_tree("weekly-report")
    skill = replace(
        SKILLS[1], body="1. Read the figures of the week.\n2. Say what changed, and why.\n3. Add a chart.\n"
    )
    change = SkillChange(
        action=ProposalAction.WRITE, name="weekly-report", layer="user", tree=update_main_file(tree, skill)
    )
    habitus.review.submit(change, AGENT)
    new = Skill(name="sales-by-region", description="Sums sales by region.", body="1. Group by region.\n2. Add up.\n")
    habitus.review.submit(
        SkillChange(action=ProposalAction.WRITE, name="sales-by-region", layer="user", tree=update_main_file({}, new)),
        AGENT,
    )


def _talk(habitus: Habitus) -> None:
    began = habitus.clock() - timedelta(minutes=5)
    answer = encode_message_for_journal(AssistantMessage(text="March is **closed**: 14 invoices are booked."))
    habitus.journal.record_complete_turn(
        Turn(
            id="t1",
            session="s1",
            request="Please close March.",
            started_on=began,
            ended_on=began + timedelta(seconds=40),
            user=habitus.settings.user,
            messages=(answer,),
            selected=(
                SelectedSkill(name="close-the-month", place=SkillPlacementKind.LOADED, reason="the model asked for it"),
                SelectedSkill(name="tidy-inbox", place=SkillPlacementKind.LEFT_OUT, reason="disabled: by a person"),
                SelectedSkill(name="weekly-report", place=SkillPlacementKind.MENU, reason="eligible"),
            ),
            outcomes=(TurnOutcome(kind=OutcomeKind.OK, weight=1.0, source="user"),),
        )
    )


CHUNKS = """## look around

Looks for skills that fit.

```yaml
params: {query: What to look for}
steps:
  - tool: search_skills
    description: Look
    params: {query: $query}
```
"""


def equip(habitus: Habitus) -> None:
    """A skill with a recipe, and one with code that nobody has approved."""
    skill = Skill(name="look-around", description="Finds what fits.", body="1. Look.\n")
    habitus.skills.create(skill, habitus.build_author(), files={"chunks.md": build_tree_file(CHUNKS.encode())})
    program = ToolProgram(
        name="shout",
        description="Makes it loud.",
        parameters={"properties": {"text": {"type": "string"}}, "required": ["text"]},
        code='import json, sys\nprint(json.loads(sys.argv[1])["text"].upper())\n',
        cases=(build_case_from_call({"text": "hi"}, {"type": "string"}),),
    )
    tree = build_skill_files_with_code_stage({}, program, is_automatic=False)
    habitus.skills.write_tree("user", "shout", tree, habitus.build_author("made by hand"))


SUBJECTS = ("invoices", "letters", "meetings", "contracts", "travel", "stock", "orders", "taxes", "photos", "backups")
DEEDS = ("sort", "check", "summarise", "send", "compare", "archive", "translate", "plan", "count", "clean up")


def furnish_with_much(habitus: Habitus, *, skills: int, waiting: int, requests: int) -> None:
    """Many skills by way of their folders, changes that wait, and a month of requests that mostly went well."""
    folder = habitus.settings.home / "skills"
    names = [f"{DEEDS[n % 10].replace(' ', '-')}-{SUBJECTS[n // 10 % 10]}-{n:04}" for n in range(skills)]
    for number, name in enumerate(names):
        deed, subject = DEEDS[number % 10], SUBJECTS[number // 10 % 10]
        said = f"How to {deed} {subject} for the office number {number}, so that nothing is forgotten or done twice."
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: {said}\ntags: [{subject}, {deed.split()[0]}]\n---\n"
            f"1. Look at the {subject}.\n2. {deed.capitalize()} them.\n"
        )
    habitus.skills.list_skills()
    for number in range(waiting):
        name = f"wanted-{number:04}"
        tree = update_main_file({}, Skill(name=name, description=f"A wish number {number}.", body="1. Do it.\n"))
        change = SkillChange(action=ProposalAction.WRITE, name=name, layer="user", tree=tree)
        habitus.review.propose(change, AGENT, ["the agent started it"])
    for number in range(requests):
        began = habitus.clock() - timedelta(hours=719 * number / requests)
        name = names[number * number % min(len(names), 40)]
        shown = [
            ExposureAssignment(
                kind="skill", item=name, version=1, is_used=True, is_offered=number % 3 > 0, propensity=0.5
            )
        ]
        kind = OutcomeKind.FAILED if number % 7 == 0 or (number * number) % 5 == 4 else OutcomeKind.OK
        outcomes = () if number % 4 == 0 else (TurnOutcome(kind=kind, weight=1.0, source="user"),)
        habitus.journal.record_complete_turn(
            Turn(
                id=f"m{number}",
                session=f"m{number}",
                conversation=f"m{number}",
                request=f"Please {DEEDS[number % 10]} the {SUBJECTS[number % 7]} of last week.",
                started_on=began,
                ended_on=began + timedelta(seconds=30),
                source_type=("claude-code", "mcp", "web")[number % 3],
                usage={"input_tokens": 9_000 + number, "output_tokens": 700, "cost": 0.02} if number % 3 == 2 else {},
                user=habitus.settings.user,
                selected=(SelectedSkill(name=name, place=SkillPlacementKind.LOADED, reason="the model asked for it"),),
                exposures=tuple(shown),
                uses=(_use(habitus, f"m{number}", name, 1, began),),
                outcomes=outcomes,
            )
        )


def _use(habitus: Habitus, turn: str, name: str, version: int, at: datetime, *, user: str = "") -> ItemUse:
    return ItemUse(
        id=f"{turn}:user/{name}",
        turn=turn,
        item=name,
        layer="user",
        version=version,
        stage="steps",
        manner=UseManner.ASKED,
        at=at,
        user=user or habitus.settings.user,
    )


def _weigh(habitus: Habitus) -> None:
    """Conversations that were offered a skill, or kept from it at random, and mostly went as it had promised."""
    for number in range(16):
        is_offered = number % 2 == 0
        went = OutcomeKind.OK if is_offered is (number != 3) else OutcomeKind.FAILED
        shown = ExposureAssignment(
            kind="skill",
            item="close-the-month",
            version=3,
            is_offered=is_offered,
            propensity=0.5,
            is_used=is_offered,
            tokens=20,
        )
        unsure = ExposureAssignment(kind="skill", item="weekly-report", version=1, is_offered=True, is_used=number < 3)
        habitus.journal.record_complete_turn(
            Turn(
                id=f"w{number}",
                session=f"w{number}",
                conversation=f"w{number}",
                request="Close the books.",
                started_on=habitus.clock() - timedelta(days=1, minutes=number),
                user="ben",
                exposures=(shown, unsure),
                uses=tuple(
                    _use(habitus, f"w{number}", one.item, one.version, habitus.clock(), user="ben")
                    for one in (shown, unsure)
                    if one.is_used
                ),
                outcomes=(TurnOutcome(kind=went, weight=1.0, source="user"),),
            )
        )
