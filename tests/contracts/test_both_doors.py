"""Every declared use case through both of its doors: the same input gives the same JSON."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus, read_settings
from habitus.app.conversations import secrets
from habitus.app.library import trusting
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.app.use_cases import (
    finding,
    improving,
    jobs,
    lessons,
    pausing,
    review,
    skills,
    sources,
    tasks,
    uses,
    writing,
)
from habitus.app.use_cases.declaration import UseCase, load_all_use_cases
from habitus.cli.commands import build_commands
from habitus.cli.lazy_commands import CommandGroupWithDefault, LazyUseCaseCommand
from habitus.cli.use_case_commands import build_command_line_for_inputs
from habitus.events import Outcome, OutcomeKind
from habitus.journal.model import Turn
from habitus.memory.model import LessonDraft, LessonKind, LessonProvenance
from habitus.sandbox.credentials.grants import CommandLineCall
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.model import ActorKind, Author, Skill
from habitus.skills.review import ProposalAction, SkillChange
from habitus.skills.trees import update_main_file
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from tests.cli.conftest import Direct, direct, stock, stocked
from tests.web.conftest import HOST, standing
from tests.web.furnished import equip

__all__ = ["direct", "stock", "stocked"]

Prepare = Callable[[Habitus], Any]  # makes what a use case needs, and says which input to give


def _a_lesson(habitus: Habitus) -> str:
    return lessons.add_lesson(habitus, text="Dates are day-first.").lesson.id


def _an_archived_lesson(habitus: Habitus) -> str:
    id = _a_lesson(habitus)
    lessons.remove_lessons(habitus, ids=(id,))
    return id


def _a_taught_lesson(habitus: Habitus) -> dict[str, Any]:
    habitus.memory.encode(
        LessonDraft(text="Dates are day-first.", kind=LessonKind.LESSON, evidence=LessonProvenance(trace="t1"))
    )
    return {"turn": "t1"}


def _proposals(habitus: Habitus) -> tuple[str, ...]:
    for name in ("make-jam", "make-ham"):
        tree = update_main_file({}, Skill(name=name, description="Jam", body="1. Boil."))
        change = SkillChange(action=ProposalAction.WRITE, name=name, layer="user", tree=tree)
        habitus.review.submit(change, Author(actor=ActorKind.AGENT, name="tester", reason="worked it out"))
    return tuple(str(one.id) for one in habitus.review.list_proposals_by_state())


def _an_approved_proposal(habitus: Habitus) -> dict[str, Any]:
    ids = _proposals(habitus)[:1]
    review.approve_items(habitus, ids=ids)
    return {"ids": ids}


def _a_job(habitus: Habitus) -> dict[str, Any]:
    return {"id": jobs.add_job(habitus, kind="curate").id}


def _a_cancelled_job(habitus: Habitus) -> dict[str, Any]:
    wanted = _a_job(habitus)
    jobs.cancel_job(habitus, **wanted)
    return wanted


def _a_pause(habitus: Habitus) -> dict[str, Any]:
    pausing.pause_learning(habitus)
    return {}


def _a_session(habitus: Habitus) -> dict[str, Any]:
    for id in ("t1", "t2"):
        turn = Turn(id=id, session="s1", request="Hello", started_on=habitus.clock(), user=habitus.settings.user)
        habitus.journal.record_complete_turn(turn)
    return {"id": "s", "limit": 1}


def _a_call(habitus: Habitus) -> dict[str, Any]:
    done = Outcome(kind=OutcomeKind.OK)
    call = CommandLineCall(
        timestamp=habitus.clock(), caller="ann", skill="mail", arguments=("send",), secrets=("smtp",), outcome=done
    )
    secrets.open_command_line_call_log(habitus).record(call)
    return {}


def _a_judgement(habitus: Habitus) -> dict[str, Any]:
    _a_session(habitus)
    return {"id": "t1", "ok": False, "by": "tester"}


def _a_skill(habitus: Habitus, name: str = "csv-summary") -> str:
    for number in range(1, 4):
        skill = Skill(name=name, description="Sums up a table.", body=f"{number}. Look at it.")
        save = habitus.skills.create if number == 1 else habitus.skills.get_layer(USER_LAYER).store.save
        save(skill, habitus.build_author("written"))
    return name


def _with_skill(wanted: object) -> Prepare:
    """The example as it is, of a skill that is there in three versions."""
    return lambda habitus: (_a_skill(habitus), wanted)[1]


def _an_archived_skill(habitus: Habitus) -> dict[str, Any]:
    writing.remove_skills(habitus, names=(_a_skill(habitus),))
    return {"name": "csv-summary", "new_name": "csv-total"}


def _with_task(wanted: object) -> Prepare:
    def prepare(habitus: Habitus) -> object:
        tasks.add_task(
            habitus, tasks.AddTaskRequest(name=_a_skill(habitus), request="Sum it up.", expect=("total",), id="tea")
        )
        return wanted

    return prepare


def _with_code(wanted: object) -> Prepare:
    """With a skill that is tested code, and one that has a recipe."""

    def prepare(habitus: Habitus) -> object:
        _code_and_recipe(habitus)
        return wanted

    return prepare


def _code_and_recipe(habitus: Habitus) -> None:
    equip(habitus)
    trusting.store_trust(habitus, trusting.resolve_trust_target_of_skill(habitus, "shout"))


# A use case whose example names something that must be there first.
PREPARED: dict[str, Prepare] = {
    "learn resume": _a_pause,
    "sessions list": lambda habitus: {"limit": _a_session(habitus)["limit"]},
    "sessions show": _a_session,
    "jobs add": lambda habitus: {"kind": "curate", "tokens": 5},
    "jobs list": lambda habitus: {"done": bool(_a_job(habitus))},
    "jobs show": _a_job,
    "jobs cancel": _a_job,
    "jobs retry": _a_cancelled_job,
    "skills show": _with_skill(skills.show_skill.example),
    "skills history": _with_skill(skills.show_skill_history.example),
    "skills diff": _with_skill(skills.diff_versions.example),
    "skills stats": _with_skill(skills.show_stats.example),
    "skills uses": _with_skill(uses.list_uses.example),
    "skills improvements": _with_skill(improving.list_improvements.example),
    "skills compare": _with_skill(improving.compare_versions.example),
    "skills edit": _with_skill({"name": "csv-summary", "append": "4. Archive.", "expect": "3"}),
    "skills enable": _with_skill({"names": ("csv-summary",)}),
    "skills disable": _with_skill({"names": ("csv-summary",)}),
    "skills remove": _with_skill({"names": ("csv-summary",), "reason": "twice"}),
    "skills restore": _an_archived_skill,
    "skills rollback": _with_skill(writing.rollback_skill.example),
    "skills search": _with_skill(finding.search_skills.example),
    "skills select": _with_skill(finding.select_skills.example),
    "skills why": _with_skill(finding.explain_skill.example),
    "tools list": _with_code({"limit": 5}),
    "tools show": _with_code({"name": "shout"}),
    "tools run": _with_code({"name": "shout", "payload": {"text": "psst"}}),
    "tools test": _with_code({"names": ("shout",)}),
    "skills recipes list": _with_code({"name": "look-around"}),
    "skills recipes run": _with_code({"recipe": "look-around", "payload": {"query": "tables"}, "name": "look-around"}),
    "tasks list": _with_task(tasks.list_tasks.example),
    "tasks add": _with_skill(tasks.add_task.example),
    "tasks edit": _with_task(tasks.edit_task.example),
    "tasks remove": _with_task(tasks.remove_task.example),
    "tasks check": _with_task(tasks.check_tasks.example),
    "tasks draft": _with_skill(tasks.draft_tasks.example),
    "lessons show": lambda habitus: {"id": _a_lesson(habitus)},
    "lessons edit": lambda habitus: {"id": _a_lesson(habitus), "text": "Dates are ISO.", "expect": '"1"'},
    "lessons remove": lambda habitus: {"ids": (_a_lesson(habitus),)},
    "lessons restore": lambda habitus: {"ids": (_an_archived_lesson(habitus),)},
    "lessons retract": _a_taught_lesson,
    "review list": lambda habitus: {"limit": len(_proposals(habitus)) - 1},
    "review show": lambda habitus: {"id": _proposals(habitus)[0]},
    "review approve": lambda habitus: {"ids": _proposals(habitus)},
    "review reject": lambda habitus: {"ids": _proposals(habitus), "reason": "no ham"},
    "review reopen": _an_approved_proposal,
    "sessions outcome": _a_judgement,
    "skills evidence": lambda habitus: (_a_session(habitus), {"limit": 1})[1],
    "secrets list": _a_call,
    "users remove": lambda habitus: {
        "name": open_user_accounts(habitus).add_or_reinvite_user("ben", UserRole.VIEWER).person.name
    },
}
# `skills add` takes paths on the command line, and over REST only what lies on the public internet.
BOTH = [case for case in load_all_use_cases() if case.method and case.command and case is not sources.add_skills]


@pytest.mark.req("CL-01", "CL-03")
@pytest.mark.parametrize("case", BOTH, ids=lambda case: case.command)
def test_a_command_and_its_route_give_the_same_json(direct: Direct, tmp_path: Path, case: UseCase[..., Any]) -> None:
    other = tmp_path / "other"
    with _opened(direct, direct.home) as habitus:
        prepare = PREPARED.get(case.command)
        wanted = case.example if prepare is None else prepare(habitus)
    shutil.copytree(direct.home, other)
    ran = direct(*build_command_line_for_inputs(case, wanted), "--json")
    assert ran.code == 0, ran.err
    with _opened(direct, other) as habitus:
        by_request = _requested(habitus, case, wanted)
    assert _steady(by_request, other) == _steady(json.loads(ran.out), direct.home)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A command that is not declared with a route, and the request that is about the same thing."""

    command: tuple[str, ...]
    request: tuple[str, str]
    sent: Mapping[str, Any] = field(default_factory=dict)  # with the request
    prepare: Prepare = lambda habitus: None
    before: tuple[str, ...] = ()  # a command that is run first, on either home
    part: Callable[[Any], Any] = lambda told: told  # of what the command says, where it says more
    of_answer: Callable[[Any], Any] = lambda told: told  # the same of what the route answers
    status: int = 200

    @property
    def id(self) -> str:
        return " ".join(self.command)


