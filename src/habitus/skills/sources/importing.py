"""Import skills from elsewhere, each with a verdict; nothing that was edited here is overwritten."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.files import Tree, tree_hash
from habitus.skills import lifecycle, trees
from habitus.skills.formats.base import Entry, Format, Incoming, NotTaken, Outgoing, PlaybookLesson
from habitus.skills.layers.layer import USER
from habitus.skills.layers.listing import Listed
from habitus.skills.library import Library
from habitus.skills.lifecycle import Packages
from habitus.skills.model import Author, Counters, Diagnostic, Severity, Stage
from habitus.skills.names import unique_name
from habitus.skills.review import Action, Change, Proposal, ProposalState, Review
from habitus.skills.sources.trust import IMPORTED, Origin, Scan, Trust, imports_changed, origins
from habitus.skills.stores.base import Contents, Facts
from habitus.skills.stores.tables import imports
from habitus.skills.stores.versioned import SkillStore

_CHUNK = 500
# Also recognises a pending proposal that only waits because of its name, so the text must not change.
_DECIDES = "--replace or --keep-both decides beforehand"


class Verdict(StrEnum):
    """The outcome of importing one entry."""

    IMPORTED = "imported"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    HELD = "held"  # pending review
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The result of importing one entry."""

    name: str
    verdict: Verdict
    reason: str = ""
    origin: str = ""
    notes: tuple[str, ...] = ()  # oddities, as text
    kind: str = "skill"  # or lesson
    is_namesake: bool = False  # left out because another entry of its name came first

    @property
    def is_refused(self) -> bool:
        """Whether the entry was refused."""
        return self.verdict is Verdict.REFUSED

    @property
    def is_here_now(self) -> bool:
        """Whether the skill here now equals the source."""
        is_new = self.verdict in (Verdict.IMPORTED, Verdict.UPDATED)
        return is_new or (self.verdict is Verdict.UNCHANGED and not self.reason)


class Namesake(StrEnum):
    """What to do with a skill whose name belongs to one from another origin."""

    HOLD = "hold"
    REPLACE = "replace"
    KEEP_BOTH = "keep both"


Land = Callable[[PlaybookLesson], Result]
Choose = Callable[[str, str, str], Namesake]  # (name, origin here, origin of the new one) → decision


def hold(name: str, here: str, there: str) -> Namesake:
    """Hold the new skill for review if no person can be asked."""
    return Namesake.HOLD


