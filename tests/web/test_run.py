"""`make run`: the tour, and at a terminal its home on the web page until a key ends it."""

from __future__ import annotations

import re

import httpx2
import pytest

from tests.cli.pseudo_terminal import at_a_terminal
from tests.conftest import Cli


@pytest.mark.full
@pytest.mark.req("CL-02")
@pytest.mark.parametrize("key", ["q", "\x03"])
def test_at_a_terminal_the_tours_home_stays_to_look_at_until_a_key(run_cli: Cli, key: str) -> None:
    with at_a_terminal(
        [*run_cli.program, "tour", "--serve"], cwd=run_cli.cwd, env=run_cli.environ(), columns=200
    ) as terminal:
        said = terminal.wait_for("/mcp")
        (link,) = re.findall(r"http://\S+/enter\?key=\S+", said)
        with httpx2.Client(follow_redirects=True) as http:
            assert "Revenue" in http.get(link).text
        terminal.type(key)
        assert terminal.ended() == 0
    assert "habitus chat" in terminal.shown


@pytest.mark.full
def test_without_a_terminal_it_ends_after_the_tour(run_cli: Cli) -> None:
    ran = run_cli("tour", "--serve")
    assert (ran.code, "/enter?key=" in ran.out) == (0, False)
