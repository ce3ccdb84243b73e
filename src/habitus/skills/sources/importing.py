"""Import skills from elsewhere, each with a verdict; nothing that was edited here is overwritten."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.files import Tree, compute_tree_hash
from habitus.skills import lifecycle, trees
from habitus.skills.formats.base import (
    ImportEntry,
    IncomingSkill,
    OutgoingSkill,
    PlaybookLesson,
    SkillFormat,
    SkippedEntry,
)
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library
from habitus.skills.lifecycle import InstalledPackages
from habitus.skills.model import Author, Diagnostic, Severity, Stage
from habitus.skills.names import make_unique_name
from habitus.skills.review import Proposal, ProposalAction, ProposalState, ReviewQueue, SkillChange
from habitus.skills.sources.trust import (
    IMPORTED_ROOT,
    ImportOrigin,
    TreeScanner,
    TrustStore,
    mark_imports_changed,
    read_import_origins,
)
from habitus.skills.stores.base import BackendSkillFacts, LayerContents
from habitus.skills.stores.tables import imports
from habitus.skills.stores.versioned import SkillStore
from habitus.use_counts import UsageCounts

_BATCH_SIZE = 500
# Also recognises a pending proposal that only waits because of its name, so the text must not change.
_CONFLICT_HINT = "--replace or --keep-both decides beforehand"


class ImportVerdict(StrEnum):
    """The outcome of importing one entry."""

    IMPORTED = "imported"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    HELD = "held"  # pending review
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOutcome:
    """The result of importing one entry."""

    name: str
    verdict: ImportVerdict
    reason: str = ""
    origin: str = ""
    notes: tuple[str, ...] = ()  # oddities, as text
    kind: str = "skill"  # or lesson
    is_name_conflict: bool = False  # left out because another entry of its name came first

    @property
    def is_refused(self) -> bool:
        """Whether the entry was refused."""
        return self.verdict is ImportVerdict.REFUSED

    @property
    def is_up_to_date(self) -> bool:
        """Whether the skill here now equals the source."""
        is_new = self.verdict in (ImportVerdict.IMPORTED, ImportVerdict.UPDATED)
        return is_new or (self.verdict is ImportVerdict.UNCHANGED and not self.reason)


class NameConflictResolution(StrEnum):
    """What to do with a skill whose name belongs to one from another origin."""

    HOLD = "hold"
    REPLACE = "replace"
    KEEP_BOTH = "keep both"


LessonImporter = Callable[[PlaybookLesson], ImportOutcome]
ConflictResolver = Callable[
    [str, str, str], NameConflictResolution
]  # (name, origin here, origin of the new one) → decision


def always_hold_name_conflict(name: str, current_origin: str, new_origin: str) -> NameConflictResolution:
    """Hold the new skill for review if no person can be asked."""
    return NameConflictResolution.HOLD


class SkillImporter:
    """Imports entries into a layer of the library."""

    def __init__(
        self,
        library: Library,
        review: ReviewQueue,
        trust: TrustStore,
        engine: sa.Engine,
        *,
        clock: Callable[[], datetime],
        scan: TreeScanner,
        import_lesson: LessonImporter | None = None,
    ) -> None:
        self._packages = InstalledPackages()
        self._import_lesson = import_lesson  # stores the lessons of a playbook; None leaves them out
        self._library = library
        self._review = review
        self._trust = trust
        self._engine = engine
        self._clock = clock
        self._scan = scan
        review.add_approval_listener(self._record_approved_import)

    def import_entries(
        self,
        entries: Iterable[ImportEntry],
        author: Author,
        *,
        layer: str = USER_LAYER,
        overwrite: bool = False,
        is_trusted: bool = False,
        skip_held: bool = False,
        resolve_conflict: ConflictResolver = always_hold_name_conflict,
    ) -> Iterator[ImportOutcome]:
        """Import the entries in batches; a repeated run continues where an interrupted one stopped.

        `overwrite` replaces skills that differ here (their history stays); `is_trusted` skips findings and claims;
        `resolve_conflict` is asked before a skill replaces one from another origin.
        """
        import_batch = partial(
            self._import_batch,
            author=author,
            layer=layer,
            resolve_conflict=resolve_conflict,
            overwrite=overwrite,
            is_trusted=is_trusted,
            skip_held=skip_held,
        )
        chunk: list[IncomingSkill] = []
        for entry in entries:
            if isinstance(entry, IncomingSkill):
                chunk.append(entry)
            elif isinstance(entry, SkippedEntry):
                yield ImportOutcome(
                    name=entry.name,
                    verdict=ImportVerdict.REFUSED,
                    reason=entry.reason,
                    origin=entry.origin,
                    is_name_conflict=entry.is_name_conflict,
                )
            elif self._import_lesson is not None:
                yield self._import_lesson(entry)
            if len(chunk) == _BATCH_SIZE:
                yield from import_batch(chunk)
                chunk = []
        yield from import_batch(chunk)

    def _import_batch(
        self,
        batch: list[IncomingSkill],
        *,
        author: Author,
        layer: str,
        resolve_conflict: ConflictResolver,
        overwrite: bool,
        is_trusted: bool,
        skip_held: bool,
    ) -> Iterator[ImportOutcome]:
        store, wanted = self._library.get_layer(layer).store, [entry.name for entry in batch]
        there = store.read_contents()
        known = read_import_origins(self._engine, layer, wanted)
        proposals = self._map_name_and_hash_to_proposal(layer, wanted)
        hashed = [(entry, compute_tree_hash(entry.tree)) for entry in batch]
        differing = [one for one, digest in hashed if _get_loadable_hash(there, one.name) not in (None, digest)]
        said_there = {} if overwrite else _hash_current_exports(store, differing)
        results: list[ImportOutcome] = []
        to_save: dict[str, IncomingSkill] = {}
        for newcomer, digest in hashed:
            entry, waits, here = newcomer, "", _get_loadable_hash(there, newcomer.name)
            is_other = _would_replace_skill_of_other_origin(entry, digest, here, known.get(entry.name))
            if is_other and not overwrite:
                entry, waits = self._resolve_name_conflict(
                    entry, layer, resolve_conflict, known[entry.name], there.summaries
                )
                # The resolution may have renamed the entry, so look up its new name too.
                known |= read_import_origins(self._engine, layer, [entry.name])
                proposals |= self._map_name_and_hash_to_proposal(layer, [entry.name])
                digest, here = compute_tree_hash(entry.tree), _get_loadable_hash(there, entry.name)
            result = _decide_without_scan(entry, digest, here, known.get(entry.name), overwrite=overwrite)
            if digest == said_there.get((entry.format, entry.name)):
                result = _build_outcome(entry, ImportVerdict.UNCHANGED)
            if result is None and here is None and entry.name in there.broken:
                reason = f"a directory '{entry.name}' is there that can't be loaded; fix or remove it first"
                result = _build_outcome(entry, ImportVerdict.REFUSED, reason)
            if result is None and (clash := trees.explain_code_name_conflict(entry.name, entry.tree)):
                result = _build_outcome(entry, ImportVerdict.REFUSED, clash)
            if not waits and (result is None or entry.name != newcomer.name):
                self._close_conflict_proposal(proposals, newcomer, author, is_decided=is_other)
            if result is None and (waits or not is_trusted):
                findings = (*([waits] if waits else []), *(() if is_trusted else self._scan(entry.tree)))
                if skip_held and findings:
                    result = _build_outcome(entry, ImportVerdict.REFUSED, f"left out: {findings[0]}")
                else:
                    result = self._hold_or_refuse_entry_if_needed(
                        entry, layer, author, proposals.get((entry.name, digest)), findings
                    )
            if result is None:
                to_save[entry.name] = entry
                result = _build_outcome(entry, ImportVerdict.UPDATED if here is not None else ImportVerdict.IMPORTED)
            # Notes describe the stored manifest if the files are equal, or else the incoming one.
            says = (there.summaries[entry.name] if digest == here else entry.skill).manifest
            notes = (*_list_notable_diagnostics(entry), *lifecycle.explain_missing_packages(says, self._packages))
            results.append(replace(result, notes=notes) if notes else result)
        self._save_entries(to_save, author, layer, is_trusted=is_trusted)
        # An interrupted run wrote these but did not finish their counters and switches.
        unfinished = {entry.name: entry for entry in batch if _is_unfinished_import(known.get(entry.name))}
        self._import_counters_and_disabled_states(unfinished, layer, author)
        seen = self._library.snapshot().by_name if to_save else {}
        for result in results:
            item = seen.get(result.name) if result.name in to_save else None
            said = _describe_override(item, layer) if item is not None else ""
            yield replace(result, notes=(*result.notes, said)) if said else result

    def record_installed_as_imported(self, found: Sequence[IncomingSkill], layer: str) -> None:
        """Record skills that another tool installed here as imported from where they were found."""
        store = self._library.get_layer(layer).store
        entries = {entry.name: replace(entry, tree=store.read_tree(entry.name) or {}) for entry in found}
        if entries:
            self._record_origins(entries, layer)

    def list_formats_for_import(self, layer: str) -> Sequence[SkillFormat]:
        """Return every format; unchanged skills already in the layer are not parsed again."""
        # Imports every format, which only importing needs.
        from habitus.skills.formats import detect

        store = self._library.get_layer(layer).store
        store.read_contents()
        rows = {row.name: row for row in store.list_rows() if row.summary is not None and row.folder == row.name}

        def known(name: str, tree: Tree) -> Sequence[Diagnostic] | None:
            row = rows.get(name)
            return row.diagnostics if row is not None and row.tree_hash == compute_tree_hash(tree) else None

        # In the folders of other agents, diagnostics say more than parsing does, so nothing is skipped there.
        return detect.list_formats_reusing_known_diagnostics(known) if layer == USER_LAYER else detect.FORMATS

    def _map_name_and_hash_to_proposal(self, layer: str, names: Sequence[str]) -> dict[tuple[str, str], Proposal]:
        """Return the proposals for these names, decided or not, by name and hash of the files."""
        found = [
            p
            for p in self._review.list_proposals_by_state(None, with_contents=False, names=names)
            if p.change.layer == layer
        ]
        return {(proposal.change.name, compute_tree_hash(proposal.change.tree)): proposal for proposal in found}

    def _resolve_name_conflict(
        self,
        entry: IncomingSkill,
        layer: str,
        resolve_conflict: ConflictResolver,
        known: ImportOrigin,
        here: Container[str],
    ) -> tuple[IncomingSkill, str]:
        """Resolve a name conflict with another origin: return the entry to import, or the reason why it is held."""
        origin, its_own = _describe_origins(known, entry)
        match resolve_conflict(entry.name, origin, its_own):
            case NameConflictResolution.REPLACE:
                return entry, ""
            case NameConflictResolution.HOLD:
                reason = f"'{entry.name}' here is from {origin}, and this one from {its_own} would take its place"
                return entry, f"{reason}; {_CONFLICT_HINT}"
            case NameConflictResolution.KEEP_BOTH:
                mine = {
                    name
                    for name, one in read_import_origins(self._engine, layer).items()
                    if not _is_from_other_location(one, entry)
                }
                name = make_unique_name(entry.name, lambda taken: taken in here and taken not in mine)
                return replace(entry, name=name, tree=trees.rename_skill_in_main_file(entry.tree, name)), ""

    def _close_conflict_proposal(
        self, proposals: dict[tuple[str, str], Proposal], entry: IncomingSkill, author: Author, *, is_decided: bool
    ) -> None:
        """Close a proposal that was pending, or rejected, only because of its name, once that is decided."""
        key = (entry.name, compute_tree_hash(entry.tree))
        earlier = proposals.get(key)
        if earlier is None or len(earlier.reasons) != 1 or not earlier.reasons[0].endswith(_CONFLICT_HINT):
            return
        if earlier.state is ProposalState.PENDING:
            self._review.withdraw(earlier.id, author)
            del proposals[key]
        elif is_decided and earlier.state is ProposalState.REJECTED:
            del proposals[key]

    def _hold_or_refuse_entry_if_needed(
        self, entry: IncomingSkill, layer: str, author: Author, earlier: Proposal | None, findings: Sequence[str]
    ) -> ImportOutcome | None:
        """Hold an entry with findings as a proposal; refuse one that was rejected before; None if nothing holds
        it.
        """
        if earlier is not None and earlier.state is ProposalState.REJECTED:
            reason = f"rejected by {earlier.decided_by}: {earlier.decision or 'no reason given'}"
            return _build_outcome(entry, ImportVerdict.REFUSED, reason)
        if earlier is None or earlier.state is not ProposalState.PENDING:
            if not findings:
                return None
            change = SkillChange(
                action=ProposalAction.WRITE,
                name=entry.name,
                layer=layer,
                tree=entry.tree,
                details=_build_proposal_details(entry),
            )
            said = replace(author, reason=f"import of {entry.origin}")
            earlier = self._review.propose(change, said, tuple(findings))
        return _build_outcome(
            entry, ImportVerdict.HELD, f"{earlier.reasons[0]}; see 'habitus review show {earlier.id}'"
        )

    def _save_entries(
        self, entries: Mapping[str, IncomingSkill], author: Author, layer: str, *, is_trusted: bool
    ) -> None:
        """Record the origins, then write the files."""
        if not entries:
            return
        # In this order, a crash in between leaves skills that count as imported, never as the user's own.
        self._record_origins(entries, layer)
        wanted = {name: entry.tree for name, entry in entries.items()}
        facts = {name: _build_backend_facts(entry) for name, entry in entries.items()}
        self._library.write_trees(layer, wanted, replace(author, reason=author.reason or "imported"), facts=facts)
        if is_trusted:
            self._trust.trust(IMPORTED_ROOT, wanted, author.name)
        self._import_counters_and_disabled_states(entries, layer, author)

    def _record_origins(self, entries: Mapping[str, IncomingSkill], layer: str) -> None:
        """Record where the skills come from; whether their counters were already imported is carried over."""
        known = read_import_origins(self._engine, layer, entries)
        digests = {name: compute_tree_hash(entry.tree) for name, entry in entries.items()}
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
                "place": entry.location,
            }
            for name, entry in entries.items()
        ]
        with sql.write_transaction(self._engine) as conn:
            gone = imports.delete().where(imports.c.layer == layer, imports.c.name.in_(list(entries)))
            conn.execute(gone)
            conn.execute(imports.insert(), values)
            mark_imports_changed(conn)

    def _import_counters_and_disabled_states(
        self, entries: Mapping[str, IncomingSkill], layer: str, author: Author
    ) -> None:
        """Take over counters and disabled states of new skills, which must exist by now."""
        store, known = self._library.get_layer(layer).store, read_import_origins(self._engine, layer, entries)
        new = {name: entry for name, entry in entries.items() if _is_unfinished_import(known.get(name))}
        self._library.usage.store_imported_counts(store.key, {name: entry.counters for name, entry in new.items()})
        for name, entry in new.items():
            if not entry.enabled:
                store.set_enabled(name, False, replace(author, reason="as in its source"))
        if new:
            with sql.write_transaction(self._engine) as conn:
                mine = (imports.c.layer == layer, imports.c.name.in_(list(new)))
                conn.execute(imports.update().where(*mine).values(is_finished=True))

    def _record_approved_import(self, proposal: Proposal) -> None:
        """Record an approved skill as imported."""
        change = proposal.change
        if "origin" not in change.details:
            return
        entry = _rebuild_entry_from_change(change)
        self._record_origins({change.name: entry}, change.layer)
        self._import_counters_and_disabled_states({change.name: entry}, change.layer, proposal.author)


def _is_unfinished_import(known: ImportOrigin | None) -> bool:
    return known is not None and not known.is_finished


def _describe_override(item: ListedSkill, layer: str) -> str:
    """Describe how an imported skill affects those of its name in other layers; empty if it doesn't."""
    if layer in item.awaiting_trust:
        trust = f"habitus review trust {item.name}@{layer}"
        return f"'{item.name}@{item.layer}' has this name and stays in its place until you trust this one: {trust}"
    others = [f"'{item.name}@{other}'" for other in item.hidden if item.layer == layer]
    return f"It takes the place of {' and '.join(others)}." if others else ""