class Importer:
    """Imports entries into a layer of the library."""

    def __init__(
        self,
        library: Library,
        review: Review,
        trust: Trust,
        engine: sa.Engine,
        *,
        clock: Callable[[], datetime],
        scan: Scan,
        land: Land | None = None,
    ) -> None:
        self._packages = Packages()
        self._land = land  # stores the lessons of a playbook; None leaves them out
        self._library = library
        self._review = review
        self._trust = trust
        self._engine = engine
        self._clock = clock
        self._scan = scan
        review.when_approved(self._on_approval)

    def run(
        self,
        entries: Iterable[Entry],
        author: Author,
        *,
        layer: str = USER,
        overwrite: bool = False,
        is_trusted: bool = False,
        choose: Choose = hold,
    ) -> Iterator[Result]:
        """Import the entries in batches; a repeated run continues where an interrupted one stopped.

        `overwrite` replaces skills that differ here (their history stays); `is_trusted` skips findings and claims;
        `resolve_conflict` is asked before a skill replaces one from another origin.
        """
        chunk: list[Incoming] = []
        for entry in entries:
            if isinstance(entry, Incoming):
                chunk.append(entry)
            elif isinstance(entry, NotTaken):
                yield Result(
                    name=entry.name,
                    verdict=Verdict.REFUSED,
                    reason=entry.reason,
                    origin=entry.origin,
                    is_namesake=entry.is_namesake,
                )
            elif self._land is not None:
                yield self._land(entry)
            if len(chunk) == _CHUNK:
                yield from self._take(chunk, author, layer, choose, overwrite=overwrite, is_trusted=is_trusted)
                chunk = []
        yield from self._take(chunk, author, layer, choose, overwrite=overwrite, is_trusted=is_trusted)

    def _take(
        self, chunk: list[Incoming], author: Author, layer: str, choose: Choose, *, overwrite: bool, is_trusted: bool
    ) -> Iterator[Result]:
        store, wanted = self._library.layer(layer).store, [entry.name for entry in chunk]
        there = store.contents()
        known, proposals = origins(self._engine, layer, wanted), self._proposals(layer, wanted)
        digests = [tree_hash(entry.tree) for entry in chunk]
        both = zip(chunk, digests, strict=True)
        differing = [one for one, digest in both if _hash(there, one.name) not in (None, digest)]
        said_there = {} if overwrite else _said_there(store, differing)
        results: list[Result] = []
        to_save: dict[str, Incoming] = {}
        for newcomer, digest in zip(chunk, digests, strict=True):
            entry, waits, here = newcomer, "", _hash(there, newcomer.name)
            is_other = _would_replace_another(entry, digest, here, known.get(entry.name))
            if is_other and not overwrite:
                entry, waits = self._namesake(entry, layer, choose, known[entry.name], there.summaries)
                # The resolution may have renamed the entry, so look up its new name too.
                known |= origins(self._engine, layer, [entry.name])
                proposals |= self._proposals(layer, [entry.name])
                digest, here = tree_hash(entry.tree), _hash(there, entry.name)
            result = _judge_entry(entry, digest, here, known.get(entry.name), overwrite=overwrite)
            if digest == said_there.get((entry.format, entry.name)):
                result = Result(name=entry.name, verdict=Verdict.UNCHANGED, origin=entry.origin)
            if result is None and here is None and entry.name in there.broken:
                reason = f"a directory '{entry.name}' is there that can't be loaded; fix or remove it first"
                result = Result(name=entry.name, verdict=Verdict.REFUSED, reason=reason, origin=entry.origin)
            if result is None and (clash := trees.clash(entry.name, entry.tree)):
                result = Result(name=entry.name, verdict=Verdict.REFUSED, reason=clash, origin=entry.origin)
            if not waits and (result is None or entry.name != newcomer.name):
                self._close_namesake(proposals, newcomer, author, is_decided=is_other)
            if result is None and (waits or not is_trusted):
                findings = (*([waits] if waits else []), *(() if is_trusted else self._scan(entry.tree)))
                result = self._hold(entry, layer, author, proposals.get((entry.name, digest)), findings)
            if result is None:
                to_save[entry.name] = entry
                verdict = Verdict.UPDATED if here is not None else Verdict.IMPORTED
                result = Result(name=entry.name, verdict=verdict, origin=entry.origin)
            # Notes describe the stored manifest if the files are equal, or else the incoming one.
            says = (there.summaries[entry.name] if digest == here else entry.skill).manifest
            notes = (*_notes(entry), *lifecycle.missing_packages(says, self._packages))
            results.append(replace(result, notes=notes) if notes else result)
        self._save(to_save, author, layer, is_trusted=is_trusted)
        # An interrupted run wrote these but did not finish their counters and switches.
        unfinished = {entry.name: entry for entry in chunk if _is_unfinished(known.get(entry.name))}
        self._finish(unfinished, layer, author)
        seen = self._library.snapshot().by_name if to_save else {}
        for result in results:
            item = seen.get(result.name) if result.name in to_save else None
            said = _taken_over(item, layer) if item is not None else ""
            yield replace(result, notes=(*result.notes, said)) if said else result

    def adopt(self, found: Sequence[Incoming], layer: str) -> None:
        """Record skills that another tool installed here as imported from where they were found."""
        store = self._library.layer(layer).store
        entries = {entry.name: replace(entry, tree=store.tree(entry.name) or {}) for entry in found}
        if entries:
            self._remember(entries, layer)

    def formats(self, layer: str) -> Sequence[Format]:
        """Return every format; unchanged skills already in the layer are not parsed again."""
        # Imports every format, which only importing needs.
        from habitus.skills.formats import detect

        store = self._library.layer(layer).store
        store.contents()
        rows = {row.name: row for row in store.rows() if row.summary is not None and row.folder == row.name}

        def known(name: str, tree: Tree) -> Sequence[Diagnostic] | None:
            row = rows.get(name)
            return row.diagnostics if row is not None and row.tree_hash == tree_hash(tree) else None

        # In the folders of other agents, diagnostics say more than parsing does, so nothing is skipped there.
        return detect.formats_knowing(known) if layer == USER else detect.FORMATS

    def _proposals(self, layer: str, names: Sequence[str]) -> dict[tuple[str, str], Proposal]:
        """Return the proposals for these names, decided or not, by name and hash of the files."""
        found = [p for p in self._review.list(None, with_contents=False, names=names) if p.change.layer == layer]
        return {(proposal.change.name, tree_hash(proposal.change.tree)): proposal for proposal in found}

    def _namesake(
        self, entry: Incoming, layer: str, choose: Choose, known: Origin, here: Container[str]
    ) -> tuple[Incoming, str]:
        """Resolve a name conflict with another origin: return the entry to import, or the reason why it is held."""
        origin, its_own = _tell_apart(known, entry)
        match choose(entry.name, origin, its_own):
            case Namesake.REPLACE:
                return entry, ""
            case Namesake.HOLD:
                reason = f"'{entry.name}' here is from {origin}, and this one from {its_own} would take its place"
                return entry, f"{reason}; {_DECIDES}"
            case Namesake.KEEP_BOTH:
                mine = {name for name, one in origins(self._engine, layer).items() if not _is_another(one, entry)}
                name = unique_name(entry.name, lambda taken: taken in here and taken not in mine)
                return replace(entry, name=name, tree=trees.rename_tree(entry.tree, name)), ""

    def _close_namesake(
        self, proposals: dict[tuple[str, str], Proposal], entry: Incoming, author: Author, *, is_decided: bool
    ) -> None:
        """Close a proposal that was pending, or rejected, only because of its name, once that is decided."""
        key = (entry.name, tree_hash(entry.tree))
        earlier = proposals.get(key)
        if earlier is None or len(earlier.reasons) != 1 or not earlier.reasons[0].endswith(_DECIDES):
            return
        if earlier.state is ProposalState.WAITING:
            self._review.withdraw(earlier.id, author)
            del proposals[key]
        elif is_decided and earlier.state is ProposalState.REJECTED:
            del proposals[key]

    def _hold(
        self, entry: Incoming, layer: str, author: Author, earlier: Proposal | None, findings: Sequence[str]
    ) -> Result | None:
        """Hold an entry with findings as a proposal; refuse one that was rejected before; None if nothing holds
        it.
        """
        if earlier is not None and earlier.state is ProposalState.REJECTED:
            reason = f"turned down by {earlier.decided_by}: {earlier.decision or 'no reason given'}"
            return Result(name=entry.name, verdict=Verdict.REFUSED, reason=reason, origin=entry.origin)
        if earlier is None or earlier.state is not ProposalState.WAITING:
            if not findings:
                return None
            change = Change(action=Action.WRITE, name=entry.name, layer=layer, tree=entry.tree, details=_details(entry))
            said = replace(author, reason=f"import of {entry.origin}")
            earlier = self._review.propose(change, said, tuple(findings))
        reason = f"{earlier.reasons[0]}; see 'habitus review show {earlier.id}'"
        return Result(name=entry.name, verdict=Verdict.HELD, reason=reason, origin=entry.origin)

    def _save(self, entries: Mapping[str, Incoming], author: Author, layer: str, *, is_trusted: bool) -> None:
        """Record the origins, then write the files."""
        if not entries:
            return
        # In this order, a crash in between leaves skills that count as imported, never as the user's own.
        self._remember(entries, layer)
        wanted = {name: entry.tree for name, entry in entries.items()}
        facts = {name: _facts(entry) for name, entry in entries.items()}
        self._library.write_trees(layer, wanted, replace(author, reason=author.reason or "imported"), facts=facts)
        if is_trusted:
            self._trust.trust(IMPORTED, wanted, author.name)
        self._finish(entries, layer, author)

    def _remember(self, entries: Mapping[str, Incoming], layer: str) -> None:
        """Record where the skills come from; whether their counters were already imported is carried over."""
        known = origins(self._engine, layer, entries)
        digests = {name: tree_hash(entry.tree) for name, entry in entries.items()}
        now = self._clock()
        values = [
            {
                "layer": layer,
                "name": name,
                "origin": entry.origin,
                "source_hash": digests[name],
                "written_hash": digests[name],
                "imported_on": now,
                "is_finished": name in known and known[name].is_finished,
                "place": entry.place,
            }
            for name, entry in entries.items()
        ]
        with sql.writing(self._engine) as connection:
            gone = imports.delete().where(imports.c.layer == layer, imports.c.name.in_(list(entries)))
            connection.execute(gone)
            connection.execute(imports.insert(), values)
            imports_changed(connection)

    def _finish(self, entries: Mapping[str, Incoming], layer: str, author: Author) -> None:
        """Take over counters and disabled states of new skills, which must exist by now."""
        store, known = self._library.layer(layer).store, origins(self._engine, layer, entries)
        new = {name: entry for name, entry in entries.items() if _is_unfinished(known.get(name))}
        for name, entry in new.items():
            for stage, counters in entry.counters.items():
                store.keep_told(name, stage, counters)
            if not entry.enabled:
                store.set_enabled(name, False, replace(author, reason="as in its source"))
        if new:
            with sql.writing(self._engine) as connection:
                mine = (imports.c.layer == layer, imports.c.name.in_(list(new)))
                connection.execute(imports.update().where(*mine).values(is_finished=True))

    def _on_approval(self, proposal: Proposal) -> None:
        """Record an approved skill as imported."""
        change = proposal.change
        if "origin" not in change.details:
            return
        entry = _entry(change)
        self._remember({change.name: entry}, change.layer)
        self._finish({change.name: entry}, change.layer, proposal.author)


