"""The leak guard: an edit that gives away the answer of a hidden task, by any kind of check."""

from __future__ import annotations

import pytest

from habitus.tasks.checks import (
    Check,
    ContainsCheck,
    EqualsCheck,
    FileEqualsCheck,
    FileExistsCheck,
    MatchesCheck,
    RubricCheck,
    ShapeCheck,
    TableEqualsCheck,
    ToolCalledCheck,
    ValidatorCheck,
)
from habitus.tasks.leaks import find_copied_words, list_answers_of_others
from habitus.tasks.model import Task


def task(*checks: Check, request: str = "Which town is it?") -> Task:
    return Task(id="t", request=request, checks=checks)


@pytest.mark.req("IM-04")
@pytest.mark.parametrize(
    ("check", "said"),
    [
        (ContainsCheck(text="Altberg"), "The town is Altberg."),
        (MatchesCheck(pattern=r"^Altberg\b.*$"), "Answer Altberg."),
        (EqualsCheck(value=42), "Answer 42."),
        (EqualsCheck(value={"towns": ["Altberg", "Neudorf"]}), "Mention Neudorf."),
        (ShapeCheck(schema={"type": "object", "required": ["total", "rows"]}), "Give total, rows."),
        (FileExistsCheck(path="out/towns.csv"), "Write out/towns.csv."),
        (TableEqualsCheck(path="a.csv", table="name,sum\nAda,7"), "The row is Ada, 7."),
        (MatchesCheck(pattern=r"\b1[,.]?234\b"), "It comes to 1234."),
        (ContainsCheck(text="4.711,50"), "It comes to 4711.5 in all."),
        (EqualsCheck(value=3.5), "Answer 3.50."),
        (EqualsCheck(value=[1, 2, 3]), "Return [1, 2, 3]."),
        (EqualsCheck(value=True, path="result.ok"), 'Return {"ok": true}.'),
        (ShapeCheck(schema={"type": "object", "required": ["total", "rows"]}), "Give the rows and a total."),
        (ShapeCheck(schema={"properties": {"town": {"enum": ["Altberg"]}}}), "Answer Altberg."),
        (ShapeCheck(schema={"type": "number", "minimum": 17, "maximum": 17}), "Answer 17."),
        (TableEqualsCheck(path="a.csv", table="name,sum\nAda,7"), "Ada has 7."),
        (ValidatorCheck(code="assert open('t.txt').read() == 'Altberg'"), "Write Altberg."),
        (ToolCalledCheck(tool="look_up"), "Call look_up."),
        (ContainsCheck(text="yes"), "Always answer yes."),
        (ContainsCheck(text="7"), "Answer 7."),
        (MatchesCheck(pattern="^(A|B)$"), "Answer A."),
        (EqualsCheck(value=True, path="ok"), "Set ok to true."),
        (EqualsCheck(value=None), "Return null."),
        (EqualsCheck(value=[1, 2, 3]), "Return 1, 2 and 3."),
        (FileExistsCheck(path="out/towns.csv"), "Write towns.csv into out."),
        (ToolCalledCheck(command="git bisect"), "Run git bisect first."),
        (RubricCheck(text="It names the mayor."), "See to it: it names the mayor."),
        (RubricCheck(text="The reply mentions Altberg."), "Mention Altberg."),
        (MatchesCheck(pattern=r"\b42\b"), "The result is 42."),
        (EqualsCheck(value=7, path="n"), "n is 7."),
        (EqualsCheck(value={"n": 7}), "Put 7 into n."),
        (EqualsCheck(value=False, path="result.ok"), "ok must be false."),
        (EqualsCheck(value="yes"), "For such a town the verdict is yes."),
        (TableEqualsCheck(path="a.csv", table="a,b\n1,2"), "The row is 1,2"),
        (TableEqualsCheck(path="a.csv", table="x,y\n7,9"), "x is 7 and y is 9."),
        (ValidatorCheck(code="assert open('o').read() == '7'"), "Write 7 into o."),
        (FileEqualsCheck(path="o.txt", content="ok\n"), "Put ok into o.txt."),
        (ShapeCheck(schema={"required": ["a", "b"]}), "Give it the keys a and b."),
    ],
)
def test_an_answer_is_a_leak_whatever_checks_it_and_not_where_it_is_known(check: Check, said: str) -> None:
    assert find_copied_words(said, task(check))
    assert not find_copied_words(said, task(check), known=said)
    assert not find_copied_words("3. Write it in capitals, and be brief.", task(check))


