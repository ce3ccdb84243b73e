"""Reading skills: list them, show one with its history, diffs and usage, and the archive."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

from habitus import sql
from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library.layers import is_layer_in_shared_database, open_library
from habitus.app.library.tracked_skills import describe_skill_origin_from_lockfiles
from habitus.app.use_cases.declaration import (
    OptionalLimit,
    PageCursor,
    SkillName,
    argument,
    option,
    paginate_items,
    use_case,
)
from habitus.errors import NotFound, Refused, did_you_mean
from habitus.evidence.model import ItemKind
from habitus.files import is_eval_file, read_tree_file
from habitus.journal.model import TrialVariantCounts
from habitus.search.model import SearchResults
from habitus.skills import lifecycle, names, trees
from habitus.skills.layers.layer import format_skill_address
from habitus.skills.layers.listing import (
    LibrarySnapshot,
    ListedSkill,
    SkillDetails,
    SkillListItem,
    SkillListPage,
    build_skill_uses_url_path,
    format_imported_usage_counts,
    sum_counters_over_stages,
)
from habitus.skills.library import Library
from habitus.skills.model import ArchivedSkill, LifecycleEvent, Manifest, SkillSource, SkillState, SkillVersion, Stage
from habitus.skills.review import ProposalAction, ReviewQueue
from habitus.skills.stores.base import IMPORTED_COUNTS_VERSION
from habitus.use_counts import UsageCounts

if TYPE_CHECKING:
    pass

# The highest version number that a request may name.
MAX_VERSION = 2**31
# Search hits per query.
_MAX_FOUND = 50


@dataclass(frozen=True, kw_only=True)
class ListSkillsRequest:
    """Filters for a list of skills; without any, all skills match."""

    q: Annotated[str, option("A request in your own words; best matches first.", "--query", "-q")] = ""
    tag: Annotated[str, option("Only skills with this tag.")] = ""
    source: Annotated[SkillSource | None, option("Only skills from this source.")] = None
    stage: Annotated[Stage | None, option("Only skills that have this stage.")] = None
    state: Annotated[SkillState | None, option(f"Only: {', '.join(SkillState)}.")] = None
    layer: Annotated[str | None, option("Only skills of this layer.")] = None
    limit: OptionalLimit = None
    after: PageCursor = ""

    @property
    def is_filtered(self) -> bool:
        """Whether any filter besides the search words is set."""
        return bool(self.tag or self.source or self.stage or self.state or self.layer)

    def matches(self, item: ListedSkill) -> bool:
        """Whether a skill passes the filters; the search words are not considered."""
        summary = item.summary
        if (self.state or item.state) is not item.state or (self.layer or item.layer) != item.layer:
            return False
        if summary is None:
            return not (self.tag or self.source or self.stage)
        return (
            (not self.tag or summary.has_tag(self.tag))
            and (self.source is None or summary.source is self.source)
            and (self.stage is None or self.stage in summary.stages)
        )


@use_case("skills list", route="GET /skills", access=Access.OPEN_READING, example={"state": SkillState.BROKEN})
def list_skills(home: Home, request: ListSkillsRequest) -> SkillListPage:
    """List skills with their state, and how often they were used."""
    found, _ = filter_and_search_skills(home, request, list_existing_and_pending_skills(home))
    page = paginate_items("skills", found, _format_listed_skill_address, limit=request.limit, after=request.after)
    counted = read_usage_counts_of_skills(home.skills, page.items)
    entries = [
        SkillListItem(
            item=item,
            counters=counted.get((item.layer, item.name), UsageCounts()),
            manifest=get_stated_manifest(home.skills, item),
        )
        for item in page.items
    ]
    return SkillListPage(skills=entries, next=page.next, total=page.total)


def _format_listed_skill_address(item: ListedSkill) -> str:
    return f"{item.name}@{item.layer}"


def list_existing_and_pending_skills(home: Home) -> tuple[ListedSkill, ...]:
    """Return every skill, including those pending review."""
    return (*home.skills.list_skills(), *list_pending_new_skills(home.review))


def filter_and_search_skills(
    home: Home, request: ListSkillsRequest, items: Sequence[ListedSkill]
) -> tuple[Sequence[ListedSkill], bool]:
    """Return the matching skills in order, and whether the search words fit any of them well."""
    if request.layer is not None:
        # Raises for an unknown layer, which would otherwise look like an empty one.
        home.skills.get_layer(request.layer)
    chosen = [item for item in items if request.matches(item)] if request.is_filtered else items
    return _search_listed_skills(home, request, chosen) if request.q.strip() else (chosen, True)


def _search_listed_skills(
    home: Home, request: ListSkillsRequest, items: Sequence[ListedSkill]
) -> tuple[list[ListedSkill], bool]:
    """Return skills whose name contains the words, then those with a similar meaning."""
    words = request.q.strip().lower().replace(" ", "-")
    named = [item for item in items if words in item.name]
    others = {item.name: item for item in items if words not in item.name}
    # None searches the whole index, which is faster than naming every skill.
    among = set(others) if named or request.is_filtered else None
    # The items were listed just before: the library is not looked at once more.
    seen = home.skills.last_snapshot
    results = home.finder.search(request.q, k=_MAX_FOUND, among=among, at=seen) if others else SearchResults()
    found = [others[hit.id] for hit in results.hits if hit.id in others]
    return [*named, *found], bool(named) or results.fits


def list_pending_new_skills(review: ReviewQueue) -> list[ListedSkill]:
    """Return the skills that don't exist until a pending proposal is approved."""
    waiting = review.list_proposals_by_state(with_contents=False) if review.count_pending() else []
    return [
        ListedSkill(
            name=proposal.change.name,
            layer=proposal.change.layer,
            state=SkillState.HELD,
            reason=f"{proposal.reasons[0]}; see 'habitus review show {proposal.id}'",
        )
        for proposal in waiting
        if proposal.change.action is ProposalAction.WRITE and not proposal.base_hash
    ]


