"""Undoing one change alone, or going back to a moment, of skills and lessons."""

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
    """The undoing of a change to a skill or a lesson; `targets` take that back in turn, and are none where it was so
    already."""

    what: str
    said: str
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenBack:
    """The undo in sentences, what could not be undone, and the words that take this back in turn."""

    said: tuple[str, ...]
    kept: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()

    @property
    def is_failed(self) -> bool:
        return bool(self.kept)


def of_version(address: str, version: int) -> tuple[str, ...]:
    """The command that takes back what made a version, and nothing else; `address` has its layer."""
    return ("undo", f"{address}:{version}")


def of_written(done: Written) -> tuple[str, ...]:
    """The command that takes back a change of a skill; nothing where nothing was changed."""
    return of_version(f"{done.name}@{done.layer}", done.version) if done.is_changed else ()


def of_change(author: Author) -> tuple[str, ...]:
    """The command that takes back all that an author's one command did."""
    return ("undo", author.change)


def of_lessons(changed: Iterable[Engram]) -> tuple[str, ...]:
    """The targets that stand for what was just made of lessons, the last first."""
    return tuple(f"{engram.id}:{engram.version}" for engram in reversed(list(changed)))


def undo(home: Home, targets: Sequence[str], reason: str) -> TakenBack:
    """Take back versions (`name@layer:7`, of a lesson `ID:2`) and whole changes, whatever each of them did.

    Where others have changed the same place since, theirs is kept, and that is said. An unknown target is said first.
    """
    author = home.person(reason)
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
    address, _, number = target.rpartition(":")
    if not address:
        return _steps_of_change(home, target, author)
    if not number.removeprefix("v").isdecimal():
        raise Invalid(f"'{target}' names no version.", mend=f"Write {address}:VERSION.")
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
    writable = [layer for layer in home.skills.layers if layer.can_write]
    found = [(layer, each) for layer in writable for each in layer.store.changed_in(change)] if change else []
    if not found:
        raise NotFound(f"No change '{change}' is known.", mend="Write NAME:VERSION; see 'habitus skills history NAME'.")
    found.sort(key=lambda each: not _is_new_there(each[1]))  # what must make room goes first
    return [partial(_taken_back, home, layer, changed, author) for layer, changed in found]


def _is_new_there(changed: Changed) -> bool:
    return changed.first == 1 or Switched.RESTORED in changed.switches


def _taken_back(home: Home, layer: Layer, changed: Changed, author: Author) -> list[Undone]:
    name, store, address = changed.name, layer.store, f"{changed.name}@{layer.name}"
    done: list[Undone] = []
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
    newest = layer.store.history(name)[-1]
    if newest.number > changed.last and newest.author.change != author.change:
        raise _was_changed(layer, name, newest)


def _without(skills: Library, layer: Layer, name: str, first: int, last: int, author: Author) -> Undone:
    """The skill without what was done from one version to another."""
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
            mend=f"Compare 'habitus skills diff {address} {earlier[-1]} {last}' and edit it; nothing was changed.",
        )
    author = replace(author, reason=author.reason or f"{what} taken back")
    version = skills.write_tree(layer.name, name, merged.tree, author, expected_version=newest.number)
    if version == newest.number:
        return Undone(what=address, said=f"has nothing of {what} any more")
    return Undone(what=address, said=f"is without {what}, as version {version}", targets=(f"{address}:{version}",))


def _was_changed(layer: Layer, name: str, newest: Version) -> Refused:
    by = newest.author.name or newest.author.actor.value
    return Refused(
        f"'{name}' has been changed since (version {newest.number} by {by}).",
        mend=f"To put all of it into the archive: habitus skills remove {name}@{layer.name}.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReturnResult:
    """The steps that make everything what it was at a moment; a dry run only says them."""

    to: datetime
    dry_run: bool
    steps: tuple[SkillStep, ...]
    lessons: tuple[LessonStep, ...]
    undo: tuple[str, ...] = ()


def return_to(home: Home, moment: datetime, reason: str, *, dry_run: bool) -> ReturnResult:
    """Return lessons, and the skills of every layer that can be written, to a moment, or only say what that takes."""
    author = home.person(reason)
    steps = home.skills.return_to(moment, author, dry_run=True)
    for layer in {step.layer for step in steps if step.action == "archive"}:
        home.skills.layer(layer).allow_removal(author)
    if not dry_run:
        steps = home.skills.return_to(moment, author)
    with home.memory.noting() as changed:
        lessons = home.memory.return_to(moment, by=author.name, dry_run=dry_run)
    targets = (*([author.change] if steps else []), *of_lessons(changed))
    undo = ("undo", *targets) if targets and not dry_run else ()
    return ReturnResult(to=moment, dry_run=dry_run, steps=tuple(steps), lessons=lessons, undo=undo)
