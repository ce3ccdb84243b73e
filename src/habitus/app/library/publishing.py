"""Publish skills: to agents that read files, and as a static site that other tools discover."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from habitus.agent.library.view import list_all_loadable_skill_names
from habitus.app.home import Home
from habitus.app.library.explaining import build_request_of_user, select_skills_for_request
from habitus.app.operating.checking import lint_skills
from habitus.errors import Invalid, NotFound, Refused
from habitus.files import TreeFile, drop_eval_files, is_eval_file, translate_disk_errors, write_atomically
from habitus.skills import trees
from habitus.skills.choosing.selection import RequestUser
from habitus.skills.layers.listing import LibrarySnapshot, ListedSkill
from habitus.skills.model import Severity, SkillSummary
from habitus.skills.sources import discovery


@dataclass(frozen=True, kw_only=True, slots=True)
class RedactedSkillFiles:
    """A skill's files, with secrets redacted."""

    summary: SkillSummary
    files: Mapping[str, bytes]


class LoadableSkillReader:
    """Serves the skills that one user's agent may load; `pin` puts the versions of a conversation into a snapshot."""

    def __init__(
        self, home: Home, user: RequestUser, pin: Callable[[LibrarySnapshot], LibrarySnapshot] = lambda seen: seen
    ) -> None:
        self._home = home
        self._user = user
        self._pin = pin

    def list_summaries(self) -> list[SkillSummary]:
        """Return every skill that this user's agent may load, by name."""
        return [item.summary for item in self._list_loadable_skills() if item.summary is not None]

    def _list_loadable_skills(self) -> list[ListedSkill]:
        seen = self._pin(self._home.skills.snapshot(user=self._user.name))
        chosen = select_skills_for_request(self._home, build_request_of_user(self._home, "", self._user.name))
        names = list_all_loadable_skill_names(seen) & chosen.list_eligible_names()
        return [item for item in seen.listing if item.name in names and item.summary is not None]

    def get_skill(self, name: str) -> RedactedSkillFiles:
        """Return a skill's files. Raises `NotFound` if the agent may not load it."""
        found = next((one for one in self._list_loadable_skills() if one.name == name), None)
        store = None if found is None else self._home.skills.get_layer(found.layer).store
        tree = None if found is None or store is None else store.read_tree(name, found.pinned_version)
        if found is None or found.summary is None or tree is None:
            raise NotFound(f"No skill '{name}' is served here.", hint="It may have been renamed; list them again.")
        shown = dict(sorted(drop_eval_files(tree).items()))
        read = {path: self._read_redacted_file(found, path, file) for path, file in shown.items()}
        return RedactedSkillFiles(
            summary=found.summary, files={path: content for path, content in read.items() if content is not None}
        )

    def _read_redacted_file(self, skill: ListedSkill, path: str, file: TreeFile) -> bytes | None:
        content = file.content
        # Files too large for the database are read from disk.
        if content is None:
            folder = self._home.skills.get_layer(skill.layer).store.find_directory(skill.name)
            try:
                content = None if folder is None else (folder / path).read_bytes()
            except OSError:
                # It may be deleted between listing and reading.
                content = None
        return None if content is None else self._redact_content(content)

    def _redact_content(self, content: bytes) -> bytes:
        """Redact secrets in text files; binary files pass unchanged."""
        try:
            return self._home.redact(content.decode()).encode()
        except UnicodeDecodeError:
            return content


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedExamCard:
    """An exam card as a row of the index, as a file and in words."""

    row: Mapping[str, Any]
    content: bytes
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishSkillsResult:
    """A folder to serve at the root of an address, and the skills in it."""

    folder: Path
    skills: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    claims: Mapping[str, str]  # of those with an exam card
    undo: tuple[str, ...]


def add_or_remove_published_skills(
    home: Home, folder: Path, names: Sequence[str], *, tag: str = "", remove: bool = False, card: bool = False
) -> PublishSkillsResult:
    """Add skills to the site, or remove them; skills that are there already are updated.

    With `card`, the chosen ones come with their exam cards.
    """
    before = _read_published_names(folder)
    chosen = [
        *names,
        *(one.name for one in LoadableSkillReader(home, home.get_user()).list_summaries() if tag and one.has_tag(tag)),
    ]
    if not chosen and not before:
        raise NotFound("No skill was chosen.", hint="Name skills, or give --tag; see 'habitus skills list'.")
    if remove:
        for name in names:
            if name not in before:
                raise NotFound(f"'{name}' is not published there.", hint=f"There are: {', '.join(before) or 'none'}.")
        wanted = [name for name in before if name not in chosen]
    else:
        wanted = sorted({*before, *chosen})
    cards = _collect_exam_cards_to_publish(home, folder, wanted, chosen if card else ())
    files = discovery.build_site_files([_package_skill(home, name, cards.get(name)) for name in wanted])
    _write_site(folder, files)
    added = tuple(name for name in wanted if name not in before)
    return PublishSkillsResult(
        folder=folder,
        skills=tuple(wanted),
        added=added,
        removed=tuple(name for name in before if name not in wanted),
        claims={name: card.sentence for name, card in cards.items()},
        undo=("skills", "publish", str(folder), *added, "--remove") if added else (),
    )


