"""`habitus lessons promote`, `habitus skills climb` and the climbs of `habitus curate`, as a person types them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.events import OutcomeKind
from habitus.journal.model import Exposure, Turn, TurnOutcome
from habitus.memory.model import Draft, Kind, LessonBody, LessonState, Producer, Scope
from habitus.settings import account_name
from habitus.skills.model import Skill
from tests.cli.conftest import Direct
from tests.homes import migrated

pytestmark = pytest.mark.req("LA-04")

FEW = {"HABITUS_RELIABLE": "0.3"}  # two uses that went well are enough
BODY = LessonBody(trigger="When rows of two tables are joined", correct_pattern="check both keys for blanks first")
ADD = "import json, sys\nprint(sum(json.loads(sys.argv[1])['numbers']))\n"


def opened(direct: Direct, env: Mapping[str, str] | None = None) -> AbstractContextManager[Habitus]:
    return Habitus.open(read_settings(direct.home, {**direct.cli.environ(env), "USER": account_name()}))


def script(direct: Direct, *answers: dict[str, Any]) -> str:
    file = direct.cli.cwd / "model.json"
    file.write_text(json.dumps([{"answer": answer} for answer in answers]))
    return f"script:{file}"


def taught(direct: Direct, *, verified: bool, body: LessonBody = BODY, env: Mapping[str, str] | None = None) -> str:
    with opened(direct, env) as habitus:
        draft = Draft(text=body.text, kind=Kind.LESSON, produced_by=Producer.DREAM, body=body, verified=verified)
        kept = habitus.memory.encode(draft).engram
        assert kept is not None
        if kept.state is LessonState.WAITING:
            habitus.memory.approve(kept.id, by="ann")
        for number in range(2):
            with habitus.turn("rows of two tables are to be joined", conversation=f"c{number}") as turn:
                turn.done("Done.", ok=True)
    return kept.id


def test_a_lesson_is_made_a_skill_by_hand_from_the_facts_or_by_a_model(direct: Direct) -> None:
    id = taught(direct, verified=False)
    assert direct.json("lessons", "promote", id, "--dry-run")["proposal"] is None
    assert direct.json("review", "list")["proposals"] == []
    said = direct("lessons", "promote", id).out
    assert "check both keys for blanks first." in said
    (waiting,) = direct.json("review", "list")["proposals"]
    assert said.splitlines()[-1] == f"It waits for you: habitus review show {waiting['id']}"
    assert (waiting["name"], waiting["by"]["name"]) == ("when-rows-of-two-tables-are", "climb")
    assert "drafted from the facts alone" in waiting["reasons"]
    direct.ok("review", "reject", str(waiting["id"]), "--reason", "too short")

    draft = {
        "label": "join_tables",
        "name": "Join tables",
        "when_to_use": "Tables are joined",
        "declarative_md": "1. Look for blanks in both keys.\n2. Join.",
    }
    direct("lessons", "promote", id, "--model", script(direct, draft))
    (waiting,) = direct.json("review", "list")["proposals"]
    assert waiting["name"] == "join-tables"
    direct.ok("review", "approve", str(waiting["id"]))
    shown = direct.json("skills", "show", "join-tables")
    assert shown["provenance"] == {"lesson": id}
    assert direct.json("skills", "eval", "join-tables")["cases"][0]["query"] == BODY.trigger

    again = direct("lessons", "promote", id, "--model", script(direct, draft))
    assert (again.code, "near-duplicate of join-tables" in again.out) == (1, True)


def test_only_a_lesson_that_a_trial_verified_climbs_by_itself_and_once(direct: Direct) -> None:
    taught(direct, verified=False)
    assert direct.ok("curate", env=FEW) == "Nothing has aged.\n"
    verified = LessonBody(
        trigger="When rows of two tables are joined", correct_pattern="count the rows before and after"
    )
    id = taught(direct, verified=True, body=verified)
    (step,) = direct.json("curate", env=FEW)["steps"]
    assert (step["action"], step["item"]) == ("climb", id)
    assert step["reason"] == "It was verified by a trial, and helped in 2 of the 2 times it was shown."
    direct("curate", "--apply", env=FEW)
    (waiting,) = direct.json("review", "list")["proposals"]
    direct.ok("review", "reject", str(waiting["id"]), "--reason", "no")
    assert direct.ok("curate", "--apply", env=FEW) == "Nothing has aged.\n"


def test_where_others_would_see_it_a_persons_lesson_climbs_by_their_hand_alone(direct: Direct) -> None:
    shared = {**FEW, "HABITUS_DATABASE": sql.sqlite_url(migrated(direct.cli.cwd / "shared.db"))}
    id = taught(direct, verified=True, env=shared)
    assert direct.ok("curate", env=shared) == "Nothing has aged.\n"
    assert direct.json("lessons", "promote", id, "--dry-run", env=shared)["item"] == id


def test_what_a_bound_proves_climbs_without_a_trial(direct: Direct) -> None:
    with opened(direct) as habitus:
        draft = Draft(text="Tea is best hot.", kind=Kind.LESSON, scope=Scope.GLOBAL, produced_by=Producer.CEREBELLUM)
        lesson = habitus.memory.encode(draft).engram
        assert lesson is not None
        for number in range(40):
            is_offered = number % 2 == 0
            drawn = Exposure(kind="lesson", item=lesson.id, version=1, is_offered=is_offered, propensity=0.5)
            went = TurnOutcome(kind=OutcomeKind.OK if is_offered else OutcomeKind.FAILED, weight=1.0, source="user")
            turn = Turn(id=f"t{number}", session=f"c{number}", request="", started_on=habitus.clock())
            habitus.journal.record(replace(turn, exposures=(drawn,), outcomes=(went,)))
    (step,) = direct.json("curate")["steps"]
    assert (step["action"], step["item"]) == ("climb", lesson.id)
    assert step["reason"].startswith("It helps: at least ")


def test_code_that_fails_its_trial_is_not_proposed_and_the_same_version_not_tried_again(direct: Direct) -> None:
    with opened(direct) as habitus:
        steps = Skill(name="add-up", description="Adds numbers up.", body="1. Add them up in Python.")
        habitus.skills.create(steps, habitus.person())
        for number in range(3):
            with habitus.turn("add these up", conversation=f"c{number % 2}-{number}") as turn:
                turn.run("recall_skill", {"name": "add-up"})
                turn.observe("scratchpad", {"action": "exec", "code": f"sum([{number}, 1])"}, str(number + 1), ok=True)
                turn.done("Added.", ok=True)

    (step,) = direct.json("curate", env=FEW)["steps"]
    assert (step["action"], step["item"], step["text"]) == ("climb", "add-up", "to code")
    without = direct.ok("curate", "--apply", env=FEW)
    assert "A model has to draft its code. Name one: habitus skills climb add-up --model" in without

    fields = {"numbers": {"type": "array", "items": {"type": "number"}}}
    schema = {"type": "object", "properties": fields, "required": ["numbers"]}
    wrong = {"description": "Adds.", "parameters": schema, "code": "print(", "payload": {"numbers": [1, 2]}}
    broken = {**wrong, "code": "import sys\nsys.exit('no numbers here')\n"}
    said = direct.ok("curate", "--apply", "--model", script(direct, wrong, broken), env=FEW)
    assert "no numbers here" in said
    assert direct.json("review", "list")["proposals"] == []
    assert direct.ok("curate", "--apply", "--model", script(direct), env=FEW) == "Nothing has aged.\n"

    right = {**wrong, "code": ADD}
    none = direct("skills", "climb", "add-up", "--model", script(direct, {**wrong, "code": ""}))
    assert (none.code, "says that no program can do it alone" in none.out) == (1, True)
    assert direct("skills", "climb", "add-up", "--to", "recipe").err.startswith("habitus: There is nothing to make")
    assert direct("skills", "climb", "add-up", "--model", script(direct, right)).code == 0
    (waiting,) = direct.json("review", "list")["proposals"]
    assert "it brings code" in waiting["reasons"]
    direct.ok("review", "approve", str(waiting["id"]))
    assert direct.ok("tools", "run", "add-up", '{"numbers": [20, 22]}') == "42\n"
    assert direct("skills", "climb", "add-up").code == 1  # there is nothing above code


def test_a_skill_that_fails_is_a_persons_to_retire(direct: Direct) -> None:
    with opened(direct) as habitus:
        steps = Skill(name="bad-advice", description="Advises on tea.", body="1. Boil it twice.")
        habitus.skills.create(steps, habitus.person())
        for number in range(2):
            with habitus.turn("advise me on tea", conversation=f"c{number}") as turn:
                turn.run("recall_skill", {"name": "bad-advice"})
                turn.done("Twice.", ok=False)
    direct("curate", "--apply", env=FEW)
    (waiting,) = direct.json("review", "list")["proposals"]
    assert (waiting["name"], waiting["action"]) == ("bad-advice", "disable")
    assert waiting["reasons"] == ["It failed in 2 of the 2 uses that were judged."]
    direct.ok("review", "approve", str(waiting["id"]))
    assert direct.ok("curate", "--apply", env=FEW) == "Nothing has aged.\n"
    (off,) = [one for one in direct.json("skills", "list")["skills"] if one["name"] == "bad-advice"]
    assert off["state"] == "disabled"
