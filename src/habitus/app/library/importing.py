"""Import skills once, or add them with a lock for later updates; and export them.

Lessons from another system's playbook are imported too, each only once; its own counts are kept as hearsay.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from habitus.app.home import Home
from habitus.app.library import tracked_skills
from habitus.app.library.content import describe_near_duplicates
from habitus.app.library.undoing import build_change_undo_command, build_lesson_undo_targets
from habitus.app.tasks.storing import add_new_tasks_from_text, rename_near_copies_in_tasks_file
from habitus.errors import Invalid, NotFound
from habitus.files import Tree, build_tree_file, drop_eval_files, read_tree_file, translate_disk_errors
from habitus.memory.cortex import Cortex
from habitus.memory.model import (
    MEDIUM_CONFIDENCE,
    LessonDraft,
    LessonDraftOutcome,
    LessonKind,
    LessonProducer,
    LessonProvenance,
    LessonScope,
    SelfPlayLessonBody,
)
from habitus.plain_data import INLINE
from habitus.skills import names, trees
from habitus.skills.choosing.skill_finder import SkillFinder
from habitus.skills.edits import diff_trees
from habitus.skills.formats import detect
from habitus.skills.formats.base import ImportEntry, IncomingSkill, OutgoingSkill, PlaybookLesson, SkippedEntry
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library
from habitus.skills.model import Author, Diagnostic, Severity, SkillState, Stage
from habitus.skills.review import ReviewQueue
from habitus.skills.sources import fetching
from habitus.skills.sources.discovery import DownloadPolicy
from habitus.skills.sources.importing import (
    ConflictResolver,
    ImportOutcome,
    ImportVerdict,
    NameConflictResolution,
    SkillImporter,
    always_hold_name_conflict,
)
from habitus.skills.sources.lockfiles import get_project_npx_lockfile
from habitus.text import shorten_to_line
from habitus.use_counts import UsageCounts

# Called with the number done so far.
Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """How skills are imported; `is_trusted` means that a person has read them."""

    overwrite: bool = False
    is_trusted: bool = False
    # The origin, if the path doesn't tell.
    place: str = ""
    # Import all skills of the same name instead of the first.
    keep_both: bool = False
    # Leave out skills that need review, instead of holding them.
    skip_held: bool = False
    # Asked before a skill replaces one from another origin.
    choose: ConflictResolver = always_hold_name_conflict
    # Which addresses a download may reach.
    reach: DownloadPolicy = field(default_factory=DownloadPolicy)
    progress: Progress = lambda count: None
    # Shared by the parts of a job, so that one undo takes all of them back.
    change_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportResult:
    """The result for each skill and lesson, and the command that undoes all of it."""

    results: tuple[ImportOutcome, ...]
    undo: tuple[str, ...] = ()

    @property
    def imported_skill_names(self) -> tuple[str, ...]:
        """Return the names of the skills that were imported or updated."""
        return tuple(result.name for result in self.results if _is_newly_saved(result) and result.kind == "skill")

    @property
    def name_conflict_count(self) -> int:
        """Return how many were skipped because another skill of that name came first."""
        return sum(result.is_name_conflict for result in self.results)

    @property
    def is_failed(self) -> bool:
        """Whether there was something to import and all of it was refused."""
        return bool(self.results) and all(result.verdict is ImportVerdict.REFUSED for result in self.results)


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillDiff:
    name: str
    diff: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateResult:
    """The updates found and their results, skills missing at the source, and what could not be checked."""

    changes: tuple[SkillDiff, ...]
    imported: ImportResult = field(metadata=INLINE)
    missing: tuple[str, ...]
    notes: tuple[str, ...] = ()
    # Only checked; nothing was imported.
    is_check: bool = False

    @property
    def undo(self) -> tuple[str, ...]:
        """Return the command that undoes the import."""
        return self.imported.undo

    @property
    def is_failed(self) -> bool:
        """Whether a check found changes, or nothing could be imported."""
        return bool(self.changes) if self.is_check else self.imported.is_failed

    def merge_with(self, other: UpdateResult) -> UpdateResult:
        """Return this result combined with that of another source."""
        # Both start with the word "undo"; the targets after it are joined.
        undo = (*self.imported.undo[1:], *other.imported.undo[1:])
        taken = ImportResult(
            results=(*self.imported.results, *other.imported.results), undo=("undo", *undo) if undo else ()
        )
        return replace(
            self, changes=(*self.changes, *other.changes), imported=taken, missing=(*self.missing, *other.missing)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportResult:
    """The files written, the skills that the format can't hold, and those it holds only in part."""

    count: int
    format: str
    written: tuple[Path, ...]
    left_out: tuple[SkippedEntry, ...]
    lost: tuple[SkippedEntry, ...]
    lessons: int = 0  # lessons in its playbook


