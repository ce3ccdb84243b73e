"""Review pending changes and lessons: list, show, approve, reject, choose one of several, edit, reopen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, replace

from habitus.access import Access
from habitus.app.home import Home, memory_of
from habitus.app.library import content, undoing
from habitus.app.library.undoing import of_lessons
from habitus.app.review import inbox
from habitus.app.review.inbox import InboxItem, number_of, of_lesson, of_proposal
from habitus.app.review.replaying import Replay, replays_of
from habitus.app.sharing.approvals import where_it_is
from habitus.app.tasks.storing import drop_proposed
from habitus.app.use_cases.declaration import TEXT, after_option, argument, limit_option, option, page_of, use_case
from habitus.app.use_cases.writing import editable
from habitus.errors import Invalid, Refused, UserError
from habitus.files import tree_hash
from habitus.memory.model import Engram
from habitus.settings import Settings
from habitus.skills.review import Action, Change, Proposal, ProposalState

_ONE = "The number of a proposal, or the id of a lesson."
_SOME = "Numbers of proposals, ids of lessons."
_EVERYBODY = "Of everybody; for admins."
# A page that takes longer than about a second feels stuck; the replay goes on in the background.
_PATIENCE_S = 0.8


@dataclass(frozen=True, kw_only=True)
class WaitingList:
    decided: bool = option("Decided ones too.", "--all", default=False)
    limit: int = limit_option()
    after: str = after_option()
    all_users: bool = option(_EVERYBODY, default=False)


@dataclass(frozen=True, kw_only=True)
class WaitingPage:
    """One page of the inbox."""

    proposals: Sequence[InboxItem]
    # Ids of pending items that are best decided together.
    groups: Sequence[Sequence[int | str]]
    next: str | None
    total: int


@use_case("review list", route="GET /review", access=Access.VIEWER, example=WaitingList(decided=True))
def list_waiting(home: Home, wanted: WaitingList) -> WaitingPage:
    """List what is pending, and why: changes to skills by number, lessons by id."""
    found = inbox.waiting(home, with_decided=wanted.decided, all_users=wanted.all_users)
    page = page_of("what waits", found, lambda item: item.id, limit=wanted.limit, after=wanted.after)
    undecided = [item for item in found if item.state == ProposalState.WAITING]
    groups = [[item.subject.id for item in one] for one in inbox.together(home.finder, undecided) if len(one) > 1]
    return WaitingPage(proposals=page.items, groups=groups, next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class OneItem:
    id: str = argument(_ONE)
    all_users: bool = option(_EVERYBODY, default=False)


@dataclass(frozen=True, kw_only=True)
class ShownItem:
    """A pending item with its diff."""

    item: InboxItem
    diff: str
    # Existing skills that say nearly the same.
    alike: Sequence[str]


@use_case("review show", route="GET /review/{id}", access=Access.VIEWER, example=OneItem(id="3"))
def show(home: Home, wanted: OneItem) -> ShownItem:
    """Show one proposal: its author, its reason, why it needs review, and the text."""
    found = inbox.get(home, wanted.id, all_users=wanted.all_users)
    alike = list(content.twins(home.skills, found.subject)) if isinstance(found.subject, Proposal) else []
    return ShownItem(item=found, diff=_diff(home, found), alike=alike)


@dataclass(frozen=True, kw_only=True)
class ItemDiff:
    id: int | str
    diff: str


@use_case("review diff", access=Access.VIEWER, example=OneItem(id="3"))
def diff(home: Home, wanted: OneItem) -> ItemDiff:
    """Show what approving it would change."""
    found = inbox.get(home, wanted.id, all_users=wanted.all_users)
    return ItemDiff(id=found.subject.id, diff=_diff(home, found))


def _diff(home: Home, item: InboxItem) -> str:
    subject = item.subject
    if isinstance(subject, Proposal) and is_hidden(home.settings, subject):
        return "Only admins read what a skill is examined by.\n"
    if not isinstance(subject, Proposal):
        return f"+{subject.text}\n"
    return home.review.diff(subject.id, with_examination=home.settings.is_admin)


def is_hidden(settings: Settings, proposal: Proposal) -> bool:
    """Whether this user must not read the proposal's files, because they contain a skill's exam tasks."""
    return proposal.change.action is Action.TASKS and not settings.is_admin


@use_case("", route="GET /review/effect/{id}", access=Access.VIEWER, example=OneItem(id="3"))
def effect(home: Home, wanted: OneItem) -> Replay:
    """Preview what approving a change would do to recent requests: which gain the skill, and what it displaces.

    It answers within a second with the progress so far (`replayed` of `requests`); ask again for the rest.
    """
    subject = inbox.get(home, wanted.id, all_users=wanted.all_users).subject
    if isinstance(subject, Engram):
        raise Invalid(f"'{wanted.id}' is a lesson; it changes no skill.", hint="")
    if home.review.is_elsewhere(subject):
        raise Invalid(f"'{wanted.id}' changes a directory of {subject.host}: nobody knows its requests here.", hint="")
    return replays_of(home).look(subject, _PATIENCE_S)


@dataclass(frozen=True, kw_only=True)
class Approval:
    ids: tuple[str, ...] = argument(_SOME)
    all_users: bool = option(_EVERYBODY, default=False)


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A decided item; approving a change may have created a version, which `undo` reverts."""

    item: InboxItem
    version: int | None = None
    undo: tuple[str, ...] = ()

    @property
    def due_on(self) -> str:
        """Return the host that still has to apply the change; empty if none does."""
        subject = self.item.subject
        return subject.host if isinstance(subject, Proposal) and subject.state is ProposalState.ACCEPTED else ""


