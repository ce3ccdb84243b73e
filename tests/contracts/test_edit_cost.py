"""An edit costs what it changes, however many skills there are: in calls, statements and rows, for whoever makes it and
for whoever learns of it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import sqlalchemy as sa

from habitus.app import Habitus, read_settings
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.model import Skill
from habitus.skills.trees import update_main_file
from tests.homes import furnish

FEW, MANY = 20, 200


@contextmanager
def counted_work() -> Iterator[Counter[str]]:
    """Calls, statements, and the rows that a server gave; SQLite does not say how many there were."""
    work = Counter[str]()

    def call(frame: FrameType, event: str, given: Any) -> None:
        work["calls"] += event in ("call", "c_call")

    def statement(connection: object, cursor: Any, *more: object) -> None:
        work.update(statements=1, rows=max(cursor.rowcount, 0))

    sa.event.listen(sa.Engine, "after_cursor_execute", statement)
    sys.setprofile(call)
    try:
        yield work
    finally:
        sys.setprofile(None)
        sa.event.remove(sa.Engine, "after_cursor_execute", statement)


def work_of_an_edit(place: Path, url: str, count: int) -> Counter[str]:
    """The third one, made in one home and learned of in another on one database; nobody looks at directories."""
    told = {"HOME": str(place), "USER": "ann", "HABITUS_DATABASE": url, "HABITUS_LOOK_EVERY": "3600"}
    with ExitStack() as stack:
        homes = [read_settings(furnish(place / name), told) for name in ("here", "there")]
        here, there = (stack.enter_context(Habitus.open(one.model_copy(update={"cwd": place}))) for one in homes)
        some = [Skill(name=f"skill-{n}", description=f"Does {n}.", body="1. Do it.") for n in range(count)]
        here.skills.write_trees("user", {one.name: update_main_file({}, one) for one in some}, here.build_author())
        for number in range(3):
            there.skills.snapshot()
            with counted_work() as work:
                edit = TextEdit(operation=EditOperation.APPEND, content=f"{number}. And again.")
                here.skills.edit("skill-7", edit, here.build_author())
                assert here.skills.load("skill-7").body == there.skills.load("skill-7").body
    return work


@pytest.mark.req("OP-01")
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def test_an_edit_costs_the_same_with_few_skills_and_with_many(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    few, many = (
        work_of_an_edit(
            tmp_path / str(count),
            request.getfixturevalue("url") if kind == "postgresql" else f"sqlite:///{tmp_path}/{count}.db",
            count,
        )
        for count in (FEW, MANY)
    )
    for what in few:
        assert many[what] < 1.05 * few[what], (what, few, many)
