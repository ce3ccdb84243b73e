"""Writing skills: a new one, a change of one, switching, removing and bringing back, and who the assistant is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from habitus.agent.identity import NAME, identity_skill
from habitus.app.home import Home
from habitus.app.library.undoing import of_change, of_version, of_written
from habitus.errors import Invalid
from habitus.files import Tree, file_of
from habitus.settings import Settings
from habitus.skills import trees
from habitus.skills.edits import Edit
from habitus.skills.fields import Fields
from habitus.skills.formats import skill_md
from habitus.skills.layers import PROMPT
from habitus.skills.library import Library
from habitus.skills.listing import Listed, Snapshot
from habitus.skills.model import Author, Skill
from habitus.skills.stores.base import Written

ByHand = Callable[[bytes, str], AbstractContextManager[bytes]]  # content and file name in, what a person wrote out
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


@dataclass(frozen=True, kw_only=True, slots=True)
class NewSkill:
    name: str
    version: int
    layer: str
    directory: Path | None  # where its files lie, on one machine
    undo: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Edited:
    """A skill before and after; an override where the one before can't be written."""

    before: Listed
    name: str
    layer: str
    version: int
    undo: tuple[str, ...]

    @property
    def is_override(self) -> bool:
        return self.layer != self.before.layer

    @property
    def is_unchanged(self) -> bool:
        return not self.undo


@dataclass(frozen=True, kw_only=True, slots=True)
class Switching:
    """Skills after they were switched; nothing to undo where all of them were so already."""

    after: tuple[Listed, ...]
    undo: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    """A skill that is in the archive now, and the command that brings back this very one."""

    item: Listed
    undo: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """The skills of one removal, and the command that brings all of them back."""

    skills: tuple[Removed, ...]
    undo: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class IdentityText:
    """Who the assistant is, now; nothing to undo where nothing was changed."""

    text: str
    version: int
    undo: tuple[str, ...] = ()


def new(
    home: Home,
    name: str,
    fields: Fields,
    layer: str | None,
    *,
    content: bytes | None = None,
    file: str = "",
    cli: bool = False,
) -> NewSkill:
    """Write a new skill: from the content of a file, or a skeleton; with `cli`, one with a command line that runs."""
    skill = _drafted(name, fields, content, file, _CALLED_SKELETON if cli else _SKELETON)
    files = {trees.CLI_CODE: file_of(_COMMAND_LINE)} if cli else None
    if cli:
        skill = replace(skill, manifest=replace(skill.manifest, cli=True))
    made = home.skills.create(skill, home.person("new"), layer=layer, files=files)
    return _made(home.settings, home.skills, made.name, made.layer, made.version)


def made_since(home: Home, name: str, since: datetime, layer: str | None = None) -> NewSkill | None:
    """The skill of this name, if this person has made it since then."""
    item, person = home.skills.find(f"{name}@{layer}" if layer else name), home.person()
    history = home.skills.history(f"{item.name}@{item.layer}")
    own = [one.number for one in history if one.made_on >= since and one.author.name == person.name]
    return _made(home.settings, home.skills, item.name, item.layer, own[0]) if own else None


def _made(settings: Settings, skills: Library, name: str, layer: str, version: int) -> NewSkill:
    address = f"{name}@{layer}"
    directory = None if settings.database else skills.directory(address)
    return NewSkill(name=name, version=version, layer=layer, directory=directory, undo=of_version(address, version))


def _drafted(name: str, fields: Fields, content: bytes | None, file: str, skeleton: str = _SKELETON) -> Skill:
    """Fields that are given win over those that the file states itself."""
    heading = fields.values.get("title") or name.replace("-", " ").capitalize()
    given = Skill(name=name, body=skeleton.format(title=heading, name=name))
    if content is not None:
        parsed = skill_md.parse(name, content, file=file)
        if parsed.skill is not None:
            given = parsed.skill
        elif content.lstrip(b"\xef\xbb\xbf").startswith(b"---"):
            raise Invalid(str(parsed.diagnostics[-1]), mend="")
        else:
            given = replace(given, body=_text(content, file))
    drafted = fields.applied(given)
    return replace(drafted, description=drafted.description or f"{heading}.")


def _text(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"{file} is not UTF-8 at byte {error.start}.", mend="Save it as UTF-8.") from None