def _read_published_names(folder: Path) -> list[str]:
    """Return the names in the site's index; empty if there is no index yet."""
    try:
        return [str(row["name"]) for row in json.loads((folder / discovery.INDEX_PATH).read_bytes())["skills"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        raise Invalid(f"{folder / discovery.INDEX_PATH} can't be read.", hint="Remove it, and publish again.") from None


def _collect_exam_cards_to_publish(
    home: Home, folder: Path, wanted: Sequence[str], chosen: Sequence[str]
) -> Mapping[str, PublishedExamCard]:
    """Return the cards of the chosen skills, and of those that were published with one and still deserve it."""
    path = folder / discovery.INDEX_PATH
    rows = json.loads(path.read_bytes())["skills"] if path.is_file() else []
    carded = {str(row["name"]) for row in rows if discovery.EXAM_KEY in row}
    if not carded.intersection(wanted) and not chosen:
        return {}
    # Loads the statistics, which only cards need.
    from habitus.app.library.exam_cards import find_exam_card_of_current_files, require_exam_card_of_current_text
    from habitus.improve.cards import serialize_exam_card

    made = {name: require_exam_card_of_current_text(home, name) for name in chosen}
    kept = {name: find_exam_card_of_current_files(home, name) for name in wanted if name in carded and name not in made}
    return {
        name: PublishedExamCard(row=card.to_json_values(), content=serialize_exam_card(card), sentence=card.sentence)
        for name, card in {**made, **kept}.items()
        if card is not None
    }


def _package_skill(home: Home, name: str, card: PublishedExamCard | None) -> discovery.SkillToPublish:
    """Package a skill, with its exam card if it has one; its archive is None if there are no other files.

    Raises `Refused` if the skill has lint errors, too large files or secrets.
    """
    item = home.skills.find(name)
    tree = home.skills.get_layer(item.layer).store.read_tree(item.name)
    if item.summary is None or tree is None:
        raise Invalid(f"'{name}' can't be loaded.", hint="See 'habitus skills lint'.")
    (linted,) = lint_skills(home, [name]).skills
    wrong = [one for one in linted.diagnostics if one.severity in (Severity.ERROR, Severity.RISK)]
    if wrong:
        raise Refused(f"'{name}' is not published: {wrong[0].message}", hint=f"See 'habitus skills lint {name}'.")
    files: dict[str, bytes] = {}
    for path, file in sorted(tree.items()):
        if is_eval_file(path):
            continue
        if file.content is None:
            raise Refused(f"'{name}' is not published: {path} is too large.", hint="Remove it from the skill.")
        _refuse_file_with_secret(home.redact, name, path, file.content)
        files[path] = file.content
    if card is not None:
        files[trees.CARD_FILE] = card.content
    return discovery.SkillToPublish(
        name=item.name,
        description=item.summary.description,
        archive=discovery.pack_reproducible_tar_gz(files) if len(files) > 1 else None,
        text=files.get("SKILL.md", b""),
        exam=None if card is None else card.row,
        claim="" if card is None else f"{card.sentence[0].upper()}{card.sentence[1:]}.",
    )


def _refuse_file_with_secret(redact: Callable[[str], str], name: str, path: str, content: bytes) -> None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return
    if redact(text) != text:
        raise Refused(f"'{name}' is not published: {path} holds what looks like a key.", hint="Remove it first.")


def _write_site(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the site's files, then delete those that the index no longer lists."""
    with translate_disk_errors(folder):
        # The index comes last, so it never lists a file that isn't there.
        for path in sorted(files, key=lambda path: path == discovery.INDEX_PATH):
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, files[path], mode=0o644)
        here = folder / discovery.WELL_KNOWN_PATH
        for place in [*here.glob("*.tar.gz"), *here.glob("*/SKILL.md")]:
            if place.relative_to(folder).as_posix() not in files:
                place.unlink() if place.suffix == ".gz" else shutil.rmtree(place.parent)
