from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.learning.detectors import make_error_signature
from habitus.learning.detectors.error_signatures import ErrorCause, classify_error

GOLDEN = [
    # numbers
    ("line 53, column 7", "line <num>, column <num>"),
    ("expected 3.14 but got -2.5e-3", "expected <num> but got <num>"),
    ("paid 1,047 of 1,002", "paid <num> of <num>"),
    ("exit code -9", "exit code <num>"),
    ("took 12s", "took <num>s"),
    ("certificate_7504069 not found", "certificate_<num> not found"),
    ("error E1001 in utf8 codec", "error E1001 in utf8 codec"),
    # hex, commits, UUIDs
    ("object at 0x7f3a2b", "object at <hex>"),
    ("no commit deadbeef12", "no commit <hex>"),
    ("row 123e4567-e89b-12d3-a456-426614174000 is gone", "row <uuid> is gone"),
    ("the facade decade faded", "the facade decade faded"),
    # quotes: apostrophes don't pair
    ("engine='gmail-1' unknown", "engine=<str> unknown"),
    ('no column "price"', "no column <str>"),
    ("no module `numpy`", "no module <str>"),
    ("can't open the file, it isn't there", "can't open the file, it isn't there"),
    ("can't open 'a.txt', it isn't there", "can't open <str>, it isn't there"),
    ("No results for 'Ben & Jerry's best'. Try again", "No results for <str>. Try again"),
    ("unexpected keyword argument ''", "unexpected keyword argument <str>"),
    ("the users' list and 'x'", "the users' list and <str>"),
    # places
    ("cannot read /etc/app/settings.toml", "cannot read <path>"),
    ("cannot read ./notes.md or ~/notes.md", "cannot read <path> or <path>"),
    ("cannot read data/2024/march.csv", "cannot read <path>"),
    ("read and/or write", "read and/or write"),
    (r"cannot read C:\Users\ann\notes.txt now", "cannot read <path> now"),
    (r"no share \\server\public\x", "no share <path>"),
    ("404 for https://example.org/a/b?c=1#d", "<num> for <url>"),
    # envelopes
    ('{"error": {"type": "limit", "message": "wait 30 seconds"}}', "wait <num> seconds"),
    ('Error code: 400 - {"error": {"message": "bad id 7"}, "id": 9}', "Error code: <num> - bad id <num>"),
    ('{"detail": "no such user"}', "no such user"),
    ('{"rows": 3}', "{<str>: <num>}"),
    ("broken {json", "broken {json"),
    ('Traceback (most recent call last):\n  File "x.py", line 3, in f\nValueError: bad 12', "ValueError: bad <num>"),
    ("  spaces \n and lines ", "spaces and lines"),
    ("", ""),
]


@pytest.mark.req("EL-04")
@pytest.mark.parametrize(("error", "expected"), GOLDEN)
def test_golden_signatures(error: str, expected: str) -> None:
    assert make_error_signature(error) == expected


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("'\"/\\{}:0a. \n"), max_size=300))
def test_any_text_has_a_signature_without_surrounding_space(text: str) -> None:
    assert make_error_signature(text) == make_error_signature(text).strip()


@given(st.integers(), st.integers())
def test_errors_that_differ_in_a_number_have_one_signature(one: int, other: int) -> None:
    assert make_error_signature(f"row {one} is locked") == make_error_signature(f"row {other} is locked")


@given(st.from_regex(r"[A-Za-z0-9_ ]{1,30}", fullmatch=True), st.from_regex(r"[A-Za-z0-9_ ]{1,30}", fullmatch=True))
def test_errors_that_differ_in_a_quoted_word_have_one_signature(one: str, other: str) -> None:
    assert make_error_signature(f"no table '{one}' here") == make_error_signature(f"no table '{other}' here")


@pytest.mark.req("EL-10", "CL-08")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            "FAILURE: Build failed with an exception.\n\n* What went wrong:\nUnsupported class file major version 69\n",
            "Unsupported class file major version",
        ),
        ("FAILURE: Build failed with an exception.\n\n* What went wrong:\nThe daemon expired.\n", "The daemon expired"),
        (
            "Error: Some of the tasks failed:\n - the probe is locked by another debugger",
            "the probe is locked by another debugger",
        ),
        ("Error: Some of the tasks failed:", "Some of the tasks failed"),
        (
            "Installing dependencies from lock file\n\nThe project changed significantly since it was locked.",
            "The project changed significantly since it was locked",
        ),
        (
            "Build started...\nBuild succeeded.\nYour startup project 'A' doesn't reference the design package.",
            "doesn't reference the design package",
        ),
        (
            "Error: listen EADDRINUSE: address already in use :::3001\n ELIFECYCLE  Command failed with exit code 1.",
            "address already in use",
        ),
        (
            "remote: You are not allowed to push to main.\nerror: failed to push some refs to 'origin'",
            "You are not allowed to push to main",
        ),
        ("Error: Executable doesn't exist at /home/a/.cache/ms/chrome", "Executable doesn't exist at"),
        ("FATAL: no pg_hba.conf entry for host", "entry for host"),
        ("Cannot install because pnpm-lock.yaml is not up to date with package.json", "is not up to date with"),
    ],
)
def test_an_error_is_recognized_by_its_reason_and_not_by_the_headline(error: str, expected: str) -> None:
    assert classify_error(error).longest_plain_word_run == expected


@pytest.mark.parametrize(
    ("error", "subject"),
    [
        ("The system library `openssl` required by crate `openssl-sys` was not found.", "openssl-sys"),
        ("'settings.py' was not found", "settings.py"),
        ("config.yaml does not exist", "config.yaml"),
    ],
)
def test_what_was_not_found_is_named_and_not_the_word_before(error: str, subject: str) -> None:
    assert (classify_error(error).cause, classify_error(error).subject) == (ErrorCause.FILE, subject)
