"""Mining tasks: requests that came up again and again and were served as the person wanted become tasks of a skill."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from habitus.agent.history import unpack_message
from habitus.agent.recorder import is_correction
from habitus.app.home import Home
from habitus.app.home_directory import get_weights_dir
from habitus.app.learning import mining, studying
from habitus.app.learning.mining import MAX_TURNS
from habitus.app.tasks.storing import tasks_of
from habitus.errors import Refused
from habitus.files import build_file
from habitus.journal.model import Turn
from habitus.learning.transcripts.study import StudiedTurn, study_file
from habitus.llm.model import AssistantMessage
from habitus.recipes.mining import group_similar_requests
from habitus.recipes.sequences import MIN_SESSIONS, ObservedTurn
from habitus.redact import MARKER
from habitus.search.index import get_encoder
from habitus.skills import names, trees
from habitus.skills.layers.layer import find_project_root
from habitus.skills.model import ActorKind, Author, SkillState
from habitus.skills.review import ProposalAction, ProposalState, ReviewQueue, SkillChange
from habitus.tasks.checks import Called, Check, Contains
from habitus.tasks.files import LONGEST_FIELD, write_tasks
from habitus.tasks.model import Origin, OriginKind, Solution, Task, id_for

_MOST_CHECKS = 3  # of what was said, and as many of what was called
_LITERAL = re.compile(r"`([^`\n]{2,60})`|(?<![\w.])(\d[\d.,]*\d|\d{2,})(?![\w])")
_PATH = re.compile(r"(?<![\w/])(?:~|\.{1,2})?/?[\w.-]+(?:/[\w.-]+)*\.[A-Za-z]\w{0,5}\b")
_PROGRAM = re.compile(r"^\s*([\w./-]+)(?:\s+([a-z][\w-]*))?")


class MinedFrom(StrEnum):
    SESSIONS = "sessions"  # of our own agent, and turns that hosts told us of
    TRANSCRIPTS = "transcripts"  # of other agents


@dataclass(frozen=True, kw_only=True, slots=True)
class MinedTask:
    """A task to decide about, with what speaks for it; `proposal` is its number once it waits."""

    skill: str
    task: Task
    evidence: tuple[str, ...]
    proposal: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Served:
    """A request that came to an accepted result."""

    turn: Turn
    done: ObservedTurn
    skills: frozenset[str]
    project: Path
    reply: str = ""


def find_tasks(home: Home, source: MinedFrom, *, skill: str = "") -> list[MinedTask]:
    """Requests that could be a task, the most frequent first; nothing is written, and earlier proposals are left
    out."""
    served = list(_in_journal(home) if source is MinedFrom.SESSIONS else _in_transcripts(home))
    seen, found = _known_ids(home.review), []
    for group in group_similar_requests(
        [one.turn.request for one in served], get_encoder(home.settings.search.encoder, get_weights_dir(home.settings))
    ):
        members = [served[number] for number in group]
        made = _task_of_group(home, members, OriginKind(source.value.removesuffix("s")))
        if made is not None and made.task.id not in seen and skill in ("", made.skill):
            seen.add(made.task.id)
            found.append(made)
    return found


def propose_tasks(home: Home, found: Sequence[MinedTask]) -> list[MinedTask]:
    """Put them before the person."""
    author = Author(actor=ActorKind.JOB, name="mining", reason="it was asked again and again, and accepted")
    home.check_change_allowed(author)
    return [replace(one, proposal=_propose_task(home, one, author)) for one in found]


def _propose_task(home: Home, one: MinedTask, author: Author) -> int:
    tree = {trees.TASKS_FILE: build_file(write_tasks([one.task]).encode())}
    layer = home.skills.find(one.skill).layer
    change = SkillChange(
        action=ProposalAction.TASKS, name=one.skill, layer=layer, tree=tree, details={"tasks": [one.task.id]}
    )
    return home.review.propose(change, author, one.evidence, conversation=one.task.origin.conversation).id


def _known_ids(review: ReviewQueue) -> set[str]:
    """Ids that were proposed before, whatever came of that, unless it was overtaken."""
    proposals = review.list(None, with_contents=False)
    current = (one for one in proposals if one.state is not ProposalState.STALE)
    return {id for one in current for id in one.change.details.get("tasks", ())}


def _in_journal(home: Home) -> Iterator[_Served]:
    for turn in home.journal.iterate_past_turns(limit=MAX_TURNS, user=home.settings.user):
        done = mining.observe_turn(turn)
        if done.ok and turn.request.strip():
            answers = (
                message for kept in turn.messages if isinstance(message := unpack_message(kept), AssistantMessage)
            )
            reply = next((one.text for one in reversed(list(answers)) if one.text.strip()), "")
            kept = replace(turn, messages=(), events=())  # all that was said would fill the memory
            skills = frozenset(mining.list_chosen_skills(turn))
            yield _Served(turn=kept, done=done, skills=skills, project=Path(home.project), reply=reply)


def _in_transcripts(home: Home) -> Iterator[_Served]:
    """Turns of other agents whose last call worked, and after which the person went on without correcting it."""
    home.host.files.require("whose transcripts are read")
    turns: list[StudiedTurn] = []
    for path in studying.find_transcripts(()):
        study_file(path, home.redactor, turns.append)
    for one, after in pairwise(turns):
        goes_on = (one.file, one.transcript) == (after.file, after.transcript) and bool(after.turn.utterances)
        turn, done = mining.observe_transcript_turn(one, home.clock())
        if goes_on and done.ok and turn.request.strip() and not is_correction(after.turn.utterances[0].text):
            used = frozenset(names.canonicalize_name(use.skill) for use in one.skill_uses)
            project = find_project_root(Path(one.project)) if one.project else Path(home.project)
            turn = replace(turn, user=home.settings.user)
            yield _Served(turn=turn, done=done, skills=used, project=project)


def _task_of_group(home: Home, members: Sequence[_Served], origin: OriginKind) -> MinedTask | None:
    """The task of a group of requests, by the latest of them; none where too little speaks for it."""
    used = Counter(name for one in members for name in one.skills)
    name = next((name for name, count in used.most_common(1) if count * 2 > len(members)), "")
    item = home.skills.snapshot().by_name.get(names.canonicalize_name(name)) if name else None
    if item is None or item.state is not SkillState.OK or len({one.turn.session for one in members}) < MIN_SESSIONS:
        return None
    last = members[-1]
    request, files = _with_files(home, last.project, last.turn.request)
    checks = _drawn_checks([one for one in members if one.turn.request == last.turn.request] or [last], members)
    texts = (request, last.reply, *files.values())
    if not checks or not request or any(MARKER.search(text) or len(text) > LONGEST_FIELD for text in texts):
        return None
    task = Task(
        id=id_for(request, None, files, ""),
        request=request,
        files=files,
        checks=checks,
        origin=Origin(kind=origin, conversation=last.turn.session, user=last.turn.user),
        reference=Solution(
            reply=last.reply, calls=tuple(one.tool or one.command for one in checks if isinstance(one, Called))
        ),
    )
    if any(one.id == task.id for one in tasks_of(home, item.name)):
        return None
    evidence = (
        mining.describe_occurrences([one.turn for one in members]),
        f"asked as {mining.quote_request(last.turn)}",
    )
    return MinedTask(skill=item.name, task=task, evidence=evidence)


def _with_files(home: Home, project: Path, request: str) -> tuple[str, dict[str, str]]:
    """Return the request and the files of the project that it names, redacted; no request if one can't be read."""
    files: dict[str, str] = {}
    for found in dict.fromkeys(_PATH.findall(request)):
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
        return home.host.files.read_text_below(project, named) if is_project else None
    except Refused:
        return None


