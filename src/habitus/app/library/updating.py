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
from pathlib import Path

from habitus.app.home import Home
from habitus.app.library import locking
from habitus.app.library.content import near_duplicates
from habitus.app.library.locking import Tracked
from habitus.app.library.undoing import of_change, of_lessons
from habitus.app.tasks.storing import add_new_tasks
from habitus.errors import Invalid, NotFound
from habitus.files import Tree, content_of, disk_errors, without_examination
from habitus.memory.model import MEDIUM, Draft, Evidence, Kind, LessonBody, Producer, Scope, Status
from habitus.plain_data import INLINE
from habitus.settings import Settings
from habitus.skills import names, trees
from habitus.skills.choosing.finding import Finder
from habitus.skills.edits import diff_trees
from habitus.skills.formats import detect
from habitus.skills.formats.base import Entry, Incoming, NotTaken, Outgoing, PlaybookLesson
from habitus.skills.layers.layer import USER
from habitus.skills.layers.listing import Listed
from habitus.skills.library import Library
from habitus.skills.model import Counters, Diagnostic, Severity, Stage, State
from habitus.skills.sources import fetching
from habitus.skills.sources.discovery import Reach
from habitus.skills.sources.importing import Choose, Namesake, Result, Verdict, hold
from habitus.skills.sources.lock import project_file

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
    # Asked before a skill replaces one from another origin.
    choose: Choose = hold
    # Which addresses a download may reach.
    reach: Reach = field(default_factory=Reach)
    progress: Progress = lambda count: None


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenIn:
    """The result for each skill and lesson, and the command that undoes all of it."""

    results: tuple[Result, ...]
    undo: tuple[str, ...] = ()

    @property
    def new_skills(self) -> tuple[str, ...]:
        """Return the names of the skills that were imported or updated."""
        return tuple(result.name for result in self.results if _is_new(result) and result.kind == "skill")

    @property
    def namesakes(self) -> int:
        """Return how many were skipped because another skill of that name came first."""
        return sum(result.is_namesake for result in self.results)

    @property
    def is_failed(self) -> bool:
        """Whether there was something to import and all of it was refused."""
        return bool(self.results) and all(result.verdict is Verdict.REFUSED for result in self.results)


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillDiff:
    name: str
    diff: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Updated:
    """The updates found and their results, skills missing at the source, and what could not be checked."""

    changes: tuple[SkillDiff, ...]
    taken: TakenIn = field(metadata=INLINE)
    gone: tuple[str, ...]
    notes: tuple[str, ...] = ()
    # Only checked; nothing was imported.
    is_check: bool = False

    @property
    def undo(self) -> tuple[str, ...]:
        """Return the command that undoes the import."""
        return self.taken.undo

    @property
    def is_failed(self) -> bool:
        """Whether a check found changes, or nothing could be imported."""
        return bool(self.changes) if self.is_check else self.taken.is_failed

    def with_more(self, other: Updated) -> Updated:
        """Return this result combined with that of another source."""
        # Both start with the word "undo"; the targets after it are joined.
        undo = (*self.taken.undo[1:], *other.taken.undo[1:])
        taken = TakenIn(results=(*self.taken.results, *other.taken.results), undo=("undo", *undo) if undo else ())
        return replace(self, changes=(*self.changes, *other.changes), taken=taken, gone=(*self.gone, *other.gone))


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """The files written, the skills that the format can't hold, and those it holds only in part."""

    count: int
    format: str
    written: tuple[Path, ...]
    left_out: tuple[NotTaken, ...]
    lost: tuple[NotTaken, ...]


def take_in(home: Home, source: Path | str, only: Sequence[str], layer: str, options: ImportOptions) -> TakenIn:
    """Import skills of any known layout, or only those named."""
    found = detect.read(source, home.importer.formats(layer), place=options.place, keep_both=options.keep_both)
    entries = _choose_entries(found, only)
    return _run(home, entries, layer, options)


def place_of_upload(path: Path) -> str:
    """Return an origin for an uploaded file."""
    # By content, not by name: anyone could send another file with the same name.
    with disk_errors(path), path.open("rb") as file:
        return f"upload {hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"


def add(home: Home, source: str, only: Sequence[str], options: ImportOptions) -> TakenIn:
    """Fetch and import skills, and lock their origin and commit."""
    with _fetch_source(home.settings, source, options.reach) as fetched:
        entries = _found_in(fetched, only, options)
        taken = _run(home, entries, USER, options)
        locking.record_own(home, taken.results, _skills(entries), fetched)
    return taken


