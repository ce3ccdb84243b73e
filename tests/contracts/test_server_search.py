"""A large shared library is searched in PostgreSQL: the same hits as in memory, made once, over few statements."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.app.sharing import database, offline_snapshot
from habitus.files import build_tree_file
from habitus.search.index import SearchIndex
from habitus.search.model import SearchDocument, SearchResults
from habitus.search.postgres_index import PostgresSkillIndex
from habitus.search.texts.embedding import WordLlamaEmbedder
from habitus.skills.formats import skill_md
from habitus.skills.model import Skill
from tests.contracts.lines import line_to
from tests.contracts.postgres import new_schema
from tests.homes import furnish
from tests.search.library import PARAPHRASES, SKILLS, UNRELATED, assert_alike

REQUESTS = (*PARAPHRASES, *UNRELATED)
LARGE = len(SKILLS) - 1  # what the settings of these tests call more than memory is to hold
# What `docs/decisions/search.md` promises where the server names only some of the candidates.
SAME_OF_TEN, SAME_FIRST = 0.95, 0.95


def opened(place: Path, url: str = "", above: int = LARGE) -> Habitus:
    home = furnish(place)
    (home / "habitus.toml").write_text(f"[search]\nserver_above = {above}\n")
    address = {"HABITUS_DATABASE": url} if url else {}
    return Habitus.open(read_settings(home, {"HOME": str(place), "USER": "ann"} | address))


def fill(habitus: Habitus, documents: Sequence[SearchDocument] = SKILLS) -> None:
    skills = [
        Skill(name=d.id.lower(), description=d.description, when_to_use=d.when_to_use, tags=d.tags) for d in documents
    ]
    trees = {skill.name: {"SKILL.md": build_tree_file(skill_md.render_skill_md(skill))} for skill in skills}
    habitus.skills.get_layer("user").store.save_trees(trees, habitus.build_author())


def found_by(habitus: Habitus) -> list[SearchResults]:
    return [habitus.finder.search(request) for request in REQUESTS]


def in_server(habitus: Habitus) -> dict[str, str]:
    """Every skill that the server has, with the transaction that put it there."""
    with sql.read_transaction(habitus.shared) as connection:
        return dict(connection.execute(sa.text("SELECT name, xmin::text FROM search_skills")).all())


def in_memory(habitus: Habitus) -> set[str]:
    with sql.read_transaction(habitus.local) as connection:
        return set(connection.execute(sa.text("SELECT id FROM search_documents")).scalars())


@pytest.fixture
def without_pgvector(postgres_server: str) -> str:
    """A database whose owner has no pgvector."""
    address = new_schema(postgres_server)
    engine = sql.open_engine_with_current_schema(address)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE search_skill_vectors DROP vector, ADD vector bytea NOT NULL"))
    engine.dispose()
    return address


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_the_server_gives_the_same_hits_as_memory(tmp_path: Path, url: str, without_pgvector: str) -> None:
    with opened(tmp_path / "alone") as habitus:
        fill(habitus)
        alone = found_by(habitus)
        twin = habitus.finder.find_skills_similar_to_skill(habitus.skills.load("dog-training"), "", k=2)
    with opened(tmp_path / "shared", url) as habitus:
        fill(habitus)
        for one, other in zip(found_by(habitus), alone, strict=True):
            assert_alike(one, other)
        assert habitus.finder.find_skills_similar_to_skill(habitus.skills.load("dog-training"), "", k=2) == twin
        at = habitus.skills.snapshot()
        asked: list[str] = []
        sa.event.listen(sql.create_engine(url), "before_cursor_execute", lambda *given: asked.append(given[2]))
        habitus.finder.search("how is the crust of a loaf made crisp?", at=at)
        assert len(asked) <= 4, asked  # in whose name, what the words are worth, the candidates, what their words are
        assert in_memory(habitus).isdisjoint(in_server(habitus))
        status = database.read_database_status(habitus.settings)
        assert (status.search, status.rows["search_skills"]) == (
            "in the server, by full text and pgvector",
            len(SKILLS),
        )
    with opened(tmp_path / "by-words", without_pgvector) as habitus:
        fill(habitus)
        same = [one.hits[0].id == other.hits[0].id for one, other in zip(found_by(habitus), alone, strict=True)]
        assert sum(same) >= len(PARAPHRASES) - 2  # what shares no word with its request is not found by words
        assert database.read_database_status(habitus.settings).search == "in the server, by full text"


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_a_skill_is_indexed_once_for_all_hosts_and_keeps_what_each_has_learned(tmp_path: Path, url: str) -> None:
    with opened(tmp_path / "here", url) as here:
        fill(here, SKILLS[:-1])
        here.finder.learn_request("bake-bread", "make me something for breakfast")
        assert in_server(here) == {}  # few enough for memory
        fill(here, SKILLS[-1:])
        assert here.finder.search("make me something for breakfast").hits[0].id == "bake-bread"
        made = in_server(here)
        assert not in_memory(here) & made.keys()
        with opened(tmp_path / "there", url) as there:
            there.finder.search("bake a loaf")
            assert in_server(there) == made
            body = "1. Ask the baker for spelt."
            there.skills.create(Skill(name="spelt-flour", description="Buys spelt.", body=body), there.build_author())
            assert there.finder.search("where do I buy spelt?").hits[0].id == "spelt-flour"
            there.skills.remove("tax-return", there.build_author())
        assert here.finder.search("where do I buy spelt?").hits[0].id == "spelt-flour"
        assert "tax-return" not in {hit.id for hit in here.finder.search("fill in my tax return").hits}
        now = in_server(here)
        assert now == {
            **{name: by for name, by in made.items() if name != "tax-return"},
            "spelt-flour": now["spelt-flour"],
        }
        assert here.finder.list_learned_requests() == {"make me something for breakfast"}
        here.skills.remove("bake-bread", here.build_author())
        assert here.finder.search("bake a loaf").hits
        assert not here.finder.list_learned_requests()


@pytest.mark.req("OP-01")
def test_what_is_asked_of_some_skills_is_answered_by_them_alone(tmp_path: Path, url: str) -> None:
    with opened(tmp_path / "here", url) as here:
        fill(here)
        among = ["git-bisect", "weather-report"]
        found = here.finder.search(next(iter(PARAPHRASES)), among=among)
        assert [hit.id for hit in found.hits] == among
        supposed = here.finder.build_hypothetical_searcher([], removed=["git-bisect"])
        assert "git-bisect" not in {hit.id for hit in supposed.search(next(iter(PARAPHRASES))).hits}
        assert here.finder.find_neighbours_of_all_skills()["git-bisect"] == ()


def crowd(count: int) -> list[SearchDocument]:
    """More than the server names for a request; words as uneven as in a language."""
    chance = random.Random(7)
    words = [
        f"{a}{b}{c}" for a in ("ka", "lo", "mi", "ru", "se") for b in ("ban", "dor", "fil", "gus") for c in "aeiou"
    ]
    weights = [1 / (place + 1) for place in range(len(words))]
    return [
        SearchDocument(
            id=f"s{number}",
            name=" ".join(chance.choices(words, weights, k=2)),
            description=" ".join(chance.choices(words, weights, k=8)),
            body=" ".join(chance.choices(words, weights, k=30)),
        )
        for number in range(count)
    ]


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_few_of_many_candidates_give_nearly_the_same_order(url: str) -> None:
    embedder = WordLlamaEmbedder()
    documents = {document.id: document for document in crowd(700)}
    shared = sql.create_engine(url)
    server = PostgresSkillIndex(shared, embedder)
    assert server.try_to_index_skills(
        dict.fromkeys(documents, "as it is"), lambda names: map(documents.__getitem__, names)
    )
    server.refresh_term_counts_and_get_generation()
    memory, few = (SearchIndex.open(sql.create_in_memory_engine(), "skills", embedder=embedder) for _ in range(2))
    memory.put_documents(documents.values())
    few.server = server
    same, first = 0.0, 0
    asked = [f"please {document.description}" for document in crowd(720)[700:]]
    for request in asked:
        wanted, found = ([hit.id for hit in index.search(request).hits] for index in (memory, few))
        same += len(set(wanted) & set(found)) / len(wanted)
        first += wanted[0] == found[0]
    assert same / len(asked) >= SAME_OF_TEN
    assert first / len(asked) >= SAME_FIRST


@pytest.mark.req("OP-03")
def test_while_the_database_is_away_a_large_library_is_searched_by_what_was_last_known(
    tmp_path: Path, url: str
) -> None:
    with line_to(url) as line:
        with opened(tmp_path, line.url) as habitus:
            fill(habitus)
            assert habitus.finder.search("bake a loaf").fits
            offline_snapshot.refresh_snapshot(habitus)
            line.cut()
            with habitus.turn("bake a loaf") as turn:
                turn.done("It is in the oven.")
            assert habitus.finder.search("bake a loaf").hits[0].id == "bake-bread"
        with opened(tmp_path, line.url) as habitus:
            with habitus.turn("bake a loaf") as turn:
                turn.done("It is in the oven.")
            assert "bake-bread" in turn.system
            assert habitus.finder.search("bake a loaf").hits[0].id == "bake-bread"
            assert "bake-bread" not in in_memory(habitus)  # nothing of it is kept