@dataclass(frozen=True, kw_only=True)
class Approved:
    approved: Sequence[Decided]


@use_case(
    "review approve",
    route="POST /review/{ids}/approve",
    access=Access.REVIEWER,
    example=Approval(ids=("3", "4")),
    undo="review reopen",
)
def approve(home: Home, wanted: Approval) -> Approved:
    """Apply proposals, and accept lessons."""
    # Look all of them up first: an unknown id must fail before anything is decided.
    items = [inbox.get(home, id, all_users=wanted.all_users) for id in wanted.ids]
    return Approved(approved=_each(items, lambda item: _approve(home, item, wanted.all_users)))


def _each(items: Sequence[InboxItem], decide: Callable[[InboxItem], Decided]) -> list[Decided]:
    """Decide the items one by one. If one fails, the error names those decided before it."""
    done: list[Decided] = []
    for item in items:
        try:
            done.append(decide(item))
        except UserError as error:
            if not done:
                raise
            before = ", ".join(one.item.id for one in done)
            raise type(error)(f"{error.message} Decided before it: {before}.", hint=error.hint) from None
    return done


def _approve(home: Home, item: InboxItem, all_users: bool) -> Decided:
    if isinstance(item.subject, Engram):
        lesson = memory_of(home, all_users).approve(item.subject.id, by=home.settings.signature)
        return Decided(item=of_lesson(lesson), undo=("undo", *of_lessons([lesson])))
    if is_hidden(home.settings, item.subject):
        raise Refused("Tasks are approved by who may read them.", hint="Ask an admin.")
    proposal, version = home.review.approve(item.subject.id, home.person())
    return Decided(item=of_proposal(proposal), version=version, undo=_reopening(item.id))


def _reopening(*ids: str) -> tuple[str, ...]:
    """Return the command that makes decided changes pending again."""
    return ("review", "reopen", *ids)


@dataclass(frozen=True, kw_only=True)
class Rejection:
    ids: tuple[str, ...] = argument(_SOME)
    reason: str = option("Why; the agent sees it.", "-r", default="")
    all_users: bool = option(_EVERYBODY, default=False)


@dataclass(frozen=True, kw_only=True)
class Rejected:
    rejected: Sequence[Decided]


@use_case(
    "review reject",
    route="POST /review/{ids}/reject",
    access=Access.REVIEWER,
    example=Rejection(ids=("3",), reason="too long"),
    undo="review reopen",
)
def reject(home: Home, wanted: Rejection) -> Rejected:
    """Reject proposals."""
    items = [inbox.get(home, id, all_users=wanted.all_users) for id in wanted.ids]
    return Rejected(rejected=_each(items, lambda item: _reject(home, item, wanted.reason, wanted.all_users)))


def _reject(home: Home, item: InboxItem, reason: str, all_users: bool = False) -> Decided:
    if isinstance(item.subject, Engram):
        lesson = memory_of(home, all_users).reject(item.id, by=home.settings.signature, reason=reason)
        return Decided(item=of_lesson(lesson), undo=("undo", *of_lessons([lesson])))
    proposal = home.review.reject(item.subject.id, home.person(), reason)
    return Decided(item=of_proposal(proposal), undo=_reopening(item.id))


