"""`habitus tasks draft` and `tasks mine --from variants`: tasks for a skill that nobody has asked for yet."""

from __future__ import annotations

import json
import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from habitus.tasks.model import get_task_family
from tests.cli.conftest import Direct
from tests.cli.test_agent_as_model import path_to
from tests.cli.test_tasks import ask_in_sessions
from tests.llm.agents import claude, install

DRAFTS: list[dict[str, Any]] = [
    {"request": "What do 12.50 and 7.25 come to?", "expect": ["19.75"], "reply": "19.75", "wrong": "20"},
    {"request": "Add up 1 and 2.", "matches": r"\b3\b", "reply": "3", "wrong": "12"},
    {"request": "Is 7 the sum of 3 and 4?", "expect": ["7"]},
    {"request": "Say something.", "matches": ".*", "reply": "yes"},
    {"request": "Add up.", "reply": "x"},
]
BY_AGENT = """
[[task]]
id = "mine"
request = "What do 40 and 2 come to?"
expect = "42"
reviewed_by = "ann"
origin = { kind = "person" }
"""


def _script(folder: Path, *steps: object) -> str:
    (folder / "drafts.json").write_text(json.dumps(steps))
    return f"script:{folder / 'drafts.json'}"


@pytest.mark.req("IM-02")
def test_drafts_are_marked_and_do_nothing_until_a_person_has_ticked_them(stocked: Direct, tmp_path: Path) -> None:
    said = stocked("tasks", "draft", "csv-summary", "-m", _script(tmp_path, {"answer": {"tasks": DRAFTS}})).out
    assert "passes if the reply contains “19.75”" in said
    assert "2 tasks drafted." in said
    for why in ("its request contains its answer, “7”", "doing nothing passes", "There is no check in draft 5"):
        assert why in said
    assert "They do nothing until you approve them: habitus review approve 1, or some of them by --only 1-5." in said
    assert stocked.json("tasks", "list", "csv-summary")["tasks"] == []
    assert "has no task for a gate" in stocked("skills", "improve", "csv-summary", "--yes", "-m", "script:x").err

    (proposal,) = stocked.json("review", "list")["proposals"]
    assert proposal["reasons"] == [f"drafted from the skill's text by script:{tmp_path / 'drafts.json'}"]
    assert "There is no task 'x' among 2." in stocked("review", "approve", "1", "--only", "x").err
    wanted = next(line for line in said.splitlines() if "12.50" in line).partition(",")[0].removeprefix("1. ")
    stocked.ok("review", "approve", "1", "--only", wanted)
    (kept,) = stocked.json("tasks", "list", "csv-summary")["tasks"]
    assert (kept["id"], kept["origin"]) == (wanted, {"kind": "drafted"})
    assert kept["reviewed_by"]
    assert "drafted, reviewed by" in stocked.ok("tasks", "list", "csv-summary")
    again = stocked.ok("tasks", "draft", "csv-summary", "-m", _script(tmp_path, {"answer": {"tasks": DRAFTS[:2]}}))
    assert again.count("it exists already") == 2
    stocked.ok("review", "reopen", "1")
    assert stocked.json("tasks", "list", "csv-summary")["tasks"] == []


@pytest.mark.req("IM-02", "IM-05")
def test_a_persons_own_agent_drafts_as_a_model_and_hands_in_what_it_wrote(stocked: Direct) -> None:
    fake = install(stocked.cli.cwd / "bin", "claude-code", claude(json.dumps({"tasks": DRAFTS[:1]})))
    drafted = json.loads(
        stocked("tasks", "draft", "csv-summary", "-m", "claude-code", "--json", env=path_to(fake)).out
    )["found"]
    assert [one["task"]["request"] for one in drafted] == [DRAFTS[0]["request"]]
    assert "Draft 20 tasks." in fake.seen.stdin
    assert "Sums up a CSV file." in fake.seen.stdin
    (found,) = json.loads(stocked("tasks", "draft", "csv-summary", "--tasks", "-", "--json", stdin=BY_AGENT).out)[
        "found"
    ]
    # A draft can't name itself, its origin or its reviewer.
    assert found["task"]["id"] != "mine"
    assert (found["task"]["origin"], "reviewed_by" in found["task"]) == ({"kind": "drafted"}, False)
    assert "The draft has no tasks." in stocked("tasks", "draft", "csv-summary", "--tasks", "x = 1").err


CODE = """import json, sys
given = json.loads(sys.argv[1])
print(json.dumps({"gross": round(given["net"] * (100 + given["rate"]) / 100, 2)}))
"""
SCHEMA = {
    "type": "object",
    "properties": {"net": {"type": "number"}, "rate": {"type": "number"}},
    "required": ["net", "rate"],
}


