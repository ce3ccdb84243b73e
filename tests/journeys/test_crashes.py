"""kill -9 at every step of every kind of write: the old state or the new one, never half, and nothing lost."""

from __future__ import annotations

import multiprocessing
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from habitus.skills.stores.usage_cache import UsageCache
from habitus.skills.stores.versioned import SkillStore
from tests.contracts.stores import load_all_entries
from tests.journeys import crash


@dataclass(frozen=True)
class World:
    """Everything a person could see of a store, but for dates and version numbers of unfinished changes."""

    skills: dict[str, tuple[str, bool]]
    files: dict[str, dict[str, str]]
    archived: tuple[str, ...]
    counted: dict[str, dict[str, int]]


def world(store: SkillStore) -> World:
    return World(
        skills={skill.name: (skill.body, skill.enabled) for skill in load_all_entries(store)},
        files={
            summary.name: {path: file.sha256 for path, file in (store.read_tree(summary.name) or {}).items()}
            for summary in store.list_summaries()
        },
        archived=tuple(sorted(item.name for item in store.list_archived())),
        counted={
            name: {stage.value: counts.used for stage, counts in stages.items()}
            for (_, name), stages in UsageCache(store.engine).read_use_counts([store.key]).items()
        },
    )


def run_and_die(home: Path, operation: str, at: int) -> int:
    """Run in a process of its own; returns its exit code, -9 when it was killed."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=crash.main, args=(home, operation, at))
    process.start()
    process.join()
    assert process.exitcode is not None, "the process hangs"
    return process.exitcode


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("prepared") / "home"
    home.mkdir()
    crash.prepare(home)
    return home


@pytest.mark.some(1)
@pytest.mark.req("SK-12", "SC-02")
@pytest.mark.parametrize("operation", sorted(crash.OPERATIONS))
def test_a_kill_at_any_step_leaves_the_old_or_the_new_state(
    prepared: Path, tmp_path: Path, operation: str, is_thorough: bool
) -> None:
    def fresh(name: str) -> Path:
        home = tmp_path / name
        shutil.copytree(prepared, home)
        return home

    old = world(crash.open_store(fresh("old")))
    done = fresh("done")
    crash.OPERATIONS[operation](crash.open_store(done))
    new = world(crash.open_store(done))
    assert new != old

    killed = 0
    for at in range(1, 10_000, 1 if is_thorough else 17):
        home = fresh(f"at-{at}")
        code = run_and_die(home, operation, at)
        survivor = crash.open_store(home)
        after = world(survivor)
        assert after in (old, new), f"killed at step {at}"
        _check_nothing_is_lying_about(home)
        _check_history_is_whole(survivor)
        # The next change works as if nothing had happened.
        survivor.save(crash.OLD, crash.ME)
        shutil.rmtree(home)
        if code == 0:
            assert after == new
            break
        assert code == -9
        killed += 1
    assert killed, "nothing was interrupted: the steps are not seen"


def _check_nothing_is_lying_about(home: Path) -> None:
    left = [str(path) for path in home.rglob("*") if ".habitus-" in path.name]
    assert left == []


def _check_history_is_whole(store: SkillStore) -> None:
    for summary in store.list_summaries():
        versions = store.list_versions(summary.name)
        assert [version.number for version in versions] == list(range(1, len(versions) + 1))
        for version in versions:
            tree = store.read_tree(summary.name, version.number)
            assert tree is not None
            assert all(file.content is not None for file in tree.values())
