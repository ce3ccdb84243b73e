"""Selection: every rule, in its order, with its reason; and what never selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.skills.choosing import selection
from habitus.skills.choosing.selection import PriorTurn, RequestUser, SkillSelection, UserRequest
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Manifest, SkillSource, SkillState, SkillSummary

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
OPEN = GateContext()


def skill(name: str, **manifest: object) -> ListedSkill:
    summary = SkillSummary(name=name, description=f"About {name}.", layer="user", manifest=Manifest(**manifest))  # type: ignore[arg-type]  # the fields are checked by the class
    return ListedSkill(name=name, layer="user", state=SkillState.OK, summary=summary)


def select(
    skills: Sequence[ListedSkill],
    request: UserRequest = UserRequest(text=""),  # noqa: B008  # frozen
    context: GateContext = OPEN,
    prior: Sequence[PriorTurn] = (),
    replied_to: PriorTurn | None = None,
) -> SkillSelection:
    return selection.select_skills(skills, request, context, prior=prior, replied_to=replied_to)


def eager(found: SkillSelection) -> dict[str, str]:
    return {choice.name: choice.reason for choice in found.eager}


def menu(found: SkillSelection) -> list[str]:
    return [summary.name for summary in found.menu]


@pytest.mark.req("SE-01", "SE-02")
def test_the_rules_fire_in_their_order_with_their_reasons() -> None:
    skills = [
        skill("by-path", paths=("src/**/*.py",)),
        skill("by-file", file_types=(".WAV",)),
        skill("by-source", source_types=("briefing",)),
        skill("always", always_include=True, companion_skills=("friend",)),
        skill("friend", companion_skills=("friend-of-friend",)),
        skill("friend-of-friend"),
        skill("plain"),
    ]
    request = UserRequest(text="", source_type="briefing", attachments=("memo.wav",), paths=("src/a/b.py",))
    assert list(eager(select(skills, request)).items()) == [
        ("always", "always_include"),
        ("by-source", "source_type=briefing"),
        ("by-file", "file_type=wav"),
        ("by-path", "path=src/**/*.py"),
        ("friend", "companion_of=always"),
    ]
    assert menu(select(skills, request)) == ["friend-of-friend", "plain"]


@pytest.mark.req("SE-02")
@pytest.mark.parametrize("kind", ["csv", ".csv", "CSV", ".Csv"])
@pytest.mark.parametrize("name", ["a.csv", "dir.d/A.CSV", "x.tar.csv"])
def test_file_types_match_in_any_spelling(kind: str, name: str) -> None:
    assert eager(select([skill("s", file_types=(kind,))], UserRequest(text="", attachments=(name,))))
    assert not eager(select([skill("s", file_types=(kind,))], UserRequest(text="", attachments=("csv", "a.csvx"))))


@pytest.mark.req("SE-02")
@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "deep/down/x.py", True),
        ("src/*.py", "src/x.py", True),
        ("src/*.py", "src/a/x.py", False),
        ("src/**", "src/a/b", True),
        ("docs/**/*.md", "docs/x.md", True),
        ("a?.txt", "ab.txt", True),
        ("[x].py", "x.py", False),
        ("./src/*.py", "./src/x.py", True),
    ],
)
def test_paths_are_globs(pattern: str, path: str, fits: bool) -> None:
    assert bool(eager(select([skill("s", paths=(pattern,))], UserRequest(text="", paths=(path,))))) is fits


@pytest.mark.req("SE-02")
def test_a_selected_skill_pushes_out_another_unless_a_survivor_needs_it() -> None:
    skills = [
        skill("briefing", always_include=True, exclude_skills=("email", "markets", "notes")),
        skill("email", always_include=True),
        skill("calendar", always_include=True, companion_skills=("markets",)),
        skill("markets"),
        skill("notes"),
    ]
    found = select(skills)
    assert eager(found) == {
        "briefing": "always_include",
        "calendar": "always_include",
        "markets": "companion_of=calendar",
    }
    assert menu(found) == []
    assert found.left_out == {"email": "excluded_by=briefing", "notes": "excluded_by=briefing"}


@pytest.mark.req("SE-02")
def test_what_is_pushed_out_pushes_nothing_out() -> None:
    skills = [
        skill("a", always_include=True, exclude_skills=("b",)),
        skill("b", always_include=True, exclude_skills=("a", "c")),
        skill("c", always_include=True),
    ]
    assert set(eager(select(skills))) == {"a", "c"}


@pytest.mark.req("SE-02", "SK-15")
def test_gates_apply_to_every_rule() -> None:
    skills = [
        skill("admin", always_include=True, admin_only=True),
        skill("trial", always_include=True, experimental=True),
        skill("off", always_include=True),
        skill("needs", always_include=True, requires_tools=("no-such-tool",)),
        skill("host", always_include=True, companion_skills=("admin",)),
        replace(skill("far", always_include=True), state=SkillState.UNTRUSTED, reason="not trusted"),
        replace(skill("bad"), state=SkillState.BROKEN, summary=None, reason="no frontmatter"),
    ]
    guest = UserRequest(text="", user=RequestUser(name="bob", is_admin=False))
    found = select(skills, guest, GateContext(disabled=frozenset({"off"}), tools=frozenset()))
    assert set(eager(found)) == {"host"}
    assert {name: reason.split(":")[0] for name, reason in found.left_out.items()} == {
        "admin": "gated",
        "trial": "gated",
        "off": "disabled",
        "needs": "gated",
        "far": "untrusted",
        "bad": "broken",
    }
    allowed = UserRequest(text="", features=frozenset({"skill_trial"}))
    assert {"admin", "trial"} <= set(eager(select(skills, allowed)))


@pytest.mark.req("SE-02", "SK-15")
def test_gates_apply_to_skills_that_ask_for_nothing() -> None:
    def plain(name: str, state: SkillState = SkillState.OK, *, enabled: bool = True) -> ListedSkill:
        return ListedSkill(
            name=name, layer="user", state=state, summary=SkillSummary(name=name, layer="user", enabled=enabled)
        )

    skills = [
        plain("ok"),
        plain("far", SkillState.UNTRUSTED),
        plain("off", enabled=False),
        skill("admin", admin_only=True),
    ]
    found = select(skills, UserRequest(text="", user=RequestUser(name="bob", is_admin=False)))
    assert (menu(found), set(found.left_out)) == (["ok"], {"far", "off", "admin"})


def turn(minutes_ago: int, *names: str, succeeded: bool = True, id: str = "t") -> PriorTurn:
    return PriorTurn(id=id, at=NOW - timedelta(minutes=minutes_ago), succeeded=succeeded, skills=names)


TALK = UserRequest(text="", source_type="talk", conversation="c", now=NOW)


@pytest.mark.req("SE-03")
def test_skills_of_the_last_two_turns_stay_for_half_an_hour() -> None:
    skills = [skill(name) for name in ("one", "two", "three", "old", "failed")]
    prior = [turn(5, "one", "failed"), turn(10, "two"), turn(15, "three")]
    assert set(eager(select(skills, TALK, prior=prior))) == {"one", "two", "failed"}
    assert set(eager(select(skills, TALK, prior=[turn(31, "old")]))) == set()
    assert set(eager(select(skills, TALK, prior=[turn(30, "old")]))) == {"old"}
    assert set(eager(select(skills, TALK, prior=[turn(1, "failed", succeeded=False)]))) == set()


@pytest.mark.req("SE-03")
def test_only_interactive_sources_are_sticky() -> None:
    prior = [turn(1, "one")]
    assert eager(select([skill("one")], replace(TALK, source_type="briefing"), prior=prior)) == {}
    assert eager(select([skill("one")], TALK, prior=prior)) == {"one": "sticky=t"}


@pytest.mark.req("SE-03")
def test_a_turn_that_is_answered_directly_has_no_limit() -> None:
    answered = turn(60 * 24 * 30, "one", id="long-ago")
    found = select([skill("one")], replace(TALK, reply_to="long-ago"), replied_to=answered)
    assert eager(found) == {"one": "sticky_reply=long-ago"}
    failed = replace(answered, succeeded=False)
    assert eager(select([skill("one")], TALK, replied_to=failed)) == {}


@pytest.mark.req("SE-03")
def test_stickiness_does_not_feed_on_itself_and_gates_apply_again() -> None:
    found = select([skill("one"), skill("two", always_include=True)], TALK, prior=[turn(1, "one")])
    assert [choice.name for choice in found.eager if not choice.is_sticky] == ["two"]
    assert eager(select([skill("one")], TALK, GateContext(disabled=frozenset({"one"})), prior=[turn(1, "one")])) == {}


@pytest.mark.req("SE-03")
def test_a_sticky_skill_brings_its_companions() -> None:
    skills = [skill("one", companion_skills=("two",)), skill("two")]
    assert eager(select(skills, TALK, prior=[turn(1, "one")])) == {"one": "sticky=t", "two": "companion_of=one"}


@pytest.mark.req("SE-04")
def test_triggers_never_select_and_some_skills_are_not_on_the_menu() -> None:
    skills = [
        skill("triggered", triggers=("csv",)),
        skill("for-people", disable_model_invocation=True),
        skill("with-calendar", resource_types=("calendar",)),
    ]
    found = select(skills, UserRequest(text="a csv please"))
    assert (eager(found), menu(found)) == ({}, ["triggered"])
    assert set(found.left_out) == {"for-people", "with-calendar"}
    assert menu(select(skills, UserRequest(text="", resources=frozenset({"calendar"})))) == [
        "triggered",
        "with-calendar",
    ]


@pytest.mark.req("SE-02")
def test_an_eager_skill_may_drop_memory_and_persona() -> None:
    found = select([skill("a", always_include=True, exclude_memory=True), skill("b", exclude_persona=True)])
    assert (found.excludes_lessons, found.excludes_rules_and_profile, found.excludes_persona) == (True, True, False)
    assert found.list_eligible_names() == {"a", "b"}


@pytest.mark.req("SE-02")
@pytest.mark.parametrize(
    ("layer", "source", "is_own"),
    [
        ("user", SkillSource.USER, True),
        ("operator", SkillSource.USER, True),
        ("user", SkillSource.IMPORTED, False),
        ("project", SkillSource.USER, False),
        ("project", SkillSource.IMPORTED, False),
    ],
)
def test_only_the_persons_own_or_the_operators_skill_drops_rules_and_persona(
    layer: str, source: SkillSource, is_own: bool
) -> None:
    item = skill("a", always_include=True, exclude_memory=True, exclude_persona=True)
    assert item.summary is not None
    found = select([replace(item, layer=layer, summary=replace(item.summary, layer=layer, source=source))])
    assert (found.excludes_lessons, found.excludes_rules_and_profile, found.excludes_persona) == (True, is_own, is_own)


@pytest.mark.req("SE-02")
def test_a_skill_from_the_menu_brings_the_companions_that_are_known() -> None:
    summary = SkillSummary(name="a", manifest=Manifest(companion_skills=("Csv_Summary", "unknown", "b")))
    assert selection.list_companions(summary, {"csv-summary", "b", "c"}) == ("csv-summary", "b")


def test_a_bare_request_keeps_who_asks_and_how() -> None:
    bare = replace(
        TALK, text="hi", user=RequestUser(name="bob", is_admin=False), paths=("a.py",), reply_to="t"
    ).keep_only_user_and_channel()
    assert bare == UserRequest(text="", source_type="talk", user=RequestUser(name="bob", is_admin=False), now=NOW)


@pytest.mark.req("SE-05")
def test_a_selection_is_said_in_one_line() -> None:
    found = select([skill("files", always_include=True), skill("other")])
    assert str(found) == "selection count=1: files(always_include); skills: eager=1 menu=1"


_NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
_SKILLS = st.lists(
    st.builds(
        lambda name, always, companions, excludes: skill(
            name, always_include=always, companion_skills=tuple(companions), exclude_skills=tuple(excludes)
        ),
        _NAMES,
        st.booleans(),
        st.lists(_NAMES, max_size=3),
        st.lists(_NAMES, max_size=3),
    ),
    unique_by=lambda item: item.name,
)


@pytest.mark.req("SE-01")
@given(_SKILLS)
def test_every_skill_is_in_exactly_one_place_and_the_pass_is_deterministic(skills: list[ListedSkill]) -> None:
    found = select(skills)
    places = [*eager(found), *menu(found), *found.left_out]
    assert sorted(places) == sorted(item.name for item in skills)
    assert found == select(skills)
