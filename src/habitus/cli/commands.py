"""Every command of `habitus`: the module that implements it and an example for its help."""

from __future__ import annotations

from functools import partial
from typing import Any

from typer.core import TyperCommand, TyperGroup

from habitus.cli.completion import lesson_ids, skill_names
from habitus.cli.lazy import DeclaredCommand as Declared
from habitus.cli.lazy import LazyCommand as Command
from habitus.cli.lazy import group

FIRST = ("check", "connect", "chat", "up", "skills")
_USE, _LEARN, _DECIDE, _OPERATE = "Use", "Learn", "Decide", "Operate"
# Tab completion has to work before a command's module is imported, so the completer is bound here.
_OfSkill = partial(Command, completes=skill_names)
_OfLesson = partial(Command, completes=lesson_ids)
_DeclaredSkill = partial(Declared, completes=skill_names)
_DeclaredLesson = partial(Declared, completes=lesson_ids)


def commands() -> list[TyperCommand | TyperGroup]:
    """Return all commands of `habitus`, each with an example as the last line of its help."""
    found = _commands()
    for command in found:
        _add_example(command, f"habitus {command.name}")
    return found


def _add_example(command: Any, words: str) -> None:
    # A declared command replaces this on loading with the example of its declaration.
    command.epilog = f"Example: {words} {command.example}".rstrip()
    for name, below in getattr(command, "commands", {}).items():
        _add_example(below, f"{words} {name}")


