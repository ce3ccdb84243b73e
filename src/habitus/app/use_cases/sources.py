"""Exchanging skills: import, add, update, export and publish them; and scan or lint them first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import importing, publishing, uploading
from habitus.app.library.importing import ExportResult, ImportOptions, ImportResult, Progress, UpdateResult
from habitus.app.operating import checking
from habitus.app.tasks.storing import collect_publishable_evals
from habitus.app.use_cases.declaration import argument, option, use_case
from habitus.errors import InvalidOptions
from habitus.files import Tree, parse_user_path
from habitus.skills.formats.detect import FORMATS
from habitus.skills.sources.discovery import DownloadPolicy

_OVERWRITE = "Take theirs where one here differs; history stays."


@dataclass(frozen=True, kw_only=True)
class ImportSelectionOptions:
    """Which skills of a source are imported, and what happens on a conflict."""

    only: Annotated[tuple[str, ...], option("Only this skill; may be repeated.", "--skill", "-s")] = ()
    overwrite: Annotated[bool, option(_OVERWRITE)] = False
    keep_both: Annotated[bool, option("If two skills have the same name, import the second as NAME-2.")] = False
    all_but_held: Annotated[bool, option("Import all but the skills that need review; those are left out.")] = False


@dataclass(frozen=True, kw_only=True)
class ImportSkillsRequest(ImportSelectionOptions):
    path: Annotated[str, argument("A file, directory, archive, or database address.")]
    layer: Annotated[str, option("The layer to import into.")] = "user"


@use_case("skills import", access=Access.OWNER, example={"path": "skills.zip", "only": ("csv-summary",)}, undo="undo")
def import_skills(home: Home, request: ImportSkillsRequest) -> ImportResult:
    """Import skills of any known layout; each ends imported, updated, unchanged, held or refused, with a reason."""
    return import_skills_with_options(
        home,
        request,
        ImportOptions(overwrite=request.overwrite, keep_both=request.keep_both, skip_held=request.all_but_held),
    )


def import_skills_with_options(home: Home, request: ImportSkillsRequest, options: ImportOptions) -> ImportResult:
    """Import skills with options that only the command line has, such as a progress bar."""
    source = request.path if "://" in request.path else parse_user_path(request.path)
    return importing.import_skills(home, source, request.only, request.layer, options)


@dataclass(frozen=True, kw_only=True)
class AddSkillsRequest(ImportSelectionOptions):
    source: Annotated[str, argument("OWNER/REPO[/FOLDER], a site, an archive or repository by address, or a path.")]


@use_case(
    "skills add",
    route="POST /additions",
    access=Access.ADMIN,
    example={"source": "owner/repo/skills/csv-summary"},
    undo="undo",
    accepts_idempotency_key=True,
)
def add_skills(home: Home, request: AddSkillsRequest) -> ImportResult:
    """Fetch skills, scan and import them, and lock their origin and commit.

    Over REST, only public addresses are fetched.
    """
    # A remote caller must not make this host fetch from its private network.
    reach = DownloadPolicy(is_public_only=True)
    options = ImportOptions(
        overwrite=request.overwrite, keep_both=request.keep_both, skip_held=request.all_but_held, reach=reach
    )
    return importing.fetch_and_import_skills(home, request.source, request.only, options)


@use_case("skills update", access=Access.OWNER, example={"check": True}, undo="undo")
def update_skills(
    home: Home,
    names: Annotated[tuple[str, ...], argument("Only these skills.", completes="skills")] = (),
    check: Annotated[bool, option("Only show what would change; exit code 1 if any.")] = False,
    overwrite: Annotated[bool, option(_OVERWRITE)] = False,
) -> UpdateResult:
    """Fetch added skills again, show what changed, and import it; local edits are never overwritten."""
    return importing.update_skills_from_their_sources(home, names, ImportOptions(overwrite=overwrite), is_check=check)


@dataclass(frozen=True, kw_only=True)
class ExportSkillsRequest:
    name: Annotated[str | None, argument("A skill; or --all.", completes="skills")] = None
    everything: Annotated[bool, option("Every skill that can be loaded.", "--all")] = False
    format: Annotated[str, option(f"{', '.join(format.name for format in FORMATS)}.")] = "skill"
    to: Annotated[Path, option("Where to write it.")]
    overwrite: Annotated[bool, option("Replace an existing export; the old one is kept beside it.")] = False
    with_tasks: Annotated[bool, option("Include the tasks that examine them, redacted.")] = False
    card: Annotated[bool, option("Include the card of its exam: results, not the tasks.")] = False


@use_case("skills export", access=Access.OWNER, example={"name": "csv-summary", "to": Path("out")})
def export_skills(home: Home, request: ExportSkillsRequest) -> ExportResult:
    """Write skills in another system's layout, with their counters."""
    return export_skills_with_progress(home, request, lambda count: None)


def export_skills_with_progress(home: Home, request: ExportSkillsRequest, progress: Progress) -> ExportResult:
    """Export skills, and call `progress` with the number done so far."""
    # Neither and both are wrong.
    if (request.name is None) == (not request.everything):
        raise InvalidOptions("Give one skill, or --all.")
    shared: Callable[[str], Tree] = partial(collect_publishable_evals, home) if request.with_tasks else lambda name: {}

    def tasks(name: str) -> Tree:
        if not request.card:
            return shared(name)
        # Loads the statistics, which only cards need.
        from habitus.app.library.exam_cards import build_exam_card_file_tree

        return {**shared(name), **build_exam_card_file_tree(home, name)}

    return importing.export_skills(
        home.skills,
        request.name,
        request.format,
        request.to,
        overwrite=request.overwrite,
        lessons=importing.list_lessons_for_playbook_export(home.memory) if request.everything else (),
        tasks=tasks,
        progress=progress,
    )


@use_case(
    "skills publish",
    access=Access.OWNER,
    example={"folder": Path("site"), "names": ("csv-summary",), "tag": "shared"},
    undo="skills publish --remove",
)
def publish_skills(
    home: Home,
    folder: Annotated[Path, argument("Where to write the site.")],
    names: Annotated[tuple[str, ...], argument("The skills.", completes="skills")] = (),
    tag: Annotated[str, option("Also all skills with this tag.")] = "",
    remove: Annotated[bool, option("Remove them from the site instead.")] = False,
    card: Annotated[bool, option("Publish the cards of their exams: results, not the tasks.")] = False,
) -> publishing.PublishSkillsResult:
    """Write a static site of chosen skills, which 'habitus skills add https://…' and other tools can read."""
    return publishing.add_or_remove_published_skills(
        home, parse_user_path(folder), names, tag=tag, remove=remove, card=card
    )


@use_case("skills scan", access=Access.OWNER, example={"path": "download.zip"})
def scan_skills(
    home: Home, path: Annotated[str, argument("A file, a directory or an archive.")]
) -> uploading.ImportPreview:
    """Scan skills, or any files, before importing them. Exit code 1 if an import would be held for review."""
    return uploading.preview_import(home.skills, home.screening, path)


@use_case("skills lint", access=Access.OWNER, example={"targets": ("csv-summary",)})
def lint_skills(
    home: Home,
    targets: Annotated[
        tuple[str, ...], argument("Skills or directories; everything you can write by default.", completes="skills")
    ] = (),
) -> checking.LintReport:
    """Check skills one by one and as a set, with a fix for each problem. Exit code 1 if one is broken."""
    return checking.lint_skills(home, targets)
