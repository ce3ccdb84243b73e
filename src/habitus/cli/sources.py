"""`habitus skills import | add | update | export`: skills from elsewhere, and to elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from habitus.cli import output
from habitus.cli.opening import opened
from habitus.errors import Invalid, NotFound
from habitus.files import tree_hash as hash_of

if TYPE_CHECKING:
    from habitus.app import Habitus
    from habitus.skills.formats.base import Entry, Outgoing
    from habitus.skills.importing import Result
    from habitus.skills.listing import Listed

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Take theirs where one here differs; history stays.")]
Trusted = Annotated[
    bool, typer.Option("--trust", help="You have read it: findings don't hold it, and what it asks for counts.")
]


def import_skills(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="A file, directory, archive, or database address.")],
    only: Annotated[list[str] | None, typer.Option("--skill", "-s", help="Only this skill; may be repeated.")] = None,
    layer: Annotated[str, typer.Option(help="The layer to import into.")] = "user",
    overwrite: Overwrite = False,
    trust: Trusted = False,
    as_json: AsJson = False,
) -> None:
    """Take in skills of any known layout; each ends imported, updated, unchanged, held or refused, with a reason."""
    from habitus.skills.formats import detect

    source = path if "://" in path else Path(path)
    with opened(context) as habitus:
        entries = _chosen(detect.read(source), only)
        results = _taken(habitus, entries, layer=layer, overwrite=overwrite, is_trusted=trust, is_quiet=as_json)
        _print_results(context, habitus, results, as_json, layer=layer)


def add(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="OWNER/REPO, a git address, an archive or a directory.")],
    only: Annotated[list[str] | None, typer.Option("--skill", "-s", help="Only this skill; may be repeated.")] = None,
    overwrite: Overwrite = False,
    trust: Trusted = False,
    as_json: AsJson = False,
) -> None:
    """Fetch skills, scan them, take them in, and lock where they came from and at which commit."""
    from habitus.skills.formats import detect

    with opened(context) as habitus, habitus.fetch(source) as fetched:
        origin = fetched.path.name
        entries = list(_chosen(detect.read(fetched.path, origin=origin), only))
        results = _taken(habitus, entries, layer="user", overwrite=overwrite, is_trusted=trust, is_quiet=as_json)
        _lock(habitus, results, entries, fetched.address, fetched.commit)
        _print_results(context, habitus, results, as_json)


def update(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Only these skills.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only show what would change; exit code 1 if any.")] = False,
    overwrite: Overwrite = False,
    trust: Trusted = False,
    as_json: AsJson = False,
) -> None:
    """Fetch added skills again, show what changed, and take it in; a local edit is never overwritten."""
    from habitus.skills import lock
    from habitus.skills.formats import detect
    from habitus.skills.formats.base import Incoming

    with opened(context) as habitus:
        locked = lock.read(habitus.lock_file)
        wanted = {name: locked[name] for name in names or locked if name in locked}
        for name in names or ():
            if name not in locked:
                raise NotFound(f"'{name}' was not added from anywhere.", mend=f"Added: {', '.join(locked) or 'none'}.")
        results: list[Result] = []
        changes: list[dict[str, str]] = []
        gone: list[str] = []
        for address in dict.fromkeys(entry.address for entry in wanted.values()):
            with habitus.fetch(address) as fetched:
                mine = {name for name, entry in wanted.items() if entry.address == address}
                found = list(detect.read(fetched.path, origin=fetched.path.name))
                entries = [entry for entry in found if isinstance(entry, Incoming) and entry.name in mine]
                gone += sorted(mine - {entry.name for entry in entries})
                moved = [entry for entry in entries if hash_of(entry.tree) != locked[entry.name].tree_hash]
                changes += [{"name": entry.name, "diff": diff} for entry in moved if (diff := _diff(habitus, entry))]
                if not check:
                    taken = _taken(
                        habitus, entries, layer="user", overwrite=overwrite, is_trusted=trust, is_quiet=as_json
                    )
                    _lock(habitus, taken, entries, fetched.address, fetched.commit)
                    results += taken
        for name in gone:
            output.complain(f"{name} is gone there; yours stays.")
        _print_update(context, habitus, changes, results, is_check=check, as_json=as_json)
        if check and changes:
            raise typer.Exit(1)


def _print_update(
    context: typer.Context,
    habitus: Habitus,
    changes: list[dict[str, str]],
    results: list[Result],
    *,
    is_check: bool,
    as_json: bool,
) -> None:
    if as_json:
        output.print_json({"changes": changes, "results": results})
        return
    for change in changes:
        output.say(change["diff"])
    if is_check:
        output.say(f"{output.counted(len(changes), 'skill')} would change." if changes else "Everything is up to date.")
    else:
        _print_results(context, habitus, results, as_json)


def export(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="A skill; or --all.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every skill that can be loaded.")] = False,
    format_name: Annotated[str, typer.Option("--format", help="skill, anton, istota, ghost or table.")] = "skill",
    to: Annotated[Path, typer.Option("--to", help="Where to write it.")] = Path(),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there; it is kept beside.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write skills in another system's layout, with their counters."""
    from habitus.skills.formats import carried, detect

    if (name is None) == (not everything):
        raise typer.BadParameter("Give one skill, or --all.")
    if to == Path():
        raise typer.BadParameter("Say where to write it.", param_hint="--to")
    form = detect.named(format_name)
    with opened(context) as habitus:
        skills = habitus.skills
        chosen = [skills.find(name)] if name else [item for item in skills.listing() if _is_own(item)]
        if not chosen or chosen[0].summary is None:
            raise Invalid("There is nothing to export.", mend="See 'habitus skills list'.")
        outgoing = [_outgoing(habitus, f"{item.name}@{item.layer}") for item in chosen]
        written = form.write(outgoing, to, overwrite=overwrite)
        lost = carried.lost(form, outgoing, to)
        if as_json:
            output.print_json({"written": written.paths, "left_out": written.left_out, "lost": lost})
            return
        for left in written.left_out:
            output.say(f"left out {left.name}: {left.reason}", style="yellow")
        for less in lost:
            output.say(f"{less.name} is not whole there: {less.reason}", style="yellow")
        output.say(f"Wrote {output.counted(len(chosen) - len(written.left_out), 'skill')} as '{form.name}' to {to}.")


