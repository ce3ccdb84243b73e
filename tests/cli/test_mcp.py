"""`habitus mcp` where it can't serve."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import Cli


@pytest.mark.req("CL-05")
def test_without_its_packages_the_command_says_what_to_install(installed_cli: Cli) -> None:
    start = "import sys; sys.modules['mcp_types'] = None; from habitus.cli.start import run; run()"
    ran = subprocess.run(
        [sys.executable, "-c", start, "mcp"],
        capture_output=True,
        text=True,
        cwd=installed_cli.cwd,
        env=installed_cli.environ(),
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("habitus: 'habitus mcp' needs the extra 'mcp', which is not installed.")
    assert "pip install 'habitus[mcp] @ file:" in ran.stderr
