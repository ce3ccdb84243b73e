"""Reading skills: list them, show one with its history, diffs and usage, and the archive."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library.layers import open_library
from habitus.app.library.locking import origin_of
from habitus.app.use_cases.declaration import after_option, argument, limit_option, option, page_of, use_case
from habitus.errors import NotFound, Refused, did_you_mean
from habitus.evidence.model import ItemKind
from habitus.files import content_of, is_examination
from habitus.journal.model import TrialArms
from habitus.search.model import Results
from habitus.skills import lifecycle, names, trees
from habitus.skills.layers.layer import address
from habitus.skills.layers.listing import Listed, ShownSkill, SkillEntry, SkillPage, Snapshot, together, words_of_source
from habitus.skills.library import Library
from habitus.skills.lifecycle import Packages, is_judged, reliability
from habitus.skills.model import Archived, Counters, Manifest, Source, Stage, State, Switch, Version
from habitus.skills.review import Action, Review

if TYPE_CHECKING:
    from habitus.skills.choosing.finding import Finder

# The highest version number that a request may name.
MOST = 2**31
# Search hits per query.
_FOUND = 50
# Above this, reading the counters of all skills is cheaper than naming them.
_FEW = 500


def skill_name() -> str:
    """Declare the argument for a skill's name or address."""
    name: str = argument("A skill: name, or name@layer.", completes="skills")
    return name


@dataclass(frozen=True, kw_only=True)
class SkillList:
    """Filters for a list of skills; without any, all skills match."""

    q: str = option("What should be done, in your own words; the best fit comes first.", "--query", "-q", default="")
    tag: str = option("Only skills with this tag.", default="")
    source: Source | None = option("Only skills from there.")
    stage: Stage | None = option("Only skills that have this stage.")
    state: State | None = option(f"Only: {', '.join(State)}.")
    layer: str | None = option("Only skills of this layer.")
    limit: int | None = limit_option(None)
    after: str = after_option()

    @property
    def is_filtered(self) -> bool:
        """Whether any filter besides the search words is set."""
        return bool(self.tag or self.source or self.stage or self.state or self.layer)

    def fits(self, item: Listed) -> bool:
        """Whether a skill passes the filters; the search words are not considered."""
        summary = item.summary
        if (self.state or item.state) is not item.state or (self.layer or item.layer) != item.layer:
            return False
        if summary is None:
            return not (self.tag or self.source or self.stage)
        return (
            (not self.tag or self.tag in summary.tags)
            and (self.source is None or summary.source is self.source)
            and (self.stage is None or self.stage in summary.stages)
        )


@use_case("skills list", route="GET /skills", access=Access.OPEN_READING, example=SkillList(state=State.BROKEN))
def list_skills(home: Home, wanted: SkillList) -> SkillPage:
    """List skills with their state, and how often they were used."""
    found, _ = matching(home, wanted, everything(home))
    page = page_of("skills", found, _address, limit=wanted.limit, after=wanted.after)
    counted = used(home.skills, page.items)
    entries = [
        SkillEntry(
            item=item,
            counters=counted.get((item.layer, item.name), Counters()),
            manifest=manifest_of(home.skills, item),
        )
        for item in page.items
    ]
    return SkillPage(skills=entries, next=page.next, total=page.total)


def _address(item: Listed) -> str:
    return f"{item.name}@{item.layer}"


def everything(home: Home) -> tuple[Listed, ...]:
    """Return every skill, including those pending review."""
    return (*home.skills.listing(), *waiting_skills(home.review))


def matching(home: Home, wanted: SkillList, items: Sequence[Listed]) -> tuple[Sequence[Listed], bool]:
    """Return the matching skills in order, and whether the search words fit any of them well."""
    if wanted.layer is not None:
        # Raises for an unknown layer, which would otherwise look like an empty one.
        home.skills.layer(wanted.layer)
    chosen = [item for item in items if wanted.fits(item)] if wanted.is_filtered else items
    return _search_items(home.finder, wanted, chosen) if wanted.q.strip() else (chosen, True)


