"""Planted secrets go, ordinary text stays. The secrets are made up and are put together here from parts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from habitus.redact import RedactionResult, Redactor, count_redactions
from tests.planted import KEYS, SPLITS, WAYS, pieces

LETTERS = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzC"
HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"

SECRETS = {
    "anthropic": "sk-ant-" + "api03-" + LETTERS,
    "openai": "sk-" + "proj-" + LETTERS,
    "aws": "AKIA" + "2B3C4D5E6F7G8H9I",
    "github": "ghp_" + LETTERS + "aa",
    "gitlab": "glpat-" + LETTERS[:20],
    "slack": "xoxb-" + "123456789012-" + LETTERS[:20],
    "google": "AIza" + LETTERS + "x",
    "stripe": "k_live_" + LETTERS,
    "huggingface": "hf_" + LETTERS,
    "npm": "npm_" + LETTERS + "ab",
    "databricks": "dapi" + HEX,
    "jwt": "eyJ" + LETTERS + "." + LETTERS + "." + LETTERS,
    "pem": "-----BEGIN RSA " + "PRIVATE KEY-----\n" + LETTERS * 3 + "\n-----END RSA " + "PRIVATE KEY-----",
}


@pytest.mark.req("SB-14")
@pytest.mark.parametrize("kind", SECRETS)
def test_a_key_of_a_known_shape_goes_wherever_it_stands(kind: str) -> None:
    secret = ("s" if kind == "stripe" else "") + SECRETS[kind]
    for text in (secret, f"use {secret} please", f'{{"a": "{secret}"}}', f"X={secret}\n", f"({secret})"):
        redacted = Redactor().redact(text)
        assert SECRETS[kind] not in redacted.text
        assert f"[redacted:{kind}]" in redacted.text
        assert redacted.counts == {kind: 1}


@pytest.mark.req("SB-14")
@pytest.mark.parametrize("way", WAYS)
def test_a_key_goes_however_it_is_written_and_dumped(way: str) -> None:
    for key in KEYS.values():
        text = WAYS[way](key)
        nested = json.dumps(json.dumps([f"\n{text}"]))
        for dumped in (text, json.dumps({"x": f"a\n{text}"}), nested, repr(["\t" + text])):
            clean = Redactor().redact(dumped).text
            assert [piece for piece in pieces(key) if piece in clean] == []
        assert json.loads(Redactor().redact(json.dumps({"x": text})).text).keys() == {"x"}
        assert count_redactions(Redactor().redact(text).text)


def cut_at(key: str, *places: float) -> list[str]:
    ends = [0, *(round(len(key) * place) for place in places), len(key)]
    return [key[start:end] for start, end in itertools.pairwise(ends)]


@pytest.mark.req("SB-14")
@pytest.mark.parametrize("split", SPLITS)
def test_a_split_key_goes_with_all_its_parts(split: str) -> None:
    for places in ((0.5,), (0.34, 0.67), (0.8,)):
        parts = {kind: cut_at(key, *places) for kind, key in KEYS.items() if kind != "pem"}
        texts = {kind: f'it is "{SPLITS[split].join(each)}" they said' for kind, each in parts.items()}
        left = {kind: Redactor().redact(text).text for kind, text in texts.items()}
        assert {kind: text for kind, text in left.items() if any(part in text for part in parts[kind])} == {}
        stream = Redactor().open_redacting_stream()
        streamed = "".join(stream.feed(letter) for letter in "\n".join(texts.values())) + stream.end()
        assert [part for each in parts.values() for part in each if part in streamed] == []


@pytest.mark.req("SB-14")
def test_invisible_characters_between_all_letters_hide_no_key_and_no_known_value() -> None:
    for key in (*KEYS.values(), "known-value-1"):
        if "\n" not in key:
            assert Redactor(["known-value-1"]).redact("\u200b".join(key)).text.endswith("]")


@pytest.mark.req("SB-14")
@pytest.mark.parametrize(
    "follows", ["Then go on", "NAME2=17", "port2: 80", "line2", "next", "run_4()", "12345678 of 9"]
)
def test_the_line_after_a_key_stays(follows: str) -> None:
    for kind, key in KEYS.items():
        redacted = Redactor().redact(f"use {key}\n{follows}\n").text
        assert redacted.endswith(f"]\n{follows}\n"), kind
    assert Redactor().redact(f"ask the desk\n{follows}") == RedactionResult(text=f"ask the desk\n{follows}")


@pytest.mark.some(9)
@pytest.mark.req("SB-14")
@pytest.mark.parametrize("way", WAYS)
def test_a_key_in_two_pieces_goes_while_it_streams(way: str) -> None:
    for key in KEYS.values():
        text = WAYS[way](key)
        clean = Redactor().redact(text).text
        for cut in range(1, len(text), 17):
            stream = Redactor().open_redacting_stream()
            assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.end() == clean


@pytest.mark.req("SB-14")
def test_ordinary_words_stream_without_waiting_for_the_line_to_end() -> None:
    stream = Redactor().open_redacting_stream()
    assert [stream.feed(piece) for piece in ("The ", "key ", "point ", "is this", ", and ")] == [
        "The ",
        "",
        "key point ",
        "is ",
        "this, and ",
    ]


@pytest.mark.req("SB-14")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=hunter22", "password=[redacted:named]"),
        ("DB_PASSWORD=correcthorse", "DB_PASSWORD=[redacted:named]"),
        ('"password": "two words"', '"password": "[redacted:named]"'),
        ("passwd: s3same\nnext", "passwd: [redacted:named]\nnext"),
        ("{'token': 'abc12345xyz'}", "{'token': '[redacted:named]'}"),
        ("accessToken: 'ab12cd34ef'", "accessToken: '[redacted:named]'"),
        ('clientSecret="zz99yy88"', 'clientSecret="[redacted:named]"'),
        ("api-key => k3y-with-d1gits", "api-key => [redacted:named]"),
        (f"signing_key: {HEX}", "signing_key: [redacted:named]"),
        (f"session_id={HEX}; path=/", "session_id=[redacted:named]; path=/"),
        ("postgres://ann:s3cr3t@db.example/app", "postgres://ann:[redacted:url]@db.example/app"),
        (f"Authorization: Bearer {HEX}", "Authorization: Bearer [redacted:bearer]"),
        ("Authorization: Basic YW5uOnNlY3JldA==", "Authorization: Basic [redacted:basic]"),
        ('note="my password=hunter22"', 'note="my password=[redacted:named]"'),
    ],
)
def test_a_value_goes_because_of_its_name_or_its_place(text: str, expected: str) -> None:
    assert Redactor().redact(text).text == expected


@pytest.mark.req("SB-14")
@pytest.mark.parametrize(
    "text",
    [
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "max_tokens: 4096, tokens: 17",
        "def login(user: str, password: str, token: str | None = None) -> None:",
        "token = get_token(session)",
        "password=os.environ['DB_PASSWORD']",
        "password: <your password>",
        "api_key=$API_KEY or api_key=${API_KEY}",
        "Password: required",
        "the author: JohnSmith2",
        f"cache_key: {HEX}",
        f"public_key: {HEX}",
        "keyboard: qwertz123456789012345678",
        'class="sk-toggleable__content sk-estimator-doc-link"',
        "see https://example.org:8080/path@2",
        "bearer of good news and other things",
        "task-force-delta-2024-report-final",
        "AKIAIOSFODNN7EXAMPLE and ghp_" + "x" * 36,
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "sha512-" + "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
        "docker run -u 1000:1000 image",
        "https://example.org/a%20b?q=%7B%22page%22%3A1%7D",
        "use --token-limit 4096 and --password-file secret.txt",
        "aGVsbG8gd29ybGQsIHRoaXMgaXMgYSBub3Rl",
        "",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor().redact(text) == RedactionResult(text=text)


@pytest.mark.req("SB-14")
def test_known_values_go_in_every_spelling_and_are_counted() -> None:
    redactor = Redactor(["pä ss/wörd", 'quo"ted'])
    text = 'pä ss/wörd, p%C3%A4%20ss%2Fw%C3%B6rd, cMOkIHNzL3fDtnJk, {"a": "quo\\"ted"}'
    assert redactor.redact(text) == RedactionResult(
        text='[redacted:known], [redacted:known], [redacted:known], {"a": "[redacted:known]"}', counts={"known": 4}
    )


def test_values_too_short_to_be_secrets_blank_nothing_out() -> None:
    assert Redactor(["the", "", " "]).redact("the end").text == "the end"


def test_values_inside_structures_go_by_name_too() -> None:
    value = {"login": {"password": "hunter22", "tries": 3}, "urls": ["ftp://a:bcdef@c"], "note": None}
    assert Redactor().redact_value(value) == {
        "login": {"password": "[redacted:named]", "tries": 3},
        "urls": ["ftp://a:[redacted:url]@c"],
        "note": None,
    }


PARTS = [
    *SECRETS.values(),
    *(
        "password",
        "token",
        "key",
        "auth",
        "=",
        ": ",
        ":",
        "=>",
        '"',
        "'",
        "[",
        "]",
        "(",
        "\n",
        " ",
        "://",
        "@",
        "Bearer ",
    ),
    *(
        "hunter22",
        "[redacted:named]",
        "[redacted:url]",
        "[redacted:",
        "-----BEGIN PRIVATE KEY-----",
        HEX,
        "known-value-1",
    ),
]


@pytest.mark.req("SB-14")
@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=4), max_size=14).map("".join))
@example('token="[redacted:openai]abc12345":password=x1y2z3w4')
@example("AKIA2B3C4D5E6F7G8H9Isk-ant-api03-aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzC")
@example("dapi" + "0123456789abcdef" * 2 + "hooks.slack.com/services/T0/B0/" + "x1" * 12)
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    redactor = Redactor(["known-value-1"])
    once = redactor.redact(text).text
    assert redactor.redact(once) == RedactionResult(text=once)


@pytest.mark.req("SB-14")
@given(
    st.lists(st.sampled_from(PARTS[len(SECRETS) :]) | st.text(max_size=4), max_size=10),
    st.sampled_from([*WAYS.values()]),
    st.sampled_from([*KEYS.values()]),
)
@example(["known-value-1", HEX, "key"], next(iter(WAYS.values())), next(iter(KEYS.values())))
def test_what_streams_holds_no_key_wherever_it_is_cut(parts: list[str], way: Callable[[str], str], key: str) -> None:
    stream = Redactor(["known-value-1", "two words"]).open_redacting_stream()
    shown = "".join(map(stream.feed, [*parts, " ", *way(key), " two", " words ", *reversed(parts)])) + stream.end()
    assert [piece for piece in (*pieces(key), "known-value-1", "two words") if piece in shown] == []


@pytest.mark.req("SB-14")
@given(st.recursive(st.text() | st.sampled_from(PARTS), lambda inner: st.dictionaries(st.sampled_from(PARTS), inner)))
def test_dumped_values_stay_json(value: object) -> None:
    dumped = json.dumps(value)
    assert json.loads(Redactor().redact_json(dumped)) == Redactor().redact_value(json.loads(dumped))


@pytest.mark.some(1)
@pytest.mark.some(13)
@pytest.mark.parametrize(
    "piece",
    [
        "sk-",
        "eyJ",
        "password=",
        "-----BEGIN PRIVATE KEY-----",
        "://a:",
        "a",
        'key: "',
        "Bearer ",
        "key=",
        "token=",
        "%41",
        "QUJD",
        "QUJDQUJDQUJDQUJD\n",
        "sk-a1b2\n",
        "sk\n",
        "a1b2+",
        "s\u200b",
        "curl -u a:b",
        'password=\\\\"',
    ],
)
def test_hostile_repetition_costs_no_more_than_its_length(piece: str, is_thorough: bool) -> None:
    """Quadratic work on a megabyte would take hours; the test's time limit is the measure."""
    text = piece * ((30_000 if is_thorough else 6_000) // len(piece))
    Redactor(["known-value-1"]).redact(text)
    stream = Redactor(["known value"]).open_redacting_stream()
    for start in range(0, len(text), 10):
        stream.feed(text[start : start + 10])
