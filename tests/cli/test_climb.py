"""`habitus lessons promote`, `habitus skills climb` and the climbs of `learn curate`, as a person types them."""

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
from habitus.files import build_tree_file
from habitus.journal.model import ExposureAssignment, Turn, TurnOutcome
from habitus.memory.model import LessonDraft, LessonKind, LessonProducer, LessonScope, LessonState, SelfPlayLessonBody
from habitus.operating_system import get_account_name
from habitus.skills import trees
from habitus.skills.model import Skill
from tests.cli.conftest import Direct
from tests.homes import migrated

pytestmark = pytest.mark.req("LA-04")

FEW = {"HABITUS_RELIABLE": "0.3"}  # two uses that went well are enough
BODY = SelfPlayLessonBody(
    trigger="When rows of two tables are joined", correct_pattern="check both keys for blanks first"
)
ADD = "import json, sys\nprint(sum(json.loads(sys.argv[1])['numbers']))\n"


def opened(direct: Direct, env: Mapping[str, str] | None = None) -> AbstractContextManager[Habitus]:
    return Habitus.open(read_settings(direct.home, {**direct.cli.environ(env), "USER": get_account_name()}))


def script(direct: Direct, *answers: dict[str, Any]) -> str:
    file = direct.cli.cwd / "model.json"
    file.write_text(json.dumps([{"answer": answer} for answer in answers]))
    return f"script:{file}"


def taught(
    direct: Direct, *, verified: bool, body: SelfPlayLessonBody = BODY, env: Mapping[str, str] | None = None
) -> str:
    with opened(direct, env) as habitus:
        draft = LessonDraft(
            text=body.text, kind=LessonKind.LESSON, produced_by=LessonProducer.DREAM, body=body, verified=verified
        )
        kept = habitus.memory.encode(draft).engram
        assert kept is not None
        if kept.state is LessonState.PENDING:
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
    assert "When rows of two tables are joined:\n\n    1. Check both keys for blanks first." in said
    (waiting,) = direct.json("review", "list")["proposals"]
    assert said.splitlines()[-1] == f"Pending review: habitus review show {waiting['id']}"
    assert (waiting["name"], waiting["by"]["name"]) == ("when-rows-of-two-tables-are-joined", "climb")
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


def test_the_title_of_a_long_lesson_ends_with_a_phrase(direct: Direct) -> None:
    trigger = "When the monthly figures of all our stores are written into the shared workbook by hand, late"
    id = taught(direct, verified=False, body=replace(BODY, trigger=trigger))
    direct("lessons", "promote", id)
    (waiting,) = direct.json("review", "list")["proposals"]
    assert waiting["name"] == "when-the-monthly-figures-of-all-our-stores-are-written"


def test_the_name_of_a_skill_from_a_lesson_ends_with_a_whole_word(direct: Direct) -> None:
    trigger = "Customer database migrations repeatedly exhausting available transaction identifiers overnight"
    id = taught(direct, verified=False, body=replace(BODY, trigger=trigger))
    direct("lessons", "promote", id)
    (waiting,) = direct.json("review", "list")["proposals"]
    assert waiting["name"] == "customer-database-migrations-repeatedly-exhausting-available"


def test_only_a_lesson_that_a_trial_verified_climbs_by_itself_and_once(direct: Direct) -> None:
    taught(direct, verified=False)
    assert direct.ok("learn", "curate", env=FEW) == "Nothing to curate.\n"
    verified = SelfPlayLessonBody(
        trigger="When rows of two tables are joined", correct_pattern="count the rows before and after"
    )
    id = taught(direct, verified=True, body=verified)
    (step,) = direct.json("learn", "curate", env=FEW)["steps"]
    assert (step["action"], step["item"]) == ("climb", id)
    assert step["reason"].startswith("It was verified by a trial, and 2 of the 2 judged requests it was shown for")
    direct("learn", "curate", "--apply", env=FEW)
    (waiting,) = direct.json("review", "list")["proposals"]
    direct.ok("review", "reject", str(waiting["id"]), "--reason", "no")
    assert direct.ok("learn", "curate", "--apply", env=FEW) == "Nothing to curate.\n"


