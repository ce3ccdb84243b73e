"""Every command of `habitus`: the module that implements it and an example for its help."""

from __future__ import annotations

from functools import partial

from typer.core import TyperCommand, TyperGroup

from habitus.cli.completion import complete_lesson_ids, complete_skill_names
from habitus.cli.lazy import CommandGroup, build_command_group
from habitus.cli.lazy import DeclaredCommand as Declared
from habitus.cli.lazy import LazyCommand as Command

FEATURED_COMMANDS = ("check", "connect", "chat", "up", "skills")
_USE, _LEARN, _DECIDE, _OPERATE = "Use", "Learn", "Decide", "Operate"
# Tab completion has to work before a command's module is imported, so the completer is bound here.
_SkillCommand = partial(Command, completes=complete_skill_names)
_LessonCommand = partial(Command, completes=complete_lesson_ids)
_DeclaredSkillCommand = partial(Declared, completes=complete_skill_names)
_DeclaredLessonCommand = partial(Declared, completes=complete_lesson_ids)


def build_commands() -> list[TyperCommand | TyperGroup]:
    """Return all commands of `habitus`, each with an example as the last line of its help."""
    groups = _build_groups()
    found: list[TyperCommand | TyperGroup] = []

    def attach(command: Command | CommandGroup, words: str) -> None:
        # A declared command replaces the example on loading with that of its declaration.
        command.epilog = f"Example: habitus {words} {command.example}".rstrip()
        parent, _, command.name = words.rpartition(" ")
        if not parent:
            found.append(command)
            return
        # A group stands where its first command does.
        if not groups[parent].commands:
            attach(groups[parent], parent)
        groups[parent].add_command(command)

    for command in _list_commands():
        attach(command, command.name or "")
    return found


