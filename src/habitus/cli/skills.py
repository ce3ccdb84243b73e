"""`habitus skills …`: list, read, write, switch, remove and bring back skills."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from habitus.cli import completion, moments, output
from habitus.cli.opening import opened
from habitus.errors import Invalid, StorageFailed, did_you_mean

if TYPE_CHECKING:
    from habitus.app import Habitus
    from habitus.skills.listing import Listed
    from habitus.skills.model import Skill

app = typer.Typer(help="List, read, write and undo skills. NAME may be 'name' or 'name@layer'.")

Name = Annotated[str, typer.Argument(help="A skill: name, or name@layer.", autocompletion=completion.skill_names)]
Names = Annotated[list[str], typer.Argument(help="Skills: name, or name@layer.", autocompletion=completion.skill_names)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the history.")]


@app.callback(invoke_without_command=True)
def explain(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        output.explain(context)


@app.command("list")
def list_skills(
    context: typer.Context,
    tag: Annotated[str | None, typer.Option(help="Only skills with this tag.")] = None,
    state: Annotated[str | None, typer.Option(help="Only: ok, disabled, gated, held, untrusted or broken.")] = None,
    layer: Annotated[str | None, typer.Option(help="Only skills of this layer.")] = None,
    as_json: AsJson = False,
) -> None:
    """Every skill with its state."""
    from habitus.skills.model import State

    if state is not None and state not in list(State):
        near = did_you_mean(state, list(State)) or f"Use one of {', '.join(State)}."
        raise typer.BadParameter(f"'{state}' is no state. {near}", param_hint="--state")
    with opened(context) as habitus:
        if layer is not None:
            habitus.skills.layer(layer)
        found = [
            item
            for item in (*habitus.skills.listing(), *_held(habitus))
            if (tag is None or (item.summary is not None and tag in item.summary.tags))
            and (state is None or item.state == state)
            and (layer is None or item.layer == layer)
        ]
        if as_json:
            output.print_json({"skills": [_as_json(habitus, item) for item in found]})
        else:
            _print_listing(found, is_filtered=any((tag, state, layer)))


def _held(habitus: Habitus) -> list[Listed]:
    """Skills that wait for a person before they are there at all."""
    from habitus.skills.listing import Listed
    from habitus.skills.model import State

    waiting = habitus.review.list(with_contents=False) if habitus.review.waiting_count() else []
    return [
        Listed(
            name=proposal.change.name,
            layer=proposal.change.layer,
            state=State.HELD,
            reason=f"{proposal.reasons[0]}; see 'habitus review show {proposal.id}'",
        )
        for proposal in waiting
        if proposal.change.action == "write" and not proposal.base_hash
    ]


def _as_json(habitus: Habitus, item: Listed) -> dict[str, Any]:
    """One skill of a listing, flat; the manifest is as the file states it."""
    from habitus.skills.model import PLAIN_MANIFEST

    result: dict[str, Any] = {
        "name": item.name,
        "state": item.state,
        "reason": item.reason,
        "layer": item.layer,
        "hidden": list(item.hidden),
        "inert": list(item.inert),
        "diagnostics": list(item.diagnostics),
    }
    if item.summary is not None:
        summary: dict[str, Any] = output.plain(item.summary)
        plain = output.plain(PLAIN_MANIFEST)
        own = habitus.skills.layer(item.layer).store.summary(item.name)
        effective = summary.pop("manifest")
        stated = effective if own is None else output.plain(own.manifest)
        manifest = {key: value for key, value in stated.items() if value != plain[key]}
        summary.pop("stated")
        result = {**summary, **result, "manifest": manifest}
    return result


def _print_listing(found: list[Listed], *, is_filtered: bool) -> None:
    if not found:
        output.say("No skill fits." if is_filtered else "There are no skills yet. Write one: habitus skills new NAME")
        return
    rows = [
        (
            item.name,
            item.state,
            item.layer,
            f"v{item.summary.version}" if item.summary else "",
            (item.reason if item.state != "ok" else "") or (item.summary.cue if item.summary else ""),
        )
        for item in found
    ]
    output.table(("name", "state", "layer", "version", "use it"), rows, wide="use it")


@app.command()
def show(
    context: typer.Context,
    name: Name,
    version: Annotated[int | None, typer.Option("--version", "-v", help="An earlier version.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print SKILL.md as it is stored.")] = False,
    as_json: AsJson = False,
) -> None:
    """One skill: its fields, its steps, its files and what is odd about them."""
    from habitus.skills import trees

    with opened(context) as habitus:
        library = habitus.skills
        item = library.find(name)
        if not as_json and (raw or version is not None or item.summary is None):
            _print_main_file(habitus, name, version, item)
            return
        if item.summary is None and version is None:
            output.print_json({**_as_json(habitus, item), "files": sorted(library.tree(name))})
            return
        if version is not None:
            tree = library.tree(name, version)
            skill = trees.parse(item.name, tree).skill
            output.print_json({"name": item.name, "version": version, "skill": skill, "files": sorted(tree)})
            return
        skill = library.load(name)
        files = sorted(library.tree(name))
        if as_json:
            output.print_json({**_as_json(habitus, item), "body": skill.body, "files": files})
        else:
            _print_skill(item, skill, files)


def _print_main_file(habitus: Habitus, name: str, version: int | None, item: Listed) -> None:
    from habitus.skills import trees

    tree = habitus.skills.tree(name, version)
    main = trees.main_file(tree)
    for diagnostic in item.diagnostics if version is None else ():
        output.complain(f"{diagnostic.severity}: {diagnostic}")
    if main is None or tree[main].content is None:
        raise Invalid(f"'{item.name}' has no SKILL.md that can be shown.", mend="See 'habitus skills lint'.")
    output.write((tree[main].content or b"").decode("utf-8", "replace"))


def _print_skill(item: Listed, skill: Skill, files: list[str]) -> None:
    facts = [
        ("name", f"{skill.name}@{item.layer}"),
        ("title", skill.title),
        ("state", f"{item.state}: {item.reason}" if item.reason else item.state.value),
        ("description", skill.description),
        ("use when", skill.when_to_use),
        ("tags", ", ".join(skill.tags)),
        ("triggers", ", ".join(skill.manifest.triggers)),
        ("source", skill.source.value),
        ("version", f"{skill.version} of {moments.shown(skill.modified_on)}"),
        ("stages", ", ".join(sorted(skill.stages))),
        ("files", ", ".join(files)),
        ("hides", ", ".join(f"{skill.name}@{layer}" for layer in item.hidden)),
        ("inert", f"{', '.join(item.inert)}: counts once you run 'habitus trust {skill.name}'" if item.inert else ""),
    ]
    width = max(len(label) for label, _ in facts)
    for label, value in facts:
        if value:
            output.say(f"{label:<{width}}  {value}")
    for diagnostic in item.diagnostics:
        output.say(f"{diagnostic.severity.value:<{width}}  {diagnostic}", style="yellow")
    output.say()
    if sys.stdout.isatty():
        from rich.markdown import Markdown

        output.console().print(Markdown(output.clean(skill.body)))
    else:
        output.say(skill.body)


_SKELETON = """# {title}

