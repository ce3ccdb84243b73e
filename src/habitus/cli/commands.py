"""Every command of `habitus`: the module that implements it and an example for its help."""

from __future__ import annotations

from typer.core import TyperCommand, TyperGroup

from habitus.cli.lazy_commands import CommandGroupWithDefault, build_command_group
from habitus.cli.lazy_commands import LazyCommand as Command
from habitus.cli.lazy_commands import LazyUseCaseCommand as Declared

# What `habitus` alone shows: per purpose the commands with a line each, then the rest by name.
HELP_SECTIONS = (
    ("See", ("check", "skills", "sessions", "report"), ("tour",)),
    ("Decide", ("review", "undo"), ()),
    ("Learn", ("learn", "lessons"), ("tasks", "tools")),
    ("Connect", ("connect", "chat"), ("disconnect", "mcp")),
    ("Operate", ("up", "doctor"), ("config", "secrets", "users", "jobs", "db")),
)


def build_commands() -> list[TyperCommand | TyperGroup]:
    """Return all commands of `habitus`, each with an example as the last line of its help."""
    groups = _build_command_groups()
    found: list[TyperCommand | TyperGroup] = []

    def attach(command: Command | CommandGroupWithDefault, words: str) -> None:
        # A declared command replaces the example on loading with that of its declaration.
        command.epilog = f"Example: habitus {words} {command.example}".rstrip()
        parent, _, command.name = words.rpartition(" ")
        if not parent:
            found.append(command)
            return
        # A group stands where its first command does.
        if not groups[parent].has_commands():
            attach(groups[parent], parent)
        groups[parent].add_command(command)

    for command in _list_commands():
        words = command.name or ""
        if words in groups:
            groups[words].default = command
            attach(groups[words], words)
            command.name, command.epilog = groups[words].name, f"Example: habitus {words} {command.example}".rstrip()
        else:
            attach(command, words)
    return found