def _proposal(habitus: Habitus) -> None:
    _proposals(habitus)
    (habitus.settings.cwd / "jam.md").write_text(JAM)


def _file_of_skills(habitus: Habitus) -> None:
    (habitus.settings.cwd / "jam.md").write_text(JAM)


def _skills_of_agent(habitus: Habitus) -> None:
    folder = habitus.settings.user_home / ".claude" / "skills" / "make-jam"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(JAM)


def _tasks(habitus: Habitus) -> None:
    _file_of_skills(habitus)
    (habitus.settings.cwd / "model.json").write_text("[]")
    for word in ("total", "mean", "rows"):
        tasks.add_task(
            habitus, tasks.AddTaskRequest(name="csv-summary", request=f"Say the {word}.", expect=(word,), id=word)
        )


JAM = "---\nname: make-jam\ndescription: Jam\n---\n1. Boil slowly.\n"
_JAM_FILE = {"files": {"file": ("jam.md", JAM.encode())}}
_UNDO = {"json": {"undo": ["undo", "csv-summary@user:1"]}}
_AGENT = "/agents/claude-code"
_CONNECT, _DISCONNECT = ("connect", "claude-code"), ("disconnect", "claude-code")
_CANDIDATE = ("--candidate", "jam.md", "--model", "script:model.json")
_NAMED, _NAME = ("config", "set", "bot_name", "Ada"), "/settings/bot_name"
PAIRS = [
    Pair(command=("undo", "csv-summary@user:1"), request=("POST", "/undo"), sent=_UNDO),
    Pair(
        command=("skills", "import", "jam.md"),
        request=("POST", "/uploads?save=true"),
        sent=_JAM_FILE,
        prepare=_file_of_skills,
    ),
    Pair(
        command=("skills", "add", "./jam.md"),
        request=("POST", "/uploads?save=true"),
        sent=_JAM_FILE,
        prepare=_file_of_skills,
    ),
    Pair(
        command=("skills", "import", "~/.claude/skills"),
        request=("POST", f"{_AGENT}/import"),
        prepare=_skills_of_agent,
    ),
    Pair(command=("skills", "scan", "jam.md"), request=("POST", "/uploads"), sent=_JAM_FILE, prepare=_file_of_skills),
    Pair(command=(*_CONNECT, "--dry-run"), request=("GET", f"{_AGENT}/changes")),
    Pair(command=(*_CONNECT, "--yes"), request=("POST", f"{_AGENT}/connect")),
    Pair(command=(*_CONNECT, "--yes"), request=("POST", f"{_AGENT}/connect"), before=(*_CONNECT, "--yes")),
    Pair(
        command=(*_DISCONNECT, "--dry-run"),
        request=("GET", f"{_AGENT}/changes?disconnecting=true"),
        before=(*_CONNECT, "--yes"),
    ),
    Pair(command=(*_DISCONNECT, "--yes"), request=("POST", f"{_AGENT}/disconnect"), before=(*_CONNECT, "--yes")),
    Pair(
        command=("secrets", "log"),
        request=("GET", "/secrets"),
        prepare=_a_call,
        of_answer=lambda told: {"calls": told["calls"]},
    ),
    Pair(command=("review", "trust", "--list"), request=("GET", "/trust"), prepare=_code_and_recipe),
    Pair(command=("review", "trust", "shout", "--yes"), request=("PUT", "/skills/shout/trust"), prepare=equip),
    Pair(
        command=("review", "trust", "--revoke", "shout"),
        request=("DELETE", "/skills/shout/trust"),
        prepare=_code_and_recipe,
    ),
    Pair(
        command=("config", "get", "bot_name"),
        request=("GET", "/settings"),
        of_answer=lambda told: next(one for one in told["settings"] if one["key"] == "bot_name"),
    ),
    Pair(command=_NAMED, request=("PUT", _NAME), sent={"json": {"value": "Ada"}}),
    Pair(command=("config", "unset", "bot_name"), request=("DELETE", _NAME), before=_NAMED),
    Pair(
        command=("skills", "improve", "csv-summary", *_CANDIDATE, "--later", "--yes"),
        request=("POST", "/skills/csv-summary/improvements"),
        sent={"json": {"text": JAM, "model": "script:model.json"}},
        prepare=_tasks,
        status=201,
    ),
    Pair(command=("skills", "improve", "--plan"), request=("GET", "/improvements/plan"), prepare=_tasks),
    Pair(
        command=("review", "edit", "1", "--file", "jam.md"),
        request=("PUT", "/review/1/text"),
        sent={"json": {"text": JAM}},
        prepare=_proposal,
    ),
]