1. Say what to look at first, and how to tell that this skill fits.
2. Give the steps in order, with the decisions in them: if …, do …; else ….
3. Say how to check the result, and what to do when the check fails.
"""


@app.command()
def new(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name: lower-case letters, digits and hyphens.")],
    description: Annotated[str, typer.Option("--description", "-d", help="One sentence: what it does.")] = "",
    when: Annotated[str, typer.Option("--when", "-w", help="One sentence: when to use it.")] = "",
    title: Annotated[str, typer.Option(help="A title for people.")] = "",
    tags: Annotated[str, typer.Option(help="Tags, separated by commas.")] = "",
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="Markdown with the steps ('-' reads standard input).")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Write it to this layer instead of your own.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a new skill; without --file, a skeleton to fill in."""
    from habitus.skills import names

    name = names.checked(name)
    with opened(context) as habitus:
        skill = _drafted(name, file, description=description, when=when, title=title, tags=_split(tags))
        made = habitus.skills.create(skill, habitus.person("new"), layer=layer)
        if as_json:
            output.print_json({"name": made.name, "version": made.version, "layer": made.layer})
            return
        directory = None if habitus.settings.database_url else habitus.skills.directory(f"{made.name}@{made.layer}")
        output.say(f"Wrote {made.name} (version {made.version}){f': {directory}/SKILL.md' if directory else ''}")
        if file is None:
            output.say(f"Fill in the steps: {output.command(context, 'skills', 'edit', made.name)}")
        output.undo(context, "skills", "remove", f"{made.name}@{made.layer}")


