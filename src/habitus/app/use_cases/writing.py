"""Changing skills: create, edit, enable, disable, remove, restore, and roll back to an earlier version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import MISSING, dataclass, make_dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library.undoing import of_change, of_version, of_written
from habitus.app.use_cases.declaration import (
    TEXT,
    argument,
    option,
    reason_option,
    starting_version,
    text_option,
    use_case,
    version_in,
)
from habitus.app.use_cases.skills import MOST, skill_name
from habitus.errors import Invalid, Misused, NotFound, Refused, Stale
from habitus.files import Tree, file_of
from habitus.skills import names, trees
from habitus.skills.editable_fields import EDITABLE, Fields
from habitus.skills.edits import Edit, Operation
from habitus.skills.formats import skill_md
from habitus.skills.layers.listing import Listed
from habitus.skills.library import Library
from habitus.skills.model import Author, Skill, State
from habitus.skills.stores.base import Written

# Takes content and a file name, and yields the text that the person wrote.
ByHand = Callable[[bytes, str], AbstractContextManager[bytes]]
_SKELETON = """# {title}

1. Say what to look at first, and how to tell that this skill fits.
2. Give the steps in order, with the decisions in them: if …, do …; else ….
3. Say how to check the result, and what to do when the check fails.
"""
_CALLED_SKELETON = """# {title}

Its command line does the work: `skills.run("{name}", "--help")` in the scratchpad says what it takes.
It prints one JSON object; where its `status` is "error", it says why.

