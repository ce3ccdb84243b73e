"""Every command of `habitus`, and where it lives. What a command does is said by its function's docstring."""

from __future__ import annotations

from functools import partial

from typer.core import TyperCommand, TyperGroup

from habitus.cli.completion import lesson_ids, skill_names
from habitus.cli.examples import EXAMPLES
from habitus.cli.lazy import DeclaredCommand as Declared
from habitus.cli.lazy import LazyCommand as Command
from habitus.cli.lazy import group

FIRST = ("check", "connect", "chat", "up", "skills")
_USE, _LEARN, _DECIDE, _OPERATE = "Use", "Learn", "Decide", "Operate"
_OfSkill = partial(Command, completes=skill_names)
_OfLesson = partial(Command, completes=lesson_ids)
_DeclaredSkill = partial(Declared, completes=skill_names)
_DeclaredLesson = partial(Declared, completes=lesson_ids)


def commands() -> list[TyperCommand | TyperGroup]:
    found = _commands()
    for command in found:
        _exemplify(command, command.name or "")
    return found


def _exemplify(command: TyperCommand | TyperGroup, words: str) -> None:
    command.epilog = f"Example: {EXAMPLES[words]}" if words in EXAMPLES else None
    for name, below in getattr(command, "commands", {}).items():
        _exemplify(below, f"{words} {name}")


def _commands() -> list[TyperCommand | TyperGroup]:
    return [
        Command("chat", "chat:chat", panel=_USE),
        Command("ask", "chat:ask", panel=_USE),
        _OfSkill("why", "finding:why", panel=_USE),
        _OfSkill("trust", "trust:trust", panel=_DECIDE),
        Command("identity", "identity:identity", panel=_DECIDE),
        Command("tour", "tour:tour", panel=_USE),
        Command("check", "check:check", panel=_USE),
        Command("learn", "learn:learn", panel=_LEARN),
        Command("outcome", "judging:outcome", panel=_USE),
        Command("dream", "dream:dream", panel=_LEARN),
        Command("curate", "curate:curate", panel=_LEARN),
        Command("undo", "going_back:undo", panel=_DECIDE),
        Command("rollback", "going_back:rollback", panel=_DECIDE),
        Declared("pause", "pausing:pause", panel=_DECIDE),
        Declared("resume", "pausing:resume", panel=_DECIDE),
        Command("up", "up:up", panel=_USE),
        Command("run", "run:run", hidden=True),
        Command("mcp", "mcp:mcp", panel=_OPERATE),
        Command("connect", "connecting:connect", panel=_OPERATE),
        Command("disconnect", "connecting:disconnect", panel=_OPERATE),
        Command("sync", "syncing:sync", panel=_OPERATE),
        Command("hooks", "hooks:hooks", panel=_OPERATE, hidden=True),
        Command("doctor", "checking:doctor", panel=_OPERATE),
        Command("forget", "forgetting:forget", panel=_OPERATE),
        Command("worker", "jobs:worker", panel=_OPERATE),
        _backup(),
        _jobs(),
        _config(),
        _skills(),
        _skill(),
        _tools(),
        _recipes(),
        _tasks(),
        _pads(),
        _lessons(),
        _sessions(),
        _review(),
        _evidence(),
        _secrets(),
        _users(),
        _db(),
    ]


def _backup() -> TyperGroup:
    below = [
        Command("create", "backup:create"),
        Command("list", "backup:list_backups"),
        Command("restore", "backup:restore"),
    ]
    return group("backup", "The home as one file, and back.", below, panel=_OPERATE)


def _jobs() -> TyperGroup:
    below: list[TyperCommand | TyperGroup] = [
        Declared("add", "jobs:add"),
        Declared("list", "jobs:list_jobs"),
        Command("show", "jobs:show"),
        Declared("cancel", "jobs:cancel"),
        Declared("retry", "jobs:retry"),
        group("schedule", "What starts by itself, and when.", _schedule(), otherwise="list"),
    ]
    return group("jobs", "Long work that is left to a worker, and survives one.", below, panel=_OPERATE)


def _schedule() -> list[TyperCommand]:
    return [Declared("list", "jobs:list_scheduled"), Declared("set", "jobs:set_schedule")]


def _config() -> TyperGroup:
    below = [
        Command("list", "config:list_values"),
        Command("get", "config:get"),
        Command("set", "config:put"),
        Command("unset", "config:unset"),
    ]
    return group("config", "Look at the settings, and change them.", below, panel=_OPERATE)


def _skills() -> TyperGroup:
    below = [
        Declared("list", "skills:list_skills"),
        _OfSkill("show", "skills:show"),
        Declared("new", "writing:new"),
        _DeclaredSkill("edit", "writing:edit"),
        _DeclaredSkill("enable", "writing:enable"),
        _DeclaredSkill("disable", "writing:disable"),
        _DeclaredSkill("remove", "writing:remove"),
        Command("restore", "writing:restore"),
        _DeclaredSkill("history", "skills:history"),
        _DeclaredSkill("diff", "skills:diff"),
        _DeclaredSkill("rollback", "writing:rollback"),
        _OfSkill("lint", "checking:lint"),
        Command("scan", "scanning:scan"),
        _DeclaredSkill("stats", "skills:stats"),
        Command("import", "sources:import_skills"),
        Command("add", "sources:add"),
        _OfSkill("update", "sources:update"),
        _OfSkill("export", "sources:export"),
        _OfSkill("publish", "sources:publish"),
        Command("search", "searching:search"),
        Command("select", "finding:select"),
        _OfSkill("eval", "finding:evaluate"),
        _OfSkill("trial", "trial:trial"),
        _OfSkill("climb", "climb:skill"),
        _OfSkill("improve", "improving:improve"),
        _DeclaredSkill("improvements", "improving:improvements"),
    ]
    help = "List, read, write and undo skills. NAME may be 'name' or 'name@layer'."
    return group("skills", help, below, panel=_USE)