@pytest.mark.req("CL-01", "CL-03")
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_a_command_without_a_declared_route_gives_the_json_of_its_pair(
    stocked: Direct, tmp_path: Path, pair: Pair
) -> None:
    own = stocked.cli
    with _opened(stocked, own.home) as habitus:
        pair.prepare(habitus)
    other = replace(own, home=tmp_path / "other", user_home=tmp_path / "someone")
    shutil.copytree(own.home, other.home)
    shutil.copytree(own.user_home, other.user_home)
    elsewhere = replace(stocked, cli=other)
    for door in (stocked, elsewhere) if pair.before else ():
        assert door(*pair.before).code == 0
    ran = stocked(*pair.command, "--json")
    assert ran.code == 0, ran.err
    method, path = pair.request
    with _opened(elsewhere, other.home) as habitus, _client(habitus) as client:
        answer = client.request(method, f"/api/v1{path}", **pair.sent)
    assert answer.status_code == pair.status, answer.text
    by_command, by_request = pair.part(json.loads(ran.out)), pair.of_answer(answer.json())
    assert _steady(by_request, other.home, other.user_home) == _steady(by_command, own.home, own.user_home)


# Commands that print JSON of a thing that no route is about, and routes of what no command is about; where both doors
# have it and differ all the same, docs/decisions/declarations.md says why.
NO_ROUTE = {
    *("chat", "tour", "check", "learn", "learn dream", "learn curate", "undo since", "skills sync", "users forget"),
    "lessons promote",
    *("db backup", "db backups", "db restore", "db copy", "db migrate", "db status", "sessions export"),
    *(
        *(f"tools scratchpad {one}" for one in ("exec", "list", "remove", "reset", "view")),
        "skills run",
        "skills evidence plan",
        "review diff",
    ),
    *("skills climb", "skills eval", "skills export", "skills lint", "skills publish", "skills trial", "skills update"),
    *(
        "tools new",
        "tools remove",
        "tools restore",
        "skills recipes mine",
        "skills recipes show",
        "skills recipes test",
    ),
    *("secrets grant", "secrets remove", "secrets revoke", "secrets set"),
}
NO_COMMAND = {
    *("GET /today", "GET /failing", "GET /layers", "GET /overview", "GET /map", "GET /find", "GET /insights"),
    *("GET /agents", "GET /agents/folders", "GET /pause", "GET /review/effect/{id}", "POST /review/{id}/choose"),
    *("GET /turns", "GET /turns/{id}", "GET /skills/{name}/evidence", "GET /skills/{name}/trust", "POST /additions"),
    *("GET /skills/{name}/files/{path}", "PUT /skills/{name}/files/{path}", "GET /jobs/{id}/events"),
    *("POST /sessions", "POST /sessions/{id}/say", "POST /sessions/{id}/stop", "POST /sessions/{id}/answer"),
    "GET /sessions/{id}/events",
}