def _list_commands() -> list[Command]:
    return [
        Command("check", "agents.check:check_agents", "--agent claude-code --html report.html"),
        Declared("skills list", "skills.listing:list_skills", group="skills"),
        Command("skills show", "skills.listing:show_skill", "csv-summary --raw"),
        Declared("skills new", "skills.writing:create_skill"),
        Declared("skills edit", "skills.writing:edit_skill"),
        Declared("skills enable", "skills.writing:enable_skills"),
        Declared("skills disable", "skills.writing:disable_skills"),
        Declared("skills remove", "skills.writing:remove_skills"),
        Declared("skills restore", "skills.writing:restore_skill"),
        Declared("skills history", "skills.listing:show_skill_history", group="skills"),
        Declared("skills diff", "skills.listing:diff_versions", group="skills"),
        Declared("skills rollback", "skills.writing:rollback_skill"),
        Declared("skills lint", "skills.checking:lint_skills", group="sources"),
        Declared("skills scan", "skills.checking:scan_skills", group="sources"),
        Declared("skills stats", "skills.listing:show_stats", group="skills"),
        Declared("skills uses", "skills.listing:list_uses", group="uses"),
        Declared("skills import", "skills.sources:import_skills"),
        Declared("skills add", "skills.sources:add_skills"),
        Declared("skills update", "skills.sources:update_skills"),
        Declared("skills export", "skills.sources:export_skills"),
        Declared("skills publish", "skills.sources:publish_skills"),
        Command("skills sync", "agents.connect:sync_skills", "claude-code codex --only csv-summary"),
        Declared("skills search", "skills.finding:search_skills"),
        Declared("skills select", "skills.finding:select_skills"),
        Declared("skills why", "skills.finding:explain_skill"),
        Declared("skills eval", "skills.finding:evaluate_skills"),
        Command("skills trial", "skills.improving:run_skill_trial", "csv-summary --cases cases.json --runs 3"),
        Declared("skills climb", "skills.improving:climb_skill"),
        Command("skills improve", "skills.improving:improve_skill", "csv-summary --budget $5"),
        Declared("skills improvements", "skills.improving:list_improvements"),
        Declared("skills compare", "skills.improving:compare_versions"),
        Declared("skills comparisons", "skills.improving:list_comparisons"),
        Command("skills run", "operating.secrets:run_skill_command_line", "pdf-mailer -- send --to ana@example.org"),
        Declared("skills recipes list", "skills.recipes:list_recipes"),
        Declared("skills recipes show", "skills.recipes:show_recipe"),
        Declared("skills recipes run", "skills.recipes:run_recipe"),
        Declared("skills recipes test", "skills.recipes:check_recipes"),
        Command("skills recipes mine", "skills.recipes:mine_recipes", "--apply"),
        Declared("skills evidence", "learning.evidence:show_evidence"),
        Declared("skills evidence plan", "learning.evidence:plan_evidence"),
        Declared("skills evidence rows", "learning.report:list_evidence_rows", group="evidence"),
        Declared("sessions list", "agents.sessions:list_sessions"),
        Declared("sessions show", "agents.sessions:show_session"),
        Command("sessions export", "agents.sessions:export_session", "2026-05-04-1 --to talk.md"),
        Declared("sessions outcome", "learning.evidence:record_outcome"),
        Declared("report", "learning.report:show_report", group="overview"),
        Declared("report rows", "learning.report:list_report_rows", group="overview"),
        Command("tour", "agents.tour:show_tour"),
        Declared("review list", "learning.review:list_pending"),
        Declared("review show", "learning.review:show_inbox_item"),
        Declared("review diff", "learning.review:diff_inbox_item"),
        Declared("review approve", "learning.review:approve_items"),
        Declared("review reject", "learning.review:reject_items"),
        Declared("review reopen", "learning.review:reopen_proposals"),
        Command("review edit", "learning.review:edit_proposal", "3"),
        Command("review trust", "learning.review:trust_skills", "~/work/shop"),
        Declared("undo", "learning.undo:undo_changes", group="undoing"),
        Declared("undo since", "learning.undo:rollback_home", group="undoing"),
        Command("learn", "learning.learn:learn_from_transcripts", "~/.claude/projects --apply"),
        Command("learn dream", "learning.dream:run_self_play", "--cycles 8 --budget 30m --domain sql"),
        Declared("learn curate", "learning.lessons:curate"),
        Declared("learn pause", "learning.undo:pause_learning", group="pausing"),
        Declared("learn resume", "learning.undo:resume_learning", group="pausing"),
        Declared("lessons list", "learning.lessons:list_lessons"),
        Declared("lessons show", "learning.lessons:show_lesson"),
        Declared("lessons add", "learning.lessons:add_lesson"),
        Command("lessons edit", "learning.lessons:edit_lessons", "b7k2m9qx --text 'Dates are ISO.'"),
        Declared("lessons remove", "learning.lessons:remove_lessons"),
        Declared("lessons retract", "learning.lessons:retract_lessons"),
        Declared("lessons restore", "learning.lessons:restore_lessons"),
        Declared("lessons promote", "skills.improving:promote_lesson"),
        Declared("lessons archive", "learning.lessons:list_archived_lessons"),
        Command("lessons identity", "learning.lessons:show_or_edit_identity", "--set 'You are brief and kind.'"),
        Declared("tasks list", "skills.tasks:list_tasks"),
        Declared("tasks add", "skills.tasks:add_task"),
        Declared("tasks edit", "skills.tasks:edit_task"),
        Declared("tasks remove", "skills.tasks:remove_task"),
        Declared("tasks check", "skills.tasks:check_tasks"),
        Declared("tasks mine", "skills.tasks:mine_tasks"),
        Declared("tasks draft", "skills.tasks:draft_tasks"),
        Declared("tools new", "skills.tools:create_tool"),
        Declared("tools list", "skills.tools:list_tools"),
        Declared("tools show", "skills.tools:show_tool"),
        Declared("tools run", "skills.tools:run_tool"),
        Declared("tools test", "skills.tools:run_tool_cases"),
        Declared("tools remove", "skills.tools:remove_tool"),
        Declared("tools restore", "skills.tools:restore_tool"),
        Declared("tools scratchpad exec", "agents.pads:execute_cell"),
        Declared("tools scratchpad list", "agents.pads:list_scratchpads"),
        Declared("tools scratchpad view", "agents.pads:list_cells"),
        Declared("tools scratchpad reset", "agents.pads:reset_scratchpad"),
        Declared("tools scratchpad remove", "agents.pads:remove_scratchpad"),
        Command("tools scratchpad keep", "agents.pads:hold_scratchpad_process", hidden=True),
        Command("connect", "agents.connect:connect_agent", "claude-code --dry-run"),
        Command("disconnect", "agents.connect:disconnect_agent", "claude-code"),
        Command("chat", "agents.chat:start_chat", "--attach sales.csv"),
        Command("mcp", "agents.mcp:serve_mcp", "--user ana"),
        Command("up", "operating.up:start_web_server", "--port 8080"),
        Command("doctor", "operating.checking:run_doctor", "--json"),
        Declared("config list", "operating.config:list_settings", group="settings"),
        Declared("config get", "operating.config:get_setting", group="settings"),
        Declared("config set", "operating.config:set_setting", group="settings"),
        Declared("config unset", "operating.config:unset_setting", group="settings"),
        Command("secrets set", "operating.secrets:set_secret", "smtp.password"),
        Declared("secrets list", "operating.secrets:list_secrets"),
        Declared("secrets remove", "operating.secrets:remove_secret"),
        Declared("secrets grant", "operating.secrets:grant_secrets"),
        Declared("secrets revoke", "operating.secrets:revoke_secrets"),
        Declared("secrets log", "operating.secrets:list_secret_calls"),
        Declared("users add", "operating.config:add_user", group="users"),
        Declared("users list", "operating.config:list_users", group="users"),
        Declared("users remove", "operating.config:remove_user", group="users"),
        Declared("users forget", "operating.db:erase_user", group="storage"),
        Declared("jobs add", "operating.jobs:add_job"),
        Declared("jobs list", "operating.jobs:list_jobs"),
        Command("jobs show", "operating.jobs:show_job", "53b07abe"),
        Declared("jobs cancel", "operating.jobs:cancel_job"),
        Declared("jobs retry", "operating.jobs:retry_job"),
        Declared("jobs workers", "operating.jobs:list_workers"),
        Command("jobs work", "operating.jobs:run_worker_command", "--until-idle"),
        Declared("jobs schedule", "operating.jobs:list_schedules"),
        Declared("jobs schedule set", "operating.jobs:set_schedule"),
        Command("jobs hooks", "agents.hooks:serve_hooks", hidden=True),
        Declared("db status", "operating.db:show_database_status", group="storage"),
        Declared("db migrate", "operating.db:migrate_database", group="storage"),
        Command("db copy", "operating.db:copy_database", "home postgresql://habitus@db.example.org/habitus"),
        Declared("db backup", "operating.db:create_backup", group="storage"),
        Declared("db backups", "operating.db:list_backups", group="storage"),
        Declared("db restore", "operating.db:restore_backup", group="storage"),
    ]