def _drafted(name: str, file: str | None, *, description: str, when: str, title: str, tags: tuple[str, ...]) -> Skill:
    """The new skill; fields given as options win over those that the file states itself."""
    from dataclasses import replace

    from habitus.skills.formats import skill_md
    from habitus.skills.model import Skill

    heading = title or name.replace("-", " ").capitalize()
    given = Skill(name=name, body=_SKELETON.format(title=heading))
    if file is not None:
        content = _read(file)
        parsed = skill_md.parse(name, content, file=file)
        if parsed.skill is not None:
            given = parsed.skill
        elif content.lstrip(b"\xef\xbb\xbf").startswith(b"---"):
            raise Invalid(str(parsed.diagnostics[-1]), mend="")
        else:
            given = replace(given, body=_text(content, file))
    return replace(
        given,
        title=title or given.title,
        description=description or given.description or f"{heading}.",
        when_to_use=when or given.when_to_use,
        tags=tags or given.tags,
    )


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise StorageFailed(f"Can't read {file}: {error.strerror}.", mend="Check the path.") from None


def _text(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"{file} is not UTF-8 at byte {error.start}.", mend="Save it as UTF-8.") from None


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@app.command()
def edit(
    context: typer.Context,
    name: Name,
    append: Annotated[str | None, typer.Option(help="Put this text after the steps.")] = None,
    prepend: Annotated[str | None, typer.Option(help="Put this text before the steps.")] = None,
    replace_body: Annotated[str | None, typer.Option("--replace", help="Make this text the steps.")] = None,
    find: Annotated[str | None, typer.Option(help="Exact text to find; needs --with.")] = None,
    with_text: Annotated[str | None, typer.Option("--with", help="What to put in its place.")] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="With --find: every occurrence.")] = False,
    delete: Annotated[str | None, typer.Option(help="Exact text to take out once.")] = None,
    title: Annotated[str | None, typer.Option(help="A new title.")] = None,
    description: Annotated[str | None, typer.Option("--description", "-d", help="A new description.")] = None,
    when: Annotated[str | None, typer.Option("--when", "-w", help="A new cue for when to use it.")] = None,
    tags: Annotated[str | None, typer.Option(help="New tags, separated by commas; they replace the old.")] = None,
    expect: Annotated[int | None, typer.Option(help="Refuse unless the skill is at this version.")] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Edit a skill: one operation by option, or the whole file in your editor. '-' as a text reads standard input."""
    from habitus.skills.library import Fields

    change = _operation(append, prepend, replace_body, find, with_text, everywhere, delete)
    fields = Fields(title=title, description=description, when_to_use=when, tags=None if tags is None else _split(tags))
    with opened(context) as habitus:
        before = habitus.skills.find(name)
        if change.operation is None and fields == Fields():
            version = _edit_in_editor(habitus, name, expect, reason)
        else:
            author = habitus.person(reason)
            version = habitus.skills.edit(name, change, author, fields=fields, expected_version=expect).version
        _report_edit(context, habitus, name, before, version, as_json)


def _report_edit(
    context: typer.Context, habitus: Habitus, name: str, before: Listed, version: int, as_json: bool
) -> None:
    after = habitus.skills.find(name)
    old = before.summary.version if before.summary is not None else 0
    is_override = after.layer != before.layer
    if as_json:
        output.print_json({"name": after.name, "layer": after.layer, "version": version})
    elif not is_override and version == old:
        output.say(f"{after.name} is unchanged (version {version}).")
    elif is_override:
        output.say(f"Wrote {after.name}@{after.layer}, which now stands in front of {before.name}@{before.layer}.")
        output.undo(context, "skills", "remove", f"{after.name}@{after.layer}")
    else:
        output.say(f"{after.name} is now at version {version}.")
        output.undo(context, "skills", "rollback", name, "--to", str(old))


def _operation(
    append: str | None,
    prepend: str | None,
    replace_body: str | None,
    find: str | None,
    with_text: str | None,
    everywhere: bool,
    delete: str | None,
) -> Any:
    from habitus.skills.edits import Edit, Operation

    texts = {
        Operation.APPEND: append,
        Operation.PREPEND: prepend,
        Operation.REPLACE: replace_body,
        Operation.FIND_REPLACE: find,
        Operation.DELETE: delete,
    }
    given = {operation: text for operation, text in texts.items() if text is not None}
    if len(given) > 1:
        names = " and ".join(f"--{str(name).split('_', maxsplit=1)[0]}" for name in given)
        raise typer.BadParameter(f"{names} can't be done in one go; give one, then the other.")
    if with_text is not None and find is None:
        raise typer.BadParameter("--with needs --find with the text to look for.")
    if find is not None and with_text is None:
        raise typer.BadParameter("--find needs --with and the text to put in its place.")
    if everywhere and find is None:
        raise typer.BadParameter("--all needs --find with the text to look for.")
    if not given:
        return Edit()
    operation, text = next(iter(given.items()))
    text = _text(_read("-"), "standard input") if text == "-" else text
    if with_text == "-" and find != "-":
        with_text = _text(_read("-"), "standard input")
    if operation is Operation.FIND_REPLACE:
        return Edit(operation=operation, find=text, replace=with_text, replace_all=everywhere)
    return Edit(operation=operation, content=text)


def _edit_in_editor(habitus: Habitus, name: str, expect: int | None, reason: str) -> int:
    """Open SKILL.md in the person's editor and save what they made of it."""
    from habitus.cli.editor import edited
    from habitus.skills import trees

    library = habitus.skills
    item = library.find(name)
    tree = library.tree(name)
    main = trees.main_file(tree) or "SKILL.md"
    before = (tree[main].content if main in tree else b"") or b""
    version = item.summary.version if item.summary else None
    instead = "say what to change, for example --append TEXT"
    with edited(habitus.settings.editor, before, f"{item.name}.md", instead=instead) as after:
        if after != before:
            author = habitus.person(reason)
            version = library.edit_file(name, main, after, author, expected_version=expect or version)
    return version or 0


