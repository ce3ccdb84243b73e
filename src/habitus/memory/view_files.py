"""The view files of one home: read, held against what we last wrote, and written anew, never half.

What was rendered is kept by the stamp that the page carries, so that a page which lay open in an editor while memory
went on is compared with what that person saw. The renderings are kept beside the files, on this machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from habitus import sql
from habitus.errors import StorageFailed
from habitus.files import disk_errors, write_whole
from habitus.locks import lock, try_lock
from habitus.memory import views
from habitus.memory.tables import memory_views
from habitus.memory.views import VIEWS, Edits, Line, Page

_LONGEST = 4_000_000

Stamps = Mapping[str, tuple[int, int, int] | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundPages:
    """The pages as they are, and what a person did to them."""

    pages: Mapping[str, Page]
    edits: Edits
    has_base: bool  # whether all of them are renderings that we remember
    notes: tuple[str, ...] = ()
    seen: Stamps | None = None


class ViewFiles:
    def __init__(
        self,
        folder: Path,
        engine: sa.Engine,
        *,
        clock: Callable[[], datetime],
        is_durable: bool = True,
        renderings: int = 50,
    ) -> None:
        self.folder = folder
        self._engine = engine
        self._clock = clock
        self._is_durable = is_durable
        self._renderings = renderings  # of each page, so many are kept
        self._known: Stamps = {}
        self._remembered: dict[str, str] = {}  # the pages whose renderings this process has kept

    def have_changed(self) -> bool:
        """Whether a file is not as this process last saw it; costs three looks at the directory."""
        return self._stats() != self._known

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """One process at a time reads and writes the pages; says whether it is us.

        Who holds the lock may wait for the database, so inside a transaction nobody waits for the lock.
        """
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (try_lock if sql.is_writing(self._engine) else lock)(self.folder / ".lock") as held:
            yield held is not None

    def read(self) -> FoundPages:
        seen = self._stats()
        texts = {view.name: self._text(view.name) for view in VIEWS}
        return self.understood({name: text for name, text in texts.items() if text is not None}, seen)

    def understood(self, texts: Mapping[str, str], seen: Stamps | None = None) -> FoundPages:
        """What a person did in these texts; a page that is missing or empty says nothing."""
        pages = {
            view.name: views.read(view, texts[view.name])
            for view in VIEWS
            if view.name in texts and not self._is_settled(view.name, texts[view.name])
        }
        notes = [f"{name} was empty; it is written anew." for name, page in pages.items() if page.is_empty]
        pages = {name: page for name, page in pages.items() if not page.is_empty}
        before: list[Line] = []
        has_base = True
        for name, page in pages.items():
            lines = self._rendering(name, page.stamp)
            if lines is None:
                has_base = False
                notes.append(f"{name} is not a page that is known here; nothing is taken as removed from it.")
            before += lines or ()
        # What was cut out of one page may stand in another; so a page that says nothing keeps its lines.
        return FoundPages(
            pages=pages,
            edits=views.edits(before, pages.values()),
            has_base=has_base,
            notes=tuple(notes),
            seen=seen,
        )

    def _is_settled(self, name: str, text: str) -> bool:
        """Whether there is nothing to be read: the page is one of ours, as we wrote it."""
        if self._remembered.get(name) == text and f"## {views.NOT_UNDERSTOOD}" not in text:
            return True
        if not views.is_untouched(text):
            return False
        table = memory_views
        query = sa.select(sa.func.count()).where(table.c.view == name, table.c.stamp == views.stamp_in(text))
        with sql.reading(self._engine) as connection:
            return bool(connection.execute(query).scalar_one())

    def texts(self) -> dict[str, str]:
        return {view.name: self._text(view.name) or "" for view in VIEWS}

    def write(self, texts: Mapping[str, str], found: FoundPages | None) -> bool:
        """Put the pages in place; False, and nothing done, when somebody saved one since it was read."""
        changed = [view.name for view in VIEWS if self._text(view.name) != texts[view.name]]
        for view in VIEWS:
            if view.name in changed or self._remembered.get(view.name) != texts[view.name]:
                self._remember(view.name, texts[view.name])
        if found is not None and found.seen is not None and self._stats() != found.seen:
            return False
        for name in changed:
            write_whole(self.folder / name, texts[name].encode(), mode=0o600, durable=self._is_durable)
        self._known = self._stats()
        return True

    def _text(self, name: str) -> str | None:
        path = self.folder / name
        try:
            with path.open("rb") as file:
                return file.read(_LONGEST).decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(f"Can't read {path}: {error.strerror}.", mend="Check its permissions.") from None

    def _stats(self) -> Stamps:
        return {view.name: _stat(self.folder / view.name) for view in VIEWS}

    def _remember(self, name: str, text: str) -> None:
        """Before the file is written, so that a page which is seen always has its rendering kept."""
        stamp, table = views.stamp_in(text), memory_views
        mine = table.c.view == name
        with sql.reading(self._engine) as connection:
            newest = sa.select(table.c.stamp).where(mine).order_by(table.c.written_on.desc()).limit(1)
            is_newest = connection.execute(newest).scalar() == stamp
        if is_newest:
            self._remembered[name] = text
            return
        with sql.writing(self._engine) as connection:
            connection.execute(table.delete().where(mine, table.c.stamp == stamp))
            connection.execute(
                table.insert().values(
                    view=name, stamp=stamp, lines=zlib.compress(text.encode(), 1), written_on=self._clock()
                )
            )
            old = sa.select(table.c.stamp).where(mine).order_by(table.c.written_on.desc()).offset(self._renderings)
            gone = list(connection.execute(old).scalars())
            if gone:
                connection.execute(table.delete().where(mine, table.c.stamp.in_(gone)))
        self._remembered[name] = text

    def _rendering(self, name: str, stamp: str) -> tuple[Line, ...] | None:
        """The lines of a rendering; of the newest where a person took the stamp away."""
        table = memory_views
        query = sa.select(table.c.lines).where(table.c.view == name)
        query = query.where(table.c.stamp == stamp) if stamp else query.order_by(table.c.written_on.desc()).limit(1)
        with sql.reading(self._engine) as connection:
            packed = connection.execute(query).scalar()
        if packed is None:
            return None
        view = next(view for view in VIEWS if view.name == name)
        return views.read(view, zlib.decompress(packed).decode()).lines

    def forget_renderings(self) -> None:
        """What was erased must not be found in an old page either."""
        self._remembered = {}
        with sql.writing(self._engine) as connection:
            connection.execute(memory_views.delete())


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
