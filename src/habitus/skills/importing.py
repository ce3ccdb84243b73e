"""Taking skills in from elsewhere, each with a verdict: nothing is overwritten that a person changed here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa

from habitus import sql
from habitus.skills import trees
from habitus.skills.formats.base import Entry, Incoming, NotTaken
from habitus.skills.layers import USER
from habitus.skills.library import Library
from habitus.skills.model import Author
from habitus.skills.review import Action, Change, Proposal, ProposalState, Review
from habitus.skills.stores.base import SkillStore
from habitus.skills.tables import imports
from habitus.skills.trust import IMPORTED, Scan, Trust

_CHUNK = 200


class Verdict(StrEnum):
    IMPORTED = "imported"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    HELD = "held"  # waits for a person
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What became of one entry of what was imported."""

    name: str
    verdict: Verdict
    reason: str = ""
    origin: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a skill came from, and its files' hashes as they came and as they were saved."""

    origin: str
    source_hash: str
    written_hash: str
    imported_on: datetime


def origins(engine: sa.Engine, layer: str) -> dict[str, Origin]:
    """Name → where it came from, for the imported skills of a layer."""
    query = sa.select(imports).where(imports.c.layer == layer)
    with sql.reading(engine) as connection:
        return {
            row["name"]: Origin(
                origin=row["origin"],
                source_hash=row["source_hash"],
                written_hash=row["written_hash"],
                imported_on=row["imported_on"],
            )
            for row in connection.execute(query).mappings()
        }