def test_where_others_would_see_it_a_persons_lesson_climbs_by_their_hand_alone(direct: Direct) -> None:
    shared = {**FEW, "HABITUS_DATABASE": sql.build_sqlite_url(migrated(direct.cli.cwd / "shared.db"))}
    id = taught(direct, verified=True, env=shared)
    assert direct.ok("learn", "curate", env=shared) == "Nothing to curate.\n"
    assert direct.json("lessons", "promote", id, "--dry-run", env=shared)["item"] == id


def test_what_a_bound_proves_climbs_without_a_trial(direct: Direct) -> None:
    with opened(direct) as habitus:
        draft = LessonDraft(
            text="Tea is best hot.",
            kind=LessonKind.LESSON,
            scope=LessonScope.GLOBAL,
            produced_by=LessonProducer.CEREBELLUM,
        )
        lesson = habitus.memory.encode(draft).engram
        assert lesson is not None
        for number in range(40):
            is_offered = number % 2 == 0
            drawn = ExposureAssignment(
                kind="lesson", item=lesson.id, version=1, is_offered=is_offered, propensity=0.5, is_used=is_offered
            )
            went = TurnOutcome(kind=OutcomeKind.OK if is_offered else OutcomeKind.FAILED, weight=1.0, source="user")
            turn = Turn(id=f"t{number}", session=f"c{number}", request="", started_on=habitus.clock())
            habitus.journal.record_complete_turn(replace(turn, exposures=(drawn,), outcomes=(went,)))
    (step,) = direct.json("learn", "curate")["steps"]
    assert (step["action"], step["item"]) == ("climb", lesson.id)
    assert step["reason"].startswith("It helps: at least ")


def followed(direct: Direct) -> None:
    """A skill whose steps were followed with code in three turns."""
    with opened(direct) as habitus:
        steps = Skill(name="add-up", description="Adds numbers up.", body="1. Add them up in Python.")
        habitus.skills.create(steps, habitus.build_author())
        for number in range(3):
            with habitus.turn("add these up", conversation=f"c{number % 2}-{number}") as turn:
                turn.run("recall_skill", {"name": "add-up"})
                turn.observe("scratchpad", {"action": "exec", "code": f"sum([{number}, 1])"}, str(number + 1), ok=True)
                turn.done("Added.", ok=True)


FIELDS = {"numbers": {"type": "array", "items": {"type": "number"}}}
DRAFT = {
    "description": "Adds.",
    "parameters": {"type": "object", "properties": FIELDS, "required": ["numbers"]},
    "code": ADD,
    "payload": {"numbers": [1, 2]},
}


@pytest.mark.full
@pytest.mark.req("LA-01")
def test_code_from_steps_is_a_persons_wish_compared_with_nothing_and_not_offered_first(direct: Direct) -> None:
    followed(direct)
    assert direct.ok("learn", "curate", env=FEW) == "Nothing to curate.\n"  # nothing would say whether a draft is right
    none = direct("skills", "climb", "add-up", "--model", script(direct, {**DRAFT, "code": ""}))
    assert (none.code, "says that no program can do it alone" in none.out) == (1, True)
    broken = [{**DRAFT, "code": "print("}, {**DRAFT, "code": "import sys\nsys.exit('no numbers here')\n"}]
    failed = direct("skills", "climb", "add-up", "--model", script(direct, *broken))
    assert (failed.code, "no numbers here" in failed.out) == (1, True)
    assert direct("skills", "climb", "add-up", "--to", "recipe").err.startswith("habitus: There is nothing to make")
    assert direct.json("review", "list")["proposals"] == []

    assert direct("skills", "climb", "add-up", "--model", script(direct, DRAFT)).code == 0
    (waiting,) = direct.json("review", "list")["proposals"]
    assert {"it brings code"} <= set(waiting["reasons"])
    assert any("it was not compared" in reason for reason in waiting["reasons"])
    direct.ok("review", "approve", str(waiting["id"]))
    assert "not compared" in direct.ok("tools", "show", "add-up")
    direct.ok("tools", "test", "add-up")  # its own case is no proof
    with opened(direct) as habitus, habitus.turn("add up", conversation="last") as turn:
        recalled = turn.run("recall_skill", {"name": "add-up"}).content
        turn.done("", ok=True)
    assert "There is a tool `add_up` for it, too." in recalled
    for _ in range(6):
        assert direct.ok("tools", "run", "add-up", '{"numbers": [20, 22]}') == "42\n"
    with opened(direct) as habitus, habitus.turn("add up", conversation="later") as turn:
        assert "Try the tool `add_up` first" in turn.run("recall_skill", {"name": "add-up"}).content
        turn.done("", ok=True)
    assert direct("skills", "climb", "add-up").code == 1  # there is nothing above code