1. Say which command fits which request, and give an example of each.
2. Say what to make of what it prints, and what to do when it reports an error.
"""
_COMMAND_LINE = b'''"""The command line of this skill. It prints one JSON object, whose `status` is "ok" or "error"."""

import argparse
import json


def build_parser():
    parser = argparse.ArgumentParser(description="Say in a sentence what it is for.")
    commands = parser.add_subparsers(dest="command", required=True)
    greet = commands.add_parser("greet", help="an example: put your own in its place")
    greet.add_argument("name")
    return parser


def main():
    arguments = build_parser().parse_args()
    print(json.dumps({"status": "ok", "greeting": f"Hello, {arguments.name}!"}))


if __name__ == "__main__":
    main()
'''


if TYPE_CHECKING:

    class WithFields:
        """The editable fields of a skill as options, each None if it stays unchanged."""

else:
    # Generated from the list of editable fields, so a new field gets its option by itself.
    WithFields = make_dataclass(
        "WithFields",
        [
            (each.name, tuple[str, ...] | None if each.is_list else str | None, option(each.help, *each.options))
            for each in EDITABLE
        ],
        frozen=True,
        kw_only=True,
    )


@dataclass(frozen=True, kw_only=True)
class SkillDraft(WithFields):
    name: str = argument("The name: lower-case letters, digits and hyphens.")
    body: str | None = text_option(
        "Markdown with the steps, on the command line in a file ('-' is standard input); without it, a skeleton.",
        "--file",
        "-f",
    )
    layer: str | None = option("Write it to this layer instead of your own.")
    cli: bool = option("With a command line, scripts/cli.py, that already runs.", default=False)


@dataclass(frozen=True, kw_only=True)
class NewSkill:
    """A created skill."""

    name: str
    version: int
    layer: str
    # The directory with its files; None in a shared database.
    directory: Path | None
    undo: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ChangedSkill:
    """A skill after a change; `undo` is empty if nothing was changed."""

    name: str
    layer: str
    version: int
    # The read-only layer whose copy it now overrides.
    hides: str | None = None
    undo: tuple[str, ...] = ()


def _version_of(done: NewSkill | ChangedSkill) -> tuple[int, str]:
    return done.version, done.layer


def _made_since(home: Home, wanted: SkillDraft, since: datetime) -> NewSkill | None:
    """Return the skill of this name if this user created it since then."""
    with suppress(NotFound):
        item, person = home.skills.find(f"{wanted.name}@{wanted.layer}" if wanted.layer else wanted.name), home.person()
        history = home.skills.history(f"{item.name}@{item.layer}")
        # Only versions by the same person: a skill that someone else created meanwhile is a conflict, not this
        # request's result.
        own = [one.number for one in history if one.made_on >= since and one.author.name == person.name]
        return _describe_new(home, item.name, item.layer, own[0]) if own else None
    return None


_DRAFT: dict[str, Any] = {"name": "tidy-inbox", "description": "Sorts mail", "when_to_use": "When mail piles up"}


@use_case(
    "skills new",
    route="POST /skills",
    access=Access.ADMIN,
    example=SkillDraft(**_DRAFT),
    status=201,
    location="/skills/{name}",
    is_once=True,
    made_since=_made_since,
    version_of=_version_of,
)
def new(home: Home, wanted: SkillDraft) -> NewSkill:
    """Create a skill; without steps, a skeleton to fill in."""
    skill = _skill_from_draft(wanted)
    files = {trees.CLI_CODE: file_of(_COMMAND_LINE)} if wanted.cli else None
    if wanted.cli:
        skill = replace(skill, manifest=replace(skill.manifest, cli=True))
    try:
        made = home.skills.create(skill, home.person("new"), layer=wanted.layer, files=files)
    except Stale as error:
        raise Refused(error.message, hint="Choose another name, or edit the one that is there.") from None
    return _describe_new(home, made.name, made.layer, made.version)


def _describe_new(home: Home, name: str, layer: str, version: int) -> NewSkill:
    address = f"{name}@{layer}"
    directory = None if home.settings.database else home.skills.directory(address)
    return NewSkill(name=name, version=version, layer=layer, directory=directory, undo=of_version(address, version))


def _skill_from_draft(wanted: SkillDraft) -> Skill:
    """Build the skill; options win over fields that the text states itself."""
    fields, name = Fields.of(wanted), names.check_name(wanted.name)
    heading = fields.values.get("title") or name.replace("-", " ").capitalize()
    skeleton = _CALLED_SKELETON if wanted.cli else _SKELETON
    given = Skill(name=name, body=skeleton.format(title=heading, name=name))
    if wanted.body is not None:
        parsed = skill_md.parse(name, wanted.body.encode("utf-8", "replace"))
        if parsed.skill is not None:
            given = parsed.skill
        elif wanted.body.startswith("---"):
            raise Invalid(str(parsed.diagnostics[-1]), hint="")
        else:
            given = replace(given, body=wanted.body)
    drafted = fields.apply_to(given)
    has_description = drafted.description or "description" in fields.values
    return drafted if has_description else replace(drafted, description=f"{heading}.")


@dataclass(frozen=True, kw_only=True)
class SkillEdit(WithFields):
    name: str = skill_name()
    append: str | None = option("Put this text after the steps.", longest=TEXT)
    prepend: str | None = option("Put this text before the steps.", longest=TEXT)
    body: str | None = option("Make this text the steps.", "--replace", longest=TEXT)
    find: str | None = option("Exact text to find; needs --with.", longest=TEXT)
    replacement: str | None = option("What to put in its place.", "--with", longest=TEXT)
    everywhere: bool = option("With --find: every occurrence.", "--all", default=False)
    delete: str | None = option("Exact text to take out once.", longest=TEXT)
    expect: str | None = starting_version()
    reason: str = reason_option()


@use_case(
    "skills edit",
    route="PATCH /skills/{name}",
    access=Access.ADMIN,
    example=SkillEdit(name="tidy-inbox", append="4. Archive what is done."),
    version_of=_version_of,
)
def edit(home: Home, wanted: SkillEdit) -> ChangedSkill:
    """Change a skill's steps by one operation, and its fields.

    On the command line, '-' as a text reads standard input, and without any change the whole file opens in your editor.
    """
    change, seen, author = _operation(wanted), home.skills.snapshot(), home.person(wanted.reason)
    before = home.skills.find(wanted.name, at=seen)
    expected = version_in(wanted.expect, before.layer)
    fields = Fields.of(wanted)
    done = home.skills.edit(wanted.name, change, author, fields=fields, expected_version=expected, at=seen)
    return _describe_change(before, done)


def _operation(wanted: SkillEdit) -> Edit:
    """Build the edit. Raises `Misused` if the options ask for several operations, or for half of one."""
    texts = {
        Operation.APPEND: wanted.append,
        Operation.PREPEND: wanted.prepend,
        Operation.REPLACE: wanted.body,
        Operation.FIND_REPLACE: wanted.find,
        Operation.DELETE: wanted.delete,
    }
    given = {operation: text for operation, text in texts.items() if text is not None}
    if len(given) > 1:
        found = " and ".join(f"--{str(name).split('_', maxsplit=1)[0]}" for name in given)
        raise Misused(f"{found} can't be done in one go; give one, then the other.")
    if wanted.find is None and (wanted.everywhere or wanted.replacement is not None):
        raise Misused(f"{'--all' if wanted.everywhere else '--with'} needs --find with the text to look for.")
    if wanted.find is not None and wanted.replacement is None:
        raise Misused("--find needs --with and the text to put in its place.")
    for operation, text in given.items():
        if operation is Operation.FIND_REPLACE:
            return Edit(operation=operation, find=text, replace=wanted.replacement, replace_all=wanted.everywhere)
        return Edit(operation=operation, content=text)
    return Edit()


def _describe_change(before: Listed, done: Written) -> ChangedSkill:
    hides = before.layer if done.layer != before.layer else None
    return ChangedSkill(name=done.name, layer=done.layer, version=done.version, hides=hides, undo=of_written(done))


def edit_by_hand(home: Home, wanted: SkillEdit, by_hand: ByHand) -> ChangedSkill:
    """Open a skill's main file in an editor and save the result; refused if the skill was changed meanwhile."""
    item, tree = home.skills.find(wanted.name), home.skills.tree(wanted.name)
    borrowed = _inherited_text(home.skills, item, tree)
    path, content = editable(_with_body(item, tree, borrowed) if borrowed else tree)
    version = item.summary.version if item.summary is not None else 0
    done = Written(name=item.name, layer=item.layer, version=version, is_changed=False)
    with by_hand(content, f"{item.name}.md") as written:
        if written != content:
            changed = {**tree, path: file_of(written)}
            left = trees.parse(item.name, changed).skill
            # An inherited body that was left alone stays inherited instead of being copied into the skill.
            if borrowed and left is not None and left.body == borrowed:
                _, written = editable(_with_body(item, changed, ""))
            expected = version_in(wanted.expect, item.layer) or version or None
            author = home.person(wanted.reason)
            done = home.skills.edit_file(wanted.name, path, written, author, expected_version=expected)
    return _describe_change(item, done)