def import_skills(
    home: Home, source: Path | str, only: Sequence[str], layer: str, options: ImportOptions
) -> ImportResult:
    """Import skills of any known layout, or only those named."""
    formats = open_importer(home).list_formats_for_import(layer)
    found = detect.read_entries(source, formats, location=options.place, keep_both=options.keep_both)
    entries = _select_entries(found, only)
    return _import_entries(home, entries, layer, options)


def build_upload_origin(path: Path) -> str:
    """Return an origin for an uploaded file."""
    # By content, not by name: anyone could send another file with the same name.
    with translate_disk_errors(path), path.open("rb") as file:
        return f"upload {hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"


def fetch_and_import_skills(home: Home, source: str, only: Sequence[str], options: ImportOptions) -> ImportResult:
    """Fetch and import skills, and lock their origin and commit."""
    with _fetch_source(home, source, options.reach) as fetched:
        entries = _read_fetched_entries(fetched, only, options)
        taken = _import_entries(home, entries, USER_LAYER, options)
        tracked_skills.record_in_home_lockfile(home, taken.results, _keep_only_incoming_skills(entries), fetched)
    return taken


def fetch_skills_into_project(home: Home, source: str, only: Sequence[str], options: ImportOptions) -> ImportResult:
    """Fetch skills into the project's `.agents/skills`, and lock them in the file of `npx skills`."""
    place = tracked_skills.find_added_skills_folder(home.settings)
    file = get_project_npx_lockfile(place)
    # Raises for a damaged lockfile before anything is fetched.
    file.read_entries()
    with (
        _fetch_source(home, source, options.reach) as fetched,
        translate_disk_errors(place / tracked_skills.SHARED_SKILLS_DIR),
    ):
        entries = _read_fetched_entries(fetched, only, options)
        folder = place / tracked_skills.SHARED_SKILLS_DIR
        folder.mkdir(parents=True, exist_ok=True)
        there = home.with_cwd(place)
        layer = next(one.name for one in there.skills.layers if one.trust_root == str(folder))
        taken = _import_entries(there, entries, layer, options)
        readable = _keep_only_incoming_skills(entries)
        tracked_skills.record_in_project_lockfile(there.skills, file, layer, taken.results, readable, fetched)
    return taken


def _read_fetched_entries(
    fetched: fetching.FetchedSource, only: Sequence[str], options: ImportOptions
) -> list[ImportEntry]:
    found = detect.read_entries(
        fetched.path, origin=fetched.origin, location=fetched.location, keep_both=options.keep_both
    )
    return list(_select_entries(found, only))


def _keep_only_incoming_skills(entries: Iterable[ImportEntry]) -> list[IncomingSkill]:
    return [entry for entry in entries if isinstance(entry, IncomingSkill)]


def import_for_remote_caller(home: Home, source: str, *, overwrite: bool = False) -> ImportResult:
    """Add skills for a remote caller, or for a worker on its behalf: from public addresses only."""
    options = ImportOptions(overwrite=overwrite, reach=DownloadPolicy(is_public_only=True))
    return fetch_and_import_skills(home, source, (), options)