@pytest.mark.req("IM-04")
@pytest.mark.parametrize(
    ("check", "said"),
    [
        (MatchesCheck(pattern=r"^[A-Z][a-z]+\b"), "Write the name as it stands."),
        (MatchesCheck(pattern=r"\d+ of \d+"), "Count 3 of 4 twice."),
        (ContainsCheck(text="no"), "Say no more than is needed."),
        (ContainsCheck(text="2"), "Return 2 decimals, and write step 2 first."),
        (MatchesCheck(pattern=r"^\w+$"), "Answer briefly."),
        (EqualsCheck(value=True), "Check that it is true of every row."),
        (EqualsCheck(value=[1, 2, 3]), "1. Read.\n2. Add 3 and 1.\n3. Write."),
        (ShapeCheck(schema={"type": "object", "required": ["total", "rows"]}), "Read the rows.\nSay the total."),
        (TableEqualsCheck(path="a.csv", table="a,b\n1,2\nyes,3"), "Add 1 and 2, and say yes to 3."),
        (ValidatorCheck(code="assert len(open('t.txt').read()) == 7"), "Write t.txt in 7 lines."),
        (ContainsCheck(text="no"), "If the answer is no, say why."),
        (EqualsCheck(value=True), "Check that the result is true before you write it."),
        (EqualsCheck(value=7, path="n"), "Read n lines, at most 7 at a time."),
        (EqualsCheck(value=False, path="ok"), "Say false where a row is not ok."),
        (MatchesCheck(pattern=r"\b42\b"), "Number the steps from 4 to 2."),
        (MatchesCheck(pattern=r"\b7\b"), "Step 7 is the last."),
        (RubricCheck(text="It is polite."), "Be polite, and keep it short."),
        (RubricCheck(text="The reply names the town."), "Name the town."),
        (ShapeCheck(schema={"required": ["a", "b"]}), "Choose a name, and a plan b for each file."),
        (TableEqualsCheck(path="a.csv", table="x,y\n7,9"), "Read x in 7 steps and y in 9."),
        (TableEqualsCheck(path="a.csv", table="a,b\n1,2"), "Do the steps 1, 2 and 3."),
        (FileEqualsCheck(path="o.txt", content="ok"), "Check that o.txt is ok."),
        (ValidatorCheck(code="assert open('o').read() == '7'"), "Write o in 7 lines."),
        (ContainsCheck(text="yes"), "Ask whether the verdict is yes or no."),
        (EqualsCheck(value=3, path="count"), "Set the count, then repeat it 3 times."),
        (EqualsCheck(value={"n": 7}), "If n is 7, stop."),
    ],
)
def test_ordinary_advice_is_no_leak(check: Check, said: str) -> None:
    assert not find_copied_words(said, task(check))


@pytest.mark.req("IM-04")
def test_a_reply_that_lists_many_answers_is_told_from_one_that_answers() -> None:
    towns = [task(ContainsCheck(text=town)) for town in ("Altberg", "Neudorf", "Seeheim", "Waldau")]
    assert len(list_answers_of_others("Altberg, Neudorf, Seeheim or Waldau", towns[0], towns[1:])) == 3
    assert list_answers_of_others("It is Altberg.", towns[0], towns[1:]) == []
    assert list_answers_of_others("It is Altberg, not Neudorf.", towns[0], towns[1:]) == []


@pytest.mark.req("IM-04")
@pytest.mark.parametrize(
    ("reply", "is_list"),
    [("yes or no", True), ("Yes/No.", True), ("no, yes", True), ("Yes.", False), ("Yes, there are no gaps.", False)],
)
def test_a_reply_with_both_of_two_answers_and_nothing_else_is_a_list(reply: str, is_list: bool) -> None:
    yes, no = task(ContainsCheck(text="yes")), task(ContainsCheck(text="No"))
    assert list_answers_of_others(reply, yes, [no]) == (["no"] if is_list else [])
    assert list_answers_of_others("12 30", task(ContainsCheck(text="12 30")), [task(ContainsCheck(text="30"))]) == []