def _build_command_groups() -> dict[str, CommandGroupWithDefault]:
    """Return the groups. One without a help text takes it from its default command, the command of the same name."""
    return {
        "skills": build_command_group(
            "List, read, write, find and measure skills. NAME may be 'name' or 'name@layer'.",
            example="list --state gated",
        ),
        "skills evidence": build_command_group(),
        "skills recipes": build_command_group("Recipes: named sequences of tool calls in skills.", example="list"),
        "sessions": build_command_group("Show and export past sessions, and say how they went.", example="list"),
        "review": build_command_group("Approve or reject pending changes; trust skills of others.", example="list"),
        "report": build_command_group(),
        "undo": build_command_group(),
        "learn": build_command_group(),
        "lessons": build_command_group(
            "Facts, rules and lessons that are added to matching prompts.", example="add 'Dates are day-first.'"
        ),
        "tasks": build_command_group(
            "Tasks that examine skills: a request, its files, and checks of the result.", example="list csv-summary"
        ),
        "tools": build_command_group(
            "Create, run and test tools: tested code that runs in the sandbox.",
            example='run count-words \'{"text": "one two"}\'',
        ),
        "tools scratchpad": build_command_group(
            "Scratchpads: named, isolated Python processes that keep their state.", example="exec trial 'x = 21'"
        ),
        "config": build_command_group("Show and change settings.", example="list"),
        "secrets": build_command_group(
            "Secrets for skills' command lines: no model sees them, and skills get only what you grant.",
            example="list",
        ),
        "users": build_command_group("Users who may sign in to the web page.", example="add ben --role reviewer"),
        "jobs": build_command_group("Background jobs: add, run, list, cancel and retry.", example="list"),
        "jobs schedule": build_command_group(),
        "db": build_command_group("The database and backups of the home.", example="status"),
    }