@app.command()
def enable(context: typer.Context, names: Names, as_json: AsJson = False) -> None:
    """Switch skills on."""
    _switch(context, names, True, as_json)


@app.command()
def disable(context: typer.Context, names: Names, as_json: AsJson = False) -> None:
    """Switch skills off: they stay, and no prompt sees them."""
    _switch(context, names, False, as_json)


def _switch(context: typer.Context, names: list[str], enabled: bool, as_json: bool) -> None:
    with opened(context) as habitus:
        items = [habitus.skills.find(name) for name in names]
        after = [habitus.skills.set_enabled(f"{i.name}@{i.layer}", enabled, habitus.person()) for i in items]
        if as_json:
            output.print_json({"skills": [{"name": item.name, "enabled": enabled} for item in after]})
            return
        for item in after:
            output.say(f"{item.name} is switched {'on' if enabled else 'off'}.")
            if enabled and item.state != "ok":
                output.say(f"It is still {item.state}: {item.reason}", style="yellow")
        output.undo(context, "skills", "disable" if enabled else "enable", *names)


@app.command()
def remove(context: typer.Context, names: Names, reason: Reason = "", as_json: AsJson = False) -> None:
    """Move skills to the archive, from which 'restore' brings them back."""
    with opened(context) as habitus:
        items = [habitus.skills.find(name) for name in names]
        for item in items:
            habitus.skills.remove(f"{item.name}@{item.layer}", habitus.person(reason))
        if as_json:
            output.print_json({"removed": [{"name": item.name, "layer": item.layer} for item in items]})
            return
        for item in items:
            output.say(f"Moved {item.name}@{item.layer} to the archive.")
            if item.hidden:
                output.say(f"{item.name}@{item.hidden[-1]} is in view again.")
            output.undo(context, "skills", "restore", f"{item.name}@{item.layer}")