def _list_notable_diagnostics(entry: IncomingSkill) -> tuple[str, ...]:
    """Return the oddities worth showing; small deviations from the standard are left out."""
    return tuple(str(found) for found in entry.diagnostics if found.severity is not Severity.NOTE)


def _build_backend_facts(entry: IncomingSkill) -> BackendSkillFacts:
    return BackendSkillFacts(version=entry.version, created_on=entry.created_on, modified_on=entry.modified_on)


def _build_proposal_details(entry: IncomingSkill) -> dict[str, Any]:
    """Return the details that make an approved import equal to a direct one."""
    counted = {
        stage.value: [counters.recommended, counters.used, counters.succeeded, counters.failed]
        for stage, counters in entry.counters.items()
    }
    told = {"origin": entry.origin, "place": entry.location, "format": entry.format, "enabled": entry.enabled}
    return {**told, "counters": counted}


def _rebuild_entry_from_change(change: SkillChange) -> IncomingSkill:
    counters = {
        Stage(stage): UsageCounts(recommended=numbers[0], used=numbers[1], succeeded=numbers[2], failed=numbers[3])
        for stage, numbers in change.details.get("counters", {}).items()
    }
    return IncomingSkill(
        name=change.name,
        tree=change.tree,
        origin=change.details["origin"],
        location=change.details.get("place", ""),
        format=change.details.get("format", "skill"),
        counters=counters,
        enabled=change.details.get("enabled", True),
    )