def _drawn_checks(same: Sequence[_Served], members: Sequence[_Served]) -> tuple[Check, ...]:
    """Checks from what all accepted replies to this request have, and from calls made whenever it was asked."""
    asked = same[-1].turn.request.casefold()
    literals = [set(_literals(one.reply)) for one in same]
    said = [
        text
        for text in _literals(same[-1].reply)
        if text.casefold() not in asked and all(text in one for one in literals)
    ]
    calls = [set(_calls(one.done)) for one in members]
    made = [call for call in _calls(members[-1].done) if all(call in one for one in calls)]
    return (*(Contains(text=text) for text in said[:_MOST_CHECKS]), *made[:_MOST_CHECKS])


def _literals(reply: str) -> list[str]:
    """Numbers and marked words, which a right answer has and a wrong one has not by chance."""
    return list(dict.fromkeys(one or other.rstrip(".,") for one, other in _LITERAL.findall(reply)))


def _calls(done: ObservedTurn) -> list[Called]:
    """The calls that worked: a tool by its name, a command line by its program and what that was to do."""
    found: dict[Called, None] = {}
    for call in done.calls:
        command = call.arguments.get("command")
        program = _PROGRAM.match(command) if isinstance(command, str) else None
        if call.success and program is not None:
            found[Called(command=" ".join(part for part in program.groups() if part))] = None
        elif call.success and command is None:
            found[Called(tool=call.name)] = None
    return list(found)
