"""What keeps a skill from being offered, and what opens it again."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from habitus.skills import lifecycle
from habitus.skills.formats import skill_md
from habitus.skills.lifecycle import GateContext, InstalledPackages
from habitus.skills.model import Manifest, Severity, SkillSummary

pytestmark = pytest.mark.req("SK-15")

INSTALLED = {"rich": "13.9.4", "pandas": "2.2.3", "odd": "not-a-version", "pre": "2.0.0rc1"}
REQUIRES = {
    "pandas": [
        "numpy>=1.22",
        "pyarrow>=10; extra == 'parquet'",
        "rich>=13; extra == 'pretty'",
        "rich>=99; extra == 'future'",
        "pandas[parquet]; extra == 'all'",
        "pandas[loop]; extra == 'loop'",
        "this is not a requirement",
    ],
}


def _packages(installed: Mapping[str, str] = INSTALLED) -> InstalledPackages:
    return InstalledPackages(version_of=installed.get, requires_of=lambda name: REQUIRES.get(name, []))


def _closed(context: GateContext | None = None, **fields: object) -> list[str]:
    manifest = Manifest(**fields)  # type: ignore[arg-type]  # each test names the fields it is about
    return lifecycle.list_closed_gates(SkillSummary(name="csv-summary", manifest=manifest), context or GateContext())


def _missing(requirement: str, packages: InstalledPackages | None = None) -> tuple[str, ...]:
    return lifecycle.explain_missing_packages(Manifest(dependencies=(requirement,)), packages or _packages())


def test_a_plain_skill_has_no_gate() -> None:
    assert _closed() == []
    assert lifecycle.explain_disabled(SkillSummary(name="a"), GateContext()) == ""


def test_a_switched_off_skill_says_who_switched_it_off() -> None:
    context = GateContext(disabled=frozenset({"csv-summary"}))
    assert lifecycle.explain_disabled(SkillSummary(name="csv-summary", enabled=False), GateContext()) == "switched off"
    assert lifecycle.explain_disabled(SkillSummary(name="csv-summary"), context) == "switched off in the settings"
    assert lifecycle.explain_disabled(SkillSummary(name="other"), context) == ""


def test_a_skill_is_barred_when_it_is_switched_off_or_a_gate_is_closed() -> None:
    guest = GateContext(is_admin=False)
    assert lifecycle.is_unavailable(SkillSummary(name="a", enabled=False), guest)
    assert lifecycle.is_unavailable(SkillSummary(name="a", manifest=Manifest(admin_only=True)), guest)
    assert not lifecycle.is_unavailable(SkillSummary(name="a"), guest)


def test_admin_only_is_for_administrators() -> None:
    assert _closed(GateContext(is_admin=False), admin_only=True) == ["for administrators only"]
    assert _closed(GateContext(is_admin=True), admin_only=True) == []


@pytest.mark.parametrize("feature", ["skill_csv_summary", "skill_csv-summary", "SKILL_CSV_SUMMARY"])
def test_an_experimental_skill_waits_for_its_feature_in_any_spelling(feature: str) -> None:
    assert _closed(experimental=True) == ["experimental; add 'skill_csv_summary' to [experimental] features"]
    assert _closed(GateContext(features=frozenset({feature})), experimental=True) == []
    assert _closed(GateContext(features=frozenset({"csv_summary", "skill_other"})), experimental=True) != []


@pytest.mark.parametrize(
    "requirement",
    [
        "rich",
        "Rich",
        "rich>=13",
        "rich~=13.9",
        "rich~=13.9.0",
        "rich>=13,<14",
        "pre>=2.0.0rc1",
        "nonsense; python_version < '3'",
        "rich; python_version >= '3'",
        "pandas[pretty]",
        "rich[unheard-of]",
    ],
)
def test_a_requirement_that_is_met_is_not_mentioned(requirement: str) -> None:
    installed = {**INSTALLED, "Rich": "13.9.4"}
    assert _missing(requirement, _packages(installed)) == ()


@pytest.mark.parametrize(
    ("requirement", "says"),
    [
        ("nonsense", "needs the package 'nonsense'"),
        ("rich>=99", "needs 'rich>=99', and 13.9.4 is installed"),
        ("rich~=13.10", "needs 'rich~=13.10', and 13.9.4 is installed"),
        ("rich~=12.0", "needs 'rich~=12.0', and 13.9.4 is installed"),
        ("rich==13.*,!=13.9.4", "needs 'rich==13.*,!=13.9.4', and 13.9.4 is installed"),
        ("nonsense; python_version >= '3'", "needs the package 'nonsense; python_version >= '3''"),
        ("pandas[parquet]", "needs the package 'pyarrow>=10' (for 'pandas[parquet]')"),
        ("pandas[future]", "needs 'rich>=99', and 13.9.4 is installed (for 'pandas[future]')"),
        ("pandas[all]", "needs the package 'pyarrow>=10' (for 'pandas[parquet]') (for 'pandas[all]')"),
        ("odd>=1", "needs 'odd>=1', and not-a-version is installed"),
        ("rich >>> 13", "says 'rich >>> 13', which is not a requirement that can be checked"),
        ("", "says '', which is not a requirement that can be checked"),
        ("import os", "says 'import os', which is not a requirement that can be checked"),
    ],
)
def test_a_requirement_that_is_not_met_says_what_is_missing(requirement: str, says: str) -> None:
    assert _missing(requirement) == (f"It {says}; install it where its scripts run.",)
    assert _closed(dependencies=(requirement,)) == []


def test_an_extra_that_requires_itself_comes_to_an_end() -> None:
    assert _missing("pandas[loop]") == ()


def test_packages_of_this_very_environment_are_found_without_importing() -> None:
    assert [_missing(name, InstalledPackages()) for name in ("pytest>=8", "typer", "habitus[test]")] == [(), (), ()]
    assert _missing("no-such-distribution-here", InstalledPackages()) != ()
    assert any(line.startswith("pytest") for line in InstalledPackages().requires_of("habitus"))
    assert InstalledPackages().requires_of("typing-extensions") == []


def test_required_tools_are_checked_where_an_agent_has_tools() -> None:
    fields = {"requires_tools": ("read_file", "Web-Search")}
    assert _closed(GateContext(tools=None), **fields) == []
    assert _closed(GateContext(tools=frozenset({"read-file", "web_search"})), **fields) == []
    assert _closed(GateContext(tools=frozenset({"read_file"})), **fields) == ["needs the tool 'Web-Search'"]


def test_every_closed_gate_is_named() -> None:
    reasons = _closed(
        GateContext(is_admin=False, tools=frozenset()),
        admin_only=True,
        experimental=True,
        requires_tools=("shell",),
    )
    assert len(reasons) == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("admin_only", "perhaps"),
        ("experimental", "[1]"),
        ("dependencies", '"[[1]]"'),
        ("requires_tools", "{a: b}"),
    ],
)
def test_a_gate_that_cannot_be_read_is_closed_and_said(field: str, value: str) -> None:
    content = f"---\nname: a\ndescription: b\n{field}: {value}\n---\n\nbody\n".encode()
    parsed = skill_md.parse_skill_md_with_diagnostics("a", content)
    assert parsed.skill is not None
    assert lifecycle.list_closed_gates(parsed.skill, GateContext()) == [f"its '{field}' can't be read"]
    said = [d for d in parsed.diagnostics if f"'{field}'" in d.message and d.severity is Severity.WARNING]
    assert said
    assert said[0].hint


def test_a_field_that_is_no_gate_closes_none() -> None:
    parsed = skill_md.parse_skill_md_with_diagnostics("a", b"---\nname: a\ndescription: b\ncli: perhaps\n---\n\nbody\n")
    assert parsed.skill is not None
    assert lifecycle.list_closed_gates(parsed.skill, GateContext()) == []