def _search_items(finder: Finder, wanted: SkillList, items: Sequence[Listed]) -> tuple[list[Listed], bool]:
    """Return skills whose name contains the words, then those with a similar meaning."""
    words = wanted.q.strip().lower().replace(" ", "-")
    named = [item for item in items if words in item.name]
    others = {item.name: item for item in items if words not in item.name}
    # None searches the whole index, which is faster than naming every skill.
    among = set(others) if named or wanted.is_filtered else None
    results = finder.search(wanted.q, k=_FOUND, among=among) if others else Results()
    found = [others[hit.id] for hit in results.hits if hit.id in others]
    return [*named, *found], bool(named) or results.fits


def waiting_skills(review: Review) -> list[Listed]:
    """Return the skills that don't exist until a pending proposal is approved."""
    waiting = review.list(with_contents=False) if review.waiting_count() else []
    return [
        Listed(
            name=proposal.change.name,
            layer=proposal.change.layer,
            state=State.HELD,
            reason=f"{proposal.reasons[0]}; see 'habitus review show {proposal.id}'",
        )
        for proposal in waiting
        if proposal.change.action is Action.WRITE and not proposal.base_hash
    ]


# By (layer, name), summed over all stages.
Counted = dict[tuple[str, str], Counters]


def used(skills: Library, items: Sequence[Listed]) -> Counted:
    """Return the counters of those of these skills that were ever shown or used."""
    by_layer: dict[str, list[str]] = {}
    for item in items:
        by_layer.setdefault(item.layer, []).append(item.name)
    return {
        (layer, name): together(stages)
        for layer, names in by_layer.items()
        for name, stages in skills.layer(layer).store.all_counters(among=names if len(names) <= _FEW else None).items()
    }


def manifest_of(skills: Library, item: Listed) -> Manifest:
    """Return the manifest as stated in the skill's file, including claims that trust has disabled."""
    if item.summary is not None and not (item.inert or item.hidden or item.fills):
        # Neither trust nor layering changed it, so the summary has it whole.
        return item.summary.manifest
    found = skills.layer(item.layer).store.summary(item.name, look=False) or item.summary
    return found.manifest if found is not None else Manifest()


@dataclass(frozen=True, kw_only=True)
class OneSkill:
    name: str = skill_name()
    version: int | None = option("An earlier version.", "-v", least=1, most=MOST)


def _version_of(done: ShownSkill) -> tuple[int, str]:
    summary = done.item.summary
    return 0 if summary is None else summary.version, done.item.layer


@use_case(
    "skills show",
    route="GET /skills/{name}",
    access=Access.OPEN_READING,
    example=OneSkill(name="csv-summary"),
    version_of=_version_of,
)
def show(home: Home, wanted: OneSkill) -> ShownSkill:
    """Show one skill as a model reads it, or one of its stored versions: fields, steps and files."""
    found = locate(home, wanted.name)
    with found.reading(home):
        return read(home, found, wanted.version)


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """A skill found by name or address, with the snapshot of the library it was found in."""

    asked: str
    skills: Library
    seen: Snapshot
    item: Listed

    def reading(self, home: Home) -> AbstractContextManager[object]:
        """Open one transaction for everything that is read about it."""
        return home.reading_of(*self.item.hidden, self.item.layer)


def locate(home: Home, name: str) -> Located:
    """Find a skill in its current state, including changes made on disk."""
    skills = _library_of(home, name)
    seen = skills.snapshot()
    item = skills.find(name, at=seen)
    # The snapshot may be up to two seconds old: look at this skill's files before showing it.
    if skills.notice(item):
        seen = skills.snapshot()
        item = skills.find(name, at=seen)
    return Located(asked=name, skills=skills, seen=seen, item=item)


