"""Undo one change to skills and lessons, or return all of them to a timestamp."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from habitus.app.home import Home
from habitus.errors import Invalid, NotFound, Refused, UserError, no_version
from habitus.files import is_same
from habitus.memory.ledger import LessonStep as LessonStep
from habitus.memory.memory import Cortex
from habitus.memory.model import Engram
from habitus.skills import edits, trees
from habitus.skills.layers.layer import Layer
from habitus.skills.library import Library
from habitus.skills.model import Author, Switched, Version
from habitus.skills.stores.base import Changed, Written
from habitus.skills.stores.base import Step as SkillStep


@dataclass(frozen=True, kw_only=True, slots=True)
class Undone:
    """One undone change; `targets` undo it in turn, and are empty if nothing had to be done."""

    what: str
    said: str
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenBack:
    """The result of an undo in sentences, what could not be undone, and the command that reverts it."""

    said: tuple[str, ...]
    kept: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()

    @property
    def is_failed(self) -> bool:
        """Whether something could not be undone."""
        return bool(self.kept)


def of_version(address: str, version: int) -> tuple[str, ...]:
    """Return the command that undoes one version; `address` includes the layer."""
    return ("undo", f"{address}:{version}")


def of_written(done: Written) -> tuple[str, ...]:
    """Return the command that undoes a write; empty if nothing was changed."""
    return of_version(f"{done.name}@{done.layer}", done.version) if done.is_changed else ()


def of_change(author: Author) -> tuple[str, ...]:
    """Return the command that undoes everything one command of this author did."""
    return ("undo", author.change)


def of_lessons(changed: Iterable[Engram]) -> tuple[str, ...]:
    """Return the undo targets for changed lessons, last change first."""
    return tuple(f"{engram.id}:{engram.version}" for engram in reversed(list(changed)))


def undo(home: Home, targets: Sequence[str], reason: str) -> TakenBack:
    """Undo versions (`name@layer:7`, or `ID:2` for a lesson) and whole changes.

    Places that others have changed since are kept and reported. An unknown target fails before anything is undone.
    """
    author = home.person(reason)
    # Resolve every target before the first step runs.
    steps = [step for target in targets for step in _steps(home, target, author)]
    done: list[Undone] = []
    kept: list[str] = []
    for step in steps:
        try:
            done += step()
        except UserError as error:
            kept.append(str(error))
    again = dict.fromkeys(target for one in done for target in one.targets)
    return TakenBack(
        said=tuple(f"{one.what} {one.said.removesuffix('.')}." for one in done),
        kept=tuple(kept),
        undo=("undo", *again) if again else (),
    )


Step = Callable[[], list[Undone]]


def _steps(home: Home, target: str, author: Author) -> list[Step]:
    """Return the actions that undo one target. Raises if the target is unknown."""
    address, _, number = target.rpartition(":")
    if not address:
        return _steps_of_change(home, target, author)
    if not number.removeprefix("v").isdecimal():
        raise Invalid(f"'{target}' names no version.", hint=f"Write {address}:VERSION.")
    version = int(number.removeprefix("v"))
    if "@" not in address and (lesson := _lesson(home.memory, address)) is not None:
        return [lambda: [_undone_lesson(home.memory, lesson, version, author)]]
    item = home.skills.find(address)
    known = [one.number for one in home.skills.history(address)]
    if version not in known:
        raise no_version(item.name, version, known)
    layer = home.skills.layer(item.layer)
    return [lambda: [_without(home.skills, layer, item.name, version, version, author)]]


def _lesson(memory: Cortex, id: str) -> Engram | None:
    with suppress(NotFound):
        return memory.get(id)
    return None


def _undone_lesson(memory: Cortex, lesson: Engram, version: int, author: Author) -> Undone:
    with memory.noting() as made:
        after = memory.undo(lesson.id, version, by=author.name)
    said = f"is without version {version}: {after.text}" if made else f"has nothing of version {version} any more"
    return Undone(
        what=lesson.id, said="is in the archive" if after.state.is_put_away else said, targets=of_lessons(made)
    )


def _steps_of_change(home: Home, change: str, author: Author) -> list[Step]:
    """Return the actions that undo everything one command did."""
    writable = [layer for layer in home.skills.layers if layer.can_write]
    found = [(layer, each) for layer in writable for each in layer.store.changed_in(change)] if change else []
    if not found:
        raise NotFound(f"No change '{change}' is known.", hint="Write NAME:VERSION; see 'habitus skills history NAME'.")
    # Newly created skills go first, because they may occupy a name that is to be restored.
    found.sort(key=lambda each: not _is_new_there(each[1]))
    return [partial(_taken_back, home, layer, changed, author) for layer, changed in found]


def _is_new_there(changed: Changed) -> bool:
    return changed.first == 1 or Switched.RESTORED in changed.switches


def _taken_back(home: Home, layer: Layer, changed: Changed, author: Author) -> list[Undone]:
    """Undo what one change did to a skill: removal, restore, versions and switches."""
    name, store, address = changed.name, layer.store, f"{changed.name}@{layer.name}"
    done: list[Undone] = []
    # Only the net effect counts: a skill that was removed and restored in one change is left alone.
    moves = [action for action in changed.switches if action in (Switched.REMOVED, Switched.RESTORED)]
    if moves[:1] == [Switched.REMOVED] and moves[-1] is Switched.REMOVED:
        home.allow(author)
        name = store.restore(changed.skill, author)
        done.append(Undone(what=address, said="is back", targets=(author.change,)))
    if changed.first:
        done.append(_without(home.skills, layer, name, changed.first, changed.last, author))
    if moves[:1] == [Switched.RESTORED] and moves[-1] is Switched.RESTORED:
        _refuse_newer(layer, name, changed, author)
        home.skills.remove(address, author)
        done.append(Undone(what=address, said="is in the archive again", targets=(author.change,)))
    turns = [action for action in changed.switches if action not in (Switched.REMOVED, Switched.RESTORED)]
    if turns:
        is_on = turns[0] is Switched.DISABLED
        home.skills.set_enabled(address, is_on, author)
        done.append(
            Undone(what=address, said=f"is switched {'on' if is_on else 'off'} again", targets=(author.change,))
        )
    return done


def _refuse_newer(layer: Layer, name: str, changed: Changed, author: Author) -> None:
    """Refuse to archive a skill that was changed after the change to undo."""
    newest = layer.store.history(name)[-1]
    if newest.number > changed.last and newest.author.change != author.change:
        raise _was_changed(layer, name, newest)


def _without(skills: Library, layer: Layer, name: str, first: int, last: int, author: Author) -> Undone:
    """Revert the versions from `first` to `last`, and keep later edits in other places."""
    store, address = layer.store, f"{name}@{layer.name}"
    history, now = store.history(name), store.tree(name) or {}
    earlier = [version.number for version in history if version.number < first]
    newest, what = history[-1], f"version {first}" if first == last else f"versions {first} to {last}"
    if not earlier:
        if newest.number > last:
            raise _was_changed(layer, name, newest)
        skills.remove(address, replace(author, reason=author.reason or f"{what} taken back"))
        return Undone(what=address, said="is in the archive: there was nothing before it", targets=(author.change,))
    before, after = store.tree(name, earlier[-1]) or {}, store.tree(name, last) or {}
    merged = edits.without_change(before, after, now)
    is_loadable = is_same(merged.tree, before) or trees.parse(name, merged.tree).skill is not None
    if merged.conflicts or not is_loadable:
        where = ", ".join(merged.conflicts) or trees.main_file(now) or "SKILL.md"
        raise Refused(
            f"{what.capitalize()} of '{name}' can't be taken back alone: {where} was changed in the same place since.",
            hint=f"Compare 'habitus skills diff {address} {earlier[-1]} {last}' and edit it; nothing was changed.",
        )
    author = replace(author, reason=author.reason or f"{what} taken back")
    version = skills.write_tree(layer.name, name, merged.tree, author, expected_version=newest.number)
    if version == newest.number:
        return Undone(what=address, said=f"has nothing of {what} any more")
    return Undone(what=address, said=f"is without {what}, as version {version}", targets=(f"{address}:{version}",))


def _was_changed(layer: Layer, name: str, newest: Version) -> Refused:
    """Return the error for a skill that was changed since."""
    by = newest.author.name or newest.author.actor.value
    return Refused(
        f"'{name}' has been changed since (version {newest.number} by {by}).",
        hint=f"To put all of it into the archive: habitus skills remove {name}@{layer.name}.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReturnResult:
    """The steps that return everything to a timestamp; a dry run only lists them."""

    to: datetime
    dry_run: bool
    steps: tuple[SkillStep, ...]
    lessons: tuple[LessonStep, ...]
    undo: tuple[str, ...] = ()


def return_to(home: Home, timestamp: datetime, reason: str, *, dry_run: bool) -> ReturnResult:
    """Return lessons, and skills in writable layers, to a timestamp; a dry run only returns the steps."""
    author = home.person(reason)
    steps = home.skills.return_to(timestamp, author, dry_run=True)
    # Check permissions before anything is changed: half a rollback would be worse than none.
    for layer in {step.layer for step in steps if step.action == "archive"}:
        home.skills.layer(layer).allow_removal(author)
    if not dry_run:
        steps = home.skills.return_to(timestamp, author)
    with home.memory.noting() as changed:
        lessons = home.memory.return_to(timestamp, by=author.name, dry_run=dry_run)
    targets = (*([author.change] if steps else []), *of_lessons(changed))
    undo = ("undo", *targets) if targets and not dry_run else ()
    return ReturnResult(to=timestamp, dry_run=dry_run, steps=tuple(steps), lessons=lessons, undo=undo)
