"""Undoing: one change, everything since a timestamp, or the undo command that came with a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import trusting, undoing
from habitus.app.library.undoing import ReturnResult, TakenBack
from habitus.app.operating import configuring
from habitus.app.operating.configuring import Configured
from habitus.app.use_cases import agents, lessons, pausing, review, tasks, users, writing
from habitus.app.use_cases.declaration import Nothing, argument, option, reason_option, use_case
from habitus.app.use_cases.lessons import ManyLessons
from habitus.app.use_cases.writing import ArchivedName, SkillRemoval
from habitus.errors import Invalid, Misused
from habitus.timestamps import parse_timestamp


@dataclass(frozen=True, kw_only=True)
class UndoTargets:
    targets: tuple[str, ...] = argument("What a change printed: NAME@LAYER:VERSION, LESSON:VERSION or an id.")
    reason: str = reason_option()


@use_case("undo", access=Access.ADMIN, example=UndoTargets(targets=("csv-summary@user:7",)), undo="undo")
def undo(home: Home, wanted: UndoTargets) -> TakenBack:
    """Undo one change, and nothing that was done before or since."""
    return undoing.undo(home, wanted.targets, wanted.reason)


@dataclass(frozen=True, kw_only=True)
class Moment:
    to: str = option("A point in time: 2026-05-01, '2026-05-01 14:30', 14:30, 2h, '3 days ago'.", default=MISSING)
    dry_run: bool = option("Only say what would change.", default=False)


@use_case("rollback", access=Access.ADMIN, example=Moment(to="2 hours ago", dry_run=True), undo="undo")
def rollback(home: Home, wanted: Moment) -> ReturnResult:
    """Return your lessons, and your skills in every writable layer, to a timestamp; nothing is lost."""
    timestamp, now = parse_timestamp(wanted.to, home.clock()), home.clock()
    if timestamp > now:
        raise Misused(f"{wanted.to} lies in the future.", hint="Give a time in the past.")
    reason = f"back to {timestamp.astimezone():%Y-%m-%d %H:%M:%S}"
    return undoing.return_to(home, timestamp, reason, dry_run=wanted.dry_run)


@dataclass(frozen=True, kw_only=True)
class UndoWords:
    undo: tuple[str, ...] = option("The words that came with a change.", default=MISSING)


@use_case(
    "",
    route="POST /undo",
    access=Access.ADMIN,
    example=UndoWords(undo=("undo", "csv-summary@user:7")),
    changes_settings=True,
)
def undo_by_words(home: Home, wanted: UndoWords) -> TakenBack:
    """Undo a change by the undo command that came with it."""
    return take_back(home, wanted.undo)


def take_back(home: Home, words: Sequence[str]) -> TakenBack:
    """Run an undo command without a shell. Raises `Invalid` for words that are no undo command."""
    # A closed list of commands: words sent over REST must not reach the command line.
    match tuple(words):
        case ("undo", *targets) if targets:
            return undoing.undo(home, targets, "")
        case ("config", "set", key, text):
            return _of_setting(configuring.put_remotely(home, key, text))
        case ("config", "unset", key):
            return _of_setting(configuring.put_remotely(home, key, None))
        case ("skills", "restore", wanted):
            back = writing.restore(home, ArchivedName(name=wanted))
            return TakenBack(said=(f"{back.name} is back.",), undo=back.undo)
        case ("skills", "remove", *names) if names:
            gone = writing.remove(home, SkillRemoval(names=tuple(names)))
            return TakenBack(said=tuple(f"{one.name} is in the archive." for one in gone.skills), undo=gone.undo)
        case ("skills", ("enable" | "disable") as turn, *names) if names:
            done = writing.switch(home, names, on=turn == "enable")
            said = tuple(f"{one.name} is switched {'on' if one.enabled else 'off'}." for one in done.skills)
            return TakenBack(said=said, undo=done.undo)
        case ("lessons", ("remove" | "restore") as turn, *ids) if ids:
            moved = (lessons.remove if turn == "remove" else lessons.restore)(home, ManyLessons(ids=tuple(ids)))
            where = "in the archive" if turn == "remove" else "back"
            return TakenBack(said=tuple(f"“{one.text}” is {where}." for one in moved.lessons), undo=moved.undo)
        case ("review", "reopen", *ids) if ids:
            again = review.reopen(home, review.Reopening(ids=tuple(ids))).reopened
            return TakenBack(said=tuple(f"{item.what} waits for you again." for item in again))
        case ("tasks", "remove", name, id):
            dropped = tasks.remove(home, tasks.OneTask(name=name, id=id))
            return TakenBack(said=("The task is gone.",), undo=dropped.undo)
        case ("tasks", "add", name, "--task", text):
            kept = tasks.add(home, tasks.NewTask(name=name, task=text))
            return TakenBack(said=("The task is back.",), undo=kept.undo)
        case ("tools", "remove", name):
            retired = home.tools.retire(name, home.person())
            return TakenBack(said=(f"The tool {retired.name} is gone.",), undo=retired.undo)
        case ("tools", "restore", name):
            tool = home.tools.restore(name, home.person())
            undo = ("tools", "remove", f"{tool.name}@{tool.layer}")
            return TakenBack(said=(f"The tool {tool.name} is back.",), undo=undo)
        case ("users", "remove", name):
            gone_user = users.remove(home, users.OneUser(name=name))
            return TakenBack(said=(f"{gone_user.removed} can no longer sign in.",))
        case ("resume" | "pause",) as turn:
            now = (pausing.pause if turn == ("pause",) else pausing.resume)(home, Nothing())
            return TakenBack(said=("Learning is paused." if now.paused else "Learning goes on.",), undo=now.undo)
        case ("connect", agent):
            wired = agents.connect(home, agents.OneAgent(agent=agent))
            return TakenBack(said=(f"{wired.title} is connected.",), undo=wired.undo)
        case ("disconnect", agent):
            wired = agents.disconnect(home, agents.OneAgent(agent=agent))
            return TakenBack(said=(f"{wired.title} is disconnected.",), undo=wired.undo)
        case ("trust", "--revoke", name):
            seen = trusting.take_trust(home, trusting.trustable_skill(home.skills, name), name)
            return TakenBack(said=(f"{name} is no longer trusted.",), undo=seen.undo)
        case ("trust", name):
            seen = trusting.give_trust(home, trusting.trustable_skill(home.skills, name), name)
            return TakenBack(said=(f"{name} is trusted as it is.",), undo=seen.undo)
        case _:
            raise Invalid(f"'{' '.join(words)[:80]}' takes nothing back.", hint="Send the words as they came.")


def _of_setting(done: Configured) -> TakenBack:
    return TakenBack(said=(f"{done.now.key} is {done.now.shown or 'not set'}.",), undo=done.undo)
