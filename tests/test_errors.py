"""The error tree, and the hint that a misspelt name gets."""

from __future__ import annotations

import inspect
import re

import pytest

from habitus import errors
from habitus.errors import HabitusError, UserError, did_you_mean


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or ""))
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, HabitusError) and value is not HabitusError
    }
    assert drawn == classes


def test_what_a_person_reads_is_the_message_and_its_hint() -> None:
    error = UserError("No skill 'a'.", hint="Did you mean 'b'?")
    assert (error.message, error.hint, str(error)) == (
        "No skill 'a'.",
        "Did you mean 'b'?",
        "No skill 'a'. Did you mean 'b'?",
    )
    assert str(UserError("Alone.")) == "Alone."


@pytest.mark.req("CL-01")
def test_the_nearest_name_is_offered_and_a_far_one_is_not() -> None:
    assert did_you_mean("clade", ["user", "claude"]) == "Did you mean 'claude'?"
    assert did_you_mean("zzz", ["user", "claude"]) == ""
    assert did_you_mean("x", []) == ""