def _decide_without_scan(
    entry: IncomingSkill, digest: str, here: str | None, known: ImportOrigin | None, *, overwrite: bool
) -> ImportOutcome | None:
    """Return the result if it needs no scan and no write, or None if the entry is to be imported."""
    if here == digest:
        return _build_outcome(entry, ImportVerdict.UNCHANGED)
    if here is None or overwrite:
        return None
    if known is not None and known.source_hash == digest:
        return _build_outcome(entry, ImportVerdict.UNCHANGED, "edited here since; your version stays")
    # Unedited since the last import: the hash written then is the hash here now.
    if known is not None and known.written_hash == here:
        return None
    what = "was edited here" if known is not None else "is there already and differs"
    reason = f"'{entry.name}' {what}; --overwrite uses theirs and keeps yours in its history"
    return _build_outcome(entry, ImportVerdict.REFUSED, reason)


def _would_replace_skill_of_other_origin(
    entry: IncomingSkill, digest: str, here: str | None, known: ImportOrigin | None
) -> bool:
    """Whether an unedited skill of another origin, with other files, is here."""
    if known is None or known.written_hash != here or here == digest:
        return False
    return _is_from_other_location(known, entry)


def _is_from_other_location(known: ImportOrigin, entry: IncomingSkill) -> bool:
    """Whether the entry comes from another location; old imports without one are compared by origin."""
    if known.location:
        return known.location != entry.location
    return known.origin != entry.origin or "/" not in entry.origin