@pytest.mark.req("CL-01", "CL-03")
def test_whatever_has_two_doors_is_compared_at_both() -> None:
    known = {*_commands_with_json(build_commands()), *(case.command for case in load_all_use_cases() if case.command)}
    alone = known - {case.command for case in BOTH}
    compared = {max((name for name in alone if _begins(pair.command, name)), key=len) for pair in PAIRS}
    assert compared | NO_ROUTE == alone
    assert not compared & NO_ROUTE
    found = standing().openapi()["paths"].items()
    routes = {f"{verb.upper()} {path.removeprefix('/api/v1')}" for path, verbs in found for verb in verbs}
    both = {f"{case.method} {case.path}" for case in BOTH}
    asked = {_route_of(*pair.request, routes) for pair in PAIRS} - both
    assert asked | NO_COMMAND == routes - both
    assert not asked & NO_COMMAND


def _commands_with_json(found: Iterable[Any], before: str = "") -> Iterator[str]:
    """Those that are written by hand."""
    for one in found:
        name = f"{before} {one.name}".strip()
        if isinstance(one, CommandGroupWithDefault):
            yield from _commands_with_json(one.commands.values(), name)
            if one.default is not None:
                yield from _commands_with_json([one.default], name.rpartition(" ")[0])
        elif not isinstance(one, LazyUseCaseCommand) and any("--json" in each.opts for each in one.load().params):
            yield name


