"""Task mining: turn requests that recurred and were accepted by the person into tasks of a skill."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from habitus.agent.history import decode_journal_message
from habitus.agent.recording.outcomes import is_correction_of_last_answer
from habitus.app.home import Home, get_own_name_among_sharing_hosts
from habitus.app.home_directory import get_encoder_weights_dir
from habitus.app.learning import mining, studying
from habitus.app.learning.mining import MAX_TURNS
from habitus.app.tasks.proposing import TaskCandidate, list_known_task_ids, list_pending_tasks, propose_tasks
from habitus.app.tasks.storing import load_tasks
from habitus.errors import Refused
from habitus.improve.tasks import rename_near_copies_as_variants
from habitus.journal.model import Turn
from habitus.learning.transcripts.study import StudiedTurn, visit_studied_turns_of_file
from habitus.llm.model import AssistantMessage
from habitus.recipes.mining import find_index_groups_of_similar_requests
from habitus.recipes.sequences import MIN_SESSIONS, ObservedTurn
from habitus.redact import MARKER
from habitus.search.index import build_encoder
from habitus.skills import names
from habitus.skills.layers.layer import find_project_root
from habitus.skills.library import Library
from habitus.skills.model import SkillState
from habitus.tasks.checks import Check, ReplyContainsCheck, ToolCalledCheck
from habitus.tasks.files import MAX_FIELD_CHARS
from habitus.tasks.model import Task, TaskOrigin, TaskOriginKind, TaskSolution, compute_task_id

_MOST_CHECKS = 3  # of what was said, and as many of what was called
_LITERAL = re.compile(r"`([^`\n]{2,60})`|(?<![\w.])(\d[\d.,]*\d|\d{2,})(?![\w])")
# Looked at one by one: a path is no longer, and within a longer one the search would take the square of its length.
_RUN_OF_PATHS = re.compile(r"[\w./~-]+")
_LONGEST_PATH = 256
_PATH = re.compile(r"(?<![\w/])(?:~|\.{1,2})?/?[\w.-]+(?:/[\w.-]+)*\.[A-Za-z]\w{0,5}\b")
_PROGRAM = re.compile(r"^\s*([\w./-]+)(?:\s+([a-z][\w-]*))?")


class TaskMiningSourceKind(StrEnum):
    SESSIONS = "sessions"  # of our own agent, and turns that hosts told us of
    TRANSCRIPTS = "transcripts"  # of other agents
    VARIANTS = "variants"  # of the tasks that a skill has, with other values


@dataclass(frozen=True, kw_only=True, slots=True)
class _AcceptedTurn:
    """A request whose result was accepted."""

    turn: Turn
    done: ObservedTurn
    skills: frozenset[str]
    project: Path | None  # None if it is unknown
    reply: str = ""


def propose_tasks_from_accepted_requests(home: Home) -> int:
    """Propose accepted requests of this user as the next tasks of their skills, and return how many.

    A skill with tasks that are pending review gets no more.
    """
    found = find_task_candidates(home, TaskMiningSourceKind.SESSIONS)
    pending = {skill for skill in {one.skill for one in found} if list_pending_tasks(home, skill)}
    new = [one for one in found if one.skill not in pending]
    propose_tasks(home, new, source="mining", reason="recurring request with an accepted result")
    return len(new)


def find_task_candidates(home: Home, source: TaskMiningSourceKind, *, skill: str = "") -> list[TaskCandidate]:
    """Return the accepted requests that could become tasks, each of its own, those of the most frequent kind first.

    Those that were proposed before are left out.
    """
    if source is TaskMiningSourceKind.SESSIONS:
        served = _iterate_accepted_journal_turns(home)
        return _find_candidates_in_accepted_turns(home, served, TaskOriginKind.SESSION, skill=skill)
    return _find_candidates_in_accepted_turns(
        home, _iterate_accepted_transcript_turns(home), TaskOriginKind.TRANSCRIPT, skill=skill
    )


def _find_candidates_in_accepted_turns(
    home: Home, turns: Iterator[_AcceptedTurn], origin: TaskOriginKind, *, skill: str = ""
) -> list[TaskCandidate]:
    served = list(turns)
    found: list[TaskCandidate] = []
    for group in find_index_groups_of_similar_requests(
        [one.turn.request for one in served],
        build_encoder(home.settings.search.encoder, get_encoder_weights_dir(home.settings)),
    ):
        members = [served[number] for number in group]
        name = _find_skill_serving_most_turns(home.skills, members)
        if not name or skill not in ("", name):
            continue
        known, tasks = list_known_task_ids(home, name), list(load_tasks(home, name))
        # Of the same request the latest result counts; another file or value makes another task.
        for latest in {one.turn.request: one for one in members}.values():
            made = _build_task_candidate(home, name, latest, members, origin)
            if made is not None and made.task.id not in known:
                known.add(made.task.id)
                (task,) = rename_near_copies_as_variants([made.task], tasks)
                found.append(replace(made, task=task))
                tasks.append(task)
    return found


def _iterate_accepted_journal_turns(home: Home) -> Iterator[_AcceptedTurn]:
    host = get_own_name_among_sharing_hosts(home)
    for turn in home.journal.iterate_latest_finished_turns(limit=MAX_TURNS, user=home.settings.user):
        done = mining.convert_journal_turn_to_observed(turn)
        if done.ok and turn.request.strip():
            answers = (
                message
                for kept in turn.messages
                if isinstance(message := decode_journal_message(kept), AssistantMessage)
            )
            reply = next((one.text for one in reversed(list(answers)) if one.text.strip()), "")
            kept = replace(turn, messages=(), events=())  # all that was said would fill the memory
            skills = frozenset(mining.list_skills_chosen_in_turn(turn))
            # On another host the same path leads to other files.
            project = Path(turn.project) if turn.project and turn.host == host else None
            yield _AcceptedTurn(turn=kept, done=done, skills=skills, project=project, reply=reply)


def _iterate_accepted_transcript_turns(home: Home) -> Iterator[_AcceptedTurn]:
    """Turns of other agents whose last call worked, and after which the person went on without correcting it."""
    home.host.files.require_access("whose transcripts are read")
    turns: list[StudiedTurn] = []
    for path in studying.find_transcripts(()):
        visit_studied_turns_of_file(path, home.redactor, turns.append)
    for one, after in pairwise(turns):
        goes_on = (one.file, one.transcript) == (after.file, after.transcript) and bool(after.turn.utterances)
        turn, done = mining.convert_transcript_turn_to_observed(one, home.clock())
        if (
            goes_on
            and done.ok
            and turn.request.strip()
            and not is_correction_of_last_answer(after.turn.utterances[0].text)
        ):
            used = frozenset(names.canonicalize_name(use.skill) for use in one.skill_uses)
            project = find_project_root(Path(one.project)) if one.project else Path(home.project)
            turn = replace(turn, user=home.settings.user)
            yield _AcceptedTurn(turn=turn, done=done, skills=used, project=project)


def _find_skill_serving_most_turns(skills: Library, members: Sequence[_AcceptedTurn]) -> str:
    """Return the skill that served most of these requests; empty without one, or if they come from few sessions."""
    used = Counter(name for one in members for name in one.skills)
    name = next((name for name, count in used.most_common(1) if count * 2 > len(members)), "")
    item = skills.snapshot().by_name.get(names.canonicalize_name(name)) if name else None
    is_recurring = len({one.turn.session for one in members}) >= MIN_SESSIONS
    return item.name if item is not None and item.state is SkillState.OK and is_recurring else ""


def _build_task_candidate(
    home: Home, skill: str, last: _AcceptedTurn, members: Sequence[_AcceptedTurn], origin: TaskOriginKind
) -> TaskCandidate | None:
    """Return the task of one accepted request among similar ones; None if nothing decides whether it was done."""
    request, files = _read_files_named_in_request(home, last.project, last.turn.request)
    same = [one for one in members if one.turn.request == last.turn.request]
    checks = _derive_checks_from_accepted_turns(same, members)
    texts = (request, last.reply, *files.values())
    if not checks or not request or any(MARKER.search(text) or len(text) > MAX_FIELD_CHARS for text in texts):
        return None
    task = Task(
        id=compute_task_id(request, None, files, ""),
        request=request,
        files=files,
        checks=checks,
        origin=TaskOrigin(kind=origin, conversation=last.turn.session, user=last.turn.user),
        reference=TaskSolution(
            reply=last.reply, calls=tuple(one.tool or one.command for one in checks if isinstance(one, ToolCalledCheck))
        ),
    )
    evidence = (
        mining.describe_count_and_dates_of_turns([one.turn for one in members]),
        f"asked as {mining.quote_request(last.turn)}",
    )
    return TaskCandidate(skill=skill, task=task, evidence=evidence, asked_on=f"{last.turn.started_on:%Y-%m-%d}")


def find_paths_in_request(request: str) -> Iterator[str]:
    """Yield what looks like the path of a file in a request, in time that grows with its length."""
    for run in _RUN_OF_PATHS.findall(request):
        if len(run) <= _LONGEST_PATH:
            yield from _PATH.findall(run)


def _read_files_named_in_request(home: Home, project: Path | None, request: str) -> tuple[str, dict[str, str]]:
    """Return the request and the files of the project that it names, redacted; no request if one can't be read."""
    files: dict[str, str] = {}
    for found in dict.fromkeys(find_paths_in_request(request)):
        if project is None:
            return "", {}
        text = _read_named_file(home, project, found)
        if text is None:
            if "/" in found:
                return "", {}
            continue  # a name with a point in it is not always that of a file
        name = Path(found).name
        files[name] = home.redact(text)
        request = request.replace(found, name)
    return request, files


