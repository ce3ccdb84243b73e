"""`habitus mcp` where it can't serve."""

from __future__ import annotations

import sys

import pytest

from habitus.cli.lazy import LazyCommand
from tests.cli.conftest import Direct


@pytest.mark.req("CL-05")
def test_without_its_packages_the_command_says_what_to_install(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    LazyCommand.loaded.cache_clear()  # this process may have loaded it for another test
    for name in [name for name in sys.modules if name.startswith(("habitus.mcp", "habitus.cli.mcp"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    ran = direct("mcp")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("habitus: 'habitus mcp' needs the extra 'mcp', which is not installed.")
    assert "pip install 'habitus[mcp]'" in ran.err
