"""A small library of skills, written for these tests, and requests that share few words with their skill."""

from __future__ import annotations

import pytest

from habitus.search.model import SearchDocument, SearchResults


def assert_alike(found: SearchResults, wanted: SearchResults) -> None:
    """The same hits in the same order; numbers within what machines make of the same sum."""
    assert [hit.id for hit in found.hits] == [hit.id for hit in wanted.hits]
    assert found.fits == wanted.fits
    assert found.confidence == pytest.approx(wanted.confidence, abs=1e-4)
    for one, other in zip(found.hits, wanted.hits, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.parts == pytest.approx(other.parts, abs=0.002)


def skill(id: str, description: str, *, body: str = "", cue: str = "", tags: tuple[str, ...] = ()) -> SearchDocument:
    return SearchDocument(id=id, name=id, description=description, body=body, when_to_use=cue, tags=tags)


SKILLS = (
    skill("csv-summary", "Summarise a CSV file: columns, types, missing values and outliers.", tags=("data",)),
    skill("bake-bread", "Bake a sourdough loaf at home, from starter to crust."),
    skill("git-bisect", "Find the commit that broke the build by halving the history."),
    skill("resize-images", "Scale pictures to a given width and keep their proportions.", tags=("media",)),
    skill("invoice-reminder", "Write a polite reminder for a bill that a customer has not paid yet."),
    skill("docker-cleanup", "Delete unused containers, images and volumes to free disk space."),
    skill("flight-search", "Look for cheap plane tickets between two airports on given dates."),
    skill("translate-document", "Render a text in another language and keep its layout."),
    skill("postgres-index", "Speed up slow database queries by adding the right index.", cue="When a query is slow"),
    skill("meeting-notes", "Turn a recorded conversation into minutes with decisions and tasks."),
    skill("dog-training", "Teach a puppy to sit, stay and come when it is called."),
    skill("password-rotation", "Replace expired credentials in the vault and tell their owners."),
    skill("parseJsonLines", "Read newline-delimited records and report the ones that are broken."),
    skill("weather-report", "Tell the temperature and the chance of rain for a city."),
    skill("tax-return", "Fill in the yearly income declaration for the authorities."),
)

PARAPHRASES = {
    "find the change that made the build fail": "git-bisect",
    "my pictures are too large for the web page, make them smaller": "resize-images",
    "the customer still owes us money, draft a friendly mail about the overdue payment": "invoice-reminder",
    "my SQL is taking forever, make the query fast": "postgres-index",
    "will I need an umbrella in Lisbon tomorrow?": "weather-report",
    "get rid of old docker containers, the hard disk is full": "docker-cleanup",
    "book me a low-cost airline ticket from Rome to Oslo": "flight-search",
    "how do I get my young dog to obey?": "dog-training",
    "parse json lines and show the invalid ones": "parseJsonLines",
}

UNRELATED = (
    "who won the chess championship in 1972?",
    "what is the meaning of life",
    "tighten the bolts of my bicycle saddle",
    "sing a lullaby about the moon",
)