def add_to_project(home: Home, source: str, only: Sequence[str], options: ImportOptions) -> TakenIn:
    """Fetch skills into the project's `.agents/skills`, and lock them in the file of `npx skills`."""
    place = locking.place_in_project(home.settings)
    file = project_file(place)
    # Raises for a damaged lockfile before anything is fetched.
    file.read()
    with _fetch_source(home.settings, source, options.reach) as fetched, disk_errors(place / locking.SHARED):
        entries = _found_in(fetched, only, options)
        (place / locking.SHARED).mkdir(parents=True, exist_ok=True)
        there = home.seen_from(place)
        layer = next(one.name for one in there.skills.layers if one.trust_root == str(place / locking.SHARED))
        taken = _run(there, entries, layer, options)
        locking.record_in_project(there.skills, file, layer, taken.results, _skills(entries), fetched)
    return taken


def _found_in(fetched: fetching.Fetched, only: Sequence[str], options: ImportOptions) -> list[Entry]:
    found = detect.read(fetched.path, origin=fetched.origin, place=fetched.place, keep_both=options.keep_both)
    return list(_choose_entries(found, only))


def _skills(entries: Iterable[Entry]) -> list[Incoming]:
    return [entry for entry in entries if isinstance(entry, Incoming)]


def add_from_web(home: Home, source: str, *, overwrite: bool = False) -> TakenIn:
    """Add skills for a remote caller, or for a worker on its behalf: from public addresses only."""
    return add(home, source, (), ImportOptions(overwrite=overwrite, reach=Reach(is_public_only=True)))


def update(home: Home, wanted: Sequence[str], options: ImportOptions, *, is_check: bool = False) -> Updated:
    """Fetch added skills again and import what changed; `is_check` only reports it."""
    tracked, notes = locking.tracked_skills(home)
    known = {one.name for one in tracked} | {f"{one.name}@{one.layer}" for one in tracked}
    for name in wanted:
        if name not in known:
            names = ", ".join(dict.fromkeys(one.name for one in tracked))
            raise NotFound(f"'{name}' was not added from anywhere.", hint=f"Added: {names or 'none'}.")
    groups: dict[Hashable, list[Tracked]] = {}
    for one in tracked:
        if wanted and one.name not in wanted and f"{one.name}@{one.layer}" not in wanted:
            continue
        if not wanted and _is_untrusted(home.skills, one):
            notes.append(f"{one.name}@{one.layer} is not trusted; name it to update it from {one.address}.")
            continue
        groups.setdefault(one.source, []).append(one)
    done = Updated(changes=(), taken=TakenIn(results=()), gone=(), notes=tuple(notes), is_check=is_check)
    for group in groups.values():
        done = done.with_more(_update_from_one_source(home, group, options, is_check=is_check))
    return done


def _is_untrusted(skills: Library, one: Tracked) -> bool:
    """Whether the skill is in an untrusted project."""
    # Addresses in an untrusted project's lockfile must not be fetched without being asked for.
    return one.file is not None and skills.find(f"{one.name}@{one.layer}").state is State.UNTRUSTED


def _update_from_one_source(home: Home, group: Sequence[Tracked], options: ImportOptions, *, is_check: bool) -> Updated:
    mine, first = {one.name: one for one in group}, group[0]
    with _fetch_source(home.settings, first.address, options.reach, first.branch) as fetched:
        found = detect.read(fetched.path, origin=fetched.origin, place=fetched.place, keep_both=True)
        entries = [entry for entry in found if isinstance(entry, Incoming) and entry.name in mine]
        moved = [entry for entry in entries if locking.has_moved(mine[entry.name], entry, fetched)]
        diffs = ((entry.name, _diff(home.skills, entry, first.layer)) for entry in moved)
        changes = tuple(SkillDiff(name=name, diff=diff) for name, diff in diffs if diff)
        gone = tuple(sorted(mine.keys() - {entry.name for entry in entries}))
        if is_check:
            return Updated(changes=changes, taken=TakenIn(results=()), gone=gone)
        if first.file:
            as_installed = [entry for entry in moved if locking.is_as_installed(home.skills, mine[entry.name])]
            home.importer.adopt(as_installed, first.layer)
        # `npx skills` omits some files when it installs, so an unchanged source would still look different here.
        wanted = entries if first.file is None or options.overwrite else moved
        taken = _run(home, wanted, first.layer, options)
        same = [entry for entry in entries if entry not in wanted]
        left = tuple(Result(name=one.name, verdict=Verdict.UNCHANGED, origin=one.origin) for one in same)
        taken = replace(taken, results=(*taken.results, *left))
        locking.record(home, group, taken.results, entries, fetched)
    return Updated(changes=changes, taken=taken, gone=gone)