TOTAL = "import json, sys\ngiven = json.loads(sys.argv[1])\nprint(json.dumps({{'total': {total}, 'at': {at}}}))\n"
RECIPE = """## add both

Adds two numbers.

```yaml
params: {a: One, b: The other}
steps:
  - tool: total
    params: {a: $a, b: $b}
```
"""


def used(direct: Direct, *inputs: tuple[int, int], at: str = "0", may: tuple[str, ...] = ()) -> None:
    """A recipe over a tool, run with these inputs in conversations of their own."""
    code = direct.cli.cwd / "total.py"
    code.write_text(TOTAL.format(total="given['a'] + given['b']", at=at))
    fields = {name: {"type": "integer"} for name in "ab"}
    schema = json.dumps({"type": "object", "properties": fields, "required": ["a", "b"]})
    made = ("tools", "new", "total", "--description", "Adds.", "--code", str(code), "--schema", schema)
    direct.ok(*made, "--payload", '{"a": 1, "b": 1}', *may)
    with opened(direct) as habitus:
        both = Skill(name="both", description="Adds two.", body="1. Add them.")
        tree = {**trees.update_main_file({}, both), trees.CHUNKS_FILE: build_tree_file(RECIPE.encode())}
        habitus.skills.write_tree("user", "both", tree, habitus.build_author())
    for a, b in inputs:
        direct.ok("skills", "recipes", "run", "add_both", json.dumps({"a": a, "b": b}))


def drafted(direct: Direct, *totals: str, at: str = "0") -> Mapping[str, Any]:
    codes = [{"description": "Adds two.", "code": TOTAL.format(total=total, at=at)} for total in totals]
    done = direct("skills", "climb", "both", "--to", "code", "--model", script(direct, *codes), "--json")
    return {**json.loads(done.out), "code": done.code}


def drafted_reason(waiting: Mapping[str, Any]) -> str:
    return next(str(reason) for reason in waiting["reasons"] if reason.startswith("drafted by"))


def test_a_draft_that_gives_other_values_is_refused_and_the_reviewer_sees_the_table(direct: Direct) -> None:
    used(direct, (10, 2), (3, 4))
    few = drafted(direct, "given['a'] + given['b']")
    assert few["problem"].startswith("Not enough to tell: a trial takes 3 different inputs whose results differ")
    for a, b in ((7, 0), (5, 8)):
        direct.ok("skills", "recipes", "run", "add_both", json.dumps({"a": a, "b": b}))
    refused = drafted(direct, "42", "given['a']")
    assert "another result: total is 10, and should be 12" in refused["problem"]
    assert direct.json("review", "list")["proposals"] == []

    done = drafted(direct, "given['b'] + given['a']")
    (waiting,) = direct.json("review", "list")["proposals"]
    first = {"input": '{"a": 10, "b": 2}', "recorded": '{"total": 12, "at": 0}', "draft": '{"total": 12, "at": 0}'}
    assert waiting["trial"][0] == {**first, "compared": "values"}
    assert [row["recorded"][:12] for row in waiting["trial"]] == [
        '{"total": 12',
        '{"total": 7,',
        '{"total": 7,',
        '{"total": 13',
    ]
    assert drafted_reason(waiting).endswith("it gave the same results as 4 recorded cases in the sandbox")
    shown = direct.ok("review", "show", str(done["proposal"])).splitlines()
    assert next(line for line in shown if line.startswith("input")).split() == [
        "input",
        "recorded",
        "draft",
        "compared",
    ]


