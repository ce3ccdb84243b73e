"""The uses of a skill: every count of uses opens the list of what it counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from habitus.access import Access
from habitus.app.home import Home, resolve_user_filter
from habitus.app.use_cases.declaration import (
    AllUsers,
    FirstDay,
    LastDay,
    PageCursor,
    PageLimit,
    SkillName,
    option,
    paginate_items,
    parse_day,
    use_case,
)
from habitus.app.use_cases.skills import MAX_VERSION
from habitus.journal.model import UseManner
from habitus.journal.usage import JudgedUse, UseVerdict
from habitus.skills.model import Stage


@dataclass(frozen=True, kw_only=True)
class ListedSkillUse:
    """One use of a skill; `turn`, `user` and `request` are empty if it is not yours to open, or not stored any more."""

    id: str
    timestamp: datetime
    version: int
    stage: Stage
    recipe: str
    manner: UseManner
    outcome: UseVerdict
    turn: str
    user: str
    request: str


@dataclass(frozen=True, kw_only=True)
class ListUsesResult:
    """`total` is the count that these uses were counted in."""

    uses: Sequence[ListedSkillUse]
    next: str | None
    total: int


@use_case(
    "skills uses",
    route="GET /skills/{name}/uses",
    access=Access.VIEWER,
    example={"name": "csv-summary", "outcome": UseVerdict.FAILED},
)
def list_uses(
    home: Home,
    name: SkillName,
    outcome: Annotated[UseVerdict | None, option("Only uses of which this is known.")] = None,
    recommended: Annotated[bool, option("Requests that its text was shown for, used or not.")] = False,
    stage: Annotated[Stage | None, option("Only uses of this stage.")] = None,
    recipe: Annotated[str, option("Only runs of this recipe.")] = "",
    version: Annotated[int | None, option("Only uses of this version.", "-v", least=1, most=MAX_VERSION)] = None,
    since: FirstDay = "",
    until: LastDay = "",
    own: Annotated[bool, option("Only uses by you.")] = False,
    all_users: AllUsers = False,
    limit: PageLimit = 50,
    after: PageCursor = "",
) -> ListUsesResult:
    """List the uses of a skill that a count counts, most recent first, each with the turn it was in."""
    item, mine = home.skills.find(name), resolve_user_filter(home.settings, all_users)
    found = home.journal.load_judged_uses_of_skill(item.name, home.skills.get_layer(item.layer).store.key)
    begin, end = parse_day(since), parse_day(until, days=1)
    chosen = [
        one
        for one in reversed(found)
        if (one.is_text_shown_for_request if recommended else one.is_used_not_only_shown)
        and one.verdict.is_counted_as(outcome)
        and (stage is None or one.use.stage == stage.value)
        and recipe in ("", one.use.part)
        and version in (None, one.use.version)
        and (not own or one.use.user == home.settings.user)
        and (begin is None or one.use.at >= begin)
        and (end is None or one.use.at < end)
    ]
    page = paginate_items("uses", chosen, lambda one: one.use.id, limit=limit, after=after)
    requests = home.journal.load_request_texts_of_turns([one.use.turn for one in page.items], user=mine)
    listed = [_build_listed_use(one, requests.get(one.use.turn), mine) for one in page.items]
    return ListUsesResult(uses=listed, next=page.next, total=page.total)


def _build_listed_use(one: JudgedUse, request: str | None, mine: str | None) -> ListedSkillUse:
    use = one.use
    return ListedSkillUse(
        id=use.id,
        timestamp=use.at,
        version=use.version,
        stage=Stage(use.stage),
        recipe=use.part,
        manner=use.manner,
        outcome=one.verdict,
        turn="" if request is None else use.turn,
        user=use.user if mine in (None, use.user) else "",
        request=request or "",
    )