@app.command()
def restore(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="name, name@layer, or #ID from the list.")] = None,
    new_name: Annotated[str | None, typer.Option("--as", help="Bring it back under this name.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show what can be brought back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring back a skill from the archive."""
    with opened(context) as habitus:
        if show_list or name is None:
            archived = habitus.skills.archived()
            if as_json:
                output.print_json({"archived": archived})
            elif not archived:
                output.say("The archive is empty.")
            else:
                rows = [
                    (f"#{a.id}", a.name, a.layer, f"v{a.version}", moments.shown(a.archived_on), _who(a.author))
                    for a in archived
                ]
                output.table(("id", "name", "layer", "version", "archived", "by"), rows, wide="by")
            return
        restored, layer = habitus.skills.restore(name, habitus.person("restored"), new_name=new_name)
        if as_json:
            output.print_json({"name": restored, "layer": layer})
            return
        output.say(f"{restored}@{layer} is back.")
        output.undo(context, "skills", "remove", f"{restored}@{layer}")


def _who(author: Any) -> str:
    who = f"{author.actor.value} {author.name}".strip() if author.actor != "disk" else "disk"
    return f"{who}: {author.reason}" if author.reason else who


@app.command()
def history(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Every version: who made it, when and why."""
    with opened(context) as habitus:
        item = habitus.skills.find(name)
        versions = habitus.skills.history(name)
        if as_json:
            output.print_json({"name": item.name, "layer": item.layer, "versions": versions})
            return
        rows = [(f"v{v.number}", moments.shown(v.made_on), _who(v.author), len(v.paths)) for v in reversed(versions)]
        output.table(("version", "made", "by", "files"), rows, wide="by")


@app.command()
def diff(
    context: typer.Context,
    name: Name,
    a: Annotated[int | None, typer.Argument(help="A version; the one before B by default.")] = None,
    b: Annotated[int | None, typer.Argument(help="Another; the newest by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """What changed between two versions: the last two by default."""
    with opened(context) as habitus:
        if a is None and b is None and len(habitus.skills.history(name)) == 1 and not as_json:
            output.say("There is only version 1.")
            return
        text = habitus.skills.diff(name, a, b)
        if as_json:
            output.print_json({"name": habitus.skills.find(name).name, "diff": text})
        elif not text:
            output.say("There is no difference.")
        elif sys.stdout.isatty():
            from rich.syntax import Syntax

            output.console().print(Syntax(output.clean(text), "diff", background_color="default"))
        else:
            output.write(text)


@app.command()
def rollback(
    context: typer.Context,
    name: Name,
    to: Annotated[int, typer.Option("--to", help="The version to return to.")],
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Make an earlier version the current one, as a new version."""
    with opened(context) as habitus:
        before = habitus.skills.find(name)
        author = habitus.person(reason or f"back to version {to}")
        version = habitus.skills.rollback(name, to, author)
        if as_json:
            output.print_json({"name": before.name, "layer": before.layer, "version": version})
            return
        output.say(f"{before.name} is back to version {to}, as version {version}.")
        if before.summary is not None:
            output.undo(context, "skills", "rollback", name, "--to", str(before.summary.version))


@app.command()
def lint(
    context: typer.Context,
    targets: Annotated[
        list[str] | None, typer.Argument(help="Skills or directories; everything you can write by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What is wrong or odd with skills, one by one and as a set, each with its mend. Exit code 1 for broken ones."""
    from habitus.skills.model import Severity

    with opened(context) as habitus:
        reports = [report for target in targets or [""] for report in _linted(habitus, target)]
        together = [] if targets else _linted_set(habitus)
        problems = sum(d.severity is Severity.ERROR for _, found in reports for d in found)
        if as_json:
            skills = [{"name": name, "diagnostics": found} for name, found in reports]
            output.print_json({"skills": skills, "set": together})
        else:
            for name, found in reports:
                for diagnostic in found:
                    style = "red" if diagnostic.severity is Severity.ERROR else "yellow"
                    output.say(f"{diagnostic.severity.value}: {name}: {diagnostic.what} {diagnostic.mend}", style=style)
            for finding in together:
                output.say(f"{finding.severity.value}: {finding.what} {finding.mend}", style="yellow")
            odd = sum(bool(found) for _, found in reports)
            output.say(f"{len(reports)} skills looked at, {odd} with something to say, {problems} can't be loaded.")
        if problems:
            raise typer.Exit(1)


def _linted_set(habitus: Habitus) -> list[Any]:
    """What is to say about all skills together: duplicates, rivals, greedy cues, the menu's budget."""
    from habitus.skills import lint, menu

    finder = habitus.finder
    return list(
        lint.check(
            habitus.skills.listing(),
            budget=menu.budget_for(habitus.settings.context_tokens),
            search=lambda cue: finder.search(cue, k=5),
            similar=lambda name: finder.similar(name, k=3),
            progress=lambda done: None,
        )
    )


def _linted(habitus: Habitus, target: str) -> list[tuple[str, tuple[Any, ...]]]:
    if not target:
        own = {layer.name for layer in habitus.skills.layers if layer.can_write}
        return [(i.name, i.diagnostics) for i in habitus.skills.listing() if i.layer in own]
    if "/" in target or os.path.isdir(target):  # noqa: PTH112  # Path.is_dir raises on a name that is too long
        return _linted_directory(Path(target))
    item = habitus.skills.find(target)
    return [(item.name, item.diagnostics)]


def _linted_directory(path: Path) -> list[tuple[str, tuple[Any, ...]]]:
    """A skill directory, or a directory of them, outside the library."""
    from habitus.skills import trees
    from habitus.skills.stores.files import DirectoryShelf

    path = path.resolve()
    if not os.path.isdir(path):  # noqa: PTH112  # see above
        raise Invalid(f"{path} is no directory.", mend="Give a skill, or a directory that holds skills.")
    is_one = any((path / main).exists() for main in trees.MAIN_FILES)
    shelf = DirectoryShelf(path.parent if is_one else path, path, can_write=False)
    reports = []
    for folder in [path.name] if is_one else shelf.look({}):
        found = shelf.read(folder)
        if found is not None:
            problem = (found.problem,) if found.problem else trees.parse(folder, found.tree).diagnostics
            reports.append((folder, problem))
    return reports


@app.command()
def stats(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="One skill.", autocompletion=completion.skill_names)] = None,
    as_json: AsJson = False,
) -> None:
    """How often skills were recommended and used, and how that went, per stage."""
    from habitus.skills.lifecycle import reliability

    with opened(context) as habitus:
        if name is not None:
            item = habitus.skills.find(name)
            found = {(item.layer, item.name): habitus.skills.counters(name)}
        else:
            found = habitus.skills.all_counters()
        rows = [
            {
                "name": skill,
                "layer": layer,
                "stage": stage.value,
                **output.plain(counters),
                "reliability": round(reliability(counters), 3),
            }
            for (layer, skill), stages in sorted(found.items())
            for stage, counters in stages.items()
        ]
        if as_json:
            output.print_json({"stats": rows})
        elif not rows:
            output.say("Nothing has been counted yet.")
        else:
            columns = ("name", "layer", "stage", "recommended", "used", "succeeded", "failed", "reliability")
            output.table(columns, [[row[column] for column in columns] for row in rows], wide="name")