def _is_unfinished(known: Origin | None) -> bool:
    return known is not None and not known.is_finished


def _taken_over(item: Listed, layer: str) -> str:
    """Describe how an imported skill affects those of its name in other layers; empty if it doesn't."""
    if layer in item.waiting:
        trust = f"habitus trust {item.name}@{layer}"
        return f"'{item.name}@{item.layer}' has this name and stays in its place until you trust this one: {trust}"
    others = [f"'{item.name}@{other}'" for other in item.hidden if item.layer == layer]
    return f"It takes the place of {' and '.join(others)}." if others else ""


def _notes(entry: Incoming) -> tuple[str, ...]:
    """Return the oddities worth showing; small deviations from the standard are left out."""
    return tuple(str(found) for found in entry.diagnostics if found.severity is not Severity.NOTE)


def _facts(entry: Incoming) -> Facts:
    return Facts(version=entry.version, created_on=entry.created_on, modified_on=entry.modified_on)


def _details(entry: Incoming) -> dict[str, Any]:
    """Return the details that make an approved import equal to a direct one."""
    counted = {
        stage.value: [counters.recommended, counters.used, counters.succeeded, counters.failed]
        for stage, counters in entry.counters.items()
    }
    told = {"origin": entry.origin, "place": entry.place, "format": entry.format, "enabled": entry.enabled}
    return {**told, "counters": counted}