# By (layer, name), summed over all stages.
CountersBySkill = dict[tuple[str, str], UsageCounts]


def read_usage_counts_of_skills(skills: Library, items: Sequence[ListedSkill]) -> CountersBySkill:
    """Return the counters of those of these skills that were ever shown or used."""
    counted = skills.read_all_counters(named_like=items) if items else {}
    return {address: sum_counters_over_stages(stages) for address, stages in counted.items()}


def get_stated_manifest(skills: Library, item: ListedSkill) -> Manifest:
    """Return the manifest as stated in the skill's file, including claims that trust has disabled."""
    if item.summary is not None and not (item.inert or item.hidden or item.fills_placeholders):
        # Neither trust nor layering changed it, so the summary has it whole.
        return item.summary.manifest
    found = skills.get_layer(item.layer).store.get_summary(item.name, check_disk=False) or item.summary
    return found.manifest if found is not None else Manifest()


def _get_etag_version(done: SkillDetails) -> tuple[int, str]:
    summary = done.item.summary
    return 0 if summary is None else summary.version, done.item.layer


@use_case(
    "skills show",
    route="GET /skills/{name}",
    access=Access.OPEN_READING,
    example={"name": "csv-summary"},
    get_version=_get_etag_version,
)
def show_skill(
    home: Home,
    name: SkillName,
    version: Annotated[int | None, option("An earlier version.", "-v", least=1, most=MAX_VERSION)] = None,
) -> SkillDetails:
    """Show one skill as a model reads it, or one of its stored versions: fields, steps and files."""
    found = find_skill_and_refresh_from_disk(home, name)
    with found.open_skill_read_transaction(home):
        return read_skill_details(home, found, version)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundSkillWithSnapshot:
    """A skill found by name or address, with the snapshot of the library it was found in."""

    requested_name: str
    skills: Library
    snapshot: LibrarySnapshot
    item: ListedSkill

    def open_skill_read_transaction(self, home: Home) -> AbstractContextManager[object]:
        """Open one transaction for everything that is read about it, if one database holds it and its usage."""
        in_one = all(is_layer_in_shared_database(home, layer) for layer in (*self.item.hidden, self.item.layer))
        return sql.read_transaction(home.shared) if in_one else nullcontext()