def edit(
    home: Home,
    name: str,
    change: Edit,
    fields: Fields,
    expect: int | None,
    reason: str,
    *,
    at: Snapshot | None = None,
) -> Edited:
    """Change a skill's steps by one operation, and its fields; `at` is the library as the caller has just seen it."""
    seen, author = at or home.skills.snapshot(), home.person(reason)
    before = home.skills.find(name, at=seen)
    written = home.skills.edit(name, change, author, fields=fields, expected_version=expect, at=seen)
    return _edited(before, written)


def edit_by_hand(home: Home, name: str, by_hand: ByHand, expect: int | None, reason: str) -> Edited:
    """Have a skill's main file changed in an editor; refused where somebody changed the skill meanwhile."""
    item, tree = home.skills.find(name), home.skills.tree(name)
    borrowed = _borrowed(home.skills, item, tree)
    path, content = editable(_with_body(item, tree, borrowed) if borrowed else tree)
    version = _version(item)
    done = Written(name=item.name, layer=item.layer, version=version, is_changed=False)
    with by_hand(content, f"{item.name}.md") as written:
        if written != content:
            changed = {**tree, path: file_of(written)}
            left = trees.parse(item.name, changed).skill
            if borrowed and left is not None and left.body == borrowed:
                _, written = editable(_with_body(item, changed, ""))
            expected = expect or version or None
            author = home.person(reason)
            done = home.skills.edit_file(name, path, written, author, expected_version=expected)
    return _edited(item, done)


def _borrowed(skills: Library, item: Listed, tree: Tree) -> str:
    """The text that a skill shows and has from the one it extends."""
    own = trees.parse(item.name, tree).skill
    is_borrowed = own is not None and own.manifest.extends and "body" not in own.stated
    return skills.text_above(item) if is_borrowed else ""


def _with_body(item: Listed, tree: Tree, body: str) -> Tree:
    skill = trees.parse(item.name, tree).skill
    return tree if skill is None else trees.with_skill(tree, replace(skill, body=body))


def editable(tree: Tree) -> tuple[str, bytes]:
    """The file with a skill's steps, as an editor shows it: its path and its content."""
    path = trees.main_file(tree) or "SKILL.md"
    return path, (tree[path].content if path in tree else b"") or b""


def _edited(before: Listed, done: Written) -> Edited:
    return Edited(before=before, name=done.name, layer=done.layer, version=done.version, undo=of_written(done))


def _version(item: Listed) -> int:
    return item.summary.version if item.summary is not None else 0


def switch(home: Home, names: Sequence[str], *, on: bool) -> Switching:
    """Switch skills on or off; an unknown one is said before anything is done."""
    items, author = [home.skills.find(name) for name in names], home.person()
    turned = [f"{item.name}@{item.layer}" for item in items if item.summary is None or item.summary.enabled != on]
    after = tuple(home.skills.set_enabled(f"{item.name}@{item.layer}", on, author) for item in items)
    return Switching(after=after, undo=("skills", "disable" if on else "enable", *turned) if turned else ())


def remove(home: Home, names: Sequence[str], reason: str) -> Removal:
    """Move skills to the archive; an unknown one is said before anything is done."""
    items, author = [home.skills.find(name) for name in names], home.person(reason)
    gone = tuple(_removed(home.skills, item, author) for item in items)
    return Removal(skills=gone, undo=gone[0].undo if len(gone) == 1 else of_change(author))


def _removed(skills: Library, item: Listed, author: Author) -> Removed:
    address = f"{item.name}@{item.layer}"
    skills.remove(address, author)
    entry = skills.newest_archived(address)
    return Removed(item=item, undo=("skills", "restore", f"{address}#{entry.id}"))


def identity(skills: Library) -> IdentityText:
    now = identity_skill(skills)
    return IdentityText(text=now.body, version=now.version)


def set_identity(home: Home, text: str) -> IdentityText:
    """Make this the text that says who the assistant is."""
    if not text.strip():
        raise Invalid("The identity can't be empty.", mend="Say in a sentence who the assistant is.")
    library, address = home.skills, f"{NAME}@{PROMPT}"
    before = identity_skill(library)
    author = home.person("changed who the assistant is")
    store = library.layer(PROMPT).store
    if store.load(NAME) is None:
        made = library.create(replace(before, body=text.strip()), author, layer=PROMPT)
        undo = of_version(address, made.version)
    else:
        undo = of_written(store.change(NAME, lambda old: replace(old, body=text.strip()), author))
    return replace(identity(home.skills), undo=undo)