@pytest.mark.full
@pytest.mark.some(1)
@pytest.mark.parametrize("reach", [(), ("--network", "--yes")])
def test_what_changes_from_run_to_run_decides_nothing_and_is_listed(direct: Direct, reach: tuple[str, ...]) -> None:
    clock = "__import__('time').time_ns()"
    used(direct, (10, 2), (3, 4), (5, 8), (5, 8), at=clock, may=reach)
    refused = drafted(direct, "given['a'] - given['b']", "42", at=clock)
    assert "total is 42, and should be 12" in refused["problem"]
    done = drafted(direct, "given['a'] + given['b']", at=clock)
    assert done["problem"] == ""  # where it can't be run again, the input that was asked twice tells
    (waiting,) = direct.json("review", "list")["proposals"]
    assert drafted_reason(waiting).endswith("as 3 recorded cases in the sandbox; not compared: at")
    direct.ok("review", "approve", str(waiting["id"]))
    kept = json.loads(direct.skill_file("both").with_name("tool.json").read_text())["cases"]
    assert [("expected" in case, case["conversation"] != "") for case in kept] == [(False, True)] * 3


def test_results_of_a_clock_are_compared_today_and_kept_by_shape_and_what_never_varied_is_said(direct: Direct) -> None:
    year = "__import__('datetime').datetime.now().strftime('%Y')"
    used(direct, (10, 5), (3, 5), (4, 5), at=year)
    assert "total is 42, and should be 15" in drafted(direct, "42", "42", at=year)["problem"]
    done = drafted(direct, "given['a'] + 5", at=year)
    shown = direct.ok("review", "show", str(done["proposal"]))
    assert "3 recorded cases in the sandbox; b was always 5, so whether it is used was not tried\n" in shown
    assert "its cases compare only the shape: its results vary\n" in shown
    direct.ok("review", "approve", str(done["proposal"]))
    kept = json.loads(direct.skill_file("both").with_name("tool.json").read_text())["cases"]
    assert ["expected" in case for case in kept] == [False, False, False]
    assert "3 by shape only" in direct.ok("tools", "show", "both")


CELLS = """## calc both

Adds.

```yaml
params: {a: One, b: Other}
steps:
  - tool: scratchpad
    params:
      action: exec
      name: main
      code: "_ = open('mark.txt', 'a').write('x')\\nprint(int('$a') + int('$b'), len(open('mark.txt').read()))"
```
"""


def test_cells_are_run_again_in_a_folder_that_is_thrown_away(direct: Direct) -> None:
    with opened(direct) as habitus:
        both = Skill(name="both", description="Adds two.", body="1. Add them.")
        tree = {**trees.update_main_file({}, both), trees.CHUNKS_FILE: build_tree_file(CELLS.encode())}
        habitus.skills.write_tree("user", "both", tree, habitus.build_author())
    direct.ok("review", "trust", "both", "--yes")
    with opened(direct) as habitus:
        for number in range(3):
            with habitus.turn("calc", conversation=f"p{number}") as turn:
                ran = turn.run("calc_both", {"a": str(number), "b": "2"})
                turn.done("Done.", ok=True)
    assert ran.content.splitlines()[-1] == "4 1"
    before = sorted((direct.home / "pads").glob("*"))
    code = "import json, sys\ngiven = json.loads(sys.argv[1])\nprint(int(given['a']) + int(given['b']), {})\n"
    drafts = [{"description": "Adds.", "code": code.format(times)} for times in (2, 1)]
    assert direct("skills", "climb", "both", "--to", "code", "--model", script(direct, *drafts)).code == 0
    (waiting,) = direct.json("review", "list")["proposals"]
    assert [(row["recorded"], row["draft"], row["compared"]) for row in waiting["trial"]] == [
        (result, result, "values") for result in ("2 1", "3 1", "4 1")
    ]
    assert sorted((direct.home / "pads").glob("*")) == before


