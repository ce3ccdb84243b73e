"""Every command of `habitus`, where it lives, and an example of each. Its docstring says what it does."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from typer.core import TyperCommand, TyperGroup

from habitus.cli.completion import lesson_ids, skill_names
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
        Command("chat", "agents.chat:chat", panel=_USE),
        Command("ask", "agents.chat:ask", panel=_USE),
        _OfSkill("why", "skills.finding:why", panel=_USE),
        _OfSkill("trust", "learning.review:trust", panel=_DECIDE),
        Command("identity", "learning.lessons:identity", panel=_DECIDE),
        Command("tour", "agents.tour:tour", panel=_USE),
        Command("check", "agents.check:check", panel=_USE),
        Command("learn", "learning.learn:learn", panel=_LEARN),
        Command("outcome", "learning.evidence:outcome", panel=_USE),
        Command("dream", "learning.dream:dream", panel=_LEARN),
        Command("curate", "learning.lessons:curate", panel=_LEARN),
        Command("undo", "learning.undo:undo", panel=_DECIDE),
        Command("rollback", "learning.undo:rollback", panel=_DECIDE),
        Declared("pause", "learning.undo:pause", group="pausing", panel=_DECIDE),
        Declared("resume", "learning.undo:resume", group="pausing", panel=_DECIDE),
        Command("up", "operating.up:up", panel=_USE),
        Command("run", "agents.tour:run", hidden=True),
        Command("mcp", "agents.mcp:mcp", panel=_OPERATE),
        Command("connect", "agents.connect:connect", panel=_OPERATE),
        Command("disconnect", "agents.connect:disconnect", panel=_OPERATE),
        Command("sync", "agents.connect:sync", panel=_OPERATE),
        Command("hooks", "agents.hooks:hooks", panel=_OPERATE, hidden=True),
        Command("doctor", "operating.checking:doctor", panel=_OPERATE),
        Command("forget", "learning.forget:forget", panel=_OPERATE),
        Command("worker", "operating.jobs:worker", panel=_OPERATE),
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
        Command("create", "operating.db:create"),
        Command("list", "operating.db:list_backups"),
        Command("restore", "operating.db:restore"),
    ]
    return group("backup", "The home as one file, and back.", below, panel=_OPERATE)


def _jobs() -> TyperGroup:
    below: list[TyperCommand | TyperGroup] = [
        Declared("add", "operating.jobs:add"),
        Declared("list", "operating.jobs:list_jobs"),
        Command("show", "operating.jobs:show"),
        Declared("cancel", "operating.jobs:cancel"),
        Declared("retry", "operating.jobs:retry"),
        group("schedule", "What starts by itself, and when.", _schedule(), otherwise="list"),
    ]
    return group("jobs", "Long work that is left to a worker, and survives one.", below, panel=_OPERATE)


def _schedule() -> list[TyperCommand]:
    return [Declared("list", "operating.jobs:list_scheduled"), Declared("set", "operating.jobs:set_schedule")]


def _config() -> TyperGroup:
    below = [
        Command("list", "operating.config:list_values"),
        Command("get", "operating.config:get"),
        Command("set", "operating.config:put"),
        Command("unset", "operating.config:unset"),
    ]
    return group("config", "Look at the settings, and change them.", below, panel=_OPERATE)


def _skills() -> TyperGroup:
    below = [
        Declared("list", "skills.listing:list_skills", group="skills"),
        _OfSkill("show", "skills.listing:show"),
        Declared("new", "skills.writing:new"),
        _DeclaredSkill("edit", "skills.writing:edit"),
        _DeclaredSkill("enable", "skills.writing:enable"),
        _DeclaredSkill("disable", "skills.writing:disable"),
        _DeclaredSkill("remove", "skills.writing:remove"),
        Command("restore", "skills.writing:restore"),
        _DeclaredSkill("history", "skills.listing:history", group="skills"),
        _DeclaredSkill("diff", "skills.listing:diff", group="skills"),
        _DeclaredSkill("rollback", "skills.writing:rollback"),
        _OfSkill("lint", "operating.checking:lint"),
        Command("scan", "skills.sources:scan"),
        _DeclaredSkill("stats", "skills.listing:stats", group="skills"),
        Command("import", "skills.sources:import_skills"),
        Command("add", "skills.sources:add"),
        _OfSkill("update", "skills.sources:update"),
        _OfSkill("export", "skills.sources:export"),
        _OfSkill("publish", "skills.sources:publish"),
        Command("search", "skills.listing:search"),
        Command("select", "skills.finding:select"),
        _OfSkill("eval", "skills.finding:evaluate"),
        _OfSkill("trial", "skills.improving:trial"),
        _OfSkill("climb", "skills.improving:skill"),
        _OfSkill("improve", "skills.improving:improve"),
        _DeclaredSkill("improvements", "skills.improving:improvements"),
    ]
    help = "List, read, write and undo skills. NAME may be 'name' or 'name@layer'."
    return group("skills", help, below, panel=_USE)


def _skill() -> TyperGroup:
    below = [_OfSkill("run", "operating.secrets:run")]
    return group("skill", "The command line that a skill brings along.", below, panel=_USE)


def _tools() -> TyperGroup:
    below = [
        Command("new", "skills.tools:new"),
        Command("list", "skills.tools:list_tools"),
        _OfSkill("show", "skills.tools:show"),
        _OfSkill("run", "skills.tools:run"),
        _OfSkill("test", "skills.tools:run_cases"),
        _OfSkill("remove", "skills.tools:remove"),
        _OfSkill("restore", "skills.tools:restore"),
    ]
    help = "Make, run and test tools: code that passed its test, in the sandbox."
    return group("tools", help, below, panel=_USE)


def _tasks() -> TyperGroup:
    below = [
        _DeclaredSkill("list", "skills.tasks:list_tasks"),
        _DeclaredSkill("add", "skills.tasks:add"),
        _DeclaredSkill("edit", "skills.tasks:edit"),
        _DeclaredSkill("remove", "skills.tasks:remove"),
        _DeclaredSkill("check", "skills.tasks:check"),
        Declared("mine", "skills.tasks:mine"),
    ]
    help = "What skills are examined by: a request, what is laid out, and what says whether it went well."
    return group("tasks", help, below, panel=_LEARN)


def _recipes() -> TyperGroup:
    below = [
        Command("list", "skills.recipes:list_recipes"),
        Command("show", "skills.recipes:show"),
        Command("run", "skills.recipes:run"),
        Command("test", "skills.recipes:check"),
        Command("mine", "skills.recipes:mine"),
    ]
    help = "Recipes: named sequences of tool calls that skills bring along."
    return group("recipes", help, below, panel=_USE)


def _pads() -> TyperGroup:
    below = [
        Command("exec", "agents.sessions:execute"),
        Command("list", "agents.sessions:list_pads"),
        Command("view", "agents.sessions:view"),
        Command("reset", "agents.sessions:reset"),
        Command("remove", "agents.sessions:remove"),
        Command("keep", "agents.sessions:keep", hidden=True),
    ]
    help = "Scratchpads: named, isolated Python processes that remember, cell by cell."
    return group("pad", help, below, panel=_USE)


def _lessons() -> TyperGroup:
    below = [
        Declared("list", "learning.lessons:list_lessons"),
        _DeclaredLesson("show", "learning.lessons:show"),
        Declared("add", "learning.lessons:add"),
        _OfLesson("edit", "learning.lessons:edit"),
        _DeclaredLesson("remove", "learning.lessons:remove"),
        Declared("retract", "learning.lessons:retract"),
        _DeclaredLesson("restore", "learning.lessons:restore"),
        _OfLesson("promote", "skills.improving:lesson"),
        Declared("archive", "learning.lessons:list_archive"),
    ]
    return group("lessons", "Facts, rules and lessons that reach every fitting prompt.", below, panel=_LEARN)


def _sessions() -> TyperGroup:
    below = [
        Declared("list", "agents.sessions:list_sessions"),
        Declared("show", "agents.sessions:show"),
        Command("export", "agents.sessions:export"),
    ]
    return group("sessions", "Look at past conversations, and take them along.", below, panel=_USE)


def _review() -> TyperGroup:
    below = [
        Declared("list", "learning.review:list_waiting"),
        Declared("show", "learning.review:show"),
        Declared("diff", "learning.review:diff"),
        Declared("approve", "learning.review:approve"),
        Declared("reject", "learning.review:reject"),
        Declared("reopen", "learning.review:reopen"),
        Command("edit", "learning.review:edit"),
    ]
    return group("review", "Decide about changes that wait for you.", below, panel=_DECIDE)


def _evidence() -> TyperGroup:
    below = [_OfSkill("show", "learning.evidence:show"), Command("plan", "learning.evidence:plan")]
    help = "What helps, and how sure that is: 'habitus evidence NAME' shows one item."
    return group("evidence", help, below, panel=_LEARN, otherwise="show")


def _secrets() -> TyperGroup:
    below = [
        Command("set", "operating.secrets:set_secret"),
        Command("list", "operating.secrets:list_secrets"),
        Command("remove", "operating.secrets:remove"),
        Command("grant", "operating.secrets:grant"),
        Command("revoke", "operating.secrets:revoke"),
        Command("log", "operating.secrets:log"),
    ]
    help = "Values that skills' command lines need: no model sees them, and only what you grant is given."
    return group("secrets", help, below, panel=_OPERATE)


def _users() -> TyperGroup:
    below = [
        Declared("add", "operating.config:add", group="users"),
        Declared("list", "operating.config:list_users", group="users"),
        Declared("remove", "operating.config:remove", group="users"),
    ]
    return group("users", "People who may sign in to the web page besides you.", below, panel=_OPERATE)


def _db() -> TyperGroup:
    below = [
        Command("status", "operating.db:status"),
        Command("migrate", "operating.db:migrate"),
        Command("copy", "operating.db:copy"),
    ]
    return group("db", "The database: how it stands, bringing it up to date, moving it.", below, panel=_OPERATE)


EXAMPLES: Mapping[str, str] = {
    "chat": "habitus chat --attach sales.csv",
    "ask": "habitus ask 'What is the revenue per region?' --attach sales.csv",
    "why": "habitus why csv-summary --request 'total by region'",
    "trust": "habitus trust ~/work/shop",
    "identity": "habitus identity --set 'You are brief and kind.'",
    "tour": "habitus tour",
    "learn": "habitus learn ~/.claude/projects --apply",
    "outcome": "habitus outcome d4342a3ce725 --failed --reason 'the south is missing'",
    "dream": "habitus dream --cycles 8 --budget 30m --domain sql",
    "curate": "habitus curate --apply",
    "undo": "habitus undo csv-summary@user:7",
    "rollback": "habitus rollback --to '2 hours ago' --dry-run",
    "doctor": "habitus doctor --json",
    "backup": "habitus backup create",
    "backup create": "habitus backup create /mnt/safe/habitus.tar.gz",
    "backup list": "habitus backup list",
    "backup restore": "habitus backup restore habitus-20260101-120000.tar.gz",
    "forget": "habitus forget --user ann --dry-run",
    "check": "habitus check --agent claude-code --html report.html",
    "mcp": "habitus mcp --user ana",
    "connect": "habitus connect claude-code --dry-run",
    "disconnect": "habitus disconnect claude-code",
    "sync": "habitus sync claude-code codex --only csv-summary",
    "db": "habitus db status",
    "db status": "habitus db status --json",
    "db migrate": "habitus db migrate",
    "db copy": "habitus db copy home postgresql://habitus@db.example.org/habitus",
    "worker": "habitus worker --until-idle",
    "jobs": "habitus jobs list",
    "jobs show": "habitus jobs show 53b07abe",
    "jobs schedule": "habitus jobs schedule",
    "up": "habitus up --port 8080",
    "secrets": "habitus secrets list",
    "secrets set": "habitus secrets set smtp.password",
    "secrets list": "habitus secrets list --json",
    "secrets remove": "habitus secrets remove smtp.password",
    "secrets grant": "habitus secrets grant smtp.password pdf-mailer --host smtp.example.org",
    "secrets revoke": "habitus secrets revoke smtp.password pdf-mailer",
    "secrets log": "habitus secrets log --since yesterday",
    "users": "habitus users add ben --role reviewer",
    "config": "habitus config list",
    "config list": "habitus config list",
    "config get": "habitus config get model",
    "config set": "habitus config set retention.turn_days 60",
    "config unset": "habitus config unset model",
    "skills": "habitus skills list --state gated",
    "skills show": "habitus skills show csv-summary --raw",
    "skills restore": "habitus skills restore csv-summary --as csv-summary-old",
    "skills lint": "habitus skills lint csv-summary",
    "skills scan": "habitus skills scan download.zip",
    "skills import": "habitus skills import ~/Downloads/skills.zip --skill csv-summary",
    "skills add": "habitus skills add owner/repo/skills/csv-summary",
    "skills update": "habitus skills update --check",
    "skills publish": "habitus skills publish site csv-summary --tag shared",
    "skills export": "habitus skills export csv-summary --to out",
    "skills search": "habitus skills search 'total by region' --wide",
    "skills select": "habitus skills select --request 'total by region'",
    "skills eval": "habitus skills eval csv-summary --record 'total by region' --should",
    "skills improve": "habitus skills improve csv-summary --budget $5",
    "skills trial": "habitus skills trial csv-summary --cases cases.json --runs 3",
    "skills climb": "habitus skills climb csv-summary --to code --model openai:gpt-5-mini",
    "skill": "habitus skill run pdf-mailer -- send --to ana@example.org",
    "skill run": "habitus skill run pdf-mailer -- send --to ana@example.org",
    "tasks": "habitus tasks list csv-summary",
    "tools": 'habitus tools run count-words \'{"text": "one two"}\'',
    "tools new": "habitus tools new count-words -d 'Counts words.' --code t.py -p '{\"text\": \"a\"}' -s schema.json",
    "tools list": "habitus tools list",
    "tools show": "habitus tools show count-words",
    "tools run": 'habitus tools run count-words \'{"text": "one two"}\'',
    "tools test": "habitus tools test count-words",
    "tools remove": "habitus tools remove count-words",
    "tools restore": "habitus tools restore count-words",
    "recipes": "habitus recipes list",
    "recipes list": "habitus recipes list --wide",
    "recipes show": "habitus recipes show monthly-report",
    "recipes run": 'habitus recipes run monthly-report \'{"month": "2026-10"}\' --dry-run',
    "recipes test": "habitus recipes test",
    "recipes mine": "habitus recipes mine --apply",
    "pad": "habitus pad exec trial 'x = 21'",
    "pad exec": "habitus pad exec trial 'print(x * 2)'",
    "pad list": "habitus pad list",
    "pad view": "habitus pad view trial",
    "pad reset": "habitus pad reset trial",
    "pad remove": "habitus pad remove trial",
    "lessons": "habitus lessons add 'Dates are day-first.'",
    "lessons edit": "habitus lessons edit b7k2m9qx --text 'Dates are ISO.'",
    "lessons promote": "habitus lessons promote k3fa9c1d",
    "sessions": "habitus sessions list",
    "sessions export": "habitus sessions export 2026-05-04-1 --to talk.md",
    "evidence": "habitus evidence plan",
    "evidence show": "habitus evidence show csv-summary",
    "evidence plan": "habitus evidence plan",
    "review": "habitus review list",
    "review edit": "habitus review edit 3",
}