def _describe_origins(known: ImportOrigin, entry: IncomingSkill) -> tuple[str, str]:
    """Describe both origins, with their locations if the descriptions are equal."""
    if known.origin != entry.origin:
        return known.origin, entry.origin
    return f"{known.origin} ({known.location or 'imported earlier'})", f"{entry.origin} ({entry.location})"


def _hash_current_exports(store: SkillStore, entries: Sequence[IncomingSkill]) -> dict[tuple[str, str], str]:
    """Return the hash of each skill here as its format would export it, by (format, name)."""
    # Imports every format, which only importing needs.
    from habitus.skills.formats import detect

    # An entry equal to our own export brings nothing new, even if the format drops some fields.
    found: dict[tuple[str, str], str] = {}
    for format in {entry.format for entry in entries} - {"skill"}:
        names = [entry.name for entry in entries if entry.format == format]
        read = [(store.load(name, check_disk=False), store.read_tree(name, check_disk=False)) for name in names]
        held = [OutgoingSkill(skill=skill, tree=tree) for skill, tree in read if skill is not None and tree is not None]
        found |= {
            (format, name): sha
            for name, sha in detect.hash_reimported_exports(detect.get_format_by_name(format), held).items()
        }
    return found


def _get_loadable_hash(there: LayerContents, name: str) -> str | None:
    """Return the hash of a loadable skill's files, or None."""
    return there.hashes[name] if name in there.summaries else None


def _build_outcome(entry: IncomingSkill, verdict: ImportVerdict, reason: str = "") -> ImportOutcome:
    return ImportOutcome(name=entry.name, verdict=verdict, reason=reason, origin=entry.origin)