def read(home: Home, found: Located, version: int | None = None) -> ShownSkill:
    """Read everything that is shown about a skill."""
    name, skills, item = found.asked, found.skills, found.item
    store = skills.layer(item.layer).store
    with found.reading(home):
        tree = store.tree(item.name, version, look=False)
        own = tree if version is None else None
        skill = skills.load(name, at=found.seen, own=own) if item.summary is not None else None
        counted, told = store.counted_and_told(item.name)
        known = _evidence_lines(home, item)
    if tree is None:
        # Raises for an unknown version.
        tree = {} if version is None else skills.tree(name, version)
    if version is not None:
        skill = trees.parse(item.name, tree).skill
        item = replace(item, summary=None if skill is None else replace(skill, version=version))
    main = trees.main_file(tree)
    return ShownSkill(
        item=item,
        counters=together(counted),
        manifest=manifest_of(skills, item) if version is None else skill.manifest if skill is not None else Manifest(),
        skill=skill,
        files=tuple(sorted(tree)),
        text=None if main is None else tree[main].content,
        told=words_of_source(told),
        lacks=() if skill is None else lifecycle.missing_packages(skill.manifest, Packages()),
        known=known,
        origin=origin_of(home.settings, item),
        tree=tree,
    )


def _library_of(home: Home, name: str) -> Library:
    """Return a library with this skill alone, or the whole one if the skill isn't in it."""
    wanted = names.parse_address(name).name
    # A server has the whole library in memory already.
    if not names.is_legal(wanted) or home.skills.last.listing:
        return home.skills
    # A command reads one skill in constant time, however large the library is.
    skills = open_library(home, only=wanted)
    return skills if skills.snapshot().listing else home.skills


def _evidence_lines(home: Home, item: Listed) -> tuple[str, ...]:
    """Return a line of evidence for each version; empty if no use was judged."""
    journal = home.journal
    # Loading the statistics is slow, so check first whether there is anything to compute.
    if not (journal.is_judged() and any(one.said for one in journal.exposures([address(item.name, item.layer)]))):
        return ()
    return tuple(f"version {one.item.version}: {one.sentence}" for one in home.evidence.of_skill(item))


def read_file(home: Home, name: str, path: str, version: int | None = None) -> bytes:
    """Return the content of one of a skill's files; only admins may read its exam tasks."""
    if is_examination(path) and not home.settings.is_admin:
        raise Refused(f"'{path}' says what the skill is examined by, which only admins read.", hint="Ask one of them.")
    skills = home.skills
    tree = skills.tree(name, version)
    if path not in tree:
        near = did_you_mean(path, tree) or f"It has: {', '.join(sorted(tree)[:20])}."
        raise NotFound(f"'{name}' has no file '{path}'.", hint=near)
    try:
        return content_of(path, tree[path], skills.directory(name))
    except OSError as error:
        raise NotFound(f"'{path}' can't be read: {error.strerror or error}.", hint="") from None


@dataclass(frozen=True, kw_only=True)
class HistoryOf:
    name: str = skill_name()
    limit: int | None = limit_option(None)
    after: str = after_option()


@dataclass(frozen=True, kw_only=True)
class SkillHistory:
    """One page of a skill's changes, oldest first."""

    name: str
    layer: str
    versions: Sequence[Version]
    switches: Sequence[Switch]
    next: str | None
    total: int


@use_case(
    "skills history",
    route="GET /skills/{name}/history",
    access=Access.OPEN_READING,
    example=HistoryOf(name="csv-summary"),
)
def history(home: Home, wanted: HistoryOf) -> SkillHistory:
    """Show everything that was done to a skill, also to an archived one: who did it, when and why."""
    item: Listed | Archived
    try:
        item = home.skills.find(wanted.name)
    except NotFound as unknown:
        try:
            item = home.skills.newest_archived(wanted.name)
        except NotFound:
            # The first error is the better one: it suggests similar names.
            raise unknown from None
    done = home.skills.layer(item.layer).store.whole_history(item.name)
    page = page_of("versions", done.versions, lambda one: str(one.number), limit=wanted.limit, after=wanted.after)
    return SkillHistory(
        name=item.name,
        layer=item.layer,
        versions=page.items,
        switches=done.switches,
        next=page.next,
        total=page.total,
    )


