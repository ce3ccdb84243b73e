"""The kinds of jobs: each runs a use case in parts, and says which arguments it takes."""

from __future__ import annotations

import hashlib
import random
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from habitus import sql
from habitus.agent.background import EventLoopThread
from habitus.app import home_directory
from habitus.app.home import Home
from habitus.app.learning import curating, improving, self_play, studying
from habitus.app.learning.mining import RepeatedProcedureFinder
from habitus.app.learning.noted_sessions import learn_from_ended_noted_sessions
from habitus.app.library import importing
from habitus.app.tasks import drafting
from habitus.app.tasks.mining import propose_tasks_from_accepted_requests
from habitus.errors import Invalid, Refused
from habitus.files import parse_user_path
from habitus.improve.plan import ImproveRequest
from habitus.jobs.model import JobConcurrencyKeys, JobHandler, JobPriority
from habitus.jobs.queue import JobQueue
from habitus.learning.budget import RunLimits
from habitus.plain_data import convert_to_plain_json
from habitus.redact.named_secrets import is_secret_name
from habitus.settings import ScheduleSettings, Settings
from habitus.skills.formats import detect
from habitus.skills.formats.base import IncomingSkill
from habitus.skills.sources.lockfiles import remove_credentials
from habitus.tasks.files import parse_task

# Skills per part of an import; large imports get larger parts instead of more of them, as each part reads it all.
_AT_A_TIME, _MOST_PARTS = 200, 20


class _JobKind:
    """The base of every kind of job.

    `title`, `about` and `example` are shown on the page, `takes` and `usage` describe the arguments, and `scheduled` is
    the input of a job that starts by schedule.
    """

    title = ""
    about = ""
    example = ""  # of its arguments
    takes = range(1)  # allowed numbers of arguments
    usage = "It takes none."
    asks_model = False
    reads = ""  # what of this machine, which only its owner may have read
    scheduled: Mapping[str, Any] = {}

    @staticmethod
    def is_bound_to_home_worker(given: Mapping[str, Any]) -> bool:
        """Whether the job concerns files of its home, which only a worker of that home can reach."""
        return False

    def __init__(self, home: Home, loop: EventLoopThread) -> None:
        self._home = home
        # Closing the loop cuts off the part that is waiting on it.
        self._loop = loop

    @staticmethod
    def parse_arguments(paths: Sequence[str]) -> dict[str, Any]:
        """Return the input of a job from a person's arguments."""
        return {}

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        """Return the parts that the job consists of."""
        return [{}]

    def summarize_results(self, results: Sequence[Any]) -> Any:
        """Combine the results of all parts into one."""
        return _sum_result_counts(results)


class CurateSkillsAndLessonsJob(_JobKind):
    """Curate everything that ages, in one part; running it twice changes nothing more."""

    title = "Curate"
    about = "Archives outdated lessons, tools and skills; all can be restored."

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        return [{"model": given.get("model", "")}]

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        done = self._loop.run_and_wait(
            curating.plan_or_run_curation(self._home, apply=True, model=part.get("model", ""))
        )
        return Counter(step.action.value for step in done.steps)


class ProposeRepeatedProceduresJob(_JobKind):
    """Propose repeated procedures and accepted requests; those proposed before are not proposed again."""

    title = "Find recipes and tasks"
    about = "Finds recurring steps and accepted requests in conversations, and proposes recipes and tasks."

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        mining = RepeatedProcedureFinder(self._home)
        mining.collect_suggestion_drafts()
        mining.propose_all_suggestions()
        found = mining.make_report()
        tasks = propose_tasks_from_accepted_requests(self._home)
        return {"turns": found.turns, "proposals": len(found.suggestions), "tasks": tasks}


class IndexSkillsJob(_JobKind):
    """Index the skills that changed, or all after an upgrade."""

    title = "Rebuild the search index"
    about = "Use it if search misses something."

    @staticmethod
    def is_bound_to_home_worker(given: Mapping[str, Any]) -> bool:
        return True

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        self._home.finder.update_index(lambda done: None)
        return {"skills": len(self._home.skills.snapshot().by_name)}


class LearnFromTranscriptsJob(_JobKind):
    """Learn from transcripts, one file per part, or from sessions noted by hooks; no turn is learned from twice."""

    title = "Learn from conversations"
    about = "Files or folders with conversations of other agents, one per line; empty means new ones."
    example = "/home/ann/conversations"
    takes = range(10_000)
    usage = "Name transcripts: files, folders or patterns."
    reads = "which conversations of this machine are read"

    @staticmethod
    def is_bound_to_home_worker(given: Mapping[str, Any]) -> bool:
        return True

    @staticmethod
    def parse_arguments(paths: Sequence[str]) -> dict[str, Any]:
        return {"files": list(paths)}

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        self._home.host.files.require_access(self.reads)
        files = given.get("files")
        return [str(path) for path in studying.find_transcripts(files)] if files else [""]

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        if not part:
            return {
                "files": learn_from_ended_noted_sessions(
                    self._home.settings, lambda cwd: nullcontext(self._home.with_cwd(cwd))
                )
            }
        study = studying.TranscriptStudy(self._home, apply=True, wants_failures=False)
        study.study_file(Path(part))
        study.store_lessons_and_propose_procedures()
        report = study.make_report()
        return {"files": 1, "turns": sum(file.turns for file in report.files)}


