"""Erase a person from the skills: their past versions, archived skills and proposals, and their name everywhere else.

A skill in use stays, because others depend on it; only its author's name is removed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from habitus.skills.formats.tool_json import CaseContributor, read_recorded_cases, serialize_case_payload
from habitus.skills.proposals import ProposalState
from habitus.skills.stores import records
from habitus.skills.stores.tables import blobs, lifecycle_events, pending_writes, proposals, skills, versions
from habitus.skills.trees import TOOL_FILE
from habitus.sql import split_batches

# Replaces the name of an erased person; stored in databases, so it can't change.
ERASED_NAME = "forgotten"


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonalTraces:
    """The traces of one person in one database: keys of rows, and the archive folders with their files."""

    past_versions: tuple[tuple[int, int], ...]  # (skill, number) of versions that have been replaced
    archived_skills: tuple[int, ...]
    archive_folders: tuple[str, ...]  # below the archive, with the files of those skills
    active_skills: tuple[str, ...]  # names of their skills that are in use
    proposals: tuple[int, ...]
    decisions: tuple[int, ...]  # proposals by others that they decided
    signed_versions: tuple[tuple[int, int], ...]
    signed_switches: tuple[int, ...]
    signed_archived: tuple[int, ...]

    @property
    def signed_rows_of_others_count(self) -> int:
        """How many rows of others carry the person's name."""
        return len((*self.decisions, *self.signed_versions, *self.signed_switches, *self.signed_archived))


def find_personal_traces(conn: sa.Connection, names: Collection[str], conversations: Collection[str]) -> PersonalTraces:
    """Find the traces of a person who signs with `names` and took part in `conversations`."""
    theirs = _build_condition_signed_by(versions.c.author, names)
    columns = (skills.c.name, skills.c.version, skills.c.archived_on, skills.c.archived_as)
    query = sa.select(versions.c.skill, versions.c.number, versions.c.tree, *columns).join(skills)
    recorders = _PersonalCaseMatcher(conn, names, conversations)
    # A tool's recorded cases quote calls; a version by another author can still quote this person's.
    quoting = [
        row
        for row in conn.execute(query.where(_build_condition_tree_has_tool(versions.c.tree), sa.not_(theirs)))
        if recorders.has_case_in(row.name, row.tree) and (row.number != row.version or row.archived_on is not None)
    ]
    made = [*conn.execute(query.where(theirs)), *quoting]
    newest = [row for row in made if row.number == row.version]
    archived = {row.skill: row.archived_as for row in newest if row.archived_on is not None}
    present = [row for row in newest if row.archived_on is None]
    past = [(row.skill, row.number) for row in made if row.number != row.version and row.skill not in archived]
    switches = sa.select(lifecycle_events.c.id, lifecycle_events.c.skill)
    switched = conn.execute(switches.where(_build_condition_signed_by(lifecycle_events.c.author, names)))
    put_away = sa.select(skills.c.id).where(_build_condition_signed_by(skills.c.archived_by, names))
    wrote = sa.select(proposals.c.id).where(_build_condition_signed_by(proposals.c.author, names))
    decided = sa.select(proposals.c.id).where(proposals.c.decided_by.in_(names))
    talked = conn.execute(
        sa.select(proposals.c.id, proposals.c.name, proposals.c.conversation, proposals.c.tree).where(
            sa.or_(proposals.c.conversation != "", _build_condition_tree_has_tool(proposals.c.tree))
        )
    ).all()
    proposed = {
        *conn.execute(wrote).scalars(),
        *(row.id for row in talked if row.conversation in conversations),
        *(row.id for row in talked if row.tree and recorders.has_case_in(row.name, row.tree)),
    }
    return PersonalTraces(
        past_versions=tuple(past),
        archived_skills=tuple(archived),
        archive_folders=tuple(folder for folder in archived.values() if folder),
        active_skills=tuple(sorted({row.name for row in present})),
        proposals=tuple(sorted(proposed)),
        # Proposals that get deleted need no new signature.
        decisions=tuple(id for id in conn.execute(decided).scalars() if id not in proposed),
        signed_versions=tuple((row.skill, row.number) for row in present),
        signed_switches=tuple(row.id for row in switched if row.skill not in archived),
        signed_archived=tuple(id for id in conn.execute(put_away).scalars() if id not in archived),
    )