@pytest.mark.full
@pytest.mark.req("SB-06", "OP-04")
def test_kept_values_go_when_the_person_they_were_recorded_for_is_forgotten(direct: Direct) -> None:
    used(direct, (10, 2), (3, 4), (5, 8))
    done = drafted(direct, "given['a'] + given['b']")
    direct.ok("review", "approve", str(done["proposal"]))
    manifest = direct.skill_file("both").with_name("tool.json")
    assert len(json.loads(manifest.read_text())["cases"]) == 3
    told = direct.json("users", "forget", get_account_name(), "--dry-run")["erased"]
    assert (told["recorded cases of tools"], told["proposals"]) == (4, 1)  # one is that of the tool below it
    gone = direct.json("users", "forget", get_account_name(), "--yes")
    assert (gone["erased"], gone["left"]) == (told, [])
    assert json.loads(manifest.read_text())["cases"] == []
    assert direct.ok("tools", "run", "both", '{"a": 1, "b": 2}') == '{"total": 3, "at": 0}\n'
    assert len(direct.json("skills", "history", "both")["versions"]) == 1  # those that had them are gone


def test_a_recipe_that_was_never_offered_climbs_by_its_runs(direct: Direct) -> None:
    used(direct, (10, 2), (3, 4))
    with opened(direct) as habitus:  # a loop that shows its model no tool of ours
        for number in range(2):
            with habitus.turn("add both", conversation=f"c{number}") as turn:
                turn.run("add_both", {"a": number, "b": 2 * number + 1})
                turn.done("Done.", ok=True)
    (step,) = direct.json("learn", "curate", env=FEW)["steps"]
    assert (step["action"], step["item"]) == ("climb", "both")
    with opened(direct) as habitus:
        turns = ", ".join(turn.id for turn in reversed(habitus.journal.list_latest_turns_of_all_conversations(limit=4)))
    assert step["reason"] == f"It served in 4 of the 4 uses that were judged: turns {turns}."
    code = {"description": "Adds two.", "code": TOTAL.format(total="given['a'] + given['b']", at="0")}
    direct("learn", "curate", "--apply", "--model", script(direct, code), env=FEW)
    (waiting,) = direct.json("review", "list")["proposals"]
    assert (waiting["name"], waiting["by"]["name"]) == ("both", "climb")
    assert direct.ok("learn", "curate", env=FEW) == "Nothing to curate.\n"


def test_a_skill_that_fails_is_a_persons_to_retire(direct: Direct) -> None:
    with opened(direct) as habitus:
        steps = Skill(name="bad-advice", description="Advises on tea.", body="1. Boil it twice.")
        habitus.skills.create(steps, habitus.build_author())
        for number in range(3):
            with habitus.turn("advise me on tea", conversation=f"c{number}") as turn:
                turn.run("recall_skill", {"name": "bad-advice"})
                turn.done("Twice.", ok=False)
    direct("learn", "curate", "--apply", env=FEW)
    (waiting,) = direct.json("review", "list")["proposals"]
    assert (waiting["name"], waiting["action"]) == ("bad-advice", "disable")
    with opened(direct) as habitus:
        turns = ", ".join(turn.id for turn in reversed(habitus.journal.list_latest_turns_of_all_conversations(limit=3)))
    assert waiting["reasons"] == [f"It failed in 3 of the 3 uses that were judged: turns {turns}."]
    direct.ok("review", "approve", str(waiting["id"]))
    assert direct.ok("learn", "curate", "--apply", env=FEW) == "Nothing to curate.\n"
    (off,) = [one for one in direct.json("skills", "list")["skills"] if one["name"] == "bad-advice"]
    assert off["state"] == "disabled"