def export(
    skills: Library,
    name: str | None,
    format_name: str,
    to: Path,
    *,
    overwrite: bool,
    tasks: Callable[[str], Tree] = lambda name: {},
    progress: Progress = lambda count: None,
) -> Exported:
    """Write one skill, or all of the user's, in another system's layout; `tasks` returns the exam files to include."""
    form = detect.format_named(format_name)
    library = skills
    chosen = [library.find(name)] if name else [item for item in library.listing() if _is_own(item)]
    if not chosen or chosen[0].summary is None:
        raise Invalid("There is nothing to export.", hint="See 'habitus skills list'.")
    counters = library.all_counters(with_told=True)
    outgoing = []
    for item in chosen:
        one = _outgoing(skills, item, counters.get((item.layer, item.name), {}))
        outgoing.append(replace(one, tree={**without_examination(one.tree), **tasks(item.name)}))
        progress(len(outgoing))
    written = form.write(outgoing, to, overwrite=overwrite)
    return Exported(
        count=len(chosen) - len(written.left_out),
        format=form.name,
        written=written.paths,
        left_out=written.left_out,
        lost=tuple(detect.lost(form, outgoing, to)),
    )


def likenesses(skills: Library, finder: Finder, taken: TakenIn) -> list[tuple[str, str]]:
    """Return (name, similar skill) for newly imported skills; empty for large imports."""
    # Each comparison is a search, which adds up to minutes for a large import.
    new = taken.new_skills if len(taken.new_skills) <= 50 else ()
    return [(name, found) for name in new for found in near_duplicates(finder, name, skills.tree(name))]


def _is_own(item: Listed) -> bool:
    """Whether a skill is exported by default: loadable, trusted and not bundled."""
    return item.summary is not None and item.layer != "bundled" and item.state is not State.UNTRUSTED


def _outgoing(skills: Library, item: Listed, counters: Mapping[Stage, Counters]) -> Outgoing:
    store = skills.layer(item.layer).store
    skill, tree = store.load(item.name, look=False), store.tree(item.name, look=False)
    if skill is None or tree is None:
        raise Invalid(f"'{item.name}' can't be loaded.", hint="See 'habitus skills lint'.")
    return Outgoing(skill=skill, tree=_whole(tree, store.directory(item.name)), counters=counters)


def _whole(tree: Tree, folder: Path | None) -> Tree:
    """Return the tree including files too large for the database, as far as they can be read."""
    found = dict(tree)
    for path, file in tree.items():
        with suppress(OSError):
            found[path] = replace(file, content=content_of(path, file, folder))
    return found


def _choose_entries(entries: Iterable[Entry], only: Sequence[str]) -> Iterator[Entry]:
    """Yield the entries with these names, or all. Raises `NotFound` at the end if one is missing."""
    wanted = {names.canonical(name) for name in only}
    seen: set[str] = set()
    known: list[str] = []
    for entry in entries:
        if isinstance(entry, PlaybookLesson):
            if not wanted:
                yield entry
            continue
        known.append(entry.name)
        if not wanted or names.canonical(entry.name) in wanted:
            seen.add(names.canonical(entry.name))
            yield entry
    missing = sorted(wanted - seen)
    if missing:
        shown = ", ".join(known[:12]) + (" …" if len(known) > 12 else "")
        raise NotFound(f"There is no skill '{missing[0]}' in it.", hint=f"There are: {shown or 'none'}.")


def _without_unasked(entry: Entry) -> Entry:
    """Return the entry without files that other tools execute automatically, with a warning for each."""
    unasked = entry.run_unasked if isinstance(entry, Incoming) else ()
    if not isinstance(entry, Incoming) or not unasked:
        return entry
    what = "It was left out: other tools run it by themselves."
    notes = [Diagnostic(file=path, what=what, hint="", severity=Severity.WARNING) for path in unasked]
    tree = {path: file for path, file in entry.tree.items() if path not in unasked}
    return replace(entry, tree=tree, diagnostics=(*entry.diagnostics, *notes))