def _inherited_text(skills: Library, item: Listed, tree: Tree) -> str:
    """Return the body that a skill inherits from the one it extends; empty if it has its own."""
    own = trees.parse(item.name, tree).skill
    is_borrowed = own is not None and own.manifest.extends and "body" not in own.stated
    return skills.text_above(item) if is_borrowed else ""


def _with_body(item: Listed, tree: Tree, body: str) -> Tree:
    skill = trees.parse(item.name, tree).skill
    return tree if skill is None else trees.with_skill(tree, replace(skill, body=body))


def editable(tree: Tree) -> tuple[str, bytes]:
    """Return path and content of the file with a skill's steps."""
    path = trees.main_file(tree) or "SKILL.md"
    return path, (tree[path].content if path in tree else b"") or b""


@dataclass(frozen=True, kw_only=True)
class ManySkills:
    names: tuple[str, ...] = argument("Skills: name, or name@layer.", completes="skills")


@dataclass(frozen=True, kw_only=True)
class SwitchedSkill:
    """The state of a skill after it was enabled or disabled."""

    name: str
    layer: str
    enabled: bool
    # An enabled skill may still be out of view, for another reason.
    state: State
    reason: str


@dataclass(frozen=True, kw_only=True)
class SwitchedSkills:
    """The skills that were enabled or disabled; `undo` is empty if none of them changed."""

    skills: Sequence[SwitchedSkill]
    undo: tuple[str, ...]


@use_case(
    "skills enable",
    route="POST /skills/{names}/enable",
    access=Access.ADMIN,
    example=ManySkills(names=("tidy-inbox",)),
    undo="skills disable",
)
def enable(home: Home, wanted: ManySkills) -> SwitchedSkills:
    """Enable skills."""
    return switch(home, wanted.names, on=True)


@use_case(
    "skills disable",
    route="POST /skills/{names}/disable",
    access=Access.ADMIN,
    example=ManySkills(names=("tidy-inbox",)),
    undo="skills enable",
)
def disable(home: Home, wanted: ManySkills) -> SwitchedSkills:
    """Disable skills: they stay, but no prompt sees them."""
    return switch(home, wanted.names, on=False)


