"""Chat in the browser: an answer as it is written, what was used, a question to the person, and stopping."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest
from fastapi.testclient import TestClient

from habitus.agent.stream import ReplyDelta
from habitus.app import Habitus, read_settings
from habitus.app.conversations.chat_events import ChatEvent, ConsentRequested, TurnEnd
from habitus.app.conversations.chats import get_or_open_user_chat_sessions
from habitus.errors import NotFound
from habitus.skills.model import Skill
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.routing import LARGE_BODY_BYTES
from habitus.web.security import load_sign_in_service
from tests.contracts import postgres
from tests.homes import furnish
from tests.web.conftest import HOST, standing

T = TypeVar("T")
Steps = list[dict[str, object]]


@pytest.fixture
def talking(home: Path, tmp_path: Path) -> Iterator[Callable[[Steps], tuple[TestClient, HomePool]]]:
    """A browser before a home whose model says these lines."""
    opened: list[HomePool] = []

    def open_one(steps: Steps) -> tuple[TestClient, HomePool]:
        script = tmp_path / "model.json"
        script.write_text(json.dumps(steps))
        environ = {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DURABLE": "false"}
        model = f"script:{script}" if steps else ""
        settings = read_settings(home, environ).model_copy(update={"cwd": tmp_path, "model": model})
        habitus = Habitus.open(settings)
        desks, keys = HomePool(habitus), load_sign_in_service(habitus)
        opened.append(desks)
        client = TestClient(make_web_app(desks, keys, [HOST], app=standing()), base_url=f"http://{HOST}")
        cookie = keys.exchange_sign_in_key_for_cookie(keys.create_owner_sign_in_key()) or ""
        client.cookies.set(keys.cookie, cookie)
        client.headers.update({"X-CSRF": keys.make_csrf_token(cookie)})
        return client, desks

    yield open_one
    for desks in opened:
        desks.close()
        desks.owner_home.close()


def waited_for(desks: HomePool, id: str, kind: type[T]) -> T:
    """The first thing of a kind that happens in a conversation, as soon as it does."""
    talks = get_or_open_user_chat_sessions(desks.owner_home)
    known: tuple[ChatEvent, ...] = ()
    while not (found := [one for one in known if isinstance(one, kind)]):
        assert not any(isinstance(one, TurnEnd) for one in known), known
        known += asyncio.run(talks.wait_for_events(id, len(known)))
    return found[0]


def answered(client: TestClient, page: str) -> str:
    """The end of the turn that a page listens to, or the page where it is there already."""
    live = re.search(r'<live-part class="turn" from="([^"]+)">', page)
    return heard(client, live[1])[-1][1] if live else page


def heard(client: TestClient, address: str) -> list[tuple[str, str]]:
    """The events of a turn to its end: where each goes, and what it puts there."""
    text = client.get(address).text
    blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.split("\n\n") if block]
    return [(block["event"], json.loads(block["data"])) for block in blocks]


EMPTY = b'--b\r\nContent-Disposition: form-data; name="files"; filename=""\r\n\r\n\r\n--b--\r\n'
PNG = b"\x89PNG\r\n\x1a\n"
TEA = Skill(name="brew-tea", title="Brew tea", description="How tea is brewed", body="1. Boil water.\n")


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_an_answer_comes_as_it_is_written_with_what_was_used(
    talking: Callable[[Steps], tuple[TestClient, HomePool]],
) -> None:
    client, desks = talking(
        [
            {"call": "recall_skill", "arguments": {"name": "brew-tea"}, "say": "Let me look."},
            {"say": "Boil **water** <script>alert(1)</script> first."},
            {"say": "And then wait."},
        ]
    )
    habitus = desks.owner_home
    habitus.skills.create(TEA, habitus.build_author())
    begun = client.post("/chat", data={"text": "How is tea brewed?"})
    id = begun.headers["hx-push-url"].removeprefix("/chat/")
    assert client.get("/chat/nobody/events").status_code == 404
    told = heard(client, f"/chat/{id}/events")
    assert "".join(data for put, data in told if put == "text").startswith("Let me look.")
    assert [data for put, data in told if put == "part" and "recall_skill" in data and "done" in data]
    put, end = told[-1]
    assert put == "over"
    assert "<strong>water</strong> &lt;script&gt;" in end
    assert '<a href="/skills/brew-tea">brew-tea</a> <span class="quiet">version 1</span> was opened by the agent' in end
    # Somebody says how it went, goes on, and the page has both turns.
    turn = habitus.journal.list_latest_turns_of_all_conversations(limit=1)[0]
    assert "succeeded" in client.post(f"/activity/{id}/{turn.id}", data={"ok": "true"}).text
    again = client.post(f"/chat/{id}", data={"text": "And then?"})
    assert "How is tea brewed?" in again.text
    assert "And then wait." in answered(client, again.text)
    assert client.get(f"/chat/{id}").text.count('class="turn"') == 2


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_an_answer_is_stopped_and_the_conversation_goes_on(
    talking: Callable[[Steps], tuple[TestClient, HomePool]],
) -> None:
    client, desks = talking([{"hang": True, "say": "Well, "}, {"say": "Here I am."}])
    id = client.post("/chat", data={"text": "Think long."}).headers["hx-push-url"].removeprefix("/chat/")
    waited_for(desks, id, ReplyDelta)
    busy = client.post(f"/chat/{id}", data={"text": "Faster!"}, headers={"HX-Request": "true"})
    assert "An answer is still being written." in busy.text
    assert client.post(f"/chat/{id}/stop").status_code == 204
    told = heard(client, f"/chat/{id}/events")
    assert "Cancelled by the user." in told[-1][1]
    assert "Here I am." in answered(client, client.post(f"/chat/{id}", data={"text": "Are you there?"}).text)


@pytest.mark.req("CL-02", "OP-07")
def test_an_answer_is_stopped_on_another_replica(tmp_path: Path, postgres_server: str) -> None:
    script = tmp_path / "model.json"
    script.write_text(json.dumps([{"hang": True, "say": "Well, "}]))
    with postgres.schema(postgres_server) as address, ExitStack() as replicas:
        environ = {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": address}
        one, two = (
            replicas.enter_context(
                Habitus.open(
                    read_settings(furnish(tmp_path / host), environ).model_copy(update={"model": f"script:{script}"})
                )
            )
            for host in ("one", "two")
        )
        runs, asks = get_or_open_user_chat_sessions(one), get_or_open_user_chat_sessions(two)
        id = runs.send_message("Think long.")
        known: tuple[ChatEvent, ...] = ()
        while not any(isinstance(event, ReplyDelta) for event in known):
            known += asyncio.run(runs.wait_for_events(id, len(known)))
        assert asks.get_active_turn(id) is not None
        # The listener of a process that has just started may not be ready yet.
        while asks.get_active_turn(id) is not None:
            asks.stop_turn(id)
        (end,) = asyncio.run(asks.wait_for_events(id, 0))
        assert isinstance(end, TurnEnd)
        with pytest.raises(NotFound):
            asks.stop_turn("nothing")


# Said in about five seconds.
WORDS = " ".join(f"{number} up, {number} down." for number in range(8))


@pytest.mark.req("CL-02", "OP-07")
def test_a_conversation_goes_from_replica_to_replica(tmp_path: Path, postgres_server: str) -> None:
    script = tmp_path / "model.json"
    script.write_text(json.dumps({"pause": 0.2, "steps": [{"say": WORDS}] * 3}))
    with postgres.schema(postgres_server) as address, ExitStack() as replicas:
        clients = []
        for host in ("one", "two"):
            environ = {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": address}
            settings = read_settings(furnish(tmp_path / host), environ)
            habitus = replicas.enter_context(
                Habitus.open(settings.model_copy(update={"model": f"script:{script}", "cwd": tmp_path}))
            )
            desks, keys = HomePool(habitus), load_sign_in_service(habitus)
            replicas.callback(desks.close)
            client = TestClient(make_web_app(desks, keys, [HOST]), base_url=f"http://{HOST}")
            cookie = keys.exchange_sign_in_key_for_cookie(keys.create_owner_sign_in_key()) or ""
            client.cookies.set(keys.cookie, cookie)
            client.headers.update({"X-CSRF": keys.make_csrf_token(cookie)})
            clients.append(client)
        id = clients[0].post("/chat", data={"text": "Go."}).headers["hx-push-url"].removeprefix("/chat/")
        for turns, (runs, other) in enumerate((clients, clients[::-1], clients), start=1):
            if turns > 1:
                runs.post(f"/chat/{id}", data={"text": "Go on."})
            # The page of the other replica says that it is being answered, and streams it from the journal.
            page = other.get(f"/chat/{id}").text
            live = re.search(r'<live-part class="turn" from="([^"]+)">', page)
            assert live is not None
            assert "An answer is still being written." in other.post(f"/chat/{id}", data={"text": "Faster!"}).text
            told = heard(other, live[1])
            streamed = "".join(data for put, data in told if put == "text")
            assert streamed
            assert WORDS.startswith(streamed)
            assert [WORDS in data for put, data in told if put != "text"] == [True]
            # Each replica goes on with all turns, whoever answered them.
            for client in clients:
                assert client.get(f"/chat/{id}").text.count('class="turn"') == turns


@pytest.mark.req("CL-02")
def test_a_change_asks_the_person_on_the_page(talking: Callable[[Steps], tuple[TestClient, HomePool]]) -> None:
    skill = {"name": "make-soup", "title": "Soup", "description": "Soup", "content": "1. Cut leeks.\n"}
    client, desks = talking([{"call": "create_skill", "arguments": skill}, {"say": "Saved."}])
    id = client.post("/chat", data={"text": "Save that as a skill."}).headers["hx-push-url"].removeprefix("/chat/")
    number = waited_for(desks, id, ConsentRequested).number
    assert client.post(f"/chat/{id}/answer", data={"number": str(number), "word": "yes"}).status_code == 200
    told = heard(client, f"/chat/{id}/events")
    assert "Saved." in told[-1][1]
    assert desks.owner_home.skills.is_name_taken("make-soup")
    # Whoever opens the page again meanwhile sees the answer in the question's place.
    asked, answered = [data for put, data in told if put == "part" and f'id="ask-{number}"' in data]
    assert ("<button" in asked, "<button" in answered, "<strong>Yes</strong>" in answered) == (True, False, True)


@pytest.mark.req("CL-02", "CL-04", "AG-11")
def test_files_go_along_with_a_request_and_nothing_is_left_of_the_upload(
    talking: Callable[[Steps], tuple[TestClient, HomePool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    client, desks = talking([{"say": "Two regions."}, {"say": "A picture."}])
    files = [("files", ("../../sales <b>.csv", b"region,sum\nnorth,7\n")), ("files", ("notes.md", b"# Skip row one\n"))]
    begun = client.post("/chat", data={"text": "What is in it?"}, files=files)
    id = begun.headers["hx-push-url"].removeprefix("/chat/")
    heard(client, f"/chat/{id}/events")
    (kept,) = desks.owner_home.journal.list_session_turns(id, user="ann")
    said = str(kept.messages[0])
    assert "region,sum" in said
    assert "# Skip row one" in said
    page = client.get(f"/chat/{id}").text
    assert re.findall(r'<li class="chip">(.+?)</li>', page) == ["_.._.._sales _b_.csv", "notes.md"]
    # A file says enough, and where none was chosen a browser sends an empty one.
    alone = client.post(f"/chat/{id}", data={"text": ""}, files=[("files", ("look.png", PNG))])
    assert "A picture." in answered(client, alone.text)
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    empty = client.post(f"/chat/{id}", content=EMPTY, headers=form)
    assert (empty.status_code, "There is nothing to answer." in empty.text) == (422, True)
    files, swap = [("files", ("large.bin", bytes(LARGE_BODY_BYTES)))], {"HX-Request": "true"}
    large = client.post(f"/chat/{id}", data={"text": "?"}, files=files, headers=swap)
    assert (large.status_code, large.headers["hx-retarget"]) == (413, "#said")  # the page stays, with the text in it
    assert not list(tmp_path.glob("habitus-upload-*"))


@pytest.mark.req("CL-02", "SC-04")
def test_without_a_model_it_says_what_to_do_and_nobody_reads_along(
    talking: Callable[[Steps], tuple[TestClient, HomePool]],
) -> None:
    client, _ = talking([])
    page = client.get("/chat").text
    assert "No model is set." in page
    assert 'href="/model"' in page
    assert client.get("/chat/../../etc").status_code == 404
    assert client.post("/chat/nobody-knows", data={"text": "hello"}).status_code in (400, 404, 422)
    client.cookies.clear()
    assert client.get("/chat").status_code == 401
