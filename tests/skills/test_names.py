"""Names: which are legal, which are the same, and a legal one from any text."""

from __future__ import annotations

import itertools
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.errors import Invalid
from habitus.skills import names
from habitus.skills.names import SkillAddress

pytestmark = pytest.mark.req("SK-04")

LEGAL = st.lists(st.text("abcz079", min_size=1, max_size=12), min_size=1, max_size=4).map("-".join)
ANY_TEXT = st.text(st.characters(codec=None), max_size=120)


@pytest.mark.parametrize(
    ("name", "is_legal"),
    [
        ("csv-summary", True),
        ("a", True),
        ("7", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("-a", False),
        ("a-", False),
        ("a--b", False),
        ("A", False),
        ("a_b", False),
        ("a b", False),
        ("a\n", False),
        ("..", False),
        ("a/b", False),
        ("a\x00", False),
        ("café", True),
        ("навык", True),
        ("pdf-转换", True),
        ("スキル-2", True),
        ("٣", True),
        ("Café", False),
        ("cafe\u0301", False),  # two characters for one letter
        ("ｐｄｆ", False),
        ("ﬁle", False),
        ("a\u200bb", False),
        ("😀", False),
        ("d\u0430ta-summary", False),  # a Cyrillic letter among Latin ones
        ("lo\u0261s", False),  # a phonetic g
        ("data\u1160", False),  # a letter that nobody sees
    ],
)
def test_legal_names_are_those_of_the_standard(name: str, is_legal: bool) -> None:
    assert names.is_legal_name(name) is is_legal


@pytest.mark.parametrize("spelling", ["csv-summary", "csv_summary", "CSV-Summary", "Csv_Summary", " csv-summary\n"])
def test_all_spellings_of_a_name_meet(spelling: str) -> None:
    assert names.canonicalize_name(spelling) == "csv-summary"
    assert names.canonicalize_and_check_name(spelling) == "csv-summary"
    assert names.to_tool_name(spelling) == "csv_summary"


@given(LEGAL, st.data())
def test_changing_case_and_hyphens_never_makes_another_name(name: str, data: st.DataObject) -> None:
    spelt = "".join(data.draw(st.sampled_from([c, c.upper(), c.replace("-", "_")])) for c in name)
    assert names.canonicalize_name(spelt) == name
    assert names.to_tool_name(spelt).isidentifier() or name[0].isdigit()


@given(ANY_TEXT)
def test_a_canonical_name_is_canonical(text: str) -> None:
    assert names.canonicalize_name(names.canonicalize_name(text)) == names.canonicalize_name(text)


def test_a_name_beyond_ascii_has_a_tool_name_that_providers_accept() -> None:
    called = {names.to_tool_name(name) for name in ("技能", "jineng", "навык", "café", "cafe", "字" * 64)}
    assert len(called) == 6
    assert all(re.fullmatch(r"[a-z0-9_]{1,64}", name) for name in called)
    assert names.to_tool_name("Café") == names.to_tool_name("cafe\u0301")


@pytest.mark.parametrize(
    "name",
    ["../x", "..", ".", "/etc/passwd", "a/b", "a\\b", "a\x00b", "", " ", "C:x", "~", "a\nb", "ü!", "name@user"],
)
def test_no_name_leaves_its_root(name: str) -> None:
    with pytest.raises(Invalid) as caught:
        names.canonicalize_and_check_name(name)
    assert "can't be the name of a skill" in caught.value.message
    assert "\n" not in str(caught.value)
    assert "\x00" not in str(caught.value)


def test_the_error_offers_a_name_that_would_do() -> None:
    with pytest.raises(Invalid, match="'quarterly-report-q3' would do"):
        names.canonicalize_and_check_name("Quarterly report (Q3)!")


def test_a_coined_name_is_ascii() -> None:
    assert names.canonicalize_and_check_name("навык") == "навык"
    with pytest.raises(Invalid, match="'navyk' would do"):
        names.canonicalize_and_check_name("навык", is_coined=True)


@given(ANY_TEXT)
def test_a_text_is_a_name_exactly_when_its_canonical_spelling_is_legal(text: str) -> None:
    if names.is_legal_name(names.canonicalize_name(text)):
        assert names.canonicalize_and_check_name(text) == names.canonicalize_name(text)
    else:
        with pytest.raises(Invalid):
            names.canonicalize_and_check_name(text)


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("CSV Summary", "csv-summary"),
        ("  --Hello,   World!--  ", "hello-world"),
        ("Zürich Café", "zurich-cafe"),
        ("Привет мир", "privet-mir"),
        ("数据 汇总", "shuju-huizong"),
        ("../../etc/passwd", "etc-passwd"),
        ("a" * 63 + " b", "a" * 63),
        ("words " * 11, "-".join(["words"] * 10)),
        ("a" * 31 + " " + "b" * 32 + " c", "a" * 31 + "-" + "b" * 32),
        ("log " + "a" * 64, "log-" + "a" * 60),
        ("smile 😀", "smile-grinning"),
    ],
)
def test_slugify_speaks_every_script(text: str, slug: str) -> None:
    assert names.slugify(text) == slug