def switch(home: Home, names: Sequence[str], *, on: bool) -> SwitchedSkills:
    """Enable or disable skills; an unknown name fails before anything is changed."""
    items, author = [home.skills.find(name) for name in names], home.person()
    turned = [f"{item.name}@{item.layer}" for item in items if item.summary is None or item.summary.enabled != on]
    # All names were found above, so an unknown one has changed nothing.
    after = [home.skills.set_enabled(f"{item.name}@{item.layer}", on, author) for item in items]
    return SwitchedSkills(
        skills=[
            SwitchedSkill(name=item.name, layer=item.layer, enabled=on, state=item.state, reason=item.reason)
            for item in after
        ],
        undo=("skills", "disable" if on else "enable", *turned) if turned else (),
    )


@dataclass(frozen=True, kw_only=True)
class SkillRemoval:
    names: tuple[str, ...] = argument("Skills: name, or name@layer.", completes="skills")
    reason: str = reason_option()


@dataclass(frozen=True, kw_only=True)
class RemovedSkill:
    """An archived skill, and the command that restores exactly this one."""

    name: str
    layer: str
    # The layer whose copy is visible again.
    uncovers: str | None
    undo: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RemovedSkills:
    """The skills of one removal, and the command that restores all of them."""

    skills: Sequence[RemovedSkill]
    undo: tuple[str, ...]


@use_case(
    "skills remove",
    route="DELETE /skills/{names}",
    access=Access.ADMIN,
    example=SkillRemoval(names=("tidy-inbox",), reason="two skills said the same"),
    undo="skills restore",
)
def remove(home: Home, wanted: SkillRemoval) -> RemovedSkills:
    """Move skills to the archive, from which 'restore' brings them back."""
    items, author = [home.skills.find(name) for name in wanted.names], home.person(wanted.reason)
    gone = [_remove_skill(home.skills, item, author) for item in items]
    return RemovedSkills(skills=gone, undo=gone[0].undo if len(gone) == 1 else of_change(author))


def _remove_skill(skills: Library, item: Listed, author: Author) -> RemovedSkill:
    address = f"{item.name}@{item.layer}"
    skills.remove(address, author)
    undo = ("skills", "restore", f"{address}#{skills.newest_archived(address).id}")
    uncovers = item.hidden[-1] if item.hidden else None
    return RemovedSkill(name=item.name, layer=item.layer, uncovers=uncovers, undo=undo)


@dataclass(frozen=True, kw_only=True)
class ArchivedName:
    name: str | None = argument("name, name@layer, or #ID from the list.", default=None)
    new_name: str | None = option("Bring it back under this name.", "--as")


@dataclass(frozen=True, kw_only=True)
class RestoredSkill:
    name: str
    layer: str
    undo: tuple[str, ...]


@use_case(
    "skills restore",
    route="POST /archive/{name}/restore",
    access=Access.ADMIN,
    example=ArchivedName(name="tidy-inbox"),
    undo="skills remove",
)
def restore(home: Home, wanted: ArchivedName) -> RestoredSkill:
    """Restore a skill from the archive."""
    if wanted.name is None:
        raise Misused("Say which one.", hint="'habitus skills restore --list' shows them.")
    new_name = None if wanted.new_name is None else names.check_name(wanted.new_name)
    name, layer = home.skills.restore(wanted.name, home.person("restored"), new_name=new_name)
    return RestoredSkill(name=name, layer=layer, undo=("skills", "remove", f"{name}@{layer}"))


@dataclass(frozen=True, kw_only=True)
class EarlierVersion:
    name: str = skill_name()
    to: int = option("The version to return to.", default=MISSING, least=1, most=MOST)
    reason: str = reason_option()


@use_case(
    "skills rollback",
    route="POST /skills/{name}/rollback",
    access=Access.ADMIN,
    example=EarlierVersion(name="csv-summary", to=2),
)
def rollback(home: Home, wanted: EarlierVersion) -> ChangedSkill:
    """Make an earlier version the current one, as a new version."""
    author = home.person(wanted.reason or f"back to version {wanted.to}")
    done = home.skills.rollback(wanted.name, wanted.to, author)
    return ChangedSkill(name=done.name, layer=done.layer, version=done.version, undo=of_written(done))
