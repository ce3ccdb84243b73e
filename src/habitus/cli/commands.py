"""Every command of `habitus`: the module that implements it and an example for its help."""

from __future__ import annotations

from functools import partial
from typing import Any

from typer.core import TyperCommand, TyperGroup

from habitus.cli.completion import complete_lesson_ids, complete_skill_names
from habitus.cli.lazy import DeclaredCommand as Declared
from habitus.cli.lazy import LazyCommand as Command
from habitus.cli.lazy import build_command_group

FEATURED_COMMANDS = ("check", "connect", "chat", "up", "skills")
_USE, _LEARN, _DECIDE, _OPERATE = "Use", "Learn", "Decide", "Operate"
# Tab completion has to work before a command's module is imported, so the completer is bound here.
_SkillCommand = partial(Command, completes=complete_skill_names)
_LessonCommand = partial(Command, completes=complete_lesson_ids)
_DeclaredSkillCommand = partial(Declared, completes=complete_skill_names)
_DeclaredLessonCommand = partial(Declared, completes=complete_lesson_ids)


def build_commands() -> list[TyperCommand | TyperGroup]:
    """Return all commands of `habitus`, each with an example as the last line of its help."""
    found = _declare_commands()
    for command in found:
        _add_example(command, f"habitus {command.name}")
    return found


def _add_example(command: Any, words: str) -> None:
    # A declared command replaces this on loading with the example of its declaration.
    command.epilog = f"Example: {words} {command.example}".rstrip()
    for name, below in getattr(command, "commands", {}).items():
        _add_example(below, f"{words} {name}")


