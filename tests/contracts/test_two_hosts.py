"""Two hosts on one PostgreSQL: what one learns the other knows, over few connections, whatever the line does."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx2
import psycopg
import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.errors import StorageFailed
from habitus.files import build_tree_file
from habitus.learning.budget import BudgetReachedError
from habitus.search.model import SearchResults
from habitus.skills.formats import skill_md
from habitus.skills.model import Skill
from habitus.sql.change_notifications import ChangeTopic, get_change_feed
from tests.browser.conftest import serve
from tests.contracts.lines import Line
from tests.homes import furnish
from tests.search.library import PARAPHRASES, SKILLS, UNRELATED, assert_alike

LEARN = (
    "import sys; from pathlib import Path; from habitus.app import Habitus, read_settings\n"
    "from habitus.skills.model import Skill\n"
    "environ = {'HOME': sys.argv[1], 'USER': 'ann', 'HABITUS_DATABASE': sys.argv[2]}\n"
    "with Habitus.open(read_settings(Path(sys.argv[1]), environ)) as habitus:\n"
    "    skill = Skill(name=sys.argv[3], description='Brews tea.', when_to_use='Tea is wanted', body='1. Boil.')\n"
    "    habitus.skills.create(skill, habitus.build_author())\n"
    "    habitus.memory.add(f'{sys.argv[3]} needs a clean kettle for the tea.')\n"
)


def serving(tmp_path: Path, url: str) -> Habitus:
    home = furnish(tmp_path / "here")
    return Habitus.open(read_settings(home, {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": url}))


def soon(happens: Callable[[], bool]) -> bool:
    """On a quiet machine in well under two seconds; a busy one is given more, so that a test never is about speed."""
    until, never = time.monotonic() + 300, threading.Event()
    while not (found := happens()) and time.monotonic() < until:
        never.wait(0.02)
    if not found:
        # The report of the test shows what every thread was waiting for.
        for frame in sys._current_frames().values():
            traceback.print_stack(frame)
    return found


def hears(habitus: Habitus) -> bool:
    return get_change_feed(habitus.shared).get_token_of_announced_changes(ChangeTopic.SKILLS) is not None


def knows(habitus: Habitus, name: str) -> Callable[[], bool]:
    def asked() -> bool:
        with habitus.turn("how is tea brewed?") as turn:
            turn.done("Boil it.")
            return name in turn.system and f"{name} needs a clean kettle" in turn.system + turn.context

    return asked


def lists(habitus: Habitus, name: str) -> Callable[[], bool]:
    """Outside a turn, which would go on with what it last knew while the line is slow."""

    def asked() -> bool:
        with suppress(StorageFailed):
            lessons = [lesson.text for lesson in habitus.memory.list_lessons("all", limit=10)]
            names = {item.name for item in habitus.skills.list_skills()}
            return name in names and any(text.startswith(name) for text in lessons)
        return False

    return asked


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_what_one_host_learns_the_other_recalls_at_once_over_two_connections(
    tmp_path: Path, url: str, python: str
) -> None:
    with serving(tmp_path, _called(url, "this host")) as habitus:
        assert not knows(habitus, "brew-tea")()
        assert soon(lambda: hears(habitus))
        for name in ("brew-tea", "brew-green-tea"):
            subprocess.run([python, "-c", LEARN, str(furnish(tmp_path / "there")), url, name], check=True)
            assert soon(knows(habitus, name))
        assert 1 <= _connections(url) <= 2


@pytest.mark.full
@pytest.mark.req("CL-02", "OP-01")
def test_an_open_page_of_one_host_hears_what_another_writes(tmp_path: Path, url: str, python: str) -> None:
    with serving(tmp_path, url) as habitus, serve(habitus) as site, httpx2.Client(timeout=300) as browser:
        browser.get(f"{site.address}/enter", params={"key": site.keys.create_owner_sign_in_key()})
        with browser.stream("GET", f"{site.address}/live") as stream:
            markers = (line for line in stream.iter_lines() if line.startswith("data: "))
            before = next(markers)
            subprocess.run([python, "-c", LEARN, str(furnish(tmp_path / "there")), url, "brew-tea"], check=True)
            assert next(markers) != before
        assert "needs a clean kettle" in browser.get(f"{site.address}/lessons").text


def _called(url: str, application: str) -> str:
    return sa.make_url(url).update_query_dict({"application_name": application}).render_as_string(hide_password=False)


def _connections(url: str) -> int:
    with psycopg.connect(url) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'this host'"
        (count,) = connection.execute(query).fetchone() or (0,)
        return int(count)


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_whoever_writes_and_whoever_searches_do_not_wait_for_each_other(tmp_path: Path, url: str) -> None:
    """On the one connection that listening leaves them: who writes has it, and looks for something similar first."""
    with serving(tmp_path, url) as habitus, ThreadPoolExecutor() as both:
        knows(habitus, "brew-tea")()
        assert soon(lambda: hears(habitus))
        habitus.memory.add("The kettle for the tea is number 0.")
        searches = both.submit(lambda: [habitus.memory.recall("which kettle is for the tea?") for _ in range(60)])
        for number in range(1, 20):
            habitus.memory.add(f"The kettle for the tea is number {number}.")
        assert len(searches.result()) == 60


@pytest.mark.req("OP-01")
def test_who_is_told_of_changes_does_not_ask(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, url) as habitus:
        knows(habitus, "brew-tea")()
        assert soon(lambda: hears(habitus))
        asked: list[str] = []

        def note(connection: sa.Connection, cursor: object, statement: str, *more: object) -> None:
            if threading.current_thread() is threading.main_thread():
                asked.append(statement)

        def is_quiet() -> bool:
            """Nothing of the turn before is still being written down."""
            asked.clear()
            habitus.skills.snapshot()
            return not asked

        sa.event.listen(habitus.shared, "before_cursor_execute", note)
        assert soon(is_quiet)
        sa.event.remove(habitus.shared, "before_cursor_execute", note)


@pytest.mark.req("OP-01", "OP-05")
def test_own_changes_are_known_at_once_and_only_what_they_concern_is_asked_anew(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, url) as habitus:
        assert habitus.hosted_conversations is not None  # serving: whoever does listens
        assert soon(lambda: hears(habitus))

        def concerned(change: Callable[[], object]) -> set[ChangeTopic]:
            before = {topic: sql.get_token_of_own_table_commits(habitus.shared, topic) for topic in ChangeTopic}
            change()
            return {
                topic
                for topic in ChangeTopic
                if sql.get_token_of_own_table_commits(habitus.shared, topic) != before[topic]
            }

        tea = Skill(name="brew-mint-tea", title="Mint", description="How mint tea is brewed", body="1. Boil water.")
        assert concerned(lambda: habitus.memory.add("The blue kettle is for mint tea.")) == {ChangeTopic.LESSONS}
        assert concerned(lambda: habitus.skills.create(tea, habitus.build_author())) == {
            ChangeTopic.SKILLS,
            ChangeTopic.ROWS,
        }
        assert habitus.pause.get_last_known_pause() is None
        assert concerned(lambda: habitus.pause.pause("ann")) == {ChangeTopic.SWITCHES}
        assert habitus.pause.get_last_known_pause() is not None
        assert concerned(habitus.pause.resume) == {ChangeTopic.SWITCHES}
        assert habitus.pause.get_last_known_pause() is None


@pytest.mark.full
@pytest.mark.req("OP-01", "OP-03")
def test_behind_a_pooler_that_swallows_what_is_told_the_host_asks_instead(
    tmp_path: Path, url: str, line: Line, python: str
) -> None:
    line.is_deaf = True
    with serving(tmp_path, line.url) as habitus:
        assert habitus.hosted_conversations is not None  # serving: whoever does listens
        assert not lists(habitus, "brew-tea")()
        subprocess.run([python, "-c", LEARN, str(furnish(tmp_path / "there")), url, "brew-tea"], check=True)
        assert soon(lists(habitus, "brew-tea"))
        assert not hears(habitus)


@pytest.mark.full
@pytest.mark.req("OP-01", "OP-03")
def test_after_a_cut_the_host_is_told_again(tmp_path: Path, url: str, line: Line, python: str) -> None:
    with serving(tmp_path, line.url) as habitus:
        assert habitus.hosted_conversations is not None  # serving: whoever does listens
        assert not lists(habitus, "brew-tea")()
        assert soon(lambda: hears(habitus))
        line.cut()
        assert soon(lambda: not hears(habitus))
        line.restore()
        subprocess.run([python, "-c", LEARN, str(furnish(tmp_path / "there")), url, "brew-tea"], check=True)
        assert soon(lists(habitus, "brew-tea"))
        assert soon(lambda: hears(habitus))


@pytest.mark.req("OP-01")
def test_a_shared_library_ranks_as_the_same_skills_in_a_home_do(tmp_path: Path, url: str) -> None:
    places = {"alone": "", "shared": url}
    found: dict[str, list[SearchResults]] = {}
    for name, address in places.items():
        home = furnish(tmp_path / name)
        environ = {"HOME": str(tmp_path), "USER": "ann"} | ({"HABITUS_DATABASE": address} if address else {})
        with Habitus.open(read_settings(home, environ)) as habitus:
            skills = [
                Skill(name=d.id.lower(), description=d.description, when_to_use=d.when_to_use, tags=d.tags)
                for d in SKILLS
            ]
            wanted = {skill.name: {"SKILL.md": build_tree_file(skill_md.render_skill_md(skill))} for skill in skills}
            habitus.skills.get_layer("user").store.save_trees(wanted, habitus.build_author())
            found[name] = [habitus.finder.search(request) for request in (*PARAPHRASES, *UNRELATED)]
    for one, other in zip(found["shared"], found["alone"], strict=True):
        assert_alike(one, other)


@pytest.mark.req("AG-02", "OP-07")
def test_two_hosts_share_one_daily_limit_of_tokens(tmp_path: Path, url: str) -> None:
    environ = {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": url, "HABITUS_LEARNING_TOKENS": "100"}
    here, there = (read_settings(furnish(tmp_path / name), environ) for name in ("here", "there"))
    with Habitus.open(here) as one, Habitus.open(there) as other:
        one.spending.settle(one.spending.reserve(90), 80)
        with pytest.raises(BudgetReachedError, match="100 tokens a day, and 80 are spent"):
            other.spending.reserve(30)
        other.spending.settle(other.spending.reserve(20), 15)
        assert one.spending.get_usage_today().tokens == 95