def find_contributed_case_payloads(
    conn: sa.Connection, names: Collection[str], conversations: Collection[str]
) -> Mapping[str, frozenset[str]]:
    """Return, by skill, the payloads of recorded cases without a conversation that this person contributed.

    Carrying a case along in a later version is no contribution. An approved proposal counts for the person in
    whose conversation it was made.
    """
    return _PersonalCaseMatcher(conn, names, conversations).contributed


class _PersonalCaseMatcher:
    """Tells which recorded cases of any tool come from one person."""

    def __init__(self, conn: sa.Connection, names: Collection[str], conversations: Collection[str]) -> None:
        self._connection = conn
        self._conversations = conversations
        self._cases_by_hash: dict[str, tuple[Mapping[str, Any], ...]] = {}
        self.contributed = self._find_payloads_added_first_by_person(names)

    def has_case_in(self, skill: str, tree: str) -> bool:
        """Whether the tool in these files holds a case by this person."""
        recorder = CaseContributor(conversations=self._conversations, payloads=self.contributed.get(skill, ()))
        return any(recorder.has_contributed(case) for case in self._read_cases(tree))

    def _find_payloads_added_first_by_person(self, names: Collection[str]) -> dict[str, frozenset[str]]:
        """Return, by skill, the payloads that this person was the first to add."""
        signed = _build_condition_signed_by(versions.c.author, names)
        written = sa.select(versions.c.made_on, skills.c.name, versions.c.tree, signed.label("theirs")).join(skills)
        proposed = sa.select(proposals.c.made_on, proposals.c.name, proposals.c.tree, proposals.c.conversation).where(
            proposals.c.state == ProposalState.APPROVED.value, proposals.c.conversation != ""
        )
        changes = [
            (row.made_on, row.name, row.tree, bool(row.theirs))
            for row in self._connection.execute(written.where(_build_condition_tree_has_tool(versions.c.tree)))
        ]
        changes += [
            (row.made_on, row.name, row.tree, row.conversation in self._conversations)
            for row in self._connection.execute(proposed.where(_build_condition_tree_has_tool(proposals.c.tree)))
        ]
        # Changes are sorted by time, so setdefault keeps the first author of each payload.
        first: dict[tuple[str, str], bool] = {}
        for _, name, tree, is_theirs in sorted(changes, key=itemgetter(0)):
            for case in self._read_cases(tree):
                if not case.get("conversation"):
                    first.setdefault((name, serialize_case_payload(case)), is_theirs)
        theirs = sorted(key for key, is_theirs in first.items() if is_theirs)
        return {name: frozenset(text for _, text in some) for name, some in groupby(theirs, key=itemgetter(0))}

    def _read_cases(self, tree: str) -> tuple[Mapping[str, Any], ...]:
        file = records.unpack_tree(tree).get(TOOL_FILE)
        if file is None:
            return ()
        if file.sha256 not in self._cases_by_hash:
            query = sa.select(blobs.c.packed).where(blobs.c.sha256 == file.sha256)
            packed = self._connection.execute(query).scalar()
            self._cases_by_hash[file.sha256] = (
                read_recorded_cases(zlib.decompress(packed)) if packed is not None else ()
            )
        return self._cases_by_hash[file.sha256]