def _begins(words: Sequence[str], name: str) -> bool:
    return list(words[: len(name.split())]) == name.split()


def _route_of(method: str, path: str, routes: Iterable[str]) -> str:
    asked = f"{method} {path.partition('?')[0]}"
    return next(one for one in sorted(routes) if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one), asked))


def _requested(habitus: Habitus, case: UseCase[..., Any], wanted: Mapping[str, Any]) -> Any:
    headers = {}
    given = case.fill_defaults(wanted)
    for one in case.input_fields:
        if one.is_version:
            headers["If-Match"] = given.pop(one.name)
    given = {name: _plain(value) for name, value in given.items()}
    path = re.sub(r"\{(\w+)\}", lambda found: _joined(given.pop(found[1])), case.path)
    sent = {"params": given} if case.method in ("GET", "DELETE") else {"json": given} if given else {}
    sent = {kind: {key: value for key, value in all.items() if value is not None} for kind, all in sent.items()}
    with _client(habitus) as client:
        answer = client.request(case.method, f"/api/v1{path}", headers=headers, **sent)  # type: ignore[arg-type]  # params or json
    assert answer.status_code == case.status, answer.text
    return answer.json()


@contextmanager
def _client(habitus: Habitus) -> Iterator[TestClient]:
    keys, desks = load_sign_in_service(habitus), HomePool(habitus)
    headers = {"Authorization": f"Bearer {keys.owner_token}"}
    try:
        yield TestClient(make_web_app(desks, keys, {HOST}, app=standing()), base_url=f"http://{HOST}", headers=headers)
    finally:
        desks.close()


