"""Taking back: the words that a change gave for its undo, carried out without a command line."""

from __future__ import annotations

from collections.abc import Sequence

from habitus.app.home import Home
from habitus.app.library import trusting, undoing
from habitus.app.library.undoing import TakenBack
from habitus.app.use_cases import agents, lessons, pausing, review, tasks, users, writing
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.lessons import ManyLessons
from habitus.app.use_cases.writing import ArchivedName, SkillRemoval
from habitus.errors import Invalid


def take_back(home: Home, words: Sequence[str]) -> TakenBack:
    match tuple(words):
        case ("undo", *targets) if targets:
            return undoing.undo(home, targets, "")
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
            raise Invalid(f"'{' '.join(words)[:80]}' takes nothing back.", mend="Send the words as they came.")
