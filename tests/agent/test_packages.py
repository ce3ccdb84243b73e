"""Packages from one chat to the next: asked once for a project, linked from the cache, listed and taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from habitus.agent.stream import Consent, ConsentQuestion
from habitus.app import Habitus
from habitus.app.library import trusting
from habitus.llm.scripted import ScriptedModel, calls, says
from tests.wheels import write_wheel

pytestmark = pytest.mark.req("AG-11", "SB-03")

IMPORT = {"action": "exec", "code": "import habitus_greeting\nprint(habitus_greeting.HELLO)"}


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index that is a folder with one wheel."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    write_wheel(folder, "habitus_greeting", "HELLO = 'hello'\n")
    for name, value in {"FIND_LINKS": folder, "OFFLINE": "1", "CACHE_DIR": tmp_path / "uv"}.items():
        monkeypatch.setenv(f"UV_{name}", str(value))
    return folder


class Person:
    def __init__(self, answer: Consent) -> None:
        self.answer = answer
        self.asked: list[ConsentQuestion] = []

    async def __call__(self, question: ConsentQuestion) -> Consent:
        self.asked.append(question)
        return self.answer


async def _printed(habitus: Habitus, person: Person) -> str:
    model = ScriptedModel([calls("scratchpad", IMPORT), says("ok")])
    async with habitus.session(model, ask=person) as session:
        await session.turn("greet")
    return str(getattr(model.asked[1].messages[-1], "content", ""))


@pytest.mark.full
async def test_always_for_this_project_is_an_answer_that_can_be_taken_back(
    habitus: Habitus, shelf: Path, tmp_path: Path
) -> None:
    always, no = Person(Consent.ALWAYS), Person(Consent.NO)
    assert "hello" in await _printed(habitus, always)
    assert [question.choices for question in always.asked] == [(Consent.YES, Consent.NO, Consent.ALWAYS)]
    (shelf / "habitus_greeting-1.0-py3-none-any.whl").unlink()

    assert await _printed(habitus, no) == "hello", "the next chat begins with it, from the cache"
    assert no.asked == []
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with habitus.open_at(elsewhere) as other:
        assert "ModuleNotFoundError" in await _printed(other, no)
        assert await _printed(other, Person(Consent.YES)) != "hello", "said once, for one chat"
        assert "ModuleNotFoundError" in await _printed(other, no)

    [kept] = trusting.list_all_trusted_content(habitus)
    assert (kept.root, kept.names) == (f"packages for {tmp_path}", ("habitus-greeting",))
    assert trusting.remove_trust(
        habitus.trust, habitus.approvals, trusting.resolve_trust_target(habitus, "habitus-greeting")
    ) == ("habitus-greeting",)
    assert trusting.list_allowed_packages(habitus) == ()
    assert "ModuleNotFoundError" in await _printed(habitus, no)
    files = [path for path in habitus.settings.home.rglob("habitus_greeting.py") if "sessions" in path.parts]
    assert len({path.stat().st_ino for path in files}) == 1, "every pad has a link to the cached file"


@pytest.mark.full
async def test_a_model_that_installs_asks_the_person_first(habitus: Habitus, shelf: Path) -> None:
    for wanted in ("habitus_greeting>=1", f"habitus_greeting @ file://{shelf}/habitus_greeting-1.0-py3-none-any.whl"):
        install, no = {"action": "install", "packages": [wanted]}, Person(Consent.NO)
        model = ScriptedModel([calls("scratchpad", install), calls("scratchpad", IMPORT), says("ok")])
        async with habitus.session(model, ask=no) as session:
            await session.turn("greet")
        refused, ran = (str(getattr(ask.messages[-1], "content", "")) for ask in model.asked[1:])
        assert f"Installing '{wanted}' was not allowed." in refused
        assert "ModuleNotFoundError" in ran
        assert no.asked[0].text == f"Install the package '{wanted}'?"