def _entry(change: Change) -> Incoming:
    counters = {
        Stage(stage): Counters(recommended=numbers[0], used=numbers[1], succeeded=numbers[2], failed=numbers[3])
        for stage, numbers in change.details.get("counters", {}).items()
    }
    return Incoming(
        name=change.name,
        tree=change.tree,
        origin=change.details["origin"],
        place=change.details.get("place", ""),
        format=change.details.get("format", "skill"),
        counters=counters,
        enabled=change.details.get("enabled", True),
    )


def _judge_entry(
    entry: Incoming, digest: str, here: str | None, known: Origin | None, *, overwrite: bool
) -> Result | None:
    """Return the result if it needs no scan and no write, or None if the entry is to be imported."""
    if here == digest:
        return Result(name=entry.name, verdict=Verdict.UNCHANGED, origin=entry.origin)
    if here is not None and known is not None and known.source_hash == digest and not overwrite:
        reason = "edited here since; your edit is kept"
        return Result(name=entry.name, verdict=Verdict.UNCHANGED, reason=reason, origin=entry.origin)
    # Unedited since the last import: the hash written then is the hash here now.
    is_theirs = known is not None and known.written_hash == here
    if here is not None and not is_theirs and not overwrite:
        what = "was edited here" if known is not None else "is there already and differs"
        reason = f"'{entry.name}' {what}; --overwrite takes theirs, the one here stays in its history"
        return Result(name=entry.name, verdict=Verdict.REFUSED, reason=reason, origin=entry.origin)
    return None


def _would_replace_another(entry: Incoming, digest: str, here: str | None, known: Origin | None) -> bool:
    """Whether an unedited skill of another origin, with other files, is here."""
    is_theirs = known is not None and known.written_hash == here
    return is_theirs and known is not None and here != digest and _is_another(known, entry)


def _is_another(known: Origin, entry: Incoming) -> bool:
    """Whether the entry comes from another location; old imports without one are compared by origin."""
    if known.place:
        return known.place != entry.place
    return known.origin != entry.origin or "/" not in entry.origin


def _tell_apart(known: Origin, entry: Incoming) -> tuple[str, str]:
    """Describe both origins, with their locations if the descriptions are equal."""
    if known.origin != entry.origin:
        return known.origin, entry.origin
    return f"{known.origin} ({known.place or 'imported earlier'})", f"{entry.origin} ({entry.place})"


def _said_there(store: SkillStore, entries: Sequence[Incoming]) -> dict[tuple[str, str], str]:
    """Return the hash of each skill here as its format would export it, by (format, name)."""
    # Imports every format, which only importing needs.
    from habitus.skills.formats import detect

    # An entry equal to our own export brings nothing new, even if the format drops some fields.
    found: dict[tuple[str, str], str] = {}
    for format in {entry.format for entry in entries} - {"skill"}:
        names = [entry.name for entry in entries if entry.format == format]
        read = [(store.load(name, look=False), store.tree(name, look=False)) for name in names]
        there = [Outgoing(skill=skill, tree=tree) for skill, tree in read if skill is not None and tree is not None]
        found |= {(format, name): digest for name, digest in detect.hashes(detect.format_named(format), there).items()}
    return found


def _hash(there: Contents, name: str) -> str | None:
    """Return the hash of a loadable skill's files, or None."""
    return there.hashes[name] if name in there.summaries else None
