"""The leak guard: an edit that gives away the answer of a hidden task, by any kind of check."""

from __future__ import annotations

import pytest

from habitus.tasks.checks import (
    Check,
    CsvTableEqualsCheck,
    FileEqualsCheck,
    FileExistsCheck,
    PythonValidatorCheck,
    ReplyContainsCheck,
    ReplyEqualsCheck,
    ReplyMatchesPatternCheck,
    ReplyShapeCheck,
    RubricCheck,
    ToolCalledCheck,
)
from habitus.tasks.leaks import find_words_copied_from_task, list_answers_of_other_tasks_in_reply
from habitus.tasks.model import Task


def task(*checks: Check, request: str = "Which town is it?") -> Task:
    return Task(id="t", request=request, checks=checks)


@pytest.mark.req("IM-04")
@pytest.mark.parametrize(
    ("check", "said"),
    [
        (ReplyContainsCheck(text="Altberg"), "The town is Altberg."),
        (ReplyMatchesPatternCheck(pattern=r"^Altberg\b.*$"), "Answer Altberg."),
        (ReplyEqualsCheck(value=42), "Answer 42."),
        (ReplyEqualsCheck(value={"towns": ["Altberg", "Neudorf"]}), "Mention Neudorf."),
        (ReplyShapeCheck(schema={"type": "object", "required": ["total", "rows"]}), "Give total, rows."),
        (FileExistsCheck(path="out/towns.csv"), "Write out/towns.csv."),
        (CsvTableEqualsCheck(path="a.csv", table="name,sum\nAda,7"), "The row is Ada, 7."),
        (ReplyMatchesPatternCheck(pattern=r"\b1[,.]?234\b"), "It comes to 1234."),
        (ReplyContainsCheck(text="4.711,50"), "It comes to 4711.5 in all."),
        (ReplyEqualsCheck(value=3.5), "Answer 3.50."),
        (ReplyEqualsCheck(value=[1, 2, 3]), "Return [1, 2, 3]."),
        (ReplyEqualsCheck(value=True, path="result.ok"), 'Return {"ok": true}.'),
        (ReplyShapeCheck(schema={"type": "object", "required": ["total", "rows"]}), "Give the rows and a total."),
        (ReplyShapeCheck(schema={"properties": {"town": {"enum": ["Altberg"]}}}), "Answer Altberg."),
        (ReplyShapeCheck(schema={"type": "number", "minimum": 17, "maximum": 17}), "Answer 17."),
        (CsvTableEqualsCheck(path="a.csv", table="name,sum\nAda,7"), "Ada has 7."),
        (PythonValidatorCheck(code="assert open('t.txt').read() == 'Altberg'"), "Write Altberg."),
        (ToolCalledCheck(tool="look_up"), "Call look_up."),
        (ReplyContainsCheck(text="yes"), "Always answer yes."),
        (ReplyContainsCheck(text="7"), "Answer 7."),
        (ReplyMatchesPatternCheck(pattern="^(A|B)$"), "Answer A."),
        (ReplyEqualsCheck(value=True, path="ok"), "Set ok to true."),
        (ReplyEqualsCheck(value=None), "Return null."),
        (ReplyEqualsCheck(value=[1, 2, 3]), "Return 1, 2 and 3."),
        (FileExistsCheck(path="out/towns.csv"), "Write towns.csv into out."),
        (ToolCalledCheck(command="git bisect"), "Run git bisect first."),
        (RubricCheck(text="It names the mayor."), "See to it: it names the mayor."),
        (RubricCheck(text="The reply mentions Altberg."), "Mention Altberg."),
        (ReplyMatchesPatternCheck(pattern=r"\b42\b"), "The result is 42."),
        (ReplyMatchesPatternCheck(pattern=r"^QX-77\d4B$"), "Part numbers look like QX-7714B."),
        (ReplyEqualsCheck(value=7, path="n"), "n is 7."),
        (ReplyEqualsCheck(value={"n": 7}), "Put 7 into n."),
        (ReplyEqualsCheck(value=False, path="result.ok"), "ok must be false."),
        (ReplyEqualsCheck(value="yes"), "For such a town the verdict is yes."),
        (CsvTableEqualsCheck(path="a.csv", table="a,b\n1,2"), "The row is 1,2"),
        (CsvTableEqualsCheck(path="a.csv", table="x,y\n7,9"), "x is 7 and y is 9."),
        (PythonValidatorCheck(code="assert open('o').read() == '7'"), "Write 7 into o."),
        (FileEqualsCheck(path="o.txt", content="ok\n"), "Put ok into o.txt."),
        (ReplyShapeCheck(schema={"required": ["a", "b"]}), "Give it the keys a and b."),
    ],
)
def test_an_answer_is_a_leak_whatever_checks_it_and_not_where_it_is_known(check: Check, said: str) -> None:
    assert find_words_copied_from_task(said, task(check))
    assert not find_words_copied_from_task(said, task(check), known=said)
    assert not find_words_copied_from_task("3. Write it in capitals, and be brief.", task(check))


