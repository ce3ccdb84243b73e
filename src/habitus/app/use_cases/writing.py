"""Changing skills: create, edit, enable, disable, remove, restore, and roll back to an earlier version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, make_dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library.undoing import build_change_undo_command, build_version_undo_command, build_write_undo_command
from habitus.app.use_cases.declaration import (
    MAX_TEXT_CHARS,
    ExpectedVersion,
    Reason,
    SkillName,
    argument,
    option,
    parse_expected_version,
    text_option,
    use_case,
)
from habitus.app.use_cases.skills import MAX_VERSION
from habitus.errors import Invalid, InvalidOptions, NotFound, Refused, Stale
from habitus.files import Tree, build_tree_file
from habitus.skills import names, trees
from habitus.skills.editable_fields import EDITABLE_FIELDS, FieldChanges
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.formats import skill_md
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library
from habitus.skills.model import Author, Skill, SkillState
from habitus.skills.stores.base import SkillWriteResult

_NEW_NAME = "The name: lower-case letters, digits and hyphens; over REST, without it, made from the title."
# Takes content and a file name, and yields the text that the person wrote.
OpenEditor = Callable[[bytes, str], AbstractContextManager[bytes]]
_TEMPLATES = Path(__file__).with_name("templates")


if TYPE_CHECKING:

    class SkillFieldOptions:
        """The editable fields of a skill as options, each None if it stays unchanged."""

else:
    # Generated from the list of editable fields, so a new field gets its option by itself.
    SkillFieldOptions = make_dataclass(
        "SkillFieldOptions",
        [
            (
                each.name,
                Annotated[tuple[str, ...] | None if each.is_list else str | None, option(each.help, *each.options)],
                None,
            )
            for each in EDITABLE_FIELDS
        ],
        frozen=True,
        kw_only=True,
    )


@dataclass(frozen=True, kw_only=True)
class CreateSkillRequest(SkillFieldOptions):
    name: Annotated[str, argument(_NEW_NAME, rest_default="")]
    body: Annotated[
        str | None,
        text_option(
            "Markdown with the steps, on the command line in a file ('-' is standard input); without it, a skeleton.",
            "--file",
            "-f",
        ),
    ] = None
    layer: Annotated[str | None, option("Write it to this layer instead of your own.")] = None
    cli: Annotated[bool, option("Add a runnable command line, scripts/cli.py.")] = False


@dataclass(frozen=True, kw_only=True)
class CreateSkillResult:
    """A created skill."""

    name: str
    version: int
    layer: str
    # The directory with its files; None in a shared database.
    directory: Path | None
    undo: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ChangeSkillResult:
    """A skill after a change; `undo` is empty if nothing was changed."""

    name: str
    layer: str
    version: int
    # The read-only layer whose copy it now overrides.
    hides: str | None = None
    undo: tuple[str, ...] = ()


def _get_etag_version(done: CreateSkillResult | ChangeSkillResult) -> tuple[int, str]:
    return done.version, done.layer


def _find_skill_created_since(home: Home, since: datetime, request: CreateSkillRequest) -> CreateSkillResult | None:
    """Return the skill of this name if this user created it since then."""
    name = request.name or names.slugify(str(FieldChanges.from_object(request).values.get("title") or ""))
    with suppress(NotFound):
        item, person = home.skills.find(f"{name}@{request.layer}" if request.layer else name), home.build_author()
        history = home.skills.list_versions(f"{item.name}@{item.layer}")
        # Only versions by the same person: a skill that someone else created meanwhile is a conflict, not this
        # request's result.
        own = [one.number for one in history if one.made_on >= since and one.author.name == person.name]
        return _build_create_result(home, item.name, item.layer, own[0]) if own else None
    return None


@use_case(
    "skills new",
    route="POST /skills",
    access=Access.ADMIN,
    example={"name": "tidy-inbox", "description": "Sorts mail", "when_to_use": "When mail piles up"},
    status=201,
    location="/skills/{name}",
    accepts_idempotency_key=True,
    recover_result=_find_skill_created_since,
    get_version=_get_etag_version,
)
def create_skill(home: Home, request: CreateSkillRequest) -> CreateSkillResult:
    """Create a skill; without steps, a skeleton to fill in."""
    skill = _build_skill_from_request(
        request if request.name else replace(request, name=_derive_skill_name(home.skills, request))
    )
    files = {trees.CLI_CODE: build_tree_file((_TEMPLATES / "cli.py.txt").read_bytes())} if request.cli else None
    if request.cli:
        skill = replace(skill, manifest=replace(skill.manifest, cli=True))
    try:
        made = home.skills.create(skill, home.build_author("new"), layer=request.layer, files=files)
    except Stale as error:
        raise Refused(error.message, hint="Choose another name, or edit the one that is there.") from None
    return _build_create_result(home, made.name, made.layer, made.version)


def _derive_skill_name(skills: Library, request: CreateSkillRequest) -> str:
    title = FieldChanges.from_object(request).values.get("title")
    if not title:
        raise Invalid("'name' is missing.", hint="Send a 'name', or a 'title' that it is made from.")
    return names.make_unique_name(names.slugify(str(title)), skills.is_name_taken)


def _build_create_result(home: Home, name: str, layer: str, version: int) -> CreateSkillResult:
    address = f"{name}@{layer}"
    directory = None if home.settings.database else home.skills.find_directory(address)
    return CreateSkillResult(
        name=name, version=version, layer=layer, directory=directory, undo=build_version_undo_command(address, version)
    )


def _build_skill_from_request(request: CreateSkillRequest) -> Skill:
    """Build the skill; options win over fields that the text states itself."""
    fields, name = FieldChanges.from_object(request), names.canonicalize_and_check_name(request.name)
    heading = fields.values.get("title") or name.replace("-", " ").capitalize()
    skeleton = (_TEMPLATES / ("skill_with_cli.md" if request.cli else "skill.md")).read_text("utf-8")
    given = Skill(name=name, body=skeleton.format(title=heading, name=name))
    if request.body is not None:
        parsed = skill_md.parse_skill_md_with_diagnostics(name, request.body.encode("utf-8", "replace"))
        if parsed.skill is not None:
            given = parsed.skill
        elif request.body.startswith("---"):
            raise Invalid(str(parsed.diagnostics[-1]), hint="")
        else:
            given = replace(given, body=request.body)
    drafted = fields.apply_to(given)
    has_description = drafted.description or "description" in fields.values
    return drafted if has_description else replace(drafted, description=f"{heading}.")


@dataclass(frozen=True, kw_only=True)
class EditSkillRequest(SkillFieldOptions):
    name: SkillName
    append: Annotated[str | None, option("Append this text to the steps.", longest=MAX_TEXT_CHARS)] = None
    prepend: Annotated[str | None, option("Prepend this text to the steps.", longest=MAX_TEXT_CHARS)] = None
    body: Annotated[str | None, option("Replace the steps with this text.", "--replace", longest=MAX_TEXT_CHARS)] = None
    find: Annotated[str | None, option("Exact text to find; needs --with.", longest=MAX_TEXT_CHARS)] = None
    replacement: Annotated[str | None, option("The replacement text.", "--with", longest=MAX_TEXT_CHARS)] = None
    everywhere: Annotated[bool, option("With --find: every occurrence.", "--all")] = False
    delete: Annotated[str | None, option("Exact text to delete once.", longest=MAX_TEXT_CHARS)] = None
    expect: ExpectedVersion = None
    reason: Reason = ""


@use_case(
    "skills edit",
    route="PATCH /skills/{name}",
    access=Access.ADMIN,
    example={"name": "tidy-inbox", "append": "4. Archive what is done."},
    get_version=_get_etag_version,
)
def edit_skill(home: Home, request: EditSkillRequest) -> ChangeSkillResult:
    """Change a skill's steps by one operation, and its fields.

    On the command line, '-' as a text reads standard input, and without any change the whole file opens in your editor.
    """
    change, seen, author = _build_text_edit(request), home.skills.snapshot(), home.build_author(request.reason)
    before = home.skills.find(request.name, at=seen)
    expected = parse_expected_version(request.expect, before.layer)
    fields = FieldChanges.from_object(request)
    done = home.skills.edit(request.name, change, author, fields=fields, expected_version=expected, at=seen)
    return _build_change_result(before, done)


def _build_text_edit(request: EditSkillRequest) -> TextEdit:
    """Build the edit. Raises `InvalidOptions` if the options ask for several operations, or for half of one."""
    texts = {
        EditOperation.APPEND: request.append,
        EditOperation.PREPEND: request.prepend,
        EditOperation.REPLACE: request.body,
        EditOperation.FIND_REPLACE: request.find,
        EditOperation.DELETE: request.delete,
    }
    given = {operation: text for operation, text in texts.items() if text is not None}
    if len(given) > 1:
        found = " and ".join(f"--{str(name).split('_', maxsplit=1)[0]}" for name in given)
        raise InvalidOptions(f"{found} can't be done in one go; give one, then the other.")
    if request.find is None and (request.everywhere or request.replacement is not None):
        raise InvalidOptions(f"{'--all' if request.everywhere else '--with'} needs --find with the text to look for.")
    if request.find is not None and request.replacement is None:
        raise InvalidOptions("--find needs --with and the text to put in its place.")
    for operation, text in given.items():
        if operation is EditOperation.FIND_REPLACE:
            return TextEdit(operation=operation, find=text, replace=request.replacement, replace_all=request.everywhere)
        return TextEdit(operation=operation, content=text)
    return TextEdit()


def _build_change_result(before: ListedSkill, done: SkillWriteResult) -> ChangeSkillResult:
    hides = before.layer if done.layer != before.layer else None
    return ChangeSkillResult(
        name=done.name, layer=done.layer, version=done.version, hides=hides, undo=build_write_undo_command(done)
    )


def edit_skill_in_editor(home: Home, request: EditSkillRequest, open_editor: OpenEditor) -> ChangeSkillResult:
    """Open a skill's main file in an editor and save the result; refused if the skill was changed meanwhile."""
    item, tree = home.skills.find(request.name), home.skills.read_tree(request.name)
    borrowed = _get_inherited_body(home.skills, item, tree)
    path, content = get_main_file_path_and_content(
        _replace_body_in_skill_tree(item, tree, borrowed) if borrowed else tree
    )
    version = item.summary.version if item.summary is not None else 0
    done = SkillWriteResult(name=item.name, layer=item.layer, version=version, is_changed=False)
    with open_editor(content, f"{item.name}.md") as written:
        if written != content:
            changed = {**tree, path: build_tree_file(written)}
            left = trees.parse_skill_tree(item.name, changed).skill
            # An inherited body that was left alone stays inherited instead of being copied into the skill.
            if borrowed and left is not None and left.body == borrowed:
                _, written = get_main_file_path_and_content(_replace_body_in_skill_tree(item, changed, ""))
            expected = parse_expected_version(request.expect, item.layer) or version or None
            author = home.build_author(request.reason)
            done = home.skills.edit_file(request.name, path, written, author, expected_version=expected)
    return _build_change_result(item, done)