def _is_own(item: Listed) -> bool:
    """What `--all` means: everything of the person's that can be loaded, without what came with Habitus."""
    return item.summary is not None and item.layer != "bundled" and item.state != "untrusted"


def _outgoing(habitus: Habitus, address: str) -> Outgoing:
    from habitus.skills.formats.base import Outgoing

    item = habitus.skills.find(address)
    skill = habitus.skills.layer(item.layer).store.load(item.name)
    if skill is None:
        raise Invalid(f"'{item.name}' can't be loaded.", mend="See 'habitus skills lint'.")
    return Outgoing(skill=skill, tree=habitus.skills.tree(address), counters=habitus.skills.counters(address))


def _chosen(entries: Iterable[Entry], only: list[str] | None) -> Iterator[Entry]:
    """The entries asked for by name; asking for one that is not there is an error at the end."""
    from habitus.skills import names
    from habitus.skills.formats.base import PlaybookLesson

    wanted = {names.canonical(name) for name in only or ()}
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
        raise NotFound(f"There is no skill '{missing[0]}' in it.", mend=f"There are: {shown or 'none'}.")


def _taken(
    habitus: Habitus,
    entries: Iterable[Entry],
    *,
    layer: str,
    overwrite: bool = False,
    is_trusted: bool = False,
    is_quiet: bool,
) -> list[Result]:
    author = habitus.person("imported")
    run = habitus.importer.run(entries, author, layer=layer, overwrite=overwrite, is_trusted=is_trusted)
    with _progress(is_quiet) as step:
        results = []
        for result in run:
            results.append(result)
            step(len(results))
    return results


@contextmanager
def _progress(is_quiet: bool) -> Iterator[Any]:
    """A counter on standard error while many are taken in."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed} skills"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("import", total=None)
        yield lambda count: bar.update(task, completed=count)


def _lock(habitus: Habitus, results: list[Result], entries: Iterable[Entry], address: str, commit: str) -> None:
    from habitus.skills import lock
    from habitus.skills.formats.base import Incoming
    from habitus.skills.importing import Verdict

    hashes = {entry.name: hash_of(entry.tree) for entry in entries if isinstance(entry, Incoming)}
    locked = lock.read(habitus.lock_file)
    for result in results:
        if result.verdict is Verdict.REFUSED or result.name not in hashes:
            continue
        entry = lock.Locked(
            address=address,
            commit=commit,
            origin=result.origin,
            tree_hash=hashes[result.name],
            added_on=habitus.clock().isoformat(timespec="seconds"),
        )
        earlier = locked.get(result.name)
        is_same = earlier is not None and replace(earlier, added_on=entry.added_on) == entry
        locked[result.name] = earlier if is_same and earlier is not None else entry
    lock.write(habitus.lock_file, locked)


def _diff(habitus: Habitus, entry: Any) -> str:
    from habitus.skills.diffing import diff_trees

    here = habitus.skills.layer("user").store.tree(entry.name) or {}
    return diff_trees(here, entry.tree, f"{entry.name} here", f"{entry.name} there")


def _print_result(result: Result) -> None:
    style = {"held": "yellow", "refused": "red", "unchanged": "dim"}.get(result.verdict.value, "green")
    output.say(f"{result.verdict.value:<9} {result.name}" + (f": {result.reason}" if result.reason else ""), style)
    for note in result.notes:
        output.say(f"          {note}", style="yellow")


def _summary(results: list[Result]) -> str:
    from habitus.skills.importing import Verdict

    counts = Counter(result.verdict for result in results)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])


def _print_results(
    context: typer.Context, habitus: Habitus, results: list[Result], as_json: bool, *, layer: str = "user"
) -> None:
    from habitus.skills.importing import Verdict

    if as_json:
        output.print_json({"results": results})
    else:
        for result in results:
            if result.reason or result.notes or len(results) <= 30:
                _print_result(result)
        output.say(_summary([result for result in results if result.kind == "skill"]) or "Nothing.")
        lessons = [result for result in results if result.kind == "lesson"]
        if lessons:
            output.say(f"{output.counted(len(lessons), 'lesson')}: {_summary(lessons)}; see 'habitus lessons list'.")
        changed = (Verdict.IMPORTED, Verdict.UPDATED)
        taken = [result.name for result in results if result.verdict in changed and result.kind == "skill"]
        for name in taken if len(taken) <= 50 else ():
            for finding in habitus.near_duplicates(name, habitus.skills.tree(name)):
                output.say(f"note      {name}: {finding}", style="yellow")
        if taken or any(result.verdict in changed for result in lessons):
            moment = habitus.opened_on.astimezone().isoformat(timespec="microseconds")
            if layer == "user":
                output.undo(context, "rollback", "--to", moment)
            else:
                output.undo(context, "skills", "remove", *(f"{name}@{layer}" for name in taken))
    if results and all(result.verdict is Verdict.REFUSED for result in results):
        raise typer.Exit(1)