def find_skill_and_refresh_from_disk(home: Home, name: str) -> FoundSkillWithSnapshot:
    """Find a skill in its current state, including changes made on disk."""
    skills = _open_library_with_one_skill(home, name)
    seen = skills.snapshot()
    item = skills.find(name, at=seen)
    # The snapshot may be up to two seconds old: look at this skill's files before showing it.
    if skills.refresh_skill(item):
        seen = skills.snapshot()
        item = skills.find(name, at=seen)
    return FoundSkillWithSnapshot(requested_name=name, skills=skills, snapshot=seen, item=item)


def read_skill_details(home: Home, found: FoundSkillWithSnapshot, version: int | None = None) -> SkillDetails:
    """Read everything that is shown about a skill."""
    name, skills, item = found.requested_name, found.skills, found.item
    store = skills.get_layer(item.layer).store
    with found.open_skill_read_transaction(home):
        tree = store.read_tree(item.name, version, check_disk=False)
        own = tree if version is None else None
        skill = skills.load(name, at=found.snapshot, own=own) if item.summary is not None else None
        counted = skills.read_counters(item)
        told = skills.read_counters(item, version=IMPORTED_COUNTS_VERSION)
        known = _format_evidence_lines(home, item)
    if tree is None:
        # Raises for an unknown version.
        tree = {} if version is None else skills.read_tree(name, version)
    if version is not None:
        skill = trees.parse_skill_tree(item.name, tree).skill
        item = replace(item, summary=None if skill is None else replace(skill, version=version))
    main = trees.find_main_file(tree)
    return SkillDetails(
        item=item,
        counters=sum_counters_over_stages(counted),
        manifest=get_stated_manifest(skills, item)
        if version is None
        else skill.manifest
        if skill is not None
        else Manifest(),
        skill=skill,
        files=tuple(sorted(tree)),
        text=None if main is None else tree[main].content,
        source_counts=format_imported_usage_counts(told),
        missing_packages=()
        if skill is None
        else lifecycle.explain_missing_packages(skill.manifest, lifecycle.InstalledPackages()),
        evidence=known,
        origin=describe_skill_origin_from_lockfiles(home.settings, item),
        tree=tree,
    )


def _open_library_with_one_skill(home: Home, name: str) -> Library:
    """Return a library with this skill alone, or the whole one if the skill isn't in it."""
    wanted = names.parse_address(name).name
    # A server has the whole library in memory already.
    if not names.is_legal_name(wanted) or home.skills.last_snapshot.listing:
        return home.skills
    # A command reads one skill in constant time, however large the library is.
    skills = open_library(home, only=wanted)
    return skills if skills.snapshot().listing else home.skills


def _format_evidence_lines(home: Home, item: ListedSkill) -> tuple[str, ...]:
    """Return a line of evidence for each version; empty if no use was judged."""
    journal = home.journal
    # Loading the statistics is slow, so check first whether there is anything to compute.
    if not (
        journal.has_any_explicit_feedback()
        and any(
            one.explicit_scores for one in journal.load_scored_exposures([format_skill_address(item.name, item.layer)])
        )
    ):
        return ()
    return tuple(f"version {one.item.version}: {one.sentence}" for one in home.evidence.find_skill_findings(item))


def read_skill_file(home: Home, name: str, path: str, version: int | None = None) -> bytes:
    """Return the content of one of a skill's files; only admins may read its exam tasks."""
    if is_eval_file(path) and not home.settings.is_admin:
        raise Refused(
            f"'{path}' contains tasks that examine the skill; only admins can read it.", hint="Ask one of them."
        )
    skills = home.skills
    tree = skills.read_tree(name, version)
    if path not in tree:
        near = did_you_mean(path, tree) or f"It has: {', '.join(sorted(tree)[:20])}."
        raise NotFound(f"'{name}' has no file '{path}'.", hint=near)
    try:
        return read_tree_file(path, tree[path], skills.find_directory(name))
    except OSError as error:
        raise NotFound(f"'{path}' can't be read: {error.strerror or error}.", hint="") from None


@dataclass(frozen=True, kw_only=True)
class SkillHistoryPage:
    """One page of a skill's changes, oldest first."""

    name: str
    layer: str
    versions: Sequence[SkillVersion]
    switches: Sequence[LifecycleEvent]
    next: str | None
    total: int