def _get_inherited_body(skills: Library, item: ListedSkill, tree: Tree) -> str:
    """Return the body that a skill inherits from the one it extends; empty if it has its own."""
    own = trees.parse_skill_tree(item.name, tree).skill
    is_borrowed = own is not None and own.manifest.extends and "body" not in own.stated
    return skills.read_merged_text(item) if is_borrowed else ""


def _replace_body_in_skill_tree(item: ListedSkill, tree: Tree, body: str) -> Tree:
    skill = trees.parse_skill_tree(item.name, tree).skill
    return tree if skill is None else trees.update_main_file(tree, replace(skill, body=body))


def get_main_file_path_and_content(tree: Tree) -> tuple[str, bytes]:
    """Return path and content of the file with a skill's steps."""
    path = trees.find_main_file(tree) or "SKILL.md"
    return path, (tree[path].content if path in tree else b"") or b""


@dataclass(frozen=True, kw_only=True)
class EnabledOrDisabledSkillStatus:
    """The state of a skill after it was enabled or disabled."""

    name: str
    layer: str
    enabled: bool
    # An enabled skill may still be out of view, for another reason.
    state: SkillState
    reason: str


@dataclass(frozen=True, kw_only=True)
class EnableOrDisableSkillsResult:
    """The skills that were enabled or disabled; `undo` is empty if none of them changed."""

    skills: Sequence[EnabledOrDisabledSkillStatus]
    undo: tuple[str, ...]