def update_skills_from_their_sources(
    home: Home, selected: Sequence[str], options: ImportOptions, *, is_check: bool = False
) -> UpdateResult:
    """Fetch added skills again and import what changed; `is_check` only reports it."""
    tracked, notes = tracked_skills.list_updatable_tracked_skills(home)
    known = {one.name for one in tracked} | {f"{one.name}@{one.layer}" for one in tracked}
    for name in selected:
        if name not in known:
            names = ", ".join(dict.fromkeys(one.name for one in tracked))
            raise NotFound(f"'{name}' was not added from anywhere.", hint=f"Added: {names or 'none'}.")
    groups: dict[Hashable, list[tracked_skills.TrackedSkill]] = {}
    for one in tracked:
        if selected and one.name not in selected and f"{one.name}@{one.layer}" not in selected:
            continue
        if not selected and _is_in_untrusted_project(home.skills, one):
            notes.append(f"{one.name}@{one.layer} is not trusted; name it to update it from {one.address}.")
            continue
        groups.setdefault(one.fetch_group_key, []).append(one)
    done = UpdateResult(
        changes=(), imported=ImportResult(results=()), missing=(), notes=tuple(notes), is_check=is_check
    )
    for group in groups.values():
        done = done.merge_with(_update_from_source(home, group, options, is_check=is_check))
    return done


def _is_in_untrusted_project(skills: Library, one: tracked_skills.TrackedSkill) -> bool:
    """Whether the skill is in an untrusted project."""
    # Addresses in an untrusted project's lockfile must not be fetched without being asked for.
    return one.file is not None and skills.find(f"{one.name}@{one.layer}").state is SkillState.UNTRUSTED


def _update_from_source(
    home: Home, group: Sequence[tracked_skills.TrackedSkill], options: ImportOptions, *, is_check: bool
) -> UpdateResult:
    mine, first = {one.name: one for one in group}, group[0]
    with _fetch_source(home, first.address, options.reach, first.branch) as fetched:
        found = detect.read_entries(fetched.path, origin=fetched.origin, location=fetched.location, keep_both=True)
        entries = [entry for entry in found if isinstance(entry, IncomingSkill) and entry.name in mine]
        moved = [entry for entry in entries if tracked_skills.has_changed_upstream(mine[entry.name], entry, fetched)]
        diffs = ((entry.name, _diff_updated_skill(home.skills, entry, first.layer)) for entry in moved)
        changes = tuple(SkillDiff(name=name, diff=diff) for name, diff in diffs if diff)
        gone = tuple(sorted(mine.keys() - {entry.name for entry in entries}))
        if is_check:
            return UpdateResult(changes=changes, imported=ImportResult(results=()), missing=gone)
        if first.file:
            as_installed = [entry for entry in moved if tracked_skills.is_unmodified(home.skills, mine[entry.name])]
            open_importer(home).record_installed_as_imported(as_installed, first.layer)
        # `npx skills` omits some files when it installs, so an unchanged source would still look different here.
        wanted = entries if first.file is None or options.overwrite else moved
        taken = _import_entries(home, wanted, first.layer, options)
        same = [entry for entry in entries if entry not in wanted]
        left = tuple(ImportOutcome(name=one.name, verdict=ImportVerdict.UNCHANGED, origin=one.origin) for one in same)
        taken = replace(taken, results=(*taken.results, *left))
        tracked_skills.update_lockfile_of_tracked_skills(home, group, taken.results, entries, fetched)
    return UpdateResult(changes=changes, imported=taken, missing=gone)


