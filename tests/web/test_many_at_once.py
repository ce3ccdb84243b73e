"""Many requests at once: each gets its own answer, with its own ids and its own undo."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

API = "/api/v1"


@pytest.mark.req("OP-05")
def test_lessons_added_at_once_each_have_their_own_undo(api: TestClient) -> None:
    def add(number: int) -> Response:
        return api.post(f"{API}/lessons", json={"text": f"The wine of vineyard {number} needs {number} years."})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(add, range(24)))
    assert [answer.status_code for answer in answers] == [201] * 24
    told = [answer.json() for answer in answers]
    assert [one["undo"] for one in told] == [["undo", f"{one['lesson']['id']}:1"] for one in told]