def _plain(value: object) -> Any:
    return value.value if isinstance(value, Enum) else list(value) if isinstance(value, tuple) else value


def _joined(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


@contextmanager
def _opened(direct: Direct, home: Path) -> Iterator[Habitus]:
    with direct.patch.context() as patch:
        for name, value in direct.cli.environ().items():
            patch.setenv(name, value)
        settings = read_settings(home)
        with Habitus.open(settings.model_copy(update={"cwd": direct.cli.cwd})) as habitus:
            yield habitus


def _steady(told: Any, home: Path, person: Path | None = None) -> Any:
    """Without moments, the ids that are drawn, the room on the disk, where the homes lie, and the kind of a door."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.+-]+", "MOMENT", json.dumps(told, sort_keys=True))
    text = re.sub(r'"token": "[^"]+"', '"token": "DRAWN"', text.replace(str(home), "HOME"))
    text = text.replace(str(person), "PERSON") if person else text
    text = re.sub(r'\["undo", "[0-9a-f]{8}"\]', '["undo", "CHANGE"]', text)
    # A judgement by command is a person's, one by request a program's.
    text = re.sub(r'"source_kind": "(person|program)"', '"source_kind": "DOOR"', text)
    text = re.sub(r'"seconds": [0-9.e-]+', '"seconds": 0', text)
    text = re.sub(r"[\d.]+ .?B free", "ROOM free", text)
    text = re.sub(r"enter\?key=[\w-]+", "enter?key=DRAWN", text)
    for id in re.findall(r'"id": "(\w+)"', text):
        text = text.replace(id, "ID")
    return json.loads(text)


@pytest.mark.parametrize("case", list(load_all_use_cases()), ids=lambda case: case.command or case.path)
def test_a_declaration_is_whole(case: UseCase[..., Any]) -> None:
    assert case.help
    assert dataclasses.is_dataclass(case.result_type) or case.status == 204
    assert case.example.keys() <= {one.name for one in case.input_fields if one.help}
    assert all(one.name in case.example for one in case.input_fields if one.is_required)
    assert all(one.help for one in case.input_fields)
    names = set(re.findall(r"\{(\w+)\}", case.path))
    assert names <= {one.name for one in case.input_fields}