def _list_commands() -> list[Command]:
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
        Declared("backup create", "operating.db:create_backup", group="storage"),
        Declared("backup list", "operating.db:list_backups", group="storage"),
        Declared("backup restore", "operating.db:restore_backup", group="storage"),
        Declared("jobs add", "operating.jobs:add_job"),
        Declared("jobs list", "operating.jobs:list_jobs"),
        Command("jobs show", "operating.jobs:show_job", "53b07abe"),
        Declared("jobs cancel", "operating.jobs:cancel_job"),
        Declared("jobs retry", "operating.jobs:retry_job"),
        Declared("jobs workers", "operating.jobs:list_workers"),
        Declared("jobs schedule list", "operating.jobs:list_schedules"),
        Declared("jobs schedule set", "operating.jobs:set_schedule"),
        Declared("config list", "operating.config:list_settings", group="settings"),
        Declared("config get", "operating.config:get_setting", group="settings"),
        Declared("config set", "operating.config:set_setting", group="settings"),
        Declared("config unset", "operating.config:unset_setting", group="settings"),
        Declared("skills list", "skills.listing:list_skills", group="skills"),
        _SkillCommand("skills show", "skills.listing:show_skill", "csv-summary --raw"),
        Declared("skills new", "skills.writing:create_skill"),
        _DeclaredSkillCommand("skills edit", "skills.writing:edit_skill"),
        _DeclaredSkillCommand("skills enable", "skills.writing:enable_skills"),
        _DeclaredSkillCommand("skills disable", "skills.writing:disable_skills"),
        _DeclaredSkillCommand("skills remove", "skills.writing:remove_skills"),
        Declared("skills restore", "skills.writing:restore_skill"),
        _DeclaredSkillCommand("skills history", "skills.listing:show_skill_history", group="skills"),
        _DeclaredSkillCommand("skills diff", "skills.listing:diff_versions", group="skills"),
        _DeclaredSkillCommand("skills rollback", "skills.writing:rollback_skill"),
        _DeclaredSkillCommand("skills lint", "skills.checking:lint_skills", group="sources"),
        Declared("skills scan", "skills.checking:scan_skills", group="sources"),
        _DeclaredSkillCommand("skills stats", "skills.listing:show_stats", group="skills"),
        _DeclaredSkillCommand("skills uses", "skills.listing:list_uses", group="uses"),
        Declared("skills import", "skills.sources:import_skills"),
        Declared("skills add", "skills.sources:add_skills"),
        _DeclaredSkillCommand("skills update", "skills.sources:update_skills"),
        _DeclaredSkillCommand("skills export", "skills.sources:export_skills"),
        _DeclaredSkillCommand("skills publish", "skills.sources:publish_skills"),
        Declared("skills search", "skills.finding:search_skills"),
        Declared("skills select", "skills.finding:select_skills"),
        _DeclaredSkillCommand("skills eval", "skills.finding:evaluate_skills"),
        _SkillCommand("skills trial", "skills.improving:run_skill_trial", "csv-summary --cases cases.json --runs 3"),
        _DeclaredSkillCommand("skills climb", "skills.improving:climb_skill"),
        _SkillCommand("skills improve", "skills.improving:improve_skill", "csv-summary --budget $5"),
        _DeclaredSkillCommand("skills improvements", "skills.improving:list_improvements"),
        _DeclaredSkillCommand("skills compare", "skills.improving:compare_versions"),
        _DeclaredSkillCommand("skills comparisons", "skills.improving:list_comparisons"),
        _SkillCommand(
            "skill run", "operating.secrets:run_skill_command_line", "pdf-mailer -- send --to ana@example.org"
        ),
        Declared("tools new", "skills.tools:create_tool"),
        Declared("tools list", "skills.tools:list_tools"),
        _DeclaredSkillCommand("tools show", "skills.tools:show_tool"),
        _DeclaredSkillCommand("tools run", "skills.tools:run_tool"),
        _DeclaredSkillCommand("tools test", "skills.tools:run_tool_cases"),
        _DeclaredSkillCommand("tools remove", "skills.tools:remove_tool"),
        _DeclaredSkillCommand("tools restore", "skills.tools:restore_tool"),
        Declared("recipes list", "skills.recipes:list_recipes"),
        Declared("recipes show", "skills.recipes:show_recipe"),
        Declared("recipes run", "skills.recipes:run_recipe"),
        Declared("recipes test", "skills.recipes:check_recipes"),
        Command("recipes mine", "skills.recipes:mine_recipes", "--apply"),
        _DeclaredSkillCommand("tasks list", "skills.tasks:list_tasks"),
        _DeclaredSkillCommand("tasks add", "skills.tasks:add_task"),
        _DeclaredSkillCommand("tasks edit", "skills.tasks:edit_task"),
        _DeclaredSkillCommand("tasks remove", "skills.tasks:remove_task"),
        _DeclaredSkillCommand("tasks check", "skills.tasks:check_tasks"),
        Declared("tasks mine", "skills.tasks:mine_tasks"),
        _DeclaredSkillCommand("tasks draft", "skills.tasks:draft_tasks"),
        Declared("pad exec", "agents.pads:execute_cell"),
        Declared("pad list", "agents.pads:list_scratchpads"),
        Declared("pad view", "agents.pads:list_cells"),
        Declared("pad reset", "agents.pads:reset_scratchpad"),
        Declared("pad remove", "agents.pads:remove_scratchpad"),
        Command("pad keep", "agents.pads:hold_scratchpad_process", hidden=True),
        Declared("lessons list", "learning.lessons:list_lessons"),
        _DeclaredLessonCommand("lessons show", "learning.lessons:show_lesson"),
        Declared("lessons add", "learning.lessons:add_lesson"),
        _LessonCommand("lessons edit", "learning.lessons:edit_lessons", "b7k2m9qx --text 'Dates are ISO.'"),
        _DeclaredLessonCommand("lessons remove", "learning.lessons:remove_lessons"),
        Declared("lessons retract", "learning.lessons:retract_lessons"),
        _DeclaredLessonCommand("lessons restore", "learning.lessons:restore_lessons"),
        _DeclaredLessonCommand("lessons promote", "skills.improving:promote_lesson"),
        Declared("lessons archive", "learning.lessons:list_archived_lessons"),
        Declared("sessions list", "agents.sessions:list_sessions"),
        Declared("sessions show", "agents.sessions:show_session"),
        Command("sessions export", "agents.sessions:export_session", "2026-05-04-1 --to talk.md"),
        Declared("review list", "learning.review:list_pending"),
        Declared("review show", "learning.review:show_inbox_item"),
        Declared("review diff", "learning.review:diff_inbox_item"),
        Declared("review approve", "learning.review:approve_items"),
        Declared("review reject", "learning.review:reject_items"),
        Declared("review reopen", "learning.review:reopen_proposals"),
        Command("review edit", "learning.review:edit_proposal", "3"),
        _DeclaredSkillCommand("evidence show", "learning.evidence:show_evidence"),
        Declared("evidence plan", "learning.evidence:plan_evidence"),
        Declared("report show", "learning.report:show_report", group="overview"),
        Declared("report rows", "learning.report:list_report_rows", group="overview"),
        Command("secrets set", "operating.secrets:set_secret", "smtp.password"),
        Declared("secrets list", "operating.secrets:list_secrets"),
        Declared("secrets remove", "operating.secrets:remove_secret"),
        _DeclaredSkillCommand("secrets grant", "operating.secrets:grant_secrets"),
        _DeclaredSkillCommand("secrets revoke", "operating.secrets:revoke_secrets"),
        Declared("secrets log", "operating.secrets:list_secret_calls"),
        Declared("users add", "operating.config:add_user", group="users"),
        Declared("users list", "operating.config:list_users", group="users"),
        Declared("users remove", "operating.config:remove_user", group="users"),
        Declared("db status", "operating.db:show_database_status", group="storage"),
        Declared("db migrate", "operating.db:migrate_database", group="storage"),
        Command("db copy", "operating.db:copy_database", "home postgresql://habitus@db.example.org/habitus"),
    ]


