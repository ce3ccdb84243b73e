"""Skills as rows of `agent_skills`, a table that other systems read and write too."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.app import Habitus
from habitus.app.library.importing import open_importer
from habitus.errors import Refused
from habitus.files import build_tree_file
from habitus.settings import load_settings
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.formats import detect
from habitus.skills.model import ActorKind, SkillSource, Stage
from habitus.skills.stores.tables import agent_skill_files, agent_skills
from habitus.skills.stores.versioned import SkillStore
from tests.contracts import postgres
from tests.contracts.stores import count, counts_of, load, read_tree, sql_store
from tests.contracts.test_skill_store import ME, SKILL


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield ""
    else:
        with postgres.schema(request.getfixturevalue("postgres_server")) as address:
            yield address


@pytest.fixture
def store(tmp_path: Path, url: str) -> Iterator[SkillStore]:
    store = sql_store(tmp_path, url=url)
    yield store
    store.engine.dispose()


def rows(store: SkillStore) -> list[dict[str, object]]:
    with store.engine.connect() as connection:
        return [dict(row) for row in connection.execute(sa.select(agent_skills)).mappings()]


def execute(store: SkillStore, statement: sa.Executable) -> None:
    with store.engine.begin() as connection:
        connection.execute(statement)


@pytest.mark.req("SK-08")
def test_a_row_says_what_the_source_expects_of_it(store: SkillStore) -> None:
    store.save(SKILL, ME)
    store.save(replace(SKILL, body="changed"), ME)
    store.set_enabled("csv-summary", False, ME)
    (row,) = rows(store)
    fields = json.loads(str(row.pop("fields")))
    assert row.pop("created_on") != row.pop("modified_on")
    assert row == {
        "_id": "csv-summary",
        "title": "CSV summary",
        "description": "Summarises a CSV file.",
        "content": "changed",
        "tags": '["csv", "data"]',
        "source": "agent",
        "version": 2,
        "enabled": 0,
    }
    assert fields["when_to_use"] == "Somebody hands over a CSV"
    assert fields["manifest"] == {"file_types": ["csv"], "companion_skills": ["plotting"]}


@pytest.mark.req("SK-08", "SK-19")
def test_rows_of_another_system_are_skills_with_their_version_and_dates(store: SkillStore) -> None:
    execute(
        store,
        agent_skills.insert().values(
            _id="quarterly-reports",
            title="Quarterly reports",
            description="Standards for reports",
            content="# Reports\n\nBold headers.",
            tags='["excel"]',
            source="user",
            version=7,
            enabled=0,
            created_on="2024-01-02T03:04:05Z",
            modified_on="2024-02-03T04:05:06Z",
        ),
    )
    skill = load(store, "quarterly-reports")
    assert (skill.version, skill.enabled, skill.tags, skill.source) == (7, False, ("excel",), SkillSource.USER)
    assert (skill.title, skill.body) == ("Quarterly reports", "# Reports\n\nBold headers.")
    assert skill.created_on is not None
    assert skill.created_on.isoformat() == "2024-01-02T03:04:05+00:00"
    changed = store.update_skill("quarterly-reports", lambda old: replace(old, body="New."), ME)
    assert changed.version == 8
    assert rows(store)[0]["version"] == 8


@pytest.mark.req("SK-08", "SK-11")
def test_a_change_by_sql_is_noticed_and_becomes_a_version(store: SkillStore) -> None:
    store.save(SKILL, ME)
    execute(store, agent_skills.update().values(content="by SQL", version=2, modified_on="2031-01-01T00:00:00Z"))
    loaded = load(store, "csv-summary")
    assert (loaded.body, loaded.version) == ("by SQL", 2)
    assert store.list_versions("csv-summary")[-1].author.actor is ActorKind.DISK
    execute(store, agent_skills.update().values(enabled=0))
    summary = store.get_summary("csv-summary")
    assert summary is not None
    assert summary.enabled is False
    execute(store, agent_skills.delete())
    assert store.load("csv-summary") is None
    assert [item.name for item in store.list_archived()] == ["csv-summary"]


@pytest.mark.some(1)
@pytest.mark.req("SK-08")
@pytest.mark.parametrize(
    "values",
    [{"tags": "not json"}, {"tags": '{"a": 1}'}, {"fields": "[1]"}],
)
def test_a_row_that_makes_no_sense_is_broken_and_hides_no_other(store: SkillStore, values: dict[str, str]) -> None:
    store.save(SKILL, ME)
    execute(store, agent_skills.insert().values(_id="odd", **values))
    assert [summary.name for summary in store.list_summaries()] == ["csv-summary"]
    (broken,) = store.list_broken()
    assert broken.name == "odd"
    assert "can't be read" in broken.diagnostics[0].message


@pytest.mark.req("SK-08")
def test_a_row_of_nulls_is_listed_with_what_is_missing(store: SkillStore) -> None:
    execute(store, agent_skills.insert().values(_id="bare"))
    loaded = load(store, "bare")
    assert (loaded.body, loaded.description) == ("", "")
    assert [diagnostic.message for diagnostic in store.read_contents().diagnostics.get("bare", ())] == [
        "There is no description.",
        "There are no steps below the frontmatter.",
    ]


@pytest.mark.req("SK-08")
def test_comments_and_unknown_keys_of_a_hand_written_file_survive_the_table(store: SkillStore) -> None:
    text = b"---\n# mine\nname: csv-summary\ncustom: [1, 2]   # odd\ndescription: Does it.\n---\n\nSteps.\n"
    store.save_tree("csv-summary", {"SKILL.md": build_tree_file(text)}, ME)
    assert read_tree(store, "csv-summary")["SKILL.md"].content == text
    store.update_skill("csv-summary", lambda skill: replace(skill, title="T"), ME)
    tree = read_tree(store, "csv-summary")
    assert b"# mine\n" in (tree["SKILL.md"].content or b"")
    assert b"custom: [1, 2]   # odd\n" in (tree["SKILL.md"].content or b"")


@pytest.mark.req("SK-08")
def test_files_lie_beside_the_row_and_are_put_on_disk_by_hash(store: SkillStore) -> None:
    store.save(SKILL, ME)
    code = build_tree_file(b"print(1)\n", executable=True)
    store.save_tree("csv-summary", {**(store.read_tree("csv-summary") or {}), "scripts/tool.py": code}, ME)
    with store.engine.connect() as connection:
        (row,) = connection.execute(sa.select(agent_skill_files)).mappings()
    assert (row["skill"], row["version"], row["path"], row["sha256"]) == (
        "csv-summary",
        2,
        "scripts/tool.py",
        code.sha256,
    )
    first = store.find_directory("csv-summary")
    assert first is not None
    assert (first / "scripts/tool.py").read_bytes() == b"print(1)\n"
    assert (first / "scripts/tool.py").stat().st_mode & 0o111
    assert store.find_directory("csv-summary") == first
    store.update_skill("csv-summary", lambda skill: replace(skill, body="other"), ME)
    assert store.find_directory("csv-summary") != first


def _work(home: Path, url: str, letter: str) -> None:
    store = sql_store(home, url=url)
    for number in range(10):
        count(store, recommended=1)
        store.update_skill(
            "csv-summary",
            lambda skill, line=f"{letter}{number}": replace(skill, body=f"{skill.body}\n{line}"),  # type: ignore[misc]  # the default binds the loop variable
            ME,
        )
    store.engine.dispose()


@pytest.mark.some(1)
@pytest.mark.req("SK-06", "SK-08", "SC-02")
def test_many_hosts_on_one_database_lose_nothing(tmp_path: Path, url: str) -> None:
    store = sql_store(tmp_path, url=url)
    store.save(SKILL, ME)
    store.engine.dispose()
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_work, args=(tmp_path, url, letter)) for letter in "abc"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert counts_of(store)[Stage.STEPS].recommended == 30
    loaded = load(store, "csv-summary")
    assert loaded.version == 31
    assert len(set(loaded.body.splitlines())) == len(SKILL.body.splitlines()) + 30
    store.engine.dispose()


@pytest.mark.some(1)
@pytest.mark.req("SK-08", "OP-01")
def test_every_host_with_the_address_has_the_same_skills_and_the_same_pause(tmp_path: Path, url: str) -> None:
    address = url or f"sqlite:///{tmp_path}/shared.db"

    def host(name: str) -> Habitus:
        home = tmp_path / name
        home.mkdir()
        environ = {"HOME": str(home), "HABITUS_DATABASE": address, "HABITUS_LOOK_EVERY": "0"}
        return Habitus.open(load_settings(environ, home))

    with host("one") as one, host("two") as two:
        one.skills.create(SKILL, one.build_author())
        assert two.skills.load("csv-summary").body == SKILL.body
        two.skills.edit("csv-summary", TextEdit(operation=EditOperation.APPEND, content="3. More."), two.build_author())
        assert one.skills.load("csv-summary").version == 2
        two.pause.pause("ada")
        with pytest.raises(Refused, match="paused"):
            one.skills.remove("csv-summary", replace(ME, actor=ActorKind.AGENT))
        directory = one.skills.find_directory("csv-summary")
        assert directory is not None
        assert directory.is_relative_to(tmp_path / "one")


@pytest.mark.some(1)
@pytest.mark.req("SK-08", "OP-01")
def test_many_skills_are_taken_in_with_few_statements(tmp_path: Path, url: str) -> None:
    """A server is a round trip away: with a statement or more for every skill it is that which takes the time."""
    names = [f"skill-{number}" for number in range(150)]

    def import_all(habitus: Habitus, text: str) -> int:
        for name in names:
            folder = tmp_path / "many" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does {name}.\n---\n{text}\n")
            (folder / "notes.md").write_text(f"{text} {name}\n")
        asked: list[str] = []
        sa.event.listen(sa.Engine, "before_cursor_execute", note := lambda *given: asked.append(given[2]))
        taken_in = list(
            open_importer(habitus).import_entries(detect.read_entries(tmp_path / "many"), habitus.build_author())
        )
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
        assert len(taken_in) == len(names)
        return len(asked)

    environ = {"HOME": str(tmp_path), "HABITUS_DATABASE": url or f"sqlite:///{tmp_path}/shared.db"}
    with Habitus.open(load_settings(environ, tmp_path)) as habitus:
        assert import_all(habitus, "first") < len(names)
        assert import_all(habitus, "second") < len(names)
        assert [habitus.skills.load(name).version for name in (names[0], names[-1])] == [2, 2]
        assert len(habitus.skills.list_versions(names[7])) == 2


@pytest.mark.req("SK-08")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_database_that_has_the_table_already_is_taken_as_it_is(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    is_sqlite = kind == "sqlite"
    address = (
        f"sqlite:///{tmp_path}/theirs.db"
        if is_sqlite
        else postgres.new_schema(request.getfixturevalue("postgres_server"))
    )
    engine = sql.create_engine(address)
    with engine.begin() as connection:
        connection.execute(
            sa.text("CREATE TABLE agent_skills (_id TEXT PRIMARY KEY, title TEXT, content TEXT, own TEXT)")
        )
        connection.execute(sa.text("INSERT INTO agent_skills VALUES ('theirs', 'T', 'Steps.', 'kept')"))
    engine.dispose()
    store = sql_store(tmp_path, url=address)
    assert load(store, "theirs").body == "Steps."
    store.update_skill("theirs", lambda skill: replace(skill, description="D.", body="More."), ME)
    with store.engine.connect() as connection:
        assert connection.execute(sa.text("SELECT own, content, version FROM agent_skills")).one() == (
            "kept",
            "More.",
            2,
        )
    store.engine.dispose()
