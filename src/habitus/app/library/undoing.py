"""Undo one change to skills and lessons, or return all of them to a timestamp."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from habitus.app.home import Home, refuse_change_if_unwritable_or_paused
from habitus.errors import Invalid, NotFound, Refused, UserError, build_unknown_version_error
from habitus.files import has_same_files
from habitus.memory.cortex import Cortex
from habitus.memory.model import Engram
from habitus.memory.repository import LessonRollbackStep as LessonRollbackStep
from habitus.skills import edits, trees
from habitus.skills.layers.layer import Layer
from habitus.skills.library import Library
from habitus.skills.model import Author, LifecycleAction, SkillVersion
from habitus.skills.review import Proposal, ReviewQueue
from habitus.skills.stores.base import ChangedSkillRecord, SkillWriteResult
from habitus.skills.stores.base import RestoreAction as SkillStep


@dataclass(frozen=True, kw_only=True, slots=True)
class UndoneChange:
    """One undone change; `targets` undo it in turn, and are empty if nothing had to be done."""

    subject: str
    message: str
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class UndoResult:
    """The result of an undo in sentences, what could not be undone, and the command that reverts it."""

    messages: tuple[str, ...]
    failures: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()

    @property
    def is_failed(self) -> bool:
        """Whether something could not be undone."""
        return bool(self.failures)


def build_version_undo_command(address: str, version: int) -> tuple[str, ...]:
    """Return the command that undoes one version; `address` includes the layer."""
    return ("undo", f"{address}:{version}")


def build_write_undo_command(done: SkillWriteResult) -> tuple[str, ...]:
    """Return the command that undoes a write; empty if nothing was changed."""
    return build_version_undo_command(f"{done.name}@{done.layer}", done.version) if done.is_changed else ()


def build_change_undo_command(author: Author) -> tuple[str, ...]:
    """Return the command that undoes everything one command of this author did."""
    return ("undo", author.change_id)


def build_lesson_undo_targets(changed: Iterable[Engram]) -> tuple[str, ...]:
    """Return the undo targets for changed lessons, last change first."""
    return tuple(f"{engram.id}:{engram.version}" for engram in reversed(list(changed)))


def undo_versions_and_changes(home: Home, targets: Sequence[str], reason: str) -> UndoResult:
    """Undo versions (`name@layer:7`, or `ID:2` for a lesson) and whole changes.

    Places that others have changed since are kept and reported. An unknown target fails before anything is undone.
    """
    author = home.build_author(reason)
    # Resolve every target before the first step runs.
    steps = [step for target in targets for step in _plan_target_undo(home, target, author)]
    done: list[UndoneChange] = []
    kept: list[str] = []
    for step in steps:
        try:
            done += step()
        except UserError as error:
            kept.append(str(error))
    again = dict.fromkeys(target for one in done for target in one.targets)
    return UndoResult(
        messages=_summarize_changes(done),
        failures=tuple(kept),
        undo=("undo", *again) if again else (),
    )


def _summarize_changes(done: Sequence[UndoneChange]) -> tuple[str, ...]:
    """Return a sentence per change, or one for all that read the same if they are many."""
    subjects: dict[str, list[str]] = {}
    for one in done:
        subjects.setdefault(one.message.removesuffix("."), []).append(one.subject)
    return tuple(
        line
        for message, each in subjects.items()
        for line in (
            [f"{subject} {message}." for subject in each]
            if len(each) <= _MAX_LISTED
            else [f"{len(each):,} skills, such as {each[0]}: each {message}."]
        )
    )


_MAX_LISTED = 10
UndoAction = Callable[[], list[UndoneChange]]


def _plan_target_undo(home: Home, target: str, author: Author) -> list[UndoAction]:
    """Return the actions that undo one target. Raises if the target is unknown."""
    address, _, number = target.rpartition(":")
    if not address:
        return _plan_change_undo(home, target, author)
    if not number.removeprefix("v").isdecimal():
        raise Invalid(f"'{target}' names no version.", hint=f"Write {address}:VERSION.")
    version = int(number.removeprefix("v"))
    if "@" not in address and (lesson := _find_lesson(home.memory, address)) is not None:
        return [lambda: [_undo_lesson_version(home.memory, lesson, version, author)]]
    item = home.skills.find(address)
    known = [one.number for one in home.skills.list_versions(address)]
    if version not in known:
        raise build_unknown_version_error(item.name, version, known)
    layer = home.skills.get_layer(item.layer)
    return [lambda: [_revert_versions(home.skills, layer, item.name, version, version, author)]]


def _find_lesson(memory: Cortex, id: str) -> Engram | None:
    with suppress(NotFound):
        return memory.get(id)
    return None


def _undo_lesson_version(memory: Cortex, lesson: Engram, version: int, author: Author) -> UndoneChange:
    with memory.collect_changes() as made:
        after = memory.undo_version(lesson.id, version, by=author.name)
    said = f"is without version {version}: {after.text}" if made else f"has nothing of version {version} any more"
    return UndoneChange(
        subject=lesson.id,
        message="is in the archive" if after.state.is_archived else said,
        targets=build_lesson_undo_targets(made),
    )


def _plan_change_undo(home: Home, change: str, author: Author) -> list[UndoAction]:
    """Return the actions that undo everything one command did."""
    writable = [layer for layer in home.skills.layers if layer.can_write]
    found = [(layer, each) for layer in writable for each in layer.store.list_changed_skills(change)] if change else []
    held = [
        one
        for one in home.review.list_proposals_by_state(with_contents=False)
        if change and one.author.change_id == change
    ]
    if not found and not held:
        raise NotFound(f"No change '{change}' is known.", hint="Write NAME:VERSION; see 'habitus skills history NAME'.")
    # Newly created skills go first, because they may occupy a name that is to be restored.
    found.sort(key=lambda each: not _is_skill_created_or_restored(each[1]))
    return [
        *(partial(_withdraw_held_imported_skill, home.review, one, author) for one in held),
        *(partial(_undo_skill_change, home, layer, changed, author) for layer, changed in found),
    ]


def _withdraw_held_imported_skill(review: ReviewQueue, proposal: Proposal, author: Author) -> list[UndoneChange]:
    """Withdraw a skill of an import that is still held for review."""
    review.withdraw(proposal.id, author)
    return [UndoneChange(subject=proposal.address_with_host, message="no longer needs review")]


def _is_skill_created_or_restored(changed: ChangedSkillRecord) -> bool:
    return changed.first_version == 1 or LifecycleAction.RESTORED in changed.lifecycle_actions


def _undo_skill_change(home: Home, layer: Layer, changed: ChangedSkillRecord, author: Author) -> list[UndoneChange]:
    """Undo what one change did to a skill: removal, restore, versions and switches."""
    name, store, address = changed.name, layer.store, f"{changed.name}@{layer.name}"
    done: list[UndoneChange] = []
    # Only the net effect counts: a skill that was removed and restored in one change is left alone.
    moves = [
        action for action in changed.lifecycle_actions if action in (LifecycleAction.REMOVED, LifecycleAction.RESTORED)
    ]
    if moves[:1] == [LifecycleAction.REMOVED] and moves[-1] is LifecycleAction.REMOVED:
        refuse_change_if_unwritable_or_paused(home, author)
        name = store.restore(changed.skill, author)
        done.append(UndoneChange(subject=address, message="was restored", targets=(author.change_id,)))
    if changed.first_version:
        done.append(_revert_versions(home.skills, layer, name, changed.first_version, changed.last_version, author))
    if moves[:1] == [LifecycleAction.RESTORED] and moves[-1] is LifecycleAction.RESTORED:
        _refuse_if_skill_changed_later(layer, name, changed, author)
        home.skills.remove(address, author)
        done.append(UndoneChange(subject=address, message="is in the archive again", targets=(author.change_id,)))
    turns = [
        action
        for action in changed.lifecycle_actions
        if action not in (LifecycleAction.REMOVED, LifecycleAction.RESTORED)
    ]
    if turns:
        is_on = turns[0] is LifecycleAction.DISABLED
        home.skills.set_enabled(address, is_on, author)
        done.append(
            UndoneChange(
                subject=address, message=f"is switched {'on' if is_on else 'off'} again", targets=(author.change_id,)
            )
        )
    return done


def _refuse_if_skill_changed_later(layer: Layer, name: str, changed: ChangedSkillRecord, author: Author) -> None:
    """Refuse to archive a skill that was changed after the change to undo."""
    newest = layer.store.list_versions(name)[-1]
    if newest.number > changed.last_version and newest.author.change_id != author.change_id:
        raise _build_changed_since_error(layer, name, newest)


def _revert_versions(skills: Library, layer: Layer, name: str, first: int, last: int, author: Author) -> UndoneChange:
    """Revert the versions from `first` to `last`, and keep later edits in other places."""
    store, address = layer.store, f"{name}@{layer.name}"
    history, now = store.list_versions(name), store.read_tree(name) or {}
    earlier = [version.number for version in history if version.number < first]
    newest, what = history[-1], f"version {first}" if first == last else f"versions {first} to {last}"
    if not earlier:
        if newest.number > last:
            raise _build_changed_since_error(layer, name, newest)
        skills.remove(address, replace(author, reason=author.reason or f"{what} undone"))
        return UndoneChange(
            subject=address, message="is in the archive: there was nothing before it", targets=(author.change_id,)
        )
    before, after = store.read_tree(name, earlier[-1]) or {}, store.read_tree(name, last) or {}
    merged = edits.revert_change(before, after, now)
    is_loadable = has_same_files(merged.tree, before) or trees.parse_skill_tree(name, merged.tree).skill is not None
    if merged.conflicts or not is_loadable:
        where = ", ".join(merged.conflicts) or trees.find_main_file(now) or "SKILL.md"
        raise Refused(
            f"{what.capitalize()} of '{name}' can't be undone on its own: {where} has changed in the same place since.",
            hint=f"Compare 'habitus skills diff {address} {earlier[-1]} {last}' and edit it; nothing was changed.",
        )
    author = replace(author, reason=author.reason or f"{what} undone")
    version = skills.write_tree(layer.name, name, merged.tree, author, expected=newest.number)
    if version == newest.number:
        return UndoneChange(subject=address, message=f"has nothing of {what} any more")
    return UndoneChange(
        subject=address, message=f"is without {what}, as version {version}", targets=(f"{address}:{version}",)
    )


def _build_changed_since_error(layer: Layer, name: str, newest: SkillVersion) -> Refused:
    """Return the error for a skill that was changed since."""
    by = newest.author.name or newest.author.actor.value
    return Refused(
        f"'{name}' has been changed since (version {newest.number} by {by}).",
        hint=f"To put all of it into the archive: habitus skills remove {name}@{layer.name}.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RollbackResult:
    """The steps that return everything to a timestamp; a dry run only lists them."""

    to: datetime
    dry_run: bool
    steps: tuple[SkillStep, ...]
    lessons: tuple[LessonRollbackStep, ...]
    undo: tuple[str, ...] = ()


def rollback_lessons_and_skills(home: Home, timestamp: datetime, reason: str, *, dry_run: bool) -> RollbackResult:
    """Return lessons, and skills in writable layers, to a timestamp; a dry run only returns the steps."""
    author = home.build_author(reason)
    steps = home.skills.restore_state_at(timestamp, author, dry_run=True)
    # Check permissions before anything is changed: half a rollback would be worse than none.
    for layer in {step.layer for step in steps if step.action == "archive"}:
        home.skills.get_layer(layer).allow_removal(author)
    if not dry_run:
        steps = home.skills.restore_state_at(timestamp, author)
    with home.memory.collect_changes() as changed:
        lessons = home.memory.roll_back_to(timestamp, by=author.name, dry_run=dry_run)
    targets = (*([author.change_id] if steps else []), *build_lesson_undo_targets(changed))
    undo = ("undo", *targets) if targets and not dry_run else ()
    return RollbackResult(to=timestamp, dry_run=dry_run, steps=tuple(steps), lessons=lessons, undo=undo)