class Importer:
    def __init__(
        self,
        library: Library,
        review: Review,
        trust: Trust,
        engine: sa.Engine,
        *,
        clock: Callable[[], datetime],
        scan: Scan,
    ) -> None:
        self._library = library
        self._review = review
        self._trust = trust
        self._engine = engine
        self._clock = clock
        self._scan = scan

    def run(
        self,
        entries: Iterable[Entry],
        author: Author,
        *,
        layer: str = USER,
        overwrite: bool = False,
        is_trusted: bool = False,
    ) -> Iterator[Result]:
        """Take the entries in, some hundred at a time; a repeated run goes on where this one was stopped.

        `overwrite` replaces what differs here (its history stays); `is_trusted` lets findings and standing rights pass.
        """
        chunk: list[Incoming] = []
        for entry in entries:
            if isinstance(entry, Incoming):
                chunk.append(entry)
            elif isinstance(entry, NotTaken):
                yield Result(name=entry.name, verdict=Verdict.REFUSED, reason=entry.reason, origin=entry.origin)
            if len(chunk) == _CHUNK:
                yield from self._take(chunk, author, layer, overwrite=overwrite, is_trusted=is_trusted)
                chunk = []
        yield from self._take(chunk, author, layer, overwrite=overwrite, is_trusted=is_trusted)

    def _take(
        self, chunk: list[Incoming], author: Author, layer: str, *, overwrite: bool, is_trusted: bool
    ) -> Iterator[Result]:
        store = self._library.layer(layer).store
        here, known, unusable = store.tree_hashes(), origins(self._engine, layer), _unusable(store)
        results: list[Result] = []
        to_save: dict[str, Incoming] = {}
        for entry in chunk:
            result = _judged(entry, here.get(entry.name), known.get(entry.name), overwrite=overwrite)
            if result is None and entry.name in unusable:
                reason = f"a directory '{entry.name}' is there that can't be loaded; mend or remove it first"
                result = Result(name=entry.name, verdict=Verdict.REFUSED, reason=reason, origin=entry.origin)
            if result is None and not is_trusted:
                result = self._held(entry, layer, author)
            if result is None:
                to_save[entry.name] = entry
                verdict = Verdict.UPDATED if entry.name in here else Verdict.IMPORTED
                result = Result(name=entry.name, verdict=verdict, origin=entry.origin)
            results.append(result)
        if to_save:
            self._save(to_save, author, layer, is_trusted=is_trusted, new=set(to_save) - set(here))
        yield from results

    def _held(self, entry: Incoming, layer: str, author: Author) -> Result | None:
        """Content with findings becomes a proposal; one that was turned down before stays out."""
        findings = tuple(self._scan(entry.tree))
        if not findings:
            return None
        earlier = self._decided(entry, layer)
        if earlier is not None:
            reason = f"turned down by {earlier.decided_by}: {earlier.decision or 'no reason given'}"
            return Result(name=entry.name, verdict=Verdict.REFUSED, reason=reason, origin=entry.origin)
        change = Change(
            action=Action.WRITE, name=entry.name, layer=layer, tree=entry.tree, details={"origin": entry.origin}
        )
        proposal = self._review.propose(change, replace(author, reason=f"import of {entry.origin}"), findings)
        self._remember({entry.name: entry}, layer, written={})
        reason = f"{findings[0]}; see 'habitus review show {proposal.id}'"
        return Result(name=entry.name, verdict=Verdict.HELD, reason=reason, origin=entry.origin)

    def _decided(self, entry: Incoming, layer: str) -> Proposal | None:
        for proposal in reversed(self._review.list(ProposalState.REJECTED)):
            change = proposal.change
            if (change.name, change.layer) == (entry.name, layer) and trees.is_same(change.tree, entry.tree):
                return proposal
        return None

    def _save(
        self, entries: Mapping[str, Incoming], author: Author, layer: str, *, is_trusted: bool, new: set[str]
    ) -> None:
        wanted = {name: entry.tree for name, entry in entries.items()}
        self._library.write_trees(layer, wanted, replace(author, reason=author.reason or "imported"))
        store = self._library.layer(layer).store
        hashes = store.tree_hashes()
        self._remember(entries, layer, written=hashes)
        if is_trusted:
            self._trust.trust(IMPORTED, {name: store.tree(name) or {} for name in entries}, author.name)
        for name in new & set(entries):
            entry = entries[name]
            for stage, counters in entry.counters.items():
                store.add_counters(name, stage, counters)
            if not entry.enabled:
                store.set_enabled(name, False)

    def _remember(self, entries: Mapping[str, Incoming], layer: str, *, written: Mapping[str, str]) -> None:
        values = [
            {
                "layer": layer,
                "name": name,
                "origin": entry.origin,
                "source_hash": trees.tree_hash(entry.tree),
                "written_hash": written.get(name, ""),
                "imported_on": self._clock(),
            }
            for name, entry in entries.items()
        ]
        with sql.writing(self._engine) as connection:
            gone = imports.delete().where(imports.c.layer == layer, imports.c.name.in_(list(entries)))
            connection.execute(gone)
            connection.execute(imports.insert(), values)


def _judged(entry: Incoming, here: str | None, known: Origin | None, *, overwrite: bool) -> Result | None:
    """A verdict that needs no scan and no write; None for what is to be taken in."""
    digest = trees.tree_hash(entry.tree)
    if here == digest:
        return Result(name=entry.name, verdict=Verdict.UNCHANGED, origin=entry.origin)
    if here is not None and known is not None and known.source_hash == digest and not overwrite:
        reason = "edited here since; your edit is kept"
        return Result(name=entry.name, verdict=Verdict.UNCHANGED, reason=reason, origin=entry.origin)
    is_theirs = known is not None and known.written_hash == here
    if here is not None and not is_theirs and not overwrite:
        what = "was edited here" if known is not None else "is there already and differs"
        reason = f"'{entry.name}' {what}; --overwrite takes theirs, the one here stays in its history"
        return Result(name=entry.name, verdict=Verdict.REFUSED, reason=reason, origin=entry.origin)
    return None


def _unusable(store: SkillStore) -> set[str]:
    """Names taken by directories that can't be loaded."""
    return {broken.name for broken in store.list_broken()} - {summary.name for summary in store.list_summaries()}
