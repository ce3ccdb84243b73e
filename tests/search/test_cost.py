"""What importing costs: the heavy libraries come only with an index."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SAYS_WHAT_CAME = """
import sys
from habitus.search.model import SearchDocument, SearchResults
print(sorted({"numpy", "sqlalchemy", "Stemmer"} & set(sys.modules)))
"""


@pytest.mark.req("PF-01")
def test_the_types_come_without_the_heavy_libraries() -> None:
    said = subprocess.run([sys.executable, "-c", _SAYS_WHAT_CAME], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