def _build_condition_tree_has_tool(tree: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Match trees that mention a tool file, without unpacking them."""
    return tree.contains(f'"{TOOL_FILE}"', autoescape=True)


def erase_personal_traces(
    conn: sa.Connection, found: PersonalTraces, extra_hashes: Collection[str] = ()
) -> set[tuple[str, str]]:
    """Delete or anonymise all traces, and the blobs that nothing else uses; `extra_hashes` names more blobs to
    check.

    Return the layer and name of each skill that nothing is left of.
    """
    version_key = sa.tuple_(versions.c.skill, versions.c.number)
    past_versions = _build_key_conditions_in_batches(version_key, found.past_versions)
    their_proposals = _build_key_conditions_in_batches(proposals.c.id, found.proposals)
    gone = _list_layer_and_name_of_skills(conn, *_build_key_conditions_in_batches(skills.c.id, found.archived_skills))
    # Collect the trees first: once their rows are gone, nothing says which blobs they used.
    trees = _read_packed_trees(conn, versions.c.tree, past_versions)
    trees += _read_packed_trees(
        conn, versions.c.tree, _build_key_conditions_in_batches(versions.c.skill, found.archived_skills)
    )
    for column in (proposals.c.tree, proposals.c.base):
        trees += _read_packed_trees(conn, column, their_proposals)
    for where in past_versions:
        conn.execute(versions.delete().where(where))
    for key in (versions.c.skill, lifecycle_events.c.skill, skills.c.id):
        for where in _build_key_conditions_in_batches(key, found.archived_skills):
            conn.execute(sa.delete(key.table).where(where))
    for where in their_proposals:
        conn.execute(proposals.delete().where(where))
    for where in _build_key_conditions_in_batches(proposals.c.id, found.decisions):
        conn.execute(proposals.update().where(where).values(decided_by=ERASED_NAME, decision=""))
    _anonymize_author(conn, versions.c.author, _build_key_conditions_in_batches(version_key, found.signed_versions))
    _anonymize_author(
        conn, lifecycle_events.c.author, _build_key_conditions_in_batches(lifecycle_events.c.id, found.signed_switches)
    )
    _anonymize_author(conn, skills.c.archived_by, _build_key_conditions_in_batches(skills.c.id, found.signed_archived))
    _delete_unused_blobs(conn, {sha256 for tree in trees for sha256 in _list_blob_hashes(tree)} | set(extra_hashes))
    return gone - _list_layer_and_name_of_skills(conn, sa.true()) if gone else gone


def _list_layer_and_name_of_skills(conn: sa.Connection, *where: sa.ColumnElement[bool]) -> set[tuple[str, str]]:
    """Return the layer and name of the skills that match any of the conditions."""
    query = sa.select(skills.c.layer, skills.c.name)
    return {(layer, name) for some in where for layer, name in conn.execute(query.where(some))}


def _build_condition_signed_by(author: sa.Column[str], names: Collection[str]) -> sa.ColumnElement[bool]:
    """Match rows that one of these names signed."""
    # The author is stored as a JSON list, so its beginning identifies a user by name without parsing any row.
    begins = [f'["user", {json.dumps(name, ensure_ascii=False)}, ' for name in names]
    return sa.or_(*(author.startswith(begin, autoescape=True) for begin in begins))


def _anonymize_author(conn: sa.Connection, author: sa.Column[str], where: Iterable[sa.ColumnElement[bool]]) -> None:
    """Remove the author's name and reason but keep the change id, which undo needs."""
    table = author.table
    assert isinstance(table, sa.Table)
    keys = list(table.primary_key)
    for some in where:
        for row in conn.execute(sa.select(*keys, author).where(some)).all():
            unsigned = replace(records.unpack_author(row[-1]), name=ERASED_NAME, reason="")
            mine = [key == value for key, value in zip(keys, row[:-1], strict=True)]
            conn.execute(table.update().where(*mine).values({author.name: records.pack_author(unsigned)}))


def _delete_unused_blobs(conn: sa.Connection, candidates: Collection[str]) -> None:
    """Delete the blobs that no version, proposal or pending write-ahead record uses."""
    if not candidates:
        return
    needed = {
        sha256
        for column in (versions.c.tree, proposals.c.tree, proposals.c.base)
        for tree in _read_packed_trees(conn, column)
        for sha256 in _list_blob_hashes(tree)
    }
    plans = conn.execute(sa.select(pending_writes.c.plan)).scalars().all()
    # Plans are JSON text that contains hashes, so a substring search is enough and errs on the safe side.
    gone = [one for one in candidates if one not in needed and not any(one in plan for plan in plans)]
    for part in split_batches(gone):
        conn.execute(blobs.delete().where(blobs.c.sha256.in_(part)))


def _read_packed_trees(
    conn: sa.Connection, tree: sa.Column[Any], where: Iterable[sa.ColumnElement[bool]] = (sa.true(),)
) -> list[str]:
    query = sa.select(tree).where(tree.is_not(None))
    return [found for some in where for found in conn.execute(query.where(some)).scalars()]


def _list_blob_hashes(tree: str) -> list[str]:
    return [file.sha256 for file in records.unpack_tree(tree).values()]


def _build_key_conditions_in_batches(key: sa.ColumnElement[Any], values: Sequence[Any]) -> list[sa.ColumnElement[bool]]:
    """Return conditions that together match the rows with these keys."""
    return [key.in_(part) for part in split_batches(values)]