def export_skills(
    skills: Library,
    name: str | None,
    format_name: str,
    to: Path,
    *,
    overwrite: bool,
    lessons: Sequence[PlaybookLesson] = (),
    tasks: Callable[[str], Tree] = lambda name: {},
    progress: Progress = lambda count: None,
) -> ExportResult:
    """Write one skill, or all of the user's, in another system's layout; `tasks` returns the exam files to include."""
    form = detect.get_format_by_name(format_name)
    chosen = [skills.find(name)] if name else [item for item in skills.list_skills() if _is_exported_by_default(item)]
    if not chosen or chosen[0].summary is None:
        raise Invalid("There is nothing to export.", hint="See 'habitus skills list'.")
    counters = skills.read_all_counters(with_imported=True)
    outgoing = []
    for item in chosen:
        one = _build_outgoing_skill(skills, item, counters.get((item.layer, item.name), {}))
        outgoing.append(replace(one, tree={**drop_eval_files(one.tree), **tasks(item.name)}))
        progress(len(outgoing))
    written = form.write_skills(outgoing, to, lessons=lessons, overwrite=overwrite)
    return ExportResult(
        count=len(chosen) - len(written.left_out),
        format=form.name,
        written=written.paths,
        left_out=written.left_out,
        lessons=written.lessons,
        lost=tuple(detect.list_skills_losing_fields(form, outgoing, to)),
    )


def list_near_duplicates(skills: Library, finder: SkillFinder, imported: ImportResult) -> list[tuple[str, str]]:
    """Return (name, similar skill) for newly imported skills; empty for large imports."""
    # Each comparison is a search, which adds up to minutes for a large import.
    new = imported.imported_skill_names if len(imported.imported_skill_names) <= 50 else ()
    return [(name, found) for name in new for found in describe_near_duplicates(finder, name, skills.read_tree(name))]


def _is_exported_by_default(item: ListedSkill) -> bool:
    """Whether a skill is exported by default: loadable, trusted and not bundled."""
    return item.summary is not None and item.layer != "bundled" and item.state is not SkillState.UNTRUSTED


def _build_outgoing_skill(skills: Library, item: ListedSkill, counters: Mapping[Stage, UsageCounts]) -> OutgoingSkill:
    store = skills.get_layer(item.layer).store
    skill, tree = store.load(item.name, check_disk=False), store.read_tree(item.name, check_disk=False)
    if skill is None or tree is None:
        raise Invalid(f"'{item.name}' can't be loaded.", hint="See 'habitus skills lint'.")
    return OutgoingSkill(skill=skill, tree=_load_large_files(tree, store.find_directory(item.name)), counters=counters)


def _load_large_files(tree: Tree, folder: Path | None) -> Tree:
    """Return the tree including files too large for the database, as far as they can be read."""
    found = dict(tree)
    for path, file in tree.items():
        with suppress(OSError):
            found[path] = replace(file, content=read_tree_file(path, file, folder))
    return found


def _select_entries(entries: Iterable[ImportEntry], only: Sequence[str]) -> Iterator[ImportEntry]:
    """Yield the entries with these names, or all. Raises `NotFound` at the end if one is missing."""
    wanted = {names.canonicalize_name(name) for name in only}
    seen: set[str] = set()
    known: list[str] = []
    for entry in entries:
        if isinstance(entry, PlaybookLesson):
            if not wanted:
                yield entry
            continue
        known.append(entry.name)
        if not wanted or names.canonicalize_name(entry.name) in wanted:
            seen.add(names.canonicalize_name(entry.name))
            yield entry
    missing = sorted(wanted - seen)
    if missing:
        shown = ", ".join(known[:12]) + (" …" if len(known) > 12 else "")
        raise NotFound(f"There is no skill '{missing[0]}' in it.", hint=f"There are: {shown or 'none'}.")


def _strip_autorun_files(entry: ImportEntry) -> ImportEntry:
    """Return the entry without files that other tools execute automatically, with a warning for each."""
    unasked = entry.auto_executed_files if isinstance(entry, IncomingSkill) else ()
    if not isinstance(entry, IncomingSkill) or not unasked:
        return entry
    what = "Skipped: other tools run it automatically."
    notes = [Diagnostic(file=path, message=what, hint="", severity=Severity.WARNING) for path in unasked]
    tree = {path: file for path, file in entry.tree.items() if path not in unasked}
    return replace(entry, tree=tree, diagnostics=(*entry.diagnostics, *notes))