def _run(home: Home, entries: Iterable[Entry], layer: str, options: ImportOptions) -> TakenIn:
    """Import the entries, and return their results with one undo command for all of them."""
    results: list[Result] = []
    author = home.person("imported")
    tasks: dict[str, bytes] = {}

    def note_tasks(entry: Entry) -> Entry:
        file = entry.tree.get(trees.TASKS_FILE) if isinstance(entry, Incoming) else None
        if isinstance(entry, Incoming) and file is not None and file.content is not None:
            tasks[entry.name] = file.content
        return _without_unasked(entry)

    with home.memory.noting() as lessons:
        for result in home.importer.run(
            map(note_tasks, entries),
            author,
            layer=layer,
            overwrite=options.overwrite,
            is_trusted=options.is_trusted,
            choose=(lambda name, here, there: Namesake.KEEP_BOTH) if options.keep_both else options.choose,
        ):
            text = tasks.pop(result.name, None)
            if text is not None and result.verdict in (Verdict.UNCHANGED, Verdict.UPDATED):
                said = add_new_tasks(home, f"{result.name}@{layer}", text.decode("utf-8", "replace"))
                result = replace(result, notes=(*result.notes, said)) if said else result
            results.append(result)
            options.progress(len(results))
    taken = TakenIn(results=tuple(results))
    targets = (*of_change(author)[1:],) if taken.new_skills else ()
    undo = (*targets, *of_lessons(lessons))
    return replace(taken, undo=("undo", *undo) if undo else ())


def _is_new(result: Result) -> bool:
    return result.verdict in (Verdict.IMPORTED, Verdict.UPDATED)


def _fetch_source(
    settings: Settings, wanted: str, reach: Reach, branch: str = ""
) -> AbstractContextManager[fetching.Fetched]:
    host = settings.git_host or fetching.DEFAULT_HOST
    return fetching.fetch_source(wanted, cwd=settings.cwd, environ=os.environ, host=host, branch=branch, reach=reach)


def _diff(skills: Library, entry: Incoming, layer: str) -> str:
    here = skills.layer(layer).store.tree(entry.name) or {}
    return diff_trees(here, entry.tree, f"{entry.name} here", f"{entry.name} there")


_VERDICTS = {
    Status.STORED: Verdict.IMPORTED,
    Status.REINFORCED: Verdict.UPDATED,
    Status.WAITING: Verdict.HELD,
    Status.REFUSED: Verdict.REFUSED,
    Status.OFF: Verdict.REFUSED,
    Status.PAUSED: Verdict.REFUSED,
}


def land_lesson(home: Home, lesson: PlaybookLesson) -> Result:
    """Store a lesson from another system's playbook, once."""
    lesson = replace(lesson, trigger=home.redact(lesson.trigger))
    done = Result(name=_short_title(lesson.trigger), verdict=Verdict.UNCHANGED, origin=lesson.origin, kind="lesson")
    digest = _digest(lesson)
    if home.memory.knows_import(digest):
        return done
    body = LessonBody(
        trigger=lesson.trigger,
        anti_pattern=lesson.anti_pattern,
        correct_pattern=lesson.correct_pattern,
        domains=lesson.domains,
        source_challenge_hash=lesson.source_challenge_hash,
    )
    encoded = home.memory.encode(
        Draft(
            text=body.text,
            kind=Kind.LESSON,
            scope=Scope.GLOBAL,
            # Another system's confidence is a claim: it never starts above medium here.
            confidence=min(lesson.confidence, MEDIUM),
            source=lesson.source or "self-play",
            evidence=Evidence(imported=(digest,), told=_describe_origin(lesson)),
            body=body,
            produced_by=Producer.IMPORT,
            created_on=lesson.created_on,
        )
    )
    reason = "" if encoded.status is Status.STORED else encoded.reason
    return replace(done, verdict=_VERDICTS[encoded.status], reason=reason)


def _describe_origin(lesson: PlaybookLesson) -> str:
    """Return the playbook's own counts as text; they are not verified here."""
    said = f"seen {lesson.frequency} times, shown {lesson.retrievals}, helped {lesson.helpful}"
    return f"{said}, verified" if lesson.verified else said


def _short_title(trigger: str) -> str:
    plain = " ".join(trigger.split())
    return plain if len(plain) <= 60 else f"{plain[:59]}…"


def _digest(lesson: PlaybookLesson) -> str:
    """Return a hash of the lesson's content, which stays the same as its counts grow."""
    said = [lesson.trigger, lesson.anti_pattern, lesson.correct_pattern, lesson.source_challenge_hash]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
