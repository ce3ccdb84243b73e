"""Skills from an address, over REST and on the page: from the public internet alone."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

pytestmark = pytest.mark.req("CL-10")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("https://127.0.0.1/skills.zip", "is not on the public internet"),
        ("https://169.254.169.254/latest", "is not on the public internet"),
        ("http://example.org/x.zip", "Only the owner of this home adds from there."),
        ("ssh://git@host/x", "Only the owner of this home adds from there."),
        ("/etc", "Only the owner of this home adds from there."),
        ("file:///etc", "Only the owner of this home adds from there."),
    ],
)
def test_an_address_that_not_everybody_reaches_is_refused(
    api: TestClient, browser: TestClient, source: str, said: str
) -> None:
    refused = api.post("/api/v1/additions", json={"source": source})
    assert refused.status_code == 409
    assert said in refused.text
    assert said in browser.post("/import/address", data={"source": source}).text


def test_the_owner_is_told_where_a_private_address_is_added(api: TestClient) -> None:
    refused = api.post("/api/v1/additions", json={"source": "https://127.0.0.1/skills.zip"}).json()
    assert refused["detail"] == "Only the owner adds from there, with 'habitus skills add' where Habitus runs."


def test_the_page_has_a_place_for_an_address(browser: TestClient) -> None:
    assert 'name="source"' in browser.get("/import").text
    assert "No address given." in browser.post("/import/address", data={"source": " "}).text