def _import_entries(home: Home, entries: Iterable[ImportEntry], layer: str, options: ImportOptions) -> ImportResult:
    """Import the entries, and return their results with one undo command for all of them."""
    results: list[ImportOutcome] = []
    author = home.build_author("imported")
    author = replace(author, change_id=options.change_id or author.change_id)
    tasks: dict[str, bytes] = {}
    claims: dict[str, str] = {}

    def note_tasks(entry: ImportEntry) -> ImportEntry:
        entry = _strip_autorun_files(entry)
        if isinstance(entry, IncomingSkill) and trees.CARD_FILE in entry.tree:
            # Loads the statistics, which only cards need.
            from habitus.app.library.exam_cards import check_or_drop_incoming_exam_card

            entry, claims[entry.name] = check_or_drop_incoming_exam_card(entry)
        file = entry.tree.get(trees.TASKS_FILE) if isinstance(entry, IncomingSkill) else None
        if isinstance(entry, IncomingSkill) and file is not None and file.content is not None:
            tasks[entry.name] = file.content
            named = build_tree_file(rename_near_copies_in_tasks_file(file.content))
            entry = replace(entry, tree={**entry.tree, trees.TASKS_FILE: named})
        return entry

    with home.memory.collect_changes() as lessons:
        for result in open_importer(home).import_entries(
            map(note_tasks, entries),
            author,
            layer=layer,
            overwrite=options.overwrite,
            is_trusted=options.is_trusted,
            skip_held=options.skip_held,
            resolve_conflict=(lambda name, here, there: NameConflictResolution.KEEP_BOTH)
            if options.keep_both
            else options.choose,
        ):
            if claim := claims.pop(result.name, ""):
                result = replace(result, notes=(*result.notes, claim))
            text = tasks.pop(result.name, None)
            if text is not None and result.verdict in (ImportVerdict.UNCHANGED, ImportVerdict.UPDATED):
                said = add_new_tasks_from_text(home, f"{result.name}@{layer}", text.decode("utf-8", "replace"))
                result = replace(result, notes=(*result.notes, said)) if said else result
            results.append(result)
            options.progress(len(results))
    taken = ImportResult(results=tuple(results))
    is_new_here = bool(taken.imported_skill_names) or _has_held_skills(home.review, author, results)
    targets = build_change_undo_command(author)[1:] if is_new_here else ()
    undo = (*targets, *build_lesson_undo_targets(lessons))
    return replace(taken, undo=("undo", *undo) if undo else ())


def _has_held_skills(review: ReviewQueue, author: Author, results: Iterable[ImportOutcome]) -> bool:
    """Whether this import itself, and not an earlier one, holds skills for review."""
    if not any(one.verdict is ImportVerdict.HELD for one in results):
        return False
    return any(one.author.change_id == author.change_id for one in review.list_proposals_by_state(with_contents=False))


def _is_newly_saved(result: ImportOutcome) -> bool:
    return result.verdict in (ImportVerdict.IMPORTED, ImportVerdict.UPDATED)


def _fetch_source(
    home: Home, source: str, reach: DownloadPolicy, branch: str = ""
) -> AbstractContextManager[fetching.FetchedSource]:
    settings, policy = home.settings, home.host.network.get_allowed_download_policy(reach)
    host = settings.git_host or fetching.DEFAULT_HOST
    return fetching.fetch_source(source, cwd=settings.cwd, environ=os.environ, host=host, branch=branch, policy=policy)


def _diff_updated_skill(skills: Library, entry: IncomingSkill, layer: str) -> str:
    here = skills.get_layer(layer).store.read_tree(entry.name) or {}
    return diff_trees(here, entry.tree, f"{entry.name} here", f"{entry.name} there")


