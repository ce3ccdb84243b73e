"""The inbox: everything that waits for a person, changes of skills and lessons in one list, and their word on it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from habitus.app.home import Home
from habitus.app.library import undoing
from habitus.app.library.undoing import of_lessons
from habitus.app.library.writing import ByHand, editable
from habitus.app.sharing.carrying import where_it_is
from habitus.app.whose import memory_of
from habitus.errors import Invalid, Refused
from habitus.files import tree_hash
from habitus.memory.cortex import Cortex
from habitus.memory.model import Engram
from habitus.settings import Settings
from habitus.skills import trees
from habitus.skills.finding import Finder, document_of
from habitus.skills.lint import DUPLICATE
from habitus.skills.review import Action, Change, Proposal, ProposalState, Review

APPROVED = (ProposalState.ACCEPTED, ProposalState.CARRYING, ProposalState.APPROVED)
LEARN = "learn"  # what approving a lesson does, beside the actions of proposals


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxItem:
    """One thing a person decides about, or has decided; `subject` is what it is about, whole."""

    id: str
    state: str
    action: str
    what: str
    by: str
    reasons: tuple[str, ...]
    subject: Proposal | Engram


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """What was decided; an approved change may have made a version, and can be taken back."""

    item: InboxItem
    version: int | None = None
    undo: tuple[str, ...] = ()

    @property
    def due_on(self) -> str:
        """The host that is still to carry it out."""
        subject = self.item.subject
        return subject.host if isinstance(subject, Proposal) and subject.state is ProposalState.ACCEPTED else ""


def waiting(home: Home, *, with_decided: bool = False, all_users: bool = False) -> tuple[InboxItem, ...]:
    """Proposals, then lessons, each with the reason why it waits."""
    found = home.review.list(None if with_decided else ProposalState.WAITING, everywhere=True)
    # Memory is opened only where lessons wait.
    has_lessons = all_users or home.waiting_count() > home.review.waiting_count()
    lessons = memory_of(home, all_users).waiting() if has_lessons else ()
    return (*map(_of_proposal, found), *map(_of_lesson, lessons))


def decided(review: Review, limit: int) -> tuple[InboxItem, ...]:
    """The changes that were decided last, without their files, the latest first."""
    states = (*APPROVED, ProposalState.REJECTED)
    found = [one for state in states for one in review.list(state, with_contents=False, everywhere=True)]
    dated = sorted(found, key=lambda one: (one.decided_on or one.made_on, one.id), reverse=True)
    return tuple(map(_of_proposal, dated[:limit]))


def together(finder: Finder, items: Sequence[InboxItem]) -> tuple[tuple[InboxItem, ...], ...]:
    """The same in groups to decide at once: changes of one skill, and new skills that say much the same."""
    groups: list[list[InboxItem]] = []
    near = _alike(finder, items)
    for item in items:
        mine = [group for group in groups if any(_belong(one, item, near) for one in group)]
        groups = [group for group in groups if group not in mine]
        groups.append([*(one for group in mine for one in group), item])
    order = {item.id: number for number, item in enumerate(items)}
    return tuple(sorted((tuple(group) for group in groups), key=lambda group: order[group[0].id]))


def _belong(one: InboxItem, other: InboxItem, near: Mapping[str, Collection[str]]) -> bool:
    if not (isinstance(one.subject, Proposal) and isinstance(other.subject, Proposal)):
        return False
    first, second = one.subject.change.name, other.subject.change.name
    return one.what == other.what or second in near.get(first, ()) or first in near.get(second, ())


def _alike(finder: Finder, items: Sequence[InboxItem]) -> dict[str, set[str]]:
    """Which of the new skills that wait say much the same."""
    changes = [item.subject.change for item in items if isinstance(item.subject, Proposal) and item.subject.is_new]
    parsed = {change.name: trees.parse(change.name, change.tree).skill for change in changes}
    skills = [skill for skill in parsed.values() if skill is not None]
    if len(skills) < 2:
        return {}
    supposed = finder.supposing(skills)
    hits = {skill.name: supposed.similar(document_of(skill, skill.body)) for skill in skills}
    return {
        name: {hit.id for hit in found if hit.id in parsed and hit.score >= DUPLICATE} for name, found in hits.items()
    }


def get(home: Home, id: str, *, all_users: bool = False) -> InboxItem:
    """By a proposal's number, or a lesson's id, which begins with a letter."""
    if (number := _number(id)) is not None:
        return _of_proposal(home.review.get(number))
    return _of_lesson(memory_of(home, all_users).get(id))


def _number(id: str) -> int | None:
    """Of a proposal; none where it is no number that any could have."""
    return int(id) if id.isascii() and id.isdigit() and len(id) < 10 else None


def change(home: Home, id: str) -> Change:
    """What one of them would do to a skill."""
    item = get(home, id)
    if isinstance(item.subject, Engram):
        raise Invalid(f"'{id}' is a lesson; it changes no skill.", mend="")
    if home.review.is_elsewhere(item.subject):
        raise Invalid(f"'{id}' changes a directory of {item.subject.host}: nobody knows its requests here.", mend="")
    return item.subject.change


def diff(review: Review, item: InboxItem) -> str:
    """What approving it would change."""
    subject = item.subject
    return review.diff(subject.id) if isinstance(subject, Proposal) else f"+{subject.text}\n"


def approve(home: Home, ids: Sequence[str], *, all_users: bool = False) -> Iterator[Decided]:
    """Carry changes out and let lessons in, one by one; an unknown one is said before anything is done."""
    for item in [get(home, id, all_users=all_users) for id in ids]:
        yield _approved(home, item, all_users)


def _approved(home: Home, item: InboxItem, all_users: bool) -> Decided:
    if isinstance(item.subject, Engram):
        lesson = memory_of(home, all_users).approve(item.subject.id, by=home.settings.signature)
        return Decided(item=_of_lesson(lesson), undo=("undo", *of_lessons([lesson])))
    proposal, version = home.review.approve(item.subject.id, home.person())
    return Decided(item=_of_proposal(proposal), version=version, undo=_reopening(item.id))


def _reopening(*ids: str) -> tuple[str, ...]:
    """The command that lets decided changes wait again."""
    return ("review", "reopen", *ids)


def reject(home: Home, id: str, reason: str, *, all_users: bool = False) -> Decided:
    """Turn it down; the agent sees the reason."""
    if (number := _number(id)) is not None:
        proposal = home.review.reject(number, home.person(), reason)
        return Decided(item=_of_proposal(proposal), undo=_reopening(id))
    lesson = memory_of(home, all_users).reject(id, by=home.settings.signature, reason=reason)
    return Decided(item=_of_lesson(lesson), undo=("undo", *of_lessons([lesson])))


def choose(home: Home, taken: str, others: Sequence[str]) -> tuple[Decided, ...]:
    """Of several that say the same approve one, and turn the others down; nothing is done unless all of them wait.

    The first undo has all of them wait again.
    """
    if len({taken, *others}) <= len(others):
        raise Invalid("The same one stands there twice.", mend="Name the one to take, and each of the others once.")
    for item in [get(home, id) for id in others]:
        if item.state != ProposalState.WAITING:
            raise Invalid(f"'{item.id}' is {item.state} already.", mend="Choose among those that wait.")
    (done,) = approve(home, [taken])
    reason = f"{done.item.what.partition('@')[0]} says the same, and was taken"
    gone = [reject(home, id, reason) for id in others]
    return (replace(done, undo=_reopening(taken, *others)), *gone)


def reopen(home: Home, id: str) -> InboxItem:
    """Let a change that was decided wait again; what an approved one did is taken back first."""
    if (number := _number(id)) is None:
        raise Invalid(f"'{id}' is no number of a proposal.", mend="A lesson comes back with 'habitus undo ID:VERSION'.")
    proposal = home.review.get(number)
    if proposal.state is ProposalState.APPROVED and home.review.is_elsewhere(proposal):
        done = f"Proposal {id} is carried out on {proposal.host}" + (
            f" as {proposal.decision}" * bool(proposal.decision)
        )
        raise Refused(f"{done}.", mend=f"Take it back there: habitus review reopen {id}.")
    if proposal.state is ProposalState.APPROVED:
        _take_back(where_it_is(home, proposal), proposal)
    return _of_proposal(home.review.reopen(proposal.id))


def _take_back(home: Home, proposal: Proposal) -> None:
    change, person = proposal.change, home.person(f"proposal {proposal.id} waits again")
    address = f"{change.name}@{change.layer}"
    match change.action:
        case Action.WRITE:
            _unwrite(home, change, address, person.reason)
        case Action.REMOVE:
            home.skills.restore(address, person)
        case Action.ENABLE | Action.DISABLE:
            home.skills.set_enabled(address, change.action is Action.DISABLE, person)


def _unwrite(home: Home, change: Change, address: str, reason: str) -> None:
    """Take back the version with these files, where the skill is there still; where others changed it since, say so."""
    history, wanted = home.skills.layer(change.layer).store.history(change.name), tree_hash(change.tree)
    made = [version.number for version in history if version.tree_hash == wanted]
    done = undoing.undo(home, [f"{address}:{number}" for number in made[-1:]], reason)
    if done.kept:
        raise Refused(done.kept[0])


def mend(home: Home, id: str, by_hand: ByHand) -> tuple[InboxItem, bool]:
    """Have the text of what waits changed before it is approved; says whether it was."""
    if (number := _number(id)) is None:
        return _mended(home.settings, home.memory, home.memory.get(id), by_hand)
    change = home.review.get(number).change
    path, content = editable(change.tree)
    with by_hand(content, f"{change.name}.md") as written:
        return _of_proposal(home.review.edit(number, path, written)), written != content


def _mended(settings: Settings, memory: Cortex, lesson: Engram, by_hand: ByHand) -> tuple[InboxItem, bool]:
    with by_hand(lesson.text.encode(), f"{lesson.id}.md") as written:
        text = written.decode("utf-8", "replace").strip()
    after = memory.edit(lesson.id, by=settings.signature, text=text)
    return _of_lesson(after), after.text != lesson.text


def _of_proposal(proposal: Proposal) -> InboxItem:
    return InboxItem(
        id=str(proposal.id),
        state=proposal.state,
        action=proposal.change.action,
        what=proposal.place,
        by=f"{proposal.author.actor.value} {proposal.author.name}".strip(),
        reasons=proposal.reasons,
        subject=proposal,
    )


def _of_lesson(lesson: Engram) -> InboxItem:
    return InboxItem(
        id=lesson.id,
        state=lesson.state,
        action=LEARN,
        what=lesson.text,
        by=lesson.produced_by,
        reasons=(lesson.reason,),
        subject=lesson,
    )
