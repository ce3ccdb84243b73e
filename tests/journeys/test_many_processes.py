"""Several processes on one home at once."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

from habitus.errors import Stale
from habitus.skills.model import Stage
from tests.contracts.stores import count, counts_of
from tests.journeys import crash

_FORK = multiprocessing.get_context("fork")


def _count(home: Path, times: int) -> None:
    store = crash.open_store(home)
    for _ in range(times):
        count(store, "report", used=1)


def _append(home: Path, letter: str, times: int) -> None:
    store = crash.open_store(home)
    for number in range(times):
        store.update_skill(
            "report",
            lambda skill, line=f"{letter}{number}": replace(skill, body=f"{skill.body}\n{line}"),  # type: ignore[misc]  # the default binds the loop variable
            crash.ME,
        )


def _create(home: Path, prefix: str, times: int) -> None:
    store = crash.open_store(home)
    for number in range(times):
        store.save(replace(crash.OLD, name=f"{prefix}-{number}"), crash.ME)


def together(*jobs: tuple[object, ...]) -> None:
    processes = [_FORK.Process(target=job[0], args=job[1:]) for job in jobs]  # type: ignore[arg-type]  # the first is the function
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    crash.open_store(tmp_path).save(crash.OLD, crash.ME)
    return tmp_path


@pytest.mark.req("SK-06")
def test_no_increment_is_lost(home: Path) -> None:
    together(*[(_count, home, 50)] * 4)
    assert counts_of(crash.open_store(home), "report")[Stage.STEPS].used == 200


@pytest.mark.full
@pytest.mark.req("SC-02", "SK-10")
def test_no_edit_is_lost_and_every_one_is_a_version(home: Path) -> None:
    together(*((_append, home, letter, 8) for letter in "abc"))
    store = crash.open_store(home)
    skill = store.load("report")
    assert skill is not None
    assert sorted(skill.body.splitlines()[1:]) == sorted(f"{letter}{n}" for letter in "abc" for n in range(8))
    assert skill.version == 25
    assert [version.number for version in store.list_versions("report")] == list(range(1, 26))


@pytest.mark.full
@pytest.mark.req("SC-02")
def test_one_process_sees_what_another_wrote(home: Path) -> None:
    here = crash.open_store(home)
    assert [summary.name for summary in here.list_summaries()] == ["report"]
    together((_create, home, "x", 3), (_create, home, "y", 3))
    assert len(here.list_summaries()) == 7
    crash.open_store(home).delete("x-0", crash.ME)
    assert here.load("x-0") is None


@pytest.mark.req("SK-10", "SC-02")
def test_of_two_editors_at_once_the_second_is_told(home: Path) -> None:
    one, two = crash.open_store(home), crash.open_store(home)
    one.save(replace(crash.OLD, body="mine"), crash.ME, expected_version=1)
    with pytest.raises(Stale, match="at version 2 now, not 1"):
        two.save(replace(crash.OLD, body="theirs"), crash.ME, expected_version=1)