_MAX_PLAYBOOK_LESSONS = 1000
_VERDICT_BY_STATUS = {
    LessonDraftOutcome.STORED: ImportVerdict.IMPORTED,
    LessonDraftOutcome.REINFORCED: ImportVerdict.UPDATED,
    LessonDraftOutcome.PENDING: ImportVerdict.HELD,
    LessonDraftOutcome.REFUSED: ImportVerdict.REFUSED,
    LessonDraftOutcome.OFF: ImportVerdict.REFUSED,
    LessonDraftOutcome.PAUSED: ImportVerdict.REFUSED,
}


def open_importer(home: Home) -> SkillImporter:
    """Return the importer that writes into this home's library."""
    return SkillImporter(
        home.skills,
        home.review,
        home.trust,
        home.shared,
        clock=home.clock,
        scan=home.scan_tree,
        import_lesson=partial(import_playbook_lesson, home),
    )


def import_playbook_lesson(home: Home, lesson: PlaybookLesson) -> ImportOutcome:
    """Store a lesson from another system's playbook, once."""
    lesson = replace(lesson, trigger=home.redact(lesson.trigger))
    done = ImportOutcome(
        name=shorten_to_line(lesson.trigger, 60), verdict=ImportVerdict.UNCHANGED, origin=lesson.origin, kind="lesson"
    )
    digest = _hash_lesson(lesson)
    if home.memory.has_imported(digest):
        return done
    body = SelfPlayLessonBody(
        trigger=lesson.trigger,
        anti_pattern=lesson.anti_pattern,
        correct_pattern=lesson.correct_pattern,
        domains=lesson.domains,
        source_challenge_hash=lesson.source_challenge_hash,
    )
    encoded = home.memory.encode(
        LessonDraft(
            text=body.text,
            kind=LessonKind.LESSON,
            scope=LessonScope.GLOBAL,
            # Another system's confidence is a claim: it never starts above medium here.
            confidence=min(lesson.confidence, MEDIUM_CONFIDENCE),
            source=lesson.source or "self-play",
            evidence=LessonProvenance(imported=(digest,), told=_describe_playbook_counts(lesson)),
            body=body,
            produced_by=LessonProducer.IMPORT,
            created_on=lesson.created_on,
        )
    )
    reason = "" if encoded.status is LessonDraftOutcome.STORED else encoded.reason
    return replace(done, verdict=_VERDICT_BY_STATUS[encoded.status], reason=reason)


def list_lessons_for_playbook_export(memory: Cortex) -> list[PlaybookLesson]:
    """Return the lessons of self-play that the user may see, for another system's playbook."""
    return [
        PlaybookLesson(
            origin=one.id,
            trigger=one.body.trigger,
            anti_pattern=one.body.anti_pattern,
            correct_pattern=one.body.correct_pattern,
            domains=one.body.domains,
            confidence=one.confidence,
            source=one.source,
            source_challenge_hash=one.body.source_challenge_hash,
            frequency=one.counters.frequency,
            retrievals=one.counters.retrievals,
            helpful=one.counters.helpful,
            last_retrieved=one.counters.last_retrieved,
            verified=one.verified,
            created_on=one.created_on,
        )
        for one in memory.list_lessons(limit=_MAX_PLAYBOOK_LESSONS)
        if one.body is not None
    ]


def _describe_playbook_counts(lesson: PlaybookLesson) -> str:
    """Return the playbook's own counts as text; they are not verified here."""
    said = f"seen {lesson.frequency} times, shown {lesson.retrievals}, helped {lesson.helpful}"
    return f"{said}, verified" if lesson.verified else said


def _hash_lesson(lesson: PlaybookLesson) -> str:
    """Return a hash of the lesson's content, which stays the same as its counts grow."""
    said = [lesson.trigger, lesson.anti_pattern, lesson.correct_pattern, lesson.source_challenge_hash]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