@use_case(
    "skills enable",
    route="POST /skills/{names}/enable",
    access=Access.ADMIN,
    example={"names": ("tidy-inbox",)},
    undo="skills disable",
)
def enable_skills(
    home: Home, names: Annotated[tuple[str, ...], argument("Skills: name, or name@layer.", completes="skills")]
) -> EnableOrDisableSkillsResult:
    """Enable skills."""
    return enable_or_disable_skills(home, names, on=True)


@use_case(
    "skills disable",
    route="POST /skills/{names}/disable",
    access=Access.ADMIN,
    example={"names": ("tidy-inbox",)},
    undo="skills enable",
)
def disable_skills(
    home: Home, names: Annotated[tuple[str, ...], argument("Skills: name, or name@layer.", completes="skills")]
) -> EnableOrDisableSkillsResult:
    """Disable skills: they stay, but no prompt sees them."""
    return enable_or_disable_skills(home, names, on=False)


def enable_or_disable_skills(home: Home, names: Sequence[str], *, on: bool) -> EnableOrDisableSkillsResult:
    """Enable or disable skills; an unknown name fails before anything is changed."""
    items, author = [home.skills.find(name) for name in names], home.build_author()
    turned = [f"{item.name}@{item.layer}" for item in items if item.summary is None or item.summary.enabled != on]
    # All names were found above, so an unknown one has changed nothing.
    after = [home.skills.set_enabled(f"{item.name}@{item.layer}", on, author) for item in items]
    return EnableOrDisableSkillsResult(
        skills=[
            EnabledOrDisabledSkillStatus(
                name=item.name, layer=item.layer, enabled=on, state=item.state, reason=item.reason
            )
            for item in after
        ],
        undo=("skills", "disable" if on else "enable", *turned) if turned else (),
    )