@dataclass(frozen=True, kw_only=True)
class TwoVersions:
    name: str = skill_name()
    old: int | None = argument("A version; the one before NEW by default.", default=None, least=1, most=MOST)
    new: int | None = argument("Another; the newest by default.", default=None, least=1, most=MOST)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A unified diff between two versions; empty if the skill has only one."""

    name: str
    old: int
    new: int
    diff: str


@use_case(
    "skills diff",
    route="GET /skills/{name}/diff",
    access=Access.OPEN_READING,
    example=TwoVersions(name="csv-summary", old=1, new=3),
)
def diff(home: Home, wanted: TwoVersions) -> Difference:
    """Show what changed between two versions, by default the last two."""
    name, known = home.skills.find(wanted.name).name, [one.number for one in home.skills.history(wanted.name)]
    new = known[-1] if wanted.new is None else wanted.new
    old = max((number for number in known if number < new), default=new) if wanted.old is None else wanted.old
    text = home.skills.diff(wanted.name, old, new, with_examination=home.settings.is_admin)
    return Difference(name=name, old=old, new=new, diff=text)


@dataclass(frozen=True, kw_only=True)
class StatsOf:
    name: str | None = argument("One skill.", default=None, completes="skills")


@dataclass(frozen=True, kw_only=True)
class StageStats:
    """The usage of one stage of a skill."""

    name: str
    layer: str
    stage: Stage
    recommended: int
    used: int
    succeeded: int
    failed: int
    last_used: datetime | None
    # Until then, being in the prompt counted as a use.
    by_presence_until: datetime | None
    # None if no use has an outcome.
    reliability: float | None


@dataclass(frozen=True, kw_only=True)
class SkillStats:
    """`trials` are the variants of paired trials, which don't count as uses."""

    stats: Sequence[StageStats]
    trials: Sequence[TrialArms]


@use_case("skills stats", route="GET /stats", access=Access.OPEN_READING, example=StatsOf(name="csv-summary"))
def stats(home: Home, wanted: StatsOf) -> SkillStats:
    """Show how often skills were recommended and used, and the outcomes, per stage; for one skill or all used ones."""
    item = home.skills.find(wanted.name) if wanted.name is not None else None
    if item is not None:
        found = {(item.layer, item.name): home.skills.counters(address(item.name, item.layer))}
    else:
        found = home.skills.all_counters()
    rows = [
        StageStats(
            name=skill,
            layer=layer,
            stage=stage,
            reliability=round(reliability(counters), 3) if is_judged(counters) else None,
            **asdict(counters),
        )
        for (layer, skill), stages in sorted(found.items())
        for stage, counters in stages.items()
    ]
    arms = home.journal.trial_arms(ItemKind.SKILL, address(item.name, item.layer) if item else None)
    return SkillStats(stats=rows, trials=arms)


@dataclass(frozen=True, kw_only=True)
class SkillArchive:
    limit: int | None = limit_option(None)
    after: str = after_option()


@dataclass(frozen=True, kw_only=True)
class ArchivePage:
    archived: Sequence[Archived]
    next: str | None
    total: int


@use_case("skills restore --list", route="GET /archive", access=Access.OPEN_READING, example=SkillArchive())
def list_archive(home: Home, wanted: SkillArchive) -> ArchivePage:
    """List the removed skills that can be restored, most recent first."""
    found = home.skills.list_archived()
    page = page_of("the archive", found, lambda one: str(one.id), limit=wanted.limit, after=wanted.after)
    return ArchivePage(archived=page.items, next=page.next, total=page.total)