@pytest.fixture
def with_code(stocked: Direct, tmp_path: Path) -> Direct:
    (tmp_path / "tax.py").write_text(CODE)
    words = ("--description", "Adds a tax.", "--code", str(tmp_path / "tax.py"), "--schema", json.dumps(SCHEMA))
    stocked.ok("tools", "new", "add-tax", *words, "--payload", '{"net": 120, "rate": 19}')
    stocked.ok(
        "tasks", "add", "add-tax", "--request", "What is 120 EUR with 19 % tax?", "--expect", "142.80", "--id", "t"
    )
    stocked.ok("tasks", "add", "add-tax", "--request", "What is 120 EUR with 19 % tax?", "--expect", "odd", "--id", "u")
    return stocked


@pytest.mark.req("IM-02", "IM-03")
def test_variants_have_other_numbers_and_the_answer_of_the_skills_own_code(with_code: Direct) -> None:
    found = with_code.json("tasks", "mine", "--from", "variants", "--skill", "add-tax")["found"]
    assert len(found) == 3
    for one in found:
        task = one["task"]
        net, rate = (int(word) for word in task["request"].split() if word.isdecimal())
        assert task["request"] == f"What is {net} EUR with {rate} % tax?"
        assert (net, rate) != (120, 19)
        assert task["check"] == [{"kind": "contains", "text": f"{net * (100 + rate) / 100:.2f}"}]
        assert (get_task_family(task["id"]), task["origin"]["kind"]) == ("t", "variant")
    assert found == with_code.json("tasks", "mine", "--from", "variants")["found"]
    words = ("--from", "variants", "--only", found[0]["task"]["id"], "--apply")
    assert "'t' with other values; the skill's code recomputes the answer" in with_code("tasks", "mine", *words).out
    with_code.ok("review", "approve", "1")
    assert len(with_code.json("tasks", "mine", "--from", "variants")["found"]) == 2
    assert "4 of 4 tasks valid" in with_code.ok("tasks", "check", "add-tax")


ORDER_CODE = """import datetime, json, sys
given = json.loads(sys.argv[1])
due = datetime.date.fromisoformat(given["placed"]) + datetime.timedelta(days=14)
print(json.dumps({"key": given["who"].lower().replace(" ", "-"), "due": due.isoformat(), "folder": given["id"][:5]}))
"""
ORDERS = [
    {"who": "Ada Lovelace", "placed": "2026-01-30", "id": "INV-2041"},
    {"who": "Grace Hopper", "placed": "2026-03-01", "id": "INV-7"},
    {"who": "Mary Kenneth Keller", "placed": "2026-05-17", "id": "INV-8"},
]


@pytest.mark.req("IM-02")
def test_variants_have_other_names_dates_and_identifiers_too(stocked: Direct, tmp_path: Path) -> None:
    (tmp_path / "order.py").write_text(ORDER_CODE)
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in ORDERS[0]}}
    words = ("--description", "Files an order.", "--code", str(tmp_path / "order.py"), "--schema", json.dumps(schema))
    stocked.ok("tools", "new", "file-order", *words, "--payload", json.dumps(ORDERS[0]))
    for order in ORDERS[1:]:
        stocked.ok("tools", "new", "file-order", *words, "--payload", json.dumps(order))
    request = "Order INV-2041 was placed on 2026-01-30 by Ada Lovelace (not by Ada Lovelaces). What is its key?"
    expected = ("--expect", "ada-lovelace", "--expect", "2026-02-13", "--expect", "INV-2")
    stocked.ok("tasks", "add", "file-order", "--request", request, *expected, "--id", "t")
    found = stocked.json("tasks", "mine", "--from", "variants", "--skill", "file-order")["found"]
    assert len(found) == 3
    for one in found:
        asked = re.match(
            r"Order (INV-\d{4}) was placed on (\S+) by (.+) \(not by Ada Lovelaces\)", one["task"]["request"]
        )
        assert asked is not None
        id, placed, who = asked.groups()
        assert (id, placed) != ("INV-2041", "2026-01-30")
        assert who not in [order["who"] for order in ORDERS]
        assert set(who.split()) <= {word for order in ORDERS for word in order["who"].split()}
        due = date.fromisoformat(placed) + timedelta(days=14)
        assert [check["text"] for check in one["task"]["check"]] == [who.lower().replace(" ", "-"), str(due), id[:5]]


BY_VALIDATOR = """
id = "sum"
request = "Write the sum of the amounts in a.csv to out.txt."
files = {{ "a.csv" = "amount\\n100\\n23.45\\n" }}
reference = {{ code = "import csv; open('out.txt', 'w').write(str({total}))" }}

[[check]]
kind = "validator"
code = "import csv; assert float(open('out.txt').read()) == {expected}"
"""
TOTAL = "sum(float(row['amount']) for row in csv.DictReader(open('a.csv')))"