def _skill() -> TyperGroup:
    below = [_OfSkill("run", "skill_run:run")]
    return group("skill", "The command line that a skill brings along.", below, panel=_USE)


def _tools() -> TyperGroup:
    below = [
        Command("new", "tools:new"),
        Command("list", "tools:list_tools"),
        _OfSkill("show", "tools:show"),
        _OfSkill("run", "tools:run"),
        _OfSkill("test", "tools:run_cases"),
        _OfSkill("remove", "tools:remove"),
        _OfSkill("restore", "tools:restore"),
    ]
    help = "Make, run and test tools: code that passed its test, in the sandbox."
    return group("tools", help, below, panel=_USE)


def _tasks() -> TyperGroup:
    below = [
        _DeclaredSkill("list", "tasks:list_tasks"),
        _DeclaredSkill("add", "tasks:add"),
        _DeclaredSkill("edit", "tasks:edit"),
        _DeclaredSkill("remove", "tasks:remove"),
        _DeclaredSkill("check", "tasks:check"),
        Declared("mine", "tasks:mine"),
    ]
    help = "What skills are examined by: a request, what is laid out, and what says whether it went well."
    return group("tasks", help, below, panel=_LEARN)


def _recipes() -> TyperGroup:
    below = [
        Command("list", "recipes:list_recipes"),
        Command("show", "recipes:show"),
        Command("run", "recipes:run"),
        Command("test", "recipes:check"),
        Command("mine", "mining:mine"),
    ]
    help = "Recipes: named sequences of tool calls that skills bring along."
    return group("recipes", help, below, panel=_USE)


def _pads() -> TyperGroup:
    below = [
        Command("exec", "pads:execute"),
        Command("list", "pads:list_pads"),
        Command("view", "pads:view"),
        Command("reset", "pads:reset"),
        Command("remove", "pads:remove"),
        Command("keep", "pads:keep", hidden=True),
    ]
    help = "Scratchpads: named, isolated Python processes that remember, cell by cell."
    return group("pad", help, below, panel=_USE)


def _lessons() -> TyperGroup:
    below = [
        Declared("list", "lessons:list_lessons"),
        _DeclaredLesson("show", "lessons:show"),
        Declared("add", "lessons:add"),
        _OfLesson("edit", "lessons:edit"),
        _DeclaredLesson("remove", "lessons:remove"),
        Declared("retract", "lessons:retract"),
        _DeclaredLesson("restore", "lessons:restore"),
        _OfLesson("promote", "climb:lesson"),
        Declared("archive", "lessons:list_archive"),
    ]
    return group("lessons", "Facts, rules and lessons that reach every fitting prompt.", below, panel=_LEARN)


def _sessions() -> TyperGroup:
    below = [
        Declared("list", "sessions:list_sessions"),
        Declared("show", "sessions:show"),
        Command("export", "sessions:export"),
    ]
    return group("sessions", "Look at past conversations, and take them along.", below, panel=_USE)


def _review() -> TyperGroup:
    below = [
        Declared("list", "review:list_waiting"),
        Declared("show", "review:show"),
        Declared("diff", "review:diff"),
        Declared("approve", "review:approve"),
        Declared("reject", "review:reject"),
        Declared("reopen", "review:reopen"),
        Command("edit", "review:edit"),
    ]
    return group("review", "Decide about changes that wait for you.", below, panel=_DECIDE)


def _evidence() -> TyperGroup:
    below = [_OfSkill("show", "evidence:show"), Command("plan", "evidence:plan")]
    help = "What helps, and how sure that is: 'habitus evidence NAME' shows one item."
    return group("evidence", help, below, panel=_LEARN, otherwise="show")


def _secrets() -> TyperGroup:
    below = [
        Command("set", "secrets:set_secret"),
        Command("list", "secrets:list_secrets"),
        Command("remove", "secrets:remove"),
        Command("grant", "secrets:grant"),
        Command("revoke", "secrets:revoke"),
        Command("log", "secrets:log"),
    ]
    help = "Values that skills' command lines need: no model sees them, and only what you grant is given."
    return group("secrets", help, below, panel=_OPERATE)


def _users() -> TyperGroup:
    below = [
        Declared("add", "users:add"),
        Declared("list", "users:list_users"),
        Declared("remove", "users:remove"),
    ]
    return group("users", "People who may sign in to the web page besides you.", below, panel=_OPERATE)


def _db() -> TyperGroup:
    below = [Command("status", "db:status"), Command("migrate", "db:migrate"), Command("copy", "db:copy")]
    return group("db", "The database: how it stands, bringing it up to date, moving it.", below, panel=_OPERATE)
