"""What a person's next words say about the turn before."""

from __future__ import annotations

import pytest

from habitus.agent.recording.outcomes import infer_outcome_from_next_request

BEFORE = "sum the numbers of the second column"


@pytest.mark.req("AG-10")
@pytest.mark.parametrize(
    "now",
    [
        "No, that's not what I meant",
        "that's wrong",
        "this is incorrect, look again",
        "It doesn't work",
        "You forgot the header row",
        "you got the total wrong",
        "I meant the third column",
        "Not what I asked for.",
        "try again",
        "Nein, die dritte Spalte",
        "das ist falsch",
        "non, c'est faux",
        "sum the numbers of the second column",
        "Sum the numbers of the second column, please",
    ],
)
def test_corrections_and_repetitions_count_against_it(now: str) -> None:
    judged = infer_outcome_from_next_request(BEFORE, now)
    assert judged is not None
    assert judged.kind.value == "failed"
    assert judged.weight < 1


@pytest.mark.req("AG-10")
@pytest.mark.parametrize(
    "now",
    [
        "thanks!",
        "Now do the same for the third column",
        "No problem. What about the fourth one?",
        "Note that the file has a header",
        "You have been a great help; next, plot it",
        "Nonetheless, export it as CSV",
        "Is it wrong to sort it first?",
        "Great, and the mean?",
        "",
    ],
)
def test_ordinary_words_do_not(now: str) -> None:
    assert infer_outcome_from_next_request(BEFORE, now) is None