def _commands() -> list[TyperCommand | TyperGroup]:
    return [
        Command("chat", "agents.chat:chat", "--attach sales.csv", panel=_USE),
        Command("ask", "agents.chat:ask", "'What is the revenue per region?' --attach sales.csv", panel=_USE),
        _DeclaredSkill("why", "skills.finding:why", panel=_USE),
        _OfSkill("trust", "learning.review:trust", "~/work/shop", panel=_DECIDE),
        Command("identity", "learning.lessons:identity", "--set 'You are brief and kind.'", panel=_DECIDE),
        Command("tour", "agents.tour:tour", panel=_USE),
        Command("check", "agents.check:check", "--agent claude-code --html report.html", panel=_USE),
        Command("learn", "learning.learn:learn", "~/.claude/projects --apply", panel=_LEARN),
        Declared("outcome", "learning.evidence:outcome", panel=_USE),
        Command("dream", "learning.dream:dream", "--cycles 8 --budget 30m --domain sql", panel=_LEARN),
        Declared("curate", "learning.lessons:curate", panel=_LEARN),
        Declared("undo", "learning.undo:undo", group="undoing", panel=_DECIDE),
        Declared("rollback", "learning.undo:rollback", group="undoing", panel=_DECIDE),
        Declared("pause", "learning.undo:pause", group="pausing", panel=_DECIDE),
        Declared("resume", "learning.undo:resume", group="pausing", panel=_DECIDE),
        Command("up", "operating.up:up", "--port 8080", panel=_USE),
        Command("run", "agents.tour:run", hidden=True),
        Command("mcp", "agents.mcp:mcp", "--user ana", panel=_OPERATE),
        Command("connect", "agents.connect:connect", "claude-code --dry-run", panel=_OPERATE),
        Command("disconnect", "agents.connect:disconnect", "claude-code", panel=_OPERATE),
        Command("sync", "agents.connect:sync", "claude-code codex --only csv-summary", panel=_OPERATE),
        Command("hooks", "agents.hooks:hooks", panel=_OPERATE, hidden=True),
        Command("doctor", "operating.checking:doctor", "--json", panel=_OPERATE),
        Declared("forget", "operating.db:forget", group="storage", panel=_OPERATE),
        Command("worker", "operating.jobs:worker", "--until-idle", panel=_OPERATE),
        group(
            "backup",
            "The home as one file, and back.",
            [
                Declared("create", "operating.db:create", group="storage"),
                Declared("list", "operating.db:list_backups", group="storage"),
                Declared("restore", "operating.db:restore", group="storage"),
            ],
            example="create",
            panel=_OPERATE,
        ),
        group(
            "jobs",
            "Long work that is left to a worker, and survives one.",
            [
                Declared("add", "operating.jobs:add"),
                Declared("list", "operating.jobs:list_jobs"),
                Command("show", "operating.jobs:show", "53b07abe"),
                Declared("cancel", "operating.jobs:cancel"),
                Declared("retry", "operating.jobs:retry"),
                group(
                    "schedule",
                    "What starts by itself, and when.",
                    [Declared("list", "operating.jobs:list_scheduled"), Declared("set", "operating.jobs:set_schedule")],
                    otherwise="list",
                ),
            ],
            example="list",
            panel=_OPERATE,
        ),
        group(
            "config",
            "Look at the settings, and change them.",
            [
                Declared("list", "operating.config:list_values", group="settings"),
                Declared("get", "operating.config:get", group="settings"),
                Declared("set", "operating.config:put", group="settings"),
                Declared("unset", "operating.config:unset", group="settings"),
            ],
            example="list",
            panel=_OPERATE,
        ),
        group(
            "skills",
            "List, read, write and undo skills. NAME may be 'name' or 'name@layer'.",
            [
                Declared("list", "skills.listing:list_skills", group="skills"),
                _OfSkill("show", "skills.listing:show", "csv-summary --raw"),
                Declared("new", "skills.writing:new"),
                _DeclaredSkill("edit", "skills.writing:edit"),
                _DeclaredSkill("enable", "skills.writing:enable"),
                _DeclaredSkill("disable", "skills.writing:disable"),
                _DeclaredSkill("remove", "skills.writing:remove"),
                Declared("restore", "skills.writing:restore"),
                _DeclaredSkill("history", "skills.listing:history", group="skills"),
                _DeclaredSkill("diff", "skills.listing:diff", group="skills"),
                _DeclaredSkill("rollback", "skills.writing:rollback"),
                _DeclaredSkill("lint", "skills.checking:lint", group="sources"),
                Declared("scan", "skills.checking:scan", group="sources"),
                _DeclaredSkill("stats", "skills.listing:stats", group="skills"),
                Declared("import", "skills.sources:import_skills"),
                Declared("add", "skills.sources:add"),
                _DeclaredSkill("update", "skills.sources:update"),
                _DeclaredSkill("export", "skills.sources:export"),
                _DeclaredSkill("publish", "skills.sources:publish"),
                Declared("search", "skills.finding:search"),
                Declared("select", "skills.finding:select"),
                _DeclaredSkill("eval", "skills.finding:evaluate"),
                _OfSkill("trial", "skills.improving:trial", "csv-summary --cases cases.json --runs 3"),
                _DeclaredSkill("climb", "skills.improving:climb"),
                _OfSkill("improve", "skills.improving:improve", "csv-summary --budget $5"),
                _DeclaredSkill("improvements", "skills.improving:improvements"),
            ],
            example="list --state gated",
            panel=_USE,
        ),
        group(
            "skill",
            "The command line that a skill brings along.",
            [_OfSkill("run", "operating.secrets:run", "pdf-mailer -- send --to ana@example.org")],
            example="run pdf-mailer -- send --to ana@example.org",
            panel=_USE,
        ),
        group(
            "tools",
            "Make, run and test tools: code that passed its test, in the sandbox.",
            [
                Declared("new", "skills.tools:new"),
                Declared("list", "skills.tools:list_tools"),
                _DeclaredSkill("show", "skills.tools:show"),
                _DeclaredSkill("run", "skills.tools:run"),
                _DeclaredSkill("test", "skills.tools:run_cases"),
                _DeclaredSkill("remove", "skills.tools:remove"),
                _DeclaredSkill("restore", "skills.tools:restore"),
            ],
            example='run count-words \'{"text": "one two"}\'',
            panel=_USE,
        ),
        group(
            "recipes",
            "Recipes: named sequences of tool calls that skills bring along.",
            [
                Declared("list", "skills.recipes:list_recipes"),
                Declared("show", "skills.recipes:show"),
                Declared("run", "skills.recipes:run"),
                Declared("test", "skills.recipes:check"),
                Command("mine", "skills.recipes:mine", "--apply"),
            ],
            example="list",
            panel=_USE,
        ),
        group(
            "tasks",
            "What skills are examined by: a request, what is laid out, and what says whether it went well.",
            [
                _DeclaredSkill("list", "skills.tasks:list_tasks"),
                _DeclaredSkill("add", "skills.tasks:add"),
                _DeclaredSkill("edit", "skills.tasks:edit"),
                _DeclaredSkill("remove", "skills.tasks:remove"),
                _DeclaredSkill("check", "skills.tasks:check"),
                Declared("mine", "skills.tasks:mine"),
            ],
            example="list csv-summary",
            panel=_LEARN,
        ),
        group(
            "pad",
            "Scratchpads: named, isolated Python processes that remember, cell by cell.",
            [
                Declared("exec", "agents.pads:execute"),
                Declared("list", "agents.pads:list_pads"),
                Declared("view", "agents.pads:view"),
                Declared("reset", "agents.pads:reset"),
                Declared("remove", "agents.pads:remove"),
                Command("keep", "agents.pads:keep", hidden=True),
            ],
            example="exec trial 'x = 21'",
            panel=_USE,
        ),
        group(
            "lessons",
            "Facts, rules and lessons that reach every fitting prompt.",
            [
                Declared("list", "learning.lessons:list_lessons"),
                _DeclaredLesson("show", "learning.lessons:show"),
                Declared("add", "learning.lessons:add"),
                _OfLesson("edit", "learning.lessons:edit", "b7k2m9qx --text 'Dates are ISO.'"),
                _DeclaredLesson("remove", "learning.lessons:remove"),
                Declared("retract", "learning.lessons:retract"),
                _DeclaredLesson("restore", "learning.lessons:restore"),
                _DeclaredLesson("promote", "skills.improving:promote"),
                Declared("archive", "learning.lessons:list_archive"),
            ],
            example="add 'Dates are day-first.'",
            panel=_LEARN,
        ),
        group(
            "sessions",
            "Look at past conversations, and take them along.",
            [
                Declared("list", "agents.sessions:list_sessions"),
                Declared("show", "agents.sessions:show"),
                Command("export", "agents.sessions:export", "2026-05-04-1 --to talk.md"),
            ],
            example="list",
            panel=_USE,
        ),
        group(
            "review",
            "Decide about changes that wait for you.",
            [
                Declared("list", "learning.review:list_waiting"),
                Declared("show", "learning.review:show"),
                Declared("diff", "learning.review:diff"),
                Declared("approve", "learning.review:approve"),
                Declared("reject", "learning.review:reject"),
                Declared("reopen", "learning.review:reopen"),
                Command("edit", "learning.review:edit", "3"),
            ],
            example="list",
            panel=_DECIDE,
        ),
        group(
            "evidence",
            "What helps, and how sure that is: 'habitus evidence NAME' shows one item.",
            [_DeclaredSkill("show", "learning.evidence:show"), Declared("plan", "learning.evidence:plan")],
            example="plan",
            panel=_LEARN,
            otherwise="show",
        ),
        group(
            "secrets",
            "Values that skills' command lines need: no model sees them, and only what you grant is given.",
            [
                Command("set", "operating.secrets:set_secret", "smtp.password"),
                Declared("list", "operating.secrets:list_secrets"),
                Declared("remove", "operating.secrets:remove"),
                _DeclaredSkill("grant", "operating.secrets:grant"),
                _DeclaredSkill("revoke", "operating.secrets:revoke"),
                Declared("log", "operating.secrets:log"),
            ],
            example="list",
            panel=_OPERATE,
        ),
        group(
            "users",
            "People who may sign in to the web page besides you.",
            [
                Declared("add", "operating.config:add", group="users"),
                Declared("list", "operating.config:list_users", group="users"),
                Declared("remove", "operating.config:remove", group="users"),
            ],
            example="add ben --role reviewer",
            panel=_OPERATE,
        ),
        group(
            "db",
            "The database: how it stands, bringing it up to date, moving it.",
            [
                Declared("status", "operating.db:status", group="storage"),
                Declared("migrate", "operating.db:migrate", group="storage"),
                Command("copy", "operating.db:copy", "home postgresql://habitus@db.example.org/habitus"),
            ],
            example="status",
            panel=_OPERATE,
        ),
    ]