@dataclass(frozen=True, kw_only=True)
class Choice:
    id: str = argument("The number of the proposal to take.")
    others: tuple[str, ...] = option("Those to turn down.", default=MISSING)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The approved proposal, whose `undo` reopens all of them, and the rejected ones."""

    # `undo` reopens all of them.
    taken: Decided
    turned_down: Sequence[Decided]


@use_case(
    "",
    route="POST /review/{id}/choose",
    access=Access.REVIEWER,
    example=Choice(id="3", others=("4",)),
    is_once=True,
)
def choose(home: Home, wanted: Choice) -> Chosen:
    """Approve one of several similar proposals and reject the others; nothing is changed unless all are pending."""
    if not wanted.others or len({wanted.id, *wanted.others}) <= len(wanted.others):
        raise Invalid("The same one stands there twice.", hint="Name the one to take, and each of the others once.")
    others = [inbox.get(home, id) for id in wanted.others]
    for item in others:
        if item.state != ProposalState.WAITING:
            raise Invalid(f"'{item.id}' is {item.state} already.", hint="Choose among those that wait.")
    taken = _approve(home, inbox.get(home, wanted.id), all_users=False)
    reason = f"{taken.item.what.partition('@')[0]} says the same, and was taken"
    gone = [_reject(home, item, reason) for item in others]
    return Chosen(taken=replace(taken, undo=_reopening(wanted.id, *wanted.others)), turned_down=gone)


@dataclass(frozen=True, kw_only=True)
class Reopening:
    ids: tuple[str, ...] = argument("Numbers of proposals.")


@dataclass(frozen=True, kw_only=True)
class Reopened:
    reopened: Sequence[InboxItem]


@use_case("review reopen", route="POST /review/{ids}/reopen", access=Access.REVIEWER, example=Reopening(ids=("3",)))
def reopen(home: Home, wanted: Reopening) -> Reopened:
    """Make decided changes pending again; what approving did is undone."""
    return Reopened(reopened=[_reopen(home, id) for id in wanted.ids])


def _reopen(home: Home, id: str) -> InboxItem:
    if (number := number_of(id)) is None:
        raise Invalid(
            f"'{id}' is not the number of a proposal.", hint="A lesson comes back with 'habitus undo ID:VERSION'."
        )
    proposal = home.review.get(number)
    if proposal.state is ProposalState.APPROVED and home.review.is_elsewhere(proposal):
        done = f"Proposal {id} is carried out on {proposal.host}" + (
            f" as {proposal.decision}" * bool(proposal.decision)
        )
        raise Refused(f"{done}.", hint=f"Take it back there: habitus review reopen {id}.")
    if proposal.state is ProposalState.APPROVED:
        _take_back(where_it_is(home, proposal), proposal)
    return of_proposal(home.review.reopen(proposal.id))


def _take_back(home: Home, proposal: Proposal) -> None:
    """Undo what approving a proposal did."""
    change, person = proposal.change, home.person(f"proposal {proposal.id} waits again")
    address = f"{change.name}@{change.layer}"
    match change.action:
        case Action.WRITE:
            _unwrite(home, change, address, person.reason)
        case Action.REMOVE:
            home.skills.restore(address, person)
        case Action.ENABLE | Action.DISABLE:
            home.skills.set_enabled(address, change.action is Action.DISABLE, person)
        case Action.TASKS:
            drop_proposed(home, change)


def _unwrite(home: Home, change: Change, address: str, reason: str) -> None:
    """Undo the version with these files, if the skill still exists. Raises `Refused` if others changed it since."""
    history, wanted = home.skills.layer(change.layer).store.history(change.name), tree_hash(change.tree)
    made = [version.number for version in history if version.tree_hash == wanted]
    done = undoing.undo(home, [f"{address}:{number}" for number in made[-1:]], reason)
    if done.kept:
        raise Refused(done.kept[0])


@dataclass(frozen=True, kw_only=True)
class NewText:
    id: str = argument(_ONE)
    text: str = option("Its text, whole: of a change the main file.", default=MISSING, longest=TEXT)


@dataclass(frozen=True, kw_only=True)
class EditedProposal:
    item: InboxItem
    changed: bool


@use_case("", route="PUT /review/{id}/text", access=Access.REVIEWER, example=NewText(id="3", text="1. Boil."))
def edit(home: Home, wanted: NewText) -> EditedProposal:
    """Edit the text of a proposal before you approve it."""
    before, _ = text_of(home, wanted.id)
    if (number := number_of(wanted.id)) is None:
        after = home.memory.edit(wanted.id, by=home.settings.signature, text=wanted.text.strip())
        return EditedProposal(item=of_lesson(after), changed=after.text.encode() != before)
    path, _ = editable(home.review.get(number).change.tree)
    content = wanted.text.encode("utf-8", "replace")
    return EditedProposal(item=of_proposal(home.review.edit(number, path, content)), changed=content != before)


def text_of(home: Home, id: str) -> tuple[bytes, str]:
    """Return the text that may be edited, and a name for its file."""
    if (number := number_of(id)) is None:
        lesson = home.memory.get(id)
        return lesson.text.encode(), f"{lesson.id}.md"
    change = home.review.get(number).change
    return editable(change.tree)[1], f"{change.name}.md"
