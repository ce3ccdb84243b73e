"""`habitus skills recipes mine`: recipes and skills mined from the journal, proposed, approved and run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from habitus.app import Habitus, read_settings
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.operating_system import get_account_name
from habitus.recipes.catalogue import RecipeStatus
from tests.cli.conftest import Direct

pytestmark = pytest.mark.req("LA-03")

SECRET = "ghp_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzCaa"
GET = "import json, sys\nn = json.loads(sys.argv[1])['number']\nprint(json.dumps({'order': {'id': n * 3}}))\n"
SEND = "import json, sys\nprint('sent ' + json.loads(sys.argv[1])['to'])\n"


@contextmanager
def opened(direct: Direct) -> Iterator[Habitus]:
    settings = read_settings(direct.home, {**direct.cli.environ(), "USER": get_account_name()})
    with Habitus.open(settings.model_copy(update={"cwd": direct.cli.cwd, "durable": False})) as habitus:
        yield habitus


def learned(direct: Direct, *options: str) -> Any:
    """What `recipes mine --apply` proposes; that it waits is said on standard error."""
    return json.loads(direct("skills", "recipes", "mine", "--apply", "--json", *options).out)["suggestions"]


async def _made_tools(habitus: Habitus) -> None:
    async with habitus.tools as tools:
        for name, code, payload in (
            ("get-order", GET, {"number": "1"}),
            ("send-note", SEND, {"to": "ann", "about": "x"}),
        ):
            fields = {key: {"type": "string"} for key in payload}
            schema = {"type": "object", "properties": fields, "required": list(fields)}
            await tools.create(name, "Does it.", schema, code, payload, habitus.build_author())


async def _asked_for(habitus: Habitus, session: str, number: str) -> None:
    """One turn in which a model looks an order up and tells somebody of it."""
    script = [
        calls("get_order", {"number": number}),
        calls("send_note", {"to": "billing", "about": number * 3}),
        says("Done."),
    ]
    known = habitus.journal.list_session_ids()
    async with habitus.session(ScriptedModel(script), id=session, resume=session in known) as talk:
        await talk.turn(f"Tell billing about order {number}")


@pytest.mark.full
def test_what_was_done_three_times_becomes_a_recipe_that_a_model_calls(direct: Direct) -> None:
    with opened(direct) as habitus:
        asyncio.run(_made_tools(habitus))
        for session, number in (("mon", "A-11"), ("mon", "B-22"), ("tue", "C-33")):
            asyncio.run(_asked_for(habitus, session, number))

    (found,) = direct.json("skills", "recipes", "mine")["suggestions"]
    assert (found["kind"], found["name"], found["proposal"]) == ("recipe", "get order then send note", None)
    assert direct.json("review", "list")["proposals"] == []

    said = direct("skills", "recipes", "mine", "--apply").out
    assert "Checked 3 turns: 1 recurring procedure found." in said
    (waiting,) = direct.json("review", "list")["proposals"]
    question, when, checked = waiting["reasons"][:3]
    assert question == "you did this 3 times; keep it as a skill?"
    assert when.startswith("done in 3 turns of 2 sessions, on ")
    assert "it makes the very calls of all 3 again, such as turn " in checked
    assert '{"number": "C-33"}' in checked
    assert learned(direct) == []

    direct.ok("review", "approve", "1")
    (recipe,) = direct.json("skills", "recipes", "list")["recipes"]
    assert (recipe["status"], recipe["skill"]) == ("active", "get-order-then-send-note")
    assert [step["params"] for step in recipe["plan"]["steps"]] == [
        {"number": "${number}"},
        {"to": "billing", "about": "${get_order.order.id}"},
    ]

    async def called(habitus: Habitus) -> tuple[str, bool]:
        model = ScriptedModel([calls("get_order_then_send_note", {"number": "D-44"}), says("Told them.")])
        async with habitus.session(model) as talk:
            done = await talk.turn("Tell billing about order D-44")
        assert "get_order_then_send_note" in [tool.name for tool in model.asked[0].tools]
        return str(model.asked[1].messages[-1]), done.outcome.is_ok

    with opened(direct) as habitus:
        result, is_ok = asyncio.run(called(habitus))
        assert "1. get_order: ok" in result
        assert "sent billing" in result
        assert (is_ok, habitus.recipes.get("get order then send note").counts.succeeded) == (True, 1)
        assert habitus.recipes.get("get order then send note").status is RecipeStatus.ACTIVE
    assert learned(direct) == []


def _observe(habitus: Habitus, session: str, request: str, *observed: tuple[str, Mapping[str, object], object]) -> None:
    """A turn of another loop, which ran these tools of its own."""
    with habitus.turn(request, conversation=session, tools={name for name, _, _ in observed}) as turn:
        for name, arguments, result in observed:
            turn.observe(name, arguments, result, ok=True)
        turn.done("Done.", ok=True)


def _released(habitus: Habitus, session: str, version: str, number: int) -> None:
    _observe(
        habitus,
        session,
        f"release {version}",
        ("tag", {"version": version, "token": SECRET}, {"tag": {"id": number}}),
        ("publish", {"tag": number, "channel": "stable"}, "published"),
        ("announce", {"text": f"Version {version} is out"}, "ok"),
    )


def test_calls_of_another_loop_become_the_steps_of_a_skill_without_its_secrets(direct: Direct) -> None:
    with opened(direct) as habitus:
        for session, version, number in (("a", "1.0.2", 4711), ("b", "1.0.3", 4822), ("b", "1.1.0", 4933)):
            _released(habitus, session, version, number)
    assert direct("skills", "recipes", "mine", "--apply").err == "1 change pending review: habitus review list\n"
    shown = direct.ok("review", "show", "1")
    assert "1. Call `tag`, and keep its result as `tag`" in shown
    assert "tag: `${tag.tag.id}`" in shown
    assert "text: `Version ${version} is out`" in shown
    assert SECRET not in shown
    assert "[redacted" not in shown
    direct.ok("review", "reject", "1", "--reason", "we have a script for that")
    with opened(direct) as habitus:
        _released(habitus, "c", "2.0.0", 5044)
    assert learned(direct) == []


@pytest.mark.full
def test_a_recipe_joins_the_skill_that_its_turns_used_and_runs_code_only_once_approved(direct: Direct) -> None:
    direct.ok("skills", "new", "monthly-report", "-d", "Adds up a month.")
    direct.skill_file("monthly-report").with_name("chunks.md").write_text("My notes.\n")
    with opened(direct) as habitus:
        for session, month in (("a", "2026-01"), ("b", "2026-02"), ("b", "2026-04")):
            with habitus.turn(f"report of {month}", conversation=session) as turn:
                turn.run("recall_skill", {"name": "monthly-report"})
                for code in (f"rows = load('{month}')", "total = add_up(rows)", "print(total)"):
                    turn.observe("scratchpad", {"action": "exec", "code": code, "one_line_description": month}, "ok")
                turn.done("Done.", ok=True)
    (found,) = learned(direct)
    assert (found["skill"], found["name"]) == ("monthly-report", "scratchpad again")
    (waiting,) = direct.json("review", "list")["proposals"]
    assert [reason for reason in waiting["reasons"] if reason.startswith("runs chunks.md (")]
    direct.ok("review", "approve", "1")
    file = direct.skill_file("monthly-report").with_name("chunks.md")
    assert file.read_text().startswith("My notes.\n\n## scratchpad again\n")
    (recipe,) = direct.json("skills", "recipes", "list")["recipes"]
    assert (recipe["status"], recipe["plan"]["parameters"][0]["name"]) == ("active", "month")
    file.write_text(file.read_text().replace("print(", "steal("))
    (recipe,) = direct.json("skills", "recipes", "list")["recipes"]
    assert (recipe["status"], "changed since its code was approved" in recipe["reason"]) == ("inert", True)
    direct.ok("review", "trust", "monthly-report", "--yes")
    assert direct.json("skills", "recipes", "list")["recipes"][0]["status"] == "active"


WISHES = (
    ("mon", "Please convert the invoice of March to PDF and mail it to Ann", "pandoc"),
    ("mon", "convert invoice april into pdf, send it to bob", "print"),
    ("tue", "Could you make a PDF of the May invoice and email it?", "export"),
)
DRAFT = {
    "label": "mail_invoice",
    "name": "Mail an invoice",
    "description": "Makes a PDF of an invoice and mails it.",
    "when_to_use": "Somebody wants an invoice as PDF by mail",
    "declarative_md": "1. Make the PDF.\n2. Mail it.",
}


@pytest.fixture
def wished(direct: Direct) -> Direct:
    with opened(direct) as habitus:
        for session, request, tool in WISHES:
            _observe(habitus, session, request, (tool, {"what": request[:20]}, "made"))
        for session, request in (("mon", "book a table for two"), ("tue", "why is the build red?")):
            _observe(habitus, session, request, ("look", {"at": request}, "seen"))
    return direct


@pytest.mark.full
def test_requests_for_the_same_without_a_skill_are_listed_as_one(wished: Direct) -> None:
    (found,) = learned(wished)
    assert (found["kind"], len(found["turns"])) == ("steps", 3)
    assert all(f"- “{request}”" in found["text"] for _, request, _ in WISHES)
    assert learned(wished) == []


def test_a_model_that_a_person_allows_drafts_the_skill(wished: Direct, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"answer": DRAFT}]))
    refused = wished("skills", "recipes", "mine", "--model", f"script:{script}")
    assert (refused.code, "1 group of requests, about" in refused.err, "Add --yes to send." in refused.err) == (
        1,
        True,
        True,
    )
    (found,) = learned(wished, "--yes", "--model", f"script:{script}")
    assert (found["skill"], found["text"]) == ("mail-invoice", "1. Make the PDF.\n2. Mail it.\n")
    wished.ok("review", "approve", str(found["proposal"]))
    assert wished.json("skills", "show", "mail-invoice")["when_to_use"] == "Somebody wants an invoice as PDF by mail"