@pytest.mark.req("IM-04")
@pytest.mark.parametrize(
    ("check", "said"),
    [
        (ReplyMatchesPatternCheck(pattern=r"^[A-Z][a-z]+\b"), "Write the name as it stands."),
        (ReplyMatchesPatternCheck(pattern=r"\d+ of \d+"), "Count 3 of 4 twice."),
        (ReplyContainsCheck(text="no"), "Say no more than is needed."),
        (ReplyContainsCheck(text="2"), "Return 2 decimals, and write step 2 first."),
        (ReplyMatchesPatternCheck(pattern=r"^\w+$"), "Answer briefly."),
        (ReplyEqualsCheck(value=True), "Check that it is true of every row."),
        (ReplyEqualsCheck(value=[1, 2, 3]), "1. Read.\n2. Add 3 and 1.\n3. Write."),
        (ReplyShapeCheck(schema={"type": "object", "required": ["total", "rows"]}), "Read the rows.\nSay the total."),
        (CsvTableEqualsCheck(path="a.csv", table="a,b\n1,2\nyes,3"), "Add 1 and 2, and say yes to 3."),
        (PythonValidatorCheck(code="assert len(open('t.txt').read()) == 7"), "Write t.txt in 7 lines."),
        (ReplyContainsCheck(text="no"), "If the answer is no, say why."),
        (ReplyEqualsCheck(value=True), "Check that the result is true before you write it."),
        (ReplyEqualsCheck(value=7, path="n"), "Read n lines, at most 7 at a time."),
        (ReplyEqualsCheck(value=False, path="ok"), "Say false where a row is not ok."),
        (ReplyMatchesPatternCheck(pattern=r"\b42\b"), "Number the steps from 4 to 2."),
        (ReplyMatchesPatternCheck(pattern=r"\b7\b"), "Step 7 is the last."),
        (ReplyMatchesPatternCheck(pattern=r"^QX-77\d4B$"), "Part numbers have a Q and two digits, such as QX-1."),
        (RubricCheck(text="It is polite."), "Be polite, and keep it short."),
        (RubricCheck(text="The reply names the town."), "Name the town."),
        (ReplyShapeCheck(schema={"required": ["a", "b"]}), "Choose a name, and a plan b for each file."),
        (CsvTableEqualsCheck(path="a.csv", table="x,y\n7,9"), "Read x in 7 steps and y in 9."),
        (CsvTableEqualsCheck(path="a.csv", table="a,b\n1,2"), "Do the steps 1, 2 and 3."),
        (FileEqualsCheck(path="o.txt", content="ok"), "Check that o.txt is ok."),
        (PythonValidatorCheck(code="assert open('o').read() == '7'"), "Write o in 7 lines."),
        (ReplyContainsCheck(text="yes"), "Ask whether the verdict is yes or no."),
        (ReplyEqualsCheck(value=3, path="count"), "Set the count, then repeat it 3 times."),
        (ReplyEqualsCheck(value={"n": 7}), "If n is 7, stop."),
    ],
)
def test_ordinary_advice_is_no_leak(check: Check, said: str) -> None:
    assert not find_words_copied_from_task(said, task(check))


@pytest.mark.req("IM-04")
def test_a_reply_that_lists_many_answers_is_told_from_one_that_answers() -> None:
    towns = [task(ReplyContainsCheck(text=town)) for town in ("Altberg", "Neudorf", "Seeheim", "Waldau")]
    assert len(list_answers_of_other_tasks_in_reply("Altberg, Neudorf, Seeheim or Waldau", towns[0], towns[1:])) == 3
    assert list_answers_of_other_tasks_in_reply("It is Altberg.", towns[0], towns[1:]) == []
    assert list_answers_of_other_tasks_in_reply("It is Altberg, not Neudorf.", towns[0], towns[1:]) == []


@pytest.mark.req("IM-04")
@pytest.mark.parametrize(
    ("reply", "is_list"),
    [("yes or no", True), ("Yes/No.", True), ("no, yes", True), ("Yes.", False), ("Yes, there are no gaps.", False)],
)
def test_a_reply_with_both_of_two_answers_and_nothing_else_is_a_list(reply: str, is_list: bool) -> None:
    yes, no = task(ReplyContainsCheck(text="yes")), task(ReplyContainsCheck(text="No"))
    assert list_answers_of_other_tasks_in_reply(reply, yes, [no]) == (["no"] if is_list else [])
    assert (
        list_answers_of_other_tasks_in_reply(
            "12 30", task(ReplyContainsCheck(text="12 30")), [task(ReplyContainsCheck(text="30"))]
        )
        == []
    )
