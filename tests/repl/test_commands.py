"""What a typed line means."""

from __future__ import annotations

import pytest

from habitus.errors import UserError
from habitus.repl.commands import (
    COMMANDS,
    CliInvocation,
    LineCompletion,
    ParsedLine,
    SkillCall,
    SlashCommand,
    UserMessage,
    fill_skill_arguments,
    list_line_completions,
    parse_chat_line,
    replace_cli_commands_in_hint,
)

pytestmark = pytest.mark.req("AG-07")


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("hello there", UserMessage(text="hello there")),
        ("  two\nlines ", UserMessage(text="two\nlines")),
        ("//help is a command", UserMessage(text="/help is a command")),
        ("/usr/lib is full", UserMessage(text="/usr/lib is full")),
        ("/help", SlashCommand(name="help")),
        ("/?", SlashCommand(name="help")),
        ("/new", SlashCommand(name="new")),
        ("/EXIT", SlashCommand(name="quit")),
        ("/skills", CliInvocation(words=("skills", "list"))),
        ("/skill", CliInvocation(words=("skills", "list"))),
        ("/skill save", SlashCommand(name="save")),
        ("/skill save what we did's hard part", SlashCommand(name="save", arguments="what we did's hard part")),
        ("/skill show csv_summary", CliInvocation(words=("skills", "show", "csv_summary"), viewed_skill="csv_summary")),
        ("/skill edit x --append 'a b'", CliInvocation(words=("skills", "edit", "x", "--append", "a b"))),
        ("/skill rollback x v2", CliInvocation(words=("skills", "rollback", "x", "--to", "2"))),
        ("/review", CliInvocation(words=("review", "list"))),
        ("/review approve 3 4", CliInvocation(words=("review", "approve", "3", "4"))),
        ("/review reject 3 it's wrong", CliInvocation(words=("review", "reject", "3", "--reason", "it's wrong"))),
        ("/lessons", CliInvocation(words=("lessons", "list", "--scope", "all"))),
        ("/lessons list", CliInvocation(words=("lessons", "list", "--scope", "all"))),
        ("/lessons today", CliInvocation(words=("lessons", "list", "--scope", "today"))),
        ("/why", SlashCommand(name="why")),
        ("/why csv-summary", SlashCommand(name="why", arguments="csv-summary")),
        ("/good", SlashCommand(name="good")),
        ("/bad the total is wrong", SlashCommand(name="bad", arguments="the total is wrong")),
        ("/attach my file.csv", SlashCommand(name="attach", arguments="my file.csv")),
        ("/csv-summary sales.csv by region", SkillCall(name="csv-summary", arguments="sales.csv by region")),
        ("/CSV_Summary", SkillCall(name="csv-summary", arguments="")),
        ("/csv-summary\nfirst\nsecond", SkillCall(name="csv-summary", arguments="first\nsecond")),
    ],
)
def test_lines_mean_what_they_say(line: str, parsed: ParsedLine) -> None:
    assert parse_chat_line(line, {"csv-summary"}) == parsed


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/hlep", "There is no command '/hlep'. Did you mean '/help'?"),
        ("/csv-sumary x", "There is no command '/csv-sumary'. Did you mean '/csv-summary'?"),
        ("/xyzzy", "There is no command '/xyzzy'. See /help."),
        ("/skill shwo x", "There is no '/skill shwo'. Did you mean '/skill show'?"),
        ("/skill show", "Which skill? Write /skill show NAME."),
        ("/skill rollback x", "To which version? Write /skill rollback x N; /skill history x lists them."),
        ("/review approve", "Which proposal? Write /review approve N; /review lists them."),
        ("/attach", "Which file? Write /attach PATH."),
        ("/", "There is no command '/'. See /help."),
    ],
)
def test_a_mistake_is_one_line_with_its_hint(line: str, said: str) -> None:
    with pytest.raises(UserError) as raised:
        parse_chat_line(line, {"csv-summary"})
    assert str(raised.value) == said


def _offered(text: str) -> list[str]:
    known = ["csv-summary", "hidden"]
    return [offer.text for offer in list_line_completions(text, {"csv-summary": "Totals are asked for"}, known)]


def test_the_tab_key_offers_commands_skills_and_their_actions() -> None:
    assert _offered("/") == [*(f"/{name}" for name in COMMANDS), "/csv-summary"]
    assert _offered("/sk") == ["/skill", "/skills"]
    (offered,) = list_line_completions("/cs", {"csv-summary": "Totals"}, [])
    assert offered == LineCompletion(text="/csv-summary", start=3, help="Totals")
    assert _offered("/hid") == []  # what a person may not call is not offered
    assert _offered("/skill sh") == ["show"]
    assert _offered("/skill show ") == ["csv-summary", "hidden"]
    assert _offered("/why h") == ["hidden"]
    assert _offered("hello /") == []
    assert _offered("/skill show x y") == []


def test_a_skills_text_gets_the_arguments() -> None:
    assert fill_skill_arguments("Fix issue $ARGUMENTS now. ($ARGUMENTS)", "12") == "Fix issue 12 now. (12)"
    assert fill_skill_arguments("Nothing to fill.", "12") == "Nothing to fill."


@pytest.mark.parametrize(
    ("advice", "here"),
    [
        ("See 'habitus skills list'.", "See /skill list."),
        ("Compare 'habitus skills rollback tea --to 2'.", "Compare /skill rollback tea 2."),
        ("See 'habitus lessons list', 'habitus review show 3'.", "See /lessons, /review show 3."),
        ("See 'habitus sessions list'.", "See /resume."),
        ("See 'habitus skills restore --list' or 'habitus skills lint'.", None),
        ("Run 'habitus learn resume'.", None),
    ],
)
def test_an_error_names_the_command_of_the_chat_where_there_is_one(advice: str, here: str | None) -> None:
    assert replace_cli_commands_in_hint(advice) == (here or advice)