def _build_groups() -> dict[str, CommandGroup]:
    return {
        "backup": build_command_group("Back up the home to a file, and restore it.", example="create", panel=_OPERATE),
        "jobs": build_command_group("Background jobs: add, list, cancel and retry.", example="list", panel=_OPERATE),
        "jobs schedule": build_command_group("Schedules of automatic jobs.", default_command="list"),
        "config": build_command_group("Show and change settings.", example="list", panel=_OPERATE),
        "skills": build_command_group(
            "List, read, write and undo skills. NAME may be 'name' or 'name@layer'.",
            example="list --state gated",
            panel=_USE,
        ),
        "skill": build_command_group(
            "Run the command line of a skill.", example="run pdf-mailer -- send --to ana@example.org", panel=_USE
        ),
        "tools": build_command_group(
            "Create, run and test tools: tested code that runs in the sandbox.",
            example='run count-words \'{"text": "one two"}\'',
            panel=_USE,
        ),
        "recipes": build_command_group("Recipes: named sequences of tool calls in skills.", example="list", panel=_USE),
        "tasks": build_command_group(
            "Tasks that examine skills: a request, its files, and checks of the result.",
            example="list csv-summary",
            panel=_LEARN,
        ),
        "pad": build_command_group(
            "Scratchpads: named, isolated Python processes that keep their state.",
            example="exec trial 'x = 21'",
            panel=_USE,
        ),
        "lessons": build_command_group(
            "Facts, rules and lessons that are added to matching prompts.",
            example="add 'Dates are day-first.'",
            panel=_LEARN,
        ),
        "sessions": build_command_group("Show and export past conversations.", example="list", panel=_USE),
        "review": build_command_group("Review pending changes.", example="list", panel=_DECIDE),
        "evidence": build_command_group(
            "Measured effects: 'habitus evidence NAME' shows one item.",
            example="plan",
            panel=_LEARN,
            default_command="show",
        ),
        "report": build_command_group(
            "What a month of learning was worth, what it cost, and what is not known.",
            example="--month 2026-10",
            panel=_LEARN,
            default_command="show",
        ),
        "secrets": build_command_group(
            "Secrets for skills' command lines: no model sees them, and skills get only what you grant.",
            example="list",
            panel=_OPERATE,
        ),
        "users": build_command_group(
            "Users who may sign in to the web page.", example="add ben --role reviewer", panel=_OPERATE
        ),
        "db": build_command_group("The database: status, migration and copying.", example="status", panel=_OPERATE),
    }
