"""Undoing: one change, everything since a timestamp, or the undo command that came with a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import trusting, undoing
from habitus.app.library.undoing import RollbackResult, UndoResult
from habitus.app.operating import configuring
from habitus.app.use_cases import agents, lessons, pausing, review, tasks, users, writing
from habitus.app.use_cases.declaration import Reason, argument, option, use_case
from habitus.errors import Invalid, InvalidOptions
from habitus.timestamps import parse_timestamp


@use_case("undo", access=Access.ADMIN, example={"targets": ("csv-summary@user:7",)}, undo="undo")
def undo_changes(
    home: Home,
    targets: Annotated[tuple[str, ...], argument("A change as printed: NAME@LAYER:VERSION, LESSON:VERSION or an id.")],
    reason: Reason = "",
) -> UndoResult:
    """Undo one change, and nothing that was done before or since."""
    return undoing.undo_versions_and_changes(home, targets, reason)


@use_case("undo since", access=Access.ADMIN, example={"to": "2 hours ago", "dry_run": True}, undo="undo")
def rollback_home(
    home: Home,
    to: Annotated[str, argument("A point in time: 2026-05-01, '2026-05-01 14:30', 14:30, 2h, '3 days ago'.")],
    dry_run: Annotated[bool, option("Only show what would change.")] = False,
) -> RollbackResult:
    """Return your lessons, and your skills in every writable layer, to a timestamp; nothing is lost."""
    timestamp, now = parse_timestamp(to, home.clock()), home.clock()
    if timestamp > now:
        raise InvalidOptions(f"{to} is in the future.", hint="Give a time in the past.")
    reason = f"back to {timestamp.astimezone():%Y-%m-%d %H:%M:%S}"
    return undoing.rollback_lessons_and_skills(home, timestamp, reason, dry_run=dry_run)


@use_case(
    "", route="POST /undo", access=Access.ADMIN, example={"undo": ("undo", "csv-summary@user:7")}, changes_settings=True
)
def undo_by_command(
    home: Home, undo: Annotated[tuple[str, ...], option("The undo words returned with a change.")]
) -> UndoResult:
    """Undo a change by the undo command that came with it."""
    return run_undo_command(home, undo)


def run_undo_command(home: Home, words: Sequence[str]) -> UndoResult:
    """Run an undo command without a shell. Raises `Invalid` for words that are no undo command."""
    # A closed list of commands: words sent over REST must not reach the command line.
    match tuple(words):
        case ("undo", *targets) if targets:
            return undoing.undo_versions_and_changes(home, targets, "")
        case ("config", "set", key, text):
            return _build_undo_result_of_setting(configuring.set_setting_for_remote_user(home, key, text))
        case ("config", "unset", key):
            return _build_undo_result_of_setting(configuring.set_setting_for_remote_user(home, key, None))
        case ("skills", "restore", wanted):
            back = writing.restore_skill(home, name=wanted)
            return UndoResult(messages=(f"{back.name} was restored.",), undo=back.undo)
        case ("skills", "remove", *names) if names:
            gone = writing.remove_skills(home, names=tuple(names))
            return UndoResult(messages=tuple(f"{one.name} is in the archive." for one in gone.skills), undo=gone.undo)
        case ("skills", ("enable" | "disable") as turn, *names) if names:
            done = writing.enable_or_disable_skills(home, names, on=turn == "enable")
            said = tuple(f"{one.name} is switched {'on' if one.enabled else 'off'}." for one in done.skills)
            return UndoResult(messages=said, undo=done.undo)
        case ("lessons", ("remove" | "restore") as turn, *ids) if ids:
            moved = (lessons.remove_lessons if turn == "remove" else lessons.restore_lessons)(home, ids=tuple(ids))
            where = "in the archive" if turn == "remove" else "back"
            return UndoResult(messages=tuple(f"“{one.text}” is {where}." for one in moved.lessons), undo=moved.undo)
        case ("review", "reopen", *ids) if ids:
            again = review.reopen_proposals(home, ids=tuple(ids)).reopened
            return UndoResult(messages=tuple(f"{item.title} is pending review again." for item in again))
        case ("tasks", "remove", name, id):
            dropped = tasks.remove_task(home, name=name, id=id)
            return UndoResult(messages=("The task was removed.",), undo=dropped.undo)
        case ("tasks", "add", name, "--task", text):
            kept = tasks.add_task(home, tasks.AddTaskRequest(name=name, task=text))
            return UndoResult(messages=("The task was restored.",), undo=kept.undo)
        case ("tools", "remove", name):
            retired = home.tools.retire(name, home.build_author())
            return UndoResult(messages=(f"The tool {retired.name} was removed.",), undo=retired.undo)
        case ("tools", "restore", name):
            tool = home.tools.restore(name, home.build_author())
            undo = ("tools", "remove", f"{tool.name}@{tool.layer}")
            return UndoResult(messages=(f"The tool {tool.name} was restored.",), undo=undo)
        case ("users", "remove", name):
            gone_user = users.remove_user(home, name=name)
            return UndoResult(messages=(f"{gone_user.removed} can no longer sign in.",))
        case ("learn", ("resume" | "pause") as turn):
            now = (pausing.pause_learning if turn == "pause" else pausing.resume_learning)(home)
            return UndoResult(
                messages=("Learning is paused." if now.paused else "Learning has resumed.",), undo=now.undo
            )
        case ("connect", agent):
            wired = agents.connect_agent(home, agent=agent)
            return UndoResult(messages=(f"{wired.title} is connected.",), undo=wired.undo)
        case ("disconnect", agent):
            wired = agents.disconnect_agent(home, agent=agent)
            return UndoResult(messages=(f"{wired.title} is disconnected.",), undo=wired.undo)
        case ("review", "trust", "--revoke", name):
            seen = trusting.revoke_trust(home, trusting.resolve_trust_target_of_skill(home, name), name)
            return UndoResult(messages=(f"{name} is no longer trusted.",), undo=seen.undo)
        case ("review", "trust", name):
            seen = trusting.grant_trust(home, trusting.resolve_trust_target_of_skill(home, name), name)
            return UndoResult(messages=(f"{name} is trusted as it is.",), undo=seen.undo)
        case _:
            raise Invalid(f"'{' '.join(words)[:80]}' is not an undo command.", hint="Send the undo words as received.")


def _build_undo_result_of_setting(done: configuring.SettingChangeResult) -> UndoResult:
    return UndoResult(messages=(f"{done.setting.key} is {done.setting.text or 'not set'}.",), undo=done.undo)