@use_case(
    "skills history", route="GET /skills/{name}/history", access=Access.OPEN_READING, example={"name": "csv-summary"}
)
def show_skill_history(
    home: Home, name: SkillName, limit: OptionalLimit = None, after: PageCursor = ""
) -> SkillHistoryPage:
    """Show everything that was done to a skill, also to an archived one: who did it, when and why."""
    item: ListedSkill | ArchivedSkill
    try:
        item = home.skills.find(name)
    except NotFound as unknown:
        try:
            item = home.skills.find_archived(name)
        except NotFound:
            # The first error is the better one: it suggests similar names.
            raise unknown from None
    done = home.skills.get_layer(item.layer).store.read_change_history(item.name)
    page = paginate_items("versions", done.versions, lambda one: str(one.number), limit=limit, after=after)
    return SkillHistoryPage(
        name=item.name,
        layer=item.layer,
        versions=page.items,
        switches=done.lifecycle_events,
        next=page.next,
        total=page.total,
    )


@dataclass(frozen=True, kw_only=True)
class SkillVersionDiff:
    """A unified diff between two versions; empty if the skill has only one."""

    name: str
    old: int
    new: int
    diff: str


@use_case(
    "skills diff",
    route="GET /skills/{name}/diff",
    access=Access.OPEN_READING,
    example={"name": "csv-summary", "old": 1, "new": 3},
)
def diff_versions(
    home: Home,
    name: SkillName,
    old: Annotated[int | None, argument("A version; the one before NEW by default.", least=1, most=MAX_VERSION)] = None,
    new: Annotated[int | None, argument("Another; the newest by default.", least=1, most=MAX_VERSION)] = None,
) -> SkillVersionDiff:
    """Show what changed between two versions, by default the last two."""
    known = [one.number for one in home.skills.list_versions(name)]
    new = known[-1] if new is None else new
    old = max((number for number in known if number < new), default=new) if old is None else old
    text = home.skills.diff_versions(name, old, new, with_examination=home.settings.is_admin)
    return SkillVersionDiff(name=home.skills.find(name).name, old=old, new=new, diff=text)


@dataclass(frozen=True, kw_only=True)
class SkillStageUsageStats(UsageCounts):
    """The usage of one stage of a skill."""

    name: str
    layer: str
    stage: Stage
    # None if no use has an outcome.
    reliability: float | None


@dataclass(frozen=True, kw_only=True)
class SkillUsageStatsReport:
    """`trials` are the variants of paired trials, which don't count as uses."""

    stats: Sequence[SkillStageUsageStats]
    trials: Sequence[TrialVariantCounts]


@use_case("skills stats", route="GET /stats", access=Access.OPEN_READING, example={"name": "csv-summary"})
def show_stats(
    home: Home, name: Annotated[str | None, argument("One skill.", completes="skills")] = None
) -> SkillUsageStatsReport:
    """Show how often skills were recommended and used, and the outcomes, per stage; for one skill or all used ones."""
    item = home.skills.find(name) if name is not None else None
    if item is not None:
        found = {(item.layer, item.name): home.skills.read_counters(item)}
    else:
        found = home.skills.read_all_counters()
    rows = [
        SkillStageUsageStats(
            name=skill,
            layer=layer,
            stage=stage,
            reliability=round(lifecycle.compute_success_rate_lower_bound(counters), 3)
            if lifecycle.has_outcomes(counters)
            else None,
            **asdict(replace(counters, address=f"{build_skill_uses_url_path(layer, skill)}?stage={stage.value}")),
        )
        for (layer, skill), stages in sorted(found.items())
        for stage, counters in stages.items()
    ]
    arms = home.journal.count_trial_conversations_by_variant(
        ItemKind.SKILL, format_skill_address(item.name, item.layer) if item else None
    )
    return SkillUsageStatsReport(stats=rows, trials=arms)


@dataclass(frozen=True, kw_only=True)
class ArchivedSkillPage:
    archived: Sequence[ArchivedSkill]
    next: str | None
    total: int


@use_case("skills restore --list", route="GET /archive", access=Access.OPEN_READING)
def list_archived_skills(home: Home, limit: OptionalLimit = None, after: PageCursor = "") -> ArchivedSkillPage:
    """List the removed skills that can be restored, most recent first."""
    found = home.skills.list_archived()
    page = paginate_items("the archive", found, lambda one: str(one.id), limit=limit, after=after)
    return ArchivedSkillPage(archived=page.items, next=page.next, total=page.total)
