"""Review pending changes and lessons: list, show, approve, reject, choose one of several, edit, reopen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from habitus.access import Access
from habitus.app.home import Home, get_user_or_all_memory
from habitus.app.learning.compared_versions import describe_comparison_after_approval
from habitus.app.library import content, undoing
from habitus.app.review import inbox
from habitus.app.review.inbox import ReviewInboxItem, build_lesson_item, build_proposal_item, parse_proposal_number
from habitus.app.review.replaying import ReplayReport, get_background_replays
from habitus.app.sharing.approvals import open_home_for_proposal_project
from habitus.app.tasks.proposing import drop_unselected_tasks_from_proposal
from habitus.app.tasks.storing import remove_tasks_of_approved_proposal
from habitus.app.use_cases.declaration import (
    MAX_TEXT_CHARS,
    AllUsers,
    PageCursor,
    PageLimit,
    argument,
    option,
    paginate_items,
    use_case,
)
from habitus.app.use_cases.writing import get_main_file_path_and_content
from habitus.errors import Invalid, Refused, UserError
from habitus.files import compute_tree_hash
from habitus.memory.model import Engram
from habitus.settings import EvidenceSettings, Settings
from habitus.skills.review import Proposal, ProposalAction, ProposalState, SkillChange

_ONE = "The number of a proposal, or the id of a lesson."
_SOME = "Numbers of proposals, ids of lessons."
# A page that takes longer than about a second feels stuck; the replay goes on in the background.
_REPLAY_TIMEOUT_S = 0.8


@dataclass(frozen=True, kw_only=True)
class ReviewInboxPage:
    """One page of the inbox."""

    proposals: Sequence[ReviewInboxItem]
    # Ids of pending items that are best decided together.
    groups: Sequence[Sequence[int | str]]
    next: str | None
    total: int


@use_case("review list", route="GET /review", access=Access.VIEWER, example={"decided": True})
def list_pending(
    home: Home,
    decided: Annotated[bool, option("Include decided ones.", "--all")] = False,
    limit: PageLimit = 100,
    after: PageCursor = "",
    all_users: AllUsers = False,
) -> ReviewInboxPage:
    """List what is pending, and why: changes to skills by number, lessons by id."""
    found = inbox.list_pending(home, with_decided=decided, all_users=all_users)
    page = paginate_items("the inbox", found, lambda item: item.id, limit=limit, after=after)
    undecided = [item for item in found if item.state == ProposalState.PENDING]
    groups = [
        [item.subject.id for item in one] for one in inbox.group_related_items(home.finder, undecided) if len(one) > 1
    ]
    return ReviewInboxPage(proposals=page.items, groups=groups, next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class PendingItemDetails:
    """A pending item with its diff."""

    item: ReviewInboxItem
    diff: str
    # Existing skills that say nearly the same.
    similar_skills: Sequence[str]
    # What approving it compares in use, in words; empty if nothing.
    comparison: str = ""


@use_case("review show", route="GET /review/{id}", access=Access.VIEWER, example={"id": "3"})
def show_inbox_item(home: Home, id: Annotated[str, argument(_ONE)], all_users: AllUsers = False) -> PendingItemDetails:
    """Show one proposal: its author, its reason, why it needs review, and the text."""
    found = inbox.get_inbox_item(home, id, all_users=all_users)
    alike = (
        list(content.diff_proposal_with_near_duplicates(home.skills, found.subject))
        if isinstance(found.subject, Proposal)
        else []
    )
    return PendingItemDetails(
        item=found,
        diff=_render_inbox_item_diff(home, found),
        similar_skills=alike,
        comparison=describe_comparison_started_by_approval(home.settings.evidence, found),
    )


def describe_comparison_started_by_approval(settings: EvidenceSettings, item: ReviewInboxItem) -> str:
    """Return what approving an item compares in use, in words; empty if nothing."""
    return describe_comparison_after_approval(settings, item.subject) if isinstance(item.subject, Proposal) else ""


@dataclass(frozen=True, kw_only=True)
class InboxItemDiff:
    id: int | str
    diff: str


@use_case("review diff", access=Access.VIEWER, example={"id": "3"})
def diff_inbox_item(home: Home, id: Annotated[str, argument(_ONE)], all_users: AllUsers = False) -> InboxItemDiff:
    """Show what approving it would change."""
    found = inbox.get_inbox_item(home, id, all_users=all_users)
    return InboxItemDiff(id=found.subject.id, diff=_render_inbox_item_diff(home, found))


def _render_inbox_item_diff(home: Home, item: ReviewInboxItem) -> str:
    subject = item.subject
    if isinstance(subject, Proposal) and are_proposal_files_hidden(home.settings, subject):
        return "Only admins read what a skill is examined by.\n"
    if not isinstance(subject, Proposal):
        return f"+{subject.text}\n"
    return home.review.diff_proposal(subject.id, with_examination=home.settings.is_admin)


def are_proposal_files_hidden(settings: Settings, proposal: Proposal) -> bool:
    """Whether this user must not read the proposal's files, because they contain a skill's exam tasks."""
    return proposal.change.action is ProposalAction.TASKS and not settings.is_admin


def refuse_approval_of_hidden_tasks(settings: Settings, proposal: Proposal) -> None:
    """Raise `Refused` if this user would approve tasks without having read them."""
    if are_proposal_files_hidden(settings, proposal):
        raise Refused("Only people who may read tasks can approve them.", hint="Ask an admin.")


@use_case("", route="GET /review/effect/{id}", access=Access.VIEWER, example={"id": "3"})
def preview_effect(home: Home, id: Annotated[str, argument(_ONE)], all_users: AllUsers = False) -> ReplayReport:
    """Preview what approving a change would do to recent requests: which gain the skill, and what it displaces.

    It answers within a second with the progress so far (`replayed` of `requests`); ask again for the rest.
    """
    subject = inbox.get_inbox_item(home, id, all_users=all_users).subject
    if isinstance(subject, Engram):
        raise Invalid(f"'{id}' is a lesson; it changes no skill.", hint="")
    if home.review.is_on_other_host(subject):
        raise Invalid(f"'{id}' changes a directory of {subject.host}: its requests are not known here.", hint="")
    return get_background_replays(home).start_replay_and_get_report(subject, _REPLAY_TIMEOUT_S)


@dataclass(frozen=True, kw_only=True)
class ReviewDecisionResult:
    """A decided item; approving a change may have created a version, which `undo` reverts."""

    item: ReviewInboxItem
    version: int | None = None
    undo: tuple[str, ...] = ()
    # What it compares in use from now on, in words; empty if nothing.
    comparison: str = ""

    @property
    def pending_host(self) -> str:
        """Return the host that still has to apply the change; empty if none does."""
        subject = self.item.subject
        return subject.host if isinstance(subject, Proposal) and subject.state is ProposalState.ACCEPTED else ""


@dataclass(frozen=True, kw_only=True)
class ApproveItemsResult:
    approved: Sequence[ReviewDecisionResult]


@use_case(
    "review approve",
    route="POST /review/{ids}/approve",
    access=Access.REVIEWER,
    example={"ids": ("3", "4")},
    undo="review reopen",
)
def approve_items(
    home: Home,
    ids: Annotated[tuple[str, ...], argument(_SOME)],
    only: Annotated[tuple[str, ...], option("Of proposed tasks, only these: ids, numbers such as 1-5,8, or all.")] = (),
    all_users: AllUsers = False,
) -> ApproveItemsResult:
    """Apply proposals, and accept lessons."""
    # Look all of them up first: an unknown id must fail before anything is decided.
    items = [inbox.get_inbox_item(home, id, all_users=all_users) for id in ids]
    if only:
        if len(items) > 1 or not isinstance(items[0].subject, Proposal):
            raise Invalid("Tasks are picked from one proposal.", hint="Name the proposal that has them.")
        refuse_approval_of_hidden_tasks(home.settings, items[0].subject)
        drop_unselected_tasks_from_proposal(home.review, items[0].subject, only)
    return ApproveItemsResult(approved=_decide_items(items, lambda item: _approve_item(home, item, all_users)))


def _decide_items(
    items: Sequence[ReviewInboxItem], decide: Callable[[ReviewInboxItem], ReviewDecisionResult]
) -> list[ReviewDecisionResult]:
    """Decide the items one by one. If one fails, the error names those decided before it."""
    done: list[ReviewDecisionResult] = []
    for item in items:
        try:
            done.append(decide(item))
        except UserError as error:
            if not done:
                raise
            before = ", ".join(one.item.id for one in done)
            raise type(error)(f"{error.message} Decided before it: {before}.", hint=error.hint) from None
    return done


def _approve_item(home: Home, item: ReviewInboxItem, all_users: bool) -> ReviewDecisionResult:
    if isinstance(item.subject, Engram):
        lesson = get_user_or_all_memory(home, all_users).approve(item.subject.id, by=home.settings.author_name)
        return ReviewDecisionResult(
            item=build_lesson_item(lesson), undo=("undo", *undoing.build_lesson_undo_targets([lesson]))
        )
    refuse_approval_of_hidden_tasks(home.settings, item.subject)
    proposal, version = home.review.approve(item.subject.id, home.build_author())
    return ReviewDecisionResult(
        item=build_proposal_item(proposal),
        version=version,
        undo=_build_reopen_command(item.id),
        comparison=describe_comparison_started_by_approval(home.settings.evidence, item),
    )


def _build_reopen_command(*ids: str) -> tuple[str, ...]:
    """Return the command that makes decided changes pending again."""
    return ("review", "reopen", *ids)


@dataclass(frozen=True, kw_only=True)
class RejectItemsResult:
    rejected: Sequence[ReviewDecisionResult]


@use_case(
    "review reject",
    route="POST /review/{ids}/reject",
    access=Access.REVIEWER,
    example={"ids": ("3",), "reason": "too long"},
    undo="review reopen",
)
def reject_items(
    home: Home,
    ids: Annotated[tuple[str, ...], argument(_SOME)],
    reason: Annotated[str, option("Reason; the agent sees it.", "-r")] = "",
    all_users: AllUsers = False,
) -> RejectItemsResult:
    """Reject proposals."""
    items = [inbox.get_inbox_item(home, id, all_users=all_users) for id in ids]
    return RejectItemsResult(rejected=_decide_items(items, lambda item: _reject_item(home, item, reason, all_users)))


def _reject_item(home: Home, item: ReviewInboxItem, reason: str, all_users: bool = False) -> ReviewDecisionResult:
    if isinstance(item.subject, Engram):
        lesson = get_user_or_all_memory(home, all_users).reject(item.id, by=home.settings.author_name, reason=reason)
        return ReviewDecisionResult(
            item=build_lesson_item(lesson), undo=("undo", *undoing.build_lesson_undo_targets([lesson]))
        )
    proposal = home.review.reject(item.subject.id, home.build_author(), reason)
    return ReviewDecisionResult(item=build_proposal_item(proposal), undo=_build_reopen_command(item.id))


@dataclass(frozen=True, kw_only=True)
class ChooseProposalResult:
    """The approved proposal, whose `undo` reopens all of them, and the rejected ones."""

    # `undo` reopens all of them.
    approved: ReviewDecisionResult
    rejected: Sequence[ReviewDecisionResult]


@use_case(
    "",
    route="POST /review/{id}/choose",
    access=Access.REVIEWER,
    example={"id": "3", "others": ("4",)},
    accepts_idempotency_key=True,
)
def choose_proposal(
    home: Home,
    id: Annotated[str, argument("The number of the proposal to approve.")],
    others: Annotated[tuple[str, ...], option("The proposals to reject.")],
) -> ChooseProposalResult:
    """Approve one of several similar proposals and reject the others; nothing is changed unless all are pending."""
    if not others or len({id, *others}) <= len(others):
        raise Invalid("A proposal is named twice.", hint="Name the one to approve, and each of the others once.")
    rejected = [inbox.get_inbox_item(home, other) for other in others]
    for item in rejected:
        if item.state != ProposalState.PENDING:
            raise Invalid(f"'{item.id}' is {item.state} already.", hint="Choose among the pending ones.")
    taken = _approve_item(home, inbox.get_inbox_item(home, id), all_users=False)
    reason = f"{taken.item.title.partition('@')[0]} says the same and was approved"
    gone = [_reject_item(home, item, reason) for item in rejected]
    return ChooseProposalResult(approved=replace(taken, undo=_build_reopen_command(id, *others)), rejected=gone)


@dataclass(frozen=True, kw_only=True)
class ReopenProposalsResult:
    reopened: Sequence[ReviewInboxItem]


@use_case("review reopen", route="POST /review/{ids}/reopen", access=Access.REVIEWER, example={"ids": ("3",)})
def reopen_proposals(
    home: Home, ids: Annotated[tuple[str, ...], argument("Numbers of proposals.")]
) -> ReopenProposalsResult:
    """Make decided changes pending again; what approving did is undone."""
    return ReopenProposalsResult(reopened=[_reopen_proposal(home, id) for id in ids])


def _reopen_proposal(home: Home, id: str) -> ReviewInboxItem:
    if (number := parse_proposal_number(id)) is None:
        raise Invalid(
            f"'{id}' is not the number of a proposal.",
            hint="A lesson comes back by the undo command that its rejection gave.",
        )
    proposal = home.review.get(number)
    if proposal.state is ProposalState.APPROVED and home.review.is_on_other_host(proposal):
        done = f"Proposal {id} is applied on {proposal.host}" + (f" as {proposal.decision}" * bool(proposal.decision))
        raise Refused(f"{done}.", hint=f"Undo it there: habitus review reopen {id}.")
    if proposal.state is ProposalState.APPROVED:
        _undo_approval(open_home_for_proposal_project(home, proposal), proposal)
    return build_proposal_item(home.review.reopen(proposal.id))


def _undo_approval(home: Home, proposal: Proposal) -> None:
    """Undo what approving a proposal did."""
    change, person = proposal.change, home.build_author(f"proposal {proposal.id} is pending again")
    address = f"{change.name}@{change.layer}"
    match change.action:
        case ProposalAction.WRITE:
            _undo_written_version(home, change, address, person.reason)
        case ProposalAction.REMOVE:
            home.skills.restore(address, person)
        case ProposalAction.ENABLE | ProposalAction.DISABLE:
            home.skills.set_enabled(address, change.action is ProposalAction.DISABLE, person)
        case ProposalAction.TASKS:
            remove_tasks_of_approved_proposal(home, change)


def _undo_written_version(home: Home, change: SkillChange, address: str, reason: str) -> None:
    """Undo the version with these files, if the skill still exists. Raises `Refused` if others changed it since."""
    history, wanted = (
        home.skills.get_layer(change.layer).store.list_versions(change.name),
        compute_tree_hash(change.tree),
    )
    made = [version.number for version in history if version.tree_hash == wanted]
    done = undoing.undo_versions_and_changes(home, [f"{address}:{number}" for number in made[-1:]], reason)
    if done.failures:
        raise Refused(done.failures[0])


@dataclass(frozen=True, kw_only=True)
class EditProposalTextResult:
    item: ReviewInboxItem
    changed: bool


@use_case("", route="PUT /review/{id}/text", access=Access.REVIEWER, example={"id": "3", "text": "1. Boil."})
def edit_proposal_text(
    home: Home,
    id: Annotated[str, argument(_ONE)],
    text: Annotated[str, option("The complete new text; for a skill, its SKILL.md.", longest=MAX_TEXT_CHARS)],
) -> EditProposalTextResult:
    """Edit the text of a proposal before you approve it."""
    before, _ = get_editable_text_and_file_name(home, id)
    if (number := parse_proposal_number(id)) is None:
        after = home.memory.edit(id, by=home.settings.author_name, text=text.strip())
        return EditProposalTextResult(item=build_lesson_item(after), changed=after.text.encode() != before)
    path, _ = get_main_file_path_and_content(home.review.get(number).change.tree)
    content = text.encode("utf-8", "replace")
    return EditProposalTextResult(
        item=build_proposal_item(home.review.edit_proposed_file(number, path, content)), changed=content != before
    )


def get_editable_text_and_file_name(home: Home, id: str) -> tuple[bytes, str]:
    """Return the text that may be edited, and a name for its file."""
    if (number := parse_proposal_number(id)) is None:
        lesson = home.memory.get(id)
        return lesson.text.encode(), f"{lesson.id}.md"
    change = home.review.get(number).change
    return get_main_file_path_and_content(change.tree)[1], f"{change.name}.md"