@pytest.mark.full
@pytest.mark.req("IM-02")
def test_a_validator_that_looks_at_the_files_judges_variants_of_them(stocked: Direct) -> None:
    stocked.ok("tasks", "add", "csv-summary", "--task", "-", stdin=BY_VALIDATOR.format(total=TOTAL, expected=TOTAL))
    found = stocked.json("tasks", "mine", "--from", "variants")["found"]
    assert len(found) == 3
    assert all(get_task_family(one["task"]["id"]) == "sum" for one in found)
    assert len({one["task"]["files"]["a.csv"] for one in found} | {"amount\n100\n23.45\n"}) == 4
    stocked.ok("tasks", "remove", "csv-summary", "sum")
    stocked.ok("tasks", "add", "csv-summary", "--task", "-", stdin=BY_VALIDATOR.format(total=TOTAL, expected="123.45"))
    assert stocked.json("tasks", "mine", "--from", "variants")["found"] == []


@pytest.mark.req("IM-02", "IM-03")
def test_variants_share_a_split_and_count_as_one_observation(stocked: Direct) -> None:
    rows = [
        f"[[task]]\nid = '{kind}~{number}'\nrequest = 'Say {kind} {number}.'\nexpect = '{kind}{number}'\n"
        for kind in "abcd"
        for number in range(6)
    ]
    file = stocked.skill_file("csv-summary").parent / "evals" / "tasks.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(rows))
    plan = stocked.json("skills", "improvements", "csv-summary")["plan"]
    assert (plan["practice"], plan["gate"], plan["exam"], plan["gate_families"]) == (6, 12, 6, 2)
    said = stocked.ok("skills", "improvements", "csv-summary")
    assert "With 2 gate tasks and 10 variants of them a run could show nothing at best" in said


@pytest.mark.req("IM-02")
def test_the_same_question_in_other_words_is_mined_as_a_variant(stocked: Direct) -> None:
    words = "What is the total of all the amounts in the sheet of the sales team, as it stands here today"
    asked = [(f"{words}?", "123.45"), (f"{words}, please?", "123.45"), (f"{words} and there?", "99.10")]
    ask_in_sessions(stocked, asked)
    ids = [one["task"]["id"] for one in stocked.json("tasks", "mine")["found"]]
    assert len(ids) == 3
    assert len(set(map(get_task_family, ids))) == 2
    assert stocked.ok("tasks", "mine").count("a variant of") == 1


WORDS = "What is the total of all the amounts in the sheet of the sales team, as it stands here today"


def _ids(direct: Direct) -> list[str]:
    return [one["id"] for one in direct.json("tasks", "list", "csv-summary")["tasks"]]


@pytest.mark.req("IM-02", "IM-03")
def test_a_near_copy_is_a_variant_whether_drafted_added_or_imported(stocked: Direct, tmp_path: Path) -> None:
    stocked.ok("tasks", "add", "csv-summary", "--request", f"{WORDS}?", "--expect", "123.45", "--id", "first")
    said = stocked.ok("tasks", "add", "csv-summary", "--request", f"{WORDS}, now?", "--expect", "123.45", "--id", "b")
    assert "Task first~b was added to csv-summary. It asks the same as 'first', and counts as a variant of it." in said
    assert (
        "has a task 'b' already"
        in stocked("tasks", "add", "csv-summary", "--request", "x", "--expect", "y", "--id", "b").err
    )
    drafts = [
        {"request": f"{WORDS}, then?", "expect": ["123.45"], "reply": "123.45", "wrong": "1"},
        {"request": "Add up 1 and 2.", "matches": r"\b3\b", "reply": "3", "wrong": "12"},
        {"request": "Add up 2 and 1.", "matches": r"\b3\b", "reply": "3", "wrong": "12"},
    ]
    drafted = stocked("tasks", "draft", "csv-summary", "-m", _script(tmp_path, {"answer": {"tasks": drafts}}), "--json")
    copied, new, again = (one["task"]["id"] for one in json.loads(drafted.out)["found"])
    assert [get_task_family(copied), get_task_family(again)] == ["first", new]
    stocked.ok("review", "approve", "1")
    plan = stocked.json("skills", "improvements", "csv-summary")["plan"]
    assert (plan["practice"] + plan["gate"] + plan["exam"], plan["gate_families"]) == (5, 1)

    stocked.ok("skills", "export", "csv-summary", "--to", str(tmp_path / "out"), "--with-tasks")
    (file,) = (tmp_path / "out").rglob("tasks.toml")
    file.write_text(
        f"[[task]]\nid = 'x'\nrequest = '{WORDS} anew?'\nexpect = '123.45'\n\n"
        "[[task]]\nid = 'y'\nrequest = 'Name a river.'\nexpect = 'Rhine'\n\n"
        "[[task]]\nid = 'z'\nrequest = 'A river name.'\nexpect = 'Rhine'\n"
    )
    for _ in range(2):  # the second time nothing is new
        stocked.ok("skills", "import", str(tmp_path / "out"))
    assert _ids(stocked)[-3:] == ["first~x", "y", "y~z"]
    stocked.ok("skills", "remove", "csv-summary")
    stocked.ok("skills", "import", str(tmp_path / "out"))
    assert _ids(stocked) == ["x", "y", "y~z"]