def _declare_commands() -> list[TyperCommand | TyperGroup]:
    return [
        Command("chat", "agents.chat:start_chat", "--attach sales.csv", panel=_USE),
        Command("ask", "agents.chat:ask_agent", "'What is the revenue per region?' --attach sales.csv", panel=_USE),
        _DeclaredSkillCommand("why", "skills.finding:explain_skill", panel=_USE),
        _SkillCommand("trust", "learning.review:trust_skills", "~/work/shop", panel=_DECIDE),
        Command("identity", "learning.lessons:show_or_edit_identity", "--set 'You are brief and kind.'", panel=_DECIDE),
        Command("tour", "agents.tour:show_tour", panel=_USE),
        Command("check", "agents.check:check_agents", "--agent claude-code --html report.html", panel=_USE),
        Command("learn", "learning.learn:learn_from_transcripts", "~/.claude/projects --apply", panel=_LEARN),
        Declared("outcome", "learning.evidence:record_outcome", panel=_USE),
        Command("dream", "learning.dream:run_self_play", "--cycles 8 --budget 30m --domain sql", panel=_LEARN),
        Declared("curate", "learning.lessons:curate", panel=_LEARN),
        Declared("undo", "learning.undo:undo_changes", group="undoing", panel=_DECIDE),
        Declared("rollback", "learning.undo:rollback_home", group="undoing", panel=_DECIDE),
        Declared("pause", "learning.undo:pause_learning", group="pausing", panel=_DECIDE),
        Declared("resume", "learning.undo:resume_learning", group="pausing", panel=_DECIDE),
        Command("up", "operating.up:start_web_server", "--port 8080", panel=_USE),
        Command("run", "agents.tour:play_tour_and_serve", hidden=True),
        Command("mcp", "agents.mcp:serve_mcp", "--user ana", panel=_OPERATE),
        Command("connect", "agents.connect:connect_agent", "claude-code --dry-run", panel=_OPERATE),
        Command("disconnect", "agents.connect:disconnect_agent", "claude-code", panel=_OPERATE),
        Command("sync", "agents.connect:sync_skills", "claude-code codex --only csv-summary", panel=_OPERATE),
        Command("hooks", "agents.hooks:serve_hooks", panel=_OPERATE, hidden=True),
        Command("doctor", "operating.checking:run_doctor", "--json", panel=_OPERATE),
        Declared("forget", "operating.db:erase_user", group="storage", panel=_OPERATE),
        Command("worker", "operating.jobs:run_worker_command", "--until-idle", panel=_OPERATE),
        build_command_group(
            "backup",
            "Back up the home to a file, and restore it.",
            [
                Declared("create", "operating.db:create_backup", group="storage"),
                Declared("list", "operating.db:list_backups", group="storage"),
                Declared("restore", "operating.db:restore_backup", group="storage"),
            ],
            example="create",
            panel=_OPERATE,
        ),
        build_command_group(
            "jobs",
            "Background jobs: add, list, cancel and retry.",
            [
                Declared("add", "operating.jobs:add_job"),
                Declared("list", "operating.jobs:list_jobs"),
                Command("show", "operating.jobs:show_job", "53b07abe"),
                Declared("cancel", "operating.jobs:cancel_job"),
                Declared("retry", "operating.jobs:retry_job"),
                build_command_group(
                    "schedule",
                    "Schedules of automatic jobs.",
                    [Declared("list", "operating.jobs:list_schedules"), Declared("set", "operating.jobs:set_schedule")],
                    default_command="list",
                ),
            ],
            example="list",
            panel=_OPERATE,
        ),
        build_command_group(
            "config",
            "Show and change settings.",
            [
                Declared("list", "operating.config:list_settings", group="settings"),
                Declared("get", "operating.config:get_setting", group="settings"),
                Declared("set", "operating.config:set_setting", group="settings"),
                Declared("unset", "operating.config:unset_setting", group="settings"),
            ],
            example="list",
            panel=_OPERATE,
        ),
        build_command_group(
            "skills",
            "List, read, write and undo skills. NAME may be 'name' or 'name@layer'.",
            [
                Declared("list", "skills.listing:list_skills", group="skills"),
                _SkillCommand("show", "skills.listing:show_skill", "csv-summary --raw"),
                Declared("new", "skills.writing:create_skill"),
                _DeclaredSkillCommand("edit", "skills.writing:edit_skill"),
                _DeclaredSkillCommand("enable", "skills.writing:enable_skills"),
                _DeclaredSkillCommand("disable", "skills.writing:disable_skills"),
                _DeclaredSkillCommand("remove", "skills.writing:remove_skills"),
                Declared("restore", "skills.writing:restore_skill"),
                _DeclaredSkillCommand("history", "skills.listing:show_skill_history", group="skills"),
                _DeclaredSkillCommand("diff", "skills.listing:diff_versions", group="skills"),
                _DeclaredSkillCommand("rollback", "skills.writing:rollback_skill"),
                _DeclaredSkillCommand("lint", "skills.checking:lint_skills", group="sources"),
                Declared("scan", "skills.checking:scan_skills", group="sources"),
                _DeclaredSkillCommand("stats", "skills.listing:show_stats", group="skills"),
                Declared("import", "skills.sources:import_skills"),
                Declared("add", "skills.sources:add_skills"),
                _DeclaredSkillCommand("update", "skills.sources:update_skills"),
                _DeclaredSkillCommand("export", "skills.sources:export_skills"),
                _DeclaredSkillCommand("publish", "skills.sources:publish_skills"),
                Declared("search", "skills.finding:search_skills"),
                Declared("select", "skills.finding:select_skills"),
                _DeclaredSkillCommand("eval", "skills.finding:evaluate_skills"),
                _SkillCommand("trial", "skills.improving:run_skill_trial", "csv-summary --cases cases.json --runs 3"),
                _DeclaredSkillCommand("climb", "skills.improving:climb_skill"),
                _SkillCommand("improve", "skills.improving:improve_skill", "csv-summary --budget $5"),
                _DeclaredSkillCommand("improvements", "skills.improving:list_improvements"),
            ],
            example="list --state gated",
            panel=_USE,
        ),
        build_command_group(
            "skill",
            "Run the command line of a skill.",
            [
                _SkillCommand(
                    "run", "operating.secrets:run_skill_command_line", "pdf-mailer -- send --to ana@example.org"
                )
            ],
            example="run pdf-mailer -- send --to ana@example.org",
            panel=_USE,
        ),
        build_command_group(
            "tools",
            "Create, run and test tools: tested code that runs in the sandbox.",
            [
                Declared("new", "skills.tools:create_tool"),
                Declared("list", "skills.tools:list_tools"),
                _DeclaredSkillCommand("show", "skills.tools:show_tool"),
                _DeclaredSkillCommand("run", "skills.tools:run_tool"),
                _DeclaredSkillCommand("test", "skills.tools:run_tool_cases"),
                _DeclaredSkillCommand("remove", "skills.tools:remove_tool"),
                _DeclaredSkillCommand("restore", "skills.tools:restore_tool"),
            ],
            example='run count-words \'{"text": "one two"}\'',
            panel=_USE,
        ),
        build_command_group(
            "recipes",
            "Recipes: named sequences of tool calls in skills.",
            [
                Declared("list", "skills.recipes:list_recipes"),
                Declared("show", "skills.recipes:show_recipe"),
                Declared("run", "skills.recipes:run_recipe"),
                Declared("test", "skills.recipes:check_recipes"),
                Command("mine", "skills.recipes:mine_recipes", "--apply"),
            ],
            example="list",
            panel=_USE,
        ),
        build_command_group(
            "tasks",
            "Tasks that examine skills: a request, its files, and checks of the result.",
            [
                _DeclaredSkillCommand("list", "skills.tasks:list_tasks"),
                _DeclaredSkillCommand("add", "skills.tasks:add_task"),
                _DeclaredSkillCommand("edit", "skills.tasks:edit_task"),
                _DeclaredSkillCommand("remove", "skills.tasks:remove_task"),
                _DeclaredSkillCommand("check", "skills.tasks:check_tasks"),
                Declared("mine", "skills.tasks:mine_tasks"),
            ],
            example="list csv-summary",
            panel=_LEARN,
        ),
        build_command_group(
            "pad",
            "Scratchpads: named, isolated Python processes that keep their state.",
            [
                Declared("exec", "agents.pads:execute_cell"),
                Declared("list", "agents.pads:list_scratchpads"),
                Declared("view", "agents.pads:list_cells"),
                Declared("reset", "agents.pads:reset_scratchpad"),
                Declared("remove", "agents.pads:remove_scratchpad"),
                Command("keep", "agents.pads:hold_scratchpad_process", hidden=True),
            ],
            example="exec trial 'x = 21'",
            panel=_USE,
        ),
        build_command_group(
            "lessons",
            "Facts, rules and lessons that are added to matching prompts.",
            [
                Declared("list", "learning.lessons:list_lessons"),
                _DeclaredLessonCommand("show", "learning.lessons:show_lesson"),
                Declared("add", "learning.lessons:add_lesson"),
                _LessonCommand("edit", "learning.lessons:edit_lessons", "b7k2m9qx --text 'Dates are ISO.'"),
                _DeclaredLessonCommand("remove", "learning.lessons:remove_lessons"),
                Declared("retract", "learning.lessons:retract_lessons"),
                _DeclaredLessonCommand("restore", "learning.lessons:restore_lessons"),
                _DeclaredLessonCommand("promote", "skills.improving:promote_lesson"),
                Declared("archive", "learning.lessons:list_archived_lessons"),
            ],
            example="add 'Dates are day-first.'",
            panel=_LEARN,
        ),
        build_command_group(
            "sessions",
            "Show and export past conversations.",
            [
                Declared("list", "agents.sessions:list_sessions"),
                Declared("show", "agents.sessions:show_session"),
                Command("export", "agents.sessions:export_session", "2026-05-04-1 --to talk.md"),
            ],
            example="list",
            panel=_USE,
        ),
        build_command_group(
            "review",
            "Review pending changes.",
            [
                Declared("list", "learning.review:list_pending"),
                Declared("show", "learning.review:show_inbox_item"),
                Declared("diff", "learning.review:diff_inbox_item"),
                Declared("approve", "learning.review:approve_items"),
                Declared("reject", "learning.review:reject_items"),
                Declared("reopen", "learning.review:reopen_proposals"),
                Command("edit", "learning.review:edit_proposal", "3"),
            ],
            example="list",
            panel=_DECIDE,
        ),
        build_command_group(
            "evidence",
            "Measured effects: 'habitus evidence NAME' shows one item.",
            [
                _DeclaredSkillCommand("show", "learning.evidence:show_evidence"),
                Declared("plan", "learning.evidence:plan_evidence"),
            ],
            example="plan",
            panel=_LEARN,
            default_command="show",
        ),
        build_command_group(
            "secrets",
            "Secrets for skills' command lines: no model sees them, and skills get only what you grant.",
            [
                Command("set", "operating.secrets:set_secret", "smtp.password"),
                Declared("list", "operating.secrets:list_secrets"),
                Declared("remove", "operating.secrets:remove_secret"),
                _DeclaredSkillCommand("grant", "operating.secrets:grant_secrets"),
                _DeclaredSkillCommand("revoke", "operating.secrets:revoke_secrets"),
                Declared("log", "operating.secrets:list_secret_calls"),
            ],
            example="list",
            panel=_OPERATE,
        ),
        build_command_group(
            "users",
            "Users who may sign in to the web page.",
            [
                Declared("add", "operating.config:add_user", group="users"),
                Declared("list", "operating.config:list_users", group="users"),
                Declared("remove", "operating.config:remove_user", group="users"),
            ],
            example="add ben --role reviewer",
            panel=_OPERATE,
        ),
        build_command_group(
            "db",
            "The database: status, migration and copying.",
            [
                Declared("status", "operating.db:show_database_status", group="storage"),
                Declared("migrate", "operating.db:migrate_database", group="storage"),
                Command("copy", "operating.db:copy_database", "home postgresql://habitus@db.example.org/habitus"),
            ],
            example="status",
            panel=_OPERATE,
        ),
    ]
