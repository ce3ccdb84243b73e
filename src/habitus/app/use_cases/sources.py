"""Exchanging skills: import, add, update, export and publish them; and scan or lint them first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import publishing, updating, uploading
from habitus.app.library.publishing import Site
from habitus.app.library.updating import Exported, ImportOptions, Progress, TakenIn, Updated
from habitus.app.library.uploading import Looked
from habitus.app.operating import checking
from habitus.app.operating.checking import LintReport
from habitus.app.tasks.storing import examination_to_share
from habitus.app.use_cases.declaration import argument, option, use_case
from habitus.errors import Misused
from habitus.files import Tree, given_path
from habitus.skills.formats.detect import FORMATS
from habitus.skills.sources.discovery import Reach

_OVERWRITE = "Take theirs where one here differs; history stays."


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Which skills of a source are imported, and what happens on a conflict."""

    only: tuple[str, ...] = option("Only this skill; may be repeated.", "--skill", "-s", default=())
    overwrite: bool = option(_OVERWRITE, default=False)
    keep_both: bool = option("Of two skills of one name take the second as NAME-2.", default=False)


@dataclass(frozen=True, kw_only=True)
class ImportRequest(Chosen):
    path: str = argument("A file, directory, archive, or database address.")
    layer: str = option("The layer to import into.", default="user")


@use_case(
    "skills import",
    access=Access.OWNER,
    example=ImportRequest(path="skills.zip", only=("csv-summary",)),
    undo="undo",
)
def import_skills(home: Home, wanted: ImportRequest) -> TakenIn:
    """Import skills of any known layout; each ends imported, updated, unchanged, held or refused, with a reason."""
    return import_with(home, wanted, ImportOptions(overwrite=wanted.overwrite, keep_both=wanted.keep_both))


def import_with(home: Home, wanted: ImportRequest, options: ImportOptions) -> TakenIn:
    """Import skills with options that only the command line has, such as a progress bar."""
    source = wanted.path if "://" in wanted.path else given_path(wanted.path)
    return updating.take_in(home, source, wanted.only, wanted.layer, options)


@dataclass(frozen=True, kw_only=True)
class Addition(Chosen):
    source: str = argument("OWNER/REPO[/FOLDER], a site, an archive or repository by address, or a path.")


@use_case(
    "skills add",
    route="POST /additions",
    access=Access.ADMIN,
    example=Addition(source="owner/repo/skills/csv-summary"),
    undo="undo",
    is_once=True,
)
def add(home: Home, wanted: Addition) -> TakenIn:
    """Fetch skills, scan and import them, and lock their origin and commit.

    Over REST, only public addresses are fetched.
    """
    # A remote caller must not make this host fetch from its private network.
    reach = Reach(is_public_only=True)
    options = ImportOptions(overwrite=wanted.overwrite, keep_both=wanted.keep_both, reach=reach)
    return updating.add(home, wanted.source, wanted.only, options)


@dataclass(frozen=True, kw_only=True)
class UpdateRequest:
    names: tuple[str, ...] = argument("Only these skills.", default=(), completes="skills")
    check: bool = option("Only show what would change; exit code 1 if any.", default=False)
    overwrite: bool = option(_OVERWRITE, default=False)


@use_case("skills update", access=Access.OWNER, example=UpdateRequest(check=True), undo="undo")
def update(home: Home, wanted: UpdateRequest) -> Updated:
    """Fetch added skills again, show what changed, and import it; local edits are never overwritten."""
    return updating.update(home, wanted.names, ImportOptions(overwrite=wanted.overwrite), is_check=wanted.check)


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    name: str | None = argument("A skill; or --all.", default=None, completes="skills")
    everything: bool = option("Every skill that can be loaded.", "--all", default=False)
    format: str = option(f"{', '.join(format.name for format in FORMATS)}.", default="skill")
    to: Path = option("Where to write it.", default=MISSING)
    overwrite: bool = option("Replace what is there; it is kept beside.", default=False)
    with_tasks: bool = option("With what they are examined by, redacted.", default=False)


@use_case("skills export", access=Access.OWNER, example=ExportRequest(name="csv-summary", to=Path("out")))
def export(home: Home, wanted: ExportRequest) -> Exported:
    """Write skills in another system's layout, with their counters."""
    return export_counting(home, wanted, lambda count: None)


def export_counting(home: Home, wanted: ExportRequest, progress: Progress) -> Exported:
    """Export skills, and call `progress` with the number done so far."""
    # Neither and both are wrong.
    if (wanted.name is None) == (not wanted.everything):
        raise Misused("Give one skill, or --all.")
    tasks: Callable[[str], Tree] = partial(examination_to_share, home) if wanted.with_tasks else lambda name: {}
    return updating.export(
        home.skills,
        wanted.name,
        wanted.format,
        wanted.to,
        overwrite=wanted.overwrite,
        tasks=tasks,
        progress=progress,
    )


@dataclass(frozen=True, kw_only=True)
class PublishRequest:
    folder: Path = argument("Where to write the site.")
    names: tuple[str, ...] = argument("The skills.", default=(), completes="skills")
    tag: str = option("Also all skills with this tag.", default="")
    remove: bool = option("Take them out of the site instead.", default=False)


@use_case(
    "skills publish",
    access=Access.OWNER,
    example=PublishRequest(folder=Path("site"), names=("csv-summary",), tag="shared"),
    undo="skills publish --remove",
)
def publish(home: Home, wanted: PublishRequest) -> Site:
    """Write a static site of chosen skills, which 'habitus skills add https://…' and other tools can read."""
    return publishing.publish(home, given_path(wanted.folder), wanted.names, tag=wanted.tag, remove=wanted.remove)


@dataclass(frozen=True, kw_only=True)
class ScanRequest:
    path: str = argument("A file, a directory or an archive.")


@use_case("skills scan", access=Access.OWNER, example=ScanRequest(path="download.zip"))
def scan(home: Home, wanted: ScanRequest) -> Looked:
    """Scan skills, or any files, before importing them. Exit code 1 if an import would be held for review."""
    return uploading.look_at(home.skills, home.screening, wanted.path)


@dataclass(frozen=True, kw_only=True)
class LintRequest:
    targets: tuple[str, ...] = argument(
        "Skills or directories; everything you can write by default.", default=(), completes="skills"
    )


@use_case("skills lint", access=Access.OWNER, example=LintRequest(targets=("csv-summary",)))
def lint(home: Home, wanted: LintRequest) -> LintReport:
    """Check skills one by one and as a set, with a fix for each problem. Exit code 1 if one is broken."""
    return checking.lint(home, wanted.targets)