def _read_named_file(home: Home, project: Path, named: str) -> str | None:
    # A conversation that was held in the home directory or above has no project, only everything the person has.
    is_project = not home.settings.user_home.resolve().is_relative_to(project.resolve())
    try:
        return home.host.files.read_text_file_below_folder(project, named) if is_project else None
    except Refused:
        return None


def _derive_checks_from_accepted_turns(
    same: Sequence[_AcceptedTurn], members: Sequence[_AcceptedTurn]
) -> tuple[Check, ...]:
    """Checks from what all accepted replies to this request have, and from calls made whenever it was asked."""
    asked = same[-1].turn.request.casefold()
    literals = [set(_extract_numbers_and_quoted_words(one.reply)) for one in same]
    said = [
        text
        for text in _extract_numbers_and_quoted_words(same[-1].reply)
        if text.casefold() not in asked and all(text in one for one in literals)
    ]
    calls = [set(_derive_checks_from_successful_calls(one.done)) for one in members]
    made = [
        call for call in _derive_checks_from_successful_calls(members[-1].done) if all(call in one for one in calls)
    ]
    return (*(ReplyContainsCheck(text=text) for text in said[:_MOST_CHECKS]), *made[:_MOST_CHECKS])


def _extract_numbers_and_quoted_words(reply: str) -> list[str]:
    """Return numbers and quoted words: a right answer has them, and a wrong one rarely does by chance."""
    return list(dict.fromkeys(one or other.rstrip(".,") for one, other in _LITERAL.findall(reply)))


def _derive_checks_from_successful_calls(done: ObservedTurn) -> list[ToolCalledCheck]:
    """Return the calls that succeeded: a tool by name, a command line by its program and subcommand."""
    found: dict[ToolCalledCheck, None] = {}
    for call in done.calls:
        command = call.arguments.get("command")
        program = _PROGRAM.match(command) if isinstance(command, str) else None
        if call.success and program is not None:
            found[ToolCalledCheck(command=" ".join(part for part in program.groups() if part))] = None
        elif call.success and command is None:
            found[ToolCalledCheck(tool=call.name)] = None
    return list(found)
