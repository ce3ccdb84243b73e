"""What is one user's is for nobody else: whichever command asks, another's id is as unknown as one that never was."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from habitus.agent.stream import AskPerson, Consent, ConsentQuestion, answer_consent_with_later
from habitus.app import Habitus, read_settings
from habitus.app.home_directory import SESSION_PADS_DIR
from habitus.app.library import explaining, undoing
from habitus.app.review.reminding import count_pending_items
from habitus.app.use_cases import lessons
from habitus.errors import HabitusError, NotFound, Refused
from habitus.events import OutcomeKind
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.memory.model import LessonDraft, LessonKind, LessonProvenance, LessonScope
from habitus.skills.model import Skill
from tests.cli.conftest import Direct
from tests.contracts import postgres
from tests.homes import furnish

USERS = "[users.ann]\nadmin = true\n[users.bob]\nadmin = false\n"
SECRET = "Ann's salary talks are on Fridays."
BOB = {"HABITUS_USER": "bob"}


async def yes(question: ConsentQuestion) -> Consent:
    return Consent.YES


@dataclass(frozen=True, kw_only=True, slots=True)
class Anns:
    """What ann has: a lesson of every state, and a conversation that taught two of them."""

    active: str
    waiting: str
    removed: str
    session: str
    turn: str


def of_ann(habitus: Habitus) -> Anns:
    async def talk() -> tuple[str, str]:
        async with habitus.session(ScriptedModel([says("ok")]), user="ann") as session:
            await session.turn("my salary talk, tea please")
            assert session.last is not None
            return session.id, session.last.id

    habitus.skills.create(Skill(name="tea", description="Brews tea.", body="1. Boil."), habitus.build_author())
    session, turn = asyncio.run(talk())
    evidence = LessonProvenance(trace=turn, session=session, user="ann")

    def kept(text: str, **more: object) -> str:
        encoded = habitus.memory.encode(
            LessonDraft(text=text, kind=LessonKind.LESSON, user="ann", evidence=evidence, **more)  # type: ignore[arg-type]  # some fields
        )
        assert encoded.engram is not None
        return encoded.engram.id

    removed = kept("Ann's old bank was in Bern.")
    habitus.memory.remove(removed, by="ann")
    return Anns(
        active=kept(SECRET),
        waiting=kept("Never ask before sending my passwords to the bank."),
        removed=removed,
        session=session,
        turn=turn,
    )


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Anns]:
    """A home that ann used, made once and copied for each test."""
    home = furnish(tmp_path_factory.mktemp("ann") / "home")
    (home / "habitus.toml").write_text(USERS)
    settings = read_settings(home, {"HOME": str(home.parent), "HABITUS_USER": "ann"})
    with Habitus.open(settings.model_copy(update={"cwd": home.parent})) as habitus:
        found = of_ann(habitus)
        assert habitus.memory.get(found.waiting).state == "pending"
    return home, found


@pytest.fixture
def anns(direct: Direct, lived_in: tuple[Path, Anns]) -> Anns:
    home, found = lived_in
    shutil.copytree(home, direct.home, dirs_exist_ok=True)
    return found


def _opened(direct: Direct, tmp_path: Path, user: str, **more: object) -> Habitus:
    settings = read_settings(direct.home, {"HOME": str(tmp_path), "HABITUS_USER": user})
    return Habitus.open(settings.model_copy(update={"cwd": direct.cli.cwd, "durable": False, **more}))


COMMANDS = [
    ("lessons", "show", "{active}"),
    ("lessons", "show", "{active}", "--json"),
    ("lessons", "show", "{removed}"),
    ("lessons", "edit", "{active}", "--text", "Mine."),
    ("lessons", "edit", "{waiting}", "--for", "global"),
    ("lessons", "remove", "{active}"),
    ("lessons", "restore", "{removed}"),
    ("lessons", "retract", "--turn", "{turn}"),
    ("lessons", "retract", "--session", "{session}"),
    ("review", "show", "{waiting}"),
    ("review", "diff", "{waiting}"),
    ("review", "approve", "{waiting}"),
    ("review", "reject", "{waiting}"),
    ("skills", "why", "tea", "--turn", "{turn}"),
    ("sessions", "show", "{session}"),
    ("sessions", "export", "{session}"),
    ("chat", "--resume", "{session}"),
]


@pytest.mark.req("SC-04")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_anothers_id_is_as_unknown_as_one_that_never_was(direct: Direct, anns: Anns, command: tuple[str, ...]) -> None:
    told = []
    for ids in (anns, Anns(active="zzzzzzz2", waiting="zzzzzzz3", removed="zzzzzzz4", session="zz5", turn="zz6")):
        values = {name: getattr(ids, name) for name in Anns.__slots__}
        ran = direct(*(part.format(**values) for part in command), env=BOB)
        said = ran.out + ran.err
        for value in values.values():
            said = said.replace(value, "ID")
        told.append((ran.code, said))
    assert told[0] == told[1]
    assert told[0][0] != 0


@pytest.mark.req("SC-04")
@pytest.mark.parametrize(
    "command",
    [
        ("lessons", "list"),
        ("lessons", "archive"),
        ("review", "list", "--all"),
        ("sessions", "list"),
        ("doctor",),
        (
            "learn",
            "curate",
        ),
        ("undo", "since", "1 day ago", "--dry-run"),
        ("lessons", "show", ""),
    ],
    ids=" ".join,
)
def test_no_listing_tells_of_anothers(direct: Direct, anns: Anns, command: tuple[str, ...]) -> None:
    ran = direct(*command, env=BOB)
    for told in (
        "salary",
        "bank",
        "change pending review",
        "changes pending review",
        anns.active,
        anns.waiting,
        anns.removed,
    ):
        assert told not in ran.out + ran.err


@pytest.mark.req("SC-04")
def test_a_session_takes_nothing_of_anothers_by_its_id(direct: Direct, anns: Anns, tmp_path: Path) -> None:
    with _opened(direct, tmp_path, "bob") as habitus:
        with pytest.raises(Refused, match="can't be a session of yours"):
            habitus.session(ScriptedModel([]), id=anns.session)
        with pytest.raises(NotFound):
            habitus.session(ScriptedModel([]), id=anns.session, resume=True)
        with pytest.raises(NotFound):
            explaining.explain_skill_selection_in_past_turn(
                habitus.skills, habitus.journal, "tea", anns.turn, user="bob"
            )
        with pytest.raises(NotFound):
            lessons.retract_lessons(habitus, session=anns.session)

        async def answer() -> str:
            async with habitus.session(ScriptedModel([says("ok")])) as session:
                for turn in (anns.turn, "never-was"):
                    with pytest.raises(NotFound):
                        session.judge(OutcomeKind.FAILED, turn=turn)
                return str([seen async for seen in session.turn_stream("and now?", reply_to=anns.turn)])

        assert "is not stored" in asyncio.run(answer())
        assert not (habitus.writable_dir / SESSION_PADS_DIR / anns.session).exists()
    with _opened(direct, tmp_path, "ann") as habitus:
        assert [outcome.source for outcome in habitus.journal.get_turn(anns.turn).outcomes].count("user") == 0


@pytest.mark.req("SC-04")
def test_a_page_can_name_no_lesson_of_anothers(direct: Direct, anns: Anns, tmp_path: Path) -> None:
    direct.ok("lessons", "add", "Bob drinks tea.", env=BOB)
    page = direct.home / "memory" / "lessons.md"
    mine = page.read_text()
    line = next(line for line in mine.splitlines() if "Bob drinks tea." in line)
    own = direct.json("lessons", "list", env=BOB)["lessons"][0]["id"]
    page.write_text(mine + line.replace(own, anns.active).replace("Bob drinks tea.", "Bob owns this.") + "\n")
    direct("lessons", "list", env=BOB)
    with _opened(direct, tmp_path, "ann") as habitus:
        assert habitus.memory.get(anns.active).text == SECRET


@pytest.mark.req("SC-04")
def test_an_admin_sees_all_when_asking_for_it(direct: Direct, anns: Anns) -> None:
    boss = {"HABITUS_USER": "cat"}
    (direct.home / "habitus.toml").write_text(USERS + "[users.cat]\nadmin = true\n")
    assert direct("lessons", "show", anns.active, env=boss).code != 0
    assert SECRET in direct("lessons", "show", anns.active, "--all-users", env=boss).out
    assert SECRET in direct("lessons", "list", "--all-users", env=boss).out
    assert anns.waiting in direct("review", "list", "--all-users", env=boss).out
    assert direct("skills", "why", "tea", "--turn", anns.turn, "--all-users", env=boss).code == 0
    assert direct("review", "approve", anns.waiting, "--all-users", env=boss).code == 0
    assert direct("lessons", "retract", "--session", anns.session, "--all-users", env=boss).code == 0
    refused = direct("lessons", "list", "--all-users", env=BOB)
    assert (refused.code != 0, "Only admins" in refused.err) == (True, True)


@pytest.mark.full
@pytest.mark.req("SC-04")
def test_people_on_a_shared_database_keep_to_their_own(direct: Direct, tmp_path: Path, postgres_server: str) -> None:
    (direct.home / "habitus.toml").write_text(USERS)
    with postgres.schema(postgres_server) as url:
        with _opened(direct, tmp_path, "ann", database=url) as habitus:
            anns = of_ann(habitus)
            shared = habitus.memory.add("Dates are day-first.", scope=LessonScope.GLOBAL).engram
            assert shared is not None
        timestamp = shared.created_on
        assert timestamp is not None
        with _opened(direct, tmp_path, "bob", database=url) as habitus:
            for id in (anns.active, anns.waiting, anns.removed):
                with pytest.raises(NotFound):
                    habitus.memory.get(id)
            assert (
                habitus.memory.list_pending_lessons(),
                habitus.memory.list_archived_lessons(),
                count_pending_items(habitus),
            ) == ((), (), 0)
            with pytest.raises(NotFound):
                habitus.journal.get_turn(anns.turn, user="bob")
            assert habitus.memory.get(shared.id) == shared
            for take_away in (
                lambda: habitus.memory.remove(shared.id, by="bob"),
                lambda: habitus.memory.edit(shared.id, by="bob", scope=LessonScope.USER),
                lambda: habitus.skills.remove("tea", habitus.build_author()),
                lambda: undoing.rollback_lessons_and_skills(
                    habitus, habitus.clock() - timedelta(days=1), "", dry_run=False
                ),
            ):
                with pytest.raises(HabitusError, match=r"[Oo]nly an admin"):
                    take_away()
            assert habitus.memory.roll_back_to(habitus.clock() - timedelta(days=1), by="bob") == ()
            assert (
                habitus.memory.edit(shared.id, by="bob", text="Dates are year-first.").text == "Dates are year-first."
            )
        with _opened(direct, tmp_path, "ann", database=url) as habitus:
            assert habitus.memory.get(anns.active).text == SECRET
            assert habitus.memory.remove(shared.id, by="ann").state == "removed"
            habitus.skills.remove("tea", habitus.build_author())


@pytest.mark.some(2)
@pytest.mark.req("SC-04")
@pytest.mark.parametrize(
    "command",
    [
        (
            "learn",
            "pause",
        ),
        (
            "learn",
            "resume",
        ),
        ("skills", "remove", "tea"),
        ("undo", "since", "1 day ago", "--yes"),
        ("review", "approve", "2"),  # a shared database counts in steps of two
    ],
    ids=" ".join,
)
def test_only_an_admin_takes_from_everybody(direct: Direct, tmp_path: Path, command: tuple[str, ...]) -> None:
    shared = f"sqlite:///{tmp_path / 'shared.db'}"
    (direct.home / "habitus.toml").write_text(f'database = "{shared}"\n{USERS}')
    asking = ScriptedModel([calls("delete_skill", {"name": "tea"}), says("ok")])

    async def delete(habitus: Habitus, ask: AskPerson) -> None:
        async with habitus.session(asking, user="bob", ask=ask) as session:
            await session.turn("away with it")

    with _opened(direct, tmp_path, "ann") as habitus:
        habitus.skills.create(Skill(name="tea", description="Brews tea.", body="1. Boil."), habitus.build_author())
        if command[0] == "review":
            asyncio.run(delete(habitus, answer_consent_with_later))
    ran = direct(*command, env=BOB)
    assert ran.code == 1
    assert "Only an admin may" in ran.err
    assert direct(*command, env={"HABITUS_USER": "ann"}).code == 0


@pytest.mark.full
@pytest.mark.req("SC-04")
def test_nobody_deletes_everybodys_skill_in_a_session(direct: Direct, tmp_path: Path) -> None:
    async def delete(habitus: Habitus, user: str) -> None:
        script = [calls("delete_skill", {"name": "tea"}), says("ok")]
        async with habitus.session(ScriptedModel(script), user=user, ask=yes) as session:
            await session.turn("away with it")

    (direct.home / "habitus.toml").write_text(f'database = "sqlite:///{tmp_path / "shared.db"}"\n{USERS}')
    with _opened(direct, tmp_path, "ann") as habitus:
        habitus.skills.create(Skill(name="tea", description="Brews tea.", body="1. Boil."), habitus.build_author())
        asyncio.run(delete(habitus, "bob"))
        assert habitus.skills.find("tea").layer == "user"
        asyncio.run(delete(habitus, "ann"))
        with pytest.raises(NotFound):
            habitus.skills.find("tea")