@given(ANY_TEXT)
def test_slugify_makes_a_legal_name_from_any_text_and_leaves_it_alone_after(text: str) -> None:
    slug = names.slugify(text)
    assert slug.isascii()
    assert names.is_legal_name(slug)
    assert names.slugify(slug) == slug


@given(LEGAL)
def test_a_legal_name_is_its_own_slug(name: str) -> None:
    assert names.slugify(name) == name


def test_texts_without_any_letter_get_different_names() -> None:
    found = {names.slugify(text) for text in ("", "!!!", "???", "---")}
    assert len(found) == 4
    assert all(name.startswith("skill-") for name in found)


def test_a_taken_name_gets_the_next_free_number() -> None:
    taken = {"report", "report-2", "report-3"}
    assert names.make_unique_name("Report", taken.__contains__) == "report-4"
    assert names.make_unique_name("other", taken.__contains__) == "other"


@given(ANY_TEXT, st.integers(0, 12))
def test_unique_names_are_legal_and_all_different(text: str, count: int) -> None:
    taken: set[str] = set()
    for _ in range(count):
        name = names.make_unique_name(text, taken.__contains__)
        assert names.is_legal_name(name)
        assert name not in taken
        taken.add(name)


def test_a_number_fits_even_at_full_length() -> None:
    base = "a" * 62 + "-b"
    assert names.make_unique_name(base, {base}.__contains__) == "a" * 62 + "-2"
    words = "-".join(["word"] * 12) + "-last"
    assert names.make_unique_name(words, {words}.__contains__) == "-".join(["word"] * 12) + "-2"


def test_an_address_names_a_layer_or_none() -> None:
    assert names.parse_address("CSV_Summary") == SkillAddress(name="csv-summary")
    assert names.parse_address("csv_summary@claude") == SkillAddress(name="csv-summary", layer="claude")
    assert [str(names.parse_address(text)) for text in ("a", "a@b")] == ["a", "a@b"]


def test_an_address_without_the_layer_after_its_at_is_refused() -> None:
    with pytest.raises(Invalid, match="names no layer after the '@'"):
        names.parse_address("csv-summary@")


def test_the_closest_name_forgives_a_slip_and_nothing_more() -> None:
    known = ["csv-summary", "pdf-report"]
    assert names.find_closest_name("CSV_sumary", known) == "csv-summary"
    assert names.find_closest_name("zzz", known) is None
    assert names.find_closest_name("pdf", known) is None
    assert names.find_closest_name("pdf", known, cutoff=0.3) == "pdf-report"


@given(LEGAL)
def test_a_known_name_is_its_own_closest_match(name: str) -> None:
    assert names.find_closest_name(name, [name, *itertools.islice(string.ascii_lowercase, 5)]) == name