class ImportSkillsJob(_JobKind):
    """Import skills of any layout, some hundred per part; existing skills stay unless `overwrite` is given."""

    title = "Import skills"
    about = "A folder, an archive or an address with skills."
    example = "https://example.org/skills.zip"
    takes = range(1, 2)
    usage = (
        "Say where from: a file, directory, archive, or the address of a site, an archive or a database. A password in "
        "it is not kept: the worker takes it from PGPASSWORD or ~/.pgpass. One of the web can have no token in it."
    )

    @staticmethod
    def is_bound_to_home_worker(given: Mapping[str, Any]) -> bool:
        return "://" not in str(given["source"])

    @staticmethod
    def parse_arguments(paths: Sequence[str]) -> dict[str, Any]:
        source = paths[0]
        if source.startswith(_WEB_PREFIXES):
            return {"source": _strip_login_refusing_other_secrets(source)}
        return {"source": sql.strip_password(source) if "://" in source else source}

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        # The pages of a web site can't be listed without fetching them, so it is one part.
        if _is_web_source(given):
            return [given]
        self._home.host.files.require_access("from where on this machine skills are imported")
        found = [
            entry.name
            for entry in detect.read_entries(_parse_import_source_path_or_url(given))
            if isinstance(entry, IncomingSkill)
        ]
        size = max(_AT_A_TIME, -(-len(found) // _MOST_PARTS))
        parts = [{**given, "only": found[start : start + size]} for start in range(0, len(found), size)]
        return [*parts, {**given, "only": []}] if given.get("is_upload") else parts

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        if _is_web_source(part):
            taken = importing.import_for_remote_caller(
                self._home, part["source"], overwrite=part.get("overwrite", False)
            )
            return _count_import_verdicts(taken)
        # An empty list marks the last part of an upload, which removes the uploaded file.
        if not part["only"]:
            shutil.rmtree(Path(part["source"]).parent, ignore_errors=True)
            return {}
        place = importing.build_upload_origin(Path(part["source"])) if part.get("is_upload") else ""
        options = importing.ImportOptions(
            overwrite=part.get("overwrite", False),
            is_trusted=part.get("trust", False),
            place=place,
            change_id=hashlib.sha256(key.rpartition("/")[0].encode()).hexdigest()[:16],
        )
        taken = importing.import_skills(
            self._home, _parse_import_source_path_or_url(part), part["only"], part.get("layer", "user"), options
        )
        return _count_import_verdicts(taken)

    def summarize_results(self, results: Sequence[Any]) -> Any:
        undo = next((result["undo"] for result in results if result.get("undo")), "")
        counts = [{verdict: count for verdict, count in result.items() if verdict != "undo"} for result in results]
        return {**_sum_result_counts(counts), **({"undo": undo} if undo else {})}


def _count_import_verdicts(taken: importing.ImportResult) -> dict[str, Any]:
    """Return how many skills got which verdict, and the command that undoes the import."""
    counts = Counter(result.verdict.value for result in taken.results)
    return {**counts, **({"undo": f"habitus {' '.join(taken.undo)}"} if taken.undo else {})}


_WEB_PREFIXES = ("https://", "http://")


def _is_web_source(given: Mapping[str, Any]) -> bool:
    return str(given["source"]).startswith(_WEB_PREFIXES)


def _strip_login_refusing_other_secrets(source: str) -> str:
    """Return a web address without its login; refused if its query holds a secret, because others can read a job."""
    try:
        at = urlsplit(source)
    except ValueError:
        raise Invalid("This is not an address.", hint="Write https://….") from None
    secret = next((name for name, _ in parse_qsl(f"{at.query}&{at.fragment}") if is_secret_name(name)), "")
    if secret:
        hint = "Download it and import the file, or run 'habitus skills add' with it where Habitus runs."
        raise Refused(f"'{secret}' in the address is a secret, and others can read a job.", hint=hint)
    return remove_credentials(source)


class _SelfPlayJobBase(_JobKind):
    """The base of jobs that run challenges, one per part; the result counts verdicts and spending."""

    asks_model = True

    def summarize_results(self, results: Sequence[Any]) -> Any:
        spent = {what: _sum_result_field(results, what) for what in ("tokens", "requests", "dollars")}
        return {
            **Counter(each["verdict"] for each in results),
            **{what: n for what, n in spent.items() if n or what == "tokens"},
        }


def _sum_result_field(results: Sequence[Any], what: str) -> float:
    total: float = sum(each.get(what, 0) for each in results)
    return round(total, 4)


class VerifyLessonsJob(_SelfPlayJobBase):
    """Verify lessons from self-play that nothing has verified yet."""

    title = "Test lessons"
    about = "Solves exercises with and without each lesson. Calls a model."

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        return [
            {"lesson": id, "model": given.get("model", "")}
            for id in self_play.list_unverified_self_play_lesson_ids(self._home)
        ]

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        return asdict(
            self._loop.run_and_wait(
                self_play.verify_lesson_on_its_challenge(self._home, part["lesson"], model=part["model"])
            )
        )


class SelfPlayJob(_SelfPlayJobBase):
    """Run self-play; the part's key identifies its lesson, so a repeated part stores none twice."""

    title = "Practise"
    about = "An agent solves exercises and learns from its mistakes. Calls a model."
    scheduled: Mapping[str, Any] = {"cycles": 5}

    # Challenges from a path are files of this machine.
    @staticmethod
    def is_bound_to_home_worker(given: Mapping[str, Any]) -> bool:
        return bool(given.get("challenges"))

    @staticmethod
    def parse_arguments(paths: Sequence[str]) -> dict[str, Any]:
        return {"cycles": 1}

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        if path := given.get("challenges"):
            self._home.host.files.require_access("which challenges of this machine are read")
        found = self_play.list_challenges(self._home.settings, Path(path) if path else None)
        wanted = [each for each in found if given.get("domain", "") in ("", each.domain)]
        taught = self_play.list_hashes_of_taught_challenges(self._home)
        # If nothing is left, each part says that its lesson is known.
        wanted = [each for each in wanted if each.hash not in taught] or wanted
        cycles = given.get("cycles") or len(wanted)
        times = -(-cycles // len(wanted)) if wanted else 0
        chosen = [each for _ in range(times) for each in random.sample(wanted, len(wanted))][:cycles]
        until = time.time() + 60 * given["minutes"] if given.get("minutes") else None
        common = {"model": given.get("model", ""), "until": until, **{k: given.get(k) for k in ("tokens", "dollars")}}
        return [{"challenge": each.as_json(), **common} for each in chosen]

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        tokens, dollars, until = (part.get(what) for what in ("tokens", "dollars", "until"))
        # Limits hold for the whole job, so the spending of earlier parts is deducted.
        limits = RunLimits(
            tokens=None if tokens is None else max(tokens - int(_sum_result_field(before, "tokens")), 0),
            dollars=None if dollars is None else max(dollars - _sum_result_field(before, "dollars"), 0.0),
            minutes=None if until is None else max(until - time.time(), 0.0) / 60,
        )
        challenge = parse_task(part["challenge"], "the job")
        dreamt = self_play.learn_lesson_from_challenge(
            self._home, challenge, key=key, model=part["model"], limits=limits
        )
        return asdict(self._loop.run_and_wait(dreamt))


class ImproveSkillsJob(_JobKind):
    """Improve one skill, or all with enough tasks; rollouts are stored one by one, so none is repeated."""

    title = "Improve skills"
    about = "Tests small changes to skills that have tasks. Calls a model."
    example = "csv-summary"
    asks_model = True
    takes = range(1, 2)
    usage = "It takes the name of a skill."
    scheduled: Mapping[str, Any] = {"is_scheduled": True, "candidates": 1}

    @staticmethod
    def is_bound_to_home_worker(given: Mapping[str, Any]) -> bool:
        # A solver is a program of this machine, signed in here.
        return bool(given.get("solver"))

    @staticmethod
    def parse_arguments(paths: Sequence[str]) -> dict[str, Any]:
        return {"skill": Path(paths[0]).name}

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        if given.get("skill"):
            names = [given["skill"]]
        elif given.get("is_scheduled"):
            names = improving.list_skills_for_scheduled_improvement(self._home)
        else:
            names = improving.list_skills_with_enough_tasks(self._home)
        rest = {key: value for key, value in given.items() if key != "user"}
        return [{**rest, "skill": name} for name in names]

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        request = ImproveRequest(**{name: value for name, value in part.items() if name != "is_scheduled"})
        is_scheduled = part.get("is_scheduled", False)
        done = improving.run_or_resume_skill_improvement(self._home, request, run=key, is_scheduled=is_scheduled)
        result: dict[str, Any] = convert_to_plain_json(self._loop.run_and_wait(done))
        return result

    def summarize_results(self, results: Sequence[Any]) -> Any:
        proposals = [one["proposal"] for one in results if one["proposal"] is not None]
        return {
            "proposals": proposals,
            **{what: _sum_result_field(results, what) for what in ("rollouts", "tokens", "dollars")},
        }


class DraftTasksJob(_JobKind):
    """Draft tasks for one skill, which are then pending review."""

    title = "Draft tasks"
    about = "Drafts tasks from a skill's text, for you to tick. Calls a model."
    example = "csv-summary"
    asks_model = True
    takes = range(1, 2)
    usage = "It takes the name of a skill."

    @staticmethod
    def parse_arguments(paths: Sequence[str]) -> dict[str, Any]:
        return {"skill": Path(paths[0]).name}

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        return [given["skill"]]

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        done = self._loop.run_and_wait(drafting.draft_and_propose_skill_tasks(self._home, part))
        return {"tasks": len(done.found), "refused": len(done.refused)}


_AnyJobKind = (
    CurateSkillsAndLessonsJob
    | DraftTasksJob
    | SelfPlayJob
    | ImportSkillsJob
    | ImproveSkillsJob
    | IndexSkillsJob
    | LearnFromTranscriptsJob
    | ProposeRepeatedProceduresJob
    | VerifyLessonsJob
)

JOB_KINDS: Mapping[str, type[_AnyJobKind]] = {
    "curate": CurateSkillsAndLessonsJob,
    "draft-tasks": DraftTasksJob,
    "dream": SelfPlayJob,
    "import": ImportSkillsJob,
    "improve": ImproveSkillsJob,
    "index": IndexSkillsJob,
    "learn": LearnFromTranscriptsJob,
    "mine": ProposeRepeatedProceduresJob,
    "verify": VerifyLessonsJob,
}
SCHEDULED_KINDS = {kind: JOB_KINDS[kind] for kind in ScheduleSettings.model_fields if kind in JOB_KINDS}


def get_kind_title(kind: str) -> str:
    """Return the title of a kind for the page; for an unknown one, such as of another release, its stored name."""
    return (JOB_KINDS[kind].title if kind in JOB_KINDS else "") or kind.capitalize()


def make_job_handlers(home: Home, loop: EventLoopThread) -> dict[str, JobHandler]:
    """Return the work of each kind for the worker; asynchronous parts run on the loop."""
    return {name: _JobHandlerWithSubmitterRights(home, kind, loop) for name, kind in JOB_KINDS.items()}


# In a job's arguments: whether the guest who submitted it is an admin; absent if it was nobody's guest.
_GUEST_ADMIN = "guest_admin"


class _JobHandlerWithSubmitterRights:
    """Runs a kind of job with the permissions of the user who submitted it, not of the worker."""

    def __init__(self, home: Home, kind: type[_AnyJobKind], loop: EventLoopThread) -> None:
        self._home = home
        self._kind = kind
        self._loop = loop

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        user, is_admin = given.get("user", self._home.settings.user), given.get(_GUEST_ADMIN)
        asked = {name: value for name, value in given.items() if name != _GUEST_ADMIN}
        parts = self._make_job_kind_for_user(user, is_admin).plan_parts(asked)
        return [{"user": user, _GUEST_ADMIN: is_admin, "part": part} for part in parts]

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        return self._make_job_kind_for_user(part["user"], part.get(_GUEST_ADMIN)).run_part(part["part"], key, before)

    def summarize_results(self, results: Sequence[Any]) -> Any:
        return self._make_job_kind_for_user(self._home.settings.user).summarize_results(results)

    def _make_job_kind_for_user(self, user: str, is_admin: bool | None = None) -> _AnyJobKind:
        return self._kind(self._home.as_user(user, is_admin=is_admin), self._loop)


def add_job(
    settings: Settings,
    queue: JobQueue,
    kind: str,
    inputs: Mapping[str, Any],
    *,
    id: str = "",
    priority: JobPriority = JobPriority.NORMAL,
) -> str:
    """Add a job in this user's name and return its id; a job about local files waits for a worker of this home."""
    of, user = JOB_KINDS[kind], settings.user
    model = (inputs.get("model") or settings.model) if of.asks_model else ""
    host = (
        home_directory.get_or_create_host_name_of_home(settings.home)
        if queue.is_shared and of.is_bound_to_home_worker(inputs)
        else ""
    )
    lanes = JobConcurrencyKeys(model=model, user=user, host=host)
    # The files of an upload are this server's own.
    is_admin = None if inputs.get("is_upload") else settings.is_guest_admin
    submitter = {"user": user, **({} if is_admin is None else {_GUEST_ADMIN: is_admin})}
    return queue.add_job(kind, {**inputs, **submitter}, id=id, keys=lanes, priority=priority)


def _parse_import_source_path_or_url(given: Mapping[str, Any]) -> Path | str:
    source = str(given["source"])
    return source if "://" in source else parse_user_path(source)


def _sum_result_counts(results: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for result in results:
        total.update(result)
    return dict(total)
