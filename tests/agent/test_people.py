"""Whoever acts is the session's user: author, gates, placeholders and sessions follow them."""

from __future__ import annotations

from pathlib import Path

import pytest

from habitus.agent.session import Session
from habitus.agent.stream import Consent, ConsentQuestion
from habitus.app import Habitus, read_settings
from habitus.app.conversations.past_sessions import get_latest_or_matching_session, list_past_sessions
from habitus.errors import NotFound, Refused
from habitus.llm.model import ToolResultMessage
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.operating_system import get_account_name
from habitus.settings import Settings, UserSettings
from habitus.skills.model import Manifest, Skill


async def yes(question: ConsentQuestion) -> Consent:
    return Consent.YES


@pytest.fixture
def habitus_settings(habitus_settings: Settings) -> Settings:
    users = {"root-ann": UserSettings(admin=True), "bob": UserSettings()}
    return habitus_settings.model_copy(update={"user": "root-ann", "users": users})


def results(session: Session) -> list[str]:
    return [message.content for message in session.history.messages if isinstance(message, ToolResultMessage)]


@pytest.mark.full
@pytest.mark.req("SC-04")
async def test_nobody_changes_in_a_session_what_its_user_may_not(habitus: Habitus) -> None:
    secret = Skill(name="payroll", description="Pays.", body="1. Pay.", manifest=Manifest(admin_only=True))
    habitus.skills.create(secret, habitus.build_author())
    edit = {"name": "payroll", "operation": "append", "content": "2. Pay Bob twice."}
    script = [
        calls("update_skill", edit),
        calls("disable_skill", {"name": "payroll"}),
        calls("delete_skill", {"name": "payroll"}),
        calls("recall_skill", {"name": "payroll"}),
        calls("read_skill", {"name": "payroll"}),
        says("ok"),
    ]
    async with habitus.session(ScriptedModel(script), user="bob", ask=yes) as session:
        await session.turn("pay me")
        refused = [content for content in results(session) if content != '{"deleted": false}']
        assert (len(refused), [content[:7] for content in refused]) == (4, ["Error: "] * 4)
    assert habitus.skills.load("payroll").body.strip() == "1. Pay."
    async with habitus.session(ScriptedModel([calls("update_skill", edit), says("ok")]), ask=yes) as session:
        await session.turn("pay him")
    assert "Pay Bob twice." in habitus.skills.load("payroll").body


@pytest.mark.req("SC-04", "SK-11")
async def test_a_change_bears_the_name_of_the_sessions_user(habitus: Habitus) -> None:
    made = {"name": "tea", "title": "Tea", "description": "Brews tea", "content": "1. Boil water."}
    model = ScriptedModel([calls("create_skill", made), says("ok")])
    async with habitus.session(model, user="bob", ask=yes) as session:
        await session.turn("keep this")
    assert habitus.skills.list_versions("tea")[-1].author.name == "bob"


@pytest.mark.req("SC-04", "SK-17")
async def test_user_in_a_skill_is_the_sessions_user(habitus: Habitus) -> None:
    greet = Skill(
        name="greet",
        description="Greets.",
        body="Say hello to {USER}.",
        manifest=Manifest(placeholders=True, always_include=True),
    )
    habitus.skills.create(greet, habitus.build_author())
    model = ScriptedModel([says("ok")])
    async with habitus.session(model, user="bob") as session:
        await session.turn("hi")
    assert "Say hello to bob." in str(model.asked[0].messages)


@pytest.mark.req("SC-04", "AG-10")
async def test_another_users_conversation_is_neither_listed_nor_resumed(habitus: Habitus, tmp_path: Path) -> None:
    async with habitus.session(ScriptedModel([says("ok")]), user="bob") as session:
        await session.turn("my salary is low")
    assert list_past_sessions(habitus.settings, habitus.journal, 10) == []
    with pytest.raises(NotFound):
        get_latest_or_matching_session(habitus.settings, habitus.journal, session.id)
    with pytest.raises(NotFound):
        habitus.session(ScriptedModel([]), id=session.id, resume=True)
    assert [kept.id for kept in list_past_sessions(habitus.settings, habitus.journal, 10, all_users=True)] == [
        session.id
    ]
    bobs = habitus.settings.model_copy(update={"user": "bob"})
    with Habitus.open(bobs) as his:
        assert [kept.id for kept in list_past_sessions(his.settings, his.journal, 10)] == [session.id]
        with pytest.raises(Refused, match="Only admins"):
            list_past_sessions(his.settings, his.journal, 10, all_users=True)


@pytest.mark.req("SC-04")
def test_a_claimed_name_is_shown_as_claimed(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "USER": "ann", "HABITUS_USER": "boss"}
    with Habitus.open(read_settings(tmp_path / "home", environ)) as habitus:
        habitus.skills.create(Skill(name="tea", description="Tea.", body="1."), habitus.build_author("new"))
        assert habitus.skills.list_versions("tea")[-1].author.name == "boss (claimed)"


@pytest.mark.req("SC-04")
def test_a_name_comes_from_the_account_whatever_variables_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "boss")
    monkeypatch.setenv("LOGNAME", "boss")
    monkeypatch.delenv("HABITUS_USER", raising=False)
    settings = read_settings(tmp_path / "home")
    assert (settings.user, settings.author_name) == (get_account_name(), get_account_name())