@dataclass(frozen=True, kw_only=True)
class RemovedSkillDetails:
    """An archived skill, and the command that restores exactly this one."""

    name: str
    layer: str
    # The layer whose copy is visible again.
    uncovers: str | None
    undo: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RemoveSkillsResult:
    """The skills of one removal, and the command that restores all of them."""

    skills: Sequence[RemovedSkillDetails]
    undo: tuple[str, ...]


@use_case(
    "skills remove",
    route="DELETE /skills/{names}",
    access=Access.ADMIN,
    example={"names": ("tidy-inbox",), "reason": "two skills said the same"},
    undo="skills restore",
)
def remove_skills(
    home: Home,
    names: Annotated[tuple[str, ...], argument("Skills: name, or name@layer.", completes="skills")],
    reason: Reason = "",
) -> RemoveSkillsResult:
    """Move skills to the archive, from which 'restore' brings them back."""
    items, author = [home.skills.find(name) for name in names], home.build_author(reason)
    gone = [_archive_skill(home.skills, item, author) for item in items]
    return RemoveSkillsResult(skills=gone, undo=gone[0].undo if len(gone) == 1 else build_change_undo_command(author))


def _archive_skill(skills: Library, item: ListedSkill, author: Author) -> RemovedSkillDetails:
    address = f"{item.name}@{item.layer}"
    skills.remove(address, author)
    undo = ("skills", "restore", f"{address}#{skills.find_archived(address).id}")
    uncovers = item.hidden[-1] if item.hidden else None
    return RemovedSkillDetails(name=item.name, layer=item.layer, uncovers=uncovers, undo=undo)


@dataclass(frozen=True, kw_only=True)
class RestoreSkillResult:
    name: str
    layer: str
    undo: tuple[str, ...]


@use_case(
    "skills restore",
    route="POST /archive/{name}/restore",
    access=Access.ADMIN,
    example={"name": "tidy-inbox"},
    undo="skills remove",
)
def restore_skill(
    home: Home,
    name: Annotated[str | None, argument("name, name@layer, or #ID from the list.")] = None,
    new_name: Annotated[str | None, option("Restore it under this name.", "--as")] = None,
) -> RestoreSkillResult:
    """Restore a skill from the archive."""
    if name is None:
        raise InvalidOptions("Name a skill.", hint="'habitus skills restore --list' shows them.")
    wanted = None if new_name is None else names.canonicalize_and_check_name(new_name)
    found, layer = home.skills.restore(name, home.build_author("restored"), new_name=wanted)
    return RestoreSkillResult(name=found, layer=layer, undo=("skills", "remove", f"{found}@{layer}"))


@use_case(
    "skills rollback",
    route="POST /skills/{name}/rollback",
    access=Access.ADMIN,
    example={"name": "csv-summary", "to": 2},
)
def rollback_skill(
    home: Home,
    name: SkillName,
    to: Annotated[int, option("The version to roll back to.", least=1, most=MAX_VERSION)],
    reason: Reason = "",
) -> ChangeSkillResult:
    """Make an earlier version the current one, as a new version."""
    author = home.build_author(reason or f"back to version {to}")
    done = home.skills.rollback(name, to, author)
    return ChangeSkillResult(
        name=done.name, layer=done.layer, version=done.version, undo=build_write_undo_command(done)
    )
